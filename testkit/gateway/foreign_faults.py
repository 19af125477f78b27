# SPDX-License-Identifier: Apache-2.0
"""
The fault table of a commit to a catalog elsewhere: what happens at each step if it is lost, its answer is lost, it
arrives late, or the process is killed there; and what the client knows, the log says and the upstream holds.

The same table for every upstream. Each case ends with a further commit of an engine.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from multiprocessing.process import BaseProcess
from random import Random
from typing import Any, Final

import httpx

from ledger.errors import LogUnavailableError, OutcomeUnknownError
from ledger.format.events import CommitOutcome
from ledger.format.sequence import Appended, Group, Stale
from testkit.environment import PATIENCE_S
from testkit.gateway.foreign_tenant import (
    ALIAS,
    RENAME,
    RENAME_VIEW,
    ROOT,
    TABLES,
    UNKNOWN_STATUSES,
    VIEWS,
    ForeignTenant,
)
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import SCHEMA
from testkit.gateway.view_requests import view_created, view_replaced
from testkit.servers.faulty_wire import Fault, FaultyWire, Loss, Replaced, answer
from testkit.servers.forked_workers import origin_socket
from testkit.servers.loopback import serve_gateway
from testkit.system.crashing_gateway import APPEND, serve_until_death

DEATH_TIMEOUT_S: Final = 60
SLOW_S: Final = 1.0
"""How long an upstream may take where a test lets it take longer."""
MIXED: Final = 14
"""Things that happen in one mixture."""


class Step(StrEnum):
    """The four steps of a commit to a catalog elsewhere (`commit_flow`, 11 to 14)."""

    DECIDE = "append decided"
    FORWARD = "forward"
    SETTLE = "append settled"
    ANSWER = "answer"


class ClientKnowledge(StrEnum):
    """What the client knows afterwards."""

    YES = "it is committed"
    NO = "it is not committed"
    UNKNOWN = "it may be committed: the files stay"
    NOTHING = "the connection was lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cell: what the client knows, the commit in the log before and after reconciling, and if it took effect."""

    step: Step
    loss: Loss
    known: ClientKnowledge
    then: tuple[str, ...] = ()
    reconciled: tuple[str, ...] = ()
    lands: bool

    def __str__(self) -> str:
        return f"{self.step}: {self.loss}"


APPROVED, UNKNOWN, ACCEPTED = "approved", "unknown", "accepted"

LOSSES: Final = (
    # The decision is not in the log, so nothing is forwarded.
    Case(step=Step.DECIDE, loss=Loss.REQUEST, known=ClientKnowledge.NO, lands=False),
    # It is, but nobody here knows: nothing is forwarded either, and that nothing came of it cannot be proven.
    Case(
        step=Step.DECIDE,
        loss=Loss.ANSWER,
        known=ClientKnowledge.NO,
        then=(APPROVED,),
        reconciled=(APPROVED, UNKNOWN),
        lands=False,
    ),
    Case(step=Step.DECIDE, loss=Loss.LATE, known=ClientKnowledge.NO, reconciled=(APPROVED, UNKNOWN), lands=False),
    Case(
        step=Step.FORWARD,
        loss=Loss.REQUEST,
        known=ClientKnowledge.UNKNOWN,
        then=(APPROVED, UNKNOWN),
        reconciled=(APPROVED, UNKNOWN),
        lands=False,
    ),
    Case(
        step=Step.FORWARD,
        loss=Loss.ANSWER,
        known=ClientKnowledge.UNKNOWN,
        then=(APPROVED, UNKNOWN),
        reconciled=(APPROVED, UNKNOWN, ACCEPTED),
        lands=True,
    ),
    Case(
        step=Step.FORWARD,
        loss=Loss.LATE,
        known=ClientKnowledge.UNKNOWN,
        then=(APPROVED, UNKNOWN),
        reconciled=(APPROVED, UNKNOWN, ACCEPTED),
        lands=True,
    ),
    Case(
        step=Step.SETTLE,
        loss=Loss.REQUEST,
        known=ClientKnowledge.YES,
        then=(APPROVED,),
        reconciled=(APPROVED, ACCEPTED),
        lands=True,
    ),
    Case(
        step=Step.SETTLE,
        loss=Loss.ANSWER,
        known=ClientKnowledge.YES,
        then=(APPROVED, ACCEPTED),
        reconciled=(APPROVED, ACCEPTED),
        lands=True,
    ),
    # The reconciler was first: what arrives late finds the decision closed and adds nothing.
    Case(
        step=Step.SETTLE,
        loss=Loss.LATE,
        known=ClientKnowledge.YES,
        then=(APPROVED,),
        reconciled=(APPROVED, ACCEPTED),
        lands=True,
    ),
    Case(step=Step.ANSWER, loss=Loss.REQUEST, known=ClientKnowledge.NOTHING, lands=False),
    Case(
        step=Step.ANSWER,
        loss=Loss.ANSWER,
        known=ClientKnowledge.NOTHING,
        then=(APPROVED, ACCEPTED),
        reconciled=(APPROVED, ACCEPTED),
        lands=True,
    ),
    Case(
        step=Step.ANSWER,
        loss=Loss.LATE,
        known=ClientKnowledge.NOTHING,
        then=(APPROVED, ACCEPTED),
        reconciled=(APPROVED, ACCEPTED),
        lands=True,
    ),
)

