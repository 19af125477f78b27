# SPDX-License-Identifier: Apache-2.0
"""
The processes of `lakeproof up`: whichever is killed, no answer is wrong, and it is back; all of them end together.

Each kill happens while a client commits, one commit after the other: what was acknowledged is in the table afterwards.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from cryptography import x509

from lakeproof.postgres.process import stop_process
from lakeproof.postgres.server import EmbeddedServer
from testkit.lakeproof.killed_commits import Moment, open_elsewhere
from testkit.lakeproof.running_up import (
    TIMEOUT_S,
    Up,
    children_of,
    command_of,
    holds_connection,
    running_up,
)
from testkit.servers.certificates import Certificate, make_certificate

NAMESPACES: Final = "/v1/iceberg/lake/namespaces"
TABLES: Final = f"{NAMESPACES}/sales/tables"
DUTIES: Final = ("signer", "gateway-1", "gateway-2", "projections", "streams", "reconciler")
UNKNOWN: Final = frozenset({0, 500, 503, 504})
"""What a commit may be answered while something is killed: 0 is none. None of these says that it has landed, or not."""
FOREIGN: Final = {"upstreams_allowed": "127.0.0.0/8", "upstream_timeout_s": "2", "reconcile_after_s": "2.5"}
"""Settings with which a foreign catalog may be in the test's own process, and what is open is settled soon."""
COMMITS: Final = 3
"""Commits after a kill that must be acknowledged."""

ShortDirectory = Callable[[], AbstractContextManager[Path]]


