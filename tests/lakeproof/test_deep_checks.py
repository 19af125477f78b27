"""What an installation keeps beside a log is compared with it: pointers, metadata files, versions, attestations."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from psycopg import AsyncConnection

from gateway.metadata_files import MetadataFiles
from lakeproof.deep_checks import check_deeply
from lakeproof.provision import Installation, create_tenant_log
from ledger.canonical import Json
from ledger.errors import BrokenError, Fault
from ledger.event import Event, PreparedEvent, prepare, random_group_id
from ledger.events import CommitDecided, CommitSettled, ProjectionAttested, Settled, to_data
from ledger.events.commits import Decided, Evidence, Identifier
from ledger.read import Connection, Log, find_log
from ledger.sequence import Group
from projections.commits import CommitsProjection
from projections.cursors import insert, insert_live
from projections.projection import Transaction
from tests.ledger.logs import START, TENANT, append, change, noise

POINTER, VERSION = "gateway.tables table:lake/sales/", "ledger.aggregates "
TABLE_UUID = "0b9f0b7e-4c9c-4a57-a6f0-0c5d7a1f5f0e"


def event(kind: str, key: str, data: dict[str, Json]) -> PreparedEvent:
    return prepare(Event(type=kind, version=1, key=key, actor="system", occurred_at=START, data=data))


def commit(number: int, name: str, operation: str, file: Path | None, outcome: Settled = Settled.ACCEPTED) -> Group:
    """Return a group of the built-in catalog: a decision and what became of it."""
    group_id = random_group_id(now_ms=1_700_000_000_000 + number, random=noise("deep", number, size=10))
    key = f"table:lake/sales/{name}"
    decided = CommitDecided(
        actions=(),
        as_of=-1,
        base=None,
        decision=Decided.APPROVED,
        identifier=Identifier(alias="lake", namespace=("sales",), name=name),
        operation=operation,
        policy_set="0" * 64,
        principal_source="api_key",
        reason=None,
        request="0" * 64,
        snapshots=(),
        table_uuid=TABLE_UUID,
    )
    settled = CommitSettled(
        decision=str(group_id),
        evidence=Evidence.ANSWER,
        metadata_location=str(file) if file else None,
        metadata_sha256=sha256(file.read_bytes()).hexdigest() if file else None,
        outcome=outcome,
        snapshots=(),
        table_uuid=TABLE_UUID,
    )
    then = (event(CommitDecided.TYPE, key, to_data(decided)), event(CommitSettled.TYPE, key, to_data(settled)))
    return Group(id=group_id, then=then)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An installation with one log, and what it keeps beside it."""

    database: str
    installation: Installation
    connection: Connection
    log: Log
    files: dict[str, Path]

    async def check(self) -> list[str]:
        dsn = self.installation.as_role(self.installation.roles.projector)
        return list(await check_deeply(self.connection, self.log, files=MetadataFiles(), projector_dsn=dsn))

    async def broken(self) -> str:
        with pytest.raises(BrokenError) as caught:
            await self.check()
        assert caught.value.fault is Fault.DERIVED
        return caught.value.where


@pytest.fixture
async def kept(database: str, installation: Installation, tmp_path: Path) -> AsyncIterator[Kept]:
    log_id = create_tenant_log(database, installation, TENANT)
    files = {name: tmp_path / f"{name}.metadata.json" for name in ("one", "two", "three", "lost")}
    for name, file in files.items():
        file.write_text(json.dumps({"name": name}))
    policy: dict[str, Json] = {"id": "p", "version": 1}
    groups = [
        commit(1, "orders", "table.create", files["one"]),
        commit(2, "orders", "table.commit", files["two"]),
        commit(3, "orders", "table.commit", files["lost"], Settled.CONFLICTED),
        commit(4, "gone", "table.create", files["three"]),
        commit(5, "gone", "table.drop", None),
        commit(6, "items", "table.create", files["three"]),
        *(
            Group(id=UUID(int=version), then=(event("policy.created", "policy:p", policy | {"version": version}),))
            for version in (1, 2)
        ),
    ]
    await append(installation, log_id, groups)
    with psycopg.connect(database) as owner:
        owner.execute("INSERT INTO gateway.namespaces VALUES (%s, 'lake', '{sales}', '{}')", (log_id,))
        owner.execute("INSERT INTO ledger.aggregates VALUES (%s, 'policy:p', 2)", (log_id,))
        for name, file in (("orders", files["two"]), ("items", files["three"])):
            owner.execute(
                "INSERT INTO gateway.tables VALUES (%s, 'lake', '{sales}', %s, %s, %s, %s)",
                (log_id, name, TABLE_UUID, str(file), sha256(file.read_bytes()).hexdigest()),
            )
    dsn = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        log = await find_log(connection, installation.origin(TENANT))
        yield Kept(database=database, installation=installation, connection=connection, log=log, files=files)


