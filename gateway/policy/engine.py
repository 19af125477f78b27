# SPDX-License-Identifier: Apache-2.0
"""
The interface of the policy engine: programs in, one verdict for each of them out.

Guarantee: a `Verdict` allows only if its expression gave exactly the boolean true. Any other result is `Outcome.DENY`
(exactly false) or `Outcome.ERROR`; there is no fourth value and no default.

The engine is a Protocol because it runs in child processes (see `pool.py`), and could be replaced. All programs of a
commit go in one call with one deadline: with a deadline for each, their number would decide how long a commit waits.
Each call names the tenant's log: engines share their time between tenants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, Self

from gateway.errors import UnavailableError, UnprocessableError

if TYPE_CHECKING:
    from ledger.format.canonical import Json  # for the type checker only: the child process does not load the log

POLICY: Final = "policy"
ACCESS_RULE: Final = "access_rule"
CEDAR_PERMIT: Final = "cedar_permit"
CEDAR_FORBID: Final = "cedar_forbid"
CEDAR_KINDS: Final = frozenset({CEDAR_PERMIT, CEDAR_FORBID})
"""Access rules in Cedar, by what they say themselves: they permit, or forbid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """
    One expression in force: `kind` is `POLICY` or `ACCESS_RULE`, `id` and `version` those of its aggregate.

    It is in CEL, unless `cedar` is one of `CEDAR_KINDS`.
    """

    kind: str
    id: str
    version: int
    expression: str
    cedar: str = ""

    @property
    def judged_as(self) -> str:
        """The kind of program that it is to those who judge it: which language it is in, too."""
        return self.cedar or self.kind


class Outcome(StrEnum):
    """The result of one program; an error is neither yes nor no, and is never treated as either."""

    ALLOW = "allow"
    DENY = "deny"
    ERROR = "error"


OUTCOME_LETTERS: Final = {Outcome.ALLOW: "a", Outcome.DENY: "d", Outcome.ERROR: "e"}
"""The outcomes of several programs on one of many rows are a text, with one letter for each."""
_OF_LETTERS: Final = {letter: outcome for outcome, letter in OUTCOME_LETTERS.items()}


def outcomes_of(letters: str) -> tuple[Outcome, ...]:
    """Return the outcomes of programs on one row; a letter that there is not is an error."""
    return tuple(_OF_LETTERS.get(letter, Outcome.ERROR) for letter in letters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of one program. `detail` describes an error, without any value of the commit; empty otherwise."""

    kind: str
    id: str
    version: int
    outcome: Outcome
    detail: str = ""


class PolicyNotCompiledError(UnprocessableError):
    """An expression does not compile; `line` and `column` (both from 1) say where, `reason` says why."""

    def __init__(self, reason: str, *, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.reason = reason
        self.line = line
        self.column = column


class PolicyEngineError(UnavailableError):
    """
    The engine gave no answer to a call, so nothing may be approved on it.

    `verdicts` has one for each program, in their order: those from before the engine stopped, and `Outcome.ERROR` for
    the others. They are for the record of an undecidable commit only.
    """

    def __init__(self, message: str, *, verdicts: tuple[Verdict, ...] = ()) -> None:
        super().__init__(message)
        self.verdicts = verdicts


class EngineUnavailableError(PolicyEngineError):
    """The engine could not be started, ended in the middle of the call, or has too many calls waiting."""


class DeadlineExceededError(PolicyEngineError):
    """The call's time for waiting, or for the work, was over; what was still running has been stopped."""


class SecondsLeft(float):
    """What is left of a time limit of `of_s` seconds: errors name the limit, not what happened to be left of it."""

    __slots__ = ("of_s",)
    of_s: float

    def __new__(cls, left_s: float, *, of_s: float) -> Self:
        """Return what is left of `of_s`, which may be a rest itself."""
        left = super().__new__(cls, left_s)
        left.of_s = limit_of(of_s)
        return left


def limit_of(timeout_s: float) -> float:
    """
    Return the time limit that a timeout is, or is left of.
    """
    return timeout_s.of_s if isinstance(timeout_s, SecondsLeft) else timeout_s


class PolicyEngine(Protocol):
    """Compiles expressions when they are saved, and judges programs for each request."""

    async def check(self, expression: str, *, log_id: int, timeout_s: float, kind: str = POLICY) -> None:
        """
        Check that `expression` compiles, and that it uses only the variables and functions that its `kind` has.

        Raises:
            PolicyNotCompiledError: if it does not; carries the place.
            PolicyEngineError: if the engine gave no answer within `timeout_s`, counted from when it began.
        """

    async def judge(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, log_id: int, timeout_s: float
    ) -> tuple[Verdict, ...]:
        """
        Judge `programs` on the variables in `activation`; return a verdict for each, in their order.

        A program that fails is a verdict, `Outcome.ERROR`. An exception is raised only when the call as a whole failed.

        Raises:
            TooLargeError: if the variables are larger than the limit; nothing was judged.
            DeadlineExceededError: if `timeout_s`, counted from the start of judging, was over before all of them were
                judged, or the call waited too long to start.
            EngineUnavailableError: if the engine could not be called, or ended before it answered.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """
    A part of an expression that was evaluated: its text, where it begins (from 1), and how deep it is nested.

    `value` is its value as text, cut; None if it had none, and `error` says what class of error it was. A part within a
    macro was evaluated several `times`; the value is the last one.
    """

    text: str
    line: int
    column: int
    depth: int
    times: int
    value: str | None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A verdict, and how the expression came to it: the outer part first, in the order of the text."""

    verdict: Verdict
    steps: tuple[Step, ...]


class Tracer(Protocol):
    """Explains verdicts; it shares the processes of an engine, behind commits."""

    async def trace(self, program: Program, activation: Mapping[str, Json], *, log_id: int, timeout_s: float) -> Traced:
        """
        Judge one program on the variables in `activation`, and return the values of its parts, too.

        Raises as `PolicyEngine.judge`.
        """


class JudgesRows(Protocol):
    """Judges some programs on many sets of variables that share most of them."""

    async def judge_rows(
        self,
        programs: Sequence[Program],
        shared: Mapping[str, Json],
        rows: Sequence[Mapping[str, Json]],
        *,
        log_id: int,
        timeout_s: float,
    ) -> list[str]:
        """
        Judge `programs` on the `shared` variables and those of each of `rows`; return for each row the letters of the
        programs' outcomes (`outcomes_of`).

        It is asked in pieces that take about as long as a usual commit, so that commits are judged in between.

        Raises as `PolicyEngine.judge`.
        """
