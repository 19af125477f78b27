# SPDX-License-Identifier: Apache-2.0
"""
The tables that raw requests are made from: request lines, headers, ways to frame a body, credentials, other protocols.

A probe that is to be refused asks for a namespace of its own all the same, with a key that may create it: if it were
carried out, it would be seen. So would be what is hidden behind it (`SMUGGLED`).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Final

from testkit.gateway.sales import NAMESPACES

HOST: Final = b"gateway.example"
SMUGGLED: Final = "smuggled"
CREATED: Final = frozenset({200})
GIVEN_UP: Final[frozenset[int]] = frozenset()
"""No answer: the connection is closed."""

_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """
    One connection: what is sent, and the statuses that may come back (none: it is closed without an answer).

    `creates` is the namespace that must be there afterwards, `pieces` how it is sent.
    """

    name: str
    pieces: tuple[bytes, ...]
    statuses: frozenset[int]
    method: bytes = b"POST"
    creates: str | None = None
    hangs_up: bool = False
    closes: bool = False
    """Whether the answer must be the last on its connection."""

    @property
    def sent(self) -> bytes:
        """Everything that is sent."""
        return b"".join(self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMaker:
    """Makes requests with a key."""

    key: str

    @property
    def authorization(self) -> bytes:
        return f"Authorization: Bearer {self.key}\r\n".encode()

    def head(
        self, line: bytes | None = None, *, headers: bytes = b"", host: bytes | None = b"Host: " + HOST + b"\r\n"
    ) -> bytes:
        """A head with a key, and whatever else."""
        line = line or b"POST %s HTTP/1.1" % NAMESPACES.encode()
        return line + b"\r\n" + (host or b"") + self.authorization + headers + b"\r\n"

    def hidden(self) -> bytes:
        """A whole request that nobody may find: it would create a namespace."""
        body = json.dumps({"namespace": [SMUGGLED]}).encode()
        return self.head(headers=b"Content-Length: %d\r\n" % len(body)) + body


def body_for(name: str) -> bytes:
    """The body that creates the namespace `name`."""
    return json.dumps({"namespace": [name]}).encode()


def _chunked(body: bytes, *sizes: int) -> bytes:
    text, sent = b"", 0
    for size in (*sizes, len(body) - sum(sizes)):
        text += b"%x\r\n%b\r\n" % (size, body[sent : sent + size])
        sent += size
    return text + b"0\r\n\r\n"


# --- request lines: every method and every target

METHODS: Final[dict[bytes, int | None]] = {
    b"GET": None, b"HEAD": None, b"POST": None, b"PUT": None, b"DELETE": None, b"PATCH": None, b"OPTIONS": None,
    b"TRACE": None, b"PROPFIND": None, b"CONNECT": 405, b"BREW": 501, b"get": 501, b"G(T": 400, b"": 400,
    b"X" * 33: 400,
}  # fmt: skip
"""With the status of those that are refused whatever they are for."""
TARGETS: Final[dict[bytes, int | None]] = {
    b"/health": None,
    b"/metrics": None,
    b"/nothing": None,
    b"/": None,
    b"//health": None,
    b"/v1/config?warehouse=lake": None,
    b"/v1/iceberg/lake/namespaces/%6eowhere": None,
    b"/v1/iceberg/lake/namespaces/%00": None,
    b"/v1/iceberg/lake/namespaces/%ff%fe": None,
    b"/v1/iceberg%2flake/namespaces": None,
    b"/v1/iceberg/../../etc/passwd": None,
    b"/v1/policies/%2e%2e%2f": None,
    b"/log/" + b"a" * 8_000: None,
    b"/v1/iceberg/lake/namespaces?pageToken=%00&pageSize=-1": None,
    b"/?" + b"%" * 100: None,
    b"http://" + HOST + b"/health": None,
    b"HTTP://" + HOST + b"?x": None,
    b"http://elsewhere.example/health": 400,
    b"http://" + HOST + b"@elsewhere.example/health": 400,
    b"ftp://" + HOST + b"/health": 400,
    b"file:///etc/passwd": 400,
    b"health": 400,
    b"?x": 400,
    b"/health#top": 400,
    HOST + b":443": 400,
    b"/\xc3\xa9": 400,
    b"/a b": 400,
    b"/a\tb": 400,
    b"/" + b"a" * 40_000: 414,
}
WITHOUT_A_BODY: Final = frozenset({200, 204, 400, 401, 403, 404, 405, 406})


def request_lines(maker: RequestMaker) -> Iterator[Probe]:
    """Every method with every seventh target, and GET with all, without a body."""
    for number, (method, of_method) in enumerate(METHODS.items()):
        for place, (target, of_target) in enumerate(TARGETS.items()):
            if method != b"GET" and (place + number) % 7:
                continue
            refused = [status for status in (of_method, of_target) if status is not None]
            data = maker.head(b"%b %b HTTP/1.1" % (method, target))
            yield Probe(
                name=f"{method!r:.40} {target!r:.60}",
                pieces=(data,),
                statuses=frozenset(refused) or WITHOUT_A_BODY,
                method=b"HEAD" if method == b"HEAD" else b"GET",
                closes=bool(refused),
            )


def versions(maker: RequestMaker) -> Iterator[Probe]:
    """What stands where the version should."""
    line = b"GET /health"
    for text, statuses in {
        b" HTTP/1.0": {200}, b" HTTP/0.9": {505}, b" HTTP/1.2": {505}, b" HTTP/2.0": {505},
        b" HTTP/9.9": {505}, b" HTTP/11": {400}, b" HTTP/1.1.1": {400}, b" http/1.1": {400}, b" HTTP/1.": {400},
        b" HTTP/ 1.1": {400}, b" HTTPS/1.1": {400}, b"": {400}, b"  HTTP/1.1": {400}, b" HTTP/1.1 ": {400},
        b" HTTP/1.1 HTTP/1.1": {400}, b" ICE/1.0": {400}, b" RTSP/1.0": {400},
    }.items():  # fmt: skip
        yield Probe(
            name=f"version {text!r}", pieces=(maker.head(line + text),), statuses=frozenset(statuses), method=b"GET"
        )
    yield Probe(name="HTTP/0.9", pieces=(b"GET /health\r\n",), statuses=frozenset({400}), method=b"GET", closes=True)
    for target in (b"http://" + HOST + b":1/health", b"*"):
        pieces = (maker.head(b"GET %b HTTP/1.1" % target),)
        yield Probe(name=f"form {target!r}", pieces=pieces, statuses=frozenset({400}), method=b"GET")
    asterisk = (maker.head(b"OPTIONS * HTTP/1.1"),)
    yield Probe(name="OPTIONS *", pieces=asterisk, statuses=frozenset({404, 405}), method=b"GET")


# --- headers: each with one of three ways to send the same body

HEADERS: Final[dict[bytes, int | None]] = {
    b"X-Fine: yes\r\n": None,
    b"X-Empty:\r\n": None,
    b"X-Blanks: \t a \t \r\n": None,
    b"X-Latin: caf\xe9\r\n": None,
    b"x-" + b"n" * 200 + b": v\r\n": None,
    b"X-Long: " + b"v" * 30_000 + b"\r\n": None,
    b"".join(b"X-%d: v\r\n" % i for i in range(90)): None,
    b"X-Twice: a\r\nX-Twice: b\r\n": None,
    b"Connection: close\r\n": None,
    b"Connection: keep-alive, X-Fine\r\n": None,
    b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n": None,
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n": None,
    b"X-Forwarded-For: 127.0.0.1\r\n": None,
    b"X-Forwarded-For: \xff, ;;;,,,\r\nForwarded: for=;;\r\n": None,
    b"X-Forwarded-Proto: https\r\nX-Forwarded-Host: elsewhere.example\r\n": None,
    b"X-HTTP-Method-Override: DELETE\r\n": None,
    b"Content-Type: \xff/\xff\r\n": None,
    b"Accept-Encoding: " + b"gzip;q=0." * 500 + b"\r\n": None,
    b"Cookie: " + b"a=b; " * 1_000 + b"\r\n": None,
    b"TE: trailers\r\nTrailer: X-After\r\n": None,
    b"X-Fold: a\r\n b\r\n": 400,
    b"X-Fold: a\r\n\tb\r\n": 400,
    b" X-Before: a\r\n": 400,
    b"X-Blank : a\r\n": 400,
    b"X Blank: a\r\n": 400,
    b"X-NoColon\r\n": 400,
    b": no name\r\n": 400,
    b"X-Nul: a\0b\r\n": 400,
    b"X-\0Nul: a\r\n": 400,
    b"X-Bell: \x07\r\n": 400,
    b"X-Delete: \x7f\r\n": 400,
    b"X-Feed: a\nX-Other: b\r\n": 400,
    b"X-Return: a\rX-Other: b\r\n": 400,
    b"X-Twice-Returned: a\r\r\n": 400,
    b"X-(Comment): a\r\n": 400,
    b'X-"Quoted": a\r\n': 400,
    b"X-\xe9: a\r\n": 400,
    b"\x0bTransfer-Encoding: chunked\r\n": 400,
    b"Host: " + HOST + b"\r\n": 400,
    b"Host: elsewhere.example\r\n": 400,
    b"Content-Type: application/json\r\nContent-Type: text/plain\r\n": 400,
    b"Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n": 400,
    b"X-Huge: " + b"v" * 70_000 + b"\r\n": 431,
    b"X-" + b"n" * 70_000 + b": v\r\n": 431,
    b"".join(b"X-%d: v\r\n" % i for i in range(101)): 431,
    b"X: v\r\n" * 2_000: 431,
    b"Expect: 200-maybe\r\n": 417,
    b"Expect: 100-continue\r\nExpect: 100-continue\r\n": 400,
    b"Content-Encoding: br\r\n": 415,
    b"Content-Encoding: gzip, gzip\r\n": 415,
}


def headers(maker: RequestMaker) -> Iterator[Probe]:
    """Every header, in turn with a body of declared length, in chunks, and compressed."""
    for number, (text, refused) in enumerate(HEADERS.items()):
        framing = ("length", "chunks", "gzip")[number % (2 if b"Content-Encoding" in text else 3)]
        name = f"h{next(_numbers)}"
        body = body_for(name)
        if framing == "gzip":
            body = gzip.compress(body, mtime=0)
        sent = _chunked(body, 3) if framing == "chunks" else body
        declared = b"Transfer-Encoding: chunked\r\n" if framing == "chunks" else b"Content-Length: %d\r\n" % len(body)
        if framing == "gzip":
            declared += b"Content-Encoding: gzip\r\n"
        yield Probe(
            name=f"{text!r:.60} with a body by {framing}",
            pieces=(maker.head(headers=text + declared) + sent,),
            statuses=CREATED if refused is None else frozenset({refused}),
            creates=name if refused is None else None,
            closes=refused not in {None, 415},
        )


# --- framings: where does the body end?

_FIVE: Final = b"12345"
BAD_FRAMINGS: Final[dict[bytes, bytes]] = {
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n": b"0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n": b"0\r\n\r\n",
    b"Content-Length: 5\r\nTransfer-Encoding:\x0bchunked\r\n": _FIVE,
    b"Content-Length: 5\r\nTransfer-Encoding : chunked\r\n": _FIVE,
    b"Content-Length: 5\r\ntransfer-encoding: identity\r\n": _FIVE,
    b"Content-Length: 5\r\nContent-Length: 6\r\n": _FIVE,
    b"Content-Length: 5\r\nContent-Length: 5\r\n": _FIVE,
    b"Content-Length: 5, 6\r\n": _FIVE,
    b"Content-Length: 5, 5\r\n": _FIVE,
    b"Content-Length: +5\r\n": _FIVE,
    b"Content-Length: -5\r\n": _FIVE,
    b"Content-Length: 0x5\r\n": _FIVE,
    b"Content-Length: 5_0\r\n": _FIVE,
    b"Content-Length: 5 0\r\n": _FIVE,
    b"Content-Length: \xb2\r\n": _FIVE,
    b"Content-Length: five\r\n": _FIVE,
    b"Content-Length:\r\n": _FIVE,
    b"Content-Length: 5.0\r\n": _FIVE,
    b"Content-Length: 99999999999999999999\r\n": _FIVE,
    b"Content-Length: 5\r\n 6\r\n": _FIVE,
    b"Content-Length\r\n : 5\r\n": _FIVE,
    b"Transfer-Encoding: xchunked\r\n": b"0\r\n\r\n",
    b"Transfer-Encoding: identity\r\n": _FIVE,
    b"Transfer-Encoding: gzip\r\n": _FIVE,
    b"Transfer-Encoding: gzip, chunked\r\n": b"0\r\n\r\n",
    b"Transfer-Encoding: chunked, gzip\r\n": b"0\r\n\r\n",
    b"Transfer-Encoding: chunked, chunked\r\n": b"0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n": b"0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n": b"0\r\n\r\n",
    b"Transfer-Encoding: \"chunked\"\r\n": b"0\r\n\r\n",
    b"Transfer-Encoding: chunked;q=1\r\n": b"0\r\n\r\n",
    b"Transfer-Encoding: chun\r\n ked\r\n": b"0\r\n\r\n",
    b"Transfer-Encoding:\r\n": b"0\r\n\r\n",
    b"Transfer-Encoding: \x00chunked\r\n": b"0\r\n\r\n",
    b"Transfer-Encoding\x00: chunked\r\n": b"0\r\n\r\n",
    b"X: y\nTransfer-Encoding: chunked\r\n": b"0\r\n\r\n",
    b"X: y\rTransfer-Encoding: chunked\r\n": b"0\r\n\r\n",
}  # fmt: skip
"""Each with a body as one of its readings has it; behind that stands a request that must not be found."""
BAD_CHUNKS: Final = (
    b"5\r\n12345\r\n0\r\nContent-Length: 5\r\n\r\n",
    b"g\r\n", b"0x5\r\n12345\r\n0\r\n\r\n", b"+5\r\n12345\r\n0\r\n\r\n", b"-5\r\n12345\r\n0\r\n\r\n",
    b" 5\r\n12345\r\n0\r\n\r\n", b"5 \r\n12345\r\n0\r\n\r\n", b"5\n12345\n0\n\n", b"5\r12345\r0\r\r",
    b"5\r\n12345\n0\r\n\r\n", b"5\r\n12345X\r\n0\r\n\r\n", b"4\r\n12345\r\n0\r\n\r\n", b"6\r\n12345\r\n0\r\n\r\n",
    b"ffffffffffffffffff\r\n12345\r\n", b"10000000000000005\r\n12345\r\n0\r\n\r\n", b"\r\n5\r\n12345\r\n0\r\n\r\n",
    b"5;\n12345\r\n0\r\n\r\n", b"5\0\r\n12345\r\n0\r\n\r\n", b"5\xff\r\n12345\r\n0\r\n\r\n", b"\r\n\r\n",
    b"5_0\r\n12345\r\n0\r\n\r\n", b"5\r\n12345\r\n0\r\nX Y: z\r\n\r\n", b"5\r\n12345\r\n0\r\nX: y\nZ: w\r\n\r\n",
    b"5\r\n12345\r\n0 \r\n\r\n", b"5;a=\x00\r\n12345\r\n0\r\n\r\n",
)  # fmt: skip


def framings(maker: RequestMaker) -> Iterator[Probe]:
    """Bodies whose length is missing, given twice, or wrong, alone and with a request hidden behind them."""
    refused = frozenset({400, 501})
    for text, body in BAD_FRAMINGS.items():
        for hidden in (b"", maker.hidden()):
            pieces = (maker.head(headers=text) + body + hidden,)
            name = f"{text!r:.70}{' with a hidden request' * bool(hidden)}"
            yield Probe(name=name, pieces=pieces, statuses=refused, closes=True)
    for chunks in BAD_CHUNKS:
        for hidden in (b"", maker.hidden()):
            sent = (maker.head(headers=b"Transfer-Encoding: chunked\r\n"), chunks + hidden)
            name = f"chunks {chunks!r:.50}{' with a hidden request' * bool(hidden)}"
            yield Probe(name=name, pieces=sent, statuses=frozenset({400}), closes=True)
    little = (
        maker.head(headers=b"Transfer-Encoding: chunked\r\n"),
        *(b"1;" + b"x" * 8_000 + b"\r\n \r\n" for _ in range(40)),
    )
    yield Probe(name="chunks of little else than extensions", pieces=little, statuses=frozenset({400}), closes=True)
    old = maker.head(b"POST %s HTTP/1.0" % NAMESPACES.encode(), headers=b"Transfer-Encoding: chunked\r\n")
    yield Probe(name="chunks in HTTP/1.0", pieces=(old + b"0\r\n\r\n",), statuses=frozenset({400}), closes=True)


def bodies(maker: RequestMaker) -> Iterator[Probe]:
    """Bodies that are as they should be, sent in every way there is: they are carried out, each once."""
    for size in (1, 2, 7, 1_000):
        for framing in ("length", "chunks"):
            name = f"b{next(_numbers)}"
            body = body_for(name)
            if framing == "length":
                whole = maker.head(headers=b"Content-Length: %d\r\n" % len(body)) + body
            else:
                sizes = [1] * min(size, 5)
                whole = maker.head(headers=b"Transfer-Encoding: chunked\r\n") + _chunked(body, *sizes)
            cut = tuple(whole[i : i + size] for i in range(0, len(whole), size))
            yield Probe(name=f"{framing} in pieces of {size}", pieces=cut, statuses=CREATED, creates=name)
    for first, last in (
        (b"%x;a=b;c\r\n", b"0\r\n\r\n"),
        (b"0%X\r\n", b"0\r\n\r\n"),
        (b"%x\r\n", b"0\r\nX-After: v\r\n\r\n"),
        (b"%x\r\n", b"000;x\r\n\r\n"),
    ):
        name = f"b{next(_numbers)}"
        body = body_for(name)
        head = maker.head(headers=b"transfer-encoding: CHUNKED\r\n")
        sent = (head, first % len(body) + body + b"\r\n" + last)
        yield Probe(name=f"chunks {first!r} {last!r}", pieces=sent, statuses=CREATED, creates=name)
    for before, line in ((b"\r\n", b"POST %s HTTP/1.1"), (b"", b"POST http://" + HOST + b"%s HTTP/1.1")):
        name = f"b{next(_numbers)}"
        body = body_for(name)
        head = maker.head(line % NAMESPACES.encode(), headers=b"Content-Length: %d\r\n" % len(body))
        yield Probe(name=f"{before + line!r}", pieces=(before + head + body,), statuses=CREATED, creates=name)
    name = f"b{next(_numbers)}"
    body = body_for(name)
    head = maker.head(headers=b"Expect: 100-continue\r\nContent-Length: %d\r\n" % len(body))
    yield Probe(name="Expect", pieces=(head, body), statuses=CREATED, creates=name)


def behind(maker: RequestMaker) -> Iterator[Probe]:
    """What stands behind a whole request before it is answered: the first is carried out, and nothing else."""
    for what, more in {
        "a request": maker.hidden(),
        "two": maker.hidden() * 2,
        "a broken one": b"POST " + NAMESPACES.encode() + b" HTTP/1.1\r\n",
        "junk": b"\x00\xff" * 40,
        "a connect": b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        "an upgrade": b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        "much": b"x" * 300_000,
    }.items():
        for framing in ("length", "chunks"):
            name = f"p{next(_numbers)}"
            body = body_for(name)
            sent = _chunked(body, 2) if framing == "chunks" else body
            declared = (
                b"Transfer-Encoding: chunked\r\n" if framing == "chunks" else b"Content-Length: %d\r\n" % len(body)
            )
            whole = maker.head(headers=declared) + sent
            for pieces in ((whole + more,), (whole[:-1], whole[-1:] + more)):
                own = f"p{next(_numbers)}"
                swapped = tuple(piece.replace(name.encode(), own.encode()) for piece in pieces)
                if len(own) != len(name):
                    continue
                yield Probe(
                    name=f"{what} behind a body by {framing}, in {len(pieces)}",
                    pieces=swapped,
                    statuses=CREATED,
                    creates=own,
                    closes=True,
                )
    for more in (maker.hidden(), b"junk"):
        data = maker.head(b"GET /health HTTP/1.1") + more
        yield Probe(name="behind a GET", pieces=(data,), statuses=CREATED, method=b"GET", closes=True)


# --- credentials


def credentials(maker: RequestMaker) -> Iterator[Probe]:
    """More than one credential, or none that is one: nothing is carried out, also where one of them is right."""
    right, wrong = maker.authorization, b"Authorization: Bearer nobody\r\n"
    key = f"X-Api-Key: {maker.key}\r\n".encode()
    for text, statuses in (
        (right + right, {400}), (right + wrong, {400}), (wrong + right, {400}), (right + key, {400}),
        (key + wrong, {400}), (key + key, {400}), (b"X-Api-Key:\r\n" + right, {400}),
        (right + b"Authorization:\r\n", {400}),
        (right.upper()[:13] + right[13:] + right, {400}), (b"authorization : x\r\n" + right, {400}),
        (right[:-2] + b", Bearer nobody\r\n", {401}), (right[:-2] + b"\r\n nobody\r\n", {400}), (wrong, {401}),
        (b"X-Api-Key: nobody\r\n", {401}), (b"", {401}), (b"Authorization:\r\n", {401}),
        (b"Authorization: Bearer \xff\xfe\r\n", {401}), (b"Authorization: Bearer " + b"a" * 30_000 + b"\r\n", {401}),
        (b"Proxy-Authorization" + right[13:], {401}), (b"Cookie: Authorization=" + right[15:], {401}),
    ):  # fmt: skip
        body = body_for(f"c{next(_numbers)}")
        line = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % (NAMESPACES.encode(), len(body))
        yield Probe(
            name=f"credentials {text!r:.60}",
            pieces=(line + text + b"\r\n" + body,),
            statuses=frozenset(statuses),
            closes=statuses == {400},
        )
    for path in (b"/health", b"/metrics", b"/v1/config"):
        data = b"GET %b HTTP/1.1\r\nHost: x\r\n%b%b\r\n" % (path, right, key)
        yield Probe(name=f"{path!r} twice", pieces=(data,), statuses=frozenset({400}), method=b"GET", closes=True)


# --- what is cut off, and what is no HTTP


def cut_off(maker: RequestMaker) -> Iterator[Probe]:
    """A request that ends early, at every seventh of its bytes: nothing of it is carried out."""
    body = body_for(f"x{next(_numbers)}")
    for declared, sent in (
        (b"Content-Length: %d\r\n" % len(body), body),
        (b"Transfer-Encoding: chunked\r\n", _chunked(body, 3)),
    ):
        whole = maker.head(headers=declared) + sent
        begin = 1 if declared.startswith(b"Content") else whole.index(declared) + 1  # until there they are the same
        for end in range(begin, len(whole), 7):
            yield Probe(
                name=f"{declared[:8]!r} cut off at {end}", pieces=(whole[:end],), statuses=GIVEN_UP, hangs_up=True
            )


def no_http(maker: RequestMaker) -> Iterator[Probe]:
    """Other protocols, and noise."""
    random = Random(20_261_123)  # noqa: S311 - noise
    for name, data in {
        "TLS": bytes.fromhex("16030102000100" + "01fc0303" + "ab" * 60),
        "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "SMTP": b"EHLO x\r\nMAIL FROM:<a>\r\n",
        "Redis": b"*1\r\n$4\r\nPING\r\n",
        "PostgreSQL": bytes.fromhex("0000000804d2162f"),
        "PROXY": b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n",
        "PROXY v2": bytes.fromhex("0d0a0d0a000d0a515549540a") + b"!\x11\0\x0c" + bytes(12),
        "line feeds": b"GET /health HTTP/1.1\nHost: x\n\n",
        "returns": b"GET /health HTTP/1.1\rHost: x\r\r",
        "empty lines": b"\r\n\r\n\r\n\r\n",
        "one long line": b"A" * 100_000,
        "a blank first": b" GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
        "an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "a byte order mark": b"\xef\xbb\xbfGET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    }.items():
        statuses = frozenset({400, 405, 414, 431, 501, 505})
        yield Probe(name=name, pieces=(data,), statuses=statuses, method=b"GET", closes=True)
    for i in range(20):
        noise = random.randbytes(300).replace(b"\n", b"\0") + b"\r\n\r\n"
        yield Probe(name=f"noise {i}", pieces=(noise,), statuses=frozenset({400}), method=b"GET", closes=True)


TABLES: Final = {
    "request lines": request_lines,
    "versions": versions,
    "headers": headers,
    "framings": framings,
    "bodies": bodies,
    "behind": behind,
    "credentials": credentials,
    "cut off": cut_off,
    "no HTTP": no_http,
}
