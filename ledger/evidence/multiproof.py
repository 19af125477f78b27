"""
One proof that several entries stand in a tree: the hashes of exactly those subtrees that hold none of them. Pure.

The tree splits as in RFC 6962, section 2.1, and the hashes come in the order in which a walk from left to right needs
them. Where they belong follows from the indexes and the size, so nothing but hashes is written down, and there is one
proof for a set of entries: a hash too few or too many is refused. Of one entry it is that entry's inclusion proof in
another order, and `inclusion_proof` gives that of any of the entries, for C2SP tlog-proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ledger.errors import BrokenError, Fault, LedgerError
from ledger.merkle import HASH_SIZE_BYTES, HashReader, node_hash


def prove_entries(indexes: Sequence[int], *, size: int, read: HashReader) -> list[bytes]:
    """
    Return the proof of the entries at `indexes` in the tree of `size`.

    Raises:
        LedgerError: if there is no index, or they do not grow, or one is not within the tree.
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
    Return the inclusion proof (RFC 6962, section 2.1.1) of one of the entries that `proof` is of.

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
    """The subtrees that were met: their hashes by (start, end). Owned by one call of `_walk`."""

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
    # A hash of another length would move the border between two hashes within the bytes that are hashed.
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
