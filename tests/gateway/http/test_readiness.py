# SPDX-License-Identifier: Apache-2.0
"""
`/health/live` and `/health/ready`: the one for whoever restarts a process, the other for whoever sends it requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest

from gateway.database import Database
from gateway.http.readiness import DATABASE, KNOWN_S, LOGS, POLICIES, Readiness
from gateway.policy.engine import EngineUnavailableError, PolicyEngine, Program, Verdict
from lakeproof.provision import Provisioned
from ledger.format.canonical import Json
from ledger.store.session import Connection
from testkit.gateway.sales import error_of
from testkit.servers.gateways import Gateway, app_of, open_gateway, start_services

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(slots=True)
class Engine:
    """An engine that counts its calls, and does not answer while it is `away`."""

    engine: PolicyEngine
    is_away: bool = False
    calls: int = 0

    async def check(self, expression: str, *, log_id: int, timeout_s: float, kind: str = "policy") -> None:
        await self.engine.check(expression, log_id=log_id, timeout_s=timeout_s, kind=kind)

    async def judge(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, log_id: int, timeout_s: float
    ) -> tuple[Verdict, ...]:
        self.calls += 1
        if self.is_away:
            raise EngineUnavailableError("a secret of the inside")
        return await self.engine.judge(programs, activation, log_id=log_id, timeout_s=timeout_s)


class Unreachable(Database):
    """A database that cannot be reached."""

    def __init__(self) -> None:
        pass

    @asynccontextmanager
    async def as_role(self, role: str, **_: object) -> AsyncIterator[Connection]:  # noqa: ARG002 - whoever asks
        raise psycopg.OperationalError("connection refused")
        yield


def with_engine(sales: Gateway) -> Engine:
    return Engine(sales.services.gateway.judge.engine)


async def test_a_process_that_can_take_commits_says_so_to_anybody(sales: Gateway) -> None:
    for path, said in (("/health/live", "live"), ("/health/ready", "ready")):
        answer = await sales.client(None).get(path)
        assert (answer.status_code, answer.json()) == (200, {"status": said})


async def test_without_what_it_needs_a_process_is_live_and_not_ready_and_says_why(sales: Gateway) -> None:
    engine = with_engine(sales)
    engine.is_away = True
    judge = replace(sales.services.gateway.judge, engine=engine)
    async with sales.through(judge=judge, database=Unreachable()) as http:
        assert (await http.get("/health/live")).status_code == 200
        answer = await http.get("/health/ready")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert error_of(answer)["message"] == f"not ready: {DATABASE}; {POLICIES}"


async def test_before_the_signer_has_confirmed_the_logs_no_process_is_ready(
    database: str, installation: Provisioned, tmp_path: Path
) -> None:
    async with start_services(database, installation, tmp_path) as services, open_gateway(services) as gateway:
        with psycopg.connect(database, autocommit=True) as owner:
            assert owner.execute("DELETE FROM ledger.confirmations RETURNING log_id").fetchall()
        answer = await gateway.http.get("/health/ready")
    assert (answer.status_code, error_of(answer)["message"]) == (503, f"not ready: {LOGS}")


async def test_the_state_is_found_out_once_a_second_however_many_ask(sales: Gateway) -> None:
    now_s, engine = 100.0, with_engine(sales)
    parts = replace(sales.services.gateway, judge=replace(sales.services.gateway.judge, engine=engine))
    readiness = Readiness(parts, clock=lambda: now_s)
    assert await asyncio.gather(*(readiness.reasons() for _ in range(20))) == [[]] * 20
    engine.is_away = True
    assert await readiness.reasons() == []
    assert engine.calls == 1
    now_s += KNOWN_S
    assert await readiness.reasons() == [POLICIES]
    engine.is_away = False
    now_s += KNOWN_S
    assert await readiness.reasons() == []
    assert app_of(parts).state.readiness is not readiness
