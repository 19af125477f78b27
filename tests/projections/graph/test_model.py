# SPDX-License-Identifier: Apache-2.0
"""
What entries mean to the graph, without a database.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.scopes import Scope
from gateway.policy.scopes import covers as gateway_covers
from gateway.policy.variables import CommitView
from ledger.errors import FormatError
from ledger.format.event import format_key
from ledger.format.events import (
    AccessRuleCreated,
    AccessRuleCreatedV1,
    AccessRuleCreatedV3,
    AccessRuleCreatedV4,
    CatalogCreated,
    CatalogRetired,
    CommitDecision,
    CommitOutcome,
    DetectionKind,
    KeyCreated,
    KeyCreatedV1,
    KeyReplaced,
    KeyRevoked,
    PolicyChangedV2,
    PolicyContents,
    PolicyContentsV1,
    PolicyCreated,
    PolicyCreatedV2,
    PolicyRetiredV1,
    PolicyScope,
    PolicyScopeV1,
    Reason,
)
from projections.errors import UnknownLabelError
from projections.graph.changes import Edge, GraphChanges, Vertex, is_in_force
from projections.graph.labels import EdgeLabel, VertexLabel, vertex_key
from projections.graph.model import changes_of
from projections.graph.policy_scope import TableWrite, covers, governs, is_of_retention, scope_of
from projections.graph.runs import ResolvedLineage
from projections.keys import KEY_BYTES_MAX, bounded_key
from projections.name_patterns import joined_path
from testkit.projections.story import ORDERS, ORDERS_UUID, dataset

if TYPE_CHECKING:
    from testkit.projections.story import Story

ADA = "a" * 32
RETENTION = VertexLabel.RETENTION_POLICY
SEGMENTS = st.lists(st.text(min_size=1), min_size=1, max_size=4)
UUID_TEXT = "5f0c9d1e-0000-4000-8000-000000000001"


def drawn(changes: GraphChanges) -> set[tuple[str, str, str]]:
    edges = [*changes.edges, *changes.edges_in_force()]
    return {(edge.start.key, edge.label.value, edge.end.key) for edge in edges}


def test_an_accepted_commit_is_drawn_from_its_author_to_its_snapshot(story: Story) -> None:
    group = story.committed("table:lake/a/b/t", snapshots=["11"])
    changes = changes_of(story.entries())
    write = f"write_event:{group}/table%3Alake%2Fa%2Fb%2Ft"
    assert drawn(changes) == {
        (f"person:{ADA}", "WROTE", write),
        (write, "INTENDED_WRITE", "table:lake/a/b/t"),
        (write, "ACTUAL_WRITE", "table:lake/a/b/t"),
        (write, "ACTUAL_WRITE", f"snapshot:{UUID_TEXT}/11"),
        ("table:lake/a/b/t", "HAS_SNAPSHOT", f"snapshot:{UUID_TEXT}/11"),
        ("table:lake/a/b/t", "IN_NAMESPACE", "namespace:lake/a/b"),
        ("namespace:lake/a/b", "IN_NAMESPACE", "namespace:lake/a"),
        ("namespace:lake/a", "IN_CATALOG", "catalog:lake"),
    }
    properties = changes.vertices[Vertex(VertexLabel.WRITE_EVENT, write)]
    assert properties["principal"] == "ada@example.com"
    assert (properties["index"], properties["settled_index"], properties["outcome"]) == (0, 1, "accepted")
    assert properties["recorded_at"] == "2026-11-20T12:00:00.000000Z"


@pytest.mark.parametrize("decision", [CommitDecision.REJECTED, CommitDecision.UNDECIDABLE, CommitDecision.CONFLICTED])
def test_what_was_not_approved_is_intended_and_never_actual(story: Story, decision: CommitDecision) -> None:
    story.decided(decision=decision)
    labels = {edge.label for edge in changes_of(story.entries()).edges}
    assert EdgeLabel.INTENDED_WRITE in labels
    assert EdgeLabel.ACTUAL_WRITE not in labels


@pytest.mark.parametrize(
    "outcome", [CommitOutcome.CONFLICTED, CommitOutcome.REFUSED, CommitOutcome.FAILED, CommitOutcome.UNKNOWN]
)
def test_what_was_not_accepted_is_never_actual(story: Story, outcome: CommitOutcome) -> None:
    story.settled(story.decided(), outcome=outcome, snapshots=["1"])
    changes = changes_of(story.entries())
    assert EdgeLabel.ACTUAL_WRITE not in {edge.label for edge in changes.edges}
    assert VertexLabel.SNAPSHOT not in {vertex.label for vertex in changes.vertices}


def test_namespaces_and_views_are_written_too(story: Story) -> None:
    story.committed("namespace:lake/a/b")
    story.committed("view:lake/a/v")
    story.committed("table:lake/t")
    changes = changes_of(story.entries())
    written = {edge.end.label for edge in changes.edges if edge.label is EdgeLabel.ACTUAL_WRITE}
    assert written == {VertexLabel.NAMESPACE, VertexLabel.VIEW, VertexLabel.TABLE}
    assert ("namespace:lake/a/b", "IN_NAMESPACE", "namespace:lake/a") in drawn(changes)


@pytest.mark.parametrize("key", ["policy:p1", "table:lake", "namespace:lake", "table:a$b/c", "nothing"])
def test_a_commit_about_what_no_commit_can_be_about_is_corruption(story: Story, key: str) -> None:
    story.add(story.outcome(story.decided(), key))
    with pytest.raises(FormatError):
        changes_of(story.entries())


def test_an_outcome_whose_decision_is_no_group_id_is_corruption(story: Story) -> None:
    group = story.decided()
    settled = story.outcome(group)
    broken = settled.event.replace(str(group).encode(), b"not-an-id-at-all-but-as-long-as-one--"[:36])
    assert broken != settled.event
    story.add(replace(settled, event=broken))
    with pytest.raises(FormatError, match="UUID"):
        changes_of(story.entries())


def test_a_principal_whose_part_was_erased_is_not_there(story: Story) -> None:
    story.decided(principal=None)
    changes = changes_of(story.entries())
    (write,) = (vertex for vertex in changes.vertices if vertex.label is VertexLabel.WRITE_EVENT)
    assert changes.vertices[write]["principal"] is None
    assert changes.vertices[Vertex(VertexLabel.PERSON, f"person:{ADA}")] == {"actor": ADA}


def test_the_reason_is_the_version_that_was_in_force_and_no_other_kind_of_rule(story: Story) -> None:
    story.policy("p1")
    story.policy("p1", 2)
    story.decided(decision=CommitDecision.REJECTED, reason=Reason(id="p1", version=2))
    story.policy("p1", 3)
    story.rule("p1")
    decided_by = {end for _, label, end in drawn(changes_of(story.entries())) if label == "DECIDED_BY"}
    assert decided_by == {"policy:p1/2"}


@pytest.mark.parametrize("kind", [AccessRuleCreated, AccessRuleCreatedV1, AccessRuleCreatedV3, AccessRuleCreatedV4])
def test_a_policy_and_a_rule_of_one_name_are_two_and_both_can_be_the_reason(
    story: Story, kind: type[AccessRuleCreated | AccessRuleCreatedV1 | AccessRuleCreatedV3 | AccessRuleCreatedV4]
) -> None:
    story.policy("p1")
    story.rule("p1", kind)
    story.decided(decision=CommitDecision.REJECTED, reason=Reason(id="p1", version=1))
    decided_by = {end for _, label, end in drawn(changes_of(story.entries())) if label == "DECIDED_BY"}
    assert decided_by == {"policy:p1/1", "access_rule:p1/1"}


def test_the_author_of_a_policy_wrote_the_draft_that_somebody_else_approved(story: Story) -> None:
    written = PolicyContents(
        expression="size(result.columns) < 5",
        message="no",
        scope=PolicyScope(catalogs=(), names=(), kinds=(), operations=(), properties=(), uuids=()),
        examples=(),
    )
    event = PolicyCreated(id="p1", version=1, contents=written, reason="", active_from=None, draft=1, author="ab" * 16)
    story.add(story.event(event, key="policy:p1"))
    changes = changes_of(story.entries())
    assert changes.vertices[Vertex(VertexLabel.POLICY, "policy:p1/1")]["expression"] == written.expression
    assert {start for start, label, _ in drawn(changes) if label == "AUTHORED"} == {f"person:{'ab' * 16}"}


def test_a_policy_from_before_properties_of_scopes_is_drawn_alike(story: Story) -> None:
    scope = PolicyScopeV1(catalogs=(), names=(), kinds=(), operations=())
    held = PolicyContentsV1(expression="size(result.columns) < 5", message="no", scope=scope, examples=())
    for cls, version in ((PolicyCreatedV2, 1), (PolicyChangedV2, 2)):
        event = cls(id="p1", version=version, contents=held, reason="", active_from=None, draft=None, author=None)
        story.add(story.event(event, key="policy:p1"))
    story.add(story.event(PolicyRetiredV1(id="p1", version=3), key="policy:p1"))
    vertex = changes_of(story.entries()).vertices[Vertex(VertexLabel.POLICY, "policy:p1/2")]
    assert (vertex["expression"], vertex["from_index"], vertex["to_index"]) == (held.expression, 1, 2)


def test_versions_are_in_force_one_after_the_other(story: Story) -> None:
    story.policy("p1")  # entry 0
    story.decided()  # 1
    story.policy("p1", 2)  # 2
    story.policy_retired("p1", 3)  # 3
    changes = changes_of(story.entries())
    first, second = (changes.vertices[Vertex(VertexLabel.POLICY, f"policy:p1/{version}")] for version in (1, 2))
    assert (first["from_index"], first["to_index"]) == (0, 2)
    assert (second["from_index"], second["to_index"]) == (2, 3)
    assert Vertex(VertexLabel.POLICY, "policy:p1/3") not in changes.vertices


def test_a_policy_that_ends_at_a_time_has_that_time_and_one_that_ends_at_once_after_all_none_more(
    story: Story,
) -> None:
    until = "2027-01-01T00:00:00.000000Z"
    story.policy("p1")  # entry 0
    story.policy_ends("p1", 2, retired_from=until)  # 1
    story.policy_retired("p1", 3)  # 2
    changes = changes_of(story.entries())
    policy = changes.vertices[Vertex(VertexLabel.POLICY, "policy:p1/1")]
    assert (policy["from_index"], policy["to_index"], policy["to_time"]) == (0, 1, until)
    assert [one.key for one in changes.vertices if one.label is VertexLabel.POLICY] == ["policy:p1/1"]


@pytest.mark.parametrize(
    ("from_index", "to_index", "as_of", "expected"),
    [(2, None, 1, False), (2, None, 2, True), (2, 5, 4, True), (2, 5, 5, False), (None, None, 9, False)],
)
def test_in_force_is_from_one_index_up_to_another(
    from_index: int | None, to_index: int | None, as_of: int, *, expected: bool
) -> None:
    assert is_in_force(from_index, to_index, as_of=as_of) is expected


def test_catalogs_and_keys_are_drawn_with_who_made_them(story: Story) -> None:
    bob = "b" * 32
    catalog = CatalogCreated(id="lake", version=1, kind="builtin", options={})
    key = KeyCreatedV1(id="k1", version=1, prefix="lp_abc", actor=bob, roles=("data-eng",))
    story.add(story.event(catalog, key="catalog:lake"), story.event(key, key="key:k1"))
    story.add(
        story.event(CatalogRetired(id="lake", version=2), key="catalog:lake"),
        story.event(KeyRevoked(id="k1", version=2), key="key:k1"),
    )
    changes = changes_of(story.entries())
    assert drawn(changes) == {
        (f"person:{ADA}", "AUTHORED", "catalog:lake"),
        (f"person:{ADA}", "AUTHORED", "api_key:k1"),
        (f"person:{bob}", "HOLDS", "api_key:k1"),
    }
    assert changes.vertices[Vertex(VertexLabel.API_KEY, "api_key:k1")]["to_index"] == 3
    assert changes.vertices[Vertex(VertexLabel.CATALOG, "catalog:lake")]["to_index"] == 2


def test_a_key_that_ends_is_drawn_with_its_end_and_its_issuer(story: Story) -> None:
    bob = "b" * 32
    end = "2027-01-31T12:00:00.000000Z"
    key = KeyCreated(id="k1", version=1, prefix="lp_abc", actor=bob, roles=(), expires_at=end, issuer=ADA)
    story.add(story.event(key, key="key:k1"))
    changes = changes_of(story.entries())
    assert (f"person:{bob}", "HOLDS", "api_key:k1") in drawn(changes)
    drawn_key = changes.vertices[Vertex(VertexLabel.API_KEY, "api_key:k1")]
    assert (drawn_key["expires_at"], drawn_key["issuer"]) == (end, ADA)


def test_a_key_that_was_replaced_is_drawn_with_the_end_that_it_has_since(story: Story) -> None:
    key = KeyCreated(id="k1", version=1, prefix="lp_abc", actor="b" * 32, roles=(), expires_at=None, issuer=None)
    story.add(story.event(key, key="key:k1"))
    end = "2027-01-31T12:00:00.000000Z"
    story.add(story.event(KeyReplaced(id="k1", version=2, by="k2", expires_at=end), key="key:k1"))
    drawn_key = changes_of(story.entries()).vertices[Vertex(VertexLabel.API_KEY, "api_key:k1")]
    assert drawn_key["expires_at"] == end
    assert drawn_key.get("to_index") is None


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("result.columns.exists(c, c.name == 'tenant_id')", ("schema",)),
        ("table.exists", ("schema",)),
        ("'data-eng' in principal.roles", ("write",)),
        ("commit.operation != 'table.drop' && size(result.columns) < 5", ("schema", "write")),
        ("request.client == 'spark'", ("write",)),
        ("true", ("write",)),
        ("principal.table == 'x'", ("write",)),
        ("principal . result == 'x'", ("write",)),
        ("'table' == \"result\" || commit.kind == 'view'", ("write",)),
        ("commit.name == 'it\\'s a table' // of the result", ("write",)),
        ("commit.name == r'back\\' && table.exists", ("schema", "write")),
        ('commit.name == """a " table"""', ("write",)),
        ("has(result.properties.owner)", ("schema",)),
        ("commit.name == 'not closed", ("schema", "write")),
    ],
)
def test_what_a_policy_governs_is_what_its_expression_reads(expression: str, expected: tuple[str, ...]) -> None:
    assert governs(expression) == expected


