# SPDX-License-Identifier: Apache-2.0
"""
Which version of a policy is in force at a time: a function of the entries and of that time alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.control.aggregates import (
    ControlEvent,
    Policy,
    RetiredError,
    evolve,
    policy_contents,
    scope_of,
)
from gateway.control.drafts import PolicyDraft
from gateway.control.plane import OVER_KEPT, ControlState, fold
from gateway.errors import ConflictError
from gateway.policy.scopes import EVERYTHING, Scope
from ledger.errors import FormatError
from ledger.format import canonical
from ledger.format.events import (
    PolicyChanged,
    PolicyChangedV1,
    PolicyChangedV2,
    PolicyChangedV3,
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
    PolicyRetired,
    PolicyRetiredV1,
    PolicyRetiredV3,
    PolicyScopeV1,
    PolicyScopeV2,
    RestrictionChangedV1,
    RestrictionContentsV1,
    RestrictionCreatedV1,
    ReviewVerdict,
)
from testkit.gateway.control_entries import NOON, entry


def hour(number: int) -> datetime:
    return NOON + timedelta(hours=number)


def contents(expression: str = "true") -> Any:
    return policy_contents(expression=expression, message="no", scope=Scope(names=("sales.**",)))


def created(active: int | None = None, *, policy_id: str = "p") -> PolicyCreated:
    return PolicyCreated(
        id=policy_id,
        version=1,
        contents=contents("1 == 1"),
        reason="",
        active_from=None if active is None else canonical.format_time(hour(active)),
        draft=None,
        author=None,
    )


def changed(version: int, active: int | None = None) -> PolicyChanged:
    return PolicyChanged(
        id="p",
        version=version,
        contents=contents(f"{version} == {version}"),
        reason=f"reason {version}",
        active_from=None if active is None else canonical.format_time(hour(active)),
        draft=None,
        author=None,
    )


def state_of(*events: ControlEvent, cuts: Sequence[int] = ()) -> ControlState:
    """The state after entries of `events`, folded in several pages that are cut at `cuts`."""
    entries = [entry(index, event) for index, event in enumerate(events)]
    state, bounds = ControlState.empty(), sorted({0, *cuts, len(entries)})
    for first, end in pairwise(bounds):
        state = fold(state, entries[first:end])
    return state


def versions(state: ControlState, moment: int) -> dict[str, int]:
    return {id_: policy.version for id_, policy in state.at(hour(moment)).policies.items()}


def test_a_policy_without_a_time_is_in_force_at_every_time() -> None:
    state = state_of(created(), changed(2))
    assert state.at(hour(-1_000)) is state.at(hour(1_000)) is state
    assert versions(state, 0) == {"p": 2}


def test_a_policy_is_not_in_force_before_its_time() -> None:
    state = state_of(created(3))
    assert versions(state, 2) == {}
    assert versions(state, 3) == versions(state, 9) == {"p": 1}
    assert state.policies == {}
    assert state.newest_policies["p"].version == 1


def test_until_its_time_a_new_version_leaves_the_one_before_in_force() -> None:
    state = state_of(created(), changed(2, 3), changed(3, 6))
    assert [versions(state, moment) for moment in (0, 2, 3, 5, 6)] == [{"p": 1}, {"p": 1}, {"p": 2}, {"p": 2}, {"p": 3}]


def test_what_is_approved_later_and_comes_earlier_ends_what_would_have_come() -> None:
    state = state_of(created(), changed(2, 6), changed(3, 3))
    assert [versions(state, moment) for moment in (2, 3, 6, 9)] == [{"p": 1}, {"p": 3}, {"p": 3}, {"p": 3}]
    at_once = state_of(created(), changed(2, 6), changed(3))
    assert [versions(at_once, moment) for moment in (-9, 6)] == [{"p": 3}, {"p": 3}]


def test_a_retired_policy_never_comes_back() -> None:
    state = state_of(created(), changed(2, 6), PolicyRetired(id="p", version=3, reason=""))
    assert versions(state, 0) == versions(state, 9) == {}


def retired_at(version: int, moment: int) -> PolicyRetiredV3:
    return PolicyRetiredV3(id="p", version=version, reason="over", retired_from=canonical.format_time(hour(moment)))


def test_a_policy_that_ends_at_a_time_is_in_force_until_then() -> None:
    state = state_of(created(), retired_at(2, 6))
    assert [versions(state, moment) for moment in (-9, 5, 6, 9)] == [{"p": 1}, {"p": 1}, {}, {}]
    assert state.policies.keys() == {"p"}
    assert state.at(hour(6)).policy_set == ControlState.empty().policy_set
    assert state.at(hour(5)).policy_set == state_of(created()).policy_set
    newest = state.newest_policies["p"]
    assert [newest.is_over(hour(moment)) for moment in (5, 6)] == [False, True]
    assert (newest.version, newest.reason) == (2, "over")


def test_a_policy_is_dropped_a_day_after_its_end_however_its_entries_are_cut() -> None:
    end, entries = NOON + timedelta(hours=6), [entry(0, created()), entry(1, retired_at(2, 6))]
    for recorded_at, kept in ((end + OVER_KEPT - timedelta(seconds=1), {"p", "q"}), (end + OVER_KEPT, {"q"})):
        later = [*entries, entry(2, created(policy_id="q"), recorded_at=recorded_at)]
        whole = fold(ControlState.empty(), later)
        assert whole.newest_policies.keys() == kept
        assert whole.at(recorded_at).policies.keys() == {"q"}
        for cut in (1, 2):
            assert fold(fold(ControlState.empty(), later[:cut]), later[cut:]) == whole


def test_versions_that_come_before_the_end_still_come_and_later_ones_never_do() -> None:
    state = state_of(created(), changed(2, 3), changed(3, 9), retired_at(4, 6))
    assert [versions(state, moment) for moment in (2, 3, 5, 6, 9)] == [{"p": 1}, {"p": 2}, {"p": 2}, {}, {}]
    never = state_of(created(9), retired_at(2, 6))
    assert [versions(never, moment) for moment in (0, 6, 9)] == [{}, {}, {}]


def test_a_policy_that_ends_at_a_time_may_end_at_once_and_is_changed_no_more() -> None:
    state = state_of(created(), retired_at(2, 6), PolicyRetired(id="p", version=3, reason="now"))
    assert versions(state, 0) == {}
    assert state.newest_policies == {}
    ending = state_of(created(), retired_at(2, 6)).newest_policies["p"]
    assert ending.retire(reason="now") == PolicyRetired(id="p", version=3, reason="now")
    for command in (lambda: ending.change(contents()), lambda: ending.retire(retire_at=hour(3))):
        with pytest.raises(RetiredError, match="is retired from 2026"):
            command()
    ended = evolve(ending, PolicyRetired(id="p", version=3, reason="now"))
    assert isinstance(ended, Policy)
    with pytest.raises(RetiredError):
        ended.retire()


def test_the_digest_is_that_of_what_is_in_force_at_the_time() -> None:
    state = state_of(created(), changed(2, 3))

    def digest(version: int) -> str:
        return hashlib.sha256(f'[["policy","p",{version}]]'.encode()).hexdigest()

    assert state.at(hour(2)).policy_set == digest(1)
    assert state.at(hour(3)).policy_set == digest(2)
    assert state.at(hour(3)) is state.at(hour(4)), "a state is made once for each time that changes it"
    assert state.at(hour(3)).as_of == state.as_of


def test_policies_stay_in_order_of_creation_whenever_they_come_into_force() -> None:
    state = state_of(created(6, policy_id="z"), created(policy_id="m"), created(3, policy_id="a"))
    assert list(state.at(hour(9)).policies) == ["z", "m", "a"]
    assert list(state.at(hour(4)).policies) == ["m", "a"]


MOMENTS = st.one_of(st.none(), st.integers(0, 6))


@given(MOMENTS, st.lists(MOMENTS, max_size=6), st.lists(st.integers(0, 7), max_size=3))
def test_in_force_is_the_newest_of_the_versions_that_are_due(
    first: int | None, then: list[int | None], cuts: list[int]
) -> None:
    times = [first, *then]
    events: list[ControlEvent] = [created(first), *(changed(number, time) for number, time in enumerate(then, start=2))]
    whole = state_of(*events)
    paged = state_of(*events, cuts=[cut for cut in cuts if cut <= len(events)])
    assert paged == whole
    for moment in range(-1, 8):
        due = [number for number, time in enumerate(times, start=1) if time is None or time <= moment]
        expected = {"p": due[-1]} if due else {}
        assert versions(whole, moment) == versions(paged, moment) == expected
        assert whole.at(hour(moment)).policy_set == paged.at(hour(moment)).policy_set


def test_older_events_stay_readable_and_mean_what_they_meant() -> None:
    old: list[ControlEvent] = [
        PolicyCreatedV1(id="p", version=1, expression="true", message="{braces}"),
        PolicyChangedV1(id="p", version=2, expression="false", message="{braces}"),
    ]
    policy = state_of(*old).policies["p"]
    assert policy == Policy(id="p", version=2, expression="false", message="{braces}", is_template=False)
    assert policy.scope is EVERYTHING
    newer = state_of(*old, changed(3)).policies["p"]
    assert (newer.is_template, newer.reason, newer.scope) == (True, "reason 3", Scope(names=("sales.**",)))


def test_policies_and_drafts_from_before_properties_are_read_with_a_scope_that_has_none() -> None:
    scope = PolicyScopeV1(catalogs=("lake",), names=(), kinds=(), operations=("table.drop",))
    held = PolicyContentsV1(expression="1 == 1", message="no", scope=scope, examples=())
    others: dict[str, Any] = {"reason": "why", "active_from": None, "draft": None, "author": None}
    old: list[ControlEvent] = [
        PolicyCreatedV2(id="p", version=1, contents=held, **others),
        PolicyChangedV2(id="p", version=2, contents=held, **others),
        PolicyDraftWrittenV1(id="p", version=1, contents=held, reason="why"),
        PolicyDraftWrittenV1(id="q", version=1, contents=None, reason=""),
    ]
    state = state_of(*old)
    expected = Scope(catalogs=("lake",), operations=("table.drop",))
    assert state.policies["p"] == Policy(
        id="p", version=2, expression="1 == 1", message="no", scope=expected, reason="why"
    )
    assert state.drafts["p"].contents == policy_contents(expression="1 == 1", message="no", scope=expected)
    assert state.drafts["q"].contents is None


def test_policies_drafts_and_restrictions_from_before_uuids_are_read_with_a_scope_that_has_none() -> None:
    scope = PolicyScopeV2(catalogs=(), names=("sales.orders",), kinds=(), operations=(), properties=("tag",))
    held = PolicyContentsV2(expression="1 == 1", message="no", scope=scope, examples=())
    others: dict[str, Any] = {"reason": "why", "active_from": None, "draft": None, "author": None}
    restricts = RestrictionContentsV1(scope=scope, filter="row.id == 1", masks=(), schemas=(), examples=())
    old: list[ControlEvent] = [
        PolicyCreatedV3(id="p", version=1, contents=held, **others),
        PolicyChangedV3(id="p", version=2, contents=held, **others),
        PolicyDraftWrittenV2(id="p", version=1, contents=held, reason="why"),
        RestrictionCreatedV1(id="r", version=1, contents=restricts, reason="one"),
        RestrictionChangedV1(id="r", version=2, contents=restricts, reason="two"),
    ]
    state = state_of(*old)
    expected = Scope(names=("sales.orders",), properties=("tag",))
    assert (state.policies["p"].version, state.policies["p"].scope) == (2, expected)
    assert state.drafts["p"].contents == policy_contents(expression="1 == 1", message="no", scope=expected)
    found = state.restrictions["r"]
    assert (found.version, found.reason, found.contents.filter) == (2, "two", "row.id == 1")
    assert (found.contents.scope.names, found.contents.scope.uuids) == (("sales.orders",), ())
    with pytest.raises(FormatError):
        state_of(*old, RestrictionChangedV1(id="r", version=2, contents=restricts, reason="again"))


def test_a_policy_ends_with_a_reason_or_in_older_events_without() -> None:
    for event, reason in (
        (PolicyRetired(id="p", version=2, reason="old"), "old"),
        (PolicyRetiredV1(id="p", version=2), ""),
    ):
        assert state_of(created(), event).newest_policies == {}
        ended = evolve(evolve(None, created()), event)
        assert isinstance(ended, Policy)
        assert (ended.retired, ended.version, ended.reason) == (True, 2, reason)


def test_an_empty_scope_of_an_event_is_the_one_that_covers_everything() -> None:
    assert scope_of(policy_contents(expression="true", message="no")) is EVERYTHING


def written(version: int = 1) -> PolicyDraftWritten:
    return PolicyDraftWritten(id="p", version=version, contents=contents(), reason="why")


def reviewed(version: int, *, draft: int) -> PolicyDraftReviewed:
    return PolicyDraftReviewed(id="p", version=version, draft=draft, verdict=ReviewVerdict.REFUSE, reason="")


def test_a_draft_waits_until_it_is_reviewed_and_is_never_in_force() -> None:
    state = state_of(written())
    assert state.policies == {}
    assert state.drafts["p"] == PolicyDraft(id="p", version=1, contents=contents(), reason="why")
    assert state.policy_set == ControlState.empty().policy_set
    ended = state_of(written(), reviewed(2, draft=1))
    assert not ended.drafts["p"].pending
    again = state_of(written(), reviewed(2, draft=1), written(3))
    assert (again.drafts["p"].pending, again.drafts["p"].version) == (True, 3)


@pytest.mark.parametrize(
    "events",
    [
        [reviewed(1, draft=1)],
        [written(2)],
        [written(), written()],
        [written(), written(3)],
        [written(), reviewed(2, draft=2)],
        [written(), reviewed(2, draft=1), reviewed(3, draft=1)],
        [written(), reviewed(2, draft=1), reviewed(3, draft=2)],
        [changed(2)],
        [created(), changed(3)],
        [created(), PolicyRetired(id="p", version=2, reason=""), changed(3)],
        [created(), retired_at(2, 6), changed(3)],
        [created(), retired_at(2, 6), retired_at(3, 3)],
        [created(), retired_at(3, 6)],
        [retired_at(1, 6)],
        [created(), retired_at(2, 6), PolicyRetired(id="p", version=2, reason="")],
    ],
)
def test_an_event_that_does_not_follow_is_corruption(events: list[ControlEvent]) -> None:
    with pytest.raises(FormatError):
        state_of(*events)


def test_a_draft_is_not_taken_for_a_policy_nor_a_policy_for_a_draft() -> None:
    draft, policy = evolve(None, written()), evolve(None, created())
    with pytest.raises(FormatError):
        evolve(draft, changed(2))
    with pytest.raises(FormatError):
        evolve(policy, written(2))


def test_a_review_is_of_the_version_that_was_read() -> None:
    draft = PolicyDraft(id="p", version=3, contents=contents(), reason="")
    assert draft.review(ReviewVerdict.APPROVE, version=3, reason="fine").draft == 3
    with pytest.raises(ConflictError, match="expected version 2, found 3"):
        draft.review(ReviewVerdict.APPROVE, version=2, reason="")
    with pytest.raises(ConflictError, match="reviewed before"):
        replace(draft, pending=False).review(ReviewVerdict.APPROVE, version=3, reason="")


def test_a_retired_policy_is_not_changed() -> None:
    retired = Policy(id="p", version=2, expression="true", message="no", retired=True)
    with pytest.raises(RetiredError):
        retired.change(contents())
