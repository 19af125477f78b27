# SPDX-License-Identifier: Apache-2.0
"""
Edits of restrictions: what is saved fits every schema that comes with it, and its examples hold.

Guarantee: both are checked in the call that saves, by the evaluator that other readers are compared with. No read is
restricted by what is saved here yet. Drafts and reviews are as those of policies (`policy_edits.py`), and the tenant's
setting `policy-review` asks for them here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gateway.admin import limits
from gateway.admin.edits import NOT_FOUND, Editor, Edits, check_newest, check_version
from gateway.admin.policy_edits import ExamplesFailedError, author_of, check_no_review, reviews_in
from gateway.admin.two_persons import check_two_persons
from gateway.control.aggregates import Restriction, RestrictionDraft, RetiredError, evolve, expect
from gateway.control.plane import ControlPlane, ControlState, parse_control_event
from gateway.errors import NotFoundError
from gateway.policy.restrictions.compiled import ReadRestriction, check_against, read_restriction
from gateway.policy.restrictions.contents import examples_of, parse_contents, schemas_of
from gateway.policy.restrictions.examples import failing
from gateway.policy.restrictions.written import ReadsConditions
from ledger.format.entry import Entry
from ledger.format.events import (
    RestrictionChanged,
    RestrictionContents,
    RestrictionCreated,
    RestrictionDraftWritten,
    RestrictionRetired,
    ReviewVerdict,
)
from ledger.store.log_store import LendConnection

if TYPE_CHECKING:
    from ledger.format.canonical import Json

READ_TIMEOUT_S: Final = 5.0
"""For each expression of a restriction."""
NOT_ENFORCED: Final = (
    "stored, versioned and tested; reads do not enforce it yet: who may load the table still sees everything"
)
"""What is said wherever a restriction is saved or shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionStep:
    """
    One version of a restriction as the log has it: `restriction` is None where it was retired. `entry` put it there.

    `author` and `reason` are of the draft, if there was one; then `reviewer` approved it, and `review_reason` says why.
    """

    version: int
    restriction: Restriction | None
    entry: Entry
    author: str
    reason: str
    reviewer: str | None = None
    review_reason: str = ""


