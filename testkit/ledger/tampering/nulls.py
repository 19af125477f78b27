# SPDX-License-Identifier: Apache-2.0
"""
Classes of tampering with a value that is none: NULL where the schema forbids it, nothing at all, a date of no calendar.

Whoever owns the database drops NOT NULL first. A reader that takes such a value for an error of its own ends without a
verdict; here each is a fault of the log, with its class and index. NULL that says nothing against a log is listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Final

from ledger.errors import Fault
from testkit.ledger.tampering.columns import place, tenant
from testkit.ledger.tampering.instances import KEYS, Tampered, Tampering, World, faulty

ONE: Final = "one"


async def set_value(world: World, random: Random, table: str, column: str, value: str, where: str = "true") -> object:
    """Set one column of a random row of the log "one" to a value, an SQL literal; return the row's key."""
    keys = KEYS[table]
    condition = f"log_id = {_id(world)} AND {where}"
    key = random.choice(
        await world.rows(f"SELECT {', '.join(keys)} FROM saved.{table} WHERE {condition} ORDER BY {', '.join(keys)}")  # noqa: S608
    )
    test = " AND ".join(f"{name} = %s" for name in keys)
    assert await world.execute(f"UPDATE ledger.{table} SET {column} = {value} WHERE {test}", *key) == 1  # noqa: S608
    return key


def _id(world: World) -> int:
    return world.logs[ONE].log_id


async def of_row(
    world: World, random: Random, *, table: str, column: str, value: str = "NULL", fault: Fault, where: str = "true"
) -> Tampered:
    key = await set_value(world, random, table, column, value, where)
    return faulty(fault, detail=f"{table}.{column} of {key} is {value}")


async def of_entry(world: World, random: Random, *, column: str, value: str = "NULL", fault: Fault) -> Tampered:
    state = world.logs[ONE]
    index = place(random, state)
    while column == "group_id" and state.rows[index].group_id is None:
        index = place(random, state)
    statement = f"UPDATE ledger.entries SET {column} = {value} WHERE log_id = %s AND index = %s"  # noqa: S608
    assert await world.execute(statement, state.log_id, index) == 1
    return faulty(fault, index=index, detail=f"{column} of entry {index} is {value}")


async def of_part(
    world: World, random: Random, *, column: str, value: str = "NULL", where: str = "true", is_placed: bool = True
) -> Tampered:
    key = await set_value(world, random, "parts", column, value, where)
    assert isinstance(key, tuple)
    return faulty(Fault.PART, index=key[1] if is_placed else None, detail=f"{column} of the part {key} is {value}")


async def of_origin(world: World, random: Random, *, value: str = "NULL") -> Tampered:
    await set_value(world, random, "logs", "origin", value)
    return faulty(Fault.ANCHOR, index=0, detail=f"the log's origin is {value}", log="system")


async def of_cosignature(world: World, random: Random, *, column: str) -> Tampered:
    await world.execute(
        "INSERT INTO ledger.cosignatures SELECT log_id, max(size), 'witness.example', %s, %s "
        "FROM ledger.checkpoints WHERE log_id = %s GROUP BY log_id",
        random.randbytes(4), random.randbytes(72), world.logs["system"].log_id,
    )  # fmt: skip
    await world.execute(f"UPDATE ledger.cosignatures SET {column} = NULL")  # noqa: S608
    log = random.choice(("one", "system"))
    return faulty(Fault.CHECKPOINT, detail=f"{column} of a cosignature is NULL", log=log)


async def second_row(world: World, random: Random, *, table: str, column: str, columns: str, fault: Fault) -> Tampered:
    """A row more, which no reader asks for: what says where it stands is NULL."""
    keys = ", ".join(KEYS[table])
    source = random.choice(await world.rows(f"SELECT ctid::text FROM saved.{table} WHERE log_id = %s", _id(world)))  # noqa: S608
    statement = f"INSERT INTO ledger.{table} ({columns}) SELECT {columns} FROM saved.{table} WHERE ctid = %s::tid"  # noqa: S608
    await world.execute(statement, *source)
    return faulty(fault, detail=f"a second row of {table}, of {keys} {column} is NULL")


async def head_time(world: World, random: Random) -> Tampered:
    value = random.choice(("'infinity'", "'-infinity'", "'20000-01-01'", "recorded_at - interval '5000 years'"))
    return await of_row(world, random, table="heads", column="recorded_at", value=value, fault=Fault.HEAD)


def _entry(column: str, fault: Fault) -> Tampering:
    return partial(of_entry, column=column, fault=fault)


def _row(table: str, column: str, fault: Fault, value: str = "NULL") -> Tampering:
    return partial(of_row, table=table, column=column, fault=fault, value=value)


