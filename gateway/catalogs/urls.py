# SPDX-License-Identifier: Apache-2.0
"""
URLs of upstreams: which are acceptable, whether a tenant's administrator or the upstream itself names them, and whether
two of them are on the same server. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlsplit

URI: Final = "uri"
"""The option with the URL of a catalog."""
URI_OVERRIDES: Final = "uri-overrides"
"""The option with other URLs, separated by commas, that `/v1/config` may redirect to."""

_FORBIDDEN: Final = frozenset("@?#\\ ")
_PORTS: Final = {"http": 80, "https": 443}


@lru_cache(maxsize=1_000)
def segment(name: str) -> str:
    """
    Return a name as one segment of a path, or as the value of a query.
    """
    return quote(name, safe="")


def is_plain_url(uri: str) -> bool:
    """
    Return whether `uri` is an http or https URL with a host, and with neither user, query nor fragment.
    """
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return False
    # A percent sign in the host is a network interface of this machine, or another spelling of the host.
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
    Return whether `uri` and `other`, both plain URLs, are on the same server: host, port and TLS.

    An upgrade from http to https counts as the same server, on the same port or from port 80 to 443.
    """
    (host, port), (other_host, other_port) = place_of(uri), place_of(other)
    scheme, other_scheme = urlsplit(uri).scheme, urlsplit(other).scheme
    if host != other_host or (scheme, other_scheme) == ("https", "http"):
        return False
    return port == other_port or (scheme, port, other_scheme, other_port) == ("http", 80, "https", 443)


def uris_of(options: Mapping[str, str]) -> list[str]:
    """
    Return the URLs in the option `uri-overrides`.
    """
    return [uri for text in options.get(URI_OVERRIDES, "").split(",") if (uri := text.strip().rstrip("/"))]
