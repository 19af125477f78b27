# SPDX-License-Identifier: Apache-2.0
"""
What the gateway's own routes answer, as the document at `/openapi.json` describes it.

The routes do not build these: they answer with what they show, and a test compares every answer with its model. Members
that are not listed are not there.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gateway.asking.rule_findings import Kind
from gateway.jobs import JobState
from gateway.policy.access import Access
from ledger.format.events import Effect, MaskAction, ReviewVerdict


class Answered(BaseModel):
    """A body of an answer: members that are not listed are not there."""

    model_config = ConfigDict(extra="forbid")


class PolicyComing(Answered):
    """A version of a policy that comes into force at a time (RFC 3339)."""

    version: int
    active_from: str


class PolicyShown(Answered):
    """
    A policy in the version that is in force, or else in the first that will be; `coming` are those after it.

    A refused client receives `message`. `scope` has only what restricts; `active_from` is null for one that was put in
    force at once, and `retired_from` for one that no time ends.
    """

    id: str
    version: int
    in_force: bool
    expression: str
    message: str
    scope: dict[str, list[str]]
    examples: list[dict[str, Any]]
    reason: str
    active_from: str | None
    retired_from: str | None
    coming: list[PolicyComing]


class PolicySaved(PolicyShown):
    """A policy that was saved, and on which inputs it fails."""

    warnings: list[str]


class PoliciesShown(Answered):
    """The policies that are in force or will be, oldest first."""

    policies: list[PolicyShown]


class _ContentsShown(Answered):
    """Contents of a policy; all null where there is none."""

    expression: str | None
    message: str | None
    scope: dict[str, list[str]] | None
    examples: list[dict[str, Any]] | None


class PolicyVersionShown(_ContentsShown):
    """
    One version of a policy as the log has it, at `index`; the one that retired it has no contents.

    `author` and `reviewer` are actors; `reviewer` is null without a draft. It counts from `active_from` on (null: at
    once).
    """

    version: int
    retired: bool
    reason: str
    author: str
    reviewer: str | None
    review_reason: str
    active_from: str | None
    recorded_at: str
    index: int


class PolicyVersionsShown(Answered):
    """The versions that a policy has had, oldest first."""

    versions: list[PolicyVersionShown]


class PolicyMemberChanged(Answered):
    """A member of a policy or restriction on both sides."""

    before: Any = Field(alias="from")
    after: Any = Field(alias="to")


class PolicyDiffShown(Answered):
    """What differs between two versions: a unified diff of the expression, and the other members that changed."""

    id: str
    before: str = Field(alias="from")
    after: str = Field(alias="to")
    expression: str
    changed: dict[str, PolicyMemberChanged]


class PolicyDraftShown(_ContentsShown):
    """A draft that waits for a review; one that `retires` the policy has no contents. `author` is an actor."""

    id: str
    version: int
    retires: bool
    reason: str
    author: str | None


class PolicyDraftsShown(Answered):
    """The drafts that wait for a review; `author` is null here."""

    policy_drafts: list[PolicyDraftShown] = Field(alias="policy-drafts")


class PolicyReviewed(Answered):
    """A review of the version `draft` of a draft; `policy` is what it put in force or retired, null if refused."""

    id: str
    draft: int
    verdict: ReviewVerdict
    policy: PolicySaved | None


class RestrictionMaskShown(Answered):
    """A masked column, by its name with dots; callers for whom `unless` (CEL) is true see it as it is."""

    column: str
    action: MaskAction
    unless: str | None


class RestrictionShown(Answered):
    """
    A row filter (CEL; null: all rows) and column masks, with the schemas that it was checked against, and its examples.

    `enforced` is false: reads do not enforce restrictions yet, as `note` says.
    """

    id: str
    version: int
    scope: dict[str, list[str]]
    filter: str | None
    masks: list[RestrictionMaskShown]
    schemas: dict[str, dict[str, Any]]
    examples: list[dict[str, Any]]
    reason: str
    enforced: bool
    note: str


class RestrictionsShown(Answered):
    """The restrictions that are not retired, oldest first."""

    restrictions: list[RestrictionShown]


class RestrictionVersionShown(Answered):
    """One version of a restriction as the log has it; one that retired it has no contents. Persons are actors."""

    version: int
    retired: bool
    scope: dict[str, list[str]] | None
    filter: str | None
    masks: list[RestrictionMaskShown] | None
    schemas: dict[str, dict[str, Any]] | None
    examples: list[dict[str, Any]] | None
    reason: str
    author: str
    reviewer: str | None
    review_reason: str
    recorded_at: str
    index: int


class RestrictionDraftShown(Answered):
    """A draft that waits for a review; one that `retires` the restriction has no contents. `author` is an actor."""

    id: str
    version: int
    retires: bool
    scope: dict[str, list[str]] | None
    filter: str | None
    masks: list[RestrictionMaskShown] | None
    schemas: dict[str, dict[str, Any]] | None
    examples: list[dict[str, Any]] | None
    reason: str
    author: str | None


class RestrictionDraftsShown(Answered):
    """The drafts of restrictions that wait for a review; `author` is null here."""

    restriction_drafts: list[RestrictionDraftShown] = Field(alias="restriction-drafts")


class RestrictionReviewed(Answered):
    """A review of the version `draft` of a draft; `restriction` is what it saved, null if refused or retired."""

    id: str
    draft: int
    verdict: ReviewVerdict
    restriction: RestrictionShown | None


class RestrictionVersionsShown(Answered):
    """The versions that a restriction has had, oldest first."""

    versions: list[RestrictionVersionShown]


class RestrictionDiffShown(Answered):
    """What differs between two versions: a unified diff of the filter, and the other members that changed."""

    id: str
    before: str = Field(alias="from")
    after: str = Field(alias="to")
    filter: str
    changed: dict[str, PolicyMemberChanged]


class AccessRuleShown(Answered):
    """An access rule in force; `vocabulary` is the one it was written in."""

    id: str
    version: int
    effect: Effect
    expression: str
    vocabulary: int


class AccessRuleSaved(AccessRuleShown):
    """An access rule that was put in force, and on which inputs it fails."""

    warnings: list[str]


class AccessRuleListed(AccessRuleShown):
    """An access rule in force: `author` put it in force, by the entry at `index`."""

    author: str
    recorded_at: str
    index: int


class AccessRulesShown(Answered):
    """The access rules in force, oldest first."""

    access_rules: list[AccessRuleListed] = Field(alias="access-rules")


class AccessRuleVersionShown(AccessRuleListed):
    """What the log has of an access rule: with the entry at `index`, `author` put it in force, or retired it."""

    retired: bool


class AccessRuleVersionsShown(Answered):
    """What the log has of an access rule, oldest first."""

    versions: list[AccessRuleVersionShown]


class AccessRulesImported(Answered):
    """The access rules of a file: put in force (with `dry_run`, they would be), and in force before."""

    created: list[AccessRuleShown]
    unchanged: list[AccessRuleShown]
    dry_run: bool


class RuleNamed(Answered):
    """An access rule."""

    id: str
    version: int


class AccessDecided(Answered):
    """What access rules decide; `rule` is the one that decides it, null if none does. `message` is for the caller."""

    decision: Access
    rule: RuleNamed | None
    message: str


class CallerDecided(AccessDecided):
    """
    A decision about whoever calls with `roles`: the holder of `keys`, or without keys anybody whom others vouch for.

    `actor` is null for those, and `identity`, too; an erased identity is null.
    """

    identity: str | None
    actor: str | None
    roles: list[str]
    keys: list[str]


class WhoMay(Answered):
    """
    Who may do an operation on `path` of a catalog, by the rules as of the log's entry `as_of`.

    `not_asked` counts callers that were not reached in the time for one question.
    """

    catalog: str
    path: str
    operation: str
    as_of: int
    callers: list[CallerDecided]
    not_asked: int


class OperationDecided(AccessDecided):
    """A decision about an operation on `path` of a catalog."""

    catalog: str
    path: str
    operation: str


class WhatMayBeDone(Answered):
    """What a caller may do, by the rules as of the log's entry `as_of`; the caller as in `CallerDecided`."""

    identity: str | None
    actor: str | None
    roles: list[str]
    keys: list[str]
    as_of: int
    operations: list[OperationDecided]


