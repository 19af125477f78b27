# SPDX-License-Identifier: Apache-2.0
"""
What the routes that show the log and the read models answer, as `/openapi.json` describes it (see `answer_models.py`).

`cursor` continues a list, with the same parameters; null is its end. Times are RFC 3339. `principal` is who an actor
is, as it was recorded: null if that was erased, or if the caller may not read it.
"""

from __future__ import annotations

from typing import Any

from pydantic import RootModel

from gateway.http.answer_models import Answered, PolicyShown, ProofShown, ReasonShown


class GroupShown(Answered):
    """What an entry was appended with: the id of the group, how many it has, and which one this is, from 0."""

    id: str
    branch: str
    of: int
    position: int


class EntryListed(Answered):
    """An entry of the log: what it says, and the names of its payload parts, which are not shown."""

    index: int
    type: str
    version: int
    key: str
    actor: str
    occurred_at: str
    recorded_at: str
    group: GroupShown
    parts: list[str]
    data: dict[str, Any]


class EntriesShown(Answered):
    """Entries of the log `log` that the caller may see."""

    log: str
    entries: list[EntryListed]
    cursor: str | None


class PartShown(Answered):
    """A payload part of an entry: the commitment to it, in hex, and whether it still exists."""

    name: str
    commitment: str
    held: bool


class RelatedEntry(Answered):
    """An entry that belongs to another one; `same_group`: it was appended with it."""

    index: int
    type: str
    key: str
    same_group: bool


class EntryShown(Answered):
    """
    One entry, with its bytes (`stored`, base64) and their hash in the tree (`leaf`), and the leaf before it.

    `proof` leads from `leaf` to the root of a signed checkpoint; `/log/{log}/receipt/{index}` has it as a file.
    """

    log: str
    index: int
    type: str
    version: int
    key: str
    actor: str
    occurred_at: str
    recorded_at: str
    group: GroupShown
    parts: list[PartShown]
    data: dict[str, Any]
    stored: str
    leaf: str
    previous: str
    proof: ProofShown
    related: list[RelatedEntry]


class TypeCounted(Answered):
    """Entries of one type, and their bytes."""

    type: str
    entries: int
    bytes: int
    first_index: int
    last_index: int


class StatsShown(Answered):
    """A log in figures. `groups`, `bytes` and `types` are of its first `counted` entries."""

    log: str
    entries: int
    counted: int
    checkpoint_size: int
    groups: int
    bytes: int
    first_recorded_at: str | None
    last_recorded_at: str | None
    entries_last_hour: int
    entries_last_day: int
    types: list[TypeCounted]


class AnchorShown(Answered):
    """The root of a log at a size, as the installation's own log has recorded it."""

    size: int
    root: str
    recorded_at: str


class AnchorsShown(Answered):
    """
    How far a log is signed and anchored. `published`, `cosigned_by` and `stamped_at` are about the newest anchor:
    whether the installation has published it, which witnesses have cosigned it, and when an authority stamped it.
    """

    log: str
    checkpoint_size: int
    anchor: AnchorShown | None
    published: bool
    cosigned_by: list[str]
    stamped_at: str | None


class OutcomeShown(Answered):
    """The outcome of an approved decision, and how it is known; the metadata file is the one that is current since."""

    index: int
    recorded_at: str | None
    outcome: str | None
    evidence: str | None
    metadata_location: str | None
    metadata_sha256: str | None


class DecisionListed(Answered):
    """
    A decision on a table, view or namespace. `outcome` is null until it is known, and for what was not approved.

    `reason` is the policy or access rule that decided; `as_of` is the control entry by which it was judged.
    """

    index: int
    group: str
    key: str
    recorded_at: str
    actor: str
    principal: str | None
    principal_source: str
    operation: str
    actions: list[str]
    catalog: str
    namespace: list[str]
    name: str | None
    decision: str
    reason: ReasonShown | None
    policy_set: str
    as_of: int
    base: str | None
    table_uuid: str | None
    snapshots: list[str]
    outcome: OutcomeShown | None


class VerdictShown(Answered):
    """What a policy or an access rule said."""

    kind: str
    id: str
    version: int
    outcome: str
    detail: str


