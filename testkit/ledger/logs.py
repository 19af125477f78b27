# SPDX-License-Identifier: Apache-2.0
"""Logs to test with: made by the real rules, in memory, in a directory or in a database."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from lakeproof.provision import Provisioned
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.files.directory import CHECKPOINT_FILE, bundle_addresses, format_parts, parts_path
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.entry import FIRST_PREVIOUS, Branch, format_entry, parse_entry
from ledger.format.event import Event, Part, PreparedEvent, prepare, random_group_id
from ledger.format.guards import GuardRegistry
from ledger.format.merkle import Frontier, leaf_hash
from ledger.format.note import Ed25519Signer, Signer, sign_note
from ledger.format.sequence import NO_CONTROL, Group, LogHead, SequencedEntry, sequence
from ledger.format.tiles import (
    TILE_WIDTH,
    bundle_path,
    complete_tiles,
    edge_addresses,
    format_bundle,
    frontier_of,
    tile_path,
)
from ledger.format.verification import EntryRules
from ledger.store.session import Connection

ORIGIN = "logs.example/00112233445566778899aabbccddeeff"
OTHER_ORIGIN = "logs.example/ffeeddccbbaa99887766554433221100"
SIGNER = Ed25519Signer.from_seed(name=ORIGIN, seed=bytes(range(32)))
KEY = SIGNER.verifier_key
START = datetime(2026, 3, 1, 12, tzinfo=UTC)

TYPES = ("commit.decided", "commit.settled", "policy.created", "lineage.received")
WORDS = ("plain", 'quo"te\\back', "ünï-𝄞-漢字", "tab\tnew\nline", "\x7f\u2028", "")


def noise(*seed: object, size: int = 32) -> bytes:
    """Return bytes that look random and are the same in every run."""
    return hashlib.shake_128(repr(seed).encode()).digest(size)


def group_entries(positions: Sequence[int], *, of: int, branch: Branch = Branch.THEN) -> list[bytes]:
    """Return the first entries of a log, chained, all of one group: at these positions, whether they may be or not."""
    entries: list[bytes] = []
    for index, position in enumerate(positions):
        entry = format_entry(
            event(1).event,
            log=ORIGIN,
            index=index,
            previous=leaf_hash(entries[-1]) if entries else FIRST_PREVIOUS,
            recorded_at="2026-03-01T12:00:00.000000Z",
            group_id=UUID(int=1),
            branch=branch,
            of=of,
            position=position,
        )
        entries.append(entry)
    return entries


def new_rules(origin: str = ORIGIN) -> EntryRules:
    """Return the rules of a log of that origin, before its first entry."""
    return EntryRules(origin=origin, where=lambda _: "here")


def event(number: int, *, salt: str = "") -> PreparedEvent:
    """Return an event, different for each number: every seventh with parts, some with awkward text."""
    parts: tuple[Part, ...] = ()
    if number % 7 == 0:
        parts = tuple(
            Part(name=name, payload=noise(name, number, salt, size=number % 50), salt=noise("salt", name, number, salt))
            for name in ("inputs", "principal")[: 1 + number % 2]
        )
    return prepare(
        Event(
            type=TYPES[number % len(TYPES)],
            version=1,
            key=f"table:sales/orders{number % 17}",
            actor="system" if number % 5 == 0 else noise(number % 3).hex()[:32],
            occurred_at=START + timedelta(microseconds=number),
            data={"number": number, "text": WORDS[number % len(WORDS)], "nested": {"list": [None, True, salt]}},
            parts=parts,
        )
    )


def groups(count: int, *, first: int = 0, salt: str = "") -> Iterator[Group]:
    """Yield groups of 1, 2 and 3 events, `count` events in all."""
    end = first + count
    number = first
    while number < end:
        of = min(1 + number % 3, end - number)
        yield Group(
            id=random_group_id(now_ms=1_700_000_000_000 + number, random=noise("group", number, salt, size=10)),
            then=tuple(event(n, salt=salt) for n in range(number, number + of)),
        )
        number += of


def sequenced(
    groups: Sequence[Group], *, log: str = ORIGIN, head: LogHead | None = None
) -> tuple[list[SequencedEntry], LogHead]:
    """Return the rows that appending `groups` adds behind `head`, in batches of 100 groups, and the new head."""
    rows: list[SequencedEntry] = []
    head = head or LogHead.empty()
    for at in range(0, len(groups), 100):
        clock = START + timedelta(milliseconds=at)
        steps = sequence(head, groups[at : at + 100], log=log, stored={}, clock=clock)
        try:
            next(steps)
        except StopIteration as done:
            rows += done.value.rows
            head = done.value.head
    return rows, head


def rows_of(count: int, *, log: str = ORIGIN, salt: str = "") -> list[SequencedEntry]:
    """Return the rows of a log of `count` entries."""
    return sequenced(list(groups(count, salt=salt)), log=log)[0]


def plain_rows(count: int, *, log: str = ORIGIN) -> list[SequencedEntry]:
    """Return the rows of a log in which the same event stands `count` times: fast, for large ones."""
    same = event(1)
    return sequenced([Group(id=UUID(int=number), then=(same,)) for number in range(count)], log=log)[0]


def head_of(rows: Sequence[SequencedEntry]) -> LogHead:
    """Return the head of a log that ends with these rows, its first ones; they may end within a group."""
    return LogHead(
        size=len(rows),
        last=rows[-1].leaf if rows else LogHead.empty().last,
        frontier=Frontier.empty().extended(row.leaf for row in rows),
        control_index=max((row.index for row in rows if row.is_control), default=NO_CONTROL),
        recorded_at=parse_entry(rows[-1].entry).recorded_at if rows else None,
    )


def signed(entries: Sequence[bytes], signer: Signer = SIGNER, *, origin: str | None = None) -> bytes:
    """Return the signed checkpoint over `entries`."""
    _, edge = complete_tiles(size=0, pending=(), leaves=[leaf_hash(entry) for entry in entries])
    checkpoint = Checkpoint(origin=origin or signer.name, size=len(entries), root=frontier_of(edge).root())
    return sign_note(format_checkpoint(checkpoint), [signer])


def write_directory(
    path: Path,
    rows: Sequence[SequencedEntry],
    signer: Signer = SIGNER,
    *,
    note: bytes | None = None,
    parts: bool = False,
) -> Path:
    """Write the directory of a log, not by the exporter but from the entries alone."""
    entries = [row.entry for row in rows]
    tiles, edge = complete_tiles(size=0, pending=(), leaves=[leaf_hash(entry) for entry in entries])
    files = {tile_path(tile.level, tile.index): tile.pack() for tile in tiles}
    files |= {tile_path(level, i, width): b"".join(edge[level]) for level, i, width in edge_addresses(len(entries))}
    for index, width in bundle_addresses(len(entries)):
        files[bundle_path(index, width)] = format_bundle(entries[index * TILE_WIDTH :][:width])
    if parts:
        files |= {parts_path(row.index): format_parts(row.index, row.parts) for row in rows if row.parts}
    files[CHECKPOINT_FILE] = note or signed(entries, signer)
    for name, data in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return path


async def append(installation: Provisioned, log_id: int, groups: Sequence[Group]) -> None:
    """Append groups through the real Appender."""
    dsn = installation.as_role(installation.roles.appender)
    async with Appender(dsn, GuardRegistry(CORE_GUARDS)) as appender:
        for at in range(0, len(groups), 500):
            await asyncio.gather(*(appender.append(log_id, group) for group in groups[at : at + 500]))


async def put(database: str, log_id: int, rows: Sequence[SequencedEntry]) -> None:
    """Make the log one of exactly these rows, fast and as the database's owner; checkpoints stay."""
    async with await AsyncConnection.connect(database, autocommit=True) as owner:
        await put_over(owner, log_id, rows)


