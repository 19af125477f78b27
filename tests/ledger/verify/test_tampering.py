# SPDX-License-Identifier: Apache-2.0
"""Every kind of change to a log is found, with its class and the first bad index; what is not is listed, and why."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from lakeproof.provision import Provisioned
from ledger.errors import BrokenError, Fault
from ledger.verify.indexes import check_indexes
from testkit.environment import PROJECT
from testkit.ledger.tampering.classes import CLASSES
from testkit.ledger.tampering.columns import COLUMNS
from testkit.ledger.tampering.files import FILES, Export, run_file_instance
from testkit.ledger.tampering.history import HISTORY, relinked, retold, rewrite_with_key
from testkit.ledger.tampering.instances import (
    EFFORTS,
    EXACT,
    FAST,
    Instance,
    Tampering,
    Verdict,
    World,
    faulty,
    run_instance,
    seeded,
)
from testkit.ledger.tampering.kernel import counted_pages, pages_of
from testkit.ledger.tampering.limits import NOT_COVERED
from testkit.ledger.tampering.nulls import NOTHING, NULL_NOT_COVERED, NULLS
from testkit.ledger.tampering.proofs import KINDS, make_bundle, make_proof, run_proof_instance
from testkit.ledger.tampering.tables import ENTRIES, hold, set_back
from testkit.ledger.tampering.tiles_and_parts import TILES_AND_PARTS
from testkit.ledger.tampering.world import open_world

INSTANCES = len(EFFORTS)
FAMILIES: Mapping[str, Mapping[str, Tampering]] = {
    "columns": {f"{table}.{column}": tampering for (table, column), tampering in COLUMNS.items()},
    "entries": {name: CLASSES[name] for name in (tampering.__name__ for tampering in ENTRIES)},
    "history": {name: CLASSES[name] for name in (tampering.__name__ for tampering in HISTORY)},
    "beside": TILES_AND_PARTS,
    "nulls": {f"{table}.{column} NULL": tampering for (table, column), tampering in NULLS.items()},
    "nothing": NOTHING,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def written(
    module_database: str, module_installation: Provisioned, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    async with open_world(module_database, module_installation, tmp_path_factory.mktemp("world")) as world:
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(written: World) -> AsyncIterator[World]:
    """The world of this module, whose every row is put back afterwards."""
    yield written
    await written.restore(faulty(all_rows=True))


async def check_clean(world: World, logs: Sequence[str] = ("one",)) -> None:
    """Check that nothing is said against logs, and that fast means fast: the kernel accepts every page."""
    for log in logs:
        state = world.logs[log]
        read = {log, "system"}  # which is verified with every other
        for effort, pages in ((EXACT, 0), (FAST, pages_of(*(world.logs[name].size for name in read)))):
            with counted_pages() as accepted:
                report = await world.verify(log, effort=effort)
            assert (report.size, accepted.pages) == (state.size, pages)


def check_clean_export(export: Export) -> None:
    clean = faulty(held=tuple(export.state.notes.values()))
    for effort, pages in ((EXACT, 0), (FAST, pages_of(export.state.size))):
        with counted_pages() as accepted:
            verdict = export.verdict(clean, effort=effort)
        assert (verdict, accepted.pages) == (Verdict(None), pages)


def check_instances(instances: Sequence[Instance]) -> None:
    """Check that the right thing was said of each, and that each class was tried both ways."""
    assert [str(instance) for instance in instances if not instance.ok] == []
    tried = {(instance.name, instance.effort) for instance in instances}
    assert tried == {(name, effort) for name, _ in tried for effort in EFFORTS}
    accepted = {effort: sum(one.pages_accepted for one in instances if one.effort == effort) for effort in EFFORTS}
    assert accepted["exact"] == 0 < accepted["fast"]


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_is_said_against_logs_that_nobody_has_changed(world: World) -> None:
    await check_clean(world, ["one", "other", "system"])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.asyncio(loop_scope="module")
async def test_every_change_in_the_database_is_found_and_named(world: World, family: str) -> None:
    check_instances(
        [
            await run_instance(world, name, tampering, number)
            for name, tampering in FAMILIES[family].items()
            for number in range(INSTANCES)
        ]
    )
    await check_clean(world)


def test_the_families_hold_every_class() -> None:
    assert sorted(name for family in FAMILIES.values() for name in family) == sorted(CLASSES)
    assert len(CLASSES) + len(FILES) + len(KINDS) > 90


@pytest.mark.asyncio(loop_scope="module")
async def test_every_column_of_the_log_is_covered_or_said_not_to_be_and_so_is_null_in_it(world: World) -> None:
    query = "SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = 'ledger'"
    columns = set(await world.rows(query))
    assert columns == set(COLUMNS) | set(NOT_COVERED)
    assert set(COLUMNS) & set(NOT_COVERED) == {("parts", "key_id")}
    assert all(len(reason) > 40 for reason in (*NOT_COVERED.values(), *NULL_NOT_COVERED.values()))
    tables = {table for table, _ in COLUMNS} | {"erased_subjects", "cosignatures", "stamps"}
    assert {at for at in columns if at[0] in tables} == set(NULLS) | set(NULL_NOT_COVERED)
    assert set(NULLS) & set(NULL_NOT_COVERED) == set()
    assert await world.rows(f"{query} AND is_nullable = 'NO'") == []


def test_every_table_with_a_column_that_is_not_covered_stands_in_the_auditor_s_list() -> None:
    page = (PROJECT / "docs" / "auditing.md").read_text(encoding="utf-8")
    forged = page.partition("## What a database administrator can still forge unseen")[2]
    assert [table for table in sorted({table for table, _ in NOT_COVERED}) if f"`{table}`" not in forged] == []


@pytest.mark.parametrize(
    ("column", "value"), [("subject", "'ee' || substr(subject, 3)"), ("key_id", "gen_random_uuid()")]
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_sealed_part_that_is_hidden_is_reported_as_not_looked_at(world: World, column: str, value: str) -> None:
    before = await world.verify("one")
    statement = f"UPDATE ledger.parts SET {column} = {value} WHERE log_id = %s AND key_id IS NOT NULL"  # noqa: S608
    changed = await world.execute(statement, world.logs["one"].log_id)
    report = await world.verify("one")
    assert set(report.unchecked) - set(before.unchecked) == {f"{changed} sealed payload parts whose keys are not here"}


@pytest.mark.asyncio(loop_scope="module")
async def test_what_nobody_has_signed_can_be_rewritten_by_who_owns_the_database(world: World) -> None:
    state = world.logs["one"]
    index = state.signed + 2
    await hold(world, state, relinked(state.rows, index, retold(state.rows[index], seeded("tail"))), at=index)
    report = await world.verify("one")
    assert (report.size, report.signed_size) == (state.size, state.signed)
    held = (state.notes[state.signed],)
    assert (await world.verify("one", held=held)).root == report.root


@pytest.mark.asyncio(loop_scope="module")
async def test_with_the_key_and_the_system_log_everything_can_be_rewritten_but_not_what_is_held_elsewhere(
    world: World,
) -> None:
    state, system = world.logs["one"], world.logs["system"]
    await rewrite_with_key(world, seeded("key"), 0)
    anchored = await world.verdict(faulty(Fault.ANCHOR))
    assert anchored.fault is Fault.ANCHOR
    await set_back(world, system, min(system.notes))
    assert (await world.verdict(faulty())).fault is None
    for size, note in state.notes.items():
        held = await world.verdict(faulty(Fault.ROOT, held=(note,)))
        assert (held.fault, held.index) == (Fault.ROOT, None), size


SECOND_ROWS = (
    ("heads", "log_id, size, last, frontier, control_index", "log_id, size, last, frontier, control_index", Fault.HEAD),
    ("heads", "log_id, size, last, frontier, control_index", "log_id, 3, last, frontier, -1", Fault.HEAD),
    ("tiles", "log_id, level, tile, hashes", "log_id, level, tile, sha256(hashes)", Fault.TILE),
    ("tiles", "log_id, level, tile, hashes", "log_id, level, tile, hashes", Fault.TILE),
    ("checkpoints", "log_id, size, note", "log_id, size, note || note", Fault.CHECKPOINT),
    ("parts", "log_id, index, name, sealed", "log_id, index, name, sealed || sealed", Fault.PART),
    (
        "parts",
        "log_id, index, name, subject, key_id, sealed",
        "log_id, index, name, subject, key_id, sealed",
        Fault.PART,
    ),
)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_second_row_is_found_where_no_index_is_left_that_kept_it_out(world: World) -> None:
    for table, columns, values, fault in SECOND_ROWS:
        ((definition,),) = await world.rows(f"SELECT pg_get_indexdef('ledger.{table}_pkey'::regclass)")
        await world.execute(f"DROP INDEX ledger.{table}_pkey")
        statement = f"INSERT INTO ledger.{table} ({columns}) SELECT {values} FROM saved.{table} WHERE log_id = %s"  # noqa: S608
        await world.execute(statement, world.logs["one"].log_id)
        tampered = faulty(fault, all_rows=True)
        found = [(await world.verdict(tampered, effort=effort)).fault for effort in (EXACT, FAST)]
        assert (table, values, found) == (table, values, [fault, fault])
        await world.restore(tampered)
        await world.execute(definition)
    await check_clean(world)


@pytest.mark.asyncio(loop_scope="module")
async def test_an_index_that_is_not_there_is_a_fault_of_its_table(world: World) -> None:
    faults = {"entries": Fault.DERIVED, "checkpoints": Fault.CHECKPOINT, "parts": Fault.PART}
    for name in ("entries_group", "entries_schema", "checkpoints_pkey", "parts_subject"):
        ((definition,),) = await world.rows(f"SELECT pg_get_indexdef('ledger.{name}'::regclass)")
        await world.execute(f"DROP INDEX ledger.{name}")
        verdict = [await world.verdict(faulty(), effort=effort) for effort in (EXACT, FAST)]
        await world.execute(definition)
        assert {one.fault for one in verdict} == {faults[name.partition("_")[0]]}, name
        assert f"ledger.{name}: expected an index, found none" in verdict[0].text
    await check_clean(world)


@pytest.mark.asyncio(loop_scope="module")
async def test_rows_are_compared_with_indexes_of_a_log_that_has_grown_meanwhile_and_not_of_one_that_has_shrunk(
    world: World,
) -> None:
    state, connection = world.logs["one"], world.auditor
    for size in (0, 255, state.size):
        # Eight indexes on entries, one on checkpoints, two on parts; the rows beside them are the head and the tiles.
        assert (await check_indexes(connection, state.log, size=size)).startswith("11 indexes against ")
    for size, fault in ((state.size + 1, Fault.INDEX), (768, Fault.TILE)):
        with pytest.raises(BrokenError) as caught:
            await check_indexes(connection, state.log, size=size)
        assert caught.value.fault is fault


@pytest.mark.asyncio(loop_scope="module")
async def test_a_stamp_that_nobody_asks_for_says_nothing_against_a_log(world: World) -> None:
    newest = "SELECT log_id, max(size) FROM ledger.checkpoints GROUP BY log_id"
    for columns in ("'infinity', ''", "'-infinity', ''", "'20000-01-01', ''", "NULL, NULL"):
        assert await world.execute(f"INSERT INTO ledger.stamps SELECT *, {columns} FROM ({newest}) AS newest")  # noqa: S608
        for log, state in world.logs.items():
            assert (await world.verify(log)).size == state.size
        await world.restore(faulty())


@pytest.mark.asyncio(loop_scope="module")
async def test_a_removed_part_and_a_removed_old_checkpoint_are_not_missed(world: World) -> None:
    log_id = world.logs["one"].log_id
    parts = (await world.verify("one")).parts
    first = "SELECT min(index) FROM ledger.parts WHERE log_id = %s"
    assert await world.execute(f"DELETE FROM ledger.parts WHERE log_id = %s AND index = ({first})", log_id, log_id)  # noqa: S608
    assert await world.execute("DELETE FROM ledger.checkpoints WHERE log_id = %s AND size = 256", log_id)
    report = await world.verify("one")
    assert (report.parts, report.checkpoints) == (parts - 1, len(world.logs["one"].notes) - 1)


def test_every_change_in_an_exported_directory_is_found_and_named(tmp_path: Path) -> None:
    export = Export(tmp_path)
    check_clean_export(export)
    done = [run_file_instance(export, name, number) for name in FILES for number in range(INSTANCES)]
    check_instances(done)
    check_clean_export(export)


@pytest.mark.parametrize("kind", KINDS)
def test_every_change_of_a_proof_or_a_bundle_is_refused(tmp_path: Path, kind: str) -> None:
    data = make_proof(seeded("proof")) if kind == "proof" else make_bundle(tmp_path)
    for number in range(100):
        instance = run_proof_instance(kind, data, number)
        assert instance.ok, str(instance)
