# SPDX-License-Identifier: Apache-2.0
"""
A tenant that has been busy for years, and a fast way to make one: its log, and the read models and graph of that log.

The log is a real log: chain, tiles and head are right, and it verifies. It is written by COPY as the owner, because an
Appender writes a fifth as fast. Most entries are triggers, one for each new data file, as in a lake whose storage is
watched; some are refused requests. Evenly between them are blocks of commits, runs of lineage, scans, findings and
alerts, which make the edges of the graph. One table in five blocks is the same one, from which thousands of others are
made; ten tables have a third of all commits.

The read models are filled by the projections themselves, which are given the entries of the blocks as they were
written. Triggers and refusals change nothing in the read models but three counts, so these entries are not handed over
one by one: their counts are added at the end. `lakeproof projections rebuild` compares the result with what projecting
the whole log gives, and `bench/looking.py` does so with a small tenant before it measures a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import sql

from bench import history
from lakeproof.projecting import PROJECTIONS
from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.entry import Branch, format_entry
from ledger.format.event import PreparedEvent
from ledger.format.events import (
    AccessRefused,
    AlertDelivered,
    AlertRaised,
    CommitDecided,
    CommitDecision,
    DatasetName,
    DetectionKind,
    LineageColumn,
    LineageDataset,
    LineageKind,
    LineageReceived,
    Reason,
    TriggerReceived,
    TriggerSource,
)
from ledger.format.merkle import Frontier, leaf_hash
from ledger.format.sequence import LogHead
from ledger.format.tiles import Pending, complete_tiles
from ledger.store.read import Log, read_head
from ledger.store.session import Connection
from projections.entries import LogEntry, encode_json, read_log_entry
from projections.processing import cursors
from projections.processing.projection import Projection, Transaction
from projections.relational.findings import FINDINGS
from projections.relational.findings import QUERIES as FOUND
from projections.relational.metrics import METRICS
from projections.relational.metrics import QUERIES as COUNTS

ALIAS: Final = "lake"
NAMESPACE: Final = "sales"
BLOCK_ENTRIES: Final = 18
"""Entries of a block: five commits with their outcomes, a refused one, a run, a scan with two findings, an alert."""
EDGES_A_BLOCK: Final = 57
"""Edges that a block adds to the graph, on average; the result counts them."""
NUMBERS_A_BLOCK: Final = 16
COMMITS_A_BLOCK: Final = 5
HOT_TABLES: Final = 10
SINK: Final = "webhook"
REFUSED_EVERY: Final = 16
"""One entry of so many between the blocks is a refused request."""
CHUNK_ENTRIES: Final = 50_000
_TYPES: Final = ("int4", "int8", "bytea", "bytea", "text", "text", "bool", "uuid")
_FILLER: Final = 1 << 60
_GROUP: Final = (1 << 127) | (0x4 << 76) | (0x2 << 62)

Progress = Callable[[int, int], None]
Row = tuple[int, int, bytes, bytes, str, str, bool, UUID | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much a tenant has: about so many entries, tables, and edges in its graph."""

    entries: int
    tables: int
    edges: int

    @property
    def blocks(self) -> int:
        """How many blocks make so many edges."""
        return max(1, self.edges // EDGES_A_BLOCK)

    def check(self) -> None:
        """
        Check that each table has a commit, and that all blocks fit into the log.

        Raises:
            SystemExit: if not; says what is possible.
        """
        if self.blocks < self.tables or self.blocks * BLOCK_ENTRIES > self.entries:
            raise SystemExit(
                f"expected at least {self.tables * EDGES_A_BLOCK:,} edges for {self.tables:,} tables, and at least "
                f"{self.blocks * BLOCK_ENTRIES:,} entries for {self.edges:,} edges"
            )


@dataclass(slots=True, kw_only=True)
class _Writer:
    """Where the log ends while it is written, and what has been counted of the entries between the blocks."""

    log: Log
    rules: Mapping[str, Any]
    head: LogHead
    pending: Pending
    began: datetime
    step: timedelta
    rows: list[Row]
    parts: list[tuple[int, int, str, str | None, bytes]]
    blocks: list[LogEntry]
    triggers: int = 0
    refusals: int = 0
    last_trigger: tuple[int, str] = (0, "")
    last_refusal: LogEntry | None = None
    size: int = 0
    previous: bytes = b""

    def add(self, number: int, events: Sequence[PreparedEvent], *, is_block: bool) -> None:
        """Add the group of that number."""
        group_id = UUID(int=_GROUP | number)
        for position, event in enumerate(events):
            recorded_at = canonical.format_time(self.began + self.size * self.step)
            entry = format_entry(
                event.event,
                log=self.log.origin,
                index=self.size,
                previous=self.previous,
                recorded_at=recorded_at,
                group_id=group_id,
                branch=Branch.THEN,
                of=len(events),
                position=position,
            )
            self.previous = leaf = leaf_hash(entry)
            first = group_id if position == 0 else None
            self.rows.append((self.log.log_id, self.size, entry, leaf, event.type, event.key, event.is_control, first))
            for part in event.parts:
                self.parts.append((self.log.log_id, self.size, part.name, part.subject, part.salt + part.payload))
            if is_block:
                self.blocks.append(read_log_entry(entry, {part.name: part for part in event.parts}))
            elif event.type == TriggerReceived.TYPE:
                self.triggers, self.last_trigger = self.triggers + 1, (self.size, recorded_at)
            else:
                self.refusals, self.last_refusal = self.refusals + 1, read_log_entry(entry, {})
            self.size += 1


async def fill(
    owner_dsn: str, log: Log, uuids: Sequence[str], sizes: Sizes, *, projector: str, progress: Progress
) -> None:
    """
    Add so many entries to the log, and what they mean to its read models, whose cursors are at its end.

    The log has a decision by the rules in force already, which tells what those are. `uuids` are those of the tables
    `sales.t0`, `sales.t1`, …, `projector` is the role that writes read models. Nothing else may work with the database
    meanwhile.
    """
    sizes.check()
    async with (
        await psycopg.AsyncConnection.connect(owner_dsn) as owner,
        await psycopg.AsyncConnection.connect(owner_dsn, autocommit=True) as projecting,
    ):
        await projecting.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(projector)))
        writer = await _at_the_end(owner, log, sizes)
        into = [
            (
                projection,
                Transaction(connection=projecting, log=log, generation=await _generation(owner, projection, log)),
            )
            for projection in PROJECTIONS
        ]
        for done, _ in enumerate(_blocks(writer, uuids, sizes), start=1):
            if len(writer.rows) < CHUNK_ENTRIES and done < sizes.blocks:
                continue
            await _copy(owner, writer)
            entries = [replace(each, parts={}) for each in writer.blocks]
            for projection, transaction in into:
                async with projecting.transaction():
                    await projection.apply(writer.blocks if projection.part is not None else entries, transaction)
            writer.blocks.clear()
            progress(done, sizes.blocks)
        async with owner.transaction():
            await _end(owner, writer, into)
    async with await psycopg.AsyncConnection.connect(owner_dsn, autocommit=True) as owner:
        await owner.execute("VACUUM (ANALYZE)")


