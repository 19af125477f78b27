# SPDX-License-Identifier: Apache-2.0
"""
The certificate that the gateway serves, as the settings name its files, and how our own processes know it again.

What is configured and cannot be used is an error at the start; without the two files the gateway has no TLS. The same
function loads a pair that replaces another one while the gateway serves.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gateway.identity.certificate_logins import Accepted
from gateway.identity.client_certificates import Proxy, parse_clients
from gateway.identity.passed_certificates import Roots
from lakeproof.errors import SettingsError
from lakeproof.private_folders import read_or_make
from lakeproof.setting_files import logs_of_tenants, read_setting_file, read_setting_text, unreadable
from lakeproof.settings import Settings
from ledger.errors import FormatError
from ledger.files.private_files import mode_for_others
from ledger.store.read import Log

CERTIFICATE: Final = "LAKEPROOF_TLS_CERTIFICATE"
KEY: Final = "LAKEPROOF_TLS_KEY"
CLIENT_CA: Final = "LAKEPROOF_TLS_CLIENT_CA"
CLIENTS: Final = "LAKEPROOF_TLS_CLIENTS"
CLIENT_REQUIRED: Final = "LAKEPROOF_TLS_CLIENT_REQUIRED"
SECRETS: Final = "secrets"
OWN_CLIENT: Final = "gateway-client.pem"
OWN_CLIENT_DAYS: Final = 10 * 365
PROTOCOL: Final = "http/1.1"
"""What ALPN offers (RFC 7301)."""

UNGUARDED: Final = tuple(
    map(
        ip_network, ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "::1", "fc00::/7")
    )
)
"""Where a proxy may be that connects without TLS: this machine, and networks of one site (RFC 1918, 6598, 4193)."""

State: TypeAlias = Sequence[tuple[int, int, int, int] | None]
"""Device, inode, time of change and size of each file, None for one that is missing; a changed file differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """
    The files of a certificate: itself with its issuers behind it, and its key. `client_ca` has those who may sign
    clients' certificates; None: clients show none. `own_client` is what our own processes show where each client has to
    show one; None: none has to.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None
    own_client: Path | None = None

    def state(self) -> State:
        """Return what tells whether a file was changed or replaced; a link counts as what it leads to."""
        return [_state(file) for file in (self.certificate, self.key, self.client_ca) if file is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate that can be served, with its key: until `ends_at`."""

    context: ssl.SSLContext
    ends_at: datetime


def tls_files(settings: Settings) -> TlsFiles | None:
    """
    Return the files of the gateway's certificate; None: it has no TLS.

    Raises:
        SettingsError: if one of them is named without another that it needs.
    """
    certificate, key, client_ca = settings.tls_certificate, settings.tls_key, settings.tls_client_ca
    _check_both({CERTIFICATE: certificate, KEY: key})
    _check_both({CLIENT_CA: client_ca, CLIENTS: settings.tls_clients})
    if settings.tls_client_required and client_ca is None:
        raise SettingsError(f"{CLIENT_REQUIRED} is 1 and {CLIENT_CA} is not set: set that, too, or unset this")
    if certificate is not None and key is not None:
        own_client = settings.home / SECRETS / OWN_CLIENT if settings.tls_client_required else None
        return TlsFiles(certificate=certificate, key=key, client_ca=client_ca, own_client=own_client)
    if settings.tls_client_required:
        raise SettingsError(f"{CLIENT_REQUIRED} is 1 and {CERTIFICATE} is not set: set that, too, or unset this")
    return None


def make_own_client(files: TlsFiles) -> None:
    """
    Make what our own processes show the gateway, if they have to and there is none yet. It names nobody.

    Raises:
        SettingsError: if it can be read by others, or cannot be read or written.
    """
    if files.own_client is not None:
        read_or_make(files.own_client, _new_client)


