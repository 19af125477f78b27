# SPDX-License-Identifier: Apache-2.0
"""
Keeps garbage collections of a process that serves short and few: they examine what was made after its start.

A full collection holds the interpreter, so no request is answered meanwhile, and one large request makes enough objects
to cause one. The objects after a start are 0.1 s of it, and stay. They are frozen (`gc.freeze`), and not thawed again:
a collection writes into every object that it examines, so the process would get a copy of its own of all that it shares
with the process that it was forked from.

Requests leave no cycles behind. Python's own threshold is passed by what a dozen of them hold while they wait, so that
each batch of them would be examined, and nothing found.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_OBJECTS: Final = 10_000
"""Objects made since, and still there, at which young ones are examined: a few milliseconds, and a few MB."""


def freeze_started() -> None:
    """Let no later collection examine the objects that are there now; call it once, when a process is ready."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
