# SPDX-License-Identifier: Apache-2.0
"""A log that its database has lost comes back from an export, to the byte, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned, create_tenant_log
from lakeproof.recovering import open_replay
from ledger.errors import BrokenError, LedgerError, UnconfirmedLogError
from ledger.files.directory import CHECKPOINT_FILE
from ledger.format.note import sign_note
from ledger.format.sequence import SequencedEntry
from ledger.proving.export import as_reader, export_log, export_parts
from ledger.recovering import replay as replay_module
from ledger.recovering.recover import NothingToAdoptError, Recovered, adopt, read_adoptable, recover_log
from ledger.recovering.replay import RecoveryError, ReplayRules
from ledger.signing.key_directory import NOTES_FILE, create_key_directory
from ledger.store.read import Log, find_log, read_parts
from ledger.store.session import Connection
from ledger.verify.database import verify_database
from testkit.ledger.appending import appender, group
from testkit.ledger.logs import TENANT, change, rows_of
from testkit.ledger.signing_site import Site, forked, open_site

SIZE = 700


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A log of 700 entries that was signed and exported with its parts."""

    site: Site
    log: Log
    rows: Sequence[SequencedEntry]
    export: Path
    replay: ReplayRules

    @property
    def beginnings(self) -> list[int]:
        """The sizes at which a database may have been saved: between two groups."""
        return [row.index for row in self.rows if row.group_id is not None]

    def beginning(self, near: int) -> int:
        """Return the first such size from `near` on."""
        return next(size for size in self.beginnings if size >= near)

    async def recover(self, *, path: Path | None = None, progress: Any = lambda _done, _of: None) -> Recovered:
        """Recover the log from its export."""
        roles = self.site.installation.roles
        dsn = self.site.installation.as_role(roles.appender)
        async with self.auditor() as auditor, await AsyncConnection.connect(dsn, autocommit=True) as writer:
            return await recover_log(
                auditor,
                writer,
                self.log,
                path or self.export,
                keys=self.site.keys,
                replay=self.replay,
                progress=progress,
            )

    @asynccontextmanager
    async def auditor(self) -> AsyncIterator[Connection]:
        """Yield a connection of the auditor's role."""
        dsn = self.site.installation.as_role(self.site.installation.roles.auditor)
        async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
            yield connection

    async def check(self, size: int) -> None:
        """Check that the log is whole, of this size, and has the parts and the tree that it had."""
        async with self.auditor() as auditor:
            report = await verify_database(auditor, self.log, self.site.keys.verifier_keys(self.log.origin))
            assert report.size == size
            async with as_reader(auditor, self.log):
                parts = await read_parts(auditor, self.log.log_id, from_index=0, to_index=SIZE)
        told = {row.index: {part.name: (part.salt, part.payload) for part in row.parts} for row in self.rows}
        for index, of_entry in parts.items():
            assert {name: (part.salt, part.payload) for name, part in of_entry.items()} == told[index]
        assert set(parts) == {row.index for row in self.rows if row.parts}


@pytest.fixture
async def site(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Site]:
    keys = create_key_directory(tmp_path / "keys")
    log_id = create_tenant_log(database, installation, TENANT)
    async with open_site(database, installation, keys, log_id=log_id) as site:
        yield site


@pytest.fixture(scope="module")
def rows(template_installation: Provisioned) -> list[SequencedEntry]:
    return rows_of(SIZE, log=template_installation.origin(TENANT))


@pytest.fixture(scope="module")
def replay() -> ReplayRules:
    return open_replay()


