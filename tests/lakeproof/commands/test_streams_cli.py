# SPDX-License-Identifier: Apache-2.0
"""The commands of the streams, on the streams that an installation really runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from uuid import UUID, uuid4

import psycopg
import pytest
import typer
from typer.testing import CliRunner, Result

from lakeproof.commands.streams import dead_letters_app, streams_app
from lakeproof.provision import Provisioned, create_tenant_log
from lakeproof.streaming import Streams, open_streams, streams_metrics_text
from ledger.append.appender import Appender
from ledger.format.events import AlertDelivered, DetectionFound
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Group
from streams.errors import StreamError
from testkit.servers.gateways import start_services
from testkit.streams.answering import happened
from testkit.streams.world import TIMEOUT_S, found_numbers

Command = Callable[..., Result]
REFUSED_PATH = "/refused"


@contextmanager
def webhook() -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of a server in a thread of its own, and the ids that it has taken."""
    taken: list[str] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            refused = self.path == REFUSED_PATH
            if not refused:
                taken.append(self.headers["Idempotency-Key"])
            self.send_response(404 if refused else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", taken
        finally:
            server.shutdown()


@pytest.fixture
def hook() -> Iterator[tuple[str, list[str]]]:
    """A webhook."""
    with webhook() as found:
        yield found


@pytest.fixture
def finding() -> DetectionFound:
    """Social security numbers in a column of that name."""
    return found_numbers()


@pytest.fixture
def log_id(database: str, installation: Provisioned) -> int:
    """The log of a tenant."""
    return create_tenant_log(database, installation, uuid4())


@pytest.fixture
def append(installation: Provisioned, log_id: int) -> Callable[[object], None]:
    """Appends an event of the vocabulary."""

    def tell(event: object) -> None:
        async def run() -> None:
            dsn = installation.as_role(installation.roles.appender)
            async with Appender(dsn, GuardRegistry([])) as appender:
                await appender.append(log_id, Group(id=UUID(int=uuid4().int, version=4), then=(happened(event),)))

        asyncio.run(run())

    return tell


@pytest.fixture
def command(
    database: str,
    installation: Provisioned,
    tmp_path: Path,
    hook: tuple[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    """
    Runs a command as `lakeproof streams` would, on this test's database, or one of `dead-letters`.

    `path` is the webhook's.
    """
    monkeypatch.setenv("NO_PROXY", "*")

    def invoke(*arguments: str, path: str = "/hook") -> Result:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Streams]:
            settings = {"alert_webhook": hook[0] + path}
            async with (
                start_services(database, installation, tmp_path, **settings) as services,
                open_streams(services) as streams,
            ):
                yield streams

        app = typer.Typer(rich_markup_mode=None)
        app.add_typer(streams_app(opened))
        app.add_typer(dead_letters_app(opened), name="dead-letters")
        return CliRunner().invoke(app, arguments)

    return invoke


@contextmanager
def stopped_when(database: str, query: str) -> Iterator[None]:
    """Send SIGTERM to this process once the query has a row; it is the command's that runs meanwhile."""

    over = Event()

    def watch() -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(f"SET statement_timeout = '{TIMEOUT_S}s'")
            watched = f"DO $$ BEGIN WHILE NOT EXISTS ({query}) LOOP PERFORM pg_sleep(0.02); END LOOP; END $$"
            try:
                connection.execute(watched)
            finally:
                if not over.is_set():  # nobody would catch it any more
                    os.kill(os.getpid(), signal.SIGTERM)

    thread = Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


DELIVERED = f"SELECT FROM ledger.entries WHERE type = '{AlertDelivered.TYPE}'"


def test_run_handles_sends_stops_at_sigterm_and_says_what_it_did(
    command: Command,
    database: str,
    append: Callable[[object], None],
    finding: DetectionFound,
    hook: tuple[str, list[str]],
) -> None:
    append(finding)
    with stopped_when(database, DELIVERED):
        result = command("run")
    assert result.exit_code == 0, result.exception
    first, last = result.stdout.splitlines()
    assert first.startswith("the streams run: alerts, observe")
    assert last == "stopped: 1 messages handled, 1 groups appended, 1 messages sent, 0 dead letters"
    assert len(hook[1]) == 1


def test_run_says_the_same_as_json(
    command: Command, database: str, append: Callable[[object], None], finding: DetectionFound
) -> None:
    append(finding)
    with stopped_when(database, DELIVERED):
        result = command("run", "--json")
    (row,) = json.loads(result.stdout)
    assert row["messages_handled"] == row["groups_appended"] == 1
    assert row["dead_letters"] == 0


def test_status_tells_handlers_sinks_and_what_has_died(
    command: Command, database: str, append: Callable[[object], None], finding: DetectionFound
) -> None:
    append(finding)
    before = {row["source"]: row for row in json.loads(command("status", "--json").stdout)}
    assert before["handler:alerts"]["state"] == "behind"
    assert before["handler:alerts"]["waiting"] == 1
    with stopped_when(database, "SELECT FROM streams.dead_letters"):
        assert command("run", path=REFUSED_PATH).exit_code == 0
    after = {row["source"]: row for row in json.loads(command("status", "--json").stdout)}
    assert after["handler:alerts"]["handled"] == 1
    assert after["sink:webhook"]["state"] == "dead letters"
    assert after["sink:webhook"]["dead_letters"] == 1
    table = command("status").stdout.splitlines()
    assert table[0].split() == ["LOG", "SOURCE", "STATE", "WAITING", "FAILURES", "DEAD", "LETTERS"]


def test_dead_letters_are_listed_with_their_reasons(
    command: Command, database: str, append: Callable[[object], None], finding: DetectionFound
) -> None:
    assert command("dead-letters", "list").stdout == "none\n"
    append(finding)
    with stopped_when(database, "SELECT FROM streams.dead_letters"):
        assert command("run", path=REFUSED_PATH).exit_code == 0
    (row,) = json.loads(command("dead-letters", "list", "--json").stdout)
    assert (row["source"], row["attempts"]) == ("sink:webhook", 1)
    assert "404" in row["reason"]
    assert command("dead-letters", "list", "--source", "handler:observe").stdout == "none\n"
    table = command("dead-letters", "list").stdout.splitlines()
    assert table[0].split() == ["LOG", "SOURCE", "ID", "ATTEMPTS", "DIED", "AT", "REASON"]


def test_status_tells_the_hosts_that_do_not_answer(
    command: Command, database: str, append: Callable[[object], None], finding: DetectionFound
) -> None:
    append(finding)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO streams.hosts (log_id, handler, host, failures, reason)"
            " SELECT log_id, 'observe', 'silent.example', 3, 'no answer' FROM ledger.entries LIMIT 1"
        )
        connection.execute(
            "INSERT INTO streams.deferred (log_id, handler, index, host)"
            " SELECT log_id, handler, 0, host FROM streams.hosts"
        )
    rows = {row["source"]: row for row in json.loads(command("status", "--json").stdout)}
    row = rows["handler:observe at silent.example"]
    assert (row["state"], row["waiting"], row["failures"], row["reason"]) == ("put off", 1, 3, "no answer")


def test_replay_sends_again_what_was_refused(
    command: Command,
    database: str,
    append: Callable[[object], None],
    finding: DetectionFound,
    hook: tuple[str, list[str]],
) -> None:
    append(finding)
    with stopped_when(database, "SELECT FROM streams.dead_letters"):
        command("run", path=REFUSED_PATH)
    result = command("dead-letters", "replay", "--source", "sink:webhook", "--json")
    assert result.exit_code == 0, result.exception
    assert [row["result"] for row in json.loads(result.stdout)] == ["in the outbox again"]
    with stopped_when(database, DELIVERED):
        command("run")
    assert len(hook[1]) == 1
    assert command("dead-letters", "replay").stdout == "none\n"


def test_replay_ends_with_a_sentence_if_letters_are_left(
    command: Command, database: str, append: Callable[[object], None], finding: DetectionFound
) -> None:
    append(finding)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO streams.dead_letters (log_id, source, id, index, reason)"
            " SELECT log_id, 'handler:nobody', 'x', 0, 'bad' FROM ledger.entries LIMIT 1"
        )
    result = command("dead-letters", "replay")
    assert isinstance(result.exception, StreamError)
    assert "1 of 1 dead letters are left" in str(result.exception)
    assert "no such handler here" in result.stdout


def test_the_metrics_name_every_handler(database: str, installation: Provisioned, tmp_path: Path, log_id: int) -> None:
    async def read() -> str:
        async with start_services(database, installation, tmp_path) as services:
            return await streams_metrics_text(services.gateway.database, installation.roles.auditor, services)

    text = asyncio.run(read())
    assert 'handler="alerts"' in text
    assert 'handler="observe"' in text
    assert log_id
