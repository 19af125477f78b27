# SPDX-License-Identifier: Apache-2.0
"""
Answers of HTTP/1.1 as bytes, framed in each of the ways that there are (RFC 9112, section 6).
"""

from __future__ import annotations

from typing import Final

END_OF_HEAD: Final = b"\r\n\r\n"


def said(body: bytes, *fields: str, status: str = "200 OK") -> bytes:
    """Return an answer with a length."""
    lines = [f"HTTP/1.1 {status}", *fields, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + END_OF_HEAD + body


def chunked(*pieces: bytes, trailer: bytes = b"") -> bytes:
    """Return an answer in chunks."""
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked" + END_OF_HEAD + chunks + b"0\r\n" + trailer + b"\r\n"


def until_closed(body: bytes) -> bytes:
    """Return an answer that ends with its connection."""
    return b"HTTP/1.1 200 OK\r\nConnection: close" + END_OF_HEAD + body
