# SPDX-License-Identifier: Apache-2.0
"""
Who may do something and what someone may do: each answer is what a request gets, with the rule that decides.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import httpx
import pytest

from gateway.admin.application import OPERATOR
from gateway.asking import questions
from gateway.asking.requests import OPERATIONS, TARGET_LENGTH_MAX, parse_asked
from gateway.http.operations import BY_ID
from gateway.policy.access import CONTENT_TYPES, NO_CONTENT, Access, AccessRequest, access_activation
from gateway.policy.rule_files import PREFIX
from gateway.policy.variables import PrincipalView
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import NAMESPACES, ORDERS, SALES, TABLES, another_key, error_of, properties
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

TABLE = "lake.sales.orders"
SEED = 20_260_801
ROUNDS = 6
PIECES = (
    "'reader' in roles",
    "'writer' in roles",
    "role == 'reader'",
    "op == 'READ_ENTITY_VALUE'",
    "op in ['READ_CONTENT_KEY', 'UPDATE_ENTITY']",
    "path == 'sales.orders'",
    "path.startsWith('sales')",
    "contentType == 'NAMESPACE'",
    "catalog == 'lake'",
    "ref == 'main'",
    "roles[1] == 'writer'",
    "false",
)
"""Of which random rules are made; one of them fails for callers with one role."""


async def rule(gateway: Gateway, rule_id: str, effect: str, expression: str) -> None:
    await gateway.services.gateway.admin.create_access_rule(
        gateway.acme.log_id, OPERATOR, rule_id=rule_id, effect=effect, expression=expression
    )


async def who(http: httpx.AsyncClient, operation: str, target: str | None = TABLE) -> dict[str, Any]:
    answer = await http.get("/v1/access/who", params={"operation": operation, **({"target": target} if target else {})})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def what(http: httpx.AsyncClient, target: str | None = TABLE, **caller: Any) -> dict[str, Any]:
    params = {**caller, **({} if target is None else {"target": target})}
    answer = await http.get("/v1/access/what", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def told(answer: dict[str, Any]) -> dict[tuple[str | None, tuple[str, ...]], tuple[str, str | None]]:
    """By identity and roles: the decision, and the id of its rule."""
    return {
        (one["identity"], tuple(one["roles"])): (one["decision"], (one["rule"] or {"id": None})["id"])
        for one in answer["callers"]
    }


async def test_who_may_is_told_with_the_rule_that_decides(sales: Gateway) -> None:
    await another_key(sales, "rita@acme.example", "reader")
    await another_key(sales, "wim@acme.example", "intern", "reader")
    await another_key(sales, "nobody@acme.example")
    await rule(
        sales, "readers", "permit", "'reader' in roles && op == 'READ_ENTITY_VALUE' && path.startsWith('sales.')"
    )
    await rule(sales, "interns", "forbid", "'intern' in roles && path.startsWith('sales.')")
    answer = await who(sales.http, "table.load")
    assert (answer["catalog"], answer["path"], answer["operation"]) == ("lake", "sales.orders", "table.load")
    assert told(answer) == {
        ("ada@acme.example", ("data-eng",)): ("permitted", "first-key"),
        ("rita@acme.example", ("reader",)): ("permitted", "readers"),
        ("wim@acme.example", ("intern", "reader")): ("denied", "interns"),
        ("nobody@acme.example", ()): ("denied", None),
        # Whoever has a token or a certificate, by the roles that rules name.
        (None, ()): ("denied", None),
        (None, ("reader",)): ("permitted", "readers"),
        (None, ("intern",)): ("denied", "interns"),
    }
    assert told(await who(sales.http, "table.drop"))["rita@acme.example", ("reader",)] == ("denied", None)


async def test_a_rule_that_cannot_be_judged_permits_nothing_and_is_named(sales: Gateway) -> None:
    await another_key(sales, "rita@acme.example", "reader")
    await rule(sales, "second", "permit", "roles[1] == 'reader'")
    answer = told(await who(sales.http, "table.load"))
    assert answer["rita@acme.example", ("reader",)] == ("undecidable", "second")
    assert answer["ada@acme.example", ("data-eng",)] == ("permitted", "first-key")
    await rule(sales, "third", "forbid", "op == 'DELETE_ENTITY' && roles[1] == 'intern'")
    assert (await sales.http.delete(ORDERS)).status_code == 503
    assert told(await who(sales.http, "table.drop"))["ada@acme.example", ("data-eng",)] == ("undecidable", "third")


async def test_roles_that_only_together_make_a_difference_are_listed_together(sales: Gateway) -> None:
    await rule(sales, "both", "permit", "'reader' in roles && 'auditor' in roles")
    await rule(sales, "either", "permit", "('smith' in roles || 'jones' in roles) && op == 'READ_ENTITY_VALUE'")
    answer = told(await who(sales.http, "table.load"))
    assert answer[None, ("auditor",)] == answer[None, ("reader",)] == ("denied", None)
    assert answer[None, ("auditor", "reader")] == ("permitted", "both")
    assert answer[None, ("smith",)] == answer[None, ("jones",)] == ("permitted", "either")
    assert (None, ("jones", "smith")) not in answer


async def test_what_a_commit_does_in_detail_is_not_known_beforehand(sales: Gateway) -> None:
    await another_key(sales, "wim@acme.example", "writer")
    await rule(sales, "adders", "permit", "'writer' in roles && 'META_SET_PROPERTIES' in actions")
    answer = told(await who(sales.http, "table.commit"))
    assert answer["wim@acme.example", ("writer",)] == ("undecidable", "adders")
    assert answer["ada@acme.example", ("data-eng",)] == ("permitted", "first-key")
    (of_wim,) = [
        one for one in (await who(sales.http, "table.commit"))["callers"] if "writer" in one["roles"] and one["keys"]
    ]
    assert of_wim["message"] == "access rule adders (version 1) reads what is done in detail (actions)"
    # A drop has no details: what it is, is known.
    assert told(await who(sales.http, "table.drop"))["wim@acme.example", ("writer",)] == ("denied", None)


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_an_answer_is_what_a_request_gets(sales: Gateway, seed: int) -> None:
    made = random.Random(SEED + seed)  # noqa: S311 - which rules are tried is no secret
    secrets = {
        roles: await another_key(sales, f"{'-'.join(roles) or 'none'}@acme.example", *roles)
        for roles in ((), ("reader",), ("writer",), ("reader", "writer"))
    }
    for number in range(4):
        expression = " && ".join(made.sample(PIECES, made.choice((1, 2, 2))))
        effect = "permit" if number else "forbid"
        await rule(sales, f"r{number}", effect, f"{expression} && actor != '{sales.acme.key.actor}'")
    file = f"{PREFIX}v3=op in ['VIEW_REFERENCE', 'READ_ENTITY_VALUE'] && {made.choice(PIECES)}\n"
    if seed % 2:
        (await sales.http.post("/v1/access-rules/import", json={"file": file})).raise_for_status()
    reads = {
        "table.load": ("GET", ORDERS, None),
        "table.exists": ("HEAD", ORDERS, None),
        "table.commit": ("POST", ORDERS, properties(a="b")),
        "namespace.load": ("GET", SALES, None),
        "namespace.exists": ("HEAD", SALES, None),
        "namespace.list": ("GET", TABLES, None),
        "namespace.update": ("POST", f"{SALES}/properties", {"updates": {"a": "b"}, "removals": []}),
    }
    for operation, (method, path, body) in reads.items():
        answers = told(await who(sales.http, operation, TABLE if operation.startswith("table.") else "lake.sales"))
        for roles, secret in secrets.items():
            client = sales.client(secret)
            status = (await client.request(method, path, json=body)).status_code
            decision, _ = answers[f"{'-'.join(roles) or 'none'}@acme.example", roles]
            expected = {"permitted": {200, 204}, "denied": {403}, "undecidable": {503}}[decision]
            assert status in expected, (operation, roles, decision, status)


async def test_what_someone_may_do_is_what_who_says_of_each_operation(sales: Gateway) -> None:
    await another_key(sales, "rita@acme.example", "reader")
    await rule(sales, "readers", "permit", "'reader' in roles && op.startsWith('READ_') && catalog == 'lake'")
    await rule(sales, "logs", "permit", "'reader' in roles && contentType == 'LOG'")
    keys = (await sales.http.get("/v1/keys")).json()["keys"]
    (key_id,) = [key["id"] for key in keys if key["roles"] == ["reader"]]
    for target in (TABLE, "lake.sales", "lake", "view:lake/sales/report", None):
        of_key, of_role = await what(sales.http, target, key=key_id), await what(sales.http, target, role="reader")
        assert of_key["operations"] == of_role["operations"]
        assert (of_key["identity"], of_key["keys"], of_role["identity"]) == ("rita@acme.example", [key_id], None)
        assert of_key["operations"]
        for one in of_key["operations"]:
            kind = one["operation"].partition(".")[0]
            asked = None if target is None else target if ":" in target else f"{kind}:{target.replace('.', '/')}"
            answer = await who(sales.http, one["operation"], "lake" if target == "lake" else asked)
            assert told(answer)["rita@acme.example", ("reader",)] == (
                one["decision"],
                (one["rule"] or {"id": None})["id"],
            )
    own = {one["operation"]: one["decision"] for one in (await what(sales.http, None, role="reader"))["operations"]}
    assert [operation for operation, decision in own.items() if decision == "permitted"] == ["log.load"]
    assert set(own) == {f"{kind}.{verb}" for kind in NO_CONTENT for verb in OPERATIONS[kind]}


async def test_a_caller_with_several_roles_is_asked_about_as_one(sales: Gateway) -> None:
    await rule(sales, "both", "permit", "'reader' in roles && 'auditor' in roles && op == 'READ_ENTITY_VALUE'")
    together = (await what(sales.http, role=["reader", "auditor"]))["operations"]
    assert {one["operation"] for one in together if one["decision"] == "permitted"} == {
        *("table.load", "view.load", "function.load", "namespace.load")
    }
    assert all(one["decision"] == "denied" for one in (await what(sales.http, role="reader"))["operations"])


async def test_only_keys_in_force_are_asked_about_and_an_erased_holder_has_no_name(sales: Gateway) -> None:
    admin, log_id = sales.services.gateway.admin, sales.acme.log_id
    soon = sales.services.gateway.clock() + timedelta(days=1)
    gone = await admin.create_key(log_id, OPERATOR, identity="gone@acme.example", roles=["reader"], expires_at=soon)
    await admin.revoke_key(log_id, OPERATOR, key_id=gone.id)
    first = await admin.create_key(log_id, OPERATOR, identity="rita@acme.example", roles=["reader"])
    second = await admin.create_key(log_id, OPERATOR, identity="rita@acme.example", roles=["reader"])
    answer = await who(sales.http, "table.load")
    (rita,) = [one for one in answer["callers"] if one["roles"] == ["reader"] and one["keys"]]
    assert (rita["identity"], rita["keys"], rita["actor"]) == ("rita@acme.example", [first.id, second.id], first.actor)
    refused = await sales.http.get("/v1/access/what", params={"key": gone.id})
    assert (refused.status_code, error_of(refused)["type"]) == (404, "NotFoundException")


async def test_a_question_is_neither_recorded_nor_kept(sales: Gateway) -> None:
    await rule(sales, "readers", "permit", "'reader' in roles")
    await another_key(sales, "rita@acme.example", "reader")
    judge = sales.services.gateway.judge
    await who(sales.http, "table.load")
    before = len(judge.verdicts), len(await read_stored(sales.services, sales.acme.log_id))
    await who(sales.http, "table.load")
    await what(sales.http, role="reader")
    assert (len(judge.verdicts), len(await read_stored(sales.services, sales.acme.log_id))) == before


async def test_asking_takes_the_right_to_read_the_rules_and_the_keys(sales: Gateway) -> None:
    eve = sales.client(await another_key(sales, "eve@acme.example", "auditor"))
    paths = (f"/v1/access/who?operation=table.load&target={TABLE}", f"/v1/access/what?role=x&target={TABLE}")
    await rule(sales, "rules", "permit", "'auditor' in roles && path == '.config.access_rule'")
    for path in paths:
        refused = await eve.get(path)
        assert (refused.status_code, error_of(refused)["type"]) == (403, "ForbiddenException")
    await rule(sales, "keys", "permit", "'auditor' in roles && path == '.config.key' && op == 'READ_REPOSITORY_CONFIG'")
    for path in paths:
        assert (await eve.get(path)).status_code == 200


async def test_a_question_ends_in_time_and_says_whom_it_did_not_reach(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await another_key(sales, "rita@acme.example", "reader")
    monkeypatch.setattr(questions, "QUESTION_S", -1.0)
    answer = await who(sales.http, "table.load")
    assert (answer["callers"], answer["not_asked"]) == ([], 3)


@pytest.mark.parametrize(
    ("operation", "target", "words"),
    [
        ("table.burn", TABLE, "expected one of table.load, table.exists"),
        ("load", TABLE, "expected one of"),
        ("table.load", None, "expected a target"),
        ("table.load", "lake", "expected alias, namespace and name"),
        ("table.load", "lake.sales", "expected alias, namespace and name"),
        ("table.load", "view:lake/sales/orders", "expected a table for table.load, found a view"),
        ("table.load", "policy:x", "expected a key of one of"),
        ("table.load", "table:lake//orders", "expected a key"),
        ("table.load", "la ke.sales.orders", "expected 1 to 64 letters"),
        ("table.load", "lake.sales.", "expected 1 to 255 characters"),
        ("table.load", "x" * (TARGET_LENGTH_MAX + 1), "expected at most"),
        ("namespace.load", "lake", "expected a list of 1 to 16 names"),
        ("log.load", "x", "expected no target"),
    ],
)
async def test_a_question_about_nothing_is_refused(
    module_sales: Gateway, operation: str, target: str | None, words: str
) -> None:
    params = {"operation": operation, **({} if target is None else {"target": target})}
    refused = await module_sales.http.get("/v1/access/who", params=params)
    assert (refused.status_code, error_of(refused)["type"]) == (400, "BadRequestException")
    assert words in error_of(refused)["message"]


async def test_a_question_about_nobody_or_two_is_refused(module_sales: Gateway) -> None:
    for query in ("", "?key=a&role=b", f"?role={'x' * 101}", "?" + "&".join(f"role=r{n}" for n in range(33))):
        assert (await module_sales.http.get(f"/v1/access/what{query}")).status_code == 400, query
    assert (await module_sales.http.get("/v1/access/who")).status_code == 400


async def test_every_operation_that_is_judged_can_be_asked_about_and_no_other() -> None:
    asked = {f"{kind}.{verb}" for kind, verbs in OPERATIONS.items() for verb in verbs}
    judged = {name for operation in BY_ID.values() for name in operation.judged_as} | {"table.review"}
    assert {name for name in asked if name.partition(".")[0] in CONTENT_TYPES} == judged
    caller = PrincipalView(actor="a" * 32, source="api_key")
    for name in asked:
        kind = name.partition(".")[0]
        target = None if kind in NO_CONTENT else "lake.sales" if kind == "namespace" else TABLE
        view = parse_asked(name, target)
        assert access_activation(AccessRequest(commit=view, principal=caller), ref="")["op"]
    assert set(Access) == {"permitted", "denied", "undecidable"}


async def test_the_top_level_of_a_catalog_can_be_listed(module_sales: Gateway) -> None:
    answer = await who(module_sales.http, "namespace.list", "lake")
    assert (answer["catalog"], answer["path"]) == ("lake", "")
    assert (await module_sales.http.get(NAMESPACES)).status_code == 200
