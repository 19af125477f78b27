# SPDX-License-Identifier: Apache-2.0
"""
Lakeproof as users start it: `lakeproof up`, a process of its own with its own home in a temporary folder.

Only what would measure something else is set: detection on Spark is off, any port will do, and servers on loopback may
be catalogs. All else is the default.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final

from bench.gateway.processes import Process, descendants, memory_mib, wait_until_quiet
from bench.gateway.target import MissingError, Target
from bench.servers import directory_until_exit
from lakeproof.postgres.age import fetch_age
from lakeproof.postgres.process import postmaster_pid, stop_process
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.settings import load_settings
from testkit.environment import PROJECT

ALIAS: Final = "lake"
START_TIMEOUT_S: Final = 180.0
STOP_TIMEOUT_S: Final = 90.0
COMMAND_TIMEOUT_S: Final = 600.0
LISTENS: Final = re.compile(r"the gateway listens on (\S+);")
SETTINGS: Final = {"LAKEPROOF_PORT": "0", "LAKEPROOF_DETECT": "0", "LAKEPROOF_UPSTREAMS_ALLOWED": "127.0.0.0/8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The program `lakeproof` that is measured, run in a folder with an environment of its own."""

    program: Path
    folder: Path
    settings: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """The environment: ours without any LAKEPROOF_ variable, and the settings."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("LAKEPROOF_")}
        return {**ours, **self.settings}

    def run(self, *arguments: str) -> str:
        """
        Run a command and return what it prints.

        Raises:
            RuntimeError: if it failed.
        """
        done = subprocess.run(
            [self.program, *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"lakeproof {' '.join(arguments)}: {done.returncode} {done.stdout}{done.stderr}")
        return done.stdout

    def has_setting(self, name: str) -> bool:
        """Return whether the program knows a setting."""
        return name in self.run(*(("config", "list") if self.create == "create" else ("settings",)))

    @property
    def create(self) -> str:
        """The verb of the commands that make something."""
        return create_verb(self.program)


def commit_of(program: Path) -> str:
    """Return the commit of the source tree that the program `lakeproof` belongs to; else its version."""
    where = ["git", "-C", str(program.parent)]
    commit = subprocess.run([*where, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    if commit.returncode == 0:
        return commit.stdout.strip()
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def python_of(program: Path) -> str:
    """Return which Python runs `lakeproof`: builds differ by a fifth."""
    python = program.with_name("python")
    done = subprocess.run([python, "-c", "import sys; print(sys.version)"], capture_output=True, text=True, check=True)
    return done.stdout.strip().replace("\n", " ")


@cache
def create_verb(program: Path) -> str:
    """Return which verb makes something in `program`, which may be of an older commit: that was `add` up to 0.2.0."""
    told = subprocess.run(
        [program, "tenants", "--help"], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=True
    )
    return "create" if " create " in told.stdout else "add"


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """A running `lakeproof up`."""

    command: Command
    process: subprocess.Popen[bytes]
    url: str
    _names: Iterator[int] = field(default_factory=count)

    @property
    def home(self) -> Path:
        """Its home."""
        return Path(self.command.settings["LAKEPROOF_HOME"])

    @property
    def log(self) -> Path:
        """What it has said."""
        return self.command.folder / "up.log"

    def new_tenant(self) -> tuple[str, Target]:
        """Found a tenant; return its name and its built-in catalog."""
        name = f"bench-{next(self._names)}"
        added: dict[str, Any] = json.loads(
            self.command.run(
                *("tenants", self.command.create, name, "--identity", f"x@{name}.example", "--catalog", ALIAS, "--json")
            )
        )
        return name, self.target(added["key"]["secret"])

    def target(self, key: str, alias: str = ALIAS) -> Target:
        """Return a catalog behind the gateway."""
        return Target(name="lakeproof", url=self.url, base=f"/v1/iceberg/{alias}", warehouse=alias, key=key)

    def processes(self) -> list[Process]:
        """Return its processes, PostgreSQL's among them."""
        return descendants([self.process.pid, *filter(None, map(postmaster_pid, _data_folders(self.command)))])

    def memory_mib(self) -> dict[str, float]:
        """Return the memory of its processes in MiB, by duty and of all together."""
        return memory_mib(self.processes())

    def wait_until_quiet(self, for_s: float = 1.0) -> float:
        """Wait until it has had nothing to do for so many seconds; return for how many it was busy."""
        return wait_until_quiet(self.processes, for_s=for_s)

    def complaints(self) -> int:
        """Return how many tracebacks it has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace").count("Traceback")


@contextmanager
def lakeproof_up(program: Path, **settings: str) -> Iterator[Up]:
    """
    Run `lakeproof up` with an installation that goes when the bench ends; `settings` are further variables.

    Raises:
        MissingError: if the program does not know one of these settings.
        RuntimeError: if it does not start, or ends with an error.
    """
    with up_in(directory_until_exit(), program, **settings) as up:
        yield up


@contextmanager
def up_in(folder: Path, program: Path, **settings: str) -> Iterator[Up]:
    """Run `lakeproof up` with its home in `folder`, as `lakeproof_up` does."""
    command = command_in(folder, program, **settings)
    for name in settings:
        if not command.has_setting(name):
            raise MissingError(f"the setting {name}")
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "up"], env=command.environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield Up(command=command, process=process, url=_url(process, folder / "up.log"))
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for data in _data_folders(command):
                stop_process(data)  # where `up` could not


def command_in(folder: Path, program: Path, **settings: str) -> Command:
    """Return the program `lakeproof` with its home in `folder`."""
    places = {"LAKEPROOF_HOME": str(folder / "home"), "LAKEPROOF_SERVER_FOLDER": str(folder / "servers")}
    return Command(program=program, folder=folder, settings={**SETTINGS, **places, **settings})


@contextmanager
def database_of(command: Command, **overrides: str) -> Iterator[EmbeddedServer]:
    """
    Yield the embedded server of an installation, started unless it runs; it runs at least until the context's end.

    `overrides` are settings of PostgreSQL that win over Lakeproof's, if it is started here.
    """
    server = EmbeddedServer(
        Path(command.settings["LAKEPROOF_HOME"]),
        fetch_age(load_settings(os.environ, directory=PROJECT).cache, _say_nothing),
        folder=Path(command.settings["LAKEPROOF_SERVER_FOLDER"]),
        overrides=overrides,
    )
    server.start(_say_nothing)
    try:
        yield server
    finally:
        server.stop()


def _say_nothing(_: str) -> None:
    pass


def _data_folders(command: Command) -> list[Path]:
    home, servers = Path(command.settings["LAKEPROOF_HOME"]), Path(command.settings["LAKEPROOF_SERVER_FOLDER"])
    return [*servers.glob("*/data"), *home.glob("postgres/data")]


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        if found := LISTENS.search(log.read_text(encoding="utf-8", errors="replace")):
            return found[1]
        time.sleep(0.1)
    raise RuntimeError(f"lakeproof up did not start: {log.read_text(encoding='utf-8', errors='replace')}")
