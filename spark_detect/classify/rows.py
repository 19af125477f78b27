"""
What a kernel returns: one row of four integers a pattern, and what both kernels need to fill it alike.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_detect.classify.counts import Pattern

Rows = npt.NDArray[np.int64]
"""Row p holds candidates, valid ones, cells and spread of `Pattern(p)`."""
Weights = npt.NDArray[np.int64]
"""How often each value counts."""

PATTERNS: Final = len(Pattern)
ROW: Final = 4
CANDIDATES, VALID, CELLS, SPREAD = range(ROW)

BUCKETS: Final = 32
BUCKET_PRIME: Final = 65_521
"""
A social security number falls into bucket area mod 32; a card into (n mod 65,521) mod 32; so does an IBAN, whose n is
its characters, rearranged, to the base 36.
"""


class CountMatches(Protocol):
    """A kernel."""

    def __call__(self, array: pa.Array, weights: Weights | None) -> Rows:
        """
        Return the counts of an array of `large_string` or `large_binary`.

        Value i counts `weights[i]` times, once if there are no weights; null counts nothing.
        """
