"""Every kind of change to a log is found, with its class and the first bad index; what is not is listed, and why."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from lakeproof.provision import Installation
from ledger.errors import Fault
from tests.ledger.tampering import EXACT, FAST, Tampering, World, faulty, run_instance, seeded
from tests.ledger.tampering_beside import BESIDE
from tests.ledger.tampering_classes import CLASSES
from tests.ledger.tampering_columns import COLUMNS
from tests.ledger.tampering_files import FILES, Export, run_file_instance
from tests.ledger.tampering_history import HISTORY, relinked, retold, rewrite_with_key
from tests.ledger.tampering_limits import NOT_COVERED
from tests.ledger.tampering_proofs import KINDS, make_bundle, make_proof, run_proof_instance
from tests.ledger.tampering_tables import ENTRIES, hold, set_back
from tests.ledger.tampering_world import open_world

INSTANCES = 3
FAMILIES: Mapping[str, Mapping[str, Tampering]] = {
    "columns": {f"{table}.{column}": tampering for (table, column), tampering in COLUMNS.items()},
    "entries": {name: CLASSES[name] for name in (tampering.__name__ for tampering in ENTRIES)},
    "history": {name: CLASSES[name] for name in (tampering.__name__ for tampering in HISTORY)},
    "beside": BESIDE,
}


@pytest.fixture
async def world(database: str, installation: Installation, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(database, installation, tmp_path) as world:
        yield world


async def check_clean(world: World) -> None:
    for log in world.logs:
        for effort in (EXACT, FAST):
            report = await world.verify(log, effort=effort)
            assert report.size == world.logs[log].size


@pytest.mark.parametrize("family", FAMILIES)
async def test_every_change_in_the_database_is_found_and_named(world: World, family: str) -> None:
    await check_clean(world)
    for name, tampering in FAMILIES[family].items():
        for number in range(INSTANCES):
            instance = await run_instance(world, name, tampering, number)
            assert instance.ok, str(instance)
    await check_clean(world)


def test_the_families_hold_every_class() -> None:
    assert sorted(name for family in FAMILIES.values() for name in family) == sorted(CLASSES)
    assert len(CLASSES) + len(FILES) + len(KINDS) > 90


async def test_every_column_of_the_log_is_covered_or_said_not_to_be(world: World) -> None:
    query = "SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = 'ledger'"
    assert {(table, column) for table, column in await world.rows(query)} == set(COLUMNS) | set(NOT_COVERED)
    assert set(COLUMNS) & set(NOT_COVERED) == {("parts", "key_id")}
    assert all(len(reason) > 40 for reason in NOT_COVERED.values())


def test_every_table_with_a_column_that_is_not_covered_stands_in_the_auditor_s_list() -> None:
    page = (Path(__file__).parents[2] / "docs" / "auditing.md").read_text(encoding="utf-8")
    forged = page.partition("## What a database administrator can still forge unseen")[2]
    assert [table for table in sorted({table for table, _ in NOT_COVERED}) if f"`{table}`" not in forged] == []


@pytest.mark.parametrize(
    ("column", "value"), [("subject", "'ee' || substr(subject, 3)"), ("key_id", "gen_random_uuid()")]
)
async def test_a_sealed_part_that_is_hidden_is_reported_as_not_looked_at(world: World, column: str, value: str) -> None:
    before = await world.verify("one")
    statement = f"UPDATE ledger.parts SET {column} = {value} WHERE log_id = %s AND key_id IS NOT NULL"  # noqa: S608
    changed = await world.execute(statement, world.logs["one"].log_id)
    report = await world.verify("one")
    assert (before.unchecked, report.unchecked) == ((), (f"{changed} sealed payload parts whose keys are not here",))


async def test_what_nobody_has_signed_can_be_rewritten_by_who_owns_the_database(world: World) -> None:
    state = world.logs["one"]
    index = state.signed + 2
    await hold(world, state, relinked(state.rows, index, retold(state.rows[index], seeded("tail"))), at=index)
    report = await world.verify("one")
    assert (report.size, report.signed_size) == (state.size, state.signed)
    held = (state.notes[state.signed],)
    assert (await world.verify("one", held=held)).root == report.root


async def test_with_the_key_and_the_system_log_everything_can_be_rewritten_but_not_what_is_held_elsewhere(
    world: World,
) -> None:
    state, system = world.logs["one"], world.logs["system"]
    await rewrite_with_key(world, seeded("key"), 0)
    anchored = await world.told(faulty(Fault.ANCHOR))
    assert anchored.fault is Fault.ANCHOR
    await set_back(world, system, min(system.notes))
    assert (await world.told(faulty())).fault is None
    for size, note in state.notes.items():
        held = await world.told(faulty(Fault.ROOT, held=(note,)))
        assert (held.fault, held.index) == (Fault.ROOT, None), size


async def test_a_removed_part_and_a_removed_old_checkpoint_are_not_missed(world: World) -> None:
    log_id = world.logs["one"].log_id
    parts = (await world.verify("one")).parts
    removed = "DELETE FROM ledger.parts WHERE log_id = %s AND index IN (SELECT min(index) FROM ledger.parts)"
    assert await world.execute(removed, log_id)
    assert await world.execute("DELETE FROM ledger.checkpoints WHERE log_id = %s AND size = 256", log_id)
    report = await world.verify("one")
    assert (report.parts, report.checkpoints) == (parts - 1, len(world.logs["one"].notes) - 1)


def test_every_change_in_an_exported_directory_is_found_and_named(tmp_path: Path) -> None:
    export = Export(tmp_path)
    clean = faulty(held=tuple(export.state.notes.values()))
    assert export.told(clean, seeded("clean")).fault is None
    for name in FILES:
        for number in range(INSTANCES - 1):
            instance = run_file_instance(export, name, number)
            assert instance.ok, str(instance)
    assert export.told(clean, seeded("clean")).fault is None


@pytest.mark.parametrize("kind", KINDS)
def test_every_change_of_a_proof_or_a_bundle_is_refused(tmp_path: Path, kind: str) -> None:
    data = make_proof(seeded("proof")) if kind == "proof" else make_bundle(tmp_path)
    for number in range(200):
        instance = run_proof_instance(kind, data, number)
        assert instance.ok, str(instance)
