# SPDX-License-Identifier: Apache-2.0
"""
Edits of policies: what is peculiar to them in the life that `drafted_edits.py` describes.

Guarantee: what comes into force compiles, its message can be filled, and its examples hold. A version may come into
force at a time to come, and a policy may end at one; how many versions wait so is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import ClassVar, Final

from gateway.admin import limits
from gateway.admin.drafted_edits import Cause, DraftedEdits, ExamplesFailedError
from gateway.admin.edits import Edits
from gateway.control.aggregates import Policy, RetiredError, policy_contents
from gateway.control.drafts import PolicyDraft
from gateway.control.plane import ControlPlane, ControlState
from gateway.errors import UnprocessableError
from gateway.policy.engine import POLICY, PolicyEngine
from gateway.policy.examples import Example, failing, given_text, parse_given
from gateway.policy.judging import Evaluate
from gateway.policy.policy_files import PolicyFile
from gateway.policy.scopes import EVERYTHING, Scope
from ledger.format import canonical
from ledger.format.events import (
    PolicyChanged,
    PolicyContents,
    PolicyCreated,
    PolicyExample,
    PolicyExpectation,
    PolicyRetired,
    PolicyRetiredV3,
)
from ledger.store.log_store import LendConnection

CHECK_TIMEOUT_S: Final = 5.0
EXAMPLES_TIMEOUT_S: Final = 10.0
COMING_MAX: Final = 8
"""Versions of one policy that wait for their time."""
TIMES_MAX: Final = 64
"""Versions with a time, come or not, behind the newest without one: which of them is in force depends on the time."""


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


class PolicyEdits(DraftedEdits[Policy, PolicyText, PolicyContents]):
    """Edits the policies of all tenants."""

    what: ClassVar[str] = "policy"
    many: ClassVar[str] = "policies"
    thing_class = Policy
    draft_class = PolicyDraft

    def __init__(
        self,
        edits: Edits,
        control: ControlPlane,
        engine: PolicyEngine,
        *,
        lend: LendConnection,
        clock: Callable[[], datetime],
    ) -> None:
        super().__init__(edits, control, lend=lend, clock=clock)
        self._engine = engine

    def newest(self, state: ControlState) -> Mapping[str, Policy]:
        """Return the newest versions, also of policies that have ended within the last day."""
        return state.newest_policies

    def lasting(self, state: ControlState) -> Mapping[str, Policy]:
        """Return those that are in force or will be."""
        return lasting(state, self._clock())

    def drafts(self, state: ControlState) -> Mapping[str, PolicyDraft]:
        """Return the drafts of policies."""
        return state.drafts

    def contents(self, text: PolicyText) -> PolicyContents:
        """Return what an author wrote as events hold it."""
        return policy_contents(
            expression=text.expression,
            message=text.message,
            scope=text.scope,
            examples=tuple(
                PolicyExample(expect=PolicyExpectation(one.expect), name=one.name, given=given_text(one))
                for one in text.examples
            ),
        )

    async def check_contents(self, log_id: int, contents: PolicyContents) -> None:
        """See `Admin.check_policy`."""
        limits.check_policy_texts(expression=contents.expression, message=contents.message)
        await self._engine.check(contents.expression, log_id=log_id, timeout_s=CHECK_TIMEOUT_S, kind=POLICY)
        evaluate: Evaluate = partial(self._engine.judge, log_id=log_id)
        examples = examples_of(contents.examples)
        if found := await failing(evaluate, contents.expression, examples, timeout_s=EXAMPLES_TIMEOUT_S):
            raise ExamplesFailedError(found)

    def created(self, id_: str, contents: PolicyContents, cause: Cause) -> PolicyCreated:
        """Return the event that puts the first version in force."""
        return PolicyCreated(
            id=id_,
            version=1,
            contents=contents,
            reason=cause.reason,
            active_from=None if cause.active_from is None else canonical.format_time(cause.active_from),
            draft=cause.draft,
            author=cause.author,
        )

    def changed(self, thing: Policy, contents: PolicyContents, cause: Cause) -> PolicyChanged:
        """Return the event that puts a later version in force. Raises if too many wait for their time."""
        _check_coming(thing, now=self._clock())
        event = thing.change(contents, reason=cause.reason, active_from=cause.active_from)
        return replace(event, draft=cause.draft, author=cause.author)

    def ended(self, thing: Policy, cause: Cause) -> PolicyRetired | PolicyRetiredV3:
        """Return the event that ends a policy, at once or at a time to come."""
        if thing.is_over(self._clock()):
            raise RetiredError(f"policy:{thing.id}", thing.active_from)
        return thing.retire(reason=cause.reason, retire_at=cause.active_from)


def lasting(state: ControlState, now: datetime) -> dict[str, Policy]:
    """
    Return the policies that are in force or will be, oldest first, each in its newest version.
    """
    return {id_: policy for id_, policy in state.newest_policies.items() if not policy.is_over(now)}


def examples_of(held: tuple[PolicyExample, ...]) -> tuple[Example, ...]:
    """
    Return the examples that an event holds.
    """
    return tuple(parse_given(name=one.name, expect=one.expect, given=one.given) for one in held)


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
