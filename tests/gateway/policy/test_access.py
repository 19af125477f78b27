# SPDX-License-Identifier: Apache-2.0
"""
Access rules: their variables in Nessie's vocabulary, and the decisions that follow from their verdicts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.access import (
    NO_CONTENT,
    Access,
    AccessRequest,
    Grant,
    JudgedRule,
    UnknownOperationError,
    access_actions,
    access_activation,
    decide_access,
    path_of,
    refs_of,
)
from gateway.policy.cel.programs import Programs
from gateway.policy.engine import ACCESS_RULE, POLICY, Outcome, Verdict
from gateway.policy.variables import CommitView, PrincipalView
from gateway.policy.vocabulary import variables_of
from ledger.format.events import Effect

ALLOW, DENY, ERROR = Outcome.ALLOW, Outcome.DENY, Outcome.ERROR
PERMIT, FORBID = Effect.PERMIT, Effect.FORBID
PRINCIPAL = PrincipalView(actor="a1", source="api_key", sub="ann", roles=("test_user", "reader"))


def commit(
    operation: str = "table.commit",
    *,
    kind: str = "table",
    namespace: tuple[str, ...] = ("dev",),
    name: str = "t",
    **rest: Any,
) -> CommitView:
    return CommitView(catalog="lake", namespace=namespace, name=name, kind=kind, operation=operation, **rest)


def request(view: CommitView, **rest: Any) -> AccessRequest:
    return AccessRequest(commit=view, principal=PRINCIPAL, **rest)


def test_the_variables_are_those_of_the_vocabulary_and_none_of_policies() -> None:
    variables: Any = access_activation(request(commit()), ref="main")
    assert set(variables) == set(variables_of(ACCESS_RULE))
    assert set(variables).isdisjoint(variables_of(POLICY))
    assert variables == {
        "op": "UPDATE_ENTITY",
        "role": "test_user",
        "roles": ["test_user", "reader"],
        "ref": "main",
        "path": "dev.t",
        "contentType": "ICEBERG_TABLE",
        "type": "",
        "actions": ["CATALOG_UPDATE_ENTITY"],
        "api": {"apiName": "Iceberg", "apiVersion": 1},
        "actor": "a1",
        "catalog": "lake",
        "grant": {"identity": "", "roles": []},
        "uuid": "",
    }


def test_a_principal_without_roles_has_an_empty_primary_one() -> None:
    nobody = PrincipalView(actor="a", source="api_key")
    variables = access_activation(AccessRequest(commit=commit(), principal=nobody), ref="")
    assert (variables["role"], variables["roles"], variables["ref"]) == ("", [], "")


@pytest.mark.parametrize(
    ("operation", "kind", "op", "action", "content_type"),
    [
        ("table.create", "table", "CREATE_ENTITY", "CATALOG_CREATE_ENTITY", "ICEBERG_TABLE"),
        ("table.register", "table", "CREATE_ENTITY", "CATALOG_REGISTER_ENTITY", "ICEBERG_TABLE"),
        ("table.commit", "table", "UPDATE_ENTITY", "CATALOG_UPDATE_ENTITY", "ICEBERG_TABLE"),
        ("table.drop", "table", "DELETE_ENTITY", "CATALOG_DROP_ENTITY", "ICEBERG_TABLE"),
        ("table.unregister", "table", "DELETE_ENTITY", "CATALOG_DROP_ENTITY", "ICEBERG_TABLE"),
        ("table.rename_from", "table", "DELETE_ENTITY", "CATALOG_RENAME_ENTITY_FROM", "ICEBERG_TABLE"),
        ("table.rename_to", "table", "CREATE_ENTITY", "CATALOG_RENAME_ENTITY_TO", "ICEBERG_TABLE"),
        ("view.replace", "view", "UPDATE_ENTITY", "CATALOG_UPDATE_ENTITY", "ICEBERG_VIEW"),
        ("namespace.create", "namespace", "CREATE_ENTITY", "CATALOG_CREATE_ENTITY", "NAMESPACE"),
        ("namespace.update", "namespace", "UPDATE_ENTITY", "CATALOG_UPDATE_ENTITY", "NAMESPACE"),
        ("namespace.drop", "namespace", "DELETE_ENTITY", "CATALOG_DROP_ENTITY", "NAMESPACE"),
        ("table.load", "table", "READ_ENTITY_VALUE", None, "ICEBERG_TABLE"),
        ("namespace.list", "namespace", "READ_CONTENT_KEY", None, "NAMESPACE"),
    ],
)
def test_operations_have_the_names_of_nessies_checks(
    operation: str, kind: str, op: str, action: str | None, content_type: str
) -> None:
    variables = access_activation(request(commit(operation, kind=kind)), ref="")
    assert (variables["op"], variables["contentType"]) == (op, content_type)
    assert variables["actions"] == ([action] if action else [])


@pytest.mark.parametrize("operation", ["table.melt", "", "create.table"])
def test_an_operation_that_no_rule_could_name_is_refused(operation: str) -> None:
    with pytest.raises(UnknownOperationError) as caught:
        access_activation(request(commit(operation)), ref="")
    assert caught.value.status == 503


@pytest.mark.parametrize(
    ("namespace", "name", "kind", "path"),
    [
        (("dev",), "t", "table", "dev.t"),
        (("dev", "eu"), "t", "table", "dev.eu.t"),
        (("dev", "eu"), "", "namespace", "dev.eu"),
        (("dev.eu",), "t", "table", "dev\x1deu.t"),
        (("dev",), "a.b\0c", "table", "dev.a\x1db\x1dc"),
        ((), "t", "table", "t"),
    ],
)
def test_a_path_cannot_be_read_as_another_one(namespace: tuple[str, ...], name: str, kind: str, path: str) -> None:
    assert path_of(commit(kind=kind, namespace=namespace, name=name)) == path


@pytest.mark.parametrize("kind", sorted(NO_CONTENT))
def test_what_is_no_content_has_a_type_of_its_own_and_paths_that_no_name_can_make(kind: str) -> None:
    view = commit("log.load", kind=kind, namespace=(), name="")
    content_type, root = NO_CONTENT[kind]
    assert access_activation(request(view), ref="")["contentType"] == content_type
    assert path_of(view) == root
    assert path_of(commit("log.load", kind=kind, namespace=(), name="a")) == f"{root}.a"
    assert root.startswith(".")
    assert len({content_type for content_type, _ in NO_CONTENT.values()}) == len(NO_CONTENT)


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4), st.booleans())
@settings(max_examples=50)
def test_no_path_of_content_begins_with_a_dot(levels: list[str], is_table: bool) -> None:
    kind = "table" if is_table else "namespace"
    view = commit(kind=kind, namespace=tuple(levels[:-1] if is_table else levels), name=levels[-1])
    assert not path_of(view).startswith(".")


def test_a_kind_that_no_rule_could_name_is_refused() -> None:
    with pytest.raises(UnknownOperationError, match="kind: expected one of"):
        access_activation(request(commit(kind="secret")), ref="")


SET = {"action": "set-snapshot-ref"}


@pytest.mark.parametrize(
    ("kind", "updates", "refs"),
    [
        ("table", [], ("main",)),
        ("table", [{"action": "add-snapshot"}], ("main",)),
        ("table", [{"action": "add-snapshot"}, {**SET, "ref-name": "dev"}], ("dev",)),
        ("table", [{"action": "remove-snapshot-ref", "ref-name": "v1"}, {**SET, "ref-name": "dev"}], ("dev", "v1")),
        ("table", [{**SET, "ref-name": "dev"}, {"action": "set-properties"}], ("dev", "main")),
        ("table", [{**SET, "ref-name": "dev"}, {"action": "a kind of update not known yet"}], ("dev", "main")),
        ("namespace", [], ("",)),
        ("view", [], ("",)),
        ("key", [], ("",)),
    ],
)
def test_a_request_is_about_the_refs_that_it_moves_and_main_if_it_changes_more(
    kind: str, updates: list[dict[str, Any]], refs: tuple[str, ...]
) -> None:
    assert refs_of(commit(kind=kind, updates=updates)) == refs


@pytest.mark.parametrize(
    ("grant", "beyond"),
    [
        (Grant(), set()),
        (Grant(identity="ann"), set()),
        (Grant(identity="ann", roles=("reader",)), set()),
        (Grant(identity="ann", roles=("reader", "admin")), {"roles"}),
        (Grant(identity="Ann"), {"identity"}),
        (Grant(identity="bob", roles=("admin",)), {"identity", "roles"}),
    ],
)
def test_a_key_grants_more_if_it_has_other_roles_or_another_identity(grant: Grant, beyond: set[str]) -> None:
    assert grant.beyond(PRINCIPAL) == beyond


@pytest.mark.parametrize(
    ("expression", "outcome", "access"),
    [
        ("true", ALLOW, Access.DENIED),
        ("true", ERROR, Access.DENIED),
        ("has(grant.roles)", ALLOW, Access.PERMITTED),
        ("has(grant.roles)", DENY, Access.DENIED),
        ("has(grant.roles)", ERROR, Access.UNDECIDABLE),
        ("has(grant.identity)", ALLOW, Access.DENIED),
        ("'grant.roles' == ''", ALLOW, Access.DENIED),
    ],
)
def test_only_a_rule_that_names_it_grants_more_than_the_caller_has(
    expression: str, outcome: Outcome, access: Access
) -> None:
    rule = JudgedRule(id="r0", version=1, effect=PERMIT, expression=expression)
    decision = decide_access([rule], verdicts_of(outcome), beyond=frozenset({"roles"}))
    assert decision.outcome is access


@pytest.mark.parametrize(("outcome", "access"), [(ERROR, Access.PERMITTED), (ALLOW, Access.DENIED)])
def test_a_forbidding_rule_that_fails_does_not_stop_its_own_retirement(outcome: Outcome, access: Access) -> None:
    rules, verdicts = rules_of(PERMIT, FORBID), verdicts_of(ALLOW, outcome)
    assert decide_access(rules, verdicts, retired="r1").outcome is access
    assert decide_access(rules, verdicts, retired="r0").outcome is not Access.PERMITTED


def test_updates_and_snapshots_name_their_actions() -> None:
    summary = {
        "operation": "overwrite",
        "added-data-files": "2",
        "deleted-data-files": "0",
        "added-records": "3",
        "deleted-records": "many",
        "removed-position-deletes": "1",
        "replace-partitions": "true",
    }
    updates = [
        {"action": "add-snapshot", "snapshot": {"snapshot-id": 1, "summary": summary}},
        {"action": "add-snapshot", "snapshot": {"snapshot-id": 2, "summary": summary}},
        {"action": "add-spec"},
        {"action": "set-default-spec"},
        {"action": "set-snapshot-ref"},
        {"action": "remove-properties", "removals": ["location", "x"]},
        {"action": "remove-snapshots", "snapshot-ids": [1]},
    ]
    assert access_actions(commit(updates=updates)) == (
        "CATALOG_UPDATE_ENTITY",
        "META_ADD_PARTITION_SPEC",
        "META_ADD_SNAPSHOT",
        "META_REMOVE_LOCATION_PROPERTY",
        "META_REMOVE_PROPERTIES",
        "META_REMOVE_SNAPSHOTS",
        "META_SET_DEFAULT_PARTITION_SPEC",
        "META_SET_SNAPSHOT_REF",
        "SNAP_ADDED_RECORDS",
        "SNAP_ADD_DATA_FILES",
        "SNAP_DELETED_POSITION_DELETES",
        "SNAP_DELETED_RECORDS",
        "SNAP_OP_OVERWRITE",
        "SNAP_REPLACE_PARTITIONS",
    )


def test_captured_commits_name_their_actions(shared_data: Path) -> None:
    for path in sorted((shared_data / "spark-commits").glob("commit_*.json")):
        updates = json.loads(path.read_bytes())["req"]["updates"]
        actions = access_actions(commit(updates=updates))
        assert len(actions) > 1, path.name
        added = any(update["action"] == "add-snapshot" for update in updates)
        assert added == any(action.startswith("SNAP_OP_") for action in actions), path.name


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [
        # after the examples of Nessie's documentation, "Example authorization rules"
        ("op in ['VIEW_REFERENCE', 'CREATE_ENTITY'] && role=='test_user' && path.startsWith('dev.')", ALLOW),
        ("op in ['VIEW_REFERENCE', 'DELETE_ENTITY'] && path.startsWith('dev.')", DENY),
        ("op=='CREATE_ENTITY' && role.startsWith('test_') && ref.matches('.*main.*')", ALLOW),
        ("'CATALOG_CREATE_ENTITY' in actions && 'reader' in roles && api.apiName == 'Iceberg'", ALLOW),
        ("contentType == 'ICEBERG_VIEW'", DENY),
    ],
)
def test_rules_in_nessies_vocabulary_are_judged(rule: str, outcome: Outcome) -> None:
    variables = access_activation(request(commit("table.create")), ref="main")
    (result,) = Programs().judge([(ACCESS_RULE, rule)], variables, log_id=1)
    assert result.outcome is outcome


def rules_of(*effects: Effect) -> list[JudgedRule]:
    return [JudgedRule(id=f"r{n}", version=1, effect=effect, expression="true") for n, effect in enumerate(effects)]


def verdicts_of(*outcomes: Outcome) -> list[Verdict]:
    return [Verdict(kind=ACCESS_RULE, id=f"r{n}", version=1, outcome=one) for n, one in enumerate(outcomes)]


@pytest.mark.parametrize(
    ("effects", "outcomes", "access", "reason"),
    [
        ([], [], Access.DENIED, None),
        ([PERMIT], [ALLOW], Access.PERMITTED, "r0"),
        ([PERMIT], [DENY], Access.DENIED, None),
        ([PERMIT], [ERROR], Access.UNDECIDABLE, "r0"),
        ([FORBID], [DENY], Access.DENIED, None),
        ([FORBID], [ALLOW], Access.DENIED, "r0"),
        ([PERMIT, FORBID], [ALLOW, ALLOW], Access.DENIED, "r1"),
        ([PERMIT, FORBID], [ALLOW, DENY], Access.PERMITTED, "r0"),
        ([PERMIT, FORBID], [ALLOW, ERROR], Access.UNDECIDABLE, "r1"),
        ([PERMIT, FORBID], [ERROR, ALLOW], Access.DENIED, "r1"),
        ([PERMIT, PERMIT], [ERROR, ALLOW], Access.PERMITTED, "r1"),
        ([PERMIT, PERMIT], [ERROR, DENY], Access.UNDECIDABLE, "r0"),
        ([PERMIT, FORBID], [ERROR, ERROR], Access.UNDECIDABLE, "r1"),
        ([PERMIT, PERMIT], [DENY, ALLOW], Access.PERMITTED, "r1"),
        ([FORBID, FORBID], [ERROR, ALLOW], Access.DENIED, "r1"),
    ],
)
def test_forbid_outweighs_unknown_outweighs_permit_outweighs_nothing(
    effects: list[Effect], outcomes: list[Outcome], access: Access, reason: str | None
) -> None:
    decision = decide_access(rules_of(*effects), verdicts_of(*outcomes))
    assert decision.outcome is access
    assert decision.reason == (None if reason is None else (reason, 1))
    assert bool(decision.message) == (access is not Access.PERMITTED)


@pytest.mark.parametrize(
    "verdicts",
    [
        [],
        verdicts_of(ALLOW, ALLOW)[1:],
        verdicts_of(ALLOW) * 2,
        [Verdict(kind=POLICY, id="r0", version=1, outcome=ALLOW)],
        [Verdict(kind=ACCESS_RULE, id="r0", version=2, outcome=ALLOW)],
    ],
    ids=["none", "another rule's", "two", "a policy's", "another version's"],
)
def test_a_rule_without_exactly_one_verdict_of_its_own_could_not_be_judged(verdicts: list[Verdict]) -> None:
    assert decide_access(rules_of(PERMIT), verdicts).outcome is Access.UNDECIDABLE


def test_verdicts_of_policies_may_stand_among_those_of_rules() -> None:
    verdicts = [Verdict(kind=POLICY, id="p", version=1, outcome=DENY), *verdicts_of(ALLOW)]
    assert decide_access(rules_of(PERMIT), verdicts).outcome is Access.PERMITTED


cases = st.lists(st.tuples(st.sampled_from(Effect), st.sampled_from(Outcome)), max_size=6)


@given(cases)
@settings(max_examples=50)
def test_access_is_permitted_only_if_one_rule_permits_and_every_forbidding_one_could_be_judged_and_does_not(
    case: list[tuple[Effect, Outcome]],
) -> None:
    decision = decide_access(rules_of(*(e for e, _ in case)), verdicts_of(*(o for _, o in case)))
    permitted = (PERMIT, ALLOW) in case and all(o is DENY for e, o in case if e is FORBID)
    assert (decision.outcome is Access.PERMITTED) == permitted


@given(cases, st.integers(0, 5))
@settings(max_examples=50)
def test_a_rule_that_fails_never_permits_more_than_before(case: list[tuple[Effect, Outcome]], position: int) -> None:
    effects, outcomes = [e for e, _ in case], [o for _, o in case]
    failing = [ERROR if n == position else outcome for n, outcome in enumerate(outcomes)]
    before = decide_access(rules_of(*effects), verdicts_of(*outcomes))
    after = decide_access(rules_of(*effects), verdicts_of(*failing))
    assert after.outcome is not Access.PERMITTED or before.outcome is Access.PERMITTED
