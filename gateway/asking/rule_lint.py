# SPDX-License-Identifier: Apache-2.0
"""
Finds access rules in force that do nothing (`rule_findings.py`): they hold for no request, or another rule decides
wherever they hold.

Guarantee: a finding that is `certain` is proven for every request (`exact/`). Of a rule that is listed neither as a
finding nor as `undecided`, the engine has judged a request for which it holds, and of a permitting one a request that
no rule forbids, and for each other one a request that the other does not permit. Rules with parts of
which nothing can be proven (`matches`, two variables in one comparison), and those that the time was not enough for,
are tried on requests as well (`rule_trial.py`), are listed as `undecided`, and what is found of them says how many
requests it was looked for in.

Everything is bounded, and what was not looked at is listed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from gateway.asking.callers import NOBODY
from gateway.asking.exact.deciding import Decided, Deciding, may_cover
from gateway.asking.exact.questions import Answer, read_rules
from gateway.asking.exact.scenes import every_scene
from gateway.asking.names import read_names
from gateway.asking.requests import request_in_words
from gateway.asking.rule_findings import Finding, Kind, Known
from gateway.asking.rule_space import OPERATION, SOME, Space
from gateway.asking.rule_trial import Evaluation, Search, Trial
from gateway.catalogs.registry import REST
from gateway.commit.gateway import Gateway
from gateway.control.plane import ControlState
from gateway.policy.access import IN_CEDAR, JudgedRule
from gateway.policy.engine import ACCESS_RULE
from gateway.policy.former import is_in_doubt
from gateway.policy.vocabulary import variables_of
from gateway.policy.words import reads
from ledger.format.events import Effect

LINT_S: Final = 30.0
RULES_MAX: Final = 200
CALLERS_MAX: Final = 60

_CLOSED: Final = (OPERATION, "catalog")
"""Dimensions of which the space has all values that there are; of callers it has all roles that the rule names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linted:
    """
    What was found in the rules as of control entry `as_of`, what was not looked at, and of which rules (by their ids)
    something is not certain, and why.
    """

    as_of: int
    rules: int
    tried: int
    findings: Sequence[Finding]
    left_out: Sequence[str]
    undecided: Mapping[str, str]


async def lint_rules(gateway: Gateway, tenant: UUID, log_id: int) -> Linted:
    """
    Return which access rules in force do nothing.

    Raises:
        UnavailableError: if the rules cannot be read, or not be evaluated.
    """
    state = await gateway.control.current(log_id)
    every = [rule.judged() for rule in state.access_rules.values()]
    rules = [rule for rule in every if not is_in_doubt(rule) and rule.vocabulary != IN_CEDAR]
    names = await read_names(gateway, tenant, state)
    left_out = list(names.left_out)
    if doubtful := [rule.id for rule in every if is_in_doubt(rule)]:
        left_out.append(f"rules of the first vocabulary that may mean something else now: {', '.join(doubtful)}")
    if in_cedar := [rule.id for rule in every if rule.vocabulary == IN_CEDAR]:
        left_out.append(f"rules in Cedar, and what they do to the others: {', '.join(in_cedar)}")
    if more := rules[RULES_MAX:]:
        left_out.append(f"rules after the first {RULES_MAX}: {len(more)}")
    keys = [key for key in state.keys.values() if not key.is_expired(gateway.clock())]
    callers = list(dict.fromkeys((key.roles, key.actor) for key in keys))
    if len(callers) > CALLERS_MAX:
        left_out.append(f"holders of keys after the first {CALLERS_MAX}: {len(callers) - CALLERS_MAX}")
    space = Space(callers=(*callers[:CALLERS_MAX], ((), NOBODY)), names=names.by_alias)
    known = Known(state=state, roles=frozenset(role for key in keys for role in key.roles))
    evaluation = Evaluation(judges=gateway.judge.rows, log_id=log_id, timeout_s=LINT_S)
    looked_at = rules[:RULES_MAX]
    trial = Trial(space=space, evaluation=evaluation, rules=looked_at)
    clock = asyncio.get_running_loop().time
    ends_s = clock() + LINT_S
    linting: _Linting | None = None
    for position, rule in enumerate(looked_at):
        if clock() > ends_s:
            left_out.append(f"after {LINT_S:g} s, the rules from {rule.id} on: {len(looked_at) - position}")
            break
        if linting is None:
            deciding = await _deciding(gateway, log_id, state, looked_at, ends_s=ends_s)
            linting = _Linting(known=known, trial=trial, deciding=deciding)
        await linting.look_at(rule)
    findings: Sequence[Finding] = ()
    if linting is not None:
        await linting.look_at_several()
        order = {rule.id: number for number, rule in enumerate(looked_at)}
        findings = sorted(linting.findings, key=lambda one: order[one.rule.id])
    return Linted(
        as_of=state.as_of,
        rules=len(every),
        tried=evaluation.tried + (0 if linting is None else linting.deciding.tried),
        findings=findings,
        left_out=tuple(left_out),
        undecided={} if linting is None else linting.undecided,
    )


