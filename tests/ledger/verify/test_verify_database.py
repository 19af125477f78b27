# SPDX-License-Identifier: Apache-2.0
"""Verification over PostgreSQL: a change to any column of any table is found where it was made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.errors import BrokenError, Fault, NoSuchLogError
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.merkle import Frontier
from ledger.format.note import sign_note
from ledger.format.sequence import SequencedEntry
from ledger.format.tiles import tile_path
from ledger.signing.key_directory import KeyDirectory, create_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import Log, find_log, read_logs
from ledger.store.session import Connection
from ledger.verify.database import verify_database
from ledger.verify.parts import verify_parts
from ledger.verify.workers import Effort
from testkit.ledger.logs import TENANT, append, change, groups, head_of, put, rows_of, sequenced
from testkit.ledger.tampering.instances import save
from testkit.ledger.tampering.world import PREPARATION

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXACT, FAST = Effort(kernel_entries_min=2**62), Effort(kernel_entries_min=0)
SIZE = 1_300  # five complete tiles, and 20 entries
SIGNED = 700  # within the third tile: 600 entries are not signed yet
PUT_BACK = "SELECT saved.put_back(false)"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyDirectory:
    return create_key_directory(tmp_path_factory.mktemp("signer") / "keys")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def log(module_database: str, module_installation: Provisioned) -> Log:
    create_tenant_log(module_database, module_installation, TENANT)
    async with await AsyncConnection.connect(module_database) as connection:
        return await find_log(connection, module_installation.origin(TENANT))


@pytest.fixture(scope="module")
def rows(log: Log) -> list[SequencedEntry]:
    return rows_of(SIZE, log=log.origin)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connection(module_installation: Provisioned) -> AsyncIterator[Connection]:
    dsn = module_installation.as_role(module_installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def written(
    module_database: str,
    module_installation: Provisioned,
    keys: KeyDirectory,
    log: Log,
    rows: list[SequencedEntry],
) -> AsyncIterator[Connection]:
    """The owner, whom no constraint hinders, of a log of three signed sizes and a tail that nobody has signed."""
    dsn = module_installation.as_role(module_installation.roles.signer)
    signer = CheckpointSigner(dsn, keys)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        for size in (1, 256, SIGNED):
            await put(module_database, log.log_id, rows[:size])
            assert len(await signer.sign_due(connection)) == 1
    await put(module_database, log.log_id, rows)
    async with await AsyncConnection.connect(module_database, autocommit=True) as owner:
        await owner.execute(PREPARATION.encode())
        await owner.execute(HELPERS.encode())
        await save(owner)
        yield owner


@pytest_asyncio.fixture(loop_scope="module")
async def grown(written: Connection) -> AsyncIterator[Connection]:
    """The owner of that log, whose every row is put back afterwards."""
    yield written
    await written.execute(PUT_BACK)


async def broken(connection: Connection, log: Log, keys: KeyDirectory, *, held: Sequence[bytes] = ()) -> BrokenError:
    found = []
    for effort in (EXACT, FAST):
        with pytest.raises(BrokenError) as caught:
            await verify_database(connection, log, [keys.verifier_key(log.origin)], held=held, effort=effort)
        found.append(caught.value)
    exact, fast = found
    assert (exact.fault, exact.index, exact.where, str(exact)) == (fast.fault, fast.index, fast.where, str(fast))
    return exact


@pytest.mark.usefixtures("grown")
@pytest.mark.parametrize("effort", [EXACT, FAST], ids=["exact", "fast"])
async def test_a_clean_log_verifies(
    connection: Connection, log: Log, keys: KeyDirectory, rows: list[SequencedEntry], effort: Effort
) -> None:
    told: list[tuple[int, int]] = []
    report = await verify_database(
        connection,
        log,
        [keys.verifier_key(log.origin)],
        effort=effort,
        progress=lambda done, of: told.append((done, of)),
        clock=iter([1.0, 3.0]).__next__,
    )
    assert (report.origin, report.size, report.signed_size, report.checkpoints) == (log.origin, len(rows), SIGNED, 3)
    assert report.root == head_of(rows).frontier.root()
    assert (report.entries_per_s, report.witnessed) == (len(rows) / 2, False)
    assert told == [(1024, len(rows)), (len(rows), len(rows))]


async def test_a_log_that_the_appender_has_written_verifies_while_it_grows(
    installation: Provisioned, database: str, keys: KeyDirectory
) -> None:
    create_tenant_log(database, installation, TENANT)
    dsn = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        log = await find_log(connection, installation.origin(TENANT))
        key = keys.verifier_key(log.origin)
        for first, count in ((0, 0), (0, 3), (3, 250), (253, 10)):
            await append(installation, log.log_id, list(groups(count, first=first)))
            report = await verify_database(connection, log, [key])
            assert (report.size, report.signed_size) == (first + count, 0)
        with psycopg.connect(database) as owner:
            known = owner.execute("SELECT count(*) FROM ledger.parts").fetchone()
        reader = str(log.reader)
        async with connection.transaction():
            await connection.execute(f'SET LOCAL ROLE "{reader}"'.encode())
            assert (await verify_parts(connection, log)).checked == (known[0] if known else None)


async def test_an_unknown_log_is_no_log(connection: Connection, keys: KeyDirectory, log: Log) -> None:
    with pytest.raises(NoSuchLogError):
        await verify_database(connection, replace(log, log_id=99), [keys.verifier_key(log.origin)])


class Tampering(NamedTuple):
    """
    What somebody does to the tables, and what is found.

    In `statement`, {entry} and {tile} are the WHERE clauses for the row that `at` names, {log} the one for the log.
    """

    statement: str
    fault: Fault
    where: str
    at: int | None = None
    named: int | None = None


CLAUSES = {
    "{entry}": "WHERE log_id = %(log)s AND index = %(at)s",
    "{tile}": "WHERE log_id = %(log)s AND tile = %(at)s",
    "{checkpoint}": "WHERE log_id = %(log)s AND size = %(at)s",
    "{log}": "WHERE log_id = %(log)s",
}


def entries(statement: str, fault: Fault, where: str, *indices: int) -> list[Tampering]:
    return [Tampering(statement, fault, where, at=index, named=index) for index in indices]


# Signed and unsigned entries, first and last ones, at the borders of tiles, of checkpoints and of the log.
BORDERS = (0, 255, 256, SIGNED - 1, SIGNED, 1279, 1280, 1299)
FEW = (256, SIGNED, 1299)

TAMPERINGS = [
    *entries("UPDATE ledger.entries SET entry = retold(entry) {entry}", Fault.ENTRY, "ledger.entries", *BORDERS),
    *entries("UPDATE ledger.entries SET entry = flipped(entry) {entry}", Fault.ENTRY, "ledger.entries", *FEW),
    *entries("UPDATE ledger.entries SET entry = '' {entry}", Fault.ENTRY, "ledger.entries", *FEW),
    *entries("DELETE FROM ledger.entries {entry}", Fault.INDEX, "ledger.entries", *BORDERS, 1023, 1024),
    *(
        tampering
        for column, value in (
            ("leaf", "flipped(leaf)"),
            ("type", "'x' || type"),
            ("key", "''"),
            ("is_control", "NOT is_control"),
            ("group_id", "gen_random_uuid()"),
        )
        for tampering in entries(
            f"UPDATE ledger.entries SET {column} = {value} {{entry}}",  # noqa: S608 - from the table above
            Fault.DERIVED,
            f"ledger.entries.{column}",
            *(BORDERS if column == "leaf" else FEW),
        )
    ),
    *entries("UPDATE ledger.entries SET group_id = NULL {entry}", Fault.DERIVED, "ledger.entries.group_id", 0),
    Tampering(
        "INSERT INTO ledger.entries SELECT log_id, 1400, entry, leaf, type, '', is_control FROM ledger.entries {entry}",
        Fault.INDEX,
        "ledger.entries",
        at=7,
        named=SIZE,
    ),
    Tampering("DELETE FROM ledger.entries {log}", Fault.INDEX, "ledger.entries", named=0),
    *(
        Tampering("UPDATE ledger.tiles SET hashes = flipped(hashes) {tile}", Fault.TILE, tile_path(0, tile), at=tile)
        for tile in (0, 2, 4)
    ),
    Tampering("DELETE FROM ledger.tiles {tile}", Fault.TILE, "ledger.tiles level 0 tile 1", at=1),
    *(
        Tampering(
            f"INSERT INTO ledger.tiles SELECT log_id, {level}, {tile}, hashes FROM ledger.tiles {{tile}}",  # noqa: S608
            Fault.TILE,
            tile_path(level, tile),
            at=0,
        )
        for level, tile in ((0, 5), (1, 0), (7, 0))
    ),
    *(
        Tampering(f"UPDATE ledger.heads SET {change_} {{log}}", Fault.HEAD, f"ledger.heads.{column}")  # noqa: S608
        for column, change_ in (
            ("last", "last = flipped(last)"),
            ("frontier", "frontier = flipped(frontier)"),
            ("size", "size = 1304"),  # sizes with as many ones in binary, so with frontiers of the same length
            ("size", "size = 1297, control_index = -1"),
            ("control_index", "control_index = -1"),
            ("control_index", "control_index = control_index - 1"),
            ("recorded_at", "recorded_at = recorded_at + interval '1 microsecond'"),
            ("recorded_at", "recorded_at = NULL"),
            ("recorded_at", "recorded_at = 'infinity'"),
            ("recorded_at", "recorded_at = '-infinity'"),
            ("recorded_at", "recorded_at = '20000-01-01'"),
            ("recorded_at", "recorded_at = (to_char(recorded_at, 'YYYY-MM-DD HH24:MI:SS.US') || ' BC')::timestamptz"),
        )
    ),
    Tampering("UPDATE ledger.logs SET origin = 'else/1' {log}", Fault.SIGNATURE, "ledger.checkpoints size 700"),
    *(
        Tampering(f"UPDATE ledger.checkpoints SET {change_} {{checkpoint}}", fault, where, at=256)  # noqa: S608
        for change_, fault, where in (
            ("note = flipped(note)", Fault.SIGNATURE, "ledger.checkpoints size 256"),
            ("note = ''", Fault.CHECKPOINT, "ledger.checkpoints size 256"),
            ("size = 257", Fault.CHECKPOINT, "ledger.checkpoints size 257"),
            ("size = 0", Fault.CHECKPOINT, "ledger.checkpoints size 0"),
            ("size = 5000", Fault.CHECKPOINT, "ledger.checkpoints size 5000"),
        )
    ),
]

HELPERS = """
CREATE FUNCTION flipped(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT set_byte($1, 5, get_byte($1, 5) # 1)';
CREATE FUNCTION retold(bytea) RETURNS bytea LANGUAGE sql AS
    $$SELECT convert_to(replace(convert_from($1, 'UTF8'), '"number":', '"numbeR":'), 'UTF8')$$;
"""


async def test_a_change_to_any_column_is_found_where_it_was_made(
    grown: Connection, connection: Connection, log: Log, keys: KeyDirectory
) -> None:
    found: list[object] = []
    await grown.execute("DELETE FROM ledger.parts")
    for tampering in TAMPERINGS:
        statement = tampering.statement
        for name, clause in CLAUSES.items():
            statement = statement.replace(name, clause)
        done = await grown.execute(statement.encode(), {"log": log.log_id, "at": tampering.at})
        assert done.rowcount > 0, tampering
        seen = await find_log_again(connection, log)
        error = await broken(connection, seen, keys)
        found.append((tampering.statement, tampering.at, error.fault, error.where, error.index))
        await grown.execute(PUT_BACK)
    assert found == [(t.statement, t.at, t.fault, t.where, t.named) for t in TAMPERINGS]
    assert (await verify_database(connection, log, [keys.verifier_key(log.origin)])).size == SIZE


async def find_log_again(connection: Connection, log: Log) -> Log:
    """Return the log as it is called now."""
    return next(other for other in await read_logs(connection) if other.log_id == log.log_id)


# What needs more than one change


def rewritten(rows: Sequence[SequencedEntry], at: int, log: Log) -> list[SequencedEntry]:
    """Return a log of the same size with other entries from the first group at or behind `at` on."""
    at = next(row.index for row in rows[at:] if row.group_id is not None)
    follow, _ = sequenced(list(groups(len(rows) - at, salt="forged")), log=log.origin, head=head_of(rows[:at]))
    return [*rows[:at], *follow]


async def test_a_second_row_of_one_index_is_found_there(
    grown: Connection,
    connection: Connection,
    module_database: str,
    log: Log,
    keys: KeyDirectory,
    rows: list[SequencedEntry],
) -> None:
    await grown.execute("DROP INDEX ledger.entries_pkey")
    for index in (next(row.index for row in rows[at:] if row.group_id is None) for at in (1_290, 300)):
        change(module_database, "INSERT INTO ledger.entries SELECT * FROM ledger.entries WHERE index = %s", index)
        error = await broken(connection, log, keys)
        assert (error.fault, error.where, error.index) == (Fault.INDEX, "ledger.entries", index)
    await grown.execute("SELECT saved.put_back(true)")
    await grown.execute("CREATE UNIQUE INDEX entries_pkey ON ledger.entries (log_id, index)")


@pytest.mark.usefixtures("grown")
async def test_a_rewritten_suffix_is_found_as_far_as_it_is_signed(
    connection: Connection, module_database: str, log: Log, keys: KeyDirectory, rows: list[SequencedEntry]
) -> None:
    await put(module_database, log.log_id, rewritten(rows, 300, log))
    error = await broken(connection, log, keys)
    assert (error.fault, error.where) == (Fault.ROOT, f"checkpoint of size {SIGNED}")
    # What nobody has signed, and what nobody holds elsewhere, can be rewritten by whoever owns the database.
    await put(module_database, log.log_id, rewritten(rows, SIGNED, log))
    assert (await verify_database(connection, log, [keys.verifier_key(log.origin)])).signed_size == SIGNED
    checkpoint = Checkpoint(origin=log.origin, size=len(rows), root=head_of(rows).frontier.root())
    held = sign_note(format_checkpoint(checkpoint), [keys.signer(log.origin)])
    assert (await broken(connection, log, keys, held=[held])).fault is Fault.ROOT


@pytest.mark.usefixtures("grown")
async def test_rewritten_entries_over_old_tiles_are_found_at_the_first_of_them(
    connection: Connection, module_database: str, log: Log, keys: KeyDirectory, rows: list[SequencedEntry]
) -> None:
    forged = rewritten(rows, 300, log)
    first = next(row.index for row, old in zip(forged, rows, strict=True) if row.entry != old.entry)
    with psycopg.connect(module_database, autocommit=True) as owner, owner.cursor() as cursor:
        for columns in (
            "entry = %(entry)s",
            "leaf = %(leaf)s, type = %(type)s, key = %(key)s, is_control = %(is_control)s, group_id = %(group_id)s",
        ):
            cursor.executemany(
                f"UPDATE ledger.entries SET {columns} WHERE log_id = %(log)s AND index = %(index)s".encode(),  # noqa: S608
                [
                    {name: getattr(row, name) for name in SequencedEntry.__slots__} | {"log": log.log_id}
                    for row in forged
                ],
            )
            error = await broken(connection, log, keys)
            assert (error.fault, error.index) == (Fault.ENTRY, first)


@pytest.mark.usefixtures("grown")
async def test_an_entry_rewritten_where_its_tile_is_signed_in_part_is_found_by_the_head(
    connection: Connection, module_database: str, log: Log, keys: KeyDirectory
) -> None:
    """The last entry of the tile: nothing in it tells of the next."""
    with psycopg.connect(module_database) as owner:
        owner.execute("UPDATE ledger.entries SET entry = retold(entry) WHERE index = 767")
        owner.execute("UPDATE ledger.entries SET leaf = sha256('\\x00'::bytea || entry) WHERE index = 767")
    error = await broken(connection, log, keys)
    assert (error.fault, error.where, error.index) == (Fault.ENTRY, "ledger.entries", 767)


@pytest.mark.usefixtures("grown")
async def test_a_tile_forged_together_with_the_head_is_found_by_the_checkpoint_that_ends_with_it(
    connection: Connection, module_database: str, log: Log, keys: KeyDirectory, rows: list[SequencedEntry]
) -> None:
    await put(module_database, log.log_id, rows[:SIGNED])
    ends = Checkpoint(origin=log.origin, size=512, root=head_of(rows[:512]).frontier.root())
    note = sign_note(format_checkpoint(ends), [keys.signer(log.origin)])
    change(module_database, "DELETE FROM ledger.checkpoints")
    change(module_database, "INSERT INTO ledger.checkpoints VALUES (%s, 512, %s)", log.log_id, note)
    leaves = [row.leaf for row in rows[:SIGNED]]
    leaves[300] = leaves[299]
    change(module_database, "UPDATE ledger.tiles SET hashes = %s WHERE tile = 1", b"".join(leaves[256:512]))
    change(
        module_database,
        "UPDATE ledger.heads SET frontier = %s WHERE log_id = %s",
        Frontier.empty().extended(leaves).pack(),
        log.log_id,
    )
    error = await broken(connection, log, keys)
    assert (error.fault, error.where, error.index) == (Fault.TILE, tile_path(0, 1), None)


@pytest.mark.usefixtures("grown")
async def test_a_log_cut_off_is_found_by_its_checkpoint_or_by_one_held_elsewhere(
    connection: Connection, module_database: str, log: Log, keys: KeyDirectory, rows: list[SequencedEntry]
) -> None:
    end = next(row.index for row in rows[600:] if row.group_id is not None)
    await put(module_database, log.log_id, rows[:end])
    error = await broken(connection, log, keys)
    assert (error.fault, error.index) == (Fault.INDEX, end)
    with psycopg.connect(module_database) as owner:
        held = owner.execute("SELECT note FROM ledger.checkpoints ORDER BY size DESC").fetchone()
        owner.execute("DELETE FROM ledger.checkpoints WHERE size = %s", (SIGNED,))
    key = keys.verifier_key(log.origin)
    assert (await verify_database(connection, log, [key])).signed_size == 256
    assert held is not None
    error = await broken(connection, log, keys, held=[bytes(held[0])])
    assert (error.fault, error.index) == (Fault.INDEX, end)


async def test_keys_of_others_believe_nothing(
    connection: Connection, log: Log, keys: KeyDirectory, tmp_path: Path, grown: None
) -> None:
    stranger = create_key_directory(tmp_path / "stranger")
    assert (await broken(connection, log, stranger)).fault is Fault.SIGNATURE
    with pytest.raises(BrokenError):
        await verify_database(connection, log, [])


@pytest.mark.usefixtures("grown")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger.parts SET sealed = sealed || 'x'",
        "UPDATE ledger.parts SET sealed = substr(sealed, 1, 31)",
        "UPDATE ledger.parts SET sealed = set_byte(sealed, 5, get_byte(sealed, 5) # 1)",
        "UPDATE ledger.parts SET name = 'another'",
    ],
)
async def test_a_changed_part_is_found_and_a_missing_one_is_not_missed(
    module_database: str, log: Log, rows: list[SequencedEntry], statement: str
) -> None:
    index = next(row.index for row in rows[500:] if row.parts)
    async with await AsyncConnection.connect(module_database, autocommit=True) as owner:
        known = sum(len(row.parts) for row in rows)
        told: list[tuple[int, int]] = []
        report = await verify_parts(owner, log, progress=lambda done, of: told.append((done, of)))
        assert told == [(done, SIZE) for done in (256, 512, 768, 1024, 1280, SIZE)]
        assert (report.checked, report.entries) == (known, sum(bool(row.parts) for row in rows))
        change(module_database, "DELETE FROM ledger.parts WHERE index = %s", index)
        known -= len(rows[index].parts)
        assert (await verify_parts(owner, log)).checked == known
        index = next(row.index for row in rows[900:] if row.parts)
        change(module_database, statement + " WHERE index = %s AND name = 'inputs'", index)
        with pytest.raises(BrokenError) as caught:
            await verify_parts(owner, log)
        assert (caught.value.fault, caught.value.index) == (Fault.PART, index)
