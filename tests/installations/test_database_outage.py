# SPDX-License-Identifier: Apache-2.0
"""
The database is stopped, killed, or does not answer a COMMIT: nothing is lost, no answer says more than is known, and
the same gateway goes on when it is back.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.catalogs.builtin import GUARDS as CATALOG_GUARDS
from lakeproof.postgres.process import postmaster_pid
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.provision import Provisioned, provision
from lakeproof.signing import open_signer
from ledger.format.sequence import Appended, Group, Stale
from testkit.databases import LOGIN_PASSWORD
from testkit.gateway.log_contents import check_agreement, check_log, read_stored, words
from testkit.gateway.sales import (
    CREATE,
    NAMESPACES,
    ORDERS,
    SALES,
    TABLES,
    Append,
    before_each_append,
    error_of,
    files_beside,
    location_of_orders,
    properties,
)
from testkit.ledger.appending import appender
from testkit.ledger.cutting_proxy import SOCKET_NAME, Cut, CuttingProxy, Plan
from testkit.servers.gateways import Gateway, open_gateway, start_services

ATTEMPTS_MAX = 20
"""Requests until a database that is back must have been noticed; each waits up to three seconds for a connection."""

ShortDirectory = Callable[[], AbstractContextManager[Path]]


@pytest.fixture
def own_server(age: Path, short_directory: ShortDirectory) -> Iterator[EmbeddedServer]:
    """A server of this test's own, which it may stop and kill."""
    with short_directory() as directory:
        server = EmbeddedServer(directory / "home", age, folder=directory / "servers")
        server.start(print)
        try:
            yield server
        finally:
            server.stop()


@pytest_asyncio.fixture
async def own_gateway(own_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Gateway]:
    """
    A gateway on that server, with table `sales.orders`; it gives an append up after a second.

    A signer runs beside it, which must notice by itself that the server was away: nothing is appended before.
    """
    installation = provision(own_server.admin_dsn, login_password=LOGIN_PASSWORD)
    async with (
        start_services(own_server.admin_dsn, installation, tmp_path, append_deadline_s="1") as services,
        open_gateway(services) as gateway,
    ):
        await make_orders(gateway)
        stop = asyncio.Event()
        signing = asyncio.create_task((await open_signer(services.installation)).run(stop, interval_s=600))
        yield gateway
        stop.set()
        await signing


async def make_orders(gateway: Gateway) -> None:
    (await gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})).raise_for_status()
    (await gateway.http.post(TABLES, json=CREATE)).raise_for_status()


async def recovered(http: httpx.AsyncClient) -> None:
    """Ask until the gateway answers again; every answer before that is an honest 503."""
    await until_answered(partial(http.get, ORDERS))


async def until_answered(ask: Callable[[], Awaitable[httpx.Response]]) -> None:
    """Ask as an engine does, again after each 503: reading and appending have connections of their own to get back."""
    for _ in range(ATTEMPTS_MAX):
        answer = await ask()
        if answer.status_code == 200:
            return
        check_unavailable(answer)
    pytest.fail("the database is back, and the gateway has not noticed")


