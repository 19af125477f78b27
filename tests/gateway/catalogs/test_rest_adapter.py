# SPDX-License-Identifier: Apache-2.0
"""
The adapter of kind `rest` over real sockets: its requests, and how it handles answers and their absence.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson
import pytest

from gateway.catalogs import upstream as wire
from gateway.catalogs.catalog import Change, Loaded, Outgoing, Shown, Snapshots
from gateway.catalogs.connections import Call
from gateway.catalogs.judged_metadata import answer_judged
from gateway.catalogs.onward import (
    DELEGATION_HEADER,
    HOPS_HEADER,
    HOPS_MAX,
    VENDED,
    Onward,
    format_hop,
    parse_delegation,
    parse_hops,
)
from gateway.catalogs.replies import Answered, NeverSent, Unanswered
from gateway.catalogs.rest import RestCatalog
from gateway.catalogs.upstreams import Upstreams
from gateway.errors import (
    BadRequestError,
    ForwardingLoopError,
    UnavailableError,
    UpstreamAnswerError,
    UpstreamCredentialsError,
    UpstreamNotAllowedError,
)
from gateway.identifiers import Target
from gateway.mutations import RENAMES_TO, Mutation, Operation, parse_mutation
from projections.errors import SecretMissingError
from testkit.gateway.sales import CREATE, properties
from testkit.servers.loopback import LOOPBACK, serve
from testkit.servers.script import Script, error

TENANT = UUID(int=7)
ORDERS = Target(alias="beyond", namespace=("sales", "eu"), name="o/r")
SALES = Target(alias="beyond", namespace=("sales", "eu"))
REPORT = Target(alias="beyond", namespace=("sales", "eu"), name="report", is_view=True)
METADATA = {"table-uuid": "u", "current-schema-id": 0, "refs": {}}
TABLE = {"metadata-location": "s3://b/m.json", "metadata": METADATA, "config": {"uri": "x", "s3.region": "r"}}
TABLE_PATH = "/v1/ws%7Cmain/namespaces/sales%1Feu/tables/o%2Fr"
NAMESPACE_PATH = "/v1/ws%7Cmain/namespaces/sales%1Feu"
CONFIG: dict[str, Any] = {"defaults": {"s3.region": "r", "token": "x"}, "overrides": {"prefix": "ws%7Cmain"}}


class NoSecrets:
    """Secrets of a tenant who has the one secret `gate`."""

    def read(self, tenant: UUID, secret: str) -> str:
        if (tenant, secret) != (TENANT, "gate"):
            message = "none"
            raise SecretMissingError(message)
        return "hunter2"


@asynccontextmanager
async def catalog_at(uri: str, **options: str) -> AsyncIterator[RestCatalog]:
    async with wire.open_client(LOOPBACK) as client:
        upstreams = Upstreams(client=client, secrets=NoSecrets(), timeout_s=5)
        upstream = upstreams.upstream(TENANT, "beyond", {"uri": uri, **options})
        yield RestCatalog(upstream=upstream, onward=Onward())


@asynccontextmanager
async def scripted(script: Script, **options: str) -> AsyncIterator[RestCatalog]:
    script.answers.setdefault("/v1/config", (200, orjson.dumps(CONFIG)))
    async with serve(script.app()) as url, catalog_at(f"{url}/", **options) as catalog:
        yield catalog


def outgoing(operation: Operation, target: Target, body: bytes = b"{}") -> Outgoing:
    return Outgoing(mutation=Mutation(operation=operation, target=target), body=body)


async def test_an_answer_shows_no_way_round_while_the_configuration_is_not_known() -> None:
    """Another request that failed makes the gateway forget it; an answer may be under way then."""
    ways_round = {"uri": "x", "s3.signer.uri": "v1/sign", "token": "hunter2", "next": "http://other:81/v1"}
    config = {**ways_round, "s3.region": "r"}
    answered = Answered(status=200, body=orjson.dumps({**TABLE, "config": config}))
    async with scripted(Script(), **{"uri-overrides": "http://other:81"}) as catalog:
        catalog.upstream.forget()
        assert orjson.loads(catalog.show_answer(answered))["config"] == {"s3.region": "r"}


async def test_an_upstreams_configuration_is_requested_once() -> None:
    script = Script(answers={"/v1/config?warehouse=a%20w": (200, orjson.dumps(CONFIG))})
    script.answers[TABLE_PATH] = (200, orjson.dumps(TABLE))
    async with scripted(script, warehouse="a w") as catalog:
        for _ in range(2):
            loaded = await catalog.load(ORDERS)
            expected = Loaded(namespace_exists=True, metadata=METADATA, metadata_location="s3://b/m.json")
            assert loaded == replace(expected, judged=answer_judged("s3://b/m.json", METADATA))
        assert (await catalog.configuration()).defaults == {"s3.region": "r"}
        assert (await catalog.configuration()).overrides == {}
    assert script.paths() == ["/v1/config?warehouse=a%20w", TABLE_PATH, TABLE_PATH]


async def test_an_upstream_may_have_a_separator_and_a_place_of_its_own() -> None:
    script = Script()
    async with scripted(script) as catalog:
        config = {"overrides": {"uri": f"{catalog.upstream.uri}/moved", "namespace-separator": "%2E"}}
        script.answers["/v1/config"] = (200, orjson.dumps(config))
        await catalog.load(ORDERS)
    assert script.paths()[1:] == [
        "/moved/v1/namespaces/sales%2Eeu/tables/o%2Fr",
        "/moved/v1/namespaces/sales%2Eeu",
    ]


@pytest.mark.parametrize(
    "answer",
    [
        (200, b""),
        (200, b"[]"),
        (500, b"{}"),
        (200, orjson.dumps({"overrides": {"uri": "file:///etc"}})),
        (200, orjson.dumps({"overrides": {"uri": "http://ada:pw@h/"}})),
        (200, orjson.dumps({"overrides": {"prefix": "a/../b"}})),
        (200, orjson.dumps({"overrides": {"prefix": "a b"}})),
        (200, orjson.dumps({"overrides": {"prefix": "a?b"}})),
        (200, orjson.dumps({"overrides": {"namespace-separator": "/"}})),
        (302, b""),
    ],
)
async def test_an_upstream_without_a_valid_configuration_is_unavailable(answer: tuple[int, bytes]) -> None:
    script = Script(answers={"/v1/config": answer}, headers={"location": "http://127.0.0.1:9/"})
    async with scripted(script) as catalog:
        with pytest.raises(UnavailableError, match="the upstream of catalog beyond"):
            await catalog.load(ORDERS)
        # Nothing was asked for: it did not leave for certain.
        assert isinstance(await catalog.forward(outgoing(Operation.TABLE_COMMIT, ORDERS)), NeverSent)
        script.answers["/v1/config"] = (200, orjson.dumps(CONFIG))
        assert not (await catalog.load(ORDERS)).namespace_exists
    assert script.paths()[:3] == ["/v1/config"] * 3


@pytest.mark.parametrize(
    "uri",
    [
        "http://polaris.example",
        "http://polaris.example:443",
        "https://polaris.example:8443",
        "https://eu.polaris.example",
        "https://polaris.example.evil.example",
        "https://polaris.exampl",
        "https://polaris.example.:444",
        "https://127.0.0.1",
        "http://eu.named.example",
        "https://eu.named.example:8181/x",
    ],
)
async def test_an_upstream_does_not_move_us_to_another_server(uri: str) -> None:
    async with catalog_at("https://polaris.example", **{"uri-overrides": "https://eu.named.example"}) as catalog:
        with pytest.raises(UpstreamNotAllowedError, match="in the option uri-overrides"):
            catalog.upstream._parse(orjson.dumps({"overrides": {"uri": uri}}))


@pytest.mark.parametrize(
    ("registered", "uri"),
    [
        ("https://polaris.example", "https://POLARIS.example.:443/api/"),
        ("http://polaris.example", "https://polaris.example/api"),
        ("http://polaris.example:8181", "https://polaris.example:8181"),
        ("https://polaris.example", "https://eu.named.example/api"),
        ("https://polaris.example", "https://us.named.example:8443"),
    ],
)
async def test_an_upstream_moves_us_on_its_own_server_and_where_the_options_name(registered: str, uri: str) -> None:
    named = {"uri-overrides": "https://eu.named.example/, https://us.named.example:8443/api"}
    async with catalog_at(registered, **named) as catalog:
        place = catalog.upstream._parse(orjson.dumps({"overrides": {"uri": uri}}))
        assert place.root == f"{uri.rstrip('/')}/v1"
        assert place.url.is_in(f"{registered}/x")
        assert place.url.is_in(f"{uri.rstrip('/')}/x")


async def test_what_is_there_and_what_is_not() -> None:
    script = Script(answers={NAMESPACE_PATH: (200, orjson.dumps({"namespace": ["sales", "eu"], "properties": None}))})
    async with scripted(script) as catalog:
        assert await catalog.load(ORDERS) == Loaded(namespace_exists=True)
        assert await catalog.load(SALES) == Loaded(namespace_exists=True, properties={})
        assert await catalog.show(ORDERS, Snapshots.ALL) is None
        script.answers[NAMESPACE_PATH] = error("NoSuchNamespaceException", 404)
        assert await catalog.load(ORDERS) == Loaded(namespace_exists=False)
        assert await catalog.load(SALES) == Loaded(namespace_exists=False)


@pytest.mark.parametrize(
    "answer",
    [
        (200, b""),
        (200, b"{}"),
        (204, b""),
        (302, b""),
        (404, b"<html>no route</html>"),
        error("ServiceFailureException", 500),
        error("SlowDownException", 503),
    ],
)
async def test_what_is_no_answer_of_the_protocol_is_unavailable(answer: tuple[int, bytes]) -> None:
    script = Script(answers={TABLE_PATH: answer})
    async with scripted(script) as catalog:
        for ask in (catalog.load(ORDERS), catalog.show(ORDERS, Snapshots.ALL)):
            with pytest.raises(UnavailableError):
                await ask
    assert script.paths() == ["/v1/config", TABLE_PATH] * 2, "it is found out anew how to ask"


async def test_a_table_whose_metadata_file_is_missing_is_not_taken_for_one_that_is_not_there() -> None:
    status, body = error("NotFoundException", 404)
    async with scripted(Script(answers={TABLE_PATH: (status, body)})) as catalog:
        for ask in (catalog.load(ORDERS), catalog.show(ORDERS, Snapshots.ALL)):
            with pytest.raises(UpstreamAnswerError) as refused:
                await ask
            assert (refused.value.status, refused.value.body) == (404, body)


async def test_a_certain_no_is_passed_on_in_the_upstreams_words() -> None:
    status, body = error("ForbiddenException", 403)
    script = Script(answers={TABLE_PATH: (status, body)}, headers={"retry-after": "7"})
    async with scripted(script) as catalog:
        with pytest.raises(UpstreamAnswerError) as refused:
            await catalog.load(ORDERS)
        assert (refused.value.status, refused.value.body, refused.value.retry_after) == (403, body, "7")
        script.answers[TABLE_PATH] = (403, b"<html>https://ada@polaris</html>")
        with pytest.raises(UpstreamAnswerError) as refused:
            await catalog.load(ORDERS)
        assert orjson.loads(refused.value.body)["error"]["code"] == 403
        script.answers[TABLE_PATH] = (403, orjson.dumps({"error": {"message": f"see {catalog.upstream.uri}/x"}}))
        with pytest.raises(UpstreamAnswerError) as refused:
            await catalog.load(ORDERS)
        assert orjson.loads(refused.value.body)["error"]["message"] == "see upstream/x"


@pytest.mark.parametrize("status", [401, 419])
async def test_refused_credentials_are_the_gateways_own_matter(status: int) -> None:
    script = Script(answers={TABLE_PATH: error("NotAuthorizedException", status)})
    async with scripted(script) as catalog:
        with pytest.raises(UpstreamCredentialsError, match="refuses the gateway's credentials") as refused:
            await catalog.load(ORDERS)
        assert refused.value.status == 403, "the client's own are in order: it must not renew them"
        reply = await catalog.forward(outgoing(Operation.TABLE_COMMIT, ORDERS))
        assert isinstance(reply, Answered)
        assert isinstance(catalog.refusal(reply), UpstreamCredentialsError)


async def test_the_token_is_read_when_it_is_used() -> None:
    script = Script(answers={TABLE_PATH: (200, orjson.dumps(TABLE))})
    async with scripted(script, token="secret:gate") as catalog:
        await catalog.load(ORDERS)
    assert [each["authorization"] for each in script.received_headers] == ["Bearer hunter2"] * 2
    script.seen.clear()
    async with scripted(script, token="secret:gone") as catalog:
        with pytest.raises(UpstreamCredentialsError, match="secret:gone"):
            await catalog.load(ORDERS)
        assert isinstance(await catalog.forward(outgoing(Operation.TABLE_COMMIT, ORDERS)), NeverSent)
    assert script.seen == [], "without its credentials nothing is asked"


async def test_an_engine_is_shown_the_upstreams_bytes() -> None:
    kept = b'{"metadata-location":"s3://b/m.json", "metadata" : {"table-uuid":"u","x":1.50},"config":{"s3.region":"r"}}'
    script = Script(answers={TABLE_PATH: (200, kept), f"{TABLE_PATH}?snapshots=refs": (200, orjson.dumps(TABLE))})
    async with scripted(script) as catalog:
        vending = replace(catalog, onward=Onward(delegation=VENDED))
        assert await vending.show(ORDERS, Snapshots.ALL) == Shown(kept)
        shown = await catalog.show(ORDERS, Snapshots.REFS)
        assert shown is not None
        assert orjson.loads(shown.body or b"")["config"] == {"s3.region": "r"}
    assert [each.get(DELEGATION_HEADER.lower()) for each in script.received_headers] == [VENDED, VENDED, None]


async def test_an_engine_that_asks_for_no_credentials_is_shown_none() -> None:
    opens = {"s3.access-key-id": "AKIA", "s3.secret-access-key": "hunter2", "s3.session-token": "hunter3"}
    held = [{"prefix": "s3://b", "config": opens}]
    table: dict[str, Any] = {"metadata-location": "s3://b/m.json", "metadata": METADATA}
    answer = {**table, "config": {"s3.region": "r", **opens}, "storage-credentials": held}
    async with scripted(Script(answers={TABLE_PATH: (200, orjson.dumps(answer))})) as catalog:
        vending = replace(catalog, onward=Onward(delegation=VENDED))
        assert await vending.show(ORDERS, Snapshots.ALL) == Shown(orjson.dumps(answer))
        shown = await catalog.show(ORDERS, Snapshots.ALL)
        assert shown is not None
        assert orjson.loads(shown.body or b"") == {**answer, "config": {"s3.region": "r"}, "storage-credentials": []}


async def test_lists_are_paged_as_the_upstream_pages_them() -> None:
    tables = {"identifiers": [{"namespace": ["sales", "eu"], "name": "a"}], "next-page-token": "b=/ä"}
    script = Script(
        answers={
            f"{NAMESPACE_PATH}/tables?pageToken=&pageSize=1000": (200, orjson.dumps(tables)),
            f"{NAMESPACE_PATH}/tables?pageToken=b%3D%2F%C3%A4": (200, b'{"identifiers":[],"next-page-token":null}'),
            "/v1/ws%7Cmain/namespaces": (200, b'{"namespaces":[["sales"]]}'),
            "/v1/ws%7Cmain/namespaces?parent=sales%1Feu": (200, b'{"namespaces":[["sales","eu","x"]]}'),
        }
    )
    async with scripted(script) as catalog:
        page = await catalog.list_tables(SALES.namespace, page_token="", page_size=10**9)
        assert page is not None
        assert (list(page.names), page.next_token) == (["a"], "b=/ä")
        page = await catalog.list_tables(SALES.namespace, page_token=page.next_token, page_size=None)
        assert page is not None
        assert (list(page.names), page.next_token) == ([], None)
        for parent, expected in (((), [["sales"]]), (("sales", "eu"), [["sales", "eu", "x"]])):
            below = await catalog.list_namespaces(parent, page_token=None, page_size=None)
            assert below is not None
            assert list(below.names) == expected
        assert await catalog.list_tables(("no",), page_token=None, page_size=None) is None
        assert await catalog.list_namespaces(("no",), page_token=None, page_size=None) is None
        with pytest.raises(BadRequestError, match="pageToken"):
            await catalog.list_tables(SALES.namespace, page_token="x" * 20_000, page_size=None)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"identifiers":{}}', b'{"identifiers":[1]}', b'{"identifiers":[{"name":1}]}']
)
async def test_a_list_that_is_none_is_unavailable(body: bytes) -> None:
    listed = body.replace(b"identifiers", b"namespaces")
    script = Script(answers={f"{NAMESPACE_PATH}/tables": (200, body), "/v1/ws%7Cmain/namespaces": (200, listed)})
    async with scripted(script) as catalog:
        with pytest.raises(UnavailableError):
            await catalog.list_tables(SALES.namespace, page_token=None, page_size=None)
        with pytest.raises(UnavailableError):
            await catalog.list_namespaces((), page_token=None, page_size=None)


async def test_each_mutation_goes_where_the_specification_has_it_as_the_engine_wrote_it() -> None:
    script = Script()
    body = b'{ "x" : 1.50 }'
    create = Outgoing(mutation=Mutation(operation=Operation.TABLE_CREATE, target=ORDERS, create={}), body=body)
    purge = Outgoing(mutation=Mutation(operation=Operation.TABLE_DROP, target=ORDERS, purge=True), body=b"")
    view = Outgoing(mutation=Mutation(operation=Operation.VIEW_CREATE, target=REPORT, create={}), body=body)
    expected = [
        (create, "POST", f"{NAMESPACE_PATH}/tables", body),
        (outgoing(Operation.TABLE_CREATE, ORDERS, body), "POST", TABLE_PATH, body),
        (outgoing(Operation.TABLE_COMMIT, ORDERS, body), "POST", TABLE_PATH, body),
        (outgoing(Operation.TABLE_DROP, ORDERS, b""), "DELETE", TABLE_PATH, b""),
        (purge, "DELETE", f"{TABLE_PATH}?purgeRequested=true", b""),
        (outgoing(Operation.TABLE_RENAME_FROM, ORDERS, body), "POST", "/v1/ws%7Cmain/tables/rename", body),
        (view, "POST", f"{NAMESPACE_PATH}/views", body),
        (outgoing(Operation.VIEW_REPLACE, REPORT, body), "POST", f"{NAMESPACE_PATH}/views/report", body),
        (outgoing(Operation.VIEW_DROP, REPORT, b""), "DELETE", f"{NAMESPACE_PATH}/views/report", b""),
        (outgoing(Operation.VIEW_RENAME_FROM, REPORT, body), "POST", "/v1/ws%7Cmain/views/rename", body),
        (outgoing(Operation.NAMESPACE_CREATE, SALES, body), "POST", "/v1/ws%7Cmain/namespaces", body),
        (outgoing(Operation.NAMESPACE_UPDATE, SALES, body), "POST", f"{NAMESPACE_PATH}/properties", body),
        (outgoing(Operation.NAMESPACE_DROP, SALES, b""), "DELETE", NAMESPACE_PATH, b""),
    ]
    never = {*RENAMES_TO, Operation.TABLE_REGISTER, Operation.VIEW_REGISTER, Operation.TABLE_UNREGISTER}
    assert {one[0].mutation.operation for one in expected} == set(Operation) - never
    async with scripted(script) as catalog:
        for out, *_ in expected:
            assert isinstance(await catalog.forward(out), Answered)
    assert script.seen[1:] == [(method, target, sent) for _, method, target, sent in expected]


async def test_a_body_is_pinned_or_passed_and_never_read_in_two_ways() -> None:
    async with catalog_at("http://h") as catalog:
        loaded = Loaded(namespace_exists=True, metadata=METADATA, metadata_location="s3://b/m.json")
        body = orjson.dumps(properties(a="b"))
        commit = parse_mutation(Operation.TABLE_COMMIT, ORDERS, body=body)
        out = catalog.prepare(commit, loaded, Change(), body)
        assert orjson.loads(out.sent_body())["requirements"] == [dict(pin) for pin in out.pins] == [*out.requirements]
        assert [pin["type"] for pin in out.pins] == [
            "assert-table-uuid",
            "assert-current-schema-id",
            "assert-ref-snapshot-id",
        ]
        created = orjson.dumps(CREATE)
        create = parse_mutation(Operation.TABLE_CREATE, SALES, body=created)
        assert catalog.prepare(create, Loaded(namespace_exists=True), Change(), created).body == created
        double = body.replace(b'{"requirements"', b'{"updates":[],"requirements"')
        with pytest.raises(BadRequestError, match="'updates' stands twice"):
            catalog.prepare(commit, loaded, Change(), double)


# The wire


async def test_a_request_that_was_never_sent_is_distinguished_from_one_that_was() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    call = Call(method="POST", url=f"http://127.0.0.1:{port}/", headers={}, body=b"{}")
    async with wire.open_client(LOOPBACK) as client:
        assert isinstance(await wire.exchange(client, call, timeout_s=5), NeverSent), "refused"
        for url in ("http://nowhere.invalid/", "https://", "ftp://h/", "http://[/", f"http://127.0.0.1:{port}/\x00"):
            assert isinstance(await wire.exchange(client, replace(call, url=url), timeout_s=5), NeverSent), url
        headers = {"x": "ü\n"}
        assert isinstance(await wire.exchange(client, replace(call, headers=headers), timeout_s=5), NeverSent)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        b"SSH-2.0-OpenSSH\r\n",
    ],
)
async def test_a_cut_answer_is_none(said: bytes) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(cut, "127.0.0.1", 0) as server, wire.open_client(LOOPBACK) as client:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        call = Call(method="POST", url=url, headers={}, body=b"{}")
        assert isinstance(await wire.exchange(client, call, timeout_s=5), Unanswered)


async def test_tls_that_fails_has_sent_nothing_of_the_request() -> None:
    async def plain(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server, wire.open_client(LOOPBACK) as client:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        call = Call(method="POST", url=url, headers={}, body=b"{}")
        assert isinstance(await wire.exchange(client, call, timeout_s=5), NeverSent)


async def test_an_answer_that_drips_or_does_not_end_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b" " * 500)
        await writer.drain()
        await stop.wait()
        writer.close()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server, wire.open_client(LOOPBACK) as client:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        call = Call(method="GET", url=url, headers={})
        late = await wire.exchange(client, call, timeout_s=0.2)
        assert late == Unanswered(cause="no whole answer within 0.2 s")
        monkeypatch.setattr(wire, "ANSWER_SIZE_BYTES_MAX", 100)
        large = await wire.exchange(client, call, timeout_s=5)
        assert large == Unanswered(cause="the upstream's answer is over 100 bytes")
        stop.set()


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    script = Script(answers={"/x": (307, b"")}, headers={"location": "/y"})
    async with serve(script.app()) as url, wire.open_client(LOOPBACK) as client:
        call = Call(method="POST", url=f"{url}/x", headers={}, body=b"{}")
        reply = await wire.exchange(client, call, timeout_s=5)
    assert isinstance(reply, Answered)
    assert (reply.status, script.paths()) == (307, ["/x"])


async def test_an_upstream_that_hangs_keeps_no_other_waiting() -> None:
    async with scripted(Script()) as catalog:
        catalog.upstream.turns = asyncio.Semaphore(0)
        catalog.upstream.timeout_s = 0.05
        reply = await catalog.upstream.ask("GET", catalog.upstream.uri, Onward())
        assert reply == NeverSent(cause="16 requests are under way already")
        catalog.upstream.turns = asyncio.Semaphore(1)
        catalog.upstream.timeout_s = 5
        for _ in range(3):
            assert isinstance(await catalog.upstream.ask("GET", catalog.upstream.uri, Onward()), Answered)


# The way


HOP = format_hop(installation="fe06ae90", tenant_hex=TENANT.hex, alias="beyond")


async def test_every_request_says_which_way_it_has_come() -> None:
    script = Script()
    async with scripted(script) as catalog:
        onward = Onward(hops=(HOP.replace("beyond", "near"),)).through(HOP)
        await replace(catalog, onward=onward).load(SALES)
    assert {each[HOPS_HEADER.lower()] for each in script.received_headers} == {f"{HOP.replace('beyond', 'near')},{HOP}"}
    assert parse_hops(script.received_headers[0][HOPS_HEADER.lower()]) == onward.hops


def test_an_alias_that_would_reach_itself_is_refused() -> None:
    onward = Onward(hops=(HOP,))
    assert onward.through(HOP.replace("beyond", "other")).hops == (HOP, HOP.replace("beyond", "other"))
    with pytest.raises(ForwardingLoopError, match="leads back to itself") as refused:
        onward.through(HOP)
    assert 400 <= refused.value.status < 500


def test_a_way_is_at_most_eight_gateways_long() -> None:
    hops = [HOP.replace("beyond", f"a{number}") for number in range(HOPS_MAX + 1)]
    assert parse_hops(", ".join(hops[:HOPS_MAX])) == tuple(hops[:HOPS_MAX])
    assert len(Onward(hops=tuple(hops[: HOPS_MAX - 1])).through(HOP).hops) == HOPS_MAX
    with pytest.raises(ForwardingLoopError, match="at most 8"):
        parse_hops(",".join(hops))
    with pytest.raises(ForwardingLoopError, match="at most 8"):
        Onward(hops=tuple(hops[:HOPS_MAX])).through(HOP)


@pytest.mark.parametrize("text", ["x", f"{HOP},", f"{HOP}\n{HOP}", HOP.replace(TENANT.hex, "t"), "a" * 3_000])
def test_a_way_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match=HOPS_HEADER):
        parse_hops(text)
    assert parse_hops(None) == parse_hops("") == ()


def test_remote_signing_is_not_passed_on() -> None:
    assert parse_delegation("vended-credentials,remote-signing") == parse_delegation(" vended-credentials") == VENDED
    assert parse_delegation("remote-signing") is parse_delegation(None) is None
