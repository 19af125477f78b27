"""
The part of a log's tree that is proven most often: its newest entries, in memory.

Guarantee: the proofs are those of the whole tree. Every perfect subtree that a proof of an entry at or behind `start`
needs either ends behind `start`, and was made while the window grew, or is one of the frontier at `start`: it is whole
there and its parent is not (RFC 6962, section 2.1). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ledger.merkle import Frontier, node_hash, prove_inclusion

Node = tuple[int, int]
"""Level and index of a perfect subtree of 2**level leaves."""


class TreeWindow:
    """The tree of a log as it grows from `frontier` on: `size` leaves, of which those from `start` on can be proven."""

    def __init__(self, frontier: Frontier) -> None:
        self.start = self.size = frontier.size
        self._nodes: dict[Node, bytes] = dict(zip(_frontier_nodes(frontier.size), frontier.hashes, strict=True))

    def __len__(self) -> int:
        """Return how many subtrees are kept: about two for each leaf."""
        return len(self._nodes)

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Append leaf hashes."""
        nodes = self._nodes
        for leaf in leaves:
            level, index, node = 0, self.size, leaf
            nodes[level, index] = node
            while index & 1:
                node = node_hash(nodes[level, index - 1], node)
                level, index = level + 1, index >> 1
                nodes[level, index] = node
            self.size += 1

    def frontier(self) -> Frontier:
        """Return the frontier of the tree."""
        return Frontier(size=self.size, hashes=tuple(self._nodes[node] for node in _frontier_nodes(self.size)))

    def leaf(self, index: int) -> bytes:
        """Return the leaf hash of the entry at `index`, from `start` on."""
        return self._nodes[0, index]

    def prove(self, index: int) -> list[bytes]:
        """
        Return the inclusion proof of the entry at `index`, from `start` on, in the tree as it is.

        Raises:
            LedgerError: if the tree has no such entry.
        """
        return prove_inclusion(index=index, size=self.size, read=lambda level, at: self._nodes[level, at])

    def rest(self) -> TreeWindow:
        """Return a window that begins where this one ends: what is before can no longer be proven from memory."""
        return TreeWindow(self.frontier())


def _frontier_nodes(size: int) -> Sequence[Node]:
    """Return the perfect subtrees that `size` leaves fall into, largest first."""
    nodes: list[Node] = []
    start = 0
    for level in reversed(range(size.bit_length())):
        if size >> level & 1:
            nodes.append((level, start >> level))
            start += 1 << level
    return nodes
