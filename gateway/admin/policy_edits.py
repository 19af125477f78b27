# SPDX-License-Identifier: Apache-2.0
"""
The life of a policy: written, perhaps drafted and reviewed, in force from a time on, changed, retired.

Guarantee: what comes into force compiles, its message can be filled, and its examples hold, all checked in the call
that brings it into force. Where the tenant's setting `policy-review` is `required`, every change of what is in force,
the end of a policy too, was written by one person and approved by another, and both are entries of the log.

Without that setting drafts can be written all the same, and they take another person's approval, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final, Protocol, TypeVar
from uuid import UUID

from gateway.admin import limits
from gateway.admin.edits import NOT_FOUND, Editor, Edits, check_newest, check_version
from gateway.admin.two_persons import check_two_persons
from gateway.control.aggregates import Policy, PolicyDraft, RetiredError, evolve, expect, policy_contents
from gateway.control.plane import ControlPlane, ControlState, parse_control_event
from gateway.errors import BadRequestError, ForbiddenError, NotFoundError, UnprocessableError
from gateway.policy.engine import POLICY, PolicyEngine
from gateway.policy.examples import Example, failing, given_text, parse_given
from gateway.policy.judging import Evaluate
from gateway.policy.policy_files import PolicyFile
from gateway.policy.scopes import EVERYTHING, Scope
from ledger.format import canonical
from ledger.format.entry import Entry
from ledger.format.events import (
    POLICY_REVIEW,
    PolicyChanged,
    PolicyContents,
    PolicyCreated,
    PolicyDraftReviewed,
    PolicyDraftWritten,
    PolicyDraftWrittenV1,
    PolicyDraftWrittenV2,
    PolicyExample,
    PolicyExpectation,
    PolicyRetired,
    PolicyRetiredV3,
    PolicyReview,
    RestrictionDraftReviewed,
    RestrictionDraftWritten,
    ReviewVerdict,
)
from ledger.store.log_store import LendConnection

CHECK_TIMEOUT_S: Final = 5.0
EXAMPLES_TIMEOUT_S: Final = 10.0
SENTENCES_MAX: Final = 10
"""Examples that a refusal names."""
COMING_MAX: Final = 8
"""Versions of one policy that wait for their time."""
TIMES_MAX: Final = 64
"""Versions with a time, come or not, behind the newest without one: which of them is in force depends on the time."""
ACTIVATE_AT: Final = "activate_at"
RETIRE_AT: Final = "retire_at"
_WRITTEN: Final = (PolicyDraftWrittenV1, PolicyDraftWrittenV2, PolicyDraftWritten, RestrictionDraftWritten)


class ExamplesFailedError(UnprocessableError):
    """A policy does not say of its examples what they expect; `sentences` has all of them. Nothing was saved."""

    kind = "ExamplesFailedException"

    def __init__(self, sentences: tuple[str, ...]) -> None:
        more = f"; and {len(sentences) - SENTENCES_MAX} more" if len(sentences) > SENTENCES_MAX else ""
        super().__init__("; ".join(sentences[:SENTENCES_MAX]) + more)
        self.sentences = sentences


class ReviewRequiredError(ForbiddenError):
    """The tenant lets policies and restrictions come, change and end only through a draft that was approved."""

    kind = "ReviewRequiredException"

    def __init__(self, what: str, id_: str, *, commands: str) -> None:
        super().__init__(
            f"{what} {id_}: nothing was changed, since this tenant's setting {POLICY_REVIEW} is "
            f"{PolicyReview.REQUIRED}: write a draft (`lakeproof {commands} draft`, or PUT "
            f"/v1/{what}-drafts/{id_}), and let another person approve it (`lakeproof {commands} review`)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyText:
    """What an author writes; `scope` and `examples` are what `parse_scope` and `parse_examples` returned."""

    expression: str
    message: str
    scope: Scope = EVERYTHING
    examples: tuple[Example, ...] = ()


def text_of(file: PolicyFile) -> PolicyText:
    """
    Return what the author of a policy file has written.
    """
    return PolicyText(expression=file.expression, message=file.message, scope=file.scope, examples=file.examples)


class Step(Protocol):
    """One version of what people edit."""

    @property
    def version(self) -> int:
        """Its number."""
        ...


S = TypeVar("S", bound=Step)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStep:
    """
    One version of a policy as the log has it: `policy` is None where it was retired.

    It counts from `active_from` on (None: from its entry on). `entry` put it there. `author` and `reason` are of the
    draft, if there was one; then `reviewer` approved it, and `review_reason` says why. Both persons are actors.
    """

    version: int
    policy: Policy | None
    entry: Entry
    author: str
    reason: str
    reviewer: str | None = None
    review_reason: str = ""
    active_from: datetime | None = None


class PolicyEdits:
    """Edits the policies of all tenants; `lend` lends connections of a role that may read identities."""

    def __init__(
        self,
        edits: Edits,
        control: ControlPlane,
        engine: PolicyEngine,
        *,
        lend: LendConnection,
        clock: Callable[[], datetime],
    ) -> None:
        self._edits = edits
        self._control = control
        self._engine = engine
        self._lend = lend
        self._clock = clock

    async def create(
        self,
        log_id: int,
        by: Editor,
        *,
        policy_id: str,
        text: PolicyText,
        reason: str = "",
        activate_at: datetime | None = None,
    ) -> Policy:
        """See `Admin.create_policy`."""
        limits.check_id(policy_id)
        limits.check_reason(reason)
        state = await self._control.current(log_id)
        _check_no_review(state, policy_id)
        limits.check_room(lasting(state, self._clock()), "policies")
        contents = await self._checked(log_id, text)
        event = self._created(policy_id, contents, reason=reason, activate_at=activate_at)
        await self._edits.create(log_id, by, event)
        return expect(Policy, evolve(None, event))

    async def change(
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
        """See `Admin.change_policy`."""
        limits.check_id(policy_id)
        limits.check_reason(reason)
        _check_no_review(await self._control.current(log_id), policy_id)
        contents = await self._checked(log_id, text)
        active_from = self._checked_time(activate_at)

        def change(policy: Policy) -> PolicyChanged:
            check_version(policy, version)
            _check_coming(policy, now=self._clock())
            return policy.change(contents, reason=reason, active_from=active_from)

        return await self._edits.change(Policy, log_id, by, policy_id, change)

    async def retire(
        self, log_id: int, by: Editor, *, policy_id: str, reason: str = "", retire_at: datetime | None = None
    ) -> Policy:
        """See `Admin.retire_policy`."""
        limits.check_id(policy_id)
        limits.check_reason(reason)
        _check_no_review(await self._control.current(log_id), policy_id)
        end = limits.check_expiry(retire_at, now=self._clock(), field=RETIRE_AT)
        return await self._edits.change(
            Policy, log_id, by, policy_id, lambda policy: self._retired(policy, reason=reason, retire_at=end)
        )

    async def check(self, log_id: int, text: PolicyText) -> None:
        """See `Admin.check_policy`."""
        await self._checked(log_id, text)

    async def draft(
        self,
        log_id: int,
        by: Editor,
        *,
        policy_id: str,
        text: PolicyText | None,
        reason: str = "",
        version: int | None = None,
        policy_version: int | None = None,
    ) -> PolicyDraft:
        """See `Admin.draft_policy`."""
        limits.check_id(policy_id)
        limits.check_reason(reason)
        state = await self._control.current(log_id)
        # What was edited after this state was read makes the edit stale, so that it is checked again.
        policy = state.newest_policies.get(policy_id)
        check_newest(f"policy {policy_id}", policy, policy_version)
        waiting = state.drafts.get(policy_id)
        check_newest(f"the draft of policy {policy_id}", waiting if waiting and waiting.pending else None, version)
        if policy is not None and policy.retired and (text is not None or policy.is_over(self._clock())):
            raise RetiredError(f"policy:{policy_id}", policy.active_from)
        if policy is None:
            if text is None:
                raise NotFoundError(f"policy {policy_id!r:.80}: expected one to retire, found none", kind=NOT_FOUND)
            if await self._edits.entries(Policy, log_id, policy_id):
                raise RetiredError(f"policy:{policy_id}")
        contents = None if text is None else await self._checked(log_id, text)
        if policy_id in state.drafts:
            return await self._edits.change(
                PolicyDraft, log_id, by, policy_id, lambda draft: draft.rewrite(contents, reason=reason)
            )
        limits.check_room(state.drafts, "drafts of policies")
        event = PolicyDraftWritten(id=policy_id, version=1, contents=contents, reason=reason)
        await self._edits.create(log_id, by, event)
        return expect(PolicyDraft, evolve(None, event))

    async def review(
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
        """See `Admin.review_policy`."""
        limits.check_id(policy_id)
        limits.check_reason(reason)
        state = await self._control.current(log_id)
        draft = one_draft(state, policy_id)
        reviewed = draft.review(verdict, version=version, reason=reason)
        if verdict is ReviewVerdict.REFUSE:
            if activate_at is not None:
                raise BadRequestError("expected no time for what is refused", field=ACTIVATE_AT)
            await self._edits.change(
                PolicyDraft,
                log_id,
                by,
                policy_id,
                lambda current: current.review(verdict, version=version, reason=reason),
            )
            return None
        author = await self.author(log_id, policy_id, version)
        await check_two_persons(self._lend, log_id, author=author, reviewer=by.actor, key_issuers=state.key_issuers)
        policy = state.newest_policies.get(policy_id)
        brought: PolicyCreated | PolicyChanged | PolicyRetired | PolicyRetiredV3
        if draft.contents is None:
            if policy is None:
                raise RetiredError(f"policy:{policy_id}")
            brought = self._retired(policy, reason=draft.reason, retire_at=self._checked_time(activate_at))
        else:
            # Checked again: what functions and variables mean may have changed since it was written.
            await self._check(log_id, draft.contents)
            if policy is None:
                limits.check_room(lasting(state, self._clock()), "policies")
                brought = self._created(policy_id, draft.contents, reason=draft.reason, activate_at=activate_at)
            else:
                _check_coming(policy, now=self._clock())
                active_from = self._checked_time(activate_at)
                brought = policy.change(draft.contents, reason=draft.reason, active_from=active_from)
            brought = replace(brought, draft=version, author=author)
        await self._edits.together(log_id, by, reviewed, brought)
        return expect(Policy, evolve(policy, brought))

    async def steps(self, log_id: int, *, policy_id: str) -> tuple[PolicyStep, ...]:
        """See `Admin.policy_versions`."""
        limits.check_id(policy_id)
        entries = await self._edits.entries(Policy, log_id, policy_id)
        if not entries:
            raise NotFoundError(f"policy {policy_id!r:.80}: expected one in the log, found none", kind=NOT_FOUND)
        return tuple(_steps(entries, await self._edits.entries(PolicyDraft, log_id, policy_id)))

    async def author(self, log_id: int, policy_id: str, version: int) -> str:
        """Return the actor who wrote a version of a draft."""
        return author_of(await self._edits.entries(PolicyDraft, log_id, policy_id), version)

    def _created(
        self,
        policy_id: str,
        contents: PolicyContents,
        *,
        reason: str,
        activate_at: datetime | None,
    ) -> PolicyCreated:
        active_from = self._checked_time(activate_at)
        return PolicyCreated(
            id=policy_id,
            version=1,
            contents=contents,
            reason=reason,
            active_from=None if active_from is None else canonical.format_time(active_from),
            draft=None,
            author=None,
        )

    def _retired(self, policy: Policy, *, reason: str, retire_at: datetime | None) -> PolicyRetired | PolicyRetiredV3:
        if policy.is_over(self._clock()):
            raise RetiredError(f"policy:{policy.id}", policy.active_from)
        return policy.retire(reason=reason, retire_at=retire_at)

    def _checked_time(self, activate_at: datetime | None) -> datetime | None:
        return limits.check_expiry(activate_at, now=self._clock(), field=ACTIVATE_AT)

    async def _checked(self, log_id: int, text: PolicyText) -> PolicyContents:
        """Return what an author wrote as events hold it, once it is found to be good."""
        contents = policy_contents(
            expression=text.expression,
            message=text.message,
            scope=text.scope,
            examples=tuple(
                PolicyExample(expect=PolicyExpectation(one.expect), name=one.name, given=given_text(one))
                for one in text.examples
            ),
        )
        await self._check(log_id, contents)
        return contents

    async def _check(self, log_id: int, contents: PolicyContents) -> None:
        limits.check_policy_texts(expression=contents.expression, message=contents.message)
        await self._engine.check(contents.expression, log_id=log_id, timeout_s=CHECK_TIMEOUT_S, kind=POLICY)
        evaluate: Evaluate = partial(self._engine.judge, log_id=log_id)
        examples = examples_of(contents.examples)
        if found := await failing(evaluate, contents.expression, examples, timeout_s=EXAMPLES_TIMEOUT_S):
            raise ExamplesFailedError(found)


def lasting(state: ControlState, now: datetime) -> dict[str, Policy]:
    """
    Return the policies that are in force or will be, oldest first, each in its newest version.
    """
    return {id_: policy for id_, policy in state.newest_policies.items() if not policy.is_over(now)}


def one_draft(state: ControlState, policy_id: str) -> PolicyDraft:
    """
    Return the draft of a policy that waits for a review.

    Raises:
        NotFoundError: if there is none.
    """
    draft = state.drafts.get(policy_id)
    if draft is None or not draft.pending:
        raise NotFoundError(f"policy {policy_id!r:.80}: expected a draft to review, found none", kind=NOT_FOUND)
    return draft


def one_step(steps: Sequence[S], version: str) -> S:
    """
    Return the version with that number, of a policy or a restriction.

    Raises:
        NotFoundError: if there is none.
    """
    for step in steps:
        if str(step.version) == version:
            return step
    raise NotFoundError(f"version {version!r:.80}: expected 1 to {steps[-1].version}, found none", kind=NOT_FOUND)


def examples_of(held: tuple[PolicyExample, ...]) -> tuple[Example, ...]:
    """
    Return the examples that an event holds.
    """
    return tuple(parse_given(name=one.name, expect=one.expect, given=one.given) for one in held)


def check_no_review(state: ControlState, what: str, id_: str, *, commands: str) -> None:
    """
    Check that the tenant does not ask for a draft of a thing (`what`), which `commands` edit.

    Raises:
        ReviewRequiredError: if it does.
    """
    setting = state.settings.get(POLICY_REVIEW)
    # A value that a newer process wrote is none of ours: unknown means no.
    if setting is not None and setting.value != PolicyReview.NONE:
        raise ReviewRequiredError(what, id_, commands=commands)


def _check_no_review(state: ControlState, policy_id: str) -> None:
    check_no_review(state, "policy", policy_id, commands="policies")


def _check_coming(policy: Policy, *, now: datetime) -> None:
    """Check that there may be one version more that waits for its time."""
    coming, kept, waiting = 0, 0, policy
    while waiting.before is not None and waiting.active_from is not None:
        coming, kept, waiting = coming + (waiting.active_from > now), kept + 1, waiting.before
    if coming >= COMING_MAX or kept >= TIMES_MAX:
        raise UnprocessableError(
            f"policy {policy.id}: expected at most {COMING_MAX} versions with a time to come, and {TIMES_MAX} with a "
            f"time in a row, found {coming} and {kept}: change it without a time, which ends them"
        )


def _steps(entries: tuple[Entry, ...], of_drafts: tuple[Entry, ...]) -> Iterator[PolicyStep]:
    """Yield the versions that the entries of a policy have written, with the draft and the review of each."""
    reviews = reviews_in(of_drafts)
    policy: Policy | None = None
    for entry in entries:
        event = parse_control_event(entry)
        policy = expect(Policy, evolve(policy, event))
        now = None if policy.retired else replace(policy, before=None)
        step = PolicyStep(
            version=event.version,
            policy=now,
            entry=entry,
            author=entry.actor,
            reason=policy.reason,
            active_from=policy.active_from,
        )
        review = reviews.get(entry.group_id)
        if review is not None:
            step = replace(
                step,
                author=review.author,
                reason=review.reason,
                reviewer=entry.actor,
                review_reason=review.review_reason,
            )
        yield step


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A review of a draft: `author` (an actor) wrote it for a `reason`; `review_reason` is that of the reviewer."""

    author: str
    reason: str
    review_reason: str


def reviews_in(of_drafts: Sequence[Entry]) -> Mapping[UUID, Review]:
    """
    Return the reviews among the entries of the drafts of a policy or restriction, by the group that each is in.
    """
    written: dict[int, tuple[str, str]] = {}
    reviews: dict[UUID, Review] = {}
    for entry in of_drafts:
        event = parse_control_event(entry)
        if isinstance(event, PolicyDraftReviewed | RestrictionDraftReviewed):
            author, reason = written[event.draft]
            reviews[entry.group_id] = Review(author=author, reason=reason, review_reason=event.reason)
        elif isinstance(event, _WRITTEN):
            written[event.version] = (entry.actor, event.reason)
    return reviews


def author_of(of_drafts: Sequence[Entry], version: int) -> str:
    """
    Return the actor who wrote a version of a draft, given the entries of the drafts of that policy or restriction.

    Raises:
        NotFoundError: if there is no such version.
    """
    for entry in of_drafts:
        if parse_control_event(entry).version == version:
            return entry.actor
    raise NotFoundError(f"draft {version}: expected it in the log, found none", kind=NOT_FOUND)
