# SPDX-License-Identifier: Apache-2.0
"""
The life of policies over HTTP: examples, scopes, times, versions, drafts, and reviews by a second person.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx
import orjson
import pytest
from psycopg import AsyncConnection

from gateway.admin.application import OPERATOR
from gateway.admin.limits import MESSAGE_LENGTH_MAX, REASON_LENGTH_MAX
from gateway.admin.policy_edits import COMING_MAX, PolicyText
from gateway.policy.examples import EXAMPLES_SIZE_BYTES_MAX, parse_examples, stored_size_bytes
from gateway.policy.scopes import KINDS, NAMES_SIZE_BYTES_MAX, OPERATIONS, PROPERTIES_SIZE_BYTES_MAX, UUIDS_MAX
from gateway.policy.text import EXPRESSION_BYTES_MAX
from lakeproof.erasing import open_eraser
from lakeproof.services import now
from ledger.erasing.erase import ErasureRequest
from ledger.format.canonical import format_time
from ledger.format.events import ErasureReason
from ledger.store.read import find_log
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import ORDERS, another_key, error_of, properties
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

TENANT_COLUMN: dict[str, Any] = {
    "expression": "result.columns.exists(c, c.name == 'tenant_id')",
    "message": "{commit.name} needs tenant_id",
    "scope": {"names": ["sales.**"], "kinds": ["table"]},
    "examples": [
        {"name": "with it", "expect": "allow", "given": {"result": {"columns": [{"name": "tenant_id"}]}}},
        {"expect": "deny", "given": {"result": {"exists": True}}},
    ],
    "reason": "rows are separated by tenant",
}
PLAIN: dict[str, Any] = {"expression": "true", "message": "never"}
ADMIN = "'admin' in roles && contentType in ['CONFIG_POLICY', 'CONFIG_POLICY_DRAFT', 'CONFIG_SETTING']"


async def later(gateway: Gateway, **delta: float) -> str:
    return format_time(gateway.services.gateway.clock() + timedelta(**delta))


async def permit(gateway: Gateway, rule_id: str, expression: str) -> None:
    rule = {"id": rule_id, "effect": "permit", "expression": expression}
    assert (await gateway.http.post("/v1/access-rules", json=rule)).status_code == 201


async def reviewer_of(gateway: Gateway, identity: str = "grace@acme.example") -> httpx.AsyncClient:
    """A client of another person, to whom policies and drafts are permitted."""
    await permit(gateway, "admins", ADMIN)
    return gateway.client(await another_key(gateway, identity, "admin"))


async def require_review(gateway: Gateway) -> None:
    assert (await gateway.http.put("/v1/settings/policy-review", json={"value": "required"})).status_code == 200


async def erase(gateway: Gateway, actor: str) -> None:
    installation = gateway.services.installation
    async with (
        await AsyncConnection.connect(installation.as_role(installation.roles.auditor), autocommit=True) as own,
        open_eraser(installation, own) as eraser,
    ):
        log = await find_log(own, installation.origin(gateway.acme.tenant))
        await eraser.erase_subject(log, actor, ErasureRequest(reason=ErasureReason.REQUEST, at=now()))


def approve(version: int, **more: Any) -> dict[str, Any]:
    return {"version": version, "verdict": "approve", **more}


# What is written


async def test_a_policy_is_shown_as_it_was_written(shared_gateway: Gateway) -> None:
    created = await shared_gateway.http.post("/v1/policies", json={"id": "p", **TENANT_COLUMN})
    assert created.status_code == 201, created.text
    shown = (await shared_gateway.http.get("/v1/policies/p")).json()
    assert {name: shown[name] for name in TENANT_COLUMN} == TENANT_COLUMN
    assert (shown["version"], shown["in_force"], shown["active_from"], shown["coming"]) == (1, True, None, [])
    (one,) = await read_stored(shared_gateway.services, shared_gateway.acme.log_id, key="policy:p")
    assert (one.entry.type, one.entry.version, one.entry.data["reason"]) == (
        "policy.created",
        4,
        "rows are separated by tenant",
    )


@pytest.mark.parametrize(
    ("change", "status", "found"),
    [
        ({"examples": [{"expect": "deny", "given": {"result": {"columns": [{"name": "tenant_id"}]}}}]}, 422,
         "example 1: expected deny, found allow"),
        ({"examples": [{"expect": "allow", "name": "none"}, {"expect": "allow"}]}, 422,
         "example 1 (none): expected allow, found deny; example 2: expected allow, found deny"),
        ({"examples": [{"expect": "allow", "given": {"reslt": {}}}]}, 400, "examples[0].given: "),
        ({"examples": {}}, 400, "examples"),
        ({"expression": "result.columns.all(c, !has(c.docs))"}, 422, "c has no field 'docs' (did you mean 'doc'?)"),
        ({"expression": "contract.owner == 'x'"}, 422, "there are no data contracts yet"),
        ({"expression": f"'{'a' * 16_384}' != ''"}, 400, "at most 16384"),
        ({"expression": "'" + '"' * 9_000 + "' != ''"}, 400, "a quote, backslash or line end as two"),
        ({"scope": {"name": ["a.b"]}}, 400, "the nearest is names"),
        ({"scope": ["sales.**"]}, 400, "scope"),
        ({"message": "{commit.nam}"}, 400, "the nearest is commit.name"),
        ({"reason": "a" * (REASON_LENGTH_MAX + 1)}, 400, "reason"),
        ({"reason": "a\x1b"}, 400, "reason"),
        ({"activate_at": "tomorrow"}, 400, "activate_at"),
        ({"activate_at": "2020-01-01T00:00:00Z"}, 400, "activate_at"),
        ({"activate_at": "9020-01-01T00:00:00Z"}, 400, "activate_at"),
    ],
)  # fmt: skip
async def test_what_does_not_hold_or_is_malformed_is_not_saved(
    module_gateway: Gateway, change: dict[str, Any], status: int, found: str
) -> None:
    told = await read_stored(module_gateway.services, module_gateway.acme.log_id)
    bad = {**TENANT_COLUMN, **change}
    for answer in (
        await module_gateway.http.post("/v1/policies", json={"id": "p", **bad}),
        *([] if "activate_at" in change else [await module_gateway.http.put("/v1/policy-drafts/p", json=bad)]),
    ):
        assert answer.status_code == status, answer.text
        assert found in error_of(answer)["message"]
    assert await read_stored(module_gateway.services, module_gateway.acme.log_id) == told


async def test_the_largest_policy_fits_into_one_entry(shared_gateway: Gateway) -> None:
    dots = [f"{number:02}" + "\x1d" * 66 for number in range(20)]  # a dot within a name takes six bytes
    catalogs = [f"{number:02}{'a' * 62}" for number in range(100)]
    properties = [f"{number:02}=" + '"' * 50 for number in range(19)]
    given: Any = [
        {"expect": "deny", "name": str(number), "given": {"commit": {"name": '"' * 105}}} for number in range(50)
    ]
    largest = {
        "id": "p" * 63,
        "expression": "'" + "\U0001d11e" * ((EXPRESSION_BYTES_MAX - 8) // 4) + "' == ''",
        "message": "\U0001d11e" * MESSAGE_LENGTH_MAX,
        "scope": {
            "catalogs": catalogs,
            "names": dots,
            "kinds": list(KINDS),
            "operations": list(OPERATIONS),
            "properties": properties,
            "uuids": [str(UUID(int=number)) for number in range(UUIDS_MAX)],
        },
        "examples": given,
        "reason": "\U0001d11e" * REASON_LENGTH_MAX,
    }
    assert len(orjson.dumps(dots)) > 0.97 * NAMES_SIZE_BYTES_MAX
    assert 0.97 * PROPERTIES_SIZE_BYTES_MAX < len(orjson.dumps(properties)) <= PROPERTIES_SIZE_BYTES_MAX
    assert stored_size_bytes(parse_examples(given)) > 0.99 * EXAMPLES_SIZE_BYTES_MAX
    created = await shared_gateway.http.post("/v1/policies", json=largest)
    assert created.status_code == 201, created.text
    shown = (await shared_gateway.http.get(f"/v1/policies/{largest['id']}")).json()
    assert {name: shown[name] for name in largest} == largest


# Times


async def test_a_policy_may_come_into_force_at_a_time(shared_gateway: Gateway) -> None:
    http, at = shared_gateway.http, await later(shared_gateway, hours=1)
    created = (await http.post("/v1/policies", json={"id": "p", **PLAIN, "activate_at": at})).json()
    assert (created["in_force"], created["active_from"], created["coming"]) == (False, at, [])
    second = await later(shared_gateway, hours=2)
    changed = await http.put("/v1/policies/p", json={**PLAIN, "expression": "1 == 1", "activate_at": second})
    shown = (await http.get("/v1/policies/p")).json()
    assert changed.json() == {**shown, "warnings": []}
    assert (shown["version"], shown["in_force"]) == (1, False)
    assert shown["coming"] == [{"version": 2, "active_from": second}]
    afterwards = shared_gateway.through(clock=lambda: shared_gateway.services.gateway.clock() + timedelta(hours=3))
    then = (await afterwards.get("/v1/policies/p")).json()
    assert (then["version"], then["in_force"], then["active_from"], then["coming"]) == (2, True, second, [])


async def test_a_policy_may_end_at_a_time(shared_gateway: Gateway) -> None:
    http, at = shared_gateway.http, await later(shared_gateway, hours=1)
    await http.post("/v1/policies", json={"id": "p", **PLAIN})
    for wrong in ("tomorrow", "2020-01-01T00:00:00Z"):
        refused = await http.delete("/v1/policies/p", params={"retire_at": wrong})
        assert (refused.status_code, "retire_at" in error_of(refused)["message"]) == (400, True)
    ending = await http.delete("/v1/policies/p", params={"retire_at": at, "reason": "over"})
    assert ending.status_code == 204
    shown = (await http.get("/v1/policies/p")).json()
    assert (shown["version"], shown["in_force"], shown["active_from"], shown["retired_from"]) == (1, True, None, at)
    last = (await http.get("/v1/policies/p/versions")).json()["versions"][-1]
    assert (last["retired"], last["active_from"], last["reason"]) == (True, at, "over")
    for request in (
        http.put("/v1/policies/p", json=PLAIN),
        http.put("/v1/policy-drafts/p", json=PLAIN),
        http.delete("/v1/policies/p", params={"retire_at": await later(shared_gateway, hours=2)}),
    ):
        refused = await request
        assert (refused.status_code, f"from {at} on" in error_of(refused)["message"]) == (409, True), refused.text
    afterwards = shared_gateway.through(clock=lambda: shared_gateway.services.gateway.clock() + timedelta(hours=3))
    assert (await afterwards.get("/v1/tenant")).json()["policies"] == 0
    assert (await http.get("/v1/tenant")).json()["policies"] == 1
    assert (await http.delete("/v1/policies/p")).status_code == 204, "it may end at once"
    assert (await http.get("/v1/policies/p")).status_code == 404
    assert (await http.delete("/v1/policies/p")).status_code == 409
    assert (await http.post("/v1/policies", json={"id": "p", **PLAIN})).status_code == 409


async def test_a_policy_judges_until_it_ends_and_explanations_judge_as_then(sales: Gateway) -> None:
    at = await later(sales, hours=1)
    strict = {"id": "no", "expression": "false", "message": "closed until then"}
    await sales.http.post("/v1/policies", json=strict)
    assert (await sales.http.delete("/v1/policies/no", params={"retire_at": at})).status_code == 204
    refused = await sales.http.post(ORDERS, json=properties(a="b"))
    assert (refused.status_code, "closed until then" in error_of(refused)["message"]) == (403, True)
    afterwards = sales.through(clock=lambda: sales.services.gateway.clock() + timedelta(hours=2))
    assert (await afterwards.post(ORDERS, json=properties(a="b"))).status_code == 200
    stored = await read_stored(sales.services, sales.acme.log_id)
    first, second = [one.entry for one in stored if one.entry.type == "commit.decided"][-2:]
    assert first.data["policy_set"] != second.data["policy_set"]
    for decided, rules in ((first, ["no"]), (second, [])):
        explained = (await sales.http.get(f"/v1/decisions/{decided.group_id}/explanation")).json()
        policies = [one for one in explained["rules"] if one["kind"] == "policy"]
        assert [one["id"] for one in policies] == rules
        assert all(one["agrees"] for one in policies)


async def test_only_so_many_versions_wait_for_their_time(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    assert (await http.post("/v1/policies", json={"id": "p", **PLAIN})).status_code == 201
    for number in range(1, COMING_MAX + 1):
        at = await later(shared_gateway, hours=number)
        assert (await http.put("/v1/policies/p", json={**PLAIN, "activate_at": at})).status_code == 200
    at = await later(shared_gateway, hours=COMING_MAX + 1)
    refused = await http.put("/v1/policies/p", json={**PLAIN, "activate_at": at})
    assert (refused.status_code, "at most 8 versions" in error_of(refused)["message"]) == (422, True)


# Versions


async def test_every_version_has_its_author_and_reason_and_stays_readable(shared_gateway: Gateway) -> None:
    http, actor = shared_gateway.http, shared_gateway.acme.key.actor
    await http.post("/v1/policies", json={"id": "p", **TENANT_COLUMN})
    await http.put("/v1/policies/p", json={**PLAIN, "reason": "not any more"})
    assert (await http.delete("/v1/policies/p?reason=" + "a" * (REASON_LENGTH_MAX + 1))).status_code == 400
    assert (await http.delete("/v1/policies/p?reason=not%20needed")).status_code == 204
    found = (await http.get("/v1/policies/p/versions")).json()["versions"]
    assert [(one["version"], one["retired"], one["author"], one["reviewer"], one["reason"]) for one in found] == [
        (1, False, actor, None, "rows are separated by tenant"),
        (2, False, actor, None, "not any more"),
        (3, True, actor, None, "not needed"),
    ]
    assert [one["expression"] for one in found] == [TENANT_COLUMN["expression"], "true", None]
    assert [one["index"] for one in found] == [
        one.entry.index
        for one in await read_stored(shared_gateway.services, shared_gateway.acme.log_id, key="policy:p")
    ]
    assert (await http.get("/v1/policies/p/versions/2")).json() == found[1]
    for path in ("p/versions/4", "p/versions/0", "p/versions/x", "q/versions", "q/versions/1", "q/diff", "p/diff?to=7"):
        missing = await http.get(f"/v1/policies/{path}")
        assert (missing.status_code, error_of(missing)["type"]) == (404, "NotFoundException"), path
    assert (await http.get("/v1/policies/p/diff?from=one")).status_code == 400


async def test_a_diff_has_the_lines_of_the_expression_and_the_other_members(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    first = {"expression": "result.exists\n&& true\n", "message": "one", "scope": {"kinds": ["table"]}}
    await http.post("/v1/policies", json={"id": "p", **first})
    await http.put("/v1/policies/p", json={**first, "expression": "result.exists\n&& false\n", "message": "two"})
    expected = {
        "id": "p",
        "from": "version 1",
        "to": "version 2",
        "expression": "--- version 1\n+++ version 2\n@@ -1,2 +1,2 @@\n result.exists\n-&& true\n+&& false",
        "changed": {"message": {"from": "one", "to": "two"}},
    }
    assert (await http.get("/v1/policies/p/diff")).json() == expected
    assert (await http.get("/v1/policies/p/diff?from=1&to=2")).json() == expected
    backwards = (await http.get("/v1/policies/p/diff?from=2&to=1")).json()
    assert backwards["changed"] == {"message": {"from": "two", "to": "one"}}
    same = (await http.get("/v1/policies/p/diff?from=2&to=2")).json()
    assert (same["expression"], same["changed"]) == ("", {})
    whole = (await http.get("/v1/policies/p/diff?to=1")).json()
    assert whole["from"] == "nothing"
    assert whole["changed"]["scope"] == {"from": None, "to": {"kinds": ["table"]}}


# Drafts and reviews


async def test_a_draft_is_in_force_once_another_person_approves_it(shared_gateway: Gateway) -> None:
    http, grace = shared_gateway.http, await reviewer_of(shared_gateway)
    written = await http.put("/v1/policy-drafts/p", json=TENANT_COLUMN)
    assert written.status_code == 200, written.text
    draft = (await grace.get("/v1/policy-drafts/p")).json()
    assert draft == written.json()
    assert (draft["version"], draft["retires"], draft["author"]) == (1, False, shared_gateway.acme.key.actor)
    assert (await grace.get("/v1/policy-drafts")).json() == {"policy-drafts": [{**draft, "author": None}]}
    assert (await http.get("/v1/policies")).json() == {"policies": []}
    assert (await grace.get("/v1/policies/p/diff?to=draft")).json()["from"] == "nothing"
    reviewed = await grace.post("/v1/policy-drafts/p/review", json=approve(1, reason="as agreed"))
    assert reviewed.status_code == 200, reviewed.text
    assert reviewed.json()["policy"]["version"] == 1
    assert (await http.get("/v1/policies/p")).json()["in_force"]
    assert (await http.get("/v1/policy-drafts")).json() == {"policy-drafts": []}
    (version,) = (await http.get("/v1/policies/p/versions")).json()["versions"]
    assert (version["author"], version["reason"]) == (draft["author"], TENANT_COLUMN["reason"])
    assert (version["reviewer"] == draft["author"], version["review_reason"]) == (False, "as agreed")
    told = await read_stored(shared_gateway.services, shared_gateway.acme.log_id)
    reviewed_entry, created_entry = (one.entry for one in told[-2:])
    assert (reviewed_entry.type, created_entry.type) == ("policy_draft.reviewed", "policy.created")
    assert reviewed_entry.group_id == created_entry.group_id
    assert (created_entry.data["draft"], created_entry.data["author"]) == (1, draft["author"])


async def test_nobody_approves_their_own_draft_whatever_key_they_use(shared_gateway: Gateway) -> None:
    http, admin = shared_gateway.http, shared_gateway.services.gateway.admin
    await permit(shared_gateway, "admins", ADMIN)
    await permit(shared_gateway, "issuers", "'issuer' in roles && has(grant.identity) && has(grant.roles)")
    ada = shared_gateway.client(await another_key(shared_gateway, "ada2@acme.example", "admin", "issuer"))
    # Of the same identity: a key of its own, and one that somebody else issued to it.
    own = shared_gateway.client(await another_key(shared_gateway, "ada2@acme.example", "admin"))
    by_other = (await http.post("/v1/keys", json={"identity": "ada2@acme.example", "roles": ["admin"]})).json()
    # Of other identities, but issued by the author, who knows the secrets.
    puppet = (await ada.post("/v1/keys", json={"identity": "bob@acme.example", "roles": ["admin", "issuer"]})).json()
    second = shared_gateway.client(puppet["secret"])
    further = (await second.post("/v1/keys", json={"identity": "carl@acme.example", "roles": ["admin"]})).json()
    assert (await ada.put("/v1/policy-drafts/p", json=PLAIN)).status_code == 200
    told = await read_stored(shared_gateway.services, shared_gateway.acme.log_id)
    for client in (
        ada,
        own,
        shared_gateway.client(by_other["secret"]),
        second,
        shared_gateway.client(further["secret"]),
    ):
        refused = await client.post("/v1/policy-drafts/p/review", json=approve(1))
        assert (refused.status_code, error_of(refused)["type"]) == (403, "NotAnotherPersonException"), refused.text
    assert await read_stored(shared_gateway.services, shared_gateway.acme.log_id) == told
    grace = shared_gateway.client(await another_key(shared_gateway, "grace@acme.example", "admin"))
    assert (await grace.post("/v1/policy-drafts/p/review", json=approve(1))).status_code == 200
    assert len(await admin.list_policies(shared_gateway.acme.log_id)) == 1


async def test_an_erased_author_is_not_known_to_be_another_person(shared_gateway: Gateway) -> None:
    grace = await reviewer_of(shared_gateway)
    eve = shared_gateway.client(await another_key(shared_gateway, "eve@acme.example", "admin"))
    draft = (await eve.put("/v1/policy-drafts/p", json=PLAIN)).json()
    await erase(shared_gateway, draft["author"])
    refused = await grace.post("/v1/policy-drafts/p/review", json=approve(1))
    assert (refused.status_code, error_of(refused)["type"]) == (403, "NotAnotherPersonException")
    assert (await grace.post("/v1/policy-drafts/p/review", json={**approve(1), "verdict": "refuse"})).status_code == 200


async def test_an_author_may_refuse_their_own_draft_which_ends_it(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    await http.put("/v1/policy-drafts/p", json=PLAIN)
    refused = await http.post("/v1/policy-drafts/p/review", json={"version": 1, "verdict": "refuse", "reason": "no"})
    assert refused.json() == {"id": "p", "draft": 1, "verdict": "refuse", "policy": None}
    again = await http.post("/v1/policy-drafts/p/review", json={"version": 1, "verdict": "refuse"})
    assert again.status_code == 404
    assert (await http.put("/v1/policy-drafts/p", json=PLAIN)).json()["version"] == 3


async def test_what_was_read_is_what_is_approved(shared_gateway: Gateway) -> None:
    http, grace = shared_gateway.http, await reviewer_of(shared_gateway)
    await http.put("/v1/policy-drafts/p", json=PLAIN)
    await http.put("/v1/policy-drafts/p", json={**PLAIN, "expression": "false"})
    stale = await grace.post("/v1/policy-drafts/p/review", json=approve(1))
    assert (stale.status_code, error_of(stale)["type"]) == (409, "ConcurrentChangeException")
    assert (await grace.post("/v1/policy-drafts/p/review", json=approve(2))).json()["policy"]["expression"] == "false"
    assert (await grace.post("/v1/policy-drafts/p/review", json=approve(2))).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"version": 1, "verdict": "maybe"},
        {"version": 1, "verdict": "refuse", "activate_at": "2030-01-01T00:00:00Z"},
        {"version": "1", "verdict": "approve"},
        {"verdict": "approve"},
        {"version": 1, "verdict": "approve", "more": 1},
    ],
)
async def test_a_malformed_review_changes_nothing(shared_gateway: Gateway, body: dict[str, Any]) -> None:
    grace = await reviewer_of(shared_gateway)
    await shared_gateway.http.put("/v1/policy-drafts/p", json=PLAIN)
    assert (await grace.post("/v1/policy-drafts/p/review", json=body)).status_code == 400
    assert len((await grace.get("/v1/policy-drafts")).json()["policy-drafts"]) == 1


async def test_a_draft_needs_contents_unless_it_proposes_the_end(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    for body in ({"message": "m"}, {"expression": "true"}, {"retire": True, **PLAIN}):
        assert (await http.put("/v1/policy-drafts/p", json=body)).status_code == 400, body
    assert (await http.put("/v1/policy-drafts/p", json={"retire": True})).status_code == 404, "there is nothing to end"
    await http.post("/v1/policies", json={"id": "p", **PLAIN})
    await http.delete("/v1/policies/p")
    gone = await http.put("/v1/policy-drafts/p", json=PLAIN)
    assert (gone.status_code, error_of(gone)["type"]) == (409, "RetiredException")


async def test_who_may_write_drafts_need_not_be_one_who_may_approve(shared_gateway: Gateway) -> None:
    await permit(shared_gateway, "drafters", "'drafter' in roles && contentType == 'CONFIG_POLICY_DRAFT'")
    eve = shared_gateway.client(await another_key(shared_gateway, "eve@acme.example", "drafter"))
    assert (await eve.put("/v1/policy-drafts/p", json=PLAIN)).status_code == 200
    assert (await eve.post("/v1/policies", json={"id": "q", **PLAIN})).status_code == 403
    assert (await eve.post("/v1/policy-drafts/p/review", json=approve(1))).status_code == 403
    assert (await shared_gateway.http.post("/v1/policy-drafts/p/review", json=approve(1))).status_code == 200


async def test_where_a_review_is_required_nothing_comes_into_force_or_ends_without_one(
    shared_gateway: Gateway,
) -> None:
    http, grace, log_id = shared_gateway.http, await reviewer_of(shared_gateway), shared_gateway.acme.log_id
    admin = shared_gateway.services.gateway.admin
    await http.post("/v1/policies", json={"id": "p", **PLAIN})
    await require_review(shared_gateway)
    told = await read_stored(shared_gateway.services, log_id)
    for answer in (
        await http.post("/v1/policies", json={"id": "q", **PLAIN}),
        await http.put("/v1/policies/p", json=PLAIN),
        await http.delete("/v1/policies/p"),
    ):
        assert (answer.status_code, error_of(answer)["type"]) == (403, "ReviewRequiredException")
        assert "write a draft" in error_of(answer)["message"]
    with pytest.raises(Exception, match="write a draft"):
        await admin.retire_policy(log_id, OPERATOR, policy_id="p")
    with pytest.raises(Exception, match="write a draft"):
        await admin.create_policy(log_id, OPERATOR, policy_id="q", text=PolicyText(expression="true", message="m"))
    assert await read_stored(shared_gateway.services, log_id) == told
    assert (await http.put("/v1/policy-drafts/p", json={"retire": True, "reason": "old"})).json()["retires"]
    ended = (await grace.post("/v1/policy-drafts/p/review", json=approve(1))).json()["policy"]
    assert (ended["id"], ended["in_force"]) == ("p", False)
    assert (await http.get("/v1/policies")).json() == {"policies": []}
    last = (await http.get("/v1/policies/p/versions")).json()["versions"][-1]
    assert (last["retired"], last["reason"], last["author"]) == (True, "old", shared_gateway.acme.key.actor)


async def test_an_approved_draft_may_wait_for_its_time(shared_gateway: Gateway) -> None:
    http, grace = shared_gateway.http, await reviewer_of(shared_gateway)
    await http.post("/v1/policies", json={"id": "p", **PLAIN})
    await http.put("/v1/policy-drafts/p", json={**PLAIN, "expression": "false"})
    at = await later(shared_gateway, days=1)
    shown = (await grace.post("/v1/policy-drafts/p/review", json=approve(1, activate_at=at))).json()["policy"]
    assert (shown["version"], shown["expression"], shown["in_force"]) == (1, "true", True)
    assert shown["coming"] == [{"version": 2, "active_from": at}]
    await http.put("/v1/policy-drafts/p", json={"retire": True})
    before = await later(shared_gateway, hours=3)
    ending = await grace.post("/v1/policy-drafts/p/review", json=approve(3, activate_at=before))
    policy = ending.json()["policy"]
    assert (policy["version"], policy["in_force"], policy["retired_from"]) == (1, True, before)
    assert policy["coming"] == [], "it would come after the end"


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        ({"version": 1}, "the draft of policy p: expected version 1, found none"),
        ({"policy_version": 0}, "policy p: expected none, found version 1"),
        ({"policy_version": 2}, "policy p: expected version 2, found version 1"),
        ({"version": 0, "policy_version": 1}, ""),
        ({}, ""),
    ],
)
async def test_a_draft_is_written_only_over_what_its_author_has_seen(
    shared_gateway: Gateway, seen: dict[str, int], found: str
) -> None:
    http = shared_gateway.http
    assert (await http.post("/v1/policies", json={"id": "p", **PLAIN})).status_code == 201
    answer = await http.put("/v1/policy-drafts/p", json={**PLAIN, **seen})
    if found:
        assert (answer.status_code, error_of(answer)["type"]) == (409, "ConcurrentChangeException")
        assert found in error_of(answer)["message"]
        assert (await http.get("/v1/policy-drafts/p")).status_code == 404
    else:
        assert answer.status_code == 200


async def test_a_draft_that_another_has_replaced_is_not_written_over(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    for text in ("mine", "theirs"):
        assert (await http.put("/v1/policy-drafts/p", json={**PLAIN, "message": text})).status_code == 200
    assert (await http.put("/v1/policy-drafts/p", json={**PLAIN, "version": 1})).status_code == 409
    assert (await http.get("/v1/policy-drafts/p")).json()["message"] == "theirs"
    assert (await http.put("/v1/policy-drafts/p", json={**PLAIN, "version": 2})).status_code == 200
    assert (await http.post("/v1/policies", json={"id": "q", **PLAIN})).status_code == 201
    end = {"retire": True, "version": 1}
    assert (await http.put("/v1/policy-drafts/q", json=end)).status_code == 409
    assert (await http.put("/v1/policy-drafts/q", json={**end, "version": 0})).status_code == 200
