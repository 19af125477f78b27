# SPDX-License-Identifier: Apache-2.0
"""
What the log tells about a catalog, and whether the catalog's rows say the same.

`replay` makes the guarded rows from entries and payload parts alone, as docs/formats.md promises ("Tables of the log").
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from gateway.metadata.files import local_path
from lakeproof.commands.verify_database import check_log_deeply
from lakeproof.services import Services
from ledger.format.entry import Entry, parse_entry
from ledger.format.events import CommitDecided, CommitDecision, CommitOutcome, CommitSettled, from_data
from ledger.signing.key_directory import holds_keys
from ledger.store.read import iterate_entries, read_head, read_parts
from ledger.verify.database import verify_database


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """One entry of a log and its payload parts."""

    entry: Entry
    parts: Mapping[str, bytes]

    @property
    def decided(self) -> CommitDecided:
        """The decision that the entry is."""
        return from_data(CommitDecided, self.entry.data)

    @property
    def settled(self) -> CommitSettled:
        """The outcome that the entry is."""
        return from_data(CommitSettled, self.entry.data)

    @property
    def words(self) -> str:
        """A short form: `approved`, `accepted`, `access.refused`, …."""
        match self.entry.type:
            case CommitDecided.TYPE:
                return self.decided.decision.value
            case CommitSettled.TYPE:
                return self.settled.outcome.value
            case other:
                return other


async def read_stored(services: Services, log_id: int, *, after: int = 0, key: str | None = None) -> list[StoredEntry]:
    """Return the entries of a log from index `after`; with `key`, only those about it."""
    async with services.gateway.database.as_role(services.gateway.roles.projector) as connection:
        size = (await read_head(connection, log_id)).size
        parts = await read_parts(connection, log_id, from_index=after, to_index=size, opener=services.opener)
        stored = []
        async for page in iterate_entries(connection, log_id, from_index=after, to_index=size):
            for data in page:
                entry = parse_entry(data)
                payloads = {name: part.payload for name, part in parts.get(entry.index, {}).items()}
                stored.append(StoredEntry(entry=entry, parts=payloads))
    return [one for one in stored if key is None or one.entry.key == key]


async def read_bare(services: Services, log_id: int, *, after: int = 0, key: str | None = None) -> list[StoredEntry]:
    """Return what `read_stored` does, without the payload parts."""
    async with services.gateway.database.as_role(services.gateway.roles.projector) as connection:
        size = (await read_head(connection, log_id)).size
        pages = [page async for page in iterate_entries(connection, log_id, from_index=after, to_index=size)]
    stored = [StoredEntry(entry=parse_entry(data), parts={}) for page in pages for data in page]
    return [one for one in stored if key is None or one.entry.key == key]


async def words(services: Services, log_id: int, *, after: int = 0, key: str | None = None) -> list[str]:
    """Return the short forms of the commits in a log from index `after`; with `key`, only those about it."""
    families = ("commit.", "access.")
    stored = await read_bare(services, log_id, after=after, key=key)
    return [one.words for one in stored if one.entry.type.startswith(families)]


@dataclass(slots=True, kw_only=True)
class Rows:
    """The guarded rows of one log: properties by namespace, (uuid, location, digest) by table or view."""

    namespaces: dict[tuple[str, tuple[str, ...]], dict[str, str]] = field(default_factory=dict)
    tables: dict[tuple[str, tuple[str, ...], str], tuple[UUID, str, str]] = field(default_factory=dict)


def replay(entries: Sequence[StoredEntry]) -> Rows:
    """Return the rows that the log says there must be."""
    rows = Rows()
    decisions: dict[tuple[str, str], StoredEntry] = {}
    for one in entries:
        if one.entry.type == CommitDecided.TYPE:
            decisions[str(one.entry.group_id), one.entry.key] = one
        elif one.entry.type == CommitSettled.TYPE and one.settled.outcome is CommitOutcome.ACCEPTED:
            decision = decisions[one.settled.decision, one.entry.key]
            assert decision.decided.decision is CommitDecision.APPROVED
            _apply(rows, decision, one.settled)
    return rows


def _apply(rows: Rows, decision: StoredEntry, settled: CommitSettled) -> None:
    decided = decision.decided
    identifier = decided.identifier
    where = (identifier.alias, identifier.namespace)
    match decided.operation:
        case "namespace.create":
            assert where not in rows.namespaces
            rows.namespaces[where] = _body(decision).get("properties") or {}
        case "namespace.update":
            body = _body(decision)
            removals = body.get("removals") or []
            kept = {name: text for name, text in rows.namespaces[where].items() if name not in removals}
            rows.namespaces[where] = kept | (body.get("updates") or {})
        case "namespace.drop":
            del rows.namespaces[where]
        case "table.drop" | "table.unregister" | "table.rename_from" | "view.drop" | "view.rename_from":
            assert identifier.name is not None
            del rows.tables[*where, identifier.name]
        case (
            "table.create"
            | "table.register"
            | "table.rename_to"
            | "table.commit"
            | "view.create"
            | "view.register"
            | "view.rename_to"
            | "view.replace"
        ):
            assert identifier.name is not None
            assert settled.table_uuid is not None
            assert settled.metadata_location is not None
            assert settled.metadata_sha256 is not None
            table = (*where, identifier.name)
            assert (table in rows.tables) == (decided.operation in {"table.commit", "view.replace"})
            assert decided.base == (rows.tables[table][1] if table in rows.tables else None)
            rows.tables[table] = (UUID(settled.table_uuid), settled.metadata_location, settled.metadata_sha256)
        case other:
            raise AssertionError(f"an operation nobody knows: {other}")


def _body(decision: StoredEntry) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.loads(decision.parts["inputs"])["body"])
    return body


async def live_rows(services: Services, log_id: int) -> Rows:
    """Return the rows that are there."""
    rows = Rows()
    async with services.gateway.database.as_role(services.gateway.roles.auditor) as connection:
        found = await connection.execute(
            "SELECT alias, namespace, properties FROM gateway.namespaces WHERE log_id = %s", (log_id,)
        )
        for alias, namespace, properties in await found.fetchall():
            rows.namespaces[alias, tuple(namespace)] = properties
        found = await connection.execute(
            "SELECT alias, namespace, name, table_uuid, metadata_location, metadata_sha256 FROM gateway.tables"
            " WHERE log_id = %s",
            (log_id,),
        )
        for alias, namespace, name, *pointer in await found.fetchall():
            rows.tables[alias, tuple(namespace), name] = (pointer[0], pointer[1], pointer[2])
    return rows


async def check_agreement(services: Services, log_id: int) -> Rows:
    """Check that log, rows and metadata files say one thing; return the rows."""
    rows = await live_rows(services, log_id)
    assert replay(await read_stored(services, log_id)) == rows
    for _, location, digest in rows.tables.values():
        assert hashlib.sha256(path_of(location).read_bytes()).hexdigest() == digest
    return rows


async def check_deeply(services: Services, log_id: int) -> None:
    """Check that `verify --deep` finds no fault in a log and what is derived from it."""
    (log,) = [log for log in await services.logs() if log.log_id == log_id]
    installation = services.installation
    async with installation.connect(installation.roles.auditor) as auditor:
        assert await check_log_deeply(installation, auditor, log)


async def check_log(services: Services, log_id: int) -> None:
    """Verify a log as an auditor does: its chain, its tree, its head and what the database derives from its entries."""
    installation = services.installation
    auditor = installation.as_role(installation.roles.auditor)
    (log,) = [log for log in await services.logs() if log.log_id == log_id]
    async with await AsyncConnection.connect(auditor, autocommit=True) as connection:
        installation = services.installation
        keys = installation.open_keys().verifier_keys(log.origin) if holds_keys(installation.keys) else ()
        report = await verify_database(connection, log, keys)
        assert report.size == (await read_head(connection, log_id)).size


def path_of(location: str) -> Path:
    """Return the path of a file in a local warehouse."""
    path = local_path(location)
    assert path is not None
    return path