@dataclass(slots=True)
class Client:
    """A client of the gateway with one key: a connection at a time."""

    port: int
    key: str
    connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return status and body of the answer; status 0 if there is none."""
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
            headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
            self.connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = self.connection.getresponse()
            text = answer.read()
            if answer.will_close:
                self.close()
            return answer.status, json.loads(text) if text[:1] in {b"{", b"["} else text
        except (OSError, http.client.HTTPException):
            self.close()
            return 0, None

    def must(self, method: str, path: str, body: object = None) -> Any:
        """Return the body of an answer that says that it is done."""
        status, answer = self.ask(method, path, body)
        assert status in {200, 201, 204}, answer
        return answer

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None


@dataclass(slots=True)
class Committing:
    """A client that commits to a table until it is stopped."""

    client: Client
    table: str
    name: str = "number"
    """The property that it counts in."""
    acknowledged: int = 0
    """The number of the last commit that was answered with 200."""
    count: int = 0
    sent: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.is_set():
            self.sent += 1
            update = {"action": "set-properties", "updates": {self.name: str(self.sent)}}
            status, _ = self.client.ask("POST", f"{TABLES}/{self.table}", {"requirements": [], "updates": [update]})
            self.statuses[status] += 1
            if status == 200:
                self.acknowledged, self.count = self.sent, self.count + 1
            else:
                self.stop.wait(0.05)
        self.client.close()


@dataclass(frozen=True, slots=True)
class Installed:
    """A home with a server that runs, and `lakeproof up` in it; a tenant with the key of its founder."""

    server: EmbeddedServer
    up: Up
    key: str

    def client(self, key: str | None = None) -> Client:
        return Client(self.up.port, key or self.key)


@pytest.fixture(scope="module")
def server(age: Path, short_directory: ShortDirectory) -> Iterator[EmbeddedServer]:
    """A server that the test may stop; it does not end with `lakeproof up`."""
    with short_directory() as directory:
        server = EmbeddedServer(directory / "home", age, folder=directory / "servers")
        server.start(print)
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="module")
def home(server: EmbeddedServer) -> Path:
    """The home of that server."""
    return server._home


@pytest.fixture(scope="module")
def installed(server: EmbeddedServer, home: Path) -> Iterator[Installed]:
    """`lakeproof up` with two gateway processes, and a tenant with a catalog and a namespace."""
    with running_up(home, gateway_processes="2", **FOREIGN) as up:
        assert up.url
        added = up.command("tenants", "create", "acme", "--identity", "ada", "--catalog", "lake", "--json")
        assert added.returncode == 0, added.stderr
        installed = Installed(server, up, str(json.loads(added.stdout)["key"]["secret"]))
        client = installed.client()
        client.must("POST", NAMESPACES, {"namespace": ["sales"]})
        client.close()
        up.until(lambda: up.processes().keys() == set(DUTIES))
        yield installed


@pytest.fixture
def founded(installed: Installed) -> str:
    """The key of that tenant, once `installed` has ended."""
    if installed.up.process.poll() is None:
        installed.up.process.terminate()
        assert installed.up.end() == 0
    return installed.key


def make_table(client: Client, name: str) -> None:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
    client.must("POST", TABLES, {"name": name, "schema": schema})


def number_in(client: Client, table: str) -> int:
    """Return the number of the commit that the table shows."""
    return int(client.must("GET", f"{TABLES}/{table}")["metadata"]["properties"].get("number", 0))


def commit_while(installed: Installed, table: str, happens: Callable[[], None]) -> Counter[int]:
    """Let something happen while a client commits, and check what it was answered; return how often what."""
    reader = installed.client()
    make_table(reader, table)
    reader.close()  # the process that holds its connection may be killed
    committing = Committing(installed.client(), table)
    writer = threading.Thread(target=committing.run)
    writer.start()
    try:
        installed.up.until(lambda: committing.count >= COMMITS)
        happens()
        before = committing.count
        installed.up.until(lambda: committing.count >= before + COMMITS)
    finally:
        committing.stop.set()
        writer.join()
    assert committing.statuses.keys() <= {200, *UNKNOWN}, committing.statuses
    found = number_in(reader, table)
    assert committing.acknowledged <= found <= committing.sent
    reader.close()
    return committing.statuses


def test_the_status_names_every_process_and_with_the_doctor_finds_nothing_amiss(installed: Installed) -> None:
    shown = installed.up.command("status", "--json")
    assert shown.returncode == 0, shown.stdout
    status = json.loads(shown.stdout)
    assert (status["ok"], status["problems"]) == (True, [])
    pids = {process["name"]: process["pid"] for process in status["processes"]}
    assert pids == {"supervisor": installed.up.process.pid, **installed.up.processes()}
    assert [(each["url"], each["ready"]) for each in status["gateways"]] == [(installed.up.url, True)]
    assert (status["database"]["embedded"], status["database"]["pending_migrations"]) == (True, [])
    assert all(log["takes_entries"] and log["checkpoint_size"] for log in status["logs"])
    examined = installed.up.command("doctor", "--json")
    assert [each for each in json.loads(examined.stdout)["checks"] if each["result"] != "ok"] == []
    assert examined.returncode == 0


@pytest.mark.parametrize("duty", DUTIES)
def test_a_duty_that_is_killed_during_commits_is_back_and_no_answer_was_wrong(duty: str, installed: Installed) -> None:
    others = {name: pid for name, pid in installed.up.processes().items() if name != duty}
    statuses = commit_while(installed, duty, lambda: installed.up.kill(duty))
    assert {name: pid for name, pid in installed.up.processes().items() if name != duty} == others
    if not duty.startswith("gateway"):
        assert statuses.keys() == {200}


def test_a_policy_worker_that_is_killed_during_commits_is_replaced(installed: Installed) -> None:
    def kill() -> None:
        victims = installed.up.workers()
        assert victims
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        installed.up.until(lambda: bool(installed.up.workers()) and not set(victims) & set(installed.up.workers()))

    client = installed.client()
    # Each commit changes what it reads, so each is judged anew.
    policy = {"id": "any", "expression": "size(result.properties) >= 0", "message": "never"}
    client.must("POST", "/v1/policies", policy)
    commit_while(installed, "judged", kill)
    client.must("DELETE", "/v1/policies/any")
    client.close()


def test_commits_go_on_after_the_database_was_stopped_and_started(installed: Installed, home: Path) -> None:
    before = installed.up.processes()

    def restart() -> None:
        stop_process(installed.server.files.data)
        again = EmbeddedServer(home, installed.server._age, folder=installed.server._folder)
        again.start(print)  # and stays: the fixture stops whatever serves its data

    commit_while(installed, "restarted", restart)
    assert installed.up.processes() == before


@dataclass(slots=True)
class Racing:
    """Clients at both gateway processes that commit to one table until they are stopped."""

    installed: Installed
    committing: list[Committing]
    threads: list[threading.Thread]

    @property
    def count(self) -> int:
        """Commits of the slowest client that were acknowledged."""
        return min(each.count for each in self.committing)

    def stop(self) -> Counter[int]:
        """Stop them, and return how often what was answered."""
        for each in self.committing:
            each.stop.set()
        for thread in self.threads:
            thread.join()
        return sum((each.statuses for each in self.committing), Counter[int]())


def race(installed: Installed, table: str) -> Racing:
    """Let three clients at each process commit to one table."""
    reader = installed.client()
    make_table(reader, table)
    reader.close()
    clients = [client for _ in range(3) for client in connected_to_both(installed)]
    committing = [Committing(client, table, name=f"c{number}") for number, client in enumerate(clients)]
    threads = [threading.Thread(target=each.run) for each in committing]
    for thread in threads:
        thread.start()
    return Racing(installed, committing, threads)


def passed_on(client: Client) -> dict[str, float]:
    """Return how many commits were to be passed on, by outcome."""
    found = re.findall(
        r'^lakeproof_gateway_passed_on_total{outcome="(\w+)"} (\S+)$',
        client.must("GET", "/metrics").decode(),
        re.MULTILINE,
    )
    return {outcome: float(count) for outcome, count in found}


def check_race(racing: Racing, table: str) -> None:
    """Check that each client finds its last acknowledged commit, or a later one, in the table."""
    reader = racing.installed.client()
    properties = reader.must("GET", f"{TABLES}/{table}")["metadata"]["properties"]
    for each in racing.committing:
        assert each.acknowledged <= int(properties[each.name]) <= each.sent
    reader.close()


def test_commits_to_one_table_at_both_gateways_are_made_by_one_of_them(installed: Installed) -> None:
    client = installed.client()
    before = passed_on(client).get("answered", 0)
    racing = race(installed, "shared")
    try:
        installed.up.until(lambda: racing.count >= 20 and passed_on(client).get("answered", 0) >= before + 20)
    finally:
        statuses = racing.stop()
    assert statuses.keys() == {200}
    check_race(racing, "shared")
    client.close()


@pytest.mark.parametrize("duty", ["gateway-1", "gateway-2"])
def test_a_gateway_that_is_killed_while_both_change_one_table_is_back_and_no_answer_was_wrong(
    duty: str, installed: Installed
) -> None:
    racing = race(installed, f"shared-{duty}")
    try:
        installed.up.until(lambda: racing.count >= COMMITS)
        installed.up.kill(duty)
        before = racing.count
        installed.up.until(lambda: racing.count >= before + COMMITS)
    finally:
        statuses = racing.stop()
    assert statuses.keys() <= {200, *UNKNOWN}
    check_race(racing, f"shared-{duty}")


async def test_a_gateway_that_is_killed_during_a_commit_to_a_foreign_catalog_leaves_what_can_be_found_out(
    installed: Installed,
) -> None:
    async with open_elsewhere(installed.up, dsn=installed.server.admin_dsn, key=installed.key) as elsewhere:
        killed = {moment: await elsewhere.kill_at(moment) for moment in Moment}
        for moment, one in killed.items():
            is_made = moment is Moment.MADE
            outcomes = await elsewhere.settled(one.table)
            assert outcomes.pop(one.snapshot) == ("accepted" if is_made else "failed"), moment
            assert outcomes.keys() >= {one.next_snapshot}
            assert set(outcomes.values()) == {"accepted"}
            there = elsewhere.snapshots(one.table)
            assert there == {*outcomes, *([one.snapshot] if is_made else [])}
            assert await elsewhere.approved(one.table) == there
            sent = [method for method, table in elsewhere.asked if table == one.table]
            assert sent.count("POST") == (2 if moment is Moment.ASKED else 3), "what was not shown was not sent"


def test_a_key_that_one_gateway_revokes_is_refused_by_the_other_at_once(installed: Installed) -> None:
    clients = connected_to_both(installed)
    for revoking, other in (clients, clients[::-1]):
        issued = revoking.must("POST", "/v1/keys", {"identity": "ada", "roles": []})
        config = "/v1/config?warehouse=lake"
        theirs, other.key = other.key, issued["secret"]
        assert other.ask("GET", config)[0] == 200
        revoking.must("DELETE", f"/v1/keys/{issued['id']}")
        assert other.ask("GET", config)[0] == 401
        other.key = theirs
    for client in clients:
        client.close()


def connected_to_both(installed: Installed) -> tuple[Client, Client]:
    """Return two clients whose connections are held by different gateway processes."""
    gateways = {name: pid for name, pid in installed.up.processes().items() if name.startswith("gateway")}
    found: dict[str, Client] = {}
    while len(found) < len(gateways):
        client = installed.client()
        client.must("GET", "/health")
        assert client.connection is not None
        port = int(client.connection.sock.getsockname()[1])
        (holder,) = [
            name for name, pid in gateways.items() if holds_connection(pid, port=installed.up.port, client_port=port)
        ]
        if found.setdefault(holder, client) is not client:
            client.close()
    one, two = found.values()
    return one, two


def test_what_follows_the_log_leaves_the_processor_to_requests(installed: Installed) -> None:
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    lower = {
        name: os.getpriority(os.PRIO_PROCESS, pid) - ours
        for name, pid in installed.up.processes().items()
        if not name.startswith("gateway")
    }
    assert lower == {"signer": 0, "projections": 5, "streams": 5, "reconciler": 0}


def test_metrics_are_those_of_all_gateway_processes_and_outlive_one(installed: Installed) -> None:
    clients = connected_to_both(installed)
    sample = 'lakeproof_gateway_mutations_total{operation="table.commit",status="404"}'

    def refused() -> float:
        status, text = clients[0].ask("GET", "/metrics")
        assert status == 200
        found = re.findall(rf"^{re.escape(sample)} (\S+)$", text.decode(), re.MULTILINE)
        assert len(found) <= 1
        return float(found[0]) if found else 0.0

    before = refused()
    for client in clients:
        assert client.ask("POST", f"{TABLES}/nowhere", {"requirements": [], "updates": []})[0] == 404
    installed.up.until(lambda: refused() == before + len(clients))
    for name in ("gateway-1", "gateway-2"):
        installed.up.kill(name)
        installed.up.until(lambda: clients[0].ask("GET", "/health")[0] == 200)
        assert refused() == before + len(clients)
    text = clients[0].must("GET", "/metrics").decode()
    restarts = dict(re.findall(r'^lakeproof_process_restarts_total{process="(\S+)"} (\S+)$', text, re.MULTILINE))
    assert restarts.keys() == set(DUTIES)
    assert float(restarts["gateway-2"]) >= 1
    for client in clients:
        client.close()


def test_the_log_verifies_after_all_of_that(installed: Installed) -> None:
    verified = installed.up.command("ledger", "verify", "--deep")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_the_memory_of_all_processes_is_printed(installed: Installed, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {name: proportional_mib(pid) for name, pid in installed.up.processes().items()}
    sizes["supervisor"] = proportional_mib(installed.up.process.pid)
    sizes["policy workers"] = sum(map(proportional_mib, installed.up.workers()))
    with capsys.disabled():
        parts = ", ".join(f"{name} {size:.0f}" for name, size in sizes.items())
        sys.stdout.write(f"\nlakeproof up: {sum(sizes.values()):.0f} MiB ({parts})\n")
    assert all(sizes.values())


def proportional_mib(pid: int) -> float:
    """Return the proportional set size of a process: memory that it shares counts in part."""
    found = re.search(r"^Pss:\s+(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def test_a_request_that_has_begun_is_finished_before_the_end(installed: Installed) -> None:
    up = installed.up
    body = json.dumps({"namespace": ["begun"]}).encode()
    head = (
        f"POST {NAMESPACES} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {installed.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    pids = [up.process.pid, *up.processes().values(), *up.workers()]
    with closing(socket.create_connection(("127.0.0.1", up.port), TIMEOUT_S)) as begun:
        begun.sendall(head.encode() + body[:5])
        up.until(lambda: holds_any(up, begun))
        up.process.terminate()
        up.until_line("stopping")
        up.until(lambda: is_refused(up.port))
        begun.sendall(body[5:])
        assert begun.recv(64).startswith(b"HTTP/1.1 200 ")
    assert up.end() == 0
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert up.lines[-1] == "stopping"


def holds_any(up: Up, client: socket.socket) -> bool:
    """Tell whether a gateway process has accepted a connection."""
    port = int(client.getsockname()[1])
    gateways = [pid for name, pid in up.processes().items() if name.startswith("gateway")]
    return any(holds_connection(pid, port=up.port, client_port=port) for pid in gateways)


def is_refused(port: int) -> bool:
    """Tell whether nobody listens on a port any more."""
    try:
        socket.create_connection(("127.0.0.1", port), TIMEOUT_S).close()
    except ConnectionRefusedError:
        return True
    return False


def test_nothing_is_left_behind_if_it_is_killed(home: Path, founded: str) -> None:
    with running_up(home) as up:
        assert up.url
        pids = [*up.processes().values(), *up.workers()]
        up.process.kill()
        up.until(lambda: not any("lakeproof up" in command_of(pid) for pid in pids))
        up.until(lambda: not any("policy.worker" in command_of(pid) for pid in pids))


def test_with_a_certificate_all_gateway_processes_speak_tls_and_take_a_new_one(
    home: Path, founded: str, tmp_path: Path
) -> None:
    host = x509.IPAddress(ip_address("127.0.0.1"))
    served = make_certificate(tmp_path / "served.pem", "gateway.example", names=[host])
    files = {"tls_certificate": str(served.file), "tls_key": str(served.file)}
    with running_up(home, gateway_processes="2", **files) as up:
        assert up.url.startswith("https://127.0.0.1:")
        up.until(lambda: up.processes().keys() == set(DUTIES))

        def must_be_served(certificate: Certificate) -> None:
            """Ask until forty connections in a row, which both processes accept, have this certificate."""
            trusted, in_a_row = ssl.create_default_context(cafile=str(certificate.file)), 0

            def asked() -> bool:
                nonlocal in_a_row
                connection = http.client.HTTPSConnection("127.0.0.1", up.port, timeout=TIMEOUT_S, context=trusted)
                try:
                    connection.request("GET", f"{NAMESPACES}/sales", headers={"Authorization": f"Bearer {founded}"})
                    assert connection.getresponse().status == 200
                    in_a_row += 1
                except ssl.SSLCertVerificationError:
                    in_a_row = 0
                connection.close()
                return in_a_row >= 40

            up.until(asked)

        must_be_served(served)
        status = up.command("status")
        assert f"{up.url}, ready" in status.stdout, status.stdout
        doctor = json.loads(up.command("doctor", "--json").stdout)
        assert [each["result"] for each in doctor["checks"] if each["check"] in {"tls", "port"}][-1] == "warning"
        newer = make_certificate(tmp_path / "newer.pem", "gateway.example", names=[host], ends_in=timedelta(days=99))
        newer.file.replace(served.file)
        must_be_served(served)
        assert f"{up.url}, ready" in up.command("status").stdout
        make_certificate(tmp_path / "expired.pem", "x", ends_in=-timedelta(hours=1)).file.replace(served.file)
        up.until(lambda: sum("the new certificate is refused" in line for line in up.lines) == 2)
        told = up.command("doctor").stdout
        assert "has expired" in told
        assert "a gateway that runs keeps the certificate it has" in told
    with running_up(home, **files) as up:
        assert up.end() == 1
        assert re.fullmatch(r"lakeproof: LAKEPROOF_TLS_CERTIFICATE: \S+ has expired at .*: renew it", up.lines[-1])


def test_a_log_that_is_corrupt_ends_it_with_one_sentence(server: EmbeddedServer, home: Path, founded: str) -> None:
    with running_up(home) as up:
        client = Client(up.port, founded)
        up.until(lambda: up.processes().keys() >= {"projections", "streams"})
        readers = [up.processes()[name] for name in ("projections", "streams")]
        for pid in readers:
            os.kill(pid, signal.SIGSTOP)
        make_table(client, "corrupt")
        client.close()
        with psycopg.connect(server.admin_dsn, autocommit=True) as owner:
            owner.execute("ALTER TABLE ledger.entries DISABLE TRIGGER ALL")
            newest = owner.execute(
                "UPDATE ledger.entries AS e SET entry = 'x' FROM ledger.heads AS h JOIN ledger.logs USING (log_id)"
                " WHERE tenant IS NOT NULL AND e.log_id = h.log_id AND e.index = h.size - 1 RETURNING e.index"
            ).fetchone()
        assert newest is not None
        pids = [*up.processes().values(), *up.workers()]
        for pid in readers:
            os.kill(pid, signal.SIGCONT)
        assert up.end() == 1
        sentences = [line for line in up.lines if line.startswith("lakeproof: ")]
        assert len(sentences) == 1
        assert sentences == up.lines[-1:]
        fault = rf"entry fault at index {newest[0]} in log \S+: expected an entry, found .*"
        assert re.fullmatch(rf"lakeproof: (projections|streams): {fault}", sentences[0])
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_a_setting_that_only_people_can_correct_ends_it(home: Path, founded: str, tmp_path: Path) -> None:
    with running_up(home, witness_policy=str(tmp_path / "nothing")) as up:
        assert up.end() == 1
        assert "LAKEPROOF_WITNESS_POLICY" in up.lines[-1]
        assert up.lines[-1].startswith("lakeproof: ")
        assert not any("has ended" in line for line in up.lines)
        assert children_of(up.process.pid) == []
