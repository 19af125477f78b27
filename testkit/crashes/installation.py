# SPDX-License-Identifier: Apache-2.0
"""
What a campaign kills: `lakeproof up` as users start it, its PostgreSQL, and two foreign catalogs.

One is Apache Iceberg's own REST server, the other a branch of Nessie, whose tables are in a bucket that nobody kills.

Each part can be killed by SIGKILL and started again where it was: the same port, the same home, the same files. What
has been killed is remembered until it and all that it had started are gone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import httpx
import psycopg

from lakeproof.demo.cloud import make_cloud, run_moto
from lakeproof.postgres.process import postmaster_pid
from lakeproof.postgres.server import EmbeddedServer
from testkit.gateway.sales import new_key
from testkit.lakeproof.running_up import Up, children_of, command_of, holds_connection, running_up
from testkit.servers.iceberg_rest import IcebergRest, serve_iceberg_rest
from testkit.servers.java import free_ports
from testkit.servers.nessie import MAIN, Nessie, serve_nessie, snapshots_in

BUILT_IN: Final = "lake"
FOREIGN: Final = "far"
BRANCH: Final = "branch"
"""In front of Nessie's branch `main`."""
ALIASES: Final = (BUILT_IN, FOREIGN, BRANCH)
GATEWAYS: Final = 2
UPSTREAM_TIMEOUT_S: Final = 2.0
RECONCILE_AFTER_S: Final = 2.5
SETTINGS: Final = {
    "gateway_processes": str(GATEWAYS),
    "upstreams_allowed": "127.0.0.0/8",
    "upstream_timeout_s": str(UPSTREAM_TIMEOUT_S),
    "reconcile_after_s": str(RECONCILE_AFTER_S),
    # The rest is what users have, too.
    "checkpoint_interval_s": "1",
    "policy_timeout_s": "1",
    "policy_waiting_s": "5",
}
GONE_TIMEOUT_S: Final = 60.0
"""How long the processes of a killed supervisor may take to end: they finish what they have begun."""
POLL_S: Final = 0.02
COMPLAINT_LENGTH_MAX: Final = 200
HTTP_TIMEOUT_S: Final = 60.0
PAUSE_S: Final = 0.2
NOT_KNOWN: Final = frozenset({503, 504})
"""Answers after which a request is sent again."""
BACKENDS: Final = """
SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
ORDER BY query = 'COMMIT' DESC, state_change DESC
"""
"""Those first that append: `COMMIT` is the last that they were asked."""

POINTER: Final = """
SELECT metadata_location FROM gateway.tables WHERE log_id = %s AND alias = %s AND namespace = %s AND name = %s
"""

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Process:
    """A process that cannot be taken for another one to which its id is given later."""

    pid: int
    began: int
    command: str

    @property
    def runs(self) -> bool:
        """Tell whether it has not ended."""
        found = _find(self.pid)
        return found is not None and found.began == self.began


class Server(Protocol):
    """A foreign catalog that runs."""

    @property
    def url(self) -> str:
        """Its base URL."""

    @property
    def pid(self) -> int:
        """Its process."""


S = TypeVar("S", bound=Server)


class Upstream(Generic[S]):
    """A foreign catalog; it can be killed, and started again with what it has kept in a folder, on the same port."""

    def __init__(self, directory: Path, serve: Callable[[Path, int], AbstractContextManager[S]]) -> None:
        self._directory, self._serve = directory, serve
        directory.mkdir()
        (self._port,) = free_ports(1)
        self._running: AbstractContextManager[S] | None = None
        self.server: S

    def start(self) -> None:
        """Start it, and wait until it answers."""
        running = self._serve(self._directory, self._port)
        self.server, self._running = running.__enter__(), running

    def kill(self) -> None:
        """Kill it."""
        end_at_once(self.server.pid)
        self.stop()

    def stop(self) -> None:
        """End it, if it runs."""
        if self._running is not None:
            self._running.__exit__(None, None, None)
        self._running = None