def test_the_policies_in_force_govern_the_tables_they_judge(story: Story) -> None:
    story.policy("columns", expression="size(result.columns) < 5")
    story.policy("people", expression="principal.sub != '' && table.exists")
    story.committed()
    story.decided("table:lake/sales/refused", CommitDecision.REJECTED)
    story.policy("later")
    story.decided("table:lake/sales/lost", CommitDecision.CONFLICTED)
    story.committed("view:lake/sales/v")
    governing = {edge for edge in drawn(changes_of(story.entries())) if edge[1].endswith("_GOVERNS")}
    assert governing == {
        (policy, label, f"table:lake/sales/{table}")
        for table in ("orders", "refused")
        for policy, label in (
            ("policy:columns/1", "SCHEMA_GOVERNS"),
            ("policy:people/1", "SCHEMA_GOVERNS"),
            ("policy:people/1", "WRITE_GOVERNS"),
        )
    }


def scoped(
    story: Story, policy_id: str, version: int = 1, *, expression: str = "true", **scope: tuple[str, ...]
) -> None:
    """A version of a policy with a scope."""
    members = {
        name: scope.get(name, ()) for name in ("catalogs", "names", "kinds", "operations", "properties", "uuids")
    }
    story.policy(policy_id, version, expression=expression, scope=PolicyScope(**members))


