// SPDX-License-Identifier: Apache-2.0
// The live tail of the log: entries that come are put on top of the table, as text.

import { timeElement } from "./times.mjs";

const ROWS_MAX = 500;
const TABLE = "table:";
const COLUMNS = ["index", "recorded at", "type", "says", "about", "actor"];

const says = JSON.parse(document.querySelector("#entries").dataset.says);
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

/** Returns what the page says of an entry: members of its data, which the table names for each type. */
function said(entry) {
  const found = (says[entry.type] ?? []).map((name) => [name, entry.data[name]]).filter(([, value]) => value != null);
  return found.map(([name, value]) => (typeof value === "number" ? `${value} ${name}` : value)).join(", ");
}

/** Returns what an entry is about: a table with a link to its page. */
function about(key) {
  const [alias, ...names] = key.slice(TABLE.length).split("/");
  if (!key.startsWith(TABLE) || names.length < 2) return key;
  const namespace = names.slice(0, -1).join("%1F");
  return link(`/console/tables/${alias}/${namespace}/${names.at(-1)}`, key.slice(TABLE.length));
}

function row(entry) {
  const made = document.createElement("tr");
  const index = link(`/console/log/${Number(entry.index)}`, entry.index);
  const actor = document.createElement("code");
  actor.textContent = entry.actor.slice(0, 8);
  const cells = [index, timeElement(entry.recorded_at), entry.type, said(entry), about(entry.key), actor];
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
