# SPDX-License-Identifier: Apache-2.0
"""
The certificate that the gateway serves, as the settings name its files, and how our own processes know it again.

What is configured and cannot be used is an error at the start; without the two files the gateway has no TLS. The same
function loads a pair that replaces another one while the gateway serves.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from lakeproof.errors import SettingsError
from lakeproof.settings import Settings
from ledger.files.private_files import mode_for_others

CERTIFICATE: Final = "LAKEPROOF_TLS_CERTIFICATE"
KEY: Final = "LAKEPROOF_TLS_KEY"
PROTOCOL: Final = "http/1.1"
"""What ALPN offers (RFC 7301)."""
FILE_SIZE_BYTES_MAX: Final = 1_000_000

State: TypeAlias = Sequence[tuple[int, int, int, int] | None]
"""Device, inode, time of change and size of each file, None for one that is missing; a changed file differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The files of a certificate: itself with its issuers behind it, and its key."""

    certificate: Path
    key: Path

    def state(self) -> State:
        """Return what tells whether a file was changed or replaced; a link counts as what it leads to."""
        return [_state(file) for file in (self.certificate, self.key)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate that can be served, with its key: until `ends_at`."""

    context: ssl.SSLContext
    ends_at: datetime


def tls_files(settings: Settings) -> TlsFiles | None:
    """
    Return the files of the gateway's certificate; None: it has no TLS.

    Raises:
        SettingsError: if only one of them is named.
    """
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is not None and key is not None:
        return TlsFiles(certificate=certificate, key=key)
    if certificate is None and key is None:
        return None
    missing, named = (CERTIFICATE, KEY) if certificate is None else (KEY, CERTIFICATE)
    raise SettingsError(f"{named} is set and {missing} is not: set both, or neither")


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
        return x509.load_pem_x509_certificates(_read(file, CERTIFICATE))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SettingsError(
            f"{CERTIFICATE}: {file}: expected PEM, first the gateway's certificate and then those of its issuers, "
            f"found something else ({error}): replace it"
        ) from error


def _check_key(file: Path, leaf: x509.Certificate, certificate: Path) -> None:
    try:
        mode = mode_for_others(file)
    except OSError as error:
        raise _unreadable(file, KEY, error) from error
    if mode is not None:
        raise SettingsError(f"{KEY}: {file} has mode {mode:04o} and others can read it: run chmod 600 {file}")
    try:
        key = load_pem_private_key(_read(file, KEY), password=None)
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


def _read(file: Path, setting: str) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_SIZE_BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(file, setting, error) from error
    if len(content) > FILE_SIZE_BYTES_MAX:
        raise SettingsError(f"{setting}: {file} has over {FILE_SIZE_BYTES_MAX:,} bytes: name the right file")
    return content


def _unreadable(file: Path, setting: str, error: OSError) -> SettingsError:
    return SettingsError(
        f"{setting}: {file} cannot be read ({error.strerror}): make it readable for this user, or name another file"
    )


def _state(file: Path) -> tuple[int, int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
