# SPDX-License-Identifier: Apache-2.0
"""
Rebuilds read models of an older version when a newer one starts; the old ones are read meanwhile.

Until then the runner of a log does not change them. A live generation of a newer version than ours is not touched: the
process that wrote it still runs, or was replaced by an older version on purpose.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

import psycopg

from lakeproof.projecting import attest
from lakeproof.services import Services
from ledger.errors import LedgerError
from projections.errors import NotProjectedError, RebuildRunningError
from projections.processing.generations import replace
from projections.processing.projection import Projection
from projections.processing.runner import ProjectionRunner

RETRY_S: Final = 5.0

_log = logging.getLogger(__name__)


async def replace_older(services: Services, runner: ProjectionRunner, projections: Sequence[Projection]) -> None:
    """
    Replace every live generation of an older version, one after the other; returns when there is none.

    Waits for a database or log that is unavailable. Repeating an interrupted replacement is harmless.
    """
    while True:
        try:
            if await _replace_all(services, runner, {projection.name: projection for projection in projections}):
                return
        except (psycopg.OperationalError, LedgerError) as error:
            _log.warning("read models of an older version wait for the database: %s", error)
        await asyncio.sleep(RETRY_S)


async def _replace_all(services: Services, runner: ProjectionRunner, projections: dict[str, Projection]) -> bool:
    """Replace what is older and free; return whether nothing older is left."""
    is_done = True
    installation = services.installation
    for each in await runner.progress():
        projection = projections[each.projection]
        if each.version is None or each.version >= projection.version:
            continue
        try:
            await replace(
                installation.as_role(installation.roles.projector),
                projection,
                each.log,
                append=partial(attest, services),
                opener=services.opener,
            )
            _log.info("projection %s of %s was built again for version %d", *_named(projection, each.log.origin))
        except (RebuildRunningError, NotProjectedError):
            is_done = False  # another process does it: check again
    return is_done


def _named(projection: Projection, origin: str) -> tuple[str, str, int]:
    return projection.name, origin, projection.version
