# SPDX-License-Identifier: Apache-2.0
"""
Classes of tampering with what is stored next to the entries: tiles, payload parts, and indexes that lie.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any, Final

from ledger.errors import Fault
from ledger.format.event import SALT_SIZE_BYTES
from ledger.format.tiles import TILE_WIDTH
from testkit.ledger.tampering.columns import place
from testkit.ledger.tampering.instances import Tampered, Tampering, World, faulty

ONE: Final = "one"


@asynccontextmanager
async def blind(world: World, *indexes: str) -> AsyncIterator[None]:
    """Let indexes of `ledger` miss what happens meanwhile: rows that are written are not entered into them."""
    statement = "UPDATE pg_index SET indisready = %s WHERE indexrelid = ANY (%s::regclass[])"
    names = [f"ledger.{name}" for name in indexes]
    async with world.owner.transaction():
        await world.execute(statement, False, names)
        yield
        await world.execute(statement, True, names)


async def row_missing_from_index(world: World, random: Random, *, name: str, where: str, log: str = ONE) -> Tampered:
    """A row that its index does not lead to: whoever reads through the index does not see it."""
    log_id = world.logs[log].log_id
    query = f"SELECT index FROM saved.entries WHERE log_id = %s AND {where}"  # noqa: S608
    ((index,),) = random.choices(await world.rows(query, log_id))
    await world.execute("DELETE FROM ledger.entries WHERE log_id = %s AND index = %s", log_id, index)
    async with blind(world, name):
        statement = "INSERT INTO ledger.entries SELECT * FROM saved.entries WHERE log_id = %s AND index = %s"
        await world.execute(statement, log_id, index)
    faults = (Fault.INDEX, Fault.DERIVED) if name == "entries_pkey" else (Fault.DERIVED,)
    return faulty(*faults, index=index, detail=f"{name} misses entry {index}", log=log, all_rows=True)


async def checkpoint_missing_from_index(world: World, random: Random) -> Tampered:
    """The newest checkpoint or an older one: the log is as if it were not signed so far."""
    state = world.logs[ONE]
    size = random.choice((state.signed, random.choice(sorted(state.notes))))
    await world.execute("DELETE FROM ledger.checkpoints WHERE log_id = %s AND size = %s", state.log_id, size)
    async with blind(world, "checkpoints_pkey"):
        statement = "INSERT INTO ledger.checkpoints SELECT * FROM saved.checkpoints WHERE log_id = %s AND size = %s"
        await world.execute(statement, state.log_id, size)
    return faulty(Fault.CHECKPOINT, detail=f"checkpoints_pkey misses {size}", all_rows=True)


async def part_missing_from_index(world: World, random: Random) -> Tampered:
    """A part that nobody is shown, or that erasing its person would leave behind."""
    log_id, name = world.logs[ONE].log_id, random.choice(("parts_pkey", "parts_subject"))
    query = "SELECT index, name FROM saved.parts WHERE log_id = %s AND subject IS NOT NULL ORDER BY index, name"
    at = random.choice(await world.rows(query, log_id))
    await world.execute("DELETE FROM ledger.parts WHERE log_id = %s AND index = %s AND name = %s", log_id, *at)
    async with blind(world, name):
        statement = "INSERT INTO ledger.parts SELECT * FROM saved.parts WHERE log_id = %s AND index = %s AND name = %s"
        await world.execute(statement, log_id, *at)
    return faulty(Fault.PART, index=at[0], detail=f"{name} misses the part {at}", all_rows=True)


async def row_hidden_from_index(world: World, random: Random) -> Tampered:
    """A second row under an index that is taken: whoever reads the whole table sees both."""
    log_id, index = world.logs[ONE].log_id, place(random, world.logs[ONE])
    async with blind(world, "entries_pkey"):
        await world.execute(
            "INSERT INTO ledger.entries SELECT log_id, index, entry || ' ', leaf, type, key, is_control "
            "FROM saved.entries WHERE log_id = %s AND index = %s",
            log_id,
            index,
        )
    return faulty(Fault.INDEX, index=index, detail=f"a hidden row beside entry {index}", all_rows=True)


async def row_hidden_where_no_entry_is(world: World, random: Random) -> Tampered:
    """A row behind the last entry, or before the first, that no index leads to."""
    state = world.logs[ONE]
    index = random.choice((state.size, state.size + random.getrandbits(40), -1 - random.getrandbits(40)))
    names = "entries_pkey", "entries_control", "entries_control_key", "entries_trigger", "entries_erasure"
    async with blind(world, *names):
        await world.execute(
            "INSERT INTO ledger.entries SELECT log_id, %s, entry, leaf, type, key, is_control "
            "FROM saved.entries WHERE log_id = %s AND index = %s",
            index, state.log_id, random.randrange(state.size),
        )  # fmt: skip
    return faulty(Fault.INDEX, index=index, detail=f"a hidden row at {index}", all_rows=True)


async def head_hidden_from_index(world: World, random: Random) -> Tampered:
    log_id, size = world.logs[ONE].log_id, random.randrange(1000)
    async with blind(world, "heads_pkey"):
        await world.execute(
            "INSERT INTO ledger.heads SELECT log_id, %s, last, frontier, control_index, recorded_at "
            "FROM saved.heads WHERE log_id = %s",
            size,
            log_id,
        )
    return faulty(Fault.HEAD, detail=f"a hidden head of {size}", all_rows=True)


async def tile_hidden_from_index(world: World, random: Random) -> Tampered:
    log_id, tile = world.logs[ONE].log_id, random.choice((0, 1, 2, 10**6))
    level = random.choice((0, 1))
    async with blind(world, "tiles_pkey"):
        statement = "INSERT INTO ledger.tiles VALUES (%s, %s, %s, %s, NULL)"
        await world.execute(statement, log_id, level, tile, random.randbytes(32 * TILE_WIDTH))
    return faulty(Fault.TILE, detail=f"a hidden tile {tile} of level {level}", all_rows=True)


async def checkpoint_hidden_from_index(world: World, random: Random) -> Tampered:
    size = random.choice((*world.logs[ONE].notes, random.getrandbits(40)))
    async with blind(world, "checkpoints_pkey"):
        statement = "INSERT INTO ledger.checkpoints VALUES (%s, %s, %s)"
        await world.execute(statement, world.logs[ONE].log_id, size, random.randbytes(200))
    return faulty(Fault.CHECKPOINT, detail=f"a hidden checkpoint of {size}", all_rows=True)


async def part_hidden_from_index(world: World, random: Random) -> Tampered:
    (index, name, *_), _ = await _two_parts(world, random)
    index = random.choice((index, place(random, world.logs[ONE]), -5, 10**6))
    async with blind(world, "parts_pkey", "parts_subject"):
        statement = "INSERT INTO ledger.parts (log_id, index, name, sealed) VALUES (%s, %s, %s, %s)"
        await world.execute(statement, world.logs[ONE].log_id, index, name, random.randbytes(50))
    return faulty(Fault.PART, index=index, detail=f"a hidden part {name} of entry {index}", all_rows=True)


async def tile_deleted(world: World, random: Random) -> Tampered:
    tile = random.randrange(world.logs[ONE].size // TILE_WIDTH)
    await world.execute("DELETE FROM ledger.tiles WHERE log_id = %s AND tile = %s", world.logs[ONE].log_id, tile)
    return faulty(Fault.TILE, detail=f"tile {tile} deleted")


async def tile_inserted(world: World, random: Random) -> Tampered:
    level, tile = random.choice(((0, 2), (0, random.getrandbits(50)), (1, 0), (random.randint(2, 7), 0)))
    statement = "INSERT INTO ledger.tiles VALUES (%s, %s, %s, %s, NULL)"
    await world.execute(statement, world.logs[ONE].log_id, level, tile, random.randbytes(32 * TILE_WIDTH))
    return faulty(Fault.TILE, detail=f"tile {tile} of level {level} added")


async def tiles_swapped(world: World, random: Random) -> Tampered:
    log_id = world.logs[ONE].log_id
    other = random.choice((log_id, world.logs["other"].log_id))
    tile = random.randrange(2) if other != log_id else 1
    columns = random.choice(("hashes = s.hashes", "hashes = s.hashes, root = s.root"))
    statement = (
        f"UPDATE ledger.tiles AS t SET {columns} FROM saved.tiles AS s "  # noqa: S608
        "WHERE s.log_id = %s AND s.tile = 0 AND t.log_id = %s AND t.tile = %s"
    )
    await world.execute(statement, other, log_id, tile)
    return faulty(Fault.TILE, detail=f"{columns} of another tile in the place of tile {tile}")


async def tile_cut(world: World, random: Random) -> Tampered:
    statement = "UPDATE ledger.tiles SET hashes = substr(hashes, 1, %s) WHERE log_id = %s AND tile = %s"
    await world.execute(statement, random.randrange(32 * TILE_WIDTH), world.logs[ONE].log_id, random.randrange(2))
    return faulty(Fault.TILE, detail="the end of a tile cut off")


async def _two_parts(world: World, random: Random, where: str = "true") -> list[tuple[Any, ...]]:
    """Return two parts of one log: index, name, what is stored, key and subject; the earlier one first."""
    columns = "index, name, sealed, key_id, subject"
    query = f"SELECT {columns} FROM saved.parts WHERE log_id = %s AND {where}"  # noqa: S608
    return sorted(random.sample(await world.rows(query, world.logs[ONE].log_id), 2), key=lambda row: row[:2])


async def _put_part(world: World, index: int, name: str, sealed: bytes) -> None:
    statement = "UPDATE ledger.parts SET sealed = %s WHERE log_id = %s AND index = %s AND name = %s"
    await world.execute(statement, sealed, world.logs[ONE].log_id, index, name)


async def parts_swapped(world: World, random: Random) -> Tampered:
    one, two = await _two_parts(world, random)
    await _put_part(world, one[0], one[1], two[2])
    await _put_part(world, two[0], two[1], one[2])
    return faulty(Fault.PART, index=one[0], detail=f"parts {one[:2]} and {two[:2]} swapped")


async def salts_swapped(world: World, random: Random) -> Tampered:
    one, two = await _two_parts(world, random, "key_id IS NULL")
    at = SALT_SIZE_BYTES
    await _put_part(world, one[0], one[1], two[2][:at] + one[2][at:])
    await _put_part(world, two[0], two[1], one[2][:at] + two[2][at:])
    return faulty(Fault.PART, index=one[0], detail=f"salts of {one[:2]} and {two[:2]} swapped")


async def part_cut(world: World, random: Random) -> Tampered:
    (index, name, sealed, *_), _ = await _two_parts(world, random)
    await _put_part(world, index, name, sealed[: random.randrange(len(sealed))])
    return faulty(Fault.PART, index=index, detail=f"the end of part {name} of entry {index} cut off")


async def part_added(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    index = random.choice((place(random, state), state.size + random.getrandbits(40), -random.getrandbits(40) - 1))
    statement = "INSERT INTO ledger.parts (log_id, index, name, sealed) VALUES (%s, %s, 'added', %s)"
    await world.execute(statement, state.log_id, index, random.randbytes(random.randint(0, 100)))
    return faulty(Fault.PART, index=index, detail=f"a part added to entry {index}")


_INDEXED: Final = {
    "entries_pkey": "true",
    "entries_group": "group_id IS NOT NULL",
    "entries_control": "is_control",
    "entries_control_key": "is_control",
    "entries_trigger": "type IN ('trigger.received', 'commit.settled')",
    "entries_erasure": "type = 'payload.erased'",
}

TILES_AND_PARTS: Final[dict[str, Tampering]] = {
    **{
        one.__name__: one
        for one in (
            tile_deleted,
            tile_inserted,
            tiles_swapped,
            tile_cut,
            parts_swapped,
            salts_swapped,
            part_cut,
            part_added,
            row_hidden_from_index,
            row_hidden_where_no_entry_is,
            head_hidden_from_index,
            tile_hidden_from_index,
            checkpoint_hidden_from_index,
            part_hidden_from_index,
            checkpoint_missing_from_index,
            part_missing_from_index,
        )
    },
    **{
        f"row_missing_from_{name}": partial(row_missing_from_index, name=name, where=where)
        for name, where in _INDEXED.items()
    },
    "row_missing_from_entries_anchor": partial(
        row_missing_from_index, name="entries_anchor", where="type = 'logs.anchored'", log="system"
    ),
}
