"""
Which kernel counts: the compiled one, or, where numba cannot be imported, the one of Arrow's regular expressions.

This is the only place that chooses. Both give the same counts.
"""

from __future__ import annotations

from spark_detect.classify.rows import CountMatches

count_matches: CountMatches
try:
    from spark_detect.classify.compiled import count_matches as _compiled
except ImportError:
    from spark_detect.classify.fallback import count_matches as _fallback

    count_matches = _fallback
    KERNEL = "pyarrow"
else:
    count_matches = _compiled
    KERNEL = "numba"
