# SPDX-License-Identifier: Apache-2.0
"""
Parses the head of a request: bytes in, a `Head` out, or the reason for its refusal (RFC 9112).

llhttp parses. Before that, the raw bytes are searched for anything that servers and proxies read differently: a single
line feed or carriage return, folded lines, white space before a colon, control characters. After that, repeated and
contradictory headers are refused: request smuggling depends on them (RFC 9112, section 11.2).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from httptools import HttpParserError, HttpParserInvalidMethodError, HttpParserUpgrade, HttpRequestParser

from ledger.values import value_class

HEAD_SIZE_BYTES_MAX: Final = 64 * 1024
TARGET_SIZE_BYTES_MAX: Final = 32 * 1024
HEADERS_MAX: Final = 100
END_OF_HEAD: Final = b"\r\n\r\n"
ONCE: Final = frozenset(
    {
        b"authorization",
        b"client-cert",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"expect",
        b"host",
        b"transfer-encoding",
        b"x-api-key",
    }
)
"""Headers that determine the caller, the target, or the end of the request: at most one of each."""

_BROKEN_LINE = re.compile(rb"(?<!\r)\n|\r[^\n]|[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BROKEN_FIELD = re.compile(rb"\n(?![!#$%&'*+.^_`|~0-9A-Za-z-]+:|\r|\Z)")
_REQUEST_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32} ([!-~]+) HTTP/([0-9]\.[0-9])")
_WELL_FORMED = re.compile(
    rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32} [!-~]+ HTTP/1\.[01]\r\n"
    rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*\r\n"
)
"""What passes all checks of bytes and lines below at once; what does not is told by them what is wrong."""
_ORIGIN_FORM = re.compile(rb"/[^#]*")
_ABSOLUTE_FORM = re.compile(rb"https?://([^/?#@\\]+)(/[^#]*|\?[^#]*|)", re.IGNORECASE)
_HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]*")


class RefusedRequestError(Exception):
    """The request is refused; `status` is that of the answer, after which the connection is closed."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@value_class
class Head:
    """
    A request without its body. Names of headers are in lower case, `path` is as it was sent (percent-encoded).

    `content_length` is None if it is not declared. There is a body if it is above zero, or `is_chunked`.
    """

    method: str
    path: bytes
    query: bytes
    version: str
    headers: list[tuple[bytes, bytes]]
    content_length: int | None
    is_chunked: bool
    expects_continue: bool
    keeps_alive: bool
    has_client_cert: bool
    """Whether it has a `Client-Cert` (RFC 9440)."""


def check_partial_head(data: bytes | bytearray, *, scanned: int) -> None:
    """
    Check the first part of a head; the first `scanned` bytes were checked before.

    Raises:
        RefusedRequestError: if no further bytes can complete it.
    """
    if _BROKEN_LINE.search(data, max(scanned - 1, 0)):
        raise RefusedRequestError(400, "expected lines that end in CR LF, and no control characters in them")
    end = data.find(b"\r\n")
    if end < 0:
        if len(data) > TARGET_SIZE_BYTES_MAX:
            raise RefusedRequestError(414, f"expected a target of at most {TARGET_SIZE_BYTES_MAX} bytes")
    elif scanned <= end + 1:
        _check_request_line(data[:end])
    if len(data) > HEAD_SIZE_BYTES_MAX:
        raise RefusedRequestError(431, f"expected a head of at most {HEAD_SIZE_BYTES_MAX} bytes")


def parse_head(data: bytes) -> Head:
    """
    Parse `data`, from the first byte of a head to the end of its empty line.

    Raises:
        RefusedRequestError: if it is not a valid head.
    """
    if len(data) > HEAD_SIZE_BYTES_MAX:
        raise RefusedRequestError(431, f"expected a head of at most {HEAD_SIZE_BYTES_MAX} bytes")
    if len(data) > TARGET_SIZE_BYTES_MAX or not _WELL_FORMED.fullmatch(data):
        _check_lines(data)
    parsed = _parse(data)
    method, version = parsed.method.decode(), parsed.version
    fields = _check_fields(parsed.headers, version=version)
    host = fields.get(b"host", b"")
    path, query = _split_target(parsed.target, method=method, host=host)
    return Head(
        method=method,
        path=path,
        query=query,
        version=version,
        headers=parsed.headers,
        content_length=int(fields[b"content-length"]) if b"content-length" in fields else None,
        is_chunked=b"transfer-encoding" in fields,
        expects_continue=b"expect" in fields and version == "1.1",
        keeps_alive=parsed.keeps_alive and version == "1.1",
        has_client_cert=b"client-cert" in fields,
    )


