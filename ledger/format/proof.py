# SPDX-License-Identifier: Apache-2.0
"""
A proof in one file that an entry is in a log: entry, index, inclusion proof and signed checkpoint (C2SP tlog-proof).

Guarantee: `check_proof` returns an entry only if a log whose key the caller gave has signed a tree that holds exactly
these bytes at that index. It needs only the file and the key.

The format does not define the content of the `extra` line. Here it is the entry itself. Its leaf hash is computed and
must lead to the signed root, so a changed entry is detected.

`prove_entries` makes one proof that several entries are in a tree: the hashes of exactly those subtrees that contain
none of them. The tree splits as in RFC 6962, section 2.1, and the hashes are in the order in which a walk from left to
right needs them. Their positions follow from the indexes and the size, so the proof contains nothing but hashes, and
there is one proof for a set of entries: a hash too few or too many is refused. For one entry it is that entry's
inclusion proof in another order. `inclusion_proof` derives that of any of the entries, for C2SP tlog-proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.format.checkpoint import Checkpoint
from ledger.format.encoding import SIZE_MAX, format_base64, parse_base64, parse_decimal
from ledger.format.merkle import HASH_SIZE_BYTES, HashReader, check_inclusion, leaf_hash, node_hash
from ledger.format.note import NOTE_SIZE_BYTES_MAX, VerifierKey, open_checkpoint
from ledger.format.witness_policy import WitnessPolicy

HEADER = "c2sp.org/tlog-proof@v1"
HASHES_MAX = 63
"""The longest inclusion proof in a tree of 63-bit size."""
PROOF_SIZE_BYTES_MAX = 2 * NOTE_SIZE_BYTES_MAX
"""A checkpoint of the largest size, and as much again for the rest; an entry in base64 is at most 87,380 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """
    The parts of a proof file, unverified.

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
    Return the parts of a proof file, *unverified*: only `check_proof` says whether they prove anything.

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

    1. The checkpoint is signed by its own log, with one of `keys`.
    2. The leaf hash is that of the entry in the file.
    3. The inclusion proof leads from that leaf, at that index, to the root of that checkpoint.

    Raises:
        FormatError: if `data` is not a proof file, has no entry in it, or its checkpoint is not one.
        BrokenError: `Fault.SIGNATURE` or `Fault.CHECKPOINT` at step 1, `Fault.PROOF` at step 3.
    """
    proof = parse_proof(data)
    return _check_inclusion(proof, open_checkpoint(proof.checkpoint, keys))


