# SPDX-License-Identifier: Apache-2.0
"""
Who judges access rules: one implementation for each language that they are written in.

Guarantee: whichever implementation judges a rule, its result is one of the same three (the rule holds, it does not, it
could not be judged), and rules of all languages are combined in one place (`access.decide_access`). A rule in a
language that this installation does not have could not be judged: it permits nothing, and what it might forbid is
undecidable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.programs import Programs, Result
from gateway.policy.engine import CEDAR_KINDS, Outcome, PolicyNotCompiledError

NOT_INSTALLED: Final = "it is written in Cedar, which is not installed here: pip install 'lakeproof[cedar]'"


class AccessChecker(Protocol):
    """Judges rules of one language, many requests at a time: who (the caller), does what, to what."""

    def check(self, expression: str, *, kind: str) -> None:
        """
        Check that a rule may be saved as one of this `kind`.

        Raises:
            PolicyNotCompiledError: if not; carries the place.
        """

    def judge_rows(
        self,
        programs: Sequence[tuple[str, str]],
        shared: Mapping[str, Any],
        rows: Sequence[Mapping[str, Any]],
        *,
        log_id: int,
    ) -> Iterator[list[Result]]:
        """
        Yield for each of `rows` a result for each of `programs` (kind and expression of a rule), judged on the `shared`
        variables of access rules and the row's own. A rule cannot be judged by what a variable has that is not there.

        Raises:
            JudgingStopped: once the interruption is set; results that were yielded remain valid.
        """


class Checkers:
    """
    The programs of all languages. Those in CEL are all policies and most access rules; they are judged one by one, so
    that the results before an interruption are known. For one thread only.
    """

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._cedar: AccessChecker | None = None

    def check(self, expression: str, *, kind: str) -> None:
        """See `AccessChecker.check`."""
        checker: AccessChecker = self._in_cedar() if kind in CEDAR_KINDS else self._programs
        checker.check(expression, kind=kind)

    def judge(
        self,
        programs: Sequence[tuple[str, str]],
        activation: Mapping[str, Any],
        *,
        log_id: int,
        sound: Collection[int] = (),
    ) -> Iterator[Result]:
        """
        Yield a result for each of `programs`, in their order; `sound` as `Programs.judge` has it. Raises as
        `AccessChecker.judge_rows`.
        """
        mine, others = _split(programs)
        if not others:
            yield from self._programs.judge(mine, activation, log_id=log_id, sound=sound)
            return
        of_others = iter(next(self._in_cedar().judge_rows(others, activation, [{}], log_id=log_id)))
        of_mine = self._programs.judge(mine, activation, log_id=log_id, sound=sound)
        for kind, _ in programs:
            yield next(of_others if kind in CEDAR_KINDS else of_mine)

    def judge_rows(
        self,
        programs: Sequence[tuple[str, str]],
        shared: Mapping[str, Any],
        rows: Sequence[Mapping[str, Any]],
        *,
        log_id: int,
    ) -> Iterator[list[Result]]:
        """See `AccessChecker.judge_rows`."""
        mine, others = _split(programs)
        if not others:
            yield from self._programs.judge_rows(mine, shared, rows, log_id=log_id)
            return
        of_mine = self._programs.judge_rows(mine, shared, rows, log_id=log_id)
        of_others = self._in_cedar().judge_rows(others, shared, rows, log_id=log_id)
        for first, second in zip(of_mine, of_others, strict=True):
            here, there = iter(first), iter(second)
            yield [next(there if kind in CEDAR_KINDS else here) for kind, _ in programs]

    def trace(self, kind: str, expression: str, activation: Mapping[str, Any]) -> tuple[Result, list[dict[str, Any]]]:
        """Return the result of one program, and the values of its parts; of one in Cedar these are not known."""
        if kind not in CEDAR_KINDS:
            return self._programs.trace(kind, expression, activation)
        ((result,),) = self._in_cedar().judge_rows([(kind, expression)], activation, [{}], log_id=0)
        return result, []

    def _in_cedar(self) -> AccessChecker:
        """Return the checker of Cedar policies. It is loaded for the first of them: most installations have none."""
        if self._cedar is None:
            self._cedar = _cedar_checker(self._programs.interruption)
        return self._cedar


class _NotInstalled:
    """In place of a checker that is not installed."""

    def check(self, expression: str, *, kind: str) -> None:  # noqa: ARG002 - as the Protocol has it
        raise PolicyNotCompiledError(NOT_INSTALLED, line=1, column=1)

    def judge_rows(
        self,
        programs: Sequence[tuple[str, str]],
        shared: Mapping[str, Any],  # noqa: ARG002
        rows: Sequence[Mapping[str, Any]],
        *,
        log_id: int,  # noqa: ARG002
    ) -> Iterator[list[Result]]:
        for _ in rows:
            yield [Result(Outcome.ERROR, NOT_INSTALLED)] * len(programs)


def _cedar_checker(interruption: Interruption) -> AccessChecker:
    try:
        from gateway.policy.cedar.policies import CedarPolicies
    except ModuleNotFoundError as error:
        if error.name != "cedarpy":
            raise
        return _NotInstalled()
    return CedarPolicies(interruption)


def _split(programs: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the programs in CEL, and those in Cedar."""
    others = [one for one in programs if one[0] in CEDAR_KINDS]
    if not others:
        return list(programs), others
    return [one for one in programs if one[0] not in CEDAR_KINDS], others
