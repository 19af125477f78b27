"""
How the report of `verify` reads, as text and as JSON. What was not looked at stands in capitals.

A log of which nothing is signed is whatever the database says it is: that is "could not tell".
"""

from __future__ import annotations

from typing import Final

import typer

from ledger.commands.console import UNKNOWN, one_line, show_json
from ledger.verify.rules import Report

NOT_ANCHORED: Final = "NOT ANCHORED: the log alone vouches for this root, no witness and no time stamp"
NOT_SIGNED: Final = "NOT SIGNED: the log's own signer has not vouched for any of these entries yet"
OWN_KEYS: Final = "KEY NOT PINNED: trusted were the keys of this installation; name one that you hold with --key"


def show_report(report: Report, *, as_json: bool) -> None:
    """
    Print what was verified.

    Raises:
        typer.Exit: with 2, if nothing of the log is signed.
    """
    if as_json:
        show_json(_as_json(report))
    else:
        _show_text(report)
    if not report.is_signed:
        raise typer.Exit(UNKNOWN)


def _show_text(report: Report) -> None:
    typer.echo(f"log        {one_line(report.origin)}")
    typer.echo(f"size       {report.size:,} entries, {report.signed_size:,} of them signed")
    typer.echo(f"root       {report.root.hex()}")
    typer.echo(f"verified   in {report.elapsed_s:.2f} s, {report.entries_per_s:,.0f} entries/s")
    typer.echo(f"checked    {report.checkpoints:,} checkpoints, payload parts of {report.parts:,} entries")
    for what in report.checked:
        typer.echo(f"checked    {one_line(what)}")
    if report.since is not None:
        typer.echo(
            f"PREFIX NOT RE-READ: entries below {report.first:,} were not read; the log goes on from the checkpoint of "
            f"size {report.since:,} that you hold"
        )
    if report.resumed_at is not None:
        typer.echo(f"RESUMED at entry {report.resumed_at:,}: that those before it were verified, your own file says")
    for name in report.unchecked:
        typer.echo(f"NOT CHECKED: {one_line(name)}")
    if not report.is_pinned:
        typer.echo(OWN_KEYS)
    typer.echo(_anchoring(report))
    typer.echo("OK" if report.is_signed else NOT_SIGNED)


def _anchoring(report: Report) -> str:
    if not report.anchored_size:
        return NOT_ANCHORED
    by = one_line("; ".join(report.anchored_by))
    if report.anchored:
        return f"ANCHORED: {by}"
    behind = report.size - report.anchored_size
    return f"ANCHORED up to size {report.anchored_size:,}: {by}; the {behind:,} entries behind it NOT ANCHORED"


def _as_json(report: Report) -> dict[str, object]:
    return {
        "status": "verified" if report.is_signed else "unknown",
        "origin": report.origin,
        "size": report.size,
        "root": report.root.hex(),
        "signed_size": report.signed_size,
        "checkpoints": report.checkpoints,
        "parts": report.parts,
        "elapsed_ms": round(report.elapsed_s * 1000),
        "entries_per_s": round(report.entries_per_s),
        "first": report.first,
        "since": report.since,
        "prefix_reread": report.since is None and not report.resumed_at,
        "resumed_at": report.resumed_at,
        "checked": list(report.checked),
        "unchecked": list(report.unchecked),
        "key_pinned": report.is_pinned,
        "anchored": report.anchored,
        "anchored_size": report.anchored_size,
        "anchored_by": list(report.anchored_by),
    }
