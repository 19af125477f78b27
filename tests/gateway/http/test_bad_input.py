# SPDX-License-Identifier: Apache-2.0
"""
Malformed and oversized requests, and unknown credentials: refused before anything is recorded or changed.
"""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from typing import Any, Self

import httpx
import pytest

from gateway.commit.requests import COMMIT_BODY_SIZE_BYTES_MAX, NAMESPACE_BODY_SIZE_BYTES_MAX
from gateway.http.server.connections import Bounds, Connections
from gateway.identity.api_keys import mint_key
from testkit.gateway.log_contents import check_agreement, read_stored
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, SALES, SCHEMA, TABLES, error_of, properties
from testkit.servers.gateways import Gateway
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROPERTIES = f"{SALES}/properties"
UPDATE = {"action": "set-properties", "updates": {"a": "b"}}


def commit(**members: Any) -> dict[str, Any]:
    return {"requirements": [], "updates": [UPDATE], **members}


# Bodies: where they are posted, what they are, and the field that the answer names.

BODIES: list[tuple[str, object, str]] = [
    (NAMESPACES, b"", "body"),
    (NAMESPACES, b"{", "body"),
    (NAMESPACES, b"\xff", "body"),
    (NAMESPACES, b'{"namespace": ["\\ud800"]}', "body"),
    (NAMESPACES, b"[" * 5_000, "body"),
    (NAMESPACES, [], "body"),
    (NAMESPACES, None, "body"),
    (NAMESPACES, {}, "namespace"),
    (NAMESPACES, {"namespace": "sales"}, "namespace"),
    (NAMESPACES, {"namespace": []}, "namespace"),
    (NAMESPACES, {"namespace": ["x"] * 17}, "namespace"),
    (NAMESPACES, {"namespace": ["ok", 1]}, "namespace[1]"),
    (NAMESPACES, {"namespace": [""]}, "namespace[0]"),
    (NAMESPACES, {"namespace": ["a\nb"]}, "namespace[0]"),
    (NAMESPACES, {"namespace": ["ok", ".."]}, "namespace[1]"),
    (NAMESPACES, {"namespace": ["a\x1fb"]}, "namespace[0]"),
    (NAMESPACES, {"namespace": ["x" * 256]}, "namespace[0]"),
    (NAMESPACES, {"namespace": ["ü" * 200] * 2}, "namespace"),
    (NAMESPACES, {"namespace": ["n"], "properties": []}, "properties"),
    (NAMESPACES, {"namespace": ["n"], "properties": {"a": 1}}, "properties.a"),
    (NAMESPACES, {"namespace": ["n"], "properties": {"a": None}}, "properties.a"),
    (NAMESPACES, {"namespace": ["n"], "properties": {"a": "\0"}}, "properties.a"),
    (NAMESPACES, {"namespace": ["n"], "properties": {"a": "x" * 40_000}}, "properties.a"),
    (NAMESPACES, {"namespace": ["n"], "properties": {str(n): "" for n in range(1_001)}}, "properties"),
    (PROPERTIES, {"updates": "a"}, "updates"),
    (PROPERTIES, {"updates": False}, "updates"),
    (PROPERTIES, {"removals": {"a": "b"}}, "removals"),
    (PROPERTIES, {"removals": [1]}, "removals"),
    (PROPERTIES, {"removals": [str(n) for n in range(1_001)]}, "removals"),
    (TABLES, {"schema": SCHEMA}, "name"),
    (TABLES, {**CREATE, "name": ["orders"]}, "name"),
    (TABLES, {**CREATE, "name": "a\tb"}, "name"),
    (TABLES, {**CREATE, "name": "."}, "name"),
    (TABLES, {"name": "t"}, "schema"),
    (TABLES, {**CREATE, "name": "t", "schema": []}, "schema"),
    (TABLES, {**CREATE, "name": "t", "schema": {"type": "struct", "fields": [{"id": 1}]}}, "schema.fields[0].name"),
    (TABLES, {**CREATE, "name": "t", "stage-create": "yes"}, "stage-create"),
    (TABLES, {**CREATE, "name": "t", "location": 5}, "location"),
    (TABLES, {**CREATE, "name": "t", "location": ""}, "location"),
    (TABLES, {**CREATE, "name": "t", "properties": "x"}, "properties"),
    (TABLES, {**CREATE, "name": "t", "partition-spec": 1}, "partition-spec"),
    (TABLES, {**CREATE, "name": "t", "write-order": 1}, "write-order"),
    (ORDERS, {}, "requirements"),
    (ORDERS, {"requirements": []}, "updates"),
    (ORDERS, commit(updates={}), "updates"),
    (ORDERS, commit(updates=["x"]), "updates[0]"),
    (ORDERS, commit(updates=[{}]), "updates[0].action"),
    (ORDERS, commit(updates=[UPDATE, {"action": "make-coffee"}]), "updates[1].action"),
    (ORDERS, commit(updates=[{"action": "add-view-version"}]), "updates[0].action"),
    (ORDERS, commit(updates=[{"action": "set-properties", "updates": {"a": 1}}]), "updates[0].updates.a"),
    (ORDERS, commit(updates=[{"action": "set-location", "location": 1}]), "updates[0].location"),
    (ORDERS, commit(requirements=[{"type": "assert-love"}]), "requirements[0].type"),
    (ORDERS, commit(requirements=[{"type": "assert-table-uuid"}]), "requirements[0].uuid"),
    (
        ORDERS,
        commit(requirements=[{"type": "assert-create"}, {"type": "assert-table-uuid", "uuid": "x"}]),
        "requirements",
    ),
    (ORDERS, commit(identifier="sales.orders"), "identifier"),
    (ORDERS, commit(identifier={"namespace": ["sales"]}), "identifier.name"),
    (ORDERS, commit(identifier={"namespace": [""], "name": "orders"}), "identifier.namespace[0]"),
    (ORDERS, commit(identifier={"namespace": ["sales"], "name": "other"}), "identifier"),
]


