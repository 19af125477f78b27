# SPDX-License-Identifier: Apache-2.0
"""
The commands on restrictions: what they print, for people and for programs, and how they end.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from typer.testing import CliRunner, Result

from gateway.admin.restriction_edits import NOT_ENFORCED
from gateway.policy.engine import EngineUnavailableError
from gateway.policy.policy_files import PolicyFileError
from gateway.policy.pool import WorkerEngine
from lakeproof.commands.exits import REFUSED
from lakeproof.commands.refusals import FAILED
from lakeproof.commands.restrictions import restrictions_app
from testkit.lakeproof.commands import services_of
from testkit.servers.forked_workers import fork_worker
from testkit.servers.gateways import Gateway

Command = Callable[..., Result]

EU: Final = """\
id: eu-orders
reason: contracts
scope: {names: [sales.orders]}
filter: row.region == 'EU'
masks:
  - {column: email, action: show-last-4, unless: "'support' in principal.groups"}
schemas:
  orders:
    fields:
      - {id: 1, name: id, required: true, type: long}
      - {id: 2, name: region, required: false, type: string}
      - {id: 3, name: email, required: false, type: string}
examples:
  - name: an analyst
    rows:
      - {row: {id: 1, region: EU, email: ada@acme.example}, expect: shown, values: {email: xxx@xxxx.xxxmple}}
      - {row: {id: 2}, expect: hidden}
