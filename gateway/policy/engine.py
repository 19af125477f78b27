"""
What a policy engine is asked and what it answers: programs in, one verdict for each of them out.

Guarantee: a `Verdict` allows only if its expression gave exactly the boolean true. Everything else that can come out of
an expression is `Outcome.DENY` (exactly false) or `Outcome.ERROR`; there is no fourth value and no default.

The engine stands behind a Protocol because it runs elsewhere (see `pool.py`) and because a faster one may come. All
programs of a commit go in one call: a deadline over each of them alone would let their number decide how long a commit
waits. Each call says whose it is (the tenant's log): engines share out their time between tenants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from gateway.errors import UnavailableError, UnprocessableError

if TYPE_CHECKING:
    from ledger.format.canonical import Json  # for the checker only: the child process need not load the log's modules

POLICY: Final = "policy"
ACCESS_RULE: Final = "access_rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One expression in force: `kind` is `POLICY` or `ACCESS_RULE`, `id` and `version` those of its aggregate."""

    kind: str
    id: str
    version: int
    expression: str


class Outcome(StrEnum):
    """What came of one program; an error is neither yes nor no and never passes for either."""

    ALLOW = "allow"
    DENY = "deny"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of one program. `detail` says what went wrong, never with a value of the commit; empty otherwise."""

    kind: str
    id: str
    version: int
    outcome: Outcome
    detail: str = ""


class PolicyNotCompiledError(UnprocessableError):
    """An expression cannot become a program; `line` and `column` (both from 1) say where, `reason` says why."""

    def __init__(self, reason: str, *, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.reason = reason
        self.line = line
        self.column = column


class PolicyEngineError(UnavailableError):
    """
    The engine gave no answer to a call, so nothing may be approved on it.

    `verdicts` has one for each program asked about, in their order: those that were reached before the engine stopped,
    and `Outcome.ERROR` for the others. It is what the record of an undecidable commit holds; it is not an answer.
    """

    def __init__(self, message: str, *, verdicts: tuple[Verdict, ...] = ()) -> None:
        super().__init__(message)
        self.verdicts = verdicts


class EngineUnavailableError(PolicyEngineError):
    """The engine could not be started, ended in the middle of the call, or has too many calls waiting."""


class DeadlineExceededError(PolicyEngineError):
    """The call's time was over, that for waiting or that for the work; whatever was still running has been stopped."""


class PolicyEngine(Protocol):
    """Compiles expressions when they are saved and judges programs when something is committed."""

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
            TooLargeError: if the variables are more than any call may bring; nothing was judged.
            DeadlineExceededError: if `timeout_s`, counted from when the judging began, was over before all of them were
                judged, or the call waited too long for it to begin.
            EngineUnavailableError: if the engine could not be asked, or ended before it answered.
        """


class StartedEngine(PolicyEngine, Protocol):
    """An engine that can be made ready before it is asked."""

    async def start(self) -> None:
        """
        Wait until calls can be served. Without it the first call waits for that.

        Raises:
            EngineUnavailableError: if the engine cannot be started.
        """
