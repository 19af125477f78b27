# SPDX-License-Identifier: Apache-2.0
"""
The commands that show a log to people: `show` entries that match, or one of them whole, `tail` it, its `stats`.

They show what is stored and verify nothing: what they print is as trustworthy as the database.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lakeproof.commands.exits import failure, progress
from lakeproof.commands.opening import OpenInstallation, run_with_auditor
from lakeproof.commands.options import TIMES, AsJson, LogName, one_of, utc
from lakeproof.console import one_line, printable, show_json
from lakeproof.log_names import find_named_log
from ledger.errors import LedgerError
from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.entry import Entry, parse_entry
from ledger.format.event import ACTOR_FORM
from ledger.format.events import EVENTS
from ledger.format.merkle import leaf_hash
from ledger.format.verification import ProgressCallback
from ledger.proving.export import as_reader
from ledger.proving.search import (
    QUERIES,
    EntryFilter,
    FoundEntry,
    Statistics,
    find_newest,
    follow,
    read_statistics,
    with_parts,
)
from ledger.store.read import Log, read_entry, read_head
from ledger.store.session import Connection

if TYPE_CHECKING:
    from lakeproof.installation import Installation


COUNT_MAX: Final = 100_000

Type = Annotated[
    str | None,
    typer.Option(
        "--type",
        help="Of this type; 'commit.*' for a family.",
        autocompletion=one_of({type_ for type_, _ in EVENTS}),
        show_default=False,
    ),
]
Key = Annotated[
    str | None,
    typer.Option("--about", metavar="KEY", help="About this key; may end in '*', too.", show_default=False),
]
Actor = Annotated[
    str | None, typer.Option("--actor", help="By this actor: 32 hex digits, 'system', a name.", show_default=False)
]
After = Annotated[
    datetime | None, typer.Option("--after", formats=TIMES, help="Recorded then or later, UTC.", show_default=False)
]
Before = Annotated[
    datetime | None, typer.Option("--before", formats=TIMES, help="Recorded before that, UTC.", show_default=False)
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Continue as the log grows, until Ctrl-C.")]
Stored = Annotated[bool, typer.Option("--json", help="The entries as stored, a line of JSON each.")]
Count = Annotated[int, typer.Option("--number", "-n", help="At most so many, the newest.", min=0, max=COUNT_MAX)]


def add_commands(app: typer.Typer, open_installation: OpenInstallation) -> None:
    """
    Add `show`, `tail` and `stats`; each calls `open_installation`.
    """

    @app.command()
    def show(
        log: LogName,
        index: Annotated[int | None, typer.Argument(help="One entry, whole.", min=0, show_default=False)] = None,
        *,
        kind: Type = None,
        about: Key = None,
        actor: Actor = None,
        after: After = None,
        before: Before = None,
        number: Count = 20,
        follow: Follow = False,
        as_json: Stored = False,
    ) -> None:
        """Show the newest entries of a log that match, a line each; or one entry, whole."""
        query = EntryQuery(
            type=kind, key=about, actor=actor, after=utc(after), before=utc(before), number=number, follow=follow
        )
        with failure(), progress("entries searched") as show_progress:
            if index is not None:
                showing = partial(show_stored_entry if as_json else show_entry, name=log, index=index)
                typer.echo(run_with_auditor(open_installation, showing))
            else:
                show_found = _show_stored if as_json else _show_line
                searching = partial(show_entries, name=log, query=query, show=show_found, progress=show_progress)
                run_with_auditor(open_installation, searching)

    @app.command()
    def tail(
        log: LogName,
        *,
        kind: Type = None,
        about: Key = None,
        actor: Actor = None,
        from_index: Annotated[
            int, typer.Option("--from", help="Nothing before this index.", min=0, show_default=False)
        ] = 0,
        number: Count = 10,
        follow: Follow = False,
        as_json: Stored = False,
    ) -> None:
        """Write the end of a log, and with -f what comes: for people, or with --json for programs."""
        query = EntryQuery(type=kind, key=about, actor=actor, from_index=from_index, number=number, follow=follow)
        with failure():
            searching = partial(show_entries, name=log, query=query, show=_show_stored if as_json else _show_line)
            run_with_auditor(open_installation, searching)

    @app.command()
    def stats(log: LogName, *, as_json: AsJson = False) -> None:
        """Show what a log holds, in figures. Reads all of it once."""
        with failure():
            figures = run_with_auditor(open_installation, partial(find_statistics, name=log))
            if as_json:
                show_json(statistics_json(figures))
            else:
                typer.echo(statistics_page(figures))


SUMMARY_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "access.refused": ("operation", "reason", "count"),
    "alert.delivered": ("sink", "attempt"),
    "alert.raised": ("column", "kind", "confidence_percent"),
    "commit.decided": ("decision", "operation", "snapshots"),
    "commit.observed": ("snapshots",),
    "commit.settled": ("outcome", "snapshots"),
    "detection.found": ("column", "kind", "confidence_percent", "snapshot"),
    "finding.reviewed": ("finding", "verdict", "column", "kind", "reason"),
    "logs.anchored": ("size", "root"),
    "scan.completed": ("snapshot", "rows", "findings"),
    "scan.failed": ("snapshot", "fault"),
}
"""What one line says of an entry's data; of other types, the members that hold no list and no object."""
SUMMARY_LENGTH_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryQuery:
    """Which entries are to be shown: an `EntryFilter` whose actor may be given by name; the newest `number` of them."""

    type: str | None = None
    key: str | None = None
    actor: str | None = None
    after: datetime | None = None
    before: datetime | None = None
    from_index: int = 0
    number: int
    follow: bool