class ScanShown(Answered):
    """The last scan of a snapshot under one set of rules; a `failed` one has a `fault`, and perhaps the file."""

    table_uuid: str
    snapshot: str
    ruleset: str
    index: int
    recorded_at: str
    key: str | None
    status: str
    fault: str | None
    file: str | None
    metadata_location: str
    findings: int
    rows: int
    rows_sampled: int | None
    columns: int
    files: int
    cells: int
    bytes_read: int
    gaps: list[str]
    columns_unread: int
    unread: list[dict[str, Any]]


class ReviewShown(Answered):
    """
    What somebody has said of a finding, whose entry is at `finding`: `confirmed`, or `dismissed`. The entry of the
    review is at `index`.
    """

    version: int
    index: int
    finding: int
    recorded_at: str
    actor: str
    verdict: str
    confidence_percent: int
    reason: str


class FindingShown(Answered):
    """
    Personal data of one kind in one column: `matches` of `not_null` values. Never a value.

    `state` is `open`, `confirmed` or `dismissed`; `review` is the last one of its column and kind. What was dismissed
    is open again once a scan is surer of it than it was then.
    """

    index: int
    group: str
    recorded_at: str
    key: str
    table_uuid: str
    snapshot: str
    ruleset: str
    field_id: int
    column_path: str
    kind: str
    confidence_percent: int
    matches: int
    not_null: int
    state: str
    review: ReviewShown | None


class FindingWithReviews(FindingShown):
    """A finding, and the reviews of its column and kind, the newest first."""

    reviews: list[ReviewShown]


class FindingReviewShown(Answered):
    """A review that is in the log now."""

    finding: int
    verdict: str
    version: int
    reason: str
    actor: str


class FindingsShown(Answered):
    """Findings, the newest first."""

    findings: list[FindingShown]
    cursor: str | None


class AlertShown(Answered):
    """An alert about a finding, and the sinks that have taken it."""

    index: int
    group: str
    recorded_at: str
    key: str
    finding: str
    table_uuid: str
    snapshot: str
    field_id: int
    column_path: str
    kind: str
    confidence_percent: int
    delivered_to: list[str]


class LineageEdgeShown(Answered):
    """
    `target` was made from `source`, `hops` away. The job and its run are the last of `count` that reported it; null to
    whoever may not read lineage.
    """

    hops: int
    source: str
    target: str
    job: str | None
    run_id: str | None
    engine: str | None
    state: str | None
    event_time: str | None
    count: int
    source_version: str | None
    target_version: str | None
    is_kept: bool


class DecisionShown(DecisionListed):
    """
    A decision and all that belongs to it; `message` is what the client was told, and `verdicts` what each rule said.

    `made_from` are the edges of lineage into the table.
    """

    message: str | None
    verdicts: list[VerdictShown] | None
    scans: list[ScanShown]
    findings: list[FindingShown]
    alerts: list[AlertShown]
    made_from: list[LineageEdgeShown]


class _Named(Answered):
    """Names of a table, and its key in the log."""

    key: str
    catalog: str | None
    namespace: list[str]
    name: str | None


class KindFound(Answered):
    """Personal data of one kind in a table: the highest confidence, and in how many columns."""

    kind: str
    confidence_percent: int
    columns: int


class OwnerShown(Answered):
    """Who made a table or registered it; `principal` is null to whoever may not read inputs."""

    actor: str
    principal: str | None


class TableListed(_Named):
    """
    A table that has this name since the entry at `named_index`, what kinds of personal data were found in it, and who
    made it or registered it (null: the log does not say).
    """

    table_uuid: str
    named_index: int
    findings: list[KindFound]
    owner: OwnerShown | None


class TablesShown(Answered):
    """Tables by name."""

    tables: list[TableListed]
    cursor: str | None


class VersionShown(Answered):
    """A version of a policy or an access rule."""

    label: str
    id: str
    version: int


class WriteShown(Answered):
    """A decision on a write of a table, and its outcome; null until it is known."""

    index: int
    recorded_at: str
    actor: str
    principal: str | None
    operation: str
    decision: str
    outcome: str | None
    decided_by: list[VersionShown]


class SnapshotShown(Answered):
    """A snapshot; one that is not `governed` is named by no approved decision."""

    index: int
    snapshot_id: str
    governed: bool
    operation: str | None


class DataShown(Answered):
    """A table, view or data set, by its key."""

    label: str
    key: str


