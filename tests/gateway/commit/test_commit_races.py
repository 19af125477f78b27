# SPDX-License-Identifier: Apache-2.0
"""
Mutations that race with others: another commit, or a rule, key or alias that changes meanwhile.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.commit import commit_flow
from gateway.commit.commit_flow import STALE_MAX
from ledger.format.entry import Branch
from testkit.gateway.log_contents import check_agreement, path_of, read_stored, words
from testkit.gateway.sales import (
    CREATE,
    NAMESPACES,
    ORDERS,
    ORDERS_KEY,
    SCHEMA,
    TABLES,
    before_each_append,
    error_of,
    files_beside,
    location_of_orders,
    properties,
)
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

ATTEMPTS_MAX = 5


# Races


async def test_a_loser_whose_requirements_still_hold_is_tried_again(sales: Gateway) -> None:
    async def be_first(count: int) -> None:
        if count == 0:
            (await sales.http.post(ORDERS, json=properties(winner="yes"))).raise_for_status()

    client = sales.through(append=before_each_append(sales, be_first))
    answer = await client.post(ORDERS, json=properties(loser="yes"))
    assert answer.status_code == 200
    found = (await sales.http.get(ORDERS)).json()["metadata"]["properties"]
    assert (found["winner"], found["loser"]) == ("yes", "yes")
    told = (await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY))[-4:]
    assert [one.words for one in told] == ["approved", "accepted"] * 2
    assert told[2].decided.base == told[1].settled.metadata_location, "judged against what the winner made"
    named = {one.settled.metadata_location for one in told if one.words == "accepted"}
    files = files_beside(await location_of_orders(sales))
    assert len(files) == 3, "create, winner, loser; what the loser wrote first is gone"
    assert {str(path_of(str(location))) for location in named} <= files
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_loser_whose_requirement_fails_meanwhile_conflicts(sales: Gateway) -> None:
    other = {**SCHEMA, "fields": [*SCHEMA["fields"], {"id": 2, "name": "x", "type": "long", "required": False}]}
    updates = [{"action": "add-schema", "schema": other}, {"action": "set-current-schema", "schema-id": -1}]

    async def change_the_schema(count: int) -> None:
        if count == 0:
            body = {"requirements": [], "updates": updates}
            (await sales.http.post(ORDERS, json=body)).raise_for_status()

    client = sales.through(append=before_each_append(sales, change_the_schema))
    requirement = {"type": "assert-current-schema-id", "current-schema-id": 0}
    answer = await client.post(ORDERS, json=properties([requirement], owner="ada"))
    assert (answer.status_code, error_of(answer)["type"]) == (409, "CommitFailedException")
    assert error_of(answer)["message"] == "Requirement failed: current schema changed: expected id 0 != 1"
    assert (await words(sales.services, sales.acme.log_id))[-3:] == ["approved", "accepted", "conflicted"]


async def test_a_commit_that_always_loses_ends_with_a_conflict_on_the_record(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_flow, "ATTEMPTS_MAX", ATTEMPTS_MAX)

    async def be_first(count: int) -> None:
        (await sales.http.post(ORDERS, json=properties(winner=str(count)))).raise_for_status()

    client = sales.through(append=before_each_append(sales, be_first))
    answer = await client.post(ORDERS, json=properties(loser="yes"))
    assert (answer.status_code, error_of(answer)["type"]) == (409, "CommitFailedException")
    *_, decision, outcome = await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY)
    assert (decision.words, outcome.words) == ("approved", "conflicted")
    assert (decision.entry.branch, outcome.settled.metadata_location) == (Branch.ELSE, None)
    found = (await sales.http.get(ORDERS)).json()["metadata"]["properties"]
    assert "loser" not in found
    assert found["winner"] == str(ATTEMPTS_MAX - 1)
    files = files_beside(await location_of_orders(sales))
    assert len(files) == 1 + ATTEMPTS_MAX, "the create and the winners"
    await check_agreement(sales.services, sales.acme.log_id)


async def test_of_two_creates_one_wins_and_the_other_conflicts(shared_gateway: Gateway) -> None:
    await shared_gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})

    async def be_first(count: int) -> None:
        if count == 0:
            (await shared_gateway.http.post(TABLES, json=CREATE)).raise_for_status()

    answer = await shared_gateway.through(append=before_each_append(shared_gateway, be_first)).post(TABLES, json=CREATE)
    assert (answer.status_code, error_of(answer)["type"]) == (409, "AlreadyExistsException")
    told = await words(shared_gateway.services, shared_gateway.acme.log_id, key=ORDERS_KEY)
    assert told == ["approved", "accepted", "conflicted"]


# Rules that change meanwhile


def policy(number: int, expression: str = "true") -> dict[str, Any]:
    text = PolicyText(expression=expression, message=f"policy {number} says no")
    return {"policy_id": f"p{number}", "text": text}


async def test_a_commit_judged_by_older_policies_is_judged_again(sales: Gateway) -> None:
    parts = sales.services.gateway

    async def register(count: int) -> None:
        if count == 0:
            await parts.admin.create_policy(sales.acme.log_id, OPERATOR, **policy(1, "'owner' in result.properties"))

    location, files = await location_of_orders(sales), files_beside(await location_of_orders(sales))
    client = sales.through(append=before_each_append(sales, register))
    answer = await client.post(ORDERS, json=properties(colour="red"))
    assert (answer.status_code, error_of(answer)["message"]) == (403, "policy 1 says no (policy p1, version 1)")
    created, rejected = (await read_stored(sales.services, sales.acme.log_id))[-2:]
    assert (created.entry.type, rejected.words) == ("policy.created", "rejected")
    assert rejected.decided.as_of == created.entry.index
    assert (await location_of_orders(sales), files_beside(location)) == (location, files)


async def test_a_refusal_by_older_policies_is_judged_again_too(sales: Gateway) -> None:
    parts = sales.services.gateway
    await parts.admin.create_policy(sales.acme.log_id, OPERATOR, **policy(1, "false"))

    async def retire(count: int) -> None:
        if count == 0:
            await parts.admin.retire_policy(sales.acme.log_id, OPERATOR, policy_id="p1")

    client = sales.through(append=before_each_append(sales, retire))
    assert (await client.post(ORDERS, json=properties(colour="red"))).status_code == 200
    assert (await words(sales.services, sales.acme.log_id))[-2:] == ["approved", "accepted"]
    assert "rejected" not in await words(sales.services, sales.acme.log_id)


async def test_policies_that_never_stand_still_are_answered_503(sales: Gateway) -> None:
    parts = sales.services.gateway

    async def register(count: int) -> None:
        await parts.admin.create_policy(sales.acme.log_id, OPERATOR, **policy(count))

    told = await words(sales.services, sales.acme.log_id)
    files = files_beside(await location_of_orders(sales))
    answer = await sales.through(append=before_each_append(sales, register)).post(ORDERS, json=properties(a="b"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert len(await parts.admin.list_policies(sales.acme.log_id)) == STALE_MAX
    assert await words(sales.services, sales.acme.log_id) == told
    assert files_beside(await location_of_orders(sales)) == files


async def test_a_key_that_is_revoked_while_its_commit_is_judged_commits_nothing(sales: Gateway) -> None:
    parts, location = sales.services.gateway, await location_of_orders(sales)
    await parts.admin.create_access_rule(
        sales.acme.log_id, OPERATOR, rule_id="eve", effect="permit", expression="'writer' in roles"
    )
    issued = await parts.admin.create_key(sales.acme.log_id, OPERATOR, identity="eve", roles=["writer"])

    async def revoke(count: int) -> None:
        if count == 0:
            await parts.admin.revoke_key(sales.acme.log_id, OPERATOR, key_id=issued.id)

    client = sales.through(key=issued.secret, append=before_each_append(sales, revoke))
    assert (await client.post(ORDERS, json=properties(a="b"))).status_code == 401
    assert await location_of_orders(sales) == location


async def test_an_alias_that_is_retired_while_a_commit_is_judged_takes_nothing(sales: Gateway) -> None:
    parts, location = sales.services.gateway, await location_of_orders(sales)

    async def retire(count: int) -> None:
        if count == 0:
            await parts.admin.retire_catalog(sales.acme.log_id, OPERATOR, alias="lake")

    answer = await sales.through(append=before_each_append(sales, retire)).post(ORDERS, json=properties(a="b"))
    assert (answer.status_code, error_of(answer)["message"]) == (404, "Catalog does not exist: lake")
    assert await location_of_orders(sales) == location
