# SPDX-License-Identifier: Apache-2.0
"""
A proxy between a browser and the gateway that changes what it passes on: what somebody on the way could do.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import escape, unescape

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from testkit.servers.loopback import serve

Alter = Callable[[str, bytes], bytes]
"""Returns what is passed on of the body of an answer to a path."""
NOT_PASSED_ON = ("content-length", "transfer-encoding", "connection", "date", "server")


def unchanged(_path: str, body: bytes) -> bytes:
    """Change nothing."""
    return body


@dataclass(slots=True)
class AlteringProxy:
    """The proxy at `url`; `alter` may be exchanged at any time."""

    url: str = ""
    alter: Alter = unchanged
    altered: int = 0
    """Answers that were changed since it began."""


@asynccontextmanager
async def altering_proxy(gateway: str) -> AsyncIterator[AlteringProxy]:
    """Yield a proxy in front of the gateway at the URL `gateway`, which changes nothing until it is told to."""
    proxy = AlteringProxy()

    async def pass_on(request: Request) -> Response:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = [(name, value) for name, value in request.headers.raw if name not in {b"host", b"accept-encoding"}]
        asked = httpx.Request(request.method, gateway + path, headers=headers, content=await request.body())
        answer = await transport.handle_async_request(asked)  # no client: it would keep the cookies of one browser
        content = await answer.aread()
        await answer.aclose()
        body = proxy.alter(request.url.path, content)
        proxy.altered += body != content
        passed = Response(body, status_code=answer.status_code)
        passed.raw_headers += [
            (name, value) for name, value in answer.headers.raw if name.decode().lower() not in NOT_PASSED_ON
        ]
        return passed

    app = Starlette(routes=[Route("/{path:path}", pass_on, methods=["GET", "POST"])])
    async with httpx.AsyncHTTPTransport() as transport, serve(app) as url:
        proxy.url = url
        yield proxy


def flipped(data: bytes, at: int) -> bytes:
    """Return the bytes with the lowest bit of one of them changed."""
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def in_entry(index: int, at: int) -> Alter:
    """Change one byte of what the page of an entry shows as its bytes."""

    def alter(path: str, body: bytes) -> bytes:
        if path != f"/console/log/{index}":
            return body
        head, mark, rest = body.partition(b'<pre id="stored">')
        stored, end, tail = rest.partition(b"</pre>")
        assert mark
        assert end
        changed = flipped(unescape(stored.decode()).encode(), at).decode("utf-8", "replace")
        return head + mark + escape(changed).encode() + end + tail

    return alter


def in_proof(at: int) -> Alter:
    """Change one byte of the proof that the page's script is given."""
    return _in_check(lambda given: given | {"proof": _flipped_text(given["proof"], at)})


def in_growth(at: int) -> Alter:
    """Change one byte of the first hash that proves that the log has only grown."""
    return _in_check(lambda given: given | {"growth": [_flipped_text(given["growth"][0], at), *given["growth"][1:]]})


def in_key(at: int) -> Alter:
    """Change one byte of the public key that the gateway names: the 33 bytes behind a verifier key's second `+`."""

    def alter(given: dict[str, list[str]]) -> dict[str, list[str]]:
        name, hash_, key = given["keys"][0].split("+", 2)
        return given | {"keys": [f"{name}+{hash_}+{_flipped_text(key, at)}"]}

    return _in_check(alter)


def _in_check(change: Callable[[dict[str, object]], dict[str, object]] | Callable[..., dict[str, list[str]]]) -> Alter:
    def alter(path: str, body: bytes) -> bytes:
        return json.dumps(change(json.loads(body))).encode() if path.endswith("/check") else body

    return alter


def _flipped_text(text: object, at: int) -> str:
    assert isinstance(text, str)
    return b64encode(flipped(b64decode(text), at)).decode()
