# SPDX-License-Identifier: Apache-2.0
"""
The statements of one batch with their parameters, and the parsing of their answers, in PostgreSQL's binary form.

A parameter is a column, for `unnest`. Batches for one log have statements of their own: they are by far the most
frequent under load, and a statement costs by its parameters.

Locking the heads returns where each log ends, the time after the lock, and whether the log accepts entries. That is
read anew for every batch. So a connection that has been open for long learns that a log is no longer confirmed, or that
the server no longer waits for its disk. Expecting the heads does the same for those that are known, and fails unless
all of it is so. The lookup of group ids returns which groups the log already holds, as the
rules compare them. Guarantee: such a group is returned whole, or its log is reported as broken.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Final
from uuid import UUID

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.entry import parse_entry
from ledger.format.merkle import Frontier
from ledger.format.sealing import Opener, StoredPart, key_id_of, stored_bytes
from ledger.format.sequence import Group, LogHead, SequencedEntry, StoredGroup
from ledger.format.tiles import Tile
from ledger.store.read import QUERIES
from ledger.store.session import Connection
from ledger.store.wire import (
    BinaryValue,
    Query,
    Statement,
    bool_array,
    bytea_array,
    hash_array,
    int2_array,
    int4,
    int4_array,
    int8,
    int8_array,
    parse_int,
    parse_timestamptz,
    text_array,
    timestamptz,
    timestamptz_array,
    uuid_array,
)

BEGIN: Final[Statement] = (Query("BEGIN"), {})
COMMIT: Final[Statement] = (Query("COMMIT"), {})
ROLLBACK: Final[Statement] = (Query("ROLLBACK"), {})
SAVEPOINT: Final[Statement] = (Query("SAVEPOINT guard"), {})
ROLLBACK_TO: Final[Statement] = (Query("ROLLBACK TO SAVEPOINT guard"), {})
RELEASE: Final[Statement] = (Query("RELEASE SAVEPOINT guard"), {})
_LOCK_HEADS = Query(QUERIES["lock_heads"])
_LOCK_HEAD = Query(QUERIES["lock_head"])
_HOLD_HEADS = Query(QUERIES["hold_heads"])
_EXPECT_HEAD = Query(QUERIES["expect_head"])
_EXPECT_HEADS = Query(QUERIES["expect_heads"])
_FIND_GROUPS = Query(QUERIES["find_groups"])
_FIND_GROUPS_OF_LOGS = Query(QUERIES["find_groups_of_logs"])
_INSERT_ENTRIES = Query(QUERIES["insert_entries"])
_INSERT_ENTRIES_OF_LOGS = Query(QUERIES["insert_entries_of_logs"])
_INSERT_PARTS = Query(QUERIES["insert_parts"])
_INSERT_TILES = Query(QUERIES["insert_tiles"])
_UPDATE_HEAD = Query(QUERIES["update_head"])
_UPDATE_HEADS = Query(QUERIES["update_heads"])

_TRUE: Final = b"\x01"
"""The boolean in PostgreSQL's binary form; NULL, where there is no confirmation, is not true either."""


def lock_heads(log_ids: Collection[int]) -> Statement:
    """
    Return the locking of those heads that are free; rows as for `parse_locked`.
    """
    return _LOCK_HEADS, {"log_ids": int4_array(list(log_ids))}


def lock_head(log_ids: Collection[int]) -> Statement:
    """
    Return the locking of the head of a single log, which waits while another process holds it.
    """
    (log_id,) = log_ids
    return _LOCK_HEAD, {"log_id": int4(log_id)}


def expect_heads(heads: Mapping[int, LogHead], *, clock: datetime) -> Statement:
    """
    Return the locking of these heads, which fails unless all of them are free and as given, their logs confirmed, and
    the server durable; and unless `clock`, the time that entries are given, lies within the last second of its clock.

    A row is (1, the database's time).
    """
    if len(heads) == 1:
        ((log_id, head),) = heads.items()
        return _EXPECT_HEAD, {**_columns(log_id, head), "clock": timestamptz(clock)}
    return _EXPECT_HEADS, {**_arrays(heads), "clock": timestamptz(clock)}


