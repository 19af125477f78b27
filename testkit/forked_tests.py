# SPDX-License-Identifier: Apache-2.0
"""
Runs the collected tests in processes that are forked after the collection: `pytest --processes=4`.

All of them share what was imported and collected once. Each takes the next file when it has run one, so fixtures of a
module are made once. It reports over a pipe, and the parent hands the reports to pytest. The parent fails the run if a
process does not end by itself behind its tests, or if a test has no outcome. `tests/conftest.py` has the two hooks.
"""

from __future__ import annotations

import marshal
import mmap
import os
import signal
import struct
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import SimpleNamespace
from typing import Any, Final

import pytest

POLL_S: Final = 0.1
STOP_S: Final = 30.0
"""How long the other processes may take for the tests they are at, when the run is interrupted."""
_NUMBER: Final = struct.Struct("=i")
_STOPPING: Final = 0
"""The place of the number that is not 0 when no test is to be begun. Behind it: the test of each process, from 1."""


def add_processes(parser: pytest.Parser) -> None:
    """Add the option `--processes`."""
    parser.addoption("--processes", type=int, default=1, metavar="N", help="run the tests in N processes, file by file")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests, if there are to be several processes; else leave them to pytest."""
    option = session.config.option
    files = [
        [number for number, _ in group]
        for _, group in groupby(enumerate(session.items), key=lambda one: one[1].nodeid.partition("::")[0])
    ]
    processes = min(option.processes, len(files))
    if processes < 2 or option.collectonly or option.usepdb or session.testsfailed:
        return None
    return _Run(session, files).run(processes)


class _Shared:
    """Numbers that all processes see."""

    def __init__(self, processes: int) -> None:
        self._memory = mmap.mmap(-1, (1 + processes) * _NUMBER.size)

    def __getitem__(self, place: int) -> int:
        return int(_NUMBER.unpack_from(self._memory, place * _NUMBER.size)[0])

    def __setitem__(self, place: int, number: int) -> None:
        _NUMBER.pack_into(self._memory, place * _NUMBER.size, number)


@dataclass(slots=True)
class _Process:
    """A process, as the parent sees it."""

    place: int
    pid: int
    pipe: int
    unread: bytearray = field(default_factory=bytearray)
    has_failed: bool = False
    """Whether it has reported a failure."""

    def messages(self) -> Iterator[dict[str, Any]]:
        """Take the messages that are here as a whole."""
        start = 0
        while len(self.unread) >= (begin := start + _NUMBER.size):
            end = begin + _NUMBER.unpack_from(self.unread, start)[0]
            if len(self.unread) < end:
                break
            yield marshal.loads(self.unread[begin:end])  # noqa: S302 - of a process that we have forked
            start = end
        del self.unread[:start]


class _Run:
    """One run, in the parent."""

    def __init__(self, session: pytest.Session, files: Sequence[Sequence[int]]) -> None:
        self._session = session
        self._hook = session.config.hook
        self._files = files
        self._ended = 0
        """Tests that have an outcome."""
        self._faults: list[str] = []

    def run(self, processes: int) -> bool:
        session = self._session
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
            reporter.showfspath = False
            reporter.flush()
        sys.stdout.flush()
        sys.stderr.flush()
        work, filling = os.pipe()
        with os.fdopen(filling, "wb") as writer:
            os.set_blocking(filling, False)  # more files than a pipe holds are an error, not a wait for ever
            writer.write(b"".join(map(_NUMBER.pack, range(len(self._files)))))
        shared = _Shared(processes)
        running: list[_Process] = []
        for place in range(1, processes + 1):
            pipe, reporting = os.pipe()
            if not (pid := os.fork()):
                for other in running:
                    os.close(other.pipe)
                os.close(pipe)
                _Child(session, self._files, work, reporting, shared, place).run()
                return True
            os.close(reporting)
            os.set_blocking(pipe, False)
            running.append(_Process(place, pid, pipe))
        os.close(work)
        try:
            self._follow(running, shared)
        finally:
            shared[_STOPPING] = 1
            _end(running)
        return self._judge()

    def _follow(self, running: list[_Process], shared: _Shared) -> None:
        while running:
            time.sleep(POLL_S)
            for process in running[:]:
                pid, status = os.waitpid(process.pid, os.WNOHANG)
                self._relay(process)
                if pid:
                    running.remove(process)
                    os.close(process.pipe)
                    self._check_end(process, os.waitstatus_to_exitcode(status), shared)
            if self._session.shouldfail or self._session.shouldstop:
                shared[_STOPPING] = 1

    def _relay(self, process: _Process) -> None:
        """Hand what a process has reported to pytest."""
        while read := _read(process.pipe):
            process.unread += read
        for message in process.messages():
            if (warning := message.get("warning")) is not None:
                self._warn(**warning)
                continue
            self._ended += 1
            for data in message["reports"]:
                report = self._report(message["test"], data)
                process.has_failed |= report.failed
                self._hook.pytest_runtest_logreport(report=report)

    def _report(self, number: int, data: float | dict[str, Any]) -> pytest.TestReport:
        if isinstance(data, dict):
            report: pytest.TestReport = self._hook.pytest_report_from_serializable(
                config=self._session.config, data=data
            )
            return report
        return self._outcome(number, "passed", duration=data)

    def _outcome(self, number: int, outcome: Any, *, text: str | None = None, duration: float = 0) -> pytest.TestReport:
        item = self._session.items[number]
        return pytest.TestReport(item.nodeid, item.location, {}, outcome, text, "call", duration=duration)

    def _warn(self, text: str, when: Any, nodeid: str, location: Any, file: str, line: int) -> None:
        message = warnings.WarningMessage(UserWarning(text), UserWarning, file, line)
        self._hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
        )

    def _check_end(self, process: _Process, status: int, shared: _Shared) -> None:
        expected = pytest.ExitCode.TESTS_FAILED if process.has_failed else pytest.ExitCode.OK
        number = shared[process.place]
        if shared[_STOPPING] or (status == expected and not number):
            return
        text = f"test process {process.pid} ended with {status}, expected {int(expected)}"
        if number:
            text += " behind all of its tests; this one did not end, and those behind it in its file were not run"
            self._hook.pytest_runtest_logreport(report=self._outcome(number - 1, "failed", text=text))
        self._faults.append(text)

    def _judge(self) -> bool:
        session = self._session
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        if self._ended != len(session.items):
            self._faults.append(f"{self._ended} of {len(session.items)} tests have an outcome")
        if self._faults:
            session.shouldfail = "; ".join(self._faults)
            raise session.Failed(session.shouldfail)
        return True


def _read(pipe: int) -> bytes:
    try:
        return os.read(pipe, 2**20)
    except BlockingIOError:
        return b""


def _end(running: list[_Process]) -> None:
    """Wait for processes that begin no other test, and kill them if that takes long."""
    deadline_s = time.monotonic() + STOP_S
    while running:
        for process in running[:]:
            while _read(process.pipe):
                pass
            if time.monotonic() > deadline_s:
                os.kill(process.pid, signal.SIGKILL)
            if os.waitpid(process.pid, os.WNOHANG)[0]:
                running.remove(process)
                os.close(process.pipe)
        time.sleep(POLL_S)


class _Child:
    """A forked process: a plugin that reports to the parent instead of to a terminal."""

    def __init__(
        self,
        session: pytest.Session,
        files: Sequence[Sequence[int]],
        work: int,
        reporting: int,
        shared: _Shared,
        place: int,
    ) -> None:
        self._session = session
        self._files = files
        self._work = work
        self._reporting = reporting
        self._shared = shared
        self._place = place
        self._reports: list[float | dict[str, Any]] = []
        """Of the test that runs."""
        option = session.config.option
        self._is_brief = option.durations is None and not option.xmlpath
        """Whether setting up and tearing down are reported only if they have not passed, or tell something."""

    def run(self) -> None:
        """Run tests; pytest then ends the session of this process, as it does without processes."""
        self._leave_the_parent()
        session, numbers = self._session, self._numbers()
        number = next(numbers, None)
        while number is not None and not self._shared[_STOPPING]:
            following = next(numbers, None)
            item = session.items[number]
            self._shared[self._place] = number + 1
            item.config.hook.pytest_runtest_protocol(
                item=item, nextitem=None if following is None else session.items[following]
            )
            self._send({"test": number, "reports": self._reports})
            self._reports = []
            self._shared[self._place] = 0
            if session.shouldfail or session.shouldstop:
                return
            number = following

    def _numbers(self) -> Iterator[int]:
        """The tests of one file after the other, as long as there is one that no process has taken."""
        while taken := os.read(self._work, _NUMBER.size):
            yield from self._files[_NUMBER.unpack(taken)[0]]

    def _leave_the_parent(self) -> None:
        """Share no more than what was collected: no terminal, no file of captured output, no folder."""
        config = self._session.config
        config.workerinput = {"workerid": f"gw{self._place}"}  # type: ignore[attr-defined]  # keeps no cache of failures
        plugins = config.pluginmanager
        for name in ("terminalreporter", "terminalprogress-plugin"):
            terminal = plugins.unregister(name=name) if plugins.has_plugin(name) else None
            if isinstance(terminal, pytest.TerminalReporter):
                # Whoever makes texts for a terminal asks for its colours.
                plugins.register(SimpleNamespace(_tw=terminal._tw), name)
        if capture := plugins.get_plugin("capturemanager"):
            capture.stop_global_capturing()
            capture.start_global_capturing()
        folders = config._tmp_path_factory  # type: ignore[attr-defined]
        folders._basetemp = folders.getbasetemp() / f"process-{self._place}"
        folders._basetemp.mkdir(mode=0o700)
        plugins.register(self)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report for the parent: as a whole if it tells more than that a test has passed."""
        tells_more = hasattr(report, "wasxfail") or report.user_properties
        if report.passed and self._is_brief and not tells_more:
            if report.when == "call":
                self._reports.append(report.duration)
            return
        config = self._session.config
        self._reports.append(config.hook.pytest_report_to_serializable(config=config, report=report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        """Send a warning."""
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        known = {"when": when, "nodeid": nodeid, "location": location}
        self._send(
            {"warning": {"text": text, "file": warning_message.filename, "line": warning_message.lineno, **known}}
        )

    def _send(self, message: dict[str, Any]) -> None:
        text = marshal.dumps(message)  # unlike JSON, it tells tuples from lists, and so does pytest
        unsent = memoryview(_NUMBER.pack(len(text)) + text)
        while unsent:
            unsent = unsent[os.write(self._reporting, unsent) :]
