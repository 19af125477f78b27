# SPDX-License-Identifier: Apache-2.0
"""
Keeps full garbage collections of a process that serves short: they examine new objects, not all of them.

A full collection holds the interpreter, so no request is answered meanwhile: 0.1 s for the objects after a start, more
for what is cached later. One large request makes enough objects to cause one. So objects that survive a full collection
are frozen (`gc.freeze`): reference counts still free them, and cycles among them are looked for once an hour.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

SWEEP_S: Final = 3_600.0
"""How often a full collection examines all objects."""
_FULL: Final = 2
"""The oldest generation."""


@contextmanager
def short_collections(monotonic_s: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Keep full collections short while the context is open; one per process."""
    swept_s = monotonic_s()

    def on_collection(phase: str, about: Mapping[str, int]) -> None:
        nonlocal swept_s
        if about["generation"] != _FULL:
            return
        if phase == "stop":
            gc.freeze()
        elif monotonic_s() - swept_s >= SWEEP_S:
            swept_s = monotonic_s()
            gc.unfreeze()

    gc.callbacks.append(on_collection)
    try:
        gc.collect()
        yield
    finally:
        gc.callbacks.remove(on_collection)
        gc.unfreeze()