def test_a_policy_governs_only_what_is_in_its_scope(story: Story) -> None:
    scoped(story, "everything")
    scoped(story, "lake", catalogs=("lake",))
    scoped(story, "other", catalogs=("other",))
    scoped(story, "orders", names=("sales.orders",))
    scoped(story, "sales", names=("fin.**", "sales.*"))
    scoped(story, "hr", names=("hr.**",))
    scoped(story, "views", kinds=("view",))
    scoped(story, "drops", operations=("table.drop",))
    story.committed()
    story.committed("table:lake/hr/eu/people", operation="table.drop")
    governing = {edge for edge in drawn(changes_of(story.entries())) if edge[1].endswith("_GOVERNS")}
    assert {
        (policy.split("/")[0].removeprefix("policy:"), table.rpartition("/")[2]) for policy, _, table in governing
    } == {
        *(("everything", table) for table in ("orders", "people")),
        *(("lake", table) for table in ("orders", "people")),
        *(("orders", "orders"), ("sales", "orders"), ("hr", "people"), ("drops", "people")),
    }


def test_a_policy_by_uuid_governs_that_table_by_whatever_name_and_one_that_is_not_known(story: Story) -> None:
    scoped(story, "orders", uuids=(ORDERS_UUID,), expression="commit.removed_snapshots.size() < size(table.columns)")
    scoped(story, "another", uuids=("00000000-0000-4000-8000-000000000000",))
    story.decided(table_uuid=ORDERS_UUID)
    story.decided("table:far/hr/renamed", table_uuid=ORDERS_UUID.upper())
    story.decided("table:lake/sales/third", table_uuid="00000000-0000-4000-8000-000000000007")
    story.decided("table:lake/sales/unknown", table_uuid=None)
    governed = {
        (policy.split("/")[0].partition(":")[2], label, table.rpartition("/")[2])
        for policy, label, table in drawn(changes_of(story.entries()))
        if label.endswith("_GOVERNS") or label == "RETAINS"
    }
    labels = ("SCHEMA_GOVERNS", "WRITE_GOVERNS", "RETAINS")
    assert governed == {
        *(("orders", label, table) for label in labels for table in ("orders", "renamed", "unknown")),
        ("another", "WRITE_GOVERNS", "unknown"),
    }


