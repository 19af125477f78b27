# SPDX-License-Identifier: Apache-2.0
"""
The commands on policy files: what they print, for people and for programs, and how they end.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
import typer
from typer.testing import CliRunner, Result

from gateway.policy.engine import EngineUnavailableError
from gateway.policy.policy_library import library, library_text
from gateway.policy.pool import WorkerEngine
from lakeproof.commands import policy_files
from lakeproof.commands.exits import REFUSED
from lakeproof.commands.policy_files import add_file_commands
from lakeproof.commands.refusals import FAILED
from lakeproof.commands.rules import policies_app
from lakeproof.commands.tenants import tenants_app
from lakeproof.errors import LakeproofError
from lakeproof.installation import Installation
from lakeproof.provision import provision
from lakeproof.services import Services
from lakeproof.settings import load_settings
from testkit.databases import LOGIN_PASSWORD
from testkit.lakeproof.commands import services_of
from testkit.servers.forked_workers import fork_worker

Command = Callable[..., Result]

PURGE: Final = """\
id: no-purge
expression: |
  !commit.purge
  || "admin" in principal.roles
message: Ask an administrator
examples:
  - expect: allow
    name: no purge
    given: {}
  - expect: deny
    name: a purge
    given: {commit: {purge: true}}
"""


@asynccontextmanager
async def no_services() -> AsyncIterator[Services]:
    """What opens services for commands that need none."""
    raise AssertionError("this command works without a database")
    yield


def app_of(open_engine: Callable[[], AbstractAsyncContextManager[WorkerEngine]]) -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)
    add_file_commands(app, no_services, open_engine)
    return app


@pytest.fixture
def command() -> Command:
    """Runs a command as `lakeproof policies` would, with workers that start quickly."""
    app = app_of(lambda: WorkerEngine(waiting_s=60, spawn=fork_worker))
    return lambda *arguments: CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one policy."""
    (tmp_path / "no-purge.yaml").write_text(PURGE, encoding="utf-8")
    return tmp_path


def told(done: Result) -> Any:
    return json.loads(done.stdout)


def test_examples_that_hold_are_clean(command: Command, folder: Path) -> None:
    done = command("test", folder)

    assert (done.exit_code, done.stdout) == (0, "no-purge: 2 of 2 examples hold\n")
    assert told(command("test", folder / "no-purge.yaml", "--json")) == [
        {
            "file": str(folder / "no-purge.yaml"),
            "id": "no-purge",
            "examples": 2,
            "refused": None,
            "failing": [],
        }
    ]


def test_an_example_that_does_not_hold_is_refused_with_what_was_found_instead(command: Command, folder: Path) -> None:
    (folder / "no-purge.yaml").write_text(PURGE.replace("!commit.purge", "commit.purge"), encoding="utf-8")

    done = command("test", folder, "--mutation")

    assert done.exit_code == 1
    assert done.stdout == (
        "no-purge: 0 of 2 examples hold\n"
        "  example 1 (no purge): expected allow, found deny\n"
        "  example 2 (a purge): expected deny, found allow\n"
    )


def test_coverage_and_mutation_say_what_the_examples_leave_open(command: Command, folder: Path) -> None:
    done = command("test", folder, "--coverage", "--mutation")

    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "no-purge: 2 of 2 examples hold, 5 of 6 directions of branches taken, 5 of 7 mutants killed (71 %)",
        '  4:6: never true: operand of || ("admin" in principal.roles)',
        '  3:3: survived: the operand ("admin" in principal.roles) of || dropped',
        '  4:6: survived: "admin" changed to "admin~"',
    ]
    (one,) = told(command("test", folder, "--coverage", "--mutation", "--json"))
    assert one["coverage"]["missing"] == [
        {"line": 4, "column": 6, "part": "operand of ||", "text": '("admin" in principal.roles)', "never": "true"}
    ]
    assert (one["mutation"]["killed"], one["mutation"]["mutants"], one["mutation"]["unknown"]) == (5, 7, 0)
    assert one["mutation"]["survivors"][0]["expression"] == "(!commit.purge)"


def test_an_expression_that_does_not_compile_is_shown_with_its_place_and_the_others_are_tested(
    command: Command, folder: Path
) -> None:
    (folder / "a.yaml").write_text(PURGE.replace("no-purge", "a").replace("roles", "rolls"), encoding="utf-8")

    done = command("test", folder)

    assert done.exit_code == 1
    refused, held = done.stdout.splitlines()
    assert refused.startswith(f"{folder}/a.yaml:4:27: ")
    assert "rolls" in refused
    assert held == "no-purge: 2 of 2 examples hold"
    assert done.stderr == '    || "admin" in principal.rolls\n' + " " * 28 + "^\n"
    assert told(command("test", folder, "--json"))[0]["refused"]["line"] == 4


