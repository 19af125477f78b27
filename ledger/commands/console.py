"""
How the commands `lakeproof ledger …` speak: exit codes, what is said of an error, progress, text that cannot misbehave.

Exit codes of commands that verify: 0 verified, 1 broken, 2 could not tell (nothing there, cannot be read, wrong usage,
no key). Of the others: 0 done, 1 failed, 2 called wrongly. Of all: 130 interrupted. Results go to stdout, everything
else to stderr.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from ledger.errors import BrokenError, LedgerError
from ledger.note import VerifierKey
from ledger.proof import PROOF_SIZE_BYTES_MAX
from ledger.verify.rules import Progress

VERIFIED: Final = 0
BROKEN: Final = 1
UNKNOWN: Final = 2
FAILED: Final = 1
INTERRUPTED: Final = 130

_log = logging.getLogger(__name__)

LogName = Annotated[str, typer.Argument(help="Origin, tenant's name or id, or 'system'.", show_default=False)]
LogKey = Annotated[
    str | None,
    typer.Option(
        "--key", metavar="VKEY", help="The log's verifier key, if not this installation's.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    """
    Yield a function that shows how much of long work is done, on stderr and only if somebody watches.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _of: None
        return
    try:
        yield lambda done, of: typer.echo(f"\r\x1b[K{done:,} of {of:,} {what}", err=True, nl=False)
    finally:
        typer.echo("\r\x1b[K", err=True, nl=False)


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
            show_json(
                {
                    "status": "broken",
                    "fault": error.fault.value,
                    "index": error.index,
                    "where": error.where,
                    "message": str(error),
                }
            )
        else:
            typer.echo(one_line(str(error)))
            typer.echo("BROKEN")
        raise typer.Exit(BROKEN) from error
    except Exception as error:  # a verifier that fails, however it fails, has neither verified nor refuted
        if as_json:
            show_json({"status": "unknown", "message": str(error)})
        complain(error)
        raise typer.Exit(UNKNOWN) from error


@contextmanager
def failure() -> Iterator[None]:
    """End a command that failed in a way that was foreseen; the rest is for who has called it."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except (LedgerError, OSError) as error:
        complain(error)
        raise typer.Exit(FAILED) from error


def read_note(path: Path) -> bytes:
    """Return a proof or a note; of a larger file only so much that it is refused as too large."""
    try:
        with path.open("rb") as file:
            return file.read(PROOF_SIZE_BYTES_MAX + 1)
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}") from error


def parsed_key(key: str | None) -> VerifierKey | None:
    return None if key is None else VerifierKey.parse(key)


def show_json(value: Mapping[str, object]) -> None:
    typer.echo(printable(json.dumps(value, indent=2, ensure_ascii=False)))


def complain(error: Exception) -> None:
    typer.echo(f"lakeproof: {one_line(str(error)) or type(error).__name__}", err=True)
    _log.debug("the command failed", exc_info=error)


def one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return `text` with JSON's escapes for what could move the cursor: logs and file names may come from anyone."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
