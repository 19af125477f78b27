# SPDX-License-Identifier: Apache-2.0
"""
What is fuzzed: every parser of the log, a line each in `targets`.

A target takes any bytes. A parser may return, or raise `FormatError` or `BrokenError`; whatever else leaves it is a
fault, and so is a value that is not written again as the bytes it was read from. Seeds are valid examples: mutations of
them get deeper than noise does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias
from uuid import UUID

from cryptography.x509 import Certificate

from ledger.anchoring.timestamp import check_stamp, parse_roots
from ledger.errors import BrokenError, FormatError, LimitExceededError
from ledger.format import canonical
from ledger.format.checkpoint import Checkpoint, format_checkpoint, parse_checkpoint
from ledger.format.cosignature import COSIGNATURE_TYPES, Cosigner, format_cosignatures, parse_cosignatures
from ledger.format.entry import commitments, parse_entry, parse_entry_quickly, read_envelope
from ledger.format.event import Part
from ledger.format.merkle import leaf_hash, prove_inclusion, root_of
from ledger.format.note import (
    Ed25519Signer,
    VerifierKey,
    format_note,
    open_checkpoint,
    open_note,
    parse_note,
    sign_note,
)
from ledger.format.proof import Proof, check_proof, format_proof, parse_proof, prove_entries
from ledger.format.tiles import (
    Tile,
    bundle_path,
    format_bundle,
    parse_bundle,
    parse_bundle_path,
    parse_tile_path,
    tile_path,
)
from ledger.format.witness_policy import PolicyGroup, PolicyLog, PolicyWitness, WitnessPolicy
from ledger.proving.evidence.bundle import Bundle, BundledEntry, Section
from ledger.proving.evidence.bundle import format_bundle as format_evidence
from ledger.proving.evidence.bundle import parse_bundle as parse_evidence
from ledger.proving.evidence.check import check_evidence
from ledger.proving.evidence.scope import TableScope, format_scope, parse_scope
from ledger.witness.rules import AddCheckpoint, RefusedError, format_request, open_request, parse_request
from testkit.fuzzing import files as fuzz_files
from testkit.fuzzing.files import ORIGIN, SEEDS, entry_of

Run: TypeAlias = Callable[[bytes], None]


class NotWrittenAgainError(Exception):
    """A parser accepted bytes that its formatter does not write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A parser with what it is given first; `accepts` raises nothing for these seeds, or they would be no examples."""

    run: Run
    accepts: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def refuses_or_writes_again(parse: Callable[[bytes], Any], write: Callable[[Any], bytes]) -> Run:
    """Return the run of a parser: its own errors are the answer no, and what it accepts is written as it was read."""

    def run(data: bytes) -> None:
        try:
            value = parse(data)
        except (FormatError, BrokenError):
            return
        if write(value) != data:
            raise NotWrittenAgainError(value)

    return run


def text_of(data: bytes) -> str:
    """Return any bytes as text: what is not UTF-8 as lone surrogates, which a caller could hand over, too."""
    return data.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


LOG: Final = Ed25519Signer.from_seed(name=ORIGIN, seed=b"l" * 32)
COSIGNERS: Final = [Cosigner.from_seed(kind, name="witness.example/w", seed=b"w" * 32) for kind in COSIGNATURE_TYPES]
KEYS: Final = [LOG.verifier_key, *(cosigner.verifier_key for cosigner in COSIGNERS)]
EVENT: Final = canonical.encode(
    {
        "actor": "system",
        "data": {"a": [1, None, True, "é"], "b": {"c": -1}},
        "key": "table:lake/sales/orders",
        "occurred_at": "2026-01-02T03:04:05.000006Z",
        "parts": [["inputs", "00" * 32], ["message", "ab" * 32]],
        "type": "commit.decided",
        "version": 1,
    }
)


ENTRIES: Final = [entry_of(EVENT, index=index) for index in range(5)]
LEAVES: Final = [leaf_hash(entry) for entry in ENTRIES]
TEXT: Final = format_checkpoint(Checkpoint(origin=ORIGIN, size=len(LEAVES), root=root_of(LEAVES)))
SIGNED: Final = sign_note(TEXT, [LOG])
COSIGNATURES: Final = [cosigner.cosign(TEXT, time_s=1_700_000_000) for cosigner in COSIGNERS]
COSIGNED: Final = format_note(TEXT, [*parse_note(SIGNED)[1], *COSIGNATURES])
HASHES: Final = tuple(
    prove_inclusion(index=3, size=5, read=lambda level, i: root_of(LEAVES[i << level : (i + 1) << level]))
)
PROOF: Final = format_proof(Proof(extra=ENTRIES[3], index=3, hashes=HASHES, checkpoint=COSIGNED))
POLICY: Final = WitnessPolicy(
    logs=(PolicyLog(key=LOG.verifier_key, url="https://log.example/"),),
    witnesses=tuple(
        PolicyWitness(name=f"w{number}", key=cosigner.verifier_key) for number, cosigner in enumerate(COSIGNERS)
    ),
    groups=(PolicyGroup(name="g", threshold=1, members=("w0", "w1")),),
    quorum="g",
)


def _evidence(*parts: Part) -> bytes:
    proof = prove_entries([1], size=5, read=lambda level, i: root_of(LEAVES[i << level : (i + 1) << level]))
    section = Section(entries=(BundledEntry(entry=ENTRIES[1], parts=parts),), proof=tuple(proof), checkpoint=SIGNED)
    return format_evidence(Bundle(scope=TableScope(key="table:lake/sales/orders"), section=section))


EVIDENCE: Final = _evidence()
DISCLOSING: Final = _evidence(Part(name="inputs", payload=b"p", salt=b"s" * 32))
"""Of the right form; the part is not the one that the entry commits to."""
SCOPE: Final = b"table table:lake/sales/orders 2026-01-01T00:00:00.000000Z 2026-02-01T00:00:00.000000Z"
REQUEST: Final = format_request(AddCheckpoint(old_size=3, proof=HASHES, note=SIGNED))


def _open_note(data: bytes) -> None:
    with suppress(FormatError, BrokenError):
        open_note(data, KEYS)
    with suppress(FormatError, BrokenError):
        open_checkpoint(data, KEYS)


def _check_proof(data: bytes) -> None:
    with suppress(FormatError, BrokenError):
        check_proof(data, KEYS)


def _tile_paths(data: bytes) -> None:
    text = text_of(data)
    with suppress(FormatError):
        if tile_path(*parse_tile_path(text)) != text:
            raise NotWrittenAgainError(text)
    with suppress(FormatError):
        if bundle_path(*parse_bundle_path(text)) != text:
            raise NotWrittenAgainError(text)


def _policy(data: bytes) -> None:
    try:
        policy = WitnessPolicy.parse(data)
    except FormatError:
        return
    if WitnessPolicy.parse(policy.format()) != policy:  # comments and spaces are not kept, everything else is
        raise NotWrittenAgainError(policy)
    with suppress(FormatError, BrokenError):
        policy.cosignatures(COSIGNED)


def _check_evidence(data: bytes) -> None:
    with suppress(FormatError, BrokenError):
        check_evidence(data, KEYS)


@cache
def _roots() -> tuple[Certificate, ...]:
    return parse_roots((SEEDS / "root.pem").read_bytes())


def _stamp(data: bytes) -> None:
    with suppress(FormatError, BrokenError, LimitExceededError):
        check_stamp(data, SIGNED, roots=_roots())


def keys_of(origin: str) -> list[VerifierKey] | None:
    return KEYS if origin == ORIGIN else None


def _submission(data: bytes) -> None:
    with suppress(RefusedError):
        open_request(data, keys_of)


def _envelope(data: bytes) -> None:
    """The short cut accepts what the parser accepts, and nothing else."""
    try:
        envelope = read_envelope(data)
    except FormatError:
        with suppress(FormatError):
            raise NotWrittenAgainError(parse_entry(data)) from None
        return
    entry = parse_entry(data)
    if commitments(envelope) != entry.parts or envelope.entry_index != entry.index:
        raise NotWrittenAgainError(envelope)
    if parse_entry_quickly(data) != entry:
        raise NotWrittenAgainError(entry)


def _entry_again(data: bytes) -> bytes:
    parse_entry(data)
    return canonical.encode(canonical.decode(data))


def targets() -> dict[str, Target]:
    """Return what is fuzzed, by name."""
    return {
        "note": _again(parse_note, lambda note: format_note(*note), [SIGNED, COSIGNED]),
        "open_note": Target(run=_open_note, accepts=lambda data: open_checkpoint(data, KEYS), seeds=(SIGNED, COSIGNED)),
        "verifier_key": _again(
            lambda data: VerifierKey.parse(text_of(data)),
            lambda key: bytes_of(key.format()),
            [key.format().encode() for key in KEYS],
        ),
        "checkpoint": _again(
            lambda data: parse_checkpoint(text_of(data)),
            lambda checkpoint: bytes_of(format_checkpoint(checkpoint)),
            [TEXT.encode(), TEXT.encode() + b"extension\n"],
        ),
        "proof": _again(parse_proof, format_proof, [PROOF]),
        "check_proof": Target(run=_check_proof, accepts=lambda data: check_proof(data, KEYS), seeds=(PROOF,)),
        "tile": _again(lambda data: Tile.parse(data, level=0, index=0), Tile.pack, [b"".join(LEAVES)]),
        "tile_path": Target(
            run=_tile_paths,
            accepts=lambda data: (parse_bundle_path if b"entries" in data else parse_tile_path)(text_of(data)),
            seeds=(b"tile/0/x001/067.p/5", b"tile/entries/x001/x234/067"),
        ),
        "bundle": _again(parse_bundle, format_bundle, [format_bundle(ENTRIES), format_bundle([b"", b"one"])]),
        "cosignatures": _again(parse_cosignatures, format_cosignatures, [format_cosignatures(COSIGNATURES)]),
        "policy": Target(run=_policy, accepts=WitnessPolicy.parse, seeds=(POLICY.format(), b"# none\nquorum none\n")),
        "witness_request": _again(parse_request, format_request, [REQUEST]),
        "witness_submission": Target(
            run=_submission, accepts=lambda data: open_request(data, keys_of), seeds=(REQUEST,)
        ),
        "evidence": _again(parse_evidence, format_evidence, [EVIDENCE, DISCLOSING]),
        "check_evidence": Target(
            run=_check_evidence, accepts=lambda data: check_evidence(data, KEYS), seeds=(EVIDENCE,)
        ),
        "stamp": Target(
            run=_stamp,
            accepts=lambda data: check_stamp(data, SIGNED, roots=_roots()),
            seeds=((SEEDS / "stamp.der").read_bytes(),),
        ),
        "canonical": _again(canonical.decode, canonical.encode, [EVENT, ENTRIES[0]]),
        "entry": _again(_entry_again, lambda data: data, ENTRIES),
        "envelope": Target(run=_envelope, accepts=read_envelope, seeds=tuple(ENTRIES)),
        "scope": _again(
            lambda data: parse_scope(text_of(data)),
            lambda scope: bytes_of(format_scope(scope)),
            [SCOPE, SCOPE.partition(b" 2026")[0], b"decision " + str(UUID(int=1)).encode()],
        ),
        **{name: _again(*parser) for name, parser in fuzz_files.WRITTEN_AGAIN.items()},
        **{
            name: Target(run=fuzz_files.refuses(parse), accepts=parse, seeds=seeds)
            for name, (parse, seeds) in fuzz_files.parsers(SIGNED, KEYS, _roots).items()
        },
    }


def _again(parse: Callable[[bytes], Any], write: Callable[[Any], bytes], seeds: Sequence[bytes]) -> Target:
    return Target(run=refuses_or_writes_again(parse, write), accepts=parse, seeds=tuple(seeds))
