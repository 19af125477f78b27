# SPDX-License-Identifier: Apache-2.0
"""Exports and proofs: what leaves the database can be verified with the key alone, and nothing else is overwritten."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.anchoring.published import store_stamp
from ledger.anchoring.timestamp import Stamp
from ledger.errors import BrokenError, Fault, LedgerError
from ledger.files.directory import TEMPORARY_SUFFIX, LogDirectory, log_files, parts_path
from ledger.format.checkpoint import Checkpoint
from ledger.format.note import VerifierKey
from ledger.format.proof import check_proof, format_proof, parse_proof
from ledger.format.sequence import SequencedEntry
from ledger.format.verification import read_proven
from ledger.proving.export import ExportRefusedError, as_reader, export_log, export_parts, export_stamped_log
from ledger.proving.prove import prove
from ledger.signing.key_directory import KeyDirectory, create_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import Log, find_log
from ledger.store.session import Connection
from ledger.store.stored_tree import NoCheckpointError
from ledger.verify.directory import verify_directory
from testkit.ledger.appending import NOON
from testkit.ledger.cut_off import cut_off
from testkit.ledger.logs import TENANT, append, change, groups, put, rows_of, write_directory

SIZE = 700


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerLog:
    """What exports are made with: a log in a database, its signer, and an auditor's connection."""

    installation: Provisioned
    database: str
    connection: Connection
    keys: KeyDirectory
    log: Log
    rows: list[SequencedEntry]

    @property
    def key(self) -> VerifierKey:
        return self.keys.verifier_key(self.log.origin)

    async def grow(self, size: int) -> None:
        await put(self.database, self.log.log_id, self.rows[:size])

    async def sign(self) -> None:
        dsn = self.installation.as_role(self.installation.roles.signer)
        async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
            assert await CheckpointSigner(dsn, self.keys).sign_due(connection)

    async def stamp(self, log: Log, size: int) -> None:
        """Store a stamp over the checkpoint of a log at that size, which says so."""
        stamp = Stamp(gen_time=NOON, not_later_than=NOON, policy="1.2", serial=1, authority="CN=tsa", nonce=1)
        dsn = self.installation.as_role(self.installation.roles.signer)
        async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
            await store_stamp(connection, log.log_id, size=size, token=b"over %d" % size, stamp=stamp)

    async def export(self, path: Path) -> Checkpoint:
        return (await export_log(self.connection, self.log, path, keys=[self.key], policy=None)).checkpoint

    async def prove(self, index: int) -> bytes:
        return await prove(self.connection, self.log, index, keys=[self.key], policy=None)


