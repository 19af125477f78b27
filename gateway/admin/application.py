# SPDX-License-Identifier: Apache-2.0
"""
The operations that edit the control plane, for routes and commands.

Each checks its input (`limits.py`), compiles expressions, and saves events as one group of the tenant's log
(`edits.py`). What it returns is durable. If two edits of one object run at once, one of them conflicts.

The caller checks access by the tenant's rules before: `Editor.as_of` is the control index that was used, and an edit
after a newer control entry is refused as stale, exactly as a commit is. An operator at the machine (`OPERATOR`) has
access to the database anyway; no rules apply.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from gateway.admin import limits
from gateway.admin.drafted_edits import C, DraftedEdits
from gateway.admin.edits import CHANGED, EXISTS, NOT_FOUND, OPERATOR, Editor, Edits, StaleEditError
from gateway.admin.finding_reviews import FindingReviews
from gateway.admin.holding import Holding, check_local_files
from gateway.admin.key_issue import IssuedKey, KeyIssue, RotatedKey
from gateway.admin.policy_diff import DRAFT, OF_POLICY, OF_RESTRICTION, Side, diff_shown, sides
from gateway.admin.policy_edits import PolicyEdits, PolicyText, lasting
from gateway.admin.restriction_edits import RestrictionEdits
from gateway.admin.rule_import import ImportedRules, check_rules, created_event
from gateway.admin.shown import draft_shown, policy_step_shown, restriction_draft_shown, restriction_step_shown
from gateway.admin.trial import check_retirable, warnings, why_not_retirable
from gateway.admin.versions import Step, steps_of
from gateway.catalogs.catalog_places import LOCATION, claim_guards
from gateway.catalogs.registry import BUILTIN
from gateway.catalogs.upstream_files import LOCAL_FILES
from gateway.control.aggregates import (
    AccessRule,
    ApiKey,
    Catalog,
    Policy,
    Restriction,
    TenantSetting,
)
from gateway.control.drafts import Draft
from gateway.control.plane import ControlPlane
from gateway.errors import BadRequestError, ConflictError, NotFoundError
from gateway.fresh import Question
from gateway.identity.api_keys import KeyHasher
from gateway.identity.key_macs import KeyMacs
from gateway.identity.key_rows import revoke_guard
from gateway.policy.access import EACH_CHECK, IN_CEDAR
from gateway.policy.engine import PolicyEngine, Program
from gateway.policy.judging import Evaluate
from gateway.policy.restrictions.written import ReadsConditions
from gateway.policy.rule_files import RuleFile
from gateway.policy.variables import PrincipalView
from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.entry import Entry
from ledger.format.event import SYSTEM_ACTOR, derived_group_id
from ledger.format.events import (
    AccessRuleCreated,
    CatalogCreated,
    Effect,
    FindingReviewed,
    FindingVerdict,
    PolicyContents,
    RestrictionContents,
    ReviewVerdict,
    SettingChanged,
    TenantCreated,
)
from ledger.format.sequence import NO_CONTROL
from ledger.store.log_store import LendConnection, LogStore
from projections.egress.rules import EgressRules

__all__ = ["OPERATOR", "Admin", "Editor", "IssuedKey", "RotatedKey", "StaleEditError"]

T = TypeVar("T")
D = TypeVar("D", bound=Policy | Restriction)

COMPILE_TIMEOUT_S: Final = 5.0
UNREVOKED: Final = "one that was not revoked"
FIRST_RULE: Final = "first-key"
VOCABULARIES: Final = frozenset({AccessRuleCreated.VERSION, EACH_CHECK, IN_CEDAR})
"""In which new access rules may be written: that of requests, and that of each of their checks."""


class Admin:
    """
    Edits every tenant's control plane. One per process.

    `conditions` reads row filters. `lend_appender` lends connections of the appender's role (actors are made before
    anything is appended in their name), `catalog_kinds` are the names of the known adapters, `egress` says which
    addresses foreign catalogs may have, and `warehouse` is the URI of the built-in catalogs' tables.
    """

    def __init__(
        self,
        store: LogStore,
        control: ControlPlane,
        engine: PolicyEngine,
        *,
        conditions: ReadsConditions,
        lend_appender: LendConnection,
        catalog_kinds: Collection[str],
        egress: EgressRules,
        warehouse: str,
        clock: Callable[[], datetime],
        random: Callable[[int], bytes],
        macs: KeyMacs,
        hasher: KeyHasher | None = None,
    ) -> None:
        self._edits = Edits(store, clock=clock, random=random)
        self._clock = clock
        self._keys = KeyIssue(lend_appender, random=random, hasher=hasher or KeyHasher(), macs=macs)
        self._policies = PolicyEdits(self._edits, control, engine, lend=lend_appender, clock=clock)
        self._restrictions = RestrictionEdits(self._edits, control, conditions, lend=lend_appender, clock=clock)
        self._reviews = FindingReviews(self._edits, lend_appender)
        self._holding = Holding(lend_appender, self._edits, warehouse=warehouse)
        self._control = control
        self._engine = engine
        self._catalog_kinds = frozenset(catalog_kinds)
        self._egress = egress

    # Policies

    async def create_policy(
        self,
        log_id: int,
        by: Editor,
        *,
        policy_id: str,
        text: PolicyText,
        reason: str = "",
        activate_at: datetime | None = None,
    ) -> Policy:
        """
        Put a new policy in force, at once or at a time to come.

        Raises:
            BadRequestError: if a field is malformed.
            PolicyNotCompiledError: if the expression does not compile; says line and column.
            ExamplesFailedError: if an example does not hold; says which.
            ReviewRequiredError: if the tenant wants a draft, and a review of it.
            ConflictError: if there is or was a policy of that id.
            UnprocessableError: if there are too many.
            UnavailableError: if nothing could be saved now; `StaleEditError` among them.
            CommitStateUnknownError: if it may or may not have been saved.
        """
        return await self._policies.create(log_id, by, policy_id, text, reason=reason, activate_at=activate_at)

    async def change_policy(
        self,
        log_id: int,
        by: Editor,
        *,
        policy_id: str,
        text: PolicyText,
        reason: str = "",
        activate_at: datetime | None = None,
        version: int | None = None,
    ) -> Policy:
        """
        Change the contents of a policy, all of them; with `version`, only if that is its newest version.

        Raises as `create_policy`, and:
            NotFoundError: if there is none of that id.
            ConflictError: if it is retired, or was changed meanwhile.
        """
        return await self._policies.change(
            log_id, by, policy_id, text, reason=reason, activate_at=activate_at, version=version
        )

    async def retire_policy(
        self, log_id: int, by: Editor, *, policy_id: str, reason: str = "", retire_at: datetime | None = None
    ) -> Policy:
        """
        Retire a policy, at once or at a time to come, until which it is in force. One that is to end then can only be
        made to end at once. Raises as `change_policy`.
        """
        return await self._policies.retire(log_id, by, policy_id, reason=reason, retire_at=retire_at)

    async def list_policies(self, log_id: int) -> tuple[Policy, ...]:
        """
        Return the policies that are not retired, oldest first, each in its newest version.

        That one may come into force later, or end the policy: `Policy.at` returns the one in force at a time.
        """
        return tuple(lasting(await self._control.current(log_id), self._clock()).values())

    async def get_policy(self, log_id: int, *, policy_id: str) -> Policy:
        """
        Return a policy that is not retired, as `list_policies` does.

        Raises:
            NotFoundError: if there is none of that id.
        """
        return _one(lasting(await self._control.current(log_id), self._clock()), policy_id, what="policy")

    async def policy_versions(self, log_id: int, *, policy_id: str) -> tuple[Step[Policy], ...]:
        """
        Return every version that a policy has had, also of one that is retired, oldest first.

        Raises:
            NotFoundError: if the log has none of that id.
            UnavailableError: if the log cannot be read.
        """
        return await self._policies.steps(log_id, policy_id)

    async def check_policy(self, log_id: int, text: PolicyText) -> None:
        """
        Check contents of a policy as they are when they are saved; nothing is saved.

        Raises:
            BadRequestError: if a text is malformed.
            PolicyNotCompiledError: if the expression does not compile; says line and column.
            ExamplesFailedError: if an example does not hold; says which.
            PolicyEngineError: if the engine gave no answer.
        """
        await self._policies.checked(log_id, text)

    async def draft_policy(
        self,
        log_id: int,
        by: Editor,
        *,
        policy_id: str,
        text: PolicyText | None,
        reason: str = "",
        version: int | None = None,
        policy_version: int | None = None,
    ) -> Draft[PolicyContents]:
        """
        Propose contents for a policy, which may not exist yet, or (None) to retire it; nothing is in force by that.

        It takes the place of an earlier draft; with `version`, only of that one (0: only if none waits). With
        `policy_version`, only if that is the newest version of the policy (0: only if there is none).

        Raises as `create_policy`, and:
            NotFoundError: if it is to retire a policy that does not exist.
            RetiredError: if the policy is retired.
            ConflictError: if draft or policy was changed meanwhile.
        """
        return await self._policies.draft(
            log_id, by, policy_id, text, reason=reason, version=version, thing_version=policy_version
        )

    async def review_policy(
        self,
        log_id: int,
        by: Editor,
        *,
        policy_id: str,
        version: int,
        verdict: ReviewVerdict,
        reason: str = "",
        activate_at: datetime | None = None,
    ) -> Policy | None:
        """
        Approve the draft of that version, which brings it into force, at once or at a time to come; or refuse it.

        Only another person than the author can approve it (`two_persons.py`). Returns the policy; None if refused.

        Raises as `change_policy`, and:
            NotFoundError: if no draft of the policy waits for a review.
            NotAnotherPersonError: if `by` is the author, or may be.
        """
        return await self._policies.review(
            log_id, by, policy_id, version=version, verdict=verdict, reason=reason, activate_at=activate_at
        )

    async def list_drafts(self, log_id: int) -> tuple[Draft[PolicyContents], ...]:
        """Return the drafts that wait for a review, in order of the first draft of each policy."""
        return self._policies.all_waiting(await self._control.current(log_id))

    async def get_draft(self, log_id: int, *, policy_id: str) -> Draft[PolicyContents]:
        """
        Return the draft of a policy that waits for a review.

        Raises:
            NotFoundError: if there is none.
        """
        return self._policies.waiting(await self._control.current(log_id), policy_id)

    async def draft_author(self, log_id: int, draft: Draft[PolicyContents]) -> str:
        """Return the actor who wrote a draft."""
        return await self._policies.author(log_id, draft.id, draft.version)

    async def diff_policy(
        self, log_id: int, *, policy_id: str, older: str | None = None, newer: str | None = None
    ) -> dict[str, Any]:
        """
        Return what differs between two versions of a policy, or its newest one and its draft (`policy_diff.py`).

        Raises as `policy_versions` and `policy_diff.sides`.
        """
        return await self._diff(
            self._policies,
            log_id,
            policy_id,
            older=older,
            newer=newer,
            members=OF_POLICY,
            step_shown=policy_step_shown,
            shown=draft_shown,
        )

    # Restrictions

    async def create_restriction(
        self, log_id: int, by: Editor, *, restriction_id: str, members: Mapping[str, Json], reason: str = ""
    ) -> Restriction:
        """
        Save a new restriction, given its `members` as an author writes them. Reads do not enforce it yet.

        Raises as `create_policy`, and:
            RestrictionRefusedError: if it cannot become what Iceberg's readers take, for one of its schemas.
        """
        return await self._restrictions.create(log_id, by, restriction_id, members, reason=reason)

    async def change_restriction(
        self,
        log_id: int,
        by: Editor,
        *,
        restriction_id: str,
        members: Mapping[str, Json],
        reason: str = "",
        version: int | None = None,
    ) -> Restriction:
        """
        Change the contents of a restriction, all of them; with `version`, only if that is its newest version.

        Raises as `create_restriction` and `change_policy`.
        """
        return await self._restrictions.change(log_id, by, restriction_id, members, reason=reason, version=version)

    async def retire_restriction(self, log_id: int, by: Editor, *, restriction_id: str) -> Restriction:
        """Retire a restriction. Raises as `change_policy`."""
        return await self._restrictions.retire(log_id, by, restriction_id)

    async def list_restrictions(self, log_id: int) -> tuple[Restriction, ...]:
        """Return the restrictions that are not retired, oldest first."""
        return tuple((await self._control.current(log_id)).restrictions.values())

    async def get_restriction(self, log_id: int, *, restriction_id: str) -> Restriction:
        """
        Return a restriction that is not retired.

        Raises:
            NotFoundError: if there is none of that id.
        """
        return _one((await self._control.current(log_id)).restrictions, restriction_id, what="restriction")

    async def draft_restriction(
        self,
        log_id: int,
        by: Editor,
        *,
        restriction_id: str,
        members: Mapping[str, Json] | None,
        reason: str = "",
        version: int | None = None,
    ) -> Draft[RestrictionContents]:
        """
        Propose contents for a restriction, which may not exist yet, or (None) to retire it.

        It takes the place of an earlier draft; with `version`, only of that one (0: only if none waits). Raises as
        `create_restriction` and `draft_policy`.
        """
        return await self._restrictions.draft(log_id, by, restriction_id, members, reason=reason, version=version)

    async def review_restriction(
        self,
        log_id: int,
        by: Editor,
        *,
        restriction_id: str,
        version: int,
        verdict: ReviewVerdict,
        reason: str = "",
    ) -> Restriction | None:
        """
        Approve the draft of that version, which saves it, or refuse it. Returns the restriction; None if refused.

        Raises as `create_restriction` and `review_policy`.
        """
        return await self._restrictions.review(
            log_id, by, restriction_id, version=version, verdict=verdict, reason=reason
        )

    async def list_restriction_drafts(self, log_id: int) -> tuple[Draft[RestrictionContents], ...]:
        """Return the drafts that wait for a review, in order of the first draft of each restriction."""
        return self._restrictions.all_waiting(await self._control.current(log_id))

    async def get_restriction_draft(self, log_id: int, *, restriction_id: str) -> Draft[RestrictionContents]:
        """
        Return the draft of a restriction that waits for a review.

        Raises:
            NotFoundError: if there is none.
        """
        return self._restrictions.waiting(await self._control.current(log_id), restriction_id)

    async def restriction_draft_author(self, log_id: int, draft: Draft[RestrictionContents]) -> str:
        """Return the actor who wrote a draft."""
        return await self._restrictions.author(log_id, draft.id, draft.version)

    async def restriction_versions(self, log_id: int, *, restriction_id: str) -> tuple[Step[Restriction], ...]:
        """
        Return every version that a restriction has had, also of one that is retired, oldest first.

        Raises:
            NotFoundError: if the log has none of that id.
            UnavailableError: if the log cannot be read.
        """
        return await self._restrictions.steps(log_id, restriction_id)

    async def diff_restriction(
        self, log_id: int, *, restriction_id: str, older: str | None = None, newer: str | None = None
    ) -> dict[str, Any]:
        """
        Return what differs between two versions of a restriction, or its newest one and its draft (`policy_diff.py`).

        Raises as `restriction_versions` and `policy_diff.sides`.
        """
        return await self._diff(
            self._restrictions,
            log_id,
            restriction_id,
            older=older,
            newer=newer,
            members=OF_RESTRICTION,
            step_shown=restriction_step_shown,
            shown=restriction_draft_shown,
        )

    async def _diff(
        self,
        edits: DraftedEdits[D, Any, C],
        log_id: int,
        id_: str,
        *,
        older: str | None,
        newer: str | None,
        members: tuple[str, ...],
        step_shown: Callable[[Step[D]], Mapping[str, Any]],
        shown: Callable[[Draft[C]], Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Return what differs between two versions of a thing, or one and its draft, given how each is shown."""
        draft = edits.drafts(await self._control.current(log_id)).get(id_)
        pending = draft if draft is not None and draft.pending else None
        steps: tuple[Step[D], ...] = ()
        try:
            steps = await edits.steps(log_id, id_)
        except NotFoundError:
            if pending is None:
                raise  # else it is drafted, and was never in force
        waiting = None if pending is None else Side(label=DRAFT, contents=shown(pending))
        versions = {step.thing.version: step_shown(step) for step in steps}
        return diff_shown(*sides(versions, waiting, older=older, newer=newer), members=members)

    # Access rules

    async def create_access_rule(
        self,
        log_id: int,
        by: Editor,
        *,
        rule_id: str,
        effect: str,
        expression: str,
        vocabulary: int = AccessRuleCreated.VERSION,
    ) -> AccessRule:
        """
        Put a new access rule in force; its `vocabulary` is one of `VOCABULARIES`. Raises as `create_policy`, and:
            LockedOutError: if its author, unless it is the operator, could not retire it again.
        """
        limits.check_id(rule_id)
        if effect not in set(Effect):
            raise BadRequestError(f"expected one of {', '.join(Effect)}, found {effect!r:.80}", field="effect")
        if vocabulary not in VOCABULARIES:
            raise BadRequestError(f"expected one of {sorted(VOCABULARIES)}, found {vocabulary}", field="vocabulary")
        limits.check_room((await self._control.current(log_id)).access_rules, "access rules")
        rule = AccessRule(id=rule_id, version=1, effect=Effect(effect), expression=expression, vocabulary=vocabulary)
        await self._check_expression(log_id, expression, kind=rule.program().judged_as)
        # The state may be newer than `as_of`: then the save is stale, and all of this is repeated.
        in_force = (await self._control.current(log_id)).access_rules.values()
        await self._check_retirable(log_id, by, in_force, [rule])
        await self._edits.create(log_id, by, created_event(rule))
        return rule

    async def import_access_rules(
        self, log_id: int, by: Editor, file: RuleFile, *, is_trial: bool = False
    ) -> ImportedRules:
        """
        Put the rules of a file in force, all of them in one group of the log; with `is_trial`, only check that.

        Raises as `rule_import.check_rules` and `create_access_rule`.
        """

        async def compile_(expression: str, kind: str) -> None:
            await self._check_expression(log_id, expression, kind=kind)

        in_force = (await self._control.current(log_id)).access_rules
        imported = await check_rules(file, in_force, compile_)
        # Those that permit lock out nobody.
        permitting = [rule for rule in imported.created if rule.effect is Effect.PERMIT]
        forbidding = [rule for rule in imported.created if rule.effect is Effect.FORBID]
        await self._check_retirable(log_id, by, [*in_force.values(), *permitting], forbidding)
        if imported.created and not is_trial:
            await self._edits.create(log_id, by, *map(created_event, imported.created))
        return imported

    async def retire_access_rule(self, log_id: int, by: Editor, *, rule_id: str) -> AccessRule:
        """Retire an access rule. Raises as `change_policy`."""
        limits.check_id(rule_id)
        return await self._edits.change(AccessRule, log_id, by, rule_id, AccessRule.retire)

    async def list_access_rules(self, log_id: int) -> tuple[AccessRule, ...]:
        """Return the access rules in force, oldest first."""
        return tuple((await self._control.current(log_id)).access_rules.values())

    async def get_access_rule(self, log_id: int, *, rule_id: str) -> AccessRule:
        """
        Return an access rule in force.

        Raises:
            NotFoundError: if there is none of that id.
        """
        return _one((await self._control.current(log_id)).access_rules, rule_id, what="access rule")

    async def access_rule_versions(self, log_id: int, *, rule_id: str) -> tuple[Step[AccessRule], ...]:
        """
        Return what the log has of an access rule, oldest first: that it was put in force, and that it was retired.

        Raises:
            NotFoundError: if the log has none of that id.
            UnavailableError: if the log cannot be read.
        """
        limits.check_id(rule_id)
        entries = await self._edits.entries(AccessRule, log_id, rule_id)
        if not entries:
            raise NotFoundError(f"access rule {rule_id!r:.80}: expected one in the log, found none", kind=NOT_FOUND)
        return steps_of(AccessRule, entries)

    async def access_rule_step(self, log_id: int, *, rule_id: str) -> Step[AccessRule]:
        """
        Return an access rule in force, with who put it in force, and when.

        Raises:
            NotFoundError: if there is none of that id.
            UnavailableError: if the log cannot be read.
        """
        rule = await self.get_access_rule(log_id, rule_id=rule_id)
        return (await self.access_rule_versions(log_id, rule_id=rule.id))[0]

    async def access_rule_steps(self, log_id: int) -> tuple[Step[AccessRule], ...]:
        """
        Return the access rules in force, oldest first, each with who put it in force, and when.

        Raises:
            UnavailableError: if the log cannot be read.
        """
        rules = await self.list_access_rules(log_id)
        by_key: dict[str, list[Entry]] = {}
        for entry in await self._edits.entries_of(AccessRule, log_id, [rule.id for rule in rules]):
            by_key.setdefault(entry.key, []).append(entry)
        newest = [steps_of(AccessRule, entries)[-1] for entries in by_key.values()]
        return tuple(step for step in newest if not step.thing.retired)  # one may have been retired meanwhile

    async def warnings(self, log_id: int, program: Program, *, effect: Effect | None = None) -> tuple[str, ...]:
        """
        Return warnings for the author of a policy or an access rule: on which inputs it fails, and why; `effect` is
        that of a rule.
        """
        return await warnings(self._judge(log_id), program, effect=effect)

    async def is_retirable_by_a_key(self, log_id: int, *, rule_id: str) -> bool:
        """
        Return whether the holder of some key in force could retire an access rule.

        Raises:
            UnavailableError: if that could not be judged.
        """
        state, judge = await self._control.current(log_id), self._judge(log_id)
        rules = [rule.judged() for rule in state.access_rules.values()]
        keys = [key for key in state.keys.values() if not key.is_expired(self._clock())]
        for actor, roles in dict.fromkeys((key.actor, key.roles) for key in keys):
            caller = PrincipalView(actor=actor, source="api_key", roles=roles)
            if await why_not_retirable(judge, rules, rule_id, caller, timeout_s=COMPILE_TIMEOUT_S) is None:
                return True
        return False

    # Catalogs

    async def create_catalog(
        self, log_id: int, by: Editor, *, alias: str, kind: str, options: Mapping[str, object]
    ) -> Catalog:
        """
        Register a catalog under `alias`.

        Raises as `create_policy` (`kind` must be a known adapter), and:
            LookAlikeNameError: if the alias is confusable with another one in force.
            PlaceTakenError: if its option `location` overlaps a place of another tenant.
            ForbiddenError: if a built-in catalog is to have a location, or a foreign one files of this machine, and
                `by` is not the operator.
        """
        limits.check_id(alias, field="alias")
        if kind not in self._catalog_kinds:
            raise BadRequestError(f"expected one of {sorted(self._catalog_kinds)}, found {kind!r:.80}", field="kind")
        checked = limits.check_catalog_options(kind, options, self._egress)
        in_force = (await self._control.current(log_id)).catalogs
        limits.check_room(in_force, "catalogs")
        limits.check_unlike(alias, in_force, field="alias")
        location = checked.get(LOCATION)
        if location is not None and kind == BUILTIN:
            self._holding.check_own(location, by)
        if LOCAL_FILES in checked:
            check_local_files(by)
        event = CatalogCreated(id=alias, version=1, kind=kind, options=checked)
        if location is None:
            await self._edits.create(log_id, by, event)
        else:
            await self._holding.check_free(log_id, location)
            try:
                await self._edits.create(log_id, by, event, guard=claim_guards(alias, location))
            except ConflictError:
                # Perhaps the place was taken meanwhile, not the alias.
                await self._holding.check_free(log_id, location)
                raise
        return Catalog(id=alias, version=1, kind=kind, options=checked)

    async def retire_catalog(self, log_id: int, by: Editor, *, alias: str) -> Catalog:
        """Retire a catalog; its alias cannot be used again. Raises as `change_policy`."""
        limits.check_id(alias, field="alias")
        return await self._edits.change(Catalog, log_id, by, alias, Catalog.retire)

    async def list_catalogs(self, log_id: int) -> tuple[Catalog, ...]:
        """Return the catalogs in force, oldest first."""
        return tuple((await self._control.current(log_id)).catalogs.values())

    async def get_catalog(self, log_id: int, *, alias: str) -> Catalog:
        """
        Return a catalog in force.

        Raises:
            NotFoundError: if there is none of that alias.
        """
        return _one((await self._control.current(log_id)).catalogs, alias, what="catalog", expected="an alias in force")

    async def transfer_place(self, *, giver: int, taker: int, by: Editor, place: str) -> None:
        """
        Move a place from the tenant of the log `giver` to the tenant of the log `taker`.

        Safe to repeat after a crash in between: a place that the giver no longer holds is granted to the taker.

        Raises as `release_place` and `grant_place`, and:
            BadRequestError: if both are the same tenant.
        """
        if giver == taker:
            raise BadRequestError("expected two tenants, found one twice", field="place")
        await self.release_place(giver, by, place=place)
        await self.grant_place(taker, by, place=place)

    async def release_place(self, log_id: int, by: Editor, *, place: str) -> bool:
        """
        Release a place, and all below it, that a tenant holds; False if it holds none of them.

        Raises as `create_policy`, and:
            BadRequestError: if it is not a place.
            ConflictError: if a catalog of the tenant is in force there, or the tenant holds a larger place.
        """
        return await self._holding.release(log_id, by, place=place, state=await self._control.current(log_id))

    async def grant_place(self, log_id: int, by: Editor, *, place: str) -> None:
        """
        Grant a place to a tenant, as if it had been the first to register a catalog for it.

        Raises as `create_policy`, and:
            BadRequestError: if it is not a place.
            PlaceTakenError: if another tenant holds one that overlaps it.
            ConflictError: if it was granted to this tenant already.
        """
        await self._holding.grant(log_id, by, place=place)

    # Settings

    async def review_finding(
        self,
        log_id: int,
        by: Editor,
        *,
        finding: int,
        key: str,
        verdict: FindingVerdict,
        reason: str,
        version: int | None = None,
    ) -> FindingReviewed:
        """
        Say of the finding at an index of a log that it is real, or none; `key` is the present key of its table.

        Raises as `FindingReviews.review`.
        """
        return await self._reviews.review(
            log_id, by, finding=finding, key=key, verdict=verdict, reason=reason, version=version
        )

    async def change_setting(
        self, log_id: int, by: Editor, *, setting_id: str, value: str, version: int | None = None
    ) -> TenantSetting:
        """
        Change a setting of the tenant; with `version`, only if that is its current version (0: its default).

        Raises as `create_policy`, and:
            ConflictError: if it was changed meanwhile.
        """
        limits.check_setting(setting_id, value)
        current = (await self._control.current(log_id)).settings.get(setting_id)
        found = 0 if current is None else current.version
        if version is not None and found != version:
            raise ConflictError(f"setting {setting_id}: expected version {version}, found {found}", kind=CHANGED)
        if current is not None:
            return await self._edits.change(
                TenantSetting, log_id, by, setting_id, lambda setting: setting.change(value)
            )
        await self._edits.create(log_id, by, SettingChanged(id=setting_id, version=1, value=value))
        return TenantSetting(id=setting_id, version=1, value=value)

    async def list_settings(self, log_id: int) -> tuple[TenantSetting, ...]:
        """Return every setting of the tenant; one that was never changed has version 0 and its default."""
        changed = (await self._control.current(log_id)).settings
        return tuple(
            changed.get(setting_id, TenantSetting(id=setting_id, version=0, value=values[0]))
            for setting_id, values in limits.KNOWN_SETTINGS.items()
        )

    async def get_setting(self, log_id: int, *, setting_id: str) -> TenantSetting:
        """
        Return a setting of the tenant, as `list_settings` does.

        Raises:
            NotFoundError: if there is no such setting.
        """
        for setting in await self.list_settings(log_id):
            if setting.id == setting_id:
                return setting
        known = ", ".join(limits.KNOWN_SETTINGS)
        raise NotFoundError(f"setting {setting_id!r:.80}: expected one of {known}, found none", kind=NOT_FOUND)

    # Keys and tenants

    async def create_key(
        self,
        log_id: int,
        by: Editor,
        *,
        identity: str,
        roles: Sequence[str],
        expires_at: datetime | None = None,
    ) -> IssuedKey:
        """
        Issue an API key to an identity, in force until `expires_at`, at most as long as the key or token that it is
        issued with.
        Raises as `create_policy`.

        All keys that one issuer gives to an identity share an actor: what is permitted to the actor is permitted to all
        of them. Keys that the operator or the identity itself issues have the identity's own actor. Keys of other
        issuers have a different actor, and never count as the identity itself.
        """
        limits.check_text(identity, field="identity", length_max=limits.IDENTITY_LENGTH_MAX)
        checked = limits.check_roles(roles)
        in_force = (await self._control.current(log_id)).keys
        limits.check_room(in_force, "keys")
        end = self._checked_end(expires_at, by, in_force)
        issue = await self._keys.mint(log_id, by=by.actor, identity=identity, roles=checked, expires_at=end)
        self._check_holder_room(issue.key, in_force.values())
        await self._edits.create(log_id, by, issue.event, guard=issue.guards)
        return issue.key

    async def rotate_key(
        self,
        log_id: int,
        by: Editor,
        *,
        key_id: str,
        expires_at: datetime | None = None,
        overlap: timedelta = limits.OVERLAP,
    ) -> RotatedKey:
        """
        Issue another key to the holder of a key, with the same actor and roles, and end the old one, in one group.

        The new key ends at `expires_at`, or when the old one would have. The old one ends after `overlap`, or when it
        would have; without an overlap it is revoked at once.

        Raises as `create_key` and `change_policy`, and:
            BadRequestError: if the overlap is not of its bounds, or the key has expired and `expires_at` is None.
            ConflictError: if it was rotated before, its holder was erased, or the new key would have another actor.
        """
        limits.check_id(key_id)
        limits.check_overlap(overlap)
        state = await self._control.current(log_id)
        key = _one(state.keys, key_id, what="key", expected=UNREVOKED)
        limits.check_room(state.keys, "keys")
        if expires_at is None and key.is_expired(self._clock()):
            raise BadRequestError(f"key {key_id} has expired: name when the new one shall", field="expires_at")
        identity = await self.holder_of(log_id, key)
        if identity is None:
            raise ConflictError(f"the holder of key {key_id} was erased: issue no other key", kind=EXISTS)
        if not _keeps_actor(key, by):
            raise ConflictError(
                f"key {key_id} was issued by {key.issuer or 'the operator or its holder'}, and a key of anybody else's "
                "has another actor, which the rules may treat otherwise: let its issuer or its holder rotate it",
                kind=EXISTS,
            )
        end = self._checked_end(expires_at or key.expires_at, by, state.keys)
        issue = await self._keys.mint(log_id, by=by.actor, identity=identity, roles=key.roles, expires_at=end)
        self._check_holder_room(issue.key, [each for each in state.keys.values() if overlap or each.id != key_id])
        replaced = key.replace(by=issue.key.id, expires_at=self._clock() + overlap)
        if overlap:
            await self._edits.together(log_id, by, issue.event, replaced, guard=issue.guards)
            replaced_ends_at = canonical.parse_time(replaced.expires_at)
            return RotatedKey(key=issue.key, replaced=key_id, replaced_ends_at=replaced_ends_at)
        await self._edits.together(log_id, by, issue.event, key.revoke(), guard=(*issue.guards, revoke_guard(key_id)))
        return RotatedKey(key=issue.key, replaced=key_id, replaced_ends_at=None)

    async def holder_of(self, log_id: int, key: ApiKey) -> str | None:
        """Return the identity that a key stands for, None if it was erased."""
        _, fresh = await self._control.current_for(log_id, Question(log_id=log_id, actor=key.actor))
        return fresh.identity

    async def holders_of(self, log_id: int, keys: Iterable[ApiKey]) -> dict[str, str]:
        """Return the identities that keys stand for, by actor, of those that were not erased."""
        return await self._keys.holders(log_id, {key.actor for key in keys})

    async def revoke_key(self, log_id: int, by: Editor, *, key_id: str) -> ApiKey:
        """Revoke a key, everywhere and at once; its hash is deleted. Raises as `change_policy`."""
        limits.check_id(key_id)
        return await self._edits.change(ApiKey, log_id, by, key_id, ApiKey.revoke, guard=(revoke_guard(key_id),))

    async def get_key(self, log_id: int, *, key_id: str) -> ApiKey:
        """
        Return a key that was not revoked.

        Raises:
            NotFoundError: if there is none of that id.
        """
        return _one((await self._control.current(log_id)).keys, key_id, what="key", expected=UNREVOKED)

    async def list_keys(self, log_id: int) -> tuple[ApiKey, ...]:
        """Return the keys in force, oldest first."""
        return tuple((await self._control.current(log_id)).keys.values())

    async def found_tenant(
        self, log_id: int, *, system_log_id: int, tenant: UUID, name: str, identity: str, roles: Sequence[str] = ()
    ) -> IssuedKey:
        """
        Append the first entries of a tenant, whose log exists and is empty, and issue its first key to `identity`.

        The system log records the tenant first, with an id derived from the tenant's, so that a call after a crash in
        between continues. The tenant's first group has the key and one access rule, which permits the key's actor
        everything (also keys for anyone, with any roles); from then on the rules decide.

        Raises as `create_policy`, and:
            ConflictError: if the tenant exists already, or has another name.
        """
        tenants = (await self._control.current(system_log_id)).tenants
        limits.check_tenant_name(name, [other.name for other in tenants.values()])
        limits.check_text(identity, field="identity", length_max=limits.IDENTITY_LENGTH_MAX)
        checked = limits.check_roles(roles)
        group_id = derived_group_id("tenant.created", {"id": tenant.hex})
        tenant_created = TenantCreated(id=tenant.hex, version=1, name=name)
        await self._edits.create(system_log_id, OPERATOR, tenant_created, group_id=group_id)
        issue = await self._keys.mint(log_id, by=OPERATOR.actor, identity=identity, roles=checked, expires_at=None)
        # A key may grant only what its issuer has, unless a rule names the fields of `grant`; these always exist.
        permits = f'actor == "{issue.key.actor}" && has(grant.identity) && has(grant.roles)'
        rule = AccessRuleCreated(id=FIRST_RULE, version=1, effect=Effect.PERMIT, expression=permits)
        try:
            await self._edits.create(log_id, replace(OPERATOR, as_of=NO_CONTROL), rule, issue.event, guard=issue.guards)
        except StaleEditError as error:
            raise ConflictError(f"tenant {tenant} is founded already", kind=EXISTS) from error
        return issue.key

    def _checked_end(self, expires_at: datetime | None, by: Editor, keys: Mapping[str, ApiKey]) -> datetime | None:
        """Return when a new key ends: not after the key or token that it is issued with."""
        end = limits.check_expiry(expires_at, now=self._clock())
        if by.key_id is not None and (own := keys.get(by.key_id)) is not None:
            limits.check_outlived(end, by=own.expires_at)
        limits.check_outlived(end, by=by.ends_at)
        return end

    def _check_holder_room(self, new: IssuedKey, keys: Iterable[ApiKey]) -> None:
        """Check that the actor of `new` may have one key more beside those of `keys` that are in force."""
        now = self._clock()
        limits.check_holder_room(sum(key.actor == new.actor and not key.is_expired(now) for key in keys))

    def _judge(self, log_id: int) -> Evaluate:
        return partial(self._engine.judge, log_id=log_id)

    async def _check_retirable(
        self, log_id: int, by: Editor, in_force: Iterable[AccessRule], new: Sequence[AccessRule]
    ) -> None:
        """Check that the author of new rules, unless it is the operator, could retire each of them again."""
        if by.as_of is None:
            return
        rules = [one.judged() for one in (*in_force, *new)]
        caller = by.caller or PrincipalView(actor=by.actor, source="")
        for rule in rules[len(rules) - len(new) :]:
            await check_retirable(self._judge(log_id), rules, rule, caller, timeout_s=COMPILE_TIMEOUT_S)

    async def _check_expression(self, log_id: int, expression: str, *, kind: str) -> None:
        limits.check_expression(expression)
        await self._engine.check(expression, log_id=log_id, timeout_s=COMPILE_TIMEOUT_S, kind=kind)


def _one(things: Mapping[str, T], id_: str, *, what: str, expected: str = "one in force") -> T:
    """Return one of those in force. Raises NotFoundError if there is none of that id."""
    found = things.get(id_)
    if found is None:
        raise NotFoundError(f"{what} {id_!r:.80}: expected {expected}, found none", kind=NOT_FOUND)
    return found


def _keeps_actor(key: ApiKey, by: Editor) -> bool:
    """Whether a key that `by` issues to the holder of `key` has the same actor (see `actor_for`)."""
    if by.actor == SYSTEM_ACTOR:
        return key.issuer is None
    return by.actor in {key.actor, key.issuer}
