"""
DER, as far as time stamps need it: values that hold values (X.690, section 10), read strictly and written again.

Guarantee: `parse_der` accepts exactly the bytes that `Value.encoded` gives, so what was read is what was there. Lengths
are definite and minimal, tags fit one byte; whatever else BER allows is refused. The order in sets is the caller's
matter, since those who write CMS often do not sort them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ledger.errors import FormatError

BOOLEAN: Final = 0x01
INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
NULL: Final = 0x05
OBJECT_IDENTIFIER: Final = 0x06
GENERALIZED_TIME: Final = 0x18
SEQUENCE: Final = 0x30
SET: Final = 0x31
PLAIN_0: Final = 0x80
PLAIN_1: Final = 0x81
"""Implicitly tagged values that hold no others."""
TAGGED_0: Final = 0xA0
TAGGED_1: Final = 0xA1

_LONG_TAG: Final = 0x1F
_LENGTH_BYTES_MAX: Final = 4
_NUMBER_SIZE_BYTES_MAX: Final = 128
"""Serial numbers have at most 20 (RFC 5280, section 4.1.2.2); of thousands of digits Python writes none into a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value: its tag byte and its contents, which hold other values if the tag says so."""

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

    def members(self, tag: int, what: str) -> list[Value]:
        """
        Return the values that this one holds, if it has the tag `tag`.

        Raises:
            FormatError: if it has not, or holds anything else; `what` names it.
        """
        if self.tag != tag:
            raise FormatError(what, expected=f"tag {tag:#04x}", found=f"{self.tag:#04x}")
        return _values(self.content, what)

    def only(self, tag: int, what: str) -> Value:
        """
        Return the one value that this one holds.

        Raises:
            FormatError: if it has not the tag `tag`, or does not hold one value.
        """
        members = self.members(tag, what)
        if len(members) != 1:
            raise FormatError(what, expected="one value", found=f"{len(members)}")
        return members[0]

    def bytes_of(self, tag: int, what: str) -> bytes:
        """
        Return the contents, if the value has the tag `tag`.

        Raises:
            FormatError: if not.
        """
        if self.tag != tag:
            raise FormatError(what, expected=f"tag {tag:#04x}", found=f"{self.tag:#04x}")
        return self.content

    def number(self, what: str) -> int:
        """
        Return the whole number that the value is.

        Raises:
            FormatError: if it is none, not in its shortest form, or longer than any number in a time stamp.
        """
        content = self.bytes_of(INTEGER, what)
        if len(content) > _NUMBER_SIZE_BYTES_MAX:
            expected = f"a whole number of at most {_NUMBER_SIZE_BYTES_MAX} bytes"
            raise FormatError(what, expected=expected, found=f"{len(content)} bytes")
        value = int.from_bytes(content, "big", signed=True)
        if der_integer(value).content != content:
            raise FormatError(what, expected="a whole number in its shortest form", found=content)
        return value


def parse_der(data: bytes, what: str) -> Value:
    """
    Return the one value that `data` is; `what` names it in errors.

    Raises:
        FormatError: if `data` is not one value in DER.
    """
    values = _values(data, what)
    if len(values) != 1:
        raise FormatError(what, expected="one value in DER", found=f"{len(values)}")
    return values[0]


def der(tag: int, members: Iterable[Value]) -> Value:
    """Return the value of `tag` that holds `members` in this order."""
    return Value(tag=tag, content=b"".join(member.encoded for member in members))


def der_integer(number: int) -> Value:
    """Return a whole number, in two's complement and as short as can be."""
    return Value(
        tag=INTEGER, content=number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
    )


def der_oid(dotted: str) -> Value:
    """
    Return an object identifier, given as in `1.2.840.113549`.

    Raises:
        FormatError: if `dotted` is none.
    """
    arcs = dotted.split(".")
    if not (all(arc.isascii() and arc.isdigit() and len(arc) <= 39 for arc in arcs) and len(arcs) >= 2):
        raise FormatError("object identifier", expected="numbers with dots between them", found=dotted)
    first, second, *rest = (int(arc) for arc in arcs)
    if first > 2 or (first < 2 and second > 39) or ".".join(str(n) for n in (first, second, *rest)) != dotted:
        raise FormatError("object identifier", expected="numbers with dots between them", found=dotted)
    return Value(tag=OBJECT_IDENTIFIER, content=b"".join(_base_128(arc) for arc in (40 * first + second, *rest)))


def _base_128(number: int) -> bytes:
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(0x80 | number & 0x7F)
    return bytes(reversed(digits))


def _values(data: bytes, what: str) -> list[Value]:
    values: list[Value] = []
    at = 0
    while at < len(data):
        tag = data[at]
        size, start = _length(data, at + 1, what)
        if tag & _LONG_TAG == _LONG_TAG or start + size > len(data):
            raise FormatError(what, expected="a value in DER that ends where it says", found=data[at : at + 20])
        values.append(Value(tag=tag, content=data[start : start + size]))
        at = start + size
    return values


def _length(data: bytes, at: int, what: str) -> tuple[int, int]:
    """Return the length that stands at `at`, and where the contents begin."""
    first = data[at : at + 1]
    if first and first[0] < 0x80:
        return first[0], at + 1
    count = first[0] & 0x7F if first else 0
    digits = data[at + 1 : at + 1 + count]
    size = int.from_bytes(digits, "big")
    if not 1 <= count <= _LENGTH_BYTES_MAX or len(digits) != count or digits[0] == 0 or size < 0x80:
        raise FormatError(what, expected="a length in its shortest form", found=data[at : at + 5])
    return size, at + 1 + count