NAMES = st.lists(st.sampled_from(["a", "b", "a.b"]), min_size=1, max_size=3)
PATTERNS = st.sampled_from(["a", "a.b", "a.*", "a.**", "a.b.*", "a\x1db", "a\x1db.*", "b.**", "a.a.b"])


@given(
    NAMES, st.lists(PATTERNS, max_size=2), st.sampled_from(["lake", "other"]), st.sampled_from(["", "table", "view"])
)
def test_the_graph_reads_a_scope_as_the_gateway_does(
    path: list[str], patterns: list[str], catalog: str, kind: str
) -> None:
    members: dict[str, tuple[str, ...]] = {"names": tuple(patterns), "kinds": (kind,) if kind else ()}
    scope = Scope(catalogs=("lake",), operations=("table.commit",), **members)
    held = PolicyScope(
        catalogs=scope.catalogs,
        names=scope.names,
        kinds=scope.kinds,
        operations=scope.operations,
        properties=scope.properties,
        uuids=scope.uuids,
    )
    for operation in ("table.commit", "table.drop"):
        commit = CommitView(catalog=catalog, namespace=path[:-1], name=path[-1], kind="table", operation=operation)
        write = TableWrite(catalog=catalog, path=joined_path(path), operation=operation)
        assert covers(scope_of(held), write) == gateway_covers(scope, commit)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("commit.removed_snapshots.all(s, s.age > duration('1h'))", True),
        ("size(commit . removed_snapshots) == 0", True),
        ("commit.name == 'x' || commit\n.removed_snapshots == []", True),
        ("table.commit.removed_snapshots == []", False),
        ("commit.removed_columns == []", False),
        ("'META_REMOVE_SNAPSHOTS' in commit.actions", False),
        ("commit.name == 'commit.removed_snapshots'", False),
        ("commit.name == 'not closed", False),
    ],
)
def test_a_policy_of_retention_reads_which_snapshots_are_removed(expression: str, expected: bool) -> None:
    assert is_of_retention(expression) is expected