async def _at_the_end(connection: Connection, log: Log, sizes: Sizes) -> _Writer:
    head = await read_head(connection, log.log_id)
    rows = await connection.execute(
        "SELECT leaf FROM ledger.entries WHERE log_id = %s AND index < %s ORDER BY index", (log.log_id, head.size)
    )
    leaves = [bytes(leaf) for (leaf,) in await rows.fetchall()]
    decided = await connection.execute(
        "SELECT entry FROM ledger.entries WHERE log_id = %s AND type = 'commit.decided' ORDER BY index DESC LIMIT 1",
        (log.log_id,),
    )
    ((entry,),) = await decided.fetchall()
    by = read_log_entry(bytes(entry), {}).event
    assert isinstance(by, CommitDecided)
    assert head.recorded_at is not None
    # The entries are as far apart as there is time since the log was made: those that come are younger still.
    step = max((datetime.now(UTC) - head.recorded_at) / sizes.entries, timedelta(microseconds=1))
    return _Writer(
        log=log,
        rules={"as_of": by.as_of, "policy_set": by.policy_set},
        head=head,
        pending=complete_tiles(size=0, pending=(), leaves=leaves)[1],
        began=head.recorded_at.astimezone(UTC) - head.size * step,
        step=step,
        rows=[],
        parts=[],
        blocks=[],
        size=head.size,
        previous=head.last,
    )


