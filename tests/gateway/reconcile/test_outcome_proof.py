# SPDX-License-Identifier: Apache-2.0
"""
The state of a foreign catalog proves an outcome, or does not: each proof, and a state that only resembles it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from gateway.catalogs.catalog import Change, History, Loaded, LoggedCommit
from gateway.catalogs.registered import registered_digest
from gateway.commit.open_decisions import OpenDecision, state_digest
from gateway.identifiers import Target
from gateway.metadata import apply_updates, create_updates, parse_updates
from gateway.metadata.views import apply_view_updates, create_view_updates
from gateway.reconcile.outcome_proof import Before, Claim, Known, prove, was_never_sent
from ledger.format.events import CommitOutcome, CommitSettled, OutcomeEvidence
from testkit.gateway.view_requests import view_created

OURS, THEIRS = UUID(int=1), UUID(int=2)
TABLE_UUID = "6a0b7735-dc29-40ee-840c-97c1326fa45a"
ANOTHER_UUID = "00000000-0000-4000-8000-000000000000"
LOCATION = "s3://lake/orders"
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": True}]}
CREATE: dict[str, Any] = {"name": "orders", "schema": SCHEMA, "location": LOCATION}
KNOWN = Known(index=10)
ACCEPTED, FAILED, UNKNOWN = CommitOutcome.ACCEPTED, CommitOutcome.FAILED, CommitOutcome.UNKNOWN


def file(number: int) -> str:
    return f"{LOCATION}/metadata/{number:05d}.metadata.json"


def created(table_uuid: str = TABLE_UUID, *, version: int = 2) -> Loaded:
    """A new table, in metadata file 0."""
    body = {**CREATE, "properties": {"format-version": str(version)}}
    updates = create_updates(body, table_uuid=table_uuid, location=LOCATION)
    metadata = apply_updates(None, updates, now_ms=1_000, base_location=None)
    return Loaded(namespace_exists=True, metadata=metadata, metadata_location=file(0))


def after(before: Loaded, *updates: Mapping[str, Any]) -> Loaded:
    """The table after one more commit, in the next metadata file."""
    assert before.metadata is not None
    assert before.metadata_location is not None
    number = len(before.metadata.get("metadata-log", [])) + 1
    now_ms = 1_000 + number
    metadata = apply_updates(
        before.metadata, parse_updates(list(updates)), now_ms=now_ms, base_location=before.metadata_location
    )
    return Loaded(namespace_exists=True, metadata=metadata, metadata_location=file(number))


def snapshot(snapshot_id: int, before: Loaded, ref: str = "main") -> list[dict[str, Any]]:
    """The updates that append a snapshot to a branch."""
    metadata: Mapping[str, Any] = before.metadata or {}
    parent = metadata.get("refs", {}).get(ref, {}).get("snapshot-id")
    made = {
        "snapshot-id": snapshot_id,
        "timestamp-ms": metadata["last-updated-ms"] + 1,
        "manifest-list": f"{LOCATION}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append"},
        **({"sequence-number": metadata["last-sequence-number"] + 1} if metadata["format-version"] > 1 else {}),
        **({} if parent is None else {"parent-snapshot-id": parent}),
    }
    move = {"action": "set-snapshot-ref", "ref-name": ref, "type": "branch", "snapshot-id": snapshot_id}
    return [{"action": "add-snapshot", "snapshot": made}, move]


def properties(**texts: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": texts}


def decision(
    operation: str,
    *,
    base: Loaded | None = None,
    result: Loaded | None = None,
    requirements: Sequence[Mapping[str, Any]] = (),
    snapshots: Sequence[int] = (),
    table_uuid: str | None = TABLE_UUID,
) -> OpenDecision:
    change = Change(
        metadata=dict(result.metadata) if result and result.metadata is not None else None,
        properties=dict(result.properties) if result and result.properties is not None else None,
    )
    name = "orders" if operation.startswith("table") else None
    return OpenDecision(
        log_id=1,
        decision=OURS,
        key="table:lake/sales/orders",
        operation=operation,
        target=Target(alias="lake", namespace=("sales",), name=name),
        base=base.metadata_location if base else None,
        table_uuid=table_uuid,
        snapshots=tuple(map(str, snapshots)),
        owner="0" * 32,
        deadline=datetime(2026, 1, 1, tzinfo=UTC),
        requirements=tuple(requirements),
        result=state_digest(change),
        is_unknown=False,
    )


def claim(
    operation: str = "table.commit",
    *,
    made: Loaded | None = None,
    snapshots: Sequence[int] = (),
    table_uuid: str | None = TABLE_UUID,
    evidence: OutcomeEvidence = OutcomeEvidence.ANSWER,
    index: int = 20,
) -> Claim:
    return Claim(
        index=index,
        decision=THEIRS,
        operation=operation,
        evidence=evidence,
        table_uuid=table_uuid,
        metadata_location=made.metadata_location if made else None,
        snapshots=tuple(map(str, snapshots)),
    )


def on_main(snapshot_id: int | None) -> dict[str, Any]:
    return {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": snapshot_id}


NEW = created()
ONE = after(NEW, *snapshot(101, NEW))
GONE = Loaded(namespace_exists=True)


# Commits that add snapshots


def append_on(base: Loaded, required: int | None) -> OpenDecision:
    return decision("table.commit", base=base, requirements=[on_main(required)], snapshots=[777])


def test_a_snapshot_that_is_there_was_accepted_whatever_came_after_it() -> None:
    ours = after(ONE, *snapshot(777, ONE))
    later = after(ours, *snapshot(102, ours))
    assert prove(append_on(ONE, 101), ours, KNOWN) is ACCEPTED
    assert prove(append_on(ONE, 101), later, KNOWN) is ACCEPTED


def test_a_snapshot_that_another_decision_is_known_to_have_added_was_not_added_by_this_one() -> None:
    ours = after(ONE, *snapshot(777, ONE))
    known = replace(KNOWN, claims=(claim(made=ours, snapshots=[777]),))
    assert prove(append_on(ONE, 101), ours, known) is FAILED


def test_a_snapshot_may_be_that_of_another_decision_that_is_under_way() -> None:
    ours = after(ONE, *snapshot(777, ONE))
    known = replace(KNOWN, in_flight=(replace(append_on(ONE, 101), decision=THEIRS),))
    assert prove(append_on(ONE, 101), ours, known) is UNKNOWN
    unrelated = replace(KNOWN, in_flight=(replace(append_on(ONE, 101), decision=THEIRS, snapshots=("778",)),))
    assert prove(append_on(ONE, 101), ours, unrelated) is ACCEPTED


def test_that_a_snapshot_is_not_there_proves_nothing() -> None:
    assert prove(append_on(ONE, 101), ONE, KNOWN) is UNKNOWN
    assert prove(append_on(ONE, 101), GONE, KNOWN) is UNKNOWN
    assert prove(append_on(ONE, 101), after(ONE, properties(color="red")), KNOWN) is UNKNOWN


def test_a_branch_that_moved_without_the_snapshot_proves_a_failure() -> None:
    assert prove(append_on(ONE, 101), after(ONE, *snapshot(102, ONE)), KNOWN) is FAILED
    assert prove(append_on(NEW, None), ONE, KNOWN) is FAILED


def test_a_branch_that_moved_proves_nothing_if_a_snapshot_was_removed_meanwhile() -> None:
    ours = after(ONE, *snapshot(777, ONE))
    two = after(ours, *snapshot(102, ours))
    expired = after(two, {"action": "remove-snapshots", "snapshot-ids": [777]})
    assert prove(append_on(ONE, 101), expired, KNOWN) is UNKNOWN
    theirs = after(ONE, *snapshot(102, ONE))
    required_gone = after(theirs, {"action": "remove-snapshots", "snapshot-ids": [101]})
    assert prove(append_on(ONE, 101), required_gone, KNOWN) is UNKNOWN


def test_without_sequence_numbers_it_takes_the_metadata_log_to_prove_a_failure() -> None:
    first = created(version=1)
    one = after(first, *snapshot(101, first))
    two = after(one, *snapshot(102, one))
    three = after(two, *snapshot(103, two))
    ours = append_on(one, 101)
    assert prove(ours, two, KNOWN) is FAILED, "the one commit since is not ours: our snapshot would be in it"
    assert prove(ours, three, KNOWN) is UNKNOWN
    assert prove(ours, three, replace(KNOWN, claims=(claim(made=two, snapshots=[102]),))) is FAILED


def test_a_table_that_was_replaced_proves_a_failure() -> None:
    assert prove(append_on(ONE, 101), created(ANOTHER_UUID), KNOWN) is FAILED


# Commits without snapshots


RED = after(ONE, properties(color="red"))


def paint() -> OpenDecision:
    return decision("table.commit", base=ONE, result=RED, requirements=[on_main(101)])


def test_a_table_that_is_as_it_was_judged_proves_the_commit() -> None:
    assert prove(paint(), RED, KNOWN) is ACCEPTED


@pytest.mark.parametrize(
    "found",
    [ONE, after(RED, properties(size="big")), after(RED, properties(color="blue")), GONE],
    ids=["as before", "changed since", "changed back", "gone"],
)
def test_a_table_that_is_otherwise_proves_nothing(found: Loaded) -> None:
    assert prove(paint(), found, KNOWN) is UNKNOWN


def test_a_commit_that_changes_nothing_is_found_in_the_file_it_was_judged_on() -> None:
    nothing = decision("table.commit", base=ONE, result=ONE, requirements=[on_main(101)])
    known = replace(KNOWN, claims=(claim(made=ONE, snapshots=[101]),))
    assert prove(nothing, ONE, known) is ACCEPTED
    assert prove(paint(), ONE, known) is UNKNOWN


def test_what_another_decision_is_known_to_have_made_does_not_prove_this_one() -> None:
    assert prove(paint(), RED, replace(KNOWN, claims=(claim(made=RED),))) is UNKNOWN
    assert prove(paint(), RED, replace(KNOWN, explained=RED.metadata_location)) is UNKNOWN
    assert prove(paint(), RED, replace(KNOWN, in_flight=(replace(paint(), decision=THEIRS),))) is UNKNOWN


def test_a_commit_without_snapshots_failed_if_every_commit_since_is_anothers_and_it_is_refused_now() -> None:
    theirs = after(ONE, *snapshot(102, ONE))
    again = after(theirs, *snapshot(103, theirs))
    answers = (claim(made=theirs, snapshots=[102]), claim(made=again, snapshots=[103]))
    assert prove(paint(), again, replace(KNOWN, claims=answers)) is FAILED
    assert prove(paint(), again, replace(KNOWN, claims=answers[1:])) is UNKNOWN, "one commit is nobody's"
    found_later = tuple(replace(each, evidence=OutcomeEvidence.RECONCILED) for each in answers)
    assert prove(paint(), again, replace(KNOWN, claims=found_later)) is UNKNOWN, "it was found in it, perhaps not made"
    unmoved = after(ONE, properties(size="big"))
    known = replace(KNOWN, claims=(claim(made=unmoved),))
    assert prove(paint(), unmoved, known) is UNKNOWN, "it may still be accepted"


# Creates


def test_a_create_whose_engine_chose_the_uuid_is_proven_by_it() -> None:
    create = decision("table.create", requirements=[{"type": "assert-create"}])
    assert prove(create, NEW, KNOWN) is ACCEPTED
    assert prove(create, created(ANOTHER_UUID), KNOWN) is FAILED
    assert prove(create, GONE, KNOWN) is UNKNOWN


def test_a_create_whose_catalog_chooses_the_uuid_is_proven_by_a_table_as_requested() -> None:
    create = decision("table.create", requirements=[{"type": "assert-create"}], table_uuid=None)
    known = replace(KNOWN, requested=CREATE)
    assert prove(create, NEW, known) is ACCEPTED
    assert prove(create, after(NEW, properties(theirs="1")), known) is ACCEPTED, "a catalog adds properties"
    assert prove(create, NEW, KNOWN) is UNKNOWN, "what was asked is not kept"
    for change in (
        {"location": "s3://lake/elsewhere"},
        {"properties": {"color": "red"}},
        {"schema": {"type": "struct", "fields": []}},
    ):
        assert prove(create, NEW, replace(KNOWN, requested={**CREATE, **change})) is UNKNOWN
    assert prove(create, ONE, known) is UNKNOWN, "it has been written to"


def test_a_table_that_another_decision_created_proves_that_this_one_did_not() -> None:
    create = decision("table.create", requirements=[{"type": "assert-create"}], table_uuid=None)
    known = replace(KNOWN, requested=CREATE, claims=(claim("table.create", made=NEW),))
    assert prove(create, NEW, known) is FAILED
    committed = replace(KNOWN, requested=CREATE, claims=(claim("table.commit", made=NEW),))
    assert prove(create, NEW, committed) is ACCEPTED, "whoever committed to it did not make it"


# Commits that are sent one after another


def outcome(word: CommitOutcome, evidence: OutcomeEvidence = OutcomeEvidence.ANSWER) -> CommitSettled:
    return CommitSettled(
        decision=str(OURS),
        evidence=evidence,
        metadata_location=None,
        metadata_sha256=None,
        outcome=word,
        snapshots=(),
        table_uuid=None,
    )


def test_a_commit_was_sent_only_if_the_answer_to_the_one_before_is_recorded_as_accepted() -> None:
    def never(*, is_open: bool, settled: CommitSettled | None) -> bool:
        return was_never_sent(Before(key="table:lake/sales/first", is_open=is_open, settled=settled))

    assert not was_never_sent(None), "it is not sent after another"
    assert not never(is_open=False, settled=outcome(ACCEPTED))
    assert never(is_open=False, settled=outcome(ACCEPTED, OutcomeEvidence.RECONCILED))
    assert never(is_open=True, settled=None)
    assert never(is_open=True, settled=outcome(UNKNOWN))
    for word in (CommitOutcome.CONFLICTED, CommitOutcome.REFUSED, FAILED):
        assert never(is_open=False, settled=outcome(word))
    assert not never(is_open=False, settled=None), "that is in no log"


# Registrations

FILE = file(1)


def register(result: Loaded = ONE, **parts: Any) -> OpenDecision:
    """A decision to register `ONE` again, with its file."""
    assert result.metadata is not None
    digest = registered_digest(result.metadata, is_view=False)
    return replace(decision("table.register", snapshots=[101], **parts), result=digest)


def asked(**parts: Any) -> Known:
    return replace(KNOWN, requested={"name": "orders", "metadata-location": FILE}, **parts)


def test_a_registration_is_proven_by_its_file_as_it_was_judged_or_by_what_follows_it() -> None:
    assert prove(register(), ONE, asked()) is ACCEPTED
    assert prove(register(), after(ONE, *snapshot(102, ONE)), asked()) is ACCEPTED
    assert prove(register(), GONE, asked()) is UNKNOWN
    assert prove(register(), created(ANOTHER_UUID), asked()) is FAILED, "the name is taken"
    assert prove(register(), ONE, KNOWN) is UNKNOWN, "what was asked is not kept"


def test_a_registration_is_not_proven_by_another_file_or_by_other_content() -> None:
    elsewhere = replace(KNOWN, requested={"metadata-location": file(7)})
    assert prove(register(), ONE, elsewhere) is UNKNOWN
    for change in (
        properties(color="red"),
        *snapshot(102, ONE)[:1],
        {"action": "set-location", "location": "s3://x/y"},
    ):
        other = after(ONE, change)
        changed = replace(other, metadata_location=FILE)
        is_seen = change["action"] != "add-snapshot"
        assert prove(register(), changed, asked()) is (UNKNOWN if is_seen else ACCEPTED), change


def test_a_table_that_another_decision_has_brought_here_does_not_prove_a_registration() -> None:
    for brought in ("table.register", "table.rename_to"):
        for index in (5, 20):
            known = asked(claims=(claim(brought, index=index),))
            assert prove(register(), ONE, known) is UNKNOWN, (brought, index)
        left = asked(claims=(claim(brought, index=5), claim("table.unregister", index=7)))
        assert prove(register(), ONE, left) is ACCEPTED
    assert prove(register(), ONE, asked(claims=(claim("table.create", index=5),))) is ACCEPTED
    under_way = asked(in_flight=(replace(register(), decision=THEIRS),))
    assert prove(register(), ONE, under_way) is UNKNOWN


def test_a_snapshot_that_was_registered_was_not_added_then() -> None:
    ours = after(ONE, *snapshot(777, ONE))
    registered = replace(KNOWN, claims=(claim("table.register", made=ours, snapshots=[101, 777]),))
    assert prove(append_on(ONE, 101), ours, registered) is ACCEPTED
    added = replace(KNOWN, claims=(claim(made=ours, snapshots=[777]),))
    assert prove(append_on(ONE, 101), ours, added) is FAILED


def test_a_history_that_was_registered_since_does_not_prove_a_failure() -> None:
    moved = after(ONE, *snapshot(102, ONE))
    assert prove(append_on(ONE, 101), moved, KNOWN) is FAILED
    put_back = replace(KNOWN, claims=(claim("table.register", made=ONE, snapshots=[101]),))
    assert prove(append_on(ONE, 101), moved, put_back) is UNKNOWN, "it may have been made before that"


def test_a_table_of_a_create_that_was_registered_since_proves_nothing() -> None:
    create = decision("table.create", requirements=[{"type": "assert-create"}], table_uuid=None)
    known = replace(KNOWN, requested=CREATE, claims=(claim("table.register", made=NEW),))
    assert prove(create, NEW, known) is UNKNOWN
    assert prove(replace(create, table_uuid=TABLE_UUID), NEW, known) is ACCEPTED, "nobody else draws that uuid"


# Drops


def test_an_unregistration_is_proven_as_a_drop_is() -> None:
    for operation, other in (("table.unregister", "table.drop"), ("table.drop", "table.unregister")):
        gone = decision(operation, base=ONE)
        assert prove(gone, GONE, KNOWN) is ACCEPTED
        assert prove(gone, ONE, KNOWN) is UNKNOWN
        assert prove(gone, GONE, replace(KNOWN, claims=(claim(other),))) is FAILED
        assert prove(gone, GONE, replace(KNOWN, claims=(claim("table.rename_from"),))) is FAILED


def test_a_table_that_came_back_proves_nothing_of_a_drop_before_that() -> None:
    gone = decision("table.drop", base=ONE)
    again = replace(KNOWN, claims=(claim("table.register", index=20), claim("table.drop", index=30)))
    assert prove(gone, GONE, again) is UNKNOWN
    before = replace(KNOWN, claims=(claim("table.drop", index=3), claim("table.register", index=5)))
    assert prove(gone, GONE, before) is ACCEPTED
    assert prove(gone, ONE, before) is UNKNOWN


def test_a_drop_is_proven_by_the_table_being_gone() -> None:
    drop = decision("table.drop", base=ONE)
    assert prove(drop, GONE, KNOWN) is ACCEPTED
    assert prove(drop, created(ANOTHER_UUID), KNOWN) is ACCEPTED
    assert prove(drop, ONE, KNOWN) is UNKNOWN
    assert prove(drop, Loaded(namespace_exists=False), KNOWN) is UNKNOWN, "this may be another catalog"


def test_a_table_that_another_decision_dropped_was_not_dropped_by_this_one() -> None:
    known = replace(KNOWN, claims=(claim("table.drop"),))
    assert prove(decision("table.drop", base=ONE), GONE, known) is FAILED
    another = replace(KNOWN, claims=(claim("table.drop", table_uuid=ANOTHER_UUID),))
    assert prove(decision("table.drop", base=ONE), GONE, another) is ACCEPTED


# Namespaces


def namespace(**properties: str) -> Loaded:
    return Loaded(namespace_exists=True, properties=properties)


NO_NAMESPACE = Loaded(namespace_exists=False)


def test_a_namespace_that_is_there_proves_its_create() -> None:
    create = decision("namespace.create", table_uuid=None)
    known = replace(KNOWN, requested={"namespace": ["sales"], "properties": {"owner": "ada"}})
    assert prove(create, namespace(owner="ada", location="s3://lake/sales"), known) is ACCEPTED
    assert prove(create, namespace(owner="eve"), known) is UNKNOWN
    assert prove(create, NO_NAMESPACE, known) is UNKNOWN
    later = replace(known, claims=(claim("namespace.create", table_uuid=None),))
    assert prove(create, namespace(owner="ada"), later) is FAILED
    before = replace(known, claims=(claim("namespace.create", table_uuid=None, index=5),))
    assert prove(create, namespace(owner="ada"), before) is ACCEPTED


def test_the_properties_of_a_namespace_prove_their_update() -> None:
    update = decision("namespace.update", result=namespace(owner="ada"), table_uuid=None)
    assert prove(update, namespace(owner="ada"), KNOWN) is ACCEPTED
    assert prove(update, namespace(owner="eve"), KNOWN) is UNKNOWN
    assert prove(update, NO_NAMESPACE, KNOWN) is UNKNOWN
    claimed = replace(KNOWN, claims=(claim("namespace.update", table_uuid=None),))
    assert prove(update, namespace(owner="ada"), claimed) is UNKNOWN


def test_a_namespace_that_is_gone_proves_its_drop() -> None:
    drop = decision("namespace.drop", table_uuid=None)
    assert prove(drop, NO_NAMESPACE, KNOWN) is ACCEPTED
    assert prove(drop, namespace(), KNOWN) is UNKNOWN
    assert prove(drop, NO_NAMESPACE, replace(KNOWN, claims=(claim("namespace.drop", table_uuid=None),))) is FAILED


# What an upstream may say


@pytest.mark.parametrize("metadata", [{}, {"table-uuid": 5}, {"snapshots": 1}, {"metadata-log": [None]}], ids=str)
@pytest.mark.parametrize("operation", ["table.create", "table.commit", "table.drop"])
@pytest.mark.parametrize("snapshots", [[], [777]])
def test_what_is_no_metadata_proves_nothing(metadata: dict[str, Any], operation: str, snapshots: list[int]) -> None:
    found = Loaded(namespace_exists=True, metadata=metadata, metadata_location=file(1))
    assert prove(decision(operation, base=NEW, snapshots=snapshots), found, KNOWN) is UNKNOWN


@pytest.mark.parametrize("member", ["snapshots", "metadata-log", "properties", "refs", "last-sequence-number"])
@pytest.mark.parametrize("value", [None, 7, "x", [None], [{}], {"a": None}], ids=str)
def test_metadata_with_one_member_of_another_shape_raises_nothing(member: str, value: object) -> None:
    assert ONE.metadata is not None
    found = replace(ONE, metadata={**ONE.metadata, member: value})
    for each in (append_on(ONE, 101), paint(), decision("table.create", table_uuid=None)):
        assert prove(each, found, replace(KNOWN, requested=CREATE)) in set(CommitOutcome)


# The catalog's own log of commits


DEADLINE = datetime(2026, 1, 1, tzinfo=UTC)


def logged(made: Loaded | None, *, of: UUID | None = None, current: int | None = None) -> LoggedCommit:
    """A commit as the log has it; None is one that took the table away."""
    return LoggedCommit(
        decision=None if of is None else str(of),
        at=DEADLINE,
        is_there=made is not None,
        metadata_location=made.metadata_location if made else None,
        snapshot=None if current is None else str(current),
    )


def with_log(*commits: LoggedCommit, is_whole: bool = False, known: Known = KNOWN) -> Known:
    """What is known with a log, newest commit first."""
    return replace(known, history=History(commits=commits, is_whole=is_whole))


BEFORE = logged(ONE, current=101)


def test_a_commit_that_names_the_decision_proves_it_whatever_came_after_it() -> None:
    blue = after(RED, properties(color="blue"))
    named = with_log(logged(blue, of=THEIRS, current=101), logged(RED, of=OURS, current=101), BEFORE)
    assert prove(paint(), blue, named) is ACCEPTED
    assert prove(paint(), GONE, named) is ACCEPTED
    assert prove(paint(), created(ANOTHER_UUID), named) is ACCEPTED
    for operation in ("table.create", "table.drop", "table.rename_from", "namespace.update"):
        assert prove(decision(operation, base=ONE), GONE, named) is ACCEPTED
    anothers = with_log(logged(blue, of=THEIRS, current=101), logged(RED, of=THEIRS, current=101), BEFORE)
    assert prove(paint(), blue, anothers) is UNKNOWN
    assert prove(paint(), blue, with_log(BEFORE)) is UNKNOWN


def test_a_snapshot_that_was_current_proves_the_commit_of_a_gateway_that_named_no_decision() -> None:
    later = after(ONE, *snapshot(102, ONE))
    log = (logged(later, current=102), logged(RED, current=777), BEFORE)
    assert prove(append_on(ONE, 101), later, with_log(*log)) is ACCEPTED
    under_way = replace(KNOWN, in_flight=(replace(append_on(ONE, 101), decision=THEIRS),))
    assert prove(append_on(ONE, 101), later, with_log(*log, known=under_way)) is UNKNOWN
    anothers = [log[0], logged(RED, current=777, of=THEIRS), BEFORE]
    assert prove(append_on(ONE, 101), later, with_log(*anothers)) is FAILED, "it names another decision"


def test_a_state_as_a_decision_would_have_made_it_proves_nothing_if_the_log_does_not_name_it() -> None:
    assert prove(paint(), RED, KNOWN) is ACCEPTED
    assert prove(paint(), RED, with_log(logged(RED, current=101), BEFORE)) is UNKNOWN
    assert prove(paint(), RED, with_log(logged(RED, of=THEIRS, current=101), BEFORE)) is UNKNOWN
    create = decision("table.create", requirements=[{"type": "assert-create"}], table_uuid=None)
    known = replace(KNOWN, requested=CREATE)
    assert prove(create, NEW, known) is ACCEPTED
    assert prove(create, NEW, with_log(logged(NEW), is_whole=True, known=known)) is UNKNOWN
    assert prove(create, NEW, with_log(logged(NEW), known=known)) is ACCEPTED, "the log was not read to its beginning"
    assert prove(create, NEW, with_log(logged(NEW, of=THEIRS), is_whole=True, known=known)) is FAILED
    drop = decision("table.drop", base=ONE)
    assert prove(drop, GONE, with_log(logged(None, of=THEIRS), BEFORE)) is UNKNOWN
    another = created(ANOTHER_UUID)
    assert prove(drop, another, with_log(logged(another, of=THEIRS), logged(None, of=THEIRS), BEFORE)) is UNKNOWN


def test_a_commit_has_failed_if_each_one_since_is_anothers_and_it_is_refused_now() -> None:
    theirs = after(ONE, *snapshot(102, ONE))
    again = after(theirs, properties(color="red"))
    ours, without = append_on(ONE, 101), paint()
    for named in ({"of": THEIRS}, {}):
        log = (logged(theirs, current=102, **named), BEFORE)
        assert prove(ours, theirs, with_log(*log)) is FAILED
        assert prove(without, theirs, with_log(*log)) is (FAILED if named else UNKNOWN), "nobody says whose it is"
    # A commit that names no decision and adds no snapshot may be anybody's.
    longer = (logged(again, current=102), logged(theirs, current=102, of=THEIRS), BEFORE)
    assert prove(ours, again, with_log(*longer)) is UNKNOWN
    assert prove(ours, again, with_log(*longer, known=replace(KNOWN, claims=(claim(made=again),)))) is FAILED
    found_later = claim(made=again, evidence=OutcomeEvidence.RECONCILED)
    assert prove(ours, again, with_log(*longer, known=replace(KNOWN, claims=(found_later,)))) is UNKNOWN
    # It may still be made.
    assert prove(ours, RED, with_log(logged(RED, current=101, of=THEIRS), BEFORE)) is UNKNOWN
    assert prove(ours, GONE, with_log(logged(None, of=THEIRS), BEFORE)) is UNKNOWN


def test_a_log_without_the_state_that_was_judged_proves_no_failure() -> None:
    one = after(NEW, *snapshot(101, NEW))
    two = after(one, *snapshot(102, one))
    # As a catalog shows it that keeps the current snapshot alone.
    shown = replace(two, metadata={**(two.metadata or {}), "snapshots": [], "metadata-log": []})
    ours, commit = append_on(one, 101), logged(two, current=102, of=THEIRS)
    assert prove(ours, shown, with_log(commit, logged(one, current=101))) is FAILED
    assert prove(ours, shown, with_log(commit)) is UNKNOWN
    late = replace(logged(one, current=101), at=DEADLINE + timedelta(seconds=1))
    assert prove(ours, shown, with_log(commit, late)) is UNKNOWN, "the state came back; ours may have been before that"


def test_a_log_without_the_state_that_was_found_is_older_and_proves_nothing() -> None:
    one = after(NEW, *snapshot(101, NEW))
    two = after(one, *snapshot(102, one))
    shown = replace(two, metadata={**(two.metadata or {}), "snapshots": [], "metadata-log": []})
    older = logged(one, current=101)
    assert prove(append_on(one, 101), shown, with_log(older)) is UNKNOWN, "ours may be what follows"
    assert prove(append_on(one, 101), shown, with_log(logged(two, current=102), older)) is FAILED
    create = decision("namespace.create", table_uuid=None)
    for commits in ((), (logged(None, of=THEIRS), replace(older, decision=str(THEIRS)))):
        assert prove(create, namespace(owner="ada"), with_log(*commits, is_whole=True)) is UNKNOWN


def test_another_view_or_namespace_refuses_a_change_that_the_log_does_not_have() -> None:
    one, another = (
        apply_view_updates(None, create_view_updates(view_created(), view_uuid=each, location=LOCATION), now_ms=1_000)
        for each in (TABLE_UUID, ANOTHER_UUID)
    )
    found = Loaded(namespace_exists=True, metadata=one, metadata_location=file(1))
    other = replace(found, metadata=another)
    report = Target(alias="lake", namespace=("sales",), name="report", is_view=True)
    ours = replace(decision("view.replace", base=ONE), target=report)
    log = with_log(logged(found, of=THEIRS), BEFORE)  # both are in file 1
    assert [prove(ours, each, log) for each in (found, other)] == [UNKNOWN, FAILED]
    made = with_log(replace(logged(None, of=THEIRS), is_there=True), is_whole=True)
    create = decision("namespace.create", table_uuid=None)
    assert prove(create, namespace(owner="ada"), made) is FAILED
    assert prove(create, NO_NAMESPACE, made) is UNKNOWN


# A catalog that makes a commit only on the state that was judged, and names each file after the decision that made it


def compared(*files: Loaded, of: Mapping[UUID, Loaded] | None = None, known: Known = KNOWN) -> Known:
    """What is known if these are the files that the table names, newest first; some are those of decisions."""
    names = {made.metadata_location: decided for decided, made in (of or {}).items()}
    commits = [logged(each, of=names.get(each.metadata_location)) for each in files]
    return replace(known, history=History(commits=commits, is_whole=False, compares=True))


BLUE = after(ONE, properties(color="blue"))


def test_a_file_that_is_named_after_the_decision_proves_its_commit_whatever_came_after_it() -> None:
    later = after(RED, properties(color="blue"))
    assert prove(paint(), later, compared(later, RED, ONE, NEW, of={OURS: RED})) is ACCEPTED


def test_another_file_on_the_one_that_was_judged_proves_that_the_commit_was_not_made() -> None:
    for found in (BLUE, RED):  # as ours would have made it: the name of the file says that it is another's
        assert prove(paint(), found, compared(found, ONE, NEW, of={THEIRS: found})) is FAILED
        assert prove(paint(), found, compared(found, ONE, NEW)) is FAILED
    later = after(BLUE, properties(color="red"))
    assert prove(paint(), later, compared(later, BLUE, ONE)) is FAILED
    assert prove(append_on(ONE, 101), BLUE, compared(BLUE, ONE, NEW)) is FAILED


def test_while_the_file_that_was_judged_is_the_newest_a_commit_may_still_arrive() -> None:
    assert prove(paint(), ONE, compared(ONE, NEW)) is UNKNOWN
    assert prove(append_on(ONE, 101), ONE, compared(ONE, NEW)) is UNKNOWN


def test_files_that_do_not_reach_back_to_the_one_that_was_judged_prove_nothing_but_a_snapshot() -> None:
    later = after(BLUE, properties(color="red"))
    assert prove(paint(), later, compared(later, BLUE)) is UNKNOWN
    ours = after(ONE, *snapshot(777, ONE))
    after_ours = after(ours, properties(color="red"))
    assert prove(append_on(ONE, 101), after_ours, compared(after_ours)) is ACCEPTED
    is_anothers = replace(KNOWN, claims=(claim(snapshots=[777]),))
    assert prove(append_on(ONE, 101), after_ours, compared(after_ours, known=is_anothers)) is FAILED


def test_files_of_another_state_than_the_one_that_was_found_prove_nothing() -> None:
    assert prove(paint(), BLUE, compared(ONE, NEW)) is UNKNOWN
    assert prove(paint(), BLUE, compared()) is UNKNOWN
    assert prove(paint(), GONE, compared()) is UNKNOWN


def test_a_table_that_replaced_the_one_that_was_judged_proves_nothing_about_a_commit() -> None:
    """Its versions began anew: the commit may still find the one that it names."""
    another = created(ANOTHER_UUID)
    assert prove(paint(), another, compared(another)) is UNKNOWN
    assert prove(append_on(ONE, 101), another, compared(another)) is UNKNOWN


def test_of_such_a_catalog_other_changes_are_told_by_the_state() -> None:
    assert prove(decision("table.create", result=NEW), NEW, compared(NEW)) is ACCEPTED
    assert prove(decision("table.create", result=NEW), created(ANOTHER_UUID), compared(NEW)) is FAILED
    assert prove(decision("table.drop", base=ONE), GONE, compared()) is ACCEPTED
    assert prove(decision("table.drop", base=ONE), ONE, compared(ONE)) is UNKNOWN
