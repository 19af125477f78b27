# SPDX-License-Identifier: Apache-2.0
"""
The duty of purges: delete the files of tables that were dropped with them.
"""

from __future__ import annotations

import asyncio

from gateway.purging.purger import Purger
from lakeproof.messages import Say
from lakeproof.services import Services, storage_properties
from lakeproof.serving.duties.duty import Ready


async def purge(services: Services, stop: asyncio.Event, _say: Say, ready: Ready) -> None:
    """
    Complete purges until `stop` is set.

    Raises:
        LedgerError: if a log is corrupt.
    """
    bell = services.notifier.subscribe()
    try:
        ready()
        await Purger(services.gateway, storage=storage_properties(services.installation.settings)).run(stop, bell)
    finally:
        services.notifier.unsubscribe(bell)
