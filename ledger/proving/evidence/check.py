# SPDX-License-Identifier: Apache-2.0
"""
Checks an evidence bundle offline, from the file and the keys that the caller trusts. No database, no network.

The steps, in order; the first that fails determines the fault:

1. The file is a bundle, byte for byte, and its checkpoint is signed by the log with one of the keys.
2. Every entry is a canonical entry of this log, below the signed size, behind the one before it and not earlier. If two
   are neighbours in the log, the second holds the leaf hash of the first and continues its group.
3. Every disclosed payload part is the one that its entry commits to.
4. The entries and the proof lead to the signed root, and the proof has exactly the hashes that it needs.
5. The entries are what the scope says (`scope.py`).
6. The section of the installation's system log keeps the same rules, and its entry records size and root of the first
   checkpoint.
7. Each time stamp is over the checkpoint above it, by an authority that the caller pinned, if there is one.

Guarantee: what `check_evidence` returns was signed by the log, and what it calls complete is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ledger.anchoring.anchors import (
    NOT_WITNESSED,
    Anchor,
    Pinned,
    Witnessing,
    judge_witnessing,
    parse_anchor,
    stamped_note,
)
from ledger.anchoring.timestamp import check_stamp
from ledger.errors import BrokenError, Fault, FormatError, LimitExceededError
from ledger.format.checkpoint import Checkpoint
from ledger.format.continuation import is_or_succeeds, system_origin_of
from ledger.format.entry import Entry, parse_entry
from ledger.format.event import Part, commitment
from ledger.format.merkle import leaf_hash
from ledger.format.note import VerifierKey, parse_note
from ledger.format.proof import root_from
from ledger.format.verification import read_checkpoint
from ledger.proving.evidence.bundle import Bundle, BundledEntry, Section, is_bundle, parse_bundle
from ledger.proving.evidence.scope import Coverage, Scope, check_scope

NOBODY: Final = Pinned()
"""No pinned keys or authorities: nothing is witnessed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceEntry:
    """An entry that the log has signed, and those of its payload parts that were disclosed and match."""

    entry: Entry
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedEvidence:
    """
    What a bundle proves.

    `coverage` says what is complete and what was selected. `anchor` is the system log's record of the checkpoint (if
    its key was given). `unchecked` names what was present and not checked.
    """

    scope: Scope
    checkpoint: Checkpoint
    entries: tuple[EvidenceEntry, ...]
    coverage: Coverage
    anchor: Anchor | None
    witnessing: Witnessing
    unchecked: tuple[str, ...]


def check_evidence(data: bytes, keys: Sequence[VerifierKey], *, pinned: Pinned = NOBODY) -> CheckedEvidence:
    """
    Check a bundle against the keys that the caller trusts, and return what it proves.

    `keys` are those of the log and, for the anchor, of the system log; `pinned` are the other parties that the caller
    trusts.

    Raises:
        FormatError: if `data` does not begin as a bundle does: there is nothing to check.
        BrokenError: at the first fault; names its class, and the entry's index where there is one.
    """
    bundle = _parse(data)
    checkpoint, entries = _check_section(bundle.section, keys, where="evidence")
    coverage = check_scope(bundle.scope, [proven.entry for proven in entries], size=checkpoint.size)
    unchecked = _unknown_signatures(bundle.section.checkpoint, keys, pinned)
    anchor: Anchor | None = None
    # Derived from the signed origin: the origin in the anchor could be changed so that the anchor is skipped.
    system = system_origin_of(checkpoint.origin)
    if bundle.anchor is not None and not any(is_or_succeeds(key.name, first=system) for key in keys):
        unchecked.append(f"the anchor in the log {system}: name its key, too")
    elif bundle.anchor is not None:
        anchor = _check_anchor(bundle.anchor, checkpoint, keys)
        unchecked += _unknown_signatures(bundle.anchor.checkpoint, keys, pinned)
    for section in (bundle.section, bundle.anchor):
        if section is not None and section.stamp is not None and not pinned.stamp_roots:
            unchecked.append(f"the time stamp on the checkpoint of {_origin(section)}: name the authority's root, too")
    for section in (bundle.section, bundle.anchor if anchor is not None else None):
        if section is not None and section.stamp is not None and pinned.stamp_roots:
            _check_stamp(section.stamp, section.checkpoint, pinned)
    return CheckedEvidence(
        scope=bundle.scope,
        checkpoint=checkpoint,
        entries=tuple(entries),
        coverage=coverage,
        anchor=anchor,
        witnessing=_judge(bundle, checkpoint, anchor, keys, pinned),
        unchecked=tuple(unchecked),
    )


