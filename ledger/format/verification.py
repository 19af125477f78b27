# SPDX-License-Identifier: Apache-2.0
"""
The rules of a log, checked over its entries in order. Pure: the bytes may come from a directory or from a database.

Read this file to know what "verified" means, and `verify/tree.py` for the tree over the entries; `verify/directory.py`
and `verify/database.py` read the bytes. For the entry at each index, in this order:

1. its bytes are a canonical entry;
2. it names this log;
3. it carries this index: none is missing, repeated or moved;
4. its `previous` is the leaf hash of the entry before: nothing before it was changed;
5. its `recorded_at` is not before that of the entry before;
6. it continues the group before it, or begins one after that was complete;
7. its leaf hash is the one in the tree.

For the whole log: each tile holds the roots of the tiles below it, the root is the signed one, at the size of every
known checkpoint, and no group occurs twice (`GroupIds`: 24 bytes a group, checked once, at the end). A log whose origin
says that it continues another begins with what the signer of that one had signed last (`verify/starting.py`).

Precedence: the reported fault is the first by index, and at one index the first by these numbers. If an entry and the
tree disagree (7), or two tiles, both cannot be genuine. The signed root decides, by `leads_to_root`. If it follows from
the entries, the tile was changed and is named. If not, the entry was, and its index is named. Roots come last: if
entries and tiles agree with each other but not with a signature, no index can be named.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.checkpoint import Checkpoint
from ledger.format.entry import FIRST_PREVIOUS, Entry, Envelope, parse_entry, read_envelope
from ledger.format.key_history import Trusted, last_trees, open_signed
from ledger.format.merkle import EMPTY_ROOT, leaf_hash
from ledger.format.proof import ProvenEntry

ProgressCallback: TypeAlias = Callable[[int, int], None]
"""Called now and then with how many entries, of how many, are done."""

ID_BYTES: Final = 16
_FEW: Final = 65_536
"""Up to this many, a set of all ids costs less than importing numpy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationReport:
    """
    What was verified: a log of `size` entries and this root, without a fault.

    `first` is the index of the first entry that was read. Those before it had been verified when the caller accepted
    the checkpoint of the size `since`, or before an interruption (`resumed_at`, the size then). `signed_size` is the
    size of the newest signed checkpoint; entries behind it are chained, but not signed yet. `parts` counts the entries
    whose payload parts were present and match. `unchecked` names what was present and not checked, `checked` what was
    checked beyond the rules.

    The system log has recorded (anchored) the first `anchored_size` entries, None if that was not checked. Parties
    other than the installation itself have witnessed the first `witnessed_size`, and `witnessed_by` names them. For the
    entries behind them, or for all if it is 0, the whole installation may have been set back, or may show different
    histories to different readers. `is_pinned` tells whether the caller named the trusted keys.
    """

    origin: str
    size: int
    root: bytes
    signed_size: int
    checkpoints: int
    parts: int
    elapsed_s: float
    first: int = 0
    since: int | None = None
    resumed_at: int | None = None
    unchecked: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    anchored_size: int | None = None
    witnessed_size: int = 0
    witnessed_by: tuple[str, ...] = ()
    is_pinned: bool = True

    @property
    def is_signed(self) -> bool:
        """Whether anything was signed, if there is anything at all."""
        return self.signed_size > 0 or self.size == 0

    @property
    def witnessed(self) -> bool:
        """Whether others have witnessed the whole log."""
        return 0 < self.size == self.witnessed_size

    @property
    def entries_per_s(self) -> float:
        """How many entries were verified per second."""
        return (self.size - self.first) / self.elapsed_s if self.elapsed_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogVerdict:
    """The verdict on one of several logs: a report, or the first fault that was found."""

    origin: str
    result: VerificationReport | BrokenError


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainState:
    """What the next entry must follow, from the entry at `size - 1`: texts in UTF-8, empty at the start of a log."""

    size: int = 0
    last: bytes = FIRST_PREVIOUS
    recorded_at: bytes = b""
    group_id: bytes = b""
    branch: bytes = b""
    of: int = 0
    position: int = 0
    """The next one within the group; equal to `of` if the group is complete."""


