"""
Anchors: what the system log has recorded of the others, and whether they are still that. Pure.

At intervals the system log takes size and root of every log that was signed since (`logs.anchored`). Whoever holds a
checkpoint of the system log therefore holds every log: one that is removed, cut off or rewritten, with its checkpoints
and even with its signatures, contradicts an anchor.

Guarantee: if `check_anchors` returns, the log's tree has the recorded root at the size of each of its anchors, and
those sizes grow. Entries behind the newest anchor are not covered. The system log must have been verified before: an
anchor is as good as the tree that it stands in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ledger.encoding import SIZE_MAX
from ledger.entry import Entry, check_origin, parse_entry
from ledger.errors import BrokenError, Fault, FormatError
from ledger.events import LogsAnchored, from_data
from ledger.keys import format_key

_ROOT: Final = re.compile("[0-9a-f]{64}")
_MARK: Final = b'"type":"logs.anchored"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The log `origin` had this root at `size`, says the entry of the system log at `index`, recorded at that time."""

    origin: str
    size: int
    root: bytes
    index: int
    recorded_at: datetime


def anchor_key(origin: str) -> str:
    """
    Return the event key of a log: `log:` and its origin.

    Raises:
        FormatError: if a segment of the origin is empty.
    """
    return format_key("log", origin.split("/"))


def parse_anchor(entry: Entry) -> Anchor:
    """
    Return the anchor that an entry of the system log is.

    Raises:
        FormatError: if it is none, or not as this version writes them.
    """
    if (entry.type, entry.version) != (LogsAnchored.TYPE, LogsAnchored.VERSION):
        found = f"{entry.type} {entry.version}"
        raise FormatError("anchor", expected=f"{LogsAnchored.TYPE} {LogsAnchored.VERSION}", found=found)
    data = from_data(LogsAnchored, dict(entry.data))
    check_origin(data.origin)
    if entry.key != anchor_key(data.origin):
        raise FormatError("anchor", expected=f"the key {anchor_key(data.origin)}", found=entry.key)
    if not 0 < data.size <= SIZE_MAX:
        raise FormatError("anchor", expected="a size from 1", found=data.size)
    if not _ROOT.fullmatch(data.root):
        raise FormatError("anchor", expected="a root of 64 lower-case hex digits", found=data.root)
    root = bytes.fromhex(data.root)
    return Anchor(origin=data.origin, size=data.size, root=root, index=entry.index, recorded_at=entry.recorded_at)


def anchors_of(entries: Iterable[bytes]) -> Mapping[str, Sequence[Anchor]]:
    """
    Return the anchors among entries of the system log, by the origin of the log that they are of, in order.

    Only entries that are anchors are looked into; the rest is for those who verify the system log.

    Raises:
        BrokenError: (`Fault.ANCHOR`) if one is not as it must be; carries its index in the system log.
    """
    anchors: dict[str, list[Anchor]] = {}
    for entry in entries:
        # Canonical JSON: the type of an entry can be written in no other way. Strings of data can hold the mark only
        # with its quotes escaped, but objects of data can hold it: hence the second look.
        if _MARK not in entry or (parsed := parse_entry(entry)).type != LogsAnchored.TYPE:
            continue
        try:
            anchor = parse_anchor(parsed)
        except FormatError as error:
            raise BrokenError(
                Fault.ANCHOR, where=parsed.log, expected="an anchor", found=error, index=parsed.index
            ) from error
        anchors.setdefault(anchor.origin, []).append(anchor)
    return anchors


def check_anchors(
    anchors: Sequence[Anchor], *, origin: str, size: int, root_at: Callable[[int], bytes]
) -> Anchor | None:
    """
    Check that the log `origin`, verified and of this size, is what its `anchors` say; return the newest one, if any.

    `root_at` gives the root that the verified log had at a size from 1 to `size`; it is called with growing sizes. Of a
    log that is not there, `size` is 0.

    Raises:
        BrokenError: (`Fault.ANCHOR`) if the log is shorter than an anchor, with the index of the first entry that is
            missing, or has another root at its size; then the bad entry lies between that size and the anchor before.
    """
    held: Anchor | None = None
    for anchor in anchors:
        where = f"anchor at index {anchor.index} of the system log"
        if anchor.origin != origin:
            raise BrokenError(Fault.ANCHOR, where=where, expected=f"the log {origin}", found=anchor.origin)
        if held is not None and anchor.size <= held.size:
            expected = f"a size over {held.size}, as in the anchor at index {held.index}"
            raise BrokenError(Fault.ANCHOR, where=where, expected=expected, found=anchor.size)
        if anchor.size > size:
            expected = f"log {origin} of {anchor.size} entries or more"
            found = f"{size} entries" if size else "no such log, or an empty one: it was removed whole"
            raise BrokenError(Fault.ANCHOR, where=where, expected=expected, found=found, index=size)
        if (root := root_at(anchor.size)) != anchor.root:
            expected = f"the root {anchor.root.hex()} of {origin} at size {anchor.size}"
            since = f"entries from {held.size} on" if held else "entries"
            raise BrokenError(Fault.ANCHOR, where=where, expected=expected, found=f"{root.hex()}: {since} were changed")
        held = anchor
    return held


def check_all_present(anchors: Mapping[str, Sequence[Anchor]], *, origins: Collection[str]) -> None:
    """
    Check that each log that the system log has anchored is among `origins`, the logs that there are.

    Raises:
        BrokenError: (`Fault.ANCHOR`) if one is missing; names the first by name.
    """
    for origin in sorted(anchors):
        if origin not in origins:
            check_anchors(anchors[origin], origin=origin, size=0, root_at=lambda _: b"")
