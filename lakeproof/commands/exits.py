# SPDX-License-Identifier: Apache-2.0
"""
How the commands `lakeproof ledger …` end and report: exit codes, errors, progress.

Exit codes of commands that verify: 0 verified, 1 broken, 2 could not tell (nothing there, cannot be read, wrong usage,
no key). Of the others: 0 done, 1 failed, 2 called wrongly. Of all: 130 interrupted. Results go to stdout, everything
else to stderr.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import typer

from lakeproof.console import complain, one_line, show_done, show_json, status_line
from lakeproof.errors import first_of_group
from ledger.errors import BrokenError, LedgerError
from ledger.format.verification import ProgressCallback

VERIFIED: Final = 0
BROKEN: Final = 1
UNKNOWN: Final = 2
FAILED: Final = 1
REFUSED: Final = 1
"""Of a command that answers whether something may be: it may not."""
INTERRUPTED: Final = 130

_SHOWN_S: Final = 0.1
_BAR_WIDTH: Final = 24

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """What a command has done: lines for people, and the same for programs."""

    text: str
    members: Mapping[str, object]

    def show(self, *, as_json: bool) -> None:
        """Print it on stdout."""
        show_done(self.text, self.members, as_json=as_json)


@contextmanager
def progress(what: str, *, clock: Callable[[], float] = time.monotonic) -> Iterator[ProgressCallback]:
    """
    Yield a function that shows how much of long work is done, how fast, and how long the rest will take.

    On stderr, only if somebody watches, and at most ten times a second. `clock` counts seconds.
    """
    meter = Meter(clock)
    with status_line() as show_line:

        def show(done: int, of: int) -> None:
            if line := meter.line(done, of, what):
                show_line(line)

        yield show


class Meter:
    """What there is to say of long work, whose speed is measured from the first thing that was done in this run."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began: tuple[float, int] | None = None
        self._shown_s = -math.inf

    def line(self, done: int, of: int, what: str) -> str | None:
        """Return the line to show now, None if the last one is not a tenth of a second old."""
        now_s = self._clock()
        if self._began is None:
            self._began = (now_s, done)
        if now_s < self._shown_s + _SHOWN_S:
            return None
        self._shown_s = now_s
        began_s, first = self._began
        line = f"{_bar(done, of)} {done:,} of {of:,} {what}"
        if now_s <= began_s or done <= first:
            return line
        per_s = (done - first) / (now_s - began_s)
        return f"{line}, {per_s:,.0f}/s, {(of - done) / per_s:,.0f} s left"


def _bar(done: int, of: int) -> str:
    full = _BAR_WIDTH * done // of if of else _BAR_WIDTH
    return f"[{'#' * full}{'.' * (_BAR_WIDTH - full)}]"


@contextmanager
def verdict(*, as_json: bool) -> Iterator[None]:
    """End a command that verifies: with 1 only if something is broken, with 2 if anything else went wrong."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenError as error:
        if as_json:
            show_json(broken_json(error))
        else:
            typer.echo(one_line(str(error)))
            typer.echo("BROKEN")
        raise typer.Exit(BROKEN) from error
    except Exception as error:  # a verifier that fails, however it fails, has neither verified nor refuted
        if as_json:
            show_json({"status": "unknown", "message": str(error)})
        _complain(error)
        raise typer.Exit(UNKNOWN) from error


@contextmanager
def failing_with(
    code: int, *, as_json: bool, is_refusal: Callable[[Exception], bool] = lambda _: False
) -> Iterator[None]:
    """
    End a command whose exit code 1 means something else than a failure: with `code`, however it failed, or with
    `REFUSED` after an error that `is_refusal` says is one.
    """
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        is_refused = is_refusal(error)
        if as_json:
            show_json({"status": "refused" if is_refused else "failed", "message": str(error)})
        _complain(first_of_group(error))
        raise typer.Exit(REFUSED if is_refused else code) from error


def broken_json(error: BrokenError) -> dict[str, object]:
    return {
        "status": "broken",
        "fault": error.fault.value,
        "index": error.index,
        "where": error.where,
        "message": str(error),
    }


@contextmanager
def failure() -> Iterator[None]:
    """End a command that failed in a way that was foreseen; the rest is for who has called it."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except (LedgerError, OSError) as error:
        _complain(error)
        raise typer.Exit(FAILED) from error


def _complain(error: Exception) -> None:
    complain(str(error).strip() or type(error).__name__)
    _log.debug("the command failed", exc_info=error)
