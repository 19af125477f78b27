# SPDX-License-Identifier: Apache-2.0
"""
URLs of identity providers: which may be used, and what a provider's discovery document says of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from gateway.identity.tokens import parse_unambiguous
from ledger.errors import FormatError


def check_url(url: str, *, what: str) -> None:
    """
    Check that a URL may be used: https with a host, or http from an address of this machine itself.

    Raises:
        FormatError: otherwise. Who can change an answer on its way could sign any token.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    is_plain = url.isascii() and url.isprintable() and " " not in url and parts.username is None and not parts.fragment
    if is_plain and host and port != 0 and (parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))):
        return
    raise FormatError(what, expected="an https URL without user and fragment (http only from 127.0.0.1)", found=url)


def parse_discovery(document: bytes, *, issuer: str) -> Mapping[str, object]:
    """
    Return the members of the discovery document of `issuer` (OpenID Connect Discovery 1.0, section 4.3).

    Raises:
        FormatError: if it is not a JSON object, or another issuer's.
    """
    try:
        members = parse_unambiguous(document)
    except ValueError as error:
        raise FormatError("discovery document", expected="a JSON object", found="something else") from error
    if (named := members.get("issuer")) != issuer:
        raise FormatError("issuer in the discovery document", expected=issuer, found=named)
    return members


def url_in(members: Mapping[str, object], name: str) -> str:
    """
    Return a URL that a discovery document names.

    Raises:
        FormatError: if it is missing, or none that may be used.
    """
    url = members.get(name)
    if not isinstance(url, str):
        raise FormatError(f"{name} in the discovery document", expected="a URL", found=url)
    check_url(url, what=f"{name} in the discovery document")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