async def _deciding(
    gateway: Gateway, log_id: int, state: ControlState, rules: Sequence[JudgedRule], *, ends_s: float
) -> Deciding:
    """Return what proves things about `rules`, for requests to the catalogs in force."""
    aliases = list(state.catalogs) or [SOME]
    with_branches = [alias for alias, catalog in state.catalogs.items() if catalog.kind == REST]
    by_checks = any(rule.asks_each_check for rule in rules)
    by_uuid = any(rule.may_read("uuid") for rule in rules)
    clock = asyncio.get_running_loop().time
    read = await read_rules(
        gateway.judge.rows,
        rules,
        list(every_scene(aliases, with_branches, by_checks=by_checks, by_uuid=by_uuid)),
        log_id=log_id,
        timeout_s=LINT_S,
        ends_s=ends_s,
        clock=clock,
    )
    return Deciding(read)


def linted_shown(linted: Linted) -> dict[str, Any]:
    """Return it as JSON."""
    return {
        "as_of": linted.as_of,
        "rules": linted.rules,
        "tried": linted.tried,
        "findings": [
            {
                "rule": {"id": each.rule.id, "version": each.rule.version},
                "effect": each.rule.effect.value,
                "finding": each.kind.value,
                "certain": each.certain,
                "by": list(each.by),
                "names": list(each.names),
                "tried": each.tried,
                "held": each.held,
                "example": each.example,
                "message": each.message,
            }
            for each in linted.findings
        ],
        "not_looked_at": list(linted.left_out),
        "undecided": [{"rule": rule, "why": why} for rule, why in linted.undecided.items()],
    }


