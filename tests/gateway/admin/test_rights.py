# SPDX-License-Identifier: Apache-2.0
"""
Rights hold against callers who have some: no rule stops a tenant, no name stands for configuration.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from gateway.admin.application import OPERATOR
from gateway.control.plane import parse_control_event
from gateway.policy.access import path_of
from gateway.policy.variables import CommitView
from lakeproof.serving.former_rules import warn_of_doubtful_rules
from ledger.format.event import Event, prepare
from ledger.format.events import AccessRuleCreatedV1, Effect, to_data
from ledger.format.guards import GuardCall
from ledger.format.sequence import Group
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import NAMESPACES, ORDERS, another_key, create_orders, error_of, properties
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

POLICY = {"id": "p", "expression": "false", "message": "no"}
NOBODY = {"identity": "eve@acme.example"}


async def add_rule(gateway: Gateway, rule_id: str, expression: str, effect: str = "permit") -> None:
    """Put a rule in force as the operator does."""
    log_id = gateway.acme.log_id
    await gateway.services.gateway.admin.create_access_rule(
        log_id, OPERATOR, rule_id=rule_id, effect=effect, expression=expression
    )


async def add_former_rule(gateway: Gateway, rule_id: str, expression: str, effect: Effect = Effect.PERMIT) -> None:
    """Put a rule in force as a process did that knew the former vocabulary only."""
    rule = AccessRuleCreatedV1(id=rule_id, version=1, effect=effect, expression=expression)
    services, key = gateway.services, f"access_rule:{rule_id}"
    event = Event(
        type=rule.TYPE, version=1, key=key, actor="system", occurred_at=services.gateway.clock(), data=to_data(rule)
    )
    guard = (GuardCall("aggregate.create", {"key": key}),)
    group = Group(id=services.gateway.new_group_id(), then=(prepare(event),), guard=guard)
    await services.appender.append(gateway.acme.log_id, group)


# One rule stops no tenant


@pytest.mark.parametrize(
    "expression", ["true", "op != ''", "contentType == 'CONFIG_ACCESS_RULE'", "actor.size() == 32"]
)
async def test_a_rule_that_locks_its_author_out_is_refused_and_nothing_is_saved(
    shared_gateway: Gateway, expression: str
) -> None:
    http = shared_gateway.http
    told = await read_stored(shared_gateway.services, shared_gateway.acme.log_id)
    refused = await http.post("/v1/access-rules", json={"id": "r", "effect": "forbid", "expression": expression})
    assert (refused.status_code, error_of(refused)["type"]) == (422, "UnprocessableEntityException")
    assert "you could not delete it (access rule r (version 1) forbids this)" in error_of(refused)["message"]
    assert "lakeproof access-rules create" in error_of(refused)["message"]
    assert await read_stored(shared_gateway.services, shared_gateway.acme.log_id) == told
    narrowed = f"({expression}) && !contentType.startsWith('CONFIG_')"
    saved = await http.post("/v1/access-rules", json={"id": "r", "effect": "forbid", "expression": narrowed})
    assert saved.status_code == 201
    assert (await http.delete("/v1/access-rules/r")).status_code == 204


async def test_a_rule_that_locks_others_out_is_their_matter_not_its_authors(shared_gateway: Gateway) -> None:
    rule = {"id": "r", "effect": "forbid", "expression": "'intern' in roles"}
    assert (await shared_gateway.http.post("/v1/access-rules", json=rule)).status_code == 201
    await add_rule(shared_gateway, "interns", "'intern' in roles")
    intern = shared_gateway.client(await another_key(shared_gateway, "ian", "intern"))
    assert (await intern.delete("/v1/access-rules/r")).status_code == 403
    assert (await shared_gateway.http.delete("/v1/access-rules/r")).status_code == 204


async def test_a_permitting_rule_that_fails_takes_no_permission_away_and_can_be_retired(
    shared_gateway: Gateway,
) -> None:
    http = shared_gateway.http
    broken = {"id": "broken", "effect": "permit", "expression": "roles[5] == 'x'"}
    saved = await http.post("/v1/access-rules", json=broken)
    assert saved.status_code == 201
    (warning,) = saved.json()["warnings"]
    assert "by a caller without roles: takes an element outside of a list (line 1, column 1)" in warning
    assert warning.endswith("there it permits nothing")
    await create_orders(http)
    assert (await http.post(ORDERS, json=properties(owner="ada"))).status_code == 200
    decided = (await read_stored(shared_gateway.services, shared_gateway.acme.log_id, key="table:lake/sales/orders"))[
        -2
    ]
    assert b'"outcome":"error"' in decided.parts["verdicts"]
    metrics = shared_gateway.services.gateway.judge.failed_programs.text()
    assert re.search(r'^lakeproof_failed_programs_total\{kind="access_rule"\} [1-9]', metrics, re.MULTILINE)
    eve = shared_gateway.client(await another_key(shared_gateway))
    unknown = await eve.get(NAMESPACES)
    assert (unknown.status_code, unknown.headers["retry-after"]) == (503, "1")
    assert "access rule broken (version 1) could not be judged" in error_of(unknown)["message"]
    assert (await http.delete("/v1/access-rules/broken")).status_code == 204
    assert (await eve.get(NAMESPACES)).status_code == 403


async def test_a_forbidding_rule_that_fails_stops_what_it_speaks_of_and_never_its_own_retirement(
    shared_gateway: Gateway,
) -> None:
    http = shared_gateway.http
    await create_orders(http)
    rule = {"id": "r", "effect": "forbid", "expression": "path.startsWith('sales') && roles[5] == 'x'"}
    saved = await http.post("/v1/access-rules", json=rule)
    assert saved.status_code == 201
    assert "(path 'sales')" in saved.json()["warnings"][0]
    assert (await http.get(ORDERS)).status_code == 503
    assert (await http.post(ORDERS, json=properties(owner="ada"))).status_code == 503
    assert (await http.get(NAMESPACES)).status_code == 200
    everywhere = {"id": "everywhere", "effect": "forbid", "expression": "roles[6] == 'x'"}
    assert (await http.post("/v1/access-rules", json=everywhere)).status_code == 201
    assert (await http.get(NAMESPACES)).status_code == 503
    assert (await http.delete("/v1/access-rules/r")).status_code == 503, "it is stopped by the other rule"
    assert (await http.delete("/v1/access-rules/everywhere")).status_code == 204
    assert (await http.delete("/v1/access-rules/r")).status_code == 204
    assert (await http.get(ORDERS)).status_code == 200


async def test_a_policy_that_refuses_everything_can_be_retired_by_its_author(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    assert (await http.post("/v1/policies", json=POLICY)).status_code == 201
    assert (await http.post(NAMESPACES, json={"namespace": ["n"]})).status_code == 403
    assert (await http.delete("/v1/policies/p")).status_code == 204
    assert (await http.post(NAMESPACES, json={"namespace": ["n"]})).status_code == 200


async def test_a_policy_that_fails_on_what_it_can_be_given_is_saved_with_a_warning(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    failing = {**POLICY, "expression": "result.properties.owner == 'ada'"}
    (warning,) = (await http.post("/v1/policies", json=failing)).json()["warnings"]
    assert "reads a field or key that does not exist" in warning
    assert warning.endswith("such commits are answered with 503")
    change = {"message": "no", "expression": "!('owner' in result.properties) || result.properties.owner == 'ada'"}
    assert (await http.put("/v1/policies/p", json=change)).json()["warnings"] == []


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("findings.columns[0].confidence < 90", "for table.create of 'n' by no role: takes an element outside"),
        ("age(findings.scanned_at) < duration('24h')", "first for table.create of 'n' by no role: "),
        ("findings.columns == [] || findings.columns[5].kind != 'email'", "of a table with findings and lineage"),
        ("lineage.upstream == [] || lineage.upstream[5].name != 'x'", "of a table with findings and lineage"),
    ],
)
async def test_a_policy_is_tried_on_tables_with_findings_and_lineage_and_without(
    shared_gateway: Gateway, expression: str, words: str
) -> None:
    http = shared_gateway.http
    (warning,) = (await http.post("/v1/policies", json={**POLICY, "expression": expression})).json()["warnings"]
    assert words in warning
    change = {"message": "no", "expression": "findings.columns.all(f, lineage.upstream.all(t, t.name != f.kind))"}
    assert (await http.put("/v1/policies/p", json=change)).json()["warnings"] == []


# No name stands for configuration


@pytest.mark.parametrize("former", ["key", "policy", "access_rule", "catalog", "log", "lineage"])
async def test_every_right_on_a_namespace_gives_none_on_configuration_of_that_name(
    shared_gateway: Gateway, former: str
) -> None:
    await add_rule(shared_gateway, "own", f"'owner' in roles && (path == '{former}' || path.startsWith('{former}.'))")
    eve = shared_gateway.client(await another_key(shared_gateway, "eve", "owner"))
    assert (await eve.post(NAMESPACES, json={"namespace": [former]})).status_code == 200
    table = {"name": "t", "schema": {"type": "struct", "fields": []}}
    assert (await eve.post(f"{NAMESPACES}/{former}/tables", json=table)).status_code == 200
    founder = {"identity": "ada@acme.example", "roles": ["data-eng"]}
    for answer in (
        await eve.post("/v1/keys", json=founder),
        await eve.get("/v1/keys"),
        await eve.delete(f"/v1/keys/{shared_gateway.acme.key.id}"),
        await eve.post("/v1/policies", json=POLICY),
        await eve.get("/v1/policies"),
        await eve.post("/v1/access-rules", json={"id": "mine", "effect": "permit", "expression": "true"}),
        await eve.delete("/v1/access-rules/first-key"),
        await eve.post("/v1/catalogs", json={"alias": "a", "kind": "builtin"}),
        await eve.get(f"/log/{shared_gateway.acme.origin}/checkpoint"),
        await eve.post("/v1/lineage", json={}),
    ):
        assert (answer.status_code, error_of(answer)["message"]) == (403, "no access rule permits this")


@pytest.mark.parametrize("name", [".config.key", ".log", ".config", ".", "..", ". key", ".lineage"])
async def test_no_path_of_content_is_one_of_configuration(shared_gateway: Gateway, name: str) -> None:
    await add_rule(shared_gateway, "own", "'owner' in roles && path.startsWith('.')")
    eve = shared_gateway.client(await another_key(shared_gateway, "eve", "owner"))
    refused = await eve.post(NAMESPACES, json={"namespace": [name]})
    assert refused.status_code in {400, 403}, refused.text
    for levels in ((name,), (name, "key"), ("", "config", "key")):
        if all(levels):
            view = CommitView(catalog="lake", namespace=levels, name="", kind="namespace", operation="namespace.create")
            assert not path_of(view).startswith(".")


async def test_rules_name_configuration_by_content_type_and_path(shared_gateway: Gateway) -> None:
    await add_rule(shared_gateway, "authors", "'author' in roles && contentType == 'CONFIG_POLICY'")
    await add_rule(shared_gateway, "auditors", "'auditor' in roles && contentType == 'LOG' && path == '.log'")
    author = shared_gateway.client(await another_key(shared_gateway, "grace", "author"))
    auditor = shared_gateway.client(await another_key(shared_gateway, "audrey", "auditor"))
    log = f"/log/{shared_gateway.acme.origin}/checkpoint"
    assert (await author.post("/v1/policies", json=POLICY)).status_code == 201
    assert (await author.get("/v1/access-rules")).status_code == 403
    assert (await author.get(log)).status_code == 403
    assert (await auditor.get(log)).status_code in {200, 404}
    assert (await auditor.get("/v1/policies")).status_code == 403


# Rules of the former vocabulary


async def test_a_rule_of_before_keeps_its_meaning_where_both_vocabularies_agree(shared_gateway: Gateway) -> None:
    await create_orders(shared_gateway.http)
    await add_former_rule(shared_gateway, "readers", "'reader' in roles && path.startsWith('sales')")
    await add_former_rule(shared_gateway, "admins", "'admin' in roles")
    reader = shared_gateway.client(await another_key(shared_gateway, "r", "reader"))
    admin = shared_gateway.client(await another_key(shared_gateway, "a", "admin"))
    assert (await reader.get(ORDERS)).status_code == 200
    assert (await reader.get("/v1/keys")).status_code == 403
    assert (await admin.get("/v1/keys")).status_code == 200
    assert (await admin.post("/v1/policies", json=POLICY)).status_code == 201
    rules = (await shared_gateway.http.get("/v1/access-rules")).json()["access-rules"]
    assert [(rule["id"], rule["vocabulary"]) for rule in rules] == [("first-key", 2), ("readers", 1), ("admins", 1)]


@pytest.mark.parametrize(
    "expression",
    [
        "'owner' in roles && path.startsWith('key.')",
        "'owner' in roles && contentType == ''",
        "'owner' in roles && path.matches('^[a-z_.]{4}$')",
    ],
)
async def test_a_rule_of_before_that_would_mean_something_else_permits_nothing_and_says_how_to_mend_it(
    shared_gateway: Gateway, expression: str
) -> None:
    await add_former_rule(shared_gateway, "owners", expression)
    eve = shared_gateway.client(await another_key(shared_gateway, "eve", "owner"))
    answer = await eve.get("/v1/keys")
    assert answer.status_code == 503
    assert "lakeproof access-rules delete owners" in error_of(answer)["message"]
    assert (await shared_gateway.http.get("/v1/keys")).status_code == 200, "others are not touched"
    assert (await shared_gateway.http.delete("/v1/access-rules/owners")).status_code == 204
    assert (await eve.get("/v1/keys")).status_code == 403


async def test_a_rule_of_before_that_named_ref_in_vain_does_not_come_alive(shared_gateway: Gateway) -> None:
    await create_orders(shared_gateway.http)
    await add_former_rule(shared_gateway, "main", "'reader' in roles && ref == 'main'")
    reader = shared_gateway.client(await another_key(shared_gateway, "r", "reader"))
    assert (await reader.get(ORDERS)).status_code == 503
    await add_rule(shared_gateway, "main-2", "'reader' in roles && ref == 'main'")
    assert (await reader.get(ORDERS)).status_code == 200


async def test_a_forbidding_rule_of_before_that_is_in_doubt_can_be_retired(shared_gateway: Gateway) -> None:
    await add_former_rule(
        shared_gateway, "closed", "path.startsWith('policy.') || path.startsWith('access_rule.')", Effect.FORBID
    )
    http = shared_gateway.http
    assert (await http.post("/v1/policies", json=POLICY)).status_code == 503
    assert (await http.delete("/v1/access-rules/closed")).status_code == 204
    assert (await http.post("/v1/policies", json=POLICY)).status_code == 201


async def test_rules_in_doubt_are_reported_to_the_operator_at_start(shared_gateway: Gateway) -> None:
    await add_former_rule(shared_gateway, "owners", "path.startsWith('key.') && 'x' in roles")
    await add_former_rule(shared_gateway, "readers", "path.startsWith('sales.') && 'x' in roles")
    await add_rule(shared_gateway, "own", "path.startsWith('key.') && 'x' in roles")
    said: list[str] = []
    await warn_of_doubtful_rules(shared_gateway.services, said.append)
    tenant = shared_gateway.acme.tenant.hex
    (told,) = [line for line in said if line.startswith(f"tenant {tenant}")]
    assert "access rule owners may be in doubt" in told
    assert "lakeproof access-rules delete owners" in told


async def test_a_new_rule_that_speaks_of_a_former_path_is_saved_with_a_warning(shared_gateway: Gateway) -> None:
    rule = {"id": "r", "effect": "permit", "expression": "path == 'lineage' && 'x' in roles"}
    (warning,) = (await shared_gateway.http.post("/v1/access-rules", json=rule)).json()["warnings"]
    assert ".lineage" in warning
    assert ".config.key" in warning


async def test_both_versions_of_a_created_rule_are_read_from_the_log(shared_gateway: Gateway) -> None:
    await add_former_rule(shared_gateway, "r", "'x' in roles")
    created = [
        parse_control_event(one.entry)
        for one in await read_stored(shared_gateway.services, shared_gateway.acme.log_id)
        if one.entry.type == "access_rule.created"
    ]
    assert [event.VERSION for event in created] == [2, 1]


# What a key grants


ISSUERS = "'issuer' in roles && contentType == 'CONFIG_KEY'"


async def issuer_with(gateway: Gateway, expression: str) -> Any:
    await add_rule(gateway, "issuers", expression)
    return gateway.client(await another_key(gateway, "ida@acme.example", "issuer", "reader"))


async def test_a_caller_grants_no_more_than_its_own_rights_unless_a_rule_names_it(shared_gateway: Gateway) -> None:
    issuer = await issuer_with(shared_gateway, ISSUERS)
    own = {"identity": "ida@acme.example", "roles": ["reader"]}
    assert (await issuer.post("/v1/keys", json=own)).status_code == 201
    for body, named in (
        ({**own, "roles": ["reader", "admin"]}, "grant.roles"),
        ({**own, "identity": "ada@acme.example"}, "grant.identity"),
        ({"identity": "ada@acme.example", "roles": ["admin"]}, "grant.identity and grant.roles"),
    ):
        refused = await issuer.post("/v1/keys", json=body)
        assert refused.status_code == 403
        assert f"takes a rule that names {named}" in error_of(refused)["message"]


@pytest.mark.parametrize(
    ("expression", "body", "status"),
    [
        ("grant.roles.all(r, r in ['reader', 'writer'])", {"roles": ["writer"]}, 201),
        ("grant.roles.all(r, r in ['reader', 'writer'])", {"roles": ["admin"]}, 403),
        ("grant.roles.all(r, r in ['reader', 'writer'])", {"roles": ["writer"], "identity": "bob@acme.example"}, 403),
        ("grant.identity.endsWith('@acme.example')", {"identity": "bob@acme.example"}, 201),
        ("grant.identity.endsWith('@acme.example')", {"identity": "bob@evil.example"}, 403),
        ("grant.identity.endsWith('@acme.example')", {"identity": "bob@acme.example", "roles": ["admin"]}, 403),
        ("has(grant.identity) && has(grant.roles)", {"identity": "bob@evil.example", "roles": ["admin"]}, 201),
        ("'grant.roles' != '' // grant.roles", {"roles": ["admin"]}, 403),
    ],
)
async def test_a_rule_that_names_the_grant_decides_about_it(
    shared_gateway: Gateway, expression: str, body: dict[str, Any], status: int
) -> None:
    issuer = await issuer_with(shared_gateway, f"{ISSUERS} && {expression}")
    answer = await issuer.post("/v1/keys", json={"identity": "ida@acme.example", **body})
    assert answer.status_code == status, answer.text


async def test_one_rule_must_speak_of_all_that_is_granted(shared_gateway: Gateway) -> None:
    issuer = await issuer_with(shared_gateway, f"{ISSUERS} && has(grant.identity)")
    await add_rule(shared_gateway, "roles", f"{ISSUERS} && has(grant.roles)")
    body = {"identity": "bob@acme.example", "roles": ["admin"]}
    assert (await issuer.post("/v1/keys", json=body)).status_code == 403


async def test_a_rule_can_forbid_a_grant_to_the_founder_too(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    rule = {"id": "r", "effect": "forbid", "expression": "'root' in grant.roles"}
    assert (await http.post("/v1/access-rules", json=rule)).status_code == 201
    assert (await http.post("/v1/keys", json={**NOBODY, "roles": ["root"]})).status_code == 403
    assert (await http.post("/v1/keys", json={**NOBODY, "roles": ["reader"]})).status_code == 201


async def test_the_founder_of_before_goes_on_and_grants_what_he_has(shared_gateway: Gateway) -> None:
    bob = await another_key(shared_gateway, "bob@acme.example", "reader")
    actor = next(
        key.actor
        for key in await shared_gateway.services.gateway.admin.list_keys(shared_gateway.acme.log_id)
        if key.id != shared_gateway.acme.key.id
    )
    await add_former_rule(shared_gateway, "founder", f'actor == "{actor}"')
    http = shared_gateway.client(bob)
    assert (await http.post("/v1/keys", json={"identity": "bob@acme.example", "roles": ["reader"]})).status_code == 201
    assert (await http.post("/v1/keys", json={"identity": "bob@acme.example", "roles": ["admin"]})).status_code == 403
    assert (await http.post("/v1/policies", json=POLICY)).status_code == 201


# Catalogs and refs


async def test_rules_speak_of_a_catalog_by_its_alias(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    await http.post("/v1/catalogs", json={"alias": "bay", "kind": "builtin"})
    await add_rule(shared_gateway, "bay", "'guest' in roles && catalog == 'bay'")
    guest = shared_gateway.client(await another_key(shared_gateway, "guest", "guest"))
    assert (await guest.get("/v1/iceberg/bay/namespaces")).status_code == 200
    assert (await guest.post("/v1/iceberg/bay/namespaces", json={"namespace": ["n"]})).status_code == 200
    assert (await guest.get(NAMESPACES)).status_code == 403
    assert (await guest.get("/v1/catalogs")).status_code == 403, "configuration is no catalog's content"


async def test_an_alias_in_which_nothing_is_permitted_is_answered_as_one_that_does_not_exist(
    shared_gateway: Gateway,
) -> None:
    http = shared_gateway.http
    await http.post("/v1/catalogs", json={"alias": "bay", "kind": "builtin"})
    await add_rule(shared_gateway, "bay", "'guest' in roles && catalog == 'bay' && path.startsWith('open.')")
    guest = shared_gateway.client(await another_key(shared_gateway, "guest", "guest"))
    assert (await guest.get("/v1/config?warehouse=bay")).status_code == 200
    forbidden, unknown = [await guest.get(f"/v1/config?warehouse={alias}") for alias in ("lake", "attic")]
    assert (forbidden.status_code, unknown.status_code) == (404, 404)
    assert forbidden.text == unknown.text.replace("attic", "lake")
    assert (await http.get("/v1/config?warehouse=lake")).status_code == 200


async def test_other_answers_reveal_no_alias_either(shared_gateway: Gateway) -> None:
    await create_orders(shared_gateway.http)
    eve = shared_gateway.client(await another_key(shared_gateway))
    body = {"namespace": ["n"]}
    for method, path, sent in (
        ("GET", NAMESPACES, None),
        ("POST", NAMESPACES, body),
        ("GET", ORDERS, None),
        ("HEAD", ORDERS, None),
        ("POST", ORDERS, properties(owner="eve")),
        ("DELETE", ORDERS, None),
        ("POST", f"{NAMESPACES}/sales/properties", {"updates": {"a": "b"}}),
    ):
        there = await eve.request(method, path, json=sent)
        missing = await eve.request(method, path.replace("/lake/", "/attic/"), json=sent)
        assert there.status_code == missing.status_code == 403
        assert there.text == missing.text
    assert (await shared_gateway.http.get("/v1/iceberg/attic/namespaces")).status_code == 404
    assert (await shared_gateway.http.post("/v1/iceberg/attic/namespaces", json=body)).status_code == 404


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        ("'guest' in roles && op == 'READ_ENTITY_VALUE'", True),
        ("'guest' in roles && contentType == 'NAMESPACE' && path == 'x'", True),
        ("'guest' in roles && 'META_SET_PROPERTIES' in actions", True),
        ("'guest' in roles && ref == 'dev'", True),
        ("'guest' in roles && contentType.startsWith('CONFIG_')", False),
        ("'guest' in roles && op.endsWith('_REPOSITORY_CONFIG') && path.startsWith('.config.policy.')", False),
        ("'guest' in roles && catalog != 'lake'", False),
        ("'other' in roles && path == 'x'", False),
    ],
)
async def test_config_is_answered_to_whom_something_may_be_permitted(
    shared_gateway: Gateway, rule: str, shown: bool
) -> None:
    await add_rule(shared_gateway, "guests", rule)
    guest = shared_gateway.client(await another_key(shared_gateway, "guest", "guest"))
    assert (await guest.get("/v1/config?warehouse=lake")).status_code == (200 if shown else 404)


async def test_a_catalog_that_a_rule_forbids_is_not_shown(shared_gateway: Gateway) -> None:
    await add_rule(shared_gateway, "guests", "'guest' in roles")
    guest = shared_gateway.client(await another_key(shared_gateway, "guest", "guest"))
    assert (await guest.get("/v1/config?warehouse=lake")).status_code == 200
    await add_rule(shared_gateway, "closed", "'guest' in roles && catalog == 'lake'", "forbid")
    assert (await guest.get("/v1/config?warehouse=lake")).status_code == 404


def branch(*names: str, **texts: str) -> dict[str, Any]:
    """A commit that sets branches to the table's snapshot, and properties."""
    refs = [{"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": 1} for name in names]
    return {"requirements": [], "updates": [*refs, *(properties(**texts)["updates"] if texts else [])]}