def check_witnessed_proof(data: bytes, policy: WitnessPolicy, *, logs: Sequence[VerifierKey] = ()) -> ProvenEntry:
    """
    Check a proof file as `check_proof` does, and that the policy accepts its checkpoint: that enough witnesses have
    cosigned it.

    `logs` are accepted in addition to those of the policy.

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


def prove_entries(indexes: Sequence[int], *, size: int, read: HashReader) -> list[bytes]:
    """
    Return the proof of the entries at `indexes` in the tree of `size`.

    Raises:
        LedgerError: if there is no index, they are not increasing, or one is not within the tree.
    """
    if not indexes or list(indexes) != sorted(set(indexes)) or indexes[0] < 0 or indexes[-1] >= size:
        raise LedgerError(
            f"proof: expected growing indexes from 0 to below the tree size {size}, found {indexes!r:.100}"
        )
    proof: list[bytes] = []
    _collect(list(indexes), 0, size, read, proof)
    return proof


def root_from(leaves: Mapping[int, bytes], *, size: int, proof: Sequence[bytes]) -> bytes:
    """
    Return the root of the tree of `size` that has these `leaves` (leaf hashes by index) and the hashes of `proof`.

    Raises:
        BrokenError: (`Fault.PROOF`) if a leaf is not within the tree, there is none, or the proof is too short or long.
    """
    return _walk(leaves, size=size, proof=proof).root


def inclusion_proof(index: int, leaves: Mapping[int, bytes], *, size: int, proof: Sequence[bytes]) -> list[bytes]:
    """
    Return the inclusion proof (RFC 6962, section 2.1.1) of one of the entries that `proof` covers.

    Raises:
        BrokenError: as `root_from`.
        LedgerError: if there is no leaf at `index`.
    """
    if index not in leaves:
        raise LedgerError(f"proof: expected one of the entries {sorted(leaves)!r:.100}, found {index}")
    nodes = _walk(leaves, size=size, proof=proof).nodes
    siblings: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = _middle(start, end)
        siblings.append(nodes[middle, end] if index < middle else nodes[start, middle])
        start, end = (start, middle) if index < middle else (middle, end)
    return siblings[::-1]


@dataclass(slots=True, kw_only=True)
class _Walk:
    """The subtrees that were visited: their hashes by (start, end). Owned by one call of `_walk`."""

    hashes: Iterator[bytes]
    nodes: dict[tuple[int, int], bytes] = field(default_factory=dict)
    root: bytes = b""

    def subtree(self, leaves: Sequence[tuple[int, bytes]], start: int, end: int) -> bytes:
        """Return MTH(D[start:end]), with the next hash of the proof where there is no leaf."""
        if not leaves:
            found = next(self.hashes, b"")
            if not found:
                raise _bad(expected="a longer proof", found=f"no hash of the subtree {start} to {end}")
        elif end - start == 1:
            found = leaves[0][1]
        else:
            middle = _middle(start, end)
            border = next((at for at, (index, _) in enumerate(leaves) if index >= middle), len(leaves))
            left = self.subtree(leaves[:border], start, middle)
            found = node_hash(left, self.subtree(leaves[border:], middle, end))
        self.nodes[start, end] = found
        return found


def _walk(leaves: Mapping[int, bytes], *, size: int, proof: Sequence[bytes]) -> _Walk:
    if not leaves or min(leaves) < 0 or max(leaves) >= size:
        raise _bad(expected=f"entries with indexes below the tree size {size}", found=sorted(leaves))
    # A hash of another length would shift the boundary between two hashes in the hashed bytes.
    if any(len(h) != HASH_SIZE_BYTES for h in (*leaves.values(), *proof)):
        raise _bad(expected=f"hashes of {HASH_SIZE_BYTES} bytes", found="others")
    walk = _Walk(hashes=iter(proof))
    walk.root = walk.subtree(sorted(leaves.items()), 0, size)
    if (surplus := sum(1 for _ in walk.hashes)) > 0:
        raise _bad(expected="a shorter proof", found=f"{surplus} hashes too many")
    return walk


def _collect(indexes: Sequence[int], start: int, end: int, read: HashReader, proof: list[bytes]) -> None:
    if not indexes:
        proof.append(_subtree(start, end, read))
    elif end - start > 1:
        middle = _middle(start, end)
        border = next((at for at, index in enumerate(indexes) if index >= middle), len(indexes))
        _collect(indexes[:border], start, middle, read, proof)
        _collect(indexes[border:], middle, end, read, proof)


def _subtree(start: int, end: int, read: HashReader) -> bytes:
    """Return MTH(D[start:end]) from the perfect subtrees that it falls into."""
    level = (end - start).bit_length() - 1
    if end - start == 1 << level:
        return read(level, start >> level)
    middle = _middle(start, end)
    return node_hash(_subtree(start, middle, read), _subtree(middle, end, read))


def _middle(start: int, end: int) -> int:
    """Return where RFC 6962 splits D[start:end]: behind the largest power of two below its width, which is over 1."""
    return start + (1 << ((end - start - 1).bit_length() - 1))


def _bad(*, expected: object, found: object) -> BrokenError:
    return BrokenError(Fault.PROOF, where="proof of the entries", expected=expected, found=found)
