# SPDX-License-Identifier: Apache-2.0
"""
The processes of `lakeproof up` that run on a home, and whether their gateway is ready.

Each `lakeproof up` has a folder `<home>/run/<its process id>`. What a killed one has left is told from a running one by
the process: Linux's /proc says what it is called, when it was started and which processes it has started. Without
/proc, only the supervisor is found.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from lakeproof.serving.socket_folder import RUN, read_url
from lakeproof.tls_settings import GatewayTrust

SUPERVISOR: Final = "supervisor"
DEMO: Final = "demo"
"""The one process of `lakeproof demo`, which has all duties."""
NAME: Final = "lp-"
"""How the names of the other processes begin in `ps`."""
TIMEOUT_S: Final = 5.0
"""For the gateway's answer; it finds out within 2 s whether policies can be judged."""
ANSWER_BYTES_MAX: Final = 64 * 1024

_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProcess:
    """One process; `since` is None where the system does not say when it was started."""

    name: str
    pid: int
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """One `lakeproof up`: its processes, the supervisor first; the gateway's URL once that is known."""

    processes: Sequence[RunningProcess]
    url: str | None

    @property
    def names(self) -> frozenset[str]:
        """The names of its processes."""
        return frozenset(process.name for process in self.processes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What a gateway says at `/health/ready`: whether it takes commits, and the reasons if not."""

    is_ready: bool
    reasons: Sequence[str]


def find_ups(home: Path) -> list[Up]:
    """
    Return each `lakeproof up` that runs on `home`, and `lakeproof demo`, by process id.

    Raises:
        OSError: if the home cannot be read.
    """
    try:
        folders = sorted((each for each in (home / RUN).iterdir() if _pid(each.name)), key=lambda each: int(each.name))
    except FileNotFoundError:
        return []
    return [
        Up(processes=[RunningProcess(name=_name(pid), pid=pid, since=_started(pid)), *_children(pid)], url=url)
        for pid, url in ((int(folder.name), read_url(folder)) for folder in folders)
        if _is_supervisor(pid)
    ]


def ask_readiness(url: str, trust: GatewayTrust | None, *, timeout_s: float = TIMEOUT_S) -> Readiness:
    """
    Ask the gateway at `url` whether it is ready; with https it must have the certificate of `trust`.

    Raises:
        OSError: if it gives no answer in time.
    """
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 80
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    if address.scheme == "https":
        if trust is None:
            raise ConnectionError("it has TLS, and the settings name no certificate by which to know it")
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=trust.context)
    try:
        connection.request("GET", "/health/ready")
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX)
    except http.client.HTTPException as error:
        raise ConnectionError(f"it does not speak HTTP ({type(error).__name__})") from error
    finally:
        connection.close()
    if answer.status == http.client.OK:
        return Readiness(is_ready=True, reasons=())
    return Readiness(is_ready=False, reasons=_reasons(answer.status, body))


def _reasons(status: int, body: bytes) -> list[str]:
    try:
        message: Any = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = None
    if not isinstance(message, str):
        return [f"the answer has status {status} and is not a gateway's"]
    return message.removeprefix("not ready: ").split("; ")


def _pid(name: str) -> int | None:
    return int(name) if name.isascii() and name.isdigit() and len(name) <= len(str(2**31)) else None


def _is_supervisor(pid: int) -> bool:
    """Return whether the process of a folder runs; its number may be another program's by now."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass
    except (OSError, OverflowError):
        return False
    if not _PROC.is_dir():
        return True
    if any(True for _ in _children(pid)):
        return True
    with suppress(OSError):
        return b"lakeproof" in (_PROC / str(pid) / "cmdline").read_bytes()
    return False


def _name(pid: int) -> str:
    with suppress(OSError):
        if DEMO.encode() in (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0"):
            return DEMO
    return SUPERVISOR


def _children(pid: int) -> Iterator[RunningProcess]:
    """Yield the processes that a supervisor has started and that have not ended, by process id."""
    found: list[int] = []
    with suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            found += map(int, (thread / "children").read_text(encoding="ascii").split())
    for child in sorted(found):
        with suppress(OSError, UnicodeDecodeError):
            name = (_PROC / str(child) / "comm").read_text(encoding="utf-8").strip()
            if name.startswith(NAME) and not _is_zombie(child):
                yield RunningProcess(name=name.removeprefix(NAME), pid=child, since=_started(child))


def _is_zombie(pid: int) -> bool:
    return _stat(pid)[0] == "Z"


def _started(pid: int) -> datetime | None:
    """Return when a process was started, to the second."""
    try:
        ticks = int(_stat(pid)[19])
    except (OSError, ValueError, IndexError):
        return None
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return datetime.fromtimestamp(round(time.time() - age_s), tz=UTC)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat behind the name, which may contain anything: the first is the state."""
    return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
