"""
A whole gateway for a test: the real services on the test's own database, reached through the application itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest_asyncio
from fastapi import FastAPI

from gateway.app import create_app
from gateway.measures import Measures
from lakeproof.foundation import Foundation
from lakeproof.provision import Installation
from lakeproof.services import Services, open_services
from lakeproof.settings import load_settings
from lakeproof.tenants import Founded, found_tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A running gateway without a port: `http` has the key of tenant `acme`, whose catalog is `lake`."""

    services: Services
    acme: Founded
    app: FastAPI
    http: httpx.AsyncClient

    def client(self, key: str | None) -> httpx.AsyncClient:
        """Return a client with another key."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers)


@pytest_asyncio.fixture
async def services(database: str, installation: Installation, tmp_path: Path) -> AsyncIterator[Services]:
    """The services of one process on this test's database."""
    settings = load_settings({"LAKEPROOF_HOME": str(tmp_path / "home")}, directory=tmp_path)
    foundation = Foundation(settings=settings, installation=installation, admin_dsn=database)
    async with open_services(foundation) as services:
        yield services


@pytest_asyncio.fixture
async def gateway(services: Services) -> AsyncIterator[Gateway]:
    """A gateway with one tenant."""
    acme = await found_tenant(services, name="acme", identity="ada@acme.example", roles=["data-eng"], alias="lake")

    async def no_history() -> str:
        return ""

    app = create_app(services.house, measures=Measures(), metrics=no_history, metrics_token=None)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {acme.key.secret}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers) as http:
        yield Gateway(services=services, acme=acme, app=app, http=http)
