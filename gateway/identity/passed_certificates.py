# SPDX-License-Identifier: Apache-2.0
"""
Client certificates that a proxy has taken over its own TLS and passes on in a header, `Client-Cert` (RFC 9440).

Whoever can send that header could be any client, so it counts from the proxies alone that the operator has named, by
the address of the connection and, where the gateway has TLS, by the proxy's own certificate too. From anybody else it
is refused rather than left aside: a request must not mean one thing here and another at a proxy before it.

That the client has the key to its certificate only the proxy can know. All else is verified again: the path from one
of the roots, purposes and times.

Guarantee: a certificate is returned only if a named proxy has sent it and it has been verified.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    Policy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from gateway.identity.client_certificates import Proxy, San, Shown, read_certificate
from gateway.identity.principal import CertificateRefusedError
from projections.egress.addresses import Address

CLIENT_CERT: Final = b"client-cert"
CLIENT_CERT_CHAIN: Final = b"client-cert-chain"
"""It is not read: a chain is made of the certificates in the operator's file."""
LENGTH_MAX: Final = 16 * 1024
"""Characters of the header, which is as much as a token may have."""
OPENED_MAX: Final = 2_000
"""Headers, and certificates of proxies, in the cache of a process; at their longest, 60 MB."""

_BYTES: Final = re.compile(r":([A-Za-z0-9+/]+={0,2}):")
"""A byte sequence (RFC 8941, section 3.3.5) that is not empty, without parameters."""
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/=\n]+)\n-----END CERTIFICATE-----\n?")
_ESCAPED_PEM: Final = "-----BEGIN"
_NOT_NAMED: Final = (
    "expected Client-Cert from nobody but a proxy that the operator has named in LAKEPROOF_TLS_CLIENTS, found it in a "
    "request from elsewhere: leave it out"
)
_MALFORMED: Final = (
    "expected one certificate in Client-Cert, DER in base64 between colons (RFC 9440) or PEM with percent-encoding, "
    "found something else: correct the proxy's configuration"
)


def _check_may_sign(_: Policy, __: x509.Certificate, constraints: x509.BasicConstraints) -> None:
    if not constraints.ca:
        raise ValueError("not a certificate of an authority")


def _check_signs(_: Policy, __: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("not for signing certificates")


def _check_logs_in(_: Policy, __: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.digital_signature and not usage.key_agreement:
        raise ValueError("not for handshakes")


def _check_purpose(policy: Policy, _: x509.Certificate, usage: x509.ExtendedKeyUsage | None) -> None:
    if usage is not None and policy.extended_key_usage not in usage:
        raise ValueError("not for clients")


# The checks of purpose that OpenSSL makes on the side of a server (`X509_PURPOSE_SSL_CLIENT`), instead of the rules for
# certificates of the public web, which those of a private authority seldom keep.
_ANY: Final = ExtensionPolicy.permit_all().may_be_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _check_purpose)
_SIGNER: Final = _ANY.require_present(x509.BasicConstraints, Criticality.AGNOSTIC, _check_may_sign).may_be_present(
    x509.KeyUsage, Criticality.AGNOSTIC, _check_signs
)
_CLIENT: Final = _ANY.may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _check_logs_in)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOn:
    """
    The header of a request (empty: it has a `Client-Cert-Chain` alone), and the address of its connection (None: it is
    not known).
    """

    header: str
    peer: Address | None


class Roots:
    """
    Verifies certificates of clients as OpenSSL does in a handshake: path, times and purpose (RFC 5280, section 6).

    `certificates` are those of the operator's file: the roots among them are trusted, the others only join a path.
    """

    def __init__(self, certificates: Sequence[x509.Certificate]) -> None:
        """
        Sort the certificates.

        Raises:
            ValueError: if none of them is a root.
        """
        self._store = Store([one for one in certificates if one.subject == one.issuer])
        self._between = [one for one in certificates if one.subject != one.issuer]

    def verify(self, certificate: x509.Certificate, *, at: datetime) -> datetime:
        """
        Verify a certificate, and return until when all of its path is valid.

        Raises:
            CertificateRefusedError: if that fails.
        """
        if not certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc:
            found = "expired" if certificate.not_valid_after_utc < at else "not yet valid"
            raise CertificateRefusedError(
                f"expected a client certificate that is valid now, found one that is {found}: get a new one"
            )
        policy = PolicyBuilder().store(self._store).time(at).extension_policies(ca_policy=_SIGNER, ee_policy=_CLIENT)
        try:
            path = policy.build_client_verifier().verify(certificate, self._between).chain
        except (VerificationError, ValueError, UnsupportedAlgorithm) as error:
            # Its text quotes the subject of the certificate, which anybody may have chosen.
            raise CertificateRefusedError(
                "expected a client certificate for which a root in LAKEPROOF_TLS_CLIENT_CA vouches, for the use of "
                "clients, found one that cannot be verified: get another one"
            ) from error
        return min(one.not_valid_after_utc for one in path)


