# SPDX-License-Identifier: Apache-2.0
"""
Where verification begins: after a checkpoint that the auditor holds (`--since`), or at the log's first entry.

Guarantee: the state and the edge that are returned are those of the tree that the held checkpoint has signed, and the
newest tree begins with that tree. The entries before it are not read again: they were verified when that checkpoint was
accepted, or never. Pure: the caller reads the tiles and the one entry.

Verification works on whole tiles, so it begins at the last multiple of 256 before the checkpoint's size.

A log whose origin says that it continues another must begin with an entry that holds what that log's signer had signed
last (`check_continued`). This is checked last, after all other rules: only then is it known to be the first entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.checkpoint import Checkpoint
from ledger.format.continuation import check_continuation, predecessor_origin
from ledger.format.key_history import KeyHistory, Trusted, every_key
from ledger.format.merkle import check_consistency, check_inclusion, leaf_hash, prove_consistency, prove_inclusion
from ledger.format.tiles import (
    TILE_WIDTH,
    Pending,
    TileReader,
    edge_addresses,
    frontier_of,
    pending_widths,
    tile_hash_reader,
)
from ledger.format.verification import ChainState, state_behind

SINCE: Final = "checkpoint to continue from"


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
    Return for each of `earlier` the proof that the tree of `size`, which is not smaller, continues from it.

    Reads the same tiles whatever their hashes are.
    """
    read = tile_hash_reader(read_tile, size)
    # Every tree continues the empty one: there is nothing to prove.
    return [prove_consistency(size1=old.size, size2=size, read=read) if old.size else [] for old in earlier]


def check_earlier(earlier: Sequence[Checkpoint], proofs: Sequence[Sequence[bytes]], *, size: int, root: bytes) -> None:
    """
    Check that the tree of `size` and `root` continues from each of `earlier`.

    Raises:
        BrokenError: (`Fault.ROOT`) if it does not continue from one; no index can be named.
    """
    for old, proof in zip(earlier, proofs, strict=True):
        if old.size == 0:
            continue
        try:
            check_consistency(size1=old.size, size2=size, root1=old.root, root2=root, proof=proof)
        except BrokenError as error:
            expected = f"a log that continues from the root {old.root.hex()}"
            raise BrokenError(
                Fault.ROOT, where=f"checkpoint of size {old.size}", expected=expected, found=error
            ) from error


def read_prefix(read_tile: TileReader, *, since: Checkpoint) -> tuple[Pending, list[bytes]]:
    """
    Return the edge of the tree at a held checkpoint's size, and the proof of the entry before the first that is read.

    Reads the same tiles whatever their hashes are; they may be wider than that tree's. `start_behind` checks what is
    returned.
    """
    edge: list[tuple[bytes, ...]] = [()] * len(pending_widths(since.size))
    for level, index, width in edge_addresses(since.size):
        edge[level] = read_tile(level, index, width).hashes[:width]
    if not (first := first_read(since)):
        return tuple(edge), []
    read = tile_hash_reader(read_tile, since.size)
    return tuple(edge), prove_inclusion(index=first - 1, size=since.size, read=read)


def start_behind(
    since: Checkpoint, edge: Pending, inclusion: Sequence[bytes], *, entry: bytes | None, where: str
) -> Start:
    """
    Return where verification begins after a held checkpoint.

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


def check_continued(first_entry: bytes, trusted: Trusted, *, origin: str, where: str) -> None:
    """
    Check the first entry of the log `origin`: it names the log that this one continues, or there is none.

    Raises:
        BrokenError: if it does not, or no key that is trusted has signed the note that it carries; its index is 0.
    """
    before = predecessor_origin(origin)
    try:
        found = check_continuation(first_entry, every_key(trusted, before or origin))
        if found is not None and isinstance(trusted, KeyHistory):  # only now is the size known
            check_continuation(first_entry, trusted.keys_for(found.signed.origin, found.signed.size))
    except (BrokenError, FormatError) as error:
        fault = error.fault if isinstance(error, BrokenError) else Fault.ENTRY
        expected = f"what {before} had signed last" if before else "the first entry of a log that continues no other"
        raise BrokenError(fault, where=where, expected=expected, found=error, index=0) from error
