# SPDX-License-Identifier: Apache-2.0
"""
The command `lakeproof doctor`: what is wrong with the installation of the home, and what to do about it.

Exit code 0: nothing is wrong, or there are only warnings; 1: something is. It changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import typer

from lakeproof import console
from lakeproof.commands.options import AsJson
from lakeproof.inspecting.doctor import Examined, examine, worst
from lakeproof.inspecting.findings import Result

SOMETHING_IS_WRONG = 1


def doctor_app() -> typer.Typer:
    """
    Return the command.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def doctor(*, as_json: AsJson = False) -> None:
        """Check everything the installation depends on, and say what to do; ends with 1 if there is a problem."""
        examined = examine(os.environ, directory=Path.cwd(), clock=lambda: datetime.now(UTC))
        if as_json:
            console.show_json(_document(examined))
        else:
            _show(examined)
        if worst(examined) is Result.PROBLEM:
            raise typer.Exit(SOMETHING_IS_WRONG)

    return app


def _document(examined: Sequence[Examined]) -> dict[str, object]:
    checks = [
        {
            "check": each.check,
            "result": each.finding.result.value,
            "expected": each.finding.expected,
            "found": each.finding.found,
            "advice": each.finding.advice,
        }
        for each in examined
    ]
    return {"result": worst(examined).value, "checks": checks}


def _show(examined: Sequence[Examined]) -> None:
    for each in examined:
        finding = each.finding
        head = f"{finding.result.value:<8} {each.check:<10}"
        if finding.result is Result.OK:
            console.say(f"{head} {console.one_line(finding.found)}")
            continue
        console.say(f"{head} expected {console.one_line(finding.expected)}")
        console.say(f"{'':<20}found {console.one_line(finding.found)}")
        console.say(f"{'':<20}what to do: {console.one_line(finding.advice)}")
    count = {result: sum(each.finding.result is result for each in examined) for result in Result}
    console.say(f"\n{count[Result.PROBLEM]} problems, {count[Result.WARNING]} warnings")
