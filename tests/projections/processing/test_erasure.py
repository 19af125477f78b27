# SPDX-License-Identifier: Apache-2.0
"""What came from an erased part is in no read model, and live is what a rebuild makes of what is left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from ledger.erasing.rerun import rerun_erasures
from ledger.format.events import ErasureReason, PayloadErased
from ledger.store.read import Log
from projections.entries import LogEntry, PrincipalsErased, principals_erased
from projections.errors import DigestMismatchError, RebuildRunningError
from projections.graph.labels import VertexLabel
from projections.graph.personal_tables import personal_tables
from projections.processing import cursors, generations
from projections.processing.closed_logs import erase_from_closed
from projections.processing.generations import drop_superseded, rebuild
from projections.processing.projection import Transaction
from projections.processing.runner import ProjectionRunner
from projections.relational.catalogs import CatalogsProjection
from testkit.ledger.erasing import key_folder
from testkit.projections.story import ADA, Story, World

EVE = "e0" * 16
SELECTIONS: list[dict[str, Any]] = [
    {"subject": ADA},
    {"index": 0, "name": "principal"},
    {"before": 4},
    {"before": 4, "name": "principal", "type": "commit.decided"},
]


@pytest.fixture
def told(story: Story) -> Story:
    """Ada and Eve have each committed."""
    for _ in range(2):
        story.committed(actor=ADA, principal="ada@example.com")
        story.committed(actor=EVE, principal="eve@example.com")
    return story


async def principals(world: World, log: Log) -> tuple[list[str | None], int]:
    """Return the principals of the commits in order, and how many WriteEvents of the live graph have one."""
    async with world.as_admin() as connection:
        rows = await connection.execute(
            "SELECT principal FROM projections.commits JOIN projections.live USING (log_id, generation) "
            "WHERE projection = 'commits' AND log_id = %s ORDER BY index",
            (log.log_id,),
        )
        named = [name for (name,) in await rows.fetchall()]
        tables = [t for t in await personal_tables(connection, log) if t[1] == VertexLabel.WRITE_EVENT.value]
        schema, table = tables[-1]
        count = await connection.execute(
            f'SELECT count(*) FROM "{schema}"."{table}" WHERE properties::text LIKE \'%%@example.com%%\''  # noqa: S608
        )
        (graph,) = await count.fetchone() or (0,)
    return named, graph


@pytest.fixture
def eraser_dsn(world: World) -> str:
    return world.installation.as_role(world.roles.eraser)


async def carry_out(dsn: str, directory: Path) -> None:
    """Delete what the log says."""
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        await rerun_erasures(connection, key_folder(directory))


@pytest.mark.parametrize(("selected", "batch"), [*((one, 250) for one in SELECTIONS), (SELECTIONS[0], 1)])
async def test_live_after_an_erasure_is_rebuilt_after_it(
    world: World, told: Story, eraser_dsn: str, tmp_path: Path, selected: dict[str, Any], batch: int
) -> None:
    log = await world.new_log()
    await world.project(log, told)
    told.erased(**selected)
    told.committed(actor=EVE, principal="eve@example.com")
    await world.project(log, told, batch_max=batch)
    named, graph = await principals(world, log)
    assert named[0] is None
    assert named[-1] == "eve@example.com"
    assert graph == sum(name is not None for name in named)
    await carry_out(eraser_dsn, tmp_path)
    for projection in world.projections:
        done = await rebuild(world.dsn, projection, log, append=world.attest, batch_max=batch)
        assert done.compared
    assert await principals(world, log) == (named, graph)


async def left(world: World, log: Log) -> dict[str, tuple[int, ...]]:
    """Return the generations that there are, by projection."""
    async with world.as_admin() as connection:
        rows = await connection.execute(
            "SELECT projection, array_agg(generation ORDER BY generation) FROM projections.cursors WHERE log_id = %s"
            " GROUP BY 1",
            (log.log_id,),
        )
        return {name: tuple(numbers) for name, numbers in await rows.fetchall()}


async def test_what_a_rebuild_leaves_behind_goes_with_the_next_erasure(world: World, told: Story) -> None:
    log = await world.new_log()
    told.erased(subject=EVE)
    await world.project(log, told)
    for projection in world.projections:
        await rebuild(world.dsn, projection, log, append=world.attest)
    names = [projection.name for projection in world.projections]
    assert await drop_superseded(world.dsn, world.projections) == []
    assert await left(world, log) == dict.fromkeys(names, (1, 2)), "each was told of the erasure before it went"

    told.erased(subject=ADA)
    await world.project(log, told)
    async with world.as_projector() as rebuilding:
        assert await cursors.try_lock_rebuild(rebuilding, "graph", log.log_id)
        assert await drop_superseded(world.dsn, world.projections) == ["graph"]
        assert await left(world, log) == dict.fromkeys(names, (2,)) | {"graph": (1, 2)}
    assert await drop_superseded(world.dsn, world.projections) == []
    assert await left(world, log) == dict.fromkeys(names, (2,))
    schemas = {schema for schema, _ in await personal(world, log)} - {"projections"}
    assert len(schemas) == 1, "with its graph"
    async with world.as_admin() as connection:
        superseded = "SELECT count(*) FROM projections.commits WHERE log_id = %s AND generation = 1"
        assert await (await connection.execute(superseded, (log.log_id,))).fetchone() == (0,)


async def test_a_reader_of_what_goes_does_not_hold_up_an_erasure_and_it_goes_after_it(
    world: World, told: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "DROP_WAIT_S", 0.05)
    log = await world.new_log()
    await world.project(log, told)
    await rebuild(world.dsn, world.graph, log, append=world.attest)
    told.erased(subject=ADA)
    await world.project(log, told)
    async with world.as_admin() as reader, reader.transaction():
        for schema, table in await personal(world, log):
            await reader.execute(f'LOCK TABLE "{schema}"."{table}" IN ACCESS SHARE MODE')
        assert await drop_superseded(world.dsn, [world.graph]) == ["graph"]
    assert await drop_superseded(world.dsn, [world.graph]) == []
    assert (await left(world, log))["graph"] == (2,)


async def test_a_closed_log_is_not_told_while_a_rebuild_may_have_read_what_is_erased(world: World, told: Story) -> None:
    log = await world.new_log()
    await world.project(log, told)
    await rebuild(world.dsn, world.commits, log, append=world.attest)
    every = dict.fromkeys(("before", "index", "name", "type"))
    erased = PayloadErased(reason=ErasureReason.REQUEST, subject=ADA, **every)
    async with world.as_projector() as rebuilding:
        assert await cursors.try_lock_rebuild(rebuilding, "commits", log.log_id)
        with pytest.raises(RebuildRunningError):
            await erase_from_closed(world.dsn, [world.commits], log, erased)
    assert (await principals(world, log))[0] == ["ada@example.com", "eve@example.com"] * 2
    await erase_from_closed(world.dsn, [world.commits], log, erased)
    assert (await principals(world, log))[0] == [None, "eve@example.com"] * 2
    assert (await left(world, log))["commits"] == (2,)


class ErasingCatalogs(CatalogsProjection):
    """Is the first projection to apply a log's entries, and erases a principal before the next one does."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def apply(self, entries: Sequence[LogEntry], transaction: Transaction) -> None:
        await super().apply(entries, transaction)
        log, every = transaction.log, dict.fromkeys(("before", "index", "name", "type"))
        async with self.world.as_admin() as admin:
            await admin.execute("DELETE FROM ledger.parts WHERE log_id = %s AND subject = %s", (log.log_id, ADA))
        erased = PayloadErased(reason=ErasureReason.REQUEST, subject=ADA, **every)
        await erase_from_closed(self.world.dsn, [self.world.commits, self.world.graph], log, erased)