def _posted(body: object) -> dict[str, Any]:
    return {"content": body} if isinstance(body, bytes) else {"json": body}


async def test_a_malformed_body_is_refused_by_the_name_of_its_field(module_sales: Gateway) -> None:
    told = await read_stored(module_sales.services, module_sales.acme.log_id)
    for path, body, field in BODIES:
        answer = await module_sales.http.post(path, **_posted(body))
        assert answer.status_code == 400, (path, body, answer.text)
        assert error_of(answer)["type"] == "BadRequestException", (path, body)
        assert error_of(answer)["message"].startswith(f"{field}: "), (path, body, answer.text)
    assert await read_stored(module_sales.services, module_sales.acme.log_id) == told
    await check_agreement(module_sales.services, module_sales.acme.log_id)


async def test_an_update_that_does_not_fit_the_table_is_refused_in_the_references_words(module_sales: Gateway) -> None:
    body = commit(updates=[{"action": "set-current-schema", "schema-id": 9}])
    answer = await module_sales.http.post(ORDERS, json=body)
    assert (answer.status_code, error_of(answer)["type"]) == (400, "ValidationException")
    assert error_of(answer)["message"] == "Cannot set current schema to unknown schema: 9"


async def test_a_commit_of_too_many_snapshots_is_refused(module_sales: Gateway) -> None:
    snapshot = {"timestamp-ms": 1, "manifest-list": "file:///x", "summary": {"operation": "append"}}
    updates = [{"action": "add-snapshot", "snapshot": {**snapshot, "snapshot-id": n}} for n in range(1, 1_002)]
    answer = await module_sales.http.post(ORDERS, json=commit(updates=updates))
    assert answer.status_code == 400
    assert error_of(answer)["message"] == "updates: expected at most 1000 updates beside removals, found more"


PATHS = [
    (f"{NAMESPACES}/%FF", "namespace"),
    (f"{NAMESPACES}/a%00b", "namespace[0]"),
    (f"{NAMESPACES}/a%1F", "namespace[1]"),
    (f"{NAMESPACES}/%1Fa", "namespace[0]"),
    (f"{NAMESPACES}/" + "%1F".join("x" * 17), "namespace"),
    (f"{NAMESPACES}/{'x' * 256}", "namespace[0]"),
    (f"{NAMESPACES}/" + "%1F".join(["%C3%BC" * 200] * 2), "namespace"),
    (f"{NAMESPACES}/%E2%80%A8", "namespace[0]"),
    ("/v1/iceberg/a%2Fb/namespaces/module_sales", "prefix"),
    ("/v1/iceberg/no.dots/namespaces/module_sales", "prefix"),
    (f"/v1/iceberg/{'x' * 65}/namespaces/module_sales", "prefix"),
    (f"{TABLES}/%C0%AF", "table"),
    (f"{TABLES}/%7F", "table"),
]


@pytest.mark.parametrize(("path", "field"), PATHS)
async def test_a_malformed_identifier_is_refused_by_name(module_sales: Gateway, path: str, field: str) -> None:
    is_table = "/tables/" in path
    answers = [await module_sales.http.get(path), await module_sales.http.delete(path)]
    answers.append(await module_sales.http.post(path if is_table else f"{path}/properties", json=commit()))
    for answer in answers:
        assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException")
        assert error_of(answer)["message"].startswith(f"{field}: ")


