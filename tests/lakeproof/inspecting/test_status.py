# SPDX-License-Identifier: Apache-2.0
"""
`lakeproof status`: it says what is not well, one sentence each, and leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest
from typer.testing import CliRunner

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from lakeproof.commands.status import status_app, status_json
from lakeproof.inspecting.disks import FREE_BYTES_MIN, find_disks
from lakeproof.inspecting.processes import ask_readiness, find_ups
from lakeproof.inspecting.status import BEHIND_S_MAX, Status, read_installation_status
from lakeproof.log_status import UNREADABLE
from lakeproof.provision import Provisioned, create_tenant_log
from lakeproof.services import Services
from lakeproof.serving.socket_folder import RUN, read_url, socket_folder, write_url
from lakeproof.settings import Settings, load_settings
from lakeproof.tenants import found_tenant
from testkit.gateway.unreadable_logs import append_newer, change_policy
from testkit.lakeproof.examined_home import make_home, process_called_lakeproof
from testkit.servers.certificates import Certificate, make_certificate


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Return every file below a folder, with its mode and the time of its last change."""
    return {str(each): (each.lstat().st_mode, each.lstat().st_mtime_ns) for each in sorted(folder.rglob("*"))}


def settings_of(directory: Path, **variables: str) -> Settings:
    chosen = {"home": str(directory / "home"), **variables}
    return load_settings({f"LAKEPROOF_{name.upper()}": value for name, value in chosen.items()}, directory=directory)


@pytest.fixture
def settings(variables: dict[str, str], tmp_path: Path) -> Settings:
    """The settings of that home."""
    return load_settings(variables, directory=tmp_path)


def look(settings: Settings, *, later_s: float = 0) -> Status:
    return read_installation_status(settings, now=datetime.now(UTC) + timedelta(seconds=later_s))


def run_status(monkeypatch: pytest.MonkeyPatch, directory: Path, *arguments: str, **variables: str) -> Any:
    """Run `lakeproof status` as a command; return its result."""
    for name in [name for name in os.environ if name.startswith("LAKEPROOF_")]:
        monkeypatch.delenv(name)
    for name, value in {"home": str(directory / "home"), **variables}.items():
        monkeypatch.setenv(f"LAKEPROOF_{name.upper()}", value)
    monkeypatch.chdir(directory)
    return CliRunner().invoke(status_app(), arguments)


def test_without_an_installation_it_says_so_and_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run_status(monkeypatch, tmp_path)
    assert shown.exit_code == 1
    assert f"not well: nothing runs on {tmp_path / 'home'}: start `lakeproof up`" in shown.stdout
    assert f"not well: there is no installation in {tmp_path / 'home'}" in shown.stdout
    document = json.loads(run_status(monkeypatch, tmp_path, "--json").stdout)
    assert (document["ok"], document["processes"], document["logs"]) == (False, [], [])
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_does_not_answer_is_a_problem_and_the_password_is_not_shown(tmp_path: Path) -> None:
    status = look(settings_of(tmp_path, dsn=f"host={tmp_path} password=sesame dbname=nowhere"))
    said = [problem for problem in status.problems if "LAKEPROOF_DSN leads to no server that answers" in problem]
    assert len(said) == 1
    assert "sesame" not in json.dumps(status_json(status))
    wrong = look(settings_of(tmp_path, dsn="postgresql//:sesame"))
    assert any("LAKEPROOF_DSN is no connection string" in problem for problem in wrong.problems)
    assert "sesame" not in json.dumps(status_json(wrong))


def test_everything_is_read_while_nothing_runs_and_nothing_is_changed(settings: Settings) -> None:
    before = files_of(settings.home)
    status = look(settings)
    assert [problem.partition(" ")[0] for problem in status.problems] == ["nothing"]
    assert status.database is not None
    assert (status.database.pending, status.database.owner.directory) == ([], None)
    assert [(log.name, log.size, log.takes_entries) for log in status.logs] == [("system", 0, True)]
    assert files_of(settings.home) == before