@dataclass(slots=True, kw_only=True)
class _Linting:
    """Looks at one rule after the other: `acting` are the permitting ones that are proven to do something."""

    known: Known
    trial: Trial
    deciding: Deciding
    findings: list[Finding] = field(default_factory=list)
    undecided: dict[str, str] = field(default_factory=dict)
    acting: list[JudgedRule] = field(default_factory=list)

    async def look_at(self, rule: JudgedRule) -> None:
        """Find what is to say of one rule, and of others one by one."""
        answer = await self.deciding.holds(rule)
        missing = self.known.missing(rule)
        search = None if answer.found else await self.trial.search(rule)
        if search is not None and (not answer.known or search.held):
            self._leave_undecided(rule)
        if search is not None and not search.held:
            self.findings.append(_never(rule, search, missing, is_proven=answer.known, tried=answer.tried))
            return
        if missing:
            self.findings.append(_names_what_is_not(rule, missing, answer, search))
        if rule.effect is not Effect.PERMIT:
            return
        decided = await self._decided_by_others(rule, answer) if search is None else None
        if decided is None:
            self._leave_undecided(rule)
            held = (await self.trial.search(rule)).held
            self.findings += await self.trial.decided_by_others(rule, held) if held else []
        elif decided:
            self.findings += decided
        else:
            self.acting.append(rule)

    async def look_at_several(self) -> None:
        """Find permitting rules of which others permit everything together; of these each is needed."""
        for rule in reversed(list(self.acting)):
            others = [one for one in self.acting if may_cover(one, rule)]
            decided = await self.deciding.covered_together(rule, others) if len(others) > 1 else False
            if decided is None:
                self._leave_undecided(rule)
            if not isinstance(decided, Decided):
                continue
            self.acting.remove(rule)
            by = [one.id for one in decided.by]
            message = f"wherever it holds, one of these holds: {', '.join(by)}"
            self.findings.append(_decided(rule, Kind.COVERED, message, by, await self.deciding.holds(rule)))

    async def _decided_by_others(self, rule: JudgedRule, answer: Answer) -> list[Finding] | None:
        """Return what is proven about others that decide wherever a rule holds; None if that is not known."""
        found: list[Finding] = []
        forbids = [one for one in self.trial.rules if one.effect is Effect.FORBID]
        decided = await self.deciding.forbidden(rule, forbids) if forbids else False
        if isinstance(decided, Decided):
            by = [one.id for one in decided.by]
            how = "holds or could not be judged" if decided.may_fail else "holds, too"
            message = f"wherever it holds, a forbidding rule {how}: {', '.join(by)}"
            found.append(_decided(rule, Kind.OVERRIDDEN, message, by, answer))
        others = [one for one in self.trial.rules if may_cover(one, rule)]
        covered = await self.deciding.covered(rule, others) if others else False
        if isinstance(covered, Decided):
            (one,) = covered.by
            how = "which is older, and no request tells them apart"
            if one.vocabulary != rule.vocabulary:
                how = "for all checks of a request"
            elif covered.is_wider:
                how = "and for more"
            message = f"wherever it holds, {one.id} holds, {how}"
            found.append(_decided(rule, Kind.COVERED, message, [one.id], answer))
        return None if decided is None or covered is None else found

    def _leave_undecided(self, rule: JudgedRule) -> None:
        parts = self.deciding.rules.opaque_parts(rule)
        of_others = "the time was not enough, or nothing can be proven of rules that it was compared with"
        self.undecided[rule.id] = f"nothing can be proven of {parts[0]:.200}" if parts else of_others


def _names_what_is_not(rule: JudgedRule, missing: Mapping[str, str], answer: Answer, search: Search | None) -> Finding:
    words = ", ".join(f"no {what} is {text!r:.80}" for text, what in missing.items())
    tried, held, example = (
        (answer.tried, len(answer.found), _example(answer))
        if search is None
        else (search.tried, len(search.held), search.held[0].words())
    )
    return Finding(
        rule=rule, kind=Kind.UNKNOWN, message=words, names=tuple(missing), tried=tried, held=held, example=example
    )


def _example(answer: Answer) -> str:
    witness = answer.found[0]
    return request_in_words(witness.request, witness.variables())


def _decided(rule: JudgedRule, kind: Kind, message: str, by: Sequence[str], answer: Answer) -> Finding:
    return Finding(
        rule=rule,
        kind=kind,
        message=message,
        certain=True,
        by=by,
        tried=answer.tried,
        held=len(answer.found),
        example=_example(answer),
    )


def _never(rule: JudgedRule, search: Search, missing: Mapping[str, str], *, is_proven: bool, tried: int) -> Finding:
    read = reads(rule.expression, variables_of(ACCESS_RULE))
    words = "; ".join(f"no {what} is {text!r:.80}" for text, what in missing.items())
    # What a key would grant is no closed dimension.
    certain = is_proven or (search.ended_at in _CLOSED and not search.was_cut and "grant" not in read)
    if not read:
        message, certain = "it is false, whatever is asked", is_proven or search.ended_at == OPERATION
    elif search.ended_at == OPERATION:
        message = "it holds for no operation"
    elif search.ended_at == "catalog":
        message = "it holds in no catalog in force"
    elif certain:
        message = "it holds for no request"
    else:
        message = f"no request was found for which it holds, in {search.tried:,} that were tried"
    message = f"{message}: {words}" if words else message
    return Finding(
        rule=rule,
        kind=Kind.NEVER,
        message=message,
        certain=certain,
        names=tuple(missing),
        tried=search.tried + tried,
    )
