"""
The rules of a log, checked over its entries in order. Pure: the bytes may come from a directory or from a database.

Read this file to know what "verified" means, and `tree.py` for the tree over the entries; `directory.py`
and `database.py` fetch. For the entry at each index, in this order:

1. its bytes are a canonical entry;
2. it names this log;
3. it carries this index: none is missing, repeated or moved;
4. its `previous` is the leaf hash of the entry before: nothing before it was changed;
5. its `recorded_at` is not before that of the entry before;
6. it goes on with the group before it, or begins one after that was complete;
7. its leaf hash is the one that the tree holds.

And of the whole: each tile holds the roots of the tiles below it, the root is the one that was signed, at the size of
every checkpoint that is known, and no group stands in the log twice.

Precedence: the fault that is reported is the first by index, and at one index the first by these numbers. Where an
entry and the tree disagree (7), or two tiles, both cannot be genuine. The signed root decides, by `leads_to_root`: if
it follows from what the entries say, the tile was changed and is named; if not, the entry was, and its index is named.
Roots come last: where entries and tiles agree with each other but not with a signature, no index can be named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from ledger.checkpoint import Checkpoint, open_checkpoint
from ledger.entry import FIRST_PREVIOUS, Entry, parse_entry
from ledger.envelope import Envelope, read_envelope
from ledger.errors import BrokenError, Fault, FormatError
from ledger.merkle import EMPTY_ROOT
from ledger.note import VerifierKey
from ledger.proof import ProvenEntry

Progress: TypeAlias = Callable[[int, int], None]
"""Told, now and then, how many entries of how many are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """
    What was verified: a log of `size` entries and this root, and no fault was found.

    `anchored` is False: the root was signed by the log alone, with no witness and no time stamp, so a log that shows
    different histories to different readers is not excluded. `signed_size` is the size of the newest signed checkpoint;
    entries behind it are chained, but nobody has signed them yet. `parts` counts the entries whose payload parts were
    there and match, `unchecked` names what was there and not looked at.
    """

    origin: str
    size: int
    root: bytes
    signed_size: int
    checkpoints: int
    parts: int
    elapsed_s: float
    unchecked: tuple[str, ...] = ()
    anchored: bool = False

    @property
    def entries_per_s(self) -> float:
        """How many entries were verified in a second."""
        return self.size / self.elapsed_s if self.elapsed_s > 0 else 0.0


class EntryRules:
    """Rules 1 to 6, over the entries of one log from index 0 on; `where` names, for errors, what holds an index."""

    def __init__(self, *, origin: str, where: Callable[[int], str]) -> None:
        self._where = where
        self.size = 0
        self.last = FIRST_PREVIOUS
        self.recorded_at = b""
        self._origin = origin.encode()
        self._group: tuple[bytes, bytes, int] = (b"", b"", 0)
        self._position = 0
        self._groups = _GroupIds()

    def check(self, entry: bytes, leaf: bytes) -> Envelope:
        """
        Check the next entry, whose leaf hash is `leaf`, and return its envelope.

        Raises:
            BrokenError: if it breaks a rule; carries its index.
        """
        try:
            envelope = read_envelope(entry)  # 1
        except FormatError as error:
            raise self._broken(Fault.ENTRY, expected="a canonical entry", found=error) from error
        if envelope.log != self._origin:  # 2
            raise self._broken(Fault.ORIGIN, expected=self._origin.decode(), found=envelope.log.decode())
        if envelope.entry_index != self.size:  # 3
            raise self._broken(Fault.INDEX, expected=f"entry {self.size}", found=f"entry {envelope.entry_index}")
        if envelope.previous != self.last.hex().encode():  # 4
            raise self._broken(Fault.CHAIN, expected=self.last.hex(), found=envelope.previous.decode())
        if envelope.recorded_at < self.recorded_at:  # 5: as text, because all times have one form
            expected = f"{self.recorded_at.decode()} or later"
            raise self._broken(Fault.TIME, expected=expected, found=envelope.recorded_at.decode())
        self._check_group(envelope)  # 6
        self.size += 1
        self.last = leaf
        self.recorded_at = envelope.recorded_at
        return envelope

    def finish(self) -> None:
        """
        Check what can only be said at the end: the last group is complete, and no group stands in the log twice.

        Raises:
            BrokenError: (`Fault.GROUP`) if not.
        """
        if self._position != self._group[2]:
            expected = f"entry {self._position} of {self._group[2]} of group {self._group[0].decode()}"
            raise self._broken(Fault.GROUP, expected=expected, found="the end of the log")
        if (repeated := self._groups.first_repeated()) is not None:
            group_id, index = repeated
            raise BrokenError(
                Fault.GROUP,
                where=self._where(index),
                expected="a new group",
                found=f"group {group_id} again",
                index=index,
            )

    def _check_group(self, envelope: Envelope) -> None:
        group = (envelope.group_id, envelope.branch, envelope.of)
        if self._position == self._group[2]:
            if envelope.position != 0:
                expected = "the first entry of a group"
                raise self._broken(Fault.GROUP, expected=expected, found=f"its entry {envelope.position}")
            self._group = group
            self._groups.add(envelope.group_id, self.size)
        elif group != self._group or envelope.position != self._position:
            raise self._broken(
                Fault.GROUP,
                expected=f"entry {self._position} of {_group_text(self._group)}",
                found=f"entry {envelope.position} of {_group_text(group)}",
            )
        self._position = envelope.position + 1

    def _broken(self, fault: Fault, *, expected: object, found: object) -> BrokenError:
        return BrokenError(fault, where=self._where(self.size), expected=expected, found=found, index=self.size)


