# SPDX-License-Identifier: Apache-2.0
"""
Replays that run in a gateway's process, beside commits, and are looked at from any process of the gateway.

Guarantee: of a tenant one runs at a time, and none for longer than `TIMEOUT_S`. A row of `gateway.policy_replays` says
how far the last one of each log is; its process says so every `BEAT_S`. If it has not for `SILENT_S`, the process has
ended and the replay with it: nothing goes on with it, and another one may begin. A result is kept until the next replay
of the tenant begins; what is to stay is attested.

The result names callers by their actors alone. Who they are is looked up when it is shown, as far as it is not erased.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson

from gateway.commit.gateway import Gateway
from gateway.errors import ConflictError, GatewayError, NotFoundError, UnavailableError
from gateway.identity import Principal
from gateway.policy.process import Spawn, spawn_worker
from gateway.policy.scopes import parse_scope
from gateway.replaying.application import replay_beside_commits
from gateway.replaying.comparing import Change
from gateway.replaying.replay import Group, Proposed, Replayed, proposal_bytes
from ledger.errors import LedgerError
from ledger.store.queries import load_queries

RUNNING_MAX: Final = 2
"""In one process, of different tenants: each keeps a worker process busy."""
TIMEOUT_S: Final = 600.0
BEAT_S: Final = 1.0
SILENT_S: Final = 30
GROUPS_MAX: Final = 200
"""Kinds of changes that a result lists, those of the most decisions; the command lists all."""
SUMS_MAX: Final = 50
"""Principals, tables and rules that a result lists, likewise."""
TROUBLE_LENGTH_MAX: Final = 2_000

RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
LOST: Final = "lost"
"""The process that ran it has ended: what nobody could write down."""

_QUERIES: Final = load_queries("gateway", "replays.sql")
_ORDER: Final = (Change.WIDENED, Change.NARROWED, Change.FAILED, Change.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReplay:
    """
    The last replay of a log: `done` of `total` entries so far, after `ran_s` seconds.

    `state` is one of this module's. `found` is what `result_of` made, None unless it is done; `trouble` says why it
    failed.
    """

    replay: UUID
    actor: str
    proposal: tuple[Proposed, ...]
    since: datetime
    started_at: datetime
    done: int
    total: int
    ran_s: int
    state: str
    is_cancelled: bool
    trouble: str
    found: dict[str, Any] | None

    @property
    def runs(self) -> bool:
        """Whether it still runs."""
        return self.state == RUNNING


class ReplayJobs:
    """The replays that run in this process. Event loop only."""

    def __init__(self, *, spawn: Spawn = spawn_worker, timeout_s: float = TIMEOUT_S, beat_s: float = BEAT_S) -> None:
        self._spawn = spawn
        self._timeout_s = timeout_s
        self._beat_s = beat_s
        self._running: set[asyncio.Task[None]] = set()
        self._count = 0
        """With those that are about to begin."""

    async def begin(
        self, gateway: Gateway, caller: Principal, proposal: Sequence[Proposed], *, since: datetime
    ) -> UUID:
        """
        Begin to replay a proposal over the log of the caller's tenant, and return the id of the replay.

        Raises:
            ConflictError: if a replay of the tenant runs already.
            UnavailableError: if this process runs enough of them, or the database cannot be reached.
        """
        if self._count >= RUNNING_MAX:
            raise UnavailableError("this process replays policies of other tenants now: try again in some minutes")
        replay = gateway.new_group_id()
        row = {
            "log_id": caller.log_id,
            "replay": replay,
            "actor": caller.actor,
            "proposal": proposal_bytes(proposal).decode(),
            "since": since,
            "silent_s": SILENT_S,
        }
        self._count += 1
        has_begun = False
        try:
            has_begun = bool(await _execute(gateway, "begin_replay", row))
        finally:
            self._count -= not has_begun
        if not has_begun:
            raise ConflictError(
                "expected no other replay of this tenant, found one that runs: wait for its end, or cancel it",
                kind="ReplayRunningException",
            )
        job = _Job(gateway, caller, replay, tuple(proposal), since, self._spawn)
        task = asyncio.create_task(job.run(timeout_s=self._timeout_s, beat_s=self._beat_s))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return replay

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._count -= 1

    async def wait(self) -> None:
        """Wait until none runs in this process any more."""
        if self._running:
            await asyncio.wait(list(self._running))


async def last_replay(gateway: Gateway, log_id: int) -> LastReplay | None:
    """
    Return the last replay of a log; None if there was none.

    Raises:
        UnavailableError: if the database cannot be reached.
    """
    rows = await _execute(gateway, "last_replay", {"log_id": log_id, "silent_s": SILENT_S})
    if not rows:
        return None
    (row,) = rows
    replay, actor, proposal, since, started_at, done, total, is_cancelled, state, trouble, found, is_silent, ran_s = row
    return LastReplay(
        replay=replay,
        actor=actor,
        proposal=parse_proposal(proposal),
        since=since,
        started_at=started_at,
        done=done,
        total=total,
        ran_s=ran_s,
        state=LOST if state == RUNNING and is_silent else state,
        is_cancelled=is_cancelled,
        trouble=trouble,
        found=orjson.loads(found) if found else None,
    )


async def cancel_replay(gateway: Gateway, log_id: int, replay: UUID) -> None:
    """
    Have a replay stopped, by whichever process runs it.

    Raises:
        NotFoundError: if it does not run.
    """
    if not await _execute(gateway, "cancel_replay", {"log_id": log_id, "replay": replay}):
        raise NotFoundError("expected a replay that runs, found none: it has ended", kind="NotFoundException")


def parse_proposal(text: str) -> tuple[Proposed, ...]:
    """
    Return the proposal whose canonical JSON `proposal_bytes` has made.
    """
    return tuple(
        Proposed(id=each["id"], expression=each["expression"], scope=parse_scope(each["scope"]))
        for each in orjson.loads(text)
    )


def result_of(found: Replayed) -> dict[str, Any]:
    """
    Return what a replay has found as JSON: all counts and digests, and the changes of the most decisions.
    """
    groups = sorted(found.groups, key=lambda group: (_ORDER.index(group.change), -group.count))
    listed = groups[:GROUPS_MAX]
    return {
        "first": found.first,
        "end": found.end,
        "decisions": found.decisions,
        "counts": {change.value: found.counts[change] for change in Change},
        "digests": {"proposal": found.proposal, "inputs": found.inputs, "verdicts": found.verdicts},
        "changes": [
            {
                "change": group.change.value,
                "rule": group.rule,
                "key": group.key,
                "actor": group.actor,
                "why": group.why,
                "first": group.first,
                "decisions": group.count,
            }
            for group in listed
        ],
        "not_listed": found.ungrouped + sum(group.count for group in groups[GROUPS_MAX:]),
        "by_principal": _sums(groups, lambda group: group.actor),
        "by_table": _sums(groups, lambda group: group.key),
        "by_rule": _sums(groups, lambda group: group.rule),
    }


def replayed_of(result: dict[str, Any]) -> Replayed:
    """
    Return what is attested of a result that `result_of` has made.
    """
    counts: Counter[Change] = Counter({Change(name): count for name, count in result["counts"].items()})
    return Replayed(
        first=result["first"],
        end=result["end"],
        proposal=result["digests"]["proposal"],
        inputs=result["digests"]["inputs"],
        verdicts=result["digests"]["verdicts"],
        decisions=result["decisions"],
        counts=counts,
    )


def _sums(groups: Iterable[Group], of: Callable[[Group], str]) -> list[dict[str, Any]]:
    """Return how many decisions of each principal, table or rule change how; `first` is the index of one of them."""
    sums: dict[str, Counter[str]] = {}
    first: dict[str, int] = {}
    for group in groups:
        sums.setdefault(of(group), Counter())[group.change.value] += group.count
        first.setdefault(of(group), group.first)
    most = sorted(sums, key=lambda name: -sums[name].total())[:SUMS_MAX]
    return [
        {"of": name, "first": first[name], "counts": {change.value: sums[name][change.value] for change in _ORDER}}
        for name in most
    ]


class _Job:
    """One replay while it runs. `done` and `total` count entries."""

    def __init__(
        self,
        gateway: Gateway,
        caller: Principal,
        replay: UUID,
        proposal: tuple[Proposed, ...],
        since: datetime,
        spawn: Spawn,
    ) -> None:
        self._gateway = gateway
        self._caller = caller
        self._replay = replay
        self._proposal = proposal
        self._since = since
        self._spawn = spawn
        self._done, self._total = 0, 0

    async def run(self, *, timeout_s: float, beat_s: float) -> None:
        """Replay, say how far it is, and write down what became of it."""
        work = asyncio.create_task(self._replayed())
        # Without the database nothing can be written down: whoever looks is told that nothing was heard of it.
        with suppress(UnavailableError):
            try:
                trouble = await self._watch(work, until_s=_now_s() + timeout_s, beat_s=beat_s)
                if trouble is not None:
                    await self._end(FAILED if trouble else CANCELLED, trouble)
                    return
                try:
                    result = result_of(work.result())
                except (GatewayError, LedgerError) as error:
                    await self._end(FAILED, str(error))
                else:
                    self._done = self._total
                    await self._end(DONE, found=orjson.dumps(result).decode())
            finally:
                work.cancel()
                await asyncio.wait([work])

    async def _watch(self, work: asyncio.Task[Replayed], *, until_s: float, beat_s: float) -> str | None:
        """Wait until the work is done: None. Or return why it has to end before: empty if it is not wanted any more."""
        while True:
            await asyncio.wait([work], timeout=beat_s)
            if work.done():
                return None
            if not await self._goes_on():
                return ""
            if _now_s() > until_s:
                return (
                    f"it was ended, since it took too long, at {self._done:,} of {self._total:,} entries: choose a "
                    "shorter period, or use `lakeproof policies replay`"
                )

    async def _replayed(self) -> Replayed:
        return await replay_beside_commits(
            self._gateway,
            self._caller.tenant,
            self._caller.log_id,
            self._proposal,
            since=self._since,
            progress=self._progress,
            spawn=self._spawn,
        )

    def _progress(self, done: int, of: int) -> None:
        self._done, self._total = done, of

    async def _goes_on(self) -> bool:
        """Say how far it is, and return whether it is still wanted."""
        return bool(await _execute(self._gateway, "go_on_with_replay", self._row))

    async def _end(self, state: str, trouble: str = "", found: str = "") -> None:
        values = {"state": state, "trouble": trouble[:TROUBLE_LENGTH_MAX], "found": found}
        await _execute(self._gateway, "end_replay", {**self._row, **values}, returns=False)

    @property
    def _row(self) -> dict[str, object]:
        return {"log_id": self._caller.log_id, "replay": self._replay, "done": self._done, "total": self._total}


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _execute(
    gateway: Gateway, query: str, values: dict[str, object], *, returns: bool = True
) -> Sequence[tuple[Any, ...]]:
    """Execute a query as the gateway's role, and return its rows, if it `returns` any."""
    async with gateway.database.as_role(gateway.roles.gateway) as connection:
        cursor = await connection.execute(_QUERIES[query], values)
        return await cursor.fetchall() if returns else ()
