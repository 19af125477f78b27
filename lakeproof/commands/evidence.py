"""
The commands for what a third party holds in hand: `bundle` writes evidence, `check` says what it proves.

`check`, and `bundle --directory`, need nothing but files and keys, and load no database driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from lakeproof.commands.evidence_text import evidence_json, evidence_page, write_bundle
from lakeproof.commands.exits import failure, show_json, verdict
from lakeproof.commands.options import (
    NOT_PINNED,
    TIMES,
    AsJson,
    TrustedKeys,
    parsed_keys,
    pinned_anchors,
    pinned_keys,
    read_bounded,
    utc,
)
from ledger.anchoring import Pinned
from ledger.errors import LedgerError
from ledger.format.canonical import format_time
from ledger.format.event import format_key, parse_key
from ledger.format.note import VerifierKey
from ledger.proving.evidence.bundle import BUNDLE_SIZE_BYTES_MAX
from ledger.proving.evidence.check import check_evidence
from ledger.proving.evidence.gather import (
    ALL_PARTS,
    DecisionAt,
    DecisionOf,
    DirectorySource,
    PartNames,
    Rules,
    Wanted,
    gather,
)
from ledger.proving.evidence.scope import Period, PeriodScope, TableScope

if TYPE_CHECKING:  # at run time these would load the database driver
    from lakeproof.commands.room import OpenRoom

Out = Annotated[Path, typer.Option("--out", help="The file to write.", show_default=False)]
Decision = Annotated[
    str | None,
    typer.Option("--decision", metavar="ID", help="A decision: its group's id, or its index.", show_default=False),
]
Table = Annotated[
    str | None,
    typer.Option("--table", metavar="NAME", help="alias.namespace.table, or an event key.", show_default=False),
]
Since = Annotated[
    datetime | None, typer.Option("--from", formats=TIMES, help="Recorded then or later, UTC.", show_default=False)
]
Until = Annotated[
    datetime | None, typer.Option("--to", formats=TIMES, help="Recorded before that, UTC.", show_default=False)
]
Parts = Annotated[
    list[str] | None,
    typer.Option("--part", metavar="NAME", help="Disclose this payload part. May be repeated.", show_default=False),
]
AllParts = Annotated[bool, typer.Option("--all-parts", help="Disclose every payload part.")]
WithPolicies = Annotated[bool, typer.Option("--with-policies", help="Add the rules that the decision was judged by.")]
FromDirectory = Annotated[
    Path | None, typer.Option("--directory", help="Instead of LOG: an exported log.", show_default=False)
]


def add_evidence(app: typer.Typer, open_room: OpenRoom) -> None:
    """
    Add `bundle` and `check`; `open_room` is called for a log in the database, and not before.
    """

    @app.command()
    def bundle(
        log: Annotated[str | None, typer.Argument(help="Origin, tenant's name or id, or 'system'.")] = None,
        *,
        out: Out,
        decision: Decision = None,
        table: Table = None,
        since: Since = None,
        until: Until = None,
        part: Parts = None,
        all_parts: AllParts = False,
        with_policies: WithPolicies = False,
        directory: FromDirectory = None,
        key: TrustedKeys = None,
    ) -> None:
        """Write evidence of a decision, of a table or of a period as one file, for `check`."""
        with failure():
            rules = Rules.INCLUDED if with_policies else Rules.OMITTED
            wanted = _wanted(decision, table, _period(utc(since), utc(until)), rules)
            disclosed = ALL_PARTS if all_parts else PartNames(names=tuple(part or ()))
            keys = parsed_keys(key)
            if log is not None and directory is None:
                from lakeproof.commands.evidence_room import gather_from_log

                typer.echo(asyncio.run(gather_from_log(open_room, log, wanted, out, parts=disclosed, keys=keys)))
            elif directory is not None and log is None:
                typer.echo(_gather_from_directory(directory, wanted, out, disclosed, keys))
            else:
                raise LedgerError("name either a log in the database, or --directory and an exported log")

    @app.command()
    def check(
        file: Annotated[Path, typer.Argument(help="Evidence, as `bundle` writes it.", show_default=False)],
        *,
        key: TrustedKeys = None,
        policy: Annotated[
            Path | None, typer.Option("--policy", help="Witnesses you trust (C2SP tlog-policy).", show_default=False)
        ] = None,
        tsa_root: Annotated[
            Path | None, typer.Option("--tsa-root", help="Roots of time stamps you trust, PEM.", show_default=False)
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Check evidence and say what it proves. Exit code 0: proven, 1: broken, 2: could not tell."""
        with verdict(as_json=as_json):
            show_evidence(file, pinned_keys(key), pinned_anchors(policy, tsa_root), as_json=as_json)


def show_evidence(file: Path, keys: Sequence[VerifierKey], pinned: Pinned, *, as_json: bool) -> None:
    """
    Check the evidence in a file, and print what it proves.

    Raises:
        BrokenError: if it does not prove what it says.
        LedgerError: if it cannot be read.
    """
    evidence = check_evidence(read_bounded(file, size_bytes_max=BUNDLE_SIZE_BYTES_MAX), keys, pinned=pinned)
    if as_json:
        show_json(evidence_json(evidence))
    else:
        typer.echo(evidence_page(evidence))


def _wanted(decision: str | None, table: str | None, period: Period | None, rules: Rules) -> Wanted:
    """Return what the options ask for: a decision, or a table, or a period, or a table in a period."""
    if decision is not None and table is None and period is None:
        if decision.isascii() and decision.isdigit() and len(decision) <= len(str(2**53)):
            return DecisionAt(index=int(decision), rules=rules)
        try:
            return DecisionOf(group_id=UUID(decision), rules=rules)
        except ValueError as error:
            raise LedgerError(f"--decision: expected an index or the id of a group, found {decision!r:.100}") from error
    if decision is None and rules is Rules.OMITTED:
        if table is not None:
            return TableScope(key=_table_key(table), period=period)
        if period is not None:
            return PeriodScope(period=period)
    raise LedgerError(
        "name --decision, or --table, or --from and --to, or --table with --from and --to; --with-policies goes with "
        "--decision"
    )


def _table_key(name: str) -> str:
    """Return the event key of what people call `alias.namespace.table`; an event key is taken as it is."""
    if ":" in name:
        parse_key(name)
        return name
    return format_key("table", name.split("."))


def _period(since: datetime | None, until: datetime | None) -> Period | None:
    if since is None and until is None:
        return None
    if since is None or until is None:
        raise LedgerError("a period has two ends: name --from and --to")
    return Period(since=format_time(since), until=format_time(until))


def _gather_from_directory(
    directory: Path, wanted: Wanted, out: Path, parts: PartNames, keys: list[VerifierKey]
) -> str:
    if not keys:
        raise LedgerError(NOT_PINNED)
    data = asyncio.run(gather(DirectorySource(directory, keys), wanted, keys=keys, parts=parts))
    return write_bundle(out, data, keys)
