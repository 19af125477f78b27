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
from lakeproof.postgres.directories import FolderState, ServerFolder, list_folders, remove_folder

COLUMNS = ("name", "state", "size_mib", "home")


def server_app() -> typer.Typer:
    """
    Return the commands.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.callback()
    def server() -> None:
        """What root's embedded servers keep on this machine."""

    @app.command("list")
    def list_(*, as_json: AsJson = False) -> None:
        """Show the databases' folders and whose they are."""
        found = list_folders(home_settings().server_folder)
        console.show_rows(COLUMNS, [_row(each) for each in found], as_json=as_json)
        if any(each.state is FolderState.ENDED for each in found):
            console.say_aside(
                "`lakeproof server delete` removes one that has ended; start Lakeproof in a home that was moved first"
            )

    @app.command()
    def delete(
        name: Annotated[str, typer.Argument(help="The folder's name, as `server list` shows it.", show_default=False)],
        *,
        yes: Annotated[bool, typer.Option("--yes", help="Delete it without asking.")] = False,
        as_json: AsJson = False,
    ) -> None:
        """Delete the database of an installation that has ended: whose home is gone. Nothing brings it back."""
        folder = home_settings().server_folder
        if not yes:
            typer.confirm(f"Delete the database in {folder / name} for ever?", abort=True, err=True)
        deleted = remove_folder(folder, name)
        sentence = f"deleted {deleted.path}, the database of {deleted.home}, which has ended"
        console.show_done(sentence, _row(deleted), as_json=as_json)

    return app


def _row(folder: ServerFolder) -> dict[str, object]:
    return {
        "name": folder.path.name,
        "state": str(folder.state),
        "size_mib": folder.size_bytes // 2**20,
        "home": None if folder.home is None else str(folder.home),
    }