async def test_malformed_queries_are_refused_by_name(module_sales: Gateway) -> None:
    for query, field in (
        (f"{NAMESPACES}?pageSize=0", "pageSize"),
        (f"{NAMESPACES}?pageSize=-1", "pageSize"),
        (f"{TABLES}?pageSize={'9' * 5000}", "pageSize"),
        (f"{TABLES}?pageSize=ten", "pageSize"),
        (f"{TABLES}?pageToken=%00", "pageToken"),
        (f"{NAMESPACES}?pageToken={'x' * 20_000}", "pageToken"),
        (f"{NAMESPACES}?parent=a%1F", "parent[1]"),
        (f"{ORDERS}?snapshots=some", "snapshots"),
        ("/v1/config", "warehouse"),
        ("/v1/config?warehouse=", "warehouse"),
        ("/v1/config?warehouse=a/b", "warehouse"),
    ):
        answer = await module_sales.http.get(query)
        assert (answer.status_code, error_of(answer)["message"].split(":")[0]) == (400, field), query


async def test_a_path_beyond_measure_is_refused(module_sales: Gateway) -> None:
    assert (await module_sales.http.get(f"{NAMESPACES}/{'x' * 20_000}")).status_code == 414


# Credentials

EVERYTHING = [
    ("GET", "/v1/config?warehouse=lake"),
    ("GET", NAMESPACES),
    ("POST", NAMESPACES),
    ("GET", SALES),
    ("GET", f"{NAMESPACES}/%FF"),
    ("DELETE", SALES),
    ("POST", PROPERTIES),
    ("POST", TABLES),
    ("GET", ORDERS),
    ("POST", ORDERS),
    ("DELETE", f"{ORDERS}?purgeRequested=true"),
    ("GET", "/v1/policies"),
    ("POST", "/v1/policies"),
    ("POST", "/v1/access-rules"),
    ("POST", "/v1/access-rules/import"),
    ("POST", "/v1/catalogs"),
    ("POST", "/v1/keys"),
    ("PUT", "/v1/settings/lineage-cycles"),
    ("DELETE", "/v1/keys/x"),
]


async def test_without_known_credentials_nothing_is_answered_but_401(sales: Gateway) -> None:
    stranger = mint_key(lambda size: bytes(size)).format()
    nobodys = [
        {},
        {"Authorization": ""},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer None"},
        {"Authorization": f"Bearer {stranger}"},
        {"Authorization": f"Bearer {sales.acme.key.secret[:-1]}"},
        {"Authorization": f"Bearer {sales.acme.key.secret}x"},
        {"Authorization": "Bearer \xff\xfe"},
        {"X-Api-Key": stranger},
        {"X-Api-Key": ""},
    ]
    anonymous = sales.client(None)
    for headers in nobodys:
        raw = [(name.encode(), text.encode("latin-1")) for name, text in headers.items()]
        for method, path in EVERYTHING if not headers else EVERYTHING[:3]:
            answer = await anonymous.request(method, path, content=b"{", headers=raw)
            assert answer.status_code == 401, (method, path, headers, answer.text)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert error_of(answer)["type"] == "NotAuthorizedException"
            assert sales.acme.key.secret[10:] not in answer.text
    system = await read_stored(sales.services, sales.services.system.log_id, key="gateway:access")
    operations = {str(one.entry.data["operation"]) for one in system if one.words == "access.refused"}
    assert "POST /v1/iceberg/{alias}/namespaces/{namespace}/tables/{table}" in operations, "the route, not the path"
    assert not any("sales" in operation for operation in operations)
    key = {"X-Api-Key": sales.acme.key.secret}
    assert (await anonymous.get(NAMESPACES, headers=key)).status_code == 200


# Bodies over their cap


async def test_a_body_over_its_cap_is_413(module_sales: Gateway) -> None:
    for path, cap in ((NAMESPACES, NAMESPACE_BODY_SIZE_BYTES_MAX), (ORDERS, COMMIT_BODY_SIZE_BYTES_MAX)):
        answer = await module_sales.http.post(path, content=b" " * (cap + 1))
        assert (answer.status_code, error_of(answer)["type"]) == (413, "PayloadTooLargeException")
        fits = await module_sales.http.post(path, content=b" " * cap)
        assert fits.status_code == 400, "it is read, and no JSON"
    assert (await module_sales.http.post("/v1/policies", content=b" " * 70_000)).status_code == 413


