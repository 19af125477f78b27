# SPDX-License-Identifier: Apache-2.0
"""
`lakeproof doctor`: each thing that it looks at is broken here on purpose, and its sentence says what and what to do.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from fastapi import FastAPI, Request, Response
from psycopg import sql
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from gateway.admin.application import OPERATOR
from gateway.http.operations import OPERATIONS
from lakeproof.commands.doctor import doctor_app
from lakeproof.inspecting.disks import FREE_BYTES_MIN, FREE_BYTES_WARNED
from lakeproof.inspecting.doctor import CHECKS, NOT_LOOKED, Examined, examine
from lakeproof.inspecting.findings import Finding, Result
from lakeproof.log_status import UNREADABLE
from lakeproof.provision import Provisioned
from lakeproof.services import Services
from lakeproof.serving.listening import listen
from lakeproof.serving.socket_folder import write_url
from lakeproof.serving.system_log import record_in_system_log
from lakeproof.signing import make_signer
from lakeproof.tenants import found_tenant
from ledger.signing.key_directory import create_key_directory
from testkit.gateway.unreadable_logs import append_newer
from testkit.lakeproof.examined_home import make_home, process_called_lakeproof
from testkit.servers.certificates import make_certificate
from testkit.servers.loopback import serve
from testkit.servers.upstream import Upstream, app_of

LOOPBACK = "127.0.0.0/8"


def now() -> datetime:
    return datetime.now(UTC)


def examined(variables: Mapping[str, str], **more: str) -> list[Examined]:
    """Run all checks on a home, with some settings changed."""
    environment = {**variables, **{f"LAKEPROOF_{name.upper()}": value for name, value in more.items()}}
    return examine(environment, directory=Path(variables["LAKEPROOF_HOME"]).parent, clock=now)


def findings(check: str, variables: Mapping[str, str], **more: str) -> list[Finding]:
    """Run all checks; return what one of them says."""
    return [each.finding for each in examined(variables, **more) if each.check == check]


def finding(check: str, variables: Mapping[str, str], **more: str) -> Finding:
    """Run all checks; return the only thing that one of them says."""
    (found,) = findings(check, variables, **more)
    return found


def bad(found: Finding, result: Result = Result.PROBLEM) -> str:
    """Check that a finding says what to do; return what was found."""
    assert found.result is result, found
    assert found.expected
    assert found.advice
    return found.found


def test_a_home_whose_database_runs_has_no_problem_and_is_left_as_it_was(variables: dict[str, str]) -> None:
    home = Path(variables["LAKEPROOF_HOME"])
    before = sorted(home.rglob("*"))
    with closing(listen("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found = examined(variables, port=str(port))
    assert [each for each in found if each.finding.result is Result.PROBLEM] == []
    assert {each.check for each in found} == {"settings", *CHECKS}
    assert sorted(home.rglob("*")) == before


def test_without_an_installation_nothing_is_made_and_the_checks_say_that_they_could_not_look(tmp_path: Path) -> None:
    found = examined({"LAKEPROOF_HOME": str(tmp_path / "home")}, detect="0")
    assert "there is no installation" in bad(finding_of(found, "database"), Result.WARNING)
    for check in ("rights", "schema", "confirmed", "upstreams", "clock"):
        assert bad(finding_of(found, check), Result.WARNING) == NOT_LOOKED
    assert list(tmp_path.iterdir()) == []


def finding_of(found: list[Examined], check: str) -> Finding:
    return next(each.finding for each in found if each.check == check)


# Settings


def test_an_unknown_setting_is_named_and_nothing_else_is_looked_at(tmp_path: Path) -> None:
    (found,) = examined({"LAKEPROOF_HOME": str(tmp_path), "LAKEPROOF_PROT": "1"})
    assert found.check == "settings"
    assert "the nearest is LAKEPROOF_PORT" in bad(found.finding)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"reconcile_after_s": "5", "upstream_timeout_s": "5"}, "LAKEPROOF_RECONCILE_AFTER_S is not more than"),
        ({"connections_max": "10", "connections_per_address_max": "11"}, "is more than LAKEPROOF_CONNECTIONS_MAX, 10"),
        ({"signer_agent_key": "SHA256:x"}, "no agent is named"),
        ({"s3_access_key_id": "key"}, "only one of LAKEPROOF_S3_ACCESS_KEY_ID"),
        ({"s3_secret_access_key": "sesame"}, "only one of LAKEPROOF_S3_ACCESS_KEY_ID"),
        ({"time_stamp_policy": "1.2.3"}, "nothing is stamped"),
        ({"time_stamp_url": "https://tsa.example"}, "without LAKEPROOF_TIME_STAMP_ROOTS"),
        ({"seal_parts": "0", "key_encryption_key": "/nonexistent"}, "LAKEPROOF_SEAL_PARTS is 0"),
        ({"witness_policy": "/nonexistent"}, "/nonexistent cannot be read"),
        ({"publish_to": "nowhere"}, "LAKEPROOF_PUBLISH_TO"),
    ],
)
def test_settings_that_contradict_each_other_are_named(tmp_path: Path, settings: dict[str, str], words: str) -> None:
    found = finding("agreement", {"LAKEPROOF_HOME": str(tmp_path / "home")}, detect="0", dsn="host=/x", **settings)
    assert words in bad(found)
    assert "sesame" not in found.found


def test_a_file_that_others_may_read_is_named_with_the_command_that_corrects_it(variables: dict[str, str]) -> None:
    home = Path(variables["LAKEPROOF_HOME"])
    assert finding("files", variables).result is Result.OK
    secret = home / "secrets" / "tenants" / "0" / "token"
    secret.parent.mkdir(mode=0o700, parents=True)
    secret.parent.parent.chmod(0o700)
    secret.write_text("sesame")
    warehouse = home / "warehouse"
    warehouse.mkdir()
    for path, right, wrong in ((home, 0o700, 0o755), (secret, 0o600, 0o640), (warehouse, 0o700, 0o750)):
        for each, mode in ((home, 0o700), (secret, 0o600), (warehouse, 0o700)):
            each.chmod(mode)
        path.chmod(wrong)
        found = finding("files", variables)
        assert f"{path} has mode {wrong:04o}" in bad(found)
        assert found.advice == f"chmod {right:04o} {path}"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_named(variables: dict[str, str]) -> None:
    password = Path(variables["LAKEPROOF_HOME"]) / "secrets" / "login-password"
    os.chown(password, 12345, 12345)
    assert f"{password} belongs to the user with number 12345" in bad(finding("files", variables))


# The database


def test_a_database_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    for dsn, words in (
        (f"host={tmp_path} password=sesame", "LAKEPROOF_DSN leads to no server that answers"),
        ("postgresql//:sesame", "LAKEPROOF_DSN is no connection string"),
    ):
        found = finding("database", {"LAKEPROOF_HOME": str(tmp_path / "home"), "LAKEPROOF_DSN": dsn}, detect="0")
        assert words in bad(found)
        assert "sesame" not in found.found


def test_a_database_without_the_extension_age_is_named(variables: dict[str, str]) -> None:
    with psycopg.connect(variables["LAKEPROOF_DSN"]) as owner:
        owner.execute("DROP EXTENSION age CASCADE")
    assert "without the extension age" in bad(finding("database", variables))


@contextmanager
def changed_role(admin_dsn: str, change: sql.Composed, undo: sql.Composed) -> Iterator[None]:
    """Change a role of the server that all tests share, and undo that."""
    with psycopg.connect(admin_dsn, autocommit=True) as owner:
        owner.execute(change)
        try:
            yield
        finally:
            owner.execute(undo)


def test_a_login_role_that_may_not_do_a_duty_is_named(
    variables: dict[str, str], installation: Provisioned, admin_dsn: str
) -> None:
    names = sql.Identifier(installation.roles.appender), sql.Identifier(installation.roles.login)
    revoke = sql.SQL("REVOKE {} FROM {}").format(*names)
    grant = sql.SQL("GRANT {} TO {} WITH INHERIT FALSE, SET TRUE").format(*names)
    with changed_role(admin_dsn, revoke, grant):
        assert f"cannot take the role {installation.roles.appender}" in bad(finding("rights", variables))
    assert finding("rights", variables).result is Result.OK


def test_an_owner_who_is_no_superuser_is_a_warning(
    variables: dict[str, str], installation: Provisioned, admin_dsn: str
) -> None:
    login = sql.Identifier("doctors_owner")
    create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x' IN ROLE {}, pg_read_all_settings").format(
        login, sql.Identifier(installation.roles.owner)
    )
    with psycopg.connect(variables["LAKEPROOF_DSN"]) as owner:
        owner.execute(
            sql.SQL("GRANT SELECT ON lakeproof.installation TO {}").format(sql.Identifier(installation.roles.owner))
        )
    with changed_role(admin_dsn, create, sql.SQL("DROP ROLE {}").format(login)):
        dsn = make_conninfo(variables["LAKEPROOF_DSN"], user="doctors_owner", password="x")
        assert "no superuser" in bad(finding("rights", {**variables, "LAKEPROOF_DSN": dsn}), Result.WARNING)


def test_a_password_that_the_login_role_does_not_have_is_named(variables: dict[str, str]) -> None:
    (Path(variables["LAKEPROOF_HOME"]) / "secrets" / "login-password").write_text("another")
    (found,) = findings("rights", variables)
    assert "cannot log in" in bad(found)
    assert "another" not in found.found


def test_a_migration_that_has_not_run_is_named(variables: dict[str, str]) -> None:
    with psycopg.connect(variables["LAKEPROOF_DSN"]) as owner:
        owner.execute("DELETE FROM lakeproof.migrations WHERE package = 'gateway' AND number = 2")
    assert "1 migrations have not run: gateway 0002" in bad(finding("schema", variables))


async def test_a_schema_that_somebody_has_changed_is_named(services: Services) -> None:
    variables = variables_of(services)
    assert "no record" in bad(await in_thread("schema", variables), Result.WARNING)
    await record_in_system_log(services, create_key_directory(services.installation.keys))
    assert (await in_thread("schema", variables)).result is Result.OK
    with psycopg.connect(services.installation.admin_dsn) as owner:
        owner.execute("ALTER TABLE ledger.entries DISABLE ROW LEVEL SECURITY")
    assert "ledger.entries" in bad(await in_thread("schema", variables))


def variables_of(services: Services) -> dict[str, str]:
    """Return the environment of the home that services work on."""
    installation = services.installation
    return make_home(installation.settings.home.parent, installation.admin_dsn)


async def in_thread(check: str, variables: Mapping[str, str], **more: str) -> Finding:
    """Run all checks beside the event loop of a test, which serves; return what one of them says."""
    return await asyncio.to_thread(finding, check, variables, **more)


# The signer


async def test_keys_that_are_missing_or_damaged_are_named(services: Services) -> None:
    installation, variables = services.installation, variables_of(services)
    assert bad(await in_thread("signer", variables), Result.WARNING) == "no keys yet"
    await make_signer(installation, create_key_directory(installation.keys)).sign_once()
    assert (await in_thread("signer", variables)).result is Result.OK
    key = installation.keys / "signing-key"
    seed = key.read_bytes()
    key.write_bytes(b"no seed")
    assert "signing-key" in bad(await in_thread("signer", variables))
    key.write_bytes(seed)
    await found_tenant(services, name="acme", identity="ada@acme.example")
    await make_signer(installation, installation.open_keys()).sign_once()
    installation.keys.rename(installation.keys.with_name("gone"))
    assert "holds no key" in bad(await in_thread("signer", variables))


async def test_a_database_that_is_behind_what_was_signed_is_named(services: Services) -> None:
    installation, variables = services.installation, variables_of(services)
    acme = await found_tenant(services, name="acme", identity="ada@acme.example")
    await make_signer(installation, create_key_directory(installation.keys)).sign_once()
    with psycopg.connect(installation.admin_dsn) as owner:
        owner.execute("ALTER TABLE ledger.heads DROP CONSTRAINT heads_check1")
        owner.execute("UPDATE ledger.heads SET size = 1 WHERE log_id = %s", [acme.log_id])
    found = await in_thread("signer", variables)
    assert f"log {acme.origin} has 1 entries" in bad(found)
    assert "was set back" in found.advice


def test_logs_that_are_not_confirmed_are_named(variables: dict[str, str]) -> None:
    assert finding("confirmed", variables).result is Result.OK
    with psycopg.connect(variables["LAKEPROOF_DSN"]) as owner:
        owner.execute("DELETE FROM ledger.confirmations")
    found = finding("confirmed", variables)
    assert "1 of 1 logs take no entries" in bad(found, Result.WARNING)
    assert found.advice == "start `lakeproof up`"
    with process_called_lakeproof(Path(variables["LAKEPROOF_HOME"])):
        found = finding("confirmed", variables)
    assert "1 of 1 logs take no entries" in bad(found)
    assert "the signer" in found.advice


async def test_what_is_in_force_and_cannot_be_read_is_named(services: Services) -> None:
    variables = variables_of(services)
    acme = await found_tenant(services, name="acme", identity="ada@acme.example")
    assert (await in_thread("in_force", variables)).found == "in all 2 logs"
    await append_newer(services, acme.log_id)
    found = bad(await in_thread("in_force", variables))
    assert found.startswith(f"log {acme.origin}: {UNREADABLE}: entry ")
    assert found.endswith("a newer one must serve: start the newest version that has run here")
    assert (await in_thread("upstreams", variables)).result is Result.OK


# What it needs of others


@asynccontextmanager
async def foreign(services: Services, app: FastAPI, **options: str) -> AsyncIterator[dict[str, str]]:
    """Yield the environment of a home with a tenant whose catalog `partner` is that server."""
    acme = await found_tenant(services, name="acme", identity="ada@acme.example")
    async with serve(app) as url:
        await services.gateway.admin.create_catalog(
            acme.log_id, OPERATOR, alias="partner", kind="rest", options={"uri": url, **options}
        )
        yield variables_of(services) | {"LAKEPROOF_UPSTREAMS_ALLOWED": LOOPBACK}


async def test_an_upstream_that_answers_is_fine_and_one_that_does_not_is_named(services: Services) -> None:
    async with foreign(services, app_of(Upstream())) as variables:
        found = await in_thread("upstreams", variables)
        assert (found.result, found.advice) == (Result.OK, "")
        assert "catalog partner of tenant acme answers" in found.found
        found = await in_thread("upstreams", {**variables, "LAKEPROOF_UPSTREAMS_ALLOWED": "public"})
        assert "LAKEPROOF_UPSTREAMS_ALLOWED" in bad(found)
        assert "add its host" in found.advice
    found = await in_thread("upstreams", variables)
    assert "catalog partner of tenant acme" in bad(found)
    assert "see that it runs" in found.advice


async def test_an_upstream_that_refuses_the_credentials_is_named_though_its_configuration_is_open(
    services: Services,
) -> None:
    app = app_of(Upstream())

    @app.middleware("http")
    async def guard(request: Request, call_next: object) -> Response:
        if request.url.path == "/v1/config" or request.headers.get("authorization") == "Bearer sesame":
            return await call_next(request)  # type: ignore[operator, no-any-return]
        return Response('{"error": {"message": "no", "type": "NotAuthorizedException", "code": 401}}', status_code=401)

    async with foreign(services, app, token="secret:partner") as variables:
        found = await in_thread("upstreams", variables)
        assert "has no credentials" in bad(found)
        assert "`lakeproof secrets change partner`" in found.advice
        for value, result in (("wrong", Result.PROBLEM), ("sesame", Result.OK)):
            tenant = next(log.tenant for log in await services.logs() if log.tenant is not None)
            services.installation.secrets.write(tenant, "partner", value)
            found = await in_thread("upstreams", variables)
            assert found.result is result, found
            assert value not in f"{found.found}{found.advice}"


async def test_endpoints_that_an_upstream_lacks_are_named(services: Services) -> None:
    app = FastAPI()
    listed = [each.endpoint for each in OPERATIONS if each.id in {"listNamespaces", "loadTable"}]

    @app.get("/v1/config")
    async def config() -> dict[str, object]:
        return {"defaults": {}, "overrides": {}, "endpoints": listed}

    @app.get("/v1/namespaces")
    async def namespaces() -> dict[str, object]:
        return {"namespaces": []}

    async with foreign(services, app) as variables:
        found = await in_thread("upstreams", variables)
        assert "it does not have DELETE /v1/{prefix}/namespaces/{namespace}," in bad(found, Result.WARNING)
        assert "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}" not in found.found


def test_a_machine_without_the_right_java_is_a_warning_unless_detection_is_off(tmp_path: Path) -> None:
    variables = {"LAKEPROOF_HOME": str(tmp_path / "home"), "LAKEPROOF_JAVA_HOME": str(tmp_path)}
    found = finding("java", variables)
    assert "found no Java" in bad(found, Result.WARNING)
    assert "LAKEPROOF_DETECT to 0" in found.advice
    assert finding("java", variables, detect="0").result is Result.OK


@pytest.mark.parametrize(("off_s", "result"), [(0, Result.OK), (30, Result.WARNING), (-3600, Result.PROBLEM)])
def test_a_clock_that_differs_from_the_databases_is_named(
    variables: dict[str, str], off_s: int, result: Result
) -> None:
    directory = Path(variables["LAKEPROOF_HOME"]).parent
    found = finding_of(examine(variables, directory=directory, clock=lambda: now() + timedelta(seconds=off_s)), "clock")
    assert found.result is result
    if off_s:
        shown = re.fullmatch(r"the database's clock is ([+-][0-9.]+) s from this machine's", found.found)
        assert shown is not None
        assert abs(float(shown[1]) + off_s) < 1
        assert "NTP" in found.advice


def test_an_entry_of_the_future_is_named(variables: dict[str, str]) -> None:
    with psycopg.connect(variables["LAKEPROOF_DSN"]) as owner:
        owner.execute("UPDATE ledger.heads SET recorded_at = now() + interval '1 day'")
    assert "the newest entry is dated" in bad(finding("clock", variables))


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize(
    ("free", "result"), [(FREE_BYTES_MIN - 1, Result.PROBLEM), (FREE_BYTES_WARNED - 1, Result.WARNING)]
)
def test_a_disk_that_is_nearly_full_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, result: Result
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total=2**40, used=2**40 - free, free=free))
    for found in findings("disks", {"LAKEPROOF_HOME": str(tmp_path / "home")}, detect="0"):
        assert "GiB are free" in bad(found, result)


def test_a_port_that_another_program_has_is_named_and_our_own_gateway_is_not(tmp_path: Path) -> None:
    variables = {"LAKEPROOF_HOME": str(tmp_path / "home"), "LAKEPROOF_DETECT": "0"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        found = finding("port", variables, port=port)
        assert f"cannot listen on 127.0.0.1 port {port}" in bad(found)
        assert "set LAKEPROOF_PORT" in found.advice
    assert finding("port", variables, port=port).found == "it is free"
    with process_called_lakeproof(tmp_path / "home") as folder, socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "is starting" in finding("port", variables, port=port).found
        write_url(folder, f"http://127.0.0.1:{port}")
        assert finding("port", variables, port=port).found == "the gateway listens there"


def test_a_certificate_that_ends_soon_or_cannot_be_served_is_named(tmp_path: Path) -> None:
    variables = {"LAKEPROOF_HOME": str(tmp_path / "home"), "LAKEPROOF_DETECT": "0"}

    def found(ends_in: timedelta, *, mode: int = 0o600) -> Finding:
        file = make_certificate(tmp_path / "server.pem", "gateway.example", ends_in=ends_in).file
        file.chmod(mode)
        return finding("tls", variables, tls_certificate=str(file), tls_key=str(file))

    assert finding("tls", variables).found == "none: the gateway has no TLS"
    assert "is valid until" in found(timedelta(days=15)).found
    assert found(timedelta(days=15)).result is Result.OK
    assert "is valid until" in bad(found(timedelta(days=13)), Result.WARNING)
    assert "has expired" in bad(found(-timedelta(days=1)))
    assert "has mode 0640 and others can read it" in bad(found(timedelta(days=15), mode=0o640))
    assert "_KEY is not: set both, or neither" in bad(finding("tls", variables, tls_certificate="x.pem"))


# The command


def test_it_ends_with_1_on_a_problem_and_shows_all_as_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("LAKEPROOF_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEPROOF_DETECT", "0")
    monkeypatch.setenv("LAKEPROOF_PORT", "0")
    shown = CliRunner().invoke(doctor_app(), [])
    assert shown.exit_code == 0
    assert "warning  database" in shown.stdout
    assert "what to do: start `lakeproof up`" in shown.stdout
    monkeypatch.setenv("LAKEPROOF_DSN", "host=/nonexistent")
    assert CliRunner().invoke(doctor_app(), []).exit_code == 1
    document = json.loads(CliRunner().invoke(doctor_app(), ["--json"]).stdout)
    assert document["result"] == "problem"
    assert {"check", "result", "expected", "found", "advice"} == set(document["checks"][0])
    assert list(tmp_path.iterdir()) == []
