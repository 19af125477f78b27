# SPDX-License-Identifier: Apache-2.0
"""
`/v1/log/follow` over a real server: entries as they come, resumed where a reader was, and an end in every case.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from gateway.admin.application import OPERATOR
from gateway.http import log_entry_routes
from gateway.http.looking import following
from gateway.http.server.connections import Connections
from ledger.format.sequence import LogHead
from ledger.store.read import read_head
from testkit.gateway.connections import SOON_S, patient, until
from testkit.gateway.sales import ORDERS, another_key, error_of, properties
from testkit.gateway.two_views import RULE
from testkit.servers.gateways import Gateway
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOLLOW = "/v1/log/follow"
TIMEOUT_S = 20.0


@dataclass(slots=True)
class Event:
    """One server-sent event; a comment has no name."""

    id: str | None = None
    name: str = ""
    data: Any = None
    comments: list[str] = field(default_factory=list)


class Following:
    """A reader of server-sent events, as a browser reads them."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def next(self) -> Event:
        """The next event or comment."""
        event = Event()
        async with asyncio.timeout(TIMEOUT_S):
            async for line in self._lines:
                if not line:
                    if event.name or event.comments:
                        return event
                    continue
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                match name:
                    case "":
                        event.comments.append(value)
                    case "id":
                        event.id = value
                    case "event":
                        event.name = value
                    case "data":
                        event.data = json.loads(value)
        raise EOFError

    async def indices(self, count: int) -> list[int]:
        """The indices of the next entries."""
        return [(await self.next()).data["index"] for _ in range(count)]


@asynccontextmanager
async def follow(url: str, key: str, *, last: int | None = None, **parameters: Any) -> AsyncIterator[Following]:
    """Follow the log of the key's tenant."""
    headers = {"Authorization": f"Bearer {key}"} | ({} if last is None else {"Last-Event-ID": str(last)})
    query = {name.removesuffix("_"): value for name, value in parameters.items()}
    async with (
        httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_S) as client,
        client.stream("GET", FOLLOW, params=query) as answer,
    ):
        yield Following(answer)


async def size_of(gateway: Gateway) -> int:
    async with gateway.services.gateway.database.as_role(gateway.services.gateway.roles.auditor) as connection:
        return (await read_head(connection, gateway.acme.log_id)).size


