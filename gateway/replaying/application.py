# SPDX-License-Identifier: Apache-2.0
"""
Replays a proposal over a tenant's log, and records what it found: for `lakeproof policies replay` in a process of its
own, and as a job of another process (`jobs.py`).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from typing import Final
from uuid import UUID

from gateway.commit.gateway import Gateway
from gateway.errors import NotFoundError, UnavailableError
from gateway.log_errors import append_errors
from gateway.policy.engine import POLICY
from gateway.policy.process import Spawn, spawn_worker
from gateway.replaying.comparing import Change
from gateway.replaying.evaluating import CaseWorkers
from gateway.replaying.page_process import COLLECT_AFTER, Access, PageProcess
from gateway.replaying.pages import PAGE_ENTRIES, STATEMENT_S
from gateway.replaying.past_metadata import past_metadata
from gateway.replaying.recorded import Lend
from gateway.replaying.replay import Proposed, Replayed, proposal_bytes, replay
from ledger.format.event import Part, PreparedEvent, derived_group_id, format_key
from ledger.format.events import ProposalReplayed, prepare_event, to_data
from ledger.format.sequence import Appended, Group, Stale
from ledger.format.verification import ProgressCallback
from ledger.store.read import first_index_since, read_head
from ledger.store.session import Connection

SMALL_PAGE_ENTRIES: Final = 100
"""They take the event loop some 4 ms."""
PAUSE_S: Final = 0.02
"""Before each page: a replay leaves most of the processor's time to commits."""
BESIDE_ENTRIES_MIN: Final = 20_000
"""From so many entries on, another process that reads them is worth its start: half a second of a processor."""
PART: Final = "proposal"
PART_SIZE_BYTES_MAX: Final = 2**20
"""A larger proposal is attested by its digest alone: a group is at most 2 MiB."""


