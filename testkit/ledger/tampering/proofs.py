# SPDX-License-Identifier: Apache-2.0
"""
Classes of tampering with files that prove something by themselves: the proof of one entry, and an evidence bundle.

Every byte of them is bound, by a hash, a signature or the one spelling of the format: whichever bit is changed, two
verifiers that share no code refuse the file.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.merkle import prove_inclusion, root_of
from ledger.format.note import VerifierKey
from ledger.format.proof import Proof, check_proof, format_proof
from ledger.proving.evidence.check import check_evidence
from ledger.proving.evidence.gather import DecisionOf
from testkit.ledger.evidence_logs import SYSTEM, evidence, group_id, story_directory
from testkit.ledger.logs import KEY, rows_of, signed
from testkit.ledger.standalone import standalone
from testkit.ledger.tampering.columns import flipped
from testkit.ledger.tampering.instances import Instance, Verdict, faulty, seeded

KEYS: Final[list[VerifierKey]] = [KEY, SYSTEM.verifier_key]
KINDS: Final = ("proof", "bundle")
SIZE: Final = 300


def make_proof(random: Random) -> bytes:
    """Return the proof of an entry of a log."""
    rows = rows_of(SIZE)
    index = random.randrange(SIZE)
    hashes = prove_inclusion(
        index=index,
        size=SIZE,
        read=lambda level, at: root_of([row.leaf for row in rows[at << level : (at + 1) << level]]),
    )
    note = signed([row.entry for row in rows])
    return format_proof(Proof(extra=rows[index].entry, index=index, hashes=tuple(hashes), checkpoint=note))


def make_bundle(directory: Path) -> bytes:
    """Return the evidence of a decision."""
    return evidence(story_directory(directory), DecisionOf(group_id=group_id(5)))


def run_proof_instance(kind: str, data: bytes, number: int) -> Instance:
    """Change a bit of a proof or a bundle, or cut it off, and run both verifiers."""
    random = seeded(f"{kind} {number}")
    changed = flipped(data, random) if random.random() < 0.8 else data[: random.randrange(len(data))]
    verdict = Verdict(None)
    try:
        check_proof(changed, KEYS) if kind == "proof" else check_evidence(changed, KEYS)
    except BrokenError as error:
        verdict = Verdict(error.fault, error.index, str(error))
    except FormatError as error:  # it is no such file any more: nothing is believed of it
        verdict = Verdict(Fault.PROOF, None, str(error))
    if kind == "bundle" and standalone(changed, KEYS).code == 0:
        verdict = Verdict(None, None, "the standalone verifier accepts it")
    return Instance(
        name=f"{kind} bit", number=number, tampered=faulty(*Fault, index=..., detail="a bit"), verdict=verdict
    )