async def commit(gateway: Gateway, note: str) -> None:
    (await gateway.http.post(ORDERS, json=properties(note=note))).raise_for_status()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers that look often."""
    monkeypatch.setattr(following, "POLL_S", 0.05)


async def test_entries_are_told_as_they_come_from_the_end_of_the_log_on(sales: Gateway) -> None:
    size = await size_of(sales)
    async with serve_gateway(sales.app) as url, follow(url, sales.acme.key.secret) as reading:
        assert reading.answer.status_code == 200
        assert reading.answer.headers["content-type"].startswith("text/event-stream")
        assert reading.answer.headers["cache-control"] == "no-store"
        await commit(sales, "a")
        event = await reading.next()
        assert (event.id, event.name, event.data["type"]) == (str(size), "entry", "commit.decided")
        assert (await reading.next()).data["type"] == "commit.settled"
        await commit(sales, "b")
        assert await reading.indices(2) == [size + 2, size + 3]


async def test_a_reader_whose_answer_has_begun_misses_nothing(sales: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = list[int]()

    async def slow_head(*arguments: Any) -> LogHead:
        head = await read_head(*arguments)
        ends.append(head.size)
        if len(ends) == 1:  # something comes between the look and what is made of it
            await commit(sales, "meanwhile")
        return head

    monkeypatch.setattr(following, "read_head", slow_head)
    async with serve_gateway(sales.app) as url, follow(url, sales.acme.key.secret) as reading:
        assert len(ends) == 1, "the answer begins once its place in the log is known"
        assert await reading.indices(2) == [ends[0], ends[0] + 1]


async def test_a_reader_that_comes_again_goes_on_behind_its_last_event(sales: Gateway) -> None:
    size = await size_of(sales)
    async with serve_gateway(sales.app) as url:
        async with follow(url, sales.acme.key.secret, from_=0) as reading:
            assert await reading.indices(size) == list(range(size))
        async with follow(url, sales.acme.key.secret, from_=0, last=size - 3) as reading:
            assert await reading.indices(2) == [size - 2, size - 1]


async def test_a_follower_sees_what_its_rights_are_when_an_entry_comes(sales: Gateway, quick: None) -> None:
    assert quick is None
    admin, log_id = sales.services.gateway.admin, sales.acme.log_id
    key = await another_key(sales, "sam@acme.example", "seller")
    size = await size_of(sales)
    async with serve_gateway(sales.app) as url, follow(url, key, from_=size, type="commit.decided") as reading:
        await commit(sales, "hidden")
        await admin.create_access_rule(log_id, OPERATOR, rule_id="sellers", effect="permit", expression=RULE)
        await commit(sales, "seen")
        event = await reading.next()
        while event.data["data"]["base"] is None:
            event = await reading.next()
        assert event.data["key"] == "table:lake/sales/orders"
        assert event.data["index"] >= size


async def test_a_revoked_key_ends_what_it_follows_with_the_error(sales: Gateway, quick: None) -> None:
    assert quick is None
    admin, log_id = sales.services.gateway.admin, sales.acme.log_id
    issued = await admin.create_key(log_id, OPERATOR, identity="eve@acme.example", roles=("data-eng",))
    async with serve_gateway(sales.app) as url, follow(url, issued.secret) as reading:
        await admin.revoke_key(log_id, OPERATOR, key_id=issued.id)
        event = await reading.next()
        while event.name == "entry":
            event = await reading.next()
        assert (event.name, event.data["error"]["code"]) == ("error", 401)
        with pytest.raises(EOFError):
            await reading.next()
    assert sales.app.state.followers.count == 0


async def test_a_quiet_log_has_heartbeats(sales: Gateway, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert quick is None
    monkeypatch.setattr(following, "HEARTBEAT_S", 0.1)
    async with serve_gateway(sales.app) as url, follow(url, sales.acme.key.secret) as reading:
        for _ in range(2):
            assert (await reading.next()).comments == ["nothing new"]


async def test_a_server_that_stops_ends_its_followers_and_does_not_wait_for_them(sales: Gateway) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async with serve_gateway(sales.app) as url:
            client = httpx.AsyncClient(base_url=url, headers=dict(sales.http.headers), timeout=TIMEOUT_S)
            answer = await client.send(client.build_request("GET", FOLLOW), stream=True)
            assert answer.status_code == 200
        # The server has ended: the stream has a proper end, which a cut connection has not.
        assert b"retry: " in await answer.aread()
        await client.aclose()
    assert sales.app.state.followers.count == 0


async def test_a_reader_that_leaves_is_not_followed_for_and_keeps_no_connection(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "HEARTBEAT_S", 3_600.0)  # nothing is written that would find the connection closed
    connections = Connections(bounds=patient())
    async with asyncio.timeout(TIMEOUT_S), serve_gateway(sales.app, connections) as url:
        async with follow(url, sales.acme.key.secret):
            assert sales.app.state.followers.count == 1
        await until(lambda: not sales.app.state.followers.count)
        await until(lambda: not connections.count)


async def test_a_reader_that_left_before_its_answer_began_is_not_followed_for(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "HEARTBEAT_S", 3_600.0)
    connections = Connections(bounds=patient())
    async with asyncio.timeout(TIMEOUT_S), serve_gateway(sales.app, connections) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"GET {FOLLOW} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {sales.acme.key.secret}\r\n\r\n"
        writer.write(head.encode())
        writer.write_eof()
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        await until(lambda: not connections.count)
        assert not sales.app.state.followers.count
        writer.close()


async def test_a_reader_that_does_not_read_is_cut_off(sales: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        log_entry_routes, "entry_shown", lambda entry: {"index": entry.index, "filler": "x" * 4_000_000}
    )
    connections = Connections(bounds=patient(stall_timeout_s=SOON_S, rate_min_bytes_per_s=2**30))
    async with serve_gateway(sales.app, connections) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1_024)
        head = f"GET {FOLLOW}?from=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {sales.acme.key.secret}\r\n\r\n"
        writer.write(head.encode())
        await writer.drain()
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        await until(lambda: not sales.app.state.followers.count)
        writer.close()


async def test_there_are_as_many_followers_as_may_be_and_no_more(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "FOLLOWERS_OF_TENANT_MAX", 1)
    async with serve_gateway(sales.app) as url:
        headers = dict(sales.http.headers)
        async with (
            follow(url, sales.acme.key.secret),
            httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_S) as client,
        ):
            refused = await client.get(FOLLOW)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        await until(lambda: not sales.app.state.followers.count)
        async with follow(url, sales.acme.key.secret) as reading:
            assert reading.answer.status_code == 200


@pytest.mark.parametrize(
    ("header", "query"),
    [("x", ""), ("-1", ""), ("9" * 30, ""), ("9999", ""), ("", "from=9999"), ("", "before=2026-01-01T00:00:00Z")],
)
async def test_what_cannot_be_followed_is_refused_before_it_begins(
    module_sales: Gateway, header: str, query: str
) -> None:
    answer = await module_sales.http.get(f"{FOLLOW}?{query}", headers={"Last-Event-ID": header} if header else {})
    assert answer.status_code == 400
    assert error_of(answer)["message"].startswith(f"{'Last-Event-ID' if header else query.partition('=')[0]}: expected")
    assert " found " in error_of(answer)["message"]
