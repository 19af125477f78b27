"""
The act of a foreign catalog: the same client commits through a second alias, behind which another catalog server is.

A gateway is killed between forwarding a commit and writing down what became of it; the reconciler of the one that is
left finds it out from that server, and record and table agree.
"""

from __future__ import annotations

import asyncio
import secrets
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
UPSTREAM_TIMEOUT_S: Final = "2"
RECONCILE_AFTER_S: Final = "3"
SETTLED_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.1


async def foreign_catalog(stage: Stage) -> None:
    """Register the other server as a catalog, commit through it, and survive a kill in the middle."""
    await _register(stage)
    client = stage.client()
    await asyncio.to_thread(_create_and_append, client)
    written = await asyncio.to_thread(_count, client)
    stage.say(f"   PyIceberg wrote {written:,} customers to {ALIAS}.{'.'.join(CUSTOMERS)}, Parquet on S3")
    said = await _commit_through_doomed(stage)
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
    kept = stage.serving.services.foundation.secrets
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


async def _commit_through_doomed(stage: Stage) -> str:
    """Commit through a gateway that dies in the middle; return what the client learned."""
    environment = {
        **stage.environment(),
        "LAKEPROOF_UPSTREAM_TIMEOUT_S": UPSTREAM_TIMEOUT_S,
        "LAKEPROOF_RECONCILE_AFTER_S": RECONCILE_AFTER_S,
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
    async with asyncio.timeout(SETTLED_TIMEOUT_S):
        while True:
            await stage.projected()
            last = next(
                write for write in await stage.writes() if write.target == f"table:{ALIAS}/{'/'.join(CUSTOMERS)}"
            )
            if last.outcome not in {None, "unknown"}:
                return last
            await asyncio.sleep(POLL_S)
