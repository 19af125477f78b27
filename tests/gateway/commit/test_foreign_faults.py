# SPDX-License-Identifier: Apache-2.0
"""
Every fault at every step of a commit to a foreign catalog, against a simulator of one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio

from lakeproof.services import Services
from testkit.gateway.foreign_faults import (
    KILLS,
    LOSSES,
    UPSTREAM_ANSWERS,
    Case,
    Kill,
    Step,
    UpstreamAnswer,
    check_kill,
    check_loss,
    check_mixture,
    check_other_changes,
    check_saying,
)
from testkit.gateway.foreign_tenant import ForeignTenant, open_far
from testkit.servers.faulty_wire import Loss
from testkit.servers.upstream import Upstream, serve_upstream

on_module_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenant(module_services: Services) -> AsyncIterator[ForeignTenant]:
    """A tenant with a foreign catalog, a simulator."""
    async with serve_upstream(Upstream()) as url, open_far(module_services, url) as far:
        yield far


@pytest_asyncio.fixture(loop_scope="module")
async def far(tenant: ForeignTenant) -> ForeignTenant:
    """The tenant, with a table of the test's own."""
    return await tenant.with_new_table()


def test_the_table_has_every_step_with_every_fault() -> None:
    assert {(case.step, case.loss) for case in LOSSES} == {(step, loss) for step in Step for loss in Loss}
    assert {kill.step for kill in KILLS} == set(Step)


@on_module_loop
@pytest.mark.parametrize("case", LOSSES, ids=str)
async def test_what_is_lost_or_late_leaves_record_and_table_in_agreement(far: ForeignTenant, case: Case) -> None:
    await check_loss(far, case)


@on_module_loop
@pytest.mark.parametrize("saying", UPSTREAM_ANSWERS, ids=str)
async def test_whatever_the_upstream_says_record_and_table_agree(far: ForeignTenant, saying: UpstreamAnswer) -> None:
    await check_saying(far, saying)


@on_module_loop
@pytest.mark.parametrize("kill", KILLS, ids=str)
async def test_a_process_that_is_killed_leaves_record_and_table_in_agreement(far: ForeignTenant, kill: Kill) -> None:
    await check_kill(far, kill)


@on_module_loop
async def test_a_change_of_every_kind_is_found_if_its_answer_is_lost(far: ForeignTenant) -> None:
    await check_other_changes(far)


@on_module_loop
@pytest.mark.parametrize("seed", range(2))
async def test_whatever_happens_in_whatever_order_record_and_table_agree(far: ForeignTenant, seed: int) -> None:
    await check_mixture(far, Random(seed))  # noqa: S311 - chosen to be repeatable, not secret