Deliver = Callable[[], Awaitable[None]]


async def _nothing() -> None:
    """Deliver nothing: nothing is late."""


async def check_loss(far: ForeignTenant, case: Case, **parts: Any) -> None:
    """Commit once with the fault of `case`, and check the results; `parts` are what other gateways have of this one."""
    body = await far.next_append()
    match case.step:
        case Step.DECIDE:
            known, deliver = await _lose_append(far, body, case.loss, parts, number=0)
        case Step.FORWARD:
            known, deliver = await _lose_forward(far, body, case.loss, parts)
        case Step.SETTLE:
            known, deliver = await _lose_append(far, body, case.loss, parts, number=1)
        case Step.ANSWER:
            known, deliver = await _lose_answer(far, body, case.loss)
    assert known is case.known
    assert tuple(await far.words()) == case.then
    await far.reconcile()
    await far.check()
    await deliver()
    await check_end(far, body, case.reconciled, lands=case.lands)


async def check_end(far: ForeignTenant, body: dict[str, Any], words: tuple[str, ...], *, lands: bool) -> None:
    """Check the state after the reconciler has checked, and that an engine can commit again."""
    await far.reconcile()
    assert tuple(await far.words()) == words
    assert (snapshot_of(body) in await far.snapshots()) == lands
    await far.check()
    further = await far.next_append()
    assert (await far.gateway.http.post(far.orders, json=further)).status_code == httpx.codes.OK
    await far.reconcile()
    await far.check()


def snapshot_of(body: dict[str, Any]) -> str:
    return str(body["updates"][0]["snapshot"]["snapshot-id"])


def client_knowledge(response: httpx.Response) -> ClientKnowledge:
    """Return what an answer means to a client, as the REST specification has it."""
    if response.is_success:
        return ClientKnowledge.YES
    if response.status_code in UNKNOWN_STATUSES:
        assert response.json()["error"]["type"] == "CommitStateUnknownException"
        return ClientKnowledge.UNKNOWN
    assert response.status_code != httpx.codes.SERVICE_UNAVAILABLE or "retry-after" in response.headers
    return ClientKnowledge.NO


async def _lose_append(
    far: ForeignTenant, body: dict[str, Any], loss: Loss, parts: Mapping[str, Any], *, number: int
) -> tuple[ClientKnowledge, Deliver]:
    """Let the append of that number, of those that the commit makes, be lost."""
    count, late = 0, []

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        nonlocal count
        is_lost, count = count == number, count + 1
        if is_lost and loss is Loss.REQUEST:
            raise LogUnavailableError("the append did not arrive")
        if is_lost and loss is Loss.LATE:
            late.append((log_id, group))
            raise OutcomeUnknownError("the append has not arrived")
        appended = await far.services.gateway.append(log_id, group, **after)
        if is_lost:
            raise OutcomeUnknownError("the answer to the append was lost")
        return appended

    async def deliver() -> None:
        for log_id, group in late:
            await far.services.gateway.append(log_id, group)

    async with far.gateway.through(append=append, **parts) as client:
        return client_knowledge(await client.post(far.orders, json=body)), deliver


