"""
The command `lakeproof`: the list of its commands, and what becomes of errors.

Only what is used is imported. This module knows of each command its name and one line of help; the package that a
command belongs to is imported when the command is called, and registers its subcommands then (`<package>/cli.py`). So
an auditor's `lakeproof ledger check-proof` loads no database driver and no web framework.

Exit codes: 0 done, 1 refused or failed, 2 called wrongly or a package is missing, 70 broken down, 130 interrupted, 143
told to end; `ledger verify` and `ledger check-proof` have 1 for what is broken and 2 for what they cannot tell, and
never 1 for anything else. Whatever is raised on purpose becomes one sentence on stderr; whatever is not, too, and its
stack trace goes to a file in the home's log directory.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command

from lakeproof import console
from lakeproof.commands.loading import LateCommand
from lakeproof.crash import CrashFile
from lakeproof.errors import LakeproofError, first_of_group
from lakeproof.extras import explain_missing
from lakeproof.setting_kinds import LogLevel
from lakeproof.settings import Settings, format_settings_table, load_settings

if TYPE_CHECKING:
    from lakeproof.commands.room import LogRoom

NAME: Final = "lakeproof"
FAILED: Final = 1
BROKEN_DOWN: Final = 70
"""EX_SOFTWARE of sysexits.h. Not 1: where an auditor reads that as a broken log, a fault of ours must not look so."""
NOT_INSTALLED: Final = 2
"""Not 1, for the same reason: a verification that lacks a package cannot tell, and has 2 for that."""

PRIVATE_UMASK: Final = 0o077
"""What a process that serves writes, and what it starts, is for this user alone."""

FOR_PEOPLE: Final = frozenset(
    {
        ("lakeproof.errors", "LakeproofError"),
        ("ledger.errors", "LedgerError"),
        ("projections.errors", "ProjectionError"),
        ("gateway.errors", "GatewayError"),
        ("streams.errors", "StreamError"),
        ("spark_detect.errors", "DetectionError"),
    }
)
"""The roots of what is raised on purpose. By name: telling errors apart must not import the packages."""

LOST_CONNECTION: Final = ("psycopg", "OperationalError")


def _ledger() -> typer.Typer:
    from lakeproof.commands.ledger import ledger_app

    return ledger_app(_open_log_room)


def _open_log_room() -> AbstractAsyncContextManager[LogRoom]:
    from lakeproof.log_room import open_log_room  # here: to check a proof must not load a database driver

    return open_log_room()


def _projections() -> typer.Typer:
    from lakeproof.commands.projections import projections_app
    from lakeproof.operating import open_workshop

    return projections_app(open_workshop, console)


def _lineage() -> typer.Typer:
    from lakeproof.commands.lineage import lineage_app
    from lakeproof.operating import open_workshop

    return lineage_app(open_workshop, console)


def _streams() -> typer.Typer:
    from lakeproof.commands.streams import streams_app
    from lakeproof.streaming import open_station

    return streams_app(open_station, console)


def _detect() -> typer.Typer:
    from lakeproof.commands.detect import detect_app
    from lakeproof.detecting import check_detection_runs, open_observatory

    return detect_app(open_observatory, console, check_detection_runs)


def _server() -> typer.Typer:
    from lakeproof.commands.server import server_app

    return server_app


def _gateway(name: str) -> Callable[[], typer.Typer]:
    def load() -> typer.Typer:
        from lakeproof.commands.tenants import gateway_apps
        from lakeproof.operating import open_desk, open_new_desk

        return gateway_apps(open_desk, open_new_desk, console)[name]

    return load


GROUPS: Final[dict[str, tuple[str, Callable[[], typer.Typer]]]] = {
    "ledger": ("Verify, export and prove logs; most of it offline.", _ledger),
    "projections": ("See how far the read models are; rebuild them from the log.", _projections),
    "lineage": ("See what a table was made from, and what was made from it.", _lineage),
    "streams": ("Run the streams, see how far they are, replay dead letters.", _streams),
    "detect": ("Run detection on Spark, and see what it has scanned and found.", _detect),
    "policies": ("Add, change, list and retire the policies that judge commits.", _gateway("policies")),
    "access-rules": ("Add, list and retire the rules on who may do what.", _gateway("access-rules")),
    "catalogs": ("Add and list the catalogs that engines reach.", _gateway("catalogs")),
    "tenants": ("Found and list tenants.", _gateway("tenants")),
    "keys": ("Create, list and revoke API keys.", _gateway("keys")),
    "server": ("See which databases root's servers keep here; remove one that has ended.", _server),
}


def _group(name: str) -> typer.Typer:
    """Import the commands of a group; return them, with that name, in a group of their own."""
    summary, load = GROUPS[name]
    parent = typer.Typer(rich_markup_mode=None)
    parent.add_typer(load(), name=name, help=summary, no_args_is_help=True)
    return parent


class _Commands(TyperGroup):
    """The commands of this module, and behind them those of the packages."""

    def __init__(self, **attributes: Any) -> None:  # whatever Typer gives a group
        super().__init__(**attributes)
        for name, (summary, _) in GROUPS.items():
            self.add_command(LateCommand(name, partial(_group, name), summary=summary))


app = typer.Typer(
    cls=_Commands,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="A governed, provable front door for Apache Iceberg lakehouses.",
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - the form of an option's callback
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            console.say(f"{NAME} {version(NAME)}")
        except PackageNotFoundError:
            console.say(f"{NAME}, run from its source without being installed")
        raise typer.Exit


@app.callback()
def lakeproof(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A governed, provable front door for Apache Iceberg lakehouses."""


