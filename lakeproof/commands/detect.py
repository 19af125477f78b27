# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof detect …`: run detection in the foreground, see how far it is.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Annotated

import typer

from lakeproof import console
from lakeproof.commands.opening import OpenInstallation, home_settings, open_home
from lakeproof.commands.options import AsJson, OneTenant
from lakeproof.detecting import detect_until_signal, find_spark, request_scan
from spark_detect.status import LogStatus, read_status


class ScanState(StrEnum):
    """What an operator does about a log: nothing, wait, or look at a storage that does not answer."""

    CURRENT = "current"
    BEHIND = "behind"
    PUT_OFF = "put off"


_COLUMNS = ("log", "state", "waiting", "open_ranges", "put_off", "batch", "scans", "failed", "findings")


def detect_app(open_installation: OpenInstallation = open_home) -> typer.Typer:
    """
    Return the commands, working on the installation that `open_installation` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def run() -> None:
        """Run detection on Spark until Ctrl-C."""
        find_spark(home_settings())  # before a database is started, and before it is announced

        async def work() -> None:
            async with open_installation() as installation:
                console.say("detection starts; Ctrl-C stops it")
                await detect_until_signal(installation, console.say)

        asyncio.run(work())

    @app.command()
    def request(
        table: Annotated[str, typer.Argument(help="The table's key, as in table:lake/sales/orders.")],
        *,
        tenant: OneTenant,
        snapshot: Annotated[
            str | None, typer.Option(help="One snapshot; without it everything that is live.", show_default=False)
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Ask for a scan of what was scanned before, or was there before detection."""

        async def append() -> int:
            async with open_installation() as installation:
                return await request_scan(installation, tenant, table, snapshot)

        index = asyncio.run(append())
        console.show_done(f"requested in entry {index}", {"entry": index, "table": table}, as_json=as_json)

    @app.command()
    def status(*, as_json: AsJson = False) -> None:
        """Show how far detection is in every log, what it scanned and found, and what has failed."""

        async def read() -> list[dict[str, object]]:
            async with open_installation() as installation:
                dsn = installation.as_role(installation.roles.detector)
                return [_row(each) for each in await asyncio.to_thread(read_status, dsn)]

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


def _state(each: LogStatus) -> ScanState:
    if each.put_off:
        return ScanState.PUT_OFF
    return ScanState.BEHIND if each.waiting or each.open_ranges else ScanState.CURRENT
