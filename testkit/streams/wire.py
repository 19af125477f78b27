# SPDX-License-Identifier: Apache-2.0
"""A connection to PostgreSQL that a test can cut, and leases short enough to wait for."""

from __future__ import annotations

from dataclasses import dataclass

from testkit.ledger.cutting_proxy import CuttingProxy

LEASE_S = 0.3
"""A lease short enough that a test can wait for its end."""


@dataclass(frozen=True, slots=True)
class Wire:
    """What the streams' connections go through."""

    proxy: CuttingProxy
    dsn: str
