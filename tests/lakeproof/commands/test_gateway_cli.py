# SPDX-License-Identifier: Apache-2.0
"""
The commands that edit the control plane, on the test's own database.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn
from uuid import UUID

import psycopg
import pytest
import typer
from typer.testing import CliRunner, Result

from gateway.errors import BadRequestError, ConflictError, NotFoundError, PlaceTakenError
from gateway.policy.engine import PolicyNotCompiledError
from lakeproof.commands.api_keys import keys_app, parse_end
from lakeproof.commands.catalogs import catalogs_app
from lakeproof.commands.opening import OpenServices
from lakeproof.commands.rules import access_rules_app, mark_place, policies_app
from lakeproof.commands.tenants import tenants_app
from lakeproof.installation import Installation
from lakeproof.provision import Provisioned
from lakeproof.services import Services, open_services
from lakeproof.settings import load_settings
from ledger.format.entry import parse_entry
from projections.errors import SecretMissingError
from projections.lake.secrets import SECRET_SIZE_BYTES_MAX, SecretDirectory
from testkit.servers.gateways import QUICK_HASHES
from testkit.servers.policy_engine import shared_engine

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)

Command = Callable[..., Result]


def apps(open_services: OpenServices) -> typer.Typer:
    """Return the commands for what people edit."""
    app = typer.Typer(rich_markup_mode=None)
    app.add_typer(policies_app(open_services), name="policies")
    app.add_typer(access_rules_app(open_services), name="access-rules")
    app.add_typer(catalogs_app(open_services), name="catalogs")
    app.add_typer(tenants_app(open_services, open_services), name="tenants")
    app.add_typer(keys_app(open_services), name="keys")
    return app


@pytest.fixture
def command(database: str, installation: Provisioned, tmp_path: Path) -> Command:
    """Runs a command as `lakeproof` would, on this test's database."""
    settings = load_settings({"LAKEPROOF_HOME": str(tmp_path / "home")}, directory=tmp_path)
    installation = Installation.on(installation, settings=settings, admin_dsn=database)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Services]:
        async with open_services(installation, engine=shared_engine(), hasher=QUICK_HASHES) as services:
            yield services

    app = apps(opened)
    return lambda *arguments, **typed: CliRunner().invoke(app, arguments, **typed)


@pytest.fixture
def acme(command: Command) -> dict[str, object]:
    """A tenant, as `tenants add --json` tells of it."""
    arguments = ("--identity", "ada@acme.example", "--role", "data-eng", "--catalog", "lake")
    result = command("tenants", "add", "acme", *arguments, "--json")
    assert result.exit_code == 0, result.output
    tenant: dict[str, object] = json.loads(result.stdout)
    return tenant


