# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof streams …`: run the streams in a process of their own, see how far they are; and
`lakeproof dead-letters …`: see what they have given up, and replay it.

They work on the database of the home, also while `lakeproof up` runs: leases keep them out of each other's way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

import typer

from lakeproof import console
from lakeproof.commands.options import AsJson, SomeTenant
from lakeproof.dead_letters import letter_shown
from lakeproof.streaming import Streams, consume_until_signal, open_home_streams, run_until_signal
from lakeproof.tenants import find_tenant_log
from streams.connections import connect_reading
from streams.errors import StreamError
from streams.processing.counters import Counters
from streams.processing.replay import ReplayResult, replay
from streams.state.cursors import HandlerProgress, read_progress
from streams.state.dead_letters import StoredLetter, count_letters, read_letters
from streams.state.deferred import HostProgress, read_hosts
from streams.state.leases import handler_duty, sink_duty
from streams.state.outbox import read_backlog


class StreamState(StrEnum):
    """What an operator does about a row: nothing, wait, check a host that does not answer, or replay dead letters."""

    CURRENT = "current"
    BEHIND = "behind"
    PUT_OFF = "put off"
    DEAD_LETTERS = "dead letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class _LetterFilter:
    """Which dead letters a command is for; a member that is None matches all."""

    tenant: str | None
    source: str | None
    letter: str | None


OpenStreams: TypeAlias = Callable[[], AbstractAsyncContextManager[Streams]]
Source = Annotated[
    str | None,
    typer.Option(
        "--source", help="Only of this source, as `streams status` names it: handler:alerts.", show_default=False
    ),
]
Letter = Annotated[str | None, typer.Option("--id", help="Only the message of this id.", show_default=False)]

DEFAULT_MEMBER: Final = "lakeproof"

_STATUS = ("log", "source", "state", "waiting", "failures", "dead_letters")
_LETTERS = ("log", "source", "id", "attempts", "died_at", "reason")
_REPLAYS = ("log", "source", "id", "result", "reason")


def streams_app(open_streams: OpenStreams = open_home_streams) -> typer.Typer:
    """
    Return the commands, working with the streams that `open_streams` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def run(*, as_json: AsJson = False) -> None:
        """Run the streams until Ctrl-C: handlers, outbox, alerts, the queue of S3's events."""

        async def work() -> Counters:
            async with open_streams() as streams:
                if not as_json:
                    console.say(f"the streams run: {', '.join(streams.handlers)}; Ctrl-C stops them")
                return await run_until_signal(streams)

        _show_tally(asyncio.run(work()), as_json=as_json)

    @app.command()
    def consume(
        *,
        member: Annotated[
            str,
            typer.Option(help="This process's name in the consumer group: no other's, and kept."),
        ] = DEFAULT_MEMBER,
        as_json: AsJson = False,
    ) -> None:
        """Take lineage from Kafka until Ctrl-C: one topic a tenant, LAKEPROOF_KAFKA_LINEAGE_TOPIC.<tenant's id>."""

        async def work() -> Counters:
            async with open_streams() as streams:
                if not as_json:
                    console.say(f"member {member!r} takes lineage from Kafka; Ctrl-C stops it")
                return await consume_until_signal(streams, member)

        _show_tally(asyncio.run(work()), as_json=as_json)

    @app.command()
    def status(*, as_json: AsJson = False) -> None:
        """Show how far handlers are in every log, which hosts they wait for, what waits to leave, and what has died."""
        console.show_rows(_STATUS, asyncio.run(_status(open_streams)), as_json=as_json)

    return app


