# SPDX-License-Identifier: Apache-2.0
"""
A lakehouse for each test that detects, to be imported where such tests are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from lakeproof.provision import Provisioned
from testkit.servers.gateways import start_services
from testkit.spark_detect.lakehouse import Lakehouse, open_lakehouse


@pytest_asyncio.fixture
async def lakehouse(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Lakehouse]:
    """A gateway on a port with one tenant, and what detection works with."""
    async with start_services(database, installation, tmp_path) as services, open_lakehouse(services) as lakehouse:
        yield lakehouse
