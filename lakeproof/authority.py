"""
The authority: what the name of every log of an installation begins with, fixed before the first of them is made.

Guarantee: every log that is named after an authority that passes can be fetched by its name, below `/log/` of any URL.
One that does not pass could not be mended later: it stands in every entry.
"""

from __future__ import annotations

import re
from typing import Final

from lakeproof.errors import ProvisionError

AUTHORITY_LENGTH_MAX: Final = 200
"""An origin has at most 255 characters; a tenant's id and a successor's number follow."""

_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~:-]+")
_TAKEN: Final = frozenset({".", "..", "tile", "receipt"})
"""What clients resolve away (RFC 3986, section 5.2.4), and what the path of a log's resource begins with."""


def check_authority(authority: str) -> None:
    """
    Check that logs can be named after `authority`: nothing in it has a meaning in URLs or is escaped there.

    Raises:
        ProvisionError: if they cannot.
    """
    segments = authority.split("/")
    can_name = all(_SEGMENT.fullmatch(segment) and segment not in _TAKEN for segment in segments)
    if not can_name or len(authority) > AUTHORITY_LENGTH_MAX:
        raise ProvisionError(
            f"LAKEPROOF_ORIGIN: expected an authority such as logs.example.org/eu, of at most {AUTHORITY_LENGTH_MAX} "
            "letters, digits and . _ ~ : - between single slashes, no part of which is '.', '..', 'tile' or 'receipt', "
            f"found {authority!r:.100}: every log is named after it for ever, and fetched by that name"
        )
