# SPDX-License-Identifier: Apache-2.0
"""What tests of several files about commits need."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from lakeproof.services import Services
from testkit.servers.gateways import start_services


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def others(module_database: str, module_services: Services) -> AsyncIterator[Services]:
    """The services of another process of the same installation."""
    installation = module_services.installation
    async with start_services(module_database, installation, installation.settings.home.parent) as other:
        yield other
