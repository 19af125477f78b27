# SPDX-License-Identifier: Apache-2.0
"""Anchors in PostgreSQL: what a log's key has signed is anchored once, by whoever is first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from psycopg import AsyncConnection
from psycopg.errors import InsufficientPrivilege

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.anchoring import Anchor, anchors_of, check_all_present, check_anchors
from ledger.anchoring.anchor_log import ANCHORS_KEY, Anchored, Append, anchor_logs, read_states
from ledger.anchoring.published import Published, read_newest_signed, read_published_checkpoint, store_cosignatures
from ledger.append.appender import Appender
from ledger.errors import BrokenError, Fault, LedgerError, LogUnavailableError, OutcomeUnknownError
from ledger.format.merkle import Frontier
from ledger.format.note import Signature, format_note, parse_note
from ledger.format.proof import check_proof, parse_proof
from ledger.format.sequence import Appended, Group, SequencedEntry, Stale
from ledger.format.witness_policy import WitnessPolicy
from ledger.proving.prove import prove
from ledger.signing.key_directory import KeyDirectory, create_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import Log, read_entries, read_head, read_leaves, read_logs
from ledger.store.session import Connection
from ledger.store.stored_tree import NoCheckpointError
from ledger.verify.database import verify_database
from testkit.ledger.appending import appender
from testkit.ledger.logs import START, change, head_of, put, rows_of
from testkit.ledger.witnesses import TIME_S, cosigners, timeless

SIZE_MAX = 300
TENANTS = [UUID(int=n + 1) for n in range(3)]


def rows(log: Log, size: int, *, salt: str = "") -> list[SequencedEntry]:
    """Return the first rows of a log, the same ones each time."""
    return rows_of(SIZE_MAX, log=log.origin, salt=salt)[:size]


@dataclass(frozen=True, kw_only=True)
class Site:
    """An installation with three tenants, whose logs are signed and anchored."""

    database: str
    installation: Provisioned
    keys: KeyDirectory
    appender: Appender
    auditor: Connection
    signer: Connection
    logs: dict[str, Log]

    @property
    def system(self) -> Log:
        return self.logs[self.installation.system_origin]

    @property
    def tenants(self) -> list[Log]:
        return [log for log in self.logs.values() if log.tenant is not None]

    async def grow(self, log: Log, size: int, *, salt: str = "") -> None:
        """Make a tenant's log one of that size, and sign whatever has moved."""
        await put(self.database, log.log_id, rows(log, size, salt=salt))
        await CheckpointSigner(self.signer.info.dsn, self.keys).sign_due(self.signer)

    async def append(self, log_id: int, group: Group) -> Appended | Stale:
        return await self.appender.append(log_id, group)

    async def anchor(self) -> Anchored:
        return await anchor_logs(self.auditor, self.system, self.append, open_note=self.keys.open, clock=lambda: START)

    async def anchors(self) -> dict[str, Sequence[Anchor]]:
        """Return the anchors in the system log, which must verify."""
        await verify_database(self.auditor, self.system, self.keys.verifier_keys(self.system.origin))
        size = (await read_head(self.auditor, self.system.log_id)).size
        return dict(anchors_of(await read_entries(self.auditor, self.system.log_id, from_index=0, to_index=size)))

    async def check(self, log: Log) -> Anchor | None:
        """Check a log as it is now against its anchors."""
        size = (await read_head(self.auditor, log.log_id)).size
        leaves = await read_leaves(self.auditor, log.log_id, from_index=0, to_index=size)
        anchors = (await self.anchors()).get(log.origin, ())
        return check_anchors(
            anchors,
            origin=log.origin,
            size=size,
            root_at=lambda size: Frontier.empty().extended(leaves[:size]).root(),
        )


@pytest.fixture
async def site(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Site]:
    for tenant in TENANTS:
        create_tenant_log(database, installation, tenant)
    roles = installation.roles
    auditor = await AsyncConnection.connect(installation.as_role(roles.auditor), autocommit=True)
    signer = await AsyncConnection.connect(installation.as_role(roles.signer), autocommit=True)
    async with auditor, signer, appender(installation) as running:
        site = Site(
            database=database,
            installation=installation,
            keys=create_key_directory(tmp_path / "keys"),
            appender=running,
            auditor=auditor,
            signer=signer,
            logs={log.origin: log for log in await read_logs(auditor)},
        )
        await CheckpointSigner(signer.info.dsn, site.keys).sign_due(signer)
        yield site


