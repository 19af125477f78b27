# SPDX-License-Identifier: Apache-2.0
"""
Continuation tokens: the index of the log from which a reader goes on, and the filters that it reads by.

A token is the base64url, without padding, of the JSON list of index and filters, encrypted with AES-SIV (RFC 5297),
with the alias as associated data. The key is `HMAC-SHA512(the tenant's key for request hashes, LABEL)`, of which the
first is in the database: every process reads a token, also after a restart, and no client can make one. It is
encrypted because an index tells how much else was appended meanwhile, which its reader may not know.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from gateway.errors import BadRequestError
from gateway.http.events.query import EventFilters, parse_filters

LABEL: Final = b"lakeproof/events-token/v1"
"""Without a NUL, so that its HMAC under the tenant's key is that of no request (`gateway/commit/request_hash.py`)."""
IV_SIZE_BYTES: Final = 16
"""Of the synthetic initialisation vector, by which AES-SIV authenticates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a reader goes on, the index of an entry, and by which filters."""

    index: int
    filters: EventFilters


def format_token(key: bytes, position: Position, *, alias: str) -> str:
    """
    Return the token for `position` in the events of the catalog `alias`; `key` is its tenant's.
    """
    content = orjson.dumps([position.index, position.filters.members()])
    return _base64url(_cipher(key).encrypt(content, [alias.encode()]))


def parse_token(key: bytes, token: str, *, alias: str) -> Position:
    """
    Return the position that `format_token` has made the token of.

    Raises:
        BadRequestError: if it has not, for this tenant and catalog.
    """
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        if len(data) <= IV_SIZE_BYTES or _base64url(data) != token:  # of base64, one spelling
            raise _not_ours()
        content = _cipher(key).decrypt(data, [alias.encode()])
    except (binascii.Error, ValueError, InvalidTag) as error:
        raise _not_ours() from error
    index, filters = orjson.loads(content)
    return Position(index=index, filters=parse_filters(filters))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _cipher(key: bytes) -> AESSIV:
    return AESSIV(hmac.digest(key, LABEL, hashlib.sha512))


def _not_ours() -> BadRequestError:
    return BadRequestError(
        "expected a token of an earlier answer about this catalog, found another text: without a token, events are read"
        " from the beginning",
        field="continuation-token",
    )
