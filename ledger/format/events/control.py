# SPDX-License-Identifier: Apache-2.0
"""
The control plane: what users edit, as events. Each carries its whole content, never in parts.

An unknown type or version here means that this process is too old to decide. It must refuse, not skip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

LINEAGE_CYCLES: Final = "lineage-cycles"
"""The setting that decides about a lineage edge that would close a cycle."""

POLICY_REVIEW: Final = "policy-review"
"""The setting that decides how policies come into force."""


class PolicyReview(StrEnum):
    """The values of the setting `policy-review`: whether policies take a draft that another person approves."""

    NONE = "none"
    REQUIRED = "required"


class OnCycle(StrEnum):
    """The values of the setting `lineage-cycles`: such an edge is omitted, or kept as an edge between versions."""

    REFUSE = "refuse"
    KEEP = "keep"


class Effect(StrEnum):
    """The effect of an access rule whose expression holds."""

    PERMIT = "permit"
    FORBID = "forbid"


class PolicyExpectation(StrEnum):
    """What a policy must say about an example."""

    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyScopeV1:
    """A scope before properties."""

    catalogs: tuple[str, ...]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    operations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyScopeV2:
    """A scope before uuids."""

    catalogs: tuple[str, ...]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    operations: tuple[str, ...]
    properties: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyScope:
    """The commits that a policy is evaluated for; a list that is empty does not restrict (`gateway.policy.scopes`)."""

    catalogs: tuple[str, ...]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    operations: tuple[str, ...]
    properties: tuple[str, ...]
    uuids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyExample:
    """
    A commit that a policy must allow or deny (`gateway.policy.examples`).

    `given` is JSON with sorted names and without blanks, in a text: names of properties may be outside of ASCII.
    """

    expect: PolicyExpectation
    name: str
    given: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyContentsV1:
    """What an author writes, with a scope before properties; otherwise as `PolicyContents`."""

    expression: str
    message: str
    scope: PolicyScopeV1
    examples: tuple[PolicyExample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyContentsV2:
    """What an author writes, with a scope before uuids; otherwise as `PolicyContents`."""

    expression: str
    message: str
    scope: PolicyScopeV2
    examples: tuple[PolicyExample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyContents:
    """
    What an author writes: `expression` is CEL, `message` is for a client whose commit is rejected.

    The message is a template (`gateway.policy.messages`): a field in braces stands for its value.
    """

    expression: str
    message: str
    scope: PolicyScope
    examples: tuple[PolicyExample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCreatedV1:
    """A policy before scopes and examples: it governs every commit, and its message is no template."""

    TYPE: ClassVar[str] = "policy.created"
    VERSION: ClassVar[int] = 1

    id: str
    version: int
    expression: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCreatedV2:
    """A policy whose scope has no properties; otherwise as `PolicyCreated`."""

    TYPE: ClassVar[str] = "policy.created"
    VERSION: ClassVar[int] = 2

    id: str
    version: int
    contents: PolicyContentsV1
    reason: str
    active_from: str | None
    draft: int | None
    author: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCreatedV3:
    """A policy whose scope has no uuids; otherwise as `PolicyCreated`."""

    TYPE: ClassVar[str] = "policy.created"
    VERSION: ClassVar[int] = 3

    id: str
    version: int
    contents: PolicyContentsV2
    reason: str
    active_from: str | None
    draft: int | None
    author: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCreated:
    """
    A policy on the content of commits.

    It is in force from `active_from` on, a canonical time; null: from this entry on. `draft` is the version of the
    draft that was approved by this, `author` the actor who wrote that; both are null if there was none. `reason` is for
    the record, and may be empty.
    """

    TYPE: ClassVar[str] = "policy.created"
    VERSION: ClassVar[int] = 4

    id: str
    version: int
    contents: PolicyContents
    reason: str
    active_from: str | None
    draft: int | None
    author: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChangedV1:
    """The policy has this content from here on; before scopes and examples, as `PolicyCreatedV1`."""

    TYPE: ClassVar[str] = "policy.changed"
    VERSION: ClassVar[int] = 1

    id: str
    version: int
    expression: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChangedV2:
    """The policy has these contents, whose scope has no properties; otherwise as `PolicyChanged`."""

    TYPE: ClassVar[str] = "policy.changed"
    VERSION: ClassVar[int] = 2

    id: str
    version: int
    contents: PolicyContentsV1
    reason: str
    active_from: str | None
    draft: int | None
    author: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChangedV3:
    """The policy has these contents, whose scope has no uuids; otherwise as `PolicyChanged`."""

    TYPE: ClassVar[str] = "policy.changed"
    VERSION: ClassVar[int] = 3

    id: str
    version: int
    contents: PolicyContentsV2
    reason: str
    active_from: str | None
    draft: int | None
    author: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanged:
    """
    The policy has these contents from `active_from` on, and until then those that it had; as `PolicyCreated`.

    A version that would have come into force later, or at the same time, never does.
    """

    TYPE: ClassVar[str] = "policy.changed"
    VERSION: ClassVar[int] = 4

    id: str
    version: int
    contents: PolicyContents
    reason: str
    active_from: str | None
    draft: int | None
    author: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDraftWrittenV1:
    """Somebody proposes contents whose scope has no properties; otherwise as `PolicyDraftWritten`."""

    TYPE: ClassVar[str] = "policy_draft.written"
    VERSION: ClassVar[int] = 1

    id: str
    version: int
    contents: PolicyContentsV1 | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDraftWrittenV2:
    """Somebody proposes contents whose scope has no uuids; otherwise as `PolicyDraftWritten`."""

    TYPE: ClassVar[str] = "policy_draft.written"
    VERSION: ClassVar[int] = 2

    id: str
    version: int
    contents: PolicyContentsV2 | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDraftWritten:
    """
    Somebody proposes contents for the policy `id`, which may not exist yet, or (null) to retire it.

    Nothing is in force by this. It takes the place of an earlier draft; its author is the actor of the entry.
    """

    TYPE: ClassVar[str] = "policy_draft.written"
    VERSION: ClassVar[int] = 3

    id: str
    version: int
    contents: PolicyContents | None
    reason: str


class ReviewVerdict(StrEnum):
    """What a review says of a draft."""

    APPROVE = "approve"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDraftReviewed:
    """
    A person other than the author has reviewed version `draft` of the draft; an author can only refuse their own.

    If it was approved, the same group has the event of the policy that it brings.
    """

    TYPE: ClassVar[str] = "policy_draft.reviewed"
    VERSION: ClassVar[int] = 1

    id: str
    version: int
    draft: int
    verdict: ReviewVerdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRetiredV1:
    """The policy is no longer in force; before reasons."""

    TYPE: ClassVar[str] = "policy.retired"
    VERSION: ClassVar[int] = 1

    id: str
    version: int


class MaskAction(StrEnum):
    """What is done to the values of a masked column (Iceberg REST specification, `ReadRestrictions`)."""

    MASK_ALPHANUM = "mask-alphanum"
    MASK_TO_FIXED_VALUE = "mask-to-fixed-value"
    REPLACE_WITH_NULL = "replace-with-null"
    SHOW_FIRST_4 = "show-first-4"
    SHOW_LAST_4 = "show-last-4"
    TRUNCATE_TO_YEAR = "truncate-to-year"
    TRUNCATE_TO_MONTH = "truncate-to-month"
    SHA_256_GLOBAL = "sha-256-global"
    SHA_256_QUERY_LOCAL = "sha-256-query-local"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionMask:
    """A column, by its name with dots, and what is done to its values, except for callers for whom `unless` is true."""

    column: str
    action: MaskAction
    unless: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionSchema:
    """A schema that a restriction was checked against: `given` is Iceberg's JSON in a text, its names sorted."""

    name: str
    given: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionExample:
    """
    Rows of which a caller must see some (`gateway.policy.restrictions.examples`); `given` is JSON in a text.
    """

    name: str
    given: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionContentsV1:
    """What an author writes of a restriction, with a scope before uuids; otherwise as `RestrictionContents`."""

    scope: PolicyScopeV2
    filter: str | None
    masks: tuple[RestrictionMask, ...]
    schemas: tuple[RestrictionSchema, ...]
    examples: tuple[RestrictionExample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionContents:
    """
    What an author writes of a restriction: who reads a table in `scope` sees the rows for which `filter` is true (CEL;
    null: all), and of those the columns in `masks` masked.
    """

    scope: PolicyScope
    filter: str | None
    masks: tuple[RestrictionMask, ...]
    schemas: tuple[RestrictionSchema, ...]
    examples: tuple[RestrictionExample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionCreatedV1:
    """A restriction whose scope has no uuids; otherwise as `RestrictionCreated`."""

    TYPE: ClassVar[str] = "restriction.created"
    VERSION: ClassVar[int] = 1

    id: str
    version: int
    contents: RestrictionContentsV1
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionCreated:
    """A restriction of what readers of tables may see. `reason` is for the record, and may be empty."""

    TYPE: ClassVar[str] = "restriction.created"
    VERSION: ClassVar[int] = 2

    id: str
    version: int
    contents: RestrictionContents
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionChangedV1:
    """The restriction has these contents, whose scope has no uuids; otherwise as `RestrictionChanged`."""

    TYPE: ClassVar[str] = "restriction.changed"
    VERSION: ClassVar[int] = 1

    id: str
    version: int
    contents: RestrictionContentsV1
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionChanged:
    """The restriction has these contents from here on."""

    TYPE: ClassVar[str] = "restriction.changed"
    VERSION: ClassVar[int] = 2

    id: str
    version: int
    contents: RestrictionContents
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionRetired:
    """The restriction is no longer in force."""

    TYPE: ClassVar[str] = "restriction.retired"
    VERSION: ClassVar[int] = 1

    id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionDraftWritten:
    """
    Somebody proposes contents for the restriction `id`, which may not exist yet, or (null) to retire it.

    It takes the place of an earlier draft; its author is the actor of the entry.
    """

    TYPE: ClassVar[str] = "restriction_draft.written"
    VERSION: ClassVar[int] = 1

    id: str
    version: int
    contents: RestrictionContents | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionDraftReviewed:
    """
    A person other than the author has reviewed version `draft` of the draft, as `PolicyDraftReviewed`.

    If it was approved, the same group has the event of the restriction that it brings.
    """

    TYPE: ClassVar[str] = "restriction_draft.reviewed"
    VERSION: ClassVar[int] = 1

    id: str
    version: int
    draft: int
    verdict: ReviewVerdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRetired:
    """The policy is no longer in force. `reason` is for the record, and may be empty."""

    TYPE: ClassVar[str] = "policy.retired"
    VERSION: ClassVar[int] = 2

    id: str
    version: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRetiredV3:
    """
    The policy is no longer in force from `retired_from` on, a canonical time; until then it is.

    Nothing changes it any more, except that it may end earlier. A policy that ends at once has the version before.
    """

    TYPE: ClassVar[str] = "policy.retired"
    VERSION: ClassVar[int] = 3

    id: str
    version: int
    reason: str
    retired_from: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRuleCreatedV1:
    """An access rule whose `expression` was written when configuration shared the paths of namespaces."""

    TYPE: ClassVar[str] = "access_rule.created"
    VERSION: ClassVar[int] = 1

    id: str
    version: int
    effect: Effect
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRuleCreated:
    """
    A rule about who may do what: `expression` is CEL over the request's facts.

    Version 2 has the members of version 1. The vocabulary of the expression differs: `path`, `contentType` and `ref`
    have other values for some requests, and there are more variables.
    """

    TYPE: ClassVar[str] = "access_rule.created"
    VERSION: ClassVar[int] = 2

    id: str
    version: int
    effect: Effect
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRuleCreatedV3:
    """
    A rule that is asked about each check of a request, as Nessie's are: about its reference and about its content.

    It has the members of version 2. Rules of that version, which are created as well, are asked about requests as a
    whole.
    """

    TYPE: ClassVar[str] = "access_rule.created"
    VERSION: ClassVar[int] = 3

    id: str
    version: int
    effect: Effect
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRuleCreatedV4:
    """
    A rule whose `expression` is one policy in Cedar, of the effect that the rule has.

    It has the members of version 2, and is asked about requests as a whole, too.
    """

    TYPE: ClassVar[str] = "access_rule.created"
    VERSION: ClassVar[int] = 4

    id: str
    version: int
    effect: Effect
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRuleRetired:
    """The access rule is no longer in force."""

    TYPE: ClassVar[str] = "access_rule.retired"
    VERSION: ClassVar[int] = 1

    id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogCreated:
    """A catalog that engines reach under `id` (its alias); `options` are strings, a secret is `secret:<id>`."""

    TYPE: ClassVar[str] = "catalog.created"
    VERSION: ClassVar[int] = 1

    id: str
    version: int
    kind: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRetired:
    """The alias no longer exists."""

    TYPE: ClassVar[str] = "catalog.retired"
    VERSION: ClassVar[int] = 1

    id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCreatedV1:
    """An API key as recorded before keys could expire; otherwise as `KeyCreated`."""

    TYPE: ClassVar[str] = "key.created"
    VERSION: ClassVar[int] = 1

    id: str
    version: int
    prefix: str
    actor: str
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCreated:
    """
    An API key: only `id` and `prefix`; the argon2id hash is in the guarded row.

    `expires_at` is a canonical time, null for a key that does not expire. `issuer` is the actor that issued the key to
    this identity, so that `actor` stands for that pair only; null if `actor` is the identity's own.
    """

    TYPE: ClassVar[str] = "key.created"
    VERSION: ClassVar[int] = 2

    id: str
    version: int
    prefix: str
    actor: str
    roles: tuple[str, ...]
    expires_at: str | None
    issuer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReplaced:
    """
    The key was rotated: its holder has the key `by`, of the same group, and this one expires at `expires_at`.

    `expires_at` is a canonical time, never later than the end that the key had.
    """

    TYPE: ClassVar[str] = "key.replaced"
    VERSION: ClassVar[int] = 1

    id: str
    version: int
    by: str
    expires_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRevoked:
    """The key is no longer valid."""

    TYPE: ClassVar[str] = "key.revoked"
    VERSION: ClassVar[int] = 1

    id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChanged:
    """
    The tenant's setting `id` has this value from here on; without such an event it has its default.

    `lineage-cycles` (`LINEAGE_CYCLES`) is "refuse" (the default) or "keep": whether a lineage edge that would close a
    cycle is omitted. `policy-review` (`POLICY_REVIEW`) is "none" (the default) or "required": whether policies come
    into force only through a draft that another person approves. A reader that does not know an id or a value uses the
    default.
    """

    TYPE: ClassVar[str] = "setting.changed"
    VERSION: ClassVar[int] = 1

    id: str
    version: int
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantCreated:
    """A tenant has a log from here on; `id` is its UUID in hex. In the system log."""

    TYPE: ClassVar[str] = "tenant.created"
    VERSION: ClassVar[int] = 1

    id: str
    version: int
    name: str