def _check_lines(data: bytes) -> None:
    if _BROKEN_LINE.search(data):
        raise RefusedRequestError(400, "expected lines that end in CR LF, and no control characters in them")
    _check_request_line(data[: data.find(b"\r\n")])
    if _BROKEN_FIELD.search(data):
        raise RefusedRequestError(400, "expected each line of the head to be a name, a colon and a value")


def _check_request_line(line: bytes | bytearray) -> None:
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise RefusedRequestError(400, "expected a request line of HTTP/1.1: a method, a target and the version")
    if len(found[1]) > TARGET_SIZE_BYTES_MAX:
        raise RefusedRequestError(414, f"expected a target of at most {TARGET_SIZE_BYTES_MAX} bytes")
    if found[2] not in {b"1.1", b"1.0"}:
        raise RefusedRequestError(505, f"expected HTTP/1.1 or HTTP/1.0, found HTTP/{found[2].decode()}")


class _Parsed:
    """Collects llhttp's callbacks for a head."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.method = b""
        self.version = ""
        self.keeps_alive = True

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.strip(b" \t")))


def _parse(data: bytes) -> _Parsed:
    parsed = _Parsed()
    parser = HttpRequestParser(parsed)
    try:
        parser.feed_data(data)
    except HttpParserUpgrade:
        pass  # an offer to change to another protocol may be ignored (RFC 9110, section 7.8)
    except HttpParserInvalidMethodError as error:
        raise RefusedRequestError(501, "expected a method of HTTP/1.1") from error
    except HttpParserError as error:
        raise RefusedRequestError(400, f"expected a request of HTTP/1.1: {error}") from error
    parsed.method, parsed.version = parser.get_method(), parser.get_http_version()
    for name, value in parsed.headers:
        if name == b"connection" and b"close" in {option.strip().lower() for option in value.split(b",")}:
            parsed.keeps_alive = False
    return parsed


def _check_fields(headers: list[tuple[bytes, bytes]], *, version: str) -> dict[bytes, bytes]:
    """Return the headers of `ONCE`."""
    if len(headers) > HEADERS_MAX:
        raise RefusedRequestError(431, f"expected at most {HEADERS_MAX} headers, found {len(headers)}")
    once = [field for field in headers if field[0] in ONCE]
    fields = dict(once)
    if len(fields) < len(once):
        counts = Counter(name for name, _ in once)
        repeated = min(name for name, count in counts.items() if count > 1)
        raise RefusedRequestError(400, f"expected the header {repeated.decode()} once, found it repeated")
    if b"authorization" in fields and b"x-api-key" in fields:
        raise RefusedRequestError(400, "expected one credential, found both Authorization and X-Api-Key")
    if b"host" not in fields and version == "1.1":
        raise RefusedRequestError(400, "expected a Host header, found none")
    if not _HOST.fullmatch(fields.get(b"host", b"")):
        raise RefusedRequestError(400, "expected a host, perhaps with a port, in the Host header")
    if b"transfer-encoding" in fields:
        if b"content-length" in fields or version != "1.1":
            raise RefusedRequestError(
                400, "expected Content-Length or Transfer-Encoding, and the latter in HTTP/1.1 only"
            )
        if fields[b"transfer-encoding"].lower() != b"chunked":
            raise RefusedRequestError(501, "expected the transfer coding chunked and no other")
    if fields.get(b"expect", b"100-continue").lower() != b"100-continue":
        raise RefusedRequestError(417, "expected nothing but 100-continue in the Expect header")
    return fields


def _split_target(target: bytes, *, method: str, host: bytes) -> tuple[bytes, bytes]:
    """Return path and query of any form of a target (RFC 9112, section 3.2)."""
    if method == "CONNECT":
        raise RefusedRequestError(405, "expected a method other than CONNECT: this is no proxy")
    if absolute := _ABSOLUTE_FORM.fullmatch(target):
        if absolute[1].lower() != host.lower():
            raise RefusedRequestError(400, "expected the target and the Host header to name the same host")
        target = absolute[2] if absolute[2].startswith(b"/") else b"/" + absolute[2]
    elif not _ORIGIN_FORM.fullmatch(target) and not (target == b"*" and method == "OPTIONS"):
        raise RefusedRequestError(400, "expected a target that begins with a slash and has no fragment")
    path, _, query = target.partition(b"?")
    return path, query
