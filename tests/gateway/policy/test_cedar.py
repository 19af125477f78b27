# SPDX-License-Identifier: Apache-2.0
"""
Access rules in Cedar: one suite of behaviour over both languages, and what is Cedar's own.

Each pair of rules says the same in CEL and in Cedar. What one permits, the other does; what cannot be judged by one
cannot be by the other. The programs run in this process, as they do in the workers.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cedarpy
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.asking.requests import OPERATIONS
from gateway.policy.access import (
    IN_CEDAR,
    Access,
    AccessDecision,
    AccessRequest,
    Grant,
    JudgedRule,
    access_activation,
    refs_of,
)
from gateway.policy.access_checker import NOT_INSTALLED, Checkers
from gateway.policy.cedar.policies import ROWS_AT_ONCE
from gateway.policy.cedar.requests import VARIABLES, cedar_request
from gateway.policy.cedar.schema import RESOURCES, schema_text
from gateway.policy.cel.programs import Programs
from gateway.policy.engine import (
    ACCESS_RULE,
    CEDAR_FORBID,
    CEDAR_PERMIT,
    Outcome,
    PolicyNotCompiledError,
    Program,
    Verdict,
    outcomes_of,
)
from gateway.policy.judging import judge_rules, permits_anything, permits_every
from gateway.policy.many import decide_each
from gateway.policy.pool import WorkerEngine
from gateway.policy.variables import CommitView, PrincipalView
from gateway.policy.vocabulary import variables_of
from gateway.policy.words import grant_fields, may_read, roles_in_cedar
from ledger.format.events import Effect
from testkit.servers.forked_workers import fork_worker

TIMEOUT_S = 60.0
ADA = PrincipalView(actor="a" * 32, source="api_key", roles=("analyst", "eu"))
BOB = PrincipalView(actor="b" * 32, source="api_key", roles=())
LARGEST = str(2**63 - 1)
CELS = "cel"
CEDARS = "cedar"


@dataclass(frozen=True)
class Pair:
    """A condition in both languages; in Cedar the scope of a policy, and its conditions."""

    cel: str
    scope: Mapping[str, str]
    when: str = ""

    def rule(self, language: str, *, id_: str = "r", effect: Effect = Effect.PERMIT) -> JudgedRule:
        if language == CELS:
            return JudgedRule(id=id_, version=1, effect=effect, expression=self.cel)
        return JudgedRule(id=id_, version=1, effect=effect, expression=self.cedar(effect), vocabulary=IN_CEDAR)

    def cedar(self, effect: Effect) -> str:
        parts = {"principal": "principal", "action": "action", "resource": "resource", **self.scope}
        when = f" when {{ {self.when} }}" if self.when else ""
        return f"{effect}({parts['principal']}, {parts['action']}, {parts['resource']}){when};"


ALWAYS = Pair("true", {})
PAIRS = {
    "always": ALWAYS,
    "never": Pair("false", {}, "false"),
    "role": Pair("'analyst' in roles", {"principal": 'principal in Role::"analyst"'}),
    "first role": Pair("role == 'eu'", {}, 'principal.role == "eu"'),
    "any of roles": Pair("'eu' in roles || 'us' in roles", {}, 'principal.roles.containsAny(["eu", "us"])'),
    "actor": Pair(f"actor == '{'a' * 32}'", {"principal": f'principal == User::"{"a" * 32}"'}),
    "read content": Pair(
        "op in ['READ_ENTITY_VALUE', 'READ_CONTENT_KEY'] && catalog != ''", {"action": 'action in Action::"read"'}
    ),
    "write content": Pair(
        "op in ['CREATE_ENTITY', 'UPDATE_ENTITY', 'DELETE_ENTITY'] && catalog != ''",
        {"action": 'action in Action::"write"'},
    ),
    "manage": Pair("op.endsWith('_REPOSITORY_CONFIG')", {"action": 'action in Action::"manage"'}),
    "one table": Pair(
        "catalog == 'lake' && path == 'sales.orders' && contentType == 'ICEBERG_TABLE'",
        {"resource": 'resource == Table::"lake.sales.orders"'},
    ),
    "below a namespace": Pair(
        "catalog == 'lake' && (path == 'sales' && contentType == 'NAMESPACE' || path.startsWith('sales.'))",
        {"resource": 'resource in Namespace::"lake.sales"'},
    ),
    "in a catalog": Pair("catalog == 'lake'", {"resource": 'resource in Catalog::"lake"'}),
    "tables": Pair("contentType == 'ICEBERG_TABLE'", {"resource": "resource is Table"}),
    "path": Pair("path.startsWith('sales.')", {}, 'resource.path like "sales.*"'),
    "ref": Pair("ref == 'main'", {}, 'context.ref == "main"'),
    "uuid": Pair("uuid == 'u1'", {}, 'resource.uuid == "u1"'),
    "actions": Pair("'CATALOG_CREATE_ENTITY' in actions", {}, 'context.actions.contains("CATALOG_CREATE_ENTITY")'),
    "grant": Pair("grant.identity == 'eve'", {}, 'context.grant.identity == "eve"'),
    "log": Pair("contentType == 'LOG'", {"resource": 'resource == Log::".log"'}),
    "api": Pair("api.apiVersion >= 1", {}, "context.api.apiVersion >= 1"),
    "overflows": Pair(f"api.apiVersion * {LARGEST} * 2 > 0", {}, f"context.api.apiVersion * {LARGEST} * 2 > 0"),
}

VIEWS = [
    CommitView(catalog="lake", namespace=("sales",), name="orders", kind="table", operation="table.load"),
    CommitView(catalog="lake", namespace=("sales", "eu"), name="orders", kind="table", operation="table.exists"),
    CommitView(catalog="lake", namespace=("sales",), name="orders", kind="view", operation="view.load"),
    CommitView(catalog="other", namespace=("sales",), name="orders", kind="table", operation="table.create"),
    CommitView(catalog="lake", namespace=("hr",), name="a\x1db\n", kind="table", operation="table.commit"),
    CommitView(catalog="lake", namespace=("sales",), name="", kind="namespace", operation="namespace.list"),
    CommitView(catalog="lake", namespace=(), name="", kind="namespace", operation="namespace.list"),
    CommitView(catalog="lake", namespace=("sales",), name="f", kind="function", operation="function.load"),
    CommitView(catalog="", namespace=(), name="p1", kind="policy", operation="policy.configure"),
    CommitView(catalog="", namespace=(), name="", kind="key", operation="key.configure"),
    CommitView(catalog="", namespace=(), name="", kind="log", operation="log.load"),
    CommitView(catalog="", namespace=(), name="", kind="inputs", operation="inputs.load"),
    CommitView(catalog="", namespace=(), name="", kind="lineage", operation="lineage.receive"),
]
REQUESTS = [
    AccessRequest(commit=view, principal=caller, uuid=uuid, grant=grant)
    for view in VIEWS
    for caller in (ADA, BOB, replace(ADA, roles=("eu",)))
    for uuid in ("u1", "")
    for grant in (Grant(), Grant(identity="eve"))
]
MADE = Checkers(Programs())
pairs = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
languages = pytest.mark.parametrize("language", [CELS, CEDARS])


def outcome_of(rule: JudgedRule, activation: Mapping[str, Any]) -> Outcome:
    program = rule.program()
    (result,) = MADE.judge([(program.judged_as, program.expression)], activation, log_id=1)
    return result.outcome


def outcomes(rule: JudgedRule) -> list[Outcome]:
    """Of all requests at once."""
    program = rule.program()
    rows = [variables(request) for request in REQUESTS]
    return [row[0].outcome for row in MADE.judge_rows([(program.judged_as, program.expression)], {}, rows, log_id=1)]


def variables(request: AccessRequest) -> dict[str, Any]:
    return access_activation(request, ref=refs_of(request.commit)[0])


async def evaluate(
    programs: Sequence[Program], activation: Mapping[str, Any], *, timeout_s: float
) -> tuple[Verdict, ...]:
    asked = [(program.judged_as, program.expression) for program in programs]
    results = MADE.judge(asked, activation, log_id=1)
    return tuple(
        Verdict(kind=one.kind, id=one.id, version=one.version, outcome=result.outcome, detail=result.detail)
        for one, result in zip(programs, results, strict=True)
    )


async def evaluate_rows(
    programs: Sequence[Program],
    shared: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    *,
    timeout_s: float,
) -> list[str]:
    asked = [(program.judged_as, program.expression) for program in programs]
    return ["".join(one.letter for one in row) for row in MADE.judge_rows(asked, shared, rows, log_id=1)]


async def decide(rules: Sequence[JudgedRule], request: AccessRequest) -> AccessDecision:
    return (await judge_rules(evaluate, rules, request, timeout_s=TIMEOUT_S)).decision


# Both languages


@pairs
def test_a_rule_holds_for_the_same_requests_in_both_languages(pair: Pair) -> None:
    for effect in Effect:
        for request, cel, cedar in zip(
            REQUESTS, outcomes(pair.rule(CELS, effect=effect)), outcomes(pair.rule(CEDARS, effect=effect)), strict=True
        ):
            assert cedar is cel, request


def test_some_requests_are_told_apart_by_every_pair() -> None:
    every = {name: set(outcomes(pair.rule(CEDARS))) for name, pair in PAIRS.items()}
    alike = {name: found for name, found in every.items() if len(found) == 1}
    assert alike == {
        "always": {Outcome.ALLOW},
        "never": {Outcome.DENY},
        "api": {Outcome.ALLOW},
        "overflows": {Outcome.ERROR},
    }


@pairs
def test_many_requests_at_once_are_judged_as_each_alone(pair: Pair) -> None:
    program = pair.rule(CEDARS).program()
    asked = [(program.judged_as, program.expression), (ACCESS_RULE, pair.cel)]
    rows = [variables(request) for request in REQUESTS[::3]]
    together = list(MADE.judge_rows(asked, {}, rows, log_id=1))
    assert together == [list(MADE.judge(asked, row, log_id=1)) for row in rows]


def test_more_requests_than_are_judged_at_once_have_their_own_results() -> None:
    rule = PAIRS["one table"].rule(CEDARS).program()
    known = variables(REQUESTS[0])
    rows = [
        {"path": "sales.orders" if number % 7 == 0 else f"sales.t{number}"} for number in range(2 * ROWS_AT_ONCE + 3)
    ]
    found = MADE.judge_rows([(rule.judged_as, rule.expression)], known, rows, log_id=1)
    assert [row[0].outcome is Outcome.ALLOW for row in found] == [number % 7 == 0 for number in range(len(rows))]


@languages
async def test_a_forbidding_rule_wins_over_a_permitting_one(language: str) -> None:
    rules = [ALWAYS.rule(language, id_="all"), PAIRS["tables"].rule(language, id_="no", effect=Effect.FORBID)]
    assert (await decide(rules, REQUESTS[0])).reason == ("no", 1)
    views = [request for request in REQUESTS if request.commit.kind == "view"]
    assert (await decide(rules, views[0])).outcome is Access.PERMITTED


@languages
async def test_what_no_rule_permits_is_denied(language: str) -> None:
    assert (await decide([PAIRS["never"].rule(language)], REQUESTS[0])).outcome is Access.DENIED


@languages
async def test_a_forbidding_rule_that_fails_makes_a_request_undecidable(language: str) -> None:
    rules = [ALWAYS.rule(language, id_="all"), PAIRS["overflows"].rule(language, id_="no", effect=Effect.FORBID)]
    decision = await decide(rules, REQUESTS[0])
    assert (decision.outcome, decision.reason) == (Access.UNDECIDABLE, ("no", 1))


@languages
async def test_a_permitting_rule_that_fails_permits_nothing_and_takes_nothing_away(language: str) -> None:
    failing = PAIRS["overflows"].rule(language, id_="fails")
    assert (await decide([failing], REQUESTS[0])).outcome is Access.UNDECIDABLE
    assert (await decide([failing, ALWAYS.rule(language, id_="all")], REQUESTS[0])).outcome is Access.PERMITTED


@languages
async def test_more_than_the_callers_own_rights_is_granted_only_by_a_rule_that_names_it(language: str) -> None:
    request = next(one for one in REQUESTS if one.grant.identity and one.commit.kind == "key")
    assert (await decide([ALWAYS.rule(language)], request)).outcome is Access.DENIED
    assert (await decide([PAIRS["grant"].rule(language)], request)).outcome is Access.PERMITTED


@pairs
def test_without_a_variable_no_rule_says_what_it_would_not_say_with_it(pair: Pair) -> None:
    rule = pair.rule(CEDARS)
    for request in REQUESTS[::25]:
        known = variables(request)
        outcome = outcome_of(rule, known)
        for name in VARIABLES:
            without = outcome_of(rule, {other: value for other, value in known.items() if other != name})
            assert without in {outcome, Outcome.ERROR}, name


async def test_rules_of_both_languages_are_combined() -> None:
    rules = [PAIRS["role"].rule(CELS, id_="cel"), PAIRS["tables"].rule(CEDARS, id_="no", effect=Effect.FORBID)]
    assert (await decide(rules, REQUESTS[0])).reason == ("no", 1)
    swapped = [PAIRS["role"].rule(CEDARS, id_="cedar"), PAIRS["tables"].rule(CELS, id_="no", effect=Effect.FORBID)]
    assert (await decide(swapped, REQUESTS[0])).reason == ("no", 1)
    namespace = next(one for one in REQUESTS if one.commit.kind == "namespace" and one.principal == ADA)
    assert (await decide(swapped, namespace)).reason == ("cedar", 1)


@st.composite
def rule_sets(draw: st.DrawFn) -> list[tuple[Pair, Effect]]:
    some = st.tuples(st.sampled_from([*PAIRS.values()]), st.sampled_from([*Effect]))
    return draw(st.lists(some, min_size=1, max_size=6))


@given(rule_sets(), st.sampled_from(REQUESTS))
async def test_any_set_of_rules_decides_alike_in_both_languages(
    rules: Sequence[tuple[Pair, Effect]], request_: AccessRequest
) -> None:
    decisions = [
        await decide(
            [pair.rule(language, id_=f"r{at}", effect=effect) for at, (pair, effect) in enumerate(rules)], request_
        )
        for language in (CELS, CEDARS)
    ]
    assert (decisions[0].outcome, decisions[0].reason) == (decisions[1].outcome, decisions[1].reason)


@given(rule_sets(), st.sampled_from(REQUESTS))
async def test_cedar_itself_decides_alike_where_no_policy_fails(
    rules: Sequence[tuple[Pair, Effect]], request_: AccessRequest
) -> None:
    made = [pair.rule(CEDARS, id_=f"r{at}", effect=effect) for at, (pair, effect) in enumerate(rules)]
    made = [rule for rule in made if LARGEST not in rule.expression]
    asked = cedar_request(variables(request_))
    found = cedarpy.is_authorized(
        asked.json(), "\n".join(rule.expression for rule in made), [dict(one) for one in asked.entities.values()]
    )
    decision = await decide(made, replace(request_, grant=Grant()))
    if request_.grant == Grant():
        assert (decision.outcome is Access.PERMITTED) is found.allowed


async def test_cedar_would_leave_out_a_forbidding_policy_that_fails() -> None:
    made = [ALWAYS.rule(CEDARS, id_="all"), PAIRS["overflows"].rule(CEDARS, id_="no", effect=Effect.FORBID)]
    asked = cedar_request(variables(REQUESTS[0]))
    policies = "\n".join(rule.expression for rule in made)
    assert cedarpy.is_authorized(asked.json(), policies, [dict(one) for one in asked.entities.values()]).allowed
    assert (await decide(made, REQUESTS[0])).outcome is Access.UNDECIDABLE


@given(st.lists(st.sampled_from(REQUESTS[:6]), min_size=2, max_size=12), rule_sets())
async def test_lists_are_decided_as_each_of_their_names(
    asked: Sequence[AccessRequest], rules: Sequence[tuple[Pair, Effect]]
) -> None:
    made = [pair.rule(CEDARS, id_=f"r{at}", effect=effect) for at, (pair, effect) in enumerate(rules)]
    names = [replace(REQUESTS[0], commit=replace(REQUESTS[0].commit, name=f"t{at}")) for at in range(len(asked))]
    names[0] = REQUESTS[0]
    together = await decide_each(evaluate, evaluate_rows, made, names, timeout_s=TIMEOUT_S)
    assert together == [(await decide(made, one)).outcome for one in names]


@languages
async def test_an_alias_of_which_nothing_is_permitted_is_not_told(language: str) -> None:
    below, role = PAIRS["in a catalog"], PAIRS["role"]
    for caller, rule, catalog, expected in (
        (ADA, below, "lake", True),
        (ADA, below, "other", False),
        (ADA, role, "other", True),
        (BOB, role, "lake", False),
    ):
        found = await permits_anything(evaluate, [rule.rule(language)], caller, catalog=catalog, timeout_s=TIMEOUT_S)
        assert found is expected


async def test_that_everything_may_be_read_is_not_said_beside_a_policy_in_cedar() -> None:
    for language, expected in ((CELS, True), (CEDARS, False)):
        rules = [ALWAYS.rule(language)]
        found = await permits_every(evaluate, rules, ADA, operation="table.load", timeout_s=TIMEOUT_S)
        assert found is expected


# What is Cedar's own


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("permit(principal, action, resource", 1, 1, "unexpected end of input"),
        ("permit(principal,\n action, resource) when {\n  foo };", 3, 3, "invalid variable: foo"),
        ('permit(principal, action, resource)\nwhen { resource.pth == "x" };', 2, 17, "attribute `pth`"),
        ('permit(principal, action == Action::"READ", resource);', 1, 29, 'unrecognized action `Action::"READ"`'),
        ('permit(principal in Team::"x", action, resource);', 1, 21, "unrecognized entity type `Team`"),
        ("permit(principal == ?principal, action, resource);", 1, 1, "found 0 policies and 1 templates"),
        ("// nothing", 1, 1, "found 0 policies and 0 templates"),
        ("permit(principal, action, resource); permit(principal, action, resource);", 1, 1, "found 2 policies"),
        ("forbid(principal, action, resource);", 1, 1, "the policy is to forbid, and the effect of its rule is permit"),
        (f"permit(principal, action, resource) when {{ {' && '.join(['true'] * 400)} }};", 1, 1, "nested too deeply"),
        (f"permit(principal, action, resource) when {{ {'(' * 40}true{')' * 40} }};", 1, 75, "nested too deeply"),
    ],
)
def test_what_is_no_policy_is_refused_with_its_place(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(PolicyNotCompiledError) as refused:
        MADE.check(text, kind=CEDAR_PERMIT)
    assert words in refused.value.reason
    assert (refused.value.line, refused.value.column) == (line, column)


def test_many_conditions_are_written_in_clauses_of_their_own() -> None:
    MADE.check(f"permit(principal, action, resource) {'when { true } ' * 200};", kind=CEDAR_PERMIT)


@pairs
def test_every_policy_of_the_suite_may_be_saved(pair: Pair) -> None:
    MADE.check(pair.cedar(Effect.PERMIT), kind=CEDAR_PERMIT)
    MADE.check(pair.cedar(Effect.FORBID), kind=CEDAR_FORBID)


def test_every_request_is_one_of_the_schema() -> None:
    schema = cedarpy.Schema.from_str(schema_text())
    met: set[tuple[str, str]] = set()
    for kind, verbs in {**OPERATIONS, "lineage": ("receive", "load")}.items():
        for verb in verbs:
            names = ("n",) if kind in {"table", "view", "function", "namespace"} else ()
            view = CommitView(
                catalog="lake" if names else "",
                namespace=names,
                name="" if kind == "namespace" else "t",
                kind=kind,
                operation=f"{kind}.{verb}",
            )
            asked = cedar_request(variables(AccessRequest(commit=view, principal=ADA)))
            met.add((asked.action.id, asked.resource.type))
            entities = orjson.dumps([one for uid, one in asked.entities.items() if uid.type != "Action"]).decode()
            cedarpy.Entities.from_json_str(entities, schema)
            found = cedarpy.is_authorized(asked.json(), "permit(principal, action, resource);", entities, schema)
            assert found.allowed, (asked, found.diagnostics.errors)
    assert {action for action, _ in met} == set(RESOURCES)
    assert met <= {(action, type_) for action, types in RESOURCES.items() for type_ in types}


def test_a_request_has_all_variables_but_the_type_which_its_resource_tells() -> None:
    assert set(variables_of(ACCESS_RULE)) - {"type"} == VARIABLES


def test_a_right_to_read_tables_opens_neither_the_log_nor_keys() -> None:
    rule = PAIRS["read content"].rule(CEDARS)
    opened = {one.commit.kind for one in REQUESTS if outcome_of(rule, variables(one)) is Outcome.ALLOW}
    assert opened == {"table", "view", "function", "namespace"}


def test_names_cannot_be_made_to_look_like_others() -> None:
    rule = PAIRS["below a namespace"].rule(CEDARS)
    for view in (
        CommitView(catalog="lake", namespace=("sales.x",), name="t", kind="table", operation="table.load"),
        CommitView(catalog="lake", namespace=('sales"', "x"), name="t", kind="table", operation="table.load"),
    ):
        assert outcome_of(rule, variables(AccessRequest(commit=view, principal=ADA))) is Outcome.DENY


def test_a_policy_may_read_what_it_names_and_what_its_scope_tells() -> None:
    def reads(text: str, *names: str) -> bool:
        return may_read(Program(kind=ACCESS_RULE, id="r", version=1, expression=text, cedar=CEDAR_PERMIT), names)

    plain = "permit(principal, action, resource);"
    assert reads(plain, "path")
    assert reads(plain, "op")
    assert not reads(plain, "uuid")
    assert reads('permit(principal, action, resource) when { resource.uuid == "u" };', "uuid")
    assert reads(r'permit(principal, action, resource) when { resource["\u{75}uid"] == "u" };', "uuid")
    assert not reads('permit(principal, action, resource) when { context.ref == "x" };', "uuid")
    assert reads('permit(principal, action, resource) when { context == {ref: "x"} };', "actions")


def test_roles_and_granted_fields_are_found_in_the_text_of_a_policy() -> None:
    text = """
    // Role::"not this"
    permit(principal in Role::"analyst", action, resource)
    when { principal.roles.containsAny(["eu", "us"]) || principal.role == "boss" || context.grant.roles.contains("x") };
    """
    assert roles_in_cedar(text) == ("analyst", "eu", "us", "boss", "x")
    program = Program(kind=ACCESS_RULE, id="r", version=1, expression=text, cedar=CEDAR_PERMIT)
    assert grant_fields(program) == {"roles"}
    assert (
        grant_fields(
            replace(program, expression='permit(principal, action, resource) when { "context.grant.roles" == "" };')
        )
        == set()
    )


async def test_without_cedar_a_rule_in_it_is_undecidable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cedarpy", None)
    monkeypatch.delitem(sys.modules, "gateway.policy.cedar.policies", raising=False)
    bare = Checkers(Programs())
    with pytest.raises(PolicyNotCompiledError, match=r"lakeproof\[cedar\]"):
        bare.check(ALWAYS.cedar(Effect.PERMIT), kind=CEDAR_PERMIT)
    asked = [(CEDAR_PERMIT, ALWAYS.cedar(Effect.PERMIT)), (ACCESS_RULE, "true")]
    results = list(bare.judge(asked, variables(REQUESTS[0]), log_id=1))
    assert [(one.outcome, one.detail) for one in results] == [(Outcome.ERROR, NOT_INSTALLED), (Outcome.ALLOW, "")]


# In the worker's process


@pytest.fixture
async def engine() -> AsyncIterator[WorkerEngine]:
    async with WorkerEngine(judging_bytes_max=256 * 2**20, spawn=fork_worker) as engine:
        yield engine


async def test_the_worker_judges_saves_and_explains_policies(engine: WorkerEngine) -> None:
    rules = [
        PAIRS["role"].rule(CEDARS, id_="a"),
        PAIRS["role"].rule(CELS, id_="b"),
        PAIRS["overflows"].rule(CEDARS, id_="c"),
    ]
    programs = [rule.program() for rule in rules]
    await engine.check(programs[0].expression, log_id=1, timeout_s=TIMEOUT_S, kind=CEDAR_PERMIT)
    with pytest.raises(PolicyNotCompiledError, match="the policy is to permit"):
        await engine.check(programs[0].expression, log_id=1, timeout_s=TIMEOUT_S, kind=CEDAR_FORBID)
    for caller, expected in ((ADA, Outcome.ALLOW), (BOB, Outcome.DENY)):
        known = variables(replace(REQUESTS[0], principal=caller))
        verdicts = await engine.judge(programs, known, log_id=1, timeout_s=TIMEOUT_S)
        assert [(one.kind, one.id, one.outcome) for one in verdicts] == [
            (ACCESS_RULE, "a", expected),
            (ACCESS_RULE, "b", expected),
            (ACCESS_RULE, "c", Outcome.ERROR),
        ]
        rows = await engine.judge_rows(programs, known, [{}, {"path": "hr.x"}], log_id=1, timeout_s=TIMEOUT_S)
        assert [outcomes_of(row) for row in rows] == [(expected, expected, Outcome.ERROR)] * 2
        traced = await engine.trace(programs[0], known, log_id=1, timeout_s=TIMEOUT_S)
        assert (traced.verdict.outcome, traced.steps) == (expected, ())
    assert "value" in verdicts[2].detail
