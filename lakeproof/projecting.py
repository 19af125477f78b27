# SPDX-License-Identifier: Apache-2.0
"""
The list of projections that an installation runs, the attestation of a rebuild, and their metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from gateway.database import Database
from lakeproof.services import Services, new_group_id, now
from ledger.format.event import SYSTEM_ACTOR, format_key
from ledger.format.events import ProjectionAttested, prepare_event
from ledger.format.sequence import Group
from ledger.store.read import Log
from ledger.store.session import Connection
from projections.errors import ProjectionError
from projections.exposition import format_metrics
from projections.graph.projection import GraphProjection
from projections.lineage.projection import LineageProjection
from projections.processing.cursors import Progress, read_progress
from projections.processing.generations import Rebuilt
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
VERSIONS: Final[Mapping[str, int]] = {projection.name: projection.version for projection in PROJECTIONS}


class ProjectionState(StrEnum):
    """What an operator does about a projection: nothing, wait, start `lakeproof up`, or `replace`."""

    CURRENT = "current"
    BEHIND = "behind"
    NOT_BEGUN = "not begun"
    OTHER_VERSION = "other version"


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
    event = prepare_event(
        attested, key=format_key("projection", (attested.projection,)), actor=SYSTEM_ACTOR, occurred_at=now()
    )
    await services.gateway.append(log.log_id, Group(id=new_group_id(), then=(event,)))


def find_projection(projections: Sequence[Projection], name: str) -> Projection:
    """
    Return the projection of a name.

    Raises:
        ProjectionError: if there is none; says which there are.
    """
    for projection in projections:
        if projection.name == name:
            return projection
    names = ", ".join(projection.name for projection in projections)
    raise ProjectionError(f"projection {name!r:.80}: expected one of {names}")


def progress_shown(progress: Progress, versions: Mapping[str, int]) -> dict[str, Any]:
    """
    Return how far a projection of a log is, as JSON; `versions` are those that run here.
    """
    return {
        "projection": progress.projection,
        "state": _state(progress, versions[progress.projection]).value,
        "generation": progress.generation,
        "version": progress.version,
        "next_index": progress.next_index,
        "size": progress.size,
        "lag_entries": progress.lag_entries,
    }


async def read_projections(connection: Connection, log_id: int) -> list[dict[str, Any]]:
    """
    Return how far the projections of a log are, as JSON; `connection` may work as the log's tenant.
    """
    return [progress_shown(each, VERSIONS) for each in await read_progress(connection, VERSIONS, log_id=log_id)]


def rebuilt_shown(rebuilt: Rebuilt) -> dict[str, Any]:
    """
    Return what came of a rebuild, as JSON.
    """
    attested = rebuilt.attested
    return {
        "projection": attested.projection,
        "replaced": rebuilt.replaced,
        "generation": attested.generation,
        "size": attested.size,
        "digest": attested.digest,
        "compared": rebuilt.compared,
    }


def _state(progress: Progress, version: int) -> ProjectionState:
    if progress.generation is None:
        return ProjectionState.NOT_BEGUN
    if progress.version != version:
        return ProjectionState.OTHER_VERSION
    return ProjectionState.BEHIND if progress.lag_entries else ProjectionState.CURRENT
