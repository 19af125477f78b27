# SPDX-License-Identifier: Apache-2.0
"""
All that the process of a gateway asks of its policy engine.
"""

from __future__ import annotations

from typing import Protocol

from gateway.policy.engine import JudgesRows, PolicyEngine, Tracer
from gateway.policy.restrictions.written import ReadsConditions


class StartedEngine(PolicyEngine, JudgesRows, Tracer, ReadsConditions, Protocol):
    """An engine that can be started before the first call."""

    async def start(self) -> None:
        """
        Wait until calls can be served. Without it the first call waits for that.

        Raises:
            EngineUnavailableError: if the engine cannot be started.
        """