def hold_heads(log_ids: Collection[int]) -> Statement:
    """
    Return the statement that fails unless this transaction holds these heads, or locks them without waiting.
    """
    return _HOLD_HEADS, {"log_ids": int4_array(list(log_ids))}


def find_groups(groups: Mapping[int, Sequence[Group]]) -> Statement:
    """
    Return the lookup of which groups the logs hold already; rows are (log_id, index, entry) of their first entries.
    """
    ids = uuid_array([group.id for of_log in groups.values() for group in of_log])
    if len(groups) == 1:
        (log_id,) = groups
        return _FIND_GROUPS, {"log_id": int4(log_id), "group_ids": ids}
    lasts = list(accumulate(len(of_log) for of_log in groups.values()))
    return _FIND_GROUPS_OF_LOGS, {
        "log_ids": int4_array(list(groups)),
        "firsts": int4_array([1, *(last + 1 for last in lasts[:-1])]),
        "lasts": int4_array(lasts),
        "group_ids": ids,
    }


def insert_entries(rows: Mapping[int, Sequence[SequencedEntry]]) -> Statement:
    """
    Return the INSERT of all entries, by log_id; a log's are in order and without a gap.

    Raises:
        FormatError: if a key or type holds a lone surrogate.
    """
    every = [row for of_log in rows.values() for row in of_log]
    columns = {
        "entries": bytea_array([row.entry for row in every]),
        "leaves": hash_array([row.leaf for row in every]),
        "types": text_array([row.type for row in every]),
        "keys": text_array([row.key for row in every]),
        "controls": bool_array([row.is_control for row in every]),
        "group_ids": uuid_array([row.group_id for row in every]),
    }
    if len(rows) == 1:
        (log_id,) = rows
        return _INSERT_ENTRIES, {"log_id": int4(log_id), "first": int8(every[0].index), **columns}
    return _INSERT_ENTRIES_OF_LOGS, {
        "log_ids": int4_array([log_id for log_id, of_log in rows.items() for _ in of_log]),
        "indices": int8_array([row.index for row in every]),
        **columns,
    }


def insert_parts(rows: Mapping[int, Sequence[SequencedEntry]]) -> Statement | None:
    """
    Return the INSERT of all payload parts of these rows, or None if there are none.
    """
    parts = [(log_id, row.index, part) for log_id, of_log in rows.items() for row in of_log for part in row.parts]
    if not parts:
        return None
    return _INSERT_PARTS, {
        "log_ids": int4_array([log_id for log_id, *_ in parts]),
        "indices": int8_array([index for _, index, _ in parts]),
        "names": text_array([part.name for *_, part in parts]),
        "subjects": text_array([part.subject for *_, part in parts]),
        "key_ids": uuid_array([key_id_of(part) for *_, part in parts]),
        "sealed": bytea_array([stored_bytes(part) for *_, part in parts]),
    }


def insert_tiles(tiles: Mapping[int, Sequence[Tile]]) -> Statement | None:
    """
    Return the INSERT of complete tiles, or None if there are none.
    """
    every = [(log_id, tile) for log_id, of_log in tiles.items() for tile in of_log]
    if not every:
        return None
    return _INSERT_TILES, {
        "log_ids": int4_array([log_id for log_id, _ in every]),
        "levels": int2_array([tile.level for _, tile in every]),
        "tiles": int8_array([tile.index for _, tile in every]),
        "hashes": bytea_array([tile.pack() for _, tile in every]),
        "roots": bytea_array([tile.root() for _, tile in every]),
    }


def update_heads(heads: Mapping[int, LogHead]) -> Statement:
    """
    Return the UPDATE that moves the heads of logs that are no longer empty.
    """
    if len(heads) == 1:
        ((log_id, head),) = heads.items()
        return _UPDATE_HEAD, _columns(log_id, head)
    return _UPDATE_HEADS, _arrays(heads)


def _columns(log_id: int, head: LogHead) -> dict[str, bytes]:
    return {
        "log_id": int4(log_id),
        "size": int8(head.size),
        "last": head.last,
        "frontier": head.frontier.pack(),
        "control": int8(head.control_index),
        "recorded": timestamptz(_recorded_at(head)),
    }


