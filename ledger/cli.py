"""
The commands `lakeproof ledger …`: verify, export and prove logs, and check proofs.

`verify <directory>` and `check-proof` need nothing but files and keys, and import nothing but what that takes: no
database driver, no gateway. The others work in the room that `open_room` opens, and are in `cli_room.py`.

Exit codes of `verify` and `check-proof`: 0 verified, 1 broken, 2 could not tell (nothing there, cannot be read, wrong
usage, no key). Of the others: 0 done, 1 failed, 2 called wrongly. Of all: 130 interrupted. Results go to stdout,
everything else to stderr.

A log is never verified with the key that lies beside it: whoever changed the log could have put it there. Without a key
from elsewhere nothing is verified, and that is "could not tell".
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ledger.errors import BrokenError, LedgerError
from ledger.note import VerifierKey
from ledger.proof import PROOF_SIZE_BYTES_MAX, check_proof
from ledger.verify import Progress, Report, read_proven
from ledger.verify_directory import verify_directory

if TYPE_CHECKING:  # at run time these would load the database driver
    from ledger.cli_room import OpenRoom

VERIFIED: Final = 0
BROKEN: Final = 1
UNKNOWN: Final = 2
FAILED: Final = 1
INTERRUPTED: Final = 130

NOT_PINNED: Final = (
    "KEY NOT PINNED: name the log's verifier key with --key, and take it from those who run the log (`lakeproof ledger "
    "key`), not from where the log came from: whoever changed the log could have put a key there"
)
NOT_ANCHORED: Final = "NOT ANCHORED: the log alone vouches for this root, no witness and no time stamp"

_log = logging.getLogger(__name__)

LogName = Annotated[str, typer.Argument(help="Origin, tenant's name or id, or 'system'.", show_default=False)]
TrustedKeys = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="VKEY", help="A verifier key you trust. May be repeated.", show_default=False),
]
LogKey = Annotated[
    str | None,
    typer.Option(
        "--key", metavar="VKEY", help="The log's verifier key, if not this installation's.", show_default=False
    ),
]
Held = Annotated[
    list[Path] | None,
    typer.Option(
        "--checkpoint", metavar="FILE", help="One that you kept: the log must go on from it.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def ledger_app(open_room: OpenRoom) -> typer.Typer:
    """
    Return the commands; `open_room` is called by those that need an installation, and not before.
    """
    app = typer.Typer(
        help="Verify, export and prove logs.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
    )

    @app.command()
    def verify(
        directory: Annotated[Path | None, typer.Argument(help="An exported log.", show_default=False)] = None,
        *,
        log: Annotated[
            str | None, typer.Option("--log", help="Instead: a log in the database.", show_default=False)
        ] = None,
        key: TrustedKeys = None,
        checkpoint: Held = None,
        as_json: AsJson = False,
    ) -> None:
        """Verify chain, tree and checkpoints of a log. Exit code 0: verified, 1: broken, 2: could not tell."""
        with _verdict(as_json=as_json):
            keys = [VerifierKey.parse(text) for text in key or []]
            held = [_read(path) for path in checkpoint or []]
            if log is not None and directory is None:
                from ledger.cli_room import verify_log

                with progress("entries verified") as told:
                    report = asyncio.run(verify_log(open_room, log, keys, held=held, progress=told))
            elif directory is not None and log is None:
                if not keys:
                    raise LedgerError(NOT_PINNED)
                with progress("entries verified") as told:
                    report = verify_directory(directory, keys, held=held, progress=told)
            else:
                raise LedgerError("name either the directory of an exported log, or --log and a log in the database")
            _show_report(report, as_json=as_json)

    @app.command("check-proof")
    def check(
        file: Annotated[Path, typer.Argument(help="A proof file, as `prove` writes it.", show_default=False)],
        *,
        key: TrustedKeys = None,
        as_json: AsJson = False,
    ) -> None:
        """Check the proof of one entry and show the entry. Exit code 0: proven, 1: broken, 2: could not tell."""
        with _verdict(as_json=as_json):
            if not key:
                raise LedgerError(NOT_PINNED)
            _check_proof(file, [VerifierKey.parse(text) for text in key], as_json=as_json)

    @app.command()
    def export(
        log: LogName,
        directory: Annotated[Path, typer.Argument(help="Empty, or an earlier export.", show_default=False)],
        *,
        key: LogKey = None,
        parts: Annotated[bool, typer.Option("--parts", help="Disclose the payload parts, too.")] = False,
    ) -> None:
        """Write a log, up to its newest checkpoint, as a directory that can be verified without us."""
        from ledger.cli_room import export_log_and_parts, export_only_log

        run = export_log_and_parts if parts else export_only_log
        with _failure(), progress("entries exported") as told:
            typer.echo(asyncio.run(run(open_room, log, directory, key=_parsed(key), progress=told)))

    @app.command()
    def prove(
        log: LogName,
        index: Annotated[int, typer.Argument(help="The entry's index, from 0.", min=0, show_default=False)],
        *,
        out: Annotated[Path, typer.Option("--out", help="The file to write.", show_default=False)],
        key: LogKey = None,
    ) -> None:
        """Write the proof of one entry, the entry included, as one file for `check-proof`."""
        from ledger.cli_room import prove_entry

        with _failure():
            typer.echo(asyncio.run(prove_entry(open_room, log, index, out, key=_parsed(key))))

    @app.command("key")
    def show_key(log: LogName) -> None:
        """Show the verifier key of a log, to be handed to those who verify it."""
        from ledger.cli_room import find_key

        with _failure():
            typer.echo(asyncio.run(find_key(open_room, log)))

    return app


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
def _verdict(*, as_json: bool) -> Iterator[None]:
    """End a command that verifies: with 1 only if something is broken, with 2 if anything else went wrong."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenError as error:
        if as_json:
            _show_json(
                {
                    "status": "broken",
                    "fault": error.fault.value,
                    "index": error.index,
                    "where": error.where,
                    "message": str(error),
                }
            )
        else:
            typer.echo(_one_line(str(error)))
            typer.echo("BROKEN")
        raise typer.Exit(BROKEN) from error
    except Exception as error:  # a verifier that fails, however it fails, has neither verified nor refuted
        if as_json:
            _show_json({"status": "unknown", "message": str(error)})
        _complain(error)
        raise typer.Exit(UNKNOWN) from error