"""


async def _no_services() -> None:
    raise AssertionError("this command works without a database")


def app_of(spawn: Any = fork_worker) -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)
    made = restrictions_app(_no_services, lambda: WorkerEngine(waiting_s=60, spawn=spawn))  # type: ignore[arg-type]
    app.add_typer(made, name="restrictions")
    return app


@pytest.fixture
def command() -> Command:
    return lambda *arguments: CliRunner().invoke(app_of(), ["restrictions", *map(str, arguments)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "eu-orders.yaml"
    path.write_text(EU, encoding="utf-8")
    return path


def test_examples_that_hold_end_with_zero_and_say_that_reads_do_not_enforce_them(command: Command, file: Path) -> None:
    done = command("test", file)
    assert (done.exit_code, done.stdout) == (0, "eu-orders: fits 1 schema(s), 1 example(s), which hold\n"), done
    assert NOT_ENFORCED in done.stderr
    (told,) = json.loads(command("test", file.parent, "--json").stdout)
    assert (told["id"], told["refused"], told["failing"], told["enforced"]) == ("eu-orders", None, [], False)
    (compiled,) = told["compiled"]
    assert (compiled["example"], compiled["schema"]) == ("an analyst", "orders")
    assert compiled["read-restrictions"] == {
        "required-row-filter": {
            "type": "eq",
            "left": {"type": "reference", "id": 2},
            "right": {"type": "literal", "value": "EU"},
        },
        "required-column-projections": [{"field-id": 3, "action": "show-last-4"}],
    }


def test_an_example_that_does_not_hold_is_named_and_ends_with_one(command: Command, file: Path) -> None:
    file.write_text(EU.replace("expect: hidden", "expect: shown"), encoding="utf-8")
    done = command("test", file)
    assert done.exit_code == REFUSED
    assert "  example 1 (an analyst), row 2: expected it to be shown, found it hidden\n" in done.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("row.region == 'EU'", "row.regoin == 'EU'", "eu-orders.yaml:4:9: filter: there is no column 'regoin'"),
        ("row.region == 'EU'", "size(row.region) == 2", "eu-orders.yaml:4:9: filter: expected a literal"),
        ("'support' in principal.groups", "row.id == 1", "eu-orders.yaml:6:51: masks[0].unless: the condition"),
        ("show-last-4", "truncate-to-year", "eu-orders.yaml:6:21: masks[0].action: truncate-to-year is not for"),
        ("type: long", "type: longer", "eu-orders.yaml:10:43: schemas.orders.fields[0].type: expected a type"),
    ],
)
def test_what_is_refused_is_refused_with_its_place(
    command: Command, file: Path, right: str, wrong: str, told: str
) -> None:
    assert right in EU
    file.write_text(EU.replace(right, wrong), encoding="utf-8")
    done = command("test", file)
    assert done.exit_code == REFUSED, done
    assert told in done.stdout + done.stderr


def test_what_cannot_be_tested_is_no_verdict(file: Path) -> None:
    async def no_worker(_: int) -> Any:
        raise EngineUnavailableError("no process can be started")

    done = CliRunner().invoke(app_of(no_worker), ["restrictions", "test", str(file)])
    assert done.exit_code == FAILED, done


async def test_a_restriction_is_saved_shown_changed_and_deleted(gateway: Gateway, file: Path) -> None:
    app = typer.Typer(rich_markup_mode=None)
    app.add_typer(restrictions_app(services_of(gateway.services.installation)), name="restrictions")

    async def run(*arguments: object) -> Result:
        words = ["restrictions", *map(str, arguments), "--tenant", "acme"]
        return await asyncio.to_thread(CliRunner().invoke, app, words)

    created = await run("create", "--file", file)
    assert created.exit_code == 0, created
    assert "restriction eu-orders (version 1) of tenant acme is saved" in created.stdout
    assert NOT_ENFORCED in created.stderr
    shown = json.loads((await run("show", "eu-orders", "--json")).stdout)
    assert (await gateway.http.get("/v1/restrictions/eu-orders")).json() == shown
    assert shown["note"] == NOT_ENFORCED
    await asyncio.to_thread(file.write_text, EU.replace("row.region == 'EU'", "row.region in ['EU', 'UK']"))
    assert json.loads((await run("change", "eu-orders", "--file", file, "--json")).stdout)["version"] == 2
    listed = await run("list")
    assert "email: show-last-4" in listed.stdout
    assert NOT_ENFORCED in listed.stderr
    versions = json.loads((await run("list", "--versions-of", "eu-orders", "--json")).stdout)
    assert [one["filter"] for one in versions] == ["row.region == 'EU'", "row.region in ['EU', 'UK']"]
    assert json.loads((await run("show", "eu-orders", "--version", "1", "--json")).stdout) == versions[0]
    assert "email: show-last-4" in (await run("list", "--versions-of", "eu-orders")).stdout
    assert "+row.region in ['EU', 'UK']\n" in (await run("diff", "eu-orders")).stdout
    same = await run("diff", "eu-orders", "--from", "2", "--to", "2")
    assert same.stdout == "version 2 and version 2 of restriction eu-orders are the same\n"
    assert json.loads((await run("diff", "eu-orders", "--json")).stdout)["from"] == "version 1"
    drafted = await run("draft", "eu-orders", "--file", file, "--reason", "again")
    assert "version 1 of the draft of restriction eu-orders waits for a review" in drafted.stdout, drafted
    (draft,) = json.loads((await run("list", "--drafts", "--json")).stdout)
    assert (draft["reason"], draft["retires"]) == ("again", False)
    assert json.loads((await run("show", "eu-orders", "--version", "draft", "--json")).stdout)["id"] == "eu-orders"
    assert "are the same" in (await run("diff", "eu-orders", "--to", "draft")).stdout
    own = await run("review", "eu-orders", "--version", "1", "--verdict", "approve")
    assert "another person than the author" in str(own.exception)
    over = await run("review", "eu-orders", "--version", "1", "--verdict", "refuse")
    assert over.stdout == "the draft of restriction eu-orders is refused\n"
    for wrong in (["draft", "eu-orders"], ["draft", "eu-orders", "--retire", "--file", file]):
        assert "either --file" in str((await run(*wrong)).exception)
    assert "--verdict" in str((await run("review", "eu-orders", "--version", "1", "--verdict", "no")).exception)
    refused = await run("change", "other", "--file", file)
    assert isinstance(refused.exception, PolicyFileError)
    await asyncio.to_thread(file.write_text, EU.replace("row.region ==", "row.regoin =="))
    refused = await run("change", "eu-orders", "--file", file)
    assert "eu-orders.yaml:4:9: filter: there is no column 'regoin'" in str(refused.exception)
    gone = await run("delete", "eu-orders", "--json")
    assert gone.exit_code == 0, gone
    assert (await gateway.http.get("/v1/restrictions")).json() == {"restrictions": []}
