# SPDX-License-Identifier: Apache-2.0
"""
The processes of an installation, as Linux's /proc shows them: which there are, their memory, their processor time.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
NAMED: Final = "lp-"
"""How the names of processes begin that `lakeproof up` has forked."""
QUIET_CORES: Final = 0.1
"""Of processor time: what an installation that has nothing left to do stays below."""
QUIET_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process: its id, its parent's, and what it does."""

    pid: int
    parent: int
    duty: str


def descendants(roots: Iterable[int]) -> list[Process]:
    """Return the processes with these ids, and all that they have started, and those in turn."""
    everyone = [process for process in map(_read, _pids()) if process is not None]
    known = set(roots)
    while True:
        more = {process.pid for process in everyone if process.parent in known} - known
        if not more:
            return [process for process in everyone if process.pid in known]
        known |= more


def memory_mib(processes: Iterable[Process]) -> dict[str, float]:
    """Return the proportional set size by duty, in MiB, and of all together: shared pages are counted once."""
    found: Counter[str] = Counter()
    for process in processes:
        with suppress(OSError, StopIteration):  # it has ended meanwhile
            rows = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            found[process.duty] += int(next(row for row in rows if row.startswith("Pss:")).split()[1])
    return {
        "all": round(found.total() / 1024, 1),
        **{duty: round(kib / 1024, 1) for duty, kib in found.most_common()},
    }


def processor_s(processes: Iterable[Process]) -> float:
    """Return the processor time that processes have used since they began."""
    ticks = 0
    for process in processes:
        with suppress(OSError):
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S


def wait_until_quiet(processes: Callable[[], list[Process]], *, for_s: float) -> float:
    """
    Wait until an installation has had nothing to do `for_s` seconds, at most two minutes; return how long it was busy.

    What is measured next, here or of a peer on the same machine, must not pay for what was measured before.
    """
    began_s = time.monotonic()
    while for_s and time.monotonic() - began_s < QUIET_TIMEOUT_S:
        before_s, looked_s = processor_s(processes()), time.monotonic()
        time.sleep(for_s)
        if processor_s(processes()) - before_s < QUIET_CORES * (time.monotonic() - looked_s):
            break
    return round(max(0.0, time.monotonic() - began_s - for_s), 1)


def _pids() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _read(pid: int) -> Process | None:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None
    return Process(pid=pid, parent=parent, duty=_duty(name, arguments))


def _duty(name: str, arguments: list[str]) -> str:
    """What a process does: its own name if Lakeproof gave it one, else what its command line says."""
    if name.startswith(NAMED):
        return name
    if arguments[0].startswith("postgres") or arguments[0].endswith("/postgres"):
        return "PostgreSQL"
    if "-m" in arguments[:-1]:
        module, *rest = arguments[arguments.index("-m") + 1 :]
        return " ".join([module, *rest[:1]] if rest and rest[0].isalpha() else [module])
    command = [Path(argument).name for argument in arguments if Path(argument).name == "lakeproof"]
    words = [argument for argument in arguments[1:] if not argument.startswith(("-", "/"))]
    return " ".join([*command, *words][:3]) or Path(arguments[0]).name
