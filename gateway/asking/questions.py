# SPDX-License-Identifier: Apache-2.0
"""
Who may do something, and what someone may do, by the access rules in force.

Guarantee: an answer is what a request would be answered now, with the rule that decides. What does not follow from the
question is left unknown, and a rule that reads it may make an answer undecidable, never permitted: what a commit or a
create does in detail (`actions`). A commit is taken as one to `main`, a key to be issued as one to its issuer.

A question takes at most `QUESTION_S`; callers who were not reached by then are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import UUID

from gateway.admin.limits import check_roles
from gateway.asking.callers import Caller, holders, vouched_for
from gateway.asking.requests import every_asked, parse_asked
from gateway.commit.gateway import Gateway
from gateway.commit.judgement import HAVE_UUID, JudgedRequest
from gateway.commit.known_uuids import upstream_uuid
from gateway.control.plane import ControlState
from gateway.errors import BadRequestError, NotFoundError
from gateway.identifiers import Target
from gateway.policy.access import Access, AccessDecision, path_of
from gateway.policy.variables import CommitView, RequestView
from gateway.policy.words import mentions

QUESTION_S: Final = 20.0

_ACTIONS: Final = "actions"
_BY_CONTENT: Final = frozenset({"table.create", "table.commit", "view.create", "view.replace"})
"""What these do in detail (`actions`) follows from their bodies."""
_MAKE_ONE: Final = frozenset({"create"})
"""After these there is a table or view that had no uuid before."""
_BRING_ONE: Final = frozenset({"register", "rename_to"})
"""These bring a table or view to a name, and which one follows from the request."""
_NO_REQUEST: Final = RequestView(method="", path="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What is decided about one caller."""

    caller: Caller
    decision: AccessDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """
    Who may do what `view` shows, by the rules as of control entry `as_of`; `not_asked` callers were not reached.
    """

    view: CommitView
    as_of: int
    answers: Sequence[Answered]
    not_asked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class What:
    """What `caller` may do: a request for each operation, with its decision, by the rules as of `as_of`."""

    caller: Caller
    as_of: int
    answers: Sequence[tuple[CommitView, AccessDecision]]


async def ask_who(gateway: Gateway, tenant: UUID, log_id: int, *, operation: str, target: str | None) -> Who:
    """
    Return who may do `operation` on a target.

    Raises:
        BadRequestError: if there is no such operation, or the target is nothing that it can be about.
        UnavailableError: if the rules cannot be read.
    """
    view = parse_asked(operation, target)
    state = await gateway.control.current(log_id)
    callers = [*await holders(gateway, log_id, state.keys.values()), *vouched_for(state)]
    asking = await _Asking.about(gateway, state, tenant, log_id, [view])
    ends_s = asyncio.get_running_loop().time() + QUESTION_S
    answers: list[Answered] = []
    for caller in callers:
        if asyncio.get_running_loop().time() > ends_s:
            break
        answers.append(Answered(caller=caller, decision=await asking.decision(caller, view)))
    return Who(view=view, as_of=state.as_of, answers=list(_telling(answers)), not_asked=len(callers) - len(answers))


async def ask_what(
    gateway: Gateway, tenant: UUID, log_id: int, *, target: str | None, key_id: str | None, roles: Sequence[str]
) -> What:
    """
    Return what the holder of a key may do on a target, or whoever is vouched for with exactly `roles`.

    Raises:
        BadRequestError: if it names no caller, or two, or the target is nothing.
        NotFoundError: if no such key is in force.
        UnavailableError: if the rules cannot be read, or the decisions take too long.
    """
    views = list(every_asked(target))
    state = await gateway.control.current(log_id)
    if (key_id is None) == (not roles):
        raise BadRequestError("expected a key or roles, and not both", field="key")
    caller = Caller(roles=check_roles(roles))
    if key_id is not None:
        found = [key for key in state.keys.values() if key.id == key_id]
        held = await holders(gateway, log_id, found)
        if not held:
            raise NotFoundError(f"key {key_id!r:.80}: expected one in force, found none", kind="NotFoundException")
        (caller,) = held
    asking = await _Asking.about(gateway, state, tenant, log_id, views)
    return What(
        caller=caller, as_of=state.as_of, answers=[(view, await asking.decision(caller, view)) for view in views]
    )