class RestrictionEdits:
    """
    Edits the restrictions of all tenants; `reader` reads their expressions, `lend` lends connections of a role that may
    read identities.
    """

    def __init__(self, edits: Edits, control: ControlPlane, reader: ReadsConditions, *, lend: LendConnection) -> None:
        self._lend = lend
        self._edits = edits
        self._control = control
        self._reader = reader

    async def create(
        self, log_id: int, by: Editor, *, restriction_id: str, members: Mapping[str, Json], reason: str
    ) -> Restriction:
        """See `Admin.create_restriction`."""
        limits.check_id(restriction_id)
        limits.check_reason(reason)
        state = await self._control.current(log_id)
        _check_no_review(state, restriction_id)
        limits.check_room(state.restrictions, "restrictions")
        contents = await self._checked(log_id, members)
        event = RestrictionCreated(id=restriction_id, version=1, contents=contents, reason=reason)
        await self._edits.create(log_id, by, event)
        return expect(Restriction, evolve(None, event))

    async def change(
        self,
        log_id: int,
        by: Editor,
        *,
        restriction_id: str,
        members: Mapping[str, Json],
        reason: str,
        version: int | None,
    ) -> Restriction:
        """See `Admin.change_restriction`."""
        limits.check_id(restriction_id)
        limits.check_reason(reason)
        _check_no_review(await self._control.current(log_id), restriction_id)
        contents = await self._checked(log_id, members)

        def change(restriction: Restriction) -> RestrictionChanged:
            check_version(restriction, version)
            return restriction.change(contents, reason=reason)

        return await self._edits.change(Restriction, log_id, by, restriction_id, change)

    async def retire(self, log_id: int, by: Editor, *, restriction_id: str) -> Restriction:
        """See `Admin.retire_restriction`."""
        limits.check_id(restriction_id)
        _check_no_review(await self._control.current(log_id), restriction_id)
        return await self._edits.change(Restriction, log_id, by, restriction_id, Restriction.retire)

    async def draft(
        self,
        log_id: int,
        by: Editor,
        *,
        restriction_id: str,
        members: Mapping[str, Json] | None,
        reason: str,
        version: int | None,
    ) -> RestrictionDraft:
        """See `Admin.draft_restriction`."""
        limits.check_id(restriction_id)
        limits.check_reason(reason)
        state = await self._control.current(log_id)
        # What was edited after this state was read makes the edit stale, so that it is checked again.
        draft = state.restriction_drafts.get(restriction_id)
        waiting = draft if draft is not None and draft.pending else None
        check_newest(f"the draft of restriction {restriction_id}", waiting, version)
        if restriction_id not in state.restrictions:
            if await self._edits.entries(Restriction, log_id, restriction_id):
                raise RetiredError(f"restriction:{restriction_id}")
            if members is None:
                raise NotFoundError(
                    f"restriction {restriction_id!r:.80}: expected one to retire, found none", kind=NOT_FOUND
                )
        contents = None if members is None else await self._checked(log_id, members)
        if draft is not None:
            return await self._edits.change(
                RestrictionDraft, log_id, by, restriction_id, lambda current: current.rewrite(contents, reason=reason)
            )
        limits.check_room(state.restriction_drafts, "drafts of restrictions")
        event = RestrictionDraftWritten(id=restriction_id, version=1, contents=contents, reason=reason)
        await self._edits.create(log_id, by, event)
        return expect(RestrictionDraft, evolve(None, event))

    async def review(
        self, log_id: int, by: Editor, *, restriction_id: str, version: int, verdict: ReviewVerdict, reason: str
    ) -> Restriction | None:
        """See `Admin.review_restriction`."""
        limits.check_id(restriction_id)
        limits.check_reason(reason)
        state = await self._control.current(log_id)
        draft = one_restriction_draft(state, restriction_id)
        reviewed = draft.review(verdict, version=version, reason=reason)
        if verdict is ReviewVerdict.REFUSE:
            await self._edits.change(
                RestrictionDraft,
                log_id,
                by,
                restriction_id,
                lambda current: current.review(verdict, version=version, reason=reason),
            )
            return None
        author = await self.author(log_id, restriction_id, version)
        await check_two_persons(self._lend, log_id, author=author, reviewer=by.actor, key_issuers=state.key_issuers)
        restriction = state.restrictions.get(restriction_id)
        brought: RestrictionCreated | RestrictionChanged | RestrictionRetired
        if draft.contents is None:
            if restriction is None:
                raise RetiredError(f"restriction:{restriction_id}")
            brought = restriction.retire()
        else:
            # Checked again: what a filter may say, and what fits, may have changed since it was written.
            await check_contents(self._reader, draft.contents, log_id=log_id)
            if restriction is None:
                limits.check_room(state.restrictions, "restrictions")
                brought = RestrictionCreated(id=restriction_id, version=1, contents=draft.contents, reason=draft.reason)
            else:
                brought = restriction.change(draft.contents, reason=draft.reason)
        await self._edits.together(log_id, by, reviewed, brought)
        return expect(Restriction, evolve(restriction, brought))

    async def author(self, log_id: int, restriction_id: str, version: int) -> str:
        """Return the actor who wrote a version of a draft."""
        return author_of(await self._edits.entries(RestrictionDraft, log_id, restriction_id), version)

    async def steps(self, log_id: int, *, restriction_id: str) -> tuple[RestrictionStep, ...]:
        """See `Admin.restriction_versions`."""
        limits.check_id(restriction_id)
        entries = await self._edits.entries(Restriction, log_id, restriction_id)
        if not entries:
            raise NotFoundError(
                f"restriction {restriction_id!r:.80}: expected one in the log, found none", kind=NOT_FOUND
            )
        reviews = reviews_in(await self._edits.entries(RestrictionDraft, log_id, restriction_id))
        steps: list[RestrictionStep] = []
        restriction: Restriction | None = None
        for entry in entries:
            restriction = expect(Restriction, evolve(restriction, parse_control_event(entry)))
            kept = None if restriction.retired else restriction
            step = RestrictionStep(
                version=restriction.version,
                restriction=kept,
                entry=entry,
                author=entry.actor,
                reason="" if kept is None else kept.reason,
            )
            if (review := reviews.get(entry.group_id)) is not None:
                step = replace(
                    step,
                    author=review.author,
                    reason=review.reason,
                    reviewer=entry.actor,
                    review_reason=review.review_reason,
                )
            steps.append(step)
        return tuple(steps)

    async def _checked(self, log_id: int, members: Mapping[str, Json]) -> RestrictionContents:
        contents = parse_contents(members)
        await check_contents(self._reader, contents, log_id=log_id)
        return contents


def one_restriction_draft(state: ControlState, restriction_id: str) -> RestrictionDraft:
    """
    Return the draft of a restriction that waits for a review.

    Raises:
        NotFoundError: if there is none.
    """
    draft = state.restriction_drafts.get(restriction_id)
    if draft is None or not draft.pending:
        raise NotFoundError(
            f"restriction {restriction_id!r:.80}: expected a draft to review, found none", kind=NOT_FOUND
        )
    return draft


def _check_no_review(state: ControlState, restriction_id: str) -> None:
    check_no_review(state, "restriction", restriction_id, commands="restrictions")


async def check_contents(reader: ReadsConditions, contents: RestrictionContents, *, log_id: int) -> ReadRestriction:
    """
    Return a restriction with its expressions read, if it fits each of its schemas and its examples hold.

    Raises:
        RestrictionRefusedError: if it cannot; says which member is to blame, and the place in an expression.
        ExamplesFailedError: if an example does not hold; says which, and how.
        PolicyEngineError: if the engine gave no answer.
    """
    restriction = await read_restriction(reader, contents, log_id=log_id, timeout_s=READ_TIMEOUT_S)
    schemas = schemas_of(contents)
    for schema in schemas.values():
        check_against(restriction, schema)
    if found := failing(restriction, schemas, examples_of(contents)):
        raise ExamplesFailedError(found)
    return restriction