def test_a_policy_of_retention_retains_the_tables_in_its_scope(story: Story) -> None:
    removed = "size(commit.removed_snapshots) == 0"
    scoped(story, "keep", expression=removed, names=("sales.**",))
    scoped(story, "other", names=("sales.**",))
    story.committed()
    story.committed("table:lake/hr/people")
    scoped(story, "keep", 2, expression="true", names=("sales.**",))
    story.committed("table:lake/sales/later")
    changes = changes_of(story.entries())
    retaining = {edge for edge in drawn(changes) if edge[1] == "RETAINS"}
    assert retaining == {("retention_policy:keep/1", "RETAINS", "table:lake/sales/orders")}
    kept = {vertex: properties for vertex, properties in changes.vertices.items() if vertex.label is RETENTION}
    (properties,) = kept.values()
    assert (properties["id"], properties["version"], properties["expression"]) == ("keep", 1, removed)
    assert properties["scope"] == {"names": ["sales.**"]}
    assert isinstance(properties["to_index"], int)


def test_the_end_of_a_policy_that_retained_nothing_makes_no_vertex(story: Story) -> None:
    story.policy("p1")
    story.policy_retired("p1", 2)
    changes = changes_of(story.entries())
    assert not [vertex for vertex in changes.vertices if vertex.label is RETENTION]
    assert [vertex.key for vertex in changes.if_there] == ["retention_policy:p1/1"]


