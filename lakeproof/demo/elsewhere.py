"""
The act of a foreign catalog: the same client commits through a second alias, behind which another catalog server is.

A gateway is killed between forwarding a commit and writing down what became of it; the reconciler of the one that is
left finds it out from that server, and record and table agree.
"""

from __future__ import annotations

import asyncio
import secrets
from math import ceil
from time import perf_counter
from typing import Final

from pyiceberg.exceptions import RESTError
from requests.exceptions import RequestException

from lakeproof.demo import people
from lakeproof.demo.beside import beside
from lakeproof.demo.engine import Client
from lakeproof.demo.stage import Stage
from lakeproof.demo.upstream import ALIAS as UPSTREAM_ALIAS
from projections.graph.read import Write

ALIAS: Final = "partner"
NAMESPACE: Final = "crm"
CUSTOMERS: Final = (NAMESPACE, "customers")
ROWS: Final = 500
TIMES_LONGER: Final = 4
"""So much longer than two commits have just taken, the other server may take for one before it is given up."""
UPSTREAM_TIMEOUT_S_MIN, UPSTREAM_TIMEOUT_S_MAX = 2, 600
RECONCILE_LATER_S: Final = 1


async def foreign_catalog(stage: Stage) -> None:
    """Register the other server as a catalog, commit through it, and survive a kill in the middle."""
    await _register(stage)
    client = stage.client()
    began = perf_counter()
    await asyncio.to_thread(_create_and_append, client)
    took_s = perf_counter() - began
    written = await asyncio.to_thread(_count, client)
    stage.say(f"   PyIceberg wrote {written:,} customers to {ALIAS}.{'.'.join(CUSTOMERS)}, Parquet on S3")
    said = await _commit_through_doomed(stage, timeout_s=_timeout_s(took_s))
    stage.say(f"   a second gateway was killed right after {ALIAS!r} took a commit; its client was told: {said}")
    write = await _settled(stage)
    count = await asyncio.to_thread(_count, client)
    if write.outcome != "accepted" or count != written + ROWS:
        raise AssertionError(
            f"expected the commit accepted and {written + ROWS} customers, found {write.outcome} and {count}"
        )
    stage.say(
        f"   the reconciler asked {ALIAS!r}: decision {write.index} is {write.outcome}; {count:,} customers, once"
    )


async def _register(stage: Stage) -> None:
    """What an operator does: store the secrets, then name them in the catalog's options."""
    upstream = stage.upstream
    kept = stage.serving.services.installation.secrets
    stage.webhook_secret = secrets.token_urlsafe(24)
    for name, value in (
        ("partner-key", upstream["key"]),
        ("partner-store", stage.cloud.secret_access_key),
        ("partner-webhook", stage.webhook_secret),
    ):
        kept.write(stage.founded.tenant, name, value)
    options = {
        "uri": upstream["url"],
        "warehouse": UPSTREAM_ALIAS,
        "token": "secret:partner-key",
        "location": f"{stage.cloud.warehouse}/{upstream['tenant']}/{UPSTREAM_ALIAS}",
        "s3.endpoint": stage.cloud.endpoint,
        "s3.region": stage.cloud.region,
        "s3.access-key-id": stage.cloud.access_key_id,
        "s3.secret-access-key": "secret:partner-store",
        "webhook-secret": "secret:partner-webhook",
    }
    await stage.api.create("/v1/catalogs", {"alias": ALIAS, "kind": "rest", "options": options})
    stage.say(
        f"   catalog {ALIAS!r} is another server, {upstream['url']}, with its warehouse in {stage.cloud.warehouse}"
    )


def _create_and_append(client: Client) -> None:
    catalog = client.catalog(ALIAS)
    catalog.create_namespace(NAMESPACE)
    first = people.people(0, ROWS)
    with catalog.create_table_transaction(CUSTOMERS, schema=first.schema) as staged:
        staged.append(first)


def _append(client: Client) -> None:
    client.catalog(ALIAS).load_table(CUSTOMERS).append(people.people(ROWS, ROWS))


def _count(client: Client) -> int:
    return int(client.catalog(ALIAS).load_table(CUSTOMERS).scan().to_arrow().num_rows)


def _timeout_s(took_s: float) -> int:
    """
    Return how long the doomed gateway waits for the other server, from what two commits have just taken here.

    No longer than it must: nobody looks for the outcome of a commit before that time is over.
    """
    return min(max(ceil(TIMES_LONGER * took_s), UPSTREAM_TIMEOUT_S_MIN), UPSTREAM_TIMEOUT_S_MAX)


async def _commit_through_doomed(stage: Stage, *, timeout_s: int) -> str:
    """Commit through a gateway that dies in the middle; return what the client learned."""
    environment = {
        **stage.environment(),
        "LAKEPROOF_UPSTREAM_TIMEOUT_S": str(timeout_s),
        "LAKEPROOF_RECONCILE_AFTER_S": str(timeout_s + RECONCILE_LATER_S),
    }
    async with beside("doomed", environment) as doomed:
        try:
            await asyncio.to_thread(_append, stage.client(url=doomed.said["url"]))
        except (RequestException, RESTError) as error:
            told = type(error).__name__
        else:
            raise AssertionError("expected the gateway to be killed in the middle of the commit, and it answered")
        await doomed.ended()
    return told


async def _settled(stage: Stage) -> Write:
    """Return the last write to the catalog once its outcome is known."""
    target = f"table:{ALIAS}/{'/'.join(CUSTOMERS)}"

    async def look() -> Write | None:
        await stage.projected()
        last = next(write for write in await stage.writes() if write.target == target)
        return None if last.outcome in {None, "unknown"} else last

    async def expected() -> str:
        return f"expected the reconciler to find out what became of the last write to {target}"

    return await stage.until(look, expected=expected)
