"""
Makes the proof of one entry from the database: a file that `ledger.proof.check_proof` checks with the log's key alone.
"""

from __future__ import annotations

from ledger.errors import BrokenError, Fault, LedgerError
from ledger.merkle import check_inclusion, leaf_hash, prove_inclusion
from ledger.note import VerifierKey
from ledger.proof import Proof, format_proof
from ledger.read import Connection, Log, read_entries, read_head
from ledger.stored_tree import NoCheckpointError, on_tiles, read_newest_checkpoint
from ledger.tiles import tile_hash_reader


async def prove(connection: Connection, log: Log, index: int, *, key: VerifierKey) -> bytes:
    """
    Return a proof file (C2SP tlog-proof) of the entry at `index` against the newest checkpoint of the log.

    The entry itself is in it, its payload parts are not. The proof is checked before it is given out.

    Raises:
        NoCheckpointError: if the entry has not been signed yet.
        LedgerError: if the log has no such entry.
        BrokenError: if what is stored does not prove the entry, or the checkpoint is not signed by `key`.
    """
    head = await read_head(connection, log.log_id)
    if not 0 <= index < head.size:
        raise LedgerError(f"log {log.origin}: expected an index from 0 to below its size {head.size}, found {index}")
    note, checkpoint = await read_newest_checkpoint(connection, log, key=key)
    if index >= checkpoint.size:
        raise NoCheckpointError(
            f"entry {index} of log {log.origin} is not signed yet, the newest checkpoint is of size {checkpoint.size}: "
            "try again after the next one"
        )
    entries = await read_entries(connection, log.log_id, from_index=index, to_index=index + 1)
    if not entries:
        raise BrokenError(Fault.INDEX, where="ledger.entries", expected=f"entry {index}", found="none", index=index)
    size = checkpoint.size
    hashes = await on_tiles(
        connection,
        log.log_id,
        lambda read_tile: prove_inclusion(index=index, size=size, read=tile_hash_reader(read_tile, size)),
    )
    check_inclusion(index=index, size=size, leaf=leaf_hash(entries[0]), proof=hashes, root=checkpoint.root)
    return format_proof(Proof(extra=entries[0], index=index, hashes=tuple(hashes), checkpoint=note))
