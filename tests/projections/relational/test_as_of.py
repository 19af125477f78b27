# SPDX-License-Identifier: Apache-2.0
"""
What is asked as of an entry of the log is what was answered when the log ended with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ledger.format.events import CommitOutcome, DetectionFound, DetectionKind, FindingVerdict
from projections.errors import DigestMismatchError
from projections.processing.generations import rebuild
from projections.processing.runner import ProjectionRunner
from projections.relational.as_of import read_names_then, read_tables_named
from projections.relational.finding_reviews import FindingState
from projections.relational.findings import (
    INDEX_END,
    read_finding_at,
    read_findings_below,
    read_found_in_tables,
    read_last_findings_of_table,
    read_scans_of_table,
)
from projections.relational.table_names import Owner, read_live_names, read_owners, read_tables
from testkit.projections.story import ADA, BOB, ORDERS, ORDERS_UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.store.read import Log
    from ledger.store.session import Connection
    from testkit.projections.story import Story, World

ITEMS, CLIENTS = "table:lake/sales/items", "table:lake/sales/clients"
UUIDS = (ORDERS_UUID, "5f0c9d1e-0000-4000-8000-000000000002", "5f0c9d1e-0000-4000-8000-000000000003")
KEYS = (ORDERS, ITEMS, CLIENTS)
EMAIL, PHONE = ("email", DetectionKind.EMAIL, 92), ("note", DetectionKind.PHONE, 55)
SURER = ("note", DetectionKind.PHONE, 92)


def tell(story: Story, *, entries: int) -> None:
    """Three tables that swap three names, are dropped and come back, while what is in them is found again and again."""
    story.settled(story.decided(operation="table.create"), table_uuid=UUIDS[0])
    story.settled(story.decided(ITEMS, operation="table.create", actor=BOB), ITEMS, table_uuid=UUIDS[1])
    random = Random(7)  # noqa: S311 - no secret
    reviews: dict[tuple[str, int, str], int] = {}
    while story.size < entries:
        key, uuid, snapshot = random.choice(KEYS), random.choice(UUIDS), str(random.randint(1, 2))
        match random.choice(
            ["make", "name", "rename", "drop", "scan", "scan", "scan", "fail", "review", "review", "claim"]
        ):
            case "make":
                actor, outcome = (
                    random.choice([ADA, BOB]),
                    random.choice([CommitOutcome.ACCEPTED, CommitOutcome.REFUSED]),
                )
                group = story.decided(key, operation="table.create", actor=actor, table_uuid=uuid)
                story.settled(group, key, outcome, table_uuid=uuid)
            case "name":
                story.identified(key, uuid)
            case "rename":
                story.renamed(key, random.choice(KEYS), uuid)
            case "drop":
                story.dropped(key, uuid)
            case "fail":
                story.scan_failed(snapshot)
            case "claim":
                story.observed(snapshot, key=key, table_uuid=uuid)
            case "scan":
                found = random.choice([(), (EMAIL,), (EMAIL, PHONE), (EMAIL, SURER), (PHONE,)])
                story.scanned(snapshot, *found, key=key, of_catalog=random.random() < 0.7, table_uuid=uuid)
            case _:
                told = [each for each in story.entries() if isinstance(each.event, DetectionFound)]
                if told:
                    finding = random.choice(told)
                    event = finding.event
                    assert isinstance(event, DetectionFound)
                    about = (event.table_uuid, event.field_id, event.kind.value)
                    reviews[about] = reviews.get(about, 0) + 1
                    verdict = random.choice(list(FindingVerdict))
                    story.reviewed(finding.entry.index, verdict, version=reviews[about])


async def answers(connection: Connection, log: Log, *, as_of: int | None, end: int) -> Mapping[str, Any]:
    """All that is asked of findings and names, now or as of an entry, when the log has `end` entries."""
    log_id = log.log_id
    told: dict[str, Any] = {}

    async def called(rows: Sequence[Any]) -> list[Any]:
        if as_of is None:
            return list(rows)
        names = await read_names_then(connection, log_id, [each.table_uuid for each in rows], index=as_of)
        return [replace(each, key=names[each.table_uuid][0] or each.key) for each in rows]

    for key, state in ((None, FindingState.OPEN), (None, FindingState.DISMISSED), (ORDERS, None), (ITEMS, None)):
        rows, following = await read_findings_below(
            connection, log_id, before=INDEX_END, key=key, state=state, as_of=as_of
        )
        told[f"findings of {key}, {state}"] = await called(rows), following
    for index in range(0, end, 10):
        one = await read_finding_at(connection, log_id, index, as_of=as_of)
        told[f"the finding at {index}"] = None if one is None else await called([one])
    for uuid in UUIDS:
        last = await read_last_findings_of_table(connection, log_id, table_uuid=uuid, as_of=as_of)
        told[f"last of {uuid}"] = await called(last)
        told[f"scans of {uuid}"] = await called(
            await read_scans_of_table(connection, log_id, table_uuid=uuid, as_of=as_of)
        )
    told["kinds"] = await read_found_in_tables(connection, log_id, UUIDS, as_of=as_of)
    told["owners"] = await read_owners(connection, log_id, UUIDS, as_of=as_of)
    filters: Sequence[dict[str, Any]] = (
        *({"limit": 1}, {"text": "orders"}, {"kind": "phone"}, {"tag": "pii"}),
        *({"owner": Owner(name=ADA, may_be_principal=False)}, {"after": ITEMS}),
    )
    for number, chosen in enumerate(filters):
        told[f"tables {number}"] = await read_tables(connection, log_id, as_of=as_of, **chosen)
    for key in KEYS:
        told[f"called {key}"] = (
            [each.table_uuid for each in await read_live_names(connection, log_id, keys=[key])]
            if as_of is None
            else await read_tables_named(connection, log_id, key, index=as_of)
        )
    return told


def live(world: World, *, batch_max: int) -> ProjectionRunner:
    """The projections that are asked."""
    return ProjectionRunner(world.dsn, [world.findings, world.commits], batch_max=batch_max)


async def test_what_is_asked_as_of_an_entry_is_what_was_answered_when_the_log_ended_with_it(
    world: World, story: Story
) -> None:
    tell(story, entries=36)
    log = await world.new_log()
    await world.append(log, story)
    then: list[Mapping[str, Any]] = []
    for end in range(1, story.size + 1):
        await live(world, batch_max=1).catch_up(log.log_id, end)
        async with world.as_reader(log) as connection:
            then.append(await answers(connection, log, as_of=None, end=end))
    async with world.as_reader(log) as connection:
        for as_of, answered in enumerate(then):
            assert await answers(connection, log, as_of=as_of, end=as_of + 1) == answered, f"as of {as_of}"
    for name in ("kinds", "owners", "tables 0", "tables 3", f"called {ORDERS}", f"findings of {ITEMS}, None"):
        assert len({repr(answered[name]) for answered in then}) > 2, name
    assert (await rebuild(world.dsn, world.findings, log, append=world.attest, batch_max=100)).compared


async def test_what_was_replaced_is_part_of_the_digest_and_no_other_tenant_sees_it(world: World, story: Story) -> None:
    story.scanned("1", EMAIL)
    story.identified(ITEMS)
    story.scanned("1", EMAIL)
    log, other = await world.new_log(), await world.new_log()
    await world.append(log, story)
    await live(world, batch_max=1).catch_up(log.log_id, story.size)
    tables = ("findings_past", "scans_past", "table_names_past")
    for reader, rows in ((log, 1), (other, 0)):
        async with world.as_reader(reader) as connection:
            for table in tables:
                held = await connection.execute(f"SELECT count(*) FROM projections.{table}")  # noqa: S608 - ours
                assert await held.fetchone() == (rows,), table
    for table in tables:
        async with world.as_admin() as connection:
            await connection.execute(f"UPDATE projections.{table} SET until = until + 1")  # noqa: S608 - ours
        with pytest.raises(DigestMismatchError):
            await rebuild(world.dsn, world.findings, log, append=world.attest)
        async with world.as_admin() as connection:
            await connection.execute(f"UPDATE projections.{table} SET until = until - 1")  # noqa: S608 - ours
    assert (await rebuild(world.dsn, world.findings, log, append=world.attest)).compared
