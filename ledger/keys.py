"""
Event keys: the one name, in the log, of the thing an event is about.

`table:`, `view:`, `namespace:`, `policy:` … then alias, namespace levels and name joined by `/`, each percent-encoded
(RFC 3986, UTF-8, upper-case hex), so that no two things share a key and a key never needs quoting: docs/formats.md,
"Event keys".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from ledger.errors import FormatError

_KIND = re.compile(r"[a-z][a-z_]*")


def format_key(kind: str, segments: Iterable[str]) -> str:
    """
    Return the event key of the thing of `kind` that `segments` name, outermost first.

    Raises:
        FormatError: if `kind` is not a lower-case word, or there is no segment, or an empty one, or one without a UTF-8
            form: two things would share a key, or a key would name nothing.
    """
    if not _KIND.fullmatch(kind):
        raise FormatError("event key", expected="a lower-case word before the colon", found=kind)
    names = list(segments)
    if not all(names) or not names:
        raise FormatError("event key", expected="one segment or more, none of them empty", found=names)
    try:
        return f"{kind}:" + "/".join(quote(name, safe="") for name in names)
    except UnicodeEncodeError as error:
        raise FormatError("event key", expected="segments with a UTF-8 form", found=names) from error


def parse_key(key: str) -> tuple[str, tuple[str, ...]]:
    """
    Return the kind and the segments of an event key.

    Raises:
        FormatError: if `key` is not what `format_key` makes of them.
    """
    kind, _, rest = key.partition(":")
    segments = tuple(unquote(segment) for segment in rest.split("/"))
    if format_key(kind, segments) != key:
        raise FormatError("event key", expected="kind:segment/segment/…, percent-encoded", found=key)
    return kind, segments
