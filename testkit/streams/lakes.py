# SPDX-License-Identifier: Apache-2.0
"""
Tenants with a catalog elsewhere, whose files are in a bucket of the test's own: what streams know of them, projected.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lakeproof.demo.cloud import Cloud
from ledger.format.events import CatalogCreated
from ledger.store.read import Log
from projections.lake.secrets import SecretDirectory
from projections.processing.projection import Projection
from projections.processing.runner import ProjectionRunner
from projections.relational.catalogs import CatalogsProjection
from projections.relational.commits import CommitsProjection
from testkit.streams.answering import happened
from testkit.streams.world import World

ALIAS = "partner"
TABLE = "wh/sales/orders"


async def new_lake(world: World, cloud: Cloud, *, secrets: Path, folder: str = "wh", **options: str) -> Log:
    """Make a tenant whose catalog `partner` is elsewhere, with its files below a folder of the bucket."""
    log = await world.new_log()
    assert log.tenant is not None
    SecretDirectory(secrets).write(log.tenant, "store", cloud.secret_access_key)
    settings: Mapping[str, str] = {
        "uri": "http://127.0.0.1:9",
        "location": f"s3://{cloud.bucket}/{folder}",
        "s3.endpoint": cloud.endpoint,
        "s3.region": cloud.region,
        "s3.access-key-id": cloud.access_key_id,
        "s3.secret-access-key": "secret:store",
        **options,
    }
    await world.tell(
        log, happened(CatalogCreated(id=ALIAS, version=1, kind="rest", options=settings), key=f"catalog:{ALIAS}")
    )
    await project(world, log)
    return log


async def project(world: World, log: Log, *projections: Projection) -> None:
    """Bring the projections that streams read to the end of the log (by default, all of them)."""
    dsn = world.installation.as_role(world.roles.projector)
    chosen = projections or (CatalogsProjection(), CommitsProjection())
    await ProjectionRunner(dsn, chosen).catch_up(log.log_id, await world.size(log))


async def data_of_type(world: World, log: Log, event_type: str) -> list[dict[str, Any]]:
    """Return the data of a log's entries of a type."""
    return [dict(entry.data) for entry in await world.entries(log, event_type)]
