# SPDX-License-Identifier: Apache-2.0
"""
Decides on many requests that differ in nothing but the name of their target, and its uuid: those of a list.

Guarantee: each decision is what `judging.judge_rules` returns for that request. It is asked here, too: once for all
requests for which every rule has the same verdict. Rules are evaluated as seldom as possible:

 1  a rule that reads neither path nor uuid once
 2  one that is decided without them, too: `'x' in roles && path == 'y'` of a caller without that role
 3  the others for each request, many in one call of the engine
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from gateway.policy.access import Access, AccessRequest, JudgedRule, path_of
from gateway.policy.checks import is_elsewhere
from gateway.policy.engine import Outcome, Program, Verdict, outcomes_of
from gateway.policy.judging import Evaluate, countdown, judge_rules
from gateway.policy.words import may_read

if TYPE_CHECKING:
    from ledger.format.canonical import Json

OWN: Final = ("path", "uuid")
"""The variables in which the requests differ."""


class EvaluateRows(Protocol):
    """Evaluates programs on many sets of variables: the engine's `judge_rows`, for one tenant."""

    async def __call__(
        self,
        programs: Sequence[Program],
        shared: Mapping[str, Json],
        rows: Sequence[Mapping[str, Json]],
        *,
        timeout_s: float,
    ) -> list[str]:
        """Return for each of `rows` the letter of an outcome of each of `programs`."""


async def decide_each(
    evaluate: Evaluate,
    evaluate_rows: EvaluateRows,
    rules: Sequence[JudgedRule],
    requests: Sequence[AccessRequest],
    *,
    timeout_s: float,
) -> list[Access]:
    """
    Return the decision of `rules` about each of `requests`.

    Raises:
        UnknownOperationError: if their operation has no name in the vocabulary of rules.
        PolicyEngineError: if the engine gave no answer.
    """
    if not any(rule.asks_each_check for rule in rules):
        return await _decide_usual(evaluate, evaluate_rows, rules, requests, timeout_s=timeout_s)
    # Rules that are asked about each check are not asked about a name that leads elsewhere.
    usual = [request for request in requests if not is_elsewhere(request)]
    decided = iter(await _decide_usual(evaluate, evaluate_rows, rules, usual, timeout_s=timeout_s))
    return [Access.DENIED if is_elsewhere(request) else next(decided) for request in requests]


async def _decide_usual(
    evaluate: Evaluate,
    evaluate_rows: EvaluateRows,
    rules: Sequence[JudgedRule],
    requests: Sequence[AccessRequest],
    *,
    timeout_s: float,
) -> list[Access]:
    if not requests:
        return []
    remaining_s = countdown(timeout_s)
    first, calls = requests[0], list[_Call]()

    async def noting(
        programs: Sequence[Program], activation: Mapping[str, Json], *, timeout_s: float
    ) -> tuple[Verdict, ...]:
        verdicts = await evaluate(programs, activation, timeout_s=timeout_s)
        calls.append(_Call(verdicts=verdicts, programs=programs, activation=activation))
        return verdicts

    judged = await judge_rules(noting, rules, first, timeout_s=remaining_s())
    paths = [path_of(request.commit) for request in requests]
    for call in calls:
        if call.activation["path"] == paths[0]:  # else it is about a reference, which has no path
            await call.look_up(evaluate, evaluate_rows, requests, paths, remaining_s())
    if not any(call.places for call in calls):
        return [judged.decision.outcome] * len(requests)
    known: dict[tuple[str, ...], Access] = {}
    decisions: list[Access] = []
    for number, request in enumerate(requests):
        signature = tuple(call.outcomes[number] for call in calls if call.places)
        if signature not in known:
            answers = iter([call.verdicts_of(number) for call in calls])

            async def answer(
                programs: Sequence[Program],  # noqa: ARG001 - they are those that were noted, in the same order
                activation: Mapping[str, Json],  # noqa: ARG001
                *,
                timeout_s: float,  # noqa: ARG001
                answers: Iterator[tuple[Verdict, ...]] = answers,
            ) -> tuple[Verdict, ...]:
                return next(answers)

            known[signature] = (await judge_rules(answer, rules, request, timeout_s=timeout_s)).decision.outcome
        decisions.append(known[signature])
    return decisions


@dataclass(slots=True, kw_only=True)
class _Call:
    """
    A call of the engine for the first request, with its verdicts. `places` are those of the programs whose verdicts
    may differ, `outcomes` what they are for each request, as letters.
    """

    programs: Sequence[Program]
    activation: Mapping[str, Json]
    verdicts: Sequence[Verdict]
    places: Sequence[int] = ()
    outcomes: Sequence[str] = ()

    async def look_up(
        self,
        evaluate: Evaluate,
        evaluate_rows: EvaluateRows,
        requests: Sequence[AccessRequest],
        paths: Sequence[str],
        timeout_s: float,
    ) -> None:
        """Evaluate for each request the programs that read its name or uuid, as far as these decide anything."""
        remaining_s = countdown(timeout_s)
        reading = [place for place, program in enumerate(self.programs) if may_read(program, OWN)]
        if not reading:
            return
        shared = {name: value for name, value in self.activation.items() if name not in OWN}
        without = await evaluate([self.programs[place] for place in reading], shared, timeout_s=remaining_s())
        self.places = [
            place for place, verdict in zip(reading, without, strict=True) if verdict.outcome is Outcome.ERROR
        ]
        if not self.places:
            return
        rows = [
            {"path": path} if request.uuid is None else {"path": path, "uuid": request.uuid}
            for path, request in zip(paths, requests, strict=True)
        ]
        programs = [self.programs[place] for place in self.places]
        self.outcomes = await evaluate_rows(programs, shared, rows, timeout_s=remaining_s())

    def verdicts_of(self, number: int) -> tuple[Verdict, ...]:
        """Return the verdicts for one request, by its number."""
        verdicts = list(self.verdicts)
        for place, outcome in zip(self.places, outcomes_of(self.outcomes[number]) if self.places else (), strict=True):
            program = self.programs[place]
            verdicts[place] = Verdict(kind=program.kind, id=program.id, version=program.version, outcome=outcome)
        return tuple(verdicts)
