// SPDX-License-Identifier: Apache-2.0
// Times in the reader's own zone. Pages have them in UTC, which stays where the pointer rests on one.

const format = new Intl.DateTimeFormat("en", {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  hourCycle: "h23", timeZoneName: "shortOffset",
});

const partsOf = (time) => Object.fromEntries(format.formatToParts(time).map(({ type, value }) => [type, value]));
const zoneOf = (part) => (["GMT", "GMT+0"].includes(part.timeZoneName) ? "UTC" : part.timeZoneName);

function show(element) {
  const time = new Date(element.dateTime);
  if (Number.isNaN(time.getTime())) return;
  const part = partsOf(time);
  element.title = element.textContent;
  element.textContent =
    `${part.year}-${part.month}-${part.day} ${part.hour}:${part.minute}:${part.second} ${zoneOf(part)}`;
}

/** Returns an element that shows a time of the log (RFC 3339, UTC). */
export function timeElement(time) {
  const made = document.createElement("time");
  made.dateTime = time;
  made.textContent = `${time.slice(0, 19).replace("T", " ")} UTC`;
  show(made);
  return made;
}

/** Shows the times of a part of a page in the reader's zone. */
export function showTimes(part) {
  part.querySelectorAll("time[datetime]").forEach(show);
}

/** Shows the hours below a picture in the zone of the reader, which its caption names. */
function showHours(picture) {
  const shown = [...picture.querySelectorAll("[data-hour]")].map((label) => {
    const part = partsOf(new Date(label.dataset.hour));
    label.textContent = `${part.hour}:${part.minute}`;
    return part;
  });
  for (const zone of picture.querySelectorAll(".zone")) zone.textContent = zoneOf(shown.at(-1));
}

showTimes(document);
document.querySelectorAll("figure:has([data-hour])").forEach(showHours);