def dead_letters_app(open_streams: OpenStreams = open_home_streams) -> typer.Typer:
    """
    Return the commands for dead letters, working with the streams that `open_streams` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command("list")
    def list_(
        *, tenant: SomeTenant = None, source: Source = None, letter: Letter = None, as_json: AsJson = False
    ) -> None:
        """Show dead letters: what was given up, since when, after how many attempts and why."""
        selected = _LetterFilter(tenant=tenant, source=source, letter=letter)
        console.show_rows(_LETTERS, asyncio.run(_letters(open_streams, selected)), as_json=as_json)

    @app.command("replay")
    def replay_(
        *, tenant: SomeTenant = None, source: Source = None, letter: Letter = None, as_json: AsJson = False
    ) -> None:
        """Handle dead letters again; those that succeed are removed. Ends with 1 if one is left."""
        rows = asyncio.run(_replay(open_streams, _LetterFilter(tenant=tenant, source=source, letter=letter)))
        console.show_rows(_REPLAYS, rows, as_json=as_json)
        left = [
            row for row in rows if row["result"] in {ReplayResult.DEAD, ReplayResult.POSTPONED, ReplayResult.UNKNOWN}
        ]
        if left:
            raise StreamError(f"{len(left)} of {len(rows)} dead letters are left: their reasons say why")

    return app


def _show_tally(tally: Counters, *, as_json: bool) -> None:
    if as_json:
        console.show_rows((), [tally.as_row()], as_json=True)
    else:
        console.say(f"stopped: {tally.sentence()}")


async def _status(open_streams: OpenStreams) -> list[dict[str, object]]:
    async with open_streams() as streams, connect_reading(streams.dsn) as connection:
        progress = await read_progress(connection, streams.handlers)
        waiting = await read_backlog(connection)
        letters = await count_letters(connection)
        hosts = await read_hosts(connection)
    dead = {(each.log.origin, each.source): each.count for each in letters}
    rows = [_handler_row(each, dead.pop((each.log.origin, handler_duty(each.handler)), 0)) for each in progress]
    rows += [_host_row(each) for each in hosts]
    for sink in waiting:
        source = sink_duty(sink.sink)
        found = dead.pop((sink.log.origin, source), 0)
        rows.append(
            {
                "log": sink.log.origin,
                "source": source,
                "state": StreamState.PUT_OFF if sink.attempts else StreamState.BEHIND,
                "waiting": sink.messages,
                "failures": sink.attempts,
                "dead_letters": found,
                "age_s": round(sink.age_s, 3),
            }
        )
    # What has died of a source that has nothing else to show.
    for (origin, source), count in dead.items():
        row = {"log": origin, "source": source, "state": StreamState.DEAD_LETTERS}
        rows.append({**row, "waiting": 0, "failures": 0, "dead_letters": count})
    return rows


def _handler_row(progress: HandlerProgress, dead: int) -> dict[str, object]:
    state = StreamState.BEHIND if progress.lag_entries else StreamState.DEAD_LETTERS if dead else StreamState.CURRENT
    return {
        "log": progress.log.origin,
        "source": handler_duty(progress.handler),
        "state": StreamState.PUT_OFF if progress.failures else state,
        "waiting": progress.lag_entries,
        "failures": progress.failures,
        "dead_letters": dead,
        "next_index": progress.next_index,
        "size": progress.size,
        "handled": progress.handled,
    }


def _host_row(progress: HostProgress) -> dict[str, object]:
    return {
        "log": progress.log.origin,
        "source": f"{handler_duty(progress.handler)} at {progress.host}",
        "state": StreamState.PUT_OFF if progress.failures else StreamState.BEHIND,
        "waiting": progress.messages,
        "failures": progress.failures,
        "dead_letters": 0,
        "reason": progress.reason,
    }


async def _letters(open_streams: OpenStreams, selected: _LetterFilter) -> list[dict[str, object]]:
    async with open_streams() as streams, connect_reading(streams.dsn) as connection:
        log_id = None if selected.tenant is None else await find_tenant_log(streams.services, selected.tenant)
        rows: list[dict[str, object]] = []
        last: StoredLetter | None = None
        while letters := await read_letters(
            connection, log_id=log_id, source=selected.source, id=selected.letter, after=last
        ):
            rows += [{"log": each.log.origin, **letter_shown(each)} for each in letters]
            last = letters[-1]
        return rows


async def _replay(open_streams: OpenStreams, selected: _LetterFilter) -> list[dict[str, object]]:
    async with open_streams() as streams:
        log_id = None if selected.tenant is None else await find_tenant_log(streams.services, selected.tenant)
        return [
            {
                "log": each.letter.log.origin,
                "source": each.letter.source,
                "id": each.letter.id,
                "result": each.result,
                "reason": each.reason,
            }
            async for each in replay(
                streams.dsn,
                streams.replayed_by,
                streams.services.gateway.append,
                log_id=log_id,
                source=selected.source,
                id=selected.letter,
            )
        ]
