# SPDX-License-Identifier: Apache-2.0
"""
Classes of tampering with an evidence bundle, each with the step of the check that must fail, and the fault.

The bundle is that of a decision on two tables with the rules it was judged by, anchored in the system log, which two of
three witnesses have cosigned: real entries, a real signer, and witnesses in directories of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ledger.errors import Fault
from ledger.format.checkpoint import Checkpoint
from ledger.format.cosignature import Cosigner, parse_cosignatures
from ledger.format.merkle import leaf_hash
from ledger.format.note import Ed25519Signer, Signature, VerifierKey, format_note, parse_note
from ledger.format.signature import ED25519_COSIGNATURE
from ledger.format.witness_policy import PolicyGroup, PolicyWitness, WitnessPolicy
from ledger.proving.evidence.bundle import Bundle, BundledEntry, Section, format_bundle, parse_bundle
from ledger.proving.evidence.check import check_evidence
from ledger.proving.evidence.gather import DecisionOf, Rules
from ledger.proving.evidence.scope import DecisionScope, Period, PeriodScope, TableScope
from ledger.witness.rules import AddCheckpoint, format_request
from ledger.witness.store import open_cosigners
from testkit.ledger.evidence_logs import (
    SYSTEM,
    TABLE,
    anchor_of,
    evidence,
    group_id,
    hour,
    section_of,
    story_directory,
    story_rows,
    text_of,
)
from testkit.ledger.logs import KEY, ORIGIN, OTHER_ORIGIN, SIGNER
from testkit.ledger.witnesses import make_witness, opened, timeless

UNWITNESSED: Final = "witness"
"""The fault of evidence that too few of the named witnesses have cosigned; `check_evidence` only says NOT WITNESSED."""
STRANGER: Final = Ed25519Signer.from_seed(name=ORIGIN, seed=bytes(32))
OTHER: Final = Ed25519Signer.from_seed(name=OTHER_ORIGIN, seed=bytes(range(1, 33)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A bundle, what its reader trusts, and what must be found; without a fault it cannot be told."""

    data: bytes
    keys: Sequence[str]
    policy: str | None
    step: str | None = None
    fault: str | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Honest:
    """A bundle in which everything is right, and who has cosigned its anchor; three witnesses are named, two needed."""

    bundle: Bundle
    checkpoint: Checkpoint
    cosigners: Sequence[Cosigner]
    keys: Sequence[VerifierKey] = field(default_factory=lambda: [KEY, SYSTEM.verifier_key])

    @property
    def policy(self) -> WitnessPolicy:
        """Return the policy that its reader has."""
        witnesses = tuple(
            PolicyWitness(name=f"w{at}", key=cosigner.verifier_key) for at, cosigner in enumerate(self.cosigners)
        )
        group = PolicyGroup(name="two", threshold=2, members=tuple(witness.name for witness in witnesses))
        return WitnessPolicy(logs=(), witnesses=witnesses, groups=(group,), quorum="two")

    @property
    def anchor(self) -> Section:
        """Return the section of the system log."""
        assert self.bundle.anchor is not None
        return self.bundle.anchor

    def case(self, *, step: str | None = None, fault: str | None = None, index: int | None = None) -> Case:
        """Return it as it is."""
        return self.of(format_bundle(self.bundle), step=step, fault=fault, index=index)

    def of(self, data: bytes, *, step: str | None, fault: str | None, index: int | None = None) -> Case:
        """Return other bytes in its place."""
        keys = [key.format() for key in self.keys]
        return Case(data=data, keys=keys, policy=self.policy.format().decode(), step=step, fault=fault, index=index)

    def replaced(self, old: bytes, new: bytes, *, step: str, fault: str | None) -> Case:
        """Return the file with other bytes in the place of the first `old`."""
        data = format_bundle(self.bundle)
        assert old in data
        return self.of(data.replace(old, new, 1), step=step, fault=fault)

    def with_section(self, section: Section, *, step: str, fault: str, index: int | None = None) -> Case:
        """Return it with another first section."""
        return replace(self, bundle=replace(self.bundle, section=section)).case(step=step, fault=fault, index=index)

    def with_entries(
        self, entries: Sequence[BundledEntry], fault: str, index: int | None = None, *, step: str = "entries"
    ) -> Case:
        """Return it with other entries and the same proof."""
        section = replace(self.bundle.section, entries=tuple(entries))
        return self.with_section(section, step=step, fault=fault, index=index)

    def edited(
        self, place: int, old: bytes, new: bytes, fault: str, index: int | None = None, *, step: str = "entries"
    ) -> Case:
        """Return it with one entry edited, the one at this place of the bundle."""
        entries = list(self.bundle.section.entries)
        assert old in entries[place].entry
        entries[place] = replace(entries[place], entry=entries[place].entry.replace(old, new, 1))
        return self.with_entries(entries, fault, index, step=step)

    def with_proof(self, proof: Sequence[bytes]) -> Case:
        """Return it with another proof."""
        section = replace(self.bundle.section, proof=tuple(proof))
        return self.with_section(section, step="inclusion", fault=Fault.PROOF)

    def with_note(self, note: bytes, fault: str, index: int | None = None, *, step: str = "signature") -> Case:
        """Return it with another checkpoint."""
        section = replace(self.bundle.section, checkpoint=note)
        return self.with_section(section, step=step, fault=fault, index=index)

    def chosen(self, indexes: Sequence[int], index: int | None = None) -> Case:
        """Return a selection of entries of the log, with a proof that holds, which is not what the scope says."""
        section = section_of(story_rows(), indexes, SIGNER)
        return self.with_section(section, step="scope", fault=Fault.PROOF, index=index)

    def with_anchor(
        self, anchor: Section | None, fault: str, index: int | None = None, *, step: str = "anchor"
    ) -> Case:
        """Return it with another anchor."""
        bundle = replace(self.bundle, anchor=anchor)
        return replace(self, bundle=bundle).case(step=step, fault=fault, index=index)

    def with_cosignatures(self, lines: Sequence[Signature], fault: str) -> Case:
        """Return it with other signature lines of witnesses."""
        text, (own, *_) = parse_note(self.anchor.checkpoint)
        anchor = replace(self.anchor, checkpoint=format_note(text, [own, *lines]))
        return self.with_anchor(anchor, fault, step="witnesses")

    @property
    def cosignatures(self) -> Sequence[Signature]:
        """Return the signature lines of the witnesses."""
        return parse_note(self.anchor.checkpoint)[1][1:]