def _show_line(found: FoundEntry) -> None:
    typer.echo(entry_line(found.entry))


def _show_stored(found: FoundEntry) -> None:
    typer.echo(found.entry)


async def show_entries(
    installation: Installation,
    auditor: Connection,
    name: str,
    query: EntryQuery,
    *,
    show: Callable[[FoundEntry], None],
    progress: ProgressCallback = lambda _done, _of: None,
) -> None:
    """
    Show the newest entries that match, oldest first; with `query.follow`, continue as the log grows.

    Raises:
        LedgerError: if there is no such log, or nobody of that name in it.
    """
    log = await find_named_log(installation, auditor, name)
    selection = EntryFilter(
        type=query.type,
        key=query.key,
        actors=None if query.actor is None else await _actors(auditor, log, query.actor),
        after=query.after,
        before=query.before,
    )
    newest, size = await find_newest(
        auditor, log, selection, count_max=query.number, from_index=query.from_index, progress=progress
    )
    for found in newest:
        show(found)
    if query.follow:
        async for found in follow(auditor, log, selection, from_index=max(size, query.from_index)):
            show(found)


async def show_entry(installation: Installation, auditor: Connection, name: str, index: int) -> str:
    """
    Return everything about one entry.

    Raises:
        LedgerError: if there is no such log or entry; a BrokenError if the log should have it.
    """
    log = await find_named_log(installation, auditor, name)
    entry = await _entry_at(auditor, log, index)
    held: list[str] | None = None
    if log.reader is not None:
        async with as_reader(auditor, log):
            place = {"log_id": log.log_id, "index": index}
            rows = await (await auditor.execute(QUERIES["parts_at"], place)).fetchall()
            held = [row[0] for row in rows]
    return entry_page(entry, parts_held=held)


async def show_stored_entry(installation: Installation, auditor: Connection, name: str, index: int) -> bytes:
    """
    Return one entry as it is stored. Raises as `show_entry`.
    """
    return await _entry_at(auditor, await find_named_log(installation, auditor, name), index)


async def _entry_at(auditor: Connection, log: Log, index: int) -> bytes:
    size = (await read_head(auditor, log.log_id)).size
    if index >= size:
        raise LedgerError(f"log {log.origin}: expected an index from 0 to below its size {size}, found {index}")
    return await read_entry(auditor, log.log_id, index)


async def find_statistics(installation: Installation, auditor: Connection, name: str) -> Statistics:
    """
    Return the figures of a log.

    Raises:
        LedgerError: if there is no such log.
    """
    log = await find_named_log(installation, auditor, name)
    figures = await read_statistics(auditor, log)
    if log.reader is None:
        return figures
    async with as_reader(auditor, log):
        return await with_parts(auditor, log, figures)


async def _actors(connection: Connection, log: Log, name: str) -> tuple[str, ...]:
    if ACTOR_FORM.fullmatch(name):
        return (name,)
    if log.reader is None:
        raise LedgerError(f"actor {name!r:.100}: expected 32 hex digits or 'system' in a log without a tenant")
    async with as_reader(connection, log):
        bounds = {"log_id": log.log_id, "identity": name}
        rows = await (await connection.execute(QUERIES["actors_of_identity"], bounds)).fetchall()
    if not rows:
        raise LedgerError(f"actor {name!r:.100}: expected 32 hex digits, 'system', or an identity known to the log")
    return tuple(str(row[0]) for row in rows)