NULLS: Final[Mapping[tuple[str, str], Tampering]] = {
    ("entries", "log_id"): _entry("log_id", Fault.INDEX),
    ("entries", "index"): _entry("index", Fault.INDEX),
    ("entries", "entry"): _entry("entry", Fault.ENTRY),
    **{("entries", name): _entry(name, Fault.DERIVED) for name in ("leaf", "type", "key", "is_control", "group_id")},
    **{
        ("heads", name): _row("heads", name, Fault.HEAD)
        for name in ("log_id", "size", "last", "frontier", "control_index", "recorded_at")
    },
    **{("tiles", name): _row("tiles", name, Fault.TILE) for name in ("log_id", "level", "tile", "hashes")},
    **{("checkpoints", name): _row("checkpoints", name, Fault.CHECKPOINT) for name in ("log_id", "size", "note")},
    ("logs", "log_id"): _row("logs", "log_id", Fault.HEAD),
    ("logs", "origin"): of_origin,
    ("logs", "tenant"): partial(tenant, changed=lambda _: None),
    ("parts", "index"): partial(of_part, column="index", is_placed=False),
    ("parts", "name"): partial(of_part, column="name"),
    ("parts", "sealed"): partial(of_part, column="sealed"),
    ("parts", "subject"): partial(of_part, column="subject", where="key_id IS NOT NULL"),
    ("parts", "key_id"): partial(of_part, column="key_id", where="key_id IS NOT NULL"),
    **{("cosignatures", name): partial(of_cosignature, column=name) for name in ("name", "key_id", "signature")},
}
"""NULL, by table and column."""

NULL_NOT_COVERED: Final[Mapping[tuple[str, str], str]] = {
    ("tiles", "root"): "tiles that were complete before roots were kept have none: they are hashed when they are read",
    ("parts", "log_id"): "no tenant may see the row then: the part is gone, as if it were deleted",
    ("logs", "reader"): "who may read the log: its parts cannot be looked at then, and the report says so",
    **dict.fromkeys(
        [("cosignatures", "log_id"), ("cosignatures", "size")],
        "the cosignature is gone, as if it were deleted: it is of others' making, and they have it",
    ),
    **dict.fromkeys(
        [("stamps", name) for name in ("log_id", "size", "gen_time", "token")],
        "of others' making: a time stamp counts for something when a root is named (--tsa-root), and is verified then",
    ),
    **dict.fromkeys(
        [("erased_subjects", "log_id"), ("erased_subjects", "subject")],
        "whose parts are not shown: of nobody then, as if the row were deleted",
    ),
}
"""What NULL in a table that verification reads does not say against the log, and why."""

NOTHING: Final[Mapping[str, Tampering]] = {
    "entries.entry empty": partial(of_entry, column="entry", value="''", fault=Fault.ENTRY),
    **{
        f"entries.{name} empty": partial(of_entry, column=name, value="''", fault=Fault.DERIVED)
        for name in ("leaf", "type", "key")
    },
    "heads.last empty": _row("heads", "last", Fault.HEAD, "''"),
    "heads.frontier empty": _row("heads", "frontier", Fault.HEAD, "''"),
    "heads.recorded_at no date": head_time,
    "tiles.hashes empty": _row("tiles", "hashes", Fault.TILE, "''"),
    "tiles.root empty": _row("tiles", "root", Fault.DERIVED, "''"),
    "checkpoints.note empty": _row("checkpoints", "note", Fault.CHECKPOINT, "''"),
    "logs.origin empty": partial(of_origin, value="''"),
    "parts.name empty": partial(of_part, column="name", value="''"),
    "parts.sealed empty": partial(of_part, column="sealed", value="''"),
    **{
        f"{table}.{column} NULL in a second row": partial(
            second_row, table=table, column=column, columns=columns, fault=fault
        )
        for table, column, columns, fault in (
            ("entries", "index", "log_id, entry, leaf, type, key, is_control", Fault.INDEX),
            ("entries", "log_id", "index, entry, leaf, type, key, is_control", Fault.INDEX),
            ("tiles", "tile", "log_id, level, hashes", Fault.TILE),
            ("tiles", "level", "log_id, tile, hashes", Fault.TILE),
            ("tiles", "log_id", "level, tile, hashes", Fault.TILE),
            ("checkpoints", "size", "log_id, note", Fault.CHECKPOINT),
            ("checkpoints", "log_id", "size, note", Fault.CHECKPOINT),
            ("parts", "index", "log_id, name, sealed", Fault.PART),
        )
    },
}
"""No bytes, no text, no date, no place; by name."""
