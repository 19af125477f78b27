# SPDX-License-Identifier: Apache-2.0
"""
Brings what is in force to what a folder of policy files says: a plan, then one entry of the log for each step.

Guarantee: nothing is saved before every policy that is to be saved compiles, and its examples hold. Each step is saved
by itself, at the version that the plan has seen. So an application that ends in between, however it ends, is repeated:
the next plan has only the steps that are left. Nothing is retired unless that is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from gateway.admin.application import Admin, Editor
from gateway.admin.policy_edits import text_of
from gateway.control.aggregates import Policy
from gateway.errors import NotFoundError, UnprocessableError
from gateway.policy.engine import POLICY, PolicyEngine, PolicyNotCompiledError
from gateway.policy.examples import failing, given_text
from gateway.policy.policy_files import PolicyFile, PolicyFileError

CHECK_TIMEOUT_S: Final = 10.0
"""For one policy: to compile it, and for all its examples."""


class Step(StrEnum):
    """What is done to one policy."""

    CREATE = "create"
    CHANGE = "change"
    RETIRE = "retire"
    UNCHANGED = "unchanged"
    KEEP = "keep"
    """No file has it, and it stays in force."""


SAVED: Final = frozenset({Step.CREATE, Step.CHANGE, Step.RETIRE})
"""The steps that are entries of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One step of a plan: `version` is the newest one there is, before it; `file` says what is to be in force."""

    step: Step
    id: str
    version: int | None = None
    file: PolicyFile | None = None


class ExamplesDoNotHoldError(UnprocessableError):
    """An example of a file does not hold: nothing was saved."""


def plan(files: Iterable[PolicyFile], policies: Iterable[Policy], *, retire: bool) -> tuple[Planned, ...]:
    """
    Return the steps from `policies`, the newest version of each, to `files`: in the order of the files, then the rest.

    With `retire`, a policy that no file has is retired, unless it is to end at a time anyway. The reason of a file
    belongs to the version that it is saved with, so another reason alone changes nothing.
    """
    newest = {policy.id: policy for policy in policies}
    planned: list[Planned] = []
    for file in files:
        policy = newest.pop(file.id, None)
        if policy is None:
            planned.append(Planned(step=Step.CREATE, id=file.id, file=file))
            continue
        step = Step.UNCHANGED if _says_the_same(file, policy) else Step.CHANGE
        planned.append(Planned(step=step, id=file.id, version=policy.version, file=file))
    planned += [
        Planned(step=Step.RETIRE if retire and not policy.retired else Step.KEEP, id=policy.id, version=policy.version)
        for policy in newest.values()
    ]
    return tuple(planned)


def _says_the_same(file: PolicyFile, policy: Policy) -> bool:
    examples = [(str(one.expect), one.name, given_text(one)) for one in file.examples]
    return (file.expression, file.message, file.scope, examples) == (
        policy.expression,
        policy.message,
        policy.scope,
        [(str(one.expect), one.name, one.given) for one in policy.examples],
    )


async def check_planned(admin: Admin, engine: PolicyEngine, log_id: int, planned: Iterable[Planned]) -> None:
    """
    Check that what is to be created or changed compiles, and that its examples hold.

    Raises:
        PolicyFileError: if an expression does not compile, or a new policy has the id of one that was retired; says
            where in its file.
        ExamplesDoNotHoldError: if an example does not hold; says which.
        PolicyEngineError: if the engine gave no answer.
    """
    evaluate = partial(engine.judge, log_id=log_id)
    for one in planned:
        file = one.file
        if file is None or one.step not in SAVED:
            continue
        if one.step is Step.CREATE and await _was_retired(admin, log_id, one.id):
            reason = f"expected an id that was never used, found {one.id!r}, whose policy was retired: choose another"
            raise PolicyFileError(file.name, reason, place=file.place_of("id"))
        await check_compiles(engine, file, log_id=log_id, timeout_s=CHECK_TIMEOUT_S)
        if sentences := await failing(evaluate, file.expression, file.examples, timeout_s=CHECK_TIMEOUT_S):
            raise ExamplesDoNotHoldError(f"{file.name}: {'; '.join(sentences)}")


async def check_compiles(engine: PolicyEngine, file: PolicyFile, *, log_id: int, timeout_s: float) -> None:
    """
    Check that the expression of a file compiles.

    Raises:
        PolicyFileError: if it does not; says where in its file.
        PolicyEngineError: if the engine gave no answer.
    """
    try:
        await engine.check(file.expression, log_id=log_id, timeout_s=timeout_s, kind=POLICY)
    except PolicyNotCompiledError as error:
        raise file.not_compiled(error) from error


async def _was_retired(admin: Admin, log_id: int, policy_id: str) -> bool:
    """Return whether the log has a policy of that id, which is not among those that can come into force."""
    try:
        return bool(await admin.policy_versions(log_id, policy_id=policy_id))
    except NotFoundError:
        return False


async def apply_planned(
    admin: Admin, log_id: int, by: Editor, planned: Iterable[Planned]
) -> AsyncIterator[tuple[Planned, Policy]]:
    """
    Save the steps of a plan one by one; yield each with the policy as it is then, once that is durable.

    Raises as `Admin.create_policy`, `Admin.change_policy` and `Admin.retire_policy`: the steps before are saved, and a
    new plan has the others.
    """
    for one in planned:
        if one.step is Step.RETIRE:
            yield one, await admin.retire_policy(log_id, by, policy_id=one.id)
        elif one.step is Step.CREATE and (file := one.file) is not None:
            yield (
                one,
                await admin.create_policy(
                    log_id,
                    by,
                    policy_id=file.id,
                    text=text_of(file),
                    reason=file.reason,
                ),
            )
        elif one.step is Step.CHANGE and (file := one.file) is not None:
            yield (
                one,
                await admin.change_policy(
                    log_id,
                    by,
                    policy_id=file.id,
                    text=text_of(file),
                    reason=file.reason,
                    version=one.version,
                ),
            )
