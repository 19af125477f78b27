# SPDX-License-Identifier: Apache-2.0
"""
What a setting is: how one is declared, the kinds of values, and how a value of each kind is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lakeproof.errors import SettingsError

if TYPE_CHECKING:
    from projections.egress.rules import EgressRules

PREFIX: Final = "LAKEPROOF_"
DECLARATION: Final = "setting"
"""The key of a field's metadata under which its declaration is kept."""


class LogLevel(StrEnum):
    """How much is logged; the names of Python's `logging`."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a line of the log looks."""

    TEXT = "text"
    JSON = "json"


class Kind(StrEnum):
    """What a setting is; the word that the documentation prints."""

    TEXT = "text"
    SECRET = "secret"  # noqa: S105 - the word, not one
    ORIGIN = "authority"
    PATH = "path"
    LOCATION = "path or URI"
    INTEGER = "integer"
    NUMBER = "number"
    LEVEL = "level"
    FORMAT = "format"
    HOSTS = "hosts"
    NETWORKS = "networks"


CHOICES: Final[Mapping[Kind, type[LogLevel | LogFormat]]] = {Kind.LEVEL: LogLevel, Kind.FORMAT: LogFormat}
"""The values of the kinds that have a few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting as it was declared; `least` and `most` bound a number, both included."""

    name: str
    kind: Kind
    default: str | int | float | None
    meaning: str
    unit: str = ""
    least: float = 0
    most: float = math.inf

    @property
    def variable(self) -> str:
        """The name of its environment variable."""
        return PREFIX + self.name.upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value that a setting was given: `where` names its source in errors, `relative_to` is what paths start from."""

    value: object
    where: str
    relative_to: Path


# Any: a field is declared with the type that `read_value` returns for its kind; a test compares the two.
def setting(
    kind: Kind,
    default: str | float | None,
    meaning: str,
    *,
    unit: str = "",
    least: float = 0,
    most: float = math.inf,
) -> Any:
    """
    Declare a field of `Settings`. A secret is left out of the printed form.

    `default` is written as a user would write it; None means that the setting may be absent.
    """
    declared = {"kind": kind, "default": default, "meaning": meaning, "unit": unit, "least": least, "most": most}
    return field(repr=kind is not Kind.SECRET, metadata={DECLARATION: declared})


def declared_setting(name: str, metadata: Mapping[Any, Any]) -> Setting:
    """
    Return the declaration of the field `name`, which has that metadata.
    """
    return Setting(name=name, **metadata[DECLARATION])


def number_in(text: str) -> int | float | str:
    """
    Return the number that `text` is in plain decimal, or else the text, which no number setting takes.
    """
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?[0-9]{1,18}\.[0-9]{1,18}", text) else text


def read_value(setting: Setting, given: Given) -> object:
    """
    Return the value of a setting, of the type that belongs to its kind.

    Raises:
        SettingsError: if the setting does not take what it was given; says what was expected and what was found.
    """
    value = given.value
    match setting.kind:
        case _ if value is None:  # only as a default: TOML has no null, and an empty variable is not set
            return None
        case Kind.INTEGER | Kind.NUMBER:
            if (number := _within(setting, value)) is not None:
                return number
        case Kind.LEVEL | Kind.FORMAT if isinstance(value, str):
            if value.lower() in set(CHOICES[setting.kind]):
                return CHOICES[setting.kind](value.lower())
        case Kind.ORIGIN if isinstance(value, str):
            if re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._~:-]|/(?![/]|$)){0,199}", value):
                return value
        case Kind.HOSTS if isinstance(value, str):
            return _rules(value, given.where)
        case Kind.NETWORKS if isinstance(value, str):
            with suppress(ValueError):
                return tuple(ip_network(part.strip()) for part in value.split(",") if part.strip())
        case Kind.TEXT | Kind.SECRET | Kind.PATH | Kind.LOCATION if isinstance(value, str):
            if value and value.isprintable():
                return _located(setting.kind, value, given.relative_to)
    found = "one that is not" if setting.kind is Kind.SECRET else repr(value)[:100]
    raise SettingsError(f"{given.where}: expected {_expected(setting)}, found {found}")


def _within(setting: Setting, value: object) -> int | float | None:
    """Return the number that `value` is, None if it is none or out of the setting's range."""
    kinds = int if setting.kind is Kind.INTEGER else (int, float)
    if not isinstance(value, kinds) or isinstance(value, bool) or not setting.least <= value <= setting.most:
        return None
    return value if setting.kind is Kind.INTEGER else float(value)


def _rules(value: str, where: str) -> EgressRules:
    # Imported here: showing help or checking a proof must not load the read models.
    from projections.egress.rules import EgressRules
    from projections.errors import EgressRulesError

    try:
        return EgressRules.parse(value)
    except EgressRulesError as error:
        raise SettingsError(f"{where}: {error}") from error


def _located(kind: Kind, value: str, relative_to: Path) -> str | Path:
    match kind:
        case Kind.PATH:
            return _path(value, relative_to)
        case Kind.LOCATION if "://" not in value:
            return f"file://{value if value.startswith('<home>') else _path(value, relative_to)}"
    return value


def _path(value: str, relative_to: Path) -> Path:
    try:
        return relative_to / Path(value).expanduser()
    except RuntimeError as error:
        raise SettingsError(f"the path {value} names a home directory that is not known: write it out") from error


def _expected(setting: Setting) -> str:
    match setting.kind:
        case Kind.INTEGER | Kind.NUMBER:
            whole = "a whole number" if setting.kind is Kind.INTEGER else "a number"
            return f"{whole} from {setting.least:g} to {setting.most:g}" + (
                f" ({setting.unit})" if setting.unit else ""
            )
        case Kind.LEVEL | Kind.FORMAT:
            return "one of " + ", ".join(CHOICES[setting.kind])
        case Kind.HOSTS:
            return "hosts, addresses and networks, separated by commas"
        case Kind.ORIGIN:
            return "an authority such as logs.example.org (no scheme, space or plus, no slash at the end)"
        case Kind.NETWORKS:
            return "addresses or networks such as 10.0.0.0/8 or ::1, separated by commas"
        case Kind.TEXT | Kind.SECRET | Kind.PATH | Kind.LOCATION:
            return f"a {setting.kind} of printable characters"