@pytest.fixture
async def lost(site: Site, rows: list[SequencedEntry], tmp_path: Path, replay: ReplayRules) -> Lost:
    # Entries without effect on rows beside the log: what those do is tried with a whole gateway.
    plain = ReplayRules(guards=replay.guards, guarded=(), subject_of=replay.subject_of, seal=replay.seal)
    await site.hold(rows)
    await site.sign()
    export = tmp_path / "export"
    dsn = site.installation.as_role(site.installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as auditor:
        log = await find_log(auditor, site.origin)
        await export_log(auditor, log, export, keys=[site.keys.verifier_key(site.origin)], policy=None)
        async with as_reader(auditor, log):
            await export_parts(auditor, log, export)
    return Lost(site=site, log=log, rows=rows, export=export, replay=plain)


async def test_a_restored_database_takes_nothing_until_its_log_is_back(lost: Lost) -> None:
    await lost.site.hold(lost.rows[: lost.beginning(300)])
    await lost.site.unconfirm()  # it is served by another start of the server
    for refused_by_signer in (False, True):
        if refused_by_signer:
            await lost.site.sign()
        async with appender(lost.site.installation) as running:
            with pytest.raises(UnconfirmedLogError):
                await running.append(lost.log.log_id, group(), timeout_s=0.2)
    await lost.site.owner.execute("DELETE FROM ledger.checkpoints")
    await lost.recover()
    await lost.site.sign()
    async with appender(lost.site.installation) as running:
        await running.append(lost.log.log_id, group())


@pytest.mark.parametrize("near", [0, 1, 255, 690])
async def test_a_restored_log_is_recovered_from_its_export(lost: Lost, near: int) -> None:
    size = lost.beginning(near) if near else 0
    await lost.site.hold(lost.rows[:size])
    await lost.site.owner.execute("DELETE FROM ledger.checkpoints")
    assert await lost.site.sign() == []
    assert not await lost.site.confirmed()
    recovered = await lost.recover()
    assert (recovered.from_index, recovered.to_index) == (size, SIZE)
    assert [one.put_back for one in await lost.site.sign()] == [True]
    assert await lost.site.confirmed()
    await lost.check(SIZE)
    async with appender(lost.site.installation) as running:
        await running.append(lost.log.log_id, group())
    assert [one.checkpoint.size for one in await lost.site.sign()] == [SIZE + 1]


async def test_a_recovery_that_was_cut_off_is_gone_on_with(lost: Lost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "BATCH_ENTRIES", 50)
    size = lost.beginning(100)
    await lost.site.hold(lost.rows[:size])
    await lost.site.owner.execute("DELETE FROM ledger.checkpoints")
    ends: list[int] = []

    def cut(done: int, of: int) -> None:
        if of == SIZE - size:
            ends.append(done)
            if done < of and len(ends) % 3 == 0:
                raise KeyboardInterrupt

    while True:
        try:
            size = (await lost.recover(progress=cut)).to_index
            break
        except KeyboardInterrupt:
            size += ends[-1]
            assert await lost.site.sign() == [], "a log that is only partly back is not signed"
            assert not await lost.site.confirmed()
    assert len(ends) > 6
    await lost.site.sign()
    await lost.check(SIZE)


async def test_what_others_append_meanwhile_ends_the_recovery(lost: Lost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "BATCH_ENTRIES", 50)
    size = lost.beginning(100)
    await lost.site.hold(lost.rows[:size])
    await lost.site.owner.execute("DELETE FROM ledger.checkpoints")

    def intrude(done: int, of: int) -> None:
        if of == SIZE - size:
            change(lost.site.database, "UPDATE ledger.heads SET recorded_at = now() WHERE size > 0")

    with pytest.raises(RecoveryError, match="another process appends"):
        await lost.recover(progress=intrude)


# What is refused; nothing is written then


async def refused(
    lost: Lost, match: str, *, path: Path | None = None, error: type[LedgerError] = RecoveryError
) -> None:
    before = await everything(lost)
    with pytest.raises(error, match=match):
        await lost.recover(path=path)
    assert await everything(lost) == before


async def everything(lost: Lost) -> list[Any]:
    owner = lost.site.owner
    heads = await (await owner.execute("SELECT * FROM ledger.heads ORDER BY log_id")).fetchall()
    entries = await (await owner.execute("SELECT count(*) FROM ledger.entries")).fetchall()
    return [heads, entries, lost.site.kept()]


async def test_an_export_behind_the_signers_note_is_refused(lost: Lost) -> None:
    await lost.site.hold(rows_of(SIZE + 10, log=lost.log.origin))
    await lost.site.sign()
    await lost.site.hold(lost.rows[: lost.beginning(300)])
    await lost.site.owner.execute("DELETE FROM ledger.checkpoints")
    await refused(lost, r"ends with 700 entries, but the signer has signed 710")


async def test_a_database_that_went_another_way_is_refused(lost: Lost) -> None:
    size = lost.beginning(300)
    await lost.site.hold(forked(lost.rows, size, 20, origin=lost.log.origin, salt="another"))
    await lost.site.owner.execute("DELETE FROM ledger.checkpoints")
    await refused(lost, f"differ from index {size} on")


async def test_a_log_that_lacks_nothing_is_left_alone(lost: Lost) -> None:
    await refused(lost, "nothing is missing")


async def test_a_broken_export_is_refused(lost: Lost) -> None:
    await lost.site.hold(lost.rows[: lost.beginning(300)])
    await lost.site.owner.execute("DELETE FROM ledger.checkpoints")
    bundle = lost.export / "tile/entries/001"
    bundle.write_bytes(bundle.read_bytes().replace(b'"branch":"then"', b'"branch":"else"', 1))
    await refused(lost, "fault", error=BrokenError)


async def test_a_broken_beginning_is_refused(lost: Lost) -> None:
    await lost.site.hold(lost.rows[: lost.beginning(300)])
    await lost.site.owner.execute("DELETE FROM ledger.checkpoints")
    change(lost.site.database, "UPDATE ledger.entries SET key = 'x' WHERE index = 7")
    await refused(lost, "derived fault at index 7", error=BrokenError)


async def test_the_export_of_another_log_is_refused(lost: Lost) -> None:
    await lost.site.hold(lost.rows[: lost.beginning(300)])
    await lost.site.owner.execute("DELETE FROM ledger.checkpoints")
    text, _ = (lost.export / CHECKPOINT_FILE).read_text().split("\n\n")
    stranger = lost.site.keys.signer(lost.log.origin.replace("0", "1"))
    note = sign_note(text.replace(lost.log.origin, stranger.name) + "\n", [stranger])
    (lost.export / CHECKPOINT_FILE).write_bytes(note)
    await refused(lost, "checkpoint|signature", error=BrokenError)


# Checkpoints without a note


async def test_a_log_whose_note_is_lost_waits_until_it_is_adopted(lost: Lost) -> None:
    (lost.site.keys.path / NOTES_FILE).unlink()
    signer = lost.site.signer()
    assert await lost.site.sign(signer) == []
    assert "lakeproof ledger adopt" in str(signer.refused[lost.log.origin])
    assert not await lost.site.confirmed()
    async with lost.auditor() as auditor:
        adoptable = await read_adoptable(auditor, lost.log, lost.site.keys)
    assert (adoptable.size, adoptable.checkpoint.size, adoptable.noted) == (SIZE, SIZE, None)
    adopt(lost.site.keys, adoptable)
    assert await lost.site.sign(signer) == []
    assert lost.log.origin not in signer.refused
    assert await lost.site.confirmed()
    with pytest.raises(NothingToAdoptError, match="changed in the meantime"):
        adopt(lost.site.keys, adoptable)


async def test_a_key_directory_from_an_older_backup_waits_until_the_log_is_adopted(lost: Lost) -> None:
    older = (lost.site.keys.path / NOTES_FILE).read_bytes()
    await lost.site.hold(rows_of(SIZE + 10, log=lost.log.origin))
    await lost.site.sign()
    (lost.site.keys.path / NOTES_FILE).write_bytes(older)
    signer = lost.site.signer()
    assert await lost.site.sign(signer) == []
    assert "a note of size 700, and the database a checkpoint of size 710" in str(signer.refused[lost.log.origin])
    async with lost.auditor() as auditor:
        adopt(lost.site.keys, await read_adoptable(auditor, lost.log, lost.site.keys))
    await lost.site.sign(signer)
    assert lost.site.kept() == SIZE + 10
    assert await lost.site.confirmed()


async def test_a_log_that_does_not_go_on_from_the_older_note_is_never_adopted(lost: Lost) -> None:
    rows = forked(lost.rows, 300, 500, origin=lost.log.origin, salt="another")
    older = (lost.site.keys.path / NOTES_FILE).read_bytes()
    (lost.site.keys.path / NOTES_FILE).unlink()
    await lost.site.owner.execute("DELETE FROM ledger.checkpoints")
    await lost.site.hold(rows)
    async with lost.site.connected() as connection:
        await lost.site.signer().sign_due(connection)
    (lost.site.keys.path / NOTES_FILE).write_bytes(older)
    async with lost.auditor() as auditor:
        with pytest.raises(BrokenError, match="root fault"):
            await read_adoptable(auditor, lost.log, lost.site.keys)


async def test_a_broken_log_is_never_adopted(lost: Lost) -> None:
    (lost.site.keys.path / NOTES_FILE).unlink()
    change(lost.site.database, "UPDATE ledger.entries SET entry = entry || ' '::bytea WHERE index = 9")
    async with lost.auditor() as auditor:
        with pytest.raises(BrokenError, match="index 9"):
            await read_adoptable(auditor, lost.log, lost.site.keys)


async def test_nothing_is_adopted_of_a_log_that_the_signer_knows(lost: Lost, site: Site) -> None:
    create_tenant_log(site.database, site.installation, tenant := UUID(int=1, version=4))
    async with lost.auditor() as auditor:
        with pytest.raises(NothingToAdoptError, match="nothing that the signer does not know"):
            await read_adoptable(auditor, lost.log, site.keys)
        fresh = await find_log(auditor, site.installation.origin(tenant))
        with pytest.raises(NothingToAdoptError, match="has no checkpoint"):
            await read_adoptable(auditor, fresh, site.keys)


async def test_an_export_newer_than_the_note_binds_the_signer_before_anything_is_replayed(
    lost: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the signer would confirm the log half way, and others would append behind it."""
    monkeypatch.setattr(replay_module, "BATCH_ENTRIES", 50)
    (lost.site.keys.path / NOTES_FILE).unlink()
    await lost.site.owner.execute("DELETE FROM ledger.checkpoints")
    lost.site.left.clear()
    size = lost.beginning(100)
    await lost.site.hold(lost.rows[:size])
    await lost.site.sign()
    assert await lost.site.confirmed()
    assert lost.site.kept() == size

    def cut(_done: int, of: int) -> None:
        if of == SIZE - size:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await lost.recover(progress=cut)
    assert lost.site.kept() == SIZE
    assert await lost.site.sign() == []
    assert not await lost.site.confirmed()
    await lost.recover()
    await lost.site.sign()
    await lost.check(SIZE)