def test_a_version_that_was_replaced_governs_only_what_it_judged(story: Story) -> None:
    story.policy("p1")
    story.committed("table:lake/a")
    story.policy("p1", 2)
    story.committed("table:lake/b")
    governing = {edge for edge in drawn(changes_of(story.entries())) if edge[1] == "WRITE_GOVERNS"}
    assert governing == {
        ("policy:p1/1", "WRITE_GOVERNS", "table:lake/a"),
        ("policy:p1/2", "WRITE_GOVERNS", "table:lake/b"),
    }


def test_a_snapshot_behind_the_gateways_back_is_drawn_as_ungoverned(story: Story) -> None:
    story.committed(snapshots=["11"])
    story.observed("12", parent="11")
    changes = changes_of(story.entries())
    first, second = (Vertex(VertexLabel.SNAPSHOT, f"snapshot:{UUID_TEXT}/{number}") for number in (11, 12))
    assert {
        (ORDERS, "HAS_SNAPSHOT", first.key),
        (ORDERS, "HAS_SNAPSHOT", second.key),
        (first.key, "PARENT_OF", second.key),
    } <= drawn(changes)
    assert (changes.vertices[first]["governed"], changes.vertices[second]["governed"]) == (True, False)
    assert not [edge for edge in changes.edges if edge.label is EdgeLabel.ACTUAL_WRITE and edge.end == second]


def test_an_ungoverned_snapshot_of_a_table_that_no_catalog_names_hangs_in_nothing(story: Story) -> None:
    story.observed("12", key=None)
    changes = changes_of(story.entries())
    assert {vertex.label for vertex in changes.vertices} == {VertexLabel.SNAPSHOT}
    assert changes.edges == {}


def test_findings_are_drawn_from_their_column_to_their_run(story: Story) -> None:
    story.scanned("11", ("email", DetectionKind.EMAIL, 92), ("note", DetectionKind.PHONE, 55))
    changes = changes_of(story.entries())
    run, snapshot = f"detection_run:{UUID_TEXT}/11/pii-1", f"snapshot:{UUID_TEXT}/11"
    sure, unsure = (f"classification:{UUID_TEXT}/11/pii-1/{of}" for of in ("1/email", "2/phone"))
    column, other = (f"column:table%3Alake%2Fsales%2Forders/{name}" for name in ("email", "note"))
    edges = drawn(changes)
    assert {
        (run, "SCANNED", snapshot),
        (ORDERS, "HAS_SNAPSHOT", snapshot),
        (ORDERS, "HAS_COLUMN", column),
        (column, "CLASSIFIED_AS", sure),
        (sure, "DETECTED_BY", run),
        (other, "CLASSIFIED_AS", unsure),
    } <= edges
    tags = {(start, end) for start, label, end in edges if label == "TAGGED_WITH"}
    assert tags == {
        *((start, f"tag:{tag}") for start in (sure, column, ORDERS) for tag in ("pii", "email")),
        *((unsure, f"tag:{tag}") for tag in ("pii", "phone")),
    }


