# SPDX-License-Identifier: Apache-2.0
"""
Bodies in gzip: expanded within the same caps; no other encoding is supported.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.errors import BadRequestError, TooLargeError
from gateway.http.decoding import PIECE_SIZE_BYTES, DecodesBodies
from testkit.gateway.log_contents import words
from testkit.gateway.sales import NAMESPACES, ORDERS, error_of, properties
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

GZIP = {"Content-Encoding": "gzip"}
CAP = 4 * PIECE_SIZE_BYTES


async def expanded(pieces: list[bytes], *, cap: int = CAP) -> tuple[bytes, int]:
    """What the application reads of a body in gzip that arrives in pieces, and the largest piece that it is given."""
    messages: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": i < len(pieces) - 1} for i, piece in enumerate(pieces)
    ]
    read: list[bytes] = []

    async def app(scope: Scope, receive: Receive, _: Send) -> None:
        assert [name for name, _ in scope["headers"]] == [b"x-other"], "what is said of the compressed body is gone"
        while True:
            message = await receive()
            read.append(message["body"])
            if not message["more_body"]:
                return

    async def receive() -> Message:
        return messages.pop(0)

    async def send(_: Message) -> None:
        raise AssertionError("nothing is answered here")

    headers = [(b"content-encoding", b"gzip"), (b"content-length", b"9"), (b"x-other", b"v")]
    await DecodesBodies(app, size_bytes_max=cap)({"type": "http", "headers": headers}, receive, send)
    return b"".join(read), max(map(len, read))


@pytest.mark.parametrize("size", [0, 1, 1000, PIECE_SIZE_BYTES, 5 * PIECE_SIZE_BYTES + 1])
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
async def test_a_body_is_what_was_compressed_however_it_arrives(size: int, step: int) -> None:
    body = (b"abcdefgh" * (size // 8 + 1))[:size]
    packed = gzip.compress(body)
    pieces = [packed[i : i + step] for i in range(0, len(packed), step)]
    found, largest = await expanded([*pieces, b""])
    assert found == body
    assert largest <= PIECE_SIZE_BYTES
    assert await expanded(pieces) == (found, largest)


PACKED = gzip.compress(b"x" * 1000)
EMPTY_BLOCKS = b"\x00\x00\x00\xff\xff" * CAP


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ([b""], BadRequestError),
        ([PACKED[:-1]], BadRequestError),
        ([PACKED[:5]], BadRequestError),
        ([PACKED + b"x"], BadRequestError),
        ([PACKED, b"x"], BadRequestError),
        ([PACKED + PACKED], BadRequestError),
        ([PACKED[:-8] + bytes(8)], BadRequestError),
        ([b"x" + PACKED], BadRequestError),
        ([zlib.compress(b"x")], BadRequestError),
        ([b'{"namespace": ["plain"]}'], BadRequestError),
        ([PACKED[:10], EMPTY_BLOCKS], TooLargeError),
    ],
)
async def test_what_is_not_one_whole_member_of_gzip_is_refused(pieces: list[bytes], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await expanded(pieces)


async def test_any_flipped_byte_is_noticed() -> None:
    noticed = 0
    for i in range(10, len(PACKED)):
        damaged = bytearray(PACKED)
        damaged[i] ^= 0xFF
        try:
            assert (await expanded([bytes(damaged)]))[0] != b"x" * 1000
        except (BadRequestError, TooLargeError):
            noticed += 1
    assert noticed == len(PACKED) - 10


async def test_a_commit_in_gzip_is_carried_out_as_if_it_were_not(sales: Gateway) -> None:
    body = json.dumps(properties(packed="yes")).encode()
    for coding in ("gzip", "GZIP", "x-gzip"):
        answer = await sales.http.post(ORDERS, content=gzip.compress(body), headers={"Content-Encoding": coding})
        assert answer.json()["metadata"]["properties"]["packed"] == "yes"
    plain = await sales.http.post(ORDERS, content=body, headers={"Content-Encoding": "identity"})
    assert plain.status_code == 200


async def test_what_expands_beyond_the_cap_is_refused_however_small_it_is(sales: Gateway) -> None:
    before = await words(sales.services, sales.acme.log_id)
    bomb = gzip.compress(bytes(200 << 20), 1)
    assert len(bomb) < 2 << 20
    for path in (NAMESPACES, ORDERS, "/v1/policies", "/v1/lineage", "/v1/webhooks/polaris"):
        answer = await sales.http.post(path, content=bomb, headers=GZIP)
        assert (answer.status_code, error_of(answer)["type"]) == (413, "PayloadTooLargeException"), path
    assert await words(sales.services, sales.acme.log_id) == before


async def test_other_encodings_are_415_for_authenticated_callers(sales: Gateway) -> None:
    ways: list[Callable[[], tuple[str, bytes]]] = [
        lambda: ("br", b"x"),
        lambda: ("zstd", b"x"),
        lambda: ("deflate", zlib.compress(b"{}")),
        lambda: ("gzip, gzip", gzip.compress(gzip.compress(b"{}"))),
        lambda: ("", b"{}"),
    ]
    for coding, body in (way() for way in ways):
        answer = await sales.http.post(ORDERS, content=body, headers={"Content-Encoding": coding})
        assert (answer.status_code, error_of(answer)["type"]) == (415, "UnsupportedMediaTypeException"), coding
        assert answer.headers["accept-encoding"] == "gzip"
        stranger: httpx.Response = await sales.client("nobody").post(
            ORDERS, content=body, headers={"Content-Encoding": coding}
        )
        assert stranger.status_code == 401
