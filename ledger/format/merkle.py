# SPDX-License-Identifier: Apache-2.0
"""
The Merkle tree of RFC 6962, section 2.1: hashes, the growing tree, and proofs, made and checked side by side.

Guarantee: `check_inclusion` and `check_consistency` return only if the proof leads to the given roots, and there is
exactly one proof that does. Checking does not depend on proving.

Hashes are 32 bytes (SHA-256). A lone right node is promoted to the level above, never paired with itself: duplicating
it would give two different lists of entries one root. Checking follows RFC 9162, sections 2.1.3.2 and 2.1.4.2, whose
trees are those of RFC 6962. It works from the bits of index and size, and shares no code with proving.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from ledger.errors import BrokenError, Fault, FormatError, LedgerError

HASH_SIZE_BYTES = 32
EMPTY_ROOT = sha256(b"").digest()
"""The root of the tree without entries, SHA-256 of the empty string (RFC 6962, section 2.1)."""


def leaf_hash(entry: bytes) -> bytes:
    """
    Return SHA-256(0x00 || entry), the hash of a leaf (RFC 6962, section 2.1).
    """
    return sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """
    Return SHA-256(0x01 || left || right), the hash of an inner node (RFC 6962, section 2.1).
    """
    return sha256(b"\x01" + left + right).digest()


def split_hashes(joined: bytes) -> list[bytes]:
    """
    Return the hashes in joined bytes; the last one is shorter if it is incomplete.
    """
    return [joined[at : at + HASH_SIZE_BYTES] for at in range(0, len(joined), HASH_SIZE_BYTES)]


def root_of(leaves: Sequence[bytes]) -> bytes:
    """
    Return the root of the tree over `leaves`, which are leaf hashes (or roots of perfect subtrees of one height).
    """
    level = list(leaves)
    while len(level) > 1:
        promoted = level[-1:] if len(level) % 2 else []
        level = _pair(level) + promoted
    return level[0] if level else EMPTY_ROOT


def perfect_subtrees(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """
    Return the roots of all perfect subtrees over `leaves`, height by height: of one leaf each, of two, of four.

    The last height is the largest that has one; there is none for no leaves.
    """
    heights = [list(leaves)] if leaves else []
    while heights and len(heights[-1]) > 1:
        heights.append(_pair(heights[-1]))
    return heights


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """
    The part of a tree that is needed to append to it and to compute its root.

    `hashes` are the roots of the perfect subtrees that `size` leaves fall into, largest first: one for each 1 in the
    binary form of `size`, 63 at most for sizes that fit 63 bits.
    """

    size: int
    hashes: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if self.size < 0:
            raise FormatError("frontier", expected="a tree size of 0 or more", found=self.size)
        if len(self.hashes) != self.size.bit_count() or any(len(h) != HASH_SIZE_BYTES for h in self.hashes):
            expected = f"{self.size.bit_count()} hashes of {HASH_SIZE_BYTES} bytes for size {self.size}"
            raise FormatError("frontier", expected=expected, found=[len(h) for h in self.hashes])

    @classmethod
    def empty(cls) -> Frontier:
        """Return the frontier of the tree without leaves."""
        return cls(size=0, hashes=())

    @classmethod
    def parse(cls, size: int, data: bytes) -> Frontier:
        """
        Return the frontier of a tree of `size` leaves from its packed hashes.

        Raises:
            FormatError: if `data` does not hold exactly the hashes that `size` requires.
        """
        return cls(size=size, hashes=tuple(split_hashes(data)))

    def pack(self) -> bytes:
        """Return the hashes joined, 32 bytes each, largest subtree first; `size` is stored separately."""
        return b"".join(self.hashes)

    def extended(self, leaves: Iterable[bytes]) -> Frontier:
        """
        Return the frontier after `leaves` (leaf hashes) were appended; about one node hash for each leaf.

        Works level by level rather than leaf by leaf, so that the interpreter's cost per leaf is small in batches.
        """
        level = list(leaves)
        count = len(level)
        kept = list(self.hashes)
        fresh: list[bytes] = []  # smallest subtree first
        start = self.size  # index, within its level, of the first node of `level`
        while level:
            if start & 1:
                # The node to its left is the smallest subtree not yet used: every lower 1 of `size` was used before.
                level.insert(0, kept.pop())
            if len(level) & 1:
                fresh.append(level.pop())
            level = _pair(level)
            start >>= 1
        return Frontier(size=self.size + count, hashes=(*kept, *reversed(fresh)))

    def root(self) -> bytes:
        """Return the root hash of the tree: the subtrees folded together from the smallest to the largest."""
        if not self.hashes:
            return EMPTY_ROOT
        return _fold(self.hashes)


class HashReader(Protocol):
    """Gives the hash of a perfect subtree: of `2**level` leaves, the `index`-th (0-based) of that level."""

    def __call__(self, level: int, index: int) -> bytes: ...


def prove_inclusion(*, index: int, size: int, read: HashReader) -> list[bytes]:
    """
    Return the inclusion proof of the entry at `index` in the tree of `size`, PATH(m, D[n]) of RFC 6962, section 2.1.1.

    Hashes from the leaf's sibling up to the root's child. Reads O(log size) hashes.

    Raises:
        LedgerError: if there is no such entry in that tree.
    """
    if not 0 <= index < size:
        raise LedgerError(f"inclusion proof: expected an index from 0 to below the tree size {size}, found {index}")
    proof: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            proof.append(_subtree(start=middle, end=end, read=read))
            end = middle
        else:
            proof.append(_subtree(start=start, end=middle, read=read))
            start = middle
    proof.reverse()
    return proof


def check_inclusion(*, index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes) -> None:
    """
    Check that `leaf` (a leaf hash) stands at `index` of the tree of `size` leaves and root hash `root`.

    The names `fn`, `sn` and `r` and the order of steps are those of RFC 9162, section 2.1.3.2.

    Raises:
        BrokenError: (`Fault.PROOF`) if the index is not below the size, the proof is too short or too long, or it does
            not lead to `root`.
    """
    if not 0 <= index < size:
        raise _bad_inclusion(expected=f"an index from 0 to below the tree size {size}", found=index, index=index)
    # A hash of another length would shift the boundary between `left` and `right` in the hashed bytes.
    if any(len(h) != HASH_SIZE_BYTES for h in (leaf, *proof)):
        raise _bad_inclusion(expected="hashes of 32 bytes", found=[len(h) for h in (leaf, *proof)], index=index)
    fn, sn, r = index, size - 1, leaf
    for p in proof:
        if sn == 0:
            raise _bad_inclusion(expected="a shorter proof", found=f"{len(proof)} hashes", index=index)
        if fn & 1 or fn == sn:
            r = node_hash(p, r)
            while not fn & 1 and fn != 0:  # levels at which the node is alone on the right edge, and so promoted
                fn, sn = fn >> 1, sn >> 1
        else:
            r = node_hash(r, p)
        fn, sn = fn >> 1, sn >> 1
    if sn != 0:
        raise _bad_inclusion(expected="a longer proof", found=f"{len(proof)} hashes", index=index)
    if r != root:
        raise _bad_inclusion(expected=f"root {root.hex()}", found=r.hex(), index=index)


def prove_consistency(*, size1: int, size2: int, read: HashReader) -> list[bytes]:
    """
    Return the proof that the tree of `size2` begins with that of `size1`, PROOF(m, D[n]) of RFC 6962, section 2.1.2.

    Empty for equal sizes. Reads O(log size2) hashes of the larger tree.

    Raises:
        LedgerError: if `size1` is 0 (every tree begins with the empty one, so there is nothing to prove) or over
            `size2`.
    """
    if not 0 < size1 <= size2:
        expected = f"a smaller size from 1 to the larger one, {size2}"
        raise LedgerError(f"consistency proof: expected {expected}, found {size1}")
    proof: list[bytes] = []
    start, end = 0, size2
    while size1 < end:
        middle = start + _split(end - start)
        if size1 <= middle:
            proof.append(_subtree(start=middle, end=end, read=read))
            end = middle
        else:
            proof.append(_subtree(start=start, end=middle, read=read))
            start = middle
    if start > 0:  # otherwise the rest is the smaller tree itself, whose root the checker has
        proof.append(_subtree(start=start, end=end, read=read))
    proof.reverse()
    return proof


def check_consistency(*, size1: int, size2: int, root1: bytes, root2: bytes, proof: Sequence[bytes]) -> None:
    """
    Check that the tree of `size2` and `root2` begins with the tree of `size1` and `root1`: that nothing was rewritten.

    The names `fn`, `sn`, `fr` and `sr` and the order of steps are those of RFC 9162, section 2.1.4.2. A proof from the
    empty tree to a larger one would say nothing about the larger one, so it is refused. From the empty tree to itself,
    it is valid.

    Raises:
        BrokenError: (`Fault.PROOF`) if the sizes are out of order, the proof is too short or too long, or it does not
            lead to both roots.
    """
    if size1 == size2 >= 0:
        if proof:
            raise _bad_consistency(expected="no hashes between equal sizes", found=f"{len(proof)} hashes")
        expected = EMPTY_ROOT if size1 == 0 else root1
        if not expected == root1 == root2:
            raise _bad_consistency(
                expected=f"root {expected.hex()} twice for size {size1}", found=f"{root1.hex()}, {root2.hex()}"
            )
        return
    if not 0 < size1 < size2:
        raise _bad_consistency(expected=f"a smaller size from 1 to the larger one, {size2}", found=size1)
    fr, sr = _roots_from_consistency(size1=size1, size2=size2, root1=root1, proof=proof)
    if fr != root1:
        raise _bad_consistency(expected=f"root {root1.hex()} of size {size1}", found=fr.hex())
    if sr != root2:
        raise _bad_consistency(expected=f"root {root2.hex()} of size {size2}", found=sr.hex())


def _roots_from_consistency(*, size1: int, size2: int, root1: bytes, proof: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return the smaller and the larger root that `proof` leads to (steps 1 to 6 of RFC 9162, section 2.1.4.2)."""
    if not proof or any(len(h) != HASH_SIZE_BYTES for h in (root1, *proof)):
        raise _bad_consistency(expected="hashes of 32 bytes, at least one", found=[len(h) for h in proof])
    # A smaller tree that is perfect is a node of the larger one: the proof starts from its root, which is known.
    path = [root1, *proof] if size1.bit_count() == 1 else proof
    fn, sn = size1 - 1, size2 - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = path[0]
    for c in path[1:]:
        if sn == 0:
            raise _bad_consistency(expected="a shorter proof", found=f"{len(proof)} hashes")
        if fn & 1 or fn == sn:
            fr, sr = node_hash(c, fr), node_hash(c, sr)
            while not fn & 1 and fn != 0:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = node_hash(sr, c)
        fn, sn = fn >> 1, sn >> 1
    if sn != 0:
        raise _bad_consistency(expected="a longer proof", found=f"{len(proof)} hashes")
    return fr, sr


