# SPDX-License-Identifier: Apache-2.0
"""A process that ends in the middle of changing what a directory holds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest


def cut_off(patch: pytest.MonkeyPatch, *, at: int) -> None:
    """Let the process end before the change number `at`, from 0: before a file appears whole, or is removed."""
    changes = itertools.count()

    def before(change: Callable[..., None]) -> Callable[..., None]:
        def changing(*arguments: Any, **options: Any) -> None:
            if next(changes) == at:
                raise KeyboardInterrupt
            change(*arguments, **options)

        return changing

    for name in ("replace", "unlink"):
        patch.setattr(os, name, before(getattr(os, name)))
