# SPDX-License-Identifier: Apache-2.0
"""
What the state of a foreign catalog proves about a decision with unknown outcome. Pure.

Guarantee: `accepted` only if the change itself is found and no other decision explains it; `failed` only if the change
was not made and can no longer be made; everything else stays `unknown`. That a change is not found proves nothing by
itself: the request may still be in flight, and its result may have been changed again.

There are four kinds of proof. A state that cannot exist by chance: a snapshot id, a new table's uuid, the digest of a
table's whole state, a metadata file that was registered. The log: another decision's accepted outcome with the same
result (`Claim`) shows that this decision did not produce it. A complete history that does not contain the change, while
a requirement of the request no longer holds. And the catalog's own log of commits, where it has one (`History`): one of
them names this decision, or each of those since then names another. Where the catalog makes a commit only on the state
that was judged, another commit on that state is proof, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from gateway.catalogs.catalog import Change, History, Loaded, LoggedCommit
from gateway.catalogs.registered import REGISTERED, is_same_file, registered_digest
from gateway.commit.open_decisions import OpenDecision, state_digest
from gateway.errors import GatewayError, RequirementFailedError
from gateway.metadata import apply_updates, check_requirements, create_updates, uuid_of
from gateway.metadata.paths import files_since
from gateway.metadata.stored import without_empty
from gateway.metadata.views import apply_view_updates, check_view_metadata, create_view_updates
from gateway.mutations import RENAMES_FROM, RENAMES_TO, Operation
from ledger.format.events import CommitOutcome, CommitSettled, OutcomeEvidence

_REGISTERS: Final = frozenset({Operation.TABLE_REGISTER, Operation.VIEW_REGISTER})
_DROPS: Final = frozenset({Operation.TABLE_DROP, Operation.TABLE_UNREGISTER, Operation.VIEW_DROP})
_OF_NEW_NAMES: Final = frozenset({Operation.TABLE_CREATE, Operation.VIEW_CREATE}) | _REGISTERS
"""These are refused if something has the name."""
_ARRIVES: Final = _OF_NEW_NAMES | RENAMES_TO
_LEAVES: Final = _DROPS | RENAMES_FROM


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The result of another decision on the same key: its accepted outcome, at `index` in the log."""

    index: int
    decision: UUID
    operation: str
    evidence: OutcomeEvidence
    table_uuid: str | None
    metadata_location: str | None
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """
    The decision on the key `key` that had to be accepted, and recorded so, before another of its group was sent
    (`gateway/commit/one_after_another.py`): whether it is still open, and its last outcome.
    """

    key: str
    is_open: bool
    settled: CommitSettled | None


