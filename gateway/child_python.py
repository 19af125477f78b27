# SPDX-License-Identifier: Apache-2.0
"""
How a gateway process starts a Python process of its own: with our modules, and with nothing else of its environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_SOURCES: Final = Path(__file__).resolve().parents[1]
"""The child's PYTHONPATH: not the working directory, which others may be able to write to (hence `-P`)."""

_INHERITED: Final = ("LD_LIBRARY_PATH",)
"""Variables without which a Python outside of the system's folders does not start."""


def child_command(module: str, *arguments: str) -> tuple[str, ...]:
    """
    Return the command that runs a module of ours in a process of its own.
    """
    return sys.executable, "-P", "-m", module, *arguments


def child_environment() -> Mapping[str, str]:
    """
    Return the environment of such a process. Ours may contain secrets, and none of it is inherited that is not needed.
    """
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**inherited, "PYTHONPATH": str(_SOURCES)}