class RuleFinding(Answered):
    """
    An access rule that does nothing, or less than it says (`finding`).

    `by` are the rules that decide in its place, `names` what it names and there is not. It was tried on so many
    requests and held for `held` of them, as for `example`; `certain` says that it is proven for all requests.
    """

    rule: RuleNamed
    effect: Effect
    finding: Kind
    certain: bool
    by: list[str]
    names: list[str]
    tried: int
    held: int
    example: str
    message: str


class RuleUndecided(Answered):
    """An access rule of which something is not certain, and why."""

    rule: str
    why: str


class RulesLinted(Answered):
    """
    What is wrong with the access rules in force as of the log's entry `as_of`, what was not looked at, and of
    which rules something is not certain.
    """

    as_of: int
    rules: int
    tried: int
    findings: list[RuleFinding]
    not_looked_at: list[str]
    undecided: list[RuleUndecided]


class CatalogShown(Answered):
    """A catalog in force; a secret in its options is the name of one."""

    alias: str
    version: int
    kind: str
    options: dict[str, str]


class CatalogsShown(Answered):
    """The catalogs in force, oldest first."""

    catalogs: list[CatalogShown]


class CatalogChecked(Answered):
    """
    What is behind an alias: `ok` if it can be used, else `trouble` says why and `advice` what to do.

    `endpoints` are what it says that it has, null if it does not say; where they are `missing`, engines are refused.
    """

    alias: str
    ok: bool
    answers: bool
    endpoints: list[str] | None
    missing: list[str]
    notes: list[str]
    trouble: str
    advice: str


