"""
A proof in one file that an entry is in a log: entry, place, inclusion proof and signed checkpoint (C2SP tlog-proof).

Guarantee: `check_proof` returns an entry only if a log whose key the caller named has signed a tree that holds exactly
these bytes at that index. The file and the key are all it needs.

The format leaves open what the `extra` line holds. Here it is the entry itself: nothing in the file vouches for it, but
its leaf hash is computed from it and must lead to the signed root, so a changed entry is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.checkpoint import SIZE_MAX, Checkpoint, open_checkpoint, parse_decimal
from ledger.errors import FormatError
from ledger.merkle import HASH_SIZE_BYTES, check_inclusion, leaf_hash
from ledger.note import NOTE_SIZE_BYTES_MAX, VerifierKey, format_base64, parse_base64
from ledger.witness.policy import Policy

HEADER = "c2sp.org/tlog-proof@v1"

HASHES_MAX = 63
"""The longest inclusion proof that a tree of 63-bit size can call for."""

PROOF_SIZE_BYTES_MAX = 2 * NOTE_SIZE_BYTES_MAX
"""A checkpoint of the largest kind, and as much again for the rest; an entry in base64 is at most 87,380 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """
    The parts of a proof file, unchecked.

    `hashes` is the inclusion proof, from the leaf's sibling to the root's child; `checkpoint` the signed note itself;
    `extra` the entry's bytes, empty if the file has no such line.
    """

    extra: bytes
    index: int
    hashes: tuple[bytes, ...]
    checkpoint: bytes

    def __post_init__(self) -> None:
        if not 0 <= self.index <= SIZE_MAX:
            raise FormatError("proof", expected="an index from 0 to 2^63 - 1", found=self.index)
        if len(self.hashes) > HASHES_MAX or any(len(h) != HASH_SIZE_BYTES for h in self.hashes):
            expected = f"at most {HASHES_MAX} hashes of {HASH_SIZE_BYTES} bytes"
            raise FormatError("proof", expected=expected, found=[len(h) for h in self.hashes])
        if not self.checkpoint:
            raise FormatError("proof", expected="a checkpoint", found=self.checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenEntry:
    """An entry that is at `index` of the log `checkpoint.origin`."""

    entry: bytes
    index: int
    checkpoint: Checkpoint


def format_proof(proof: Proof) -> bytes:
    """
    Return the proof file: header, `extra` line, `index` line, a line a hash, an empty line, and the checkpoint.

    Raises:
        FormatError: if the file would be too large to be read again.
    """
    lines = [
        HEADER,
        *([f"extra {format_base64(proof.extra)}"] if proof.extra else []),
        f"index {proof.index}",
        *(format_base64(h) for h in proof.hashes),
    ]
    data = "\n".join(lines).encode() + b"\n\n" + proof.checkpoint
    if len(data) > PROOF_SIZE_BYTES_MAX:
        raise FormatError("proof", expected=f"at most {PROOF_SIZE_BYTES_MAX} bytes", found=f"{len(data)} bytes")
    return data


def parse_proof(data: bytes) -> Proof:
    """
    Return the parts of a proof file, *unchecked*: only `check_proof` says whether they prove anything.

    Raises:
        FormatError: if `data` is not exactly as `format_proof` writes it.
    """
    if len(data) > PROOF_SIZE_BYTES_MAX:
        raise FormatError("proof", expected=f"at most {PROOF_SIZE_BYTES_MAX} bytes", found=f"{len(data)} bytes")
    head, _, checkpoint = data.partition(b"\n\n")
    try:
        lines = head.decode("ascii").split("\n", HASHES_MAX + 3)
    except UnicodeDecodeError as error:
        raise FormatError("proof", expected="ASCII before the checkpoint", found=head) from error
    extra = lines.pop(1).removeprefix("extra ") if len(lines) > 1 and lines[1].startswith("extra ") else ""
    match lines:
        case [_, index, *hashes]:
            proof = Proof(
                extra=parse_base64(extra, what="proof extra"),
                index=parse_decimal(index.removeprefix("index "), what="proof index"),
                hashes=tuple(parse_base64(h, what="proof hash") for h in hashes),
                checkpoint=checkpoint,
            )
            if format_proof(proof) == data:
                return proof
    expected = f"lines {HEADER!r}, 'extra <base64>', 'index <number>', hashes, an empty line, a checkpoint"
    raise FormatError("proof", expected=expected, found=data)


def check_proof(data: bytes, keys: Sequence[VerifierKey]) -> ProvenEntry:
    """
    Check a proof file against the keys of the logs that the caller trusts, and return what it proves.

    1. The checkpoint is signed by the log that it speaks of, with one of `keys`.
    2. The leaf hash is that of the entry in the file.
    3. The inclusion proof leads from that leaf, at that index, to the root of that checkpoint.

    Raises:
        FormatError: if `data` is not a proof file, has no entry in it, or its checkpoint is not one.
        BrokenError: `Fault.SIGNATURE` or `Fault.CHECKPOINT` at step 1, `Fault.PROOF` at step 3.
    """
    proof = parse_proof(data)
    return _check_inclusion(proof, open_checkpoint(proof.checkpoint, keys))


def check_witnessed_proof(data: bytes, policy: Policy, *, logs: Sequence[VerifierKey] = ()) -> ProvenEntry:
    """
    Check a proof file as `check_proof` does, and that the policy accepts its checkpoint: that witnesses have seen it.

    `logs` are accepted beside those of the policy.

    Raises:
        FormatError, BrokenError: as `check_proof`.
        UnwitnessedError: if too few of the policy's witnesses have cosigned the checkpoint.
    """
    proof = parse_proof(data)
    return _check_inclusion(proof, policy.check(proof.checkpoint, logs=logs).checkpoint)


def _check_inclusion(proof: Proof, checkpoint: Checkpoint) -> ProvenEntry:
    if not proof.extra:
        raise FormatError("proof", expected="an 'extra' line with the entry", found="none")
    check_inclusion(
        index=proof.index,
        size=checkpoint.size,
        leaf=leaf_hash(proof.extra),
        proof=proof.hashes,
        root=checkpoint.root,
    )
    return ProvenEntry(entry=proof.extra, index=proof.index, checkpoint=checkpoint)
