# SPDX-License-Identifier: Apache-2.0
"""
The command that shows how far logs are anchored: `anchors`.

It shows what is stored and verifies no log: whether anchors hold is for `verify` to say.
"""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from lakeproof.anchored import Overview, age_s, read_overview
from lakeproof.commands.exits import failure
from lakeproof.commands.opening import OpenInstallation, run_with_auditor
from lakeproof.commands.options import AsJson
from lakeproof.console import one_line, show_json
from ledger.anchoring.anchor_log import AnchoringState
from ledger.anchoring.witness_health import WitnessState


def add_commands(app: typer.Typer, open_installation: OpenInstallation) -> None:
    """
    Add `anchors`, which calls `open_installation`.
    """

    @app.command()
    def anchors(*, as_json: AsJson = False) -> None:
        """Show how far each log is anchored in the system log, and who has witnessed that one."""
        with failure():
            overview = run_with_auditor(open_installation, read_overview)
            if as_json:
                show_json(overview.as_json(now=datetime.now(UTC)))
            else:
                _show(overview, now=datetime.now(UTC))


def _show(overview: Overview, *, now: datetime) -> None:
    typer.echo(f"system log {one_line(overview.origin)}")
    typer.echo(f"signed     {_size(overview.signed_size)}")
    published = overview.published
    by = ", ".join(published.cosigned_by) if published else ""
    typer.echo(f"published  {_size(None if published is None else published.checkpoint.size)}")
    typer.echo(f"cosigned   by {one_line(by)}" if by else "cosigned   by nobody")
    if overview.witnessed and (published is None or published.checkpoint.size != overview.signed_size):
        typer.echo("WAITING: the witnesses' quorum has not cosigned the newest checkpoint, so it is not published")
    for each in overview.witnesses:
        time = "" if each.cosigned_at is None else f" at {each.cosigned_at:%Y-%m-%d %H:%M:%S} UTC"
        message = f": {each.message}" if each.message and each.state is not WitnessState.COSIGNED else ""
        typer.echo(
            one_line(
                f"witness    {each.name} cosigned {_size(each.cosigned_size)}{time}; last answer: {each.state}{message}"
            )
        )
    if overview.stamped is None:
        typer.echo("stamped    never")
    else:
        typer.echo(f"stamped    {_size(overview.stamped.size)}, at {overview.stamped.gen_time:%Y-%m-%d %H:%M:%S} UTC")
    for state in overview.logs:
        typer.echo(f"log        {one_line(state.origin)}: {_size(state.size)} signed, {_anchored(state, now=now)}")


def _anchored(state: AnchoringState, *, now: datetime) -> str:
    if state.anchor is None:
        return "NOT ANCHORED"
    behind = (state.size or 0) - state.anchor.size
    waiting = f", {behind:,} behind it NOT ANCHORED" if behind > 0 else ""
    return f"{state.anchor.size:,} anchored {age_s(state, now=now):,} s ago{waiting}"


def _size(size: int | None) -> str:
    return "nothing" if size is None else f"{size:,} entries"