class KeyIssued(Answered):
    """A new API key; `secret` is in this answer and nowhere else. Times are RFC 3339, null is never."""

    id: str
    actor: str
    expires_at: str | None
    secret: str


class KeyRotated(KeyIssued):
    """A new API key in place of the key `replaces`, which ends at `replaced_ends_at`, or with null is revoked."""

    replaces: str
    replaced_ends_at: str | None


class KeyShown(Answered):
    """
    An API key that was not revoked; `issuer` is null if the operator or the identity itself issued it.

    `replaced_by` is the key that its holder has instead, null if it was not rotated. `principal` is whose it is, null
    to a caller who may not know who actors are.
    """

    id: str
    version: int
    prefix: str
    actor: str
    principal: str | None
    roles: list[str]
    expires_at: str | None
    expired: bool
    issuer: str | None
    replaced_by: str | None


class KeysShown(Answered):
    """The keys that were not revoked, oldest first."""

    keys: list[KeyShown]


class SettingShown(Answered):
    """A setting of the tenant; version 0 is the default."""

    id: str
    version: int
    value: str


class SettingsShown(Answered):
    """The tenant's settings."""

    settings: list[SettingShown]


class TenantShown(Answered):
    """
    The caller's tenant: its log, how much is in force for it, and its settings.

    `founded_at` is when the first entry of the log was recorded. `verifier_keys` (C2SP signed-note) may have signed its
    newest checkpoint; the newest key is first. Compare them with what the operator has told you apart from this answer.
    """

    id: str
    name: str | None
    log: str
    founded_at: str | None
    entries: int
    checkpoint_size: int
    verifier_keys: list[str] | None
    catalogs: list[str]
    policies: int
    access_rules: int
    keys: int
    settings: list[SettingShown]


class PurgeShown(Answered):
    """
    A table that was dropped with its files; what is not known before it is completed is null.

    `problem` says why the last attempt was not finished, or what was wrong with the table. Times are RFC 3339.
    """

    purge: str
    table: str
    table_uuid: str
    places: list[str]
    requested_at: str
    state: str
    deleted: int
    bytes_deleted: int | None
    kept: int | None
    missing: int | None
    problem: str | None
    next_attempt_at: str | None


class PurgesShown(Answered):
    """The newest purges, oldest first; `has_older` says whether there may be older ones that were not looked at."""

    purges: list[PurgeShown]
    has_older: bool


class DropShown(Answered):
    """
    A table or view that was dropped while its files stayed, by `actor`; its files lie in `places`.

    `metadata_exists` says whether its last metadata file is there, null if that is not known.
    """

    dropped_at: str
    actor: str
    operation: str
    catalog: str
    namespace: list[str]
    name: str
    table: str
    table_uuid: str
    metadata_location: str
    metadata_exists: bool | None
    places: list[str]


class DropsShown(Answered):
    """Drops, newest first; `has_older` says whether there are older ones that were not looked at."""

    drops: list[DropShown]
    has_older: bool


class DeadLetterShown(Answered):
    """A message that was given up, after how many attempts and why. What it holds is not shown."""

    source: str
    id: str
    attempts: int
    died_at: str
    reason: str


class DeadLettersShown(Answered):
    """Dead letters, oldest first; `has_more` says whether there are younger ones."""

    dead_letters: list[DeadLetterShown] = Field(alias="dead-letters")
    has_more: bool


class JobShown(Answered):
    """
    Work that another process does: `done` of so many entries or messages, `of` is null until that is known.

    It has ended if `state` is done, failed (`problem` says why, and what to do) or cancelled.
    """

    id: str
    state: JobState
    asked_at: str
    began_at: str | None
    ended_at: str | None
    done: int
    of: int | None
    problem: str | None


class RebuildResult(Answered):
    """The generation that is read now, and the one before; `digest` is of both if they were compared."""

    projection: str
    replaced: int
    generation: int
    size: int
    digest: str
    compared: bool


