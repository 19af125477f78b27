"""
Says which ML-DSA-44 keys of a log have signed a checkpoint, of those that the caller expects there. Pure.

A checkpoint is verified if a key that is trusted has signed it, and that may be one of Ed25519 alone (C2SP signed-note:
"at least one"). Whoever pins an ML-DSA-44 key besides, since he will not always believe Ed25519, must learn where its
line is missing: it was signed before that key was added, after it was retired, or somebody has taken the line away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ledger.checkpoint import parse_checkpoint
from ledger.note import VerifierKey, parse_note
from ledger.signature import ML_DSA_44_COSIGNATURE
from ledger.verify.rules import Report
from ledger.witness.cosignature import open_cosignatures


def with_ml_dsa(report: Report, note: bytes, keys: Sequence[VerifierKey]) -> Report:
    """
    Return `report` with whether those of `keys` that are ML-DSA-44 keys of a log have signed its checkpoint `note`.

    Before: `note` was verified to be a checkpoint, of the log that is reported or of the one that vouches for it.

    Raises:
        FormatError: if `note` is no checkpoint.
        BrokenError: (`Fault.SIGNATURE`) if a line of one of them does not verify.
    """
    text, lines = parse_note(note)
    checkpoint = parse_checkpoint(text)
    expected = [key for key in keys if key.algorithm == ML_DSA_44_COSIGNATURE and key.name == checkpoint.origin]
    signed = open_cosignatures(text, lines, expected)
    present = (f"ML-DSA-44 signature of {_short(key)}" for key in expected if key in signed)
    absent = (
        f"an ML-DSA-44 signature of {_short(key)}: the checkpoint of size {checkpoint.size:,} has none"
        for key in expected
        if key not in signed
    )
    return replace(report, checked=(*report.checked, *present), unchecked=(*report.unchecked, *absent))


def _short(key: VerifierKey) -> str:
    return f"{key.name}+{key.key_id.hex()}"
