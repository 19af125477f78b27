# SPDX-License-Identifier: Apache-2.0
"""
Compares everything that is derived from a log with the log: `lakeproof ledger verify --log … --deep`.

The checks, each with how much it compared; the first that fails names the table and the key:

1. guarded rows: control entries, recorded events of applications, API keys, namespaces, tables, storage places, open
   decisions, open purges, marks of scans, erased persons: the rows that follow from the log, and no others
   (`guarded_rows.py`);
2. metadata files: each table's is the file whose SHA-256 was settled;
3. the tenant's key for request hashes is the one that the newest recorded requests were hashed with;
4. no position of a handler, a read model or detection lies behind the end of the log;
5. the newest checkpoint that was anchored, or that the signer has stored, is there;
6. of the system log: each log has the tenant that it was made for, and that tenant's reader;
7. projections: the live rows are those of a rebuild from the log (`projections.py`);
8. the schema, roles, grants and settings are those that the system log has recorded (`schema_record.py`).

The log must have been verified before. All but the projections is read in one snapshot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from psycopg.sql import SQL, Identifier

from gateway.commit.request_hash import request_hash
from gateway.commit.requests import PURGE_QUERY
from gateway.confusables import SKELETONS_VERSION, skeleton_columns
from gateway.http.operations import BY_ID, PREFIX
from gateway.metadata.files import MetadataFileError, MetadataFiles
from lakeproof.deep_verification.guarded_rows import (
    INPUTS,
    OPENED,
    PURGED,
    DecodedEntry,
    GuardedRows,
    Key,
    Row,
    Table,
    parts_needed,
)
from lakeproof.deep_verification.projections import check_projections
from lakeproof.provision import Provisioned
from lakeproof.schema_record import check_schema
from ledger.anchoring.anchors import anchor_key, parse_anchor
from ledger.errors import BrokenError, Fault
from ledger.format.continuation import successor_origin
from ledger.format.entry import parse_entry
from ledger.format.event import format_key
from ledger.format.events import (
    AggregateRecorded,
    AggregateSnapshotted,
    CommitDecided,
    CommitSettled,
    FindingReviewed,
    LogContinued,
    LogsAnchored,
    PayloadErased,
    PlaceGranted,
    PlaceReleased,
    ProjectionAttested,
    PurgeCompleted,
    PurgeRequested,
    ScanCompleted,
    ScanFailed,
    TenantCreated,
    from_data,
)
from ledger.format.sealing import Opener, StoredPart
from ledger.recovering.successor import tenant_of
from ledger.store.queries import load_queries
from ledger.store.read import Log, read_head
from ledger.store.session import Connection
from streams.handlers.alerts import Alerts
from streams.handlers.cloud_events import Publish
from streams.handlers.observe import ObserveCommits

_QUERIES: Final = load_queries("lakeproof", "deep.sql")
_TYPES: Final = [
    event.TYPE
    for event in (
        AggregateRecorded,
        AggregateSnapshotted,
        CommitDecided,
        CommitSettled,
        FindingReviewed,
        LogsAnchored,
        PayloadErased,
        PlaceGranted,
        PlaceReleased,
        ProjectionAttested,
        PurgeCompleted,
        PurgeRequested,
        ScanCompleted,
        ScanFailed,
    )
]
"""Types of the entries that rows come from, in addition to all control entries."""
_ENTRIES_READ: Final = 1_000
TRANSACTION: Final = BY_ID["commitTransaction"].path.removeprefix(PREFIX)
"""How the path of a transaction ends."""
_REQUESTS_READ: Final = 100
"""Of the newest decisions: one of them must have a request that is known."""
_HANDLERS: Final = frozenset({Alerts.name, ObserveCommits.name, Publish.name})


async def check_deeply(
    connection: Connection,
    log: Log,
    *,
    installation: Provisioned,
    files: MetadataFiles,
    opener: Opener,
    arrived: Mapping[str, int],
) -> Sequence[str]:
    """
    Run the checks of a log, and return what each has compared.

    `connection` is the auditor's, whose login may take the other roles of the installation. `arrived` are the sizes of
    the checkpoints that the signer has stored, by origin.

    Raises:
        BrokenError: (`Fault.DERIVED`, or `Fault.CHECKPOINT`) at the first difference; names the table and the key.
    """
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        size = (await read_head(connection, log.log_id)).size
        pass_ = _Pass(
            connection, log, installation=installation, files=files, opener=opener, arrived=arrived, size=size
        )
        await pass_.fold()
        checked = [await pass_.check_rows()]
        checked += [await pass_.check_files()] if log.tenant is not None else []
        checked += [await pass_.check_positions()]
        checked += [await pass_.check_request_key()]
        await pass_.check_newest_checkpoint()
        checked += [await pass_.check_logs()] if log.tenant is None else []
        checked += [await check_schema(connection, installation.roles, installation.system_origin)]
    if log.tenant is not None:
        dsn = installation.as_role(installation.roles.projector)
        checked.append(await check_projections(dsn, log, attested=pass_.attested, opener=opener))
    return checked


class _Pass:
    """The checks of one log, in one snapshot. Owned by one call of `check_deeply`."""

    def __init__(
        self,
        connection: Connection,
        log: Log,
        *,
        installation: Provisioned,
        files: MetadataFiles,
        opener: Opener,
        arrived: Mapping[str, int],
        size: int,
    ) -> None:
        self.attested: dict[str, ProjectionAttested] = {}
        self._connection = connection
        self._log = log
        self._installation = installation
        self._files = files
        self._opener = opener
        self._arrived = arrived
        self._size = size
        self._expected = GuardedRows()
        self._tenants: set[str] = set()

    async def fold(self) -> None:
        """Compute the rows that must exist from the log."""
        bounds = {"log_id": self._log.log_id, "size": self._size, "types": _TYPES}
        group: list[DecodedEntry] = []
        async with self._connection.cursor("lakeproof_deep") as cursor:
            await cursor.execute(_QUERIES["entries_that_make_rows"], bounds)
            while rows := await cursor.fetchmany(_ENTRIES_READ):
                for decoded in await self._decoded([bytes(entry) for _, entry in rows]):
                    if group and decoded.entry.group_id != group[0].entry.group_id:
                        self._take(group)
                        group = []
                    group.append(decoded)
        if group:
            self._take(group)
        if self._expected.conflicts:
            where = f"rows of {self._log.origin}"
            found = self._expected.conflicts[0]
            raise BrokenError(Fault.DERIVED, where=where, expected="a log from which they follow", found=found)

    def _take(self, group: Sequence[DecodedEntry]) -> None:
        for each in group:
            if each.entry.type == ProjectionAttested.TYPE:
                attested = from_data(ProjectionAttested, each.entry.data)
                self.attested[attested.projection] = attested
            elif each.entry.type == TenantCreated.TYPE:
                self._tenants.add(str(each.entry.data.get("id")))
        self._expected.take(group)

    async def _decoded(self, entries: Sequence[bytes]) -> list[DecodedEntry]:
        parsed = [parse_entry(entry) for entry in entries]
        needed = [(entry.index, name) for entry in parsed for name in sorted(parts_needed(entry))]
        parts = await self._parts(needed)
        return [DecodedEntry(entry=entry, parts=parts.get(entry.index, {})) for entry in parsed]

    async def _parts(self, needed: Sequence[tuple[int, str]]) -> Mapping[int, Mapping[str, bytes]]:
        """Return the payload parts that are not erased and can be opened."""
        if not needed:
            return {}
        indices, names = zip(*needed, strict=True)
        found: dict[int, dict[str, bytes]] = {}
        rows = await self._rows("parts_of", role="projector", indices=list(indices), names=list(names))
        for index, name, subject, key_id, sealed in rows:
            part = self._opener.open(StoredPart(index, name, subject, key_id, bytes(sealed)))
            if part is not None:
                found.setdefault(index, {})[name] = part.payload
        return found

    async def check_rows(self) -> str:
        """Check that the guarded rows are those that follow from the log."""
        expected_rows = self._expected
        closed = successor_origin(self._log.origin) in {origin for _, origin, *_ in await self._rows("logs")}
        aggregates: Table = {(key,): {"version": version} for key, version in await self._rows("aggregates")}
        recorded: Table = {
            tuple(key): {"group_id": group_id, "position": position}
            for *key, group_id, position in await self._rows("recorded_events")
        }
        erased: Table = {(subject,): {} for (subject,) in await self._rows("erased_subjects")}
        keys: Table = {
            (key_id,): {"prefix": prefix, "actor": actor} for key_id, prefix, actor in await self._rows("api_keys")
        }
        opened: Table = {
            (decision, key): dict(zip((*OPENED, "is_unknown"), (key, *row), strict=True))
            for decision, key, *row in await self._rows("open_decisions")
        }
        purges: Table = {
            (purge, key): dict(zip(PURGED, row, strict=True)) for purge, key, *row in await self._rows("purges")
        }
        marks: Table = {tuple(key): {"scans": scans} for *key, scans in await self._rows("marks")}
        scanned: Table = {key: {"scans": scans} for key, scans in expected_rows.marks.items()}
        _compare("ledger.aggregates", expected_rows.aggregates, aggregates)
        _compare("ledger.recorded_events", expected_rows.recorded_events, recorded)
        if not closed:  # erasures of a closed log are recorded in its successor
            _compare("ledger.erased_subjects", expected_rows.erased_subjects, erased)
        _compare("gateway.api_keys", expected_rows.api_keys, keys)
        await self._check_catalog()
        _compare("gateway.open_decisions", expected_rows.open_decisions, opened)
        _compare("gateway.purges", expected_rows.purges, purges)
        _compare("detection.marks", scanned, marks)
        counted = {
            "aggregates": aggregates,
            "recorded events": recorded,
            "erased people": erased,
            "API keys": keys,
            "namespaces": expected_rows.namespaces,
            "tables": expected_rows.tables,
            "places of catalogs": expected_rows.catalog_places,
            "open decisions": opened,
            "open purges": purges,
            "marks of scans": marks,
        }
        return ", ".join(f"{len(table):,} {name}" for name, table in counted.items()) + ": as the log says"

    async def _check_catalog(self) -> None:
        namespaces: Table = {}
        for alias, namespace, properties, looks, version in await self._rows("namespaces"):
            key = (alias, *namespace)
            namespaces[key] = {"properties": properties}
            _check_skeletons(f"gateway.namespaces {_name('namespace', key)}", namespace, looks, version)
        _compare("gateway.namespaces", self._expected.namespaces, namespaces, kind="namespace")
        tables: Table = {}
        for (
            alias,
            namespace,
            name,
            is_view,
            location,
            sha256,
            uuid,
            places,
            folders,
            is_recorded,
            looks,
            version,
        ) in await self._rows("tables"):
            key = (alias, *namespace, name)
            tables[key] = {
                "metadata_location": location,
                "metadata_sha256": sha256,
                "table_uuid": uuid,
                "is_view": is_view,
                "places_told": is_recorded,
                "places": places,
                "folders": folders,
            }
            _check_skeletons(f"gateway.tables {_name('table', key)}", (*namespace, name), looks, version)
            if places is None and not is_recorded and key in self._expected.tables:
                # A row from before places were kept: the next start fills them in.
                tables[key] |= {name: self._expected.tables[key].get(name) for name in ("places", "folders")}
        _compare("gateway.tables", self._expected.tables, tables, kind="table")
        found: Table = {}
        for alias, place, digest, folders, held, is_overlapped in await self._rows("catalog_places"):
            found[alias, place] = {"digest": digest, "folders": folders, "held": held}
            if is_overlapped and not held and (alias, place) in self._expected.catalog_places:
                self._expected.catalog_places[alias, place]["held"] = False  # another tenant registered it first
        _compare("gateway.catalog_places", self._expected.catalog_places, found)

    async def check_files(self) -> str:
        """Check that each table's metadata is the file that was settled."""
        for key, row in sorted(self._expected.tables.items(), key=lambda item: str(item[0])):
            location, digest = str(row["metadata_location"]), str(row["metadata_sha256"])
            try:
                await self._files.read(location, digest=digest)
            except MetadataFileError as error:
                where = f"metadata file of {_name('table', key)}"
                expected = f"{location} of SHA-256 {digest}"
                raise BrokenError(Fault.DERIVED, where=where, expected=expected, found=error) from error
        return f"{len(self._expected.tables):,} metadata files"

    async def check_positions(self) -> str:
        """Check that no reader of the log has a position outside it, and that there is no unknown handler."""
        cursors = await self._rows("cursors")
        for handler, next_index, handled in cursors:
            where = f"streams.cursors {handler}"
            if handler not in _HANDLERS or self._log.tenant is None:
                raise BrokenError(Fault.DERIVED, where=where, expected="no row", found=f"one at {next_index}")
            if not 0 <= handled <= next_index <= self._size:
                expected = f"a place in a log of {self._size} entries, and at most so many handled before it"
                found = f"{next_index}, and {handled} handled"
                raise BrokenError(Fault.DERIVED, where=where, expected=expected, found=found)
        ahead = await self._rows("ahead", size=self._size)
        if ahead:
            where, found = ahead[0]
            raise BrokenError(Fault.DERIVED, where=where, expected=f"at most {self._size}", found=found)
        return f"{len(cursors):,} cursors of handlers, within the log"

    async def check_request_key(self) -> str:
        """Check that the key for request hashes is the one that a request of the log was hashed with."""
        keys = [bytes(key) for (key,) in await self._rows("request_keys", role="gateway")]
        where = "gateway.request_keys"
        if self._log.tenant is None or not keys:
            if keys:
                raise BrokenError(Fault.DERIVED, where=where, expected="no row for this log", found="one")
            return "no key for request hashes"  # it is made when the first request needs it
        rows = await self._rows("requests", size=self._size, limit=_REQUESTS_READ)
        entries = [parse_entry(bytes(entry)) for _, entry in rows]
        parts = await self._parts([(entry.index, INPUTS) for entry in entries if INPUTS in entry.parts])
        for entry in entries:
            known = orjson.loads(parts.get(entry.index, {}).get(INPUTS, b"{}"))
            body = known.get("body")
            if body is None or hashlib.sha256(body.encode()).hexdigest() != known["body_sha256"]:
                continue  # erased, too large to be kept, or not text
            if known["path"].endswith(TRANSACTION):
                continue  # its hash is of the whole request, of which each decision has its own part
            # Older hashes of a drop with a purge are of the path alone.
            paths = {known["path"], known["path"].removesuffix(PURGE_QUERY)}
            hashed = {request_hash(keys[0], method=known["method"], path=path, body=body.encode()) for path in paths}
            if entry.data.get("request") not in hashed:
                expected = f"the key that the request of entry {entry.index} was hashed with"
                raise BrokenError(Fault.DERIVED, where=where, expected=expected, found="another")
            return "the key for request hashes"
        return "no request that the key for request hashes could be compared with"

    async def check_newest_checkpoint(self) -> None:
        """Check that no checkpoint was removed that is known to have been the newest."""
        ((signed,),) = await self._rows("newest_checkpoint")
        known = {"the signer has stored": self._arrived.get(self._log.origin, 0)}
        system = next((row for row in await self._rows("logs") if row[1] == self._system_origin), None)
        if system is not None and self._log.tenant is not None:
            for (entry,) in await self._rows("anchors", system=system[0], key=anchor_key(self._log.origin)):
                known["the system log has anchored"] = parse_anchor(parse_entry(bytes(entry))).size
        for who, size in known.items():
            if size > (signed or 0):
                expected = f"the checkpoint of {size} entries, which {who}"
                found = f"none newer than of {signed or 0}"
                raise BrokenError(Fault.CHECKPOINT, where="ledger.checkpoints", expected=expected, found=found)

    async def check_logs(self) -> str:
        """Check that each log is recorded in the system log, with its tenant and that tenant's reader."""
        rows = await self._rows("logs")
        for log_id, origin, tenant, reader, size in rows:
            where = f"ledger.logs {origin}"
            of = None if origin == self._system_origin else tenant_of(origin)
            role = None if of is None else self._installation.roles.tenant(of)
            if (of, role) != (tenant, reader) or (tenant is None and origin != self._system_origin):
                expected, found = f"tenant {of}, reader {role}", f"tenant {tenant}, reader {reader}"
                raise BrokenError(Fault.DERIVED, where=where, expected=expected, found=found)
            # A log without entries belongs to a tenant whose creation was interrupted before it was recorded.
            if size and tenant is not None and tenant.hex not in self._tenants and not await self._continues(log_id):
                expected_row = "no such log: the system log has no such tenant"
                raise BrokenError(Fault.DERIVED, where=where, expected=expected_row, found=f"one of {size} entries")
        missing = self._tenants - {tenant.hex for _, _, tenant, _, _ in rows if tenant is not None}
        if missing:
            where = f"ledger.logs of tenant {min(missing)}"
            raise BrokenError(Fault.DERIVED, where=where, expected="a log, as the system log says", found="none")
        return f"{len(rows):,} logs, each of the tenant that the system log says"

    async def _continues(self, log_id: int) -> bool:
        rows = await (await self._connection.execute(_QUERIES["first_type"], {"log_id": log_id})).fetchall()
        return rows == [(LogContinued.TYPE,)]

    @property
    def _system_origin(self) -> str:
        return self._installation.system_origin

    async def _rows(self, query: str, *, role: str = "auditor", **parameters: object) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a query about the log, as another role sees them."""
        duties = self._installation.roles.duties()
        if role != "auditor":
            await self._connection.execute(SQL("SET LOCAL ROLE {}").format(Identifier(duties[role])))
        bounds = {"log_id": self._log.log_id, **parameters}
        rows = await (await self._connection.execute(_QUERIES[query], bounds)).fetchall()
        if role != "auditor":
            await self._connection.execute(SQL("SET LOCAL ROLE {}").format(Identifier(duties["auditor"])))
        return rows


def _check_skeletons(where: str, path: Sequence[str], looks: object, version: str | None) -> None:
    """Check the skeletons by which confusable names are refused; those of an older version are replaced at a start."""
    if version == SKELETONS_VERSION and looks != skeleton_columns(*path)["looks"]:
        raise BrokenError(Fault.DERIVED, where=where, expected="the looks of its name", found="others")


def _name(kind: str | None, key: Key) -> str:
    """Return the name of a row: its event key if it has one."""
    return "/".join(map(str, key)) if kind is None else format_key(kind, [str(part) for part in key])


def _compare(table: str, expected_rows: Table, found: Table, *, kind: str | None = None) -> None:
    """Check that the rows of a table are the expected ones; names the first key, by name, that differs."""
    for key in sorted({*expected_rows, *found}, key=str):
        expected, row = expected_rows.get(key), found.get(key)
        if expected != row:
            where = f"{table} {_name(kind, key)}"
            raise BrokenError(Fault.DERIVED, where=where, expected=_shown(expected, row), found=_shown(row, expected))


def _shown(row: Row | None, other: Row | None) -> str:
    """Return what differs of a row."""
    if row is None or other is None:
        return "no row" if row is None else "a row"
    return ", ".join(f"{name} {value!r:.200}" for name, value in row.items() if value != other.get(name))