def was_never_sent(before: Before | None) -> bool:
    """
    Return whether a decision was certainly not sent, if the one `before` it stays as it is (None: there is none).

    Its process has recorded the answer to that one before; what the reconciler found out, it can record no more.
    """
    if before is None:
        return False
    if before.is_open:
        return True
    settled = before.settled
    is_answered = settled is None or settled.evidence is OutcomeEvidence.ANSWER
    return not (is_answered and (settled is None or settled.outcome is CommitOutcome.ACCEPTED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """
    What the log says about a decision: its index, the body of its request, and the results of others.

    `requested` is None if the body is no longer stored, or never was. `explained` is a metadata file that is known to
    be another decision's; `in_flight` are the open decisions on the same key whose deadline has not passed.

    `history` is what the catalog's own log has of the key, read after its state; None if it has none.
    """

    index: int
    requested: Mapping[str, Any] | None = None
    claims: Sequence[Claim] = ()
    explained: str | None = None
    in_flight: Sequence[OpenDecision] = ()
    history: History | None = None


def prove(decision: OpenDecision, found: Loaded, known: Known) -> CommitOutcome:
    """
    Return the outcome of `decision`: accepted, failed, or still unknown.
    """
    if found.metadata is not None:
        try:
            if decision.target.is_view:
                check_view_metadata(found.metadata)
            else:
                check_requirements(found.metadata, ())
        except GatewayError:
            return CommitOutcome.UNKNOWN  # what was found is no such metadata: it proves nothing
    history = known.history
    if history is not None and history.of(decision.decision) is not None:
        return CommitOutcome.ACCEPTED
    is_compared = history is not None and history.compares
    since = None if history is None or is_compared else history.since(decision.base, by=decision.deadline)
    if history is not None and is_compared and decision.operation == Operation.TABLE_COMMIT:
        outcome = _compared(decision, found, known, history)
    elif history is None or since is None:
        outcome = _outcome(decision, found, known)
    else:
        outcome = _logged(decision, found, known, history.commits, since)
    if outcome is CommitOutcome.ACCEPTED and any(_may_have_made(each, decision) for each in known.in_flight):
        return CommitOutcome.UNKNOWN  # the change may be the result of another decision that is not settled yet
    return outcome


def _logged(
    decision: OpenDecision,
    found: Loaded,
    known: Known,
    commits: Sequence[LoggedCommit],
    since: Sequence[LoggedCommit],
) -> CommitOutcome:
    """
    Conclude from the commits in the catalog's log, none of which names the decision; `since` what was judged, it is
    complete.

    A state that is as this decision would have made it proves nothing then: whoever made it, it was not this request.
    Snapshots do: gateways named no decision once, and a snapshot is added by one.
    """
    adds = Operation(decision.operation) is Operation.TABLE_COMMIT  # those that are registered were there before
    if adds and {commit.snapshot for commit in commits if commit.decision is None} & set(decision.snapshots):
        return CommitOutcome.ACCEPTED
    if not _has_what_was_found(commits, found):
        return CommitOutcome.UNKNOWN
    answered = {claim.metadata_location for claim in known.claims if claim.evidence is OutcomeEvidence.ANSWER} - {None}
    are_others = all(
        commit.decision is not None or commit.metadata_location in answered or _adds_others(decision, commit, parent)
        for commit, parent in zip(since, (*commits[1:], None), strict=False)
    )
    return CommitOutcome.FAILED if are_others and _can_not_be_made(decision, found) else CommitOutcome.UNKNOWN


def _compared(decision: OpenDecision, found: Loaded, known: Known, history: History) -> CommitOutcome:
    """
    Conclude about a commit whose catalog compares: none of the files that the table names is this decision's.

    It was not made if those since the one that was judged are all there, and once there is another it cannot be made.
    A table that has replaced the one that was judged proves nothing: its versions began anew.
    """
    metadata, files = found.metadata, [commit.metadata_location for commit in history.commits]
    if metadata is None or found.metadata_location not in files or _is_another_table(decision, metadata):
        return CommitOutcome.UNKNOWN
    if decision.base in files:
        return CommitOutcome.UNKNOWN if found.metadata_location == decision.base else CommitOutcome.FAILED
    # Too many commits ago: the table may name the snapshots still.
    return _snapshots_added(decision, found, known) if decision.snapshots else CommitOutcome.UNKNOWN


def _has_what_was_found(commits: Sequence[LoggedCommit], found: Loaded) -> bool:
    """
    Return whether the log has the commit that made what was found.

    It was read afterwards, but perhaps from another of the catalog's servers, which had not heard of it.
    """
    if found.metadata is not None:
        return any(commit.metadata_location == found.metadata_location for commit in commits)
    return found.properties is None or (bool(commits) and commits[0].is_there)


def _adds_others(decision: OpenDecision, commit: LoggedCommit, parent: LoggedCommit | None) -> bool:
    """
    Return whether a commit that names no decision made another snapshot the current one than `decision` would have.

    Whoever commits at the catalog itself names none.
    """
    was = None if parent is None else parent.snapshot
    return bool(decision.snapshots) and commit.snapshot not in {None, was, *decision.snapshots}


def _can_not_be_made(decision: OpenDecision, found: Loaded) -> bool:
    """Return whether the catalog would refuse the request if it arrived now; nothing refuses a drop or a rename."""
    match Operation(decision.operation), found:
        case operation, Loaded(metadata=Mapping()) if operation in _OF_NEW_NAMES:
            return True
        case Operation.NAMESPACE_CREATE, Loaded(properties=Mapping()):
            return True
        case Operation.TABLE_COMMIT, Loaded(metadata=Mapping() as metadata):
            return _is_refused_now(decision, metadata)
        case Operation.VIEW_REPLACE, Loaded(metadata=Mapping() as metadata):
            return _is_another_table(decision, metadata)
        case _:
            return False


def _may_have_made(other: OpenDecision, decision: OpenDecision) -> bool:
    return not decision.snapshots or not set(other.snapshots).isdisjoint(decision.snapshots)


def _outcome(decision: OpenDecision, found: Loaded, known: Known) -> CommitOutcome:
    operation = Operation(decision.operation)
    match operation:
        case Operation.TABLE_COMMIT if decision.snapshots:
            return _snapshots_added(decision, found, known)
        case Operation.TABLE_COMMIT | Operation.VIEW_REPLACE:
            return _changed(decision, found, known)
        case Operation.TABLE_CREATE | Operation.VIEW_CREATE:
            return _created(decision, found, known)
        case Operation.TABLE_REGISTER | Operation.VIEW_REGISTER:
            return _registered(decision, found, known)
        case Operation.TABLE_DROP | Operation.TABLE_UNREGISTER | Operation.VIEW_DROP:
            return _dropped(decision, found, known)
        case (
            Operation.TABLE_RENAME_FROM
            | Operation.TABLE_RENAME_TO
            | Operation.VIEW_RENAME_FROM
            | Operation.VIEW_RENAME_TO
        ):
            return _renamed(operation, decision, found, known)
        case Operation.NAMESPACE_CREATE | Operation.NAMESPACE_UPDATE | Operation.NAMESPACE_DROP:
            return _of_namespace(operation, decision, found, known)


def _snapshots_added(decision: OpenDecision, found: Loaded, known: Known) -> CommitOutcome:
    """A snapshot id is drawn from 2^63 and added once: if the table has it, this very commit was accepted."""
    # What is registered has its snapshots already.
    adding = (claim for claim in known.claims if claim.operation not in _REGISTERS)
    if any(set(claim.snapshots) & set(decision.snapshots) for claim in adding):
        return CommitOutcome.FAILED  # another decision's commit added it, and adding it twice is refused
    metadata = found.metadata
    if metadata is None:
        return CommitOutcome.UNKNOWN
    if _snapshot_ids(metadata) & set(decision.snapshots):
        return CommitOutcome.ACCEPTED
    if _is_another_table(decision, metadata):
        return CommitOutcome.FAILED
    # The current metadata lacks the snapshot, so it is not this commit's; earlier metadata may be.
    between = files_since(decision.base, metadata)
    was_not_made = _has_all_snapshots_since(decision, metadata) or _are_others(between, known)
    return _failed_if(was_not_made, decision, metadata, known)


def _changed(decision: OpenDecision, found: Loaded, known: Known) -> CommitOutcome:
    """A commit without snapshots is recognised by the table's whole state, in a file that no other commit wrote."""
    metadata = found.metadata
    if metadata is None:
        return CommitOutcome.UNKNOWN
    if _is_another_table(decision, metadata):
        return CommitOutcome.FAILED
    if _is_as_judged(decision, found):
        others = {known.explained, *(claim.metadata_location for claim in known.claims)}
        # A commit that changes nothing is recognised by the very file it was judged on.
        if found.metadata_location == decision.base or found.metadata_location not in others:
            return CommitOutcome.ACCEPTED
    # Another state proves nothing: the catalog may write a change in its own form.
    between = files_since(decision.base, metadata)
    was_not_made = between is not None and _are_others([*between, found.metadata_location], known)
    return _failed_if(was_not_made, decision, metadata, known)


def _failed_if(
    was_not_made: bool,  # noqa: FBT001 - the one thing that is asked
    decision: OpenDecision,
    metadata: Mapping[str, Any],
    known: Known,
) -> CommitOutcome:
    """Failed if a commit is not in the table's history and is refused now, unless that history was replaced since."""
    later = any(claim.index > known.index and claim.operation in _REGISTERS for claim in known.claims)
    has_failed = was_not_made and not later and _is_refused_now(decision, metadata)
    return CommitOutcome.FAILED if has_failed else CommitOutcome.UNKNOWN


def _created(decision: OpenDecision, found: Loaded, known: Known) -> CommitOutcome:
    """
    A create is recognised by the uuid if the engine chose it, else by a new table or view that is as requested.
    """
    metadata = found.metadata
    if metadata is None:
        return CommitOutcome.UNKNOWN
    table_uuid = uuid_of(metadata).lower()
    for claim in known.claims:
        if claim.operation == decision.operation and _same(claim.table_uuid, table_uuid):
            return CommitOutcome.FAILED  # there was none when that one was made, and there is one now
    if not decision.table_uuid and _is_registered(known, table_uuid):
        return CommitOutcome.UNKNOWN  # it may be this decision's table, which was dropped before that, or another
    if decision.table_uuid:
        return CommitOutcome.ACCEPTED if _same(decision.table_uuid, table_uuid) else CommitOutcome.FAILED
    is_as_requested = _is_view_as_requested if decision.target.is_view else _is_as_requested
    return CommitOutcome.ACCEPTED if is_as_requested(known.requested, metadata) else CommitOutcome.UNKNOWN


def _registered(decision: OpenDecision, found: Loaded, known: Known) -> CommitOutcome:
    """
    What is registered is recognised by its uuid and its metadata file: the current one, as it was judged, or one that
    the current one follows. A table may come and go with the same file, so another decision may explain it.
    """
    metadata = found.metadata
    if metadata is None:
        return CommitOutcome.UNKNOWN
    if _is_another_table(decision, metadata):
        return CommitOutcome.FAILED  # the name is taken now
    location = None if known.requested is None else known.requested.get(REGISTERED)
    if not isinstance(location, str) or _is_explained(decision, known):
        return CommitOutcome.UNKNOWN
    if is_same_file(location, found.metadata_location):
        is_made = registered_digest(metadata, is_view=decision.target.is_view) == decision.result
    else:
        files = [str(each["metadata-file"]) for each in metadata.get("metadata-log") or []]
        is_made = any(is_same_file(location, file) for file in files)
    return CommitOutcome.ACCEPTED if is_made else CommitOutcome.UNKNOWN


def _is_explained(decision: OpenDecision, known: Known) -> bool:
    """
    Return whether another decision has brought the table here: later, or just before, after this one had found nothing.

    Whoever created it has not: the file that is registered is younger.
    """
    before, later = _moves(decision, known)
    is_just_before = {claim.operation for claim in before[-1:]} & (_REGISTERS | RENAMES_TO)
    return bool(is_just_before) or any(claim.operation in _ARRIVES for claim in later)


def _moves(decision: OpenDecision, known: Known) -> tuple[Sequence[Claim], Sequence[Claim]]:
    """Return what has brought the table under this name, or taken it away, before the decision and later, in order."""
    moves = [
        claim
        for claim in known.claims
        if claim.operation in _ARRIVES | _LEAVES and _same(claim.table_uuid, decision.table_uuid)
    ]
    before = [claim for claim in moves if claim.index < known.index]
    return before, moves[len(before) :]


def _dropped(decision: OpenDecision, found: Loaded, known: Known) -> CommitOutcome:
    """A drop is recognised by the absence of the table or view. While it exists, the drop may still arrive."""
    before, later = _moves(decision, known)
    if {claim.operation for claim in before[-1:]} & _DROPS or {claim.operation for claim in later[:1]} & _LEAVES:
        return CommitOutcome.FAILED  # that decision found it: this one had not dropped it, and cannot now
    if later:
        return CommitOutcome.UNKNOWN  # it was gone before it came again, and nothing tells by which request
    # Without its namespace, this may be another catalog than before.
    is_gone = found.metadata is None and found.namespace_exists
    is_replaced = found.metadata is not None and _is_another_table(decision, found.metadata)
    return CommitOutcome.ACCEPTED if is_gone or is_replaced else CommitOutcome.UNKNOWN


def _renamed(operation: Operation, decision: OpenDecision, found: Loaded, known: Known) -> CommitOutcome:
    """
    A rename is recognised, under each of its names, by where the table is now. It may still arrive, and a table may
    come and go under one name more than once, so nothing proves that it was not made.
    """
    is_here = found.metadata is not None and not _is_another_table(decision, found.metadata)
    is_made = is_here if operation in RENAMES_TO else found.namespace_exists and not is_here
    later = (claim for claim in known.claims if claim.index > known.index)
    is_explained = any(_same(claim.table_uuid, decision.table_uuid) for claim in later)
    return CommitOutcome.ACCEPTED if is_made and decision.table_uuid and not is_explained else CommitOutcome.UNKNOWN


def _of_namespace(operation: Operation, decision: OpenDecision, found: Loaded, known: Known) -> CommitOutcome:
    """A namespace has no uuid: a state is this decision's unless a later outcome of the same kind explains it."""
    is_claimed = any(claim.operation == operation and claim.index > known.index for claim in known.claims)
    properties = found.properties
    match operation:
        case Operation.NAMESPACE_CREATE if properties is not None:
            if is_claimed:
                return CommitOutcome.FAILED  # there was none when that one was made, and there is one now
            requested = None if known.requested is None else known.requested.get("properties") or {}
            is_there = requested is not None and requested.items() <= properties.items()
        case Operation.NAMESPACE_UPDATE if properties is not None:
            is_there = not is_claimed and _is_as_judged(decision, found)
        case Operation.NAMESPACE_DROP if properties is None:
            if is_claimed:
                return (
                    CommitOutcome.FAILED
                )  # the other decision found the namespace, so this one had not dropped it, and cannot now
            is_there = True
        case _:
            is_there = False
    return CommitOutcome.ACCEPTED if is_there else CommitOutcome.UNKNOWN


def _is_another_table(decision: OpenDecision, metadata: Mapping[str, Any]) -> bool:
    """A decision on a table that was replaced can no longer be accepted, and if it was, its result is gone."""
    return bool(decision.table_uuid) and not _same(decision.table_uuid, uuid_of(metadata))


def _is_as_judged(decision: OpenDecision, found: Loaded) -> bool:
    change = Change(
        metadata=None if found.metadata is None else dict(found.metadata),
        properties=None if found.properties is None else dict(found.properties),
    )
    return decision.result is not None and state_digest(change) == decision.result


def _is_as_requested(requested: Mapping[str, Any] | None, metadata: Mapping[str, Any]) -> bool:
    """Whether a table is the one that a createTable describes; its catalog may have added properties."""
    if requested is None:
        return False
    try:
        location = requested.get("location") or metadata["location"]
        updates = create_updates(requested, table_uuid=str(metadata["table-uuid"]), location=location)
        made = apply_updates(None, updates, now_ms=0, base_location=None)
    except (GatewayError, KeyError):
        return False
    compared = ("format-version", "last-column-id", "schemas", "partition-specs", "sort-orders", "snapshots")
    return (
        all(without_empty(made.get(name)) == without_empty(metadata.get(name)) for name in compared)
        and str(made["location"]).rstrip("/") == str(metadata["location"]).rstrip("/")
        and made.get("properties", {}).items() <= (metadata.get("properties") or {}).items()
    )


def _is_view_as_requested(requested: Mapping[str, Any] | None, metadata: Mapping[str, Any]) -> bool:
    """Whether a view is the one that a createView describes; its catalog may have added properties."""
    if requested is None:
        return False
    try:
        location = requested.get("location") or metadata["location"]
        updates = create_view_updates(requested, view_uuid=uuid_of(metadata), location=location)
        made = apply_view_updates(None, updates, now_ms=0)
    except (GatewayError, KeyError):
        return False
    return (
        _of_view(made) == _of_view(metadata)
        and str(made["location"]).rstrip("/") == str(metadata["location"]).rstrip("/")
        and made["properties"].items() <= (metadata.get("properties") or {}).items()
    )


def _of_view(metadata: Mapping[str, Any]) -> Any:
    """Schemas and versions of a view, without what its catalog chooses: time and summary."""
    versions = [
        {name: value for name, value in version.items() if name not in {"timestamp-ms", "summary"}}
        for version in metadata.get("versions") or []
    ]
    return without_empty([metadata.get("schemas"), versions])


def _is_refused_now(decision: OpenDecision, metadata: Mapping[str, Any]) -> bool:
    try:
        check_requirements(metadata, decision.requirements)
    except RequirementFailedError:
        return True
    except GatewayError:
        return False  # it is not a requirement of a table
    return False


def _has_all_snapshots_since(decision: OpenDecision, metadata: Mapping[str, Any]) -> bool:
    """
    Whether every snapshot is still listed that was added since those that the request requires.

    From format version 2 on, each new snapshot has the next sequence number (table specification, "Sequence Numbers").
    So between a required snapshot and the last one there is no gap, or a snapshot was removed that may have been ours.
    """
    if metadata.get("format-version", 1) < 2:
        return False
    numbers = {str(each["snapshot-id"]): each.get("sequence-number", 0) for each in metadata.get("snapshots") or []}
    required = [each for each in decision.requirements if each["type"] == "assert-ref-snapshot-id"]
    since = [0 if each["snapshot-id"] is None else numbers.get(str(each["snapshot-id"]), -1) for each in required]
    if not since or min(since) < 0:
        return False
    return set(range(min(since) + 1, metadata.get("last-sequence-number", 0) + 1)) <= set(numbers.values())


def _are_others(files: Sequence[str | None] | None, known: Known) -> bool:
    """Whether each of `files` is the result of another decision's commit, so that none of them is ours."""
    claimed = {claim.metadata_location for claim in known.claims if claim.evidence is OutcomeEvidence.ANSWER}
    return files is not None and set(files) <= claimed


def _snapshot_ids(metadata: Mapping[str, Any]) -> set[str]:
    return {str(each["snapshot-id"]) for each in metadata.get("snapshots") or []}


def _is_registered(known: Known, table_uuid: str) -> bool:
    """Return whether a table or view of this uuid was registered under this name by another decision."""
    return any(claim.operation in _REGISTERS and _same(claim.table_uuid, table_uuid) for claim in known.claims)


def _same(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one.lower() == other.lower()
