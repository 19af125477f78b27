# SPDX-License-Identifier: Apache-2.0
"""
The list of projections that an installation runs, the attestation of a rebuild, and their metrics.
"""

from __future__ import annotations

from typing import Final

from gateway.database import Database
from lakeproof.services import Services, new_group_id, now
from ledger.format.event import SYSTEM_ACTOR, Event, format_key, prepare
from ledger.format.events import ProjectionAttested, to_data
from ledger.format.sequence import Group
from ledger.store.read import Log
from projections.exposition import format_metrics
from projections.graph.projection import GraphProjection
from projections.lineage.projection import LineageProjection
from projections.processing.projection import Projection
from projections.relational.catalogs import CatalogsProjection
from projections.relational.commits import CommitsProjection
from projections.relational.findings import FindingsProjection
from projections.relational.metrics import MetricsProjection, read_metrics

GRAPH: Final = GraphProjection()
PROJECTIONS: Final[tuple[Projection, ...]] = (
    CommitsProjection(),
    MetricsProjection(),
    CatalogsProjection(),
    LineageProjection(),
    FindingsProjection(),
    GRAPH,
)


async def metrics_text(database: Database, role: str) -> str:
    """
    Return the projections' metrics over all logs that `role` may see, in the format of Prometheus.

    Raises:
        UnavailableError: if the database cannot be reached.
    """
    async with database.as_role(role) as connection:
        return format_metrics(await read_metrics(connection, [projection.name for projection in PROJECTIONS]))


async def attest(services: Services, log: Log, attested: ProjectionAttested) -> None:
    """
    Append the attestation that a generation of a projection of `log` was built, with its digest.

    Raises:
        LedgerError: if it cannot be appended.
    """
    event = Event(
        type=ProjectionAttested.TYPE,
        version=ProjectionAttested.VERSION,
        key=format_key("projection", (attested.projection,)),
        actor=SYSTEM_ACTOR,
        occurred_at=now(),
        data=to_data(attested),
    )
    await services.gateway.append(log.log_id, Group(id=new_group_id(), then=(prepare(event),)))
