# SPDX-License-Identifier: Apache-2.0
"""
Policy files over HTTP before anything is saved: tested, linted, compiled; and replayed over recorded decisions.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from gateway.http.policy_answers import (
    PoliciesCompiled,
    PoliciesLinted,
    PoliciesTested,
    PolicyReplayAttested,
    PolicyReplayDone,
    PolicyReplayShown,
    PolicyReplaysShown,
)
from gateway.http.policy_file_routes import BODY_SIZE_BYTES_MAX, POLICIES_MAX
from testkit.gateway.jobs import ended, replaying
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import ORDERS, another_key, error_of, properties
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

PURGE = """\
id: no-purge
expression: |
  !commit.purge
  || "admin" in principal.roles
message: Ask an administrator
examples:
  - expect: allow
    name: no purge
    given: {}
  - expect: deny
    name: a purge
    given: {commit: {purge: true}}
"""
REPLAYS = "/v1/policy-replays"
DRAFTS_ALONE = "'drafter' in roles && contentType == 'CONFIG_POLICY_DRAFT' && path == '.config.policy_draft.no-purge'"


def files(*texts: str, **more: Any) -> dict[str, Any]:
    return {"policies": [{"name": f"{place}.yaml", "text": text} for place, text in enumerate(texts)], **more}


async def sent(http: httpx.AsyncClient, verb: str, body: dict[str, Any], status: int = 200) -> httpx.Response:
    answer = await http.post(f"/v1/policies/{verb}", json=body)
    assert answer.status_code == status, answer.text
    return answer


async def drafter_of(gateway: Gateway) -> httpx.AsyncClient:
    """A client of somebody who may write drafts of one policy, and nothing else."""
    rule = {"id": "drafters", "effect": "permit", "expression": DRAFTS_ALONE}
    assert (await gateway.http.post("/v1/access-rules", json=rule)).status_code == 201
    return gateway.client(await another_key(gateway, "grace@acme.example", "drafter"))


async def test_examples_are_run_and_their_branches_and_mutants_are_told_of(shared_gateway: Gateway) -> None:
    answer = await sent(shared_gateway.http, "test", files(PURGE, coverage=True, mutation=True))
    found = PoliciesTested.model_validate_json(answer.content)
    (tested,) = found.policies
    assert (found.clean, tested.file, tested.id, tested.examples, tested.failing) == (True, "0.yaml", "no-purge", 2, [])
    assert tested.coverage is not None
    (missing,) = tested.coverage.missing
    assert (missing.line, missing.column, missing.never) == (4, 6, "true")
    assert tested.mutation is not None
    assert tested.mutation.killed < tested.mutation.mutants


async def test_what_does_not_hold_or_does_not_compile_is_not_clean(shared_gateway: Gateway) -> None:
    wrong = PURGE.replace("!commit.purge", "commit.purge")
    unknown = PURGE.replace("!commit.purge", "!comit.purge").replace("no-purge", "other")
    answer = await sent(shared_gateway.http, "test", files(wrong, unknown))
    found = PoliciesTested.model_validate_json(answer.content)
    assert not found.clean
    failing, refused = found.policies
    assert failing.failing[1] == "example 2 (a purge): expected deny, found allow"
    assert failing.coverage is None
    assert refused.refused is not None
    assert (refused.refused.line, refused.refused.column) == (3, 4)
    assert "commit" in refused.refused.reason


async def test_what_looks_wrong_is_found_with_its_place(shared_gateway: Gateway) -> None:
    answer = await sent(shared_gateway.http, "lint", files(PURGE))
    assert PoliciesLinted.model_validate_json(answer.content).clean
    answer = await sent(shared_gateway.http, "lint", files("id: p\nexpression: 'true'\nmessage: no\n"))
    found = PoliciesLinted.model_validate_json(answer.content)
    assert not found.clean
    assert {one.rule for one in found.findings} >= {"always", "examples"}
    assert all(one.file == "0.yaml" and one.line > 0 for one in found.findings)


async def test_an_expression_or_files_are_compiled(shared_gateway: Gateway) -> None:
    loops = "table.columns.all(c, result.columns.exists(r, r.id == c.id))"
    answer = await sent(shared_gateway.http, "compile", {"expression": loops})
    (compiled,) = PoliciesCompiled.model_validate_json(answer.content).policies
    assert (compiled.cost, compiled.reads) == ("quadratic", ["result.columns", "table.columns"])
    answer = await sent(shared_gateway.http, "compile", files(PURGE))
    assert PoliciesCompiled.model_validate_json(answer.content).policies[0].id == "no-purge"
    answer = await sent(shared_gateway.http, "compile", {"expression": "(tabel)"})
    found = PoliciesCompiled.model_validate_json(answer.content)
    assert (found.clean, found.policies[0].refused is None) == (False, False)
    for neither in ({}, {**files(PURGE), "expression": loops}):
        await sent(shared_gateway.http, "compile", neither, 400)


@pytest.mark.parametrize("verb", ["test", "lint", "compile"])
async def test_what_is_no_policy_is_refused_with_its_file_and_place(shared_gateway: Gateway, verb: str) -> None:
    answer = await sent(shared_gateway.http, verb, files(PURGE, "id: p\nexpresion: 'true'\n"), 400)
    assert error_of(answer)["message"].startswith("1.yaml:2:1: ")
    twice = await sent(shared_gateway.http, verb, files(PURGE, PURGE), 400)
    assert "which is the id of 0.yaml, too" in error_of(twice)["message"]
    await sent(shared_gateway.http, verb, files(PURGE.replace("no-purge", "No Purge")), 400)
    await sent(shared_gateway.http, verb, files(*[PURGE] * (POLICIES_MAX + 1)), 400)
    await sent(shared_gateway.http, verb, files("#" * BODY_SIZE_BYTES_MAX), 413)


@pytest.mark.parametrize("verb", ["test", "lint", "compile"])
async def test_it_takes_the_right_to_write_a_draft_of_each_policy(shared_gateway: Gateway, verb: str) -> None:
    async with await drafter_of(shared_gateway) as drafter:
        await sent(drafter, verb, files(PURGE))
        await sent(drafter, verb, files(PURGE, PURGE.replace("no-purge", "another")), 403)
    await sent(shared_gateway.client(""), verb, files(PURGE), 401)


async def test_policies_with_the_names_of_verbs_are_policies_like_others(shared_gateway: Gateway) -> None:
    for policy_id in ("test", "lint", "compile"):
        policy = {"id": policy_id, "expression": "true", "message": "m"}
        assert (await shared_gateway.http.post("/v1/policies", json=policy)).status_code == 201
        assert (await shared_gateway.http.get(f"/v1/policies/{policy_id}")).json()["id"] == policy_id
        assert (await shared_gateway.http.delete(f"/v1/policies/{policy_id}")).status_code == 204


# Replays


@pytest_asyncio.fixture(loop_scope="module")
async def busy(sales: Gateway) -> Gateway:
    """A commit that has an owner, and one that has none."""
    for changed in (properties(owner="ada"), properties(a="1")):
        assert (await sales.http.post(ORDERS, json=changed)).status_code == 200
    return sales


OWNED = (
    "id: owned\nexpression: |\n  commit.operation != 'table.commit' ||\n  'owner' in result.properties\nmessage: no\n"
)
KEEPS = "id: purge\nexpression: '!commit.purge'\nmessage: no\n"


async def begun(http: httpx.AsyncClient, body: dict[str, Any], status: int = 202) -> httpx.Response:
    answer = await http.post(REPLAYS, json=body)
    assert answer.status_code == status, answer.text
    return answer


async def test_a_replay_says_what_would_change_and_is_attested(busy: Gateway) -> None:
    answer = await begun(busy.http, files(OWNED, KEEPS, coverage=True))
    job = PolicyReplayShown.model_validate_json(answer.content)
    assert [policy.id for policy in job.policies] == ["owned", "purge"]
    place = answer.headers["location"]
    assert place == f"{REPLAYS}/{job.id}"
    assert (await busy.http.post(f"{place}/attest")).status_code == 409, "it has found nothing yet"
    async with replaying(busy.services):
        await ended(busy.http, place)
    done = PolicyReplayDone.model_validate_json((await busy.http.get(place)).content)
    assert (done.state, done.problem) == ("done", None)
    assert done.result is not None
    assert (done.result.counts.narrowed, done.result.counts.widened) == (0, 0), "the owner stays"
    owned, purge = done.result.coverage
    assert (owned.policy, [(one.line, one.column) for one in owned.branches]) == ("owned", [(1, 1), (1, 1), (2, 1)])
    assert owned.branches[2].true == 2
    assert [one.never for one in purge.missing] == ["false"]
    listed = PolicyReplaysShown.model_validate_json((await busy.http.get(REPLAYS)).content)
    assert [one.id for one in listed.policy_replays] == [job.id]
    attested = await busy.http.post(f"{place}/attest")
    index = PolicyReplayAttested.model_validate_json(attested.content).index
    assert (await read_stored(busy.services, busy.acme.log_id))[-1].entry.index == index
    assert (await busy.http.delete(place)).status_code == 404, "it has ended"


async def test_changes_are_told_by_the_names_of_callers_and_branches_only_when_asked(busy: Gateway) -> None:
    answer = await begun(busy.http, files("id: none\nexpression: commit.kind != 'table'\nmessage: no\n", since="1h"))
    async with replaying(busy.services):
        await ended(busy.http, answer.headers["location"])
    done = PolicyReplayDone.model_validate_json((await busy.http.get(answer.headers["location"])).content)
    assert done.result is not None
    (change,) = done.result.changes
    assert (change.change, change.rule, change.principal) == ("narrowed", "none", "ada@acme.example")
    assert done.result.by_principal[0].principal == "ada@acme.example"
    assert (done.coverage, done.result.coverage) == (False, [])


async def test_one_replay_is_under_way_at_a_time_and_is_cancelled(busy: Gateway) -> None:
    place = (await begun(busy.http, files(OWNED))).headers["location"]
    again = await begun(busy.http, files(OWNED), 409)
    assert error_of(again)["type"] == "ReplayRunningException"
    assert (await busy.http.delete(place)).status_code == 204
    assert (await busy.http.get(place)).json()["state"] == "cancelled"
    assert (await busy.http.delete(place)).status_code == 404
    assert (await busy.http.get(f"{REPLAYS}/{uuid4()}")).status_code == 404
    assert (await busy.http.get(f"{REPLAYS}/none")).status_code == 400


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (OWNED, {"since": "yesterday"}),
        (OWNED, {"since": "0d"}),
        (OWNED, {"since": "6000w"}),
        (OWNED.replace("commit.operation", "comit.operation"), {}),
    ],
)
async def test_what_cannot_be_replayed_is_refused_at_once(busy: Gateway, text: str, more: dict[str, str]) -> None:
    await begun(busy.http, files(text, **more), 400)
    assert (await busy.http.get(REPLAYS)).json() == {"policy-replays": []}


async def test_a_replay_takes_more_than_the_right_to_write_a_draft(busy: Gateway) -> None:
    place = (await begun(busy.http, files(OWNED))).headers["location"]
    async with await drafter_of(busy) as drafter:
        assert (await drafter.post(REPLAYS, json=files(PURGE))).status_code == 403
        for method, path in (("GET", REPLAYS), ("GET", place), ("DELETE", place), ("POST", f"{place}/attest")):
            assert (await drafter.request(method, path)).status_code == 403, (method, path)
