# SPDX-License-Identifier: Apache-2.0
"""
The aggregates of the control plane: immutable values, built from their events alone.

A command (`Policy.change`, `ApiKey.revoke`, …) returns an event and changes nothing; `evolve` alone applies events.
Rebuilding an aggregate from the log and folding the control plane (`plane.py`) both use it, so what is edited and what
is in force cannot differ.

An id is used once: the id of a retired policy, catalog or key is never used again, so that (type, id, version) in a
decision identifies one content for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, assert_never

from gateway.control.drafts import Draft, PolicyDraft, RestrictionDraft
from gateway.errors import ConflictError
from gateway.policy.access import EACH_CHECK, IN_CEDAR, JudgedRule
from gateway.policy.engine import ACCESS_RULE, POLICY, Program
from gateway.policy.scopes import EVERYTHING, Scope
from ledger.errors import FormatError
from ledger.format import canonical
from ledger.format.aggregates import ControlChange, key_of
from ledger.format.event import format_key
from ledger.format.events import (
    AccessRuleCreated,
    AccessRuleCreatedV1,
    AccessRuleCreatedV3,
    AccessRuleCreatedV4,
    AccessRuleRetired,
    CatalogCreated,
    CatalogRetired,
    Effect,
    KeyCreated,
    KeyCreatedV1,
    KeyReplaced,
    KeyRevoked,
    PolicyChanged,
    PolicyChangedV1,
    PolicyChangedV2,
    PolicyChangedV3,
    PolicyContents,
    PolicyContentsV1,
    PolicyContentsV2,
    PolicyCreated,
    PolicyCreatedV1,
    PolicyCreatedV2,
    PolicyCreatedV3,
    PolicyDraftReviewed,
    PolicyDraftWritten,
    PolicyDraftWrittenV1,
    PolicyDraftWrittenV2,
    PolicyExample,
    PolicyRetired,
    PolicyRetiredV1,
    PolicyRetiredV3,
    PolicyScope,
    PolicyScopeV1,
    RestrictionChanged,
    RestrictionChangedV1,
    RestrictionContents,
    RestrictionContentsV1,
    RestrictionCreated,
    RestrictionCreatedV1,
    RestrictionDraftReviewed,
    RestrictionDraftWritten,
    RestrictionRetired,
    SettingChanged,
    TenantCreated,
)

Created: TypeAlias = (
    PolicyCreatedV1
    | PolicyCreatedV2
    | PolicyCreatedV3
    | PolicyCreated
    | RestrictionCreatedV1
    | RestrictionCreated
    | AccessRuleCreated
    | AccessRuleCreatedV1
    | AccessRuleCreatedV3
    | AccessRuleCreatedV4
    | CatalogCreated
    | KeyCreatedV1
    | KeyCreated
    | TenantCreated
)
PolicyVersion: TypeAlias = (
    PolicyCreatedV1
    | PolicyCreatedV2
    | PolicyCreatedV3
    | PolicyCreated
    | PolicyChangedV1
    | PolicyChangedV2
    | PolicyChangedV3
    | PolicyChanged
)
PolicyChange: TypeAlias = PolicyChangedV1 | PolicyChangedV2 | PolicyChangedV3 | PolicyChanged
RestrictionChange: TypeAlias = RestrictionChangedV1 | RestrictionChanged
Retired: TypeAlias = (
    PolicyRetiredV1
    | PolicyRetired
    | PolicyRetiredV3
    | RestrictionRetired
    | AccessRuleRetired
    | CatalogRetired
    | KeyRevoked
)
WrittenDraft: TypeAlias = PolicyDraftWrittenV1 | PolicyDraftWrittenV2 | PolicyDraftWritten | RestrictionDraftWritten
OfDraft: TypeAlias = WrittenDraft | PolicyDraftReviewed | RestrictionDraftReviewed
AnyContents: TypeAlias = PolicyContents | PolicyContentsV1 | PolicyContentsV2
ControlEvent: TypeAlias = Created | PolicyChange | RestrictionChange | OfDraft | SettingChanged | KeyReplaced | Retired


PROGRAMS_MAX: Final = 2_048
"""Programs of policies that are kept."""


class RetiredError(ConflictError):
    """The aggregate is retired, or will be (`from_`, a time), and can no longer be changed."""

    def __init__(self, key: str, from_: datetime | None = None) -> None:
        when = "is retired" if from_ is None else f"is retired from {canonical.format_time(from_)} on"
        super().__init__(f"{key} {when} and cannot be changed: create another one", kind="RetiredException")


@lru_cache(maxsize=PROGRAMS_MAX)
def _policy_program(id_: str, version: int, expression: str) -> Program:
    """Every commit asks for the programs of all policies that apply."""
    return Program(kind=POLICY, id=id_, version=version, expression=expression)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """
    A policy on the content of commits: `expression` is CEL, a refused client receives `message`.

    It is evaluated for the commits in its `scope`. `is_template` says that fields in braces in the message stand for
    their values. It is in force from `active_from` on (None: from its entry on); until then `before` is, the version
    that it replaces (None: none is). `draft` is the version of the draft that was approved by it.

    `retired` says that this version ends the policy: at once, or, with `active_from`, at that time. Until then those
    `before` are in force as they would be without it.
    """

    KIND: ClassVar[str] = POLICY

    id: str
    version: int
    expression: str
    message: str
    scope: Scope = EVERYTHING
    examples: tuple[PolicyExample, ...] = ()
    reason: str = ""
    is_template: bool = True
    active_from: datetime | None = None
    before: Policy | None = None
    draft: int | None = None
    retired: bool = False

    def program(self) -> Program:
        """Return the program for the policy engine."""
        return _policy_program(self.id, self.version, self.expression)

    def contents(self) -> PolicyContents:
        """Return the contents as events hold them."""
        return policy_contents(
            expression=self.expression, message=self.message, scope=self.scope, examples=self.examples
        )

    def at(self, moment: datetime) -> Policy | None:
        """Return the version that is in force at a time; None if none is yet, or any more."""
        policy: Policy | None = self
        while policy is not None and policy.active_from is not None and policy.active_from > moment:
            policy = policy.before
        return None if policy is None or policy.retired else policy

    def is_over(self, moment: datetime) -> bool:
        """Return whether the policy has ended at a time, for ever."""
        return self.retired and (self.active_from is None or self.active_from <= moment)

    def change(
        self, contents: PolicyContents, *, reason: str = "", active_from: datetime | None = None
    ) -> PolicyChanged:
        """
        Return the event that changes the policy's contents, from `active_from` on (None: at once).

        Raises:
            RetiredError: if it is retired.
        """
        return PolicyChanged(
            id=self.id,
            version=_next_version(self),
            contents=contents,
            reason=reason,
            active_from=None if active_from is None else canonical.format_time(active_from),
            draft=None,
            author=None,
        )

    def retire(self, *, reason: str = "", retire_at: datetime | None = None) -> PolicyRetired | PolicyRetiredV3:
        """
        Return the event that retires the policy, from `retire_at` on (None: at once).

        Raises:
            RetiredError: if it is retired already; one that is to end at a time may end at once.
        """
        if retire_at is None:
            version = self.version + 1 if _ends_later(self) else _next_version(self)
            return PolicyRetired(id=self.id, version=version, reason=reason)
        return PolicyRetiredV3(
            id=self.id, version=_next_version(self), reason=reason, retired_from=canonical.format_time(retire_at)
        )


def policy_contents(
    *, expression: str, message: str, scope: Scope = EVERYTHING, examples: tuple[PolicyExample, ...] = ()
) -> PolicyContents:
    """
    Return contents of a policy as events hold them.
    """
    return PolicyContents(
        expression=expression,
        message=message,
        scope=_held(scope),
        examples=examples,
    )


def _held(scope: Scope) -> PolicyScope:
    """Return a scope as events hold it today."""
    return PolicyScope(
        catalogs=scope.catalogs,
        names=scope.names,
        kinds=scope.kinds,
        operations=scope.operations,
        properties=scope.properties,
        uuids=scope.uuids,
    )


def scope_of(contents: AnyContents | RestrictionContentsV1) -> Scope:
    """
    Return the scope that an event holds.
    """
    held = contents.scope
    scope = Scope(
        catalogs=held.catalogs,
        names=held.names,
        kinds=held.kinds,
        operations=held.operations,
        properties=() if isinstance(held, PolicyScopeV1) else held.properties,
        uuids=held.uuids if isinstance(held, PolicyScope) else (),
    )
    return EVERYTHING if scope == EVERYTHING else scope  # the one that judging recognises without looking into it


def _newest_form(contents: AnyContents) -> PolicyContents:
    """Return contents as they are written today."""
    if isinstance(contents, PolicyContents):
        return contents
    return policy_contents(
        expression=contents.expression,
        message=contents.message,
        scope=scope_of(contents),
        examples=contents.examples,
    )


def _restriction_contents(contents: RestrictionContents | RestrictionContentsV1) -> RestrictionContents:
    """Return contents of a restriction as they are written today."""
    if isinstance(contents, RestrictionContents):
        return contents
    return RestrictionContents(
        scope=_held(scope_of(contents)),
        filter=contents.filter,
        masks=contents.masks,
        schemas=contents.schemas,
        examples=contents.examples,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """A row filter and column masks for readers of tables; `reason` is that of this version."""

    KIND: ClassVar[str] = "restriction"

    id: str
    version: int
    contents: RestrictionContents
    reason: str = ""
    retired: bool = False

    def change(self, contents: RestrictionContents, *, reason: str) -> RestrictionChanged:
        """
        Return the event that changes the restriction's contents.

        Raises:
            RetiredError: if it is retired.
        """
        return RestrictionChanged(id=self.id, version=_next_version(self), contents=contents, reason=reason)

    def retire(self) -> RestrictionRetired:
        """
        Return the event that retires the restriction.

        Raises:
            RetiredError: if it is retired already.
        """
        return RestrictionRetired(id=self.id, version=_next_version(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """
    A rule on access: `effect` applies where `expression` holds, which is CEL, or one policy in Cedar.

    `vocabulary` is the one it was written in: the version of its event (see `gateway.policy.former`).
    """

    KIND: ClassVar[str] = ACCESS_RULE

    id: str
    version: int
    effect: Effect
    expression: str
    vocabulary: int = AccessRuleCreated.VERSION
    retired: bool = False

    def program(self) -> Program:
        """Return the program for the policy engine."""
        return self.judged().program()

    def judged(self) -> JudgedRule:
        """Return the rule as it is judged."""
        return JudgedRule(
            id=self.id,
            version=self.version,
            effect=self.effect,
            expression=self.expression,
            vocabulary=self.vocabulary,
        )

    def retire(self) -> AccessRuleRetired:
        """
        Return the event that retires the rule.

        Raises:
            RetiredError: if it is retired already.
        """
        return AccessRuleRetired(id=self.id, version=_next_version(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """A catalog; its id is the alias for engines, `kind` names the adapter."""

    KIND: ClassVar[str] = "catalog"

    id: str
    version: int
    kind: str
    options: Mapping[str, str]
    retired: bool = False

    def retire(self) -> CatalogRetired:
        """
        Return the event that retires the catalog.

        Raises:
            RetiredError: if it is retired already.
        """
        return CatalogRetired(id=self.id, version=_next_version(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """
    An API key: its actor and roles. The hashes of its secret are not in the log, only in tables.

    From `expires_at` on it is refused (None: it does not expire). `issuer` is the actor who issued it to another
    identity; None if the operator or the identity itself did. `replaced_by` is the key that its holder has instead
    (None: it was not rotated).
    """

    KIND: ClassVar[str] = "key"

    id: str
    version: int
    prefix: str
    actor: str
    roles: tuple[str, ...]
    expires_at: datetime | None = None
    issuer: str | None = None
    replaced_by: str | None = None
    retired: bool = False

    def is_expired(self, now: datetime) -> bool:
        """Return whether the key has expired."""
        return self.expires_at is not None and now >= self.expires_at

    def replace(self, *, by: str, expires_at: datetime) -> KeyReplaced:
        """
        Return the event that replaces the key by the key `by`; it expires at `expires_at`, or earlier if it did before.

        Raises:
            RetiredError: if it is revoked.
            ConflictError: if it was replaced before: the key that replaced it is the one to rotate.
        """
        version = _next_version(self)
        if self.replaced_by is not None:
            raise ConflictError(
                f"key {self.id} was rotated before: rotate {self.replaced_by}, which replaced it",
                kind="RetiredException",
            )
        end = expires_at if self.expires_at is None else min(expires_at, self.expires_at)
        return KeyReplaced(id=self.id, version=version, by=by, expires_at=canonical.format_time(end))

    def revoke(self) -> KeyRevoked:
        """
        Return the event that revokes the key.

        Raises:
            RetiredError: if it is revoked already.
        """
        return KeyRevoked(id=self.id, version=_next_version(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSetting:
    """A setting of the tenant: `value` replaces the default. It is never retired: the default is a value, too."""

    KIND: ClassVar[str] = "setting"

    id: str
    version: int
    value: str
    retired: bool = False

    def change(self, value: str) -> SettingChanged:
        """Return the event that changes the setting's value."""
        return SettingChanged(id=self.id, version=self.version + 1, value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A tenant: its id is its UUID in hex. In the system log."""

    KIND: ClassVar[str] = "tenant"

    id: str
    version: int
    name: str
    retired: bool = False


Aggregate: TypeAlias = Policy | Restriction | Draft[Any] | AccessRule | Catalog | ApiKey | TenantSetting | Tenant
A = TypeVar("A", bound=Aggregate)

CONTROL_EVENTS: Final[tuple[type[ControlEvent], ...]] = (
    PolicyCreatedV1,
    PolicyCreatedV2,
    PolicyCreatedV3,
    PolicyCreated,
    PolicyChangedV1,
    PolicyChangedV2,
    PolicyChangedV3,
    PolicyChanged,
    PolicyRetiredV1,
    PolicyRetired,
    PolicyRetiredV3,
    PolicyDraftWrittenV1,
    PolicyDraftWrittenV2,
    PolicyDraftWritten,
    PolicyDraftReviewed,
    RestrictionCreated,
    RestrictionCreatedV1,
    RestrictionChanged,
    RestrictionChangedV1,
    RestrictionRetired,
    RestrictionDraftWritten,
    RestrictionDraftReviewed,
    AccessRuleCreated,
    AccessRuleCreatedV1,
    AccessRuleCreatedV3,
    AccessRuleCreatedV4,
    AccessRuleRetired,
    CatalogCreated,
    CatalogRetired,
    KeyCreatedV1,
    KeyCreated,
    KeyReplaced,
    KeyRevoked,
    SettingChanged,
    TenantCreated,
)


def evolve(aggregate: Aggregate | None, event: ControlEvent) -> Aggregate:
    """
    Return the aggregate after `event`; `aggregate` is None before its first event.

    Raises:
        FormatError: if the event does not follow: guards admit no such event, so that is corruption.
    """
    match event:
        case (
            PolicyCreatedV1()
            | PolicyCreatedV2()
            | PolicyCreatedV3()
            | PolicyCreated()
            | RestrictionCreated()
            | RestrictionCreatedV1()
            | AccessRuleCreated()
            | AccessRuleCreatedV1()
            | AccessRuleCreatedV3()
            | AccessRuleCreatedV4()
            | CatalogCreated()
            | KeyCreatedV1()
            | KeyCreated()
            | TenantCreated()
        ):
            if aggregate is not None or event.version != 1:
                raise _out_of_order(event, aggregate)
            return _create(event)
        case (
            PolicyChangedV1()
            | PolicyChangedV2()
            | PolicyChangedV3()
            | PolicyChanged()
            | RestrictionChanged()
            | RestrictionChangedV1()
        ):
            return _changed(_before(event, aggregate), event)
        case (
            PolicyDraftWrittenV1()
            | PolicyDraftWrittenV2()
            | PolicyDraftWritten()
            | PolicyDraftReviewed()
            | RestrictionDraftWritten()
            | RestrictionDraftReviewed()
        ):
            return _draft(aggregate, event)
        case SettingChanged(id=id_, version=version, value=value):
            if version != (1 if aggregate is None else _before(event, aggregate).version + 1):
                raise _out_of_order(event, aggregate)
            return TenantSetting(id=id_, version=version, value=value)
        case KeyReplaced(version=version, by=by):
            key, end = _before(event, aggregate), canonical.parse_time(event.expires_at)
            if not isinstance(key, ApiKey) or key.replaced_by is not None:
                raise _out_of_order(event, key)
            if key.expires_at is not None and end > key.expires_at:
                raise _out_of_order(event, key)
            return replace(key, version=version, replaced_by=by, expires_at=end)
        case (
            PolicyRetiredV1()
            | PolicyRetired()
            | PolicyRetiredV3()
            | RestrictionRetired()
            | AccessRuleRetired()
            | CatalogRetired()
            | KeyRevoked()
        ):
            return _ended(_before(event, aggregate), event)
        case _:
            assert_never(event)


def project(cls: type[A]) -> Callable[[A | None, Iterable[ControlChange]], A | None]:
    """
    Return the function that folds changes, in order, into an aggregate of class `cls`.
    """

    def fold(aggregate: A | None, changes: Iterable[ControlChange]) -> A | None:
        current: Aggregate | None = aggregate
        for change in changes:
            if not isinstance(change.event, CONTROL_EVENTS):
                raise FormatError(change.originator_id, expected="events of the control plane", found=change.event)
            current = evolve(current, change.event)
        return None if current is None else expect(cls, current)

    return fold


def expect(cls: type[A], aggregate: Aggregate) -> A:
    """
    Return `aggregate` as one of class `cls`.

    Raises:
        FormatError: if it is of another.
    """
    if not isinstance(aggregate, cls):
        raise FormatError("aggregate", expected=cls.KIND, found=aggregate.KIND)
    return aggregate


def aggregate_key(cls: type[A], aggregate_id: str) -> str:
    """
    Return the event key of the aggregate of class `cls` with that id, as in `policy:no-drops`.
    """
    return format_key(cls.KIND, (aggregate_id,))


def _create(event: Created) -> Aggregate:
    match event:
        case PolicyCreatedV1() | PolicyCreatedV2() | PolicyCreatedV3() | PolicyCreated():
            return _policy(event)
        case RestrictionCreatedV1() | RestrictionCreated():
            contents = _restriction_contents(event.contents)
            return Restriction(id=event.id, version=1, contents=contents, reason=event.reason)
        case AccessRuleCreated(id=id_, effect=effect, expression=expression):
            return AccessRule(id=id_, version=1, effect=effect, expression=expression)
        case AccessRuleCreatedV1(id=id_, effect=effect, expression=expression):
            return AccessRule(id=id_, version=1, effect=effect, expression=expression, vocabulary=1)
        case AccessRuleCreatedV3(id=id_, effect=effect, expression=expression):
            return AccessRule(id=id_, version=1, effect=effect, expression=expression, vocabulary=EACH_CHECK)
        case AccessRuleCreatedV4(id=id_, effect=effect, expression=expression):
            return AccessRule(id=id_, version=1, effect=effect, expression=expression, vocabulary=IN_CEDAR)
        case CatalogCreated(id=id_, kind=kind, options=options):
            return Catalog(id=id_, version=1, kind=kind, options=options)
        case KeyCreatedV1(id=id_, prefix=prefix, actor=actor, roles=roles):
            return ApiKey(id=id_, version=1, prefix=prefix, actor=actor, roles=roles)
        case KeyCreated(id=id_, prefix=prefix, actor=actor, roles=roles, issuer=issuer):
            end = None if event.expires_at is None else canonical.parse_time(event.expires_at)
            return ApiKey(id=id_, version=1, prefix=prefix, actor=actor, roles=roles, expires_at=end, issuer=issuer)
        case TenantCreated(id=id_, name=name):
            return Tenant(id=id_, version=1, name=name)
        case _:
            assert_never(event)


def _policy(event: PolicyVersion) -> Policy:
    """Return the version of a policy that an event writes."""
    match event:
        case PolicyCreatedV1() | PolicyChangedV1():
            return Policy(
                id=event.id,
                version=event.version,
                expression=event.expression,
                message=event.message,
                is_template=False,
            )
        case (
            PolicyCreatedV2()
            | PolicyCreatedV3()
            | PolicyCreated()
            | PolicyChangedV2()
            | PolicyChangedV3()
            | PolicyChanged()
        ):
            contents = event.contents
            return Policy(
                id=event.id,
                version=event.version,
                expression=contents.expression,
                message=contents.message,
                scope=scope_of(contents),
                examples=contents.examples,
                reason=event.reason,
                active_from=None if event.active_from is None else canonical.parse_time(event.active_from),
                draft=event.draft,
            )
        case _:
            assert_never(event)


def _changed(aggregate: Aggregate, event: PolicyChange | RestrictionChange) -> Aggregate:
    """Return the policy or restriction with the contents that an event gives it."""
    match event, aggregate:
        case RestrictionChangedV1() | RestrictionChanged(), Restriction():
            contents = _restriction_contents(event.contents)
            return replace(aggregate, version=event.version, contents=contents, reason=event.reason)
        case PolicyChangedV1() | PolicyChangedV2() | PolicyChangedV3() | PolicyChanged(), Policy():
            return _changed_policy(aggregate, event)
        case _:
            raise _out_of_order(event, aggregate)


def _changed_policy(policy: Policy, event: PolicyChange) -> Policy:
    """Return the policy with another version, before which those stay that come into force earlier."""
    later = _policy(event)
    if later.active_from is None:
        return later
    return replace(later, before=_earlier(policy, later.active_from))


def _earlier(policy: Policy, moment: datetime) -> Policy | None:
    """Return the newest version that comes into force before a time, if there is one."""
    before: Policy | None = policy
    while before is not None and before.active_from is not None and before.active_from >= moment:
        before = before.before
    return before


def _ended(aggregate: Aggregate, event: Retired) -> Aggregate:
    """Return an aggregate that is retired, a policy with the reason of that, and perhaps with the time."""
    ended: Aggregate = replace(aggregate, version=event.version, retired=True)
    if not isinstance(ended, Policy) or not isinstance(aggregate, Policy):
        return ended
    match event:
        case PolicyRetiredV3(reason=reason):
            end = canonical.parse_time(event.retired_from)
            return replace(ended, reason=reason, active_from=end, before=_earlier(aggregate, end))
        case PolicyRetired(reason=reason):
            return replace(ended, reason=reason, active_from=None, before=None)
        case _:
            return replace(ended, reason="", active_from=None, before=None)


def _ends_later(aggregate: Aggregate) -> bool:
    """Return whether a policy is to end at a time, which may have come."""
    return isinstance(aggregate, Policy) and aggregate.retired and aggregate.active_from is not None


def _draft(aggregate: Aggregate | None, event: OfDraft) -> PolicyDraft | RestrictionDraft:
    """Return a draft after an event of it; `_before` sees to it that both are of one kind."""
    draft = None if aggregate is None else _before(event, aggregate)
    if isinstance(event, PolicyDraftReviewed | RestrictionDraftReviewed):
        if isinstance(draft, PolicyDraft | RestrictionDraft) and draft.pending and event.draft == draft.version:
            return draft.ended(event.version)
    elif draft is not None or event.version == 1:
        return _written(event)
    raise _out_of_order(event, aggregate)


def _written(event: WrittenDraft) -> PolicyDraft | RestrictionDraft:
    """Return the draft that an event writes."""
    if isinstance(event, RestrictionDraftWritten):
        return RestrictionDraft(id=event.id, version=event.version, contents=event.contents, reason=event.reason)
    contents = None if event.contents is None else _newest_form(event.contents)
    return PolicyDraft(id=event.id, version=event.version, contents=contents, reason=event.reason)


def _next_version(aggregate: Aggregate) -> int:
    """Return the version that a command's event gives the aggregate."""
    if aggregate.retired:
        from_ = aggregate.active_from if isinstance(aggregate, Policy) else None
        raise RetiredError(aggregate_key(type(aggregate), aggregate.id), from_)
    return aggregate.version + 1


def _before(event: ControlEvent, aggregate: Aggregate | None) -> Aggregate:
    """Return the aggregate that a later event changes, if the event follows its version."""
    ends_earlier = isinstance(event, PolicyRetired) and aggregate is not None and _ends_later(aggregate)
    if (
        aggregate is None
        or (aggregate.retired and not ends_earlier)
        or key_of(event) != aggregate_key(type(aggregate), aggregate.id)
        or event.version != aggregate.version + 1
    ):
        raise _out_of_order(event, aggregate)
    return aggregate


def _out_of_order(event: ControlEvent, aggregate: Aggregate | None) -> FormatError:
    return FormatError(f"{event.TYPE} of {key_of(event)}", expected=f"an event that follows {aggregate}", found=event)
