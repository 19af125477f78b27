# SPDX-License-Identifier: Apache-2.0
"""
The catalogs of each tenant, by alias: streams and detection find the storage of a table here.

The gateway does not read this: it judges by the control plane as of one index of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ledger.format.canonical import Json
from ledger.format.events import CatalogCreated, CatalogRetired
from ledger.store.queries import load_queries
from ledger.store.read import Log
from ledger.store.session import Connection
from projections.egress.rules import EgressRules
from projections.entries import LogEntry, encode_json
from projections.errors import ProjectionError
from projections.lake.storage import SecretStore, Storage
from projections.processing.digest import GenerationDigest
from projections.processing.projection import Transaction, iterate_rows

QUERIES: Final = load_queries("projections", "catalogs.sql")
CATALOGS: Final = "catalogs"
CATALOGS_VERSION: Final = 1
BUILTIN: Final = "builtin"
"""The kind of catalog whose tables are in this installation's own warehouse, in a folder per tenant and alias."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRow:
    """A catalog in force: the log that it belongs to, its alias, kind and options (secrets by name)."""

    log: Log
    alias: str
    kind: str
    options: Mapping[str, str]


class CatalogsProjection:
    """Catalogs as rows (implements `Projection`)."""

    name: str = CATALOGS
    version: int = CATALOGS_VERSION
    part: str | None = None

    async def prepare(self, transaction: Transaction) -> None:
        """Do nothing: a generation is the rows with its number."""

    async def apply(self, entries: Sequence[LogEntry], transaction: Transaction) -> None:
        """Insert what was created, then mark what was retired: an alias is never used again."""
        created: list[Json] = []
        retired: list[str] = []
        for item in entries:
            match item.event:
                case CatalogCreated() as event:
                    created.append({"alias": event.id, "kind": event.kind, "options": dict(event.options)})
                case CatalogRetired() as event:
                    retired.append(event.id)
                case _:
                    pass  # not about a catalog
        if created:
            rows = encode_json(created)
            await transaction.connection.execute(QUERIES["insert_created"], {**_where(transaction), "rows": rows})
        if retired:
            await transaction.connection.execute(QUERIES["retire"], {**_where(transaction), "aliases": retired})

    async def digest(self, transaction: Transaction) -> bytes:
        """Return the digest of all rows by alias."""
        digest = GenerationDigest(projection=self.name, version=self.version)
        async for rows in iterate_rows(transaction.connection, QUERIES["digest_catalogs"], _where(transaction)):
            for row in rows:
                digest.add(*row)
        return digest.digest()

    async def drop(self, transaction: Transaction) -> None:
        """Delete the generation's rows."""
        await transaction.connection.execute(QUERIES["drop_catalogs"], _where(transaction))


async def read_catalogs(connection: Connection, *, log_id: int | None = None) -> list[CatalogRow]:
    """
    Return the catalogs in force of one log, or of every log that the connection's role may see.
    """
    rows = await (await connection.execute(QUERIES["catalogs"], {"log_id": log_id})).fetchall()
    return [
        CatalogRow(
            log=Log(log_id=number, origin=origin, tenant=tenant, reader=reader),
            alias=alias,
            kind=kind,
            options=options,
        )
        for number, origin, tenant, reader, alias, kind, options in rows
    ]


def storage_of(
    row: CatalogRow, *, warehouse: str, ours: Mapping[str, str], secrets: SecretStore, egress: EgressRules
) -> Storage:
    """
    Return the storage that opens a catalog's files; `warehouse` and `ours` are this installation's URI and properties.

    `egress` says where files of a foreign catalog may be; for its own files this installation trusts the operator.

    Raises:
        SecretMissingError: if a secret that its options name is missing.
        ProjectionError: if its log belongs to no tenant.
    """
    tenant = row.log.tenant
    if tenant is None:
        raise ProjectionError(f"catalog {row.alias} of {row.log.origin}: expected a tenant's log, found one without")
    if row.kind == BUILTIN:
        return Storage(properties=dict(ours), within=folders_of(row, warehouse=warehouse))
    return Storage.of_foreign_catalog(row.options, tenant=tenant, secrets=secrets, egress=egress)


def folders_of(row: CatalogRow, *, warehouse: str) -> tuple[str, ...]:
    """
    Return where a catalog's files are: of one of ours, its folder in the `warehouse`, and its option `location`.
    """
    location = row.options.get("location")
    others = () if location is None else (location,)
    if row.kind != BUILTIN or row.log.tenant is None:
        return others
    return (f"{warehouse.rstrip('/')}/{row.log.tenant.hex}/{row.alias}", *others)


def _where(transaction: Transaction) -> Mapping[str, object]:
    return {"log_id": transaction.log.log_id, "generation": transaction.generation}