async def test_what_stands_still_behind_a_log_is_named_and_what_keeps_up_is_not(services: Services) -> None:
    founded = await found_tenant(services, name="acme", identity="ada@acme.example", alias="lake")
    installation = services.installation
    directory = installation.settings.home.parent
    settings = load_settings(make_home(directory, installation.admin_dsn), directory=directory)
    status = await asyncio.to_thread(look, settings)
    log = next(log for log in status.logs if log.name == "acme")
    assert (log.origin, log.tenant) == (founded.origin, founded.tenant)
    assert all(each.lag_entries == log.size for each in log.projections)
    assert [problem for problem in status.problems if "acme" in problem] == []  # all of it began just now
    later = (await asyncio.to_thread(look, settings, later_s=BEHIND_S_MAX + 60)).problems
    for follower in ("the signer", "the projection graph", "the stream observe"):
        assert any(f"log acme: {follower} is {log.size} entries and 1" in problem for problem in later), later


async def test_a_log_by_which_nothing_can_be_judged_is_named_with_what_to_do(services: Services) -> None:
    installation = services.installation
    directory = installation.settings.home.parent
    settings = load_settings(make_home(directory, installation.admin_dsn), directory=directory)
    acme = await found_tenant(services, name="acme", identity="ada@acme.example")
    other = await found_tenant(services, name="other", identity="bob@other.example")
    text = PolicyText(expression="commit.name != 'frozen'", message="frozen")
    await services.gateway.admin.create_policy(acme.log_id, OPERATOR, policy_id="p", text=text)
    assert not [each for each in (await asyncio.to_thread(look, settings)).problems if "judged" in each]
    change_policy(installation.admin_dsn, acme.log_id, "frozen", "thawed")
    await append_newer(services, other.log_id)
    status = await asyncio.to_thread(look, settings)
    changed, newer = [each for each in status.problems if "judged" in each]
    assert changed.startswith(f"log acme: {UNREADABLE}: derived fault at index ")
    assert changed.endswith(": run `lakeproof ledger verify --deep`")
    assert newer.startswith(f"log other: {UNREADABLE}: entry ")
    assert "is a policy.archived of version 1, which this process does not know" in newer
    assert newer.endswith(": start the newest version that has run here")
    shown = json.loads(json.dumps(status_json(status)))["logs"]
    assert [bool(log["not_judged"]) for log in shown] == [False, True, True]
    # The names of tenants are in the system log: if that cannot be read, it is said, and the other logs are there.
    await append_newer(services, services.system.log_id)
    problems = (await asyncio.to_thread(look, settings)).problems
    assert any(each.startswith(f"log system: {UNREADABLE}: entry ") for each in problems)
    assert any(each.startswith(f"log {acme.tenant.hex}: {UNREADABLE}") for each in problems)


def test_a_schema_that_is_not_up_to_date_is_named(settings: Settings, database: str) -> None:
    with psycopg.connect(database) as owner:
        owner.execute("DELETE FROM lakeproof.migrations WHERE package = 'ledger' AND number = 3")
    status = look(settings)
    assert any("migrations have not run (ledger 0003" in problem for problem in status.problems)
    assert status.logs == ()


def test_a_log_that_the_signer_has_not_confirmed_takes_no_entries(
    settings: Settings, database: str, installation: Provisioned
) -> None:
    create_tenant_log(database, installation, UUID(int=5))
    with psycopg.connect(database) as owner:
        owner.execute("DELETE FROM ledger.confirmations")
    said = [problem for problem in look(settings).problems if "takes no entries" in problem]
    assert [problem.split()[1] for problem in said] == ["system", UUID(int=5).hex]


def test_a_home_without_the_password_of_its_database_is_named(settings: Settings) -> None:
    (settings.home / "secrets" / "login-password").unlink()
    assert any("login-password cannot be read" in problem for problem in look(settings).problems)


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total=2**40, used=2**40 - 5, free=FREE_BYTES_MIN - 1))
    status = look(settings_of(tmp_path, dsn="host=/nonexistent"))
    assert any("expected at least 1 GiB of free space, found that 1.0 of 1024.0" in each for each in status.problems)


