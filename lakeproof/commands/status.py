# SPDX-License-Identifier: Apache-2.0
"""
The command `lakeproof status`: what runs on the installation of the home, and how it is.

Exit code 0: all is well; 1: something is not, and it says what. It changes nothing, and works while nothing runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import typer

from lakeproof import console
from lakeproof.commands.opening import home_settings
from lakeproof.commands.options import AsJson
from lakeproof.inspecting.status import Status, read_installation_status
from lakeproof.log_status import Follower, FoundLog, log_shown

NOT_WELL = 1
_LOGS = ("log", "size", "checkpoint", "unsigned", "projections", "streams", "detection")


def status_app() -> typer.Typer:
    """
    Return the command.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def status(*, as_json: AsJson = False) -> None:
        """Show what runs and how it is; ends with 1 if something is not well."""
        settings = home_settings()
        found = read_installation_status(settings, now=datetime.now(UTC))
        if as_json:
            console.show_json(status_json(found))
        else:
            _show(found)
        if found.problems:
            raise typer.Exit(NOT_WELL)

    return app


def status_json(status: Status) -> dict[str, object]:
    """
    Return a status as one JSON document; times are UTC, ages are seconds.
    """
    database = status.database
    return {
        "ok": not status.problems,
        "problems": status.problems,
        "home": status.home,
        "processes": [
            {"name": each.name, "pid": each.pid, "since": each.since and _time(each.since)}
            for up in status.ups
            for each in up.processes
        ],
        "gateways": [
            {
                "url": url,
                "answers": answer is not None,
                "ready": answer is not None and answer.is_ready,
                "reasons": [] if answer is None else list(answer.reasons),
            }
            for url, answer in status.readiness.items()
        ],
        "database": {
            "where": status.database_where,
            "reachable": database is not None,
            "version": database and database.version,
            "embedded": database and database.owner.directory is not None,
            "pending_migrations": None if database is None else list(database.pending),
        },
        "logs": [log_shown(log) for log in status.logs],
        "disks": [
            {"path": str(each.path), "use": each.use, "free_bytes": each.free_bytes, "total_bytes": each.total_bytes}
            for each in status.disks
        ],
    }


def _show(status: Status) -> None:
    say = console.say
    say(f"home       {console.one_line(status.home)}")
    for up in status.ups:
        answer = None if up.url is None else status.readiness.get(up.url)
        state = "ready" if answer is not None and answer.is_ready else "not ready"
        say(f"gateway    {up.url or 'starts'}{f', {state}' if up.url else ''}")
    if status.database is not None:
        kind = "your own" if status.database.owner.directory is None else "embedded"
        schema = f"{len(status.database.pending)} migrations are due" if status.database.pending else "up to date"
        say(f"database   PostgreSQL {status.database.version}, {kind} ({status.database_where}); schema: {schema}")
    elif status.database_where:
        say(f"database   not reachable ({status.database_where})")
    for disk in status.disks:
        say(f"disk       {disk.free_text}")
    processes = [
        {"process": each.name, "pid": each.pid, "since": each.since and _time(each.since)}
        for up in status.ups
        for each in up.processes
    ]
    if processes:
        say("")
        console.show_rows(("process", "pid", "since"), processes, as_json=False)
    if status.logs:
        say("")
        console.show_rows(_LOGS, [_log_row(log) for log in status.logs], as_json=False)
    say("")
    for problem in status.problems:
        say(f"not well: {console.one_line(problem)}")
    if not status.problems:
        say("all is well")


def _log_row(log: FoundLog) -> dict[str, object]:
    return {
        "log": log.name,
        "size": log.size,
        "checkpoint": log.checkpoint_size,
        "unsigned": log.checkpoint.lag_entries,
        "projections": _lags(log.projections),
        "streams": _lags(log.streams),
        "detection": None if log.waiting is None else "current" if not log.waiting else f"{log.waiting} behind",
    }


def _lags(followers: Sequence[Follower]) -> str | None:
    if not followers:
        return None
    behind = [f"{each.name} {each.trouble or f'{each.lag_entries} behind'}" for each in followers if _lags_behind(each)]
    return ", ".join(behind) or "current"


def _lags_behind(follower: Follower) -> bool:
    return bool(follower.trouble or follower.lag_entries)


def _time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
