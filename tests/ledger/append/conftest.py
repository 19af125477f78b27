# SPDX-License-Identifier: Apache-2.0
"""What tests of the Appender share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lakeproof.provision import Provisioned
from ledger.append.appender import Appender
from testkit.ledger.appending import appender, group, new_log
from testkit.ledger.cutting_proxy import CuttingProxy
from testkit.ledger.guarded_groups import GUARDS


@pytest.fixture
def log_id(database: str, installation: Provisioned) -> int:
    """The log of a new tenant, in the database of the test or of its module."""
    return new_log(database, installation)


@pytest.fixture
def two_round_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch takes two, whatever is known of its logs."""
    monkeypatch.setattr("ledger.append.at_once.ENTRIES_MAX", 0)


@pytest.fixture
async def watched(installation: Provisioned, log_id: int, proxy: CuttingProxy) -> AsyncIterator[Appender]:
    """An Appender behind the proxy that has appended; the proxy's trace begins with what comes next."""
    async with appender(installation, *GUARDS, host=str(proxy.directory)) as running:
        await running.append(log_id, group())
        proxy.trace.clear()
        proxy.exchanges = 0
        yield running
