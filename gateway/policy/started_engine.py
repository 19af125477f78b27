# SPDX-License-Identifier: Apache-2.0
"""
All that the process of a gateway asks of its policy engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from gateway.policy.engine import POLICY, JudgesRows, PolicyEngine, Tracer
from gateway.policy.inspected import Branch, Inspection
from gateway.policy.restrictions.written import ReadsConditions
from gateway.policy.rule_formulas import ReadsRules

if TYPE_CHECKING:
    from ledger.format.canonical import Json


class AuthorsEngine(PolicyEngine, Protocol):
    """What judges expressions, and inspects them under the name of a log (`pool.WorkerEngine`)."""

    async def inspect(
        self, expression: str, *, zero: Mapping[str, Json], timeout_s: float, kind: str = POLICY, log_id: int
    ) -> Inspection:
        """See `Inspector.inspect`."""

    async def cover(
        self,
        expression: str,
        activations: Sequence[Mapping[str, Json]],
        *,
        timeout_s: float,
        kind: str = POLICY,
        log_id: int,
    ) -> tuple[Branch, ...]:
        """See `Inspector.cover`."""


class StartedEngine(AuthorsEngine, JudgesRows, Tracer, ReadsConditions, ReadsRules, Protocol):
    """An engine that can be started before the first call."""

    async def start(self) -> None:
        """
        Wait until calls can be served. Without it the first call waits for that.

        Raises:
            EngineUnavailableError: if the engine cannot be started.
        """
