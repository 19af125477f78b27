# SPDX-License-Identifier: Apache-2.0
"""
What somebody proposes, and somebody else reviews: drafts of policies and of restrictions, as the log has them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Self, TypeAlias, TypeVar

from gateway.errors import ConflictError
from ledger.format.events import (
    PolicyContents,
    PolicyDraftReviewed,
    PolicyDraftWritten,
    RestrictionContents,
    RestrictionDraftReviewed,
    RestrictionDraftWritten,
    ReviewVerdict,
)

C = TypeVar("C", bound=PolicyContents | RestrictionContents)
DraftWritten: TypeAlias = PolicyDraftWritten | RestrictionDraftWritten
DraftReviewed: TypeAlias = PolicyDraftReviewed | RestrictionDraftReviewed


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(ABC, Generic[C]):
    """
    What somebody proposes for the thing `id`: `contents`, or (None) to retire it; `pending` until it is reviewed.

    Its author is the actor of the entry of this `version`. What was reviewed is in the log alone.
    """

    KIND: ClassVar[str]
    OF: ClassVar[str]
    """Of what it is a draft, as in `policy`."""

    id: str
    version: int
    contents: C | None
    reason: str
    pending: bool = True
    retired: bool = False

    @staticmethod
    @abstractmethod
    def written(id_: str, version: int, contents: C | None, *, reason: str) -> DraftWritten:
        """Return the event that proposes `contents`; version 1 is the first draft of a thing."""

    @abstractmethod
    def _reviewed(self, verdict: ReviewVerdict, *, reason: str) -> DraftReviewed:
        """Return the event that reviews this version."""

    def rewrite(self, contents: C | None, *, reason: str) -> DraftWritten:
        """Return the event that proposes something else, or again."""
        return self.written(self.id, self.version + 1, contents, reason=reason)

    def review(self, verdict: ReviewVerdict, *, version: int, reason: str) -> DraftReviewed:
        """
        Return the event that ends the draft; `version` is the one that was reviewed.

        Raises:
            ConflictError: if it was reviewed before, or rewritten since.
        """
        what = f"the draft of {self.OF} {self.id}"
        if not self.pending:
            raise ConflictError(f"{what} was reviewed before: write another one", kind="NoDraftException")
        if self.version != version:
            raise ConflictError(
                f"{what}: expected version {version}, found {self.version}: review that one",
                kind="ConcurrentChangeException",
            )
        return self._reviewed(verdict, reason=reason)

    def ended(self, version: int) -> Self:
        """Return the draft once it was reviewed by the event of `version`."""
        return replace(self, version=version, contents=None, reason="", pending=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDraft(Draft[PolicyContents]):
    """What somebody proposes for the policy `id`."""

    KIND: ClassVar[str] = "policy_draft"
    OF: ClassVar[str] = "policy"

    @staticmethod
    def written(id_: str, version: int, contents: PolicyContents | None, *, reason: str) -> PolicyDraftWritten:
        return PolicyDraftWritten(id=id_, version=version, contents=contents, reason=reason)

    def _reviewed(self, verdict: ReviewVerdict, *, reason: str) -> PolicyDraftReviewed:
        return PolicyDraftReviewed(
            id=self.id, version=self.version + 1, draft=self.version, verdict=verdict, reason=reason
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionDraft(Draft[RestrictionContents]):
    """What somebody proposes for the restriction `id`."""

    KIND: ClassVar[str] = "restriction_draft"
    OF: ClassVar[str] = "restriction"

    @staticmethod
    def written(
        id_: str, version: int, contents: RestrictionContents | None, *, reason: str
    ) -> RestrictionDraftWritten:
        return RestrictionDraftWritten(id=id_, version=version, contents=contents, reason=reason)

    def _reviewed(self, verdict: ReviewVerdict, *, reason: str) -> RestrictionDraftReviewed:
        return RestrictionDraftReviewed(
            id=self.id, version=self.version + 1, draft=self.version, verdict=verdict, reason=reason
        )
