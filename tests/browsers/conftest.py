# SPDX-License-Identifier: Apache-2.0
"""Every test in browsers tells which of them visited the console."""

from __future__ import annotations

from typing import Any

import pytest

from testkit.gateway.console.browser_report import visits

__all__ = ["visits"]


@pytest.fixture(autouse=True)
def _visits(visits: Any) -> None:
    assert visits is None
