# SPDX-License-Identifier: Apache-2.0
"""
`lakeproof lineage show`, on the test's own database.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest
from typer.testing import CliRunner, Result

from lakeproof.commands import lineage as commands
from lakeproof.provision import Provisioned
from lakeproof.services import Services
from ledger.format.sealing import PLAIN
from ledger.store.read import Log
from projections.errors import ProjectionError, UnknownTableError
from projections.lineage.data_names import key_of_data
from projections.lineage.projection import LineageProjection
from testkit.projections.lineage_stories import FACET, key, run_event, tell, topic, topics_event
from testkit.projections.story import Story, World

Command = Callable[..., Result]


@pytest.fixture
def world(database: str, installation: Provisioned) -> World:
    return World(database, installation)


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def log(world: World, story: Story) -> Log:
    """A log in which b was made from a, and columns of c from b; that a is made from c was refused."""
    world.projections = (LineageProjection(),)
    facet = {
        **FACET,
        "fields": {"email": {"inputFields": [{**topic("b"), "field": "mail"}]}},
        "dataset": [{**topic("b"), "field": "day"}],
    }
    tell(story, topics_event((["a"], ["b"])))
    tell(story, run_event([topic("b")], [{**topic("c"), "facets": {"columnLineage": facet}}], number=1))
    tell(story, topics_event((["c"], ["a"]), number=2))

    async def play() -> Log:
        log = await world.new_log()
        await world.project(log, story)
        return log

    return asyncio.run(play())


@pytest.fixture
def command(world: World, log: Log, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command as `lakeproof lineage` would, on this test's database, whose only named tenant is acme."""

    async def find_tenant(_services: Services, name: str) -> tuple[UUID | None, int]:
        assert name == "acme"
        return log.tenant, log.log_id

    monkeypatch.setattr(commands, "find_tenant", find_tenant)
    services = cast("Services", SimpleNamespace(installation=world.installation, opener=PLAIN))
    return lambda *arguments: CliRunner().invoke(commands.lineage_app(lambda: nullcontext(services)), arguments)


def test_a_table_is_shown_with_what_it_was_made_from_and_what_of_it(command: Command) -> None:
    result = command("show", key("c"), "--json")
    assert result.exit_code == 0, result.exception
    shown = json.loads(result.stdout)
    assert [(edge["hops"], edge["source"], edge["target"]) for edge in shown["upstream"]] == [
        (1, key("b"), key("c")),
        (2, key("a"), key("b")),
    ]
    assert shown["upstream"][0]["job"] == "pipeline:etl/job1"
    assert shown["downstream"] == []
    assert [(column["target_column"], column["source_column"]) for column in shown["columns"]] == [
        ("", "day"),
        ("email", "mail"),
    ]
    (cycle,) = shown["cycles"]
    assert cycle["path"] == [key("a"), key("b"), key("c")]
    assert (cycle["source"], cycle["target"], cycle["told_index"], cycle["count"]) == (key("c"), key("a"), None, 1)
    assert {row["key"]: row["refused"] for row in shown["omitted"]} == {key("a"): 1, key("c"): 1}


def test_hops_bound_how_far_is_looked(command: Command) -> None:
    near = json.loads(command("show", key("a"), "--hops", "1", "--json", "--tenant", "acme").stdout)
    far = json.loads(command("show", key("a"), "--hops", "5", "--json").stdout)
    assert [edge["target"] for edge in near["downstream"]] == [key("b")]
    assert [edge["target"] for edge in far["downstream"]] == [key("b"), key("c")]
    assert command("show", key("a"), "--hops", "6").exit_code == 2


def test_for_people_there_are_tables(command: Command) -> None:
    text = command("show", key("c")).stdout
    for words in ("made from", "made of it", "(every one)", "not drawn", "omitted", "pipeline:etl/job1", "none"):
        assert words in text


def test_of_a_table_that_was_told_of_without_lineage_there_is_nothing_and_of_any_other_an_error(
    command: Command, world: World, log: Log, story: Story
) -> None:
    refused = command("show", "lake.sales.orders")
    assert isinstance(refused.exception, UnknownTableError)
    assert refused.exit_code == 1
    story.committed()
    asyncio.run(world.project(log, story))
    shown = json.loads(command("show", "lake.sales.orders", "--json").stdout)
    assert shown["key"] == "table:lake/sales/orders"
    assert not any(shown[name] for name in ("upstream", "downstream", "columns", "cycles", "omitted"))


def test_of_several_tenants_one_must_be_named(command: Command, world: World) -> None:
    asyncio.run(world.new_log())
    refused = command("show", key("a"))
    assert isinstance(refused.exception, ProjectionError)
    assert "--tenant" in str(refused.exception)
    assert command("show", key("a"), "--tenant", "acme").exit_code == 0


@pytest.mark.parametrize("text", ["orders", "sales.orders", "a..b", "run:x", "table:a//b", "dataset:ä/b", ""])
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(ProjectionError, match=r"expected alias\.namespace\.table"):
        key_of_data(text)


def test_a_table_is_named_as_engines_do_or_by_its_key() -> None:
    assert key_of_data("lake.sales.eu.orders") == "table:lake/sales/eu/orders"
    assert key_of_data("dataset:file/%2Fx") == "dataset:file/%2Fx"
