"""
The commands that hand out what others verify: `export` a log, `prove` one entry, show a log's `key`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakeproof.commands.exits import failure, progress
from lakeproof.commands.options import LogKeys, LogName, parsed_keys

if TYPE_CHECKING:  # at run time these would load the database driver
    from lakeproof.commands.room import OpenRoom


def add_exporting(app: typer.Typer, open_room: OpenRoom) -> None:
    """
    Add `export`, `prove` and `key`; each calls `open_room`.
    """

    @app.command()
    def export(
        log: LogName,
        directory: Annotated[Path, typer.Argument(help="Empty, or an earlier export.", show_default=False)],
        *,
        key: LogKeys = None,
        parts: Annotated[bool, typer.Option("--parts", help="Disclose the payload parts, too.")] = False,
        stamped: Annotated[bool, typer.Option("--stamped", help="Up to the newest time stamp, with it.")] = False,
    ) -> None:
        """Write a log, up to its newest checkpoint, as a directory that can be verified without us."""
        from lakeproof.commands.room import export_log_and_parts, export_only_log, export_only_stamped_log

        if parts and stamped:
            raise typer.BadParameter(
                "only the system log is stamped, and its parts are not given out: name one of both"
            )
        run = export_log_and_parts if parts else export_only_stamped_log if stamped else export_only_log
        with failure(), progress("entries exported") as told:
            typer.echo(asyncio.run(run(open_room, log, directory, keys=parsed_keys(key), progress=told)))

    @app.command()
    def prove(
        log: LogName,
        index: Annotated[int, typer.Argument(help="The entry's index, from 0.", min=0, show_default=False)],
        *,
        out: Annotated[Path, typer.Option("--out", help="The file to write.", show_default=False)],
        key: LogKeys = None,
    ) -> None:
        """Write the proof of one entry, the entry included, as one file for `check-proof`."""
        from lakeproof.commands.room import write_proof

        with failure():
            typer.echo(asyncio.run(write_proof(open_room, log, index, out, keys=parsed_keys(key))))

    @app.command("key")
    def show_key(
        log: LogName, *, ml_dsa: Annotated[bool, typer.Option("--ml-dsa", help="Its ML-DSA-44 keys instead.")] = False
    ) -> None:
        """Show the verifier key of a log, to be handed to those who verify it."""
        from lakeproof.commands.room import find_key, find_ml_dsa_keys

        with failure():
            typer.echo(asyncio.run((find_ml_dsa_keys if ml_dsa else find_key)(open_room, log)))
