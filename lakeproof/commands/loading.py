# SPDX-License-Identifier: Apache-2.0
"""
Commands whose modules are imported when they are called: so `lakeproof --help` and offline commands start quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group


def command_group(about: str, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """Return a group of commands that has none yet, but for those of its class."""
    return typer.Typer(cls=cls, help=about, no_args_is_help=True, rich_markup_mode=None, add_completion=False)


class LateCommand(TyperCommand):
    """Stands in a list of commands for one of the same name, alone or among others, that `load` returns when called."""

    def __init__(self, name: str, load: Callable[[], typer.Typer], *, summary: str) -> None:
        super().__init__(name, help=summary, rich_markup_mode=None)
        self._load = load

    def loaded(self) -> Any:  # a command or a group of them, for whom Typer exports no type
        """Import the command that this one stands for, and return it."""
        return get_group(self._load()).commands[str(self.name)]

    def make_context(self, *args: Any, **kwargs: Any) -> Any:  # exactly as it is called, for whom it is meant
        return self.loaded().make_context(*args, **kwargs)
