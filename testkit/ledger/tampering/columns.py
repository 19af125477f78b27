# SPDX-License-Identifier: Apache-2.0
"""
Classes of tampering: one changed value, for every column of every table of the log.

A column that verification does not read is in `limits.py`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final
from uuid import UUID

from psycopg.errors import UniqueViolation

from ledger.errors import Fault, FormatError
from ledger.format.entry import FIRST_PREVIOUS, parse_entry
from testkit.ledger.tampering.instances import KEYS, LogState, Tampered, Tampering, World, faulty

_INTEGER_BITS: Final = {"log_id": 31, "level": 15}


def flipped(value: Any, random: Random, *, bits: int = 63) -> Any:
    """Return `value` with one bit changed, or another value of its kind; None becomes something."""
    match value:
        case None:
            return UUID(int=random.getrandbits(128))
        case bool():
            return not value
        case int():
            return value ^ (1 << random.randrange(bits))
        case bytes():
            at = random.randrange(8 * len(value))
            return (int.from_bytes(value, "little") ^ (1 << at)).to_bytes(len(value), "little")
        case str():
            at = random.randrange(len(value))
            return value[:at] + chr(ord(value[at]) ^ (1 << random.randrange(4))) + value[at + 1 :]
        case UUID():
            return UUID(int=value.int ^ (1 << random.randrange(128)))
        case datetime():
            return value + timedelta(microseconds=random.choice((-1, 1)) << random.randrange(40))
    raise TypeError(value)


def place(random: Random, state: LogState) -> int:
    """Return an index, a third of the time one at a border: of the log, of a tile, of a checkpoint."""
    borders = {0, 255, 256, 511, 512, state.size - 1}
    borders |= {border for size in state.notes for border in (size - 1, size)}
    if random.random() < 1 / 3:
        return random.choice(sorted(border for border in borders if border < state.size))
    return random.randrange(state.size)


def fault_of(changed: bytes, state: LogState, index: int) -> Fault:
    """Return what is wrong with `changed` in the place of the entry at `index`, by the order of the rules."""
    try:
        entry = parse_entry(changed)
    except FormatError:
        return Fault.ENTRY
    own = parse_entry(state.rows[index].entry)
    before = parse_entry(state.rows[index - 1].entry) if index else None
    goes_on = before is not None and before.position + 1 < before.of
    group = (entry.group_id, entry.branch, entry.of, entry.position)
    if entry.log != state.log.origin:
        return Fault.ORIGIN
    if entry.index != index:
        return Fault.INDEX
    if entry.previous != (state.rows[index - 1].leaf if index else FIRST_PREVIOUS):
        return Fault.CHAIN
    if before is not None and entry.recorded_at < before.recorded_at:
        return Fault.TIME
    if entry.position != own.position or (goes_on and group != (own.group_id, own.branch, own.of, own.position)):
        return Fault.GROUP
    return Fault.ENTRY


async def change_value(
    world: World, random: Random, table: str, column: str, *, where: str = "true"
) -> tuple[tuple[Any, ...], Any]:
    """Change one column of a random row of the log "one"; return the row's key, and the new value."""
    keys = KEYS[table]
    log_id = world.logs["one"].log_id
    condition = f"log_id = {log_id} AND {where}"
    (count,) = (await world.rows(f"SELECT count(*) FROM saved.{table} WHERE {condition}"))[0]  # noqa: S608
    while True:
        columns, at = ", ".join((*keys, column)), random.randrange(count)
        query = f"SELECT {columns} FROM saved.{table} WHERE {condition} ORDER BY {', '.join(keys)} OFFSET {at} LIMIT 1"  # noqa: S608
        *key, value = (await world.rows(query))[0]
        value = flipped(value, random, bits=_INTEGER_BITS.get(column, 63))
        test = " AND ".join(f"{name} = %s" for name in keys)
        try:
            await world.execute(f"UPDATE ledger.{table} SET {column} = %s WHERE {test}", value, *key)  # noqa: S608
        except UniqueViolation:
            continue
        return tuple(key), value


async def entry_bytes(world: World, random: Random) -> Tampered:
    state = world.logs["one"]
    index = place(random, state)
    changed = flipped(state.rows[index].entry, random)
    await world.execute(
        "UPDATE ledger.entries SET entry = %s WHERE log_id = %s AND index = %s", changed, state.log_id, index
    )
    return faulty(fault_of(changed, state, index), index=index, detail=f"entry {index}")


async def entry_column(world: World, random: Random, *, column: str, fault: Fault) -> Tampered:
    state = world.logs["one"]
    index = place(random, state)
    value = flipped(getattr(state.rows[index], column), random)
    statement = f"UPDATE ledger.entries SET {column} = %s WHERE log_id = %s AND index = %s"  # noqa: S608
    await world.execute(statement, value, state.log_id, index)
    return faulty(fault, index=index, detail=f"{column} of entry {index}")


