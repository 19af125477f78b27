# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof config …`: which settings there are, what every setting is, and where that comes from.

Of a secret it shows whether it is set and nothing else, and of a URL never what stands before the host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import typer

from lakeproof import console
from lakeproof.commands.options import AsJson
from lakeproof.setting_kinds import Kind, Setting
from lakeproof.settings import SETTINGS, Traced, format_settings_table, trace_settings

SET: Final = "set"
NOT_SET: Final = "not set"
HIDDEN: Final = "***"

_COLUMNS = ("variable", "value", "source", "where")
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]*@")


def config_app() -> typer.Typer:
    """
    Return the commands.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.callback()
    def config() -> None:
        """Which settings there are, and what they are here."""

    @app.command("list")
    def list_(*, as_json: AsJson = False) -> None:
        """List the settings that there are as a Markdown table: variables, types, defaults, and what each means."""
        if as_json:
            console.show_json([_declared(each) for each in SETTINGS])
        else:
            console.say(format_settings_table().rstrip())

    @app.command()
    def show(*, as_json: AsJson = False) -> None:
        """Show every setting with its value, and where that comes from."""
        rows = [_row(each) for each in trace_settings(os.environ, directory=Path.cwd())]
        console.show_rows(_COLUMNS, rows, as_json=as_json)

    return app


def _declared(setting: Setting) -> Mapping[str, object]:
    return {
        "variable": setting.variable,
        "name": setting.name,
        "kind": setting.kind.value,
        "default": setting.default,
        "unit": setting.unit,
        "meaning": setting.meaning,
    }


def _row(traced: Traced) -> Mapping[str, object]:
    setting = traced.setting
    shown: object = _shown(traced.value)
    if setting.kind is Kind.SECRET:
        shown = NOT_SET if traced.value is None else SET
    return {
        "variable": setting.variable,
        "name": setting.name,
        "value": shown,
        "source": traced.source.value,
        "where": traced.where,
        "kind": setting.kind.value,
        "unit": setting.unit,
    }


def _shown(value: object) -> object:
    """Return a value as JSON has it: numbers as they are, everything else as it would be written in a setting."""
    match value:
        case None | int() | float():
            return value
        case tuple():
            return ",".join(map(str, value))
        case str() | Path():
            return _USER_IN_URL.sub(f"{HIDDEN}@", str(value))
        case _:  # the rules of egress
            return str(getattr(value, "text", value))