def check_unavailable(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
    assert error_of(answer)["type"] == "ServiceUnavailableException"


async def test_a_stopped_database_is_503_and_the_gateway_recovers_by_itself(
    own_server: EmbeddedServer, own_gateway: Gateway
) -> None:
    http, services, log_id = own_gateway.http, own_gateway.services, own_gateway.acme.log_id
    location = await location_of_orders(own_gateway)
    files, told = files_beside(location), await read_stored(services, log_id)
    await asyncio.to_thread(own_server.stop)
    policy = {"id": "p", "expression": "true", "message": "m"}
    answers = await asyncio.gather(
        http.get("/v1/config?warehouse=lake"),
        http.get("/health"),
        http.get(ORDERS),
        http.get(TABLES),
        http.post(ORDERS, json=properties(lost="yes")),
        http.post(TABLES, json={**CREATE, "name": "lost"}),
        http.delete(ORDERS),
        http.post(NAMESPACES, json={"namespace": ["lost"]}),
        http.post(f"{SALES}/properties", json={"updates": {"lost": "yes"}}),
        http.post("/v1/policies", json=policy),
        own_gateway.client("lp_" + "a" * 60).get(ORDERS),
    )
    for answer in answers[:-1]:
        check_unavailable(answer)
    assert answers[-1].status_code in {401, 503}, "malformed is malformed, whatever the database says"
    await asyncio.to_thread(own_server.start, print)
    await recovered(http)
    assert await read_stored(services, log_id) == told
    assert (await location_of_orders(own_gateway), files_beside(location)) == (location, files)
    await until_answered(partial(http.post, ORDERS, json=properties(found="yes")))
    assert (await http.post("/v1/policies", json=policy)).status_code == 201
    await check_agreement(services, log_id)
    await check_log(services, log_id)


async def test_a_database_that_stops_before_the_record_has_recorded_nothing(
    own_server: EmbeddedServer, own_gateway: Gateway
) -> None:
    async def stop(count: int) -> None:
        if count == 0:
            await asyncio.to_thread(own_server.stop)

    location = await location_of_orders(own_gateway)
    files = files_beside(location)
    told = await words(own_gateway.services, own_gateway.acme.log_id)
    client = own_gateway.through(append=before_each_append(own_gateway, stop))
    check_unavailable(await client.post(ORDERS, json=properties(lost="yes")))
    assert files_beside(location) == files, "what was written is certainly in no record, so it is gone"
    await asyncio.to_thread(own_server.start, print)
    await recovered(client)
    assert await words(own_gateway.services, own_gateway.acme.log_id) == told
    assert "lost" not in (await client.get(ORDERS)).json()["metadata"]["properties"]
    await until_answered(partial(client.post, ORDERS, json=properties(found="yes")))
    await check_agreement(own_gateway.services, own_gateway.acme.log_id)


async def test_every_answer_is_true_when_the_database_is_killed_in_the_middle(
    own_server: EmbeddedServer, own_gateway: Gateway
) -> None:
    tables, commits, kill_at = 4, 4, 6
    for number in range(tables):
        body = {**CREATE, "name": f"t{number}"}
        (await own_gateway.http.post(TABLES, json=body)).raise_for_status()
    killed = asyncio.Event()

    async def kill(count: int) -> None:
        if count == kill_at:
            pid = postmaster_pid(own_server.files.data)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            killed.set()

    async def restart() -> None:
        await killed.wait()
        await asyncio.to_thread(own_server.start, print)

    client = own_gateway.through(append=before_each_append(own_gateway, kill))

    async def engine(number: int) -> list[tuple[str, int]]:
        answers = []
        for commit in range(commits):
            name = f"c{commit}"
            answer = await client.post(f"{TABLES}/t{number}", json=properties(**{name: "yes"}))
            answers.append((name, answer.status_code))
        return answers

    *engines, _ = await asyncio.gather(*(engine(number) for number in range(tables)), restart())
    await recovered(own_gateway.http)
    seen = set()
    for number, answers in enumerate(engines):
        found = (await own_gateway.http.get(f"{TABLES}/t{number}")).json()["metadata"]["properties"]
        for name, status in answers or []:
            seen.add(status)
            assert status in {200, 503, 504}
            assert status == 504 or (name in found) == (status == 200), (number, name, status)
    assert 200 in seen
    await check_agreement(own_gateway.services, own_gateway.acme.log_id)
    await check_log(own_gateway.services, own_gateway.acme.log_id)
    await until_answered(partial(own_gateway.http.post, ORDERS, json=properties(found="yes")))


# A COMMIT without an answer


@pytest_asyncio.fixture
async def orders(gateway: Gateway) -> Gateway:
    """A gateway with table `sales.orders`."""
    await make_orders(gateway)
    return gateway


@pytest_asyncio.fixture
async def wire(postgres_server: EmbeddedServer, short_directory: ShortDirectory) -> AsyncIterator[CuttingProxy]:
    """A wire to the session's server."""
    with short_directory() as directory:
        async with CuttingProxy(directory, postgres_server.files.run / SOCKET_NAME) as proxy:
            yield proxy


@pytest_asyncio.fixture
async def append(wire: CuttingProxy, installation: Provisioned) -> AsyncIterator[Append]:
    """The log behind that wire; gives up after a second."""
    async with appender(installation, *CATALOG_GUARDS, host=str(wire.directory)) as running:

        async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
            return await running.append(log_id, group, timeout_s=1.0)

        yield append


async def go_away(wire: CuttingProxy) -> None:
    wire.accepts = False


@pytest.mark.parametrize("cut", [Cut.AFTER, Cut.BEFORE])
async def test_a_commit_without_an_answer_is_unknown_and_its_file_is_kept(
    orders: Gateway, wire: CuttingProxy, append: Append, cut: Cut
) -> None:
    services, log_id = orders.services, orders.acme.log_id
    location = await location_of_orders(orders)
    files = files_beside(location)
    client = orders.through(append=append)
    wire.plan = plan = Plan(b"COMMIT", cut, lambda: go_away(wire))
    answer = await client.post(ORDERS, json=properties(a="b"))
    assert plan.hit.is_set()
    assert (answer.status_code, error_of(answer)["type"]) == (504, "CommitStateUnknownException")
    assert "retry-after" not in answer.headers
    (kept,) = files_beside(location) - files
    is_there = cut is Cut.AFTER
    assert (await location_of_orders(orders) == f"file://{kept}") == is_there
    assert (await words(services, log_id)).count("accepted") == (3 if is_there else 2)
    await check_agreement(services, log_id)
    wire.accepts = True
    assert (await client.post(ORDERS, json=properties(c="d"))).status_code == 200
    found = (await orders.http.get(ORDERS)).json()["metadata"]["properties"]
    assert ("a" in found, found["c"]) == (is_there, "d"), "what was given up does not come afterwards"
    await check_agreement(services, log_id)
    await check_log(services, log_id)


async def test_a_commit_whose_answer_is_lost_is_found_again_if_the_database_is_there(
    orders: Gateway, wire: CuttingProxy, append: Append
) -> None:
    client = orders.through(append=append)
    for number, cut in enumerate((Cut.AFTER, Cut.BEFORE)):
        wire.plan = plan = Plan(b"COMMIT", cut)
        assert (await client.post(ORDERS, json=properties(**{f"p{number}": "b"}))).status_code == 200
        assert plan.hit.is_set()
        assert (await words(orders.services, orders.acme.log_id))[-2:] == ["approved", "accepted"]
    assert (await words(orders.services, orders.acme.log_id)).count("accepted") == 4, "each of them once"
    await check_agreement(orders.services, orders.acme.log_id)


async def test_a_refusal_without_an_answer_has_changed_nothing_and_says_so(
    orders: Gateway, wire: CuttingProxy, append: Append
) -> None:
    await orders.services.gateway.admin.create_policy(
        orders.acme.log_id, OPERATOR, policy_id="no", text=PolicyText(expression="false", message="no")
    )
    location = await location_of_orders(orders)
    wire.plan = Plan(b"COMMIT", Cut.AFTER, lambda: go_away(wire))
    check_unavailable(await orders.through(append=append).post(ORDERS, json=properties(a="b")))
    assert await location_of_orders(orders) == location
