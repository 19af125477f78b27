# SPDX-License-Identifier: Apache-2.0
"""
A whole gateway for a test: the real services on a database of the test's own, reached through the application itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from psycopg import AsyncConnection

from gateway.agents import routes as agents
from gateway.commit.gateway import Gateway as GatewayParts
from gateway.commit.kept_tables import KeptTables
from gateway.commit.known_tables import KnownTables
from gateway.commit.metrics import Measures
from gateway.commit.target_queues import TargetQueues
from gateway.console.pages import error_page
from gateway.console.routers import ROUTERS
from gateway.http.app import Application, create_app
from gateway.http.peers import Peers
from gateway.identity.api_keys import KeyHasher
from lakeproof.anchored import anchors_reader
from lakeproof.dead_letters import read_dead_letters
from lakeproof.evidence import EvidenceMaker
from lakeproof.installation import Installation
from lakeproof.log_status import status_reader
from lakeproof.projecting import read_projections
from lakeproof.provision import Provisioned
from lakeproof.services import Services, open_services
from lakeproof.settings import load_settings
from lakeproof.tenants import Founded, found_tenant
from lakeproof.tls_settings import load_clients
from lakeproof.token_settings import load_issuers
from ledger.signing.key_directory import KeyDirectory, create_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.signing.stored_keys import KEY_FILE
from testkit.servers.loopback import LOOPBACK
from testkit.servers.policy_engine import shared_engine

QUICK_HASHES = KeyHasher(time_cost=1, memory_cost_kib=8)
"""For keys of tests: half of them would spend most of their time on hashes of random secrets."""


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
        """Return a client of the same gateway with some of its parts exchanged; it queues apart, as a process does."""
        apart = {"queues": TargetQueues(), "known_tables": KnownTables(), "kept_tables": KeptTables()}
        parts = {**apart, **parts}
        return _client(app_of(replace(self.services.gateway, **parts)), key or self.acme.key.secret)


@asynccontextmanager
async def start_services(
    database: str, installation: Provisioned, directory: Path, **settings: str
) -> AsyncIterator[Services]:
    """
    Yield the services of one process; `settings` are variables without their prefix, in lower case.

    Where one of them is about the policy engine, it is the services' own; else all tests share one.
    """
    # Judging is not timed here, and starting the engine's process may take long on a busy machine.
    own = {"home": str(directory / "home"), "policy_timeout_s": "30", "upstreams_allowed": LOOPBACK.text}
    chosen = {**own, **settings}
    environment = {f"LAKEPROOF_{name.upper()}": value for name, value in chosen.items()}
    installation = Installation.on(
        installation, settings=load_settings(environment, directory=directory), admin_dsn=database
    )
    has_own = any(name.startswith("policy_") for name in settings)
    async with open_services(
        installation,
        engine=None if has_own else shared_engine(),
        hasher=QUICK_HASHES,
        load_issuers=load_issuers,
        load_clients=load_clients,
    ) as services:
        yield services


@asynccontextmanager
async def open_gateway(
    services: Services, acme: Founded | None = None, app: FastAPI | None = None
) -> AsyncIterator[Gateway]:
    """Yield a gateway over `services`, with a new tenant and a new application unless there is one."""
    if acme is None:
        acme = await found_tenant(services, name="acme", identity="ada@acme.example", roles=["data-eng"], alias="lake")
    app = app or app_of(services.gateway, installation=services.installation)
    async with _client(app, acme.key.secret) as http:
        yield Gateway(services=services, acme=acme, app=app, http=http)


async def sign(gateway: Gateway, keys: KeyDirectory) -> None:
    """Sign the gateway's logs that are due, as the signer's process does."""
    installation = gateway.services.installation
    dsn = installation.as_role(installation.roles.signer)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        await CheckpointSigner(dsn, keys).sign_due(connection)


@asynccontextmanager
async def keep_signing(gateway: Gateway) -> AsyncIterator[None]:
    """Run a signer, which signs when a receipt is asked for; the installation's keys are made unless they are there."""
    installation = gateway.services.installation
    has_keys = (installation.keys / KEY_FILE).exists()
    keys = installation.open_keys() if has_keys else create_key_directory(installation.keys)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        signer = CheckpointSigner(installation.as_role(installation.roles.signer), keys)
        tasks.create_task(signer.run(stop, interval_s=3_600))
        yield
        stop.set()


def app_of(
    parts: GatewayParts,
    measures: Measures | None = None,
    peers: Peers | None = None,
    *,
    installation: Installation | None = None,
) -> Application:
    """
    Return the gateway's application over `parts`, without history for its metrics; without an `installation`, also
    without what only that knows of a log.
    """

    async def no_history(own: str) -> str:
        return own

    measures = measures or Measures()
    lend = partial(parts.database.as_role, parts.roles.auditor)
    return create_app(
        parts,
        measures=measures,
        metrics=no_history,
        metrics_token=None,
        dead_letters=read_dead_letters,
        anchors=None if installation is None else anchors_reader(installation, lend),
        status=None if installation is None else status_reader(installation, lend, parts.clock),
        projections=read_projections,
        evidence=None if installation is None else EvidenceMaker(installation, parts.opener),
        peers=peers,
        pages=[*ROUTERS, agents.router],
        error_page=error_page,
    )


def _client(app: FastAPI, key: str | None) -> httpx.AsyncClient:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers)
