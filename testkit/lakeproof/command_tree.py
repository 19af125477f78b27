# SPDX-License-Identifier: Apache-2.0
"""
Every command of `lakeproof`, as the command line itself has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from typer.main import get_command

from lakeproof import cli
from lakeproof.commands.loading import LateCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCommand:
    """A command: its words behind `lakeproof`, its options and arguments, and what `--help` says of it."""

    words: tuple[str, ...]
    options: frozenset[str]
    help: str

    @property
    def name(self) -> str:
        """Its words, as people write them."""
        return " ".join(self.words)


def every_command() -> Mapping[str, FoundCommand]:
    """Return every command by its name, in the order in which they are listed. Imports all of them."""
    return {found.name: found for found in _commands(get_command(cli.app), ())}


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[FoundCommand]:
    if isinstance(command, LateCommand):
        command = command.loaded()
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _commands(inner, (*words, name))
        return
    options = frozenset(option for parameter in command.params for option in parameter.opts)
    yield FoundCommand(words=words, options=options, help=command.help or "")