async def _lose_forward(
    far: ForeignTenant, body: dict[str, Any], loss: Loss, parts: Mapping[str, Any]
) -> tuple[ClientKnowledge, Deliver]:
    fault = far.wire.fault = Fault(happens=loss, path=far.path)
    if loss is not Loss.LATE:
        return client_knowledge(await far.gateway.http.post(far.orders, json=body)), _nothing

    async def deliver() -> None:
        fault.deliver.set()
        await fault.delivered.wait()

    catalogs = far.services.gateway.catalogs
    hasty = replace(catalogs, upstreams=replace(catalogs.upstreams, timeout_s=SLOW_S))
    async with far.gateway.through(catalogs=hasty, **parts) as client:
        return client_knowledge(await client.post(far.orders, json=body)), deliver


async def _lose_answer(far: ForeignTenant, body: dict[str, Any], loss: Loss) -> tuple[ClientKnowledge, Deliver]:
    """Put a wire between client and gateway, too."""
    headers = dict(far.gateway.http.headers)
    async with serve_gateway(far.gateway.app) as url, FaultyWire(url) as wire:
        fault = wire.fault = Fault(happens=loss, path=far.path)
        async with httpx.AsyncClient(base_url=wire.url, headers=headers, trust_env=False, timeout=PATIENCE_S) as client:
            asking = asyncio.create_task(client.post(far.orders, json=body))
            if loss is Loss.LATE:
                await fault.hit.wait()
                assert await far.words() == []
                asking.cancel()
                await asyncio.wait([asking])
                fault.deliver.set()
                await fault.delivered.wait()
                return ClientKnowledge.NOTHING, _nothing
            try:
                return client_knowledge(await asking), _nothing
            except httpx.TransportError:
                return ClientKnowledge.NOTHING, _nothing


# Other changes


def renamed(source: str, destination: str) -> dict[str, Any]:
    """The body of a renameTable."""
    return {
        "source": {"namespace": ["sales"], "name": source},
        "destination": {"namespace": ["sales"], "name": destination},
    }


async def check_other_changes(far: ForeignTenant) -> None:
    """Lose the answer to a change of every kind: each is found by what it made."""
    lines, stock = f"{far.name}-lines", f"{far.name}-stock"
    created = {"name": lines, "schema": SCHEMA, "properties": {"color": "red"}}
    painted = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"color": "blue"}}]}
    made = {"namespace": [stock], "properties": {"owner": "ada"}}
    changes: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
        ("POST", TABLES, created),
        ("POST", f"{TABLES}/{lines}", painted),
        ("POST", RENAME, renamed(lines, f"{lines}-old")),
        ("POST", RENAME, renamed(f"{lines}-old", lines)),
        ("DELETE", f"{TABLES}/{lines}", None),
        ("POST", ROOT, made),
        ("POST", f"{ROOT}/{stock}/properties", {"updates": {"owner": "eve"}}),
        ("DELETE", f"{ROOT}/{stock}", None),
    )
    await lose_answers(far, changes, of=f"table:{ALIAS}/sales/{lines}")


async def check_view_changes(far: ForeignTenant) -> None:
    """Lose the answer to a change of every kind to a view: each is found by what it made."""
    report = f"{far.name}-report"
    moved = f"{report}-old"
    changes: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
        ("POST", VIEWS, view_created(report)),
        ("POST", f"{VIEWS}/{report}", view_replaced("SELECT 2")),
        ("POST", f"{VIEWS}/{report}", view_replaced("SELECT 2", trino="SELECT 3")),
        ("POST", RENAME_VIEW, renamed(report, moved)),
        ("POST", RENAME_VIEW, renamed(moved, report)),
        ("DELETE", f"{VIEWS}/{report}", None),
    )
    await lose_answers(far, changes, of=f"view:{ALIAS}/sales/{report}")


async def lose_answers(
    far: ForeignTenant, changes: Sequence[tuple[str, str, dict[str, Any] | None]], *, of: str
) -> None:
    """Lose the answer to each of some changes; the entries with the key `of` must be about one table or view."""
    for method, path, body in changes:
        is_rename = path.endswith("/rename")
        sent_to = path.removeprefix(ROOT.removesuffix("/namespaces")) if is_rename else path.removeprefix(ROOT)
        far.wire.fault = Fault(happens=Loss.ANSWER, path=sent_to or "/namespaces")
        lost = await far.gateway.http.request(method, path, json=body)
        assert client_knowledge(lost) is ClientKnowledge.UNKNOWN, lost.text
        found = await far.reconcile()
        assert [each.outcome for each in found] == [CommitOutcome.ACCEPTED] * (1 + is_rename), (path, found)
    stored = await read_stored(far.services, far.log_id, key=of)
    uuids = {one.settled.table_uuid for one in stored if one.words == ACCEPTED}
    assert len(uuids) == 1
    assert uuids != {None}