class EntryRules:
    """Rules 1 to 6, over the entries of one log, behind `state`; `where` names, for errors, what holds an index."""

    def __init__(self, *, origin: str, where: Callable[[int], str], state: ChainState | None = None) -> None:
        self.origin = origin.encode()
        self.groups = GroupIds()
        self._where = where
        self.adopt(state or ChainState())

    def adopt(self, state: ChainState) -> None:
        """Continue from `state`, up to which other code has checked the entries by these rules."""
        self.size = state.size
        self.last = state.last
        self.recorded_at = state.recorded_at
        self._group = (state.group_id, state.branch, state.of)
        self._position = state.position

    @property
    def state(self) -> ChainState:
        """What the next entry must follow."""
        group_id, branch, of = self._group
        return ChainState(
            size=self.size,
            last=self.last,
            recorded_at=self.recorded_at,
            group_id=group_id,
            branch=branch,
            of=of,
            position=self._position,
        )

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
        if envelope.log != self.origin:  # 2
            raise self._broken(Fault.ORIGIN, expected=self.origin.decode(), found=envelope.log.decode())
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
        Check the rules that need the end of the log: the last group is complete, and no group occurs twice.

        Raises:
            BrokenError: (`Fault.GROUP`) if not.
        """
        if self._position != self._group[2]:
            expected = f"entry {self._position} of {self._group[2]} of group {self._group[0].decode()}"
            raise self._broken(Fault.GROUP, expected=expected, found="the end of the log")
        if (repeated := self.groups.first_repeated()) is not None:
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
            self.groups.add(binary_id(envelope.group_id), self.size)
        elif group != self._group or envelope.position != self._position:
            raise self._broken(
                Fault.GROUP,
                expected=f"entry {self._position} of {_group_text(self._group)}",
                found=f"entry {envelope.position} of {_group_text(group)}",
            )
        self._position = envelope.position + 1

    def _broken(self, fault: Fault, *, expected: object, found: object) -> BrokenError:
        return BrokenError(fault, where=self._where(self.size), expected=expected, found=found, index=self.size)


def state_behind(entry: bytes, *, index: int, where: str) -> ChainState:
    """
    Return the state behind the entry at `index`, which is trusted, except that it must be an entry.

    Raises:
        BrokenError: (`Fault.ENTRY`) if it is none, (`Fault.INDEX`) if it carries another index.
    """
    try:
        envelope = read_envelope(entry)
    except FormatError as error:
        raise BrokenError(Fault.ENTRY, where=where, expected="a canonical entry", found=error, index=index) from error
    if envelope.entry_index != index:
        found = f"entry {envelope.entry_index}"
        raise BrokenError(Fault.INDEX, where=where, expected=f"entry {index}", found=found, index=index)
    return ChainState(
        size=index + 1,
        last=leaf_hash(entry),
        recorded_at=envelope.recorded_at,
        group_id=envelope.group_id,
        branch=envelope.branch,
        of=envelope.of,
        position=envelope.position + 1,
    )


def read_checkpoint(note: bytes, trusted: Trusted, *, where: str, origin: str | None = None) -> Checkpoint:
    """
    Return the checkpoint of a note that its log has signed with a trusted key.

    Raises:
        BrokenError: `Fault.SIGNATURE` if it has not, `Fault.CHECKPOINT` if it is no checkpoint or not one of `origin`.
    """
    try:
        return open_signed(note, trusted, origin=origin)
    except (BrokenError, FormatError) as error:
        fault = error.fault if isinstance(error, BrokenError) else Fault.CHECKPOINT
        raise BrokenError(fault, where=where, expected="a checkpoint signed by its log", found=error) from error


def held_checkpoints(held: Sequence[bytes], trusted: Trusted, *, origin: str, size: int) -> list[Checkpoint]:
    """
    Return known checkpoints from other sources, verified, smallest first; a log of `size` must extend each.

    They include the trees of the log when each of its signer's keys retired, which the retired keys have signed.

    Raises:
        BrokenError: if one is not a signed checkpoint of this log, or (`Fault.INDEX`) of a larger one, or
            (`Fault.ROOT`) if one of size 0 has the root of something.
    """
    where = "checkpoint held elsewhere"
    kept = [read_checkpoint(note, trusted, where=where, origin=origin) for note in held]
    ends = last_trees(trusted, origin)
    opened = sorted([*kept, *ends], key=lambda known: known.size)
    if opened and (largest := opened[-1]).size > size:
        where = "what a retired key has signed last" if largest in ends else where
        expected = f"{largest.size} entries or more, as signed there"
        raise BrokenError(Fault.INDEX, where=where, expected=expected, found=f"a log of {size}", index=size)
    if any(checkpoint.size == 0 and checkpoint.root != EMPTY_ROOT for checkpoint in opened):
        raise BrokenError(Fault.ROOT, where=where, expected=f"the root {EMPTY_ROOT.hex()} at size 0", found="another")
    return opened


def read_proven(proven: ProvenEntry) -> Entry:
    """
    Return the entry that a proof has proven, checked to be one, and to be of the log and index of the proof.

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


