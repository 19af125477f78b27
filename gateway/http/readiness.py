# SPDX-License-Identifier: Apache-2.0
"""
Whether this process can take commits now, and if not, why: the database, the logs, and what judges policies.

Anyone may ask, so the answer is found out once a second at most, however often it is asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from gateway.commit.gateway import Gateway
from gateway.database import outage_as_unavailable
from gateway.errors import UnavailableError
from gateway.policy.engine import POLICY, Outcome, PolicyEngineError, Program
from ledger.store.queries import load_queries

KNOWN_S: Final = 1.0
JUDGING_S: Final = 2.0
DATABASE: Final = "the database cannot be reached: start it, or check LAKEPROOF_DSN"
LOGS: Final = (
    "the logs take no entries: the signer has not confirmed them since the database was started; see what it says"
)
POLICIES: Final = "policies and access rules cannot be judged: the process that judges them does not answer"

_QUERIES: Final = load_queries("gateway", "readiness.sql")
_PROGRAM: Final = Program(kind=POLICY, id="ready", version=1, expression="true")
_NOBODYS_LOG: Final = 0

_log = logging.getLogger(__name__)


class Readiness:
    """What is known of the readiness of one process. Event loop only."""

    def __init__(self, gateway: Gateway, *, clock: Callable[[], float] = monotonic) -> None:
        self._gateway = gateway
        self._clock = clock
        self._looking = asyncio.Lock()
        self._reasons: list[str] = []
        self._known_until_s = 0.0

    async def reasons(self) -> list[str]:
        """Return why this process is not ready; nothing if it is."""
        async with self._looking:
            if self._clock() >= self._known_until_s:
                self._reasons = [*await self._of_database(), *await self._of_policies()]
                self._known_until_s = self._clock() + KNOWN_S
            return self._reasons

    async def _of_database(self) -> list[str]:
        gateway = self._gateway
        try:
            with outage_as_unavailable(DATABASE):
                async with gateway.database.as_role(gateway.roles.auditor) as connection:
                    row = await (await connection.execute(_QUERIES["takes_entries"])).fetchone()
        except UnavailableError as error:
            return [str(error)]
        return [] if row is not None and row[0] else [LOGS]

    async def _of_policies(self) -> list[str]:
        try:
            verdicts = await self._gateway.judge.engine.judge([_PROGRAM], {}, log_id=_NOBODYS_LOG, timeout_s=JUDGING_S)
        except PolicyEngineError as error:
            _log.warning("%s: %s", POLICIES, error)
            return [POLICIES]
        return [] if [verdict.outcome for verdict in verdicts] == [Outcome.ALLOW] else [POLICIES]
