"""
The envelope of a time stamp: CMS SignedData around a TSTInfo (RFC 5652, section 5.1; RFC 3161, section 2.4.2).

Guarantee: every byte of what `parse_token` returns was of the one shape that is allowed here, and is judged either by
`timestamp.py` or by the signature. SignedData leaves much of itself unsigned; what could be changed there without
anybody noticing (versions, algorithms, lists of revoked certificates, unsigned attributes) is fixed or refused.
Certificates are the exception: those that do not lead from the signer to a root are as unknown keys under a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ledger.anchoring.der import (
    NULL,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    SET,
    TAGGED_0,
    Value,
    der,
    der_oid,
    parse_der,
)
from ledger.errors import FormatError, LimitExceededError

TOKEN_SIZE_BYTES_MAX: Final = 65_536
"""Room for a chain of certificates with large keys; a usual token has 2 to 7 KiB."""

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

_SIGNED_DATA_VERSION: Final = 3  # RFC 5652, 5.1: because the content is not id-data
_SIGNER_VERSION: Final = 1  # RFC 5652, 5.3: because the signer is named by issuer and serial number


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
