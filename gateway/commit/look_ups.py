# SPDX-License-Identifier: Apache-2.0
"""
What policies see of a table besides its metadata: what read models of the tenant's log know of it as of now.

Guarantee: a tenant's log and read models are read with the tenant's own role, which sees no other's. What cannot be
told is an error and never empty: the commit is undecidable.
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from gateway.database import Database
from gateway.errors import UnavailableError
from gateway.policy.variables import FindingsView, FindingView, LineageView, UpstreamView
from ledger.store.roles import Roles
from projections.errors import NotKnownNowError
from projections.lineage.upstream import Upstream, read_upstream
from projections.relational.current_findings import TableFindings, read_current


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
        Return what a table, by its event key and uuid, was made from; None is a table that is created.

        Raises:
            UnavailableError: if that cannot be told now.
        """


class ReadModels:
    """The read models of all tenants, over the connections of `database` (implements `LookUps`)."""

    def __init__(self, database: Database, roles: Roles) -> None:
        self._database = database
        self._roles = roles

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
    )
