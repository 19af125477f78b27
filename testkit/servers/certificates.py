# SPDX-License-Identifier: Apache-2.0
"""
Certificates for servers and clients of tests, each signed by itself or by another one.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Certificate:
    """
    A certificate, those behind it up to its root's, and its key, in one file; a client that trusts the file
    (SSL_CERT_FILE) trusts its server.
    """

    file: Path

    @property
    def pem(self) -> str:
        """Return what the file holds."""
        return self.file.read_text("ascii")

    @property
    def chain(self) -> list[x509.Certificate]:
        """Return the certificates of the file, its own first."""
        return x509.load_pem_x509_certificates(self.file.read_bytes())

    def context(self, seen: list[str | None]) -> ssl.SSLContext:
        """Return a server's side; `seen` are the names that clients ask for."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file)

        def note(_: object, name: str | None, __: object) -> None:
            seen.append(name)

        context.sni_callback = note
        return context


def make_certificate(
    file: Path,
    host: str,
    *,
    issuer: Certificate | None = None,
    names: Sequence[x509.GeneralName] | None = None,
    begins_in: timedelta = timedelta(days=-2),
    ends_in: timedelta = timedelta(days=1),
    may_sign: bool = True,
    usages: Sequence[x509.ObjectIdentifier] = (),
) -> Certificate:
    """
    Write a certificate for `host` and its key to `file` with mode 0600, signed by itself or by `issuer`.

    `names` are the alternative names (None: `host`; empty: the extension is missing), `usages` the extended key usages
    (empty: any).

    The certificates of issuers that are signed by others are in the file too: a root is known to whoever trusts it.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    signing, behind, named = key, [], name
    if issuer is not None:
        issuing = serialization.load_pem_private_key(issuer.file.read_bytes(), password=None)
        assert isinstance(issuing, ec.EllipticCurvePrivateKey)
        signing, named = issuing, issuer.chain[0].subject
        behind = [each for each in issuer.chain if each.issuer != each.subject]
    building = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(named)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins_in)
        .not_valid_after(now + ends_in)
        .add_extension(x509.BasicConstraints(ca=may_sign, path_length=None), critical=True)
    )
    if alternatives := [x509.DNSName(host)] if names is None else names:
        building = building.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    if usages:
        building = building.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    made = building.sign(signing, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    certificates = [each.public_bytes(serialization.Encoding.PEM) for each in (made, *behind)]
    file.touch(mode=0o600)
    file.write_bytes(b"".join([*certificates, private]))
    return Certificate(file)