def load_clients(settings: Settings, logs: Iterable[Log]) -> Accepted | None:
    """
    Return who may show a certificate or pass one on; None if no file is configured. `logs` are all logs.

    Raises:
        SettingsError: if a file cannot be read or is malformed, names a tenant that does not exist, or a proxy that
            could not be known by what is said of it.
    """
    file = settings.tls_clients
    if file is None or settings.tls_client_ca is None:
        return None
    try:
        clients = parse_clients(read_setting_text(file, CLIENTS))
    except FormatError as error:
        raise SettingsError(f"{CLIENTS}: {file}: {error}: correct it") from error
    for number, proxy in enumerate(clients.proxies, start=1):
        _check_proxy(proxy, f"{CLIENTS}: {file}: proxy {number}", has_tls=settings.tls_certificate is not None)
    if not clients.proxies and settings.tls_certificate is None:
        raise SettingsError(
            f"{CLIENTS}: {file}: without {CERTIFICATE} nobody can show a certificate, and the file has no proxy that "
            "passes one on: set that, or add one"
        )
    named = [(f"client {client.san.value}", client.tenant) for client in clients.clients.values()]
    return Accepted(
        file=clients,
        log_ids=logs_of_tenants(named, logs, file=file, setting=CLIENTS),
        roots=_read_roots(settings.tls_client_ca) if clients.proxies else None,
    )


def load_certificate(files: TlsFiles, *, now: datetime) -> Certificate:
    """
    Return the certificate in `files`, for the server's side.

    Raises:
        SettingsError: if a file cannot be read or is not what it must be, if others can read the key, if the two do not
            belong together, or if the certificate is not valid now.
    """
    leaf = _read_certificates(files.certificate)[0]
    where = f"{CERTIFICATE}: {files.certificate}"
    if leaf.not_valid_after_utc <= now:
        raise SettingsError(f"{where} has expired at {leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC: renew it")
    if leaf.not_valid_before_utc > now:
        raise SettingsError(
            f"{where} is valid from {leaf.not_valid_before_utc:%Y-%m-%d %H:%M} UTC, which is not yet: check this "
            "machine's clock, or wait"
        )
    _check_key(files.key, leaf, files.certificate)
    context = server_context()
    try:
        # The password is for a key that was replaced by an encrypted one since: OpenSSL would ask for it at a terminal.
        context.load_cert_chain(files.certificate, files.key, password=b"")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise SettingsError(f"{where}: it cannot be served with {files.key} ({error}): replace both") from error
    if files.client_ca is not None:
        _accept_clients(context, files.client_ca)
    if files.own_client is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        if files.own_client.exists():  # else it is being checked whether the others could be served
            with _broken_own_client(files.own_client):
                context.load_verify_locations(cafile=files.own_client)
    return Certificate(context=context, ends_at=leaf.not_valid_after_utc)


def server_context() -> ssl.SSLContext:
    """
    Return a server's context without a certificate: TLS 1.2 or 1.3, and HTTP/1.1 alone.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols([PROTOCOL])
    return context


class GatewayTrust:
    """
    How our own processes know the gateway: by its certificate's file, as it is or was since they began.

    They connect to an address, which the certificate need not name. So it is not the name that is checked: whoever has
    the key to exactly this certificate is the gateway, and a certificate of the same issuer for another is refused.
    """

    def __init__(self, files: TlsFiles) -> None:
        """
        Read the certificate.

        Raises:
            SettingsError: if it cannot be read.
        """
        self._files = files
        self._state = files.state()
        self.context: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.check_hostname = False
        self.context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if files.own_client is not None and files.own_client.exists():
            with _broken_own_client(files.own_client):
                self.context.load_cert_chain(files.own_client, password=b"")
        self._accept()

    def refresh(self) -> None:
        """Accept the file's certificate also after it was replaced; one that cannot be read changes nothing."""
        state = self._files.state()
        if state == self._state:
            return
        try:
            self._accept()
        except SettingsError:
            return  # the gateway refuses it, too, and says so
        self._state = state

    def _accept(self) -> None:
        leaf = _read_certificates(self._files.certificate)[0]
        self.context.load_verify_locations(cadata=leaf.public_bytes(Encoding.DER))


def gateway_trust(settings: Settings) -> GatewayTrust | None:
    """
    Return how our own processes know the gateway; None: it has no TLS.

    Raises:
        SettingsError: if only one file is named, or the certificate cannot be read.
    """
    files = tls_files(settings)
    return None if files is None else GatewayTrust(files)