async def test_each_log_that_was_signed_is_anchored_once(site: Site) -> None:
    first, second, third = site.tenants
    assert (await site.anchor()).checkpoints == ()  # nothing is signed
    await site.grow(first, 300)
    await site.grow(second, 5)
    anchored = await site.anchor()
    assert [(one.origin, one.size) for one in anchored.checkpoints] == [(first.origin, 300), (second.origin, 5)]
    assert ((await site.anchor()).checkpoints, anchored.refused) == ((), {})
    await site.grow(second, 6)
    assert [one.size for one in (await site.anchor()).checkpoints] == [6]
    anchors = await site.anchors()
    assert {origin: [one.size for one in found] for origin, found in anchors.items()} == {
        first.origin: [300],
        second.origin: [5, 6],
    }
    assert anchors[first.origin][0].root == head_of(rows(first, 300)).frontier.root()
    newest = await site.check(second)
    assert newest == anchors[second.origin][-1]
    assert await site.check(third) is None


async def test_many_anchors_are_several_groups_and_a_round_cut_short_is_gone_on_with(site: Site) -> None:
    for log in site.tenants:
        await site.grow(log, 4)
    appended: list[int] = []

    async def dying(log_id: int, group: Group) -> Appended | Stale:
        if appended:
            raise LogUnavailableError("no answer")
        appended.append(len(group.then))
        return await site.append(log_id, group)

    def round_of(append: Append) -> Coroutine[None, None, Anchored]:
        return anchor_logs(
            site.auditor, site.system, append, open_note=site.keys.open, clock=lambda: START, group_max=2
        )

    with pytest.raises(LogUnavailableError):
        await round_of(dying)
    assert appended == [2]
    assert [one.origin for one in (await round_of(site.append)).checkpoints] == [site.tenants[2].origin]
    assert {origin: len(found) for origin, found in (await site.anchors()).items()} == {
        log.origin: 1 for log in site.tenants
    }


async def test_anchors_do_not_anchor_themselves(site: Site) -> None:
    await site.grow(site.tenants[0], 10)
    await site.anchor()
    size = (await read_head(site.auditor, site.system.log_id)).size
    for _ in range(3):
        await CheckpointSigner(site.signer.info.dsn, site.keys).sign_due(site.signer)
        await site.anchor()
    assert (await read_head(site.auditor, site.system.log_id)).size == size


async def test_a_log_removed_from_the_database_is_noticed(site: Site) -> None:
    await site.grow(site.tenants[0], 10)
    await site.anchor()
    gone = site.tenants[0]
    for table in ("checkpoints", "confirmations", "entries", "heads", "logs"):
        change(site.database, f"DELETE FROM ledger.{table} WHERE log_id = %s", gone.log_id)  # noqa: S608
    present = [log.origin for log in await read_logs(site.auditor)]
    with pytest.raises(BrokenError, match="removed whole") as caught:
        check_all_present(await site.anchors(), origins=present)
    assert caught.value.fault is Fault.ANCHOR
    assert (await site.anchor()).checkpoints == ()  # and the anchorer goes on


@pytest.mark.parametrize(("size", "salt"), [(9, ""), (10, "rewritten"), (20, "rewritten")])
async def test_a_log_cut_off_or_rewritten_in_the_database_is_noticed(site: Site, size: int, salt: str) -> None:
    log = site.tenants[0]
    await site.grow(log, 10)
    await site.anchor()
    assert await site.check(log)
    await put(site.database, log.log_id, rows(log, size, salt=salt))
    with pytest.raises(BrokenError) as caught:
        await site.check(log)
    assert caught.value.fault is Fault.ANCHOR


async def test_a_checkpoint_that_the_key_has_not_signed_is_not_anchored_and_the_others_are(site: Site) -> None:
    first, second, third = site.tenants
    for log in site.tenants:
        await site.grow(log, 4)
    other = "(SELECT note FROM ledger.checkpoints WHERE log_id = %s)"
    swap = f"UPDATE ledger.checkpoints SET note = {other} WHERE log_id = %s"  # noqa: S608
    change(site.database, swap, second.log_id, first.log_id)
    change(site.database, "UPDATE ledger.checkpoints SET size = 5 WHERE log_id = %s", third.log_id)
    anchored = await site.anchor()
    assert [one.origin for one in anchored.checkpoints] == [second.origin]
    assert anchored.refused.keys() == {first.origin, third.origin}


