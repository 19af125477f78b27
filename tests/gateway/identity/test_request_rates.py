# SPDX-License-Identifier: Apache-2.0
"""
Limits of requests a second: of a tenant and of each caller, over all processes, with memory that nobody locks.
"""

from __future__ import annotations

import os
from contextlib import suppress
from uuid import UUID, uuid4

import pytest

from gateway.errors import TooManyRequestsError
from gateway.identity import request_rates
from gateway.identity.request_rates import SLOTS, Limits, RequestRates, SharedCounts

ACME, GLOBEX = UUID(int=1), UUID(int=2)


class World:
    """Some processes with one clock."""

    def __init__(self, limits: Limits, processes: int = 1) -> None:
        self.now_s = 1_000.0
        self.refused: list[str] = []
        counts = SharedCounts(processes)
        self.processes = [
            RequestRates(limits, counts, own, monotonic_s=lambda: self.now_s, on_refused=self.refused.append)
            for own in range(processes)
        ]

    def admitted(self, times: int, *, tenant: UUID = ACME, actor: str = "ada", process: int | None = None) -> int:
        """Send requests, in turn to all processes or to one; return how many were admitted."""
        count = 0
        for number in range(times):
            rates = self.processes[number % len(self.processes) if process is None else process]
            try:
                rates.admit(tenant, actor)
            except TooManyRequestsError:
                continue
            count += 1
        return count


def test_without_limits_everything_is_admitted() -> None:
    assert World(Limits()).admitted(10_000) == 10_000


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_a_limit_holds_over_all_processes_however_requests_are_spread(processes: int) -> None:
    spread = World(Limits(tenant=100), processes)
    assert spread.admitted(500) == 100
    uneven = World(Limits(tenant=100), processes)
    assert sum(uneven.admitted(90, process=process) for process in range(processes)) == min(100, 90 * processes)


def test_a_caller_over_its_limit_takes_nothing_from_others() -> None:
    world = World(Limits(tenant=100, caller=20))
    assert world.admitted(500, actor="eve") == 20
    assert sum(world.admitted(20, actor=f"a{number}") for number in range(4)) == 80
    assert world.admitted(1, actor="late") == 0, "the tenant's limit is reached"
    assert world.admitted(20, tenant=GLOBEX) == 20, "another tenant's is not"
    assert world.refused == ["caller"] * 480 + ["tenant"]


def test_a_second_later_there_is_room_again_and_no_burst_at_its_turn() -> None:
    world = World(Limits(tenant=100), 2)
    world.now_s = 1_000.9
    assert world.admitted(500) == 100
    world.now_s = 1_001.1
    assert world.admitted(500) == pytest.approx(10, abs=1), "nine tenths of the last second's count still"
    world.now_s = 1_001.95
    assert world.admitted(500) == pytest.approx(85, abs=6)
    world.now_s = 1_010.0
    assert world.admitted(500) == 100


def test_a_steady_rate_below_the_limit_is_never_refused() -> None:
    world = World(Limits(tenant=100, caller=100), 3)
    for _ in range(950):
        world.now_s += 1 / 95
        assert world.admitted(1) == 1


def test_more_callers_than_there_is_room_for_are_not_limited_by_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_rates, "SLOTS", 16)
    world = World(Limits(caller=5))
    for _ in range(200):
        assert world.admitted(1, actor=str(uuid4())) == 1


def test_old_counters_make_room_for_new_ones() -> None:
    world = World(Limits(caller=5))
    for number in range(2 * SLOTS):
        if number % 1_000 == 0:
            world.now_s += 2.0
        assert world.admitted(1, actor=f"a{number}") == 1
    assert world.admitted(10, actor="new") == 5


def test_processes_that_are_forked_share_what_they_count() -> None:
    counts, limits = SharedCounts(3), Limits(tenant=300)
    children = []
    for own in (1, 2):
        read, write = os.pipe()
        if not (pid := os.fork()):
            rates, admitted = RequestRates(limits, counts, own), 0
            for _ in range(2_000):
                try:
                    rates.admit(ACME, f"caller-{own}")
                    admitted += 1
                except TooManyRequestsError:
                    pass
            os.write(write, str(admitted).encode())
            os._exit(0)
        os.close(write)
        children.append((pid, read))
    total = 0
    for pid, read in children:
        total += int(os.read(read, 20))
        os.close(read)
        assert os.waitpid(pid, 0)[1] == 0
    # Both began within one second, or the next one had begun.
    assert 300 <= total <= 2 * 330, total
    ours, count = RequestRates(limits, counts, 0), 0
    with suppress(TooManyRequestsError):
        for _ in range(1_000):
            ours.admit(ACME, "late")
            count += 1
    assert count <= 330, "what the others have counted is seen here"