# Answers


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamAnswer:
    """An answer that the upstream gives, or what is between, after it carried the commit out or instead of that."""

    status: int
    body: bytes = b""
    carried_out: bool
    known: ClientKnowledge
    then: tuple[str, ...]
    reconciled: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"{self.status} {'after' if self.carried_out else 'instead of'} the commit {self.body[:12]!r}"


UPSTREAM_ANSWERS: Final = (
    *(
        UpstreamAnswer(status=status, carried_out=carried_out, known=ClientKnowledge.UNKNOWN, then=(APPROVED, UNKNOWN))
        for status, carried_out in (
            (500, True),
            (500, False),
            (502, True),
            (503, True),
            (503, False),
            (504, False),
            (408, True),
            (302, False),
        )
    ),
    *(
        UpstreamAnswer(
            status=200, body=body, carried_out=carried_out, known=ClientKnowledge.UNKNOWN, then=(APPROVED, UNKNOWN)
        )
        for body, carried_out in ((b"", True), (b"{}", False), (b'{"metadata-location":"s3://', True))
    ),
    UpstreamAnswer(status=409, carried_out=False, known=ClientKnowledge.NO, then=(APPROVED, "conflicted")),
    *(
        UpstreamAnswer(status=status, carried_out=False, known=ClientKnowledge.NO, then=(APPROVED, "refused"))
        for status in (400, 403, 404, 422)
    ),
)


async def check_saying(far: ForeignTenant, saying: UpstreamAnswer) -> None:
    """Commit once with this answer of the upstream, and check the results."""
    body = await far.next_append()
    happens = Replaced(answer=answer(saying.status, saying.body), carried_out=saying.carried_out)
    far.wire.fault = Fault(happens=happens, path=far.path)
    assert client_knowledge(await far.gateway.http.post(far.orders, json=body)) is saying.known
    assert tuple(await far.words()) == saying.then
    end = (*saying.then, ACCEPTED) if saying.carried_out else saying.then
    await check_end(far, body, end, lands=saying.carried_out)


# Mixtures


HAPPENINGS: Final = ("commit", "lose", "lose", "lose", "deliver", "behind", "expire", "reconcile")
"""What happens in a mixture, each as often as it stands here."""


async def check_mixture(far: ForeignTenant, random: Random, happenings: Sequence[str] = HAPPENINGS) -> None:
    """
    Commit, lose, deliver late, commit behind the gateway's back, expire and reconcile in any order.

    Whatever the order: what was ever there is never called failed, and what is called accepted was there.
    """
    ever: set[str] = set()
    late: list[tuple[Fault, asyncio.Task[httpx.Response]]] = []
    for _ in range(MIXED):
        match random.choice(happenings):
            case "commit":
                await far.gateway.http.post(far.orders, json=await far.next_append())
            case "lose":
                fault = far.wire.fault = Fault(happens=random.choice(list(Loss)), path=far.path)
                asking = asyncio.create_task(far.gateway.http.post(far.orders, json=await far.next_append()))
                await fault.hit.wait()
                if fault.happens is Loss.LATE:
                    late.append((fault, asking))
                else:
                    assert client_knowledge(await asking) is ClientKnowledge.UNKNOWN
            case "deliver" if late:
                await _deliver(*late.pop(random.randrange(len(late))))
            case "behind":
                await far.commit_behind(await far.next_append())
            case "expire" if len(there := await far.snapshots()) > 1:
                await far.commit_behind(await _expiry(far, random.choice(sorted(there))))
            case "reconcile":
                await far.reconcile()
        ever |= await far.snapshots()
        await _check_history(far, ever)
    for each in late:
        await _deliver(*each)
    await far.reconcile()
    await _check_history(far, ever | await far.snapshots())
    outcomes = await far.outcomes()
    named = {snapshot for _, added in outcomes for snapshot in added}
    assert named & await far.snapshots() <= set(_accepted(outcomes))


def _accepted(outcomes: Sequence[tuple[CommitOutcome | None, tuple[str, ...]]]) -> list[str]:
    """Return the snapshots that accepted commits have added."""
    return [snapshot for outcome, added in outcomes if outcome is CommitOutcome.ACCEPTED for snapshot in added]


