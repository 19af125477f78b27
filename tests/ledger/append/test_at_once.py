# SPDX-License-Identifier: Apache-2.0
"""Appends in one round trip: what is checked then, and that everything else is appended as ever."""

from __future__ import annotations

import pytest

from lakeproof.provision import Provisioned
from ledger.append.appender import Appender
from ledger.format.entry import Branch
from testkit.ledger.appending import aggregate, appended, group, verify
from testkit.ledger.cutting_proxy import CuttingProxy
from testkit.ledger.guarded_groups import kinds


@pytest.fixture(scope="module")
def database(module_database: str) -> str:
    return module_database


@pytest.fixture(scope="module")
def installation(module_installation: Provisioned) -> Provisioned:
    return module_installation


async def test_a_group_takes_one_round_trip_once_its_log_is_known(
    installation: Provisioned, log_id: int, watched: Appender, proxy: CuttingProxy
) -> None:
    assert appended(await watched.append(log_id, group())).indices == range(1, 2)
    assert kinds(proxy) == ["BEGIN", "SELECT CASE", "INSERT INTO", "UPDATE ledger.heads", "COMMIT"]
    assert proxy.exchanges == 1
    assert appended(await watched.append(log_id, aggregate("policy:p", 1))).branch is Branch.THEN
    assert proxy.exchanges == 2
    await verify(installation, log_id)