class Wire:
    """
    A client that says what it likes, on a real socket.

    Blocking, in threads: a server that closes before it has read everything resets the connection, and only a plain
    `recv` hands out what had arrived before that.
    """

    def __init__(self, url: str, key: str, *headers: str) -> None:
        target = httpx.URL(url)
        self._socket = socket.create_connection((target.host, target.port or 80), timeout=20)
        lines = [f"POST {ORDERS} HTTP/1.1", "Host: gateway", f"Authorization: Bearer {key}", *headers, "", ""]
        self._socket.sendall("\r\n".join(lines).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send `data`."""
        self._socket.sendall(data)

    def feed(self, chunk: bytes) -> int:
        """Send `chunk` again and again until the other side closes; return how many bytes went out."""
        sent = 0
        with suppress(ConnectionError):
            while True:
                self._socket.sendall(chunk)
                sent += len(chunk)
        return sent

    def hang_up(self) -> None:
        """Say that nothing more will come."""
        self._socket.shutdown(socket.SHUT_WR)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Read one answer: status, headers and body."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, _, body = data.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        while len(body) < int(headers["content-length"]):
            body += self._more()
        return int(status.split()[1]), headers, body

    def _more(self) -> bytes:
        data = self._socket.recv(65_536)
        assert data, "the connection was closed before the end of the answer"
        return data


CHUNK = b"10000\r\n" + b" " * 0x10000 + b"\r\n"


async def refused_while_feeding(url: str, key: str, *headers: str, chunk: bytes) -> tuple[int, str, int]:
    """The status and the Connection header of the answer to a body without an end, and how much of it went out."""
    with await asyncio.to_thread(Wire, url, key, *headers) as wire:
        feeding = asyncio.create_task(asyncio.to_thread(wire.feed, chunk))
        status, answered, _ = await asyncio.to_thread(wire.answer)
        return status, answered["connection"], await feeding


async def test_a_declared_length_over_the_cap_is_refused_before_the_body_is_read(
    module_sales: Gateway, module_url: str
) -> None:
    length = f"Content-Length: {COMMIT_BODY_SIZE_BYTES_MAX + 1}"
    with await asyncio.to_thread(Wire, module_url, module_sales.acme.key.secret, length) as wire:
        status, headers, _ = await asyncio.to_thread(wire.answer)
        assert (status, headers["connection"]) == (413, "close"), "nothing of the body was sent"


def briefly_drained() -> Connections:
    """Connections on which little is read and thrown away behind a refusal."""
    return Connections(bounds=Bounds(drain_bytes_max=1 << 20))


async def test_a_body_without_an_end_is_not_read_to_its_end(module_sales: Gateway) -> None:
    async with serve_gateway(module_sales.app, briefly_drained()) as url:
        status, connection, sent = await refused_while_feeding(
            url, module_sales.acme.key.secret, "Transfer-Encoding: chunked", chunk=CHUNK
        )
        assert (status, connection) == (413, "close")
        assert sent < 3 * COMMIT_BODY_SIZE_BYTES_MAX


async def test_a_stranger_cannot_make_the_gateway_read_on(module_sales: Gateway) -> None:
    async with serve_gateway(module_sales.app, briefly_drained()) as url:
        status, connection, sent = await refused_while_feeding(url, "nobody", "Transfer-Encoding: chunked", chunk=CHUNK)
        assert (status, connection) == (401, "close")
        assert sent < COMMIT_BODY_SIZE_BYTES_MAX


async def test_a_body_that_ends_before_its_declared_length_changes_nothing(sales: Gateway) -> None:
    told = await read_stored(sales.services, sales.acme.log_id)
    body = json.dumps(properties(a="b")).encode()
    async with serve_gateway(sales.app) as url:
        with await asyncio.to_thread(Wire, url, sales.acme.key.secret, f"Content-Length: {len(body) + 1}") as wire:
            wire.send(body)
            wire.hang_up()
        async with httpx.AsyncClient(base_url=url, headers=sales.http.headers) as client:
            found = (await client.get(ORDERS)).json()["metadata"]["properties"]
    assert "a" not in found
    assert await read_stored(sales.services, sales.acme.log_id) == told


async def test_more_than_was_declared_is_no_part_of_the_request(sales: Gateway, module_url: str) -> None:
    body = json.dumps(properties(a="b")).encode()
    with await asyncio.to_thread(Wire, module_url, sales.acme.key.secret, f"Content-Length: {len(body)}") as wire:
        wire.send(body + b"and more")
        status, _, answered = await asyncio.to_thread(wire.answer)
        assert (status, json.loads(answered)["metadata"]["properties"]["a"]) == (200, "b")
    answer = await sales.http.post(ORDERS, content=body, headers={"Content-Length": str(len(body) - 1)})
    assert answer.status_code == 400, "no server in between has cut it"
    odd = await sales.http.post(ORDERS, content=body, headers={"Content-Length": "9" * 6_000})
    assert odd.status_code == 200, "what is no size declares nothing"