async def put_over(owner: Connection, log_id: int, rows: Sequence[SequencedEntry]) -> None:
    """Do the same over a connection of the database's owner."""
    tiles, _ = complete_tiles(size=0, pending=(), leaves=[row.leaf for row in rows])
    head = head_of(rows)
    async with owner.transaction(), owner.cursor() as cursor:
        for table in ("parts", "entries", "tiles"):
            await cursor.execute(SQL("DELETE FROM ledger.{} WHERE log_id = %s").format(Identifier(table)), (log_id,))
        copy = "COPY ledger.entries (log_id, index, entry, leaf, type, key, is_control, group_id) FROM STDIN"
        async with cursor.copy(copy) as out:
            for row in rows:
                await out.write_row(
                    (log_id, row.index, row.entry, row.leaf, row.type, row.key, row.is_control, row.group_id)
                )
        async with cursor.copy("COPY ledger.parts (log_id, index, name, sealed) FROM STDIN") as out:
            for row in rows:
                for part in row.parts:
                    await out.write_row((log_id, row.index, part.name, part.salt + part.payload))
        async with cursor.copy("COPY ledger.tiles (log_id, level, tile, hashes) FROM STDIN") as out:
            for tile in tiles:
                await out.write_row((log_id, tile.level, tile.index, tile.pack()))
        await cursor.execute(
            "UPDATE ledger.heads SET size = %s, last = %s, frontier = %s, control_index = %s, recorded_at = %s "
            "WHERE log_id = %s",
            (head.size, head.last, head.frontier.pack(), head.control_index, head.recorded_at, log_id),
        )


def change(database: str, statement: str, *parameters: object) -> None:
    """Do what only the database's owner can: change what is written."""
    with psycopg.connect(database, autocommit=True) as connection:
        assert connection.execute(statement, parameters).rowcount > 0


@contextmanager
def away(database: str, table: str) -> Iterator[None]:
    """Let a table (`schema.name`) not be there for a while, as while a backup is restored."""
    schema, name = map(Identifier, table.split("."))
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(SQL("ALTER TABLE {}.{} RENAME TO away").format(schema, name))
        try:
            yield
        finally:
            owner.execute(SQL("ALTER TABLE {}.away RENAME TO {}").format(schema, name))


TENANT = UUID("00112233-4455-6677-8899-aabbccddeeff")