def make_honest(folder: Path) -> Honest:
    """Return the honest bundle, made of a log, and by witnesses, in a new folder."""
    data = evidence(story_directory(folder / "log"), DecisionOf(group_id=group_id(6), rules=Rules.INCLUDED))
    checkpoint = check_evidence(data, [KEY]).checkpoint
    anchor = anchor_of(checkpoint)
    cosigners: list[Cosigner] = []
    lines: list[Signature] = []
    with ExitStack() as stack:
        for number in range(3):
            algorithms = (ED25519_COSIGNATURE,)
            path = make_witness(
                folder / f"w{number}", name=f"witness.example/w{number}", logs=(SYSTEM,), algorithms=algorithms
            )
            cosigners += open_cosigners(path)
            witness = stack.enter_context(opened(path))
            request = format_request(AddCheckpoint(old_size=0, proof=(), note=anchor.checkpoint))
            lines += parse_cosignatures(witness.add_checkpoint(request))
    text, own = parse_note(anchor.checkpoint)
    anchor = replace(anchor, checkpoint=format_note(text, [*own, *lines[:2]]))
    return Honest(bundle=replace(parse_bundle(data), anchor=anchor), checkpoint=checkpoint, cosigners=cosigners)


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _entries(honest: Honest) -> list[BundledEntry]:
    return list(honest.bundle.section.entries)


def _with_part(honest: Honest, place: int, changed: Callable[[BundledEntry], BundledEntry], index: int) -> Case:
    entries = _entries(honest)
    entries[place] = changed(entries[place])
    return honest.with_entries(entries, Fault.PART, index)


def _renamed_part(bundled: BundledEntry) -> BundledEntry:
    *rest, last = bundled.parts
    return replace(bundled, parts=(*rest, replace(last, name="zeal")))


def _changed_payload(bundled: BundledEntry) -> BundledEntry:
    first, *rest = bundled.parts
    return replace(bundled, parts=(replace(first, payload=first.payload + b" "), *rest))


def _exchanged_salt(bundled: BundledEntry) -> BundledEntry:
    first, second, *rest = bundled.parts
    return replace(bundled, parts=(replace(first, salt=second.salt), second, *rest))


def _signature_bit(honest: Honest) -> Case:
    text, (line,) = parse_note(honest.bundle.section.checkpoint)
    changed = replace(line, signature=_flipped(line.signature, 40))
    return honest.with_note(format_note(text, [changed]), Fault.SIGNATURE)


