"""
Where verification begins if not at the first entry: behind a checkpoint that the auditor holds (`--since`).

Guarantee: the state and the edge that are returned are those of the tree that the held checkpoint has signed, and the
newest tree begins with it. What the entries before it say was verified when that checkpoint was accepted, or was not:
they are not read again. Pure; tiles and the one entry are read by the caller.

Verification works on whole tiles, so it begins at the last multiple of 256 before the checkpoint's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ledger.checkpoint import Checkpoint
from ledger.edge import edge_places, frontier_of
from ledger.errors import BrokenError, Fault
from ledger.merkle import check_consistency, check_inclusion, leaf_hash, prove_consistency, prove_inclusion
from ledger.tiles import TILE_WIDTH, Pending, TileReader, pending_widths, tile_hash_reader
from ledger.verify.rules import ChainState, state_behind

SINCE: Final = "checkpoint to go on from"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The state of the chain and the edge of the tree at a multiple of 256 entries."""

    state: ChainState = field(default_factory=ChainState)
    edge: Pending = ()


def first_read(since: Checkpoint) -> int:
    """Return the index of the first entry that is read again."""
    return since.size - since.size % TILE_WIDTH


def prove_earlier(read_tile: TileReader, earlier: Sequence[Checkpoint], *, size: int) -> list[list[bytes]]:
    """
    Return the proof, for each of `earlier`, that the tree of `size`, which is not smaller, goes on from it.

    Reads the same tiles whatever their hashes are.
    """
    read = tile_hash_reader(read_tile, size)
    # Every tree begins with the empty one: there is nothing to prove.
    return [prove_consistency(size1=old.size, size2=size, read=read) if old.size else [] for old in earlier]


def check_earlier(earlier: Sequence[Checkpoint], proofs: Sequence[Sequence[bytes]], *, size: int, root: bytes) -> None:
    """
    Check that the tree of `size` and `root` goes on from each of `earlier`.

    Raises:
        BrokenError: (`Fault.ROOT`) if from one it does not; no index can be named.
    """
    for old, proof in zip(earlier, proofs, strict=True):
        if old.size == 0:
            continue
        try:
            check_consistency(size1=old.size, size2=size, root1=old.root, root2=root, proof=proof)
        except BrokenError as error:
            expected = f"a log that goes on from the root {old.root.hex()}"
            raise BrokenError(
                Fault.ROOT, where=f"checkpoint of size {old.size}", expected=expected, found=error
            ) from error


def read_prefix(read_tile: TileReader, *, since: Checkpoint) -> tuple[Pending, list[bytes]]:
    """
    Return the edge of the tree at a held checkpoint's size, and the proof of the entry before the first that is read.

    Reads the same tiles whatever their hashes are; they may be wider than that tree's. What is returned is for
    `start_behind` to check.
    """
    edge: list[tuple[bytes, ...]] = [()] * len(pending_widths(since.size))
    for level, index, width in edge_places(since.size):
        edge[level] = read_tile(level, index, width).hashes[:width]
    if not (first := first_read(since)):
        return tuple(edge), []
    read = tile_hash_reader(read_tile, since.size)
    return tuple(edge), prove_inclusion(index=first - 1, size=since.size, read=read)


def start_behind(
    since: Checkpoint, edge: Pending, inclusion: Sequence[bytes], *, entry: bytes | None, where: str
) -> Start:
    """
    Return the start behind a held checkpoint.

    `entry` is the one before the first that is read, None if that is the log's first; `where` names what holds it.

    Raises:
        BrokenError: `Fault.ROOT` if the edge is not the checkpoint's, `Fault.ENTRY` if the entry is not in its tree.
    """
    if (found := frontier_of(edge).root()) != since.root:
        where = f"checkpoint of size {since.size}"
        raise BrokenError(Fault.ROOT, where=where, expected=f"the signed root {since.root.hex()}", found=found.hex())
    if entry is None:
        return Start()
    first = first_read(since)
    try:
        check_inclusion(index=first - 1, size=since.size, leaf=leaf_hash(entry), proof=inclusion, root=since.root)
    except BrokenError as error:
        expected = f"the entry in the tree of the checkpoint of size {since.size}"
        raise BrokenError(Fault.ENTRY, where=where, expected=expected, found=error, index=first - 1) from error
    return Start(state=state_behind(entry, index=first - 1, where=where), edge=((), *edge[1:]))
