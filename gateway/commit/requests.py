# SPDX-License-Identifier: Apache-2.0
"""
A mutation as it arrives over HTTP, and the bounded reading of its body. Independent of any web framework.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final
from uuid import UUID

from gateway.catalogs.onward import Onward
from gateway.errors import BadRequestError, TooLargeError
from gateway.identifiers import Named, Target, parse_target
from gateway.identity import Credentials
from gateway.mutations import Operation
from ledger.values import value_class

CONTENT_LENGTH_DIGITS_MAX: Final = 18
COMMIT_BODY_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024
NAMESPACE_BODY_SIZE_BYTES_MAX: Final = 512 * 1024
"""The record keeps a namespace's properties completely: its row is replayed from there."""
PURGE_QUERY: Final = "?purgeRequested=true"
_WITH_METADATA: Final = frozenset(
    {Operation.TABLE_CREATE, Operation.TABLE_COMMIT, Operation.VIEW_CREATE, Operation.VIEW_REPLACE}
)


@value_class
class Request:
    """
    A request for one mutation. Segments are raw (percent-encoded) pieces of the path; `path` is the raw path itself.

    `credentials` are as the client sent them, `address` is the client's (empty: not known), `content_length` what it
    declared (None: nothing). With an `idempotency_key` it may be sent again.
    """

    operation: Operation
    method: str
    path: str
    credentials: Credentials
    client: str
    address: str
    alias_segment: str
    namespace_segment: str | None
    name_segment: str | None
    purge: bool
    idempotency_key: UUID | None
    content_length: int | None
    chunks: AsyncIterator[bytes]
    onward: Onward

    @property
    def body_size_bytes_max(self) -> int:
        """Return the cap on this operation's body."""
        if self.operation in _WITH_METADATA:
            return COMMIT_BODY_SIZE_BYTES_MAX
        return NAMESPACE_BODY_SIZE_BYTES_MAX

    @property
    def asks_for(self) -> str:
        """Return the path with what else says what is to be done: whether a table is dropped with its files."""
        purges = self.purge and self.operation is Operation.TABLE_DROP
        return f"{self.path}{PURGE_QUERY}" if purges else self.path

    def target(self) -> Target:
        """
        Return what the path names.

        Raises:
            BadRequestError: if a segment is not a name.
        """
        kind: Named = "view" if self.operation.is_of_view and self.name_segment is not None else "table"
        return parse_target(self.alias_segment, self.namespace_segment, self.name_segment, kind=kind)

    def table(self) -> Target | None:
        """Return the table or view that the path names; None if it names none, or is malformed (`target` says how)."""
        if self.name_segment is None:
            return None
        with suppress(BadRequestError):
            return self.target()
        return None


def parse_content_length(text: str | None) -> int | None:
    """
    Return the size that a client declares for its body; None if it declares none, or not a number.
    """
    if text is None or not text.isascii() or not text.isdigit() or len(text) > CONTENT_LENGTH_DIGITS_MAX:
        return None
    return int(text)


async def read_body(chunks: AsyncIterator[bytes], *, content_length: int | None, size_bytes_max: int) -> bytes:
    """
    Return the whole body.

    Raises:
        TooLargeError: as soon as it is known to be over the cap; the rest is not read.
        BadRequestError: if the client hung up, or sent less than it declared.
    """
    if content_length is not None and content_length > size_bytes_max:
        raise TooLargeError(f"expected a body of at most {size_bytes_max} bytes, found {content_length}")
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > size_bytes_max:
            raise TooLargeError(f"expected a body of at most {size_bytes_max} bytes, found more")
    if content_length is not None and len(body) != content_length:
        raise BadRequestError(f"expected {content_length} bytes as declared, found {len(body)}", field="body")
    return bytes(body)
