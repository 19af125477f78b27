# SPDX-License-Identifier: Apache-2.0
"""
The streams' world: a database with tenants' logs, a real appender, and handlers whose effects are easy to count.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path

import pytest
import pytest_asyncio
from psycopg.conninfo import make_conninfo

from lakeproof.postgres.files import SOCKET_NAME
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.provision import Provisioned
from ledger.append.appender import Appender
from ledger.format.events import DetectionFound
from ledger.format.guards import GuardRegistry
from testkit.ledger.cutting_proxy import CuttingProxy
from testkit.streams.answering import noon
from testkit.streams.wire import Wire
from testkit.streams.world import World, found_numbers


@pytest_asyncio.fixture
async def world(database: str, installation: Provisioned) -> AsyncIterator[World]:
    """The test's database with a running appender."""
    dsn = installation.as_role(installation.roles.appender)
    async with Appender(dsn, GuardRegistry([])) as appender:
        world = World(database, installation, appender)
        yield world
        await world.close()


@pytest.fixture
def finding() -> DetectionFound:
    """Social security numbers in a column of that name."""
    return found_numbers()


@pytest.fixture
def clock() -> Callable[[], datetime]:
    """A clock that stands still."""
    return noon


@pytest.fixture
def new_wire(
    world: World,
    postgres_server: EmbeddedServer,
    short_directory: Callable[[], AbstractContextManager[Path]],
) -> Callable[[], AbstractAsyncContextManager[Wire]]:
    """Makes connections that can be cut, each by itself."""

    @asynccontextmanager
    async def new() -> AsyncIterator[Wire]:
        with short_directory() as directory:
            async with CuttingProxy(directory, postgres_server.files.run / SOCKET_NAME) as proxy:
                yield Wire(proxy, make_conninfo(world.dsn, host=str(directory)))

    return new


@pytest_asyncio.fixture
async def wire(new_wire: Callable[[], AbstractAsyncContextManager[Wire]]) -> AsyncIterator[Wire]:
    """A connection that can be cut."""
    async with new_wire() as wire:
        yield wire
