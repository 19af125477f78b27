# SPDX-License-Identifier: Apache-2.0
"""The vocabulary: members that are fixed for ever, and strictness in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import FormatError
from ledger.format import canonical
from ledger.format.event import CONTROL_FAMILIES, is_control
from ledger.format.events import (
    EVENTS,
    CatalogCreated,
    CommitDecided,
    CommitDecision,
    CommitOutcome,
    CommitSettled,
    Identifier,
    OutcomeEvidence,
    Reason,
    from_data,
    to_data,
)

# What is stored for ever: a member more, less or renamed is a new version beside it, never a change of this table.
MEMBERS = {
    (
        "commit.decided",
        1,
    ): "actions as_of base decision identifier operation policy_set principal_source reason request "
    "snapshots table_uuid",
    ("commit.settled", 1): "decision evidence metadata_location metadata_sha256 outcome snapshots table_uuid",
    ("commit.observed", 1): "identifier metadata_location operation parent snapshot table_uuid trigger",
    ("lineage.received", 1): (
        "columns columns_omitted datasets engine event_time event_type "
        "inputs job kind outputs payload_sha256 producer run_id"
    ),
    ("lineage.received", 2): (
        "columns columns_omitted datasets datasets_omitted engine event_time event_type "
        "inputs job kind names_omitted outputs payload_sha256 producer run_id"
    ),
    ("lineage.cycle_found", 1): "lineage path source target",
    ("trigger.received", 1): "alias file_count files identifier metadata_location source",
    ("scan.requested", 1): "ruleset snapshot table_uuid",
    ("scan.completed", 1): (
        "bytes_read cells columns files findings gaps "
        "identifier metadata_location rows rows_sampled ruleset snapshot table_uuid"
    ),
    ("scan.completed", 2): (
        "bytes_read cells columns columns_unread files findings gaps "
        "identifier metadata_location rows rows_sampled ruleset snapshot table_uuid unread"
    ),
    ("table.identified", 1): "identifier metadata_location source table_uuid",
    ("purge.requested", 1): "identifier metadata_location metadata_sha256 places table_uuid",
    ("purge.completed", 1): "bytes_deleted deleted fault identifier kept missing purge table_uuid",
    ("metrics.reported", 1): "identifier kind operation snapshot",
    ("scan.failed", 1): "fault file identifier metadata_location ruleset snapshot table_uuid",
    ("detection.found", 1): "column confidence_percent field_id kind matches ruleset snapshot table_uuid values",
    ("finding.reviewed", 1): (
        "column confidence_percent field_id finding kind reason ruleset snapshot table_uuid verdict version"
    ),
    ("alert.raised", 1): "column confidence_percent field_id finding kind snapshot table_uuid",
    ("alert.delivered", 1): "alert attempt sink",
    ("access.refused", 1): "count identifier operation reason",
    ("access.refused", 2): "count identifier key operation reason",
    ("policy.created", 1): "expression id message version",
    ("policy.created", 2): "active_from author contents draft id reason version",
    ("policy.created", 3): "active_from author contents draft id reason version",
    ("policy.created", 4): "active_from author contents draft id reason version",
    ("policy.changed", 1): "expression id message version",
    ("policy.changed", 2): "active_from author contents draft id reason version",
    ("policy.changed", 3): "active_from author contents draft id reason version",
    ("policy.changed", 4): "active_from author contents draft id reason version",
    ("policy.retired", 1): "id version",
    ("policy.retired", 2): "id reason version",
    ("policy.retired", 3): "id reason retired_from version",
    ("policy_draft.written", 1): "contents id reason version",
    ("policy_draft.written", 2): "contents id reason version",
    ("policy_draft.written", 3): "contents id reason version",
    ("policy_draft.reviewed", 1): "draft id reason verdict version",
    ("restriction.created", 1): "contents id reason version",
    ("restriction.created", 2): "contents id reason version",
    ("restriction.changed", 1): "contents id reason version",
    ("restriction.changed", 2): "contents id reason version",
    ("restriction.retired", 1): "id version",
    ("restriction_draft.written", 1): "contents id reason version",
    ("restriction_draft.reviewed", 1): "draft id reason verdict version",
    ("access_rule.created", 1): "effect expression id version",
    ("access_rule.created", 2): "effect expression id version",
    ("access_rule.created", 3): "effect expression id version",
    ("access_rule.created", 4): "effect expression id version",
    ("access_rule.retired", 1): "id version",
    ("catalog.created", 1): "id kind options version",
    ("catalog.retired", 1): "id version",
    ("key.created", 1): "actor id prefix roles version",
    ("key.created", 2): "actor expires_at id issuer prefix roles version",
    ("key.replaced", 1): "by expires_at id version",
    ("key.revoked", 1): "id version",
    ("setting.changed", 1): "id value version",
    ("tenant.created", 1): "id name version",
    ("signer.created", 1): "vkey",
    ("signer.rotated", 1): "note previous vkey",
    ("signer.retired", 1): "note page pages successor trees vkey",
    ("payload.erased", 1): "before index name reason subject type",
    ("payload.erased", 2): "before index name origin reason subject type",
    ("migration.applied", 1): "name number package sha256",
    ("verifier.published", 1): "sha256 version",
    ("place.released", 1): "place",
    ("place.granted", 1): "place",
    ("log.continued", 1): "note origin root size",
    ("logs.anchored", 1): "origin root size",
    ("schema.recorded", 1): "accepted age fingerprint migrations objects page pages postgresql provisioning replaces",
    ("proposal.replayed", 1): (
        "decisions end failed first inputs narrowed not_judged proposal same unknown verdicts widened"
    ),
    ("projection.attested", 1): "digest generation projection projection_version size",
    ("aggregate.recorded", 1): "originator_id originator_kind originator_version state state_base64 topic",
    ("aggregate.snapshotted", 1): "originator_id originator_kind originator_version state state_base64 topic",
}

DECIDED = CommitDecided(
    actions=("add-snapshot", "set-snapshot-ref"),
    as_of=-1,
    base=None,
    decision=CommitDecision.REJECTED,
    identifier=Identifier(alias="lake", namespace=("sales", "eu"), name="orders"),
    operation="updateTable",
    policy_set="ab" * 32,
    principal_source="api_key",
    reason=Reason(id="p1", version=3),
    request="cd" * 32,
    snapshots=("9007199254740993",),
    table_uuid=None,
)
DECIDED_DATA: dict[str, Any] = {
    "actions": ["add-snapshot", "set-snapshot-ref"],
    "as_of": -1,
    "base": None,
    "decision": "rejected",
    "identifier": {"alias": "lake", "name": "orders", "namespace": ["sales", "eu"]},
    "operation": "updateTable",
    "policy_set": "ab" * 32,
    "principal_source": "api_key",
    "reason": {"id": "p1", "version": 3},
    "request": "cd" * 32,
    "snapshots": ["9007199254740993"],
    "table_uuid": None,
}


def test_the_members_of_every_type_are_these() -> None:
    found = {key: " ".join(sorted(f.name for f in fields(event))) for key, event in EVENTS.items()}
    assert found == MEMBERS


def test_every_control_event_names_its_aggregate_and_version() -> None:
    control = {key: event for key, event in EVENTS.items() if is_control(key[0])}
    assert {event_type.partition(".")[0] for event_type, _ in control} <= CONTROL_FAMILIES
    for event in control.values():
        assert {"id", "version"} <= {f.name for f in fields(event)}


def test_data_is_one_member_a_field_and_comes_back() -> None:
    assert to_data(DECIDED) == DECIDED_DATA
    assert from_data(CommitDecided, DECIDED_DATA) == DECIDED
    stored = canonical.decode(canonical.encode(to_data(DECIDED)))
    assert from_data(CommitDecided, stored) == DECIDED


@settings(max_examples=30)
@given(st.sampled_from(sorted(EVENTS)).flatmap(lambda kind: st.builds(EVENTS[kind])))
def test_every_event_comes_back_from_its_data(event: Any) -> None:
    assert from_data(type(event), to_data(event)) == event


@pytest.mark.parametrize("member", DECIDED_DATA)
def test_a_missing_member_is_refused_by_name(member: str) -> None:
    data = {name: value for name, value in DECIDED_DATA.items() if name != member}
    with pytest.raises(FormatError, match=f"CommitDecided.*{member}"):
        from_data(CommitDecided, data)


@pytest.mark.parametrize("member", DECIDED_DATA)
@pytest.mark.parametrize("value", [0.5, {"unknown": 1}, [[]], 2**60, True])
def test_a_value_of_another_type_is_refused_by_name(member: str, value: Any) -> None:
    if type(value) is int and member == "as_of":
        return
    with pytest.raises(FormatError, match=member):
        from_data(CommitDecided, {**DECIDED_DATA, member: value})


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ({**DECIDED_DATA, "more": 1}, "CommitDecided"),
        ({**DECIDED_DATA, "decision": "Rejected"}, "CommitDecided.decision"),
        ({**DECIDED_DATA, "snapshots": ["1", 2]}, r"CommitDecided.snapshots\[1\]"),
        ({**DECIDED_DATA, "reason": {"id": "p1"}}, "CommitDecided.reason"),
        ({**DECIDED_DATA, "identifier": {"alias": "a", "namespace": "b", "name": None}}, "identifier.namespace"),
        ([], "CommitDecided"),
        (None, "CommitDecided"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(data: Any, where: str) -> None:
    with pytest.raises(FormatError, match=where):
        from_data(CommitDecided, data)


def test_an_object_of_strings_refuses_other_values() -> None:
    good: Mapping[str, Any] = {"id": "lake", "version": 1, "kind": "builtin", "options": {"warehouse": "file:///w"}}
    assert from_data(CatalogCreated, good).options == {"warehouse": "file:///w"}
    with pytest.raises(FormatError, match=r"CatalogCreated\.options\.warehouse"):
        from_data(CatalogCreated, {**good, "options": {"warehouse": 1}})
    with pytest.raises(FormatError, match=r"CatalogCreated\.options"):
        from_data(CatalogCreated, {**good, "options": []})


def test_an_outcome_is_one_of_a_closed_set() -> None:
    settled = CommitSettled(
        decision="017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
        evidence=OutcomeEvidence.ANSWER,
        metadata_location=None,
        metadata_sha256=None,
        outcome=CommitOutcome.UNKNOWN,
        snapshots=(),
        table_uuid=None,
    )
    assert from_data(CommitSettled, to_data(settled)) == settled
    with pytest.raises(FormatError, match="accepted"):
        from_data(CommitSettled, {**to_data(settled), "outcome": "lost"})


def test_only_a_dataclass_is_event_data() -> None:
    with pytest.raises(FormatError, match="a dataclass"):
        to_data({"id": "p1"})
    with pytest.raises(FormatError, match="a dataclass"):
        to_data(CommitDecided)


def test_lists_of_objects_are_read_item_by_item() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Reasons:
        TYPE: ClassVar[str] = "test.reasons"
        VERSION: ClassVar[int] = 1
        reasons: tuple[Reason, ...]

    # Annotations of a class within a function are not resolved by name, so they are given as types.
    Reasons.__annotations__["reasons"] = tuple[Reason, ...]
    data: dict[str, Any] = {"reasons": [{"id": "a", "version": 1}, {"id": "b", "version": 2}]}
    assert from_data(Reasons, data).reasons[1] == Reason(id="b", version=2)
    data["reasons"][1]["version"] = "2"
    with pytest.raises(FormatError, match=r"reasons\[1\]\.version"):
        from_data(Reasons, data)
