# SPDX-License-Identifier: Apache-2.0
"""`lakeproof up` ends when a task of it meets a fault of ours: it does not go on without that task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg
import pytest

from gateway.admin.application import OPERATOR
from lakeproof.provision import Provisioned
from lakeproof.services import Services
from lakeproof.serving.in_process import serving
from lakeproof.tenants import found_tenant
from ledger.proving import receipts
from ledger.proving.receipts import NoReceiptError
from ledger.signing import signer
from testkit.servers.gateways import start_services

WRONG = "SELEC 1"

Serve = Callable[[Callable[[Services], Awaitable[None]]], Awaitable[None]]


@pytest.fixture
def serve(database: str, installation: Provisioned, tmp_path: Path) -> Serve:
    """Serves, does something meanwhile, and goes on until something ends it."""
    quick = {"port": "0", "streams": "0", "detect": "0", "checkpoint_interval_s": "0.05"}

    async def serve(meanwhile: Callable[[Services], Awaitable[None]]) -> None:
        async with (
            asyncio.timeout(60),
            start_services(database, installation, tmp_path, **quick) as services,
            serving(services),
        ):
            await meanwhile(services)
            await asyncio.Event().wait()

    return serve


async def test_a_wrong_statement_of_the_receipts_ends_it_and_who_waits_for_one_is_told(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[asyncio.Task[bytes]] = []

    async def ask(services: Services) -> None:
        acme = await found_tenant(services, name="acme", identity="ada@acme.example")
        await services.gateway.admin.create_catalog(acme.log_id, OPERATOR, alias="lake", kind="builtin", options={})
        log = next(log for log in await services.logs() if log.origin == acme.origin)
        monkeypatch.setitem(receipts._QUERIES, "newest_checkpoints", WRONG)
        waiting.append(asyncio.create_task(services.gateway.receipts.receipt(log, 0, timeout_s=30)))

    with pytest.raises(psycopg.errors.SyntaxError):
        await serve(ask)
    with pytest.raises(NoReceiptError, match="has stopped making receipts"):
        await waiting[0]


async def test_a_wrong_statement_of_the_signer_ends_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async def spoil(services: Services) -> None:
        assert await services.logs()
        monkeypatch.setitem(signer._QUERIES, "hold_signer_lock", WRONG)

    with pytest.raises(psycopg.errors.SyntaxError):
        await serve(spoil)
