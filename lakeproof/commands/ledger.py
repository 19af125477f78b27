# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof ledger …`, one module a topic. A topic's module is imported when one of its commands is called.

The commands that need an installation open one for themselves (`opening.py`).
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

from lakeproof.commands.loading import LateCommand, command_group
from lakeproof.commands.opening import OpenInstallation, open_home_logs

COMMANDS: Final = {
    "verify": (
        "verify",
        "Verify chain, tree and checkpoints of a log, or a bundle; without a name, of every log of this installation.",
    ),
    "check-proof": ("verify", "Check the proof of one entry and show the entry."),
    "export": ("export", "Write a log, up to its newest checkpoint, as a directory that can be verified without us."),
    "prove": ("export", "Write the proof of one entry, the entry included, as one file for `check-proof`."),
    "key": ("export", "Show the verifier key of a log, to be handed to those who verify it."),
    "erase": ("erase", "Erase payload parts for ever, and every sealed copy of them; all proofs stay valid."),
    "retain": ("erase", "Erase payload parts that were kept for so long, and dead letters; entries and proofs stay."),
    "show": ("show", "Show the newest entries of a log that match, a line each; or one entry, whole."),
    "tail": ("show", "Write the end of a log, and with -f what comes: for people, or with --json for programs."),
    "stats": ("show", "Show what a log holds, in figures."),
    "adopt": ("recover", "Let the signer continue from stored checkpoints that its key directory does not know."),
    "recover": ("recover", "Bring back what the database has lost of a log, or continue it under another origin."),
    "anchors": ("anchors", "Show how far each log is anchored in the system log, and who has witnessed that one."),
    "bundle": ("evidence", "Write evidence of a decision, of a table or of a period as one file, for `check`."),
    "check": ("evidence", "Check evidence and say what it proves."),
    "verifier": ("verifier", "Write the page that checks evidence in an auditor's own browser; show its SHA-256."),
    "witness": ("witness", "Run a witness: cosign what logs have signed, if they only grow."),
    "keys": ("signer_keys", "Show, rotate and retire the signer's keys."),
}
"""The module of this package whose `add_commands` adds a command, and what the list of commands says of it."""


def ledger_app(open_installation: OpenInstallation = open_home_logs) -> typer.Typer:
    """
    Return the commands; `open_installation` is called by those that need an installation, and not before.
    """

    def load(topic: str) -> typer.Typer:
        loaded = command_group(topic)
        import_module(f"lakeproof.commands.{topic}").add_commands(loaded, open_installation)
        return loaded

    class Commands(TyperGroup):
        def __init__(self, **attributes: Any) -> None:  # whatever Typer gives a group
            super().__init__(**attributes)
            for name, (topic, summary) in COMMANDS.items():
                self.add_command(LateCommand(name, partial(load, topic), summary=summary))

    app = command_group("Verify, export and prove logs.", Commands)

    @app.callback()
    def ledger() -> None:
        """Verify, export and prove logs."""

    return app
