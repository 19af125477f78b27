# SPDX-License-Identifier: Apache-2.0
"""
What is found in files of policies that compile and are still not what their author means.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import orjson
import pytest
import pytest_asyncio

from gateway.admin.policy_lint import Finding, lint
from gateway.policy.policy_files import PolicyFile, parse_policy
from gateway.policy.pool import AUTHOR, WorkerEngine
from testkit.servers.forked_workers import fork_worker

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMEOUT_S: Final = 60.0
PURGES: Final = [
    {"expect": "allow", "given": {}},
    {"expect": "deny", "given": {"commit": {"purge": True}}},
]
"""Examples of `!commit.purge`."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine() -> AsyncIterator[WorkerEngine]:
    """One engine for the policies, whose calls are not timed: the machine may be busy."""
    async with WorkerEngine(waiting_s=TIMEOUT_S, spawn=fork_worker) as engine:
        yield engine


def policy(expression: str, *, name: str = "p", examples: Any = PURGES, **members: Any) -> PolicyFile:
    """Return a policy as if its file were JSON in lines, which is YAML."""
    whole = {"id": name, "expression": expression, "message": "m", "examples": examples, **members}
    return parse_policy(orjson.dumps(whole, option=orjson.OPT_INDENT_2), name=f"{name}.yaml")


async def found(engine: WorkerEngine, *policies: PolicyFile) -> list[tuple[str, str]]:
    return [(one.rule, one.words) for one in await findings(engine, *policies)]


async def findings(engine: WorkerEngine, *policies: PolicyFile) -> tuple[Finding, ...]:
    return await lint(engine, partial(engine.judge, log_id=AUTHOR), policies, timeout_s=TIMEOUT_S)


async def test_a_policy_with_examples_of_both_kinds_is_clean(engine: WorkerEngine) -> None:
    assert await found(engine, policy("!commit.purge")) == []


async def test_what_does_not_compile_is_found_where_it_stands_and_the_others_are_looked_at(
    engine: WorkerEngine,
) -> None:
    first, *others = await findings(engine, policy("!comit.purge", name="a"), policy("!commit.purge", examples=[]))

    assert (first.rule, first.file, first.line, first.column) == ("compile", "a.yaml", 3, 19)
    assert "comit" in first.words
    assert {other.policy for other in others} == {"p"}


async def test_examples_must_be_of_both_kinds(engine: WorkerEngine) -> None:
    (only,) = await findings(engine, policy("!table.exists", examples=PURGES[:1]))
    assert (only.rule, only.line, only.words) == ("examples", 5, "no example expects deny")
    assert await found(engine, policy("!table.exists", examples=[])) == [
        ("examples", "no example expects deny"),
        ("examples", "no example expects allow"),
    ]


async def test_a_policy_that_always_allows_or_always_denies_is_found(engine: WorkerEngine) -> None:
    never = policy("commit.name.startsWith('x') && commit.name.startsWith('y')", examples=PURGES[1:])
    assert {rule for rule, _ in await found(engine, never)} == {"examples", "always"}
    always = policy("commit.name.startsWith('x') || !commit.name.startsWith('x')", examples=PURGES[:1])
    assert ("always", "allows every one of") in [(rule, words[3:22]) for rule, words in await found(engine, always)]


async def test_an_example_that_is_denied_shows_that_a_policy_does_not_always_allow(engine: WorkerEngine) -> None:
    # None of the inputs that every policy is tried on is a purge.
    assert "always" in {rule for rule, _ in await found(engine, policy("!commit.purge", examples=PURGES[:1]))}
    assert "always" not in {rule for rule, _ in await found(engine, policy("!commit.purge"))}


async def test_a_policy_that_fails_on_possible_commits_is_found_but_not_for_commits_out_of_its_scope(
    engine: WorkerEngine,
) -> None:
    owner = "result.properties['p'] == 'v'"
    examples = [
        {"expect": "allow", "given": {"result": {"properties": {"p": "v"}}}},
        {"expect": "deny", "given": {"result": {"properties": {"p": "w"}}}},
    ]
    ((rule, words),) = await found(engine, policy(owner, examples=examples))
    assert rule == "fails"
    assert "reads a field or key that does not exist" in words
    dropped = "table.exists && !result.exists"
    drops = [
        {"expect": "allow", "given": {"commit": {"operation": "table.drop"}, "table": {"exists": True}}},
        {"expect": "deny", "given": {"commit": {"operation": "table.drop"}}},
    ]
    assert await found(engine, policy(dropped, examples=drops, scope={"operations": ["table.drop"]})) == []


async def test_remarks_on_an_expression_have_their_place_in_the_file(engine: WorkerEngine) -> None:
    (only,) = await findings(engine, policy("!commit.purge && commit.name != 3"))

    assert (only.rule, only.line, only.column) == ("types", 3, 35)


async def test_what_a_scope_says_in_vain_is_found(engine: WorkerEngine) -> None:
    scope = {
        "kinds": ["table", "view"],
        "operations": ["table.commit", "namespace.drop"],
        "names": ["sales.orders", "sales.**", "sales.eu.*", "hr.*", "hr.people", "hr.eu.people", "sales"],
        "properties": ["tag", "tag=x", "other.*"],
    }
    said = await findings(engine, policy("!commit.purge", scope=scope))

    assert {(one.rule, one.words) for one in said} == {
        ("scope", "no operation of the scope is one on a view"),
        ("scope", "namespace.drop is on no kind of the scope"),
        ("scope", "sales.orders is in sales.** already"),
        ("scope", "sales.eu.* is in sales.** already"),
        ("scope", "sales is in sales.** already"),
        ("scope", "hr.people is in hr.* already"),
        ("scope", "tag=x is in tag already"),
    }
    assert len({one.line for one in said}) == len(said)


async def test_properties_and_uuids_of_namespaces_are_found_to_apply_to_nothing(engine: WorkerEngine) -> None:
    for restricts in ({"kinds": ["namespace"]}, {"operations": ["namespace.drop", "namespace.update"]}):
        said = await found(engine, policy("commit.kind != ''", scope={**restricts, "properties": ["tag"]}))
        assert [words for rule, words in said if rule == "scope"] == [
            "properties are those of tables and views, so it applies to nothing: namespaces have none that count"
        ]
        uuids = ["0c8f3bd0-6c2b-4d7e-9f35-2f1c8b6e7a10"]
        said = await found(engine, policy("commit.kind != ''", scope={**restricts, "uuids": uuids}))
        assert [words for rule, words in said if rule == "scope"] == [
            "uuids are those of tables and views, so it applies to nothing: namespaces have none"
        ]


async def test_an_example_out_of_the_scope_is_found(engine: WorkerEngine) -> None:
    said = await found(engine, policy("!commit.purge", scope={"operations": ["table.drop"]}))

    assert [(rule, words[:53]) for rule, words in said] == [
        ("examples", "example 1 is a commit out of the policy's scope, for "),
        ("examples", "example 2 is a commit out of the policy's scope, for "),
    ]


async def test_two_policies_that_say_the_same_are_found_unless_their_scopes_differ(engine: WorkerEngine) -> None:
    first, second = policy("!commit.purge", name="a"), policy("! commit.purge // again", name="b")
    assert await found(engine, first, second) == [("same", "policy a in a.yaml has the same expression and scope")]
    elsewhere = policy("!commit.purge", name="b", scope={"names": ["hr.*"]})
    assert await found(engine, first, elsewhere) == []