async def test_of_two_who_anchor_at_once_one_does(site: Site) -> None:
    for log in site.tenants:
        await site.grow(log, 4)
    both = asyncio.Barrier(2)

    async def late(log_id: int, group: Group) -> Appended | Stale:
        async with both:  # each has read what there is before either appends
            return await site.append(log_id, group)

    async def other(log_id: int, group: Group) -> Appended | Stale:
        await site.grow(site.tenants[1], 7)  # this one saw other sizes
        return await late(log_id, group)

    roles = site.installation.roles
    async with await AsyncConnection.connect(site.installation.as_role(roles.auditor), autocommit=True) as connection:
        one, two = await asyncio.gather(
            anchor_logs(site.auditor, site.system, late, open_note=site.keys.open, clock=lambda: START),
            anchor_logs(connection, site.system, other, open_note=site.keys.open, clock=lambda: START),
        )
    assert one.checkpoints == two.checkpoints  # the same anchors have the same id: appended once, and both may say so
    await site.anchor()
    found = {origin: [one.size for one in anchors] for origin, anchors in (await site.anchors()).items()}
    assert found == {log.origin: [4, 7] if log == site.tenants[1] else [4] for log in site.tenants}
    assert await site.check(site.tenants[1])


async def test_one_who_has_read_an_older_state_appends_nothing(site: Site) -> None:
    first, second, _ = site.tenants
    await site.grow(first, 4)

    async def overtaken(log_id: int, group: Group) -> Appended | Stale:
        await site.grow(first, 9)
        await site.grow(second, 2)
        assert len((await site.anchor()).checkpoints) == 2
        return await site.append(log_id, group)

    late = await anchor_logs(site.auditor, site.system, overtaken, open_note=site.keys.open, clock=lambda: START)
    assert late.checkpoints == ()
    assert [one.size for one in (await site.anchors())[first.origin]] == [9]


@pytest.mark.parametrize("lost", [LogUnavailableError, OutcomeUnknownError])
async def test_an_append_whose_answer_was_lost_is_gone_on_with(site: Site, lost: type[Exception]) -> None:
    await site.grow(site.tenants[0], 4)

    async def failing(log_id: int, group: Group) -> Appended | Stale:
        if lost is OutcomeUnknownError:
            await site.append(log_id, group)
        raise lost("no answer")

    with pytest.raises(lost):
        await anchor_logs(site.auditor, site.system, failing, open_note=site.keys.open, clock=lambda: START)
    await site.anchor()
    assert [one.size for one in (await site.anchors())[site.tenants[0].origin]] == [4]


async def test_the_guarded_row_counts_the_groups_of_anchors(site: Site) -> None:
    for size in (1, 2, 3):
        await site.grow(site.tenants[0], size)
        await site.anchor()
    row = await (
        await site.auditor.execute("SELECT version FROM ledger.aggregates WHERE key = %s", (ANCHORS_KEY,))
    ).fetchone()
    assert row == (len((await site.anchors())[site.tenants[0].origin]),)


async def test_states_name_every_log_but_the_system_s(site: Site) -> None:
    await site.grow(site.tenants[0], 4)
    states = {state.origin: state for state in await read_states(site.auditor, site.system)}
    assert states.keys() == {log.origin for log in site.tenants}
    assert (states[site.tenants[0].origin].size, states[site.tenants[1].origin].size) == (4, None)


async def test_of_a_tenant_s_log_the_newest_signed_checkpoint_is_published(site: Site) -> None:
    log = site.tenants[0]
    keys = site.keys.verifier_keys(log.origin)
    assert await read_published_checkpoint(site.auditor, log, keys=keys, policy=None) is None
    await site.grow(log, 4)
    await site.grow(log, 6)
    published = await read_published_checkpoint(site.auditor, log, keys=keys, policy=None)
    assert published is not None
    assert (published.checkpoint.size, published.cosigned_by, published.token) == (6, (), None)
    stranger = site.keys.verifier_keys(site.tenants[1].origin)
    with pytest.raises(BrokenError):
        await read_published_checkpoint(site.auditor, log, keys=stranger, policy=None)


