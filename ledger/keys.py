"""
Event keys: the one name, in the log, of the thing an event is about.

`table:`, `view:`, `namespace:`, `policy:` … then alias, namespace levels and name joined by `/`, each percent-encoded
(RFC 3986, UTF-8, upper-case hex), so that no two things share a key and a key never needs quoting. FORMATS, "Names".
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, unquote

from ledger.errors import FormatError


def format_key(kind: str, segments: Iterable[str]) -> str:
    """
    Return the event key of the thing of `kind` that `segments` name, outermost first.
    """
    return f"{kind}:" + "/".join(quote(segment, safe="") for segment in segments)


def parse_key(key: str) -> tuple[str, tuple[str, ...]]:
    """
    Return the kind and the segments of an event key.

    Raises:
        FormatError: if `key` is not what `format_key` makes of them.
    """
    kind, colon, rest = key.partition(":")
    segments = tuple(unquote(segment) for segment in rest.split("/"))
    if not colon or not kind or format_key(kind, segments) != key:
        raise FormatError("event key", expected="kind:segment/segment/…, percent-encoded", found=key)
    return kind, segments
