"""
The commands `lakeproof ledger …`, one module a topic; how they speak is in `console.py`.

The commands that need an installation work in the room that `open_room` opens, and `room.py` says what it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeproof.commands.anchors import add_anchoring
from lakeproof.commands.erase import add_erasing
from lakeproof.commands.evidence import add_evidence
from lakeproof.commands.exits import command_group
from lakeproof.commands.export import add_exporting
from lakeproof.commands.recover import add_recovering
from lakeproof.commands.show import add_looking
from lakeproof.commands.signer_keys import add_keys
from lakeproof.commands.verify import add_verifying
from lakeproof.commands.witness import add_witnessing

if TYPE_CHECKING:  # at run time these would load the database driver
    import typer

    from lakeproof.commands.room import OpenRoom


def ledger_app(open_room: OpenRoom) -> typer.Typer:
    """
    Return the commands; `open_room` is called by those that need an installation, and not before.
    """
    app = command_group("Verify, export and prove logs.")
    for add in (
        add_verifying,
        add_exporting,
        add_erasing,
        add_looking,
        add_witnessing,
        add_keys,
        add_recovering,
        add_anchoring,
        add_evidence,
    ):
        add(app, open_room)
    return app
