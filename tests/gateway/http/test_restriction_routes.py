# SPDX-License-Identifier: Apache-2.0
"""
Row filters and column masks over HTTP, saved in a real log by the real engine.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import pytest

from gateway.admin.restriction_edits import NOT_ENFORCED
from gateway.control.plane import ControlPlane
from testkit.gateway.log_contents import read_stored
from testkit.gateway.restrictions import EU_ORDERS
from testkit.gateway.sales import another_key, error_of
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTE = "/v1/restrictions"


def changed(**members: Any) -> dict[str, Any]:
    return {**deepcopy(EU_ORDERS), **members}


async def test_a_restriction_is_shown_as_it_was_written(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    created = await http.post(ROUTE, json={"id": "eu", "reason": "contracts", **EU_ORDERS})
    assert created.status_code == 201, created.text
    shown = created.json()
    for member in ("scope", "filter", "masks"):
        assert shown[member] == EU_ORDERS[member]
    assert (shown["id"], shown["version"], shown["reason"]) == ("eu", 1, "contracts")
    assert (await http.get(f"{ROUTE}/eu")).json() == shown
    assert (await http.get(ROUTE)).json() == {"restrictions": [shown]}
    # What is shown can be saved again: it is what an author writes.
    again = {member: shown[member] for member in ("scope", "filter", "masks", "schemas", "examples")}
    answer = await http.put(f"{ROUTE}/eu", json={**again, "version": 1})
    assert (answer.status_code, answer.json()["version"]) == (200, 2), answer.text
    created_entry, changed_entry = await read_stored(
        shared_gateway.services, shared_gateway.acme.log_id, key="restriction:eu"
    )
    assert (created_entry.entry.type, changed_entry.entry.type) == ("restriction.created", "restriction.changed")
    assert created_entry.entry.data["contents"] == changed_entry.entry.data["contents"]


async def test_a_restriction_may_name_a_table_by_its_uuid(shared_gateway: Gateway) -> None:
    scope = {"catalogs": ["lake"], "uuids": ["0c8f3bd0-6c2b-4d7e-9f35-2f1c8b6e7a10"]}
    created = await shared_gateway.http.post(ROUTE, json={"id": "eu", **changed(scope=scope)})
    assert (created.status_code, created.json()["scope"]) == (201, scope), created.text
    (stored,) = await read_stored(shared_gateway.services, shared_gateway.acme.log_id, key="restriction:eu")
    contents: Any = stored.entry.data["contents"]
    assert contents["scope"]["uuids"] == scope["uuids"]


async def test_every_answer_says_that_reads_do_not_enforce_it(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    answers = [
        await http.post(ROUTE, json={"id": "eu", **EU_ORDERS}),
        await http.get(f"{ROUTE}/eu"),
        await http.put(f"{ROUTE}/eu", json=EU_ORDERS),
    ]
    shown = [answer.json() for answer in answers] + (await http.get(ROUTE)).json()["restrictions"]
    assert {(one["enforced"], one["note"]) for one in shown} == {(False, NOT_ENFORCED)}


async def test_what_is_in_the_log_is_what_another_process_finds(shared_gateway: Gateway) -> None:
    parts, log_id = shared_gateway.services.gateway, shared_gateway.acme.log_id
    await shared_gateway.http.post(ROUTE, json={"id": "eu", **EU_ORDERS})
    await shared_gateway.http.put(f"{ROUTE}/eu", json=changed(filter="row.id > 1", examples=[]))
    lend = partial(parts.database.as_role, parts.roles.gateway)
    found = (await ControlPlane(lend).current(log_id)).restrictions
    assert found == (await parts.control.current(log_id)).restrictions
    assert (found["eu"].version, found["eu"].contents.filter) == (2, "row.id > 1")


async def test_a_restriction_ends_for_ever(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    await http.post(ROUTE, json={"id": "eu", **EU_ORDERS})
    assert (await http.delete(f"{ROUTE}/eu")).status_code == 204
    assert (await http.get(ROUTE)).json() == {"restrictions": []}
    for answer, status in (
        (await http.get(f"{ROUTE}/eu"), 404),
        (await http.delete(f"{ROUTE}/eu"), 409),
        (await http.put(f"{ROUTE}/eu", json=EU_ORDERS), 409),
        (await http.post(ROUTE, json={"id": "eu", **EU_ORDERS}), 409),
        (await http.put(f"{ROUTE}/other", json=EU_ORDERS), 404),
    ):
        assert answer.status_code == status, answer.text


async def test_the_log_has_every_version_of_a_restriction(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    await http.post(ROUTE, json={"id": "eu", "reason": "contracts", **EU_ORDERS})
    await http.put(f"{ROUTE}/eu", json=changed(filter="row.id > 1", masks=[], examples=[], reason="wider"))
    assert (await http.delete(f"{ROUTE}/eu")).status_code == 204
    first, second, last = (await http.get(f"{ROUTE}/eu/versions")).json()["versions"]
    assert (first["version"], first["reason"], first["filter"]) == (1, "contracts", EU_ORDERS["filter"])
    assert (second["version"], second["reason"], second["filter"], second["masks"]) == (2, "wider", "row.id > 1", [])
    assert (last["version"], last["retired"], last["filter"], last["scope"]) == (3, True, None, None)
    entries = await read_stored(shared_gateway.services, shared_gateway.acme.log_id, key="restriction:eu")
    assert [one["index"] for one in (first, second, last)] == [stored.entry.index for stored in entries]
    assert {one["author"] for one in (first, second, last)} == {stored.entry.actor for stored in entries}
    assert (await http.get(f"{ROUTE}/eu/versions/2")).json() == second
    for path in ("eu/versions/4", "eu/versions/x", "other/versions", "other/versions/1", "other/diff", "eu/diff?to=9"):
        assert (await http.get(f"{ROUTE}/{path}")).status_code == 404, path
    assert (await http.get(f"{ROUTE}/eu/diff?to=x")).status_code == 400


async def test_two_versions_of_a_restriction_are_compared(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    await http.post(ROUTE, json={"id": "eu", **EU_ORDERS})
    await http.put(f"{ROUTE}/eu", json=changed(filter="row.id > 1", masks=[], examples=[]))
    await http.put(f"{ROUTE}/eu", json=changed(filter="row.id > 1", masks=[], examples=[], reason="again"))
    found = (await http.get(f"{ROUTE}/eu/diff?from=1&to=2")).json()
    assert (found["id"], found["from"], found["to"]) == ("eu", "version 1", "version 2")
    assert found["filter"].splitlines()[-1] == "+row.id > 1"
    assert sorted(found["changed"]) == ["examples", "masks"]
    assert found["changed"]["masks"]["to"] == []
    same = (await http.get(f"{ROUTE}/eu/diff")).json()
    assert (same["from"], same["to"], same["filter"], same["changed"]) == ("version 2", "version 3", "", {})
    born = (await http.get(f"{ROUTE}/eu/diff?to=1")).json()
    assert (born["from"], born["changed"]["scope"]) == ("nothing", {"from": None, "to": EU_ORDERS["scope"]})


DRAFTS = "/v1/restriction-drafts"
REVIEW = {"version": 1, "verdict": "approve", "reason": "read it"}


async def second_person(gateway: Gateway) -> Any:
    """A client of somebody else, who may do all that is about restrictions."""
    expression = "'reviewer' in roles && path.startsWith('.config.restriction')"
    rule = {"id": "reviewers", "effect": "permit", "expression": expression}
    assert (await gateway.http.post("/v1/access-rules", json=rule)).status_code == 201
    return gateway.client(await another_key(gateway, "rita@acme.example", "reviewer"))


async def test_a_draft_is_saved_once_another_person_approves_it(shared_gateway: Gateway) -> None:
    http, rita = shared_gateway.http, await second_person(shared_gateway)
    drafted = await rita.put(f"{DRAFTS}/eu", json={**EU_ORDERS, "reason": "contracts"})
    assert (drafted.status_code, drafted.json()["filter"]) == (200, EU_ORDERS["filter"]), drafted.text
    assert (await http.get(f"{DRAFTS}/eu")).json() == drafted.json()
    assert (await http.get(DRAFTS)).json()["restriction-drafts"] == [{**drafted.json(), "author": None}]
    assert (await http.get(f"{ROUTE}/eu")).status_code == 404, "nothing is saved by it"
    assert (await http.get(f"{ROUTE}/eu/diff?to=draft")).json()["from"] == "nothing"
    own = await rita.post(f"{DRAFTS}/eu/review", json=REVIEW)
    assert (own.status_code, error_of(own)["type"]) == (403, "NotAnotherPersonException")
    approved = await http.post(f"{DRAFTS}/eu/review", json=REVIEW)
    assert approved.status_code == 200, approved.text
    assert approved.json()["restriction"] == (await http.get(f"{ROUTE}/eu")).json()
    (step,) = (await http.get(f"{ROUTE}/eu/versions")).json()["versions"]
    assert (step["author"], step["reason"], step["review_reason"]) == (drafted.json()["author"], "contracts", "read it")
    assert step["reviewer"] not in {None, step["author"]}
    assert (await http.post(f"{DRAFTS}/eu/review", json=REVIEW)).status_code == 404, "none waits any more"


async def test_a_draft_may_be_refused_rewritten_and_propose_the_end(shared_gateway: Gateway) -> None:
    http, rita = shared_gateway.http, await second_person(shared_gateway)
    assert (await http.post(ROUTE, json={"id": "eu", **EU_ORDERS})).status_code == 201
    assert (await rita.put(f"{DRAFTS}/eu", json=changed(filter="row.id > 1", masks=[], examples=[]))).status_code == 200
    assert "+row.id > 1" in (await http.get(f"{ROUTE}/eu/diff?to=draft")).json()["filter"]
    refused = await rita.post(f"{DRAFTS}/eu/review", json={"version": 1, "verdict": "refuse"})
    assert (refused.status_code, refused.json()["restriction"]) == (200, None), "an author may refuse their own"
    assert (await http.get(f"{ROUTE}/eu")).json()["version"] == 1
    assert (await rita.put(f"{DRAFTS}/eu", json={"retire": True, "version": 7})).status_code == 409
    assert (await rita.put(f"{DRAFTS}/eu", json={"retire": True, "version": 0})).json()["version"] == 3
    assert (await http.post(f"{DRAFTS}/eu/review", json=REVIEW)).status_code == 409, "of an older version"
    assert (await http.post(f"{DRAFTS}/eu/review", json={**REVIEW, "version": 3})).status_code == 200
    assert (await http.get(f"{ROUTE}/eu")).status_code == 404
    assert (await rita.put(f"{DRAFTS}/eu", json=EU_ORDERS)).status_code == 409, "it is retired"


async def test_where_reviews_are_required_nothing_is_saved_without_one(shared_gateway: Gateway) -> None:
    http, rita = shared_gateway.http, await second_person(shared_gateway)
    assert (await http.post(ROUTE, json={"id": "eu", **EU_ORDERS})).status_code == 201
    assert (await http.put("/v1/settings/policy-review", json={"value": "required"})).status_code == 200
    for answer in (
        await http.post(ROUTE, json={"id": "us", **EU_ORDERS}),
        await http.put(f"{ROUTE}/eu", json=EU_ORDERS),
        await http.delete(f"{ROUTE}/eu"),
    ):
        assert (answer.status_code, error_of(answer)["type"]) == (403, "ReviewRequiredException")
        assert "lakeproof restrictions draft" in error_of(answer)["message"]
    assert (await rita.put(f"{DRAFTS}/eu", json=EU_ORDERS)).status_code == 200
    assert (await http.post(f"{DRAFTS}/eu/review", json=REVIEW)).json()["restriction"]["version"] == 2


@pytest.mark.parametrize(
    ("body", "status", "found"),
    [
        ({"retire": True}, 404, "expected one to retire"),
        ({"retire": True, "filter": "row.id == 1"}, 400, "retire"),
        ({"filter": "row.id == 1"}, 400, "schemas"),
        (changed(filter="row.regoin == 'EU'"), 422, "there is no column 'regoin'"),
        (changed(filter="row.region == 'US'"), 422, "example 1"),
    ],
)
async def test_a_draft_that_could_not_be_saved_is_refused(
    module_gateway: Gateway, body: dict[str, Any], status: int, found: str
) -> None:
    answer = await module_gateway.http.put(f"{DRAFTS}/eu", json=body)
    assert (answer.status_code, found in error_of(answer)["message"]) == (status, True), answer.text


async def test_who_may_not_read_a_restriction_reads_none_of_its_versions(shared_gateway: Gateway) -> None:
    await shared_gateway.http.post(ROUTE, json={"id": "eu", **EU_ORDERS})
    eve = shared_gateway.client(await another_key(shared_gateway))
    for path in ("versions", "versions/1", "diff", "diff?to=draft"):
        assert (await eve.get(f"{ROUTE}/eu/{path}")).status_code == 403, path
    rule = {"id": "eve", "effect": "permit", "expression": "path.startsWith('.config.restriction.')"}
    assert (await shared_gateway.http.post("/v1/access-rules", json=rule)).status_code == 201
    assert (await eve.get(f"{ROUTE}/eu/versions")).status_code == 200
    for answer in (
        await eve.get(DRAFTS),
        await eve.get(f"{DRAFTS}/eu"),
        await eve.put(f"{DRAFTS}/eu", json=EU_ORDERS),
        await eve.get(f"{ROUTE}/eu/diff?to=draft"),
    ):
        assert answer.status_code == 403, "a draft takes a right of its own"


@pytest.mark.parametrize(
    ("change", "status", "found"),
    [
        ({"filter": "row.region.endsWith('U')"}, 422, "filter, line 1, column 1: a column can be tested"),
        ({"filter": "row.regoin == 'EU'"}, 422, "filter, line 1, column 1: there is no column 'regoin'"),
        ({"filter": "row.region =="}, 422, "filter, line 1, column 14"),
        ({"filter": "row.region == '" + "x" * 16_384 + "'"}, 422, "at most 16384"),
        ({"masks": [{"column": "id", "action": "mask-alphanum"}]}, 422, "masks[0].action: mask-alphanum is not for"),
        ({"masks": [{"column": "email", "action": "hash"}]}, 400, "masks[0].action: expected one of"),
        ({"filter": "row.region == 'US'"}, 422, "example 1 (an analyst), row 1: expected it to be shown"),
        ({"schemas": {"orders": {"fields": []}}}, 400, "schemas.orders.fields"),
        ({"scope": {"kinds": ["table"]}}, 400, "scope.kinds"),
        ({"scope": {"uuids": ["orders"]}}, 400, "scope.uuids[0]"),
        ({"reason": "a\x1b"}, 400, "reason"),
        ({"more": 1}, 400, "more"),
    ],
)  # fmt: skip
async def test_what_cannot_be_enforced_or_does_not_hold_is_not_saved(
    module_gateway: Gateway, change: dict[str, Any], status: int, found: str
) -> None:
    told = await read_stored(module_gateway.services, module_gateway.acme.log_id)
    answer = await module_gateway.http.post(ROUTE, json={"id": "eu", **changed(**change)})
    assert answer.status_code == status, answer.text
    assert found in error_of(answer)["message"]
    assert await read_stored(module_gateway.services, module_gateway.acme.log_id) == told


async def test_the_largest_restriction_fits_into_one_entry(shared_gateway: Gateway) -> None:
    rows = [{"row": {"id": 1, "region": '"' * 900}, "expect": "hidden"}] * 11
    options = ", ".join(f"'{'x' * 60}{number}'" for number in range(240))
    members = changed(filter=f"row.region in [{options}]", masks=[], examples=[{"rows": rows}], reason="é" * 500)
    answer = await shared_gateway.http.post(ROUTE, json={"id": "a" * 63, **members})
    assert answer.status_code == 201, answer.text


async def test_a_change_of_another_version_than_was_seen_is_refused(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    await http.post(ROUTE, json={"id": "eu", **EU_ORDERS})
    await http.put(f"{ROUTE}/eu", json=EU_ORDERS)
    answer = await http.put(f"{ROUTE}/eu", json={**EU_ORDERS, "version": 1})
    assert (answer.status_code, error_of(answer)["type"]) == (409, "ConcurrentChangeException")


async def test_who_may_edit_restrictions_is_a_matter_of_rules(shared_gateway: Gateway) -> None:
    eve = shared_gateway.client(await another_key(shared_gateway))
    assert (await eve.post(ROUTE, json={"id": "eu", **EU_ORDERS})).status_code == 403
    rule = {"id": "eve", "effect": "permit", "expression": "path == '.config.restriction.eu'"}
    assert (await shared_gateway.http.post("/v1/access-rules", json=rule)).status_code == 201
    assert (await eve.post(ROUTE, json={"id": "eu", **EU_ORDERS})).status_code == 201
    assert (await eve.get(ROUTE)).status_code == 403
    assert (await eve.post(ROUTE, json={"id": "us", **EU_ORDERS})).status_code == 403
