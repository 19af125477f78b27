# SPDX-License-Identifier: Apache-2.0
"""
How the reports of `verify` read, as text and as JSON. What was not looked at stands in capitals.

A log of which nothing is signed is whatever the database says it is: that is "could not tell".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import typer

from lakeproof.commands.exits import BROKEN, UNKNOWN, broken_json
from lakeproof.console import one_line, show_json
from ledger.errors import BrokenError
from ledger.format.verification import LogVerdict, VerificationReport

NOT_WITNESSED: Final = "NOT WITNESSED: the log alone vouches for this root, nobody outside"
LOG_NOT_WITNESSED: Final = (
    "NOT WITNESSED: nobody outside vouches for this root; had database and home both been set back, this would verify, "
    "too"
)
NOT_SIGNED: Final = "NOT SIGNED: the log's own signer has not vouched for any of these entries yet"
OWN_KEYS: Final = "KEY NOT PINNED: trusted were the keys of this installation; name one that you hold with --key"


def show_report(report: VerificationReport, *, as_json: bool) -> None:
    """
    Print what was verified.

    Raises:
        typer.Exit: with 2, if nothing of the log is signed.
    """
    if as_json:
        show_json(_as_json(report))
    else:
        _show_text(report)
        typer.echo("OK" if report.is_signed else NOT_SIGNED)
    if not report.is_signed:
        raise typer.Exit(UNKNOWN)


def show_verdicts(verdicts: Sequence[LogVerdict], *, as_json: bool) -> None:
    """
    Print what was verified of every log of an installation, and the sum of it.

    Raises:
        typer.Exit: with 1, if a log is broken; else with 2, if nothing of one is signed.
    """
    broken = [verdict.origin for verdict in verdicts if isinstance(verdict.result, BrokenError)]
    unsigned = [
        one.origin for one in verdicts if isinstance(one.result, VerificationReport) and not one.result.is_signed
    ]
    status = "broken" if broken else "unknown" if unsigned else "verified"
    if as_json:
        show_json({"status": status, "logs": [_verdict_json(verdict) for verdict in verdicts]})
    else:
        for verdict in verdicts:
            _show_verdict(verdict)
        if broken:
            typer.echo(one_line(f"BROKEN: {len(broken):,} of {len(verdicts):,} logs: {', '.join(broken)}"))
        elif unsigned:
            typer.echo(one_line(f"NOT SIGNED: {len(unsigned):,} of {len(verdicts):,} logs: {', '.join(unsigned)}"))
        else:
            typer.echo(f"OK: {len(verdicts):,} logs, all that this installation has")
    if broken or unsigned:
        raise typer.Exit(BROKEN if broken else UNKNOWN)


def _show_verdict(verdict: LogVerdict) -> None:
    if isinstance(verdict.result, VerificationReport):
        _show_text(verdict.result)
        typer.echo("" if verdict.result.is_signed else f"{NOT_SIGNED}\n")
    else:
        typer.echo(f"log        {one_line(verdict.origin)}\n{one_line(str(verdict.result))}\nBROKEN\n")


def _verdict_json(verdict: LogVerdict) -> dict[str, object]:
    if isinstance(verdict.result, VerificationReport):
        return _as_json(verdict.result)
    return {"origin": verdict.origin, **broken_json(verdict.result)}


def _show_text(report: VerificationReport) -> None:
    typer.echo(f"log        {one_line(report.origin)}")
    typer.echo(f"size       {report.size:,} entries, {report.signed_size:,} of them signed")
    typer.echo(f"root       {report.root.hex()}")
    typer.echo(f"verified   in {report.elapsed_s:.2f} s, {report.entries_per_s:,.0f} entries/s")
    typer.echo(f"checked    {report.checkpoints:,} checkpoints, payload parts of {report.parts:,} entries")
    for what in report.checked:
        typer.echo(f"checked    {one_line(what)}")
    if report.since is not None:
        typer.echo(
            f"PREFIX NOT RE-READ: entries below {report.first:,} were not read; the log extends the checkpoint of "
            f"size {report.since:,} that you hold"
        )
    if report.resumed_at is not None:
        typer.echo(f"RESUMED at entry {report.resumed_at:,}: that those before it were verified, your own file says")
    for name in report.unchecked:
        typer.echo(f"NOT CHECKED: {one_line(name)}")
    if not report.is_pinned:
        typer.echo(OWN_KEYS)
    if report.anchored_size is not None:
        typer.echo(_anchored(report.size, report.anchored_size))
    typer.echo(_witnessed(report))


def _anchored(size: int, anchored_size: int) -> str:
    if anchored_size == 0:
        return "NOT ANCHORED: the system log has recorded nothing of this log yet"
    if anchored_size == size:
        return "ANCHORED: the system log has recorded this size and root"
    behind = size - anchored_size
    return f"ANCHORED up to size {anchored_size:,} in the system log; the {behind:,} entries behind it NOT ANCHORED"


def _witnessed(report: VerificationReport) -> str:
    if not report.witnessed_size:
        return LOG_NOT_WITNESSED
    by = one_line("; ".join(report.witnessed_by))
    if report.witnessed:
        return f"WITNESSED: {by}"
    behind = report.size - report.witnessed_size
    return f"WITNESSED up to size {report.witnessed_size:,}: {by}; the {behind:,} entries behind it NOT WITNESSED"


def _as_json(report: VerificationReport) -> dict[str, object]:
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
        "anchored_size": report.anchored_size,
        "witnessed": report.witnessed,
        "witnessed_size": report.witnessed_size,
        "witnessed_by": list(report.witnessed_by),
    }