def _parse(data: bytes) -> Bundle:
    if not is_bundle(data):
        return parse_bundle(data)  # raises: it is something else
    try:
        return parse_bundle(data)
    except FormatError as error:
        raise BrokenError(Fault.PROOF, where="evidence", expected="a bundle, to the byte", found=error) from error


def _check_section(
    section: Section, keys: Sequence[VerifierKey], *, where: str
) -> tuple[Checkpoint, list[EvidenceEntry]]:
    checkpoint = read_checkpoint(section.checkpoint, keys, where=where)  # 1
    proven: list[EvidenceEntry] = []
    leaves: dict[int, bytes] = {}
    before: Entry | None = None
    for bundled in section.entries:
        entry = _check_entry(bundled, checkpoint, where=where)  # 2
        _check_order(entry, before, leaves, where=where)
        _check_parts(entry, bundled.parts, where=where)  # 3
        leaves[entry.index] = leaf_hash(bundled.entry)
        proven.append(EvidenceEntry(entry=entry, parts=bundled.parts))
        before = entry
    root = root_from(leaves, size=checkpoint.size, proof=section.proof)  # 4
    if root != checkpoint.root:
        raise BrokenError(
            Fault.PROOF, where=where, expected=f"the signed root {checkpoint.root.hex()}", found=root.hex()
        )
    return checkpoint, proven


def _check_entry(bundled: BundledEntry, checkpoint: Checkpoint, *, where: str) -> Entry:
    try:
        entry = parse_entry(bundled.entry)
    except FormatError as error:
        raise BrokenError(Fault.ENTRY, where=where, expected="a canonical entry", found=error) from error
    if entry.log != checkpoint.origin:
        raise BrokenError(Fault.ORIGIN, where=where, expected=checkpoint.origin, found=entry.log, index=entry.index)
    if entry.index >= checkpoint.size:
        expected = f"an entry of the signed tree of {checkpoint.size}"
        raise BrokenError(Fault.INDEX, where=where, expected=expected, found=f"entry {entry.index}", index=entry.index)
    return entry


def _check_order(entry: Entry, before: Entry | None, leaves: dict[int, bytes], *, where: str) -> None:
    """Check that an entry follows the one before it in the bundle, and the chain of neighbours in the log."""
    if before is None:
        return
    if entry.index <= before.index:
        expected = f"an index over {before.index}"
        raise BrokenError(Fault.INDEX, where=where, expected=expected, found=entry.index, index=entry.index)
    if entry.recorded_at < before.recorded_at:
        expected = f"{before.recorded_at} or later"
        raise BrokenError(Fault.TIME, where=where, expected=expected, found=entry.recorded_at, index=entry.index)
    if entry.index != before.index + 1:
        return
    if entry.previous != leaves[before.index]:
        expected, found = leaves[before.index].hex(), entry.previous.hex()
        raise BrokenError(Fault.CHAIN, where=where, expected=expected, found=found, index=entry.index)
    continues = before.position + 1 < before.of
    same = (entry.group_id, entry.branch, entry.of) == (before.group_id, before.branch, before.of)
    if entry.position != (before.position + 1 if continues else 0) or (continues and not same):
        expected = "the next entry of the group before it" if continues else "the first entry of a group"
        found = f"entry {entry.position} of {entry.group_id}"
        raise BrokenError(Fault.GROUP, where=where, expected=expected, found=found, index=entry.index)


