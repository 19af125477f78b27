# SPDX-License-Identifier: Apache-2.0
"""
`lakeproof server`: what root's embedded servers keep on this machine.
"""

from __future__ import annotations

from typing import Annotated

import typer

from lakeproof import console
from lakeproof.commands.opening import home_settings
from lakeproof.commands.options import AsJson
from lakeproof.postgres.directories import FolderState, list_folders, remove_folder

COLUMNS = ("name", "state", "size_mib", "home")


def server_app() -> typer.Typer:
    """
    Return the commands.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.callback()
    def server() -> None:
        """What root's embedded servers keep on this machine."""

    @app.command()
    def folders(
        *,
        remove: Annotated[
            str | None, typer.Option(metavar="NAME", help="Remove the database of an installation that has ended.")
        ] = None,
        yes: Annotated[bool, typer.Option("--yes", help="Remove it without asking.")] = False,
        as_json: AsJson = False,
    ) -> None:
        """List the databases' folders and whose they are; remove one whose home is gone, by its name."""
        folder = home_settings().server_folder
        if remove is not None:
            if not yes:
                typer.confirm(f"Remove the database in {folder / remove} for ever?", abort=True, err=True)
            removed = remove_folder(folder, remove)
            console.say(f"removed {removed.path}, the database of {removed.home}, which has ended")
            return
        found = list_folders(folder)
        rows = [
            {
                "name": each.path.name,
                "state": str(each.state),
                "size_mib": each.size_bytes // 2**20,
                "home": None if each.home is None else str(each.home),
            }
            for each in found
        ]
        console.show_rows(COLUMNS, rows, as_json=as_json)
        if any(each.state is FolderState.ENDED for each in found):
            console.say_aside(
                "remove one that has ended with --remove NAME; start Lakeproof in a home that was moved first"
            )

    return app
