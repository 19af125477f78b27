"""
The commands for logs that the signer refuses: `adopt` what is stored, `recover` what is lost.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakeproof.commands.exits import failure, progress
from lakeproof.commands.options import LogName, TrustedKeys, parsed_keys

if TYPE_CHECKING:  # at run time these would load the database driver
    from lakeproof.commands.room import OpenRoom


def add_recovering(app: typer.Typer, open_room: OpenRoom) -> None:
    """
    Add `adopt` and `recover`; each calls `open_room`.
    """

    @app.command()
    def adopt(
        log: LogName,
        *,
        yes: Annotated[bool, typer.Option("--yes", help="Do not ask: it was looked at before.")] = False,
    ) -> None:
        """Let the signer go on from stored checkpoints of which its key directory knows nothing."""
        from lakeproof.commands.recover_room import adopt_log

        def agree(shown: str) -> bool:
            typer.echo(shown)
            return yes or typer.confirm("Let the signer go on from this?", err=True)

        with failure(), progress("entries verified") as told:
            typer.echo(asyncio.run(adopt_log(open_room, log, agree, progress=told)))

    @app.command()
    def recover(
        log: LogName,
        *,
        directory: Annotated[
            Path | None,
            typer.Option("--from", metavar="DIRECTORY", help="An export that has what is lost.", show_default=False),
        ] = None,
        new_origin: Annotated[
            bool, typer.Option("--new-origin", help="No export has it: close this log for ever, begin another.")
        ] = False,
        identity: Annotated[
            str | None,
            typer.Option("--identity", help="With --new-origin: whom its first API key is for.", show_default=False),
        ] = None,
        key: TrustedKeys = None,
    ) -> None:
        """Bring back what the database has lost of a log, or go on from it under another origin."""
        if (directory is None) != new_origin or new_origin != (identity is not None):
            raise typer.BadParameter("expected --from DIRECTORY, perhaps with --key, or --new-origin with --identity")
        if key and directory is None:
            raise typer.BadParameter("--key is whom you trust to have signed the export: it goes with --from")
        from lakeproof.commands.recover_room import recover_from_export, recover_under_new_origin

        with failure(), progress("entries") as told:
            if directory is not None:
                typer.echo(
                    asyncio.run(recover_from_export(open_room, log, directory, keys=parsed_keys(key), progress=told))
                )
            elif identity is not None:
                typer.echo(asyncio.run(recover_under_new_origin(open_room, log, identity)))