def test_each_file_system_is_named_once_with_all_that_lies_there(tmp_path: Path) -> None:
    disks = find_disks(settings_of(tmp_path, dsn="host=/nonexistent"))
    assert [disk.use for disk in disks] == ["home, metadata and tables"]
    assert [disk.use for disk in find_disks(settings_of(tmp_path, dsn="host=/x", warehouse="s3://b/w"))] == ["home"]


# Processes


def test_the_url_of_the_gateway_is_read_from_the_folder_of_what_runs(tmp_path: Path) -> None:
    with socket_folder(tmp_path) as own:
        assert read_url(own) is None
        write_url(own, "http://127.0.0.1:8181")
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        assert read_url(own) == "http://127.0.0.1:8181"


def test_what_a_killed_process_has_left_is_no_process_and_neither_is_a_strangers(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (tmp_path / RUN / ended.stdout.decode().strip()).mkdir(parents=True)
    (tmp_path / RUN / "notes").mkdir()
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (tmp_path / RUN / str(stranger.pid)).mkdir()
        assert find_ups(tmp_path) == []
        stranger.kill()


def test_the_one_process_of_the_demo_has_all_duties_and_a_supervisor_alone_has_none(settings: Settings) -> None:
    with process_called_lakeproof(settings.home):
        status = look(settings)
    assert [process.name for up in status.ups for process in up.processes] == ["supervisor"]
    assert any("no process has the duty gateway, projections, reconciler" in each for each in status.problems)
    with process_called_lakeproof(settings.home, "demo"):
        status = look(settings)
    assert [process.name for up in status.ups for process in up.processes] == ["demo"]
    assert status.problems == []


@contextmanager
def answering(status: int, body: bytes, *, certificate: Certificate | None = None) -> Iterator[str]:
    """Yield the URL of a server that gives one answer to everything, with TLS if it has a certificate."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing on stderr."""

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        if certificate is not None:
            server.socket = certificate.context([]).wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.01}).start()
        try:
            yield f"http{'' if certificate is None else 's'}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def test_a_gateway_that_is_not_ready_is_quoted_with_its_reasons() -> None:
    with answering(200, b'{"status": "ready"}') as url:
        assert ask_readiness(url, None).is_ready
    not_ready = {"error": {"message": "not ready: the database; the logs", "type": "x", "code": 503}}
    with answering(503, json.dumps(not_ready).encode()) as url:
        assert ask_readiness(url, None).reasons == ["the database", "the logs"]
    for body in (b"{}", b"\xff", b"[]", b'{"error": "x"}', b'{"error": {"message": 1}}'):
        with answering(502, body) as url:
            assert ask_readiness(url, None).reasons == ["the answer has status 502 and is not a gateway's"]
    with pytest.raises(OSError):  # noqa: PT011 - whatever the system says of it
        ask_readiness(url, None)


def test_a_gateway_with_tls_is_known_by_the_certificate_of_the_settings_and_by_no_other(
    variables: dict[str, str], tmp_path: Path
) -> None:
    served, other = (make_certificate(tmp_path / f"{name}.pem", "gateway.example") for name in ("served", "other"))

    def ask(certificate: Path | None, url: str) -> Status:
        named = {} if certificate is None else {"TLS_CERTIFICATE": str(certificate), "TLS_KEY": str(certificate)}
        chosen = {**variables, **{f"LAKEPROOF_{name}": value for name, value in named.items()}}
        settings = load_settings(chosen, directory=tmp_path)
        with process_called_lakeproof(settings.home) as folder:
            write_url(folder, url)
            return look(settings)

    with answering(200, b'{"status": "ready"}', certificate=served) as url:
        readiness = ask(served.file, url).readiness[url]
        assert readiness is not None
        assert readiness.is_ready
        for certificate, expected in (
            (other.file, "does not answer .*CERTIFICATE_VERIFY_FAILED"),
            (None, "the settings name no certificate by which to know it"),
            (tmp_path / "none.pem", "cannot be asked: LAKEPROOF_TLS_CERTIFICATE: .* cannot be read"),
        ):
            status = ask(certificate, url)
            assert status.readiness[url] is None
            assert any(re.search(expected, problem) for problem in status.problems), status.problems