class WorkShown(Answered):
    """A kind of run: its job (namespace, name), its engine, and who reported it."""

    job: list[str] | None
    engine: str | None
    actor: str | None


class GoverningShown(Answered):
    """A version of a policy under which a table was judged, about what, and whether it is in force now."""

    id: str
    version: int
    governs: list[str]
    is_in_force: bool


class ColumnFoundShown(Answered):
    """Personal data of one kind in one column: the highest confidence, and in how many snapshots."""

    column: str
    kind: str
    confidence_percent: int
    snapshots: int
    state: str


class UnreadShown(Answered):
    """A column that was not scanned, and why."""

    column: str
    reason: str


class EvidenceShown(Answered):
    """
    What "nothing was found" rests on: only without `gaps` does it clear a table. If it `is_cut`, the table has more
    snapshots: all is of its last ones.
    """

    snapshots: int
    scanned: int
    failed: int
    pending: int
    sampled: int
    silent: int
    columns_unread: int
    unread: list[UnreadShown]
    is_cut: bool
    gaps: list[str]


class OmittedShown(Answered):
    """How much lineage was reported of a table or data set and is not drawn."""

    columns: int
    datasets: int
    names: int
    edges: int
    ambiguous: int
    refused: int


class _State(Answered):
    """`renamed_to` is the present key of a table that has another name now, to whoever may see it there."""

    table_uuid: str | None
    renamed_to: str | None
    is_dropped: bool
    lag_entries: int


class TableShown(_Named, _State):
    """
    What is known of a table, from a graph that lacks the newest `lag_entries` of the log.

    `made_by` and `read_by` are null to whoever may not read lineage.
    """

    table: str
    writes: list[WriteShown]
    snapshots: list[SnapshotShown]
    ungoverned: list[SnapshotShown]
    made_from: list[DataShown]
    made_by: list[WorkShown] | None
    allowed_by: list[GoverningShown]
    found: list[ColumnFoundShown]
    evidence: EvidenceShown
    read_by: list[WorkShown] | None
    read_into: list[DataShown]
    omitted: OmittedShown | None


class TableHistoryShown(_Named):
    """Decisions on a table, the newest first."""

    decisions: list[DecisionListed]
    cursor: str | None


class SnapshotChange(Answered):
    """A snapshot that a commit added: its operation, and counts of its summary, as the table's metadata has them."""

    snapshot: str
    operation: str | None
    counts: dict[str, str]


class PolicyVerdict(Answered):
    """What a policy said of a commit."""

    id: str
    version: int
    outcome: str


class CommitShown(DecisionListed):
    """
    A decision, the engine that its snapshots name, what they changed, and what was found in them.

    `client`, what the client called itself, and `policies` are null to whoever may not read inputs.
    """

    engine: str | None
    client: str | None
    changes: list[SnapshotChange]
    policies: list[PolicyVerdict] | None
    findings: list[FindingShown]


class TimelineShown(_Named):
    """What happened to a table, the newest first."""

    commits: list[CommitShown]
    cursor: str | None


class TableFindingsShown(_Named):
    """What was found last in each column of a table, its last scans, and whether the caller may review findings."""

    findings: list[FindingShown]
    scans: list[ScanShown]
    may_review: bool


class VertexShown(Answered):
    """A vertex of the graph, and what else it holds."""

    label: str
    key: str
    properties: dict[str, Any]


class EdgeShown(Answered):
    """An edge of a vertex, `out` if it begins there, and the vertex at its other end."""

    label: str
    direction: str
    vertex: VertexShown


class TableGraphShown(_Named):
    """The vertex of a table, its edges, and how many entries of the log the graph does not hold yet."""

    vertex: VertexShown
    edges: list[EdgeShown]
    lag_entries: int
    cursor: str | None


class TablePoliciesShown(_Named):
    """The policies in force whose scope covers a table."""

    policies: list[PolicyShown]


class SchemaHistoryShown(_Named):
    """The schemas in a table's metadata (Iceberg's specification has their form), and decisions that changed them."""

    current_schema_id: int | None
    schemas: list[dict[str, Any]]
    changes: list[DecisionListed]
    cursor: str | None


class LineageColumnShown(Answered):
    """A column made from another one; a null `target_column` stands for every column of the target."""

    source: str
    source_column: str
    target: str
    target_column: str | None
    count: int


