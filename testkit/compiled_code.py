# SPDX-License-Identifier: Apache-2.0
"""
Has numba compile what detection and verification compile at their first call: `python -m testkit.compiled_code`.

That takes a quarter of a minute, and numba keeps the result next to the source. Done before the tests, it is done once,
and not by each of their processes that come to it while another is compiling.
"""

from __future__ import annotations

from ledger.format.verification import EntryRules
from ledger.verify.fast import FastPath
from spark_detect.classify.columns import warm_up


def compile_verification() -> bool:
    """Call each compiled function of the verification of pages on a page without entries; return whether they ran."""
    fast, rules = FastPath(), EntryRules(origin="nobody.invalid/log", where=str)
    pages = (fast.bundle_page(0, 0), fast.rows_page(b"", 0))
    return all(page is not None and fast.accept_rows(page, rules) == -1 for page in pages)


if __name__ == "__main__":
    warm_up()
    if not compile_verification():
        raise SystemExit("expected an empty page of entries to be accepted, found that it is not")
