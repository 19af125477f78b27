# SPDX-License-Identifier: Apache-2.0
"""
TLS to an upstream with a client certificate, or with authorities of the tenant's own.

The authorities replace those that the process trusts: whoever else vouches for the upstream's name is not believed. The
name in the URL is verified against the certificate as always.
"""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from projections.egress.client import own_trusted_certificates


class ClientTlsError(Exception):
    """What was given is not PEM that TLS can use; its text names nothing of it."""


def client_context(*, certificate: str | None, authority: str | None) -> ssl.SSLContext:
    """
    Return a context that shows `certificate` and trusts `authority` alone. Blocks.

    `certificate` is PEM of a certificate, the chain behind it and its key, which has no password; None shows none.
    `authority` is PEM of one or more certificates; None trusts what the process trusts.

    Raises:
        ClientTlsError: if one of them is not that.
    """
    if authority is None:
        context = own_trusted_certificates()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies the certificate, and the name
        try:
            context.load_verify_locations(cadata=authority)
        except (ssl.SSLError, ValueError, TypeError) as error:
            raise ClientTlsError("expected PEM of certificates") from error
    if certificate is not None:
        try:
            with _as_file(certificate) as path:
                # A password of some kind: for a key that has one, OpenSSL would ask on the terminal.
                context.load_cert_chain(path, password=lambda: "none")
        except (ssl.SSLError, ValueError) as error:
            raise ClientTlsError("expected PEM of a certificate, its chain, and its key without a password") from error
    return context


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Yield a path for `text`, since OpenSSL reads keys from files alone: in memory where there are such files."""
    if sys.platform == "linux":
        file = os.memfd_create("client-certificate")
        try:
            os.write(file, text.encode())
            yield f"/proc/self/fd/{file}"
        finally:
            os.close(file)
    else:
        with tempfile.TemporaryDirectory(prefix="lakeproof-") as folder:  # which nobody else may enter
            file = Path(folder) / "client-certificate"
            file.write_text(text, encoding="utf-8")
            yield str(file)