class Installation:
    """All parts, and how they are killed and started again. `started` counts how often `lakeproof up` was started."""

    def __init__(self, directory: Path, age: Path, upstream: Upstream[IcebergRest], nessie: Upstream[Nessie]) -> None:
        self._directory = directory
        self._ups = ExitStack()
        self._killed: set[Process] = set()
        (self.port,) = free_ports(1)
        self.upstream, self.nessie = upstream, nessie
        self.server = EmbeddedServer(directory / "home", age, folder=directory / "servers")
        self.up: Up
        self._lines: list[str] = []
        """What `lakeproof up` has said that runs no more."""
        self.key = ""
        self.log_id = 0
        self.started = 0

    def start(self) -> None:
        """Start all parts, and found a tenant with all catalogs."""
        with ThreadPoolExecutor() as executor:
            starting = [executor.submit(each.start) for each in (self.upstream, self.nessie)]
            self.server.start(_say_nothing)
            self.start_up()
            added = self.up.command("tenants", "create", "acme", "--identity", "ada", "--catalog", BUILT_IN, "--json")
            for one in starting:
                one.result()
        assert added.returncode == 0, added.stderr
        self.key = str(json.loads(added.stdout)["key"]["secret"])
        self.log_id = int(self.query("SELECT log_id FROM ledger.logs WHERE tenant IS NOT NULL")[0][0])
        for alias, url in ((FOREIGN, self.upstream.server.url), (BRANCH, self.nessie.server.catalog(MAIN))):
            self.ask("POST", "/v1/catalogs", {"alias": alias, "kind": "rest", "options": {"uri": url}})

    def start_up(self) -> None:
        """Start `lakeproof up`, and wait until it listens."""
        if self.started:
            self._lines += self.up.lines
        self.started += 1
        up = running_up(self._directory / "home", port=str(self.port), **SETTINGS)
        self.up = self._ups.enter_context(up)
        assert self.up.port == self.port

    def start_server(self) -> None:
        """Start PostgreSQL, which has ended."""
        self.server.start(_say_nothing)

    def stop(self) -> None:
        """End all of it, however it is."""
        self._ups.close()
        self.server.stop()

    def end_up(self) -> list[str]:
        """End `lakeproof up` as its users do; return what is wrong with its end."""
        everything = self.tree()
        self.up.process.terminate()
        code = self.up.end()
        left = [process for process in everything if process.runs]
        wrong = [] if code == 0 else [f"lakeproof up has ended with exit code {code}: {self.up.lines[-3:]}"]
        return wrong + [f"lakeproof up has left process {each.pid} behind: {each.command}" for each in left]

    def complaints(self) -> Counter[str]:
        """Return the errors with which tracebacks have ended that `lakeproof up` has printed."""
        found: Counter[str] = Counter()
        is_within = False
        for line in [*self._lines, *self.up.lines]:
            if is_within and line and not line.startswith((" ", "Traceback")):
                found[line[:COMPLAINT_LENGTH_MAX]] += 1
                is_within = False
            is_within = is_within or line.startswith("Traceback")
        return found

    # Questions

    def ask(self, method: str, path: str, body: object = None, *, url: str | None = None) -> JsonObject:
        """
        Return the answer of the gateway, or of the server at `url`, to a request that must be done.

        On a busy machine the foreign catalog may not answer in time: the request is sent again under its key.
        """
        headers = {"Authorization": f"Bearer {self.key}", **new_key()}
        base = url or f"http://127.0.0.1:{self.port}"
        deadline_s = time.monotonic() + HTTP_TIMEOUT_S
        with httpx.Client(timeout=HTTP_TIMEOUT_S, trust_env=False) as http:
            while True:
                answer = http.request(method, base + path, json=body, headers=headers)
                if answer.status_code not in NOT_KNOWN or time.monotonic() > deadline_s:
                    break
                time.sleep(PAUSE_S)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:300]}"
        found: JsonObject = answer.json() if answer.content else {}
        return found

    def state(self, alias: str, namespace: str, table: str) -> tuple[str, set[str]]:
        """
        Return where a table's current metadata is, and the ids of all snapshots it ever had, from the catalog itself.
        """
        if alias == BRANCH:
            states = self.nessie.server.states(namespace, table)
            return str(states[0]["metadataLocation"]), snapshots_in(states)
        if alias == FOREIGN:
            path = f"/v1/namespaces/{namespace}/tables/{table}"
            loaded = self.ask("GET", path, url=self.upstream.server.url)
            location, metadata = loaded["metadata-location"], loaded["metadata"]
        else:
            ((location,),) = self.query(POINTER, self.log_id, alias, [namespace], table)
            metadata = json.loads(Path(location.removeprefix("file://")).read_bytes())
        return location, {str(each["snapshot-id"]) for each in metadata.get("snapshots") or ()}

    def query(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query of the owner."""
        with self.connect() as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a connection of the owner to the installation's database."""
        return psycopg.connect(self.server.admin_dsn, autocommit=True)

    def gateway_of(self, client_port: int) -> int | None:
        """Return the gateway process that holds a client's connection."""
        for name, pid in self.up.processes().items():
            if name.startswith("gateway"):
                with suppress(OSError):  # it has ended
                    if holds_connection(pid, port=self.port, client_port=client_port):
                        return pid
        return None

    def gateways(self) -> list[int]:
        """Return the gateway processes that run."""
        return [pid for name, pid in self.up.processes().items() if name.startswith("gateway")]

    def duties(self) -> dict[str, int]:
        """Return the other processes of `lakeproof up` that run, and the gateways' own, by name."""
        others = {name: pid for name, pid in self.up.processes().items() if not name.startswith("gateway")}
        own = [pid for gateway in self.gateways() for pid in children_of(gateway)]
        return others | {f"{_kind(pid)} {number}": pid for number, pid in enumerate(own)}

    def tree(self) -> list[Process]:
        """Return all processes of `lakeproof up`."""
        return tree(self.up.process.pid)

    # Kills

    def kill(self, pid: int) -> None:
        """Kill a process of `lakeproof up`; what it has started must end by itself."""
        self._killed.update(tree(pid))
        end_at_once(pid)

    def kill_postmaster(self) -> None:
        """Kill PostgreSQL's first process; its others notice."""
        pid = postmaster_pid(self.server.files.data)
        assert pid is not None
        self._killed.update(tree(pid))
        end_at_once(pid)

    def backend(self) -> int:
        """Return a process of PostgreSQL that appends for `lakeproof up`, if there is such, else another one."""
        return int(self.query(BACKENDS)[0][0])

    def kill_backend(self, pid: int) -> None:
        """Kill a process of PostgreSQL that serves a connection: PostgreSQL ends all of them, and recovers."""
        with suppress(ProcessLookupError):  # its client has gone meanwhile
            os.kill(pid, signal.SIGKILL)

    def kill_supervisor(self) -> None:
        """Kill the supervisor; the other processes of `lakeproof up` must end by themselves."""
        self._killed.update(self.tree())
        self.up.process.kill()
        self.up.process.wait()

    def kill_everything(self) -> None:
        """Kill all processes of `lakeproof up` at once."""
        everything = self.tree()
        self._killed.update(everything)
        for process in everything:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self.up.process.wait()

    def left_behind(self) -> list[Process]:
        """Wait until what was killed has ended, and what it had started; return what has not."""
        deadline_s = time.monotonic() + GONE_TIMEOUT_S
        while True:
            self._killed = {process for process in self._killed if process.runs}
            if not self._killed or time.monotonic() > deadline_s:
                return sorted(self._killed, key=lambda process: process.pid)
            time.sleep(POLL_S)


@contextmanager
def running_installation(directory: Path, age: Path) -> Iterator[Installation]:
    """Run an installation in an empty directory with a short path that any user may enter."""
    with ExitStack() as stack:
        cloud = make_cloud(stack.enter_context(run_moto()))
        upstream = Upstream(directory / "upstream", serve_iceberg_rest)
        nessie = Upstream(directory / "nessie", partial(serve_nessie, cloud))
        for each in (upstream, nessie):
            stack.callback(each.stop)
        installation = Installation(directory, age, upstream, nessie)
        stack.callback(installation.stop)
        installation.start()
        yield installation


def tree(pid: int) -> list[Process]:
    """Return a process and all that it has started, and those in turn."""
    found, queue = [], [pid]
    while queue:
        one = queue.pop()
        process = _find(one)
        if process is not None:
            found.append(process)
            queue += children_of(one)
    return found


def end_at_once(pid: int) -> None:
    """Send SIGKILL to a process, and wait until it has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        os.kill(pid, signal.SIGKILL)
        select.select([process], [], [], GONE_TIMEOUT_S)
    finally:
        os.close(process)


def processes_of(directory: Path) -> list[str]:
    """Return the processes that work for an installation in `directory`: its path is in their environment or folder."""
    found, name = [], os.fsencode(directory)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            works_there = name in os.fsencode((folder / "cwd").readlink())
            if int(folder.name) != os.getpid() and (works_there or name in (folder / "environ").read_bytes()):
                found.append(f"{folder.name} {command_of(int(folder.name))}")
    return found


def _find(pid: int) -> Process | None:
    """Return a process that runs; one that has ended and that nobody has waited for does not."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        if fields[0] != "Z":
            return Process(pid, int(fields[19]), command_of(pid).strip())
    return None


def _kind(pid: int) -> str:
    command = command_of(pid)
    return "policy worker" if "policy.worker" in command else "file writer" if "writing_process" in command else "other"


def _say_nothing(_: str) -> None:
    pass
