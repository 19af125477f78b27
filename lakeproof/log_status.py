# SPDX-License-Identifier: Apache-2.0
"""
How far everything is that follows the logs: checkpoints, read models, streams, detection.

How many entries something is behind says little: a busy log is always some ahead. So the age of the oldest entry that
is missing is read, too: what keeps up is seconds behind, and what stands still is behind for longer with each look.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from gateway.control.plane import ControlPlane, ControlState, ControlUnknownError, ControlUnreadableError
from lakeproof.anchored import read_vouching
from lakeproof.installation import Installation
from lakeproof.projecting import PROJECTIONS
from lakeproof.streaming import log_handler_names
from ledger.format.entry import parse_entry
from ledger.store.queries import load_queries
from ledger.store.read import read_entry
from ledger.store.session import Connection
from projections.processing import cursors
from spark_detect.status import Waiting, read_waiting
from streams.state.cursors import read_progress

QUERIES: Final = load_queries("lakeproof", "inspecting.sql")
OTHER_VERSION: Final = "other version"
UNREADABLE: Final = "nothing can be judged by it, and a gateway that reads it now answers 503"
COUNTED_MAX: Final = 100_000
"""Open decisions and dead letters that are counted for one log; more are as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """
    Something that follows a log: entries that it has not passed yet, and for how long the first of them has been there.

    `trouble` says what else is wrong with it; nothing if that is empty.
    """

    name: str
    lag_entries: int
    behind_s: float
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLog:
    """
    One log: `checkpoint` is the signer (its name is the size of the newest checkpoint), `followers` are the rest.

    `waiting` has the entries that wait for detection, and `put_off` the ranges whose storage does not answer; both are
    None for the system log, which is not scanned. `not_judged` says why nothing is judged by it; "" if it is.
    """

    log_id: int
    origin: str
    tenant: UUID | None
    name: str
    size: int
    takes_entries: bool
    checkpoint_size: int
    checkpoint: Follower
    projections: Sequence[Follower] = ()
    streams: Sequence[Follower] = ()
    waiting: int | None = None
    put_off: int | None = None
    not_judged: str = ""


@dataclass(slots=True)
class _Ages:
    """The age of entries as of `now`, read once each."""

    connection: Connection
    now: datetime
    known: dict[tuple[int, int], float] = field(default_factory=dict)

    async def of(self, log_id: int, next_index: int, *, size: int) -> float:
        """Return for how many seconds the entry has been there; 0 if there is none at that index."""
        if next_index >= size:
            return 0.0
        if (log_id, next_index) not in self.known:
            entry = parse_entry(await read_entry(self.connection, log_id, next_index))
            self.known[log_id, next_index] = max((self.now - entry.recorded_at).total_seconds(), 0.0)
        return self.known[log_id, next_index]


async def read_system_state(auditor: Connection, installation: Installation) -> ControlState:
    """
    Return the control plane of the system log: which tenants there are, and what they are called.

    Raises:
        LedgerError, GatewayError: if it cannot be read.
    """
    rows = await (await auditor.execute(QUERIES["logs"], {"log_id": None})).fetchall()
    system = next((row[0] for row in rows if row[1] == installation.system_origin), None)
    if system is None:
        return ControlState.empty()
    return await looking_plane(auditor).current(system)


def looking_plane(auditor: Connection) -> ControlPlane:
    """
    Return what reads what is in force for whoever looks at an installation.
    """
    return ControlPlane(lambda: nullcontext(auditor), logs_unreadable=False)


async def why_not_judged(control: ControlPlane, log_id: int) -> str:
    """
    Return why a gateway that reads what is in force in a log judges nothing by it, and what to do; "" if it does.
    """
    try:
        await control.current(log_id)
    except ControlUnknownError as error:
        return f"{UNREADABLE}: {error}: start the newest version that has run here"
    except ControlUnreadableError as error:
        return f"{UNREADABLE}: {error.__cause__}: run `lakeproof ledger verify --deep`"
    return ""


async def read_found_logs(
    auditor: Connection, installation: Installation, waiting: Mapping[int, Waiting], *, now: datetime
) -> list[FoundLog]:
    """
    Return how far everything is in each log, in the order in which the logs were made.

    `waiting` is what waits for detection, by log.

    Raises:
        LedgerError, GatewayError: if a log cannot be read, or is broken where it is read.
    """
    try:
        state = await read_system_state(auditor, installation)
    except ControlUnreadableError:  # said of the system log; the others have the names of their ids
        state = ControlState.empty()
    names = {UUID(tenant.id): tenant.name for tenant in state.tenants.values()}
    logs = await _read_logs(auditor, installation, waiting, names, now=now, only=None)
    control = looking_plane(auditor)
    return [replace(log, not_judged=await why_not_judged(control, log.log_id)) for log in logs]


