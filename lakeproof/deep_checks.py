"""
Compares what an installation keeps beside a log with what the log says: `lakeproof ledger verify --log … --deep`.

Four checks, each named with how much it has looked at. The first that fails names the table and the key.

1. aggregates: the version of everything people edit is that of its newest entry;
2. catalog: each table's pointer is the one of the newest accepted commit, and there is none too many;
3. metadata files: each is the file whose SHA-256 was settled;
4. projections: a live generation that stands at the size of its newest attestation has the digest that was attested.
   One that has moved on since is counted as not compared: `lakeproof projections rebuild` compares those.

The log must have been verified before; it is read once, in the same snapshot as the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from gateway.metadata_files import MetadataFileError, MetadataFiles
from gateway.mutations import Operation
from lakeproof.projecting import PROJECTIONS
from ledger.entry import Branch, Entry, parse_entry
from ledger.errors import BrokenError, Fault
from ledger.events import CommitDecided, CommitSettled, ProjectionAttested, Settled, from_data
from ledger.keys import format_key
from ledger.queries import load_queries
from ledger.read import Connection, Log, iterate_entries, read_head
from projections.cursors import read_live
from projections.projection import Projection, Transaction

_QUERIES: Final = load_queries("lakeproof", "deep.sql")
_MARKS: Final = (b'"type":"commit.', b'"type":"projection.attested"')


class Pointer(NamedTuple):
    """Where the catalog says that a table is."""

    location: str | None
    sha256: str | None
    table_uuid: str | None


@dataclass(slots=True, kw_only=True)
class Told:
    """What a log tells, by key. Owned by one call of `check_deeply`."""

    versions: dict[str, int] = field(default_factory=dict)
    pointers: dict[str, Pointer] = field(default_factory=dict)
    attested: dict[str, ProjectionAttested] = field(default_factory=dict)
    _operations: dict[tuple[str, str], str] = field(default_factory=dict)

    def take(self, entry: Entry, *, is_control: bool) -> None:
        """Take in the next entry."""
        if is_control and entry.branch is Branch.THEN and isinstance(version := entry.data.get("version"), int):
            self.versions[entry.key] = version
        elif entry.type == CommitDecided.TYPE:
            if entry.position == 0:
                self._operations.clear()  # a built-in catalog settles in the group of the decision
            decided = from_data(CommitDecided, entry.data)
            self._operations[str(entry.group_id), entry.key] = decided.operation
        elif entry.type == CommitSettled.TYPE:
            settled = from_data(CommitSettled, entry.data)
            operation = self._operations.get((settled.decision, entry.key))
            if settled.outcome is Settled.ACCEPTED and settled.decision == str(entry.group_id) and operation:
                self._settle(entry.key, Operation(operation), settled)
        elif entry.type == ProjectionAttested.TYPE:
            attested = from_data(ProjectionAttested, entry.data)
            self.attested[attested.projection] = attested

    def _settle(self, key: str, operation: Operation, settled: CommitSettled) -> None:
        if operation is Operation.TABLE_DROP:
            self.pointers.pop(key, None)
        elif operation in {Operation.TABLE_CREATE, Operation.TABLE_COMMIT}:
            self.pointers[key] = Pointer(settled.metadata_location, settled.metadata_sha256, settled.table_uuid)


async def check_deeply(connection: Connection, log: Log, *, files: MetadataFiles, projector_dsn: str) -> Sequence[str]:
    """
    Make the four checks of a log, and return what each has looked at.

    `connection` reads as the auditor, `files` the warehouse; with `projector_dsn` one connects as the projector.

    Raises:
        BrokenError: (`Fault.DERIVED`) at the first difference; names the table and the key.
    """
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        told = await _told(connection, log)
        aggregates = await _rows(connection, "aggregates", log)
        tables = await _rows(connection, "tables", log)
    versions: dict[str, int] = dict(aggregates)
    _compare("ledger.aggregates", told.versions, versions)
    found = {
        format_key("table", (alias, *namespace, name)): Pointer(location, sha256, str(table_uuid))
        for alias, namespace, name, location, sha256, table_uuid in tables
    }
    _compare("gateway.tables", told.pointers, found)
    await _check_files(files, found)
    return (
        f"{len(versions):,} aggregates",
        f"{len(found):,} catalog pointers and their metadata files",
        await _check_projections(projector_dsn, log, told.attested),
    )


async def _told(connection: Connection, log: Log) -> Told:
    told = Told()
    size = (await read_head(connection, log.log_id)).size
    controls = {index for (index,) in await _rows(connection, "control_indices", log)}
    at = 0
    async for entries in iterate_entries(connection, log.log_id, from_index=0, to_index=size):
        for index, entry in enumerate(entries, start=at):
            # Canonical JSON spells a type in one way, so that what does not hold the mark need not be parsed.
            if index in controls or any(mark in entry for mark in _MARKS):
                told.take(parse_entry(entry), is_control=index in controls)
        at += len(entries)
    return told


async def _check_files(files: MetadataFiles, pointers: Mapping[str, Pointer]) -> None:
    for key, pointer in sorted(pointers.items()):
        location = str(pointer.location)
        try:
            await files.read(location, digest=str(pointer.sha256))
        except MetadataFileError as error:
            where = f"metadata file of {key}"
            raise BrokenError(
                Fault.DERIVED, where=where, expected=f"{location} of SHA-256 {pointer.sha256}", found=error
            ) from error


async def _check_projections(dsn: str, log: Log, attested: Mapping[str, ProjectionAttested]) -> str:
    counts: dict[str, int] = defaultdict(int)
    async with await AsyncConnection.connect(dsn) as connection:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for projection in PROJECTIONS:
            if projection.name in attested:
                counts[await _check_projection(connection, log, projection, attested[projection.name])] += 1
    return (
        f"{counts['compared']:,} projections that stand where they were attested; {counts['moved']:,} that have moved "
        "on were not compared"
    )


async def _check_projection(
    connection: Connection, log: Log, projection: Projection, attested: ProjectionAttested
) -> str:
    live = await read_live(connection, projection.name, log.log_id)
    said = (attested.generation, attested.projection_version, attested.size)
    if live is None or (live.generation, live.version, live.next_index) != said:
        return "moved"
    digest = await projection.digest(Transaction(connection=connection, log=log, generation=live.generation))
    if digest.hex() != attested.digest:
        where = f"projection {projection.name}, generation {live.generation}"
        raise BrokenError(Fault.DERIVED, where=where, expected=attested.digest, found=digest.hex())
    return "compared"


def _compare(table: str, told: Mapping[str, object], found: Mapping[str, object]) -> None:
    """Check that the rows of a table are those that the log tells; names the first key, by name, that differs."""
    for key in sorted({*told, *found}):
        expected, row = told.get(key, "no row"), found.get(key, "no row")
        if expected != row:
            raise BrokenError(Fault.DERIVED, where=f"{table} {key}", expected=expected, found=row)


async def _rows(connection: Connection, query: str, log: Log) -> Sequence[tuple[Any, ...]]:
    return await (await connection.execute(_QUERIES[query], {"log_id": log.log_id})).fetchall()
