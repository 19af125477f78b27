# SPDX-License-Identifier: Apache-2.0
"""
Rules that certainly permit a caller a read of everything: where that is said, they permit it of every single thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from gateway.policy.access import EACH_CHECK, VOCABULARY, Access, AccessRequest, JudgedRule
from gateway.policy.judging import judge_rules, permits_every
from gateway.policy.variables import CommitView, PrincipalView
from ledger.format.events import Effect
from testkit.servers.policy_engine import shared_engine

CALLER = PrincipalView(actor="a" * 32, source="api_key", sub="ada", roles=("dev",))
OPERATIONS = ("table.load", "view.load", "function.load", "namespace.list")
NAMES = ((("sales",), "orders"), (("hr", "eu"), "people"), (("sales",), "x@dev"))


def permit(expression: str, *, vocabulary: int = VOCABULARY) -> JudgedRule:
    return JudgedRule(id=expression, version=1, effect=Effect.PERMIT, expression=expression, vocabulary=vocabulary)


def forbid(expression: str) -> JudgedRule:
    return JudgedRule(id=expression, version=1, effect=Effect.FORBID, expression=expression)


async def says(rules: Sequence[JudgedRule], operation: str) -> bool:
    evaluate = partial(shared_engine().judge, log_id=1)
    return await permits_every(evaluate, rules, CALLER, operation=operation, timeout_s=30)


async def holds(rules: Sequence[JudgedRule], operation: str) -> bool:
    """Whether the rules permit the operation on each of some things."""
    kind = operation.partition(".")[0]
    evaluate = partial(shared_engine().judge, log_id=1)
    for alias in ("lake", "sea"):
        for namespace, name in NAMES:
            named = "" if kind == "namespace" else name
            view = CommitView(catalog=alias, namespace=namespace, name=named, kind=kind, operation=operation)
            judged = await judge_rules(
                evaluate, rules, AccessRequest(commit=view, principal=CALLER, branch=None), timeout_s=30
            )
            if judged.decision.outcome is not Access.PERMITTED:
                return False
    return True


EVERYTHING = {
    "a rule on the role": [permit("'dev' in roles")],
    "a rule on the caller, or on a name": [permit(f"actor == '{'a' * 32}' || path == 'sales.orders'")],
    "a name first": [permit("path == 'sales.orders' || 'dev' in roles")],
    "another rule that needs names": [permit("'dev' in roles"), permit("path.startsWith('sales.')")],
    "a prohibition of others": [permit("'dev' in roles"), forbid("'guest' in roles && path.startsWith('hr')")],
}
NOT_EVERYTHING = {
    "no rule": [],
    "a rule on a name": [permit("path.startsWith('sales.')")],
    "a rule on a catalog": [permit("catalog == 'lake'")],
    "a rule for others": [permit("'guest' in roles")],
    "a prohibition": [permit("'dev' in roles"), forbid("'dev' in roles")],
    "a prohibition of a name": [permit("'dev' in roles"), forbid("path.startsWith('hr')")],
    "a prohibition of a catalog": [permit("'dev' in roles"), forbid("catalog != 'lake'")],
    "a prohibition that fails": [permit("'dev' in roles"), forbid("1 / 0 == 1")],
    "a rule that fails": [permit("1 / 0 == 1")],
    "a rule on a branch": [permit("ref == 'main'")],
}


@pytest.mark.parametrize("rules", EVERYTHING.values(), ids=EVERYTHING)
async def test_it_is_said_where_no_name_matters(rules: list[JudgedRule]) -> None:
    for operation in OPERATIONS:
        assert await says(rules, operation)
        assert await holds(rules, operation)


@pytest.mark.parametrize("rules", NOT_EVERYTHING.values(), ids=NOT_EVERYTHING)
async def test_it_is_not_said_where_a_name_may_matter_or_nothing_is_permitted(rules: list[JudgedRule]) -> None:
    for operation in OPERATIONS:
        assert not await says(rules, operation)


async def test_it_is_said_of_the_operation_that_was_asked_about() -> None:
    listing = [permit("op == 'READ_CONTENT_KEY'")]
    assert [await says(listing, operation) for operation in OPERATIONS] == [False, False, False, True]
    tables = [permit("contentType == 'ICEBERG_TABLE'")]
    assert [await says(tables, operation) for operation in OPERATIONS] == [True, False, False, False]


@pytest.mark.parametrize("vocabulary", [1, EACH_CHECK])
async def test_it_is_not_said_of_rules_that_are_asked_otherwise(vocabulary: int) -> None:
    assert not await says([permit("'dev' in roles"), permit("true", vocabulary=vocabulary)], "table.load")
