# SPDX-License-Identifier: Apache-2.0
"""
What the commands print, and where: results on stdout, everything else on stderr.

A pipe gets results and nothing else: progress is shown on a terminal only. Errors are one line each, whatever they were
made of. No text can move the cursor: logs and file names may come from anyone.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from typing import Final

import typer

from lakeproof.crash import CrashFile
from lakeproof.log_format import Context, JsonLine, TextLine, line_members, no_context
from lakeproof.messages import Say
from lakeproof.setting_kinds import LogFormat, LogLevel

OURS: Final = ("ledger", "projections", "gateway", "streams", "spark_detect", "lakeproof")


def show_rows(columns: Sequence[str], rows: Sequence[Mapping[str, object]], *, as_json: bool) -> None:
    """
    Print rows on stdout: a table of `columns` for people, or whole as one JSON list for programs.
    """
    if as_json:
        show_json(rows)
        return
    if not rows:
        typer.echo("none")
        return
    cells = [[column.replace("_", " ").upper() for column in columns]]
    cells += [[one_line(_cell(row[column])) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def show_object(members: Mapping[str, object], *, as_json: bool) -> None:
    """
    Print one thing on stdout: a line for each member for people, or one JSON object for programs.
    """
    if as_json:
        show_json(members)
        return
    width = max(map(len, members), default=0)
    for name, value in members.items():
        shown = [f"{key}={text}" for key, text in value.items()] if isinstance(value, Mapping) else value
        typer.echo(f"{name.replace('_', ' '):<{width}}  {one_line(_cell(shown))}")


def show_done(sentence: str, members: Mapping[str, object], *, as_json: bool) -> None:
    """Print what was done on stdout: a sentence for people, or the thing that was changed as JSON."""
    if as_json:
        show_json(members)
    else:
        say(sentence)


def show_json(value: object) -> None:
    """Print one JSON document on stdout."""
    typer.echo(printable(json.dumps(value, indent=2, ensure_ascii=False)))


def say(text: str) -> None:
    """Print a line on stdout: of a command that serves, its lines are its result."""
    typer.echo(text)


def say_aside(text: str) -> None:
    """Print a line on stderr if somebody watches."""
    if sys.stderr.isatty():
        typer.echo(text, err=True)


def complain(text: str) -> None:
    """Print an error on stderr, as one line."""
    typer.echo(f"lakeproof: {one_line(text)}", err=True)


def explain(text: str) -> None:
    """Print on stderr, as it is, what the error that follows is about."""
    typer.echo(text, err=True)


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows how far long work is: on stderr, each time over what it showed before."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    try:
        yield lambda text: typer.echo(f"\r\x1b[K{one_line(text)}", err=True, nl=False)
    finally:
        typer.echo("\r\x1b[K", err=True, nl=False)


def one_line(text: str) -> str:
    """Return `text` with every run of white space as one space, and escapes for what could move the cursor."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return `text` with JSON's escapes for what could move the cursor."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def tolerate_any_text() -> None:
    """Let stdout escape what its encoding lacks: a name from a log must not end a command."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def log_to_stderr(crash_file: CrashFile) -> None:
    """Show warnings and worse of the log on stderr, one line of text each; stack traces go to `crash_file`."""
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine(crash_file))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


def log_as_json(*, process: str, context: Context = no_context) -> None:
    """Show what `log_to_stderr` shows as one JSON object a line; `context` has members of the present request."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, TextLine):
            handler.setFormatter(JsonLine(handler.formatter.crash_file, process=process, context=context))


def say_as(form: LogFormat, *, process: str) -> Say:
    """Return what prints the lines of a process that serves on stdout: as they are, or in the form of its log."""
    if form is LogFormat.TEXT:
        return say

    def say_json(text: str) -> None:
        at = datetime.now(UTC)
        typer.echo(json.dumps(line_members(text, at=at, level="info", logger="lakeproof", process=process)))

    return say_json


def log_from(level: LogLevel) -> None:
    """Show log records of our own packages from `level` on, those of others from there or from warning on."""
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(max(number, logging.WARNING))
    for package in OURS:
        logging.getLogger(package).setLevel(number)
    # A wire that breaks is said by whoever was using it, and what that means; psycopg's warning would only repeat it.
    logging.getLogger("psycopg").setLevel(logging.ERROR)


class _OneLine(TextLine):
    """The text of a record on one line, whatever it has in it."""

    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case str():
            return value
        case Sequence():
            return ", ".join(map(str, value)) or "-"
        case _:
            return str(value)
