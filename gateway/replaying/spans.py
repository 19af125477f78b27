# SPDX-License-Identifier: Apache-2.0
"""
How far back a replay goes, as people write it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

EXPECTED: Final = "expected a number with m, h, d or w behind it, as in 30d"
SINCE_DAYS_MAX: Final = 36_500

_SINCE: Final = re.compile(r"([0-9]{1,6})([mhdw])")
_UNITS: Final[Mapping[str, timedelta]] = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


def span_of(text: str) -> timedelta | None:
    """
    Return a span of time like `30d`: a whole number of minutes, hours, days or weeks; None if it is none, or longer
    than a hundred years.
    """
    found = _SINCE.fullmatch(text)
    span = None if found is None else int(found[1]) * _UNITS[found[2]]
    return span if span is not None and timedelta() < span <= timedelta(days=SINCE_DAYS_MAX) else None
