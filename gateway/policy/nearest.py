# SPDX-License-Identifier: Apache-2.0
"""
The known name that is most like one that was written, for the error that refuses the latter.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """
    Return the one of `known` (at least one) that is most like `name`; of several, the first in their order.
    """
    return difflib.get_close_matches(name, list(known), n=1, cutoff=0)[0]
