# SPDX-License-Identifier: Apache-2.0
"""
Decisions about tables of foreign catalogs, judged again: on metadata with the digest that the log names, read through
the catalog that it is of, or else on nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import psycopg
import pytest
import pytest_asyncio
from fastapi import FastAPI

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.catalogs.judged_metadata import JUDGED_ON
from gateway.catalogs.upstream_files import LOCAL_FILES, LOCAL_FILES_ALLOWED
from gateway.catalogs.upstreams import Upstream
from gateway.replaying import replay as replaying
from gateway.replaying import variables as made
from gateway.replaying.comparing import Change
from gateway.replaying.explaining import explain
from gateway.replaying.recorded import Decision
from gateway.replaying.replay import Proposed
from gateway.replaying.variables import NO_METADATA, Known, Unknown
from lakeproof.services import Services
from ledger.errors import BrokenError, Fault
from testkit.gateway.log_contents import StoredEntry, path_of, read_stored
from testkit.gateway.replays import READS_ALL, WatchedEngine, rebuilt, replay
from testkit.gateway.sales import SCHEMA, create_orders, properties
from testkit.gateway.table_requests import commit_to, transaction
from testkit.servers.chained import BEYOND, LOCATED, Chained, open_chain, register_located

pytestmark = pytest.mark.asyncio(loop_scope="module")

WIDER = {
    "requirements": [],
    "updates": [
        {
            "action": "add-schema",
            "schema": {
                **SCHEMA,
                "fields": [*SCHEMA["fields"], {"id": 2, "name": "n", "type": "int", "required": False}],
            },
            "last-column-id": 2,
        },
        {"action": "set-current-schema", "schema-id": -1},
    ],
}
OWNED = "commit.operation != 'table.commit' || 'owner' in result.properties"


@pytest_asyncio.fixture(loop_scope="module")
async def chained(module_services: Services, module_app: FastAPI, module_url: str) -> AsyncIterator[Chained]:
    """Two gateways in a row; the near one has the far catalog as `located`, whose files it may read, and `beyond`."""
    async with open_chain(module_services, module_app, module_url) as chained:
        await register_located(chained, **{LOCAL_FILES: LOCAL_FILES_ALLOWED})
        yield chained


def tables(alias: str) -> str:
    return f"/v1/iceberg/{alias}/namespaces/sales/tables"


async def watched(chained: Chained) -> tuple[httpx.AsyncClient, WatchedEngine]:
    """A client whose requests are judged by a policy that reads everything, and what that saw."""
    await put(chained, "reads-all", READS_ALL)
    parts = chained.near.services.gateway
    engine = WatchedEngine(parts.judge.engine)
    return chained.near.through(judge=replace(parts.judge, engine=engine)), engine


async def put(chained: Chained, policy_id: str, expression: str) -> None:
    await chained.near.services.gateway.admin.create_policy(
        chained.near.acme.log_id, OPERATOR, policy_id=policy_id, text=PolicyText(expression=expression, message="no")
    )


async def send(http: httpx.AsyncClient, path: str, body: Any, status: int = 200) -> Any:
    answer = await http.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def of_foreign(chained: Chained) -> list[tuple[Decision, dict[str, Known | Unknown]]]:
    return await rebuilt(chained.near)


async def decisions(chained: Chained) -> list[StoredEntry]:
    stored = await read_stored(chained.near.services, chained.near.acme.log_id)
    return [one for one in stored if one.entry.type == "commit.decided"]


def plain(value: Any) -> Any:
    if hasattr(value, "items"):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


async def test_what_policies_saw_of_every_mutation_of_a_foreign_table_is_known(chained: Chained) -> None:
    before = len(await of_foreign(chained))
    http, engine = await watched(chained)
    orders = f"{tables(LOCATED)}/orders"
    await send(http, orders, WIDER)
    await send(http, orders, properties(a="1"))
    both = transaction(commit_to("orders", properties(a="2")))
    await send(http, f"/v1/iceberg/{LOCATED}/transactions/commit", both, 204)
    await put(chained, "owned", OWNED)
    await send(http, orders, properties(a="3"), 403)
    await send(http, orders, properties(owner="ada"))
    renaming = {
        "source": {"namespace": ["sales"], "name": "orders"},
        "destination": {"namespace": ["sales"], "name": "more"},
    }
    await send(http, f"/v1/iceberg/{LOCATED}/tables/rename", renaming, 204)
    assert (await http.delete(f"{tables(LOCATED)}/more")).status_code == 204
    found = (await of_foreign(chained))[before:]
    assert [decision.operation for decision, _ in found] == [
        *["table.commit"] * 5,
        "table.rename_from",
        "table.rename_to",
        "table.drop",
    ]
    assert len(engine.seen) == len(found)
    for (decision, variables), saw in zip(found, engine.seen, strict=True):
        for name, variable in variables.items():
            assert isinstance(variable, Known), (decision.operation, name, variable)
            assert not variable.missing, (decision.operation, name)
            assert plain(variable.members) == plain(saw[name]), (decision.operation, name)


async def test_a_registration_is_known_by_the_file_that_was_judged(chained: Chained) -> None:
    loaded = (await chained.http.get(f"{tables(LOCATED)}/orders")).json()
    http, engine = await watched(chained)
    assert (await http.post(f"{tables(LOCATED)}/orders/unregister")).status_code == 200
    body = {"name": "again", "metadata-location": loaded["metadata-location"]}
    await send(http, f"/v1/iceberg/{LOCATED}/namespaces/sales/register", body)
    decision, variables = (await of_foreign(chained))[-1]
    assert decision.operation == "table.register"
    result = variables["result"]
    assert isinstance(result, Known)
    assert plain(result.members) == plain(engine.seen[-1]["result"])


async def test_the_record_says_what_the_digest_is_of_and_where_the_file_was(chained: Chained) -> None:
    loaded = (await chained.http.get(f"{tables(LOCATED)}/orders")).json()
    await send(chained.http, f"{tables(LOCATED)}/orders", properties(a="1"))
    judged = json.loads((await decisions(chained))[-1].parts[JUDGED_ON])
    written = json.dumps(loaded["metadata"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert judged == {
        "location": loaded["metadata-location"],
        "of": "answer",
        "sha256": hashlib.sha256(written.encode()).hexdigest(),
    }


async def test_decisions_of_built_in_catalogs_say_nothing_more(chained: Chained) -> None:
    await create_orders(chained.http)
    assert set((await decisions(chained))[-1].parts) == {"inputs", "places", "principal", "verdicts"}


async def test_without_its_files_a_catalog_tells_what_it_still_has(chained: Chained) -> None:
    http, engine = await watched(chained)
    orders = f"{tables(BEYOND)}/orders"
    await send(http, orders, properties(a="1"))
    await put(chained, "owned", OWNED)
    await send(http, orders, properties(a="2"), 403)
    (_, passed), (_, refused) = (await of_foreign(chained))[-2:]
    assert passed["table"] is NO_METADATA, "that was changed, and `beyond` says nothing of its files"
    assert isinstance(refused["table"], Known)
    assert isinstance(refused["result"], Known)
    assert plain(refused["result"].members) == plain(engine.seen[-1]["result"])


@pytest.mark.parametrize("harm", ["gone", "changed"])
async def test_a_file_that_is_not_what_was_judged_is_unknown(chained: Chained, harm: str) -> None:
    location = (await chained.http.get(f"{tables(LOCATED)}/orders")).json()["metadata-location"]
    await send(chained.http, f"{tables(LOCATED)}/orders", properties(a="1"))
    assert isinstance((await of_foreign(chained))[-1][1]["table"], Known)
    path = path_of(location)
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b'"id"', b'"it"', 1))
    assert (await of_foreign(chained))[-1][1]["table"] is NO_METADATA


async def test_a_catalog_that_is_gone_makes_its_own_tables_unknown_and_no_others(chained: Chained) -> None:
    await send(chained.http, f"{tables(LOCATED)}/orders", properties(a="1"))
    await create_orders(chained.http)
    admin, log_id = chained.near.services.gateway.admin, chained.near.acme.log_id
    await admin.retire_catalog(log_id, OPERATOR, alias=LOCATED)
    found = {decision.path: variables["table"] for decision, variables in await of_foreign(chained)}
    assert found[f"{LOCATED}.sales.orders"] is NO_METADATA
    assert isinstance(found["lake.sales.orders"], Known)


async def test_a_catalog_that_does_not_answer_stops_no_replay(
    chained: Chained, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(chained.http, f"{tables(LOCATED)}/orders", properties(a="1"))
    await send(chained.http, f"{tables(LOCATED)}/orders", properties(a="2"))
    parts = chained.near.services.gateway
    catalog = parts.catalogs.made[chained.near.acme.tenant, LOCATED]
    assert isinstance(catalog, Upstream)
    monkeypatch.setattr(catalog, "options", {**catalog.options, "uri": "http://127.0.0.1:1"})
    monkeypatch.setattr(catalog, "endpoint", None)
    found = await replay(chained.near, Proposed(id="owned", expression=OWNED))
    assert found.counts[Change.UNKNOWN] == 2
    assert found.unknown.total() == 2


async def test_a_replay_and_an_explanation_use_it(chained: Chained) -> None:
    await put(chained, "owned", OWNED)
    await send(chained.http, f"{tables(LOCATED)}/orders", properties(a="1"), 403)
    await send(chained.http, f"{tables(LOCATED)}/orders", properties(owner="ada"))
    found = await replay(chained.near, Proposed(id="owned", expression="true"))
    assert [(group.change, group.path) for group in found.groups] == [(Change.WIDENED, f"{LOCATED}.sales.orders")]
    assert found.counts[Change.UNKNOWN] == 0
    parts, log_id = chained.near.services.gateway, chained.near.acme.log_id
    refused = next(one for one in await decisions(chained) if one.words == "rejected")
    explained = await explain(parts, chained.near.acme.tenant, log_id, refused.entry.index)
    assert explained.unknown == {}
    assert [rule.agrees for rule in explained.rules] == [True, True]


async def test_a_record_that_was_changed_stops_the_replay(chained: Chained) -> None:
    await send(chained.http, f"{tables(LOCATED)}/orders", properties(a="1"))
    with psycopg.connect(chained.near.services.installation.admin_dsn, autocommit=True) as owner:
        owner.execute(
            "UPDATE ledger.parts SET sealed = sealed || 'x' WHERE log_id = %s AND name = %s",
            (chained.near.acme.log_id, JUDGED_ON),
        )
    with pytest.raises(BrokenError) as caught:
        await replay(chained.near, Proposed(id="owned", expression=OWNED))
    assert caught.value.fault is Fault.PART


async def test_what_a_page_needs_stays_known_however_large_it_is(
    chained: Chained, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        await send(chained.http, f"{tables(LOCATED)}/orders", properties(a=str(number)))
    proposal = Proposed(id="owned", expression=OWNED)
    whole = await replay(chained.near, proposal)
    assert whole.counts[Change.UNKNOWN] == 0
    monkeypatch.setattr(made, "FILES_KEPT_BYTES_MAX", 1)
    assert (await replay(chained.near, proposal)).counts == whole.counts
    monkeypatch.setattr(replaying, "PREPARED_AT_ONCE", 1)
    assert (await replay(chained.near, proposal)).counts == whole.counts
