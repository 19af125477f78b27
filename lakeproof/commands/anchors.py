# SPDX-License-Identifier: Apache-2.0
"""
The command that shows how far logs are anchored: `anchors`.

It shows what is stored and verifies no log: whether anchors hold is for `verify` to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from lakeproof.anchor_settings import load_policy
from lakeproof.commands.exits import failure
from lakeproof.commands.opening import OpenInstallation, run_with_auditor
from lakeproof.commands.options import AsJson
from lakeproof.console import one_line, show_json
from lakeproof.log_names import find_named_log
from ledger.anchoring.anchor_log import AnchoringState, read_states
from ledger.anchoring.published import (
    Published,
    Stamped,
    read_newest_signed,
    read_newest_stamp,
    read_published_checkpoint,
)
from ledger.store.session import Connection

if TYPE_CHECKING:
    from lakeproof.installation import Installation


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """
    The system log's newest signed checkpoint (None: nothing is signed), what is published of it, its newest stamp, and
    the other logs. `witnessed` tells whether a policy decides what is published.
    """

    origin: str
    signed_size: int | None
    published: Published | None
    stamped: Stamped | None
    logs: Sequence[AnchoringState]
    witnessed: bool

    def as_json(self, *, now: datetime) -> dict[str, object]:
        """Return all of it as one JSON document."""
        published, stamped = self.published, self.stamped
        return {
            "system": {
                "origin": self.origin,
                "size": self.signed_size,
                "witnessed": self.witnessed,
                "published_size": None if published is None else published.checkpoint.size,
                "cosigned_by": [] if published is None else list(published.cosigned_by),
                "stamp": None if stamped is None else {"size": stamped.size, "time": stamped.gen_time.isoformat()},
            },
            "logs": [
                {
                    "origin": state.origin,
                    "size": state.size,
                    "anchored_size": None if state.anchor is None else state.anchor.size,
                    "anchored_index": None if state.anchor is None else state.anchor.index,
                    "age_s": age_s(state, now=now),
                }
                for state in self.logs
            ],
        }


def age_s(state: AnchoringState, *, now: datetime) -> int | None:
    """Return how old a log's newest anchor is, in whole seconds, or None if it has none."""
    return None if state.anchor is None else max(0, int((now - state.anchor.recorded_at).total_seconds()))


async def read_overview(installation: Installation, auditor: Connection) -> Overview:
    """
    Return how far the logs of an installation are anchored, and who has witnessed the system log.

    Raises:
        BrokenError: if a checkpoint or an anchor of the system log is not as it must be.
        LedgerError: if there is no installation, or no key.
    """
    system = await find_named_log(installation, auditor, "system")
    keys, policy = installation.open_keys().verifier_keys(system.origin), load_policy(installation.settings)
    newest = await read_newest_signed(auditor, system, keys=keys)
    return Overview(
        origin=system.origin,
        signed_size=None if newest is None else newest[0].size,
        published=await read_published_checkpoint(auditor, system, keys=keys, policy=policy),
        stamped=await read_newest_stamp(auditor, system.log_id),
        logs=await read_states(auditor, system),
        witnessed=policy is not None,
    )