def read_checkpoint(note: bytes, keys: Sequence[VerifierKey], *, where: str, origin: str | None = None) -> Checkpoint:
    """
    Return the checkpoint of a note that is signed by its log.

    Raises:
        BrokenError: `Fault.SIGNATURE` if it is not, `Fault.CHECKPOINT` if it is no checkpoint or not one of `origin`.
    """
    try:
        return open_checkpoint(note, keys, origin=origin)
    except (BrokenError, FormatError) as error:
        fault = error.fault if isinstance(error, BrokenError) else Fault.CHECKPOINT
        raise BrokenError(fault, where=where, expected="a checkpoint signed by its log", found=error) from error


def held_checkpoints(held: Sequence[bytes], keys: Sequence[VerifierKey], *, origin: str, size: int) -> list[Checkpoint]:
    """
    Return checkpoints that were kept elsewhere, opened, smallest first; a log of `size` must go on from each.

    Raises:
        BrokenError: if one is not a signed checkpoint of this log, or (`Fault.INDEX`) of a larger one, or
            (`Fault.ROOT`) if one of size 0 has the root of something.
    """
    where = "checkpoint held elsewhere"
    opened = sorted(
        (read_checkpoint(note, keys, where=where, origin=origin) for note in held), key=lambda known: known.size
    )
    if opened and (largest := opened[-1].size) > size:
        expected = f"{largest} entries, as in a checkpoint held elsewhere"
        raise BrokenError(Fault.INDEX, where=where, expected=expected, found=f"a log of {size}", index=size)
    if any(checkpoint.size == 0 and checkpoint.root != EMPTY_ROOT for checkpoint in opened):
        raise BrokenError(Fault.ROOT, where=where, expected=f"the root {EMPTY_ROOT.hex()} at size 0", found="another")
    return opened


def read_proven(proven: ProvenEntry) -> Entry:
    """
    Return the entry that a proof has proven, checked to be one, and to say of itself what the proof says.

    Raises:
        BrokenError: if it is no entry, or names another log or another index.
    """
    where = "proof"
    try:
        entry = parse_entry(proven.entry)
    except FormatError as error:
        raise BrokenError(
            Fault.ENTRY, where=where, expected="a canonical entry", found=error, index=proven.index
        ) from error
    if entry.log != proven.checkpoint.origin:
        expected = proven.checkpoint.origin
        raise BrokenError(Fault.ORIGIN, where=where, expected=expected, found=entry.log, index=proven.index)
    if entry.index != proven.index:
        expected, found = f"entry {proven.index}", f"entry {entry.index}"
        raise BrokenError(Fault.INDEX, where=where, expected=expected, found=found, index=proven.index)
    return entry


_INDEX_BYTES: Final = 8
_GROUP_ID_BYTES: Final = 36


class _GroupIds:
    """Finds a group id that stands twice: 44 bytes a group, looked at once, at the end."""

    def __init__(self) -> None:
        self._buckets: defaultdict[int, bytearray] = defaultdict(bytearray)

    def add(self, group_id: bytes, index: int) -> None:
        """Note the index at which a group begins; its id is a UUID in text form."""
        # By its last digit, which is random in the ids that we make: sixteen buckets, so that sorting one needs little.
        self._buckets[group_id[-1]] += group_id + index.to_bytes(_INDEX_BYTES, "big")

    def first_repeated(self) -> tuple[str, int] | None:
        """Return the id and the index of the first group whose id stood before."""
        first: tuple[str, int] | None = None
        width = _GROUP_ID_BYTES + _INDEX_BYTES
        for bucket in self._buckets.values():
            rows = sorted(bytes(bucket[at : at + width]) for at in range(0, len(bucket), width))
            for one, other in pairwise(rows):
                if one[:_GROUP_ID_BYTES] == other[:_GROUP_ID_BYTES]:
                    index = int.from_bytes(other[_GROUP_ID_BYTES:], "big")
                    if first is None or index < first[1]:
                        first = (one[:_GROUP_ID_BYTES].decode(), index)
        return first


def _group_text(group: tuple[bytes, bytes, int]) -> str:
    group_id, branch, of = group
    return f"{of}, branch {branch.decode()}, group {group_id.decode()}"
