# SPDX-License-Identifier: Apache-2.0
"""
What is sent to an upstream and what is taken for its answer: bytes over a socket, in every framing and every cut.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from typing import Final
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalogs.connection import Answer, AnswerError, AnswerTooLargeError, Connection, format_request
from gateway.catalogs.connections import split_url
from testkit.gateway.http_answers import END_OF_HEAD, chunked, said, until_closed

SIZE_BYTES_MAX: Final = 1_000
SAFE: Final = "/-._~!$&'()*+,;=:@%?"
"""What RFC 3986 (appendix A) lets a path and a query hold besides letters and digits."""


async def read(data: bytes, *, size_bytes_max: int = SIZE_BYTES_MAX, step: int | None = None) -> tuple[Answer, bool]:
    """Return what a connection takes `data`, in steps of so many bytes and a closed connection behind it, for."""
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    with far:
        _, connection = await loop.create_connection(Connection, sock=near)
        try:
            asked = asyncio.ensure_future(connection.ask(b"GET", size_bytes_max=size_bytes_max))
            await asyncio.sleep(0)
            step = step or max(len(data), 1)
            for start in range(0, len(data), step):
                if asked.done():
                    break
                connection.data_received(data[start : start + step])
                await asyncio.sleep(0)
            if not asked.done():
                connection.eof_received()
                connection.connection_lost(None)
            return await asked, connection.is_free
        finally:
            connection.close()


BODY: Final = b'{"a":"b"}'
WHOLE: Final = {
    "length": said(BODY),
    "empty": said(b""),
    "no content": b"HTTP/1.1 204 No Content" + END_OF_HEAD,
    "chunks": chunked(BODY[:4], BODY[4:]),
    "trailer": chunked(BODY, trailer=b"X-Sum: 1\r\n"),
    "gzip": said(gzip.compress(BODY), "Content-Encoding: gzip"),
    "deflate": said(zlib.compress(BODY), "Content-Encoding: Deflate"),
    "gzip in chunks": chunked(gzip.compress(BODY)).replace(b"chunked", b"chunked\r\ncontent-encoding: x-gzip", 1),
    "interim": b"HTTP/1.1 103 Early Hints\r\nContent-Type: text/plain" + END_OF_HEAD + said(BODY),
    "continue": b"HTTP/1.1 100 Continue" + END_OF_HEAD + said(BODY),
}


@pytest.mark.parametrize("kind", WHOLE)
async def test_a_whole_answer_is_read_however_it_is_framed_and_cut_into_packets(kind: str) -> None:
    expected = (204 if kind == "no content" else 200, b"" if kind in {"empty", "no content"} else BODY, True)
    for step in range(1, len(WHOLE[kind]) + 1):
        answer, is_free = await read(WHOLE[kind], step=step)
        assert (answer.status, answer.body, is_free) == expected, step
        assert answer.header("content-type") is None, "the interim answer's"


@pytest.mark.parametrize("kind", WHOLE)
async def test_an_answer_that_is_cut_anywhere_is_none(kind: str) -> None:
    for length in range(len(WHOLE[kind])):
        with pytest.raises(AnswerError):
            await read(WHOLE[kind][:length])


async def test_an_answer_without_a_length_ends_with_its_connection_which_is_not_used_again() -> None:
    for data in (until_closed(BODY), b"HTTP/1.0 200 OK" + END_OF_HEAD + BODY, b"HTTP/1.1 200 OK" + END_OF_HEAD + BODY):
        answer, is_free = await read(data)
        assert (answer.body, is_free) == (BODY, False)


BROKEN: Final = {
    "another protocol": b"SSH-2.0-OpenSSH\r\n",
    "another version": b"HTTP/2 200 OK" + END_OF_HEAD,
    "an upgrade": b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c" + END_OF_HEAD,
    "two lengths": said(BODY, "Content-Length: 3"),
    "a length and chunks": said(BODY, "Transfer-Encoding: chunked"),
    "a length and a coding": said(BODY, "Transfer-Encoding: gzip"),
    "a coding and chunks": chunked(BODY).replace(b"chunked", b"gzip, chunked"),
    "a signed length of a chunk": chunked(BODY).replace(b"\r\n9\r\n", b"\r\n+9\r\n"),
    "not gzip": said(BODY, "Content-Encoding: gzip"),
    "half of gzip": said(gzip.compress(BODY)[:-1], "Content-Encoding: gzip"),
    "more than gzip": said(gzip.compress(BODY) + b"x", "Content-Encoding: gzip"),
    "a control character": said(BODY, "X: a\0b"),
    "a large head": said(BODY, *(f"X-{number}: {'x' * 1_000}" for number in range(70))),
    "a large trailer": chunked(BODY, trailer=b"X: " + b"x" * 70_000 + b"\r\n"),
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_what_is_no_answer_or_could_be_read_in_two_ways_is_none(kind: str) -> None:
    for step in (None, 1_000):
        with pytest.raises(AnswerError):
            await read(BROKEN[kind], step=step)


async def test_an_answer_may_be_as_large_as_it_may_be_and_no_larger() -> None:
    for size in (SIZE_BYTES_MAX - 1, SIZE_BYTES_MAX):
        body = b"x" * size
        for data in (said(body), chunked(*[b"x"] * size), said(gzip.compress(body), "Content-Encoding: gzip")):
            assert (await read(data))[0].body == body
    body = b"x" * (SIZE_BYTES_MAX + 1)
    bomb = gzip.compress(b"x" * 100 * SIZE_BYTES_MAX)
    assert len(bomb) < SIZE_BYTES_MAX
    for data in (said(body), chunked(body), chunked(*[b"x"] * len(body)), said(bomb, "Content-Encoding: gzip")):
        with pytest.raises(AnswerTooLargeError):
            await read(data)


async def test_repeated_headers_are_one_list() -> None:
    answer, _ = await read(said(BODY, "Vary: a", "vary: b"))
    assert (answer.header("vary"), answer.header("etag")) == ("a, b", None)


# What is sent


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET X", "/", {}),
        ("GET", "x", {}),
        ("GET", "/ x", {}),
        ("GET", "/\r\nX: y", {}),
        ("GET", "/", {"X": "a\r\nY: b"}),
        ("GET", "/", {"X": "a\n b"}),
        ("GET", "/", {"X": "ü"}),
        ("GET", "/", {"X:": "a"}),
        ("GET", "/", {"": "a"}),
        ("GET", "/", {"A": "b", "X": "a\r\n", "C": "d"}),
        ("GET", "/", {"A": "b", "X Y": "a", "C": "d"}),
        ("GET", "/", {"A": "b", "": "a", "C": "d"}),
    ],
)
def test_what_could_be_read_as_another_request_is_not_sent(method: str, target: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected"):
        format_request(method, target, headers, None)


def test_the_header_that_has_no_form_on_the_wire_is_named() -> None:
    with pytest.raises(ValueError, match="'X'"):
        format_request("GET", "/", {"A": "b", "X": "ü", "C": "d"}, None)


def test_a_request_says_how_long_its_body_is() -> None:
    assert format_request("GET", "/", {"A": "b"}, None) == b"GET / HTTP/1.1\r\nA: b\r\n\r\n"
    assert format_request("POST", "/", {}, None) == b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
    assert format_request("DELETE", "/a?b", {}, b"{}") == b"DELETE /a?b HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_a_target_is_escaped_alike_whether_or_not_it_has_to_be(path: str) -> None:
    assert split_url(f"http://h/{path}")[1] == quote(f"/{path}", safe=SAFE)


@pytest.mark.parametrize(
    "url",
    ["", "/x", "//h/x", "ftp://h/", "https://", "http:///x", "http://h?x", "http://h#x", "http://u@h/", "http://h:0/",
     "http://h:x/", "http://[/", "http://h\\x/", "http://h%2e/", "http://ü/", "http://h/\0", "http://h/\x7f",
     "http://h /"],
)  # fmt: skip
def test_what_is_not_a_plain_url_leads_nowhere(url: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        split_url(url)


@pytest.mark.parametrize(
    ("url", "authority", "target"),
    [
        ("http://h", "h", "/"),
        ("HTTPS://H:443/", "H:443", "/"),
        ("http://[::1]:81/a/b?c=d&e=%1F", "[::1]:81", "/a/b?c=d&e=%1F"),
        ("http://h/%2F%25/a+b:@c", "h", "/%2F%25/a+b:@c"),
        ('http://h/{a}|"b"#c', "h", "/%7Ba%7D%7C%22b%22%23c"),
    ],
)
def test_a_url_is_split_into_the_server_and_what_it_is_asked_for(url: str, authority: str, target: str) -> None:
    origin, found = split_url(url)
    assert (origin.authority, found) == (authority, target)
    assert origin.is_tls == url.lower().startswith("https")
