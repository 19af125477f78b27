// SPDX-License-Identifier: Apache-2.0
// Loads the part of a page again that shows how far something is, until that has ended.

import { showTimes } from "./times.mjs";

const PAUSE_MS = 2000;
const FOCUSABLE = "a, button";

const place = document.querySelector("#watched");

async function look() {
  const answer = await fetch(location.href, { redirect: "error" }).catch(() => null);
  if (answer?.ok) {
    const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("#watched");
    if (next === null) return;
    const focused = [...place.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
    place.replaceChildren(...next.childNodes);
    showTimes(place);
    place.querySelectorAll(FOCUSABLE)[focused]?.focus();  // whoever is at a button stays there
    place.dataset.watched = next.dataset.watched;
  }
  watch();
}

function watch() {
  if (place.dataset.watched === "yes") setTimeout(look, PAUSE_MS);
}

watch();
