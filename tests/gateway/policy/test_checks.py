# SPDX-License-Identifier: Apache-2.0
"""
The checks of a request, and how rules that are asked about each of them are combined with those that are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from gateway.policy.access import EACH_CHECK, UNKNOWN, Access, AccessDecision, AccessRequest, Grant, JudgedRule
from gateway.policy.checks import check_activation, is_elsewhere, units_of
from gateway.policy.engine import POLICY, Outcome, Program
from gateway.policy.judging import REFS_MAX, Judged, judge_rules
from gateway.policy.variables import CommitView, PrincipalView
from ledger.format.events import Effect
from testkit.servers.policy_engine import shared_engine

READ_ALL = "op.startsWith('READ_')"
ADD: Any = {"action": "add-snapshot", "snapshot": {"snapshot-id": 2}}
PROPERTIES: Any = {"action": "set-properties", "updates": {}}
ACTOR = "a" * 32


def to(snapshot_id: int, ref: str) -> Any:
    return {"action": "set-snapshot-ref", "ref-name": ref, "type": "branch", "snapshot-id": snapshot_id}


def removed(ref: str) -> Any:
    return {"action": "remove-snapshot-ref", "ref-name": ref}


def request(operation: str = "table.load", *updates: Any, name: str = "t", **parts: Any) -> AccessRequest:
    kind = operation.partition(".")[0]
    is_content = kind in {"table", "view", "namespace", "function"}
    view = CommitView(
        catalog="lake" if is_content else "",
        namespace=("dev",) if is_content else (),
        name="" if kind == "namespace" else name,
        kind=kind,
        operation=operation,
        updates=updates,
    )
    caller = PrincipalView(actor=ACTOR, source="api_key", sub="ada", roles=("Ada", "dev"))
    return AccessRequest(commit=view, principal=caller, **parts)


def ops(asked: AccessRequest) -> dict[str | None, list[str]]:
    """The operations that a request takes, by reference."""
    units = units_of(asked)
    assert all(len({check.ref for check in unit.checks}) == 1 for unit in units)
    return {unit.checks[0].ref: [check.op for check in unit.checks] for unit in units}


VIEW, COMMIT, READ = "VIEW_REFERENCE", "COMMIT_CHANGE_AGAINST_REFERENCE", "READ_ENTITY_VALUE"


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("table.load", [VIEW, READ]),
        ("function.load", [VIEW, READ]),
        ("table.exists", [VIEW, "READ_CONTENT_KEY"]),
        ("namespace.list", [VIEW, "READ_ENTRIES", "READ_CONTENT_KEY"]),
        ("table.create", [VIEW, COMMIT, READ, "CREATE_ENTITY"]),
        ("view.replace", [VIEW, COMMIT, READ, "UPDATE_ENTITY"]),
        ("namespace.create", [VIEW, COMMIT, "CREATE_ENTITY"]),
        ("namespace.update", [VIEW, COMMIT, READ, "UPDATE_ENTITY"]),
        ("table.drop", [VIEW, COMMIT, READ, "DELETE_ENTITY"]),
        ("namespace.drop", [VIEW, COMMIT, "READ_ENTRIES", "READ_CONTENT_KEY", "DELETE_ENTITY"]),
        ("table.rename_from", [VIEW, COMMIT, READ, "DELETE_ENTITY"]),
        ("table.rename_to", [VIEW, COMMIT, READ, "CREATE_ENTITY"]),
    ],
)
def test_a_request_takes_the_checks_of_its_reference_and_its_own(operation: str, expected: list[str]) -> None:
    assert ops(request(operation)) == {"main": expected}
    assert ops(request(operation, branch="prod")) == {"prod": expected}
    assert ops(request(operation, branch=UNKNOWN)) == {None: expected}


@pytest.mark.parametrize("kind", ["policy", "access_rule", "catalog", "key", "setting", "tenant"])
def test_configuration_has_no_reference(kind: str) -> None:
    assert ops(request(f"{kind}.inspect")) == {"": ["READ_REPOSITORY_CONFIG"]}


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        ([PROPERTIES], {"main": [COMMIT]}),
        ([ADD, to(2, "main")], {"main": [COMMIT]}),
        ([to(1, "main")], {"main": ["ASSIGN_REFERENCE_TO_HASH"]}),
        ([removed("main"), ADD, to(2, "main")], {"main": [COMMIT]}),
        ([to(1, "new")], {"new": ["CREATE_REFERENCE"]}),
        ([ADD, to(2, "new")], {"new": [COMMIT, "CREATE_REFERENCE"]}),
        ([ADD, to(2, "dev")], {"dev": [COMMIT]}),
        ([to(1, "dev")], {"dev": ["ASSIGN_REFERENCE_TO_HASH"]}),
        ([removed("dev")], {"dev": ["DELETE_REFERENCE"]}),
        ([removed("dev"), to(1, "dev")], {"dev": ["CREATE_REFERENCE", "DELETE_REFERENCE"]}),
        (
            [removed("dev"), to(1, "new"), PROPERTIES],
            {"dev": ["DELETE_REFERENCE"], "main": [COMMIT], "new": ["CREATE_REFERENCE"]},
        ),
        ([ADD], {"main": [COMMIT]}),
        ([{"action": "add-snapshot", "snapshot": 3}, to(3, "dev")], {"dev": ["ASSIGN_REFERENCE_TO_HASH"]}),
        (
            [{"action": "add-snapshot", "snapshot": {"snapshot-id": [3]}}, to(3, "dev")],
            {"dev": ["ASSIGN_REFERENCE_TO_HASH"]},
        ),
    ],
)
def test_a_commit_takes_what_it_does_to_each_reference(updates: list[Any], expected: dict[str, list[str]]) -> None:
    asked = request("table.commit", *updates, refs=frozenset({"main", "dev"}))
    assert ops(asked) == {ref: [VIEW, *moves, READ, "UPDATE_ENTITY"] for ref, moves in expected.items()}


def test_references_of_tables_do_not_count_where_the_catalog_is_a_branch() -> None:
    asked = request("table.commit", removed("dev"), to(1, "new"), branch="prod")
    assert {check.ref for unit in units_of(asked) for check in unit.checks} == {"prod"}
    assert {check.op for unit in units_of(asked) for check in unit.checks} == {VIEW, COMMIT, READ, "UPDATE_ENTITY"}


def test_a_check_of_a_reference_has_neither_path_nor_content() -> None:
    asked = request("table.commit", PROPERTIES)
    (unit,) = units_of(asked)
    of_reference, of_content = check_activation(asked, unit.checks[0]), check_activation(asked, unit.checks[-1])
    empty = {"path": "", "contentType": "", "actions": []}
    assert of_reference == {**of_content, "op": VIEW, **empty}
    assert (of_content["op"], of_content["path"], of_content["ref"]) == ("UPDATE_ENTITY", "dev.t", "main")


@pytest.mark.parametrize(
    ("name", "branch", "expected"),
    [
        ("t@dev", "prod", True),
        ("t#12ab", "prod", True),
        ("t@dev", UNKNOWN, True),
        ("t@dev", None, False),
        ("t", "prod", False),
    ],
)
def test_a_name_may_lead_to_another_branch_of_a_nessie(name: str, branch: str | None, expected: bool) -> None:
    assert is_elsewhere(request(name=name, branch=branch)) is expected


# Decisions


def rule(id_: str, expression: str, *, effect: str = "permit", vocabulary: int = EACH_CHECK) -> JudgedRule:
    return JudgedRule(id=id_, version=1, effect=Effect(effect), expression=expression, vocabulary=vocabulary)


async def judge(
    rules: Sequence[JudgedRule], asked: AccessRequest, policies: Sequence[Program] = (), **variables: Any
) -> Judged:
    evaluate = partial(shared_engine().judge, log_id=1)
    return await judge_rules(
        evaluate, rules, asked, timeout_s=30, policies=policies, variables=variables if policies else None
    )


async def decide(rules: Sequence[JudgedRule], asked: AccessRequest) -> AccessDecision:
    return (await judge(rules, asked)).decision


async def test_each_check_needs_a_rule_that_permits_it() -> None:
    asked = request("table.commit", PROPERTIES)
    takes = [VIEW, COMMIT, READ, "UPDATE_ENTITY"]
    rules = [rule(f"r{at}", f"op == '{op}'") for at, op in enumerate(takes)]
    assert (await decide(rules, asked)).outcome is Access.PERMITTED
    for left_out in rules[1:]:
        rest = [one for one in rules if one is not left_out]
        decision = await decide(rest, asked)
        assert decision.outcome is Access.DENIED
        op = takes[rules.index(left_out)]
        where = "reference 'main'" if op == COMMIT else "'dev.t' at 'main'"
        assert decision.message == f"no access rule permits this: {op} on {where}"


async def test_to_view_a_reference_needs_no_rule_until_one_names_it() -> None:
    read = rule("read", "op == 'READ_ENTITY_VALUE'")
    older = rule("older", "op == 'VIEW_REFERENCE'", vocabulary=2)
    for rules in ([read], [read, older]):
        assert (await decide(rules, request())).outcome is Access.PERMITTED
    other = rule("other", "op == 'VIEW_REFERENCE' && ref == 'elsewhere'")
    decision = await decide([read, other], request())
    assert (decision.outcome, decision.message) == (
        Access.DENIED,
        "no access rule permits this: VIEW_REFERENCE on reference 'main'",
    )
    assert (await decide([read, other], request(branch="elsewhere"))).outcome is Access.PERMITTED


async def test_rules_before_version_3_speak_of_the_request_as_a_whole_whatever_newer_ones_say() -> None:
    older = rule("older", READ_ALL, vocabulary=2)
    newer = rule("newer", "op == 'VIEW_REFERENCE' && ref == 'elsewhere'")
    for asked in (request(), request("namespace.list"), request("table.load", branch="prod")):
        assert (await decide([older], asked)).outcome is Access.PERMITTED
        permitted = await decide([older, newer], asked)
        assert (permitted.outcome, permitted.reason) == (Access.PERMITTED, ("older", 1))
    write = request("table.commit", PROPERTIES)
    assert (await decide([older, newer], write)).outcome is Access.DENIED
    forbidding = rule("no", "path == 'dev.t'", effect="forbid", vocabulary=2)
    assert (await decide([rule("all", "true"), forbidding], request())).reason == ("no", 1)


async def test_two_versions_together_do_not_permit_what_neither_permits() -> None:
    older = rule("older", READ_ALL, vocabulary=2)
    newer = rule("newer", f"op in ['{VIEW}', '{COMMIT}', 'UPDATE_ENTITY']")
    decision = await decide([older, newer], request("table.commit", PROPERTIES))
    assert (decision.outcome, decision.message) == (
        Access.DENIED,
        "no access rule permits this: READ_ENTITY_VALUE on 'dev.t' at 'main'",
    )


@pytest.mark.parametrize("op", [VIEW, COMMIT, READ, "UPDATE_ENTITY"])
async def test_what_is_forbidden_in_one_check_is_forbidden(op: str) -> None:
    rules = [rule("all", "true"), rule("old", "true", vocabulary=2), rule("no", f"op == '{op}'", effect="forbid")]
    decision = await decide(rules, request("table.commit", PROPERTIES))
    assert (decision.outcome, decision.reason) == (Access.DENIED, ("no", 1))


async def test_a_check_that_cannot_be_judged_is_undecidable_unless_another_is_denied() -> None:
    failing = f"op == '{VIEW}' || (op == 'READ_ENTITY_VALUE' && roles[5] == 'x')"
    assert (await decide([rule("r", failing)], request())).outcome is Access.UNDECIDABLE
    denied = await decide([rule("r", f"{failing} && ref == 'x'")], request())
    assert denied.outcome is Access.DENIED
    helped = [rule("r", failing), rule("s", "op == 'READ_ENTITY_VALUE'")]
    assert (await decide(helped, request())).outcome is Access.PERMITTED
    forbidding = rule("f", f"op == '{VIEW}' && roles[5] == 'x'", effect="forbid")
    assert (await decide([rule("all", "true"), forbidding], request())).outcome is Access.UNDECIDABLE
    older = [rule("old", "roles[5] == 'x'", vocabulary=2), rule("v", f"op == '{VIEW}'")]
    assert (await decide(older, request())).outcome is Access.UNDECIDABLE, "it might have permitted all of it"


async def test_what_depends_on_a_branch_that_is_not_known_is_undecidable() -> None:
    asked = request(branch=UNKNOWN)
    assert (await decide([rule("r", "ref == 'prod'")], asked)).outcome is Access.UNDECIDABLE
    assert (await decide([rule("r", "'Bob' in roles && ref == 'prod'")], asked)).outcome is Access.DENIED
    assert (await decide([rule("r", "'Ada' in roles")], asked)).outcome is Access.PERMITTED
    assert (await decide([rule("r", "'Ada' in roles", vocabulary=2)], asked)).outcome is Access.PERMITTED


async def test_a_name_that_leads_to_another_branch_is_denied() -> None:
    decision = await decide([rule("all", "true"), rule("older", "true", vocabulary=2)], request(name="t@x", branch="y"))
    assert decision.outcome is Access.DENIED
    assert "use the alias of its branch" in decision.message


@pytest.mark.parametrize("operation", ["policy.configure", "access_rule.inspect", "log.load", "lineage.receive"])
async def test_only_a_rule_that_names_type_opens_what_nessie_does_not_have(operation: str) -> None:
    asked = request(operation)
    for expression in ("true", "role == 'Ada'", "op.endsWith('_CONFIG') || op == 'READ_ENTITY_VALUE'", "'type' != ''"):
        assert (await decide([rule("r", expression)], asked)).outcome is Access.DENIED
    content_type = {"policy": "CONFIG_POLICY", "access_rule": "CONFIG_ACCESS_RULE"}
    named = content_type.get(operation.partition(".")[0], operation.partition(".")[0].upper())
    assert (await decide([rule("r", f"type == '{named}'")], asked)).outcome is Access.PERMITTED
    assert (await decide([rule("r", "type == 'GARBAGE_COLLECTOR'")], asked)).outcome is Access.DENIED
    assert (await decide([rule("r", "type == ''")], request())).outcome is Access.PERMITTED
    forbidding = [rule("old", "true", vocabulary=2), rule("no", "role == 'Ada'", effect="forbid")]
    assert (await decide(forbidding, asked)).outcome is Access.DENIED


async def test_a_key_beyond_the_issuers_rights_needs_a_rule_that_names_the_grant() -> None:
    asked = request("key.configure", grant=Grant(identity="eve", roles=()))
    assert (await decide([rule("r", "type == 'CONFIG_KEY'")], asked)).outcome is Access.DENIED
    named = rule("r", "type == 'CONFIG_KEY' && grant.identity == 'eve'")
    assert (await decide([named], asked)).outcome is Access.PERMITTED


async def test_a_commit_that_moves_several_references_is_checked_on_each() -> None:
    rules = [rule("r", "ref in ['main', 'dev']")]
    asked = partial(request, "table.commit", refs=frozenset({"dev"}))
    assert (await decide(rules, asked(removed("dev"), PROPERTIES))).outcome is Access.PERMITTED
    denied = await decide(rules, asked(removed("dev"), to(1, "new"), PROPERTIES))
    assert denied.message == "no access rule permits this: CREATE_REFERENCE on reference 'new'"
    many = [to(1, f"b{number}") for number in range(REFS_MAX + 1)]
    too_many = await decide([rule("all", "true")], asked(*many))
    assert (too_many.outcome, "expected at most 16" in too_many.message) == (Access.DENIED, True)


async def test_there_is_one_verdict_for_each_rule_and_policy_in_their_order() -> None:
    policy = Program(kind=POLICY, id="p", version=1, expression="commit.name == 't'")
    rules = [
        rule("a", f"op == '{VIEW}'"),
        rule("b", "true", vocabulary=2),
        rule("c", "op == 'CREATE_ENTITY'"),
        rule("d", "op == 'UPDATE_ENTITY' && roles[5] == 'x'", effect="forbid"),
    ]
    judged = await judge(rules, request("table.commit", PROPERTIES), [policy], commit={"name": "t"})
    assert [(verdict.id, verdict.outcome) for verdict in judged.verdicts] == [
        ("a", Outcome.ALLOW),
        ("b", Outcome.ALLOW),
        ("c", Outcome.DENY),
        ("d", Outcome.ERROR),
        ("p", Outcome.ALLOW),
    ]
    newer = await judge([rules[0]], request("table.commit", PROPERTIES), [policy], commit={"name": "t"})
    assert [verdict.id for verdict in newer.verdicts] == ["a", "p"]
