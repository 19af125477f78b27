# SPDX-License-Identifier: Apache-2.0
"""
Access rules that do nothing are found, with evidence, and rules that do something are not.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.admin.application import OPERATOR
from gateway.asking import rule_lint
from gateway.policy.rule_files import PREFIX
from testkit.gateway.sales import another_key, create_orders, error_of
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEED = 20_260_801


async def permit(gateway: Gateway, **rules: str) -> None:
    await put_in_force(gateway, "permit", rules)


async def forbid(gateway: Gateway, **rules: str) -> None:
    await put_in_force(gateway, "forbid", rules)


async def put_in_force(gateway: Gateway, effect: str, rules: Mapping[str, str]) -> None:
    for rule_id, expression in rules.items():
        await gateway.services.gateway.admin.create_access_rule(
            gateway.acme.log_id, OPERATOR, rule_id=rule_id.replace("_", "-"), effect=effect, expression=expression
        )


async def lint(gateway: Gateway) -> dict[str, Any]:
    answer = await gateway.http.get("/v1/access/lint")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def found(gateway: Gateway) -> dict[str, list[tuple[str, list[str]]]]:
    """By rule: what was found, and by which rules."""
    findings: dict[str, list[tuple[str, list[str]]]] = {}
    for one in (await lint(gateway))["findings"]:
        findings.setdefault(one["rule"]["id"], []).append((one["finding"], one["by"]))
    return findings


async def test_rules_that_all_do_something_are_clean(sales: Gateway) -> None:
    await another_key(sales, "rita@acme.example", "reader")
    await permit(
        sales,
        readers="'reader' in roles && op == 'READ_ENTITY_VALUE' && path.startsWith('sales.')",
        listing="'reader' in roles && op == 'READ_CONTENT_KEY' && contentType == 'NAMESPACE'",
        keys="'reader' in roles && contentType == 'CONFIG_KEY' && grant.identity.endsWith('@acme.example')",
    )
    await forbid(sales, hidden="path == 'sales.hidden' && op == 'READ_ENTITY_VALUE' && 'reader' in roles")
    linted = await lint(sales)
    assert (linted["findings"], linted["not_looked_at"], linted["rules"]) == ([], [], 5)
    assert linted["tried"] > 0


async def test_what_can_never_hold_is_found_and_said_to_be_certain_where_it_is(sales: Gateway) -> None:
    await permit(
        sales,
        constant="false",
        contradiction="op == 'READ_ENTITY_VALUE' && op == 'DELETE_ENTITY'",
        misspelt="op == 'READ_ENTITY_VALU'",
        elsewhere="catalog == 'lak' && op == 'READ_ENTITY_VALUE'",
        mixed="contentType == 'LOG' && op == 'DELETE_ENTITY'",
        unlikely="path == 'sales.orders' && path == 'sales.customers'",
    )
    linted = await lint(sales)
    of = {one["rule"]["id"]: one for one in linted["findings"]}
    assert {rule: (one["finding"], one["certain"]) for rule, one in of.items()} == {
        "constant": ("never", True),
        "contradiction": ("never", True),
        "misspelt": ("never", True),
        "elsewhere": ("never", True),
        "mixed": ("never", True),
        "unlikely": ("never", True),
    }
    assert of["constant"]["message"] == "it is false, whatever is asked"
    assert of["misspelt"]["message"] == "it holds for no operation: no operation is 'READ_ENTITY_VALU'"
    assert of["elsewhere"]["message"] == "it holds in no catalog in force: no catalog in force is 'lak'"
    assert of["unlikely"]["message"] == "it holds for no request"
    assert linted["undecided"] == []
    # Once there is the catalog, the rule holds.
    await sales.http.post("/v1/catalogs", json={"alias": "lak", "kind": "builtin", "options": {}})
    assert "elsewhere" not in await found(sales)


async def test_names_that_there_are_not_are_found_in_rules_that_hold_elsewhere(sales: Gateway) -> None:
    await another_key(sales, "rita@acme.example", "reader")
    await permit(
        sales,
        some="op in ['READ_ENTITY_VALUE', 'READ_IT'] && 'reader' in roles",
        role="op == 'DELETE_ENTITY' && 'reeder' in roles",
        prefix="op.startsWith('UPDATE_') && 'read' in roles.map(r, r.substring(0, 4))",
    )
    of = {one["rule"]["id"]: one for one in (await lint(sales))["findings"]}
    assert {rule: (one["finding"], one["names"], one["certain"]) for rule, one in of.items()} == {
        "some": ("unknown", ["READ_IT"], False),
        "role": ("unknown", ["reeder"], False),
    }
    assert of["role"]["message"] == "no role of a key in force is 'reeder'"
    assert of["role"]["held"] > 0, "a caller whom a provider vouches for may have it"
    await another_key(sales, "rene@acme.example", "reeder")
    assert "role" not in await found(sales)


async def test_a_permission_that_is_always_forbidden_is_found(sales: Gateway) -> None:
    await permit(
        sales,
        public="'reader' in roles && path.startsWith('hr.public.')",
        orders="'reader' in roles && path == 'sales.orders'",
        both="'reader' in roles && path in ['hr.public.news', 'sales.orders']",
    )
    await forbid(sales, hr="path.startsWith('hr.') && 'reader' in roles", writes="op.endsWith('_ENTITY')")
    of = {one["rule"]["id"]: one for one in (await lint(sales))["findings"] if one["finding"] == "overridden"}
    assert set(of) == {"public"}
    assert "hr" in of["public"]["by"]
    assert (of["public"]["certain"], of["public"]["held"] > 1) == (True, True)
    assert "hr.public." in of["public"]["example"]


async def test_several_forbidding_rules_together_override_one_that_permits(sales: Gateway) -> None:
    await another_key(sales, "rita@acme.example", "reader")
    await permit(sales, reads="'reader' in roles && op.startsWith('READ_ENTITY') && catalog == 'lake'")
    await forbid(
        sales,
        tables="contentType == 'ICEBERG_TABLE' && 'reader' in roles",
        views="contentType in ['ICEBERG_VIEW', 'UDF'] && 'reader' in roles",
    )
    assert "reads" not in await found(sales), "of namespaces, nothing is forbidden"
    await forbid(sales, namespaces="contentType == 'NAMESPACE' && 'reader' in roles")
    assert (await found(sales))["reads"] == [("overridden", ["tables", "views", "namespaces"])]


async def test_a_permission_within_a_wider_one_is_found(sales: Gateway) -> None:
    await another_key(sales, "rita@acme.example", "reader")
    await permit(
        sales,
        narrow="'reader' in roles && path == 'sales.orders' && op == 'READ_ENTITY_VALUE'",
        wide="'reader' in roles && path.startsWith('sales.')",
        same="path.startsWith('sales.') && 'reader' in roles",
        other="'reader' in roles && path.startsWith('hr.') && op == 'READ_ENTITY_VALUE'",
    )
    of = {one["rule"]["id"]: one for one in (await lint(sales))["findings"]}
    assert {rule: (one["finding"], one["by"]) for rule, one in of.items()} == {
        "narrow": ("covered", ["wide"]),
        "same": ("covered", ["wide"]),
    }
    assert of["narrow"]["message"] == "wherever it holds, wide holds, and for more"
    assert of["same"]["message"] == "wherever it holds, wide holds, which is older, and no request tells them apart"
    # A rule that does not name what it grants permits no grant: it covers none that does.
    await permit(
        sales,
        grants="'reader' in roles && contentType == 'CONFIG_KEY' && op.startsWith('UPDATE_') && has(grant.identity)",
        keys="'reader' in roles && contentType == 'CONFIG_KEY'",
    )
    assert not {"grants", "keys"} & set(await found(sales))


async def test_a_permission_that_several_others_give_together_is_found(sales: Gateway) -> None:
    await another_key(sales, "rita@acme.example", "reader")
    await permit(
        sales,
        tables="'reader' in roles && contentType == 'ICEBERG_TABLE' && op.startsWith('READ_')",
        others="'reader' in roles && contentType != 'ICEBERG_TABLE' && op.startsWith('READ_')",
        together="'reader' in roles && op == 'READ_ENTITY_VALUE'",
        more="'reader' in roles && op in ['READ_ENTITY_VALUE', 'DELETE_ENTITY'] && path.startsWith('hr.')",
    )
    linted = await lint(sales)
    (one,) = linted["findings"]
    assert (one["rule"]["id"], one["finding"], one["by"]) == ("together", "covered", ["tables", "others"])
    assert (one["certain"], one["message"]) == (True, "wherever it holds, one of these holds: tables, others")
    assert linted["undecided"] == []


async def test_a_forbidding_rule_that_cannot_be_judged_is_said_to_override(sales: Gateway) -> None:
    await another_key(sales, "rita@acme.example", "reader")
    await permit(sales, drops="'reader' in roles && op == 'DELETE_ENTITY'")
    await forbid(
        sales, broken="op == 'DELETE_ENTITY' && path.startsWith('hr') ? true : roles[0] == 'reader' && 1 / 0 == 1"
    )
    assert "drops" not in await found(sales), "where others than readers come first, it is false"
    await forbid(sales, fails="op == 'DELETE_ENTITY' && 1 / 0 == api.apiVersion")
    of = {one["rule"]["id"]: one for one in (await lint(sales))["findings"]}
    assert (of["drops"]["finding"], of["drops"]["certain"]) == ("overridden", True)
    assert of["drops"]["message"].startswith("wherever it holds, a forbidding rule holds or could not be judged: ")


async def test_imported_rules_are_tried_on_each_check(sales: Gateway) -> None:
    await another_key(sales, "rita@acme.example", "reader")
    file = "\n".join(
        (
            f"{PREFIX}viewing=op == 'VIEW_REFERENCE' && role == 'reader'",
            f"{PREFIX}main=op == 'VIEW_REFERENCE' && role == 'reader' && ref == 'main'",
            f"{PREFIX}branches=op == 'CREATE_REFERENCE' && ref.startsWith('dev-') && role == 'reader'",
            f"{PREFIX}commits=op == 'LIST_COMMIT_LOG' && role == 'reader'",
            f"{PREFIX}paths=op == 'VIEW_REFERENCE' && path == 'sales.orders' && role == 'reader'",
            f"{PREFIX}reading=op == 'READ_ENTITY_VALUE' && path == 'sales.orders' && role == 'reader'",
            f"{PREFIX}logs=contentType == 'LOG' && role == 'reader'",
        )
    )
    (await sales.http.post("/v1/access-rules/import", json={"file": file})).raise_for_status()
    of = {one["rule"]["id"]: one for one in (await lint(sales))["findings"]}
    assert {rule: (one["finding"], one["by"], one["certain"]) for rule, one in of.items()} == {
        "main": ("covered", ["viewing"], True),
        "commits": ("never", [], True),  # no request takes that check
        "paths": ("never", [], True),  # the check of a reference has no path
        "logs": ("never", [], True),  # it would have to name `type`
    }
    # A rule about the whole of a request makes one about a check needless, not the other way round.
    await permit(sales, whole="role == 'reader' && catalog == 'lake'")
    assert (await found(sales))["reading"] == [("covered", ["whole"])]
    assert "whole" not in await found(sales)


async def test_names_that_are_in_the_catalog_are_tried(shared_gateway: Gateway) -> None:
    await permit(shared_gateway, reads="path.matches('^sa.*ers$') && catalog == 'lake' && op == 'READ_ENTITY_VALUE'")
    undecided = [{"rule": "reads", "why": "nothing can be proven of path.matches('^sa.*ers$')"}]
    linted = await lint(shared_gateway)
    (before,) = linted["findings"]
    assert (before["finding"], before["certain"], linted["undecided"]) == ("never", False, undecided)
    await create_orders(shared_gateway.http)
    linted = await lint(shared_gateway)
    assert (linted["findings"], linted["undecided"]) == ([], undecided)


async def test_what_was_not_looked_at_is_said(sales: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = {"alias": "far", "kind": "rest", "options": {"uri": "http://127.0.0.1:9"}}
    (await sales.http.post("/v1/catalogs", json=foreign)).raise_for_status()
    await permit(sales, one="op == 'READ_ENTITY_VALUE' && 'x' in roles", two="false")
    monkeypatch.setattr(rule_lint, "RULES_MAX", 2)
    linted = await lint(sales)
    assert [one["rule"]["id"] for one in linted["findings"]] == ["one"]
    names, rules = linted["not_looked_at"]
    assert names.startswith("names in the catalog far: ")
    assert rules == "rules after the first 2: 1"
    monkeypatch.setattr(rule_lint, "LINT_S", -1.0)
    linted = await lint(sales)
    assert linted["findings"] == []
    assert linted["not_looked_at"][-1].endswith("the rules from first-key on: 2")


@pytest.mark.parametrize("seed", range(4))
async def test_no_rule_is_called_covered_or_overridden_that_alone_decides_a_request(sales: Gateway, seed: int) -> None:
    """Random rules: without one that is said to do nothing, the same requests are permitted as with it."""
    made = random.Random(SEED + seed)  # noqa: S311 - which rules are tried is no secret
    conditions = {
        "roles": ["'reader' in roles", "'writer' in roles", "!('reader' in roles)"],
        "op": ["op == 'READ_ENTITY_VALUE'", "op.startsWith('READ_')", "op in ['UPDATE_ENTITY', 'DELETE_ENTITY']"],
        "path": ["path == 'sales.orders'", "path.startsWith('sales')", "path.startsWith('hr.')"],
        "type": ["contentType == 'ICEBERG_TABLE'", "contentType == 'NAMESPACE'"],
    }
    for number in range(6):
        parts = [made.choice(conditions[name]) for name in made.sample(sorted(conditions), made.choice((1, 2, 3)))]
        effect = "forbid" if number == 0 else "permit"
        await put_in_force(sales, effect, {f"r{number}": f"{' && '.join(parts)} && actor != '{sales.acme.key.actor}'"})

    async def decisions() -> list[tuple[str, str, str]]:
        asked = [
            (operation, target)
            for operation in ("table.load", "table.exists", "table.drop", "view.load")
            for target in ("lake.sales.orders", "lake.sales.other", "lake.hr.people", "lake.else.where")
        ] + [("namespace.load", "lake.sales"), ("namespace.list", "lake.hr"), ("namespace.drop", "lake.sales")]
        answers = []
        for operation, target in asked:
            for roles in ("reader", "writer", "reader&role=writer", "none"):
                answer = await sales.http.get(f"/v1/access/what?target={target}&role={roles}")
                answers += [
                    (roles, target, one["decision"])
                    for one in answer.json()["operations"]
                    if one["operation"] == operation
                ]
        return answers

    before = await decisions()
    findings = [one for one in (await lint(sales))["findings"] if one["finding"] in {"never", "covered", "overridden"}]
    for rule_id in dict.fromkeys(one["rule"]["id"] for one in findings):
        assert (await sales.http.delete(f"/v1/access-rules/{rule_id}")).status_code == 204
    assert await decisions() == before


async def test_it_takes_the_right_to_read_the_rules(sales: Gateway) -> None:
    eve = sales.client(await another_key(sales, "eve@acme.example", "reader"))
    refused = await eve.get("/v1/access/lint")
    assert (refused.status_code, error_of(refused)["type"]) == (403, "ForbiddenException")
