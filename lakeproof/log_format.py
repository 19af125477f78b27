# SPDX-License-Identifier: Apache-2.0
"""
The two forms of a log line: text for people, JSON for programs. Both are one line each, with the time in UTC.

Of an exception a line has the kind and the message, and where the stack trace was written (`crash.py`). A line has
nothing that the code did not log: no headers, no bodies, no credentials.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

from lakeproof.crash import CrashFile

Context: TypeAlias = Callable[[], Mapping[str, str]]
"""Returns what is known of the request that is being answered; nothing outside of one."""

RESERVED: Final = ("time", "level", "logger", "process", "message")


def no_context() -> Mapping[str, str]:
    """
    Return nothing: there is no request.
    """
    return {}


class TextLine(logging.Formatter):
    """Time, level, logger, message."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self, crash_file: CrashFile) -> None:
        super().__init__()
        self.converter = time.gmtime
        self.crash_file = crash_file

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; `console.one_line` is left to whoever prints it."""
        line = f"{self.formatTime(record)} {record.levelname} {record.name}: {record.getMessage()}"
        if (error := _error_of(record)) is not None:
            line += f" ({type(error).__name__}: {error}; details in {self.crash_file.add(error)})"
        return line


class JsonLine(logging.Formatter):
    """One JSON object: the members of `RESERVED`, what `context` returns, and of an exception `error` and `details`."""

    def __init__(self, crash_file: CrashFile, *, process: str, context: Context = no_context) -> None:
        super().__init__()
        self.crash_file = crash_file
        self._process = process
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        """Return the object; JSON's escapes keep it on one line, in ASCII."""
        at = datetime.fromtimestamp(record.created, tz=UTC)
        level, logger = record.levelname.lower(), record.name
        members = line_members(record.getMessage(), at=at, level=level, logger=logger, process=self._process)
        members |= self._context()
        if (error := _error_of(record)) is not None:
            members |= {"error": f"{type(error).__name__}: {error}", "details": self.crash_file.add(error)}
        return json.dumps(members)


def line_members(message: str, *, at: datetime, level: str, logger: str, process: str) -> dict[str, str]:
    """
    Return the members that every line has; the time is RFC 3339, in UTC, to the millisecond.
    """
    text = f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
    return {"time": text, "level": level, "logger": logger, "process": process, "message": message}


def _error_of(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None
