# SPDX-License-Identifier: Apache-2.0
"""
The act of the foreign catalog: the same client commits through a second alias, to another catalog server.

A gateway is killed between forwarding a commit and recording its outcome. The reconciler of the other gateway finds the
outcome at that server; log and table agree.
"""

from __future__ import annotations

import asyncio
import secrets
from math import ceil
from time import perf_counter
from typing import Final

from pyiceberg.exceptions import RESTError
from requests.exceptions import RequestException

from lakeproof.demo import personal_data
from lakeproof.demo.engine import Client
from lakeproof.demo.helper_process import run_helper
from lakeproof.demo.scene_run import SceneRun
from lakeproof.demo.upstream import ALIAS as UPSTREAM_ALIAS
from projections.graph.read import Write

ALIAS: Final = "partner"
NAMESPACE: Final = "crm"
CUSTOMERS: Final = (NAMESPACE, "customers")
ROWS: Final = 500
TIMES_LONGER: Final = 4
"""The timeout for one commit of the other server, in multiples of the time that two commits have just taken."""
UPSTREAM_TIMEOUT_S_MIN, UPSTREAM_TIMEOUT_S_MAX = 2, 600
RECONCILE_LATER_S: Final = 1


async def foreign_catalog(run: SceneRun) -> None:
    """Register the other server as a catalog, commit through it, and survive a kill in the middle."""
    await _register(run)
    client = run.client()
    began = perf_counter()
    await asyncio.to_thread(_create_and_append, client)
    took_s = perf_counter() - began
    written = await asyncio.to_thread(_count, client)
    run.say(f"   PyIceberg wrote {written:,} customers to {ALIAS}.{'.'.join(CUSTOMERS)}, Parquet on S3")
    said = await _commit_through_doomed(run, timeout_s=_timeout_s(took_s))
    run.say(f"   a second gateway was killed right after {ALIAS!r} took a commit; its client got: {said}")
    write = await _settled(run)
    count = await asyncio.to_thread(_count, client)
    if write.outcome != "accepted" or count != written + ROWS:
        raise AssertionError(
            f"expected the commit accepted and {written + ROWS} customers, found {write.outcome} and {count}"
        )
    run.say(
        f"   the reconciler looked at {ALIAS!r}: decision {write.index} is {write.outcome}; {count:,} customers, once"
    )


async def _register(run: SceneRun) -> None:
    """Do what an operator does: store the secrets, then name them in the catalog's options."""
    upstream = run.upstream
    kept = run.serving.services.installation.secrets
    run.webhook_secret = secrets.token_urlsafe(24)
    for name, value in (
        ("partner-key", upstream["key"]),
        ("partner-store", run.cloud.secret_access_key),
        ("partner-webhook", run.webhook_secret),
    ):
        kept.write(run.founded.tenant, name, value)
    options = {
        "uri": upstream["url"],
        "warehouse": UPSTREAM_ALIAS,
        "token": "secret:partner-key",
        "location": f"{run.cloud.warehouse}/{upstream['tenant']}/{UPSTREAM_ALIAS}",
        "s3.endpoint": run.cloud.endpoint,
        "s3.region": run.cloud.region,
        "s3.access-key-id": run.cloud.access_key_id,
        "s3.secret-access-key": "secret:partner-store",
        "webhook-secret": "secret:partner-webhook",
    }
    await run.api.create("/v1/catalogs", {"alias": ALIAS, "kind": "rest", "options": options})
    run.say(f"   catalog {ALIAS!r} is another server, {upstream['url']}, with its warehouse in {run.cloud.warehouse}")


def _create_and_append(client: Client) -> None:
    catalog = client.catalog(ALIAS)
    catalog.create_namespace(NAMESPACE)
    first = personal_data.person_rows(0, ROWS)
    with catalog.create_table_transaction(CUSTOMERS, schema=first.schema) as staged:
        staged.append(first)


def _append(client: Client) -> None:
    client.catalog(ALIAS).load_table(CUSTOMERS).append(personal_data.person_rows(ROWS, ROWS))


def _count(client: Client) -> int:
    return int(client.catalog(ALIAS).load_table(CUSTOMERS).scan().to_arrow().num_rows)


def _timeout_s(took_s: float) -> int:
    """
    Return how long the gateway waits for the other server, from the time that two commits have just taken.

    As short as possible: the outcome of a commit is not looked for before that time is over.
    """
    return min(max(ceil(TIMES_LONGER * took_s), UPSTREAM_TIMEOUT_S_MIN), UPSTREAM_TIMEOUT_S_MAX)


async def _commit_through_doomed(run: SceneRun, *, timeout_s: int) -> str:
    """Commit through a gateway that dies in the middle; return the client's error."""
    environment = {
        **run.environment(),
        "LAKEPROOF_UPSTREAM_TIMEOUT_S": str(timeout_s),
        "LAKEPROOF_RECONCILE_AFTER_S": str(timeout_s + RECONCILE_LATER_S),
    }
    async with run_helper("killed_gateway", environment) as helper:
        try:
            await asyncio.to_thread(_append, run.client(url=helper.facts["url"]))
        except (RequestException, RESTError) as error:
            failure = type(error).__name__
        else:
            raise AssertionError("expected the gateway to be killed in the middle of the commit, and it answered")
        await helper.ended()
    return failure


async def _settled(run: SceneRun) -> Write:
    """Return the last write to the catalog once its outcome is known."""
    target = f"table:{ALIAS}/{'/'.join(CUSTOMERS)}"

    async def poll() -> Write | None:
        await run.projected()
        last = next(write for write in await run.writes() if write.target == target)
        return None if last.outcome in {None, "unknown"} else last

    async def expected() -> str:
        return f"expected the reconciler to find out what became of the last write to {target}"

    return await run.until(poll, expected=expected)
