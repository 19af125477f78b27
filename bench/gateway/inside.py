# SPDX-License-Identifier: Apache-2.0
"""
What a load and a commit cost inside: statements in PostgreSQL by session, and where Python spends its time.

Statements are counted in the log of the server, in an installation of their own whose server logs each of them. Several
that are sent as one text are one. Work that follows a commit (projections, signer, streams) is counted too, under the
names of its sessions. (pg_stat_statements would not do: it misses prepared statements like SET ROLE.) py-spy looks at
all Python processes of `lakeproof up`, 200 times a second, while wrk loads and commits; idle threads are left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.gateway.bench import Bench, Part
from bench.gateway.installation import command_in, database_of, up_in
from bench.gateway.processes import descendants
from bench.gateway.rates import NAMESPACE, TABLES, kind_of, load_of
from bench.gateway.target import Catalog, MissingError, set_properties
from bench.gateway.wrk import Figures, Load, Mode, begin, wrk_program
from bench.servers import directory_on_disk

LOGGED: Final = {"log_statement": "all", "log_line_prefix": "%a\t"}
"""Settings of PostgreSQL: each statement is a line of its log, after the name under which its session runs."""
LINE: Final = re.compile(r"([^\t\n]*)\tLOG:  (?:statement|execute [^:]*): (.*)")
ROLE: Final = re.compile(r"lp_[0-9a-f]{8}_(?:t_[0-9a-f]{32}|(\w+))")
BEFORE_THE_ANSWER: Final = frozenset({"lakeproof gateway", "lakeproof appender"})
"""The sessions whose statements a request waits for; those of all others follow it."""
QUERY_CHARS: Final = 120
LISTED: Final = 16
SAMPLES_PER_S: Final = 200
FUNCTIONS: Final = 25
PYSPY_GRACE_S: Final = 120

PROCESS: Final = re.compile(r"process (\d+)")
"""The outermost frame of py-spy's stacks, where it looks at several processes."""
Counts = Counter[tuple[str, str]]
"""How often each session sent each statement."""


def statements(bench: Bench) -> Part:
    """Count statements per load and per commit: one after another, and with many connections at once."""
    part, count = Part(), bench.scale.statements
    with directory_on_disk() as folder:
        command = command_in(folder, bench.program)
        with (
            database_of(command, **LOGGED) as server,
            up_in(folder, bench.program) as up,
        ):
            target, log = up.new_tenant()[1], server.files.log
            with target.connect() as catalog:
                catalog.make_tables(NAMESPACE, TABLES)
                for name, ask in (("load", _load), ("commit", _commit)):
                    for number in range(TABLES):
                        ask(catalog, number)
                    up.wait_until_quiet()
                    with counting(log) as counted:
                        for number in range(count):
                            ask(catalog, number)
                        up.wait_until_quiet()
                    part.figures[f"per {name}, one after another"] = _per_request(counted, count)
                for mode, connections in ((Mode.LOAD, 8), (Mode.COMMIT, 16)):
                    kind = kind_of(mode, connections)
                    try:
                        wrk_program()
                    except MissingError as error:
                        part.figures[f"per {kind}"] = {"skipped": str(error)}
                        continue
                    with counting(log) as counted:
                        found = part.measure(target, load_of(bench, mode, connections), f"counted {kind}")
                        up.wait_until_quiet()
                    part.figures[f"per {kind}"] = _per_request(counted, found["requests"])
    return part


def profile(bench: Bench) -> Part:
    """Return in which functions Python spends its time during loads, and during commits."""
    part, program = Part(), pyspy_program()
    wrk_program()
    target = bench.up.new_tenant()[1]
    with target.connect() as catalog:
        catalog.make_tables(NAMESPACE, TABLES)
    for mode, connections in ((Mode.LOAD, 8), (Mode.COMMIT, 16)):
        bench.settle()
        seconds = 2 * bench.scale.seconds
        running = begin(
            target,
            Load(mode=mode, namespace=NAMESPACE, tables=TABLES, connections=connections, seconds=seconds + 4),
        )
        time.sleep(1)
        with directory_on_disk() as folder:
            stacks = _record(program, bench.up.process.pid, seconds, folder / "stacks")
        measured = running.figures()
        part.figures[kind_of(mode, connections)] = {
            "per_second_while_watched": measured["per_second"],
            **_functions(stacks),
        }
    return part


