# SPDX-License-Identifier: Apache-2.0
"""
The ASN.1 of time stamping: requests, responses and tokens (RFC 3161, section 2.4), which are CMS SignedData (RFC 5652).

`cryptography` reads and writes the DER, strictly; the classes here say what may be in it. Its maintainers call its
module `asn1` unstable as yet: the lock files pin the version, and the tests of stamps tell whether another will do.

Guarantee: `parse_token` accepts one encoding of one shape. Every byte of what it returns is then judged by
`timestamp.py`, or covered by the signature. SignedData leaves much of itself unsigned; what could be changed there
without anybody noticing (versions, algorithms, lists of revoked certificates, unsigned attributes) is fixed or refused.
Certificates are the exception: those that do not lead from the signer to a root are as unknown keys under a note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, TypeVar

from cryptography.hazmat import asn1
from cryptography.x509 import ObjectIdentifier

from ledger.errors import FormatError, LimitExceededError

T = TypeVar("T")

TOKEN_SIZE_BYTES_MAX: Final = 65_536
"""Room for a chain of certificates with large keys; a usual token has 2 to 7 KiB."""
_NUMBER_BITS_MAX: Final = 1_024
"""Serial numbers have at most 160 (RFC 5280, section 4.1.2.2). Python cannot print numbers of over 4,300 digits."""
_SIGNED_DATA_VERSION: Final = 3  # RFC 5652, 5.1: because the content is not id-data
_SIGNER_VERSION: Final = 1  # RFC 5652, 5.3: because the signer is named by issuer and serial number

SIGNED_DATA: Final = ObjectIdentifier("1.2.840.113549.1.7.2")
TST_INFO: Final = ObjectIdentifier("1.2.840.113549.1.9.16.1.4")
CONTENT_TYPE: Final = ObjectIdentifier("1.2.840.113549.1.9.3")
MESSAGE_DIGEST: Final = ObjectIdentifier("1.2.840.113549.1.9.4")
SIGNING_CERTIFICATE_V2: Final = ObjectIdentifier("1.2.840.113549.1.9.16.2.47")
SHA256: Final = ObjectIdentifier("2.16.840.1.101.3.4.2.1")

_HASHES: Final = {
    SHA256: "sha256",
    ObjectIdentifier("2.16.840.1.101.3.4.2.2"): "sha384",
    ObjectIdentifier("2.16.840.1.101.3.4.2.3"): "sha512",
}
_SIGNATURES: Final = {
    ObjectIdentifier("1.2.840.113549.1.1.11"): "sha256",  # RSA, PKCS #1 1.5
    ObjectIdentifier("1.2.840.113549.1.1.12"): "sha384",
    ObjectIdentifier("1.2.840.113549.1.1.13"): "sha512",
    ObjectIdentifier("1.2.840.10045.4.3.2"): "sha256",  # ECDSA
    ObjectIdentifier("1.2.840.10045.4.3.3"): "sha384",
    ObjectIdentifier("1.2.840.10045.4.3.4"): "sha512",
}
_RSA: Final = ObjectIdentifier("1.2.840.113549.1.1.1")
"""Many name the key's kind as the signature's: then the digest algorithm says which hash was signed (RFC 3370, 3.2)."""


# Time stamps (RFC 3161, section 2.4)


@asn1.sequence
class Algorithm:
    """An AlgorithmIdentifier without parameters."""

    identifier: ObjectIdentifier
    parameters: asn1.Null | None = None


@asn1.sequence
class MessageImprint:
    """The hash of what is stamped."""

    algorithm: Algorithm
    digest: bytes


@asn1.sequence
class TimeStampReq:
    """A request for a stamp."""

    version: int
    imprint: MessageImprint
    policy: ObjectIdentifier | None
    nonce: int
    wants_certificates: Annotated[bool, asn1.Default(value=False)]


@asn1.sequence
class Accuracy:
    """By how much the time may be wrong: seconds, thousandths and millionths of a second."""

    seconds: int | None
    millis: Annotated[int | None, asn1.Implicit(0)]
    micros: Annotated[int | None, asn1.Implicit(1)]


@asn1.sequence
class TstInfo:
    """What an authority signs. Its time is left as it is: `cryptography` reads no more than microseconds."""

    version: int
    policy: ObjectIdentifier
    imprint: MessageImprint
    serial: int
    gen_time: asn1.TLV
    accuracy: Accuracy | None
    is_ordered: Annotated[bool, asn1.Default(value=False)]
    nonce: int | None
    # Tagged explicitly, as one value in another: a list of one. `asn1` has no optional TLV.
    authority: Annotated[list[asn1.TLV] | None, asn1.Implicit(0)]
    extensions: Annotated[list[asn1.TLV] | None, asn1.Implicit(1)]


# SignedData (RFC 5652, section 5)


@asn1.sequence
class EncapsulatedContent:
    """What is signed, and its type."""

    content_type: ObjectIdentifier
    content: Annotated[bytes, asn1.Explicit(0)]


@asn1.sequence
class Attribute:
    """A signed attribute."""

    type: ObjectIdentifier
    values: asn1.SetOf[asn1.TLV]


@asn1.sequence
class IssuerAndSerial:
    """Names a certificate."""

    issuer: asn1.TLV
    serial: int


@asn1.sequence
class SignerInfo:
    """A signer with signed attributes, and none unsigned."""

    version: int
    signer: IssuerAndSerial
    digest_algorithm: Algorithm
    attributes: Annotated[asn1.SetOf[Attribute], asn1.Implicit(0)]
    signature_algorithm: Algorithm
    signature: bytes


@asn1.sequence
class SignedData:
    """
    Certificates, no revocation lists, and signers.

    Certificates are a SET OF, and are read as a list: many authorities do not sort them (see `sort_certificates`).
    """

    version: int
    digest_algorithms: asn1.SetOf[Algorithm]
    content: EncapsulatedContent
    certificates: Annotated[list[asn1.TLV], asn1.Implicit(0)]
    signers: asn1.SetOf[SignerInfo]


@asn1.sequence
class Token:
    """A ContentInfo: a time-stamp token."""

    content_type: ObjectIdentifier
    content: Annotated[SignedData, asn1.Explicit(0)]


@asn1.sequence
class TimeStampResp:
    """The response of an authority: a PKIStatusInfo, of which the first value alone counts, and the token."""

    status: list[asn1.TLV]
    token: Token | None


# Certificates (RFC 5280, section 4.1), as far as their serial number is in question


@asn1.sequence
class TbsCertificate:
    """What is signed of a certificate."""

    version: Annotated[list[asn1.TLV] | None, asn1.Implicit(0)]
    serial: int
    algorithm: list[asn1.TLV]
    issuer: asn1.TLV
    validity: list[asn1.TLV]
    subject: asn1.TLV
    public_key: list[asn1.TLV]
    issuer_id: Annotated[asn1.BitString | None, asn1.Implicit(1)]
    subject_id: Annotated[asn1.BitString | None, asn1.Implicit(2)]
    extensions: Annotated[list[asn1.TLV] | None, asn1.Implicit(3)]


@asn1.sequence
class Certificate:
    """A certificate."""

    signed: TbsCertificate
    algorithm: list[asn1.TLV]
    signature: asn1.BitString


# The signer's certificate among the signed attributes (RFC 5035, sections 3 and 4)


@asn1.sequence
class GeneralIssuerAndSerial:
    """Names a certificate, once more."""

    issuer: list[asn1.TLV]
    serial: int


@asn1.sequence
class EssCertIdV2:
    """The hash of a certificate; SHA-256 is the default of the algorithm, which DER leaves out."""

    algorithm: Algorithm | None
    digest: bytes
    named: GeneralIssuerAndSerial | None


@asn1.sequence
class SigningCertificateV2:
    """The signer's certificate, and perhaps others behind it."""

    certificates: list[asn1.TLV]
    policies: list[asn1.TLV] | None


# Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedToken:
    """
    A time-stamp token, taken apart: `content` is the TSTInfo, `issuer` (a DER Name) and `serial` name the signer.

    `digest` is the hash that was signed with, as hashlib names it; `attributes` maps what the signer signed besides to
    its one value. Nothing is verified.
    """

    content: bytes
    certificates: tuple[bytes, ...]
    issuer: bytes
    serial: int
    digest: str
    attributes: Mapping[ObjectIdentifier, asn1.TLV]


def decode(kind: type[T], data: bytes, what: str) -> T:
    """
    Return the value of this kind that `data` is; `what` names it in errors.

    Raises:
        FormatError: if it is none, or not in DER.
    """
    try:
        return asn1.decode_der(kind, data)
    except ValueError as error:
        raise FormatError(what, expected=f"{kind.__name__} in DER", found=str(error)) from error


def parse_value(kind: type[T], value: asn1.TLV, what: str) -> T:
    """
    Return the value of this kind that was read as any; `what` names it in errors.

    Raises:
        FormatError: if it is another.
    """
    return decode(kind, asn1.encode_der(value), what)


def check_number(number: int, what: str) -> int:
    """
    Return a number that is short enough to be printed.

    Raises:
        FormatError: if it is longer than any number in a time stamp.
    """
    if number.bit_length() > _NUMBER_BITS_MAX:
        found = f"{number.bit_length()} bits"
        raise FormatError(what, expected=f"a whole number of at most {_NUMBER_BITS_MAX} bits", found=found)
    return number


def parse_oid(dotted: str) -> ObjectIdentifier:
    """
    Return an object identifier, given as in `1.2.840.113549`.

    Raises:
        FormatError: if `dotted` is none.
    """
    try:
        identifier = ObjectIdentifier(dotted)
    except ValueError as error:
        raise FormatError("object identifier", expected="numbers with dots between them", found=dotted) from error
    if identifier.dotted_string != dotted:
        raise FormatError("object identifier", expected=identifier.dotted_string, found=dotted)
    return identifier


