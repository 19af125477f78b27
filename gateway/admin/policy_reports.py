# SPDX-License-Identifier: Apache-2.0
"""
What is told of policies in files before they are saved: how they do on their examples, and what they compile to.

The commands `lakeproof policies test` and `compile` show it, and the routes of the same names answer it. Nothing is
saved by this, and no policy in force is read. Lines and columns are those of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from gateway.admin import limits
from gateway.errors import BadRequestError
from gateway.policy.engine import POLICY, PolicyNotCompiledError, Program, Verdict
from gateway.policy.examples import EMPTY, failing, variables_given
from gateway.policy.inspected import Branch, Inspection
from gateway.policy.mutation_score import MutationScore, mutation_score
from gateway.policy.policy_files import PolicyFile, distinct
from gateway.policy.started_engine import AuthorsEngine
from gateway.policy.text import mark_place

if TYPE_CHECKING:
    from ledger.format.canonical import Json

COMPILE_TIMEOUT_S: Final = 10.0
EXAMPLES_TIMEOUT_S: Final = 10.0
MUTATION_TIMEOUT_S: Final = 60.0
"""Each for one policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """
    The engine as one author uses it, under the name of a log; an `Inspector`, too.

    `mutation_s` bounds the mutants of one policy. No call takes longer than `call_s`: others use the same processes.
    """

    engine: AuthorsEngine
    log_id: int
    mutation_s: float = MUTATION_TIMEOUT_S
    call_s: float = inf

    async def evaluate(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, timeout_s: float
    ) -> tuple[Verdict, ...]:
        """See `PolicyEngine.judge`."""
        return await self.engine.judge(programs, activation, log_id=self.log_id, timeout_s=min(timeout_s, self.call_s))

    async def inspect(
        self, expression: str, *, zero: Mapping[str, Json], timeout_s: float, kind: str = POLICY
    ) -> Inspection:
        """See `Inspector.inspect`."""
        bound_s = min(timeout_s, self.call_s)
        return await self.engine.inspect(expression, zero=zero, timeout_s=bound_s, kind=kind, log_id=self.log_id)

    async def cover(
        self, expression: str, activations: Sequence[Mapping[str, Json]], *, timeout_s: float, kind: str = POLICY
    ) -> tuple[Branch, ...]:
        """See `Inspector.cover`."""
        bound_s = min(timeout_s, self.call_s)
        return await self.engine.cover(expression, activations, timeout_s=bound_s, kind=kind, log_id=self.log_id)


def savable(policies: Iterable[PolicyFile]) -> tuple[PolicyFile, ...]:
    """
    Return policies, each of which could be saved as far as its members alone say.

    Raises:
        PolicyFileError: if one is refused, or two have one id; says where.
    """
    found = distinct(policies)
    for policy in found:
        try:
            limits.check_id(policy.id)
            limits.check_policy_texts(expression=policy.expression, message=policy.message)
            limits.check_reason(policy.reason)
        except BadRequestError as error:
            raise policy.refused(error) from error
    return found


async def run_examples(
    author: Author, policy: PolicyFile, *, coverage: bool = False, mutation: bool = False
) -> dict[str, Any]:
    """
    Return how a policy does on its examples; mutants are judged only if all of them hold.

    Raises:
        PolicyEngineError: if the engine gave no answer.
    """
    tested: dict[str, Any] = {"file": policy.name, "id": policy.id, "examples": len(policy.examples)}
    try:
        found = await author.inspect(policy.expression, zero=EMPTY, timeout_s=COMPILE_TIMEOUT_S)
    except PolicyNotCompiledError as error:
        return {**tested, "refused": _refusal(policy, error), "failing": []}
    failures = await failing(author.evaluate, policy.expression, policy.examples, timeout_s=EXAMPLES_TIMEOUT_S)
    tested |= {"refused": None, "failing": list(failures)}
    if coverage:
        given = [variables_given(example.given) for example in policy.examples]
        branches = await author.cover(policy.expression, given, timeout_s=EXAMPLES_TIMEOUT_S)
        tested["coverage"] = _coverage(policy, branches)
    if mutation and not failures:
        score = await mutation_score(author.evaluate, found.mutants, policy.examples, timeout_s=author.mutation_s)
        tested["mutation"] = _mutation(policy, score)
    return tested


def holds(tested: Mapping[str, Any]) -> bool:
    """Return whether a policy that was tested compiles, and all its examples hold."""
    return tested["refused"] is None and not tested["failing"]


async def compile_policy(author: Author, policy: PolicyFile) -> dict[str, Any]:
    """
    Return what a policy reads and calls, and how its cost grows; or where and why it does not compile.

    Raises:
        PolicyEngineError: if the engine gave no answer.
    """
    named = {"file": policy.name or None, "id": policy.id or None}
    try:
        found = await author.inspect(policy.expression, zero=EMPTY, timeout_s=COMPILE_TIMEOUT_S)
    except PolicyNotCompiledError as error:
        return {**named, "refused": _refusal(policy, error)}
    return {**named, "refused": None, "expression": found.text, **_read_and_called(found)}


def _read_and_called(found: Inspection) -> dict[str, Any]:
    read_fields = [
        name if fields is None else f"{name}.{field}"
        for name, fields in found.reads.items()
        for field in (fields or ("",))
    ]
    return {"reads": read_fields, "functions": list(found.functions), "cost": found.cost}


def _refusal(policy: PolicyFile, error: PolicyNotCompiledError) -> dict[str, Any]:
    """Return where and why an expression does not compile; `shown` is its line with a caret."""
    shown = mark_place(policy.expression, line=error.line, column=error.column)
    return {**_at(policy, error.line, error.column), "reason": error.reason, "shown": shown}


def _coverage(policy: PolicyFile, branches: Sequence[Branch]) -> dict[str, Any]:
    """Return how many directions of branches were taken, and which were not."""
    missing = [
        {**_at(policy, branch.line, branch.column), "part": branch.role, "text": branch.text, "never": value}
        for branch in branches
        for value in branch.missing
    ]
    return {"directions": 2 * len(branches), "taken": 2 * len(branches) - len(missing), "missing": missing}


def _mutation(policy: PolicyFile, score: MutationScore) -> dict[str, Any]:
    survivors = [
        {**_at(policy, one.line, one.column), "change": one.words, "expression": one.expression}
        for one in score.survivors
    ]
    return {
        "mutants": score.of,
        "killed": score.killed,
        "unknown": score.unknown,
        "percent": score.percent,
        "survivors": survivors,
    }


def _at(policy: PolicyFile, line: int, column: int) -> dict[str, int]:
    in_file = policy.place_in_expression(line, column)
    return {"line": in_file[0], "column": in_file[1]}
