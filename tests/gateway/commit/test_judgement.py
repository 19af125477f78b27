# SPDX-License-Identifier: Apache-2.0
"""
The caches of judgements on reads, and of what access rules decide.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.commit.judgement import (
    AccessKey,
    Demands,
    JudgedRequest,
    Judgement,
    KnownAccess,
    KnownDecision,
    Read,
    ReadJudgements,
    access_key,
)
from gateway.control.aggregates import Policy
from gateway.control.plane import ControlState
from gateway.identifiers import Target
from gateway.identity.principal import Principal, PrincipalSource
from gateway.policy.access import Access, AccessDecision, Grant, access_activation, refs_of
from gateway.policy.engine import ACCESS_RULE, Outcome, Verdict
from gateway.policy.former import former_values
from gateway.policy.judging import Judged
from gateway.policy.variables import CommitView, RequestView
from ledger.format import canonical
from ledger.format.events import CommitDecision


def judgement(decision: CommitDecision) -> Judgement:
    return Judgement(decision=decision, reason=None, message="", verdicts={}, as_of=0, policy_set="0" * 64)


def read(name: str) -> Read:
    target = Target(alias="lake", namespace=("sales",), name=name)
    return Read(log_id=1, policy_set="0" * 64, actor="a" * 32, roles=(), target=target.key, operation="table.load")


def test_the_least_recently_used_judgement_is_forgotten() -> None:
    judgements = ReadJudgements(judgements_max=2)
    for name in ("a", "b"):
        judgements.put(read(name), judgement(CommitDecision.APPROVED))
    assert judgements.get(read("a")) is not None
    judgements.put(read("c"), judgement(CommitDecision.REJECTED))
    assert judgements.get(read("b")) is None
    assert judgements.get(read("a")) is not None
    judgements.put(read("d"), judgement(CommitDecision.UNDECIDABLE))
    assert judgements.get(read("d")) is None


def judged(outcome: Access, *verdicts: Outcome) -> Judged:
    return Judged(
        decision=AccessDecision(outcome=outcome),
        verdicts=tuple(Verdict(kind=ACCESS_RULE, id="r", version=1, outcome=one) for one in verdicts),
    )


def key(name: str) -> AccessKey:
    found = access_key(ControlState.empty(), request(COMMIT | {"name": name}, CALLER))
    assert found is not None
    return found


def test_the_least_recently_used_decision_is_forgotten_and_failures_are_never_kept() -> None:
    known = KnownAccess(decisions_max=2)
    known.put(key("a"), judged(Access.PERMITTED, Outcome.ALLOW))
    known.put(key("b"), judged(Access.DENIED))
    assert known.get(key("a")) is not None
    known.put(key("c"), judged(Access.DENIED, Outcome.DENY))
    assert (known.get(key("b")), known.get(key("d"))) == (None, None)
    assert known.get(key("a")) is not None
    known.put(key("e"), judged(Access.PERMITTED, Outcome.ALLOW, Outcome.ERROR))
    known.put(key("f"), judged(Access.UNDECIDABLE))
    assert (known.get(key("e")), known.get(key("f"))) == (None, None)


def test_a_known_decision_is_judged_as_of_the_state_that_asks() -> None:
    known = KnownDecision(judged(Access.PERMITTED, Outcome.ALLOW), ControlState.empty().policy_set)
    before, after = ControlState.empty(), replace(ControlState.empty(), as_of=5)
    assert known.judgement(before) is known.judgement(before)
    assert (known.judgement(before).as_of, known.judgement(after).as_of) == (before.as_of, 5)
    assert known.judgement(after).verdicts_part() == canonical.encode(known.judgement(before).verdicts)


Members = dict[str, Any]
COMMIT: Members = {
    "catalog": "lake",
    "namespace": ("sales",),
    "name": "orders",
    "kind": "table",
    "operation": "table.commit",
    "updates": ({"action": "set-properties", "updates": {"a": "b"}},),
}
CALLER: dict[str, Any] = {"actor": "a" * 32, "roles": ("data-eng",)}


def request(commit: dict[str, Any], caller: dict[str, Any]) -> JudgedRequest:
    principal = Principal(
        tenant=UUID(int=1), log_id=1, issuer="i", sub="s", source=PrincipalSource.API_KEY, key_id="k", **caller
    )
    view = RequestView(method="POST", path="/")
    return JudgedRequest(commit=CommitView(**commit), principal=principal, request=view)


names = st.sampled_from(["", "a", "b", "a.b", "a\x1db"])
commits = st.fixed_dictionaries(
    {
        "catalog": st.sampled_from(["lake", "far"]),
        "namespace": st.lists(names, max_size=2).map(tuple),
        "name": names,
        "kind": st.sampled_from(["table", "view", "namespace", "log", "policy"]),
        "operation": st.sampled_from(["table.commit", "table.create", "table.load", "namespace.drop", "log.list"]),
        "updates": st.lists(
            st.one_of(
                st.just({"action": "set-properties", "updates": {}}),
                st.just({"action": "add-snapshot", "snapshot": {"summary": {"operation": "append"}}}),
                st.builds(lambda ref: {"action": "set-snapshot-ref", "ref-name": ref}, st.sampled_from(["main", "b"])),
                st.just({"action": "set-location", "location": "x"}),
            ),
            max_size=2,
        ).map(tuple),
    }
)
callers = st.fixed_dictionaries(
    {
        "actor": st.sampled_from(["a" * 32, "b" * 32]),
        "roles": st.lists(st.sampled_from(["x", "y"]), max_size=2).map(tuple),
    }
)


@given(st.lists(st.tuples(commits, callers), min_size=2, max_size=2))
@settings(max_examples=200)
def test_requests_of_one_key_are_seen_alike_by_every_access_rule(
    two: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    state = ControlState.empty()
    one, other = (request(*each) for each in two)
    if access_key(state, one) == access_key(state, other):
        assert refs_of(one.commit) == refs_of(other.commit)
        for ref in refs_of(one.commit):
            assert access_activation(one.access(), ref=ref) == access_activation(other.access(), ref=ref)
        assert former_values(one.commit) == former_values(other.commit)


DIFFERENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *(({name: value}, {}) for name, value in {"catalog": "x", "namespace": ("x",), "name": "x"}.items()),
    ({"operation": "table.create"}, {}),
    ({"kind": "view"}, {}),
    ({"updates": ({"action": "set-location", "location": "x"},)}, {}),
    ({"updates": ({"action": "set-snapshot-ref", "ref-name": "b"},)}, {}),
    ({}, {"actor": "b" * 32}),
    ({}, {"roles": ()}),
    ({}, {"roles": ("data-eng", "admin")}),
]


@pytest.mark.parametrize(("commit", "caller"), DIFFERENT, ids=str)
def test_whatever_a_rule_can_see_is_in_the_key(commit: dict[str, Any], caller: dict[str, Any]) -> None:
    state = ControlState.empty()
    usual = access_key(state, request(COMMIT, CALLER))
    assert access_key(state, request(COMMIT | commit, CALLER | caller)) != usual
    assert access_key(replace(state, policy_set="1" * 64), request(COMMIT, CALLER)) != usual
    other = replace(request(COMMIT, CALLER).principal, log_id=2)
    assert access_key(state, replace(request(COMMIT, CALLER), principal=other)) != usual


def test_the_uuid_of_a_table_is_in_the_key_only_where_a_rule_reads_it() -> None:
    state, usual = ControlState.empty(), request(COMMIT, CALLER)
    named, unknown = replace(usual, uuid="u"), replace(usual, uuid=None)
    assert access_key(state, named) == access_key(state, unknown)
    reading = replace(state, reads_uuid=True)
    keys = {access_key(reading, one) for one in (named, unknown, replace(usual, uuid=""), replace(usual, uuid="v"))}
    assert len(keys) == 4
    # What is no table or view has none, whatever is said.
    policy = request(COMMIT | {"kind": "policy", "operation": "policy.inspect"}, CALLER)
    assert access_key(reading, replace(policy, uuid="u")) == access_key(reading, policy)
    assert access_activation(policy.access(), ref="")["uuid"] == ""
    assert "uuid" not in access_activation(unknown.access(), ref="main")


def test_what_grants_or_retires_has_no_key() -> None:
    state, usual = ControlState.empty(), request(COMMIT, CALLER)
    assert access_key(state, usual) is not None
    assert access_key(state, replace(usual, grant=Grant(identity="eve"))) is None
    assert access_key(state, replace(usual, retired="r")) is None


def in_force(**expressions: str) -> ControlState:
    policies = {
        name: Policy(id=name, version=1, expression=expression, message="no")
        for name, expression in expressions.items()
    }
    return replace(ControlState.empty(), policies=policies)


def test_what_policies_demand_is_looked_up_again_only_when_other_policies_are_in_force() -> None:
    demands, first = Demands(), in_force(a="result.fields == []", b="request.time != ''")
    demanded = demands.of(first, log_id=1)
    assert demanded == {"result": {"fields"}, "request": {"time"}}
    assert demands.of(replace(first, as_of=7), log_id=1) is demanded
    assert demands.of(in_force(a="result.columns == []"), log_id=1) == {}
    assert demands.of(first, log_id=1) == demanded


def test_what_the_policies_of_one_tenant_demand_is_not_what_those_of_another_do() -> None:
    demands = Demands(tenants_max=1)
    states = {log_id: in_force(a=f"result.{name} == []") for log_id, name in ((1, "fields"), (2, "snapshots"))}
    for log_id, name in ((1, "fields"), (2, "snapshots"), (1, "fields")):
        assert demands.of(states[log_id], log_id=log_id) == {"result": {name}}