def pyspy_program() -> str:
    """
    Return py-spy: $PY_SPY, or the one on the PATH.

    Raises:
        MissingError: if it is not installed.
    """
    found = os.environ.get("PY_SPY") or shutil.which("py-spy")
    if found is None:
        raise MissingError("py-spy (in $PY_SPY or on the PATH)")
    return found


@contextmanager
def counting(log: Path) -> Iterator[Counts]:
    """Count the statements that the server logs while the context is open."""
    counted: Counts = Counter()
    sizes = {file: file.stat().st_size for file in log.glob("*.log")}
    yield counted
    for file in log.glob("*.log"):
        with file.open(encoding="utf-8", errors="replace") as lines:
            lines.seek(sizes.get(file, 0))
            for line in lines:
                if found := LINE.match(line):
                    statement = ROLE.sub(lambda role: role[1] or "<tenant>", found[2])
                    counted[found[1], statement.strip()[:QUERY_CHARS] or "(empty)"] += 1


def _per_request(counted: Counts, requests: int) -> Figures:
    sessions: Counter[str] = Counter()
    for (session, _), count in counted.items():
        sessions[session] += count
    return {
        "requests": requests,
        "before_the_answer": round(sum(sessions[one] for one in BEFORE_THE_ANSWER) / requests, 2),
        "by_session": {session: round(count / requests, 2) for session, count in sessions.most_common()},
        "most_frequent": [
            {"session": session, "statement": query, "per_request": round(count / requests, 2)}
            for (session, query), count in counted.most_common(LISTED)
        ],
    }


def _load(catalog: Catalog, number: int) -> None:
    catalog.load(NAMESPACE, f"t{number % TABLES}")


def _commit(catalog: Catalog, number: int) -> None:
    catalog.commit(NAMESPACE, f"t{number % TABLES}", [set_properties(n=str(time.time_ns()))])


def _record(program: str, pid: int, seconds: float, output: Path) -> dict[str, Counter[tuple[str, ...]]]:
    """Return how often each stack was seen, by what its process does; frames from the outermost to the innermost."""
    duties = {process.pid: process.duty for process in descendants([pid])}
    arguments = ["record", "--subprocesses", "--format", "raw", "--rate", str(SAMPLES_PER_S), "--nonblocking"]
    arguments += ["--duration", str(round(seconds)), "--pid", str(pid), "--output", str(output)]
    subprocess.run([program, *arguments], capture_output=True, check=False, timeout=seconds + PYSPY_GRACE_S)
    if not output.exists():
        raise RuntimeError("py-spy recorded nothing")
    found: dict[str, Counter[tuple[str, ...]]] = {}
    for line in output.read_text(encoding="utf-8", errors="replace").splitlines():
        stack, _, count = line.rpartition(" ")
        frames = tuple(stack.split(";"))
        duty = "lakeproof up"
        if process := PROCESS.match(frames[0]):
            duty, frames = duties.get(int(process[1]), "another"), frames[1:]
        if frames:
            found.setdefault(duty, Counter())[frames] += round(float(count))
    return found


def _functions(stacks: dict[str, Counter[tuple[str, ...]]]) -> Figures:
    """Return the functions with most samples of their own, and those with most including what they call."""
    everything = sum(found.total() for found in stacks.values())
    own: Counter[tuple[str, str]] = Counter()
    together: Counter[tuple[str, str]] = Counter()
    for duty, found in stacks.items():
        for frames, count in found.items():
            names = [_function(frame) for frame in frames]
            own[duty, names[-1]] += count
            for name in set(names):
                together[duty, name] += count
    return {
        "samples": everything,
        "by_process": {duty: _percent(found.total(), everything) for duty, found in stacks.items()},
        "own_percent": _most(own, everything),
        "with_callees_percent": _most(together, everything),
    }


def _most(counts: Counter[tuple[str, str]], everything: int) -> list[dict[str, Any]]:
    return [
        {"process": duty, "function": function, "percent": _percent(count, everything)}
        for (duty, function), count in counts.most_common(FUNCTIONS)
    ]


def _function(frame: str) -> str:
    """Return `function (file)` of py-spy's `function (file:line)`."""
    return frame.rpartition(":")[0] + ")" if frame.endswith(")") and ":" in frame else frame


def _percent(count: int, of: int) -> float:
    return round(100 * count / of, 1) if of else 0.0
