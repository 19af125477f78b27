# SPDX-License-Identifier: Apache-2.0
"""
The duty of detection: keep the process of Spark running, which is a process of its own.
"""

from __future__ import annotations

import asyncio

from lakeproof.detecting import keep_detecting
from lakeproof.messages import Say
from lakeproof.services import Services
from lakeproof.serving.duties.duty import Ready
from spark_detect.driver.supervise import DetectionState


async def detect(
    services: Services, stop: asyncio.Event, say: Say, ready: Ready, *, state: DetectionState | None = None
) -> None:
    """
    Run detection; how it is can be seen in `state`.

    Raises:
        DetectionError: if the home cannot be written.
    """
    ready()
    await keep_detecting(services, stop, say, state or DetectionState())
