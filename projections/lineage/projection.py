"""
Lineage as a projection: what was made from what, with data sets resolved to tables, and without cycles.

`changes.py` says what entries mean, `runs.py` what a run tells, `drawing.py` which edges are drawn; here all of it is
stored. Everything comes from
`data` of entries, nothing from payload parts, so nothing changes when one is erased.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from psycopg import sql

from ledger.format import canonical
from ledger.format.canonical import Json
from projections.entries import LogEntry, storable_json
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

    async def prepare(self, transaction: Transaction) -> None:
        """Do nothing: a generation is the rows that bear its number."""

    async def apply(self, entries: Sequence[LogEntry], transaction: Transaction) -> None:
        """Store what the entries tell, and judge the edges of their events one by one."""
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
    Store what the entries tell; return what became of each event, in order.
    """
    known = await _known(transaction, lookups_of(entries))
    kept = bool(await _select(transaction, "keeps_cycles"))
    changes = changes_of(entries, known, keeps_cycles=kept)
    await _write_tables(transaction, changes)
    if changes.sets_cycles:
        await _execute(transaction, "upsert_settings", [{"keeps_cycles": changes.keeps_cycles}])
    judged = await _write_events(transaction, changes.events)
    # Behind the cycles themselves: an entry may tell of one that came with the same batch.
    await _execute(transaction, "tell_cycles", rows.appended_cycle_rows(changes.told))
    return judged


async def _known(transaction: Transaction, asked: Lookups) -> KnownTables:
    """Return what is stored of what is asked for."""
    known = KnownTables()
    if not asked.names:
        return known  # no event of lineage: nothing is resolved
    for alias, uri, location in await _select(transaction, "known_catalogs"):
        known.catalogs[alias] = KnownCatalog(uri=uri, location=location)
    digests = [rows.location_digest(location) for location in asked.locations]
    known.by_location.update(await _select(transaction, "known_locations", digests=digests))
    for snapshot, key in await _select(transaction, "known_snapshots", snapshots=list(asked.snapshots)):
        known.by_snapshot.setdefault(snapshot, set()).add(key)
    for name, key, alias in await _select(transaction, "known_names", names=list(asked.names)):
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
    """Judge the edges of events in order; store what they tell of edges, columns, jobs and runs."""
    if not events:
        return []
    named = sorted({event.run_id for event in events if event.run_id is not None})
    runs = {row[0]: rows.read_run(row) for row in await _select(transaction, "known_runs", runs=named)}
    tellings = [update_run(event, runs) for event in events]
    drawing = await AcyclicEdges.begin(
        transaction,
        (pair for telling in tellings for pair in telling.pairs),
        columns=((source, target) for telling in tellings for source, _, target, _ in telling.columns),
    )
    told, judged = rows.EventRows(), []
    for telling in tellings:
        event = telling.event
        drawn = await drawing.draw(telling.pairs, index=event.entry.index, keeps_cycles=event.keeps_cycles)
        judged.append(told.add(telling, drawn, drawing.refused))
    await drawing.write()
    await _execute(transaction, "insert_events", told.events)
    await _execute(transaction, "count_edges", list(told.edges.values()))
    await _execute(transaction, "count_columns", list(told.columns.values()))
    await _execute(transaction, "count_cycles", list(told.cycles.values()))
    await _execute(transaction, "lift_cycles", told.lifted)
    await _execute(transaction, "upsert_jobs", list(told.jobs.values()))
    await _execute(transaction, "upsert_runs", [rows.run_row(run) for run in told.runs.values()])
    await _execute(transaction, "count_omitted", list(told.omitted.values()))
    return judged


async def _execute(transaction: Transaction, query: str, values: Sequence[Json]) -> None:
    if values:
        text = canonical.encode(storable_json(values)).decode()
        await transaction.connection.execute(QUERIES[query], {**generation_of(transaction), "rows": text})
