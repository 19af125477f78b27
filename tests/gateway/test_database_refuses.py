# SPDX-License-Identifier: Apache-2.0
"""
A database that lacks a table or a right, as during a failover or a restore: 503, the cause is logged for the operator
and not sent to clients, and the gateway recovers by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql

from gateway.catalogs import builtin
from gateway.errors import UnavailableError
from gateway.fresh import questions
from gateway.identity.api_keys import mint_key
from gateway.reconcile.reconciler import Reconciler
from ledger.store.wire import Query
from testkit.gateway.sales import NAMESPACES, ORDERS, TABLES, error_of
from testkit.ledger.logs import away
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


@contextmanager
def without_right(database: str, table: str, role: str) -> Iterator[None]:
    """Let a role not read a table for a while."""
    names = {"table": sql.Identifier(*table.split(".")), "role": sql.Identifier(role)}
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(sql.SQL("REVOKE SELECT ON {table} FROM {role}").format(**names))
        try:
            yield
        finally:
            owner.execute(sql.SQL("GRANT SELECT ON {table} TO {role}").format(**names))


def told(caplog: pytest.LogCaptureFixture) -> set[str]:
    """Return what the operator was told of the database."""
    return {record.getMessage() for record in caplog.records if record.name == "gateway.database"}


@pytest.mark.parametrize("table", ["ledger.heads", "gateway.tables", "gateway.namespaces"])
async def test_a_missing_table_makes_requests_unavailable_and_is_logged_for_the_operator(
    sales: Gateway, module_database: str, caplog: pytest.LogCaptureFixture, table: str
) -> None:
    with away(module_database, table):
        answer = await sales.http.get(ORDERS)
    assert (answer.status_code, error_of(answer)["type"]) == (503, "ServiceUnavailableException")
    assert answer.headers["Retry-After"]
    assert table not in answer.text
    assert told(caplog) == {f'the database refuses: relation "{table}" does not exist'}
    assert {record.levelno for record in caplog.records if record.name == "gateway.database"} == {logging.ERROR}
    assert (await sales.http.get(ORDERS)).status_code == 200


async def test_what_needs_a_right_that_is_missing_is_unavailable(
    sales: Gateway, module_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with without_right(module_database, "ledger.heads", sales.services.gateway.roles.gateway):
        answer = await sales.http.get(ORDERS)
    assert answer.status_code == 503
    assert told(caplog) == {"the database refuses: permission denied for table heads"}
    assert (await sales.http.get(ORDERS)).status_code == 200


async def test_a_key_that_cannot_be_looked_up_is_neither_taken_nor_refused(
    sales: Gateway, module_database: str
) -> None:
    with away(module_database, "gateway.api_keys"):
        async with sales.client(mint_key(os.urandom).format()) as client:
            answer = await client.get(NAMESPACES)
    assert (answer.status_code, error_of(answer)["type"]) == (503, "ServiceUnavailableException")


async def test_a_statement_of_ours_that_is_wrong_is_no_outage(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in builtin._QUERIES:
        monkeypatch.setitem(builtin._QUERIES, name, "SELEC 1")
    monkeypatch.setattr(questions, "_HEADS", Query("SELEC 1"))
    for path in (ORDERS, TABLES):
        assert (await sales.http.get(path)).status_code == 500
    assert told(caplog) == set()


async def test_decisions_wait_for_a_table_that_is_away_and_are_looked_at_when_it_is_back(
    sales: Gateway, module_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    reconciler, stop = Reconciler(sales.services.gateway, poll_s=0.01), asyncio.Event()

    def waits() -> bool:
        return any(record.getMessage().startswith("open decisions wait") for record in caplog.records)

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        with away(module_database, "gateway.open_decisions"):
            with pytest.raises(UnavailableError):
                await reconciler.settle_due()
            tasks.create_task(reconciler.run(stop))
            while not waits():  # noqa: ASYNC110 - what is waited for is a line of the log
                await asyncio.sleep(0.01)
        assert await reconciler.settle_now() == []
        stop.set()