def _blocks(writer: _Writer, uuids: Sequence[str], sizes: Sizes) -> Iterator[None]:
    """Write the blocks, each with what comes before the next one."""
    between = sizes.entries // sizes.blocks - BLOCK_ENTRIES
    for block in range(sizes.blocks):
        first = block * NUMBERS_A_BLOCK
        for number, group in enumerate(_groups(block, first, uuids, writer.rules), start=first):
            writer.add(number, group, is_block=True)
        for _ in range(between):
            filler = _refused() if writer.size % REFUSED_EVERY == 0 else _trigger(writer.size * 7_919 % len(uuids))
            writer.add(_FILLER + writer.size, [filler], is_block=False)
        yield


def table_of(block: int, tables: int) -> int:
    """Return the number of the table that a block is about."""
    match block % 5:
        case 0:
            return 0
        case 1:
            return block // 5 % min(HOT_TABLES, tables)
        case _:
            return block * 7_919 % tables


def _groups(
    block: int, first: int, uuids: Sequence[str], rules: Mapping[str, Any]
) -> Iterator[Sequence[PreparedEvent]]:
    """Yield the groups of a block: their events; 18 in all."""
    table, person = table_of(block, len(uuids)), block % history.PEOPLE
    uuid, number = uuids[table], first
    for number in range(first, first + COMMITS_A_BLOCK):
        decided = history.decision(number, table, person, CommitDecision.APPROVED, None, uuid=uuid, **rules)
        yield decided, history.outcome(number, table, group=UUID(int=_GROUP | number), uuid=uuid)
    other = block % len(uuids)
    reason = Reason(id="p1", version=1)
    yield (history.decision(number, other, person, CommitDecision.REJECTED, reason, uuid=uuids[other], **rules),)
    yield (history.event(_run(block, number, table, len(uuids)), "run:x", person),)
    scanned = history.scan(number, table, uuid=uuid)
    yield scanned
    scan_group = UUID(int=_GROUP | (first + COMMITS_A_BLOCK + 2))
    yield (history.event(_alert(scan_group, number, uuid), history.key_of(table), 0),)
    alert_group = UUID(int=_GROUP | (first + COMMITS_A_BLOCK + 3))
    delivered = AlertDelivered(alert=str(alert_group), attempt=1, sink=SINK)
    yield (history.event(delivered, history.key_of(table), 0),)


def _alert(scan_group: UUID, snapshot: int, uuid: str) -> AlertRaised:
    return AlertRaised(
        column="c3",
        confidence_percent=92,
        field_id=3,
        finding=str(scan_group),
        kind=DetectionKind.EMAIL,
        snapshot=str(snapshot),
        table_uuid=uuid,
    )


