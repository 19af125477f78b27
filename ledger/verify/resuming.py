# SPDX-License-Identifier: Apache-2.0
"""
Saves how far verification has come, so that hours of work can be resumed after an interruption.

    FILE            canonical JSON: size, state of the chain and edge of the tree, up to which all was verified
    FILE.groups     the ids of the groups so far, appended as the work proceeds

Guarantee: progress is resumed only for the same log, and the log must continue from the checkpoint that was the newest
when the work began; that checkpoint is checked like one held elsewhere. Beyond their form nothing else of the files is
checked: they are the auditor's own, and whoever can write them can pretend that entries were verified. A report says
where work was resumed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast

from ledger.errors import FormatError, LedgerError
from ledger.files.atomic import SHARED, Forced, replace_file
from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.encoding import format_base64, parse_base64
from ledger.format.merkle import HASH_SIZE_BYTES
from ledger.format.note import NOTE_SIZE_BYTES_MAX
from ledger.format.sequence import NO_CONTROL
from ledger.format.tiles import TILE_WIDTH, Pending, frontier_of
from ledger.format.verification import ID_BYTES, ChainState, GroupIds
from ledger.verify.starting import Start

SAVE_ENTRIES: Final = 1 << 18
"""Entries between two saves: under a second of work."""

_STATE_BYTES_MAX: Final = NOTE_SIZE_BYTES_MAX * 2 + (1 << 22)
_FIRST_BYTES: Final = 8
_MEMBERS: Final = {"chunks", "control_index", "edge", "note", "origin", "state"}


class SavedProgress(NamedTuple):
    """Where to resume, and the newest note of the log when the work began."""

    start: Start
    groups: tuple[bytes, bytes]
    note: bytes
    control_index: int


class ProgressKeeper(Protocol):
    """Saves progress. Used by one verification at a time."""

    def load(self, origin: str, note: bytes, /) -> SavedProgress | None:
        """Return the saved progress on the log `origin`, if any; `note`, its newest one, is saved with new progress."""

    def save(self, start: Start, groups: GroupIds, /, *, control_index: int = ...) -> None:
        """Save, now and then, that all entries before `start` were verified."""

    def forget(self) -> None:
        """Discard what was saved: the work is complete."""


class NoProgressFile:
    """Saves nothing."""

    def load(self, origin: str, note: bytes, /) -> SavedProgress | None:  # noqa: ARG002 - as the protocol has it
        """Return None."""
        return None

    def save(self, start: Start, groups: GroupIds, /, *, control_index: int = NO_CONTROL) -> None:
        """Do nothing."""

    def forget(self) -> None:
        """Do nothing."""


class ProgressFile:
    """Saves progress in two files: `path`, and `.groups` next to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._groups_path = path.with_name(path.name + ".groups")
        self._origin = ""
        self._note = b""
        self._chunks: list[int] = []
        self._saved = 0

    def load(self, origin: str, note: bytes, /) -> SavedProgress | None:
        """
        Return the saved progress, None if there is no such file.

        Raises:
            FormatError: if the file is of another log, or not of its form.
            LedgerError: if it cannot be read.
        """
        self._origin, self._note = origin, note
        try:
            with self._path.open("rb") as file:
                data = file.read(_STATE_BYTES_MAX + 1)
            packed = self._groups_path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"{self._path} cannot be read: {error.strerror}") from error
        begun, self._chunks = _parse(data, packed, origin)
        self._note = begun.note
        self._saved = begun.start.state.size
        return begun

    def save(self, start: Start, groups: GroupIds, /, *, control_index: int = NO_CONTROL) -> None:
        """
        Save, if enough was verified since the last time. An interruption here leaves the older progress.

        Raises:
            LedgerError: if it cannot be written.
        """
        if start.state.size < self._saved + SAVE_ENTRIES or start.state.size % TILE_WIDTH:
            return
        known = sum(self._chunks)
        chunks = [*self._chunks, len(groups) - known]
        state = {k: v.hex() if isinstance(v, bytes) else v for k, v in asdict(start.state).items()}
        members: dict[str, Json] = {
            "chunks": chunks,
            "control_index": control_index,
            "edge": [[h.hex() for h in tile] for tile in start.edge],
            "note": format_base64(self._note),
            "origin": self._origin,
            "state": state,
        }
        unfinished = self._path.with_name(self._path.name + ".unfinished")
        try:
            with self._groups_path.open("r+b" if known else "wb") as file:
                file.seek(known * (ID_BYTES + _FIRST_BYTES))
                file.write(b"".join(groups.pack(known)))
                file.flush()
                os.fsync(file.fileno())
            state_file = canonical.encode(members)
            replace_file(self._path, state_file, mode=SHARED, forced=Forced.NOTHING, temporary=unfinished)
        except OSError as error:
            raise LedgerError(f"{self._path} cannot be written: {error.strerror}") from error
        self._chunks, self._saved = chunks, start.state.size

    def forget(self) -> None:
        """Remove both files."""
        self._path.unlink(missing_ok=True)
        self._groups_path.unlink(missing_ok=True)