@pytest.mark.parametrize("name", ["test", "lint", "compile"])
def test_a_file_that_is_no_policy_is_refused(command: Command, folder: Path, name: str) -> None:
    (folder / "a.yaml").write_text("id: a\nmesage: m\n", encoding="utf-8")

    done = command(name, folder)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"lakeproof: {folder}/a.yaml:2:1: expected some of id, expression, message")
    assert told(command(name, folder, "--json")) == {
        "status": "refused",
        "message": done.stderr.removeprefix("lakeproof: ").strip(),
    }


@pytest.mark.parametrize("name", ["test", "lint", "compile"])
def test_without_an_engine_a_command_has_failed_and_refused_nothing(folder: Path, name: str) -> None:
    async def no_worker(*_: object) -> NoReturn:
        raise EngineUnavailableError("no process could be started")

    app = app_of(lambda: WorkerEngine(spawn=no_worker))
    done = CliRunner().invoke(app, [name, str(folder), "--json"])

    assert (done.exit_code, told(done)["status"]) == (2, "failed")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("no-purge", "No Purge", "1:1: id: expected 1 to 63"),
        ("Ask an", "x" * 500, "5:1: message: expected at most 500"),
    ],
)
def test_what_could_not_be_saved_is_refused(command: Command, folder: Path, old: str, new: str, said: str) -> None:
    (folder / "no-purge.yaml").write_text(PURGE.replace(old, new), encoding="utf-8")

    done = command("test", folder)

    assert done.exit_code == 1
    assert f"no-purge.yaml:{said}" in done.stderr


def test_lint_ends_with_1_if_anything_is_found(command: Command, folder: Path) -> None:
    assert command("lint", folder).stdout == "looked at 1, found nothing\n"
    assert command("lint", folder).exit_code == 0
    (folder / "no-purge.yaml").write_text(PURGE.replace('"admin" in', "3 =="), encoding="utf-8")

    done = command("lint", folder)
    assert done.exit_code == 1
    assert done.stdout == (
        f"{folder}/no-purge.yaml:4:6: types: == compares a number with a list, which are never equal\n"
        "looked at 1, found 1\n"
    )
    assert [one["rule"] for one in told(command("lint", folder, "--json"))] == ["types"]


def test_compile_shows_what_an_expression_reads_calls_and_costs(command: Command, folder: Path) -> None:
    done = command("compile", "result.columns.all(c, c.doc != '')  // documented")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "expression  result.columns.all(c, (c.doc != ''))",
        "reads       result.columns",
        "functions   all",
        "cost        linear",
    ]
    (one,) = told(command("compile", folder, "--json"))
    assert (one["id"], one["reads"], one["cost"]) == ("no-purge", ["commit.purge", "principal.roles"], "constant")


def test_compile_refuses_with_line_column_and_the_nearest_name(command: Command) -> None:
    done = command("compile", "true &&\n  tabel.exists")

    assert done.exit_code == 1
    assert done.stdout.startswith("2:3: unknown variable 'tabel'")
    assert "table" in done.stdout
    assert done.stderr == "      tabel.exists\n      ^\n"
    assert told(command("compile", "tabel", "--json"))[0]["refused"]["column"] == 1


def test_compile_takes_a_missing_file_for_a_file(command: Command, tmp_path: Path) -> None:
    done = command("compile", tmp_path / "missing.yaml")

    assert done.exit_code == 1
    assert "cannot be read: No such file" in done.stderr
    assert command("compile", "x" * 5_000).stdout.startswith("1:1: unknown variable")


def test_the_library_is_listed_and_shown_as_it_is(command: Command, tmp_path: Path) -> None:
    listed = told(command("library", "list", "--json"))
    assert [one["id"] for one in listed] == [policy.id for policy in library()]
    shown = command("library", "show", "tenant-column").stdout
    assert shown == library_text("tenant-column")
    (tmp_path / "mine.yaml").write_text(shown, encoding="utf-8")
    assert command("test", tmp_path).exit_code == 0
    assert told(command("library", "show", "tenant-column", "--json"))["scope"]["kinds"] == ["table"]


def test_a_policy_that_the_library_lacks_is_refused_with_the_nearest(command: Command) -> None:
    done = command("library", "show", "tenant-colunm")

    assert done.exit_code == 1
    assert "the nearest is tenant-column" in done.stderr


