# SPDX-License-Identifier: Apache-2.0
"""
The life of what people draft and review, policies and restrictions alike: written, perhaps drafted and approved by
another person, changed, retired. `policy_edits.py` and `restriction_edits.py` say what differs between the two.

Guarantee: contents are checked in the call that saves them, and once more in the one that approves them. Where the
tenant's setting `policy-review` is `required`, every change, the end too, was written by one person and approved by
another, and both are entries of the log.

Without that setting drafts can be written all the same, and they take another person's approval, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar

from gateway.admin import limits
from gateway.admin.edits import NOT_FOUND, Editor, Edits, check_newest, check_version
from gateway.admin.two_persons import check_two_persons
from gateway.admin.versions import Step, steps_of
from gateway.control.aggregates import Created, Policy, Restriction, RetiredError, aggregate_key, evolve, expect
from gateway.control.drafts import Draft
from gateway.control.plane import ControlPlane, ControlState, parse_control_event
from gateway.errors import BadRequestError, ForbiddenError, NotFoundError, UnprocessableError
from ledger.format.events import (
    POLICY_REVIEW,
    PolicyChanged,
    PolicyContents,
    PolicyRetired,
    PolicyRetiredV3,
    PolicyReview,
    RestrictionChanged,
    RestrictionContents,
    RestrictionRetired,
    ReviewVerdict,
)
from ledger.store.log_store import LendConnection

SENTENCES_MAX: Final = 10
"""Examples that a refusal names."""
ACTIVATE_AT: Final = "activate_at"
RETIRE_AT: Final = "retire_at"

T = TypeVar("T", bound=Policy | Restriction)
"""What is drafted and reviewed."""
X = TypeVar("X")
"""What its author writes."""
C = TypeVar("C", bound=PolicyContents | RestrictionContents)
"""The same as events hold it."""
Changed: TypeAlias = PolicyChanged | RestrictionChanged
Retired: TypeAlias = PolicyRetired | PolicyRetiredV3 | RestrictionRetired


class ExamplesFailedError(UnprocessableError):
    """Examples do not come out as they expect; `sentences` has all of them. Nothing was saved."""

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
class Cause:
    """
    Why there is a new version: its `reason`, from when on it counts (None: at once), and the version of the draft that
    was approved by it with the actor who wrote that, if there was one.
    """

    reason: str
    active_from: datetime | None = None
    draft: int | None = None
    author: str | None = None


class DraftedEdits(ABC, Generic[T, X, C]):
    """Edits the things of one kind, of all tenants; `lend` lends connections of a role that may read identities."""

    what: ClassVar[str]
    """The kind in sentences and keys, as in `policy`."""
    many: ClassVar[str]
    """The same of several; the commands have this name, too."""

    def __init__(
        self, edits: Edits, control: ControlPlane, *, lend: LendConnection, clock: Callable[[], datetime]
    ) -> None:
        self._edits = edits
        self._control = control
        self._lend = lend
        self._clock = clock

    # What differs

    @property
    @abstractmethod
    def thing_class(self) -> type[T]:
        """The class of the things."""

    @property
    @abstractmethod
    def draft_class(self) -> type[Draft[C]]:
        """The class of their drafts."""

    @abstractmethod
    def newest(self, state: ControlState) -> Mapping[str, T]:
        """Return the newest versions in a state; those that have ended, or will, may be among them."""

    def lasting(self, state: ControlState) -> Mapping[str, T]:
        """Return those of the newest versions that have not ended."""
        return self.newest(state)

    @abstractmethod
    def drafts(self, state: ControlState) -> Mapping[str, Draft[C]]:
        """Return the drafts in a state, also those that were reviewed."""

    @abstractmethod
    def contents(self, text: X) -> C:
        """Return what an author wrote as events hold it. Raises BadRequestError if it is malformed."""

    @abstractmethod
    async def check_contents(self, log_id: int, contents: C) -> None:
        """Check contents, and that their examples hold; raises if they may not be saved."""

    @abstractmethod
    def created(self, id_: str, contents: C, cause: Cause) -> Created:
        """Return the event of the first version."""

    @abstractmethod
    def changed(self, thing: T, contents: C, cause: Cause) -> Changed:
        """Return the event of a later version. Raises if there may be none now."""

    @abstractmethod
    def ended(self, thing: T, cause: Cause) -> Retired:
        """Return the event that retires a thing. Raises RetiredError if it is retired already."""

    # Without a draft

    async def create(
        self, log_id: int, by: Editor, id_: str, text: X, *, reason: str, activate_at: datetime | None = None
    ) -> T:
        """Save a new thing."""
        _check_named(id_, reason)
        state = await self._control.current(log_id)
        self._check_no_review(state, id_)
        limits.check_room(self.lasting(state), self.many)
        contents = await self.checked(log_id, text)
        event = self.created(id_, contents, Cause(reason=reason, active_from=self._time(activate_at, ACTIVATE_AT)))
        await self._edits.create(log_id, by, event)
        return expect(self.thing_class, evolve(None, event))

    async def change(
        self,
        log_id: int,
        by: Editor,
        id_: str,
        text: X,
        *,
        reason: str,
        version: int | None,
        activate_at: datetime | None = None,
    ) -> T:
        """Change the contents of a thing, all of them; with `version`, only if that is its newest one."""
        _check_named(id_, reason)
        self._check_no_review(await self._control.current(log_id), id_)
        contents = await self.checked(log_id, text)
        cause = Cause(reason=reason, active_from=self._time(activate_at, ACTIVATE_AT))

        def change(thing: T) -> Changed:
            check_version(thing, version)
            return self.changed(thing, contents, cause)

        return await self._edits.change(self.thing_class, log_id, by, id_, change)

    async def retire(
        self, log_id: int, by: Editor, id_: str, *, reason: str = "", retire_at: datetime | None = None
    ) -> T:
        """Retire a thing."""
        _check_named(id_, reason)
        self._check_no_review(await self._control.current(log_id), id_)
        cause = Cause(reason=reason, active_from=self._time(retire_at, RETIRE_AT))
        return await self._edits.change(self.thing_class, log_id, by, id_, lambda thing: self.ended(thing, cause))

    async def checked(self, log_id: int, text: X) -> C:
        """Return what an author wrote as events hold it, once it is found to be good; nothing is saved."""
        contents = self.contents(text)
        await self.check_contents(log_id, contents)
        return contents

    # Drafts and reviews

    async def draft(
        self,
        log_id: int,
        by: Editor,
        id_: str,
        text: X | None,
        *,
        reason: str,
        version: int | None,
        thing_version: int | None = None,
    ) -> Draft[C]:
        """
        Propose contents, or (None) the end of a thing; with `version`, only in place of that draft (0: of none), with
        `thing_version`, only if that is the newest version of the thing (0: if there is none).
        """
        _check_named(id_, reason)
        state = await self._control.current(log_id)
        # What was edited after this state was read makes the edit stale, so that it is checked again.
        thing, draft = self.newest(state).get(id_), self.drafts(state).get(id_)
        check_newest(f"{self.what} {id_}", thing, thing_version)
        waiting = draft if draft is not None and draft.pending else None
        check_newest(f"the draft of {self.what} {id_}", waiting, version)
        await self._check_may_be_drafted(log_id, id_, thing, ends=text is None)
        contents = None if text is None else await self.checked(log_id, text)
        if draft is not None:
            return await self._edits.change(
                self.draft_class, log_id, by, id_, lambda current: current.rewrite(contents, reason=reason)
            )
        limits.check_room(self.drafts(state), f"drafts of {self.many}")
        event = self.draft_class.written(id_, 1, contents, reason=reason)
        await self._edits.create(log_id, by, event)
        return expect(self.draft_class, evolve(None, event))

    async def review(
        self,
        log_id: int,
        by: Editor,
        id_: str,
        *,
        version: int,
        verdict: ReviewVerdict,
        reason: str,
        activate_at: datetime | None = None,
    ) -> T | None:
        """Approve that version of the draft, which saves what it proposes, or refuse it; None if refused."""
        _check_named(id_, reason)
        state = await self._control.current(log_id)
        draft = self.waiting(state, id_)
        reviewed = draft.review(verdict, version=version, reason=reason)
        if verdict is ReviewVerdict.REFUSE:
            if activate_at is not None:
                raise BadRequestError("expected no time for what is refused", field=ACTIVATE_AT)
            await self._edits.change(
                self.draft_class, log_id, by, id_, lambda now: now.review(verdict, version=version, reason=reason)
            )
            return None
        author = await self.author(log_id, id_, version)
        await check_two_persons(self._lend, log_id, author=author, reviewer=by.actor, key_issuers=state.key_issuers)
        thing = self.newest(state).get(id_)
        brought: Created | Changed | Retired
        if draft.contents is None:
            if thing is None:
                raise self._retired(id_)
            brought = self.ended(thing, self._approved(draft, author, activate_at))
        else:
            # Checked again: what functions and variables mean, and what fits, may have changed since it was written.
            await self.check_contents(log_id, draft.contents)
            if thing is None:
                limits.check_room(self.lasting(state), self.many)
                brought = self.created(id_, draft.contents, self._approved(draft, author, activate_at))
            else:
                brought = self.changed(thing, draft.contents, self._approved(draft, author, activate_at))
        await self._edits.together(log_id, by, reviewed, brought)
        return expect(self.thing_class, evolve(thing, brought))

    def waiting(self, state: ControlState, id_: str) -> Draft[C]:
        """
        Return the draft of a thing that waits for a review.

        Raises:
            NotFoundError: if there is none.
        """
        draft = self.drafts(state).get(id_)
        if draft is None or not draft.pending:
            raise NotFoundError(f"{self.what} {id_!r:.80}: expected a draft to review, found none", kind=NOT_FOUND)
        return draft

    def all_waiting(self, state: ControlState) -> tuple[Draft[C], ...]:
        """Return the drafts that wait for a review, in order of the first draft of each thing."""
        return tuple(draft for draft in self.drafts(state).values() if draft.pending)

    async def author(self, log_id: int, id_: str, version: int) -> str:
        """
        Return the actor who wrote a version of a draft.

        Raises:
            NotFoundError: if there is no such version.
        """
        for entry in await self._edits.entries(self.draft_class, log_id, id_):
            if parse_control_event(entry).version == version:
                return entry.actor
        raise NotFoundError(f"draft {version}: expected it in the log, found none", kind=NOT_FOUND)

    async def steps(self, log_id: int, id_: str) -> tuple[Step[T], ...]:
        """Return every version that a thing has had, oldest first."""
        limits.check_id(id_)
        entries = await self._edits.entries(self.thing_class, log_id, id_)
        if not entries:
            raise NotFoundError(f"{self.what} {id_!r:.80}: expected one in the log, found none", kind=NOT_FOUND)
        return steps_of(self.thing_class, entries, await self._edits.entries(self.draft_class, log_id, id_))

    def _approved(self, draft: Draft[C], author: str, activate_at: datetime | None) -> Cause:
        active_from = self._time(activate_at, ACTIVATE_AT)
        return Cause(reason=draft.reason, active_from=active_from, draft=draft.version, author=author)

    def _time(self, at: datetime | None, field: str) -> datetime | None:
        return limits.check_expiry(at, now=self._clock(), field=field)

    async def _check_may_be_drafted(self, log_id: int, id_: str, thing: T | None, *, ends: bool) -> None:
        """Check that a thing, which need not exist, was not retired, and exists if a draft is to end it."""
        if thing is not None:
            # Only policies end at a time to come; until then an end at once may be drafted.
            if isinstance(thing, Policy) and thing.retired and (not ends or thing.is_over(self._clock())):
                raise self._retired(id_, thing.active_from)
            return
        if await self._edits.entries(self.thing_class, log_id, id_):
            raise self._retired(id_)
        if ends:
            raise NotFoundError(f"{self.what} {id_!r:.80}: expected one to retire, found none", kind=NOT_FOUND)

    def _check_no_review(self, state: ControlState, id_: str) -> None:
        setting = state.settings.get(POLICY_REVIEW)
        # A value that a newer process wrote is none of ours: unknown means no.
        if setting is not None and setting.value != PolicyReview.NONE:
            raise ReviewRequiredError(self.what, id_, commands=self.many)

    def _retired(self, id_: str, from_: datetime | None = None) -> RetiredError:
        return RetiredError(aggregate_key(self.thing_class, id_), from_)


def _check_named(id_: str, reason: str) -> None:
    limits.check_id(id_)
    limits.check_reason(reason)