def _read_certificates(file: Path) -> Sequence[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(read_setting_file(file, CERTIFICATE))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SettingsError(
            f"{CERTIFICATE}: {file}: expected PEM, first the gateway's certificate and then those of its issuers, "
            f"found something else ({error}): replace it"
        ) from error


def _new_client() -> str:
    """Return a certificate that has signed itself and names nobody, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lakeproof")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks differ
        .not_valid_after(now + timedelta(days=OWN_CLIENT_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=True)
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (certificate.public_bytes(Encoding.PEM) + private).decode("ascii")


def _check_proxy(proxy: Proxy, what: str, *, has_tls: bool) -> None:
    """Check that a proxy is known by its certificate, or without TLS by an address that is not of the internet."""
    if has_tls and proxy.san is None:
        raise SettingsError(f"{what}: expected the uri or dns of its own certificate, found neither: add one")
    if has_tls:
        return
    if proxy.san is not None:
        raise SettingsError(
            f"{what}: expected no uri and no dns, since without {CERTIFICATE} nobody can show a certificate, found "
            f"{proxy.san.value}: set {CERTIFICATE}, or leave it out"
        )
    for network in proxy.networks:
        if not any(network[0] in one and network[-1] in one for one in UNGUARDED):
            raise SettingsError(
                f"{what}: expected a loopback or private address, since without {CERTIFICATE} the address alone tells "
                f"who it is, found {network}: set {CERTIFICATE}, and name the proxy's own certificate"
            )


def _read_roots(file: Path) -> Roots:
    try:
        return Roots(x509.load_pem_x509_certificates(read_setting_file(file, CLIENT_CA)))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _no_roots(file, error) from error


def _no_roots(file: Path, error: Exception) -> SettingsError:
    return SettingsError(
        f"{CLIENT_CA}: {file}: expected PEM with the root certificates of those who sign clients' certificates, found "
        f"something else ({error}): replace it"
    )


def _accept_clients(context: ssl.SSLContext, file: Path) -> None:
    """Ask clients for a certificate that one of those in `file` has signed; who shows none is served, too."""
    try:
        context.load_verify_locations(cadata=read_setting_file(file, CLIENT_CA).decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise _no_roots(file, error) from error
    context.verify_mode = ssl.CERT_OPTIONAL


@contextmanager
def _broken_own_client(file: Path) -> Iterator[None]:
    try:
        yield
    except (ssl.SSLError, OSError) as error:
        raise SettingsError(
            f"{file} cannot be used ({error}), which our own processes show the gateway: remove it, and the next start "
            "makes another"
        ) from error


def _check_both(named: Mapping[str, Path | None]) -> None:
    missing = [name for name, file in named.items() if file is None]
    if len(missing) == 1:
        (there,) = named.keys() - missing
        raise SettingsError(f"{there} is set and {missing[0]} is not: set both, or neither")


def _check_key(file: Path, leaf: x509.Certificate, certificate: Path) -> None:
    try:
        mode = mode_for_others(file)
    except OSError as error:
        raise unreadable(file, KEY, error) from error
    if mode is not None:
        raise SettingsError(f"{KEY}: {file} has mode {mode:04o} and others can read it: run chmod 600 {file}")
    try:
        key = load_pem_private_key(read_setting_file(file, KEY), password=None)
    except TypeError as error:
        raise SettingsError(
            f"{KEY}: {file} has a password, which nobody could enter: write it without one, with mode 0600 "
            "(openssl pkey does that)"
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        # The message of the error may quote the file.
        raise SettingsError(
            f"{KEY}: {file}: expected a private key in PEM, found something else: replace it"
        ) from error
    spki = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*spki) != leaf.public_key().public_bytes(*spki):
        raise SettingsError(
            f"{KEY}: {file} is not the key of the first certificate in {certificate}: name the files of one pair, the "
            "gateway's own certificate before those of its issuers"
        )


def _state(file: Path) -> tuple[int, int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