async def _deliver(fault: Fault, asking: asyncio.Task[httpx.Response]) -> None:
    fault.deliver.set()
    await fault.delivered.wait()
    assert client_knowledge(await asking) is ClientKnowledge.UNKNOWN


async def _expiry(far: ForeignTenant, snapshot: str) -> dict[str, Any]:
    """Return the body of a commit that removes a snapshot, unless a branch is at it."""
    refs = (await far.table())["metadata"].get("refs") or {}
    removed = [int(snapshot)] if all(str(ref["snapshot-id"]) != snapshot for ref in refs.values()) else []
    return {"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": removed}]}


async def _check_history(far: ForeignTenant, ever: set[str]) -> None:
    assert not far.unrecorded
    outcomes = await far.outcomes()
    perhaps_made = {None, CommitOutcome.UNKNOWN, CommitOutcome.ACCEPTED}
    # A request may have been decided twice, and sent by its last decision alone.
    explained = {snapshot for outcome, added in outcomes if outcome in perhaps_made for snapshot in added}
    for outcome, added in outcomes:
        assert outcome is not CommitOutcome.ACCEPTED or set(added) <= ever
        assert outcome in perhaps_made or not set(added) & ever - explained
    accepted = _accepted(outcomes)
    assert len(accepted) == len(set(accepted)), "a snapshot is added by one decision"


# Kills


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Where a process is killed: a point of `crashing_gateway`, or, if None, while its request is under way."""

    step: Step
    point: str | None
    then: tuple[str, ...] = ()
    reconciled: tuple[str, ...] = ()
    lands: bool

    def __str__(self) -> str:
        return f"{self.step}: killed {'in flight' if self.point is None else f'at {self.point}'}"


KILLS: Final = (
    Kill(step=Step.DECIDE, point=APPEND, lands=False),
    Kill(step=Step.FORWARD, point="11", then=(APPROVED,), reconciled=(APPROVED, UNKNOWN), lands=False),
    Kill(step=Step.FORWARD, point=None, then=(APPROVED,), reconciled=(APPROVED, UNKNOWN, ACCEPTED), lands=True),
    Kill(step=Step.SETTLE, point="12", then=(APPROVED,), reconciled=(APPROVED, ACCEPTED), lands=True),
    Kill(
        step=Step.ANSWER,
        point="13",
        then=(APPROVED, ACCEPTED),
        reconciled=(APPROVED, ACCEPTED),
        lands=True,
    ),
)


async def check_kill(far: ForeignTenant, kill: Kill) -> None:
    """Kill a real process in the middle of a commit."""
    headers = dict(far.gateway.http.headers)
    with dying_gateway(far, kill.point) as (url, process):
        async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=DEATH_TIMEOUT_S) as client:
            lit = await client.post(f"{ROOT}/sales/properties", json={"updates": {"next": str(kill.point)}})
            assert lit.status_code == httpx.codes.OK
            body = await far.next_append()
            asking = asyncio.create_task(client.post(far.orders, json=body))
            fault = None
            if kill.point is None:
                fault = far.wire.fault = Fault(happens=Loss.LATE, path=far.path)
                await fault.hit.wait()
                process.kill()
            await asyncio.wait([asking])
            assert isinstance(asking.exception(), httpx.TransportError), "the client learns nothing"
            await asyncio.to_thread(process.join, DEATH_TIMEOUT_S)
            assert process.exitcode == -signal.SIGKILL
    assert tuple(await far.words()) == kill.then
    await far.reconcile()
    await far.check()
    if fault is not None:
        fault.deliver.set()
        await fault.delivered.wait()
    await check_end(far, body, kill.reconciled, lands=kill.lands)


@contextmanager
def dying_gateway(far: ForeignTenant, point: str | None) -> Iterator[tuple[str, BaseProcess]]:
    """
    Start a gateway on the same database that dies at `point` (None: not by itself); yield its URL and its process.
    """
    installation = far.services.installation
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["testkit.system.crashing_gateway"])
    reader, writer = context.Pipe(duplex=False)
    home = installation.settings.home.parent  # the same home: sealed parts need its keys
    arguments = (installation.admin_dsn, installation, home, point, writer, origin_socket())
    process = context.Process(target=serve_until_death, args=arguments, daemon=True)
    process.start()
    writer.close()
    try:
        yield str(reader.recv()), process
    finally:
        process.kill()
        process.join(DEATH_TIMEOUT_S)
        reader.close()
