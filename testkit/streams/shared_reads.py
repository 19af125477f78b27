# SPDX-License-Identifier: Apache-2.0
"""Metadata reads that many tests share: a process that reads is loaded once, and not once per test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from projections.lake.storage import Storage
from streams.metadata.parse import TableSnapshots
from streams.metadata.reader import READ_TIMEOUT_S, MetadataReaderPool


class SharedReads:
    """A pool on an event loop that outlives the tests' own (implements `streams.handlers.observe.MetadataReader`)."""

    def __init__(self, pool: MetadataReaderPool, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._loop = loop

    @property
    def pids(self) -> frozenset[int]:
        """The ids of the processes that run now."""
        return self._pool.pids

    async def read(self, storage: Storage, location: str) -> TableSnapshots:
        """Return what the pool does, and raise what it raises."""
        reading = asyncio.run_coroutine_threadsafe(self._pool.read(storage, location), self._loop)
        return await asyncio.wrap_future(reading)


@contextmanager
def shared_reads(*, timeout_s: float = READ_TIMEOUT_S) -> Iterator[SharedReads]:
    """Yield reads whose processes end with the context."""
    loop, pool = asyncio.new_event_loop(), MetadataReaderPool(timeout_s=timeout_s)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield SharedReads(pool, loop)
    finally:
        asyncio.run_coroutine_threadsafe(pool.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