def entry_line(entry: bytes) -> str:
    """
    Return one line about an entry: index, time, type, key, and what matters in its data.

    Raises:
        FormatError: if it is no entry.
    """
    parsed = parse_entry(entry)
    time = canonical.format_time(parsed.recorded_at)
    return _line(f"{parsed.index:>9,}  {time}  {parsed.type:<19}  {parsed.key}  {_summary(parsed)}".rstrip())


def entry_page(entry: bytes, *, parts_held: Collection[str] | None) -> str:
    """
    Return everything about one entry: its place, its hashes, its event, and which of its payload parts still exist.

    `parts_held` names those that do, None if that is not known to who asks.

    Raises:
        FormatError: if it is no entry.
    """
    parsed = parse_entry(entry)
    event: Mapping[str, Json] = json.loads(entry)["event"]
    lines = [
        f"entry      {parsed.index:,} of {parsed.log}",
        f"type       {parsed.type} {parsed.version}",
        f"key        {parsed.key}",
        f"actor      {parsed.actor}",
        f"occurred   {canonical.format_time(parsed.occurred_at)}",
        f"recorded   {canonical.format_time(parsed.recorded_at)}",
        f"group      {parsed.group_id}, branch {parsed.branch}, event {parsed.position + 1} of {parsed.of}",
        f"previous   {parsed.previous.hex()}",
        f"leaf       {leaf_hash(entry).hex()}",
        f"size       {len(entry):,} bytes",
    ]
    for name, commitment in parsed.parts.items():
        held = "" if parts_held is None else ", held" if name in parts_held else ", erased"
        lines.append(f"part       {name}{held}, commitment {commitment.hex()}")
    data = printable(json.dumps(event["data"], indent=2, ensure_ascii=False))
    return "\n".join([*map(_line, lines), data])


def statistics_page(figures: Statistics) -> str:
    """
    Return the figures of a log as a page.
    """
    return "\n".join(map(printable, _statistics_lines(figures)))


def statistics_json(figures: Statistics) -> dict[str, Json]:
    """
    Return the figures of a log as a JSON document.
    """
    return {
        "origin": figures.origin,
        "size": figures.size,
        "signed_size": figures.signed_size,
        "checkpoints": figures.checkpoints,
        "groups": figures.groups,
        "bytes": figures.size_bytes,
        "parts_held": figures.parts_held,
        "parts_bytes": figures.parts_size_bytes,
        "control_index": figures.control_index,
        "first_recorded_at": _time(figures.first_recorded_at),
        "last_recorded_at": _time(figures.last_recorded_at),
        "entries_last_hour": figures.last_hour,
        "entries_last_day": figures.last_day,
        "types": {
            one.type: {
                "entries": one.entries,
                "bytes": one.size_bytes,
                "first_index": one.first_index,
                "last_index": one.last_index,
            }
            for one in figures.types
        },
    }


def _statistics_lines(figures: Statistics) -> Iterator[str]:
    yield f"log        {one_line(figures.origin)}"
    yield f"size       {figures.size:,} entries in {figures.groups:,} groups, {figures.size_bytes:,} bytes"
    yield f"signed     {figures.signed_size:,} entries, {figures.checkpoints:,} checkpoints"
    if figures.parts_held is not None:
        yield f"parts      {figures.parts_held:,} held, {figures.parts_size_bytes:,} bytes"
    if figures.first_recorded_at is not None and figures.last_recorded_at is not None:
        yield f"first      {canonical.format_time(figures.first_recorded_at)}"
        yield f"last       {canonical.format_time(figures.last_recorded_at)}"
    yield f"grown by   {figures.last_hour:,} entries in the last hour, {figures.last_day:,} in the last day"
    if figures.types:
        yield ""
        yield f"{'type':<24}{'entries':>12}{'bytes':>16}{'bytes each':>12}{'last index':>12}"
    for one in figures.types:
        each = one.size_bytes // one.entries
        yield f"{one_line(one.type):<24}{one.entries:>12,}{one.size_bytes:>16,}{each:>12,}{one.last_index:>12,}"


def _line(text: str) -> str:
    return printable(text.replace("\n", " "))


def _time(time: datetime | None) -> str | None:
    return None if time is None else canonical.format_time(time)


def _summary(entry: Entry) -> str:
    members = SUMMARY_MEMBERS.get(entry.type)
    if members is None:
        values = [value for value in entry.data.values() if not isinstance(value, list | dict)]
    else:
        values = [entry.data[name] for name in members if name in entry.data]
    text = " ".join(word for value in values if (word := _word(value)))
    return text if len(text) <= SUMMARY_LENGTH_MAX else f"{text[: SUMMARY_LENGTH_MAX - 1]}…"


def _word(value: Json) -> str:
    if value is None or value == []:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