async def entry_place(world: World, random: Random, *, column: str) -> Tampered:
    (_, index), value = await change_value(world, random, "entries", column)
    return faulty(Fault.INDEX, index=index, detail=f"{column} of entry {index} is {value}")


async def value(world: World, random: Random, *, table: str, column: str, faults: tuple[Fault, ...]) -> Tampered:
    key, changed = await change_value(world, random, table, column)
    return faulty(*faults, detail=f"{table}.{column} of {key}: {changed!r:.80}")


async def origin(world: World, random: Random) -> Tampered:
    _, changed = await change_value(world, random, "logs", "origin")
    return faulty(Fault.ANCHOR, index=0, detail=f"the log's origin is {changed}", log="system")


async def tenant(world: World, random: Random, *, changed: Callable[[Random], UUID | None]) -> Tampered:
    log, to = random.choice(("one", "other", "system")), changed(random)
    if log == "system" and to is None:
        log = "one"
    await world.execute("UPDATE ledger.logs SET tenant = %s WHERE log_id = %s", to, world.logs[log].log_id)
    return faulty(Fault.DERIVED, detail=f"{log} belongs to {to}", log=log)


async def checkpoint_of_other(world: World, random: Random) -> Tampered:
    state, other = world.logs["one"], world.logs["other"]
    size = random.choice(sorted(state.notes))
    statement = "UPDATE ledger.checkpoints SET log_id = %s WHERE log_id = %s AND size = %s"
    await world.execute(statement, other.log_id, state.log_id, size)
    # Which of the two is said depends on whether the key of the log that it speaks of is among the trusted ones.
    return faulty(Fault.SIGNATURE, Fault.CHECKPOINT, detail=f"checkpoint {size} of another log", log="other")


async def part_index(world: World, random: Random) -> Tampered:
    key, index = await change_value(world, random, "parts", "index")
    return faulty(Fault.PART, index=index, detail=f"{key} at {index}")


async def part_log(world: World, random: Random) -> Tampered:
    other = world.logs["other"].log_id
    while True:
        (log_id, index, name), *_ = random.choices(await world.rows("SELECT log_id, index, name FROM saved.parts"))
        if log_id != other:
            break
    await world.execute("DELETE FROM ledger.parts WHERE log_id = %s AND index = %s AND name = %s", other, index, name)
    statement = "UPDATE ledger.parts SET log_id = %s WHERE log_id = %s AND index = %s AND name = %s"
    await world.execute(statement, other, log_id, index, name)
    return faulty(Fault.PART, index=index, detail=f"part {name} of entry {index} in another log", log="other")


async def part_value(world: World, random: Random, *, column: str, where: str = "true") -> Tampered:
    (_, index, name), changed = await change_value(world, random, "parts", column, where=where)
    return faulty(Fault.PART, index=index, detail=f"{column} of part {name} of entry {index}: {changed!r:.80}")


def _values(table: str, *faults: Fault, columns: tuple[str, ...]) -> dict[tuple[str, str], Tampering]:
    return {(table, column): partial(value, table=table, column=column, faults=faults) for column in columns}


COLUMNS: Final[dict[tuple[str, str], Tampering]] = {
    ("entries", "log_id"): partial(entry_place, column="log_id"),
    ("entries", "index"): partial(entry_place, column="index"),
    ("entries", "entry"): entry_bytes,
    **{
        ("entries", column): partial(entry_column, column=column, fault=Fault.DERIVED)
        for column in ("leaf", "type", "key", "is_control", "group_id")
    },
    **_values("heads", Fault.HEAD, columns=("log_id", "size", "last", "frontier", "control_index", "recorded_at")),
    **_values("tiles", Fault.TILE, columns=("log_id", "level", "tile", "hashes")),
    **_values("tiles", Fault.DERIVED, columns=("root",)),
    **_values("checkpoints", Fault.CHECKPOINT, columns=("size",)),
    **_values("checkpoints", Fault.SIGNATURE, Fault.CHECKPOINT, columns=("note",)),
    ("checkpoints", "log_id"): checkpoint_of_other,
    **_values("logs", Fault.HEAD, columns=("log_id",)),
    ("logs", "origin"): origin,
    ("logs", "tenant"): partial(tenant, changed=lambda random: UUID(int=random.getrandbits(128))),
    ("parts", "log_id"): part_log,
    ("parts", "index"): part_index,
    ("parts", "name"): partial(part_value, column="name"),
    ("parts", "sealed"): partial(part_value, column="sealed"),
    ("parts", "key_id"): partial(part_value, column="key_id", where="key_id IS NULL"),
}
"""One value changed, by table and column. Of `parts.key_id`, those that had none: see also `limits.py`."""