def _group_text(group: tuple[bytes, bytes, int]) -> str:
    group_id, branch, of = group
    return f"{of}, branch {branch.decode()}, group {group_id.decode()}"


def binary_id(text: bytes) -> bytes:
    """Return a group's id in binary, from its text in entries: a UUID object would take four times as long."""
    return bytes.fromhex(text.replace(b"-", b"").decode())


class GroupIds:
    """The ids of a log's groups, in binary, and the index at which each begins, in order."""

    def __init__(self) -> None:
        self._ids = bytearray()
        self._firsts = array("q")

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, group_id: bytes, first: int) -> None:
        """Note the index at which a group begins; its id in binary."""
        self._ids += group_id
        self._firsts.append(first)

    def extend(self, packed: tuple[bytes, bytes]) -> None:
        """
        Add what `pack` has returned: ids of later groups.

        Raises:
            FormatError: if there are not as many ids as indices.
        """
        ids, firsts = packed
        if len(ids) % ID_BYTES or len(ids) // ID_BYTES * self._firsts.itemsize != len(firsts):
            raise FormatError("group ids", expected="16 bytes an id, 8 an index", found=(len(ids), len(firsts)))
        self._ids += ids
        self._firsts.frombytes(firsts)

    def pack(self, start: int = 0) -> tuple[bytes, bytes]:
        """Return the ids, joined, and the indices, 64 bits each as this machine has them, from the `start`-th on."""
        return bytes(self._ids[start * ID_BYTES :]), self._firsts[start:].tobytes()

    def first_repeated(self) -> tuple[UUID, int] | None:
        """Return the id and the index of the first group whose id stood before."""
        seen: set[bytes] = set()
        for number in self._suspects():
            group_id = bytes(self._ids[number * ID_BYTES : (number + 1) * ID_BYTES])
            if group_id in seen:
                return UUID(bytes=group_id), self._firsts[number]
            seen.add(group_id)
        return None

    def _suspects(self) -> Iterable[int]:
        """Return the numbers of groups, in order, among which all repeated ones are: few, if ids are ours."""
        if len(self) <= _FEW:
            return range(len(self))
        try:
            import numpy as np  # only here, because loading it takes longer than verifying a small log
        except ImportError:
            return range(len(self))  # an auditor's installation may do without it
        halves = np.frombuffer(bytes(self._ids), dtype=np.uint64)[1::2]  # the halves that are random, or a hash
        ordered = np.sort(halves)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        return [int(number) for number in np.flatnonzero(np.isin(halves, twice))] if len(twice) else ()