@pytest.fixture
async def signer_log(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[SignerLog]:
    create_tenant_log(database, installation, TENANT)
    dsn = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        log = await find_log(connection, installation.origin(TENANT))
        yield SignerLog(
            installation=installation,
            database=database,
            connection=connection,
            keys=create_key_directory(tmp_path / "keys"),
            log=log,
            rows=rows_of(SIZE, log=log.origin),
        )


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def contents(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in LogDirectory(path).files()} if path.exists() else {}


async def test_a_log_that_the_appender_has_written_is_exported_and_verified(signer_log: SignerLog, out: Path) -> None:
    await append(signer_log.installation, signer_log.log.log_id, list(groups(1_300)))
    await signer_log.sign()
    told: list[tuple[int, int]] = []
    exported = await export_log(
        signer_log.connection,
        signer_log.log,
        out,
        keys=[signer_log.key],
        policy=None,
        progress=lambda done, of: told.append((done, of)),
    )
    assert [done for done, of in told if of == 1_300] == [*range(256, 1_300, 256), 1_300]
    assert verify_directory(out, [exported.key]).root == exported.checkpoint.root
    assert LogDirectory(out).files() == {*log_files(1_300), "checkpoint", "vkey"}
    assert VerifierKey.parse(LogDirectory(out).read_key()) == signer_log.key


async def test_an_export_holds_what_anyone_would_make_of_the_entries(signer_log: SignerLog, tmp_path: Path) -> None:
    signer = signer_log.keys.signer(signer_log.log.origin)
    for size in (1, 255, 256, 257, 512, SIZE):
        await signer_log.grow(size)
        await signer_log.sign()
        await signer_log.export(tmp_path / f"{size}")
        exported = contents(tmp_path / f"{size}")
        exported.pop("vkey")
        assert exported == contents(write_directory(tmp_path / f"expected {size}", signer_log.rows[:size], signer))


async def test_only_what_is_signed_is_exported(signer_log: SignerLog, out: Path) -> None:
    with pytest.raises(NoCheckpointError, match="no signed checkpoint yet"):
        await signer_log.export(out)
    await signer_log.grow(600)
    await signer_log.sign()
    await signer_log.grow(SIZE)
    assert (await signer_log.export(out)).size == 600


async def test_a_grown_log_is_exported_over_the_earlier_export(signer_log: SignerLog, out: Path) -> None:
    for size in (100, 300, SIZE):
        await signer_log.grow(size)
        await signer_log.sign()
        await signer_log.export(out)
        await signer_log.export(out)
        assert verify_directory(out, [signer_log.key]).size == size
        assert LogDirectory(out).files() == {*log_files(size), "checkpoint", "vkey"}


async def test_an_export_that_was_cut_off_is_gone_on_with(
    signer_log: SignerLog, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await signer_log.grow(SIZE)
    await signer_log.sign()
    real, written = os.replace, 0
    for cut in range(1, 40):

        def cutting(source: Any, target: Any, cut: int = cut) -> None:
            nonlocal written
            written += 1
            if written == cut:
                raise KeyboardInterrupt
            real(source, target)

        written = 0
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", cutting)
            try:
                await signer_log.export(out)
            except KeyboardInterrupt:
                assert "checkpoint" not in contents(out)
                continue
        break
    assert cut < 20  # each time more was kept
    assert verify_directory(out, [signer_log.key]).unchecked == ()
    assert not [name for name in contents(out) if name.endswith(TEMPORARY_SUFFIX)]
    before = {name: (out / name).stat().st_ino for name in log_files(512) if ".p/" not in name}
    await signer_log.export(out)
    assert {name: (out / name).stat().st_ino for name in before} == before


async def test_a_stamp_never_lies_beside_a_checkpoint_that_it_is_not_over(
    signer_log: SignerLog, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = await find_log(signer_log.connection, signer_log.installation.system_origin)
    keys = signer_log.keys.verifier_keys(system.origin)
    rows = rows_of(SIZE, log=system.origin)

    def pair() -> tuple[int, int] | None:
        """Return the sizes of the checkpoint that lies there and of the one that the stamp is over, if both are."""
        there = contents(out)
        if not {"checkpoint", "stamp"} <= there.keys():
            return None
        return int(there["checkpoint"].split()[1]), int(there["stamp"].split()[-1])

    async def export() -> None:
        await export_stamped_log(signer_log.connection, system, out, keys=keys, policy=None)

    for size in (3, 300):
        await put(signer_log.database, system.log_id, rows[:size])
        await signer_log.sign()
        await signer_log.stamp(system, size)
        for cut in range(40):
            with monkeypatch.context() as patch:
                cut_off(patch, at=cut)
                try:
                    await export()
                    break
                except KeyboardInterrupt:
                    assert (found := pair()) is None or found[0] == found[1], cut
        assert pair() == (size, size)
    await export_log(signer_log.connection, system, out, keys=keys, policy=None)
    assert pair() is None


async def test_nothing_but_an_earlier_export_of_the_same_log_is_written_over(
    signer_log: SignerLog, tmp_path: Path
) -> None:
    await signer_log.grow(5)
    await put(signer_log.database, 1, rows_of(5, log=signer_log.installation.system_origin))
    await signer_log.sign()
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    (occupied / "thesis").write_text("the only copy")
    with pytest.raises(ExportRefusedError, match="is not empty"):
        await signer_log.export(occupied)
    with pytest.raises(ExportRefusedError, match="free some space"):
        await signer_log.export(occupied / "thesis")
    system = await find_log(signer_log.connection, signer_log.installation.system_origin)
    await export_log(
        signer_log.connection,
        system,
        tmp_path / "system",
        keys=[signer_log.keys.verifier_key(system.origin)],
        policy=None,
    )
    with pytest.raises(ExportRefusedError, match=f"holds no export of {signer_log.log.origin}"):
        await signer_log.export(tmp_path / "system")


async def test_a_smaller_database_does_not_replace_a_larger_export(signer_log: SignerLog, out: Path) -> None:
    for size in (10, 20):
        await signer_log.grow(size)
        await signer_log.sign()
    await signer_log.export(out)
    change(signer_log.database, "DELETE FROM ledger.checkpoints WHERE size = 20")
    with pytest.raises(ExportRefusedError, match="restoring a backup"):
        await signer_log.export(out)


async def test_a_broken_log_is_exported_as_it_is_and_the_verifier_says_where(
    signer_log: SignerLog, tmp_path: Path
) -> None:
    await signer_log.grow(SIZE)
    await signer_log.sign()
    change(
        signer_log.database,
        "UPDATE ledger.entries SET entry = set_byte(entry, 60, 65) WHERE log_id = %s AND index = 300",
        signer_log.log.log_id,
    )
    await signer_log.export(tmp_path / "changed")
    with pytest.raises(BrokenError) as caught:
        verify_directory(tmp_path / "changed", [signer_log.key])
    assert (caught.value.fault, caught.value.index) == (Fault.ENTRY, 300)
    with pytest.raises(BrokenError) as caught:
        await signer_log.prove(300)
    assert (caught.value.fault, caught.value.index) == (Fault.PROOF, 300)
    change(signer_log.database, "DELETE FROM ledger.parts")
    change(signer_log.database, "DELETE FROM ledger.entries WHERE index = 300")
    for export in (
        signer_log.export(tmp_path / "missing"),
        signer_log.prove(300),
    ):
        with pytest.raises(BrokenError) as caught:
            await export
        assert (caught.value.fault, caught.value.index) == (Fault.INDEX, 300)


async def test_a_checkpoint_of_another_key_is_not_exported(signer_log: SignerLog, out: Path, tmp_path: Path) -> None:
    await signer_log.grow(5)
    await signer_log.sign()
    stranger = create_key_directory(tmp_path / "stranger").verifier_key(signer_log.log.origin)
    for refused in (
        export_log(signer_log.connection, signer_log.log, out, keys=[stranger], policy=None),
        prove(signer_log.connection, signer_log.log, 1, keys=[stranger], policy=None),
    ):
        with pytest.raises(BrokenError) as caught:
            await refused
        assert caught.value.fault is Fault.SIGNATURE
    assert contents(out) == {}


# Payload parts


async def test_parts_are_disclosed_on_request_only_and_checked(signer_log: SignerLog, out: Path) -> None:
    await signer_log.grow(SIZE)
    await signer_log.sign()
    with pytest.raises(ExportRefusedError, match="export the log first"):
        await export_parts(signer_log.connection, signer_log.log, out)
    await signer_log.export(out)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        await export_parts(signer_log.connection, signer_log.log, out)  # an auditor sees no parts
    async with as_reader(signer_log.connection, signer_log.log):
        disclosed = await export_parts(signer_log.connection, signer_log.log, out)
    assert disclosed == sum(bool(row.parts) for row in signer_log.rows)
    report = verify_directory(out, [signer_log.key])
    assert (report.parts, report.unchecked) == (disclosed, ())
    # What was erased since does not stay in the copy.
    index = next(row.index for row in signer_log.rows if row.parts)
    change(signer_log.database, "DELETE FROM ledger.parts WHERE index = %s", index)
    async with as_reader(signer_log.connection, signer_log.log):
        assert await export_parts(signer_log.connection, signer_log.log, out) == disclosed - 1
    assert not (out / parts_path(index)).exists()
    assert verify_directory(out, [signer_log.key]).parts == disclosed - 1


async def test_parts_of_a_log_without_a_tenant_are_not_given_out(signer_log: SignerLog) -> None:
    system = await find_log(signer_log.connection, signer_log.installation.system_origin)
    with pytest.raises(LedgerError, match="belongs to no tenant"):
        async with as_reader(signer_log.connection, system):
            pass


# Proofs


async def test_every_entry_can_be_proven_and_any_changed_bit_of_a_proof_is_found(signer_log: SignerLog) -> None:
    await signer_log.grow(300)
    await signer_log.sign()
    await signer_log.grow(SIZE)
    for index in (0, 1, 254, 255, 256, 298, 299):
        proof = await signer_log.prove(index)
        proven = check_proof(proof, [signer_log.key])
        assert (proven.entry, proven.index, proven.checkpoint.size) == (signer_log.rows[index].entry, index, 300)
        assert read_proven(proven).log == signer_log.log.origin
    for at in range(len(proof)):
        with pytest.raises(LedgerError):
            check_proof(proof[:at] + bytes([proof[at] ^ 1]) + proof[at + 1 :], [signer_log.key])
    with pytest.raises(BrokenError):
        check_proof(format_proof(replace(parse_proof(proof), index=298)), [signer_log.key])


async def test_what_is_not_there_or_not_signed_is_not_proven(signer_log: SignerLog) -> None:
    await signer_log.grow(3)
    with pytest.raises(NoCheckpointError, match="no signed checkpoint yet"):
        await signer_log.prove(0)
    await signer_log.sign()
    await signer_log.grow(5)
    with pytest.raises(NoCheckpointError, match="not signed yet"):
        await signer_log.prove(3)
    for index in (-1, 5):
        with pytest.raises(LedgerError, match="below its size 5"):
            await signer_log.prove(index)
