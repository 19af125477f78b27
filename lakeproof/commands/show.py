"""
The commands that show a log to people: `show` entries that match, or one of them whole, `tail` it, its `stats`.

They show what is stored and verify nothing: what they print is as trustworthy as the database.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from lakeproof.commands.exits import failure, progress, show_json
from lakeproof.commands.options import TIMES, AsJson, LogName, utc

if TYPE_CHECKING:  # at run time these would load the database driver
    from lakeproof.commands.room import OpenRoom
    from ledger.proving.search import Found

COUNT_MAX = 100_000

Type = Annotated[str | None, typer.Option("--type", help="Of this type; 'commit.*' for a family.", show_default=False)]
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
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on as the log grows, until Ctrl-C.")]
Count = Annotated[int, typer.Option("--number", "-n", help="At most so many, the newest.", min=0, max=COUNT_MAX)]


def add_looking(app: typer.Typer, open_room: OpenRoom) -> None:
    """
    Add `show`, `tail` and `stats`; each calls `open_room`.
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
    ) -> None:
        """Show the newest entries of a log that match, a line each; or one entry, whole."""
        from lakeproof.commands.show_room import Asked, entry_line, show_entries, show_entry

        asked = Asked(
            type=kind, key=about, actor=actor, after=utc(after), before=utc(before), number=number, follow=follow
        )
        with failure(), progress("entries searched") as told:
            if index is not None:
                typer.echo(asyncio.run(show_entry(open_room, log, index)))
            else:
                asyncio.run(
                    show_entries(open_room, log, asked, say=lambda f: typer.echo(entry_line(f.entry)), progress=told)
                )

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
        as_json: Annotated[bool, typer.Option("--json", help="The entries as stored, a line each.")] = False,
    ) -> None:
        """Write the end of a log, and with -f what comes: for people, or with --json for programs."""
        from lakeproof.commands.show_room import Asked, entry_line, show_entries

        def say(found: Found) -> None:
            typer.echo(found.entry if as_json else entry_line(found.entry))

        asked = Asked(type=kind, key=about, actor=actor, from_index=from_index, number=number, follow=follow)
        with failure():
            asyncio.run(show_entries(open_room, log, asked, say=say))

    @app.command()
    def stats(log: LogName, *, as_json: AsJson = False) -> None:
        """Show what a log holds, in figures. Reads all of it once."""
        from lakeproof.commands.show_room import find_statistics, statistics_json, statistics_page

        with failure():
            figures = asyncio.run(find_statistics(open_room, log))
            if as_json:
                show_json(statistics_json(figures))
            else:
                typer.echo(statistics_page(figures))
