# SPDX-License-Identifier: Apache-2.0
"""
Texts that a client is given and brings back, which nobody else can read or make: tokens and cursors.

Such a text is the base64url, without padding, of JSON, encrypted with AES-SIV (RFC 5297) under
`HMAC-SHA512(the tenant's key for request hashes, label)`. That key is in the database: every process reads a text, also
after a restart. `context` is the associated data: a text is good for what it was made for and nothing else. It is
encrypted because the index of an entry tells how much else was appended meanwhile, which its reader may not know.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Any, Final

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from gateway.errors import BadRequestError

IV_SIZE_BYTES: Final = 16
"""Of the synthetic initialisation vector, by which AES-SIV authenticates."""


def seal_text(key: bytes, content: object, *, label: bytes, context: str) -> str:
    """
    Return the text that holds `content`; `key` is the tenant's.

    A label has no NUL, so that its HMAC under the tenant's key is that of no request
    (`gateway/commit/request_hash.py`).
    """
    return _base64url(_cipher(key, label).encrypt(orjson.dumps(content), [context.encode()]))


def open_text(key: bytes, text: str, *, label: bytes, context: str, refusal: BadRequestError) -> Any:
    """
    Return the content that `seal_text` has made `text` of.

    Raises:
        BadRequestError: (`refusal`) if it has not, for this tenant, label and context.
    """
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        if len(data) <= IV_SIZE_BYTES or _base64url(data) != text:  # of base64, one spelling
            raise refusal
        content = _cipher(key, label).decrypt(data, [context.encode()])
    except (binascii.Error, ValueError, InvalidTag) as error:
        raise refusal from error
    return orjson.loads(content)


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _cipher(key: bytes, label: bytes) -> AESSIV:
    return AESSIV(hmac.digest(key, label, hashlib.sha512))
