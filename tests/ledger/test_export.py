"""Exports and proofs: what leaves the database can be verified with the key alone, and nothing else is overwritten."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from lakeproof.provision import Installation, create_tenant_log
from ledger.directory import TEMPORARY_SUFFIX, LogDirectory, log_files, parts_path
from ledger.errors import BrokenError, Fault, LedgerError
from ledger.export import ExportRefusedError, as_reader, export_log, export_parts
from ledger.key_directory import KeyDirectory, create_key_directory
from ledger.note import VerifierKey
from ledger.proof import check_proof, format_proof, parse_proof
from ledger.prove import prove
from ledger.read import Connection, Log, find_log
from ledger.sequence import Row
from ledger.sign import Signer
from ledger.stored_tree import NoCheckpointError
from ledger.verify import read_proven
from ledger.verify_directory import verify_directory
from tests.ledger.logs import TENANT, append, change, groups, plain_rows, put, rows_of, write_directory

SIZE = 700


@pytest.fixture
def keys(tmp_path: Path) -> KeyDirectory:
    return create_key_directory(tmp_path / "keys")


@pytest.fixture
async def log(database: str, installation: Installation) -> Log:
    create_tenant_log(database, installation, TENANT)
    async with await AsyncConnection.connect(database) as connection:
        return await find_log(connection, installation.origin(TENANT))


@pytest.fixture
def key(keys: KeyDirectory, log: Log) -> VerifierKey:
    return keys.verifier_key(log.origin)


@pytest.fixture
def rows(log: Log) -> list[Row]:
    return rows_of(SIZE, log=log.origin)


@pytest.fixture
async def connection(installation: Installation) -> AsyncIterator[Connection]:
    dsn = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


async def sign(installation: Installation, keys: KeyDirectory) -> None:
    dsn = installation.as_role(installation.roles.signer)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        assert await Signer(dsn, keys).sign_due(connection)


def contents(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in LogDirectory(path).files()}


async def test_a_log_that_the_appender_has_written_is_exported_and_verified(
    installation: Installation, connection: Connection, keys: KeyDirectory, log: Log, key: VerifierKey, out: Path
) -> None:
    await append(installation, log.log_id, list(groups(600)))
    await sign(installation, keys)
    told: list[tuple[int, int]] = []
    checkpoint = await export_log(connection, log, out, key=key, progress=lambda done, of: told.append((done, of)))
    assert told == [(256, 600), (512, 600), (600, 600)]
    assert verify_directory(out, [key]).root == checkpoint.root
    assert LogDirectory(out).files() == {*log_files(600), "checkpoint", "vkey"}
    assert VerifierKey.parse(LogDirectory(out).read_key()) == key


@pytest.mark.parametrize("size", [1, 255, 256, 257, 512, SIZE])
async def test_an_export_holds_what_anyone_would_make_of_the_entries(
    installation: Installation, database: str, connection: Connection, keys: KeyDirectory, log: Log, key: VerifierKey,
    rows: list[Row], out: Path, tmp_path: Path, size: int,
) -> None:  # fmt: skip
    await put(database, log.log_id, rows[:size])
    await sign(installation, keys)
    await export_log(connection, log, out, key=key)
    exported = contents(out)
    exported.pop("vkey")
    expected = contents(write_directory(tmp_path / "expected", rows[:size], keys.signer(log.origin)))
    assert exported == expected


async def test_a_log_over_two_levels_of_tiles_is_exported(
    installation: Installation, database: str, connection: Connection, keys: KeyDirectory, log: Log, key: VerifierKey,
    out: Path,
) -> None:  # fmt: skip
    await put(database, log.log_id, plain_rows(65_536 + 300, log=log.origin))
    await sign(installation, keys)
    await export_log(connection, log, out, key=key)
    assert verify_directory(out, [key]).size == 65_836
    for index in (0, 65_535, 65_536, 65_835):
        proven = check_proof(await prove(connection, log, index, key=key), [key])
        assert read_proven(proven).index == index


async def test_only_what_is_signed_is_exported(
    installation: Installation, database: str, connection: Connection, keys: KeyDirectory, log: Log, key: VerifierKey,
    rows: list[Row], out: Path,
) -> None:  # fmt: skip
    with pytest.raises(NoCheckpointError, match="no signed checkpoint yet"):
        await export_log(connection, log, out, key=key)
    await put(database, log.log_id, rows[:600])
    await sign(installation, keys)
    await put(database, log.log_id, rows)
    assert (await export_log(connection, log, out, key=key)).size == 600


async def test_a_grown_log_is_exported_over_the_earlier_export(
    installation: Installation, database: str, connection: Connection, keys: KeyDirectory, log: Log, key: VerifierKey,
    rows: list[Row], out: Path,
) -> None:  # fmt: skip
    for size in (100, 300, 300, SIZE):
        await put(database, log.log_id, rows[:size])
        if size != 300 or not out.exists() or verify_directory(out, [key]).size != 300:
            await sign(installation, keys)
        await export_log(connection, log, out, key=key)
        assert verify_directory(out, [key]).size == size
        assert LogDirectory(out).files() == {*log_files(size), "checkpoint", "vkey"}


async def test_an_export_that_was_cut_off_is_gone_on_with(
    installation: Installation, database: str, connection: Connection, keys: KeyDirectory, log: Log, key: VerifierKey,
    rows: list[Row], out: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    await put(database, log.log_id, rows)
    await sign(installation, keys)
    real, written = os.replace, 0
    for cut in range(1, 40):

        def replace(source: Any, target: Any, cut: int = cut) -> None:
            nonlocal written
            written += 1
            if written == cut:
                raise KeyboardInterrupt
            real(source, target)

        written = 0
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            try:
                await export_log(connection, log, out, key=key)
            except KeyboardInterrupt:
                assert not (out / "checkpoint").exists()
                continue
        break
    assert cut < 20  # each time more was kept
    assert verify_directory(out, [key]).unchecked == ()
    assert not list(out.rglob(f"*{TEMPORARY_SUFFIX}"))
    before = {name: (out / name).stat().st_ino for name in log_files(512) if ".p/" not in name}
    await export_log(connection, log, out, key=key)
    assert {name: (out / name).stat().st_ino for name in before} == before


async def test_nothing_but_an_earlier_export_of_the_same_log_is_written_over(
    installation: Installation, database: str, connection: Connection, keys: KeyDirectory, log: Log, key: VerifierKey,
    rows: list[Row], tmp_path: Path,
) -> None:  # fmt: skip
    await put(database, log.log_id, rows[:5])
    await put(database, 1, rows_of(5, log=installation.system_origin))
    await sign(installation, keys)
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    (occupied / "thesis").write_text("the only copy")
    with pytest.raises(ExportRefusedError, match="is not empty"):
        await export_log(connection, log, occupied, key=key)
    with pytest.raises(ExportRefusedError, match="make room"):
        await export_log(connection, log, occupied / "thesis", key=key)
    system = await find_log(connection, installation.system_origin)
    await export_log(connection, system, tmp_path / "system", key=keys.verifier_key(system.origin))
    with pytest.raises(ExportRefusedError, match=f"holds no export of {log.origin}"):
        await export_log(connection, log, tmp_path / "system", key=key)


async def test_a_smaller_database_does_not_replace_a_larger_export(
    installation: Installation, database: str, connection: Connection, keys: KeyDirectory, log: Log, key: VerifierKey,
    rows: list[Row], out: Path,
) -> None:  # fmt: skip
    for size in (10, 20):
        await put(database, log.log_id, rows[:size])
        await sign(installation, keys)
    await export_log(connection, log, out, key=key)
    change(database, "DELETE FROM ledger.checkpoints WHERE size = 20")
    with pytest.raises(ExportRefusedError, match="restoring a backup"):
        await export_log(connection, log, out, key=key)


async def test_a_broken_log_is_exported_as_it_is_and_the_verifier_says_where(
    installation: Installation, database: str, connection: Connection, keys: KeyDirectory, log: Log, key: VerifierKey,
    rows: list[Row], tmp_path: Path,
) -> None:  # fmt: skip
    await put(database, log.log_id, rows)
    await sign(installation, keys)
    change(
        database,
        "UPDATE ledger.entries SET entry = set_byte(entry, 60, 65) WHERE log_id = %s AND index = 300",
        log.log_id,
    )
    await export_log(connection, log, tmp_path / "changed", key=key)
    with pytest.raises(BrokenError) as caught:
        verify_directory(tmp_path / "changed", [key])
    assert (caught.value.fault, caught.value.index) == (Fault.ENTRY, 300)
    with pytest.raises(BrokenError) as caught:
        await prove(connection, log, 300, key=key)
    assert (caught.value.fault, caught.value.index) == (Fault.PROOF, 300)
    change(database, "DELETE FROM ledger.parts")
    change(database, "DELETE FROM ledger.entries WHERE index = 300")
    for export in (
        export_log(connection, log, tmp_path / "missing", key=key),
        prove(connection, log, 300, key=key),
    ):
        with pytest.raises(BrokenError) as caught:
            await export
        assert (caught.value.fault, caught.value.index) == (Fault.INDEX, 300)


async def test_a_checkpoint_of_another_key_is_not_exported(
    installation: Installation, database: str, connection: Connection, keys: KeyDirectory, log: Log, rows: list[Row],
    out: Path, tmp_path: Path,
) -> None:  # fmt: skip
    await put(database, log.log_id, rows[:5])
    await sign(installation, keys)
    stranger = create_key_directory(tmp_path / "stranger").verifier_key(log.origin)
    for refused in (export_log(connection, log, out, key=stranger), prove(connection, log, 1, key=stranger)):
        with pytest.raises(BrokenError) as caught:
            await refused
        assert caught.value.fault is Fault.SIGNATURE
    assert not out.exists()


# Payload parts


async def test_parts_are_disclosed_on_request_only_and_checked(
    installation: Installation, database: str, connection: Connection, keys: KeyDirectory, log: Log, key: VerifierKey,
    rows: list[Row], out: Path,
) -> None:  # fmt: skip
    await put(database, log.log_id, rows)
    await sign(installation, keys)
    with pytest.raises(ExportRefusedError, match="export the log first"):
        await export_parts(connection, log, out)
    await export_log(connection, log, out, key=key)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        await export_parts(connection, log, out)  # an auditor sees no parts
    async with as_reader(connection, log):
        disclosed = await export_parts(connection, log, out)
    assert disclosed == sum(bool(row.parts) for row in rows)
    report = verify_directory(out, [key])
    assert (report.parts, report.unchecked) == (disclosed, ())
    # What was erased since does not stay in the copy.
    index = next(row.index for row in rows if row.parts)
    change(database, "DELETE FROM ledger.parts WHERE index = %s", index)
    async with as_reader(connection, log):
        assert await export_parts(connection, log, out) == disclosed - 1
    assert not (out / parts_path(index)).exists()
    assert verify_directory(out, [key]).parts == disclosed - 1


async def test_parts_of_a_log_without_a_tenant_are_not_given_out(
    installation: Installation, connection: Connection
) -> None:
    system = await find_log(connection, installation.system_origin)
    with pytest.raises(LedgerError, match="belongs to no tenant"):
        async with as_reader(connection, system):
            pass


# Proofs


async def test_every_entry_can_be_proven_and_any_changed_bit_of_a_proof_is_found(
    installation: Installation, database: str, connection: Connection, keys: KeyDirectory, log: Log, key: VerifierKey,
    rows: list[Row],
) -> None:  # fmt: skip
    await put(database, log.log_id, rows[:300])
    await sign(installation, keys)
    await put(database, log.log_id, rows)
    for index in (0, 1, 254, 255, 256, 298, 299):
        proof = await prove(connection, log, index, key=key)
        proven = check_proof(proof, [key])
        assert (proven.entry, proven.index, proven.checkpoint.size) == (rows[index].entry, index, 300)
        assert read_proven(proven).log == log.origin
    for at in range(len(proof)):
        with pytest.raises(LedgerError):
            check_proof(proof[:at] + bytes([proof[at] ^ 1]) + proof[at + 1 :], [key])
    moved = parse_proof(proof)
    with pytest.raises(BrokenError):
        check_proof(
            format_proof(type(moved)(extra=moved.extra, index=298, hashes=moved.hashes, checkpoint=moved.checkpoint)),
            [key],
        )


async def test_what_is_not_there_or_not_signed_is_not_proven(
    installation: Installation, database: str, connection: Connection, keys: KeyDirectory, log: Log, key: VerifierKey,
    rows: list[Row],
) -> None:  # fmt: skip
    await put(database, log.log_id, rows[:3])
    with pytest.raises(NoCheckpointError, match="no signed checkpoint yet"):
        await prove(connection, log, 0, key=key)
    await sign(installation, keys)
    await put(database, log.log_id, rows[:5])
    with pytest.raises(NoCheckpointError, match="not signed yet"):
        await prove(connection, log, 3, key=key)
    for index in (-1, 5):
        with pytest.raises(LedgerError, match="below its size 5"):
            await prove(connection, log, index, key=key)