async def test_what_was_erased_between_two_projections_of_a_closed_log_is_in_neither(world: World, told: Story) -> None:
    log = await world.new_log()
    await world.append(log, told)
    # Both have applied nothing so far, and share the entries: no entry of this log will tell them of the erasure.
    runner = ProjectionRunner(world.dsn, [ErasingCatalogs(world), world.commits, world.graph])
    await runner.catch_up(log.log_id, told.size)
    named, graph = await principals(world, log)
    assert named == [None, "eve@example.com"] * 2
    assert graph == 2


async def personal(world: World, log: Log) -> list[tuple[str, str]]:
    async with world.as_admin() as connection:
        return await personal_tables(connection, log)


async def test_a_principal_that_is_left_over_is_found_by_a_rebuild(
    world: World, told: Story, eraser_dsn: str, tmp_path: Path
) -> None:
    log = await world.new_log()
    told.erased(subject=ADA)
    await world.project(log, told)
    await carry_out(eraser_dsn, tmp_path)
    async with world.as_admin() as admin:
        await admin.execute("UPDATE projections.commits SET principal = 'ada@example.com' WHERE index = 0")
    with pytest.raises(DigestMismatchError):
        await rebuild(world.dsn, world.commits, log, append=world.attest)


async def test_an_erasure_that_comes_late_to_a_projection_changes_nothing(
    world: World, told: Story, eraser_dsn: str, tmp_path: Path
) -> None:
    log = await world.new_log()
    told.erased(subject=ADA)
    await world.append(log, told)
    await carry_out(eraser_dsn, tmp_path)  # before any projection has seen the parts
    await world.runner().catch_up(log.log_id, told.size)
    assert (await principals(world, log))[0] == [None, "eve@example.com"] * 2


@pytest.mark.parametrize(
    ("selected", "concerns"),
    [
        ({"before": 3, "name": "inputs"}, False),
        ({"before": 3, "type": "lineage.received"}, False),
        ({"before": 3}, True),
    ],
)
def test_what_is_about_other_parts_leaves_principals_alone(selected: dict[str, Any], concerns: bool) -> None:
    every = dict.fromkeys(("before", "index", "name", "subject", "type")) | selected
    event = PayloadErased(reason=ErasureReason.RETENTION, **every)

    class Entry:
        index = 7

    found = principals_erased(Entry(), event)  # type: ignore[arg-type]  # it asks for nothing else
    assert found == (PrincipalsErased(at=7, actor=None, index=None, before=3) if concerns else None)