def _checkpoint_text(honest: Honest, old: bytes, new: bytes, fault: Fault = Fault.SIGNATURE) -> Case:
    note = honest.bundle.section.checkpoint
    assert old in note
    return honest.with_note(note.replace(old, new, 1), fault)


def _root_exchanged(honest: Honest) -> Case:
    old, new = (root.splitlines()[2] for root in (honest.bundle.section.checkpoint, honest.anchor.checkpoint))
    return _checkpoint_text(honest, old, new)


def _other_previous(honest: Honest) -> Case:
    before, own = (bundled.entry for bundled in honest.bundle.section.entries[2:4])
    previous = leaf_hash(before).hex().encode()
    assert previous in own
    return honest.edited(3, previous, previous[::-1], Fault.CHAIN, 8)


def _smaller_log(honest: Honest) -> Case:
    note = section_of(story_rows()[:9], [0], SIGNER).checkpoint
    return honest.with_note(note, Fault.INDEX, 9, step="entries")


def _other_log_s_checkpoint(honest: Honest) -> Case:
    note = section_of(story_rows(log=OTHER_ORIGIN), [0], OTHER).checkpoint
    trusting = replace(honest, keys=[*honest.keys, OTHER.verifier_key])
    return trusting.with_note(note, Fault.ORIGIN, 1, step="entries")


def _rewritten(honest: Honest) -> Case:
    """The operator has told another history before: entries and proof are whole, and the checkpoint is the old one."""
    section = section_of(story_rows()[:-1], [1, 3, 7, 8, 9, 10], SIGNER)
    return honest.with_section(
        replace(section, checkpoint=honest.bundle.section.checkpoint), step="inclusion", fault=Fault.PROOF
    )


def _scope(honest: Honest, scope: DecisionScope | TableScope, index: int | None = None) -> Case:
    return replace(honest, bundle=replace(honest.bundle, scope=scope)).case(
        step="scope", fault=Fault.PROOF, index=index
    )


def _period(honest: Honest, indexes: Sequence[int], index: int) -> Case:
    scope = PeriodScope(period=Period(since=text_of(hour(4)), until=text_of(hour(6))))
    return replace(honest, bundle=replace(honest.bundle, scope=scope)).chosen(indexes, index)


def _anchor_elsewhere(honest: Honest) -> Case:
    signer = Ed25519Signer.from_seed(name="logs.another/system", seed=bytes(32))
    trusting = replace(honest, keys=[*honest.keys, signer.verifier_key])
    return trusting.with_anchor(anchor_of(honest.checkpoint, signer=signer), Fault.ANCHOR)


def _no_anchor_entry(honest: Honest) -> Case:
    return honest.with_anchor(section_of(story_rows(log=SYSTEM.name), [0], SYSTEM), Fault.ANCHOR)


def _anchor_by_stranger(honest: Honest) -> Case:
    signer = Ed25519Signer.from_seed(name=SYSTEM.name, seed=bytes(32))
    return honest.with_anchor(anchor_of(honest.checkpoint, signer=signer), Fault.SIGNATURE)


def _anchor_proof(honest: Honest) -> Case:
    first, *rest = honest.anchor.proof
    return honest.with_anchor(replace(honest.anchor, proof=(_flipped(first, 0), *rest)), Fault.PROOF)


def _cosignature_bit(honest: Honest) -> Case:
    first, second = honest.cosignatures
    return honest.with_cosignatures([first, replace(second, signature=_flipped(second.signature, 50))], Fault.SIGNATURE)


def _cosignature_time(honest: Honest) -> Case:
    first, second = honest.cosignatures
    return honest.with_cosignatures([first, replace(second, signature=_flipped(second.signature, 7))], Fault.SIGNATURE)


def _cosigned_another(honest: Honest) -> Case:
    text, _ = parse_note(anchor_of(honest.checkpoint, others=6).checkpoint)
    first, _ = honest.cosignatures
    return honest.with_cosignatures([first, honest.cosigners[1].cosign(text, time_s=1)], Fault.SIGNATURE)


def _timeless(honest: Honest) -> Case:
    text, _ = parse_note(honest.anchor.checkpoint)
    first, _ = honest.cosignatures
    return honest.with_cosignatures([first, timeless(honest.cosigners[1], text)], UNWITNESSED)


def _cosigned_by_stranger(honest: Honest) -> Case:
    text, _ = parse_note(honest.anchor.checkpoint)
    first, _ = honest.cosignatures
    stranger = Cosigner.from_seed(ED25519_COSIGNATURE, name=first.name, seed=bytes(32))
    return honest.with_cosignatures([first, stranger.cosign(text, time_s=1)], UNWITNESSED)


