"""
A whole gateway for a test: the real services on a database of the test's own, reached through the application itself.

Starting one takes longer than most tests. Where tests leave each other alone because each has its own tenant, a module
may share the services: `module_services`, with `pytest.mark.asyncio(loop_scope="module")`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import pytest_asyncio
from fastapi import FastAPI
from psycopg import sql
from psycopg.conninfo import make_conninfo

from gateway.app import create_app
from gateway.house import House
from gateway.measures import Measures
from lakeproof.foundation import Foundation
from lakeproof.provision import Installation, provision
from lakeproof.services import Services, open_services
from lakeproof.settings import load_settings
from lakeproof.tenants import Founded, found_tenant
from tests.conftest import LOGIN_PASSWORD


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A running gateway without a port: `http` has the key of tenant `acme`, whose catalog is `lake`."""

    services: Services
    acme: Founded
    app: FastAPI
    http: httpx.AsyncClient

    def client(self, key: str | None) -> httpx.AsyncClient:
        """Return a client with another key."""
        return _client(self.app, key)

    def through(self, *, key: str | None = None, **parts: Any) -> httpx.AsyncClient:
        """Return a client of the same gateway with some of the parts of its house exchanged."""
        house: House = replace(self.services.house, **parts)
        return _client(_app(house), key or self.acme.key.secret)


@asynccontextmanager
async def open_gateway(services: Services) -> AsyncIterator[Gateway]:
    """Yield a gateway over `services` with a new tenant."""
    acme = await found_tenant(services, name="acme", identity="ada@acme.example", roles=["data-eng"], alias="lake")
    app = _app(services.house)
    async with _client(app, acme.key.secret) as http:
        yield Gateway(services=services, acme=acme, app=app, http=http)


def _app(house: House) -> FastAPI:
    async def no_history() -> str:
        return ""

    return create_app(house, measures=Measures(), metrics=no_history, metrics_token=None)


def _client(app: FastAPI, key: str | None) -> httpx.AsyncClient:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers)


@asynccontextmanager
async def _services(database: str, installation: Installation, directory: Path) -> AsyncIterator[Services]:
    settings = load_settings({"LAKEPROOF_HOME": str(directory / "home")}, directory=directory)
    foundation = Foundation(settings=settings, installation=installation, admin_dsn=database)
    async with open_services(foundation) as services:
        yield services


@pytest_asyncio.fixture
async def services(database: str, installation: Installation, tmp_path: Path) -> AsyncIterator[Services]:
    """The services of one process on this test's database."""
    async with _services(database, installation, tmp_path) as services:
        yield services


@pytest_asyncio.fixture
async def gateway(services: Services) -> AsyncIterator[Gateway]:
    """A gateway with one tenant."""
    async with open_gateway(services) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def module_database(
    request: pytest.FixtureRequest, _admin: psycopg.Connection, admin_dsn: str, template_database: str
) -> Iterator[str]:
    """The owner's connection string to a database that the tests of one module share."""
    name = f"module_{request.module.__name__.rpartition('.')[2]}"
    _admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*map(sql.Identifier, (name, template_database))))
    yield make_conninfo(admin_dsn, dbname=name)
    _admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_services(module_database: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Services]:
    """The services of one process that the tests of one module share."""
    installation = provision(module_database, login_password=LOGIN_PASSWORD)
    async with _services(module_database, installation, tmp_path_factory.mktemp("shared")) as services:
        yield services


@pytest_asyncio.fixture(loop_scope="module")
async def shared_gateway(module_services: Services) -> AsyncIterator[Gateway]:
    """A gateway whose services the tests of a module share; the tenant is the test's own."""
    async with open_gateway(module_services) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def sales(shared_gateway: Gateway) -> Gateway:
    """A shared gateway with namespace `sales` and table `sales.orders` in it."""
    namespaces = "/v1/iceberg/lake/namespaces"
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": True}]}
    (await shared_gateway.http.post(namespaces, json={"namespace": ["sales"]})).raise_for_status()
    create = {"name": "orders", "schema": schema}
    (await shared_gateway.http.post(f"{namespaces}/sales/tables", json=create)).raise_for_status()
    return shared_gateway
