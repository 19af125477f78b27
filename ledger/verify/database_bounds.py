"""
The rows of a database that bound a log, read so that what is wrong with them is a fault and not a failure to read.

Whoever owns a database can drop its constraints first: a head may be missing or of no form, a tile may be cut, rows may
stand where no reader looks. All of that is said as what it is, a broken log.
"""

from __future__ import annotations

from typing import Final

from ledger.errors import BrokenError, Fault, FormatError, NoSuchLogError
from ledger.merkle import HASH_SIZE_BYTES
from ledger.read import Connection, read_head
from ledger.sequence import Head
from ledger.tiles import TILE_WIDTH, Tile
from ledger.verify.database_rows import QUERIES

_STRAY: Final = {
    "ledger.entries": Fault.INDEX,
    "ledger.checkpoints": Fault.CHECKPOINT,
    "ledger.tiles": Fault.TILE,
}


async def read_sound_head(connection: Connection, log_id: int) -> Head:
    """
    Return the head of a log.

    Raises:
        BrokenError: (`Fault.HEAD`) if a log has none, or one of no form.
        NoSuchLogError: if this role can see no such log.
    """
    where = "ledger.heads"
    try:
        return await read_head(connection, log_id)
    except FormatError as error:
        raise BrokenError(Fault.HEAD, where=where, expected="a head", found=error) from error
    except NoSuchLogError as error:
        log = await (await connection.execute(QUERIES["log_of_id"], {"log_id": log_id})).fetchone()
        if log is None:
            raise
        raise BrokenError(Fault.HEAD, where=where, expected=f"the head of {log[0]}", found="none") from error


async def read_stored_tile(connection: Connection, log_id: int, *, level: int, index: int) -> tuple[Tile, bytes | None]:
    """
    Return a complete tile, and the root that is kept beside it, if one is.

    Raises:
        BrokenError: (`Fault.TILE`) if it is not there, or not of 256 hashes.
    """
    parameters = {"log_id": log_id, "level": level, "tile": index}
    row = await (await connection.execute(QUERIES["stored_tile"], parameters, binary=True)).fetchone()
    hashes = b"" if row is None else bytes(row[0])
    if row is None or len(hashes) != TILE_WIDTH * HASH_SIZE_BYTES:
        where = f"ledger.tiles level {level} tile {index}"
        found = "none" if row is None else f"one of {len(hashes)} bytes"
        raise BrokenError(Fault.TILE, where=where, expected="a complete tile", found=found)
    return Tile.parse(hashes, level=level, index=index), None if row[1] is None else bytes(row[1])


async def check_no_stray_row(connection: Connection, log_id: int) -> None:
    """
    Check that the log has no row at a place that no log has, such as an index below 0.

    Raises:
        BrokenError: for the first; with its index if it is an entry.
    """
    row = await (await connection.execute(QUERIES["stray_row"], {"log_id": log_id})).fetchone()
    if row is not None:
        table, at = row
        index = at if table == "ledger.entries" else None
        raise BrokenError(_STRAY[table], where=table, expected="no row at such a place", found=at, index=index)
