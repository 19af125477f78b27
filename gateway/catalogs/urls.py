"""
What the URL of an upstream may look like, whoever names it (a tenant's administrator or the upstream itself), and
whether two of them lead to the same server. Pure.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

_FORBIDDEN: Final = frozenset("@?#\\ ")
_PORTS: Final = {"http": 80, "https": 443}


def is_plain_url(uri: str) -> bool:
    """
    Tell whether `uri` is an http or https URL with a host, and with neither user, query nor fragment.
    """
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return False
    # A percent sign in the host is an interface of this machine, or another spelling of the host.
    is_whole = parts.scheme in _PORTS and bool(parts.hostname) and port != 0 and "%" not in parts.netloc
    return is_whole and uri.isascii() and uri.isprintable() and _FORBIDDEN.isdisjoint(uri)


def place_of(uri: str) -> tuple[str, int]:
    """
    Return host and port of a plain URL.
    """
    parts = urlsplit(uri)
    return (parts.hostname or "").removesuffix("."), parts.port or _PORTS[parts.scheme]


def is_same_server(uri: str, other: str) -> bool:
    """
    Tell whether whoever is sent from `uri` to `other`, both plain URLs, stays where he is: host, port and TLS.

    To begin with TLS is no move, on the same port or from the one usual port to the other.
    """
    (host, port), (other_host, other_port) = place_of(uri), place_of(other)
    scheme, other_scheme = urlsplit(uri).scheme, urlsplit(other).scheme
    if host != other_host or (scheme, other_scheme) == ("https", "http"):
        return False
    return port == other_port or (scheme, port, other_scheme, other_port) == ("http", 80, "https", 443)