def _parse(data: bytes, packed: bytes, origin: str) -> tuple[SavedProgress, list[int]]:
    what = "file of progress"
    file = canonical.decode(data)
    if not isinstance(file, dict) or file.keys() != _MEMBERS:
        raise FormatError(what, expected=f"an object of {sorted(_MEMBERS)}", found=data)
    if file["origin"] != origin:
        raise FormatError(what, expected=f"one of the log {origin}", found=file["origin"])
    chunks, control_index = _numbers(file["chunks"]), _numbers([file["control_index"]])[0]
    state = _state(file["state"])
    edge = _edge(file["edge"])
    if state.size % TILE_WIDTH or frontier_of(edge).size != state.size:
        raise FormatError(what, expected="the edge of a tree of a multiple of 256 entries", found=file["edge"])
    at, ids, firsts = 0, bytearray(), bytearray()
    for chunk in chunks:
        ids += packed[at : (at := at + chunk * ID_BYTES)]
        firsts += packed[at : (at := at + chunk * _FIRST_BYTES)]
    if any(chunk < 0 for chunk in chunks) or at > len(packed):
        raise FormatError(what, expected=f"{at} bytes of group ids", found=f"{len(packed)} bytes")
    note = parse_base64(file["note"] if isinstance(file["note"], str) else "", what="note")
    return SavedProgress(Start(state=state, edge=edge), (bytes(ids), bytes(firsts)), note, control_index), chunks


def _state(value: Json) -> ChainState:
    names = set(ChainState.__slots__)
    if not isinstance(value, dict) or value.keys() != names:
        raise FormatError("state", expected=f"an object of {sorted(names)}", found=value)
    texts = {name: _hex(value[name]) for name in ("last", "recorded_at", "group_id", "branch")}
    size, of, position = _numbers([value[name] for name in ("size", "of", "position")])
    if len(texts["last"]) != HASH_SIZE_BYTES or not 0 < position <= of or size < 1:
        raise FormatError("state", expected="the state behind an entry", found=value)
    return ChainState(size=size, of=of, position=position, **texts)


def _edge(value: Json) -> Pending:
    if not isinstance(value, list):
        raise FormatError("edge", expected="a list of lists of hashes", found=value)
    return tuple(tuple(_hex(h) for h in cast("list[Json]", tile)) for tile in value if isinstance(tile, list))


def _hex(value: Json) -> bytes:
    try:
        return bytes.fromhex(value if isinstance(value, str) else "?")
    except ValueError as error:
        raise FormatError("bytes", expected="hex digits", found=value) from error


def _numbers(value: Json | Sequence[Json]) -> list[int]:
    if not isinstance(value, list) or any(type(number) is not int for number in value):
        raise FormatError("numbers", expected="a list of whole numbers", found=value)
    return cast("list[int]", value)
