"""
What the URL of an upstream may look like, whoever names it: a tenant's administrator or the upstream itself.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

_FORBIDDEN: Final = frozenset("@?#\\ ")


def is_plain_url(uri: str) -> bool:
    """
    Tell whether `uri` is an http or https URL with a host, and with neither user, query nor fragment.
    """
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return False
    is_whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0
    return is_whole and uri.isascii() and uri.isprintable() and _FORBIDDEN.isdisjoint(uri)
