# SPDX-License-Identifier: Apache-2.0
"""Writes DER value by value, right or wrong: what the classes of `ledger/anchoring/cms.py` would not let pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat import asn1
from cryptography.x509 import ObjectIdentifier

INTEGER: Final = 0x02
OCTET_STRING: Final = 0x04
NULL: Final = 0x05
GENERALIZED_TIME: Final = 0x18
SEQUENCE: Final = 0x30
SET: Final = 0x31
PLAIN_0: Final = 0x80
PLAIN_1: Final = 0x81
TAGGED_0: Final = 0xA0
TAGGED_1: Final = 0xA1


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value: its tag byte and its contents."""

    tag: int
    content: bytes

    @property
    def encoded(self) -> bytes:
        """The value with its tag and length."""
        size = len(self.content)
        if size < 0x80:
            return bytes([self.tag, size]) + self.content
        length = size.to_bytes((size.bit_length() + 7) // 8, "big")
        return bytes([self.tag, 0x80 | len(length)]) + length + self.content


def parse_der(data: bytes) -> Value:
    """Return the one value that `data` is."""
    value = asn1.decode_der(asn1.TLV, data)
    return Value(tag=value.tag_bytes[0], content=bytes(value.data))


def der(tag: int, members: Iterable[Value]) -> Value:
    """Return the value of `tag` that holds `members` in this order."""
    return Value(tag=tag, content=b"".join(member.encoded for member in members))


def der_integer(number: int) -> Value:
    """Return a whole number."""
    return parse_der(asn1.encode_der(number))


def der_oid(identifier: ObjectIdentifier | str) -> Value:
    """Return an object identifier, given as in `1.2.840.113549` if as text."""
    return parse_der(asn1.encode_der(ObjectIdentifier(identifier) if isinstance(identifier, str) else identifier))
