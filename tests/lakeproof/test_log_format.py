# SPDX-License-Identifier: Apache-2.0
"""
The log as JSON: one object a line, whatever was logged, with the same members; as text it stays what it was.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakeproof import console
from lakeproof.crash import CrashFile
from lakeproof.log_format import RESERVED, JsonLine
from lakeproof.setting_kinds import LogFormat

NOON_S = 1_772_366_400.25
REQUEST = {"request_id": "a" * 32, "trace_id": "b" * 32, "span_id": "a" * 16}


@pytest.fixture
def crash_file(tmp_path: Path) -> CrashFile:
    return CrashFile(lambda: tmp_path, began=datetime(2026, 3, 1, tzinfo=UTC), pid=1)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the log prints; the handlers of other tests are put back afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = before
    root.setLevel(level)


def logged(text: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    level, exc_info = logging.WARNING, None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("gateway.commit", level, "file.py", 1, text, arguments, exc_info)
    record.created = NOON_S
    return record


def parsed(line: str) -> dict[str, Any]:
    """Return the object of a line, which must be one."""
    assert "\n" not in line
    members: dict[str, Any] = json.loads(line)
    return members


def test_a_line_is_one_object_with_the_time_in_utc(crash_file: CrashFile) -> None:
    form = JsonLine(crash_file, process="gateway-1", context=lambda: REQUEST)
    assert parsed(form.format(logged("%s of %d", "one", 2))) == {
        "time": "2026-03-01T12:00:00.250Z",
        "level": "warning",
        "logger": "gateway.commit",
        "process": "gateway-1",
        "message": "one of 2",
        **REQUEST,
    }


@pytest.mark.parametrize("text", ['"}\n{"level": "info', "\x1b[2K\r", "ü\u2028表", "\ud800", ""])
def test_no_text_can_begin_another_line_or_member(crash_file: CrashFile, text: str) -> None:
    line = JsonLine(crash_file, process="signer").format(logged("%s", text))
    assert line.isascii()
    members = parsed(line)
    assert (members["message"], set(members)) == (text, set(RESERVED))


def test_of_an_error_a_line_has_kind_and_message_and_the_stack_is_in_a_file(
    crash_file: CrashFile, tmp_path: Path
) -> None:
    members = parsed(JsonLine(crash_file, process="signer").format(logged("failed", error=ValueError("no\nway"))))
    assert members["error"] == "ValueError: no\nway"
    assert Path(members["details"]).parent == tmp_path / "log"
    assert "ValueError" in Path(members["details"]).read_text()


def test_nothing_of_a_request_is_read_for_what_is_not_logged(crash_file: CrashFile, lines: io.StringIO) -> None:
    asked = []

    def context() -> Mapping[str, str]:
        asked.append(1)
        return REQUEST

    console.log_to_stderr(crash_file)
    console.log_as_json(process="gateway-1", context=context)
    (handler,) = logging.getLogger().handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(lines)
    logging.getLogger("gateway.x").debug("quiet")
    logging.getLogger("other").info("quiet")
    assert (asked, lines.getvalue()) == ([], "")
    logging.getLogger("gateway.x").warning("loud")
    assert (asked, parsed(lines.getvalue().rstrip("\n"))["message"]) == ([1], "loud")


def test_a_process_that_serves_says_its_lines_in_the_form_of_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    console.say_as(LogFormat.TEXT, process="supervisor")("the gateway listens")
    assert capsys.readouterr().out == "the gateway listens\n"
    console.say_as(LogFormat.JSON, process="supervisor")("the gateway listens")
    members = parsed(capsys.readouterr().out.rstrip("\n"))
    assert (members["level"], members["process"]) == ("info", "supervisor")
    assert (members["message"], set(members)) == ("the gateway listens", set(RESERVED))