def test_a_finding_in_a_table_that_no_catalog_names_has_no_column(story: Story) -> None:
    story.scanned("11", ("email", DetectionKind.EMAIL, 92), of_catalog=False)
    labels = {vertex.label for vertex in changes_of(story.entries()).vertices}
    assert labels == {VertexLabel.DETECTION_RUN, VertexLabel.SNAPSHOT, VertexLabel.CLASSIFICATION, VertexLabel.TAG}


def test_a_column_without_a_name_goes_by_its_number(story: Story) -> None:
    story.scanned("11", ("", DetectionKind.EMAIL, 55))
    keys = [vertex.key for vertex in changes_of(story.entries()).vertices if vertex.label is VertexLabel.COLUMN]
    assert keys == ["column:table%3Alake%2Fsales%2Forders/1"]


def test_a_failed_scan_says_so_and_classifies_nothing(story: Story) -> None:
    story.scan_failed("11")
    changes = changes_of(story.entries())
    (run,) = (vertex for vertex in changes.vertices if vertex.label is VertexLabel.DETECTION_RUN)
    assert (changes.vertices[run]["status"], changes.vertices[run]["fault"]) == ("failed", "file_missing")
    assert VertexLabel.CLASSIFICATION not in {vertex.label for vertex in changes.vertices}


def test_a_run_is_drawn_with_what_it_read_and_made(story: Story) -> None:
    story.committed(snapshots=["11"])
    story.lineage([dataset("raw", "s3://bucket")], [dataset("sales.orders", version="11")], columns=[("mail", "email")])
    resolved = ResolvedLineage(
        keys=["dataset:s3%3A%2F%2Fbucket/raw", ORDERS],
        drawn=[("dataset:s3%3A%2F%2Fbucket/raw", ORDERS)],
        columns=[("dataset:s3%3A%2F%2Fbucket/raw", "mail", ORDERS, "email")],
    )
    changes = changes_of(story.entries(), lineage={2: resolved})
    run, query = (f"{kind}0b9f0b7e-4c9c-4a57-a6f0-0c5d7a1f5f0e" for kind in ("run:", "query:spark%204.1.4/"))
    raw, snapshot = "dataset:s3%3A%2F%2Fbucket/raw", f"snapshot:{UUID_TEXT}/11"
    mail, email = "column:dataset%3As3%253A%252F%252Fbucket%2Fraw/mail", "column:table%3Alake%2Fsales%2Forders/email"
    assert {
        (raw, "LINEAGE_OF", ORDERS),
        (mail, "COLUMN_LINEAGE_OF", email),
        (raw, "HAS_COLUMN", mail),
        (run, "RUN_OF", "pipeline:airflow/make_orders"),
        *((each, "READ_FROM", raw) for each in (run, query)),
        *((each, "PRODUCED", made) for each in (run, query) for made in (ORDERS, snapshot)),
        *((each, "RAN_ON", "engine:spark%204.1.4") for each in (run, query)),
        *((f"person:{ADA}", "SUBMITTED", each) for each in (run, query)),
    } <= drawn(changes)


def test_an_edge_that_would_close_a_cycle_is_not_drawn_and_the_run_is(story: Story) -> None:
    story.lineage([dataset("a")], [dataset("b")], engine=None)
    changes = changes_of(story.entries(), lineage={0: ResolvedLineage(keys=["table:lake/a", "table:lake/b"])})
    labels = {edge.label for edge in changes.edges}
    assert EdgeLabel.LINEAGE_OF not in labels
    assert {EdgeLabel.READ_FROM, EdgeLabel.PRODUCED} <= labels
    assert VertexLabel.QUERY not in {vertex.label for vertex in changes.vertices}


