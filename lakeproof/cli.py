# SPDX-License-Identifier: Apache-2.0
"""
The command `lakeproof`: the list of its commands, and what becomes of errors.

Only what is used is imported. This module knows of each group of commands its name and one line of help; its module in
`lakeproof/commands/` is imported when one of its commands is called. So an auditor's `lakeproof ledger check-proof`
loads no database driver and no web framework.

Exit codes: 0 done, 1 refused or failed, 2 called wrongly or a package is missing, 70 broken down, 130 interrupted, 143
terminated; `ledger verify` and `ledger check-proof` have 1 for what is broken and 2 for what they cannot tell, and
never 1 for anything else. Commands that ask whether a policy is accepted have 1 for what is refused and 2 for whatever
else failed. Whatever is raised on purpose becomes one sentence on stderr; whatever is not, too, and its
stack trace goes to a file in the home's log directory.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command

from lakeproof import console
from lakeproof.commands.loading import LateCommand
from lakeproof.commands.opening import home_settings
from lakeproof.commands.up import add_commands
from lakeproof.crash import CrashFile
from lakeproof.errors import LakeproofError
from lakeproof.explaining import explain

NAME: Final = "lakeproof"
COMPLETION: Final = "_LAKEPROOF_COMPLETE"
"""The variable with which a shell asks for completions; its value names the shell."""

SINGLE: Final = {
    "status": ("status.status_app", "Show what runs and how it is; end with 1 if something is not well."),
    "doctor": ("doctor.doctor_app", "Check what it depends on, and say what to do; end with 1 on a problem."),
}
"""Where in `lakeproof/commands/` a command is that is imported when it is called, and what the list says of it."""
GROUPS: Final = {
    "ledger": ("ledger.ledger_app", "Verify, export and prove logs; most of it offline."),
    "projections": ("projections.projections_app", "See how far the read models are; rebuild them from the log."),
    "graph": (
        "graph.graph_app",
        "Ask who wrote a table, what was made from it, and where personal data may have gone.",
    ),
    "lineage": ("lineage.lineage_app", "See what a table was made from, and what was made from it."),
    "streams": ("streams.streams_app", "Run the streams, and see how far they are."),
    "dead-letters": ("streams.dead_letters_app", "See what the streams have given up, and why; replay it."),
    "detect": ("detect.detect_app", "Run detection on Spark, and see what it has scanned and found."),
    "findings": ("findings.findings_app", "See what scans took for personal data; say whether that is real."),
    "policies": ("rules.policies_app", "Write, test, apply, show, change and delete the policies that judge commits."),
    "restrictions": (
        "restrictions.restrictions_app",
        "Write, test, show, change and delete row filters and column masks; reads do not enforce them yet.",
    ),
    "access-rules": (
        "rules.access_rules_app",
        "Create, show and delete the rules on who may do what; ask them who may.",
    ),
    "catalogs": ("catalogs.catalogs_app", "Create, show, check and delete the catalogs that engines reach."),
    "secrets": (
        "catalog_secrets.secrets_app",
        "Store what it takes to reach foreign catalogs; nothing shows it again.",
    ),
    "drops": ("drops.drops_app", "See which tables were dropped while their files stayed."),
    "purges": ("drops.purges_app", "See which tables were dropped with their files, and how far that is."),
    "tenants": ("tenants.tenants_app", "Create and show tenants; change their settings."),
    "keys": ("api_keys.keys_app", "Create, show, rotate and delete API keys."),
    "console": (
        "console_logins.console_app",
        "Make a link that logs a browser of this machine in to the console, once.",
    ),
    "config": ("config.config_app", "List the settings, and show what each is here and where that comes from."),
    "server": ("server.server_app", "See which databases root's servers keep here; delete one that has ended."),
}
"""Where in `lakeproof/commands/` a group's commands are, and what the list of commands says of it."""


def _single(name: str) -> typer.Typer:
    """Import a command; return it in a group of its own."""
    module, _, make = SINGLE[name][0].partition(".")
    commands: typer.Typer = getattr(import_module(f"lakeproof.commands.{module}"), make)()
    return commands


def _group(name: str) -> typer.Typer:
    """Import the commands of a group; return them, with that name, in a group of their own."""
    where, summary = GROUPS[name]
    module, _, make = where.partition(".")
    parent = typer.Typer(rich_markup_mode=None)
    commands = getattr(import_module(f"lakeproof.commands.{module}"), make)()
    parent.add_typer(commands, name=name, help=summary, no_args_is_help=True)
    return parent


class _Commands(TyperGroup):
    """The commands of this module, and behind them those of the packages."""

    def __init__(self, **attributes: Any) -> None:  # whatever Typer gives a group
        super().__init__(**attributes)
        for name, (_, summary) in SINGLE.items():
            self.add_command(LateCommand(name, partial(_single, name), summary=summary))
        for name, (_, summary) in GROUPS.items():
            self.add_command(LateCommand(name, partial(_group, name), summary=summary))


app = typer.Typer(
    cls=_Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="A governed, provable front door for Apache Iceberg lakehouses.",
)
add_commands(app)


def _show_version(value: bool) -> None:  # noqa: FBT001 - the form of an option's callback
    if value:
        from gateway.version import UNRELEASED, installed_version

        found = installed_version()
        source = f"{NAME}, run from its source without being installed"
        console.say(source if found == UNRELEASED else f"{NAME} {found}")
        raise typer.Exit


@app.callback()
def lakeproof(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A governed, provable front door for Apache Iceberg lakehouses."""


def main() -> NoReturn:
    """Run the command line of this process, and end it."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """
    Run the command that `arguments` name; return the exit code.
    """
    if COMPLETION in os.environ:
        return _complete()
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


def _complete() -> int:
    """
    Print what completes the words that the shell names, or the function that asks for that; return the exit code.

    Whatever goes wrong is silent: a package that is missing is said when the command is called.
    """
    try:
        get_command(app).main(args=[], prog_name=NAME)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except Exception:  # noqa: BLE001 - the top of the process, as in `run`
        return 1
    return 0


def explain_error(error: Exception, crash_file: CrashFile, *, command: str = "") -> int:
    """
    Say in one sentence on stderr what happened; return the exit code.

    The stack trace of what was not raised on purpose goes to `crash_file`.
    """
    explained = explain(error, crash_file, command=command)
    console.complain(explained.text)
    return explained.code


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    """
    Unwind from wherever the process is, so that what was opened is closed and a server that was started is stopped.

    asyncio's own handler would only cancel a task, and leave a call that blocks to its time-out.
    """
    raise SystemExit(128 + number)


def _home() -> Path | None:
    try:
        return home_settings().home
    except (LakeproofError, OSError):
        return None