def _pair(level: list[bytes]) -> list[bytes]:
    """Return the parents of `level`, without a last node that has no partner."""
    # node_hash inlined: the call would be a third of the cost of this loop, the hottest of the log.
    return [sha256(b"\x01" + left + right).digest() for left, right in zip(level[::2], level[1::2], strict=False)]


def _fold(hashes: Sequence[bytes]) -> bytes:
    """Return the root over perfect subtrees, at least one, given largest first."""
    folded = hashes[-1]
    for left in reversed(hashes[:-1]):
        folded = node_hash(left, folded)
    return folded


def _split(count: int) -> int:
    """Return k of RFC 6962, section 2.1: the largest power of two smaller than `count`, which is over 1."""
    return 1 << ((count - 1).bit_length() - 1)


def _subtree(*, start: int, end: int, read: HashReader) -> bytes:
    """Return MTH(D[start:end]), where `start` is a multiple of the largest power of two within the range."""
    hashes: list[bytes] = []
    while start < end:
        level = (end - start).bit_length() - 1
        hashes.append(read(level, start >> level))
        start += 1 << level
    return _fold(hashes)


def _bad_inclusion(*, expected: object, found: object, index: int) -> BrokenError:
    return BrokenError(Fault.PROOF, where="inclusion proof", expected=expected, found=found, index=index)


def _bad_consistency(*, expected: object, found: object) -> BrokenError:
    return BrokenError(Fault.PROOF, where="consistency proof", expected=expected, found=found)
