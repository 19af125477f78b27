# SPDX-License-Identifier: Apache-2.0
"""Asking a server that is not ours: what it answers is bounded, and what cannot be asked is an error of ours."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ledger.errors import FormatError
from ledger.files.bounded_http import HttpResponse, NoResponseError, check_url, post
from testkit.servers.loopback import serve

LIMIT_BYTES = 1000
TLS = ssl.create_default_context()
"""Of all clients here: each would read the certificates of all authorities again."""
SECRET = "hunter2"  # in URLs that hold credentials
UNUSABLE = [
    "",
    "nonsense",
    "//x",
    "ftp://x/",
    "http:///x",
    "http://",
    "http://[::1",
    f"http://user:{SECRET}@127.0.0.1:99999/",
    "http://127.0.0.1:65536/",
    "http://127.0.0.1:0/",
    f"http://user:{SECRET}@h:bad/",
    f"http://user:{SECRET}/more@h/",
    f"http://user:{SECRET}\nmore@h/",
    "http://xn--zz--/",
    "http://\u2603\u2603.x\udcff/",
    "http://127.0.0.1:9/\udcfe",
    "http://a\x00b/",
    "http://a..b/",
    "http://.x/",
    f"http://{'a' * 64}.x/",
    f"http://{'a' * 70_000}/",
    "http://a:\N{ARABIC-INDIC DIGIT THREE}x/",
]


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, verify=TLS) as client:
        yield client


def answering(headers: dict[str, str], body: bytes = b"", status: int = 200) -> Starlette:
    async def answer(request: Request) -> Response:
        await request.body()
        return Response(body, status_code=status, headers=headers)

    return Starlette(routes=[Route("/", answer, methods=["POST"])])


async def ask(client: httpx.AsyncClient, url: str) -> HttpResponse:
    return await post(client, url, b"question", headers={"X-Asked": "yes"}, size_bytes_max=LIMIT_BYTES)


async def test_an_answer_is_what_the_server_said(client: httpx.AsyncClient) -> None:
    seen: list[Request] = []

    async def answer(request: Request) -> Response:
        seen.append(request)
        return Response(await request.body() + b"\xff", status_code=409, headers={"content-type": "Text/X; charset=x"})

    async with serve(Starlette(routes=[Route("/", answer, methods=["POST"])])) as url:
        expected = HttpResponse(status=409, content_type="text/x", body=b"question\xff")
        assert await ask(client, f"{url}/") == expected
    (request,) = seen
    assert (request.headers["accept-encoding"], request.headers["x-asked"]) == ("identity", "yes")


async def test_an_answer_up_to_the_limit_is_taken_and_one_over_it_is_not(client: httpx.AsyncClient) -> None:
    async with serve(answering({}, bytes(LIMIT_BYTES))) as url:
        assert len((await ask(client, f"{url}/")).body) == LIMIT_BYTES
    async with serve(answering({}, bytes(LIMIT_BYTES + 1))) as url:
        with pytest.raises(NoResponseError, match=f"at most {LIMIT_BYTES} bytes"):
            await ask(client, f"{url}/")

    async def endless(_: Request) -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            while True:
                yield bytes(65_536)
                await asyncio.sleep(0)

        return StreamingResponse(chunks())

    async with serve(Starlette(routes=[Route("/", endless, methods=["POST"])])) as url:
        with pytest.raises(NoResponseError, match=f"at most {LIMIT_BYTES} bytes"):
            await ask(client, f"{url}/")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity, gzip", "GZIP", "x" * 5_000])
async def test_a_compressed_answer_is_not_read(client: httpx.AsyncClient, encoding: str) -> None:
    async with serve(answering({"content-encoding": encoding}, gzip.compress(b"small"))) as url:
        with pytest.raises(NoResponseError, match="not encoded") as caught:
            await ask(client, f"{url}/")
    assert len(str(caught.value)) < 200


async def test_what_says_that_it_is_not_compressed_is_taken_as_it_is(client: httpx.AsyncClient) -> None:
    packed = gzip.compress(bytes(100_000))
    async with serve(answering({"content-encoding": "Identity"}, packed)) as url:
        assert (await ask(client, f"{url}/")).body == packed


async def test_a_redirection_is_an_answer_and_not_followed() -> None:
    moved = answering({"location": "/elsewhere"}, status=307)
    async with httpx.AsyncClient(trust_env=False, follow_redirects=True) as client, serve(moved) as url:
        assert (await ask(client, f"{url}/")).status == 307


async def test_cookies_are_not_collected(client: httpx.AsyncClient) -> None:
    seen: list[str | None] = []

    async def answer(request: Request) -> Response:
        seen.append(request.headers.get("cookie"))
        return Response(headers={"set-cookie": f"n{len(seen)}={'x' * 1000}; Max-Age=100000"})

    async with serve(Starlette(routes=[Route("/", answer, methods=["POST"])])) as url:
        for _ in range(3):
            await ask(client, f"{url}/")
    assert seen == [None, None, None]
    assert not list(client.cookies.jar)


async def test_a_server_that_is_not_there_gives_no_answer(client: httpx.AsyncClient) -> None:
    async with serve(answering({})) as url:
        pass
    with pytest.raises(NoResponseError, match="ConnectError"):
        await ask(client, url)


@pytest.mark.parametrize("url", UNUSABLE)
async def test_a_url_that_cannot_be_asked_is_found_before_and_gives_no_answer(
    client: httpx.AsyncClient, url: str
) -> None:
    with pytest.raises(FormatError) as found:
        check_url(url)
    with pytest.raises(NoResponseError) as answered:
        await ask(client, url)
    for error in (found.value, answered.value):
        assert SECRET not in str(error)


@pytest.mark.parametrize(
    "url",
    [
        "http://witness.example",
        "https://witness.example:8443/prefix/",
        "http://127.0.0.1:1/",
        "http://[::1]:65535/w",
        f"https://user:{SECRET}@tsa.example/?kind=rfc3161",
        "https://b\u00fccher.example/",
        "HTTPS://xn--bcher-kva.example./",
    ],
)
def test_a_url_that_may_be_asked_is_accepted(url: str) -> None:
    check_url(url)
