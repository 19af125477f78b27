# SPDX-License-Identifier: Apache-2.0
"""
What a visitor may see of a policy, as the routes for programs show it, and what forms about policies have in common.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from gateway.console.actor_names import names_by_entry
from gateway.console.lists import Answer
from gateway.console.pages import Visit
from gateway.control.aggregates import aggregate_key
from gateway.control.drafts import Draft, PolicyDraft
from gateway.errors import ForbiddenError, NotFoundError, UnavailableError
from gateway.http import admin_routes, log_entry_routes, policy_routes
from gateway.http.log_routes import INPUTS, VIEW
from gateway.http.request import check_access
from gateway.replaying.comparing import Change
from ledger.format.events import POLICY_REVIEW, PolicyReview

DRAFT: Final = "draft"
"""In place of a version: the draft that waits for a review."""
WHAT_CHANGES: Final = {
    Change.WIDENED: "was refused, would pass",
    Change.NARROWED: "passed, would be refused",
    Change.FAILED: "could not be decided any more",
    Change.UNKNOWN: "cannot be told",
    Change.SAME: "as it was",
    Change.NOT_JUDGED: "no policy was asked",
}
SHORT: Final = {
    Change.WIDENED: "would pass",
    Change.NARROWED: "would be refused",
    Change.FAILED: "would fail",
    Change.UNKNOWN: "not known",
}
"""The same for the heads of columns."""
_MINUTES: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """
    What a visitor may see of one policy: its versions, oldest first, and the draft that waits, as routes show them.

    `drafts` says whether the visitor may see drafts at all.
    """

    id: str
    steps: Sequence[Mapping[str, Any]] = ()
    draft: Mapping[str, Any] | None = None
    drafts: bool = True

    @property
    def newest(self) -> Mapping[str, Any] | None:
        """The newest version; None if there is none."""
        return self.steps[-1] if self.steps else None

    @property
    def is_retired(self) -> bool:
        """Whether its end is in the log, which may be to come: nobody changes it any more."""
        return self.newest is not None and bool(self.newest["retired"])

    @property
    def versions(self) -> dict[str, int]:
        """What a form is told that its author has seen."""
        return {
            "draft_version": 0 if self.draft is None else self.draft["version"],
            "policy_version": 0 if self.newest is None or self.is_retired else self.newest["version"],
        }

    def side(self, name: str) -> Mapping[str, Any]:
        """
        Return one side of a comparison: a version by its number, or the draft.

        Raises:
            NotFoundError: if there is none.
        """
        if name == DRAFT and self.draft is not None:
            return self.draft
        found = next((step for step in self.steps if str(step["version"]) == name), None)
        if found is None:
            what = "a draft that waits" if name == DRAFT else f"a version of {self.id} with a number from its page"
            raise NotFoundError(f"expected {what}, found none for {name!r:.40}", kind="NotFoundException")
        return found


async def seen_of(
    visit: Visit,
    id_: str,
    *,
    versions: Answer = policy_routes.list_policy_versions,
    draft: Answer = policy_routes.show_policy_draft,
) -> Seen:
    """
    Return what the visitor may see of a policy, or of what these routes show, which need not exist.

    Raises:
        ForbiddenError: if the visitor may see neither policy nor draft.
    """
    steps: Sequence[Mapping[str, Any]] = ()
    with suppress(NotFoundError):  # it may be drafted
        steps = (await visit.read(versions, id_))["versions"]
    try:
        return Seen(id=id_, steps=steps, draft=await visit.read(draft, id_))
    except NotFoundError:
        return Seen(id=id_, steps=steps)
    except ForbiddenError:
        return Seen(id=id_, steps=steps, drafts=False)


async def names_of_authors(visit: Visit, seen: Seen, draft_class: type[Draft[Any]] = PolicyDraft) -> dict[str, str]:
    """Return the names of those who have edited a policy or restriction, by actor, as the visitor may know them."""
    entries = {step["reviewer"] or step["author"]: step["index"] for step in seen.steps}
    if seen.draft is not None:
        key = aggregate_key(draft_class, seen.id)
        written = await visit.read(log_entry_routes.list_entries, key=key, limit=1)
        if written["entries"]:
            entries[seen.draft["author"]] = written["entries"][0]["index"]
    return await names_by_entry(visit, entries)


async def in_force_of(visit: Visit, policy_id: str) -> dict[str, Any] | None:
    """Return the version of a policy that is in force, or else the first that will be; None if there is none."""
    try:
        found: dict[str, Any] = await visit.read(admin_routes.show_policy, policy_id)
    except NotFoundError:
        return None
    return found


async def requires_review(visit: Visit) -> bool | None:
    """Return whether every change takes another person's review; None if that cannot be told."""
    try:
        setting = await visit.read(admin_routes.show_setting, POLICY_REVIEW)
    except (ForbiddenError, UnavailableError):
        return None  # nothing that is saved rests on it
    return bool(setting["value"] != PolicyReview.NONE)


async def check_inputs(visit: Visit) -> None:
    for view in (VIEW, INPUTS):
        await check_access(visit.gateway, visit.caller, visit.request, view)


def time_in(sent: Mapping[str, str]) -> str | None:
    """Return a time of a form, which is in UTC unless it says otherwise; None for none."""
    text = sent.get("activate_at", "").strip()
    found = _MINUTES.fullmatch(text)
    if found is not None:
        text += "Z" if found[1] else ":00Z"
    return text or None


def words_of_changes() -> dict[str, str]:
    return {change.value: words for change, words in WHAT_CHANGES.items()}