def listed(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    rows: list[dict[str, object]] = json.loads(result.stdout)
    return rows


POLICY = ("--id", "tenant-id", "--message", "tables need tenant_id")


def test_a_new_tenants_key_is_shown_once_with_how_an_engine_uses_it(command: Command) -> None:
    added = command("tenants", "add", "acme", "--identity", "ada@acme.example", "--catalog", "lake")
    assert added.exit_code == 0
    secret = next(line.strip() for line in added.stdout.splitlines() if line.strip().startswith("lp_"))
    assert added.stdout.count(secret) == 1
    assert 'uri="http://127.0.0.1:8181", warehouse="lake"' in added.stdout
    for shown in (command("keys", "list", "--tenant", "acme"), command("tenants", "list")):
        assert shown.exit_code == 0
        assert secret not in shown.output


def test_the_command_says_how_to_add_a_catalog_to_a_new_tenant(command: Command) -> None:
    added = command("tenants", "add", "acme", "--identity", "ada@acme.example")
    assert "lakeproof catalogs add --tenant acme lake" in added.stdout
    assert listed(command("catalogs", "list", "--tenant", "acme", "--json")) == []
    assert command("catalogs", "list", "--tenant", "acme").stdout == "none\n"


def test_a_name_that_is_taken_founds_no_second_tenant(command: Command, acme: dict[str, object]) -> None:
    again = command("tenants", "add", "acme", "--identity", "eve@acme.example")
    assert isinstance(again.exception, ConflictError)
    assert listed(command("tenants", "list", "--json")) == [{"id": acme["tenant"], "name": "acme"}]


def test_an_alias_that_is_refused_leaves_no_tenant_behind(command: Command) -> None:
    refused = command("tenants", "add", "acme", "--identity", "ada@acme.example", "--catalog", "No Alias")
    assert isinstance(refused.exception, BadRequestError)
    assert refused.exception.field == "alias"
    assert command("tenants", "list").stdout == "none\n"


def test_a_tenant_goes_by_its_name_and_by_its_id(command: Command, acme: dict[str, object]) -> None:
    by_name = listed(command("catalogs", "list", "--tenant", "acme", "--json"))
    by_id = listed(command("catalogs", "list", "--tenant", str(acme["tenant"]), "--json"))
    assert by_name == by_id == [{"alias": "lake", "kind": "builtin", "options": {}}]


def test_a_tenants_setting_is_shown_and_set(command: Command, acme: dict[str, object]) -> None:
    row = {"id": "lineage-cycles", "version": 0, "value": "refuse"}
    assert listed(command("tenants", "settings", "acme", "--json")) == [row]
    changed = command("tenants", "set", str(acme["tenant"]), "lineage-cycles", "keep")
    assert changed.stdout == f"setting lineage-cycles of tenant {acme['tenant']} is keep\n"
    assert listed(command("tenants", "settings", "acme", "--json")) == [{**row, "version": 1, "value": "keep"}]
    refused = command("tenants", "set", "acme", "lineage-cycles", "maybe")
    assert isinstance(refused.exception, BadRequestError)
    assert "expected one of ['refuse', 'keep'], found 'maybe'" in str(refused.exception)


def test_a_tenant_that_is_not_there_is_named(command: Command, acme: dict[str, object]) -> None:
    result = command("policies", "list", "--tenant", "acne")
    assert isinstance(result.exception, NotFoundError)
    assert "'acne' does not exist; known: acme" in str(result.exception)


def test_a_policy_is_added_and_listed_as_it_was_written(command: Command, acme: dict[str, object]) -> None:
    expression = "!table.exists ||\n\ttable.exists"
    added = command("policies", "add", "--tenant", "acme", *POLICY, "--expression", expression)
    assert added.stdout == "policy tenant-id v1 is in force for tenant acme\n"
    rows = listed(command("policies", "list", "--tenant", "acme", "--json"))
    message = "tables need tenant_id"
    assert rows == [{"id": "tenant-id", "version": 1, "message": message, "expression": expression}]
    assert command("policies", "list", "--tenant", "acme").stdout == (
        "ID         VERSION  MESSAGE                EXPRESSION\n"
        "tenant-id  1        tables need tenant_id  !table.exists || table.exists\n"
    )


def test_a_policy_that_does_not_compile_is_shown_with_a_caret_under_the_place(
    command: Command, acme: dict[str, object]
) -> None:
    refused = command("policies", "add", "--tenant", "acme", *POLICY, "--expression", "true &&\n  (tabel.exists)")
    assert isinstance(refused.exception, PolicyNotCompiledError)
    assert refused.stderr == "      (tabel.exists)\n       ^\n"
    assert refused.stdout == ""
    assert listed(command("policies", "list", "--tenant", "acme", "--json")) == []


def test_a_policy_is_changed_and_retired(command: Command, acme: dict[str, object]) -> None:
    command("policies", "add", "--tenant", "acme", *POLICY, "--expression", "true")
    changed = command(
        "policies", "change", "tenant-id", "--tenant", "acme", "--message", "no", "--expression", "1 == 1"
    )
    assert changed.stdout == "policy tenant-id v2 is in force for tenant acme\n"
    (row,) = listed(command("policies", "list", "--tenant", "acme", "--json"))
    assert (row["version"], row["message"], row["expression"]) == (2, "no", "1 == 1")
    wrong = command("policies", "change", "tenant-id", "--tenant", "acme", "--message", "no", "--expression", "(tabel)")
    assert isinstance(wrong.exception, PolicyNotCompiledError)
    assert wrong.stderr == "    (tabel)\n     ^\n"
    retired = command("policies", "retire", "tenant-id", "--tenant", "acme")
    assert retired.stdout == "policy tenant-id of tenant acme is retired\n"
    assert listed(command("policies", "list", "--tenant", "acme", "--json")) == []
    assert isinstance(command("policies", "retire", "tenant-id", "--tenant", "acme").exception, ConflictError)
    assert isinstance(command("policies", "retire", "never", "--tenant", "acme").exception, NotFoundError)


def test_a_policy_that_fails_on_some_inputs_is_added_with_a_warning(command: Command, acme: dict[str, object]) -> None:
    added = command("policies", "add", "--tenant", "acme", *POLICY, "--expression", "result.properties.owner == 'ada'")
    assert added.exit_code == 0
    assert added.stderr.startswith("warning: it fails for ")
    assert "reads a field or key that does not exist" in added.stderr


RULE = ("access-rules", "add", "--tenant", "acme", "--id", "r")


def test_an_access_rule_is_added_listed_and_retired(command: Command, acme: dict[str, object]) -> None:
    added = command(*RULE, "--effect", "permit", "--expression", "'reader' in roles")
    assert (added.stdout, added.stderr) == ("access rule r (permit) is in force for tenant acme\n", "")
    rows = listed(command("access-rules", "list", "--tenant", "acme", "--json"))
    assert [(row["id"], row["effect"], row["vocabulary"]) for row in rows] == [
        ("first-key", "permit", 2),
        ("r", "permit", 2),
    ]
    retired = command("access-rules", "retire", "r", "--tenant", "acme")
    assert retired.stdout == "access rule r of tenant acme is retired\n"
    again = command("access-rules", "retire", "r", "--tenant", "acme")
    assert isinstance(again.exception, ConflictError)


@pytest.mark.parametrize(
    ("effect", "expression"),
    [("allow", "true"), ("permit", "rolls == []"), ("permit", ""), ("permit", "1 + 1")],
)
def test_an_access_rule_that_is_none_is_refused(
    command: Command, acme: dict[str, object], effect: str, expression: str
) -> None:
    refused = command(*RULE, "--effect", effect, "--expression", expression)
    assert isinstance(refused.exception, BadRequestError | PolicyNotCompiledError)
    assert len(listed(command("access-rules", "list", "--tenant", "acme", "--json"))) == 1


def test_the_operator_may_lock_everybody_out_is_warned_and_undoes_it(command: Command, acme: dict[str, object]) -> None:
    added = command(*RULE, "--effect", "forbid", "--expression", "true")
    assert added.exit_code == 0
    assert "warning: no key in force can retire it over HTTP" in added.stderr
    assert "lakeproof access-rules retire r --tenant acme" in added.stderr
    assert command("access-rules", "retire", "r", "--tenant", "acme").exit_code == 0


async def test_what_the_operator_changes_is_in_the_log_as_of_the_system(
    command: Command, acme: dict[str, object], database: str
) -> None:
    def change_everything() -> None:
        assert command(*RULE, "--effect", "forbid", "--expression", "true").exit_code == 0
        assert command("access-rules", "retire", "r", "--tenant", "acme").exit_code == 0
        assert command("policies", "add", "--tenant", "acme", *POLICY, "--expression", "true").exit_code == 0
        assert command("policies", "retire", "tenant-id", "--tenant", "acme").exit_code == 0

    await asyncio.to_thread(change_everything)
    async with await psycopg.AsyncConnection.connect(database) as connection:
        query = (
            "SELECT entry FROM ledger.entries WHERE log_id = (SELECT log_id FROM ledger.logs WHERE tenant = %s)"
            " ORDER BY index"
        )
        rows = await (await connection.execute(query, (UUID(str(acme["tenant"])),))).fetchall()
    told = [parse_entry(bytes(entry)) for (entry,) in rows][-4:]
    assert [(entry.type, entry.actor) for entry in told] == [
        ("access_rule.created", "system"),
        ("access_rule.retired", "system"),
        ("policy.created", "system"),
        ("policy.retired", "system"),
    ]


def test_an_id_is_given_once(command: Command, acme: dict[str, object]) -> None:
    for expected in (type(None), ConflictError):
        result = command("policies", "add", "--tenant", "acme", *POLICY, "--expression", "true")
        assert isinstance(result.exception, expected)


def test_a_tenant_with_a_confusable_name_is_not_founded(command: Command, acme: dict[str, object]) -> None:
    for name in ("Acme", "acm\u0435", "acme\u200b"):
        refused = command("tenants", "add", name, "--identity", "eve@acme.example")
        assert isinstance(refused.exception, BadRequestError)
    assert [row["name"] for row in listed(command("tenants", "list", "--json"))] == ["acme"]


def test_a_place_goes_from_one_tenant_to_another(command: Command, acme: dict[str, object]) -> None:
    assert command("tenants", "add", "globex", "--identity", "gus@globex.example").exit_code == 0
    options = ("--kind", "rest", "--option", "uri=https://x.example", "--option", "location=s3://lake/sales")
    assert command("catalogs", "add", "--tenant", "acme", "far", *options).exit_code == 0
    refused = command("catalogs", "add", "--tenant", "globex", "far", *options)
    assert isinstance(refused.exception, PlaceTakenError)
    move = ("catalogs", "transfer", "s3://lake/sales", "--from", "acme", "--to", "globex")
    assert isinstance(command(*move).exception, ConflictError)
    assert command("catalogs", "retire", "--tenant", "acme", "far").stdout == "catalog far of tenant acme is retired\n"
    moved = command(*move)
    assert moved.stdout == (
        "s3://lake/sales was taken from tenant acme; tenant globex alone may register catalogs for it now\n"
    )
    assert command("catalogs", "add", "--tenant", "globex", "far", *options).exit_code == 0


def test_catalogs_are_added_by_kind(command: Command, acme: dict[str, object]) -> None:
    added = command("catalogs", "add", "--tenant", "acme", "attic")
    assert added.stdout == "catalog attic (builtin) is reachable for tenant acme\n"
    unknown = command("catalogs", "add", "--tenant", "acme", "cellar", "--kind", "tape")
    assert isinstance(unknown.exception, BadRequestError)
    aliases = [row["alias"] for row in listed(command("catalogs", "list", "--tenant", "acme", "--json"))]
    assert aliases == ["lake", "attic"]


def test_a_foreign_catalog_is_added_with_its_options(command: Command, acme: dict[str, object]) -> None:
    options = ("--option", "uri=https://catalog.example/api", "--option", "token=secret:partner")
    added = command("catalogs", "add", "--tenant", "acme", "partner", "--kind", "rest", *options)
    assert added.stdout == "catalog partner (rest) is reachable for tenant acme\n"
    row = listed(command("catalogs", "list", "--tenant", "acme", "--json"))[-1]
    assert row["options"] == {"uri": "https://catalog.example/api", "token": "secret:partner"}


@pytest.mark.parametrize(
    "options",
    [("hunter2",), ("uri=https://a", "uri=https://b"), ("uri=https://a", "token=hunter2"), ("no=hunter2",), ()],
)
def test_options_that_are_refused_are_not_repeated(
    command: Command, acme: dict[str, object], options: tuple[str, ...]
) -> None:
    arguments = [part for option in options for part in ("--option", option)]
    refused = command("catalogs", "add", "--tenant", "acme", "partner", "--kind", "rest", *arguments)
    assert isinstance(refused.exception, BadRequestError)
    assert "hunter2" not in str(refused.exception)
    assert [row["alias"] for row in listed(command("catalogs", "list", "--tenant", "acme", "--json"))] == ["lake"]


def test_a_secret_is_stored_from_standard_input_and_never_shown(
    command: Command, acme: dict[str, object], tmp_path: Path
) -> None:
    kept = SecretDirectory(tmp_path / "home" / "secrets" / "tenants")
    for value, typed in (("hunter2", "hunter2\n"), ("hunter3", b"hunter3")):
        stored = command("catalogs", "secret", "partner", "--tenant", "acme", input=typed)
        assert stored.stdout == "secret partner of tenant acme is stored; options name it as secret:partner\n"
        assert kept.read(UUID(str(acme["tenant"])), "partner") == value
    file = kept.directory / str(acme["tenant"]) / "partner"
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("secret_id", "value"),
    [
        ("partner", b""),
        ("partner", b"\n"),
        ("partner", b"a\nb"),
        ("partner", b"\xff"),
        ("partner", b"x" * (SECRET_SIZE_BYTES_MAX + 1)),
        ("../partner", b"hunter2"),
        ("Partner", b"hunter2"),
    ],
)
def test_what_is_no_secret_is_refused_and_not_repeated(
    command: Command, acme: dict[str, object], tmp_path: Path, secret_id: str, value: bytes
) -> None:
    refused = command("catalogs", "secret", secret_id, "--tenant", "acme", input=value)
    assert isinstance(refused.exception, SecretMissingError)
    assert "hunter2" not in str(refused.exception)
    assert list((tmp_path / "home").rglob("partner")) == []