def _trust(honest: Honest, **changed: object) -> Case:
    return replace(honest.case(step="trust"), **changed)  # type: ignore[arg-type]


def _without_quorum(honest: Honest) -> Case:
    *lines, _ = honest.policy.format().decode().splitlines()
    return _trust(honest, policy="\n".join(lines) + "\n")


def _key_id_changed(honest: Honest) -> Case:
    name, _, rest = KEY.format().split("+", 2)
    return _trust(honest, keys=[f"{name}+00000000+{rest}"])


FORM: Final[dict[str, Callable[[Honest], Case]]] = {
    "cut off": lambda h: h.of(format_bundle(h.bundle)[:-1], step="form", fault=Fault.PROOF),
    "bytes behind its end": lambda h: h.of(format_bundle(h.bundle) + b"\n", step="form", fault=Fault.PROOF),
    "another version": lambda h: h.replaced(b"evidence@v1", b"evidence@v2", step="form", fault=None),
    "a scope of no kind": lambda h: h.replaced(b"scope decision", b"scope opinion", step="form", fault=Fault.PROOF),
    "a line too many": lambda h: h.replaced(b"\nentry ", b"\n\nentry ", step="form", fault=Fault.PROOF),
    "parts out of order": lambda h: h.replaced(b"part inputs ", b"part quill ", step="form", fault=Fault.PROOF),
    "base64 without padding": lambda h: h.replaced(b"=\n", b"\n", step="form", fault=Fault.PROOF),
    "a checkpoint beyond the end": lambda h: h.replaced(
        b"\ncheckpoint ", b"\ncheckpoint 9", step="form", fault=Fault.PROOF
    ),
}
SIGNATURES: Final[dict[str, Callable[[Honest], Case]]] = {
    "a bit of the signature": _signature_bit,
    "a checkpoint by another key": lambda h: h.with_note(
        section_of(story_rows(), [0], STRANGER).checkpoint, Fault.SIGNATURE
    ),
    "a larger size": lambda h: _checkpoint_text(h, b"\n15\n", b"\n16\n"),
    "another root": _root_exchanged,
    "another origin": lambda h: _checkpoint_text(h, ORIGIN.encode() + b"\n", OTHER_ORIGIN.encode() + b"\n"),
    "another name in the signature line": lambda h: _checkpoint_text(h, b"\xe2\x80\x94 logs", b"\xe2\x80\x94 dogs"),
    "no signature line": lambda h: _checkpoint_text(h, b"\n\n", b"\n", Fault.CHECKPOINT),
    "the checkpoint of another log": _other_log_s_checkpoint,
}
ENTRIES: Final[dict[str, Callable[[Honest], Case]]] = {
    "a word in an entry before another": lambda h: h.edited(2, b'"approved"', b'"rejected"', Fault.CHAIN, 8),
    "a word in the last entry": lambda h: h.edited(5, b'"accepted"', b'"rejected"', Fault.PROOF, step="inclusion"),
    "no JSON": lambda h: h.edited(0, b'"actor":"', b'"actor":"system"}', Fault.ENTRY),
    "a space": lambda h: h.edited(0, b'{"event":', b'{"event": ', Fault.ENTRY),
    "a fraction": lambda h: h.edited(0, b'"index":1,', b'"index":1.0,', Fault.ENTRY),
    "members in another order": lambda h: h.edited(0, b'{"event":', b'{"a":1,"event":', Fault.ENTRY),
    "a day that is none": lambda h: h.edited(
        0, b'"recorded_at":"2026-03-01', b'"recorded_at":"2026-02-30', Fault.ENTRY
    ),
    "an entry of another log": lambda h: h.edited(3, ORIGIN.encode(), OTHER_ORIGIN.encode(), Fault.ORIGIN, 8),
    "two entries exchanged": lambda h: h.with_entries([(e := _entries(h))[1], e[0], *e[2:]], Fault.INDEX, 1),
    "an entry twice": lambda h: h.with_entries([(e := _entries(h))[0], *e], Fault.INDEX, 1),
    "an entry that was not signed": _smaller_log,
    "an earlier time": lambda h: h.edited(1, b'"recorded_at":"2026', b'"recorded_at":"2025', Fault.TIME, 3),
    "another hash of the entry before": _other_previous,
    "a group torn apart": lambda h: h.edited(3, b'"position":1', b'"position":3', Fault.GROUP, 8),
}
PARTS: Final[dict[str, Callable[[Honest], Case]]] = {
    "another payload": lambda h: _with_part(h, 2, _changed_payload, 7),
    "the salt of another part": lambda h: _with_part(h, 2, _exchanged_salt, 7),
    "the parts of another entry": lambda h: _with_part(
        h, 3, lambda bundled: replace(bundled, parts=_entries(h)[2].parts), 8
    ),
    "a part that was never there": lambda h: _with_part(h, 2, _renamed_part, 7),
    "a part of an entry without any": lambda h: _with_part(
        h, 5, lambda bundled: replace(bundled, parts=_entries(h)[2].parts[:1]), 10
    ),
}
PROOFS: Final[dict[str, Callable[[Honest], Case]]] = {
    "a bit of the proof": lambda h: h.with_proof([_flipped((p := h.bundle.section.proof)[0], 31), *p[1:]]),
    "a hash too few": lambda h: h.with_proof(h.bundle.section.proof[:-1]),
    "a hash too many": lambda h: h.with_proof([*h.bundle.section.proof, bytes(32)]),
    "hashes in another order": lambda h: h.with_proof(h.bundle.section.proof[::-1]),
    "an entry left out of the proof": lambda h: h.with_entries(
        [*(e := _entries(h))[:-2], e[-1]], Fault.PROOF, step="inclusion"
    ),
    "another history": _rewritten,
}
SCOPES: Final[dict[str, Callable[[Honest], Case]]] = {
    "a table of the decision left out": lambda h: h.chosen([7, 8, 9]),
    "an entry that does not belong": lambda h: h.chosen([5, 7, 8, 9, 10], 5),
    "a rule left out": lambda h: h.chosen([1, 7, 8, 9, 10], 7),
    "a newer rule": lambda h: h.chosen([1, 7, 8, 9, 10, 12], 7),
    "a retired rule": lambda h: h.chosen([1, 3, 4, 7, 8, 9, 10], 4),
    "another decision named": lambda h: _scope(h, DecisionScope(group_id=group_id(7))),
    "a table named": lambda h: _scope(h, TableScope(key=TABLE), 1),
    "an entry left out of a period": lambda h: _period(h, [4, 5, 6, 8, 9, 10, 11], 8),
    "no neighbour before a period": lambda h: _period(h, [5, 6, 7, 8, 9, 10, 11], 5),
    "no neighbour after a period": lambda h: _period(h, [4, 5, 6, 7, 8, 9, 10], 10),
}
ANCHORS: Final[dict[str, Callable[[Honest], Case]]] = {
    "an anchor at another size": lambda h: h.with_anchor(anchor_of(replace(h.checkpoint, size=14)), Fault.ANCHOR, 2),
    "an anchor of another root": lambda h: h.with_anchor(
        anchor_of(replace(h.checkpoint, root=bytes(32))), Fault.ANCHOR, 2
    ),
    "an anchor in the system log of others": _anchor_elsewhere,
    "an anchor that is none": _no_anchor_entry,
    "an anchor by another key": _anchor_by_stranger,
    "a bit of the anchor's proof": _anchor_proof,
    "no anchor, and so no witness": lambda h: h.with_anchor(None, UNWITNESSED, step="witnesses"),
}
WITNESSES: Final[dict[str, Callable[[Honest], Case]]] = {
    "a bit of a cosignature": _cosignature_bit,
    "the time of a cosignature": _cosignature_time,
    "a cosignature of another tree": _cosigned_another,
    "a cosignature without a time": _timeless,
    "a cosignature by a stranger": _cosigned_by_stranger,
    "one witness only": lambda h: h.with_cosignatures(h.cosignatures[:1], UNWITNESSED),
    "the same witness twice": lambda h: h.with_cosignatures([h.cosignatures[0]] * 2, UNWITNESSED),
}
TRUST: Final[dict[str, Callable[[Honest], Case]]] = {
    "no key": lambda h: _trust(h, keys=[]),
    "a key with another id": _key_id_changed,
    "a policy that was cut off": lambda h: _trust(h, policy=h.policy.format().decode()[:-3]),
    "a policy without a quorum": _without_quorum,
    "an empty policy": lambda h: _trust(h, policy=""),
}
CLASSES: Final = FORM | SIGNATURES | ENTRIES | PARTS | PROOFS | SCOPES | ANCHORS | WITNESSES | TRUST
"""Every class, by what was done."""
