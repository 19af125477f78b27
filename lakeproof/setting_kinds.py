"""
What a setting is: a row of the table of settings, and the kinds of values that there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

PREFIX = "LAKEPROOF_"


class LogLevel(StrEnum):
    """How much is logged; the names of Python's `logging`."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


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
    HOSTS = "hosts"
    NETWORKS = "networks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table; `least` and `most` bound a number, both included."""

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
