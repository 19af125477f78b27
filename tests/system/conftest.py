"""A gateway for the tests of the whole, on a database of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from lakeproof.provision import Installation
from lakeproof.services import Services
from tests.servers.gateways import Gateway, open_gateway, start_services


@pytest_asyncio.fixture
async def services(database: str, installation: Installation, tmp_path: Path) -> AsyncIterator[Services]:
    """The services of one process on this test's database."""
    async with start_services(database, installation, tmp_path) as services:
        yield services


@pytest_asyncio.fixture
async def gateway(services: Services) -> AsyncIterator[Gateway]:
    """A gateway with one tenant."""
    async with open_gateway(services) as gateway:
        yield gateway
