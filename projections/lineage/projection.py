# SPDX-License-Identifier: Apache-2.0
"""
Lineage as a projection: what was made from what, with data sets resolved to tables, and without cycles.

`changes.py` says what entries mean, `runs.py` what a run says, `edges.py` which edges are drawn; this module stores it.
Everything comes from the `data` of entries and nothing from payload parts, so an erasure changes nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from psycopg import sql

from ledger.format.canonical import Json
from ledger.format.events import LineageReceived
from projections.entries import LogEntry, encode_json
from projections.lineage import rows
from projections.lineage.changes import LineageChanges, Lookups, ResolvedEvent, changes_of, lookups_of
from projections.lineage.datasets import KnownCatalog, KnownTables
from projections.lineage.edges import QUERIES, AcyclicEdges, generation_of
from projections.lineage.rows import JudgedEvent
from projections.lineage.runs import update_run
from projections.processing.digest import GenerationDigest
from projections.processing.projection import Transaction, iterate_rows

LINEAGE: Final = "lineage"
LINEAGE_VERSION: Final = 2

_TABLES: Final = (
    "catalogs",
    "tables",
    "locations",
    "snapshots",
    "events",
    "edges",
    "columns",
    "cycles",
    "jobs",
    "runs",
    "omitted",
    "settings",
)
"""Each is `projections.lineage_<name>`; in the order of the digest."""


class LineageProjection:
    """What was made from what (implements `Projection`)."""

    name: str = LINEAGE
    version: int = LINEAGE_VERSION
    part: str | None = None

    async def prepare(self, transaction: Transaction) -> None:
        """Do nothing: a generation is the rows with its number."""

    async def apply(self, entries: Sequence[LogEntry], transaction: Transaction) -> None:
        """Store what the entries say, and judge the edges of their events one by one."""
        await draw(entries, transaction)

    async def digest(self, transaction: Transaction) -> bytes:
        """Return the digest of all rows by natural keys."""
        digest = GenerationDigest(projection=self.name, version=self.version)
        for table in _TABLES:
            query, where = QUERIES[f"digest_{table}"], generation_of(transaction)
            async for page in iterate_rows(transaction.connection, query, where):
                for row in page:
                    digest.add(*row)
        return digest.digest()

    async def drop(self, transaction: Transaction) -> None:
        """Delete the generation's rows."""
        for table in _TABLES:
            query = sql.SQL(QUERIES["drop_generation"]).format(table=sql.Identifier("projections", f"lineage_{table}"))
            await transaction.connection.execute(query, generation_of(transaction))


async def draw(entries: Sequence[LogEntry], transaction: Transaction) -> list[JudgedEvent]:
    """
    Store what the entries say; return what became of each event, in order.
    """
    known = await _known(transaction, lookups_of(entries))
    has_lineage = any(isinstance(item.event, LineageReceived) for item in entries)
    kept = has_lineage and bool(await _select(transaction, "keeps_cycles"))
    changes = changes_of(entries, known, keeps_cycles=kept)
    await _write_tables(transaction, changes)
    if changes.sets_cycles:
        await _execute(transaction, "upsert_settings", [{"keeps_cycles": changes.keeps_cycles}])
    judged = await _write_events(transaction, changes.events)
    # After the cycles themselves: an entry may report one of the same batch.
    await _execute(transaction, "mark_reported", rows.appended_cycle_rows(changes.reported))
    return judged


async def _known(transaction: Transaction, lookups: Lookups) -> KnownTables:
    """Return what is stored for these lookups."""
    known = KnownTables()
    if not lookups.names:
        return known  # no lineage event: nothing is resolved
    for alias, uri, location in await _select(transaction, "known_catalogs"):
        known.catalogs[alias] = KnownCatalog(uri=uri, location=location)
    digests = [rows.location_digest(location) for location in lookups.locations]
    known.by_location.update(await _select(transaction, "known_locations", digests=digests))
    for snapshot, key in await _select(transaction, "known_snapshots", snapshots=list(lookups.snapshots)):
        known.by_snapshot.setdefault(snapshot, set()).add(key)
    for name, key, alias in await _select(transaction, "known_names", names=list(lookups.names)):
        known.by_name.setdefault(name, {})[key] = alias
    return known


async def _select(transaction: Transaction, query: str, **parameters: object) -> list[Any]:
    found = await transaction.connection.execute(QUERIES[query], {**generation_of(transaction), **parameters})
    return await found.fetchall()


async def _write_tables(transaction: Transaction, changes: LineageChanges) -> None:
    """Store catalogs and tables as the entries leave them."""
    await _execute(transaction, "upsert_catalogs", rows.catalog_rows(changes.catalogs))
    await _execute(transaction, "upsert_tables", rows.table_rows(changes.tables))
    await _execute(transaction, "upsert_locations", rows.location_rows(changes.locations))
    await _execute(transaction, "insert_snapshots", rows.snapshot_rows(changes.snapshots))


async def _write_events(transaction: Transaction, events: Sequence[ResolvedEvent]) -> list[JudgedEvent]:
    """Judge the edges of events in order; store edges, columns, jobs and runs."""
    if not events:
        return []
    named = sorted({event.run_id for event in events if event.run_id is not None})
    runs = {row[0]: rows.read_run(row) for row in await _select(transaction, "known_runs", runs=named)}
    updates = [update_run(event, runs) for event in events]
    edges = await AcyclicEdges.begin(
        transaction,
        (pair for update in updates for pair in update.pairs),
        columns=((source, target) for update in updates for source, _, target, _ in update.columns),
    )
    event_rows, judged = rows.EventRows(), []
    for update in updates:
        event = update.event
        drawn = await edges.draw(update.pairs, index=event.entry.index, keeps_cycles=event.keeps_cycles)
        judged.append(event_rows.add(update, drawn, edges.refused))
    await edges.write()
    await _execute(transaction, "insert_events", event_rows.events)
    await _execute(transaction, "count_edges", list(event_rows.edges.values()))
    await _execute(transaction, "count_columns", list(event_rows.columns.values()))
    await _execute(transaction, "count_cycles", list(event_rows.cycles.values()))
    await _execute(transaction, "lift_cycles", event_rows.lifted)
    await _execute(transaction, "upsert_jobs", list(event_rows.jobs.values()))
    await _execute(transaction, "upsert_runs", [rows.run_row(run) for run in event_rows.runs.values()])
    await _execute(transaction, "count_omitted", list(event_rows.omitted.values()))
    return judged


async def _execute(transaction: Transaction, query: str, values: Sequence[Json]) -> None:
    if values:
        text = encode_json(values)
        await transaction.connection.execute(QUERIES[query], {**generation_of(transaction), "rows": text})
