# SPDX-License-Identifier: Apache-2.0
"""
A catalog that does not answer is asked soon again, but never more often than a bound.
"""

from __future__ import annotations

from gateway.reconcile.silence import CHECKS_PER_S, PAUSE_S_LEAST, PAUSE_S_MAX, NamedCatalog, SilentCatalogs


def test_the_more_keys_wait_for_a_catalog_the_rarer_each_is_checked() -> None:
    silent, far, near = SilentCatalogs(), NamedCatalog(1, "far"), NamedCatalog(1, "near")
    for count in range(1, 10_000):
        pause_s = silent.wait(far, f"table:far/sales/t{count}").total_seconds()
        assert PAUSE_S_LEAST <= pause_s <= PAUSE_S_MAX
        assert count / pause_s <= CHECKS_PER_S or pause_s == PAUSE_S_MAX
    assert silent.wait(near, "table:near/sales/t").total_seconds() == PAUSE_S_LEAST
    assert len(silent.answered(far)) == count
    assert not silent.answered(far)
    assert silent.wait(far, "table:far/sales/t1").total_seconds() == PAUSE_S_LEAST
