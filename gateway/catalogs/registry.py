# SPDX-License-Identifier: Apache-2.0
"""
Finds the adapter of a catalog: which class serves its kind, made once per tenant and alias.

A registered alias never gets other options, so an adapter that was made stays right for as long as the process lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from gateway.catalogs.builtin import BuiltinCatalog
from gateway.catalogs.catalog import Forwards, SwapsPointer
from gateway.catalogs.catalog_places import LOCATION
from gateway.catalogs.glue import GlueCatalog
from gateway.catalogs.glue_options import GLUE
from gateway.catalogs.glue_upstream import GlueUpstream, glue_upstream
from gateway.catalogs.onward import Onward, format_hop
from gateway.catalogs.rest import RestCatalog
from gateway.catalogs.upstreams import Upstream, Upstreams
from gateway.database import Database
from gateway.errors import GatewayError, NotFoundError, PlaceContestedError
from gateway.fresh import FreshReads
from gateway.metadata.files import MetadataFiles
from ledger.store.roles import Roles

BUILTIN: Final = "builtin"
REST: Final = "rest"
KINDS: Final = {BUILTIN: BuiltinCatalog, REST: RestCatalog, GLUE: GlueCatalog}
"""The one list of kinds: a new adapter is one module and one line here."""
LOOK_ALIKES: Final = "look-alike-names"
"""The option that permits confusable names."""
LOOK_ALIKES_ALLOWED: Final = "allowed"

Adapter: TypeAlias = SwapsPointer | Forwards


class Registered(Protocol):
    """A catalog as the tenant's control plane has it."""

    @property
    def kind(self) -> str:
        """Return the kind of catalog: a key of `KINDS`."""

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options it was registered with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRegistry:
    """
    The adapters of one process.

    `contested` has the catalogs (tenant and alias) whose location another tenant holds, and why: they are not served
    until the operator decides. `warehouse` is the URI below which built-in catalogs keep their tables:
    `<warehouse>/<tenant>/<alias>/…`. `table_config` is what engines are given about the storage of each table of a
    built-in catalog, without credentials. `installation` is the id that requests to foreign catalogs carry.
    """

    database: Database
    fresh: FreshReads
    roles: Roles
    files: MetadataFiles
    warehouse: str
    table_config: Mapping[str, str]
    upstreams: Upstreams
    installation: str
    contested: Mapping[tuple[UUID, str], str] = field(default_factory=dict)
    made: dict[tuple[UUID, str], BuiltinCatalog | Upstream | GlueUpstream] = field(default_factory=dict, init=False)
    """By tenant and alias. Only `adapter` changes it, on the event loop, without awaiting in between."""

    def adapter(
        self, tenant: UUID, registered: Mapping[str, Registered], alias: str, onward: Onward | None = None
    ) -> Adapter:
        """
        Return the adapter of the catalog `alias` among those that the tenant has `registered`.

        `onward` is what a request hands on to a foreign catalog.

        Raises:
            NotFoundError: if the tenant has no such catalog; another tenant's does not count.
            PlaceContestedError: if its location is another tenant's, so that the operator has to decide.
            ForwardingLoopError: if the request has come through this very alias before.
        """
        catalog = registered.get(alias)
        if catalog is None or catalog.kind not in KINDS:
            raise no_such_catalog(alias)
        key = (tenant, alias)
        if self.contested and key in self.contested:
            raise PlaceContestedError(
                f"catalog {alias}: its location overlaps one that another tenant was first to register: the operator "
                "is notified, and can move the place or delete the catalog"
            )
        made = self.made.get(key)
        if made is None:
            made = self.made[key] = self._made(tenant, alias, catalog)
        match made:
            case BuiltinCatalog() as builtin:
                return builtin
            case Upstream() as upstream:
                hop = format_hop(installation=self.installation, tenant_hex=tenant.hex, alias=alias)
                return RestCatalog(upstream=upstream, onward=(onward or Onward()).through(hop))
            case GlueUpstream() as glue:
                # Glue forwards to nobody, and gives no access to files.
                return GlueCatalog(upstream=glue, onward=replace(onward or Onward(), hops=(), delegation=None))

    async def branch(self, tenant: UUID, registered: Mapping[str, Registered], alias: str) -> str | None:
        """
        Return the branch of a Nessie that is behind `alias`, "" if that does not say which; None without branches.
        """
        try:
            adapter = self.adapter(tenant, registered, alias)
        except GatewayError:
            return None  # nothing is done there, whatever is permitted
        if not isinstance(adapter, RestCatalog):
            return None
        try:
            return await adapter.branch_name()
        except GatewayError:
            return ""

    def folder(self, tenant: UUID, alias: str) -> str:
        """Return the folder (URI) of a built-in catalog in the warehouse."""
        # From the tenant and the alias alone, not from options: two tenants never share a folder.
        return f"{self.warehouse.rstrip('/')}/{tenant.hex}/{alias}"

    def _made(self, tenant: UUID, alias: str, catalog: Registered) -> BuiltinCatalog | Upstream | GlueUpstream:
        if catalog.kind == REST:
            return self.upstreams.upstream(tenant, alias, catalog.options)
        if catalog.kind == GLUE:
            return glue_upstream(self.upstreams, tenant, alias, catalog.options)
        return self._builtin(tenant, alias, catalog.options)

    def _builtin(self, tenant: UUID, alias: str, options: Mapping[str, str]) -> BuiltinCatalog:
        return BuiltinCatalog(
            alias=alias,
            tenant=tenant,
            reader=self.roles.tenant(tenant),
            warehouse=self.folder(tenant, alias),
            location=options.get(LOCATION),
            database=self.database,
            fresh=self.fresh,
            files=self.files,
            table_config=self.table_config,
            allows_look_alikes=options.get(LOOK_ALIKES) == LOOK_ALIKES_ALLOWED,
        )


def no_such_catalog(alias: str) -> NotFoundError:
    """
    Return the error for an alias that the tenant has not registered, or that the caller may not know of.
    """
    return NotFoundError(f"Catalog does not exist: {alias}", kind="NotFoundException")
