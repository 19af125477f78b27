# SPDX-License-Identifier: Apache-2.0
"""
Edits of the control plane over HTTP: each resource, its refusals, and who may edit.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gateway.admin.application import OPERATOR
from gateway.commit.commit_flow import STALE_MAX
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import NAMESPACES, another_key, error_of
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

POLICY = {"id": "p", "expression": "commit.kind == 'table'", "message": "only tables"}
IN_FORCE = {
    "in_force": True,
    "scope": {},
    "examples": [],
    "reason": "",
    "active_from": None,
    "retired_from": None,
    "coming": [],
}
RULE = {"id": "r", "effect": "permit", "expression": "'reader' in roles"}


async def test_a_policy_is_created_changed_and_retired(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    created = await http.post("/v1/policies", json=POLICY)
    shown = {**POLICY, **IN_FORCE, "version": 1}
    assert (created.status_code, created.json()) == (201, {**shown, "warnings": []})
    assert (await http.get("/v1/policies")).json() == {"policies": [shown]}
    change = {"expression": "true", "message": "nothing", "version": 1}
    changed = await http.put("/v1/policies/p", json=change)
    assert (changed.status_code, changed.json()) == (200, {**shown, **change, "version": 2, "warnings": []})
    stale = await http.put("/v1/policies/p", json=change)
    assert (stale.status_code, error_of(stale)["type"]) == (409, "ConcurrentChangeException")
    assert (await http.delete("/v1/policies/p")).status_code == 204
    assert (await http.get("/v1/policies")).json() == {"policies": []}
    assert (await http.post("/v1/policies", json=POLICY)).status_code == 409, "an id is used once"
    assert (await http.put("/v1/policies/p", json=change)).status_code == 409
    told = [
        one.entry.type for one in await read_stored(shared_gateway.services, shared_gateway.acme.log_id, key="policy:p")
    ]
    assert told == ["policy.created", "policy.changed", "policy.retired"]
    actors = {
        one.entry.actor
        for one in await read_stored(shared_gateway.services, shared_gateway.acme.log_id, key="policy:p")
    }
    assert actors == {shared_gateway.acme.key.actor}


async def test_an_expression_that_does_not_compile_is_refused_with_its_place(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    for path, body in (
        ("/v1/policies", {**POLICY, "expression": "commit.kind ==\n  'table' &&"}),
        ("/v1/access-rules", {**RULE, "expression": "'reader' in\n  rolls"}),
    ):
        answer = await http.post(path, json=body)
        assert (answer.status_code, error_of(answer)["type"]) == (422, "UnprocessableEntityException")
        assert error_of(answer)["message"].startswith("line 2, column "), answer.text
    assert (await http.get("/v1/policies")).json() == {"policies": []}


async def test_an_access_rule_is_created_and_retired(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    created = await http.post("/v1/access-rules", json=RULE)
    saved = {**RULE, "version": 1, "vocabulary": 2}
    assert (created.status_code, created.json()) == (201, {**saved, "warnings": []})
    rules = (await http.get("/v1/access-rules")).json()["access-rules"]
    assert [rule["id"] for rule in rules] == ["first-key", "r"]
    assert {name: rules[1][name] for name in saved} == saved
    assert (await http.delete("/v1/access-rules/r")).status_code == 204
    assert (await http.delete("/v1/access-rules/r")).status_code == 409
    assert (await http.delete("/v1/access-rules/never")).status_code == 404


async def test_who_put_an_access_rule_in_force_and_who_retired_it_is_told(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    await http.post("/v1/access-rules", json=RULE)
    first, rule = (await http.get("/v1/access-rules")).json()["access-rules"]
    assert (first["author"], rule["author"]) == ("system", shared_gateway.acme.key.actor)
    await http.delete("/v1/access-rules/r")
    assert [each["id"] for each in (await http.get("/v1/access-rules")).json()["access-rules"]] == ["first-key"]
    versions = (await http.get("/v1/access-rules/r/versions")).json()["versions"]
    assert versions[0] == {**rule, "retired": False}
    assert [(each["version"], each["retired"], each["expression"]) for each in versions] == [
        (1, False, RULE["expression"]),
        (2, True, RULE["expression"]),
    ]
    for each in versions:
        entry = (await http.get(f"/v1/log/entries/{each['index']}")).json()
        assert (entry["key"], entry["actor"]) == ("access_rule:r", each["author"])
    assert (await http.get("/v1/access-rules/never/versions")).status_code == 404
    assert (await http.get("/v1/access-rules/N%20one/versions")).status_code == 400


async def test_a_catalog_is_there_as_soon_as_it_is_created(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    body = {"alias": "bay", "kind": "builtin", "options": {}}
    assert (await http.get("/v1/config?warehouse=bay")).status_code == 404
    created = await http.post("/v1/catalogs", json=body)
    assert (created.status_code, created.json()) == (201, {**body, "version": 1})
    assert (await http.get("/v1/config?warehouse=bay")).status_code == 200
    catalogs = (await http.get("/v1/catalogs")).json()["catalogs"]
    assert [catalog["alias"] for catalog in catalogs] == ["lake", "bay"]


async def test_a_setting_has_its_default_until_it_is_changed(shared_gateway: Gateway) -> None:
    http, path = shared_gateway.http, "/v1/settings/lineage-cycles"
    default = {"id": "lineage-cycles", "version": 0, "value": "refuse"}
    other = {"id": "policy-review", "version": 0, "value": "none"}
    assert (await http.get("/v1/settings")).json() == {"settings": [default, other]}
    kept = {"id": "lineage-cycles", "version": 1, "value": "keep"}
    changed = await http.put(path, json={"value": "keep", "version": 0})
    assert (changed.status_code, changed.json()) == (200, kept)
    stale = await http.put(path, json={"value": "refuse", "version": 0})
    assert (stale.status_code, error_of(stale)["type"]) == (409, "ConcurrentChangeException")
    assert (await http.get("/v1/settings")).json() == {"settings": [kept, other]}
    assert (await http.put(path, json={"value": "refuse"})).json() == {**default, "version": 2}
    told = (await read_stored(shared_gateway.services, shared_gateway.acme.log_id))[-2:]
    assert [(one.words, one.entry.key) for one in told] == [("setting.changed", "setting:lineage-cycles")] * 2


async def test_a_keys_secret_is_shown_once(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    await http.post("/v1/access-rules", json=RULE)
    issued = (await http.post("/v1/keys", json={"identity": "eve@acme.example", "roles": ["reader"]})).json()
    assert (set(issued), issued["expires_at"]) == ({"id", "actor", "expires_at", "secret"}, None)
    listed = await http.get("/v1/keys")
    assert issued["secret"] not in listed.text
    assert issued["id"] in listed.text
    told = repr(
        [(one.entry, one.parts) for one in await read_stored(shared_gateway.services, shared_gateway.acme.log_id)]
    )
    assert issued["secret"] not in told
    eve = shared_gateway.client(issued["secret"])
    assert (await eve.get(NAMESPACES)).status_code == 200
    assert (await http.delete(f"/v1/keys/{issued['id']}")).status_code == 204
    assert (await eve.get(NAMESPACES)).status_code == 401


async def test_one_thing_is_shown_as_it_is_listed_and_one_that_is_not_there_is_none(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    await http.post("/v1/policies", json=POLICY)
    for kind, member, name in (
        ("policies", "policies", "id"),
        ("access-rules", "access-rules", "id"),
        ("catalogs", "catalogs", "alias"),
        ("keys", "keys", "id"),
        ("settings", "settings", "id"),
    ):
        thing, *_ = (await http.get(f"/v1/{kind}")).json()[member]
        shown = await http.get(f"/v1/{kind}/{thing[name]}")
        assert (shown.status_code, shown.json()) == (200, thing)
        for nothing in ("nothing", "No%20Id", "x" * 200):
            unknown = await http.get(f"/v1/{kind}/{nothing}")
            assert (unknown.status_code, error_of(unknown)["type"]) == (404, "NotFoundException"), unknown.text
    assert (await http.delete("/v1/policies/p")).status_code == 204
    assert (await http.get("/v1/policies/p")).status_code == 404, "it is out of force"


async def test_an_alias_is_taken_out_of_force_for_ever(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    assert (await http.get("/v1/config?warehouse=lake")).status_code == 200
    assert (await http.delete("/v1/catalogs/lake")).status_code == 204
    assert (await http.get("/v1/config?warehouse=lake")).status_code == 404
    assert (await http.delete("/v1/catalogs/lake")).status_code == 409
    assert (await http.delete("/v1/catalogs/never")).status_code == 404
    again = await http.post("/v1/catalogs", json={"alias": "lake", "kind": "builtin"})
    assert (again.status_code, error_of(again)["type"]) == (409, "AlreadyExistsException")
    told = [one.entry for one in await read_stored(shared_gateway.services, shared_gateway.acme.log_id)]
    assert (told[-1].type, told[-1].actor) == ("catalog.retired", shared_gateway.acme.key.actor)


async def test_what_is_behind_an_alias_is_asked_and_why_it_cannot_be_used_is_said(
    shared_gateway: Gateway, module_url: str
) -> None:
    http = shared_gateway.http
    built_in = await http.post("/v1/catalogs/lake/check")
    assert built_in.status_code == 200
    assert (built_in.json()["ok"], built_in.json()["answers"], built_in.json()["trouble"]) == (True, True, "")
    options = {"uri": module_url, "warehouse": "lake", "token": "secret:login"}
    assert (await http.post("/v1/catalogs", json={"alias": "far", "kind": "rest", "options": options})).is_success
    unknown = (await http.post("/v1/catalogs/far/check")).json()
    assert (unknown["ok"], unknown["answers"]) == (False, False)
    assert "secret:login is not there" in unknown["trouble"]
    secrets = shared_gateway.services.installation.secrets
    secrets.write(shared_gateway.acme.tenant, "login", shared_gateway.acme.key.secret)
    found = (await http.post("/v1/catalogs/far/check")).json()
    assert (found["ok"], found["answers"], found["trouble"], found["advice"]) == (True, True, "", "")
    assert "GET /v1/{prefix}/namespaces" in found["endpoints"]
    gone = {"uri": "http://127.0.0.1:1"}
    assert (await http.post("/v1/catalogs", json={"alias": "gone", "kind": "rest", "options": gone})).is_success
    silent = (await http.post("/v1/catalogs/gone/check")).json()
    assert (silent["ok"], silent["answers"]) == (False, False)
    assert silent["advice"].startswith("see that it runs")
    assert (await http.post("/v1/catalogs/never/check")).status_code == 404


BODIES: list[tuple[str, str, object, str]] = [
    ("POST", "/v1/policies", b"{", "body"),
    ("POST", "/v1/policies", b"\xff", "body"),
    ("POST", "/v1/policies", [], "body"),
    ("POST", "/v1/policies", {**POLICY, "id": 1}, "id"),
    ("POST", "/v1/policies", {**POLICY, "id": "no spaces"}, "id"),
    ("POST", "/v1/policies", {**POLICY, "message": ""}, "message"),
    ("POST", "/v1/policies", {**POLICY, "expression": "x" * 16_385}, "expression"),
    ("POST", "/v1/policies", {"id": "p", "message": "m"}, "expression"),
    ("POST", "/v1/policies", {**POLICY, "enabled": True}, "enabled"),
    ("PUT", "/v1/policies/p", {"expression": "true", "message": "m", "version": "1"}, "version"),
    ("PUT", "/v1/policies/no%20id", {"expression": "true", "message": "m"}, "id"),
    ("POST", "/v1/access-rules", {**RULE, "effect": "maybe"}, "effect"),
    ("POST", "/v1/catalogs", {"alias": "a", "kind": "oracle"}, "kind"),
    ("POST", "/v1/catalogs", {"alias": "a", "kind": "builtin", "options": {"a": 1}}, "options.a"),
    ("POST", "/v1/catalogs", {"alias": "A", "kind": "builtin"}, "alias"),
    ("PUT", "/v1/settings/lineage-cycles", {"value": "maybe"}, "value"),
    ("PUT", "/v1/settings/lineage-cycles", {"value": True}, "value"),
    ("PUT", "/v1/settings/no-such-setting", {"value": "keep"}, "id"),
    ("POST", "/v1/keys", {"identity": "", "roles": []}, "identity"),
    ("POST", "/v1/keys", {"identity": "eve", "roles": "reader"}, "roles"),
    ("POST", "/v1/keys", {"identity": "eve", "roles": ["a b"]}, "roles"),
    ("POST", "/v1/keys/x/rotate", b"", "body"),
    ("POST", "/v1/keys/x/rotate", {"overlap_s": -1}, "overlap_s"),
    ("POST", "/v1/keys/x/rotate", {"overlap_s": 30 * 86_400 + 1}, "overlap_s"),
    ("POST", "/v1/keys/x/rotate", {"overlap_s": "0"}, "overlap_s"),
    ("POST", "/v1/keys/x/rotate", {"expires_at": "soon"}, "expires_at"),
    ("POST", "/v1/keys/x/rotate", {"identity": "eve"}, "identity"),
]


@pytest.mark.parametrize(("method", "path", "body", "field"), BODIES)
async def test_a_malformed_edit_is_refused_by_the_name_of_its_field(
    module_gateway: Gateway, method: str, path: str, body: object, field: str
) -> None:
    told = await read_stored(module_gateway.services, module_gateway.acme.log_id)
    posted: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = await module_gateway.http.request(method, path, **posted)
    assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException"), answer.text
    assert error_of(answer)["message"].startswith(f"{field}: "), answer.text
    assert await read_stored(module_gateway.services, module_gateway.acme.log_id) == told


# Who may edit


async def everything(http: httpx.AsyncClient) -> list[httpx.Response]:
    return [
        await http.get("/v1/policies"),
        await http.get("/v1/policies/p"),
        await http.post("/v1/policies", json=POLICY),
        await http.put("/v1/policies/p", json={"expression": "true", "message": "m"}),
        await http.delete("/v1/policies/p"),
        await http.get("/v1/policies/p/versions"),
        await http.get("/v1/policies/p/versions/1"),
        await http.get("/v1/policies/p/diff"),
        await http.get("/v1/policies/p/diff?to=draft"),
        await http.get("/v1/policy-drafts"),
        await http.get("/v1/policy-drafts/p"),
        await http.put("/v1/policy-drafts/p", json={"expression": "true", "message": "m"}),
        await http.post("/v1/policy-drafts/p/review", json={"version": 1, "verdict": "approve"}),
        await http.get("/v1/restrictions"),
        await http.get("/v1/restrictions/r"),
        await http.post("/v1/restrictions", json={"id": "r", "filter": "true", "schemas": {}}),
        await http.put("/v1/restrictions/r", json={"filter": "true", "schemas": {}}),
        await http.delete("/v1/restrictions/r"),
        await http.get("/v1/access-rules"),
        await http.get("/v1/access-rules/first-key"),
        await http.post("/v1/access-rules", json=RULE),
        await http.delete("/v1/access-rules/first-key"),
        await http.get("/v1/catalogs"),
        await http.get("/v1/catalogs/lake"),
        await http.post("/v1/catalogs", json={"alias": "a", "kind": "builtin"}),
        await http.post("/v1/catalogs/lake/check"),
        await http.delete("/v1/catalogs/lake"),
        await http.get("/v1/keys"),
        await http.get("/v1/keys/x"),
        await http.post("/v1/keys/x/rotate", json={}),
        await http.post("/v1/keys", json={"identity": "eve"}),
        await http.delete("/v1/keys/x"),
        await http.get("/v1/settings"),
        await http.get("/v1/settings/lineage-cycles"),
        await http.get("/v1/tenant"),
        await http.get("/v1/purges"),
        await http.get("/v1/drops"),
        await http.get("/v1/dead-letters"),
        await http.put("/v1/settings/lineage-cycles", json={"value": "keep"}),
    ]


async def test_whom_no_rule_permits_edits_and_sees_nothing(shared_gateway: Gateway) -> None:
    eve = shared_gateway.client(await another_key(shared_gateway))
    told = await read_stored(shared_gateway.services, shared_gateway.acme.log_id)
    for answer in await everything(eve):
        assert (answer.status_code, error_of(answer)["message"]) == (403, "no access rule permits this")
    added = (await read_stored(shared_gateway.services, shared_gateway.acme.log_id))[len(told) :]
    assert {one.words for one in added} == {"access.refused"}
    assert {one.entry.data["operation"] for one in added} >= {"policy.configure", "key.inspect"}


async def test_rules_speak_of_editing_by_kind_and_id(shared_gateway: Gateway) -> None:
    rule = {
        "id": "authors",
        "effect": "permit",
        "expression": "'author' in roles && contentType == 'CONFIG_POLICY' && path.startsWith('.config.policy.team-')",
    }
    assert (await shared_gateway.http.post("/v1/access-rules", json=rule)).status_code == 201
    author = shared_gateway.client(await another_key(shared_gateway, "grace", "author"))
    assert (await author.post("/v1/policies", json={**POLICY, "id": "team-1"})).status_code == 201
    assert (await author.post("/v1/policies", json={**POLICY, "id": "other"})).status_code == 403
    assert (await author.post("/v1/access-rules", json=RULE)).status_code == 403
    assert (await author.get("/v1/keys")).status_code == 403


async def test_an_edit_permitted_by_older_rules_is_judged_again(shared_gateway: Gateway) -> None:
    parts = shared_gateway.services.gateway
    acme = shared_gateway.acme.log_id
    engine = parts.judge.engine
    count = 0

    class Slow:
        """The gateway's engine, and somebody who edits while it compiles."""

        async def check(self, expression: str, *, log_id: int, timeout_s: float, kind: str = "policy") -> None:
            nonlocal count
            await engine.check(expression, log_id=log_id, timeout_s=timeout_s, kind=kind)
            count += 1
            if expression == POLICY["expression"]:
                await parts.admin.create_catalog(acme, OPERATOR, alias=f"c{count}", kind="builtin", options={})

        judge = engine.judge

    parts.admin._policies._engine = Slow()
    try:
        answer = await shared_gateway.http.post("/v1/policies", json=POLICY)
    finally:
        parts.admin._policies._engine = engine
    assert (answer.status_code, count) == (503, STALE_MAX)
    assert answer.headers["retry-after"] == "1"
    assert (await shared_gateway.http.get("/v1/policies")).json() == {"policies": []}
    assert (await shared_gateway.http.post("/v1/policies", json=POLICY)).status_code == 201