def test_a_version_that_is_no_snapshot_id_and_a_name_that_is_empty_draw_nothing(story: Story) -> None:
    story.lineage([dataset("a", version="v1"), dataset("b")], [dataset("c")], columns=[("", "x"), ("x", "")], run_id="")
    keys = [f"table:lake/{name}" for name in "abc"]
    changes = changes_of(
        story.entries(),
        lineage={0: ResolvedLineage(keys=keys, columns=[(keys[0], "", keys[2], "x"), (keys[0], "x", keys[2], "")])},
    )
    labels = {vertex.label for vertex in changes.vertices}
    assert not labels & {VertexLabel.SNAPSHOT, VertexLabel.COLUMN, VertexLabel.RUN, VertexLabel.QUERY}


def test_a_snapshot_that_lineage_names_is_that_of_the_tables_uuid_at_its_place(story: Story) -> None:
    story.lineage([dataset("sales.orders", version="1")], [], run_id="first")
    story.committed()
    story.lineage([dataset("sales.orders", version="2")], [], run_id="second")
    resolved = ResolvedLineage(keys=[ORDERS])
    read = {
        edge.end.key
        for edge in changes_of(story.entries(), lineage={0: resolved, 3: resolved}).edges
        if edge.label is EdgeLabel.READ_FROM and edge.end.label is VertexLabel.SNAPSHOT
    }
    assert read == {"snapshot:table%3Alake%2Fsales%2Forders/1", f"snapshot:{UUID_TEXT}/2"}
    (alone,) = story.entries()[3:]
    changes = changes_of([alone], lineage={3: resolved}, stored_uuids={ORDERS: UUID_TEXT})
    assert Vertex(VertexLabel.SNAPSHOT, f"snapshot:{UUID_TEXT}/2") in changes.vertices


def test_the_rest_of_the_vocabulary_changes_nothing(story: Story) -> None:
    story.raw("commit.dreamt")
    story.raw("commit.decided", version=7)
    assert changes_of(story.entries()) == GraphChanges()


def test_an_edge_that_the_inventory_does_not_have_is_refused() -> None:
    changes = GraphChanges()
    person = changes.vertex(VertexLabel.PERSON, ADA)
    table = changes.vertex(VertexLabel.TABLE, "lake", "t")
    with pytest.raises(UnknownLabelError, match="Person-WROTE->Table"):
        changes.edge(person, EdgeLabel.WROTE, table)
    with pytest.raises(UnknownLabelError):
        changes.edge_if_in_force(person, EdgeLabel.DECIDED_BY, table, as_of=0)


@given(SEGMENTS, SEGMENTS)
def test_two_things_never_share_a_key(one: list[str], other: list[str]) -> None:
    assert (vertex_key(VertexLabel.TABLE, *one) == vertex_key(VertexLabel.TABLE, *other)) == (one == other)


def test_a_key_too_long_for_an_index_is_cut_and_stays_one_of_a_kind() -> None:
    fits, long, longer = ("x" * (KEY_BYTES_MAX + more - len("table:")) for more in (0, 1, 2))
    keys = [vertex_key(VertexLabel.TABLE, name) for name in (fits, long, longer)]
    assert [len(key) for key in keys] == [KEY_BYTES_MAX] * 3
    assert len(set(keys)) == 3
    assert keys[0] == format_key("table", [fits])
    assert bounded_key(keys[1]) == keys[1]


@pytest.mark.parametrize("key", [ORDERS, "view:lake/sales/v", "namespace:lake/sales", "namespace:lake/sales/eu"])
def test_batches_one_after_the_other_change_what_one_batch_of_both_changes(
    new_story: Callable[[], Story], key: str
) -> None:
    story = new_story()
    group = story.decided(key, snapshots=["1"])
    story.settled(group, key, outcome=CommitOutcome.UNKNOWN)
    story.settled(group, key, snapshots=["1"])
    story.committed(key)
    story.committed(ORDERS)
    entries = story.entries()
    whole = changes_of(entries)
    for cut in range(len(entries) + 1):
        parts = GraphChanges()
        for batch in (changes_of(entries[:cut]), changes_of(entries[cut:])):
            for vertex, properties in batch.vertices.items():
                parts.vertices.setdefault(vertex, {}).update(properties)
            for edge, properties in batch.edges.items():
                parts.edges.setdefault(edge, {}).update(properties)
            parts.governed.update(batch.governed)
        assert parts == whole
    assert all(isinstance(edge, Edge) for edge in whole.edges)
