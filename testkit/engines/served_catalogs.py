# SPDX-License-Identifier: Apache-2.0
"""
Two catalogs behind one served gateway, for engines: `lake`, built in, and `far`, Apache Iceberg's own REST server.

Each has a tenant of its own, because what is checked at the end differs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from lakeproof.services import Services
from ledger.format.events import PurgeRequested
from testkit.engines.page import configuration
from testkit.gateway.log_contents import check_agreement, check_log, read_bare, words
from testkit.servers.chained import register
from testkit.servers.gateways import Gateway, open_gateway
from testkit.servers.iceberg_rest import start_iceberg_rest
from testkit.servers.loopback import serve_gateway
from testkit.servers.nessie import Nessie

LAKE: Final = "lake"
FAR: Final = "far"
ALIASES: Final = (LAKE, FAR)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCatalog:
    """A catalog as engines reach it."""

    alias: str
    url: str
    gateway: Gateway

    @property
    def key(self) -> str:
        """Return an API key that may do everything in it."""
        return self.gateway.acme.key.secret

    def configuration(self, engine: str, language: str) -> str:
        """Return what docs/engines.md tells a user of the engine to configure, for this catalog."""
        return configuration(engine, language, url=self.url, alias=self.alias, key=self.key)

    async def words(self, key: str) -> list[str]:
        """Return what the log says of a table, view or namespace, in short forms."""
        return await words(self.gateway.services, self.gateway.acme.log_id, key=key)

    async def decisions(self, key: str) -> list[str]:
        """Return the decisions that approved changes of a table, view or namespace, in the order of the log."""
        stored = await read_bare(self.gateway.services, self.gateway.acme.log_id, key=key)
        return [str(one.entry.group_id) for one in stored if one.words == "approved"]

    async def purges(self) -> list[str]:
        """Return the keys of the tables whose files are to be deleted, or were, as the log says."""
        stored = await read_bare(self.gateway.services, self.gateway.acme.log_id)
        return [one.entry.key for one in stored if one.entry.type == PurgeRequested.TYPE]

    async def refuse(self, policy_id: str, expression: str, message: str) -> None:
        """Make a policy."""
        admin, log_id = self.gateway.services.gateway.admin, self.gateway.acme.log_id
        await admin.create_policy(
            log_id, OPERATOR, policy_id=policy_id, text=PolicyText(expression=expression, message=message)
        )

    async def check(self) -> None:
        """Check that the log is whole, and agrees with the catalog's rows and metadata files if they are ours."""
        services, log_id = self.gateway.services, self.gateway.acme.log_id
        await check_log(services, log_id)
        if self.alias == LAKE:
            await check_agreement(services, log_id)
        async with services.gateway.database.as_role(services.gateway.roles.auditor) as connection:
            found = await connection.execute("SELECT key FROM gateway.open_decisions WHERE log_id = %s", (log_id,))
            assert await found.fetchall() == [], "every decision has its outcome"


@asynccontextmanager
async def serve_catalogs(services: Services) -> AsyncIterator[Mapping[str, ServedCatalog]]:
    """Yield both catalogs by alias; they are empty."""
    with start_iceberg_rest() as upstream:
        async with (
            open_gateway(services) as near,
            open_gateway(services, app=near.app) as beyond,
            serve_gateway(near.app) as url,
        ):
            await services.gateway.admin.create_catalog(
                beyond.acme.log_id, OPERATOR, alias=FAR, kind="rest", options={"uri": upstream.url}
            )
            yield {
                LAKE: ServedCatalog(alias=LAKE, url=url, gateway=near),
                FAR: ServedCatalog(alias=FAR, url=url, gateway=beyond),
            }


@asynccontextmanager
async def serve_branch(services: Services, nessie: Nessie, *, alias: str, branch: str) -> AsyncIterator[ServedCatalog]:
    """Yield a catalog that is a branch of Nessie."""
    async with open_gateway(services) as gateway, serve_gateway(gateway.app) as url:
        await register(gateway, alias, nessie.catalog(quote(branch, safe="")))
        yield ServedCatalog(alias=alias, url=url, gateway=gateway)