def _arrays(heads: Mapping[int, LogHead]) -> dict[str, bytes]:
    return {
        "log_ids": int4_array(list(heads)),
        "sizes": int8_array([head.size for head in heads.values()]),
        "lasts": hash_array([head.last for head in heads.values()]),
        "frontiers": bytea_array([head.frontier.pack() for head in heads.values()]),
        "controls": int8_array([head.control_index for head in heads.values()]),
        "recorded": timestamptz_array([_recorded_at(head) for head in heads.values()]),
    }


def _recorded_at(head: LogHead) -> datetime:
    if head.recorded_at is None:
        message = f"a head of size {head.size} has no time"
        raise ValueError(message)
    return head.recorded_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """A head that is locked; `fsync` is that setting of the server."""

    log_id: int
    head: LogHead
    clock: datetime
    is_confirmed: bool
    fsync: str


def parse_locked(row: Sequence[BinaryValue]) -> Locked:
    """
    Return the content of a row of `lock_heads` or `lock_head`.

    Raises:
        FormatError: if it is not of its form; the log is corrupt.
    """
    log_id, size, last, frontier, control_index, recorded_at, clock, confirmed, fsync = row
    head = LogHead(
        size=parse_int(present(size)),
        last=present(last),
        frontier=Frontier.parse(parse_int(present(size)), present(frontier)),
        control_index=parse_int(present(control_index)),
        recorded_at=None if recorded_at is None else parse_timestamptz(recorded_at),
    )
    return Locked(
        log_id=parse_int(present(log_id)),
        head=head,
        clock=parse_timestamptz(present(clock)),
        is_confirmed=confirmed == _TRUE,
        fsync=present(fsync).decode(errors="replace"),
    )


def present(value: BinaryValue) -> bytes:
    """
    Return a value that is not NULL.

    Raises:
        FormatError: if it is.
    """
    if value is None:
        raise FormatError("ledger", expected="a value", found="NULL")
    return value


async def read_stored_groups(
    connection: Connection, firsts: Sequence[tuple[int, int, bytes]], opener: Opener
) -> dict[tuple[int, UUID], StoredGroup]:
    """
    Return the groups whose first entries were found, by log_id and group id, with the salts of the parts that still
    exist.

    `firsts` are (log_id, index, entry).

    Raises:
        FormatError: if an entry is not an entry.
        BrokenError: if one is missing, or a part is not what was sealed.
    """
    ranges = {(log_id, index): parse_entry(entry) for log_id, index, entry in firsts}
    bounds = {
        "log_ids": [log_id for log_id, _ in ranges],
        "firsts": [index for _, index in ranges],
        "ends": [index + first.of for (_, index), first in ranges.items()],
    }
    entries = {(log_id, index): entry for log_id, index, entry in firsts}
    cursor = await connection.execute(QUERIES["entries_of_groups"], bounds)
    entries |= {(log_id, index): bytes(entry) for log_id, index, entry in await cursor.fetchall()}
    salts: dict[tuple[int, int], dict[str, bytes]] = {}
    cursor = await connection.execute(QUERIES["salts_of_groups"], bounds)
    for log_id, index, name, subject, key_id, sealed in await cursor.fetchall():
        part = opener.open(StoredPart(index, name, subject, key_id, bytes(sealed)))
        if part is not None:
            salts.setdefault((log_id, index), {})[name] = part.salt
    stored: dict[tuple[int, UUID], StoredGroup] = {}
    for (log_id, index), first in ranges.items():
        places = [(log_id, at) for at in range(index, index + first.of)]
        if any(place not in entries for place in places):
            raise BrokenError(
                Fault.GROUP,
                where="ledger.entries",
                expected=f"{first.of} entries of group {first.group_id}",
                found=f"{sum(place in entries for place in places)}",
                index=index,
            )
        stored[log_id, first.group_id] = StoredGroup(
            entries=tuple(entries[place] for place in places),
            salts=tuple(salts.get(place, {}) for place in places),
        )
    return stored