def test_a_secret_of_a_tenant_that_is_not_there_is_refused(command: Command) -> None:
    refused = command("catalogs", "secret", "partner", "--tenant", "acne", input="hunter2")
    assert isinstance(refused.exception, NotFoundError)


def test_a_key_is_created_listed_without_its_secret_and_revoked(command: Command, acme: dict[str, object]) -> None:
    arguments = ("--tenant", "acme", "--identity", "bob@acme.example", "--role", "b", "--role", "a")
    created = json.loads(command("keys", "create", *arguments, "--json").stdout)
    assert created["secret"].startswith("lp_")
    shown = command("keys", "list", "--tenant", "acme", "--json")
    row = next(row for row in listed(shown) if row["id"] == created["id"])
    assert row["roles"] == ["a", "b"]
    assert created["secret"] not in shown.output
    revoked = command("keys", "revoke", "--tenant", "acme", created["id"])
    assert revoked.stdout == f"key {created['id']} is revoked\n"
    assert created["id"] not in command("keys", "list", "--tenant", "acme").stdout
    again = command("keys", "revoke", "--tenant", "acme", created["id"])
    assert isinstance(again.exception, ConflictError)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("90d", NOON + timedelta(days=90)),
        ("12h", NOON + timedelta(hours=12)),
        ("2027-01-31T13:00:00+01:00", datetime(2027, 1, 31, 12, tzinfo=UTC)),
        ("2027-01-31t12:00:00z", datetime(2027, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_the_end_of_a_key_is_an_age_or_a_time(text: str, found: datetime) -> None:
    assert parse_end(text, now=NOON) == found


@pytest.mark.parametrize("text", ["", "90", "d", "-1d", "1.5d", "90 d", "123456d", "2027-01-31", "tomorrow"])
def test_what_is_neither_an_age_nor_a_time_is_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match="expires_at: expected a time"):
        parse_end(text, now=NOON)


def test_a_key_is_created_with_its_end_and_listed_with_it(command: Command, acme: dict[str, object]) -> None:
    arguments = ("--tenant", "acme", "--identity", "bob@acme.example")
    created = json.loads(command("keys", "create", *arguments, "--expires", "90d", "--json").stdout)
    rows = {row["id"]: row for row in listed(command("keys", "list", "--tenant", "acme", "--json"))}
    assert rows[created["id"]]["expires_at"] == created["expires_at"]
    assert (rows[created["id"]]["expired"], rows[created["id"]]["issuer"]) == (False, None)
    assert [row["expires_at"] for row in rows.values() if row["id"] != created["id"]] == [None]
    told = command("keys", "create", *arguments, "--expires", "1h").stdout
    assert "\nIt ends at 2" in told


@pytest.mark.parametrize("end", ["0d", "99999d", "1999-01-01T00:00:00Z"])
def test_an_end_that_cannot_be_one_is_refused_by_its_field(command: Command, acme: dict[str, object], end: str) -> None:
    refused = command("keys", "create", "--tenant", "acme", "--identity", "bob", "--expires", end)
    assert isinstance(refused.exception, BadRequestError)
    assert refused.exception.field == "expires_at"


def test_a_role_that_cannot_be_one_is_refused_by_its_field(command: Command, acme: dict[str, object]) -> None:
    refused = command("keys", "create", "--tenant", "acme", "--identity", "bob", "--role", "no role")
    assert isinstance(refused.exception, BadRequestError)
    assert refused.exception.field == "roles"


@pytest.mark.parametrize(
    "arguments",
    [
        ("policies", "add", "--tenant", "acme"),
        ("policies", "list"),
        ("policies", "change", "--tenant", "acme", "--expression", "true", "--message", "m"),
        ("policies", "retire", "--tenant", "acme"),
        ("access-rules", "add", "--tenant", "acme", "--id", "r", "--expression", "true"),
        ("access-rules", "list"),
        ("access-rules", "retire", "r"),
        ("catalogs", "add", "--tenant", "acme"),
        ("catalogs", "secret", "--tenant", "acme"),
        ("catalogs", "secret", "partner"),
        ("tenants", "add", "--identity", "ada"),
        ("tenants", "add", "acme"),
        ("keys", "create", "--tenant", "acme"),
        ("keys", "revoke", "--tenant", "acme"),
        ("keys", "forge"),
    ],
)
def test_a_command_without_what_it_needs_is_called_wrongly(arguments: tuple[str, ...]) -> None:
    def never() -> NoReturn:
        raise AssertionError("nothing may be opened")

    app = apps(never)
    assert CliRunner().invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize(
    ("text", "line", "column", "expected"),
    [
        ("a == b", 1, 1, "    a == b\n    ^"),
        ("a == b", 1, 6, "    a == b\n         ^"),
        ("a ==", 1, 5, "    a ==\n        ^"),
        ("a\n\t&& b", 2, 5, "    \t&& b\n    \t   ^"),
        ("", 1, 1, "    \n    ^"),
        ("a", 3, 2, "    \n     ^"),
    ],
)
def test_the_caret_stands_under_the_column(text: str, line: int, column: int, expected: str) -> None:
    assert mark_place(text, line=line, column=column) == expected