def who_shown(who: Who) -> dict[str, Any]:
    """Return an answer as JSON."""
    return {
        **_target_shown(who.view),
        "operation": who.view.operation,
        "as_of": who.as_of,
        "callers": [{**_caller_shown(one.caller), **_decision_shown(one.decision)} for one in who.answers],
        "not_asked": who.not_asked,
    }


def what_shown(what: What) -> dict[str, Any]:
    """Return an answer as JSON."""
    return {
        **_caller_shown(what.caller),
        "as_of": what.as_of,
        "operations": [
            {**_target_shown(view), "operation": view.operation, **_decision_shown(decision)}
            for view, decision in what.answers
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """`uuids` are those of the tables and views that are asked about, as far as they are known."""

    gateway: Gateway
    state: ControlState
    tenant: UUID
    log_id: int
    uuids: Mapping[Target, str | None]

    @classmethod
    async def about(
        cls, gateway: Gateway, state: ControlState, tenant: UUID, log_id: int, views: Sequence[CommitView]
    ) -> Self:
        """Return what asks about `views`; uuids are looked up if a rule reads them."""
        targets = dict.fromkeys(_named(view) for view in views if view.kind in HAVE_UUID) if state.reads_uuid else ()
        uuids = {
            target: "" if target.alias not in state.catalogs else await upstream_uuid(gateway, tenant, state, target)
            for target in targets
        }
        return cls(gateway=gateway, state=state, tenant=tenant, log_id=log_id, uuids=uuids)

    def _uuid(self, view: CommitView) -> str | None:
        verb = view.operation.rpartition(".")[2]
        if not self.state.reads_uuid or view.kind not in HAVE_UUID or verb in _MAKE_ONE:
            return ""
        return None if verb in _BRING_ONE else self.uuids[_named(view)]

    async def decision(self, caller: Caller, view: CommitView) -> AccessDecision:
        request = JudgedRequest(
            commit=view,
            principal=caller.principal(self.tenant, self.log_id),
            request=_NO_REQUEST,
            uuid=self._uuid(view),
        )
        unknown = frozenset({_ACTIONS}) if view.operation in _BY_CONTENT else frozenset[str]()
        decision = await self.gateway.judge.ask(self.state, request, unknown=unknown)
        rule = None if decision.reason is None else self.state.access_rules.get(decision.reason[0])
        if decision.outcome is Access.UNDECIDABLE and unknown and rule and mentions(rule.expression, unknown):
            message = f"access rule {rule.id} (version {rule.version}) reads what is done in detail (actions)"
            return AccessDecision(outcome=decision.outcome, reason=decision.reason, message=message)
        return decision


def _telling(answers: Sequence[Answered]) -> Iterable[Answered]:
    """Leave out sets of roles of which each role alone is decided alike: they say nothing more."""
    alone = {one.caller.roles: one.decision for one in answers if not one.caller.keys and len(one.caller.roles) <= 1}
    for one in answers:
        roles = one.caller.roles
        if not one.caller.keys and len(roles) > 1:
            known = [alone.get((role,)) for role in roles]
            if all(each is not None and each.outcome is one.decision.outcome for each in known):
                continue
        yield one


def _named(view: CommitView) -> Target:
    return Target(alias=view.catalog, namespace=tuple(view.namespace), name=view.name, is_view=view.kind == "view")


def _target_shown(view: CommitView) -> Mapping[str, Any]:
    return {"catalog": view.catalog, "path": path_of(view)}


def _caller_shown(caller: Caller) -> Mapping[str, Any]:
    return {
        "identity": caller.identity,
        "actor": caller.actor,
        "roles": list(caller.roles),
        "keys": list(caller.keys),
    }


def _decision_shown(decision: AccessDecision) -> Mapping[str, Any]:
    rule = None if decision.reason is None else {"id": decision.reason[0], "version": decision.reason[1]}
    return {"decision": decision.outcome.value, "rule": rule, "message": decision.message}
