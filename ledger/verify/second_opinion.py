# SPDX-License-Identifier: Apache-2.0
"""
A second opinion on a tree: pymerkle, which shares no code with ours, computes its roots and proves its entries.

This is the only module that imports pymerkle. It is GPL-3.0, hence an optional extra. Its consistency proofs are built
differently from RFC 6962 and are not used: equal roots at two sizes of one list of leaves prove the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from ledger.errors import BrokenError, Fault, LedgerError
from ledger.format.merkle import HASH_SIZE_BYTES, check_inclusion

SAMPLES_MAX: Final = 64

try:
    import pymerkle
except ImportError as missing:
    raise LedgerError(
        "a second opinion needs pymerkle: install the extra, `pip install 'lakeproof[second-opinion]'`"
    ) from missing


def second_opinion(leaves: bytes, roots: Mapping[int, bytes]) -> str:
    """
    Check roots, by tree size, and inclusion proofs of up to 64 entries with pymerkle; say what was checked.

    `leaves` are the leaf hashes, joined. Our `check_inclusion` must accept the proofs that pymerkle makes, too.

    Raises:
        BrokenError: (`Fault.ROOT`) if it finds another root, (`Fault.PROOF`) if one of its proofs does not lead there.
    """
    tree = _Tree(leaves)
    size = tree.get_size()
    for at, root in sorted(roots.items()):
        if (found := bytes(tree.get_root(at))) != root:
            raise BrokenError(
                Fault.ROOT, where=f"tree of size {at}", expected=root.hex(), found=f"{found.hex()}, by pymerkle"
            )
    indices = sorted({*range(0, size, max(size // SAMPLES_MAX, 1)), size - 1}) if size else []
    for index in indices:
        proof = tree.prove_inclusion(index + 1, size)  # pymerkle counts from 1
        leaf, root = tree.get_leaf(index + 1), bytes(tree.get_root(size))
        # Its path begins with the leaf itself.
        check_inclusion(index=index, size=size, leaf=leaf, proof=[bytes(h) for h in proof.path[1:]], root=root)
        try:
            pymerkle.verify_inclusion(leaf, root, proof)
        except pymerkle.InvalidProof as error:
            raise BrokenError(
                Fault.PROOF, where="pymerkle", expected="an inclusion proof", found=error, index=index
            ) from error
    return f"{len(roots):,} roots and {len(indices):,} inclusion proofs by pymerkle {version('pymerkle')}"


class _Tree(pymerkle.BaseMerkleTree):  # type: ignore[misc]
    """
    The leaves of a log as pymerkle reads them.

    Two of its five methods are for appending alone (`append_entry` calls one, then the other), which is not done here.
    """

    def __init__(self, leaves: bytes) -> None:
        self._leaves = leaves
        super().__init__(algorithm="sha256")

    def _encode_entry(self, data: Any) -> bytes:
        raise LedgerError(f"second opinion: expected only reads of the tree, found an entry to append: {data!r:.40}")

    def _store_leaf(self, data: Any, _digest: bytes) -> int:
        raise LedgerError(f"second opinion: expected only reads of the tree, found a leaf to append: {data!r:.40}")

    def _get_leaf(self, index: int) -> bytes:
        return self._leaves[(index - 1) * HASH_SIZE_BYTES : index * HASH_SIZE_BYTES]

    def _get_leaves(self, offset: int, width: int) -> list[bytes]:
        return [self._get_leaf(index) for index in range(offset + 1, offset + width + 1)]

    def _get_size(self) -> int:
        return len(self._leaves) // HASH_SIZE_BYTES
