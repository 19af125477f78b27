# SPDX-License-Identifier: Apache-2.0
"""
Which columns look like personal data: patterns, validators, and what their counts mean.

Read `rules.py` first, then `confidence.py`. `columns.py` counts what an Arrow column holds; a scanner needs of it
`scan_array`, `leaves` and `warm_up`. It is not imported here, because it loads the compiler: whoever only judges counts
does without. Nothing in this package knows of Spark, files or the log.
"""

from __future__ import annotations

from spark_detect.classify.confidence import ColumnFinding, classify
from spark_detect.classify.counts import ColumnCounts, Pattern, PatternCounts
from spark_detect.classify.ruleset import RULESET

__all__ = ["RULESET", "ColumnCounts", "ColumnFinding", "Pattern", "PatternCounts", "classify"]
