# SPDX-License-Identifier: Apache-2.0
"""
Gateways for tests of routes and of pages: fixtures that `tests/conftest.py` imports.

Starting one takes longer than most tests. Where tests leave each other alone because each has its own tenant, a module
may share the services: `shared_gateway` and `sales`, with `pytest.mark.asyncio(loop_scope="module")`. Tests that change
nothing, because all they ask for is refused, may share the tenant too: `module_gateway` and `module_sales`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest_asyncio
from fastapi import FastAPI

from lakeproof.services import Services
from testkit.gateway.sales import CREATE, NAMESPACES, TABLES
from testkit.servers.gateways import Gateway, app_of, open_gateway
from testkit.servers.loopback import serve_gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_app(module_services: Services) -> FastAPI:
    """The application over the services of a module."""
    return app_of(module_services.gateway, installation=module_services.installation)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_gateway(module_services: Services, module_app: FastAPI) -> AsyncIterator[Gateway]:
    """A gateway whose tenant the tests of a module share."""
    async with open_gateway(module_services, app=module_app) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_sales(module_services: Services, module_app: FastAPI) -> AsyncIterator[Gateway]:
    """A gateway whose tenant the tests of a module share, with namespace `sales` and table `sales.orders` in it."""
    async with open_gateway(module_services, app=module_app) as gateway:
        await make_sales(gateway.http)
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_url(module_app: FastAPI) -> AsyncIterator[str]:
    """The URL under which the application of a module is served, to whatever tenant."""
    async with serve_gateway(module_app) as url:
        yield url


@pytest_asyncio.fixture(loop_scope="module")
async def shared_gateway(module_services: Services, module_app: FastAPI) -> AsyncIterator[Gateway]:
    """A gateway whose services the tests of a module share; the tenant is the test's own."""
    async with open_gateway(module_services, app=module_app) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def sales(shared_gateway: Gateway) -> Gateway:
    """A shared gateway with namespace `sales` and table `sales.orders` in it."""
    await make_sales(shared_gateway.http)
    return shared_gateway


async def make_sales(http: httpx.AsyncClient) -> None:
    (await http.post(NAMESPACES, json={"namespace": ["sales"]})).raise_for_status()
    (await http.post(TABLES, json=CREATE)).raise_for_status()