class CycleShown(Answered):
    """An edge that was reported and not drawn, since `path` leads from its target to its source already."""

    source: str
    target: str
    path: list[str]
    index: int
    last_index: int
    count: int
    told_index: int | None


class OmittedOf(OmittedShown):
    """The same of one table or data set."""

    key: str


class LineageShown(Answered):
    """
    What a table or data set was made from, and what was made from it, nearest first. If it `is_cut`, a list has as many
    as were asked for: there may be more, which the caller may see or not.
    """

    key: str
    upstream: list[LineageEdgeShown]
    downstream: list[LineageEdgeShown]
    columns: list[LineageColumnShown]
    cycles: list[CycleShown]
    omitted: list[OmittedOf]
    is_cut: bool


class RunShown(Answered):
    """A run: its job, its engine and its state, and what it reads and writes, by key."""

    run_id: str
    job: str | None
    engine: str | None
    state: str | None
    event_time: str | None
    is_complete: bool
    inputs: list[str]
    outputs: list[str]
    first_index: int
    last_index: int


class RunsShown(Answered):
    """Runs by their ids, from the highest down."""

    runs: list[RunShown]
    cursor: str | None


class ReachedShown(Answered):
    """What a walk reached, and from where, `hops` away."""

    label: str
    key: str
    hops: int
    origin: str


class _Walked(_State):
    preset: str
    table: str
    tables: list[ReachedShown]
    columns: list[ReachedShown]
    omitted: dict[str, OmittedShown]
    is_cut: bool
    """Whether there may be more than these, which the caller may see or not: ask with a higher limit, or of a table."""


class ImpactShown(_Walked):
    """What a change of a table affects: tables and columns made from it, and the jobs, engines and people that read."""

    readers: list[ReachedShown]


class ClassifiedShown(Answered):
    """A column, and what was found in it."""

    key: str
    found: ColumnFoundShown


class PropagationShown(_Walked):
    """Where personal data of a table may have gone: what was `found` there, and how much of it was scanned."""

    found: list[ClassifiedShown]
    evidence: EvidenceShown


class ContextShown(TableShown):
    """What an agent is told of a table before it works with it."""

    preset: str


class NumberExplained(Answered):
    """What a table was made from, nearest first, and the last decisions on it, the newest first."""

    preset: str
    table: str
    made_from: list[LineageEdgeShown]
    columns: list[LineageColumnShown]
    omitted: list[OmittedOf]
    is_cut: bool
    last_decisions: list[DecisionListed]


class TraversalShown(RootModel[ContextShown | ImpactShown | PropagationShown | NumberExplained]):
    """A walk from a table, by its `preset`: what an answer has differs between them."""


class FollowerShown(Answered):
    """Something that follows the log: how far it is behind, in entries and seconds, and what else is wrong with it."""

    name: str
    lag_entries: int
    behind_s: float
    trouble: str


class WitnessShown(Answered):
    """
    A witness of the installation, which cosigns the checkpoints that the log is anchored under: its last answer
    (`cosigned`, `refused`, `away`, `not asked`), and up to which `size` of this log its last cosignature reaches, and
    when it was made. `behind_s` is for how long it has missed an anchor of this log; over a minute, it `lags`.
    """

    name: str
    state: str
    size: int | None
    cosigned_at: str | None
    behind_s: float
    lags: bool
    trouble: str


class LogStatusShown(Answered):
    """
    How far everything is that follows a log. `unsigned_entries` have waited for the signer, the first for `unsigned_s`.
    The first `anchored_size` entries are anchored in the installation's own log, since `anchored_at`. `witnesses` are
    those of the policy of the installation, perhaps none; null if that cannot be read now.

    `detection_waiting`, `open_decisions` (on foreign catalogs, whose outcome is not known yet) and `dead_letters` are
    counted up to 100,000; `detection_put_off` are ranges whose storage does not answer.
    """

    log: str
    size: int
    takes_entries: bool
    checkpoint_size: int
    unsigned_entries: int
    unsigned_s: float
    projections: list[FollowerShown]
    streams: list[FollowerShown]
    detection_waiting: int | None
    detection_put_off: int | None
    open_decisions: int
    dead_letters: int
    anchored_size: int
    anchored_at: str | None
    witnesses: list[WitnessShown] | None
