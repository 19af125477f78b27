"""
The envelope of a time stamp: CMS SignedData around a TSTInfo (RFC 5652, section 5.1; RFC 3161, section 2.4.2), in DER.

Guarantee: every byte of what `parse_token` returns was of the one shape that is allowed here, and is judged either by
`timestamp.py` or by the signature. SignedData leaves much of itself unsigned; what could be changed there without
anybody noticing (versions, algorithms, lists of revoked certificates, unsigned attributes) is fixed or refused.
Certificates are the exception: those that do not lead from the signer to a root are as unknown keys under a note.

DER is here as far as time stamps need it: values that hold values (X.690, section 10). Guarantee: `parse_der` accepts
exactly the bytes that `Value.encoded` gives, so what was read is what was there. Lengths are definite and minimal, tags
fit one byte; whatever else BER allows is refused. The order in sets is the caller's matter, since those who write CMS
often do not sort them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ledger.errors import FormatError, LimitExceededError

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

TOKEN_SIZE_BYTES_MAX: Final = 65_536
"""Room for a chain of certificates with large keys; a usual token has 2 to 7 KiB."""
_SIGNED_DATA_VERSION: Final = 3  # RFC 5652, 5.1: because the content is not id-data
_SIGNER_VERSION: Final = 1  # RFC 5652, 5.3: because the signer is named by issuer and serial number


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


SIGNED_DATA: Final = der_oid("1.2.840.113549.1.7.2")
TST_INFO: Final = der_oid("1.2.840.113549.1.9.16.1.4")
CONTENT_TYPE: Final = der_oid("1.2.840.113549.1.9.3")
MESSAGE_DIGEST: Final = der_oid("1.2.840.113549.1.9.4")
SIGNING_CERTIFICATE_V2: Final = der_oid("1.2.840.113549.1.9.16.2.47")

HASHES: Final = {
    der_oid("2.16.840.1.101.3.4.2.1"): "sha256",
    der_oid("2.16.840.1.101.3.4.2.2"): "sha384",
    der_oid("2.16.840.1.101.3.4.2.3"): "sha512",
}
_SIGNATURES: Final = {
    der_oid("1.2.840.113549.1.1.11"): "sha256",  # RSA, PKCS #1 1.5
    der_oid("1.2.840.113549.1.1.12"): "sha384",
    der_oid("1.2.840.113549.1.1.13"): "sha512",
    der_oid("1.2.840.10045.4.3.2"): "sha256",  # ECDSA
    der_oid("1.2.840.10045.4.3.3"): "sha384",
    der_oid("1.2.840.10045.4.3.4"): "sha512",
}
_RSA: Final = der_oid("1.2.840.113549.1.1.1")
"""Many name the key's kind as the signature's: then the digest algorithm says which hash was signed (RFC 3370, 3.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedToken:
    """
    A time-stamp token, taken apart: `content` is the TSTInfo, `issuer` (a DER Name) and `serial` name the signer.

    `digest` is the hash that was signed with, as hashlib names it; `attributes` maps what the signer signed besides,
    by its encoded identifier, to its one value. Nothing is verified.
    """

    content: bytes
    certificates: tuple[bytes, ...]
    issuer: bytes
    serial: int
    digest: str
    attributes: Mapping[bytes, Value]


def parse_token(token: bytes) -> SignedToken:
    """
    Return the parts of a time-stamp token.

    Raises:
        FormatError: if it is none, or holds something that is not allowed here.
        LimitExceededError: if it is over 64 KiB.
    """
    version, algorithms, encapsulated, certificates, signers = _signed_data(token)
    if version.number("version of SignedData") != _SIGNED_DATA_VERSION:
        raise FormatError("version of SignedData", expected=str(_SIGNED_DATA_VERSION), found=version.content)
    digest = parse_hash(algorithms.only(SET, "digest algorithms"))
    content_type, wrapped = _pair(encapsulated, "content of SignedData")
    if content_type != TST_INFO:
        raise FormatError("content of SignedData", expected="a TSTInfo", found=content_type.content)
    issuer, serial, attributes = _signer_info(signers.only(SET, "signers"), digest)
    return SignedToken(
        content=wrapped.only(TAGGED_0, "TSTInfo").bytes_of(OCTET_STRING, "TSTInfo"),
        certificates=tuple(_certificate(one) for one in certificates.members(TAGGED_0, "certificates")),
        issuer=issuer,
        serial=serial,
        digest=digest,
        attributes=attributes,
    )


def sort_certificates(token: bytes) -> bytes:
    """
    Return a token with its certificates in the order that DER asks for; they are not signed, and many do not sort them.

    Raises:
        FormatError, LimitExceededError: if it is no token that `parse_token` would take apart.
    """
    version, algorithms, encapsulated, certificates, signers = _signed_data(token)
    ordered = sorted(certificates.members(TAGGED_0, "certificates"), key=lambda one: one.encoded)
    parts = (version, algorithms, encapsulated, der(TAGGED_0, ordered), signers)
    return der(SEQUENCE, (SIGNED_DATA, der(TAGGED_0, [der(SEQUENCE, parts)]))).encoded


def parse_hash(algorithm: Value) -> str:
    """
    Return the name of the hash that an AlgorithmIdentifier is, as hashlib knows it.

    Raises:
        FormatError: if it is none of SHA-256, SHA-384 and SHA-512: others are too weak to be believed for years.
    """
    name = HASHES.get(_identifier(algorithm))
    if name is None:
        raise FormatError("hash algorithm", expected="SHA-256, SHA-384 or SHA-512", found=algorithm.encoded)
    return name


def _signed_data(token: bytes) -> list[Value]:
    if len(token) > TOKEN_SIZE_BYTES_MAX:
        raise LimitExceededError("time-stamp token, bytes", found=len(token), limit=TOKEN_SIZE_BYTES_MAX)
    content_type, wrapped = _pair(parse_der(token, "time-stamp token"), "time-stamp token")
    if content_type != SIGNED_DATA:
        raise FormatError("time-stamp token", expected="CMS SignedData", found=content_type.content)
    parts = wrapped.only(TAGGED_0, "time-stamp token").members(SEQUENCE, "SignedData")
    if len(parts) != 5 or parts[3].tag != TAGGED_0:
        expected = "version, digest algorithms, content, certificates and signers, and no revocation lists"
        raise FormatError("SignedData", expected=expected, found=f"tags {[hex(part.tag) for part in parts]}")
    return parts


def _signer_info(signer: Value, digest: str) -> tuple[bytes, int, Mapping[bytes, Value]]:
    parts = signer.members(SEQUENCE, "SignerInfo")
    if len(parts) != 6 or parts[3].tag != TAGGED_0:
        expected = "version, signer, digest algorithm, signed attributes, signature algorithm and signature alone"
        raise FormatError("SignerInfo", expected=expected, found=f"tags {[hex(part.tag) for part in parts]}")
    version, name, algorithm, attributes, signature_algorithm, signature = parts
    if version.number("version of SignerInfo") != _SIGNER_VERSION or parse_hash(algorithm) != digest:
        raise FormatError("SignerInfo", expected=f"version 1 and {digest}", found=(version.content, algorithm.encoded))
    identifier = _identifier(signature_algorithm)
    if identifier != _RSA and _SIGNATURES.get(identifier) != digest:
        expected = f"RSA (PKCS #1 1.5) or ECDSA with {digest}"
        raise FormatError("signature algorithm", expected=expected, found=signature_algorithm.encoded)
    signature.bytes_of(OCTET_STRING, "signature")
    issuer, serial = _pair(name, "signer")
    signed: dict[bytes, Value] = {}
    for attribute in attributes.members(TAGGED_0, "signed attributes"):
        kind, values = _pair(attribute, "signed attribute")
        if signed.setdefault(kind.encoded, value := values.only(SET, "signed attribute")) is not value:
            raise FormatError("signed attributes", expected="each once", found=kind.encoded)
    return issuer.encoded, serial.number("serial number of the signer"), signed


def _certificate(value: Value) -> bytes:
    """Return a certificate, encoded; its serial number must be positive (RFC 5280, section 4.1.2.2)."""
    parts = value.members(SEQUENCE, "certificate")
    signed = parts[0].members(SEQUENCE, "certificate") if parts else []
    serial = signed[1:2] if signed and signed[0].tag == TAGGED_0 else signed[:1]
    if not serial or serial[0].number("serial number of a certificate") <= 0:
        raise FormatError("certificate", expected="a serial number from 1", found=value.encoded)
    return value.encoded


def _identifier(algorithm: Value) -> Value:
    """Return the identifier of an algorithm that takes no parameters."""
    parts = algorithm.members(SEQUENCE, "algorithm")
    if not parts or parts[0].tag != OBJECT_IDENTIFIER or parts[1:] not in ([], [Value(tag=NULL, content=b"")]):
        raise FormatError("algorithm", expected="an identifier without parameters", found=algorithm.encoded)
    return parts[0]


def _pair(value: Value, what: str) -> tuple[Value, Value]:
    members = value.members(SEQUENCE, what)
    if len(members) != 2:
        raise FormatError(what, expected="two values", found=f"{len(members)}")
    return members[0], members[1]
