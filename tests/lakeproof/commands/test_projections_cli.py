# SPDX-License-Identifier: Apache-2.0
"""The commands of the read models, on the test's own database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest
import typer
from typer.testing import CliRunner, Result

from lakeproof.commands import projections as commands
from lakeproof.commands.graph import graph_app
from lakeproof.provision import Provisioned
from lakeproof.services import Services
from ledger.format.sealing import PLAIN
from ledger.store.read import Log
from projections.errors import DigestMismatchError, NotProjectedError, ProjectionError, UnknownTableError
from testkit.projections.story import Story, World

Command = Callable[..., Result]


@pytest.fixture
def world(database: str, installation: Provisioned) -> World:
    return World(database, installation)


@pytest.fixture
def new_story() -> Callable[[], Story]:
    return Story


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def log(world: World) -> Log:
    """The log of a tenant."""
    made: Log = asyncio.run(world.new_log())
    return made


@pytest.fixture
def command(world: World, log: Log, monkeypatch: pytest.MonkeyPatch) -> Command:
    """
    Runs a command as `lakeproof projections` or `lakeproof graph` would, on this test's database.

    Its only named tenant is acme.
    """

    async def find_tenant(_services: Services, name: str) -> tuple[UUID | None, int]:
        assert name == "acme"
        return log.tenant, log.log_id

    monkeypatch.setattr(commands, "find_tenant", find_tenant)
    monkeypatch.setattr(commands, "attest", lambda _services, log, attested: world.attest(log, attested))
    services = cast("Services", SimpleNamespace(installation=world.installation, opener=PLAIN))
    app = typer.Typer(rich_markup_mode=None)
    for made in (commands.projections_app, graph_app):
        app.add_typer(made(lambda: nullcontext(services), world.projections))
    return lambda *arguments: CliRunner().invoke(app, arguments)


@pytest.fixture
def projected(world: World, log: Log, story: Story) -> int:
    """A few entries that every projection has; the number of them."""
    story.policy("no-drops")
    story.committed()
    asyncio.run(world.project(log, story))
    size: int = story.size
    return size


def states(command: Command) -> dict[str, tuple[object, ...]]:
    result = command("status", "--json")
    assert result.exit_code == 0, result.output
    return {
        row["projection"]: (row["state"], row["generation"], row["next_index"], row["lag_entries"])
        for row in json.loads(result.stdout)
    }


def test_the_status_says_of_every_projection_how_far_it_is(command: Command, log: Log, projected: int) -> None:
    current = ("current", 1, projected, 0)
    assert states(command) == dict.fromkeys(("commits", "findings", "graph", "lineage", "metrics"), current)
    table = command("status").stdout
    assert table.splitlines()[0].split() == [
        "LOG", "PROJECTION", "STATE", "GENERATION", "VERSION", "NEXT", "INDEX", "SIZE", "LAG", "ENTRIES",
    ]  # fmt: skip
    assert table.count(log.origin) == 5


def test_the_status_tells_a_lag_and_a_log_that_nobody_has_seen(
    command: Command, world: World, log: Log, story: Story
) -> None:
    assert states(command)["graph"] == ("not begun", None, 0, 0)
    story.committed()
    asyncio.run(world.project(log, story))
    story.committed()
    asyncio.run(world.append(log, story))
    assert states(command)["graph"] == ("behind", 1, 2, 2)


def test_the_status_tells_a_generation_of_another_version(command: Command, world: World, projected: int) -> None:
    world.graph.version = 7
    assert states(command)["graph"][0] == "other version"
    assert states(command)["commits"][0] == "current"


def test_a_rebuild_prints_the_digest_and_is_attested(command: Command, world: World, log: Log, projected: int) -> None:
    result = command("rebuild", "graph")
    assert result.exit_code == 0, result.exception
    [(attested_log, attested)] = world.attested
    assert (attested_log, attested.size, attested.generation) == (log, projected, 2)
    assert result.stdout == (
        f"graph of {log.origin}: generation 1 -> 2 from {projected} entries; digests equal: {attested.digest}; "
        "attested in the log\n"
    )
    assert states(command)["graph"][1] == 2


def test_a_rebuild_that_finds_another_digest_switches_nothing_and_replace_does(
    command: Command, world: World, log: Log, projected: int
) -> None:
    async def tamper() -> None:
        async with world.as_admin() as connection:
            await connection.execute("UPDATE projections.commits SET operation = 'forged'")

    asyncio.run(tamper())
    refused = command("rebuild", "commits", "--tenant", "acme")
    assert isinstance(refused.exception, DigestMismatchError)
    assert states(command)["commits"][1] == 1
    replaced = command("replace", "commits", "--log", log.origin)
    assert replaced.exit_code == 0, replaced.exception
    assert "not compared, digest" in replaced.stdout
    assert command("rebuild", "commits").exit_code == 0


def test_prune_drops_what_rebuilds_have_left(command: Command, log: Log, projected: int) -> None:
    command("rebuild", "metrics")
    pruned = command("prune")
    assert pruned.stdout == f"metrics of {log.origin}: generation 1 dropped\n1 generations dropped\n"
    assert command("prune", "--tenant", "acme").stdout == "0 generations dropped\n"
    assert states(command)["metrics"][1] == 2


def test_a_log_that_nobody_has_seen_is_passed_over_unless_it_is_named(command: Command, log: Log) -> None:
    everything = command("rebuild", "graph")
    assert everything.exit_code == 0
    assert everything.stdout == "no log has the projection graph yet: `lakeproof up` makes it\n"
    assert isinstance(command("rebuild", "graph", "--log", log.origin).exception, NotProjectedError)


def test_a_projection_or_log_that_is_not_there_is_named(command: Command) -> None:
    for arguments in (("rebuild", "map"), ("rebuild", "graph", "--log", "example.com/none")):
        refused = command(*arguments)
        assert isinstance(refused.exception, ProjectionError), arguments
        assert arguments[-1] in str(refused.exception)


def test_the_graph_answers_for_a_table_as_text_as_json_and_as_a_picture(
    command: Command, projected: int, tmp_path: Path
) -> None:
    told = command("show", "lake.sales.orders")
    assert told.exit_code == 0, told.exception
    lines = told.stdout.splitlines()
    assert lines[0] == "sales.orders in lake"
    assert [line for line in lines if line.endswith("?")] == [
        "Who wrote it?",
        "From what was it made?",
        "Which policy allowed it?",
        "What was found in it?",
        "Who else reads it?",
    ]
    assert "  entry 1: ada@example.com, table.commit, accepted" in lines
    assert "  no-drops v1, on write" in lines
    picture = tmp_path / "orders.svg"
    as_json = command("show", "table:lake/sales/orders", "--json", "--svg", str(picture))
    assert [write["principal"] for write in json.loads(as_json.stdout)["writes"]] == ["ada@example.com"]
    assert picture.read_text().startswith("<svg ")


def test_traversals_are_asked_for_by_name(command: Command, projected: int) -> None:
    impact = command("traverse", "impact_analysis", "lake.sales.orders", "--hops", "5")
    assert impact.exit_code == 0, impact.exception
    assert "Tables made from it" in impact.stdout.splitlines()
    gone = command("traverse", "pii_propagation", "lake.sales.orders", "--json")
    told = json.loads(gone.stdout)
    assert {name: told[name] for name in ("table", "found", "columns", "tables", "omitted", "lag_entries")} == {
        "table": "table:lake/sales/orders",
        "found": [],
        "columns": [],
        "tables": [],
        "omitted": {},
        "lag_entries": 0,
    }
    assert told["evidence"]["gaps"] == ["no snapshot of it is known, so nothing was looked at"]
    assert isinstance(command("traverse", "impact_analysis", "lake.sales.orders", "--hops", "6").exception, Exception)
    assert command("traverse", "everything", "lake.sales.orders").exit_code == 2


def test_a_mistyped_name_is_an_error_of_every_traversal(command: Command, projected: int) -> None:
    for preset in ("impact_analysis", "pii_propagation"):
        refused = command("traverse", preset, "lake.sales.oders")
        assert isinstance(refused.exception, UnknownTableError), preset
        assert refused.exit_code == 1
        assert "no entry names it" in str(refused.exception)


def test_an_answer_says_how_far_behind_the_log_the_graph_is(
    command: Command, world: World, log: Log, projected: int, story: Story
) -> None:
    story.committed()
    asyncio.run(world.append(log, story))
    told = command("traverse", "pii_propagation", "lake.sales.orders")
    assert "The graph is 2 entries behind the log" in told.stdout


def test_a_question_that_cannot_be_answered_says_why(command: Command, projected: int) -> None:
    for arguments, said in (
        (("lake.sales.none",), "no entry names it"),
        (("orders",), "expected <catalog>"),
        (("lake.sales.orders", "--svg", "/nowhere/at/all.svg"), "cannot be written"),
        (("lake.sales.orders", "--log", "example.com/none"), "example.com/none"),
    ):
        refused = command("show", *arguments)
        assert isinstance(refused.exception, ProjectionError), arguments
        assert said in str(refused.exception)


def test_with_several_tenants_the_one_that_is_meant_has_to_be_named(
    command: Command, world: World, log: Log, projected: int, new_story: Callable[[], Story]
) -> None:
    other = asyncio.run(world.new_log())
    asyncio.run(world.project(other, new_story()))
    refused = command("show", "lake.sales.orders")
    assert isinstance(refused.exception, ProjectionError)
    assert "--tenant" in str(refused.exception)
    assert command("show", "lake.sales.orders", "--tenant", "acme").exit_code == 0
    assert "no entry names it" in str(command("show", "lake.sales.orders", "--log", other.origin).exception)


def test_a_log_without_a_graph_is_said_so(command: Command, log: Log) -> None:
    assert isinstance(command("show", "lake.sales.orders", "--log", log.origin).exception, NotProjectedError)


@pytest.mark.parametrize(
    "arguments",
    [
        ("rebuild",),
        ("rebuild", "graph", "metrics"),
        ("status", "graph"),
        ("forget",),
        ("show",),
        ("traverse", "a.b.c"),
    ],
)
def test_a_command_that_is_called_wrongly_opens_nothing(arguments: tuple[str, ...]) -> None:
    app = typer.Typer(rich_markup_mode=None)
    for made in (commands.projections_app, graph_app):
        app.add_typer(made(lambda: pytest.fail("nothing may be opened")))
    assert CliRunner().invoke(app, arguments).exit_code == 2
