"""
The commands `lakeproof detect …`: run detection in the foreground, see how far it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Annotated, Protocol, TypeAlias

import typer

from spark_detect.status import LogStatus, read_status


class Observatory(Protocol):
    """What the commands work on; `dsn` works as the detector role."""

    @property
    def dsn(self) -> str: ...

    async def run(self, say: Callable[[str], None]) -> None:
        """Run detection until SIGINT or SIGTERM."""

    async def request(self, tenant: str, table: str, snapshot: str | None) -> int:
        """Ask for a scan of a table, by its event key, or of one snapshot of it; return the entry that says so."""


class Console(Protocol):
    """Where the commands print."""

    def show_rows(self, columns: Sequence[str], rows: Sequence[Mapping[str, object]], *, as_json: bool) -> None: ...
    def say(self, text: str) -> None: ...


class State(StrEnum):
    """What an operator does about a log: nothing, wait, or look at a storage that does not answer."""

    CURRENT = "current"
    BEHIND = "behind"
    PUT_OFF = "put off"


OpenObservatory: TypeAlias = Callable[[], AbstractAsyncContextManager[Observatory]]

_COLUMNS = ("log", "state", "waiting", "open_ranges", "put_off", "batch", "scans", "failed", "findings")


def detect_app(
    open_observatory: OpenObservatory, console: Console, check_runs: Callable[[], None] = lambda: None
) -> typer.Typer:
    """
    Return the commands, working on what `open_observatory` opens; `check_runs` raises where detection could not run.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def run() -> None:
        """Run detection on Spark until Ctrl-C."""
        check_runs()  # before a database is started, and before anybody is told that it starts

        async def work() -> None:
            async with open_observatory() as observatory:
                console.say("detection starts; Ctrl-C stops it")
                await observatory.run(console.say)

        asyncio.run(work())

    @app.command()
    def request(
        table: Annotated[str, typer.Argument(help="The table's key, as in table:lake/sales/orders.")],
        *,
        tenant: Annotated[str, typer.Option("--tenant", help="The tenant: its name or id.", show_default=False)],
        snapshot: Annotated[
            str | None, typer.Option(help="One snapshot; without it everything that is live.", show_default=False)
        ] = None,
    ) -> None:
        """Ask for a scan of what was scanned before, or was there before detection."""

        async def ask() -> int:
            async with open_observatory() as observatory:
                return await observatory.request(tenant, table, snapshot)

        console.say(f"asked for in entry {asyncio.run(ask())}")

    @app.command()
    def status(*, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
        """Show how far detection is in every log, what it scanned and found, and what has failed."""

        async def read() -> list[dict[str, object]]:
            async with open_observatory() as observatory:
                return [_row(each) for each in await asyncio.to_thread(read_status, observatory.dsn)]

        console.show_rows(_COLUMNS, asyncio.run(read()), as_json=as_json)

    return app


def _row(each: LogStatus) -> dict[str, object]:
    return {
        "log": each.log.origin,
        "tenant": each.log.tenant and each.log.tenant.hex,
        "state": _state(each),
        "waiting": each.waiting,
        "open_ranges": each.open_ranges,
        "put_off": each.put_off,
        "batch": each.batch,
        "scans": each.scans,
        "failed": each.failed,
        "findings": each.findings,
    }


def _state(each: LogStatus) -> State:
    if each.put_off:
        return State.PUT_OFF
    return State.BEHIND if each.waiting or each.open_ranges else State.CURRENT
