"""
Gateways for the tests of this folder.

Starting one takes longer than most tests. Where tests leave each other alone because each has its own tenant, a module
may share the services: `shared_gateway` and `sales`, with `pytest.mark.asyncio(loop_scope="module")`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql
from psycopg.conninfo import make_conninfo

from lakeproof.provision import provision
from lakeproof.services import Services
from tests.conftest import CLONE, LOGIN_PASSWORD, confirm_logs
from tests.gateway.sales import CREATE, NAMESPACES, TABLES
from tests.servers.gateways import Gateway, open_gateway, start_services


@pytest.fixture(scope="module")
def module_database(
    request: pytest.FixtureRequest, _admin: psycopg.Connection, admin_dsn: str, template_database: str
) -> Iterator[str]:
    """The owner's connection string to a database that the tests of one module share."""
    name = f"module_{request.module.__name__.rpartition('.')[2]}"
    _admin.execute(CLONE.format(*map(sql.Identifier, (name, template_database))))
    dsn = make_conninfo(admin_dsn, dbname=name)
    confirm_logs(dsn)
    yield dsn
    _admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_services(module_database: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Services]:
    """The services of one process that the tests of one module share."""
    installation = provision(module_database, login_password=LOGIN_PASSWORD)
    async with start_services(module_database, installation, tmp_path_factory.mktemp("shared")) as services:
        yield services


@pytest_asyncio.fixture(loop_scope="module")
async def shared_gateway(module_services: Services) -> AsyncIterator[Gateway]:
    """A gateway whose services the tests of a module share; the tenant is the test's own."""
    async with open_gateway(module_services) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def sales(shared_gateway: Gateway) -> Gateway:
    """A shared gateway with namespace `sales` and table `sales.orders` in it."""
    (await shared_gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})).raise_for_status()
    (await shared_gateway.http.post(TABLES, json=CREATE)).raise_for_status()
    return shared_gateway
