# SPDX-License-Identifier: Apache-2.0
"""
The acts of what arrives from outside: lineage, a webhook, and a snapshot that was committed behind the gateway's back.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from typing import Any, Final, TypeAlias
from uuid import uuid4

import httpx

from lakeproof.demo import engine, foreign_catalog, personal_data
from lakeproof.demo.api import TIMEOUT_S
from lakeproof.demo.engine import Client
from lakeproof.demo.scene_run import SceneRun
from lakeproof.demo.upstream import ALIAS as UPSTREAM_ALIAS
from ledger.format.entry import Entry

PRODUCER: Final = "https://example.com/etl/1.4"
SCHEMA_URL: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
STARTED_AT: Final = "2026-11-20T12:00:00Z"
COMPLETED_AT: Final = "2026-11-20T12:01:30Z"
BEHIND_ROWS: Final = 25

Table: TypeAlias = tuple[str, tuple[str, ...]]
"""The alias of a catalog, and the names of a table in it."""

REPORT: Final[Table] = ("s3://reports", ("customers",))


async def lineage_arrives(run: SceneRun) -> None:
    """Send a run, then one that would make a table from what was made of it."""
    first = await run.head()
    source, made = (engine.ALIAS, engine.CUSTOMERS), (foreign_catalog.ALIAS, foreign_catalog.CUSTOMERS)
    run_id = str(uuid4())
    for event_type, time in (("START", STARTED_AT), ("COMPLETE", COMPLETED_AT)):
        answer = await run.api.post("/v1/lineage", _run_event(run_id, event_type, time, source=source, made=made))
        if answer.status_code != httpx.codes.ACCEPTED:
            raise AssertionError(f"{event_type}: expected 202, found {answer.status_code}: {answer.text:.300}")
    run.say(f"   a run made {_spell(made)} from {_spell(source)}: START and COMPLETE, both 202 and in the log")
    report = _run_event(str(uuid4()), "COMPLETE", COMPLETED_AT, source=made, made=REPORT, job="monthly_report")
    answer = await run.api.post("/v1/lineage", report)
    if answer.status_code != httpx.codes.ACCEPTED:
        raise AssertionError(f"expected 202, found {answer.status_code}: {answer.text:.300}")
    run.say(f"   another read {_spell(made)} and made {_spell(REPORT)}, which is in no catalog here")
    backwards = _run_event(str(uuid4()), "COMPLETE", COMPLETED_AT, source=made, made=source)
    answer = await run.api.post("/v1/lineage", backwards)
    if answer.status_code != httpx.codes.UNPROCESSABLE_ENTITY:
        raise AssertionError(f"expected 422 for a cycle, found {answer.status_code}: {answer.text:.300}")
    run.say(f"   one that makes {_spell(source)} from {_spell(made)}: 422, {answer.json()['error']['message']}")
    await _await_entry(run, first, "lineage.cycle_found", 1)
    received = [entry for entry in await run.entries(first) if entry.type == "lineage.received"]
    if len(received) != 4:
        raise AssertionError(f"expected 4 lineage events in the log, found {len(received)}")
    run.say(f"   entries {', '.join(str(entry.index) for entry in received)}; the cycle is in the log too")


def _spell(table: Table) -> str:
    alias, name = table
    return f"{alias}.{'.'.join(name)}"


def _run_event(
    run_id: str, event_type: str, time: str, *, source: Table, made: Table, job: str = "copy_customers"
) -> dict[str, Any]:
    return {
        "eventType": event_type,
        "eventTime": time,
        "producer": PRODUCER,
        "schemaURL": SCHEMA_URL,
        "run": {"runId": run_id},
        "job": {"namespace": "etl", "name": job},
        "inputs": [_dataset(source)],
        "outputs": [_dataset(made) | {"facets": _column_lineage(source)}],
    }


def _dataset(table: Table) -> dict[str, Any]:
    alias, name = table
    return {"namespace": alias, "name": ".".join(name)}


def _column_lineage(source: Table) -> dict[str, Any]:
    return {
        "columnLineage": {
            "_producer": PRODUCER,
            "_schemaURL": "https://openlineage.io/spec/facets/1-2-0/ColumnLineageDatasetFacet.json",
            "fields": {"customer_id": {"inputFields": [_dataset(source) | {"field": "customer_id"}]}},
        }
    }


async def triggers_arrive(run: SceneRun) -> None:
    """Sign a webhook, then commit at the other server itself."""
    first = await run.head()
    location = await asyncio.to_thread(_metadata_location, run.client())
    refused, taken = await _webhook(run, location, forge=True), await _webhook(run, location, forge=False)
    if (refused, taken) != (httpx.codes.UNAUTHORIZED, httpx.codes.OK):
        raise AssertionError(f"expected 401 for a forged webhook and 200 for a signed one, found {refused} and {taken}")
    trigger = await _await_entry(run, first, "trigger.received", 1, source="polaris-webhook")
    run.say(f"   a webhook with a wrong signature: 401; a signed one: 200, entry {trigger[-1].index}")
    upstream = Client(url=run.upstream["url"], key=run.upstream["key"], storage=run.cloud.engine_properties())
    snapshot = await asyncio.to_thread(_commit_behind, upstream)
    observed = (await _await_entry(run, first, "commit.observed", 1))[-1]
    if observed.data["snapshot"] != snapshot:
        raise AssertionError(f"expected snapshot {snapshot} to be observed, found {observed.data['snapshot']}")
    run.say(f"   {BEHIND_ROWS} rows committed at {run.upstream['url']} itself, behind the gateway's back:")
    run.say(f"   S3 notified SNS, SNS notified SQS; entry {observed.index} says that snapshot {snapshot} is ungoverned")
    observed_entries = [entry for entry in await run.entries(first) if entry.type == "commit.observed"]
    if len(observed_entries) != 1:
        raise AssertionError(f"expected one ungoverned snapshot, found {len(observed_entries)}")


def _metadata_location(client: Client) -> str:
    return client.catalog(foreign_catalog.ALIAS).load_table(foreign_catalog.CUSTOMERS).metadata_location


async def _webhook(run: SceneRun, location: str, *, forge: bool) -> int:
    if run.webhook_secret is None:
        raise AssertionError("the scene has no webhook secret yet")
    body = json.dumps(
        {
            "tenant_id": str(run.founded.tenant),
            "metadata_location": location,
            "namespace": foreign_catalog.NAMESPACE,
            "table_name": foreign_catalog.CUSTOMERS[-1],
        }
    ).encode()
    secret = "guessed" if forge else run.webhook_secret
    signature = hmac.digest(secret.encode(), body, hashlib.sha256).hex()
    headers = {"X-Polaris-Signature": signature, "Content-Type": "application/json"}
    async with httpx.AsyncClient(base_url=run.serving.url, timeout=TIMEOUT_S) as client:
        return (await client.post("/v1/webhooks/polaris", content=body, headers=headers)).status_code


def _commit_behind(upstream: Client) -> str:
    """Append at the upstream as its own engine would; return the snapshot's id."""
    table = upstream.catalog(UPSTREAM_ALIAS).load_table(foreign_catalog.CUSTOMERS)
    table.append(personal_data.person_rows(10_000, BEHIND_ROWS))
    snapshot = table.refresh().current_snapshot()
    if snapshot is None:
        raise AssertionError("expected the table to have a snapshot")
    return str(snapshot.snapshot_id)


async def _await_entry(run: SceneRun, first: int, event_type: str, count: int, **data: str) -> list[Entry]:
    """
    Return the entries of a type from index `first`, once there are `count` of them whose data has these members.

    Raises:
        AssertionError: if they do not come.
    """
    found: list[Entry] = []

    async def poll() -> list[Entry] | None:
        nonlocal found
        found = [
            entry
            for entry in await run.entries(first)
            if entry.type == event_type and data.items() <= entry.data.items()
        ]
        return found if len(found) >= count else None

    async def expected() -> str:
        return f"expected {count} entries {event_type}, found {len(found)}; {await run.streams_progress()}"

    return await run.until(poll, expected=expected)