def _run(block: int, number: int, table: int, tables: int) -> LineageReceived:
    """Return a run that made a table, column by column, from tables of lower numbers, so that no cycle closes."""
    if table == 0:
        table, sources = 1 + block * 31 % (tables - 1), [0]
    else:
        sources = sorted({table // 2, table // 3} - {table})
    names = [f"{NAMESPACE}.t{of}" for of in (*sources, table)]
    output = len(sources)
    return LineageReceived(
        columns=tuple(
            LineageColumn(output=output, field=f"c{column}", input=position, input_field=f"c{column}")
            for position in range(output)
            for column in (3, 4)
        ),
        columns_omitted=0,
        datasets=tuple(LineageDataset(namespace=ALIAS, name=name, symlinks=(), version=None) for name in names),
        datasets_omitted=0,
        engine="spark 4.1.4",
        event_time="2026-11-20T12:00:00Z",
        event_type="COMPLETE",
        inputs=tuple(range(output)),
        job=DatasetName(namespace="jobs", name=f"make-{table}"),
        kind=LineageKind.RUN,
        names_omitted=0,
        outputs=(output,),
        payload_sha256=f"{number:064x}",
        producer="https://example.com/producer",
        run_id=str(UUID(int=_GROUP | number)),
    )


@cache
def _trigger(table: int) -> PreparedEvent:
    """Return the news of a data file of a table."""
    received = TriggerReceived(
        alias=ALIAS,
        file_count=1,
        files=(f"s3://lake/t{table}/data/00000-0-a1b2c3.parquet",),
        identifier=history.identifier(table),
        metadata_location=None,
        source=TriggerSource.S3,
    )
    return history.event(received, history.key_of(table), 0)


@cache
def _refused() -> PreparedEvent:
    """Return a refused request."""
    return history.event(AccessRefused(operation="table.load", identifier=None, reason=None, count=1), "access:x", 0)


async def _generation(connection: Connection, projection: Projection, log: Log) -> int:
    """Return the live generation, whose cursor must be at the end of the log."""
    live = await cursors.read_live(connection, projection.name, log.log_id)
    size = (await read_head(connection, log.log_id)).size
    assert live is not None
    assert live.next_index == size, f"{projection.name}: expected {size} entries, found {live.next_index}"
    return live.generation


async def _copy(connection: Connection, writer: _Writer) -> None:
    """Copy what was written, with its tiles, and move the head."""
    leaves, before = [row[3] for row in writer.rows], writer.size - len(writer.rows)
    async with connection.cursor() as cursor:
        columns = "log_id, index, entry, leaf, type, key, is_control, group_id"
        async with cursor.copy(f"COPY ledger.entries ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(_TYPES)
            for row in writer.rows:
                await copy.write_row(row)
        async with cursor.copy("COPY ledger.parts (log_id, index, name, subject, sealed) FROM STDIN") as copy:
            for part in writer.parts:
                await copy.write_row(part)
        tiles, writer.pending = complete_tiles(size=before, pending=writer.pending, leaves=leaves)
        await cursor.executemany(
            "INSERT INTO ledger.tiles (log_id, level, tile, hashes, root) VALUES (%s, %s, %s, %s, %s)",
            [(writer.log.log_id, tile.level, tile.index, tile.pack(), tile.root()) for tile in tiles],
        )
    frontier: Frontier = writer.head.frontier.extended(leaves)
    at = writer.began + (writer.size - 1) * writer.step
    writer.head = replace(writer.head, size=writer.size, last=writer.previous, frontier=frontier, recorded_at=at)
    await connection.execute(
        "UPDATE ledger.heads SET size = %s, last = %s, frontier = %s, recorded_at = %s WHERE log_id = %s",
        (writer.size, writer.previous, frontier.pack(), at, writer.log.log_id),
    )
    await connection.commit()
    writer.rows.clear()
    writer.parts.clear()


async def _end(connection: Connection, writer: _Writer, into: Sequence[tuple[Projection, Transaction]]) -> None:
    """Add the counts of the entries between the blocks, and move all cursors to the end of the log."""
    log_id = writer.log.log_id
    for projection, transaction in into:
        where = {"log_id": log_id, "generation": transaction.generation}
        if projection.name == FINDINGS and writer.triggers:
            await connection.execute(FOUND["add_triggers"], {**where, "rows": encode_json([_triggered(writer)])})
        if projection.name == METRICS and writer.triggers:
            await connection.execute(COUNTS["add_events"], {**where, "rows": encode_json([_counted(writer)])})
        if projection.name == METRICS and writer.last_refusal is not None:
            refused = AccessRefused(operation="table.load", identifier=None, reason=None, count=writer.refusals)
            one = replace(writer.last_refusal, event=refused)  # which counts for all
            await projection.apply([one], replace(transaction, connection=connection))
        await cursors.move(connection, projection.name, log_id, transaction.generation, next_index=writer.size)
    await connection.execute(
        "UPDATE streams.cursors SET next_index = %s, handled = %s WHERE log_id = %s", (writer.size, writer.size, log_id)
    )


def _triggered(writer: _Writer) -> Json:
    """Return the row of triggers that the findings have."""
    index, recorded_at = writer.last_trigger
    source: dict[str, Json] = {"source": TriggerSource.S3.value, "last_index": index, "last_at": recorded_at}
    return {**source, "triggers": writer.triggers, "files": writer.triggers}


def _counted(writer: _Writer) -> Json:
    """Return the row of triggers that the metrics have."""
    return {
        "event": TriggerReceived.TYPE,
        "kind": TriggerSource.S3.value,
        "degree": "",
        "count": writer.triggers,
    }
