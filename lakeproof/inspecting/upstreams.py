# SPDX-License-Identifier: Apache-2.0
"""
Asks the foreign catalog behind an alias whether it answers, over connections of its own: no gateway needs to run.
"""

from __future__ import annotations

from uuid import UUID

from gateway.catalogs.upstream import open_client
from gateway.catalogs.upstreams import Upstreams
from gateway.control.aggregates import Catalog
from gateway.http import checking
from gateway.http.checking import UpstreamFound
from lakeproof.installation import Installation


async def check_upstream(installation: Installation, tenant: UUID, catalog: Catalog) -> UpstreamFound:
    """
    Ask what is behind a catalog as `gateway.http.checking.check_upstream` does.
    """
    settings = installation.settings
    async with open_client(settings.upstreams_allowed) as client:
        upstreams = Upstreams(client=client, secrets=installation.secrets, timeout_s=settings.upstream_timeout_s)
        return await checking.check_upstream(upstreams, catalog, tenant=tenant, installation=installation.id)