@app.command()
def up() -> None:
    """Serve everything until Ctrl-C: PostgreSQL, gateway, projections, streams, detection, signer."""
    settings = _settings()
    os.umask(PRIVATE_UMASK)
    console.log_from(settings.log_level)
    from lakeproof.serving.up import run_up

    asyncio.run(run_up(settings, console.say))


@app.command()
def demo(
    *, once: Annotated[bool, typer.Option("--once", help="End after the scene: with 1 if a step failed.")] = False
) -> None:
    """Play one scene with real parts, and keep serving."""
    settings = _settings()
    os.umask(PRIVATE_UMASK)
    # What is logged at the usual level would stand between the lines of the scene.
    console.log_from(LogLevel.WARNING if settings.log_level is LogLevel.INFO else settings.log_level)
    from lakeproof.demo.scene import run_demo

    raise typer.Exit(asyncio.run(run_demo(settings, console.say, once=once)))


@app.command()
def settings() -> None:
    """Show every setting: the variables LAKEPROOF_*."""
    console.say(format_settings_table().rstrip())


def main() -> NoReturn:
    """Run the command line of this process, and end it."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """
    Run the command that `arguments` name; return the exit code.
    """
    console.tolerate_any_text()
    crash_file = CrashFile(_home, began=datetime.now(UTC), pid=os.getpid())
    console.log_to_stderr(crash_file)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    try:
        get_command(app).main(args=list(arguments), prog_name=NAME)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except Exception as error:  # noqa: BLE001 - the top of the process: nothing may leave it as a stack trace
        return explain_error(error, crash_file, command=arguments[0] if arguments else "")
    return 0


def explain_error(error: Exception, crash_file: CrashFile, *, command: str = "") -> int:
    """
    Say in one sentence on stderr what happened; return the exit code.

    The stack trace of what was not raised on purpose goes to `crash_file`.
    """
    error = first_of_group(error)
    kinds = {(kind.__module__, kind.__name__) for kind in type(error).__mro__}
    if kinds & FOR_PEOPLE:
        console.complain(str(error) or type(error).__name__)
        return FAILED
    if isinstance(error, ModuleNotFoundError) and (advice := explain_missing(error.name or "", command=command)):
        console.complain(advice)
        return NOT_INSTALLED
    if LOST_CONNECTION in kinds:
        console.complain(f"the database cannot be reached ({error}): check that it runs, then try again")
        return FAILED
    kind = (
        "the system refuses" if isinstance(error, OSError) else f"an error that should not be, {type(error).__name__}"
    )
    console.complain(f"{kind}: {error} (details in {crash_file.add(error)})")
    return BROKEN_DOWN


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    """
    Unwind from wherever the process is, so that what was opened is closed and a server that was started is stopped.

    asyncio's own handler would only cancel a task, and leave a call that blocks to its time-out.
    """
    raise SystemExit(128 + number)


def _settings() -> Settings:
    return load_settings(os.environ, directory=Path.cwd())


def _home() -> Path | None:
    try:
        return _settings().home
    except (LakeproofError, OSError):
        return None