async def test_what_is_as_the_log_says_is_counted(kept: Kept) -> None:
    assert await kept.check() == [
        "1 aggregates",
        "2 catalog pointers and their metadata files",
        "0 projections that stand where they were attested; 0 that have moved on were not compared",
    ]


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        (
            "UPDATE gateway.tables SET metadata_location = 'x' WHERE name = 'items'",
            "gateway.tables table:lake/sales/items",
        ),
        (
            "UPDATE gateway.tables SET table_uuid = gen_random_uuid() WHERE name = 'orders'",
            "gateway.tables table:lake/sales/orders",
        ),
        ("UPDATE gateway.tables SET metadata_sha256 = repeat('0', 64)", POINTER + "items"),
        ("UPDATE gateway.tables SET name = 'gone' WHERE name = 'items'", POINTER + "gone"),
        ("DELETE FROM gateway.tables WHERE name = 'orders'", POINTER + "orders"),
        ("UPDATE ledger.aggregates SET version = 1", VERSION + "policy:p"),
        ("DELETE FROM ledger.aggregates", VERSION + "policy:p"),
        (
            "INSERT INTO ledger.aggregates SELECT log_id, 'policy:q', 1 FROM ledger.aggregates",
            VERSION + "policy:q",
        ),
    ],
)
async def test_a_row_that_the_log_does_not_tell_is_named(kept: Kept, statement: str, where: str) -> None:
    change(kept.database, statement)
    assert await kept.broken() == where


async def test_a_metadata_file_that_was_changed_or_is_gone_is_named(kept: Kept) -> None:
    kept.files["one"].unlink()  # which is not the current one
    await kept.check()
    kept.files["two"].write_text("{}")
    assert await kept.broken() == "metadata file of table:lake/sales/orders"
    kept.files["three"].unlink()
    assert await kept.broken() == "metadata file of table:lake/sales/items"


async def test_a_projection_that_stands_where_it_was_attested_must_have_that_digest(kept: Kept) -> None:
    projection = CommitsProjection()
    dsn = kept.installation.as_role(kept.installation.roles.projector)
    async with await AsyncConnection.connect(dsn) as connection:
        await insert(connection, projection.name, kept.log.log_id, 1, version=projection.version)
        await insert_live(connection, projection.name, kept.log.log_id, 1)
        digest = await projection.digest(Transaction(connection=connection, log=kept.log, generation=1))
    for number, (size, said) in enumerate(((0, digest.hex()), (5, digest.hex()), (0, "0" * 64))):
        attested = ProjectionAttested(
            projection=projection.name, projection_version=projection.version, generation=1, size=size, digest=said
        )
        happened = event(ProjectionAttested.TYPE, f"projection:{projection.name}", to_data(attested))
        await append(kept.installation, kept.log.log_id, [Group(id=UUID(int=100 + number), then=(happened,))])
        if said == "0" * 64:
            assert await kept.broken() == f"projection {projection.name}, generation 1"
        else:
            compared, moved = int(size == 0), int(size != 0)
            assert (await kept.check())[2].startswith(
                f"{compared} projections that stand where they were attested; {moved}"
            )
