# SPDX-License-Identifier: Apache-2.0
"""
Two gateway processes of one installation: a commit to a table that both change is made by one of them, and answered as
if its client had been connected to that one. What cannot be passed on is made where it arrived.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from zlib import crc32

import httpx
import pytest
import pytest_asyncio
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.commit.known_tables import KnownTables
from gateway.commit.races import LATELY_S, RACES_MAX, Races
from gateway.commit.target_queues import TargetQueues
from gateway.http.app import Application
from gateway.http.peers import BODY_SIZE_BYTES_MAX, Peers
from gateway.http.server.connection import CLIENT_CERTIFICATE, connections_made_by
from gateway.http.server.connections import Connections
from lakeproof.provision import Provisioned
from ledger.format.sequence import Appended, Group, Stale
from testkit.gateway.connections import until
from testkit.gateway.sales import ORDERS, SCHEMA, TABLES, another_key, create_orders, error_of, properties
from testkit.servers.gateways import Gateway, app_of, open_gateway, start_services

OWNER: Final = crc32(ORDERS.encode()) % 2
"""The number of the process that the path of `sales.orders` chooses."""

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class Both:
    """
    `here`, whose races are `races`, and the process that the table belongs to, which listens at `socket`.

    `outcomes` are those of the commits that were to be passed on, `reached` the paths that have reached the other one.
    """

    here: Gateway
    races: Races
    owner: Application
    socket: Path
    outcomes: list[str] = field(default_factory=list)
    reached: list[str] = field(default_factory=list)
    headers: list[dict[bytes, bytes]] = field(default_factory=list)
    """Those of the requests that have reached it."""
    http: httpx.AsyncClient = field(init=False)

    def at_owner(self) -> httpx.AsyncClient:
        """Return a client of the other process."""
        headers = {"Authorization": f"Bearer {self.here.acme.key.secret}"}
        transport = httpx.ASGITransport(app=self.owner, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://owner", headers=headers)


@pytest_asyncio.fixture
async def both(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Both]:
    """Two processes and the table `sales.orders`, for which `here` has just lost a race."""
    async with (
        start_services(database, installation, tmp_path) as services,
        start_services(database, installation, tmp_path) as others,
        open_gateway(services) as gateway,
    ):
        with TemporaryDirectory() as folder:  # the path of a socket must be short
            sockets = [Path(folder) / str(number) for number in range(2)]
            # The other one has lost a race, too, and has nothing to pass on: the table is its own.
            peers = Peers(sockets, OWNER, races=others.gateway.races)
            others.gateway.races.note(ORDERS)
            both = Both(here=gateway, races=Races(), owner=app_of(others.gateway, peers=peers), socket=sockets[OWNER])
            passing = Peers(sockets, 1 - OWNER, races=both.races, count=both.outcomes.append)
            app = app_of(replace(services.gateway, queues=TargetQueues(), races=both.races), peers=passing)
            async with open_gateway(services, gateway.acme, app) as here:
                both.http = here.http
                await create_orders(here.http)
                both.races.note(ORDERS)
                try:
                    yield both
                finally:
                    passing.close()


@asynccontextmanager
async def listening(both: Both) -> AsyncIterator[None]:
    """Let the other process accept what is passed on to it."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        both.reached.append(scope["path"])
        both.headers.append(dict(scope["headers"]))
        await both.owner(scope, receive, send)

    state = ServerState()
    connect = connections_made_by(app, Connections())
    server = await asyncio.get_running_loop().create_unix_server(lambda: connect(server_state=state), str(both.socket))
    async with server:
        yield
        for connection in list(state.connections):
            connection.shutdown()
        await until(lambda: not state.connections)


def without_id(answer: httpx.Response) -> dict[str, str]:
    """Return the headers of an answer without the id of its request, which it has one of."""
    assert len(answer.headers.get_list("x-request-id")) == 1
    return {name: value for name, value in answer.headers.items() if name != "x-request-id"}