class PassedCertificates:
    """
    The certificates that `proxies` pass on, for which `roots` vouch. Event loop only.

    `_opened` are headers that were verified before, and until when that counts; `_shown` the certificates of proxies.
    """

    def __init__(self, proxies: Sequence[Proxy], roots: Roots, clock: Callable[[], datetime]) -> None:
        self._proxies = proxies
        self._roots = roots
        self._clock = clock
        self._opened: OrderedDict[str, tuple[bytes, datetime]] = OrderedDict()
        self._shown: OrderedDict[bytes, Shown] = OrderedDict()

    def open(self, passed: PassedOn, own: bytes | None) -> bytes:
        """
        Return the certificate of the client for whom a proxy asks; `own` is that of its connection. Both are in DER.

        Raises:
            CertificateRefusedError: if no named proxy asks, or the certificate is malformed or cannot be verified.
        """
        now = self._clock()
        if passed.peer is None or not self._is_of_proxy(passed.peer, own, now):
            raise not_named()
        opened = self._opened.get(passed.header)
        if opened is not None and now <= opened[1]:
            self._opened.move_to_end(passed.header)
            return opened[0]
        certificate = parse_header(passed.header)
        der = certificate.public_bytes(Encoding.DER)
        self._opened[passed.header] = der, self._roots.verify(certificate, at=now)
        if len(self._opened) > OPENED_MAX:
            self._opened.popitem(last=False)
        return der

    def _is_of_proxy(self, peer: Address, own: bytes | None, now: datetime) -> bool:
        """Whether a connection is of a named proxy, whose certificate may have ended since TLS has verified it."""
        san: San | None = None
        if own is not None:
            shown = self._read(own)
            if shown is None or shown.ends_at <= now:
                return False
            san = shown.san
        return any(proxy.san == san and proxy.has(peer) for proxy in self._proxies)

    def _read(self, certificate: bytes) -> Shown | None:
        """What the certificate of a connection says; None if it names nobody."""
        if (shown := self._shown.get(certificate)) is not None:
            self._shown.move_to_end(certificate)
            return shown
        try:
            self._shown[certificate] = shown = read_certificate(certificate)
        except CertificateRefusedError:
            return None
        if len(self._shown) > OPENED_MAX:
            self._shown.popitem(last=False)
        return shown


def not_named() -> CertificateRefusedError:
    """Return the refusal of a header that no named proxy has sent."""
    return CertificateRefusedError(_NOT_NAMED)


def parse_header(text: str) -> x509.Certificate:
    """
    Return the certificate in a header: DER as a byte sequence (RFC 9440, section 2.2), or PEM with percent-encoding.

    The second form is the one that nginx and Envoy have a variable for. No text has both.

    Raises:
        CertificateRefusedError: if it is neither, or longer than `LENGTH_MAX`.
    """
    if len(text) > LENGTH_MAX:
        raise CertificateRefusedError(
            f"expected at most {LENGTH_MAX} characters in Client-Cert, found more: get a smaller certificate"
        )
    is_pem = text.startswith(_ESCAPED_PEM)
    found = _PEM.fullmatch(unquote(text)) if is_pem else _BYTES.fullmatch(text)
    if found is None:
        raise CertificateRefusedError(_MALFORMED)
    encoded = found[1].replace("\n", "") if is_pem else found[1]
    try:
        der = b64decode(encoded, validate=True)
        certificate = x509.load_der_x509_certificate(der)
    except (ValueError, x509.InvalidVersion, UnsupportedAlgorithm) as error:
        raise CertificateRefusedError(_MALFORMED) from error
    if b64encode(der).decode("ascii") != encoded:  # bits behind the last byte: two texts for one certificate
        raise CertificateRefusedError(_MALFORMED)
    return certificate