async def _read_logs(
    auditor: Connection,
    installation: Installation,
    waiting: Mapping[int, Waiting],
    names: Mapping[UUID, str],
    *,
    now: datetime,
    only: int | None,
) -> list[FoundLog]:
    """Return how far everything is in each log, or in one."""
    ages = _Ages(auditor, now)
    projected = await _projections(auditor, ages, only)
    streamed = await _streams(auditor, installation, ages, only)
    logs = []
    rows = await (await auditor.execute(QUERIES["logs"], {"log_id": only})).fetchall()
    for log_id, origin, tenant, size, checkpoint_size, takes in rows:
        is_system = origin == installation.system_origin
        scan = None if is_system else waiting.get(log_id)
        unsigned_s = await ages.of(log_id, checkpoint_size, size=size)
        logs.append(
            FoundLog(
                log_id=log_id,
                origin=origin,
                tenant=tenant,
                name="system" if is_system else names.get(tenant, tenant.hex if tenant else origin),
                size=size,
                takes_entries=takes,
                checkpoint_size=checkpoint_size,
                checkpoint=Follower(name="signer", lag_entries=max(size - checkpoint_size, 0), behind_s=unsigned_s),
                projections=projected.get(log_id, ()),
                streams=streamed.get(log_id, ()),
                waiting=None if scan is None else scan.entries,
                put_off=None if scan is None else scan.put_off,
            )
        )
    return logs


async def _projections(auditor: Connection, ages: _Ages, only: int | None) -> Mapping[int, Sequence[Follower]]:
    versions = {projection.name: projection.version for projection in PROJECTIONS}
    followers: dict[int, list[Follower]] = {}
    for each in await cursors.read_progress(auditor, versions, log_id=only):
        is_other = each.version not in {None, versions[each.projection]}  # None: it has not begun, and is behind
        trouble = OTHER_VERSION if is_other else ""
        behind_s = await ages.of(each.log.log_id, each.next_index, size=each.size)
        followers.setdefault(each.log.log_id, []).append(
            Follower(name=each.projection, lag_entries=each.lag_entries, behind_s=behind_s, trouble=trouble)
        )
    return followers


async def _streams(
    auditor: Connection, installation: Installation, ages: _Ages, only: int | None
) -> Mapping[int, Sequence[Follower]]:
    followers: dict[int, list[Follower]] = {}
    for each in await read_progress(auditor, log_handler_names(installation), log_id=only):
        trouble = f"{each.failures} failures in a row" if each.failures else ""
        if each.dead_letters and not trouble:
            trouble = f"{each.dead_letters} dead letters"
        behind_s = await ages.of(each.log.log_id, each.next_index, size=each.size)
        followers.setdefault(each.log.log_id, []).append(
            Follower(name=each.handler, lag_entries=each.lag_entries, behind_s=behind_s, trouble=trouble)
        )
    return followers


def log_shown(log: FoundLog) -> dict[str, Any]:
    """
    Return one log as JSON; ages are seconds.
    """
    return {
        "log": log.origin,
        "name": log.name,
        "tenant": log.tenant and log.tenant.hex,
        "size": log.size,
        "takes_entries": log.takes_entries,
        "not_judged": log.not_judged,
        "checkpoint_size": log.checkpoint_size,
        "unsigned_entries": log.checkpoint.lag_entries,
        "unsigned_s": round(log.checkpoint.behind_s, 3),
        "projections": [_follower_shown(each) for each in log.projections],
        "streams": [_follower_shown(each) for each in log.streams],
        "detection_waiting": log.waiting,
        "detection_put_off": log.put_off,
    }


def _follower_shown(follower: Follower) -> dict[str, object]:
    return {**asdict(follower), "behind_s": round(follower.behind_s, 3)}


def status_reader(
    installation: Installation,
    lend: Callable[[], AbstractAsyncContextManager[Connection]],
    clock: Callable[[], datetime],
) -> Callable[[int], Coroutine[Any, Any, dict[str, Any]]]:
    """
    Return what reads how far everything is that follows one log, and how its witnesses are; `lend` lends connections of
    the auditor.
    """

    async def read(log_id: int) -> dict[str, Any]:
        async with lend() as auditor:
            waiting = {log_id: await read_waiting(auditor, log_id)}
            (log,) = await _read_logs(auditor, installation, waiting, {}, now=clock(), only=log_id)
            bounds = {"log_id": log_id, "limit": COUNTED_MAX}
            ((decisions, letters),) = await (await auditor.execute(QUERIES["left_open"], bounds)).fetchall()
            shown = log_shown(log) | {"open_decisions": decisions, "dead_letters": letters}
            shown |= await read_vouching(installation, auditor, log_id, now=clock())
            del shown["name"], shown["tenant"], shown["not_judged"]  # who asks was judged
            return shown

    return read
