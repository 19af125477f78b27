# SPDX-License-Identifier: Apache-2.0
"""
The duty of the streams: S3 events, the poller, alerts and the outbox, next to a gateway of the same installation.
"""

from __future__ import annotations

import asyncio

from lakeproof.messages import Say
from lakeproof.services import Services
from lakeproof.serving.duties.duty import Ready
from lakeproof.streaming import open_streams


async def stream(services: Services, stop: asyncio.Event, _say: Say, ready: Ready, *, gateway: str) -> None:
    """
    Run the streams; catalogs are polled through the gateway at the URL `gateway`.

    Raises:
        StreamError: if a URL of the settings is not of its form, or its address is not allowed.
        LedgerError: if a log is corrupt.
    """
    async with open_streams(services, gateway=gateway) as streams:
        ready()
        await streams.run(stop)
