"""
The commands that verify: `verify` a log, `check-proof` of one entry.

`verify <directory>` and `check-proof` need nothing but files and keys, and import nothing but what that takes: no
database driver, no gateway. A log is never verified with the key that lies beside it: whoever changed the log could
have put it there. Without a key from elsewhere nothing is verified, and that is "could not tell".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ledger.commands.console import AsJson, one_line, progress, read_note, show_json, verdict
from ledger.errors import LedgerError
from ledger.note import VerifierKey
from ledger.proof import check_proof
from ledger.verify.directory import verify_directory
from ledger.verify.rules import Report, read_proven

if TYPE_CHECKING:  # at run time these would load the database driver
    from ledger.commands.room import OpenRoom

NOT_PINNED: Final = (
    "KEY NOT PINNED: name the log's verifier key with --key, and take it from those who run the log (`lakeproof ledger "
    "key`), not from where the log came from: whoever changed the log could have put a key there"
)
NOT_ANCHORED: Final = "NOT ANCHORED: the log alone vouches for this root, no witness and no time stamp"

TrustedKeys = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="VKEY", help="A verifier key you trust. May be repeated.", show_default=False),
]
Held = Annotated[
    list[Path] | None,
    typer.Option(
        "--checkpoint", metavar="FILE", help="One that you kept: the log must go on from it.", show_default=False
    ),
]


def add_verifying(app: typer.Typer, open_room: OpenRoom) -> None:
    """
    Add `verify` and `check-proof`; `open_room` is called for a log in the database, and not before.
    """

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
        with verdict(as_json=as_json):
            keys = [VerifierKey.parse(text) for text in key or []]
            held = [read_note(path) for path in checkpoint or []]
            if log is not None and directory is None:
                from ledger.commands.room import verify_log

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
        with verdict(as_json=as_json):
            if not key:
                raise LedgerError(NOT_PINNED)
            _check_proof(file, [VerifierKey.parse(text) for text in key], as_json=as_json)


def _show_report(report: Report, *, as_json: bool) -> None:
    if as_json:
        show_json(
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
    typer.echo(f"log        {one_line(report.origin)}")
    typer.echo(f"size       {report.size:,} entries, {report.signed_size:,} of them signed")
    typer.echo(f"root       {report.root.hex()}")
    typer.echo(f"verified   in {report.elapsed_s:.2f} s, {report.entries_per_s:,.0f} entries/s")
    typer.echo(f"checked    {report.checkpoints:,} checkpoints, payload parts of {report.parts:,} entries")
    for name in report.unchecked:
        typer.echo(f"NOT CHECKED: {one_line(name)}")
    typer.echo(NOT_ANCHORED)
    typer.echo("OK")


def _check_proof(file: Path, keys: Sequence[VerifierKey], *, as_json: bool) -> None:
    proven = check_proof(read_note(file), keys)
    read_proven(proven)
    entry = json.loads(proven.entry)
    checkpoint = proven.checkpoint
    if as_json:
        show_json(
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
    show_json(entry)
    typer.echo(f"entry {proven.index:,} of log {one_line(checkpoint.origin)}")
    typer.echo(f"stands in its tree of {checkpoint.size:,} entries with the signed root {checkpoint.root.hex()}")
    typer.echo(NOT_ANCHORED)
    typer.echo("OK")