async def test_a_cosignature_without_a_time_is_not_kept_and_publishes_nothing(site: Site) -> None:
    await site.grow(site.tenants[0], 4)
    await site.anchor()
    await site.grow(site.tenants[1], 1)  # and the system log, which has grown by the anchor, is signed
    keys = site.keys.verifier_keys(site.system.origin)
    newest = await read_newest_signed(site.auditor, site.system, keys=keys)
    assert newest is not None
    (checkpoint, note), cosigner = newest, cosigners()[1]
    policy = WitnessPolicy.parse(f"witness w {cosigner.verifier_key.format()}\nquorum w\n".encode())
    text, lines = parse_note(note)
    none, timed = timeless(cosigner, text), cosigner.cosign(text, time_s=TIME_S)

    async def store(*added: Signature) -> tuple[str, ...]:
        cosigned = format_note(text, [*lines, *added])
        return await store_cosignatures(
            site.signer, site.system.log_id, size=checkpoint.size, note=cosigned, policy=policy
        )

    async def published() -> Published | None:
        return await read_published_checkpoint(site.auditor, site.system, keys=keys, policy=policy)

    assert await store(none) == ()
    assert await published() is None
    row = (site.system.log_id, checkpoint.size, none.name, none.key_id, none.signature)
    await site.signer.execute("INSERT INTO ledger.cosignatures VALUES (%s, %s, %s, %s, %s)", row)
    assert await published() is None  # closed, and no false alarm
    change(site.database, "DELETE FROM ledger.cosignatures")
    assert await store(none, timed) == ("w",)
    assert (found := await published()) is not None
    assert found.note == format_note(text, [*lines, timed])


async def test_the_system_log_is_proven_up_to_what_enough_witnesses_have_seen(site: Site) -> None:
    keys, cosigner = site.keys.verifier_keys(site.system.origin), cosigners()[1]
    policy = WitnessPolicy.parse(f"witness w {cosigner.verifier_key.format()}\nquorum w\n".encode())

    async def proven(index: int) -> int:
        """Return the size of the checkpoint that the entry is proven against, with the witness's line under it."""
        proof = await prove(site.auditor, site.system, index, keys=keys, policy=policy)
        checkpoint = check_proof(proof, keys).checkpoint
        policy.check(parse_proof(proof).checkpoint, logs=keys)
        return checkpoint.size

    for size in (4, 5):  # an anchor each, and the system log is signed with it
        await site.grow(site.tenants[0], size)
        await site.anchor()
    await site.grow(site.tenants[1], 1)
    with pytest.raises(NoCheckpointError, match="that enough witnesses have cosigned"):
        await proven(0)
    signed = "SELECT size, note FROM ledger.checkpoints WHERE log_id = %s ORDER BY size"
    checkpoints = await (await site.auditor.execute(signed, (site.system.log_id,))).fetchall()
    assert len(checkpoints) > 1, "an older one is to be cosigned"
    for size, signed_note in checkpoints:
        text, lines = parse_note(bytes(signed_note))
        note = format_note(text, [*lines, cosigner.cosign(text, time_s=TIME_S)])
        await store_cosignatures(site.signer, site.system.log_id, size=size, note=note, policy=policy)
        assert [await proven(index) for index in range(size)] == [size] * size
        with pytest.raises(NoCheckpointError if size < checkpoints[-1][0] else LedgerError):
            await proven(size)


async def test_only_the_signer_adds_what_others_say_and_nobody_changes_it(site: Site) -> None:
    await site.grow(site.tenants[0], 4)
    log_id, roles = site.tenants[0].log_id, site.installation.roles
    stamp = "INSERT INTO ledger.stamps VALUES (%s, 4, now(), 'token')"
    line = "INSERT INTO ledger.cosignatures VALUES (%s, 4, 'w', '1234', 'signature')"
    for role in (roles.appender, roles.auditor, roles.reader, roles.projector, roles.gateway):
        async with await AsyncConnection.connect(site.installation.as_role(role), autocommit=True) as connection:
            for statement in (stamp, line):
                with pytest.raises(InsufficientPrivilege):
                    await connection.execute(statement, (log_id,))
    for statement in (stamp, line):
        await site.signer.execute(statement, (log_id,))
    for table in ("stamps", "cosignatures"):
        for statement in (f"UPDATE ledger.{table} SET size = 4", f"DELETE FROM ledger.{table}"):  # noqa: S608
            with pytest.raises(InsufficientPrivilege):
                await site.signer.execute(statement)
    for tenant, seen in ((TENANTS[0], 1), (TENANTS[1], 0)):
        reader = site.installation.as_role(roles.tenant(tenant))
        async with await AsyncConnection.connect(reader, autocommit=True) as connection:
            for table in ("stamps", "cosignatures"):
                rows = await connection.execute(f"SELECT FROM ledger.{table}")
                assert rows.rowcount == seen
