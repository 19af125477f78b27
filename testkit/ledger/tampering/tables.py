# SPDX-License-Identifier: Apache-2.0
"""
Classes of tampering with whole entries: removed, moved, repeated, taken from another log; and with whole logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

from ledger.errors import Fault
from ledger.format.sequence import SequencedEntry
from ledger.format.tiles import complete_tiles
from testkit.ledger.logs import head_of
from testkit.ledger.tampering.instances import LogState, Tampered, Tampering, World, faulty

ONE: Final = "one"
CONTENT: Final = "entry, leaf, type, key, is_control"
COLUMNS: Final = f"{CONTENT}, group_id"


async def hold(world: World, state: LogState, rows: Sequence[SequencedEntry], *, at: int) -> None:
    """Make the log one of exactly these rows, which are the old ones up to `at`: entries, tiles, head."""
    tiles, _ = complete_tiles(size=0, pending=(), leaves=[row.leaf for row in rows])
    head, log_id = head_of(rows), state.log_id
    async with world.owner.transaction(), world.owner.cursor() as cursor:
        await cursor.execute("DELETE FROM ledger.entries WHERE log_id = %s AND index >= %s", (log_id, at))
        await cursor.execute("DELETE FROM ledger.parts WHERE log_id = %s AND index >= %s", (log_id, len(rows)))
        await cursor.execute("DELETE FROM ledger.tiles WHERE log_id = %s", (log_id,))
        async with cursor.copy(f"COPY ledger.entries (log_id, index, {COLUMNS}) FROM STDIN") as copy:
            for row in rows[at:]:
                await copy.write_row(
                    (log_id, row.index, row.entry, row.leaf, row.type, row.key, row.is_control, row.group_id)
                )
        for tile in tiles:
            await cursor.execute(
                "INSERT INTO ledger.tiles VALUES (%s, %s, %s, %s, %s)",
                (log_id, tile.level, tile.index, tile.pack(), tile.root()),
            )
        await cursor.execute(
            "UPDATE ledger.heads SET size = %s, last = %s, frontier = %s, control_index = %s, recorded_at = %s "
            "WHERE log_id = %s",
            (head.size, head.last, head.frontier.pack(), head.control_index, head.recorded_at, log_id),
        )


async def set_back(world: World, state: LogState, size: int) -> None:
    """Make the log what it was at `size`, checkpoints too."""
    await hold(world, state, state.rows[:size], at=size)
    await world.execute("DELETE FROM ledger.checkpoints WHERE log_id = %s AND size > %s", state.log_id, size)


async def put_row(world: World, state: LogState, index: int, row: SequencedEntry, *, columns: str = CONTENT) -> None:
    """Put the content of `row` in the place of the entry at `index`."""
    names = columns.split(", ")
    assignments = ", ".join(f"{name} = %s" for name in names)
    statement = f"UPDATE ledger.entries SET {assignments} WHERE log_id = %s AND index = %s"  # noqa: S608
    await world.execute(statement, *(getattr(row, name) for name in names), state.log_id, index)


async def deleted_at_head(world: World, random: Random) -> Tampered:
    return await _deleted(world, 0, random.randint(1, 5))


async def deleted_in_the_middle(world: World, random: Random) -> Tampered:
    size = world.logs[ONE].size
    return await _deleted(world, random.randrange(1, size - 10), random.choice((1, 1, 2, 9)))


async def deleted_at_tail(world: World, random: Random) -> Tampered:
    count = random.randint(1, 40)
    return await _deleted(world, world.logs[ONE].size - count, count)


async def _deleted(world: World, first: int, count: int) -> Tampered:
    statement = "DELETE FROM ledger.entries WHERE log_id = %s AND index >= %s AND index < %s"
    await world.execute(statement, world.logs[ONE].log_id, first, first + count)
    return faulty(Fault.INDEX, index=first, detail=f"{count} entries from {first} on deleted")


async def swapped(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    first, second = sorted(random.sample(range(state.size), 2))
    columns = random.choice((CONTENT, "entry", "entry, leaf"))
    await put_row(world, state, first, state.rows[second], columns=columns)
    await put_row(world, state, second, state.rows[first], columns=columns)
    return faulty(Fault.INDEX, index=first, detail=f"{columns} of {first} and {second} swapped")


async def reordered(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    first = random.randrange(state.size - 4)
    end = random.randint(first + 3, min(first + 20, state.size))
    for index in range(first, end):
        await put_row(world, state, index, state.rows[first + end - 1 - index])
    return faulty(Fault.INDEX, index=first, detail=f"entries {first} to {end} in reverse order")


async def duplicated_in_place(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    source, target = random.sample(range(state.size), 2)
    await put_row(world, state, target, state.rows[source])
    return faulty(Fault.INDEX, index=target, detail=f"entry {source} again in the place of {target}")


async def duplicated_at_tail(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    row = replace(random.choice(state.rows), index=state.size, group_id=None)
    if random.random() < 0.5:
        await hold(world, state, [*state.rows, row], at=state.size)
    else:
        await _insert(world, state, row, index=state.size)
    return faulty(Fault.INDEX, index=state.size, detail="an entry again behind the last one")


async def replayed_from_other(world: World, random: Random) -> Tampered:
    state, other = world.logs[ONE], world.logs["other"]
    index = random.randrange(other.size)
    await put_row(world, state, index, other.rows[index])
    return faulty(Fault.ORIGIN, index=index, detail=f"the other tenant's entry {index} in the place of this one's")


async def replayed_from_other_at_tail(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    row = replace(random.choice(world.logs["other"].rows), index=state.size, group_id=None)
    await hold(world, state, [*state.rows, row], at=state.size)
    return faulty(Fault.ORIGIN, index=state.size, detail="the other tenant's entry behind the last one")


async def inserted_at_no_place(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    index = -random.randint(1, 2**62)
    await _insert(world, state, replace(random.choice(state.rows), group_id=None), index=index)
    return faulty(Fault.INDEX, index=index, detail=f"an entry at {index}")


async def _insert(world: World, state: LogState, row: SequencedEntry, *, index: int) -> None:
    await world.execute(
        f"INSERT INTO ledger.entries (log_id, index, {COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",  # noqa: S608
        state.log_id, index, row.entry, row.leaf, row.type, row.key, row.is_control, row.group_id,
    )  # fmt: skip


async def log_removed(world: World, random: Random) -> Tampered:
    log_id = world.logs[ONE].log_id
    for table in ("entries", "parts", "tiles", "checkpoints", "heads", "logs"):
        await world.execute(f"DELETE FROM ledger.{table} WHERE log_id = %s", log_id)  # noqa: S608
    return faulty(Fault.ANCHOR, index=0, detail="the log removed from every table", log="system")


async def log_emptied(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    await set_back(world, state, 0)
    return faulty(Fault.ANCHOR, index=0, detail="the log emptied: entries, tiles, checkpoints, head")


async def entries_removed(world: World, random: Random) -> Tampered:
    await world.execute("DELETE FROM ledger.entries WHERE log_id = %s", world.logs[ONE].log_id)
    return faulty(Fault.INDEX, index=0, detail="all entries removed, nothing else")


async def head_removed(world: World, random: Random) -> Tampered:
    await world.execute("DELETE FROM ledger.heads WHERE log_id = %s", world.logs[ONE].log_id)
    return faulty(Fault.HEAD, detail="the head removed")


ENTRIES: Final[tuple[Tampering, ...]] = (
    deleted_at_head,
    deleted_in_the_middle,
    deleted_at_tail,
    swapped,
    reordered,
    duplicated_in_place,
    duplicated_at_tail,
    replayed_from_other,
    replayed_from_other_at_tail,
    inserted_at_no_place,
    log_removed,
    log_emptied,
    entries_removed,
    head_removed,
)
