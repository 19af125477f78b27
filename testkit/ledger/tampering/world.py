# SPDX-License-Identifier: Apache-2.0
"""
The world that is tampered with: two tenants' logs and the system log that anchors them, written by the real services.

Their payload parts are plain or sealed, and their checkpoints signed by the key of a key directory. Each tenant's log
ends with a tail that nobody has signed, and its newest signed size is not anchored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

from psycopg import AsyncConnection

from lakeproof.installation import Installation
from lakeproof.provision import Provisioned, create_tenant_log
from ledger.anchoring.anchor_log import anchor_logs
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.erasing.sealer import Sealer
from ledger.erasing.subject_keys import KeyFolder
from ledger.format.event import Event, Part, PreparedEvent, prepare, random_group_id
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Appended, Group, SequencedEntry, Stale
from ledger.format.tiles import Tile
from ledger.signing.key_directory import KeyDirectory
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import Log, read_logs
from ledger.store.session import Connection
from testkit.lakeproof.operator import make_operator
from testkit.ledger.erasing import ADA, EVE
from testkit.ledger.logs import START, TYPES, WORDS
from testkit.ledger.tampering.instances import LogState, World, save

TENANTS: Final = (UUID(int=0xA), UUID(int=0xB))
SIZES: Final = ((90, 256, 401, 520), (40, 300, 301, 310))
"""At which each tenant's log is signed, and, at all but the last, anchored."""
ANCHORED: Final = SIZES[0][-2]
TAIL: Final = 24
"""Entries behind the newest checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _QuickInstallation(Installation):
    """An installation whose keys are read once."""

    signer_keys: KeyDirectory
    opened_keys: KeyFolder

    def open_keys(self) -> KeyDirectory:
        return self.signer_keys

    def open_subject_keys(self) -> KeyFolder:
        return self.opened_keys

    def signed_notes(self) -> Mapping[str, bytes]:
        """Return none, as where the signer works on another machine: what is found is found in the database alone."""
        return {}


@asynccontextmanager
async def open_world(
    database: str, installation: Provisioned, directory: Path, *, seed: int = 0
) -> AsyncIterator[World]:
    """Write the logs into an empty installation, and yield the world with what it takes to put them back."""
    operator = make_operator(database, installation, directory)
    keys, subject_keys = operator.keys, operator.installation.open_subject_keys()
    roles = installation.roles
    for tenant in TENANTS:
        create_tenant_log(database, installation, tenant)
    async with (
        await AsyncConnection.connect(database, autocommit=True) as owner,
        await AsyncConnection.connect(installation.as_role(roles.auditor), autocommit=True) as auditor,
    ):
        appender = Appender(
            installation.as_role(roles.appender), GuardRegistry(CORE_GUARDS), sealer=Sealer(subject_keys)
        )
        async with appender:
            await _write(appender, installation.as_role(roles.signer), keys, auditor, Random(seed))  # noqa: S311
        await owner.execute(PREPARATION.encode())
        await _keep_roots(owner)
        await save(owner)
        held = operator.installation
        quick = _QuickInstallation(
            id=held.id,
            authority=held.authority,
            roles=held.roles,
            dsn=held.dsn,
            settings=held.settings,
            admin_dsn=held.admin_dsn,
            signer_keys=keys,
            opened_keys=subject_keys,
        )
        logs = await read_logs(owner)
        names = {TENANTS[0]: "one", TENANTS[1]: "other", None: "system"}
        yield World(
            owner=owner,
            installation=quick,
            auditor=auditor,
            keys=keys,
            logs={names[log.tenant]: await _state(owner, log) for log in logs},
        )


async def _write(appender: Appender, signer_dsn: str, keys: KeyDirectory, auditor: Connection, random: Random) -> None:
    """Let the logs grow, be signed and be anchored, in turns."""
    logs = {log.tenant: log for log in await read_logs(auditor)}
    system = logs[None]
    sizes = dict.fromkeys(TENANTS, 0)

    async def grow(tenant: UUID | None, to: int, at: int) -> None:
        outcomes = [
            appender.append(logs[tenant].log_id, group)
            for group in random_groups(random, to - at, family="tenant" if tenant is None else None)
        ]
        await asyncio.gather(*outcomes)

    async def append(log_id: int, group: Group) -> Appended | Stale:
        return await appender.append(log_id, group)

    await grow(None, 20, 0)
    async with await AsyncConnection.connect(signer_dsn, autocommit=True) as connection:
        signer = CheckpointSigner(signer_dsn, keys)
        for step in range(len(SIZES[0])):
            for tenant, steps in zip(TENANTS, SIZES, strict=True):
                await grow(tenant, steps[step], sizes[tenant])
                sizes[tenant] = steps[step]
            await signer.sign_due(connection)
            if step < len(SIZES[0]) - 1:
                await anchor_logs(auditor, system, append, open_note=keys.open, clock=lambda: START)
        await grow(None, 7, 0)
        await signer.sign_due(connection)
    for tenant in TENANTS:
        await grow(tenant, sizes[tenant] + TAIL, sizes[tenant])


def random_groups(random: Random, count: int, *, family: str | None = None) -> list[Group]:
    """
    Return groups of 1 to 3 events, `count` in all; half of the events have payload parts, some of them sealed.

    With `family`, all events are of the type `<family>.created`, without parts.
    """
    groups: list[Group] = []
    left = count
    while left:
        of = min(random.randint(1, 3), left)
        left -= of
        ids = random_group_id(now_ms=random.getrandbits(47), random=random.randbytes(10))
        groups.append(Group(id=ids, then=tuple(_event(random, family) for _ in range(of))))
    return groups


def _event(random: Random, family: str | None) -> PreparedEvent:
    subject = random.choice((ADA, EVE))
    names = random.sample(("inputs", "message", "principal"), random.choice((0, 0, 1, 2))) if family is None else []
    parts = tuple(
        Part(
            name=name,
            payload=random.randbytes(random.choice((0, 1, 20, 500))),
            salt=random.randbytes(32),
            subject=random.choice((None, subject)),
        )
        for name in names
    )
    kind = (
        random.choice((*TYPES, "trigger.received", "policy.changed", "payload.erased"))
        if family is None
        else f"{family}.created"
    )
    return prepare(
        Event(
            type=kind,
            version=1,
            key=f"table:sales/orders{random.randrange(20)}",
            actor=random.choice(("system", subject)),
            occurred_at=START + timedelta(microseconds=random.getrandbits(40)),
            # At most 15 digits, as the kernel takes them: it would leave a page with one longer number to the rules.
            data={"number": random.getrandbits(49), "text": random.choice(WORDS), "list": [None, True, {}]},
            parts=parts,
        )
    )


async def _keep_roots(owner: Connection) -> None:
    """Store the root of every tile next to it, as far as the appender has not."""
    tiles = await (await owner.execute("SELECT log_id, level, tile, hashes FROM ledger.tiles")).fetchall()
    for log_id, level, index, hashes in tiles:
        root = Tile.parse(bytes(hashes), level=level, index=index).root()
        statement = "UPDATE ledger.tiles SET root = %s WHERE log_id = %s AND level = %s AND tile = %s"
        await owner.execute(statement, (root, log_id, level, index))


async def _state(owner: Connection, log: Log) -> LogState:
    columns = "index, entry, leaf, type, key, is_control, group_id"
    query = f"SELECT {columns} FROM ledger.entries WHERE log_id = %s ORDER BY index"  # noqa: S608
    found = await (await owner.execute(query.encode(), (log.log_id,), binary=True)).fetchall()
    rows = [
        SequencedEntry(
            index=index, entry=bytes(entry), leaf=bytes(leaf), type=kind, key=key, is_control=control, group_id=group,
            parts=(),
        )
        for index, entry, leaf, kind, key, control, group in found
    ]  # fmt: skip
    query = "SELECT size, note FROM ledger.checkpoints WHERE log_id = %s"
    notes = await (await owner.execute(query.encode(), (log.log_id,))).fetchall()
    return LogState(log=log, rows=rows, notes={size: bytes(note) for size, note in notes})


PREPARATION: Final = """
CREATE SCHEMA saved;
SET synchronous_commit = off;
SET session_replication_role = replica;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SET enable_bitmapscan = off;
ALTER TABLE ledger.logs ALTER log_id DROP IDENTITY;
DO $$
DECLARE c record;
BEGIN
    FOR c IN SELECT conrelid::regclass AS t, conname, contype, pg_get_constraintdef(oid) AS definition
             FROM pg_constraint
             WHERE connamespace = 'ledger'::regnamespace AND contype IN ('c', 'f', 'p', 'n')
             ORDER BY array_position(ARRAY['c', 'f', 'p', 'n'], contype::text)
    LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I CASCADE', c.t, c.conname);
        IF c.contype = 'p' THEN
            EXECUTE format('CREATE UNIQUE INDEX %I ON %s %s', c.conname, c.t, substr(c.definition, 12));
        END IF;
    END LOOP;
END $$;
"""
"""What an owner does first: no constraint is in the way, no trigger runs, and no index is believed."""