class NothingToReplayError(NotFoundError):
    """There is no decision in the range."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="NotFoundException")


async def replay_since(
    gateway: Gateway,
    tenant: UUID,
    log_id: int,
    proposal: Sequence[Proposed],
    *,
    since: datetime,
    until_index: int | None = None,
    covers: bool = False,
    progress: ProgressCallback = lambda _done, _of: None,
    spawn: Spawn = spawn_worker,
    access: Access | None = None,
) -> Replayed:
    """
    Return what `proposal` changes in the decisions recorded at `since` or later, up to now or to entry `until_index`.
    With `covers` it has how many decisions have reached each branch: then every program is watched while it runs.
    With `access` to the log, which must be that of the tenant's role, a long range is read by a second process, too.

    Raises:
        NothingToReplayError: if there are none.
        BrokenError: if the log is corrupt there.
        UnavailableError: if the log, a metadata file or the engine cannot be reached.
    """
    lend = partial(gateway.database.as_role, gateway.roles.tenant(tenant), statement_timeout_s=STATEMENT_S)
    first, end = await _range(lend, log_id, since=since, until_index=until_index)
    programs = [(POLICY, policy.expression) for policy in proposal]
    async with AsyncExitStack() as stack:
        workers = CaseWorkers(programs, timeout_s=gateway.judge.timeout_s, covers=covers, spawn=spawn)
        await stack.enter_async_context(workers)
        beside = None
        if access is not None and end - first >= BESIDE_ENTRIES_MIN:
            beside = await stack.enter_async_context(PageProcess(access))
        stack.enter_context(_few_collections())
        return await _replayed(
            gateway,
            tenant,
            log_id,
            proposal,
            lend=lend,
            first=first,
            end=end,
            since=since,
            workers=workers,
            progress=progress,
            page_entries=PAGE_ENTRIES,
            beside=beside,
        )


async def replay_slowly(
    gateway: Gateway,
    tenant: UUID,
    log_id: int,
    proposal: Sequence[Proposed],
    *,
    since: datetime,
    progress: ProgressCallback,
    covers: bool = False,
    spawn: Spawn = spawn_worker,
) -> Replayed:
    """
    Return what `replay_since` does, in a process that has other duties, and on processors that commits need: with one
    worker, small pages, and a pause before each.

    Raises as `replay_since`.
    """

    role = gateway.roles.tenant(tenant)

    @asynccontextmanager
    async def lend() -> AsyncIterator[Connection]:
        await asyncio.sleep(PAUSE_S)
        async with gateway.database.as_role(role, statement_timeout_s=STATEMENT_S) as connection:
            yield connection

    first, end = await _range(lend, log_id, since=since)
    programs = [(POLICY, policy.expression) for policy in proposal]
    async with CaseWorkers(
        programs, timeout_s=gateway.judge.timeout_s, workers=1, covers=covers, spawn=spawn
    ) as workers:
        return await _replayed(
            gateway,
            tenant,
            log_id,
            proposal,
            lend=lend,
            first=first,
            end=end,
            since=since,
            workers=workers,
            progress=progress,
            page_entries=SMALL_PAGE_ENTRIES,
        )


async def _range(lend: Lend, log_id: int, *, since: datetime, until_index: int | None = None) -> tuple[int, int]:
    """Return the first entry of a replay, and the one behind the last."""
    async with lend() as connection:
        size = (await read_head(connection, log_id)).size
        end = size if until_index is None else min(until_index, size)
        return await first_index_since(connection, log_id, since, size=end), end


async def _replayed(
    gateway: Gateway,
    tenant: UUID,
    log_id: int,
    proposal: Sequence[Proposed],
    *,
    lend: Lend,
    first: int,
    end: int,
    since: datetime,
    workers: CaseWorkers,
    progress: ProgressCallback,
    page_entries: int,
    beside: PageProcess | None = None,
) -> Replayed:
    found = await replay(
        lend,
        log_id,
        proposal,
        first=first,
        end=end,
        opener=gateway.opener,
        past=await past_metadata(gateway, tenant, log_id),
        workers=workers,
        progress=progress,
        page_entries=page_entries,
        beside=beside,
    )
    if found.decisions == 0:
        moment = since.isoformat(timespec="seconds")
        raise NothingToReplayError(f"no decision was recorded since {moment}: name an earlier time")
    return found


@contextmanager
def _few_collections() -> Iterator[None]:
    """
    Look for cycles of garbage rarely. A page makes a hundred thousand objects and none in cycles, and what is kept is
    large: to look through both took a quarter of the reader's time.
    """
    usual = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


async def attest(
    gateway: Gateway, log_id: int, proposal: Sequence[Proposed], found: Replayed, *, actor: str
) -> tuple[ProposalReplayed, int]:
    """
    Append what a replay has found, and return the event and its index. Attesting the same again appends nothing.

    Raises:
        UnavailableError: if the log does not answer.
    """
    data = ProposalReplayed(
        first=found.first,
        end=found.end,
        proposal=found.proposal,
        inputs=found.inputs,
        verdicts=found.verdicts,
        decisions=found.decisions,
        **{change.value: found.counts[change] for change in Change},
    )
    group_id = derived_group_id(ProposalReplayed.TYPE, to_data(data))
    event = _event(data, proposal_bytes(proposal), actor=actor, at=gateway.clock(), random=gateway.random)
    with append_errors(not_appended="the replay could not be recorded: try again"):
        appended = await gateway.append(log_id, Group(id=group_id, then=(event,)))
    match appended:
        case Appended():
            return data, appended.indices.start
        case Stale():  # only a group that names a control index can be
            raise UnavailableError("the log refused what names no rules: nothing was recorded")


def _event(
    data: ProposalReplayed, proposal: bytes, *, actor: str, at: datetime, random: Callable[[int], bytes]
) -> PreparedEvent:
    parts: tuple[Part, ...] = ()
    if len(proposal) <= PART_SIZE_BYTES_MAX:
        parts = (Part(name=PART, payload=proposal, salt=random(32)),)
    return prepare_event(data, key=format_key("proposal", [data.proposal]), actor=actor, occurred_at=at, parts=parts)