class RebuildShown(JobShown):
    """A rebuild of a read model; with `replace` the generations are not compared."""

    replace: bool
    result: RebuildResult | None


class ProjectionShown(Answered):
    """
    A read model: which generation is read, made by which version of it, and how far it is; `rebuild` is its newest.

    Its `state` is current, behind, not begun or other version.
    """

    projection: str
    state: str
    generation: int | None
    version: int | None
    next_index: int
    size: int
    lag_entries: int
    rebuild: RebuildShown | None


class ProjectionsShown(Answered):
    """The read models of the tenant's log."""

    projections: list[ProjectionShown]


class LetterReplayed(Answered):
    """What became of a dead letter; why one is dead again, or put off, is said where dead letters are listed."""

    source: str
    id: str
    result: str
    reason: str


class ReplayResultShown(Answered):
    """How many messages ended how, and the first of them one by one."""

    counts: dict[str, int]
    letters: list[LetterReplayed]


class ReplayShown(JobShown):
    """A replay: of the dead letters of a `source`, of one `letter`, or of all."""

    source: str | None
    letter: str | None
    result: ReplayResultShown | None


class ReplaysShown(Answered):
    """The replays of the last day, newest first."""

    replays: list[ReplayShown]


class OpenDecisionShown(Answered):
    """
    An approved change of a foreign catalog whose outcome is not known, by the key of what it changes.

    Until its `deadline` it is `at work`, then `due` to be looked for, and `unknown` once the catalog did not tell.
    """

    decision: str
    index: int
    key: str
    operation: str
    state: str
    decided_at: str
    deadline: str
    age_s: int


class OpenDecisionsShown(Answered):
    """Open decisions, oldest first; `has_more` says whether there are others."""

    open_decisions: list[OpenDecisionShown] = Field(alias="open-decisions")
    has_more: bool


class EvidenceAsked(Answered):
    """What evidence was asked for; `parts` is null for all."""

    decision: str | None
    table: str | None
    since: str | None = Field(alias="from")
    until: str | None = Field(alias="to")
    parts: list[str] | None
    policies: bool


class EvidenceFile(Answered):
    """The file of evidence that is made: where it is until it expires, and what it is."""

    path: str
    bytes: int
    sha256: str
    entries: int
    expires_at: str


class EvidenceShown(JobShown):
    """Evidence that is made, or was."""

    asked: EvidenceAsked
    file: EvidenceFile | None


class EvidenceListed(Answered):
    """The evidence that the caller has asked for, newest first."""

    evidence: list[EvidenceShown]


class StepShown(Answered):
    """
    A part of an expression that was evaluated, `times` in all; `value` is the last one, null if it was an `error`.

    `line` and `column` are from 1, `depth` says within how many other parts it is.
    """

    text: str
    line: int
    column: int
    depth: int
    times: int
    value: str | None
    error: str


class RuleExplained(Answered):
    """
    A policy or an access rule that was in force: what it said then, and what it says of what is recorded.

    `agrees` is null if one of the two is not known; `not_known` says of each variable why it is not.
    """

    kind: str
    id: str
    version: int
    expression: str
    recorded: str | None
    recorded_detail: str
    judged_again: str | None
    detail: str
    agrees: bool | None
    not_known: dict[str, str]
    steps: list[StepShown]


class ReasonShown(Answered):
    """The policy or access rule that determined a decision."""

    id: str
    version: int


class RequestExplained(Answered):
    """The request as it was recorded; a long body is cut."""

    method: str
    path: str
    client: str
    purge: bool
    body: str | None
    body_size_bytes: int
    body_sha256: str


class CallerExplained(Answered):
    """The caller as it was recorded."""

    actor: str
    email: str | None
    issuer: str | None
    key: str | None
    roles: list[str]
    source: str
    sub: str


class ProofShown(Answered):
    """
    The inclusion proof of the entry in the tree of a signed checkpoint, checked; without one, `trouble` says why.

    `hashes` and `root` are in hex; `/log/{origin}/receipt/{index}` has it as a file.
    """

    size: int | None
    root: str | None
    hashes: list[str]
    trouble: str


class DecisionExplained(Answered):
    """Why a mutation was decided as it was; `principal`, `request` and `message` are null if they were erased."""

    decision: str
    index: int
    log: str
    recorded_at: str
    operation: str
    target: str
    outcome: str
    reason: ReasonShown | None
    message: str | None
    actor: str
    principal: CallerExplained | None
    request: RequestExplained | None
    base: str | None
    policy_set: str
    as_of: int
    not_known: dict[str, str]
    rules: list[RuleExplained]
    proof: ProofShown


class StatusShown(Answered):
    """That all is well."""

    status: str
