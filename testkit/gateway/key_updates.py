# SPDX-License-Identifier: Apache-2.0
"""
Key updates of TLS 1.3 (RFC 8446, section 4.6.3), which Python's `ssl` cannot send: records made with the secret that it
logs, for a connection on which the client has sent nothing yet.
"""

from __future__ import annotations

import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

CIPHER = "TLS_AES_256_GCM_SHA384"
_HASH_SIZE_BYTES = 48
_KEY_UPDATE = b"\x18\x00\x00\x01\x01"
"""One that asks the peer to update its key, too."""
_HANDSHAKE, _APPLICATION_DATA = b"\x16", b"\x17"


def client_secret(log: Path) -> bytes:
    """Return the client's first traffic secret from a file of NSS's form (`SSLContext.keylog_filename`)."""
    lines = [line.split() for line in log.read_text().splitlines()]
    return bytes.fromhex(next(line[2] for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0"))


class Sender:
    """The client's side of a connection, from its first traffic secret on."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def key_update(self) -> bytes:
        """Return a record with a key update, behind which the next key counts."""
        record = self._record(_KEY_UPDATE + _HANDSHAKE)
        self._secret = _expand(self._secret, "traffic upd", _HASH_SIZE_BYTES)
        return record

    def content(self, data: bytes) -> bytes:
        """Return a record with content, the last that this sender can make."""
        return self._record(data + _APPLICATION_DATA)

    def _record(self, inner: bytes) -> bytes:
        key, nonce = _expand(self._secret, "key", 32), _expand(self._secret, "iv", 12)
        head = _APPLICATION_DATA + b"\x03\x03" + struct.pack(">H", len(inner) + 16)
        return head + AESGCM(key).encrypt(nonce, inner, head)


def _expand(secret: bytes, label: str, size_bytes: int) -> bytes:
    """HKDF-Expand-Label (RFC 8446, section 7.1) with an empty context."""
    name = b"tls13 " + label.encode()
    info = struct.pack(">HB", size_bytes, len(name)) + name + b"\x00"
    return HKDFExpand(algorithm=SHA384(), length=size_bytes, info=info).derive(secret)
