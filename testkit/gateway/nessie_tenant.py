# SPDX-License-Identifier: Apache-2.0
"""
A tenant whose catalog `far` is a branch of Nessie: what a table ever had is in Nessie's log, not in the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from lakeproof.services import Services
from testkit.gateway.foreign_tenant import ForeignTenant, open_far
from testkit.servers.nessie import Nessie, snapshots_in


@dataclass(kw_only=True)
class NessieTenant(ForeignTenant):
    """A gateway whose catalog `far` is the branch `main` of `nessie`."""

    nessie: Nessie

    async def snapshots(self) -> set[str]:
        """Return the ids of the snapshots that the table ever had on the branch."""
        return snapshots_in(await self.states())

    async def states(self) -> list[dict[str, Any]]:
        """Return what Nessie's log has of the table, newest first; of what was dropped, nothing."""
        return await asyncio.to_thread(self.nessie.states, "sales", self.name)


@asynccontextmanager
async def open_nessie_tenant(
    services: Services,
    nessie: Nessie,
    *,
    secrets: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> AsyncIterator[NessieTenant]:
    """Yield a new tenant with catalog `far` at the branch `main`, which logs in by `options` and `secrets`."""
    make = partial(NessieTenant, nessie=nessie)
    async with open_far(
        services, nessie.iceberg, make=make, headers=nessie.headers, secrets=secrets, options=options
    ) as far:
        assert isinstance(far, NessieTenant)
        yield far
