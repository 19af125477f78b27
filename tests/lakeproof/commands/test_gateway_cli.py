# SPDX-License-Identifier: Apache-2.0
"""
The commands that edit the control plane.

The tests share a database and a tenant: each adds things by ids of its own, and looks for them alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn
from uuid import UUID

import psycopg
import pytest
import typer
from typer.testing import CliRunner, Result

from gateway.admin.limits import KEYS_OF_HOLDER_MAX
from gateway.errors import BadRequestError, ConflictError, NotFoundError, PlaceTakenError, UnprocessableError
from gateway.policy.engine import PolicyNotCompiledError
from gateway.policy.pool import WorkerEngine
from gateway.policy.rule_files import PREFIX
from gateway.policy.text import mark_place
from lakeproof.commands import opening
from lakeproof.commands.api_keys import keys_app, parse_end
from lakeproof.commands.catalog_secrets import secrets_app
from lakeproof.commands.catalogs import catalogs_app
from lakeproof.commands.drops import drops_app, purges_app
from lakeproof.commands.opening import OpenServices
from lakeproof.commands.rules import access_rules_app, policies_app
from lakeproof.commands.tenants import tenants_app
from lakeproof.errors import LakeproofError
from lakeproof.installation import Installation
from lakeproof.provision import provision
from lakeproof.services import Services, open_services
from lakeproof.settings import Settings, load_settings
from ledger.format.entry import parse_entry
from projections.errors import SecretMissingError
from projections.lake.secrets import SECRET_SIZE_BYTES_MAX, SecretDirectory
from testkit.databases import LOGIN_PASSWORD
from testkit.lakeproof.commands import services_of
from testkit.servers.gateways import QUICK_HASHES

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)

Command = Callable[..., Result]


def apps(open_services: OpenServices) -> typer.Typer:
    """Return the commands for what people edit."""
    app = typer.Typer(rich_markup_mode=None)
    app.add_typer(policies_app(open_services), name="policies")
    app.add_typer(access_rules_app(open_services), name="access-rules")
    app.add_typer(catalogs_app(open_services), name="catalogs")
    app.add_typer(secrets_app(open_services), name="secrets")
    app.add_typer(drops_app(open_services), name="drops")
    app.add_typer(purges_app(open_services), name="purges")
    app.add_typer(tenants_app(open_services, open_services), name="tenants")
    app.add_typer(keys_app(open_services), name="keys")
    return app


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home that the tests share."""
    return tmp_path_factory.mktemp("gateway-cli") / "home"


def installation_of(home: Path, database: str) -> Installation:
    provisioned = provision(database, login_password=LOGIN_PASSWORD)
    settings = load_settings({"LAKEPROOF_HOME": str(home)}, directory=home.parent)
    return Installation.on(provisioned, settings=settings, admin_dsn=database)


@pytest.fixture(scope="module")
def command(module_database: str, home: Path) -> Command:
    """Runs a command as `lakeproof` would, on the database that the tests share."""
    app = apps(services_of(installation_of(home, module_database)))
    return lambda *arguments, **typed: CliRunner().invoke(app, arguments, **typed)


def add_tenant(command: Command, name: str, *arguments: str) -> dict[str, object]:
    """Add a tenant; return it as `tenants create --json` tells of it."""
    result = command("tenants", "create", name, "--identity", "ada@acme.example", *arguments, "--json")
    assert result.exit_code == 0, result.output
    tenant: dict[str, object] = json.loads(result.stdout)
    return tenant


@pytest.fixture(scope="module")
def acme(command: Command) -> dict[str, object]:
    """The tenant that most tests share."""
    return add_tenant(command, "acme", "--role", "data-eng", "--catalog", "lake")