def _check_parts(entry: Entry, parts: Sequence[Part], *, where: str) -> None:
    for part in parts:
        found = commitment(salt=part.salt, payload=part.payload)
        if (expected := entry.parts.get(part.name)) != found:
            raise BrokenError(
                Fault.PART,
                where=f"{where} part {part.name}",
                expected=expected.hex() if expected else f"one of the parts {sorted(entry.parts)}",
                found=found.hex(),
                index=entry.index,
            )


def _check_anchor(section: Section, checkpoint: Checkpoint, keys: Sequence[VerifierKey]) -> Anchor:
    signed, proven = _check_section(section, keys, where="anchor")  # 6
    system = system_origin_of(checkpoint.origin)
    if not is_or_succeeds(signed.origin, first=system):
        raise BrokenError(Fault.ANCHOR, where="anchor", expected=f"the system log {system}", found=signed.origin)
    try:
        anchors = [parse_anchor(one.entry) for one in proven]
    except FormatError as error:
        raise BrokenError(Fault.ANCHOR, where="anchor", expected="an anchor", found=error) from error
    (anchor, *more) = anchors
    said = (anchor.origin, anchor.size, anchor.root)
    if more or any(one.parts for one in proven) or said != (checkpoint.origin, checkpoint.size, checkpoint.root):
        expected = f"one anchor of {checkpoint.origin} at size {checkpoint.size} with the root {checkpoint.root.hex()}"
        found = f"{len(anchors)}, of {anchor.origin} at size {anchor.size} with the root {anchor.root.hex()}"
        raise BrokenError(Fault.ANCHOR, where="anchor", expected=expected, found=found, index=anchor.index)
    return anchor


def _check_stamp(token: bytes, note: bytes, pinned: Pinned) -> None:
    """Check a time stamp, also one that is not needed because the anchor is witnessed."""
    try:
        check_stamp(token, stamped_note(note), roots=pinned.stamp_roots, policy=pinned.stamp_policy)  # 7
    except (FormatError, LimitExceededError) as error:
        raise BrokenError(Fault.STAMP, where="time stamp", expected="a time-stamp token", found=error) from error


def _judge(
    bundle: Bundle, checkpoint: Checkpoint, anchor: Anchor | None, keys: Sequence[VerifierKey], pinned: Pinned
) -> Witnessing:
    """Return which parties other than the log have witnessed the checkpoint: through the anchor, or else directly."""
    if anchor is not None and bundle.anchor is not None:
        judged = judge_witnessing(
            bundle.anchor.checkpoint,
            origin=checkpoint.origin,
            anchors=[anchor],
            keys=keys,
            pinned=pinned,
            token=bundle.anchor.stamp,
        )
        if judged.kinds:
            return judged
    if pinned == NOBODY:
        return NOT_WITNESSED
    return judge_witnessing(
        bundle.section.checkpoint,
        origin=checkpoint.origin,
        anchors=(),
        keys=keys,
        pinned=pinned,
        token=bundle.section.stamp,
    )


def _origin(section: Section) -> str:
    """Return the origin that a checkpoint claims, unchecked."""
    return section.checkpoint.decode(errors="replace").partition("\n")[0]


def _unknown_signatures(note: bytes, keys: Sequence[VerifierKey], pinned: Pinned) -> list[str]:
    """Return the signature lines that no given key could check."""
    witnesses = () if pinned.policy is None else tuple(witness.key for witness in pinned.policy.witnesses)
    known = {(key.name, key.key_id) for key in (*keys, *witnesses)}
    _, lines = parse_note(note)
    return [f"a signature by {line.name}" for line in lines if (line.name, line.key_id) not in known]
