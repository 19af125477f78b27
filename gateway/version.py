# SPDX-License-Identifier: Apache-2.0
"""
The version of the distribution that is installed.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

UNRELEASED: Final = "unreleased"
"""The version of what is run from its source without being installed."""


def installed_version() -> str:
    """
    Return the version that is installed, or `UNRELEASED`.
    """
    try:
        return version("lakeproof")
    except PackageNotFoundError:
        return UNRELEASED
