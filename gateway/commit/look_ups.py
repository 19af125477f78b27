# SPDX-License-Identifier: Apache-2.0
"""
What policies see of a table besides its metadata: what read models of the tenant's log know of it as of now.

Guarantee: a tenant's log and read models are read with the tenant's own role, which sees no other's. What cannot be
told is an error and never empty: the commit is undecidable. How a table is classified is said by its metadata file,
which the built-in catalog names; of any other table it is not known, and that is told.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from gateway.database import Database
from gateway.errors import UnavailableError
from gateway.metadata.files import MetadataFiles
from gateway.policy.classifications import classifications_of
from gateway.policy.variables import ClassifiedView, FindingsView, FindingView, LineageView, UpstreamView
from ledger.format import canonical
from ledger.store.queries import load_queries
from ledger.store.roles import Roles
from projections.errors import NotKnownNowError
from projections.lineage.upstream import Upstream, read_upstream
from projections.relational.current_findings import TableFindings, read_current

FILES_AT_ONCE: Final = 4
"""Metadata files, of at most 64 MiB each, that are in memory together."""
KEPT_MAX: Final = 5_000
"""Metadata files whose classifications are kept: a file never changes."""

_QUERIES: Final = load_queries("gateway", "catalog.sql")
_File: TypeAlias = tuple[str, str]
"""Location and SHA-256 (hex)."""


class LookUps(Protocol):
    """Looks up what is known of a table now (`ReadModels`)."""

    async def findings(self, tenant: UUID, log_id: int, table_uuid: str | None) -> FindingsView:
        """
        Return what detection knows of a table; None is a table that is created, of which it knows nothing.

        Raises:
            UnavailableError: if that cannot be told now.
        """

    async def lineage(self, tenant: UUID, log_id: int, key: str, table_uuid: str | None) -> LineageView:
        """
        Return what a table, by its event key and uuid, was made from; None is a table that is created. How that is
        classified is not looked up.

        Raises:
            UnavailableError: if that cannot be told now.
        """

    async def classified(
        self, tenant: UUID, log_id: int, upstream: Sequence[UpstreamView]
    ) -> tuple[ClassifiedView, ...]:
        """
        Return how each of some tables is classified, in their order.

        Raises:
            UnavailableError: if the database or an object store does not answer.
        """


class ReadModels:
    """
    The read models of all tenants, over the connections of `database`, and metadata `files` (implements `LookUps`).
    """

    def __init__(self, database: Database, roles: Roles, files: MetadataFiles) -> None:
        self._database = database
        self._roles = roles
        self._files = files
        self._kept: OrderedDict[_File, tuple[str, ...] | None] = OrderedDict()
        """What metadata files say, the one used last at the end."""

    async def findings(self, tenant: UUID, log_id: int, table_uuid: str | None) -> FindingsView:
        """See `LookUps.findings`."""
        try:
            async with self._database.as_role(self._roles.tenant(tenant)) as connection:
                return findings_view(await read_current(connection, log_id, table_uuid))
        except NotKnownNowError as error:
            raise UnavailableError(f"findings are not known: {error}") from error

    async def lineage(self, tenant: UUID, log_id: int, key: str, table_uuid: str | None) -> LineageView:
        """See `LookUps.lineage`."""
        try:
            async with self._database.as_role(self._roles.tenant(tenant)) as connection:
                return _lineage_view(await read_upstream(connection, log_id, key, table_uuid))
        except NotKnownNowError as error:
            raise UnavailableError(f"lineage is not known: {error}") from error

    async def classified(
        self, tenant: UUID, log_id: int, upstream: Sequence[UpstreamView]
    ) -> tuple[ClassifiedView, ...]:
        """See `LookUps.classified`."""
        if not upstream:
            return ()
        names = [{"alias": one.catalog, "namespace": list(one.namespace), "name": one.name} for one in upstream]
        asked = {"log_id": log_id, "names": canonical.encode(names).decode()}
        async with self._database.as_role(self._roles.tenant(tenant)) as connection:
            rows = await (await connection.execute(_QUERIES["files_of_tables"], asked)).fetchall()
        files = {
            (alias, tuple(namespace), name): (uuid, (location, sha256))
            for alias, namespace, name, uuid, location, sha256 in rows
        }
        found = [files.get((one.catalog, tuple(one.namespace), one.name)) for one in upstream]
        # Lineage may not know yet that another table has the name now.
        of_each = [
            None if it is None or one.uuid not in ("", it[0]) else it[1]
            for one, it in zip(upstream, found, strict=True)
        ]
        said = await self._said_by({file for file in of_each if file is not None})
        return tuple(
            _classified_view(one, None if file is None else said[file])
            for one, file in zip(upstream, of_each, strict=True)
        )

    async def _said_by(self, files: set[_File]) -> dict[_File, tuple[str, ...] | None]:
        """Return the classifications in metadata files; None for one in which they cannot be read."""
        said = {file: self._kept[file] for file in files if file in self._kept}
        unread = sorted(files - said.keys())
        for first in range(0, len(unread), FILES_AT_ONCE):
            some = unread[first : first + FILES_AT_ONCE]
            for file, metadata in zip(some, await self._files.read_old(some), strict=True):
                said[file] = None if metadata is None else classifications_of(metadata)
                if metadata is not None:
                    self._kept[file] = said[file]
        for file in files & self._kept.keys():
            self._kept.move_to_end(file)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return said


def _classified_view(table: UpstreamView, classifications: tuple[str, ...] | None) -> ClassifiedView:
    return ClassifiedView(
        catalog=table.catalog,
        namespace=table.namespace,
        name=table.name,
        uuid=table.uuid,
        hops=table.hops,
        is_known=classifications is not None,
        classifications=classifications or (),
    )


def findings_view(found: TableFindings) -> FindingsView:
    """
    Return what detection knows of a table as policies see it.
    """
    return FindingsView(
        columns=tuple(
            FindingView(
                column=one.column,
                field_id=one.field_id,
                kind=one.kind,
                confidence=one.confidence_percent,
                matches=one.matches,
                values=one.values,
                snapshot=one.snapshot,
                found_at=one.found_at,
                state=one.state.value,
            )
            for one in found.columns
        ),
        scanned_at=found.scanned_at,
        scanned_snapshot=found.scanned_snapshot,
        as_of=found.as_of,
    )


def _lineage_view(found: Upstream) -> LineageView:
    return LineageView(
        upstream=tuple(
            UpstreamView(
                catalog=one.catalog,
                namespace=one.namespace,
                name=one.name,
                uuid=one.table_uuid,
                hops=one.hops,
                kinds=one.kinds,
            )
            for one in found.tables
        ),
        as_of=found.as_of,
        is_cut=found.is_cut,
    )
