# SPDX-License-Identifier: Apache-2.0
"""
An authority of which everything can be wrong: it writes tokens itself, and signs them properly.

OpenSSL refuses to stamp with a certificate that is not for time stamps, or outside of its time; a forger does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ledger.anchoring.cms import CONTENT_TYPE, MESSAGE_DIGEST, SIGNED_DATA, SIGNING_CERTIFICATE_V2, TST_INFO
from testkit.ledger.der import (
    GENERALIZED_TIME,
    NULL,
    OCTET_STRING,
    SEQUENCE,
    SET,
    TAGGED_0,
    Value,
    der,
    der_integer,
    der_oid,
    parse_der,
)

NOTE = b"a checkpoint\n"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
POLICY = "1.3.6.1.4.1.99999.1"
NONCE = 2**127 + 5

SHA256 = "2.16.840.1.101.3.4.2.1"
SHA1 = "1.3.14.3.2.26"
ECDSA_SHA256 = "1.2.840.10045.4.3.2"

CRITICAL, NOT_CRITICAL = True, False
Usages = tuple[x509.ObjectIdentifier, ...]
FOR_STAMPS: Usages = (ExtendedKeyUsageOID.TIME_STAMPING,)


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def der(self) -> Value:
        return parse_der(self.certificate.public_bytes(Encoding.DER))


def certify(
    name: str,
    issuer: Holder | None = None,
    *,
    authority: bool = False,
    usages: Usages | None = None,
    critical: bool = CRITICAL,
    until: datetime = NOON + timedelta(days=30),
    key: ec.EllipticCurvePrivateKey | None = None,
) -> Holder:
    """Return a new certificate, valid from a month before noon; `key` is its key, else a new one."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOON - timedelta(days=30))
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if usages is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=critical)
    return Holder(certificate=builder.sign(issuer.key if issuer else key, hashes.SHA256()), key=key)


@dataclass(frozen=True, kw_only=True)
class Forgery:
    """What a token says and how it is signed; as it is, it is a good one."""

    root: Holder
    intermediate: Holder
    signer: Holder
    note: bytes = NOTE
    imprint_algorithm: str = SHA256
    gen_time: datetime = NOON
    fraction: str = ""
    """Of a second, behind `gen_time`, with its point."""
    accuracy: Value | None = None
    policy: str = POLICY
    nonce: int = NONCE
    version: int = 1
    content_type: x509.ObjectIdentifier = TST_INFO
    named: Holder | None = None
    """Whose hash the signed attributes carry, if not the signer's."""
    digest: bytes | None = None
    """What the signed attributes say of the content, if not its hash."""
    digest_algorithm: str = SHA256
    without: x509.ObjectIdentifier | None = None
    """An attribute to leave out."""
    extra_tst_members: tuple[Value, ...] = ()
    unsigned: tuple[Value, ...] = ()

    def token(self) -> bytes:
        """Return the token, in DER."""
        content = self._content()
        attributes = self._attributes(content)
        signature = self.signer.key.sign(der(SET, attributes).encoded, ec.ECDSA(hashes.SHA256()))
        certificate = self.signer.certificate
        signer = der(
            SEQUENCE,
            [
                der_integer(1),
                der(
                    SEQUENCE,
                    [
                        parse_der(certificate.issuer.public_bytes()),
                        der_integer(certificate.serial_number),
                    ],
                ),
                _algorithm(self.digest_algorithm),
                der(TAGGED_0, attributes),
                der(SEQUENCE, [der_oid(ECDSA_SHA256)]),
                Value(tag=OCTET_STRING, content=signature),
                *self.unsigned,
            ],
        )
        certificates = sorted((self.signer.der, self.intermediate.der), key=lambda one: one.encoded)
        octets = Value(tag=OCTET_STRING, content=content)
        parts = [
            der_integer(3),
            der(SET, [_algorithm(self.digest_algorithm)]),
            der(SEQUENCE, [der_oid(TST_INFO), der(TAGGED_0, [octets])]),
            der(TAGGED_0, certificates),
            der(SET, [signer]),
        ]
        return der(SEQUENCE, [der_oid(SIGNED_DATA), der(TAGGED_0, [der(SEQUENCE, parts)])]).encoded

    def response(self, *, status: int = 0) -> bytes:
        """Return the response that carries the token."""
        return der(SEQUENCE, [der(SEQUENCE, [der_integer(status)]), parse_der(self.token())]).encoded

    def _content(self) -> bytes:
        imprint = Value(tag=OCTET_STRING, content=sha256(self.note).digest())
        time = f"{self.gen_time:%Y%m%d%H%M%S}{self.fraction}Z"
        members = [
            der_integer(self.version),
            der_oid(self.policy),
            der(SEQUENCE, [_algorithm(self.imprint_algorithm), imprint]),
            der_integer(11),
            Value(tag=GENERALIZED_TIME, content=time.encode()),
            *([] if self.accuracy is None else [self.accuracy]),
            der_integer(self.nonce),
            *self.extra_tst_members,
        ]
        return der(SEQUENCE, members).encoded

    def _attributes(self, content: bytes) -> list[Value]:
        named = (self.named or self.signer).certificate.public_bytes(Encoding.DER)
        identifier = der(SEQUENCE, [Value(tag=OCTET_STRING, content=sha256(named).digest())])
        digest = sha256(content).digest() if self.digest is None else self.digest
        values = {
            CONTENT_TYPE: der_oid(self.content_type),
            MESSAGE_DIGEST: Value(tag=OCTET_STRING, content=digest),
            SIGNING_CERTIFICATE_V2: der(SEQUENCE, [der(SEQUENCE, [identifier])]),
        }
        attributes = [
            der(SEQUENCE, [der_oid(kind), der(SET, [value])]) for kind, value in values.items() if kind != self.without
        ]
        return sorted(attributes, key=lambda one: one.encoded)


@cache
def good() -> Forgery:
    """Return a token that is to be accepted, by an authority of its own."""
    root = certify("root", authority=True)
    intermediate = certify("intermediate", root, authority=True)
    signer = certify("signer", intermediate, usages=FOR_STAMPS)
    return Forgery(root=root, intermediate=intermediate, signer=signer)


def signed_by(signer: Holder, forgery: Forgery | None = None) -> Forgery:
    """Return the good token, signed by another certificate."""
    return replace(forgery or good(), signer=signer)


def _algorithm(dotted: str) -> Value:
    return der(SEQUENCE, [der_oid(dotted), Value(tag=NULL, content=b"")])
