# SPDX-License-Identifier: Apache-2.0
"""
Makes proofs from the database: that an entry is in the log, as a file that `ledger.format.proof.check_proof` checks
with the log's key alone; and that one tree extends another.

A proof reads O(log n) of what is stored: the tiles on its path and, for incomplete ones, the hashes below them. It
takes two round trips, whatever the size of the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg import AsyncCursor

from ledger.anchoring.published import open_to_publish, read_newest
from ledger.errors import LedgerError
from ledger.format.checkpoint import Checkpoint
from ledger.format.key_history import Trusted
from ledger.format.merkle import check_consistency, check_inclusion, leaf_hash, prove_consistency, prove_inclusion
from ledger.format.proof import Proof, format_proof
from ledger.format.witness_policy import WitnessPolicy
from ledger.store.read import Log, fetch_entry, read_head, request_entries
from ledger.store.session import Connection
from ledger.store.stored_tree import NoCheckpointError, RequestedSubtrees, compute_on_subtrees, request_subtrees


@dataclass(frozen=True, slots=True, kw_only=True)
class Inclusion:
    """An entry, and the hashes that lead from it to the root of `checkpoint`, whose signed note is `note`."""

    index: int
    entry: bytes
    hashes: tuple[bytes, ...]
    note: bytes
    checkpoint: Checkpoint

    def format(self) -> bytes:
        """Return it as a proof file (C2SP tlog-proof), with the entry in it."""
        return format_proof(Proof(extra=self.entry, index=self.index, hashes=self.hashes, checkpoint=self.note))


async def prove(connection: Connection, log: Log, index: int, *, keys: Trusted, policy: WitnessPolicy | None) -> bytes:
    """
    Return a proof file (C2SP tlog-proof) of the entry at `index` against the newest checkpoint of the log.

    It contains the entry, without its payload parts.

    Raises:
        NoCheckpointError, LedgerError, BrokenError: as `prove_entry`.
    """
    return (await prove_entry(connection, log, index, keys=keys, policy=policy)).format()


async def prove_entry(
    connection: Connection, log: Log, index: int, *, keys: Trusted, policy: WitnessPolicy | None
) -> Inclusion:
    """
    Return the entry at `index` and its inclusion proof for the log's newest checkpoint, checked here.

    `keys` are all that have ever signed the log: one that has not grown since a rotation is signed by an old key. With
    a `policy`, the newest checkpoint of the system log is the newest that enough witnesses have cosigned.

    Raises:
        NoCheckpointError: if the entry has not been signed yet.
        LedgerError: if the log has no such entry.
        BrokenError: if what is stored does not prove the entry, or the checkpoint is not signed by one of `keys`.
    """
    newest = await read_newest(connection, log)
    async with connection.pipeline():  # requests inside are not waited for before it is left
        # The server works on the requests while the signature is verified. The size is not verified yet, and determines
        # nothing but which tiles are requested.
        requested = None
        if newest is not None and 0 <= index < newest.size:
            requested = await _request(connection, log, index, newest.size)
        note, checkpoint = await open_to_publish(connection, log, newest, keys=keys, policy=policy)
    size = checkpoint.size
    if not 0 <= index < size:
        log_size = (await read_head(connection, log.log_id)).size
        if not 0 <= index < log_size:
            raise LedgerError(f"log {log.origin}: expected an index from 0 to below its size {log_size}, found {index}")
        raise NoCheckpointError(
            f"entry {index} of log {log.origin} is not signed yet, the newest checkpoint is of size {size}: "
            "try again after the next one"
        )
    if requested is None or requested.path.size != size:  # the witnesses have cosigned an older one
        requested = await _request(connection, log, index, size)
    entry = await fetch_entry(requested.entry, index)
    hashes = await requested.path.fetch()
    check_inclusion(index=index, size=size, leaf=leaf_hash(entry), proof=hashes, root=checkpoint.root)
    return Inclusion(index=index, entry=entry, hashes=tuple(hashes), note=note, checkpoint=checkpoint)


class _Requested(NamedTuple):
    """What was requested to prove an entry: the entry, and the hashes that lead to a root."""

    entry: AsyncCursor[tuple[int, Any]]
    path: RequestedSubtrees[list[bytes]]


async def _request(connection: Connection, log: Log, index: int, size: int) -> _Requested:
    return _Requested(
        entry=await request_entries(connection, log.log_id, from_index=index, to_index=index + 1),
        path=await request_subtrees(
            connection, log.log_id, size, lambda read: prove_inclusion(index=index, size=size, read=read)
        ),
    )


async def prove_growth(connection: Connection, log: Log, older: Checkpoint, newer: Checkpoint) -> list[bytes]:
    """
    Return the consistency proof (RFC 6962, section 2.1.2) that the tree of `newer` extends that of `older`, checked.

    Raises:
        LedgerError: if `older` is the larger one.
        BrokenError: if what is stored does not prove it.
    """
    hashes = await growth_hashes(connection, log, older.size, newer.size)
    check_consistency(size1=older.size, size2=newer.size, root1=older.root, root2=newer.root, proof=hashes)
    return hashes


async def growth_hashes(connection: Connection, log: Log, size1: int, size2: int) -> list[bytes]:
    """
    Return the consistency proof between two sizes of a log, *not checked*: whoever has both roots checks it.

    Raises:
        LedgerError: if `size1` is not from 1 to `size2`, or `size2` is larger than the log.
        BrokenError: if what is stored does not have it.
    """
    return await compute_on_subtrees(
        connection, log.log_id, size2, lambda read: prove_consistency(size1=size1, size2=size2, read=read)
    )