def parse_token(token: bytes) -> SignedToken:
    """
    Return the parts of a time-stamp token.

    Raises:
        FormatError: if it is none, or holds something that is not allowed here.
        LimitExceededError: if it is over 64 KiB.
    """
    data = decode_token(token).content
    if data.version != _SIGNED_DATA_VERSION:
        found = check_number(data.version, "version of SignedData")
        raise FormatError("version of SignedData", expected=str(_SIGNED_DATA_VERSION), found=found)
    digest = parse_hash(_only(data.digest_algorithms.as_list(), "digest algorithms"))
    if data.content.content_type != TST_INFO:
        raise FormatError("content of SignedData", expected="a TSTInfo", found=data.content.content_type.dotted_string)
    signer = _only(data.signers.as_list(), "signers")
    return SignedToken(
        content=data.content.content,
        certificates=tuple(_certificate(one) for one in data.certificates),
        issuer=asn1.encode_der(signer.signer.issuer),
        serial=check_number(signer.signer.serial, "serial number of the signer"),
        digest=digest,
        attributes=_signed_attributes(signer, digest),
    )


def decode_token(token: bytes) -> Token:
    """
    Return a token; nothing of what is in it has been looked at.

    Raises:
        FormatError: if it is none.
        LimitExceededError: if it is over 64 KiB.
    """
    if len(token) > TOKEN_SIZE_BYTES_MAX:
        raise LimitExceededError("time-stamp token, bytes", found=len(token), limit=TOKEN_SIZE_BYTES_MAX)
    decoded = decode(Token, token, "time-stamp token: one SignedData with certificates and a SignerInfo, nothing else")
    if decoded.content_type != SIGNED_DATA:
        found = decoded.content_type.dotted_string
        raise FormatError("time-stamp token", expected="CMS SignedData", found=found)
    return decoded


def grant(token: bytes) -> bytes:
    """
    Return the response that a token comes in when its request is granted.

    Raises:
        FormatError, LimitExceededError: as `decode_token`.
    """
    granted = decode(asn1.TLV, asn1.encode_der(0), "PKIStatus")
    return asn1.encode_der(TimeStampResp(status=[granted], token=decode_token(token)))


def sort_certificates(token: Token) -> bytes:
    """
    Return a token with its certificates in the order that DER asks for; they are not signed, and many do not sort them.
    """
    certificates = sorted(token.content.certificates, key=asn1.encode_der)
    return asn1.encode_der(replace(token, content=replace(token.content, certificates=certificates)))


def parse_hash(algorithm: Algorithm) -> str:
    """
    Return the name of a hash, as hashlib knows it.

    Raises:
        FormatError: if it is none of SHA-256, SHA-384 and SHA-512: others are too weak to be believed for years.
    """
    name = _HASHES.get(algorithm.identifier)
    if name is None:
        found = algorithm.identifier.dotted_string
        raise FormatError("hash algorithm", expected="SHA-256, SHA-384 or SHA-512", found=found)
    return name


def parse_certificate_hash(attribute: asn1.TLV) -> tuple[str, bytes]:
    """
    Return algorithm and hash of the signer's certificate, the first that the attribute SigningCertificateV2 names.

    Raises:
        FormatError: if it names none.
    """
    what = "SigningCertificateV2"
    certificates = parse_value(SigningCertificateV2, attribute, what).certificates
    if not certificates:
        raise FormatError(what, expected="the hash of a certificate", found="none")
    # What may follow, issuer and serial number, says no more: the hash is of the whole certificate.
    named = parse_value(EssCertIdV2, certificates[0], what)
    return "sha256" if named.algorithm is None else parse_hash(named.algorithm), named.digest


def _signed_attributes(signer: SignerInfo, digest: str) -> Mapping[ObjectIdentifier, asn1.TLV]:
    if signer.version != _SIGNER_VERSION or parse_hash(signer.digest_algorithm) != digest:
        found = (check_number(signer.version, "version of SignerInfo"), signer.digest_algorithm.identifier)
        raise FormatError("SignerInfo", expected=f"version 1 and {digest}", found=found)
    algorithm = signer.signature_algorithm.identifier
    if algorithm != _RSA and _SIGNATURES.get(algorithm) != digest:
        expected = f"RSA (PKCS #1 1.5) or ECDSA with {digest}"
        raise FormatError("signature algorithm", expected=expected, found=algorithm.dotted_string)
    attributes: dict[ObjectIdentifier, asn1.TLV] = {}
    for attribute in signer.attributes.as_list():
        if attribute.type in attributes:
            raise FormatError("signed attributes", expected="each once", found=attribute.type.dotted_string)
        attributes[attribute.type] = _only(attribute.values.as_list(), "signed attribute")
    return attributes


def _certificate(value: asn1.TLV) -> bytes:
    """Return a certificate, encoded; its serial number must be positive (RFC 5280, section 4.1.2.2)."""
    # `x509` takes others with a warning.
    serial = parse_value(Certificate, value, "certificate").signed.serial
    if serial <= 0:
        raise FormatError("certificate", expected="a serial number from 1", found=check_number(serial, "serial number"))
    return asn1.encode_der(value)


def _only(values: Sequence[T], what: str) -> T:
    if len(values) != 1:
        raise FormatError(what, expected="one", found=len(values))
    return values[0]
