# SPDX-License-Identifier: Apache-2.0
"""
Replays of policies that are asked for over HTTP: jobs (`gateway/jobs.py`), which the reconciler's process does beside
its other duties, and not a gateway's: reading a page of decisions takes its event loop some milliseconds.

Guarantee: of a tenant one is under way at a time, and none runs for longer than `TIMEOUT_S`. If its process dies,
nothing goes on with it, and another one may be asked for. A result is kept until the next replay of the tenant is asked
for, or somebody of the tenant is erased; what is to stay is attested.

The result names callers by their actors alone. Who they are is looked up when it is shown, as far as it is not erased.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from gateway.commit.gateway import Gateway
from gateway.errors import ConflictError, NotFoundError, UnavailableError
from gateway.identity import Principal
from gateway.jobs import Job, JobKind, Jobs, JobState
from gateway.policy.process import Spawn, spawn_worker
from gateway.policy.scopes import parse_scope
from gateway.replaying.application import NothingToReplayError, replay_slowly
from gateway.replaying.comparing import Change
from gateway.replaying.coverage import coverage_shown
from gateway.replaying.replay import Group, Proposed, Replayed
from ledger.format import canonical
from ledger.format.verification import ProgressCallback
from ledger.store.read import Log

TIMEOUT_S: Final = 600.0
GROUPS_MAX: Final = 200
"""Kinds of changes that a result lists, those of the most decisions; the command lists all."""
SUMS_MAX: Final = 50
"""Principals, tables and rules that a result lists, likewise."""
SUBJECT: Final = "policies"
"""Of every replay: of a tenant one is under way, and the last one is kept."""

RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
LOST: Final = "lost"
"""The process that ran it has died."""

_ORDER: Final = (Change.WIDENED, Change.NARROWED, Change.FAILED, Change.UNKNOWN)
_SHOWN: Final[Mapping[JobState, str]] = {
    JobState.WAITING: RUNNING,
    JobState.RUNNING: RUNNING,
    JobState.CANCELLING: RUNNING,
    JobState.DONE: DONE,
    JobState.FAILED: FAILED,
    JobState.CANCELLED: CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReplay:
    """The last replay of a log: its job, and what was asked."""

    job: Job
    proposal: tuple[Proposed, ...]
    since: datetime

    @property
    def replay(self) -> UUID:
        """Its id."""
        return self.job.id

    @property
    def state(self) -> str:
        """One of this module's states."""
        return LOST if self.job.is_lost else _SHOWN[self.job.state]

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return not self.job.has_ended

    @property
    def waits(self) -> bool:
        """Whether no process has taken it yet."""
        return self.job.state is JobState.WAITING

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled it."""
        return self.job.state in {JobState.CANCELLING, JobState.CANCELLED}

    @property
    def started_at(self) -> datetime:
        """When it was asked for."""
        return self.job.asked_at

    @property
    def done(self) -> int:
        """How many entries are replayed."""
        return self.job.done

    @property
    def total(self) -> int:
        """How many there are to be replayed; 0 if that is not known yet."""
        return self.job.total or 0

    @property
    def ran_s(self) -> int:
        """How long it ran, as far as was heard of it."""
        began_at, until = self.job.began_at, self.job.ended_at or self.job.seen_at
        return 0 if began_at is None or until is None else int((until - began_at).total_seconds())

    @property
    def trouble(self) -> str:
        """Why it failed."""
        return self.job.problem or ""

    @property
    def found(self) -> Mapping[str, Any] | None:
        """What `result_of` made; None unless it is done."""
        return self.job.result


async def begin_replay(
    jobs: Jobs, caller: Principal, proposal: Sequence[Proposed], *, since: datetime, covers: bool = True
) -> UUID:
    """
    Have a proposal replayed over the log of the caller's tenant, and return the id of the replay. With `covers` it
    counts how many decisions have reached each branch.

    Raises:
        ConflictError: if a replay of the tenant is under way.
        TooManyRequestsError: if the tenant has as many jobs as it may have.
        UnavailableError: if the database cannot be reached.
    """
    asked = {"proposal": [each.shown() for each in proposal], "since": canonical.format_time(since), "covers": covers}
    job = await jobs.ask_anew(caller.log_id, JobKind.POLICY_REPLAY, SUBJECT, asked, actor=caller.actor)
    if job is None:
        raise ConflictError(
            "expected no other replay of this tenant, found one that runs: wait for its end, or cancel it",
            kind="ReplayRunningException",
        )
    return job.id


async def last_replay(jobs: Jobs, log_id: int) -> LastReplay | None:
    """
    Return the last replay of a log; None if there was none.

    Raises:
        UnavailableError: if the database cannot be reached.
    """
    job = (await jobs.newest(log_id, JobKind.POLICY_REPLAY)).get(SUBJECT)
    if job is None:
        return None
    proposal, since = parse_asked(job.asked)
    return LastReplay(job=job, proposal=proposal, since=since)


async def cancel_replay(jobs: Jobs, last: LastReplay) -> None:
    """
    Have a replay stopped, by whichever process runs it.

    Raises:
        NotFoundError: if it does not run.
    """
    if await jobs.cancel(last.job) is None:
        raise NotFoundError("expected a replay that runs, found none: it has ended", kind="NotFoundException")


def parse_asked(asked: Mapping[str, Any]) -> tuple[tuple[Proposed, ...], datetime]:
    """
    Return the proposal that a job is to replay, and from when on.
    """
    proposal = tuple(
        Proposed(id=each["id"], expression=each["expression"], scope=parse_scope(each["scope"]))
        for each in asked["proposal"]
    )
    return proposal, canonical.parse_time(asked["since"])


async def replay_asked(
    gateway: Gateway,
    log: Log,
    asked: Mapping[str, Any],
    *,
    progress: ProgressCallback,
    spawn: Spawn = spawn_worker,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, Any]:
    """
    Replay what a job asks for, over the log of its tenant, and return what `result_of` makes of it.

    Raises:
        UnavailableError: if it takes longer than `timeout_s`, or as `replay_since` does.
        NothingToReplayError: if there is no decision.
        BrokenError: if the log is corrupt there.
    """
    if log.tenant is None:
        raise NothingToReplayError("expected the log of a tenant, found the system log: it has no decisions")
    proposal, since = parse_asked(asked)
    far = (0, 0)

    def reached(done: int, of: int) -> None:
        nonlocal far
        far = (done, of)
        progress(done, of)

    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            found = await replay_slowly(
                gateway,
                log.tenant,
                log.log_id,
                proposal,
                since=since,
                progress=reached,
                covers=bool(asked.get("covers")),
                spawn=spawn,
            )
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise UnavailableError(
            f"it was ended, since it took too long, at {far[0]:,} of {far[1]:,} entries: choose a shorter period, or "
            "use `lakeproof policies replay`"
        ) from error
    return result_of(found)


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
        "coverage": coverage_shown(found.coverage),
    }


def replayed_of(result: Mapping[str, Any]) -> Replayed:
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