def listed(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    rows: list[dict[str, object]] = json.loads(result.stdout)
    return rows


def of_id(row_id: str, rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return what goes by an id, whatever other tests have added."""
    return [row for row in rows if row["id"] == row_id]


def aliases(command: Command) -> set[object]:
    """Return the aliases of the tenant's catalogs."""
    return {row["alias"] for row in listed(command("catalogs", "list", "--tenant", "acme", "--json"))}


POLICY = ("--id", "tenant-id", "--message", "tables need tenant_id")


def test_a_new_tenants_key_is_shown_once_with_how_an_engine_uses_it(command: Command) -> None:
    added = command("tenants", "create", "shown", "--identity", "ada@acme.example", "--catalog", "lake")
    assert added.exit_code == 0
    secret = next(line.strip() for line in added.stdout.splitlines() if line.strip().startswith("lp_"))
    assert added.stdout.count(secret) == 1
    assert 'uri="http://127.0.0.1:8181", warehouse="lake"' in added.stdout
    for shown in (command("keys", "list", "--tenant", "shown"), command("tenants", "list")):
        assert shown.exit_code == 0
        assert secret not in shown.output


def test_the_command_says_how_to_add_a_catalog_to_a_new_tenant(command: Command) -> None:
    added = command("tenants", "create", "bare", "--identity", "ada@acme.example")
    assert "lakeproof catalogs create --tenant bare lake" in added.stdout
    assert listed(command("catalogs", "list", "--tenant", "bare", "--json")) == []
    assert command("catalogs", "list", "--tenant", "bare").stdout == "none\n"
    assert command("purges", "list", "--tenant", "bare").stdout == "none\n"
    assert listed(command("purges", "list", "--tenant", "bare", "--json")) == []
    assert command("drops", "list", "--tenant", "bare").stdout == "none\n"
    assert listed(command("drops", "list", "--tenant", "bare", "--json")) == []


def test_a_name_that_is_taken_founds_no_second_tenant(command: Command, acme: dict[str, object]) -> None:
    again = command("tenants", "create", "acme", "--identity", "eve@acme.example")
    assert isinstance(again.exception, ConflictError)
    named = [row for row in listed(command("tenants", "list", "--json")) if row["name"] == "acme"]
    assert named == [{"id": acme["tenant"], "name": "acme"}]


def test_an_alias_that_is_refused_leaves_no_tenant_behind(command: Command) -> None:
    refused = command("tenants", "create", "refused", "--identity", "ada@acme.example", "--catalog", "No Alias")
    assert isinstance(refused.exception, BadRequestError)
    assert refused.exception.field == "alias"
    assert "refused" not in [row["name"] for row in listed(command("tenants", "list", "--json"))]


def test_a_tenant_goes_by_its_name_and_by_its_id(command: Command, acme: dict[str, object]) -> None:
    by_name = listed(command("catalogs", "list", "--tenant", "acme", "--json"))
    by_id = listed(command("catalogs", "list", "--tenant", str(acme["tenant"]), "--json"))
    assert by_name == by_id
    assert {"alias": "lake", "version": 1, "kind": "builtin", "options": {}} in by_name


def test_a_tenants_setting_is_shown_and_set(command: Command, acme: dict[str, object]) -> None:
    row = {"id": "lineage-cycles", "version": 0, "value": "refuse"}
    other = {"id": "policy-review", "version": 0, "value": "none"}
    assert shown(command("tenants", "show", "acme", "--json"))["settings"] == [row, other]
    assert re.search(
        "^settings +lineage-cycles=refuse, policy-review=none$", command("tenants", "show", "acme").stdout, re.MULTILINE
    )
    changed = command("tenants", "change", str(acme["tenant"]), "lineage-cycles", "keep")
    assert changed.stdout == f"setting lineage-cycles of tenant {acme['tenant']} is keep\n"
    changed_row = {**row, "version": 1, "value": "keep"}
    assert shown(command("tenants", "show", "acme", "--json"))["settings"] == [changed_row, other]
    refused = command("tenants", "change", "acme", "lineage-cycles", "maybe")
    assert isinstance(refused.exception, BadRequestError)
    assert "expected one of ['refuse', 'keep'], found 'maybe'" in str(refused.exception)


def test_a_tenant_that_is_not_there_is_named(command: Command, acme: dict[str, object]) -> None:
    result = command("policies", "list", "--tenant", "acne")
    assert isinstance(result.exception, NotFoundError)
    said, _, known = str(result.exception).partition("; known: ")
    assert said.endswith("'acne' does not exist")
    assert "acme" in known


def test_a_policy_is_added_once_listed_as_it_was_written_changed_and_retired(command: Command) -> None:
    add_tenant(command, "initech")
    of_tenant = ("--tenant", "initech")
    expression = "!table.exists ||\n\ttable.exists"
    added = command("policies", "create", *of_tenant, *POLICY, "--expression", expression)
    assert added.stdout == "policy tenant-id v1 is in force for tenant initech\n"
    rows = listed(command("policies", "list", *of_tenant, "--json"))
    message = "tables need tenant_id"
    assert rows == [
        {
            "id": "tenant-id",
            "version": 1,
            "in_force": True,
            "expression": expression,
            "message": message,
            "scope": {},
            "examples": [],
            "reason": "",
            "active_from": None,
            "retired_from": None,
            "coming": [],
        }
    ]
    assert command("policies", "list", *of_tenant).stdout == (
        "ID         VERSION  IN FORCE  MESSAGE                EXPRESSION\n"
        "tenant-id  1        True      tables need tenant_id  !table.exists || table.exists\n"
    )
    again = command("policies", "create", *of_tenant, *POLICY, "--expression", "true")
    assert isinstance(again.exception, ConflictError)
    change = ("policies", "change", "tenant-id", *of_tenant, "--message", "no", "--expression")
    assert command(*change, "1 == 1").stdout == "policy tenant-id v2 is in force for tenant initech\n"
    (row,) = listed(command("policies", "list", *of_tenant, "--json"))
    assert (row["version"], row["message"], row["expression"]) == (2, "no", "1 == 1")
    wrong = command(*change, "(tabel)")
    assert isinstance(wrong.exception, PolicyNotCompiledError)
    assert wrong.stderr == "    (tabel)\n     ^\n"
    retired = command("policies", "delete", "tenant-id", *of_tenant)
    assert retired.stdout == "policy tenant-id of tenant initech is out of force\n"
    assert listed(command("policies", "list", *of_tenant, "--json")) == []
    assert isinstance(command("policies", "delete", "tenant-id", *of_tenant).exception, ConflictError)
    assert isinstance(command("policies", "delete", "never", *of_tenant).exception, NotFoundError)


@pytest.mark.usefixtures("acme")
def test_a_policy_that_does_not_compile_is_shown_with_a_caret_under_the_place(command: Command) -> None:
    add = ("policies", "create", "--tenant", "acme", "--id", "wrong", "--message", "no")
    refused = command(*add, "--expression", "true &&\n  (tabel.exists)")
    assert isinstance(refused.exception, PolicyNotCompiledError)
    assert refused.stderr == "      (tabel.exists)\n       ^\n"
    assert refused.stdout == ""
    assert of_id("wrong", listed(command("policies", "list", "--tenant", "acme", "--json"))) == []


@asynccontextmanager
async def unreachable() -> AsyncIterator[Services]:
    raise LakeproofError("the database cannot be reached")
    yield


SAVING = {
    "create": ("create", "--id", "p", "--message", "no", "--expression", "true"),
    "change": ("change", "p", "--message", "no", "--expression", "true"),
    "draft": ("draft", "p", "--message", "no", "--expression", "true"),
    "review": ("review", "p", "--version", "1", "--verdict", "refuse"),
    "delete": ("delete", "p"),
}


@pytest.mark.parametrize("name", SAVING)
def test_an_outage_refuses_no_policy(command: Command, name: str) -> None:
    done = CliRunner().invoke(policies_app(unreachable), [*SAVING[name], "--tenant", "acme"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "the database cannot be reached" in done.stderr
    assert command("policies", *SAVING[name], "--tenant", "nobody").exit_code == 2, "a wrong name refuses none, either"


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize("name", ["create", "draft"])
def test_an_engine_that_does_not_answer_refuses_no_policy(home: Path, module_database: str, name: str) -> None:
    installed = installation_of(home, module_database)

    @asynccontextmanager
    async def closed() -> AsyncIterator[Services]:
        engine = WorkerEngine()
        async with open_services(installed, engine=engine, hasher=QUICK_HASHES) as services:
            await engine.close()
            yield services

    done = CliRunner().invoke(policies_app(closed), [*SAVING[name], "--tenant", "acme"])
    assert done.exit_code == 2, done.output
    assert "the policy engine has been shut down" in done.stderr


@pytest.mark.usefixtures("acme")
def test_a_policy_that_fails_on_some_inputs_is_added_with_a_warning(command: Command) -> None:
    add = ("policies", "create", "--tenant", "acme", "--id", "owned", "--message", "no")
    added = command(*add, "--expression", "result.properties.owner == 'ada'")
    assert added.exit_code == 0
    assert added.stderr.startswith("warning: it fails for ")
    assert "reads a field or key that does not exist" in added.stderr


def test_a_policy_has_scope_examples_and_a_reason_and_comes_into_force_at_a_time(
    command: Command, tmp_path: Path
) -> None:
    add_tenant(command, "hooli")
    of = ("--tenant", "hooli")
    examples = tmp_path / "examples.json"
    examples.write_text('[{"expect": "deny"}, {"expect": "allow", "given": {"table": {"exists": true}}}]')
    written = ("--id", "p", "--message", "no", "--expression", "table.exists", "--reason", "for a test")
    with_scope = ("--scope", '{"names": ["sales.**"]}', "--examples", str(examples))
    created = command("policies", "create", *of, *written, *with_scope, "--activate-at", "2099-01-01T00:00:00Z")
    assert isinstance(created.exception, BadRequestError), "that is more than ten years away"
    year = datetime.now(UTC).year + 2
    created = command("policies", "create", *of, *written, *with_scope, "--activate-at", f"{year}-01-01T00:00:00Z")
    assert created.stdout == f"policy p v1 will be in force for tenant hooli at {year}-01-01T00:00:00.000000Z\n"
    policy = shown(command("policies", "show", "p", *of, "--json"))
    assert (policy["in_force"], policy["scope"], policy["reason"]) == (False, {"names": ["sales.**"]}, "for a test")
    assert [example["expect"] for example in policy["examples"]] == ["deny", "allow"]
    for bad, found in (
        (("--scope", "[]"), "--scope"),
        (("--scope", '{"name": []}'), "the nearest is names"),
        (("--examples", str(tmp_path / "none.json")), "cannot be read"),
        (("--examples", str(tmp_path)), "cannot be read"),
    ):
        refused = command("policies", "change", "p", *of, *written[2:], *bad)
        assert found in str(refused.exception), refused
    examples.write_text('[{"expect": "allow"}]')
    change = ("policies", "change", "p", *of, *written[2:], "--examples", str(examples))
    assert "example 1: expected allow, found deny" in str(command(*change).exception)
    until = f"{year + 1}-01-01T00:00:00.000000Z"
    ended = command("policies", "delete", "p", *of, "--retire-at", f"{year + 1}-01-01T00:00:00Z")
    assert ended.stdout == f"policy p of tenant hooli is in force until {until}\n"
    policy = shown(command("policies", "show", "p", *of, "--json"))
    assert (policy["version"], policy["retired_from"]) == (1, until)
    assert "--retire-at" in command("policies", "delete", "--help").stdout
    examples.write_text("[")
    assert "expected JSON" in str(command(*change).exception)
    examples.write_bytes(b" " * 40_000)
    assert "bytes" in str(command(*change).exception)
    assert shown(command("policies", "show", "p", *of, "--json")) == policy


def test_the_operators_draft_waits_for_another_person_and_versions_are_compared(command: Command) -> None:
    add_tenant(command, "umbrella")
    of = ("--tenant", "umbrella")
    plain = ("--message", "no", "--expression", "true\n&& true")
    assert command("policies", "create", "--id", "p", *plain, *of).exit_code == 0
    assert command("policies", "change", "p", "--message", "no!", "--expression", "true", *of).exit_code == 0
    assert command("policies", "diff", "p", *of).stdout == (
        "--- version 1\n+++ version 2\n@@ -1,2 +1 @@\n true\n-&& true\nmessage:\n- no\n+ no!\n"
    )
    assert command("policies", "diff", "p", "--from", "2", "--to", "2", *of).stdout == (
        "version 2 and version 2 of policy p are the same\n"
    )
    assert shown(command("policies", "diff", "p", *of, "--json"))["changed"] == {"message": {"from": "no", "to": "no!"}}
    drafted = command("policies", "draft", "p", *plain, "--reason", "as before", *of)
    assert drafted.stdout == (
        "version 1 of the draft of policy p waits for a review: `lakeproof policies review p --version 1`\n"
    )
    (waiting,) = listed(command("policies", "list", "--drafts", *of, "--json"))
    assert (waiting["id"], waiting["retires"], waiting["reason"]) == ("p", False, "as before")
    assert shown(command("policies", "show", "p", "--version", "draft", *of, "--json"))["author"] == "system"
    assert "draft" in command("policies", "diff", "p", "--to", "draft", *of).stdout
    review = ("policies", "review", "p", "--version", "1", *of, "--verdict")
    assert "another person than the author" in str(command(*review, "approve").exception)
    assert "expected one of approve, refuse" in str(command(*review, "maybe").exception)
    assert command(*review, "refuse").stdout == "the draft of policy p is refused\n"
    assert listed(command("policies", "list", "--drafts", *of, "--json")) == []
    versions = listed(command("policies", "list", "--versions-of", "p", *of, "--json"))
    assert [(one["version"], one["author"], one["expression"]) for one in versions] == [
        (1, "system", "true\n&& true"),
        (2, "system", "true"),
    ]
    assert shown(command("policies", "show", "p", "--version", "1", *of, "--json")) == versions[0]
    assert "expected one list" in str(command("policies", "list", "--drafts", "--versions-of", "p", *of).exception)
    assert isinstance(command("policies", "draft", "p", "--retire", *plain, *of).exception, LakeproofError)
    for words in (("--message", "no"), ("--expression", "true")):
        assert command("policies", "draft", "p", *words, *of).exit_code == 2, words


def test_an_operator_is_held_to_a_review_that_the_tenant_requires(command: Command) -> None:
    add_tenant(command, "stark")
    of = ("--tenant", "stark")
    plain = ("--message", "no", "--expression", "true")
    assert command("policies", "create", "--id", "p", *plain, *of).exit_code == 0
    assert command("tenants", "change", "stark", "policy-review", "required").exit_code == 0
    for refused in (
        command("policies", "create", "--id", "q", *plain, *of),
        command("policies", "change", "p", *plain, *of),
        command("policies", "delete", "p", *of),
    ):
        assert "`lakeproof policies draft`" in str(refused.exception)
    (row,) = listed(command("policies", "list", *of, "--json"))
    assert (row["id"], row["version"]) == ("p", 1)


def add_rule(row_id: str, effect: str, expression: str) -> tuple[str, ...]:
    """Return the arguments that add an access rule."""
    options = ("--tenant", "acme", "--id", row_id, "--effect", effect, "--expression", expression)
    return ("access-rules", "create", *options)


@pytest.mark.usefixtures("acme")
def test_an_access_rule_is_added_listed_and_retired(command: Command) -> None:
    added = command(*add_rule("r", "permit", "'reader' in roles"))
    assert (added.stdout, added.stderr) == ("access rule r (permit) is in force for tenant acme\n", "")
    rows = listed(command("access-rules", "list", "--tenant", "acme", "--json"))
    for row_id in ("first-key", "r"):
        assert [(row["effect"], row["vocabulary"]) for row in of_id(row_id, rows)] == [("permit", 2)]
    retired = command("access-rules", "delete", "r", "--tenant", "acme")
    assert retired.stdout == "access rule r of tenant acme is out of force\n"
    again = command("access-rules", "delete", "r", "--tenant", "acme")
    assert isinstance(again.exception, ConflictError)
    versions = listed(command("access-rules", "list", "--versions-of", "r", "--tenant", "acme", "--json"))
    assert [(one["version"], one["retired"], one["author"]) for one in versions] == [
        (1, False, "system"),
        (2, True, "system"),
    ]
    never = command("access-rules", "list", "--versions-of", "never", "--tenant", "acme")
    assert isinstance(never.exception, NotFoundError)


@pytest.mark.usefixtures("acme")
def test_a_rule_file_of_nessies_is_imported(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "application.properties"
    file.write_text(f"{PREFIX}viewers=op == 'VIEW_REFERENCE' \\\n   && ref == 'main'\n{PREFIX}nobody:false\n")
    of = (str(file), "--tenant", "acme")
    tried = command("access-rules", "import", *of, "--dry-run")
    assert tried.stdout == f"tenant acme: 2 access rules of {file} would be in force, 0 were before\n"
    assert of_id("nobody", listed(command("access-rules", "list", "--tenant", "acme", "--json"))) == []
    imported = shown(command("access-rules", "import", *of, "--json"))
    rule = shown(command("access-rules", "show", "viewers", "--tenant", "acme", "--json"))
    expression = "op == 'VIEW_REFERENCE' && ref == 'main'"
    assert {name: rule[name] for name in ("version", "effect", "expression", "vocabulary", "author")} == {
        "version": 1,
        "effect": "permit",
        "expression": expression,
        "vocabulary": 3,
        "author": "system",
    }
    assert (imported["dry_run"], imported["unchanged"]) == (False, [])
    again = command("access-rules", "import", *of)
    assert again.stdout == f"tenant acme: 0 access rules of {file} are now in force, 2 were before\n"


@pytest.mark.usefixtures("acme")
def test_a_file_of_policies_in_cedar_is_imported(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "rules.cedar"
    policy = 'permit(principal in Role::"reader", action in Action::"read", resource in Catalog::"lake");'
    file.write_text(f'@id("readers") {policy}\n{policy.replace("permit", "forbid")}\n')
    of = (str(file), "--tenant", "acme")
    tried = command("access-rules", "import", *of, "--dry-run")
    assert tried.stdout == f"tenant acme: 2 access rules of {file} would be in force, 0 were before\n"
    imported = shown(command("access-rules", "import", *of, "--json"))
    assert [(rule["effect"], rule["vocabulary"]) for rule in imported["created"]] == [("permit", 4), ("forbid", 4)]
    assert imported["created"][0]["id"] == "readers"
    file.write_text(f"{policy}\npermit(principal, action resource);")
    refused = command("access-rules", "import", *of)
    assert refused.exit_code == 1
    assert "line 2, column 26: rule policy-" in refused.stderr


@pytest.mark.usefixtures("acme")
def test_a_rule_file_with_a_mistake_is_refused_with_mended_lines(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "rules.properties"
    file.write_text(f"{PREFIX}fine=true\n{PREFIX}foo=path == `Foo' && (role == 'Bob'\n")
    for option in ("--dry-run", "--json"):
        refused = command("access-rules", "import", str(file), "--tenant", "acme", option)
        assert refused.exit_code == 1
        assert str(refused.exception) == (f"1 rules of {file} cannot be imported, so none was: mend the file as above")
        assert refused.stderr == (
            f"{file}: line 2, column 47: rule foo: '`' cannot stand here; it compiles with ' in place of ` at line 2, "
            f"column 47 and without the ( at line 2, column 56:\n{PREFIX}foo=path == 'Foo' && role == 'Bob'\n"
        )
    (said,) = json.loads(refused.stdout)["refused"]
    assert (said["line"], said["column"], said["mended"]) == (2, 47, f"{PREFIX}foo=path == 'Foo' && role == 'Bob'")
    assert of_id("fine", listed(command("access-rules", "list", "--tenant", "acme", "--json"))) == []


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"# \xff\n", "line 1: expected text in UTF-8"),
        (b"\xc3\xa4" * 200_000, "at most 262,144"),
    ],
)
def test_what_is_no_rule_file_is_refused(command: Command, tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "rules.properties"
    if content is not None:
        file.write_bytes(content)
    refused = command("access-rules", "import", str(file), "--tenant", "acme")
    assert refused.exit_code == 1
    assert words in str(refused.exception)


@pytest.mark.usefixtures("acme")
def test_an_access_rule_that_is_none_is_refused(command: Command) -> None:
    for effect, expression in (("allow", "true"), ("permit", "rolls == []"), ("permit", ""), ("permit", "1 + 1")):
        refused = command(*add_rule("none", effect, expression))
        assert isinstance(refused.exception, BadRequestError | PolicyNotCompiledError), (effect, expression)
    assert of_id("none", listed(command("access-rules", "list", "--tenant", "acme", "--json"))) == []


@pytest.mark.usefixtures("acme")
def test_rules_are_asked_who_may_and_what_someone_may_do(command: Command) -> None:
    of = ("--tenant", "acme")
    assert command(*add_rule("askers", "permit", "'asker' in roles && op == 'READ_ENTITY_VALUE'")).exit_code == 0
    key = shown(command("keys", "create", *of, "--identity", "asker@acme.example", "--role", "asker", "--json"))
    try:
        lines = command("access-rules", "who", "table.load", "lake.sales.orders", *of).stdout.splitlines()
        assert lines[0].split() == ["DECISION", "CALLER", "ROLES", "KEYS", "RULE", "MESSAGE"]
        (of_key,) = [line for line in lines if "asker@acme.example" in line]
        assert of_key.split() == ["permitted", "asker@acme.example", "asker", key["id"], "askers", "v1"]
        of_none = [line for line in lines if line.startswith("denied") and "(a token or certificate)" in line]
        assert of_none
        rows = command("access-rules", "what", "lake.sales.orders", *of, "--key", key["id"]).stdout.splitlines()
        assert [row.split()[1] for row in rows if row.startswith("permitted")] == [
            *("table.load", "view.load", "function.load", "namespace.load")
        ]
        nobody = command("access-rules", "what", *of)
        assert isinstance(nobody.exception, BadRequestError)
        unknown = command("access-rules", "who", "table.burn", "lake.sales.orders", *of)
        assert "expected one of table.load" in str(unknown.exception)
    finally:
        assert command("keys", "delete", key["id"], *of).exit_code == 0
        assert command("access-rules", "delete", "askers", *of).exit_code == 0


@pytest.mark.usefixtures("acme")
def test_rules_that_do_nothing_are_found_and_end_with_1(command: Command) -> None:
    of = ("--tenant", "acme")
    assert command(*add_rule("dead", "permit", "op == 'READ_NOTHING'")).exit_code == 0
    try:
        found = command("access-rules", "lint", *of)
        assert found.exit_code == 1
        (line,) = [line for line in found.stdout.splitlines() if line.startswith("dead v1")]
        assert line.split()[2:4] == ["never", "True"]
        assert line.endswith("it holds for no operation: no operation is 'READ_NOTHING'")
        told = command("access-rules", "lint", *of, "--json")
        assert told.exit_code == 1
        assert "dead" in [one["rule"]["id"] for one in json.loads(told.stdout)["findings"]]
    finally:
        assert command("access-rules", "delete", "dead", *of).exit_code == 0


def test_the_operator_may_lock_everybody_out_is_warned_and_undoes_it_and_the_log_has_it_as_of_the_system(
    command: Command, acme: dict[str, object], module_database: str
) -> None:
    added = command(*add_rule("lock", "forbid", "true"))
    assert added.exit_code == 0
    assert "warning: no key in force can delete it over HTTP" in added.stderr
    assert "lakeproof access-rules delete lock --tenant acme" in added.stderr
    assert command("access-rules", "delete", "lock", "--tenant", "acme").exit_code == 0
    assert command("policies", "create", "--tenant", "acme", *POLICY, "--expression", "true").exit_code == 0
    assert command("policies", "delete", "tenant-id", "--tenant", "acme").exit_code == 0
    with psycopg.connect(module_database) as connection:
        query = (
            "SELECT entry FROM ledger.entries WHERE log_id = (SELECT log_id FROM ledger.logs WHERE tenant = %s)"
            " ORDER BY index"
        )
        rows = connection.execute(query, (UUID(str(acme["tenant"])),)).fetchall()
    told = [parse_entry(bytes(entry)) for (entry,) in rows][-4:]
    assert [(entry.type, entry.actor) for entry in told] == [
        ("access_rule.created", "system"),
        ("access_rule.retired", "system"),
        ("policy.created", "system"),
        ("policy.retired", "system"),
    ]


def test_a_tenant_with_a_confusable_name_is_not_founded(command: Command, acme: dict[str, object]) -> None:
    names = ("Acme", "acm\u0435", "acme\u200b")
    for name in names:
        refused = command("tenants", "create", name, "--identity", "eve@acme.example")
        assert isinstance(refused.exception, BadRequestError)
    assert {row["name"] for row in listed(command("tenants", "list", "--json"))}.isdisjoint(names)


def test_a_place_goes_from_one_tenant_to_another(command: Command, acme: dict[str, object]) -> None:
    assert command("tenants", "create", "globex", "--identity", "gus@globex.example").exit_code == 0
    options = ("--kind", "rest", "--option", "uri=https://x.example", "--option", "location=s3://lake/sales")
    assert command("catalogs", "create", "--tenant", "acme", "far", *options).exit_code == 0
    refused = command("catalogs", "create", "--tenant", "globex", "far", *options)
    assert isinstance(refused.exception, PlaceTakenError)
    move = ("catalogs", "transfer", "s3://lake/sales", "--from", "acme", "--to", "globex")
    assert isinstance(command(*move).exception, ConflictError)
    assert (
        command("catalogs", "delete", "--tenant", "acme", "far").stdout
        == "catalog far of tenant acme is out of force\n"
    )
    moved = command(*move)
    assert moved.stdout == (
        "s3://lake/sales was taken from tenant acme; tenant globex alone may register catalogs for it now\n"
    )
    assert command("catalogs", "create", "--tenant", "globex", "far", *options).exit_code == 0


def test_catalogs_are_added_by_kind(command: Command, acme: dict[str, object]) -> None:
    added = command("catalogs", "create", "--tenant", "acme", "attic")
    assert added.stdout == "catalog attic (builtin) is reachable for tenant acme\n"
    unknown = command("catalogs", "create", "--tenant", "acme", "cellar", "--kind", "tape")
    assert isinstance(unknown.exception, BadRequestError)
    assert aliases(command) >= {"lake", "attic"}
    assert "cellar" not in aliases(command)


def test_a_foreign_catalog_is_added_with_its_options(command: Command, acme: dict[str, object]) -> None:
    options = ("--option", "uri=https://catalog.example/api", "--option", "token=secret:partner")
    added = command("catalogs", "create", "--tenant", "acme", "partner", "--kind", "rest", *options)
    assert added.stdout == "catalog partner (rest) is reachable for tenant acme\n"
    rows = listed(command("catalogs", "list", "--tenant", "acme", "--json"))
    (row,) = [row for row in rows if row["alias"] == "partner"]
    assert row["options"] == {"uri": "https://catalog.example/api", "token": "secret:partner"}


@pytest.mark.usefixtures("acme")
def test_options_that_are_refused_are_not_repeated(command: Command) -> None:
    for options in (
        ("hunter2",),
        ("uri=https://a", "uri=https://b"),
        ("uri=https://a", "token=hunter2"),
        ("no=hunter2",),
        (),
    ):
        arguments = [part for option in options for part in ("--option", option)]
        refused = command("catalogs", "create", "--tenant", "acme", "refused", "--kind", "rest", *arguments)
        assert isinstance(refused.exception, BadRequestError), options
        assert "hunter2" not in str(refused.exception)
    assert "refused" not in aliases(command)


def test_a_secret_is_stored_from_standard_input_and_never_shown(
    command: Command, acme: dict[str, object], home: Path
) -> None:
    kept = SecretDirectory(home / "secrets" / "tenants")
    of = ("stored", "--tenant", "acme")
    assert isinstance(command("secrets", "change", *of, input="hunter1").exception, SecretMissingError)
    stored = command("secrets", "create", *of, input="hunter2\n")
    assert stored.stdout == "secret stored of tenant acme is stored; options name it as secret:stored\n"
    assert kept.read(UUID(str(acme["tenant"])), "stored") == "hunter2"
    again = command("secrets", "create", *of, input="hunter4")
    assert "change it (`lakeproof secrets change`)" in str(again.exception)
    assert command("secrets", "change", *of, input=b"hunter3").stdout == "secret stored of tenant acme is changed\n"
    assert kept.read(UUID(str(acme["tenant"])), "stored") == "hunter3"
    file = kept.directory / str(acme["tenant"]) / "stored"
    assert file.stat().st_mode & 0o777 == 0o600
    row = {"secret": "stored", "option": "secret:stored"}
    assert listed(command("secrets", "list", "--tenant", "acme", "--json")) == [row]
    assert "hunter" not in command("secrets", "list", "--tenant", "acme").output
    assert shown(command("secrets", "delete", *of, "--json")) == row
    assert not file.exists()
    assert isinstance(command("secrets", "delete", *of).exception, SecretMissingError)
    assert command("secrets", "list", "--tenant", "acme").stdout == "none\n"


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
    command: Command, acme: dict[str, object], home: Path, secret_id: str, value: bytes
) -> None:
    refused = command("secrets", "create", secret_id, "--tenant", "acme", input=value)
    assert isinstance(refused.exception, SecretMissingError)
    assert "hunter2" not in str(refused.exception)
    assert list(home.rglob("partner")) == []


def test_a_secret_of_a_tenant_that_is_not_there_is_refused(command: Command) -> None:
    refused = command("secrets", "create", "partner", "--tenant", "acne", input="hunter2")
    assert isinstance(refused.exception, NotFoundError)


@pytest.mark.usefixtures("acme")
def test_a_key_is_created_with_or_without_an_end_listed_without_its_secret_and_revoked(command: Command) -> None:
    create = ("keys", "create", "--tenant", "acme", "--identity", "bob@acme.example")
    created = json.loads(command(*create, "--role", "b", "--role", "a", "--json").stdout)
    ending = json.loads(command(*create, "--expires", "90d", "--json").stdout)
    assert created["secret"].startswith("lp_")
    shown = command("keys", "list", "--tenant", "acme", "--json")
    (row,) = of_id(created["id"], listed(shown))
    assert (row["roles"], row["expires_at"]) == (["a", "b"], None)
    assert created["secret"] not in shown.output
    (row,) = of_id(ending["id"], listed(shown))
    assert row["expires_at"] == ending["expires_at"]
    assert (row["expired"], row["issuer"]) == (False, None)
    assert "\nIt ends at 2" in command(*create, "--expires", "1h").stdout
    revoked = command("keys", "delete", "--tenant", "acme", created["id"])
    assert revoked.stdout == f"key {created['id']} is revoked\n"
    assert created["id"] not in command("keys", "list", "--tenant", "acme").stdout
    again = command("keys", "delete", "--tenant", "acme", created["id"])
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
        ("policies", "create", "--tenant", "acme"),
        ("policies", "list"),
        ("policies", "change", "--tenant", "acme", "--expression", "true", "--message", "m"),
        ("policies", "delete", "--tenant", "acme"),
        ("access-rules", "create", "--tenant", "acme", "--id", "r", "--expression", "true"),
        ("access-rules", "list"),
        ("access-rules", "delete", "r"),
        ("catalogs", "create", "--tenant", "acme"),
        ("secrets", "create", "--tenant", "acme"),
        ("secrets", "create", "partner"),
        ("tenants", "create", "--identity", "ada"),
        ("tenants", "create", "acme"),
        ("keys", "create", "--tenant", "acme"),
        ("keys", "delete", "--tenant", "acme"),
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


# One thing at a time, and what programs read


def shown(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    members: dict[str, Any] = json.loads(result.stdout)
    return members


def test_one_thing_is_shown_as_it_is_listed_and_one_that_is_not_there_is_named(command: Command) -> None:
    founded = add_tenant(command, "shows", "--catalog", "lake")
    of = ("--tenant", "shows")
    rule = ("access-rules", "create", *of, "--id", "r1", "--effect", "permit", "--expression", "'x' in roles", "--json")
    assert shown(command(*rule))["id"] == "r1"
    policy = command("policies", "create", *of, *POLICY, "--expression", "true", "--json")
    assert shown(policy) == shown(command("policies", "show", "tenant-id", *of, "--json"))
    assert shown(command("access-rules", "show", "r1", *of, "--json"))["effect"] == "permit"
    assert shown(command("catalogs", "show", "lake", *of, "--json"))["kind"] == "builtin"
    key = founded["key"]
    assert isinstance(key, dict)
    assert shown(command("keys", "show", str(key["id"]), *of, "--json"))["actor"] == key["actor"]
    tenant = shown(command("tenants", "show", "shows", "--json"))
    assert (tenant["id"], tenant["log"], tenant["catalogs"]) == (founded["tenant"], founded["log"], ["lake"])
    assert (tenant["policies"], tenant["access_rules"], tenant["keys"]) == (1, 2, 1)
    assert re.search(r"^catalogs +lake$", command("tenants", "show", "shows").stdout, re.MULTILINE)
    for group in ("policies", "access-rules", "catalogs", "keys"):
        assert isinstance(command(group, "show", "nothing", *of).exception, NotFoundError)
    assert isinstance(command("tenants", "show", "nothing").exception, NotFoundError)


def test_what_was_done_is_told_to_programs_too(command: Command) -> None:
    add_tenant(command, "done")
    of = ("--tenant", "done", "--json")
    assert shown(command("catalogs", "create", "lake", *of)) == {
        "alias": "lake",
        "version": 1,
        "kind": "builtin",
        "options": {},
    }
    assert shown(command("catalogs", "delete", "lake", *of))["in_force"] is False
    assert shown(command("secrets", "create", "token", *of, input="sesame")) == {
        "secret": "token",
        "option": "secret:token",
    }
    command("policies", "create", *POLICY, "--expression", "true", *of)
    changed = command("policies", "change", "tenant-id", "--message", "no", "--expression", "1 == 1", *of)
    assert shown(changed)["version"] == 2
    assert shown(command("policies", "delete", "tenant-id", *of))["in_force"] is False
    assert shown(command("tenants", "change", "done", "lineage-cycles", "keep", "--json"))["value"] == "keep"
    key = shown(command("keys", "create", "--identity", "bob", *of))
    assert shown(command("keys", "delete", key["id"], *of))["in_force"] is False


def keys_of(command: Command, tenant: str) -> dict[str, dict[str, Any]]:
    """Return the keys of a tenant that were not revoked, by id."""
    return {str(row["id"]): row for row in listed(command("keys", "list", "--tenant", tenant, "--json"))}


def test_a_key_is_rotated_to_one_of_the_same_actor_roles_and_end_and_ends_a_day_later(command: Command) -> None:
    add_tenant(command, "turns")
    of = ("--tenant", "turns")
    old = shown(command("keys", "create", *of, "--identity", "bob", "--role", "etl", "--expires", "90d", "--json"))
    before = datetime.now(UTC)
    rotated = command("keys", "rotate", old["id"], *of)
    assert rotated.exit_code == 0, rotated.exception
    assert f"lakeproof keys delete {old['id']} --tenant turns" in rotated.stdout
    rows = keys_of(command, "turns")
    (new,) = [row for row in rows.values() if row["roles"] == ["etl"] and row["id"] != old["id"]]
    assert (new["actor"], new["expires_at"], new["replaced_by"]) == (old["actor"], old["expires_at"], None)
    ends_at = datetime.fromisoformat(rows[old["id"]]["expires_at"])
    assert before + timedelta(days=1) <= ends_at <= datetime.now(UTC) + timedelta(days=1)
    assert f"Key {old['id']} ends at {rows[old['id']]['expires_at']}." in rotated.stdout
    assert rows[old["id"]]["replaced_by"] == new["id"]
    again = command("keys", "rotate", old["id"], *of)
    assert isinstance(again.exception, ConflictError)
    assert f"rotate {new['id']}, which replaced it" in str(again.exception)
    assert keys_of(command, "turns") == rows


def test_a_key_that_is_rotated_without_an_overlap_is_revoked_at_once(command: Command) -> None:
    add_tenant(command, "leaps")
    of = ("--tenant", "leaps")
    old = shown(command("keys", "create", *of, "--identity", "bob", "--json"))
    new = shown(command("keys", "rotate", old["id"], *of, "--expires", "12h", "--overlap", "0h", "--json"))
    assert (new["actor"], new["replaces"], new["replaced_ends_at"]) == (old["actor"], old["id"], None)
    assert new["expires_at"] is not None
    assert new["secret"]
    assert old["id"] not in keys_of(command, "leaps")
    assert isinstance(command("keys", "rotate", old["id"], *of).exception, NotFoundError)


@pytest.mark.parametrize("overlap", ["31d", "721h", "-1h", "soon", "1w", ""])
def test_an_overlap_that_is_none_is_refused_and_changes_nothing(command: Command, overlap: str) -> None:
    founded = listed(command("tenants", "list", "--json"))
    if "steady" not in {row["name"] for row in founded}:
        add_tenant(command, "steady")
    rows = keys_of(command, "steady")
    (key_id,) = rows
    refused = command("keys", "rotate", key_id, "--tenant", "steady", f"--overlap={overlap}")
    assert isinstance(refused.exception, BadRequestError)
    assert refused.exception.field == "overlap"
    assert keys_of(command, "steady") == rows


def test_the_keys_of_a_holder_are_limited_and_revoking_one_makes_room(command: Command) -> None:
    add_tenant(command, "many")
    of = ("--tenant", "many", "--json")
    create = ("keys", "create", "--identity", "bob", *of)
    made = [shown(command(*create)) for _ in range(KEYS_OF_HOLDER_MAX)]
    for refused in (command(*create), command("keys", "rotate", made[0]["id"], *of)):
        assert isinstance(refused.exception, UnprocessableError)
        assert "expected at most 20 keys of one holder in force, found 20" in str(refused.exception)
    assert command("keys", "create", "--identity", "eve", *of).exit_code == 0
    assert shown(command("keys", "rotate", made[0]["id"], "--overlap", "0h", *of))["replaces"] == made[0]["id"]
    assert command("keys", "delete", made[1]["id"], *of).exit_code == 0
    assert command(*create).exit_code == 0


def test_a_key_whose_holder_would_get_another_actor_is_not_rotated(command: Command, module_database: str) -> None:
    founded = add_tenant(command, "stays")
    key = founded["key"]
    assert isinstance(key, dict)
    with psycopg.connect(module_database) as owner:
        owner.execute("DELETE FROM ledger.subjects WHERE actor = %s", [key["actor"]])
    refused = command("keys", "rotate", key["id"], "--tenant", "stays")
    assert isinstance(refused.exception, ConflictError)
    assert "was erased" in str(refused.exception)


ANSWERS = {
    "/v1/config": {"defaults": {}, "overrides": {}, "endpoints": ["GET /v1/{prefix}/namespaces"]},
    "/v1/namespaces": {"namespaces": []},
}


@contextmanager
def foreign_catalog() -> Iterator[str]:
    """Yield the URL of a catalog that answers what `ANSWERS` has, in a thread of its own."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(ANSWERS[self.path.partition("?")[0]]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.01}).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def test_what_is_behind_an_alias_is_asked_whether_it_answers(module_database: str, home: Path) -> None:
    provisioned = provision(module_database, login_password=LOGIN_PASSWORD)
    variables = {"LAKEPROOF_HOME": str(home), "LAKEPROOF_UPSTREAMS_ALLOWED": "127.0.0.0/8"}
    settings = load_settings(variables, directory=home.parent)
    installation = Installation.on(provisioned, settings=settings, admin_dsn=module_database)

    app = apps(services_of(installation))

    def command(*arguments: str) -> Result:
        return CliRunner().invoke(app, arguments)

    add_tenant(command, "asks", "--catalog", "lake")
    of = ("--tenant", "asks")
    assert command("catalogs", "check", "lake", *of).exit_code == 0
    with foreign_catalog() as url:
        assert command("catalogs", "create", "partner", *of, "--kind", "rest", "--option", f"uri={url}").exit_code == 0
        found = command("catalogs", "check", "partner", *of)
        assert found.exit_code == 0
        assert "partner answers, and has 1 endpoints\n    GET /v1/{prefix}/namespaces\n" in found.stdout
        assert "it does not have POST /v1/{prefix}/namespaces: engines are refused there" in found.stdout
        document = shown(command("catalogs", "check", "partner", *of, "--json"))
        assert (document["ok"], document["answers"]) == (True, True)
        assert document["endpoints"] == ["GET /v1/{prefix}/namespaces"]
    gone = command("catalogs", "check", "partner", *of)
    assert gone.exit_code == 1
    assert "partner cannot be used: " in gone.stdout
    assert "what to do: see that it runs" in gone.stdout


def test_a_command_waits_for_its_own_policy_engine_to_start(
    command: Command, acme: dict[str, object], module_database: str, home: Path
) -> None:
    provisioned = provision(module_database, login_password=LOGIN_PASSWORD)
    variables = {"LAKEPROOF_HOME": str(home), "LAKEPROOF_POLICY_WAITING_S": "0.1"}  # no process starts within that
    settings = load_settings(variables, directory=home.parent)

    @contextmanager
    def opened(_: Settings, say: Callable[[str], None]) -> Iterator[Installation]:
        yield Installation.on(provisioned, settings=settings, admin_dsn=module_database)

    app = apps(lambda: opening._open_services(opened))
    made = ("--tenant", str(acme["name"]), "--id", "waited", "--expression", "true", "--message", "of no use")
    created = CliRunner().invoke(app, ("policies", "create", *made))
    assert created.exit_code == 0, created.output
    assert command("policies", "delete", "waited", "--tenant", str(acme["name"])).exit_code == 0


def written_in(path: Path, **changes: str) -> Path:
    members = {
        "id": "owned",
        "expression": "\"owner\" in result.properties || commit.operation != 'table.create'",
        "message": "name an owner of {commit.name}",
        "reason": "somebody has to answer",
        **changes,
    }
    path.write_text(
        "\n".join(f"{name}: {json.dumps(text)}" for name, text in members.items())
        + "\nscope: {properties: [classification=pii]}\n"
        "examples: [{expect: allow, given: {result: {properties: {owner: ada}}}}, "
        "{expect: deny, given: {commit: {operation: table.create}}}]\n",
        encoding="utf-8",
    )
    return path


def test_a_policy_is_created_changed_and_drafted_from_its_file(command: Command, tmp_path: Path) -> None:
    add_tenant(command, "wernham")
    of, path = ("--tenant", "wernham"), written_in(tmp_path / "owned.yaml")
    created = command("policies", "create", "--file", str(path), *of)
    assert (created.exit_code, created.stdout) == (0, "policy owned v1 is in force for tenant wernham\n")
    policy = shown(command("policies", "show", "owned", *of, "--json"))
    assert (policy["message"], policy["reason"]) == ("name an owner of {commit.name}", "somebody has to answer")
    assert (policy["scope"], len(policy["examples"])) == ({"properties": ["classification=pii"]}, 2)
    written_in(path, message="an owner, please")
    assert command("policies", "change", "owned", "--file", str(path), "--reason", "politer", *of).exit_code == 0
    policy = shown(command("policies", "show", "owned", *of, "--json"))
    assert (policy["version"], policy["message"], policy["reason"]) == (2, "an owner, please", "politer")
    written_in(path, message="an owner!")
    assert command("policies", "draft", "owned", "--file", str(path), *of).exit_code == 0
    (waiting,) = listed(command("policies", "list", "--drafts", *of, "--json"))
    assert (waiting["message"], waiting["reason"]) == ("an owner!", "somebody has to answer")
    assert command("policies", "delete", "owned", "--reason", "all have one", *of).exit_code == 0
    last = shown(command("policies", "show", "owned", "--version", "3", *of, "--json"))
    assert (last["retired"], last["reason"]) == (True, "all have one")


def test_a_file_that_is_not_what_the_command_says_is_refused_with_its_place(command: Command, tmp_path: Path) -> None:
    add_tenant(command, "soylent")
    of, path = ("--tenant", "soylent"), written_in(tmp_path / "owned.yaml")

    def refused(*arguments: str) -> str:
        done = command("policies", *arguments, "--file", str(path), *of)
        assert isinstance(done.exception, LakeproofError | BadRequestError), done.output
        return str(done.exception)

    assert refused("change", "other") == f"{path}:1:1: id: expected other, which the command names, found 'owned'"
    assert refused("create", "--id", "other").startswith(f"{path}:1:1: id: expected other")
    assert refused("create", "--message", "no") == "--file: expected all contents in the file, found --message, too"
    assert "--retire: expected no contents" in refused("draft", "owned", "--retire")
    written_in(path, expression="result.colums == 1")
    assert refused("create").startswith(f"{path}:2:")
    written_in(path, message="{commit.nam}")
    assert refused("create").startswith(f"{path}:3:1: message: ")
    path.write_text("id: [", encoding="utf-8")
    assert refused("create").startswith(f"{path}:")
    assert listed(command("policies", "list", *of, "--json")) == []


@pytest.mark.parametrize("left_out", ["--id", "--message", "--expression"])
def test_without_a_file_each_option_is_needed(command: Command, left_out: str) -> None:
    options = {"--id": "p", "--message": "no", "--expression": "true"}
    del options[left_out]
    done = command("policies", "create", "--tenant", "acme", *(text for pair in options.items() for text in pair))
    assert done.exit_code == 2
    assert f"Invalid value for {left_out}: expected a value, or --file, found neither" in done.stderr


def test_a_rule_may_be_a_policy_in_cedar(command: Command) -> None:
    add_tenant(command, "tyrell")
    of = ("--tenant", "tyrell", "--vocabulary", "4")
    rule = ("access-rules", "create", "--id", "admins", "--effect", "permit")
    text = 'permit(principal in Role::"admin", action, resource);'
    assert command(*rule, "--expression", text, *of).exit_code == 0
    found = shown(command("access-rules", "show", "admins", *of[:2], "--json"))
    assert (found["expression"], found["vocabulary"]) == (text, 4)
    wrong = command(*rule, "--expression", text.replace("Role", "Team"), *of)
    assert "unrecognized entity type `Team`" in str(wrong.exception)


def test_a_rule_of_each_check_may_forbid(command: Command) -> None:
    add_tenant(command, "wonka")
    of = ("--tenant", "wonka")
    rule = ("--id", "keep", "--effect", "forbid", "--expression", "op == 'DELETE_REFERENCE'")
    assert command("access-rules", "create", *rule, "--vocabulary", "3", *of).exit_code == 0
    found = shown(command("access-rules", "show", "keep", *of, "--json"))
    assert (found["effect"], found["vocabulary"]) == ("forbid", 3)
    other = command("access-rules", "create", "--id", "no", *rule[2:], "--vocabulary", "1", *of)
    assert "vocabulary: expected one of [2, 3, 4], found 1" in str(other.exception)
