"""Which bytes are a head, and where a body ends: pure, for bytes that nobody would think of."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.http.server.body import Body
from gateway.http.server.head import (
    HEADERS_MAX,
    RefusedRequestError,
    check_partial_head,
    parse_head,
)

TOKEN = "!#$%&'*+-.^_`|~0123456789ABCXYZabcxyz"
NAMES = st.text(TOKEN, min_size=1, max_size=12).map(lambda text: f"x-{text}".encode())
VALUES = st.binary(max_size=20).map(
    lambda data: bytes(byte for byte in data if byte == 9 or (byte >= 32 and byte != 127))
)
PIECES = st.lists(st.integers(1, 9), max_size=40)


def head(*lines: bytes, line: bytes = b"GET /a?b=c HTTP/1.1") -> bytes:
    return b"\r\n".join([line, b"Host: x", *lines, b"", b""])


def cut(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """`data` in pieces of these sizes, and the rest."""
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [piece for piece in (*pieces, data) if piece]


def body_of(text: bytes, pieces: Sequence[bytes], *lines: bytes) -> tuple[bytes, Body]:
    """What a body delivers of `pieces`."""
    delivered: list[bytes] = []
    body = Body(parse_head(head(text, *lines, line=b"POST / HTTP/1.1")), delivered.append)
    for piece in pieces:
        body.feed(piece)
    return b"".join(delivered), body


@given(fields=st.lists(st.tuples(NAMES, VALUES), max_size=HEADERS_MAX - 1))
def test_every_header_comes_out_as_it_went_in(fields: list[tuple[bytes, bytes]]) -> None:
    parsed = parse_head(head(*(name + b":" + value for name, value in fields)))
    assert parsed.headers[1:] == [(name.lower(), value.strip(b" \t")) for name, value in fields]
    assert (parsed.method, parsed.path, parsed.query, parsed.version) == ("GET", b"/a", b"b=c", "1.1")


@given(data=st.binary(max_size=300))
@example(data=b"GET / HTTP/1.1\r\nHost: x")
@example(data=b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 1")
def test_any_bytes_are_a_head_or_refused_with_a_status_of_the_client(data: bytes) -> None:
    try:
        parsed = parse_head(data + b"\r\n\r\n")
    except RefusedRequestError as error:
        refused: int | None = error.status
    else:
        refused = None
        assert not parsed.is_chunked or parsed.content_length is None
    assert refused is None or 400 <= refused < 500 or refused in {501, 505}


@given(at=st.integers(0, 60), byte=st.integers(0, 255))
def test_a_head_with_any_byte_changed_is_never_another_request_with_a_body(at: int, byte: int) -> None:
    data = bytearray(head(b"X-Length: 5", b"X-Encoding: chunked"))
    data[at % len(data)] = byte
    try:
        parsed = parse_head(bytes(data))
    except RefusedRequestError:
        return
    assert (parsed.content_length, parsed.is_chunked) == (None, False)


@given(data=st.binary(max_size=60), sizes=PIECES)
@example(data=b"GET / HTTP/1.1\r\nX: \r", sizes=[1] * 20)
@example(data=b"GET / HTTP/1.1\r\n\n", sizes=[16])
def test_what_is_refused_in_part_is_refused_as_a_whole(data: bytes, sizes: list[int]) -> None:
    arrived = b""
    for piece in cut(data, sizes):
        scanned, arrived = len(arrived), arrived + piece
        if b"\r\n\r\n" in arrived:
            return
        try:
            check_partial_head(arrived, scanned=scanned)
        except RefusedRequestError:
            with pytest.raises(RefusedRequestError):
                parse_head(arrived + b"\r\n\r\n")
            return


@given(
    content=st.binary(max_size=200),
    sizes=PIECES,
    steps=st.lists(st.integers(1, 50), max_size=8),
    behind=st.binary(max_size=9),
)
def test_a_body_is_what_was_sent_however_it_is_framed_and_arrives(
    content: bytes, sizes: list[int], steps: list[int], behind: bytes
) -> None:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in cut(content, steps)) + b"0\r\n\r\n"
    for text, sent in ((b"Content-Length: %d" % len(content), content), (b"Transfer-Encoding: chunked", chunks)):
        delivered, body = body_of(text, cut(sent, sizes))
        assert (delivered, body.is_complete, body.has_more) == (content, True, False)
        delivered, body = body_of(text, cut(sent + behind, sizes))
        assert (delivered, body.is_complete) == (content, True), "what stands behind is no part of it"
        if behind.strip(b"\r\n"):
            assert body.has_more
        shorter, body = body_of(text, cut(sent[:-1], sizes)) if sent else (b"", body)
        assert content.startswith(shorter)
        assert not (sent and body.is_complete)


def test_an_upgrade_that_is_offered_takes_nothing_of_the_body_away() -> None:
    offer = (b"Connection: Upgrade", b"Upgrade: h2c")
    assert body_of(b"Content-Length: 3", [b"abc"], *offer)[0] == b"abc"
    assert body_of(b"Transfer-Encoding: chunked", [b"3\r\nabc\r\n0\r\n\r\n"], *offer)[0] == b"abc"


def test_chunks_of_one_byte_are_content() -> None:
    content = b"x" * 100_000
    delivered, body = body_of(b"Transfer-Encoding: chunked", [b"1\r\nx\r\n" * len(content) + b"0\r\n\r\n"])
    assert (delivered, body.is_complete) == (content, True)


def test_trailers_without_an_end_are_refused() -> None:
    with pytest.raises(RefusedRequestError):
        body_of(b"Transfer-Encoding: chunked", [b"0\r\n", *[b"X: " + b"y" * 1_000 + b"\r\n"] * 100])