@asynccontextmanager
async def talking(both: Both, talk: Talk) -> AsyncIterator[None]:
    """Let something else accept it, and `talk`."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await talk(reader, writer)
        writer.close()

    async with await asyncio.start_unix_server(accept, str(both.socket)):
        yield


async def test_a_commit_where_a_race_was_lost_is_made_by_the_process_it_belongs_to(both: Both) -> None:
    async with listening(both):
        for number in range(3):
            answer = await both.http.post(ORDERS, json=properties(n=str(number)))
            assert answer.status_code == 200
            assert answer.json()["metadata"]["properties"]["n"] == str(number)
            loaded = await both.http.get(ORDERS)
            assert (loaded.content, loaded.headers["etag"]) == (answer.content, answer.headers["etag"])
    assert both.outcomes == ["answered"] * 3
    assert both.reached == [ORDERS] * 3


async def test_a_commit_that_is_passed_on_keeps_its_id_and_its_trace(both: Both) -> None:
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    async with listening(both):
        sent = {"traceparent": f"00-{trace}-{span}-01", "x-request-id": "mine"}
        answer = await both.http.post(ORDERS, json=properties(n="1"), headers=sent)
    own = answer.headers["x-request-id"]
    (passed_on,) = both.headers
    assert passed_on[b"x-request-id"] == own.encode()
    assert passed_on[b"traceparent"] == f"00-{trace}-{own[:16]}-01".encode()


async def test_a_commit_that_is_passed_on_has_the_address_of_its_client(both: Both) -> None:
    await both.here.services.gateway.admin.create_policy(
        both.here.acme.log_id,
        OPERATOR,
        policy_id="near",
        text=PolicyText(expression="request.address == '127.0.0.1'", message="not from there"),
    )
    claimed = {"x-lakeproof-client-address": "192.0.2.1"}
    async with listening(both):
        assert (await both.http.post(ORDERS, json=properties(a="b"), headers=claimed)).status_code == 200
    assert both.outcomes == ["answered"]
    async with both.at_owner() as there:  # what a client says of itself is not read
        assert (await there.post(ORDERS, json=properties(a="c"), headers=claimed)).status_code == 200


async def test_a_commit_where_none_was_lost_is_made_where_it_arrives(both: Both) -> None:
    await both.http.post(TABLES, json={"name": "quiet", "schema": SCHEMA})
    async with listening(both):
        answer = await both.http.post(f"{TABLES}/quiet", json=properties(a="b"))
    assert answer.status_code == 200
    assert both.outcomes == both.reached == []


async def test_a_commit_over_a_connection_with_a_client_certificate_is_made_where_it_arrives(both: Both) -> None:
    transport = both.http._transport
    assert isinstance(transport, httpx.ASGITransport)
    app = transport.app

    async def certified(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "extensions": {CLIENT_CERTIFICATE: b"one that TLS has verified"}}, receive, send)

    transport.app = certified
    async with listening(both):
        assert (await both.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    assert both.outcomes == both.reached == []


async def test_a_commit_with_a_certificate_in_a_header_is_made_where_it_arrives(both: Both) -> None:
    for name in ("Client-Cert", "Client-Cert-Chain"):
        async with listening(both):
            answer = await both.http.post(ORDERS, json=properties(a="b"), headers={name: ":MAA=:"})
            assert answer.status_code == 401
    assert both.outcomes == both.reached == []


async def test_a_commit_that_loses_a_race_is_remembered(both: Both) -> None:
    second, parts, races = f"{TABLES}/raced", both.here.services.gateway, Races()
    (await both.http.post(TABLES, json={"name": "raced", "schema": SCHEMA})).raise_for_status()
    overtaken = list[int]()

    async def append_late(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        """Append what was judged, the first time only once the other process has changed the table."""
        if not overtaken:
            async with both.at_owner() as there:
                overtaken.append((await there.post(second, json=properties(theirs="1"))).status_code)
        return await parts.append(log_id, group, **after)

    slower = replace(parts, append=append_late, queues=TargetQueues(), known_tables=KnownTables(), races=races)
    app = app_of(slower)
    async with open_gateway(both.here.services, both.here.acme, app) as slow:
        answer = await slow.http.post(second, json=properties(ours="1"))
    assert (overtaken, answer.status_code) == ([200], 200)
    assert {"theirs", "ours"} <= set(answer.json()["metadata"]["properties"])
    assert races.was_lost(second)


async def test_a_commit_that_nobody_overtakes_is_not_remembered(both: Both) -> None:
    second, races = f"{TABLES}/alone", Races()
    (await both.http.post(TABLES, json={"name": "alone", "schema": SCHEMA})).raise_for_status()
    app = app_of(replace(both.here.services.gateway, queues=TargetQueues(), races=races))
    async with open_gateway(both.here.services, both.here.acme, app) as alone:
        assert (await alone.http.post(second, json=properties(ours="1"))).status_code == 200
    assert not races.was_lost(second)


@pytest.mark.parametrize("case", ["requirement", "update", "body", "key", "nobody", "permission", "table", "query"])
async def test_a_refusal_of_the_other_process_is_the_answer(both: Both, case: str) -> None:
    body, headers, path = json.dumps(properties(a="b")).encode(), dict[str, str](), ORDERS
    match case:
        case "requirement":
            failing = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7}
            body = json.dumps(properties([failing], a="b")).encode()
        case "update":
            body = b'{"requirements": [], "updates": [{"action": "unknown"}]}'
        case "body":
            body = b"{"
        case "key":
            headers = {"Authorization": "Bearer wrong"}
        case "nobody":
            headers = {"Authorization": ""}
        case "permission":
            headers = {"Authorization": f"Bearer {await another_key(both.here)}"}
        case "table":
            assert (await both.http.delete(ORDERS)).status_code == 204
        case "query":
            path = f"{ORDERS}?a=%20&b"
            body = b"[]"
    both.races.note(ORDERS)
    async with both.at_owner() as there, listening(both):
        expected = await there.post(path, content=body, headers=headers)
        found = await both.http.post(path, content=body, headers=headers)
    assert 400 <= found.status_code <= 499
    assert (found.status_code, error_of(found)) == (expected.status_code, error_of(expected))
    assert without_id(found) == without_id(expected)
    assert both.outcomes == ["answered"]


@pytest.mark.parametrize("case", ["large", "chunked", "twice", "compressed", "odd"])
async def test_a_request_that_is_not_plain_is_made_where_it_arrives(both: Both, case: str) -> None:
    body = json.dumps(properties(a="b")).encode()
    content: bytes | AsyncIterator[bytes] = body
    headers = [("Content-Type", "application/json")]

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    match case:
        case "large":
            content = json.dumps(properties(a="b" * BODY_SIZE_BYTES_MAX)).encode()
        case "chunked":
            content = pieces()
        case "twice":
            headers += [("X-More", "1"), ("X-More", "2")]
        case "compressed":
            content = gzip.compress(body)
            headers.append(("Content-Encoding", "gzip"))
        case "odd":
            headers.append(("X-More", "\x80"))
    async with listening(both):
        answer = await both.http.post(ORDERS, content=content, headers=httpx.Headers(headers, encoding="latin-1"))
    assert answer.status_code == 200, answer.text
    assert both.reached == []


async def test_two_credentials_are_refused_where_they_arrive(both: Both) -> None:
    headers = [("Authorization", "Bearer a"), ("Authorization", "Bearer b")]
    async with listening(both):
        answer = await both.http.post(ORDERS, json=properties(a="b"), headers=headers)
    assert answer.status_code in {400, 401}
    assert both.reached == []


async def test_without_the_other_process_the_commit_is_made_where_it_arrives(both: Both) -> None:
    answer = await both.http.post(ORDERS, json=properties(a="b"))
    assert answer.json()["metadata"]["properties"]["a"] == "b"
    assert both.outcomes == ["not_sent"]


async def test_a_process_that_was_started_again_is_reached(both: Both) -> None:
    for number in range(3):
        async with listening(both):
            assert (await both.http.post(ORDERS, json=properties(n=str(number)))).status_code == 200
    assert both.outcomes == ["answered"] * 3
    assert (await both.http.get(ORDERS)).json()["metadata"]["properties"]["n"] == "2"


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"]
)
async def test_without_a_whole_answer_the_outcome_is_unknown_and_nothing_is_sent_again(both: Both, said: bytes) -> None:
    sent = list[bytes]()

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.append(await reader.read(65_536))
        writer.write(said)

    async with talking(both, cut):
        answer = await both.http.post(ORDERS, json=properties(a="b"))
    assert answer.status_code == 504
    assert error_of(answer)["type"] == "CommitStateUnknownException"
    assert len(sent) == 1
    assert both.outcomes == ["unanswered"]
    assert "a" not in (await both.http.get(ORDERS)).json()["metadata"]["properties"]


async def test_a_process_that_answers_nothing_in_time_leaves_the_outcome_unknown(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.http.peers.ANSWER_S", 0.1)

    async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with talking(both, wait):
        answer = await both.http.post(ORDERS, json=properties(a="b"))
    assert answer.status_code == 504
    assert both.outcomes == ["unanswered"]


async def test_what_was_passed_on_once_is_not_passed_on_again(both: Both) -> None:
    """Both believe that the table is the other's, as two of them with different settings would."""
    other = both.owner.state.gateway
    wrong = Peers([both.socket, both.socket], 1 - OWNER, races=other.races, count=both.outcomes.append)
    both.owner = app_of(other, peers=wrong)
    async with listening(both):
        assert (await both.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    assert both.reached == [ORDERS]
    wrong.close()


def test_a_race_is_remembered_for_half_a_minute() -> None:
    now_s = 100.0
    races = Races(clock=lambda: now_s)
    races.note("/a")
    assert races.was_lost("/a")
    assert not races.was_lost("/b")
    now_s += LATELY_S
    assert not races.was_lost("/a")
    races.note("/a")
    assert races.was_lost("/a")


def test_of_many_races_the_last_ones_are_remembered() -> None:
    races = Races()
    races.note("/first")
    for number in range(RACES_MAX - 1):
        races.note(f"/{number}")
    races.note("/first")
    races.note("/last")
    assert races.was_lost("/first")
    assert races.was_lost("/last")
    assert not races.was_lost("/0")