@contextmanager
def _failure() -> Iterator[None]:
    """End a command that failed in a way that was foreseen; the rest is for who has called it."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except (LedgerError, OSError) as error:
        _complain(error)
        raise typer.Exit(FAILED) from error


def _show_report(report: Report, *, as_json: bool) -> None:
    if as_json:
        _show_json(
            {
                "status": "verified",
                "origin": report.origin,
                "size": report.size,
                "root": report.root.hex(),
                "signed_size": report.signed_size,
                "checkpoints": report.checkpoints,
                "parts": report.parts,
                "elapsed_ms": round(report.elapsed_s * 1000),
                "entries_per_s": round(report.entries_per_s),
                "unchecked": list(report.unchecked),
                "anchored": report.anchored,
            }
        )
        return
    typer.echo(f"log        {_one_line(report.origin)}")
    typer.echo(f"size       {report.size:,} entries, {report.signed_size:,} of them signed")
    typer.echo(f"root       {report.root.hex()}")
    typer.echo(f"verified   in {report.elapsed_s:.2f} s, {report.entries_per_s:,.0f} entries/s")
    typer.echo(f"checked    {report.checkpoints:,} checkpoints, payload parts of {report.parts:,} entries")
    for name in report.unchecked:
        typer.echo(f"NOT CHECKED: {_one_line(name)}")
    typer.echo(NOT_ANCHORED)
    typer.echo("OK")


def _check_proof(file: Path, keys: Sequence[VerifierKey], *, as_json: bool) -> None:
    proven = check_proof(_read(file), keys)
    read_proven(proven)
    entry = json.loads(proven.entry)
    checkpoint = proven.checkpoint
    if as_json:
        _show_json(
            {
                "status": "verified",
                "origin": checkpoint.origin,
                "index": proven.index,
                "size": checkpoint.size,
                "root": checkpoint.root.hex(),
                "anchored": False,
                "entry": entry,
            }
        )
        return
    _show_json(entry)
    typer.echo(f"entry {proven.index:,} of log {_one_line(checkpoint.origin)}")
    typer.echo(f"stands in its tree of {checkpoint.size:,} entries with the signed root {checkpoint.root.hex()}")
    typer.echo(NOT_ANCHORED)
    typer.echo("OK")


def _read(path: Path) -> bytes:
    """Return a proof or a note; of a larger file only so much that it is refused as too large."""
    try:
        with path.open("rb") as file:
            return file.read(PROOF_SIZE_BYTES_MAX + 1)
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}") from error


def _parsed(key: str | None) -> VerifierKey | None:
    return None if key is None else VerifierKey.parse(key)


def _show_json(value: Mapping[str, object]) -> None:
    typer.echo(_printable(json.dumps(value, indent=2, ensure_ascii=False)))


def _complain(error: Exception) -> None:
    typer.echo(f"lakeproof: {_one_line(str(error)) or type(error).__name__}", err=True)
    _log.debug("the command failed", exc_info=error)


def _one_line(text: str) -> str:
    return _printable(" ".join(text.split()))


def _printable(text: str) -> str:
    """Return `text` with JSON's escapes for what could move the cursor: logs and file names may come from anyone."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
