# SPDX-License-Identifier: Apache-2.0
"""
The variables that are made of what was recorded are those that policies saw, for every kind of mutation; what cannot be
known any more is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.mutations import Operation
from gateway.replaying.variables import NO_METADATA, Known
from testkit.gateway.log_contents import path_of
from testkit.gateway.replays import READS_ALL, WatchedEngine, rebuilt
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, SALES, SCHEMA, TABLES, location_of_orders, properties
from testkit.gateway.table_requests import commit_of_staged, commit_to, snapshot, transaction
from testkit.gateway.view_requests import RENAME_VIEW, REPORT, VIEWS, view_created, view_renamed, view_replaced
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREFIX = "/v1/iceberg/lake"
WIDER: dict[str, Any] = {
    **SCHEMA,
    "fields": [*SCHEMA["fields"], {"id": 2, "name": "n", "type": "int", "required": False}],
}
ADD_COLUMN = {
    "requirements": [],
    "updates": [
        {"action": "add-schema", "schema": WIDER, "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
    ],
}


async def watched(gateway: Gateway) -> tuple[httpx.AsyncClient, WatchedEngine]:
    """A client whose requests are judged by a policy that reads everything, and what that saw."""
    parts = gateway.services.gateway
    await parts.admin.create_policy(
        gateway.acme.log_id, OPERATOR, policy_id="reads-all", text=PolicyText(expression=READS_ALL, message="no")
    )
    engine = WatchedEngine(parts.judge.engine)
    return gateway.through(judge=replace(parts.judge, engine=engine)), engine


async def make_everything(http: httpx.AsyncClient, gateway: Gateway) -> None:
    """Send one of each mutation, with agents of several names."""

    async def post(path: str, body: Any, status: int = 200) -> Any:
        answer = await http.post(path, json=body, headers={"X-Client-Version": "engine 1.0"})
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    await post(NAMESPACES, {"namespace": ["sales"], "properties": {"owner": "ada"}})
    await post(f"{SALES}/properties", {"updates": {"a": "1"}, "removals": ["owner"]})
    await post(TABLES, CREATE)
    await post(ORDERS, ADD_COLUMN)
    await post(ORDERS, snapshot(f"{(await location_of_orders(gateway)).rpartition('/')[0]}/snap-7.avro"))
    staged = await post(TABLES, {**CREATE, "name": "more", "stage-create": True})
    await post(f"{TABLES}/more", commit_of_staged(staged["metadata"]))
    both = transaction(*(commit_to(name, properties(a="2")) for name in ("orders", "more")))
    await post(f"{PREFIX}/transactions/commit", both, 204)
    renaming = {
        "source": {"namespace": ["sales"], "name": "more"},
        "destination": {"namespace": ["sales"], "name": "most"},
    }
    await post(f"{PREFIX}/tables/rename", renaming, 204)
    location = (await http.get(f"{TABLES}/most")).json()["metadata-location"]
    assert (await http.delete(f"{TABLES}/most")).status_code == 204
    await post(f"{SALES}/register", {"name": "again", "metadata-location": location})
    assert (await http.delete(f"{TABLES}/again?purgeRequested=true")).status_code == 204
    await post(VIEWS, view_created())
    await post(REPORT, view_replaced("SELECT 2"))
    await post(RENAME_VIEW, view_renamed(), 204)
    assert (await http.delete(f"{VIEWS}/summary")).status_code == 204
    await post(NAMESPACES, {"namespace": ["empty"]})
    assert (await http.delete(f"{NAMESPACES}/empty")).status_code == 204


async def test_they_are_what_policies_saw_of_every_kind_of_mutation(shared_gateway: Gateway) -> None:
    http, engine = await watched(shared_gateway)
    await make_everything(http, shared_gateway)
    found = await rebuilt(shared_gateway)
    operations = [decision.operation for decision, _ in found]
    left_out = set(Operation) - {Operation(operation) for operation in operations}
    assert left_out == {Operation.TABLE_UNREGISTER, Operation.VIEW_REGISTER}, "which are as others of their kind"
    # A staged create is judged and changes nothing, so it is not recorded.
    seen = [one for one in engine.seen if not _is_staged(one)]
    assert len(seen) == len(found), operations
    for (decision, variables), saw in zip(found, seen, strict=True):
        for name, variable in variables.items():
            assert isinstance(variable, Known), (decision.operation, name, variable)
            assert not variable.missing, (decision.operation, name)
            assert _plain(variable.members) == _plain(saw[name]), (decision.operation, name)


def _is_staged(saw: Mapping[str, Any]) -> bool:
    is_create = saw["commit"]["operation"] == "table.create" and saw["commit"]["name"] == "more"
    return is_create and bool(saw["request"]["path"] == TABLES)


def _plain(value: Any) -> Any:
    if isinstance(value, dict) or hasattr(value, "items"):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


async def test_what_was_refused_is_what_it_would_have_become(sales: Gateway) -> None:
    http, engine = await watched(sales)
    parts = sales.services.gateway
    await parts.admin.create_policy(
        sales.acme.log_id, OPERATOR, policy_id="never", text=PolicyText(expression="false", message="never")
    )
    assert (await http.post(ORDERS, json=ADD_COLUMN)).status_code == 403
    assert (await http.post(TABLES, json={**CREATE, "name": "more"})).status_code == 403
    (_, commit), (_, create) = (await rebuilt(sales))[-2:]
    saw_commit, saw_create = engine.seen[-2:]
    assert isinstance(commit["result"], Known)
    assert _plain(commit["result"].members) == _plain(saw_commit["result"])
    assert not commit["result"].missing
    assert isinstance(create["result"], Known)
    assert create["result"].missing == {"location", "uuid"}, "the catalog chooses these, and nothing was made"
    for field, value in create["result"].members.items():
        if field not in create["result"].missing:
            assert _plain(value) == _plain(saw_create["result"][field]), field


@pytest.mark.parametrize("harm", ["gone", "changed"])
async def test_a_metadata_file_that_is_not_the_committed_one_is_unknown(sales: Gateway, harm: str) -> None:
    location = await location_of_orders(sales)
    assert (await sales.http.post(ORDERS, json=properties(a="1"))).status_code == 200
    path = path_of(location)
    whole = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(whole.replace(b'"id"', b'"it"', 1))
    before, after = (variables for _, variables in (await rebuilt(sales))[-2:])
    assert before["result"] is NO_METADATA
    assert after["table"] is NO_METADATA
    assert isinstance(after["result"], Known), "the file of the outcome is there"