def test_the_exit_codes_are_those_that_pipelines_read() -> None:
    assert (policy_files.CLEAN, REFUSED, FAILED) == (0, 1, 2)


# Apply


@pytest.fixture(scope="module")
def installed(module_database: str, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Runs a command as `lakeproof` would, on a database with the tenant acme, which the tests share."""
    home = tmp_path_factory.mktemp("policy-files") / "home"
    provisioned = provision(module_database, login_password=LOGIN_PASSWORD)
    settings = load_settings({"LAKEPROOF_HOME": str(home)}, directory=home.parent)
    open_services = services_of(Installation.on(provisioned, settings=settings, admin_dsn=module_database))
    app = typer.Typer(rich_markup_mode=None)
    app.add_typer(policies_app(open_services), name="policies")
    app.add_typer(tenants_app(open_services, open_services), name="tenants")

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, list(map(str, arguments)))

    assert run("tenants", "create", "acme", "--identity", "ada@acme.example").exit_code == 0
    return run


def write(folder: Path, policy_id: str, old: str = "", new: str = "") -> None:
    text = PURGE.replace("no-purge", policy_id).replace(old, new)
    (folder / f"{policy_id}.yaml").write_text(text, encoding="utf-8")


def in_force(installed: Command) -> dict[str, int]:
    """Return the versions of the policies in force, by id."""
    return {one["id"]: one["version"] for one in told(installed("policies", "list", "--tenant", "acme", "--json"))}


def test_apply_shows_the_plan_does_it_and_can_be_repeated(installed: Command, tmp_path: Path) -> None:
    write(tmp_path, "a1")
    write(tmp_path, "a2")
    apply = ("policies", "apply", tmp_path, "--tenant", "acme")

    planned = installed(*apply, "--dry-run")
    assert planned.exit_code == 0
    assert [line.split()[:4] for line in planned.stdout.splitlines()] == [
        ["STEP", "ID", "VERSION", "SAVED"],
        ["create", "a1", "-", "-"],
        ["create", "a2", "-", "-"],
    ]
    assert not {"a1", "a2"} & set(in_force(installed))

    done = told(installed(*apply, "--json"))
    assert [(one["step"], one["id"], one["version"], one["saved"]) for one in done] == [
        ("create", "a1", 1, True),
        ("create", "a2", 1, True),
    ]
    write(tmp_path, "a2", "Ask an administrator", "Ask somebody")
    again = installed(*apply)
    assert again.exit_code == 0
    assert [line.split()[:4] for line in again.stdout.splitlines()[1:]] == [
        ["unchanged", "a1", "1", "-"],
        ["change", "a2", "2", "yes"],
    ]
    (tmp_path / "a1.yaml").unlink()
    kept = told(installed(*apply, "--json"))
    assert {"a1": "keep", "a2": "unchanged"}.items() <= {one["id"]: one["step"] for one in kept}.items()
    assert in_force(installed) == {"a1": 1, "a2": 2}
    assert installed(*apply, "--retire").exit_code == 0
    assert in_force(installed) == {"a2": 2}


def test_apply_refuses_before_it_saves_anything(installed: Command, tmp_path: Path) -> None:
    before = in_force(installed)
    write(tmp_path, "b1")
    for old, new, said in (
        ("!commit.purge", "commit.purge", "b2.yaml: example 1 (no purge): expected allow, found deny"),
        ("roles", "rolls", "b2.yaml:4:27: principal has no field 'rolls'"),
        ("message: Ask", "message: Ask {comit.name}", "b2.yaml:5:1: message: character 5"),
    ):
        write(tmp_path, "b2", old, new)
        done = installed("policies", "apply", tmp_path, "--tenant", "acme")
        assert done.exit_code == 1
        assert said in done.stderr
        assert done.stdout == ""
    assert in_force(installed) == before


def test_apply_without_a_tenant_or_a_database_has_failed(installed: Command, folder: Path) -> None:
    assert installed("policies", "apply", folder, "--tenant", "nobody").exit_code == 2

    @asynccontextmanager
    async def unreachable() -> AsyncIterator[Services]:
        raise LakeproofError("the database cannot be reached")
        yield

    app = typer.Typer(rich_markup_mode=None)
    add_file_commands(app, unreachable)
    done = CliRunner().invoke(app, ["apply", str(folder), "--tenant", "acme", "--json"])
    assert (done.exit_code, told(done)) == (2, {"status": "failed", "message": "the database cannot be reached"})
