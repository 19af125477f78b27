# SPDX-License-Identifier: Apache-2.0
"""
The versions of a policy, a restriction or an access rule as the log has them, each with who wrote it, and who approved
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar
from uuid import UUID

from gateway.admin.edits import NOT_FOUND
from gateway.control.aggregates import AccessRule, Policy, Restriction, evolve, expect
from gateway.control.plane import parse_control_event
from gateway.errors import NotFoundError
from ledger.format.entry import Entry
from ledger.format.events import (
    PolicyDraftReviewed,
    PolicyDraftWritten,
    PolicyDraftWrittenV1,
    PolicyDraftWrittenV2,
    RestrictionDraftReviewed,
    RestrictionDraftWritten,
)

T = TypeVar("T", bound=Policy | Restriction | AccessRule)

_WRITTEN: Final = (PolicyDraftWrittenV1, PolicyDraftWrittenV2, PolicyDraftWritten, RestrictionDraftWritten)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[T]):
    """
    One version; `thing` is as the log has it from `entry` on, perhaps retired.

    `author` and `reason` are of the draft, if there was one; then `reviewer` approved it, and `review_reason` says why.
    Both persons are actors.
    """

    thing: T
    entry: Entry
    author: str
    reason: str
    reviewer: str | None = None
    review_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Review:
    """A review of a draft: `author` (an actor) wrote it for a `reason`; `review_reason` is that of the reviewer."""

    author: str
    reason: str
    review_reason: str


def steps_of(cls: type[T], entries: Sequence[Entry], of_drafts: Sequence[Entry] = ()) -> tuple[Step[T], ...]:
    """
    Return the versions that the entries of a thing have written, oldest first, given those of its drafts, too.
    """
    return tuple(_steps(cls, entries, _reviews_in(of_drafts)))


def one_step(steps: Sequence[Step[T]], version: str) -> Step[T]:
    """
    Return the version with that number.

    Raises:
        NotFoundError: if there is none.
    """
    for step in steps:
        if str(step.thing.version) == version:
            return step
    raise NotFoundError(f"version {version!r:.80}: expected 1 to {steps[-1].thing.version}, found none", kind=NOT_FOUND)


def _steps(cls: type[T], entries: Sequence[Entry], reviews: Mapping[UUID, _Review]) -> Iterator[Step[T]]:
    thing: T | None = None
    for entry in entries:
        event = parse_control_event(entry)
        thing = expect(cls, evolve(thing, event))
        # The oldest events, the end of a restriction, and those of access rules have no reason.
        step = Step(thing=thing, entry=entry, author=entry.actor, reason=getattr(event, "reason", ""))
        if (review := reviews.get(entry.group_id)) is not None:
            step = replace(
                step,
                author=review.author,
                reason=review.reason,
                reviewer=entry.actor,
                review_reason=review.review_reason,
            )
        yield step


def _reviews_in(of_drafts: Sequence[Entry]) -> Mapping[UUID, _Review]:
    """Return the reviews among the entries of drafts, by the group that each is in."""
    written: dict[int, tuple[str, str]] = {}
    reviews: dict[UUID, _Review] = {}
    for entry in of_drafts:
        event = parse_control_event(entry)
        if isinstance(event, PolicyDraftReviewed | RestrictionDraftReviewed):
            author, reason = written[event.draft]
            reviews[entry.group_id] = _Review(author=author, reason=reason, review_reason=event.reason)
        elif isinstance(event, _WRITTEN):
            written[event.version] = (entry.actor, event.reason)
    return reviews
