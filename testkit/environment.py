# SPDX-License-Identifier: Apache-2.0
"""Where the project lies, and what a test does when something it needs is missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

PROJECT = Path(__file__).resolve().parents[1]
PATIENCE_S = 60.0
"""How long a client of tests waits for a server's answer; httpx gives up after 5 s, which a busy machine may take."""
SHARED_DATA = PROJECT.parent / "shared" / "data"


def missing(reason: str) -> NoReturn:
    """Fail in CI, skip elsewhere: what a test needs is not here."""
    if os.environ.get("CI", "").lower() not in {"", "0", "false"}:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
