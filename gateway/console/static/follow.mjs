// SPDX-License-Identifier: Apache-2.0
// The live tail of the log: entries that come are put on top of the table, as text.

import { timeElement } from "./times.mjs";

const ROWS_MAX = 500;
const COLUMNS = ["index", "recorded at", "type", "says", "about", "actor"];

const table = document.querySelector("#entries tbody");
const button = document.querySelector("#follow");
const state = document.querySelector("#followed");
let source = null;

function link(path, words) {
  const made = document.createElement("a");
  made.href = path;
  made.textContent = words;
  return made;
}

/** Returns what an entry is about: names that keep a direction of their own, of a table with a link to its page. */
function about(entry) {
  const made = entry.path === null ? document.createElement("span") : link(entry.path, "");
  made.className = "key";
  for (const [words, isName] of entry.about) {
    const piece = isName ? document.createElement("bdi") : document.createTextNode(words);
    if (isName) piece.textContent = words;
    made.append(piece);
  }
  return made;
}

/** Returns who wrote an entry: by name, if another row of the page has it. */
function named(actor) {
  const known = table.querySelector(`td[data-actor="${CSS.escape(actor)}"] > *`);
  if (known !== null) return known.cloneNode(true);
  const made = document.createElement("code");
  made.textContent = actor;
  return made;
}

function row(entry) {
  const made = document.createElement("tr");
  const index = link(`/console/log/${Number(entry.index)}`, entry.index);
  const actor = named(entry.actor);
  const cells = [index, timeElement(entry.recorded_at), entry.type, entry.says, about(entry), actor];
  for (const [place, content] of cells.entries()) {
    const cell = document.createElement("td");
    cell.dataset.label = COLUMNS[place];
    cell.append(content);
    made.append(cell);
  }
  made.firstChild.className = "number";
  made.lastChild.className = "extra";
  return made;
}

function stop(words) {
  source?.close();
  source = null;
  button.textContent = "Follow";
  state.textContent = words;
}

function start() {
  const asked = new URLSearchParams(location.search);
  const sent = new URLSearchParams();
  for (const name of ["type", "key", "actor"]) {
    if (asked.get(name)) sent.set(name, asked.get(name));
  }
  const newest = table.querySelector("td.number a");
  if (newest) sent.set("from", Number(newest.textContent) + 1);  // what came since the page was made is not left out
  let came = 0;
  source = new EventSource(`/console/log/follow?${sent}`);
  source.addEventListener("open", () => { state.textContent = "Following: new entries come on top."; });
  source.addEventListener("entry", (event) => {
    table.prepend(row(JSON.parse(event.data)));
    while (table.rows.length > ROWS_MAX) table.lastElementChild.remove();
    came += 1;
    state.textContent = `Following: ${came} new.`;
  });
  source.addEventListener("error", (event) => {
    if (event.data) {
      stop(JSON.parse(event.data).error.message);  // the gateway has ended it, and says why
    } else if (source?.readyState === EventSource.CLOSED) {
      stop("The gateway does not answer, or you are logged out: load the page again.");
    } else {
      state.textContent = "The connection was lost; trying again.";
    }
  });
  button.textContent = "Stop";
}

button.addEventListener("click", () => (source === null ? start() : stop("")));
button.hidden = false;
