# SPDX-License-Identifier: Apache-2.0
"""
The event loop of the processes of `lakeproof up`: uvloop's where it can be had, else asyncio's own.

uvloop runs the same coroutines and protocols, and does in C what asyncio's loop does in Python for each read, write,
timer and callback: a gateway answers more requests with the same processor time. Windows has no uvloop.

What differs is what asyncio leaves open. A transport of uvloop raises RuntimeError once `connection_lost` was called,
where one of asyncio does nothing; it is none of `asyncio.Transport`'s subclasses; and a watched descriptor that reports
an error is not watched any more once its callback was called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

try:
    import uvloop
except ImportError:
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
else:
    new_event_loop = uvloop.new_event_loop
