"""
The rows of a database that bound a log, read so that what is wrong with them is a fault and not a failure to read.

Whoever owns a database can drop its constraints first: a head may be missing or of no form, a tile may be cut, a value
may be NULL, rows may stand where no reader looks. All of that is said as what it is, a broken log.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.errors import BrokenError, Fault, FormatError, NoSuchLogError
from ledger.merkle import HASH_SIZE_BYTES, Frontier
from ledger.read import Connection
from ledger.sequence import Head
from ledger.tiles import TILE_WIDTH, Tile
from ledger.verify.database_rows import QUERIES

HEADS: Final = "ledger.heads"

_STRAY: Final = {
    "ledger.entries": Fault.INDEX,
    "ledger.checkpoints": Fault.CHECKPOINT,
    "ledger.tiles": Fault.TILE,
}


class StoredHead(NamedTuple):
    """The end of a log, and its time as text, empty if it has none: PostgreSQL has dates that are no entry's time."""

    head: Head
    recorded_at: str


async def read_sound_head(connection: Connection, log_id: int) -> StoredHead:
    """
    Return the head of a log; its `recorded_at` is the text beside it.

    Raises:
        BrokenError: (`Fault.HEAD`) if a log has none, several, or one of no form.
        NoSuchLogError: if this role can see no such log.
    """
    parameters = {"log_id": log_id}
    rows = await (await connection.execute(QUERIES["stored_head"], parameters, binary=True)).fetchall()
    if not rows:
        log = await (await connection.execute(QUERIES["log_of_id"], parameters)).fetchone()
        if log is None:
            raise NoSuchLogError(f"log {log_id}: expected a head, found none")
        raise BrokenError(Fault.HEAD, where=HEADS, expected=f"the head of {log[0]}", found="none")
    if len(rows) > 1:
        raise BrokenError(Fault.HEAD, where=HEADS, expected="one head", found=f"{len(rows)} rows")
    size, last, frontier, control_index, recorded_at = rows[0]
    if None in (size, last, frontier, control_index):
        raise BrokenError(Fault.HEAD, where=HEADS, expected="a head", found="NULL in it")
    try:
        tree = Frontier.parse(size, bytes(frontier))
    except FormatError as error:
        raise BrokenError(Fault.HEAD, where=HEADS, expected="a head", found=error) from error
    head = Head(size=size, last=bytes(last), frontier=tree, control_index=control_index, recorded_at=None)
    return StoredHead(head, recorded_at or "")


async def read_stored_tile(connection: Connection, log_id: int, *, level: int, index: int) -> tuple[Tile, bytes | None]:
    """
    Return a complete tile, and the root that is kept beside it, if one is.

    Raises:
        BrokenError: (`Fault.TILE`) if it is not there, or not of 256 hashes.
    """
    parameters = {"log_id": log_id, "level": level, "tile": index}
    row = await (await connection.execute(QUERIES["stored_tile"], parameters, binary=True)).fetchone()
    hashes = b"" if row is None else bytes(row[0] or b"")
    if row is None or len(hashes) != TILE_WIDTH * HASH_SIZE_BYTES:
        where = f"ledger.tiles level {level} tile {index}"
        found = "none" if row is None else f"one of {len(hashes)} bytes"
        raise BrokenError(Fault.TILE, where=where, expected="a complete tile", found=found)
    return Tile.parse(hashes, level=level, index=index), None if row[1] is None else bytes(row[1])


async def check_no_stray_row(connection: Connection, log_id: int) -> None:
    """
    Check that the log has no row at a place that no log has, such as an index below 0, and that none is of no log.

    Raises:
        BrokenError: for the first; with its index if it is an entry.
    """
    row = await (await connection.execute(QUERIES["stray_row"], {"log_id": log_id})).fetchone()
    if row is not None:
        table, at = row
        index = at if table == "ledger.entries" else None
        found = "NULL" if at is None else at
        raise BrokenError(_STRAY[table], where=table, expected="no row at such a place", found=found, index=index)