def first_snapshot(location: str) -> dict[str, object]:
    """The update that adds the first snapshot to the table at `location`."""
    return {
        "action": "add-snapshot",
        "snapshot": {
            "snapshot-id": 1,
            "sequence-number": 1,
            "timestamp-ms": 9_000_000_000_000,
            "manifest-list": f"{location}/metadata/snap-1.avro",
            "summary": {"operation": "append"},
            "schema-id": 0,
        },
    }


async def test_a_commit_is_judged_by_every_ref_that_it_moves(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    await create_orders(http)
    snapshot = first_snapshot((await http.get(ORDERS)).json()["metadata"]["location"])
    assert (await http.post(ORDERS, json={"requirements": [], "updates": [snapshot]})).status_code == 200
    await add_rule(shared_gateway, "devs", "'dev' in roles && ref == 'dev' && path == 'sales.orders'")
    dev = shared_gateway.client(await another_key(shared_gateway, "dan", "dev"))
    assert (await dev.post(ORDERS, json=branch("dev"))).status_code == 200
    for commit in (branch("main"), branch("dev", "main"), branch("dev", owner="dan"), properties(owner="dan")):
        assert (await dev.post(ORDERS, json=commit)).status_code == 403
    assert (await dev.get(ORDERS)).status_code == 403, "a table is read as a whole"
    await add_rule(shared_gateway, "frozen", "ref == 'release' && op == 'UPDATE_ENTITY'", "forbid")
    assert (await http.post(ORDERS, json=branch("a", "release", "z"))).status_code == 403
    assert (await http.post(ORDERS, json=branch("a", "z", owner="ada"))).status_code == 200
    many = await http.post(ORDERS, json=branch(*(f"b{number}" for number in range(17))))
    assert (many.status_code, "this commit moves 17" in error_of(many)["message"]) == (403, True)
