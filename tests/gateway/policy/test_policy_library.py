# SPDX-License-Identifier: Apache-2.0
"""
The policies of the library do what they say: their examples hold, take every branch both ways, and notice mistakes.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

import pytest
import pytest_asyncio

from gateway.admin.limits import MESSAGE_LENGTH_MAX, check_id, check_text
from gateway.admin.policy_lint import lint
from gateway.errors import BadRequestError
from gateway.policy.engine import Outcome
from gateway.policy.examples import EMPTY, failing, variables_given
from gateway.policy.mutation_score import mutation_score
from gateway.policy.policy_files import PolicyFile, parse_policy
from gateway.policy.policy_library import library, library_text
from gateway.policy.pool import AUTHOR, WorkerEngine
from testkit.environment import PROJECT
from testkit.servers.forked_workers import fork_worker

POLICIES: Final = library()
TIMEOUT_S: Final = 60.0


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine() -> AsyncIterator[WorkerEngine]:
    """One engine for the policies, whose calls are not timed: the machine may be busy."""
    async with WorkerEngine(waiting_s=TIMEOUT_S, spawn=fork_worker) as engine:
        yield engine


def stated_scores() -> dict[str, int]:
    """Return the mutation score of each policy as the page says it."""
    page = (PROJECT / "docs" / "policies.md").read_text(encoding="utf-8")
    rows = page.partition("## The library")[2].partition("\n## ")[0]
    return {name: int(score) for name, score in re.findall(r"^\| `([\w-]+)` \|.*\| (\d+) % \|$", rows, re.MULTILINE)}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.id)
async def test_a_policy_holds_on_its_examples_which_take_every_branch_and_notice_mistakes(
    engine: WorkerEngine, policy: PolicyFile
) -> None:
    evaluate = partial(engine.judge, log_id=AUTHOR)
    found = await engine.inspect(policy.expression, zero=EMPTY, timeout_s=TIMEOUT_S)
    given = [variables_given(example.given) for example in policy.examples]

    assert {example.expect for example in policy.examples} == {Outcome.ALLOW, Outcome.DENY}
    assert await failing(evaluate, policy.expression, policy.examples, timeout_s=TIMEOUT_S) == ()
    branches = await engine.cover(policy.expression, given, timeout_s=TIMEOUT_S)
    assert [(branch.text, branch.missing) for branch in branches if branch.missing] == []
    score = await mutation_score(evaluate, found.mutants, policy.examples, timeout_s=TIMEOUT_S)
    assert (score.percent, score.unknown) == (stated_scores()[policy.id], 0), score.survivors


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_looks_wrong_in_the_library(engine: WorkerEngine) -> None:
    assert await lint(engine, partial(engine.judge, log_id=AUTHOR), POLICIES, timeout_s=TIMEOUT_S) == ()


def test_each_file_has_the_name_of_its_policy_comments_for_its_reader_and_can_be_saved() -> None:
    for policy in POLICIES:
        assert policy.name == f"{policy.id}.yaml"
        assert library_text(policy.id).startswith("# ")
        assert policy.reason
        check_id(policy.id)
        check_text(policy.message, field="message", length_max=MESSAGE_LENGTH_MAX)
        assert parse_policy(library_text(policy.id).encode(), name=policy.name) == policy


def test_the_page_lists_the_library() -> None:
    assert list(stated_scores()) == [policy.id for policy in POLICIES]
    assert len(POLICIES) >= 15


def test_an_id_that_the_library_lacks_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadRequestError, match=r"found 'tenant-colum'; the nearest is tenant-column"):
        library_text("tenant-colum")
    with pytest.raises(BadRequestError):
        library_text("../library/tenant-column")
