# SPDX-License-Identifier: Apache-2.0
"""
The calls of the policy engine while they wait, and which of them a process answers together.

Many commits arrive at the same time, and a frame there and back costs more than a few quick policies. So calls of
tenants whose calls were quick, and which wait at the same time, are sent together: a *bundle*.

Guarantee: a bundle is expected to take no longer than `BUNDLE_S`, by what the calls of its tenants took before. It only
ever answers calls that were judged to the end. If it is stopped, or its process ends, the others are judged again, each
alone: so what one of them does is known of that one, and has no effect on the verdicts of the others.

Shared state belongs to the event loop; no locks are needed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from gateway.policy.engine import DeadlineExceededError, EngineUnavailableError, PolicyEngineError
from gateway.policy.frames import format_frame
from gateway.policy.judge_requests import JudgeRequest
from gateway.policy.kept_values import KnownValues
from gateway.policy.lines import LineFullError, Lines
from gateway.policy.progress import NOTHING_JUDGED, Judged

SHORT_BYTES_MAX: Final = 256 * 2**10
"""A larger call starts in the long lane: reading and converting it takes much of a slice."""
BUNDLE_S: Final = 0.005
"""Half the time that any call may take (`lines.QUICK_S`)."""
BUNDLE_CALLS_MAX: Final = 16
EXPECTED_MAX: Final = 4_096
"""Tenants whose last calls are remembered."""

WAITED_LONGER: Final = (
    "the policy engine is busy: nothing was evaluated within the time limit of {:g} s for waiting; try again when the "
    "gateway is less busy"
)


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """
    One request: to judge, or the frame of another one. `results` has what is sent before the last frame.

    `judged` is what is known of its programs, also of a judging that was interrupted.
    """

    number: int
    log_id: int
    timeout_s: float
    waiting_s: float
    """The caller's time limit for waiting: suspended while the call is at work, whose time its seat bounds."""
    request: JudgeRequest | bytes
    finished: asyncio.Future[None]
    is_alone: bool = False
    """Whether it is not to be judged together with others."""
    running: bool = False
    charged_s: float = 0.0
    """What its tenant was charged for it before it began."""
    is_answered: bool = False
    used_s: float = 0.0
    """The time of the process for it, once it has ended."""
    results: list[dict[str, Any]] = field(default_factory=list)
    judged: Judged = NOTHING_JUDGED
    _patience: asyncio.TimerHandle | None = None
    _patience_ends_s: float | None = None

    @property
    def size_bytes(self) -> int:
        """Its memory while it waits."""
        return len(self.request) if isinstance(self.request, bytes) else self.request.size_bytes

    def wait(self) -> None:
        """It waits, perhaps once more: the time limit for that stays as it was."""
        loop = asyncio.get_running_loop()
        self.running = False
        if self._patience_ends_s is None:
            self._patience_ends_s = loop.time() + self.waiting_s
        self._patience = loop.call_at(self._patience_ends_s, self._tire)

    def _tire(self) -> None:
        self.finish(DeadlineExceededError(WAITED_LONGER.format(self.waiting_s)))

    def begin(self) -> None:
        """The work starts, perhaps once more."""
        self.running, self.is_answered, self.judged = True, False, NOTHING_JUDGED
        self.results.clear()
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        self._stop_waiting()
        self.finished.cancel()

    def finish(self, error: PolicyEngineError | None = None) -> None:
        """Pass the result to the caller, unless it has gone."""
        self._stop_waiting()
        if self.finished.done():
            return
        if error is None:
            self.finished.set_result(None)
        else:
            self.finished.set_exception(error)


def frame_of(bundle: Sequence[Call], known: KnownValues | None) -> bytes:
    """
    Return the frame that asks for all calls of a bundle, without the values that are `known`; None: all are in it.

    Raises:
        FrameError: if it cannot be written.
    """
    first = bundle[0]
    if isinstance(first.request, bytes):
        return first.request
    asked = [call.request.asked(known) for call in bundle if isinstance(call.request, JudgeRequest)]
    timeout_s = max(call.timeout_s for call in bundle)
    return format_frame({"call": first.number, "judge": asked, "timeout_s": float(timeout_s)})


class Expected:
    """How long the next call of a tenant is expected to take, by what its last ones took."""

    def __init__(self, *, tenants_max: int = EXPECTED_MAX) -> None:
        self._tenants_max = tenants_max
        self._expected_s: OrderedDict[int, float] = OrderedDict()

    def of(self, log_id: int) -> float:
        """Return the seconds; infinitely many if nothing is known."""
        return self._expected_s.get(log_id, inf)

    def note(self, log_id: int, used_s: float) -> None:
        """Note what a call has taken: one that took long is expected for some time."""
        self._expected_s[log_id] = max(used_s, self._expected_s.get(log_id, 0.0) / 2)
        self._expected_s.move_to_end(log_id)
        if len(self._expected_s) > self._tenants_max:
            self._expected_s.popitem(last=False)


@dataclass(slots=True, eq=False, kw_only=True)
class Lane:
    """
    Calls that wait for the same processes, of which there are `seats`; `slice_s` is the limit of one conversation.

    With `bundles`, calls to judge that are expected to be quick are taken together.
    """

    seats: int = 1
    slice_s: float = inf
    gives_way: bool = False
    bundles: bool = False
    lines: Lines[Call] = field(default_factory=Lines)
    filled: asyncio.Event = field(default_factory=asyncio.Event)
    expected: Expected = field(default_factory=Expected)

    async def take(self) -> list[Call]:
        """Return the next call, as soon as there is one, or the next ones that are judged together."""
        while not len(self.lines):
            self.filled.clear()
            await self.filled.wait()
        bundle, left_s, left_bytes = [self.lines.take()], BUNDLE_S, SHORT_BYTES_MAX
        while self.bundles and len(bundle) < BUNDLE_CALLS_MAX and len(self.lines):
            last = bundle[-1]
            expected_s = self._expected_s(last)
            left_s -= expected_s
            left_bytes -= last.size_bytes
            if left_s <= 0:
                break
            # What it will have used counts now, so that another tenant's call may come next.
            last.charged_s += expected_s
            self.lines.charge(last.log_id, expected_s)
            other = self.lines.next()
            if self._expected_s(other) > left_s or other.size_bytes > left_bytes:
                break
            bundle.append(self.lines.take())
        return bundle

    def _expected_s(self, call: Call) -> float:
        is_bundled = isinstance(call.request, JudgeRequest) and not call.is_alone and call.timeout_s >= self.slice_s
        return self.expected.of(call.log_id) if is_bundled else inf

    def put(self, call: Call) -> None:
        """
        Let `call` wait.

        Raises:
            EngineUnavailableError: if too much waits already.
        """
        try:
            gave_way = self.lines.put(call)
        except LineFullError as error:
            raise EngineUnavailableError(f"the policy engine is busy: {error}") from error
        for other in gave_way:
            other.finish(EngineUnavailableError("the policy engine is busy: too many calls wait, most of this tenant"))
        self.filled.set()
