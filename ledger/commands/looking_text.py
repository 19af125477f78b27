"""
Entries and figures as text for a terminal: one line an entry, one page an entry, one page a log. Pure.

What others have written (keys, names, messages) cannot move the cursor: every line goes through `printable`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Final

from ledger import canonical
from ledger.canonical import Json
from ledger.commands.console import one_line, printable
from ledger.entry import Entry, parse_entry
from ledger.looking.statistics import Statistics
from ledger.merkle import leaf_hash

TOLD: Final[Mapping[str, tuple[str, ...]]] = {
    "access.refused": ("operation", "reason", "count"),
    "alert.delivered": ("sink", "attempt"),
    "alert.raised": ("column", "kind", "confidence_percent"),
    "commit.decided": ("decision", "operation", "snapshots"),
    "commit.observed": ("snapshots",),
    "commit.settled": ("outcome", "snapshots"),
    "detection.found": ("column", "kind", "confidence_percent", "snapshot"),
    "logs.anchored": ("size", "root"),
    "scan.completed": ("snapshot", "rows", "findings"),
    "scan.failed": ("snapshot", "fault"),
}
"""What one line says of an entry's data; of other types, the members that hold no list and no object."""
SUMMARY_LENGTH_MAX: Final = 100


def entry_line(entry: bytes) -> str:
    """
    Return one line about an entry: index, time, type, key, and what matters in its data.

    Raises:
        FormatError: if it is no entry.
    """
    parsed = parse_entry(entry)
    time = canonical.format_time(parsed.recorded_at)
    return _line(f"{parsed.index:>9,}  {time}  {parsed.type:<19}  {parsed.key}  {_summary(parsed)}".rstrip())


def entry_page(entry: bytes, *, parts_held: Collection[str] | None) -> str:
    """
    Return everything about one entry: its place, its hashes, its event, and which of its payload parts still exist.

    `parts_held` names those that do, None if that is not known to who asks.

    Raises:
        FormatError: if it is no entry.
    """
    parsed = parse_entry(entry)
    event: Mapping[str, Json] = json.loads(entry)["event"]
    lines = [
        f"entry      {parsed.index:,} of {parsed.log}",
        f"type       {parsed.type} {parsed.version}",
        f"key        {parsed.key}",
        f"actor      {parsed.actor}",
        f"occurred   {canonical.format_time(parsed.occurred_at)}",
        f"recorded   {canonical.format_time(parsed.recorded_at)}",
        f"group      {parsed.group_id}, branch {parsed.branch}, event {parsed.position + 1} of {parsed.of}",
        f"previous   {parsed.previous.hex()}",
        f"leaf       {leaf_hash(entry).hex()}",
        f"size       {len(entry):,} bytes",
    ]
    for name, commitment in parsed.parts.items():
        held = "" if parts_held is None else ", held" if name in parts_held else ", erased"
        lines.append(f"part       {name}{held}, commitment {commitment.hex()}")
    data = printable(json.dumps(event["data"], indent=2, ensure_ascii=False))
    return "\n".join([*map(_line, lines), data])


def statistics_page(figures: Statistics) -> str:
    """
    Return the figures of a log as a page.
    """
    return "\n".join(map(printable, _statistics_lines(figures)))


def statistics_json(figures: Statistics) -> dict[str, Json]:
    """
    Return the figures of a log as a JSON document.
    """
    return {
        "origin": figures.origin,
        "size": figures.size,
        "signed_size": figures.signed_size,
        "checkpoints": figures.checkpoints,
        "groups": figures.groups,
        "bytes": figures.size_bytes,
        "parts_held": figures.parts_held,
        "parts_bytes": figures.parts_size_bytes,
        "control_index": figures.control_index,
        "first_recorded_at": _time(figures.first_recorded_at),
        "last_recorded_at": _time(figures.last_recorded_at),
        "entries_last_hour": figures.last_hour,
        "entries_last_day": figures.last_day,
        "types": {
            one.type: {
                "entries": one.entries,
                "bytes": one.size_bytes,
                "first_index": one.first_index,
                "last_index": one.last_index,
            }
            for one in figures.types
        },
    }


def _statistics_lines(figures: Statistics) -> Iterator[str]:
    yield f"log        {one_line(figures.origin)}"
    yield f"size       {figures.size:,} entries in {figures.groups:,} groups, {figures.size_bytes:,} bytes"
    yield f"signed     {figures.signed_size:,} entries, {figures.checkpoints:,} checkpoints"
    if figures.parts_held is not None:
        yield f"parts      {figures.parts_held:,} held, {figures.parts_size_bytes:,} bytes"
    if figures.first_recorded_at is not None and figures.last_recorded_at is not None:
        yield f"first      {canonical.format_time(figures.first_recorded_at)}"
        yield f"last       {canonical.format_time(figures.last_recorded_at)}"
    yield f"grown by   {figures.last_hour:,} entries in the last hour, {figures.last_day:,} in the last day"
    if figures.types:
        yield ""
        yield f"{'type':<24}{'entries':>12}{'bytes':>16}{'bytes each':>12}{'last index':>12}"
    for one in figures.types:
        each = one.size_bytes // one.entries
        yield f"{one_line(one.type):<24}{one.entries:>12,}{one.size_bytes:>16,}{each:>12,}{one.last_index:>12,}"


def _line(text: str) -> str:
    return printable(text.replace("\n", " "))


def _time(time: datetime | None) -> str | None:
    return None if time is None else canonical.format_time(time)


def _summary(entry: Entry) -> str:
    told = TOLD.get(entry.type)
    if told is None:
        values = [value for value in entry.data.values() if not isinstance(value, list | dict)]
    else:
        values = [entry.data[name] for name in told if name in entry.data]
    text = " ".join(word for value in values if (word := _word(value)))
    return text if len(text) <= SUMMARY_LENGTH_MAX else f"{text[: SUMMARY_LENGTH_MAX - 1]}…"


def _word(value: Json) -> str:
    if value is None or value == []:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
