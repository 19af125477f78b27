// SPDX-License-Identifier: Apache-2.0
// Shows how far a replay is, while it runs, and its result once it has ended.

const WAIT_MS = 1000;
const place = document.getElementById("replay");
const bar = document.getElementById("progress");
const far = document.getElementById("far");

async function look() {
  const answer = await fetch("/console/policies/_replay/state", { redirect: "error" });
  if (!answer.ok) {
    throw new Error(`the gateway answers ${answer.status}`);
  }
  const now = await answer.json();
  if (now.state !== "running" || now.replay !== place.dataset.replay) {
    location.reload();
    return;
  }
  bar.max = Math.max(now.total, 1);
  bar.value = now.done;
  const format = (count) => count.toLocaleString("en");
  const begins = now.waits ? "it waits for a process that does it" : "it begins";
  const done = now.total ? `${format(now.done)} of ${format(now.total)} entries` : begins;
  far.textContent = `${done}, ${now.ran_s} s`;
  setTimeout(follow, WAIT_MS);
}

async function follow() {
  try {
    await look();
  } catch (error) {
    far.textContent = `This cannot be followed any more: ${error.message}. Load the page again.`;
  }
}

setTimeout(follow, WAIT_MS);
