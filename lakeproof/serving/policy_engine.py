# SPDX-License-Identifier: Apache-2.0
"""
Starts the policy engine of a process that serves, however long that takes.

A policy worker that needs long to start, or cannot start, does not end the process. Until one is ready, the engine
answers no call, and requests that need a verdict are refused with 503. The operator gets a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from gateway.policy.engine import POLICY, PolicyEngineError, Program
from gateway.policy.started_engine import StartedEngine
from lakeproof.messages import Say

STARTED_WITHIN_S: Final = 10.0
"""How long a start waits for the policy workers before it continues without them."""
PAUSE_S: Final = 1.0
PAUSE_S_MAX: Final = 60.0
PROBE: Final = Program(kind=POLICY, id="probe", version=1, expression="true")
"""A program without effect: evaluating it starts a worker."""
PROBE_TIMEOUT_S: Final = 10.0
CLOSED: Final = "until they do, what needs a verdict is refused with 503"


async def start_policy_engine(
    engine: StartedEngine, say: Say, *, log_id: int, within_s: float = STARTED_WITHIN_S, pause_s: float = PAUSE_S
) -> None:
    """
    Start the workers of `engine`; return when one can serve, however long that takes and however often one cannot.

    `say` is called if that takes longer than `within_s`, and before each new try. The pause before a try begins with
    `pause_s` and doubles up to a minute. `log_id` is the log that the tries are accounted to.
    """
    trouble: list[str] = []

    def tell(text: str) -> None:
        trouble.append(text)
        say(text)

    late = asyncio.get_running_loop().call_later(
        within_s, tell, f"the policy workers have not started within {within_s:g} s: still waiting, and {CLOSED}"
    )
    try:
        error = await _error_of(engine.start())
        while error is not None:
            tell(f"the policy workers do not start ({error}): tried again in {pause_s:g} s, and {CLOSED}")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            # A call starts a worker if there is none.
            error = await _error_of(engine.judge([PROBE], {}, log_id=log_id, timeout_s=PROBE_TIMEOUT_S))
    finally:
        late.cancel()
    if trouble:
        say("the policy workers have started")


async def _error_of(work: Awaitable[object]) -> PolicyEngineError | None:
    """Do `work`; return the error if there is no answer."""
    try:
        await work
    except PolicyEngineError as error:
        return error
    return None
