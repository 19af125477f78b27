# SPDX-License-Identifier: Apache-2.0
"""What is ungoverned, and what is not: metadata files on real S3 against decisions in a real log."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeproof.demo.cloud import Cloud
from ledger.format.event import PreparedEvent, format_key
from ledger.format.events import (
    CatalogCreated,
    CommitDecided,
    CommitDecision,
    CommitOutcome,
    CommitSettled,
    Identifier,
    IdentitySource,
    OutcomeEvidence,
    TableIdentified,
    TriggerReceived,
    TriggerSource,
)
from ledger.format.sequence import Group
from ledger.store.read import Log
from projections.egress.rules import EgressRules
from projections.lake.secrets import SecretDirectory
from projections.lake.storage import Storage
from projections.relational.catalogs import CatalogsProjection
from projections.relational.findings import FindingsProjection
from streams.connections import connect_reading
from streams.errors import PoisonError, TransientError, UnansweredError
from streams.handler import DeferringHandler, Effects, Message
from streams.handlers.observe import MetadataReader, ObserveCommits
from streams.metadata.parse import METADATA_SIZE_BYTES_MAX, SNAPSHOTS_MAX, TableSnapshots, parse_table_snapshots
from streams.metadata.reader import MetadataReaderPool
from streams.processing.deferred_runner import SLOW_MAX
from streams.processing.replay import ReplayResult
from streams.state.cursors import read_message
from streams.state.dead_letters import read_letters
from streams.state.deferred import ATTEMPTS_MAX
from testkit.servers.cloud import fresh_cloud, put
from testkit.servers.faulty_store import drip_body, faulty_store, never, reset
from testkit.servers.loopback import LOOPBACK
from testkit.servers.traps import set_trap
from testkit.streams.answering import happened, noon
from testkit.streams.lakes import ALIAS, TABLE, data_of_type, new_lake, project
from testkit.streams.replaying import replayed, wait_no_longer
from testkit.streams.shared_reads import SharedReads, shared_reads
from testkit.streams.table_metadata import TABLE_UUID, metadata
from testkit.streams.world import World, running, until

OBSERVED = "commit.observed"
OTHER_UUID = "00000000-0000-4000-8000-000000000000"
ORDERS = Identifier(alias=ALIAS, namespace=("sales",), name="orders")
ORDERS_KEY = f"table:{ALIAS}/sales/orders"
MADE_KEY = f"table:{ALIAS}/sales/made"
SNAPSHOT, EARLIER = 3051729675574597004, 3055729675574597004


@pytest.fixture(scope="module")
def cloud(moto: str) -> Cloud:
    """A bucket that the tests share: each writes the files that it reads."""
    return fresh_cloud(moto)


@pytest.fixture(scope="module")
def reads() -> Iterator[SharedReads]:
    """What reads metadata files."""
    with shared_reads() as reads:
        yield reads


def decision(
    *snapshots: int,
    decided: CommitDecision = CommitDecision.APPROVED,
    uuid: str | None = TABLE_UUID,
    name: str = "orders",
    base: str | None = "s3://bucket/wh/sales/orders/metadata/00000.metadata.json",
) -> CommitDecided:
    return CommitDecided(
        actions=("add-snapshot",),
        as_of=-1,
        base=base,
        decision=decided,
        identifier=Identifier(alias=ALIAS, namespace=("sales",), name=name),
        operation="table.commit",
        policy_set="0" * 64,
        principal_source="api_key",
        reason=None,
        request="0" * 64,
        snapshots=tuple(map(str, snapshots)),
        table_uuid=uuid,
    )


def outcome(of: UUID, outcome: CommitOutcome, *snapshots: int) -> CommitSettled:
    return CommitSettled(
        decision=str(of),
        evidence=OutcomeEvidence.ANSWER,
        metadata_location="s3://bucket/wh/1.metadata.json" if outcome is CommitOutcome.ACCEPTED else None,
        metadata_sha256=None,
        outcome=outcome,
        snapshots=tuple(map(str, snapshots)),
        table_uuid=TABLE_UUID,
    )


def identified(uuid: str, *, name: str = "orders") -> TableIdentified:
    return TableIdentified(
        identifier=Identifier(alias=ALIAS, namespace=("sales",), name=name),
        metadata_location=None,
        source=IdentitySource.POLLER,
        table_uuid=uuid,
    )


def trigger(
    location: str | None,
    *,
    identifier: Identifier | None = None,
    alias: str = ALIAS,
    source: TriggerSource = TriggerSource.S3,
) -> TriggerReceived:
    return TriggerReceived(
        alias=alias,
        file_count=0,
        files=(),
        identifier=identifier,
        metadata_location=location,
        source=source,
    )


class Lake:
    """A tenant's log, its catalog elsewhere, and the handler that watches it."""

    def __init__(self, world: World, cloud: Cloud, log: Log, secrets: Path, reads: MetadataReader) -> None:
        self.world, self.cloud, self.log = world, cloud, log
        self.secrets, self.reads = SecretDirectory(secrets), reads
        self.handler = self.observe()

    def observe(self, kind: type[ObserveCommits] = ObserveCommits, **options: Any) -> ObserveCommits:
        chosen: dict[str, Any] = {"warehouse": "file:///wh", "ours": {}, "pauses_s": (0.0, 0.0)}
        chosen |= {"egress": LOOPBACK, "reads": self.reads}
        return kind(secrets=self.secrets, clock=noon, **(chosen | options))

    def put(self, body: bytes, name: str = "00001.metadata.json") -> str:
        return put(self.cloud, f"{TABLE}/metadata/{name}", body)

    async def tell(self, *events: Any, key: str = ORDERS_KEY) -> None:
        await self.world.tell(self.log, *(happened(event, key=key) for event in events))

    async def decide(self, *snapshots: int, key: str = ORDERS_KEY, **more: Any) -> UUID:
        """Append an approved decision; return its group."""
        return await self.decide_as_one(happened(decision(*snapshots, **more), key=key))

    async def decide_as_one(self, *events: PreparedEvent) -> UUID:
        """Append the decisions of a transaction."""
        group = uuid4()
        await self.world.append(self.log.log_id, Group(id=group, then=events))
        return group

    async def settle(self, of: UUID, settled: CommitOutcome, *snapshots: int, key: str = ORDERS_KEY) -> None:
        """Append the outcome of a decision."""
        await self.tell(outcome(of, settled, *snapshots), key=key)

    async def pull(self, location: str | None, **more: Any) -> Message:
        """Append a trigger, bring the projections behind it, and return it as the runner would hand it out."""
        await self.tell(trigger(location, **more))
        await project(self.world, self.log)
        return await self.last()

    async def last(self) -> Message:
        """Return the last entry as a message."""
        async with self.world.as_role(self.world.roles.streams) as connection:
            size = await self.world.size(self.log)
            rows = await connection.execute(
                "SELECT entry FROM ledger.entries WHERE log_id = %s AND index = %s", (self.log.log_id, size - 1)
            )
            (entry,) = await rows.fetchone() or (b"",)
        return read_message(self.log, size - 1, bytes(entry))

    async def handle(self, *messages: Message) -> Effects:
        async with connect_reading(self.world.dsn) as reading:
            return await self.handler.handle(messages, reading)

    async def observe_all(self) -> list[dict[str, Any]]:
        """Let the runner handle every trigger of the log; return what was observed."""
        await project(self.world, self.log)
        await self.world.catch_up(self.log, self.handler, quick_s=3_600)
        return await data_of_type(self.world, self.log, OBSERVED)

    async def dead(self) -> list[str]:
        async with self.world.as_role(self.world.roles.streams) as connection:
            return [letter.reason for letter in await read_letters(connection)]


@pytest_asyncio.fixture
async def lake(world: World, cloud: Cloud, reads: SharedReads, tmp_path: Path) -> Lake:
    """A tenant with a catalog elsewhere."""
    return Lake(world, cloud, await new_lake(world, cloud, secrets=tmp_path), tmp_path, reads)


async def test_a_snapshot_that_nobody_decided_on_is_ungoverned(lake: Lake) -> None:
    location = lake.put(metadata(EARLIER, SNAPSHOT))
    await lake.tell(decision(EARLIER))
    message = await lake.pull(location)
    (observed,) = await lake.observe_all()
    assert observed == {
        "identifier": {"alias": ALIAS, "name": "orders", "namespace": ["sales"]},
        "metadata_location": location,
        "operation": "append",
        "parent": str(EARLIER),
        "snapshot": str(SNAPSHOT),
        "table_uuid": TABLE_UUID,
        "trigger": str(message.value.entry.group_id),  # type: ignore[union-attr]  # an entry's message
    }


async def test_the_runner_and_a_replay_of_it_say_it_once(lake: Lake) -> None:
    await lake.pull(lake.put(metadata(EARLIER, SNAPSHOT)))
    await lake.pull(lake.put(metadata(EARLIER, SNAPSHOT, 7), "00002.metadata.json"))
    for _ in range(2):
        observed = await lake.observe_all()
        assert [item["snapshot"] for item in observed] == [str(EARLIER), str(SNAPSHOT), "7"]
        await lake.world.rows("UPDATE streams.cursors SET next_index = 0")
    assert await lake.dead() == []


@pytest.mark.parametrize("is_projected", [True, False])
async def test_what_was_approved_is_not_ungoverned(lake: Lake, is_projected: bool) -> None:
    location = lake.put(metadata(EARLIER, SNAPSHOT))
    await lake.tell(trigger(location))
    message = await lake.last()
    if is_projected:
        await lake.tell(decision(EARLIER), decision(SNAPSHOT, uuid=None))
        await project(lake.world, lake.log)
    else:
        # The read models know the trigger, and not yet the decisions that came after it.
        await project(lake.world, lake.log)
        await lake.tell(decision(EARLIER), decision(SNAPSHOT, uuid=None))
    assert await lake.handle(message) == Effects()


@pytest.mark.parametrize("is_projected", [True, False])
async def test_what_was_not_approved_for_this_table_is_ungoverned(lake: Lake, *, is_projected: bool) -> None:
    others = (
        decision(SNAPSHOT, decided=CommitDecision.REJECTED),
        decision(SNAPSHOT, decided=CommitDecision.UNDECIDABLE),
        decision(SNAPSHOT, decided=CommitDecision.CONFLICTED),
        decision(SNAPSHOT, uuid=OTHER_UUID),
        decision(EARLIER),
    )
    await lake.tell(trigger(lake.put(metadata(SNAPSHOT))))
    message = await lake.last()
    if is_projected:
        await lake.tell(*others)
    await project(lake.world, lake.log)
    if not is_projected:
        await lake.tell(*others)
    assert len((await lake.handle(message)).groups) == 1


async def test_a_commit_in_flight_is_not_ungoverned(lake: Lake) -> None:
    """The decision is written while the file is read: whoever read the log first would miss it."""
    location = lake.put(metadata(SNAPSHOT))
    message = await lake.pull(location)

    class Deciding(ObserveCommits):
        async def _read(self, *arguments: Any) -> TableSnapshots:
            table = await super()._read(*arguments)
            await lake.tell(decision(SNAPSHOT))
            return table

    lake.handler = lake.observe(Deciding)
    assert await lake.handle(message) == Effects()


# What became of the decisions

NOT_MADE = [CommitOutcome.FAILED, CommitOutcome.CONFLICTED, CommitOutcome.REFUSED]
PERHAPS_MADE = [CommitOutcome.ACCEPTED, CommitOutcome.UNKNOWN]


@pytest.mark.parametrize("projected", ["nothing", "the decisions", "both"])
async def test_a_decision_that_was_not_made_approves_nothing(lake: Lake, projected: str) -> None:
    settled = dict(enumerate([*NOT_MADE, *PERHAPS_MADE], start=1))
    await lake.tell(trigger(lake.put(metadata(*settled))))
    message = await lake.last()
    await project(lake.world, lake.log)
    groups = {snapshot: await lake.decide(snapshot) for snapshot in settled}
    if projected == "the decisions":
        await project(lake.world, lake.log)
    for snapshot, became in settled.items():
        await lake.settle(groups[snapshot], became, snapshot)
    if projected == "both":
        await project(lake.world, lake.log)
    assert observed_in(await lake.handle(message)) == [
        str(one) for one, became in settled.items() if became in NOT_MADE
    ]


def observed_in(effects: Effects) -> list[str]:
    """The snapshots that effects call ungoverned."""
    return [json.loads(group.then[0].event)["data"]["snapshot"] for group in effects.groups]


@pytest.mark.parametrize("is_projected", [True, False])
async def test_a_commit_that_was_decided_again_is_not_ungoverned(lake: Lake, *, is_projected: bool) -> None:
    message = await lake.pull(lake.put(metadata(SNAPSHOT)))
    await lake.settle(await lake.decide(SNAPSHOT), CommitOutcome.FAILED, SNAPSHOT)
    again = await lake.decide(SNAPSHOT)
    for settled in (None, CommitOutcome.UNKNOWN, CommitOutcome.ACCEPTED):
        if settled is not None:
            await lake.settle(again, settled, SNAPSHOT)
        if is_projected:
            await project(lake.world, lake.log)
        assert await lake.handle(message) == Effects()


@pytest.mark.parametrize("is_projected", [True, False])
async def test_what_became_of_another_table_of_a_transaction_says_nothing_of_this_one(
    lake: Lake, *, is_projected: bool
) -> None:
    message = await lake.pull(lake.put(metadata(EARLIER, SNAPSHOT)))
    other = format_key("table", (ALIAS, "sales", "other"))
    group = await lake.decide_as_one(
        happened(decision(EARLIER), key=ORDERS_KEY), happened(decision(SNAPSHOT, uuid=None, name="other"), key=other)
    )
    await lake.settle(group, CommitOutcome.FAILED, SNAPSHOT, key=other)
    if is_projected:
        await project(lake.world, lake.log)
    assert observed_in(await lake.handle(message)) == [str(SNAPSHOT)]


async def test_what_was_seen_before_its_decision_turned_out_not_to_be_made_is_looked_at_again(lake: Lake) -> None:
    ends = [(first, last) for first in (None, CommitOutcome.UNKNOWN) for last in (*NOT_MADE, CommitOutcome.ACCEPTED)]
    settled = dict(enumerate(ends, start=1))
    base = lake.put(metadata(), "00000.metadata.json")
    groups = {snapshot: await lake.decide(snapshot, base=base) for snapshot in settled}
    message = await lake.pull(lake.put(metadata(*settled)))
    for snapshot, (first, _) in settled.items():
        if first is not None:
            await lake.settle(groups[snapshot], first, snapshot)
    assert await lake.observe_all() == []
    for snapshot, (_, last) in settled.items():
        await lake.settle(groups[snapshot], last, snapshot)
    for _ in range(2):
        observed = await lake.observe_all()
        assert [one["snapshot"] for one in observed] == [str(one) for one in settled if settled[one][1] in NOT_MADE]
        assert {one["trigger"] for one in observed} == {str(message.value.entry.group_id)}  # type: ignore[union-attr]
        await lake.world.rows("UPDATE streams.cursors SET next_index = 0")
    assert await lake.dead() == []


async def test_only_files_of_the_table_that_was_decided_on_are_looked_at_again(lake: Lake) -> None:
    asked: list[str] = []

    class Listening:
        async def read(self, storage: Storage, location: str) -> TableSnapshots:
            asked.append(location)
            return await lake.reads.read(storage, location)

    lake.handler = lake.observe(reads=Listening())
    far = put(lake.cloud, "wh/sales/other/metadata/1.metadata.json", metadata(SNAPSHOT))
    named = put(lake.cloud, "wh/sales/moved/metadata/1.metadata.json", metadata(SNAPSHOT))
    group = await lake.decide(SNAPSHOT, base=lake.put(metadata(), "00000.metadata.json"))
    files = [lake.put(metadata(number), f"{number}.metadata.json") for number in range(1, 6)]
    for location in (files[0], far, *files[1:]):
        await lake.pull(location)
    await lake.pull(named, identifier=ORDERS)
    await lake.pull(None)
    gone = f"s3://{lake.cloud.bucket}/{TABLE}/metadata/gone.metadata.json"
    await lake.pull(gone)
    await lake.settle(group, CommitOutcome.CONFLICTED, SNAPSHOT)
    message = await lake.last()
    await project(lake.world, lake.log)
    assert set(observed_in(await lake.handle(message))) == {str(SNAPSHOT), "5"}
    assert asked == [gone, named, files[-1]], "the last ones, of which one is gone"


async def test_outcomes_that_say_nothing_of_snapshots_elsewhere_are_passed_over(lake: Lake) -> None:
    builtin = happened(CatalogCreated(id="lake", version=1, kind="builtin", options={}), key="catalog:lake")
    await lake.world.tell(lake.log, builtin)
    messages: list[Message] = []
    for alias, settled, snapshots in (
        ("lake", CommitOutcome.CONFLICTED, (SNAPSHOT,)),
        ("gone", CommitOutcome.CONFLICTED, (SNAPSHOT,)),
        (ALIAS, CommitOutcome.CONFLICTED, ()),
        (ALIAS, CommitOutcome.ACCEPTED, (SNAPSHOT,)),
    ):
        key = f"table:{alias}/sales/orders"
        await lake.settle(await lake.decide(*snapshots, key=key), settled, *snapshots, key=key)
        messages.append(await lake.last())
    await lake.settle(UUID(int=1), CommitOutcome.FAILED, SNAPSHOT)
    messages.append(await lake.last())
    await lake.pull(lake.put(metadata(SNAPSHOT)))
    assert await lake.handle(*messages) == Effects()
    async with connect_reading(lake.world.dsn) as reading:
        hosts = await lake.handler.hosts(messages, reading)
    assert [host is not None for host in hosts] == [False, False, False, False, True]


@pytest.mark.parametrize("kind", ["glue", "rest"])
@pytest.mark.parametrize("is_projected", [True, False])
async def test_a_file_that_the_gateway_wrote_for_a_decision_has_what_that_one_named(
    lake: Lake, kind: str, *, is_projected: bool
) -> None:
    """It stays in the store where another commit was first; a catalog of its own names files as it likes."""
    (created,) = await data_of_type(lake.world, lake.log, CatalogCreated.TYPE)
    await lake.tell(CatalogCreated(id="aws", version=1, kind=kind, options=created["options"]), key="catalog:aws")
    group = await lake.decide(SNAPSHOT)
    await lake.settle(group, CommitOutcome.CONFLICTED, SNAPSHOT)
    own, other = (lake.put(metadata(SNAPSHOT), f"00001-{one}.metadata.json") for one in (group, uuid4()))
    for location, is_observed in ((own, kind != "glue"), (other, True)):
        await lake.tell(trigger(location, alias="aws"))
        message = await lake.last()
        await project(lake.world, lake.log, *([] if is_projected else [CatalogsProjection()]))
        assert bool((await lake.handle(message)).groups) == is_observed


@pytest.mark.parametrize("is_projected", [True, False])
async def test_a_name_that_a_table_never_came_to_have_is_not_told(lake: Lake, *, is_projected: bool) -> None:
    message = await lake.pull(lake.put(metadata(SNAPSHOT)))
    await lake.decide(1)
    key = f"table:{ALIAS}/sales/taken"
    await lake.settle(await lake.decide(2, name="taken", base=None, key=key), CommitOutcome.CONFLICTED, 2, key=key)
    await lake.settle(await lake.decide(3, name="made", base=None, key=MADE_KEY), CommitOutcome.UNKNOWN, key=MADE_KEY)
    for expected in (ORDERS_KEY, MADE_KEY):
        if is_projected:
            await project(lake.world, lake.log)
        (group,) = (await lake.handle(message)).groups
        assert group.then[0].key == expected
        await lake.settle(
            await lake.decide(4, name="made", base=None, key=MADE_KEY), CommitOutcome.ACCEPTED, key=MADE_KEY
        )


# Whose, and which


async def test_another_tenants_decision_governs_nothing(lake: Lake, world: World, tmp_path: Path) -> None:
    other = await new_lake(world, lake.cloud, secrets=tmp_path, folder="other")
    await world.tell(other, happened(decision(SNAPSHOT), key=ORDERS_KEY))
    await project(world, other)
    message = await lake.pull(lake.put(metadata(SNAPSHOT)))
    assert len((await lake.handle(message)).groups) == 1


async def test_the_table_is_what_the_poller_says_else_what_the_log_says_else_unknown(lake: Lake) -> None:
    message = await lake.pull(lake.put(metadata(SNAPSHOT)))
    (group,) = (await lake.handle(message)).groups
    assert group.then[0].key == f"catalog:{ALIAS}"
    assert json.loads(group.then[0].event)["data"]["identifier"] is None
    await lake.tell(decision(1, name="renamed"))
    for projected in (False, True):
        if projected:
            await project(lake.world, lake.log)
        (group,) = (await lake.handle(message)).groups
        assert group.then[0].key == f"table:{ALIAS}/sales/renamed"
    message = await lake.pull(lake.put(metadata(SNAPSHOT)), identifier=ORDERS, source=TriggerSource.POLLER)
    (group,) = (await lake.handle(message)).groups
    assert group.then[0].key == ORDERS_KEY


async def test_the_name_in_a_callback_is_taken_only_where_nobody_knows_better(lake: Lake) -> None:
    source = TriggerSource.POLARIS_WEBHOOK
    message = await lake.pull(lake.put(metadata(SNAPSHOT)), identifier=ORDERS, source=source)
    (group,) = (await lake.handle(message)).groups
    assert group.then[0].key == ORDERS_KEY
    # The file is of another table than the one that is called so.
    await lake.tell(identified(OTHER_UUID))
    await project(lake.world, lake.log, FindingsProjection())
    (group,) = (await lake.handle(message)).groups
    assert group.then[0].key == f"catalog:{ALIAS}"
    # The table of the file is called otherwise.
    await lake.tell(identified(TABLE_UUID, name="renamed"))
    await project(lake.world, lake.log, FindingsProjection())
    (group,) = (await lake.handle(message)).groups
    assert group.then[0].key == f"table:{ALIAS}/sales/renamed"


async def test_one_batch_says_each_snapshot_once(lake: Lake) -> None:
    messages = [await lake.pull(lake.put(metadata(1, 2, number), f"{number}.metadata.json")) for number in (3, 4)]
    groups = (await lake.handle(*messages)).groups
    assert [json.loads(group.then[0].event)["data"]["snapshot"] for group in groups] == ["1", "2", "3", "4"]


async def test_a_table_of_many_snapshots_is_compared_whole(lake: Lake) -> None:
    ids = range(1, 2_501)
    await lake.tell(decision(*range(1, 2_500, 2)))
    message = await lake.pull(lake.put(metadata(*ids)))
    await lake.tell(decision(*range(2, 2_500, 2)))
    (group,) = (await lake.handle(message)).groups
    assert json.loads(group.then[0].event)["data"]["snapshot"] == "2500"


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: data])
async def test_compressed_metadata_is_read(lake: Lake, pack: Any) -> None:
    message = await lake.pull(lake.put(pack(metadata(SNAPSHOT)), "1.gz.metadata.json"))
    assert len((await lake.handle(message)).groups) == 1


async def test_data_files_and_the_built_in_catalog_are_not_compared(lake: Lake) -> None:
    builtin = happened(CatalogCreated(id="lake", version=1, kind="builtin", options={}), key="catalog:lake")
    await lake.world.tell(lake.log, builtin)
    messages = [await lake.pull(None), await lake.pull(lake.put(metadata(SNAPSHOT)), alias="lake")]
    assert await lake.handle(*messages) == Effects()


async def test_a_file_that_is_gone_or_not_the_catalogs_is_a_dead_letter(lake: Lake) -> None:
    put(lake.cloud, "elsewhere/t/metadata/1.metadata.json", metadata(SNAPSHOT))
    reasons = {
        "s3://{bucket}/wh/t/metadata/gone.metadata.json": "found none",
        "s3://{bucket}/elsewhere/t/metadata/1.metadata.json": "below",
        "s3://{bucket}/wh/../elsewhere/metadata/1.metadata.json": "below",
        "file:///etc/passwd": "below",
        "/etc/passwd": "below",
        "http://169.254.169.254/": "begins with",
    }
    for location in reasons:
        await lake.pull(location.format(bucket=lake.cloud.bucket))
    await lake.pull(lake.put(metadata(SNAPSHOT)))
    assert len(await lake.observe_all()) == 1
    dead = await lake.dead()
    assert len(dead) == len(reasons)
    for location, reason in reasons.items():
        (found,) = [one for one in dead if one.startswith(f"{location.format(bucket=lake.cloud.bucket)}: ")]
        assert reason in found


async def test_a_file_that_is_no_metadata_is_a_dead_letter(lake: Lake) -> None:
    location = lake.put(b"no json")
    await lake.pull(location)
    assert await lake.observe_all() == []
    (reason,) = await lake.dead()
    assert reason.startswith(location)


async def test_a_catalog_that_is_not_there_makes_dead_letters(lake: Lake) -> None:
    await lake.pull(lake.put(metadata(SNAPSHOT)), alias="gone")
    assert await lake.observe_all() == []
    assert await lake.dead() == ["expected a catalog 'gone' in force, found none"]


async def test_a_file_that_comes_late_is_waited_for(lake: Lake) -> None:
    location = f"s3://{lake.cloud.bucket}/{TABLE}/metadata/late.metadata.json"
    message = await lake.pull(location)

    class Late(ObserveCommits):
        async def _read(self, *arguments: Any) -> TableSnapshots:
            reading = asyncio.create_task(super()._read(*arguments))
            await asyncio.to_thread(lake.put, metadata(SNAPSHOT), "late.metadata.json")
            return await reading

    lake.handler = lake.observe(Late, pauses_s=(0.01,) * 1_000)
    assert len((await lake.handle(message)).groups) == 1


async def test_storages_that_never_answer_hold_up_no_other_tenant(lake: Lake, world: World, tmp_path: Path) -> None:
    """One worker, and more tenants with such a storage than are asked at a time; each has triggers to spare."""
    await lake.pull(lake.put(metadata(1)))
    assert len(await lake.observe_all()) == 1
    async with faulty_store(never) as store:
        stuck = [
            await new_lake(
                world, lake.cloud, secrets=tmp_path, folder=f"other{number}", **{"s3.endpoint": store.endpoint}
            )
            for number in range(SLOW_MAX + 1)
        ]
        for number, log in enumerate(stuck):
            location = f"s3://{lake.cloud.bucket}/other{number}/orders/metadata"
            await world.tell(log, *(happened(trigger(f"{location}/{file}.metadata.json")) for file in range(3)))
            await project(world, log)
        async with running(world.runner(lake.handler, poll_s=0.02, quick_s=3_600)):
            await store.connected.wait()
            for snapshot in range(2, 6):
                await lake.pull(lake.put(metadata(*range(1, snapshot + 1)), f"{snapshot}.metadata.json"))
            await until(lambda: has_observed(world, lake.log, 5))
        assert await world.rows("SELECT count(*) FROM streams.deferred") == [(3 * len(stuck),)]
        assert await lake.dead() == []


async def has_observed(world: World, log: Log, count: int) -> bool:
    return len(await data_of_type(world, log, OBSERVED)) >= count


async def test_a_storage_that_never_answers_ends_in_dead_letters_that_can_be_replayed(
    lake: Lake, world: World, tmp_path: Path
) -> None:
    locations = [lake.put(metadata(1, *range(2, number + 1)), f"{number}.metadata.json") for number in (1, 2)]
    for location in locations:
        await lake.pull(location)
    async with (
        MetadataReaderPool(timeout_s=1.5) as reads,
        faulty_store(drip_body) as store,
        faulty_store(reset) as broken,
    ):
        there = Elsewhere(reads, store.endpoint)
        lake.handler = lake.observe(reads=there)
        for attempt in range(ATTEMPTS_MAX):
            # What a store never answers takes a process with it; what it breaks off counts as well, and costs less.
            there.endpoint = store.endpoint if attempt == 0 else broken.endpoint
            assert await lake.dead() == []
            assert await lake.observe_all() == []
            await wait_no_longer(world)
        assert len(await lake.dead()) == len(locations)
        assert all("has not answered 8 times in a row" in reason for reason in await lake.dead())
        assert [each.result for each in await replayed(world, lake.handler)] == [ReplayResult.POSTPONED] * 2
        assert store.requests
    lake.handler = lake.observe()
    assert [each.result for each in await replayed(world, lake.handler)] == [ReplayResult.HANDLED] * 2
    assert await lake.dead() == []
    assert [item["snapshot"] for item in await lake.observe_all()] == ["1", "2"]


class Elsewhere:
    """Reads, but from a store at `endpoint`, wherever the catalog's options say that it is."""

    def __init__(self, reads: MetadataReaderPool, endpoint: str) -> None:
        self._reads = reads
        self.endpoint = endpoint

    async def read(self, storage: Storage, location: str) -> TableSnapshots:
        properties = {**storage.properties, "s3.endpoint": self.endpoint}
        return await self._reads.read(replace(storage, properties=properties), location)


@pytest.mark.parametrize("is_reversed", [False, True])
async def test_triggers_of_a_table_lead_to_the_same_in_any_order(lake: Lake, *, is_reversed: bool) -> None:
    files = [lake.put(metadata(*range(1, number + 1)), f"{number}.metadata.json") for number in (1, 2, 3)]
    messages = [await lake.pull(location) for location in files]
    await lake.tell(decision(2))
    await project(lake.world, lake.log)
    for message in reversed(messages) if is_reversed else messages:
        for group in (await lake.handle(message)).groups:
            await lake.world.append(lake.log.log_id, group)
    observed = await data_of_type(lake.world, lake.log, OBSERVED)
    assert sorted(item["snapshot"] for item in observed) == ["1", "3"]


async def test_triggers_wait_for_the_host_of_their_catalogs_endpoint(world: World, lake: Lake, tmp_path: Path) -> None:
    for endpoint, host in (
        (None, "s3"),
        ("http://Store.Example:9000/x", "store.example:9000"),
        ("https://user:password@store.example", "store.example"),
        ("store.example:9000", "store.example:9000"),
        ("http://[", "http://["),
        ("", ""),
    ):
        other = await new_lake(world, lake.cloud, secrets=tmp_path, folder="other")
        named = {"uri": "http://127.0.0.1:9"} | ({} if endpoint is None else {"s3.endpoint": endpoint})
        created = happened(CatalogCreated(id="second", version=1, kind="rest", options=named), key="catalog:second")
        data = happened(trigger(None, alias="second"))
        await world.tell(other, created, happened(trigger("s3://x/1", alias="second")), data)
        await project(world, other)
        await world.catch_up(other, DeferringHandler(lake.handler))
        assert await world.rows("SELECT host FROM streams.hosts WHERE log_id = %s", other.log_id) == [(host,)]
        assert len(await world.rows("SELECT index FROM streams.deferred WHERE log_id = %s", other.log_id)) == 1


async def test_a_storage_that_is_away_is_tried_again(lake: Lake, world: World, tmp_path: Path) -> None:
    away = await new_lake(world, lake.cloud, secrets=tmp_path, **{"s3.endpoint": "http://127.0.0.1:9"})
    elsewhere = Lake(world, lake.cloud, away, tmp_path, lake.reads)
    message = await elsewhere.pull(elsewhere.put(metadata(SNAPSHOT)))
    with pytest.raises(UnansweredError, match="does not answer"):
        await elsewhere.handle(message)


async def test_read_models_that_are_behind_are_waited_for(lake: Lake) -> None:
    await lake.tell(trigger(lake.put(metadata(SNAPSHOT))))
    message = await lake.last()
    with pytest.raises(TransientError, match="projection catalogs"):
        await lake.handle(message)
    await project(lake.world, lake.log, CatalogsProjection())
    await lake.world.rows("DELETE FROM projections.live WHERE projection = 'commits'")
    with pytest.raises(TransientError, match="projection commits"):
        await lake.handle(message)


async def test_a_read_model_far_behind_is_waited_for(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    message = await lake.pull(lake.put(metadata(SNAPSHOT)))
    monkeypatch.setattr("streams.handlers.decisions.BEHIND_MAX", 1)
    await lake.tell(decision(1))
    assert len((await lake.handle(message)).groups) == 1
    await lake.tell(decision(2))
    with pytest.raises(TransientError, match="2 behind"):
        await lake.handle(message)


GOOD: Mapping[str, Any] = {"table-uuid": TABLE_UUID, "snapshots": [{"snapshot-id": 1}]}


def test_a_table_without_snapshots_has_none() -> None:
    for value in ({"table-uuid": TABLE_UUID}, {"table-uuid": TABLE_UUID, "snapshots": []}):
        assert parse_table_snapshots(json.dumps(value).encode()).snapshots == ()


def test_version_one_writes_no_parent_as_minus_one() -> None:
    value = {"table-uuid": TABLE_UUID, "snapshots": [{"snapshot-id": 1, "parent-snapshot-id": -1}]}
    assert parse_table_snapshots(json.dumps(value).encode()).snapshots[0].parent is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {**GOOD, "table-uuid": 5},
        {**GOOD, "table-uuid": "no uuid"},
        {**GOOD, "snapshots": {"1": 2}},
        {**GOOD, "snapshots": [1]},
        {**GOOD, "snapshots": [{}]},
        {**GOOD, "snapshots": [{"snapshot-id": "1"}]},
        {**GOOD, "snapshots": [{"snapshot-id": 1.0}]},
        {**GOOD, "snapshots": [{"snapshot-id": True}]},
        {**GOOD, "snapshots": [{"snapshot-id": 1, "parent-snapshot-id": "2"}]},
        {**GOOD, "snapshots": [{"snapshot-id": 1, "summary": {"operation": 5}}]},
        {**GOOD, "snapshots": [{"snapshot-id": 1, "summary": {"operation": "x" * 100}}]},
        {**GOOD, "snapshots": [{}] * (SNAPSHOTS_MAX + 1)},
    ],
)
def test_what_is_no_metadata_is_poison(value: object) -> None:
    with pytest.raises(PoisonError, match="expected"):
        parse_table_snapshots(json.dumps(value).encode())


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"\x1f\x8b", b"\x1f\x8b\x08junk", gzip.compress(b"0" * (METADATA_SIZE_BYTES_MAX + 1))]
)
def test_bytes_that_are_no_metadata_are_poison(data: bytes) -> None:
    with pytest.raises(PoisonError, match="expected"):
        parse_table_snapshots(data)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4))
@settings(max_examples=40)
def test_flipped_bytes_never_break_the_parser(flips: Sequence[tuple[int, int]]) -> None:
    for whole in (metadata(1, 2), gzip.compress(metadata(1, 2))):
        data = bytearray(whole)
        for at, value in flips:
            data[at % len(data)] = value
        with suppress(PoisonError):
            parse_table_snapshots(bytes(data))


async def test_a_trigger_that_names_a_place_inside_is_not_followed(lake: Lake) -> None:
    with set_trap() as trap:
        for location in ("{trap}/x.metadata.json", "s3://127.0.0.1:{port}/x", "file:///etc/passwd", "hdfs://h/x"):
            effects = await lake.handle(await lake.pull(location.format(trap=trap.url, port=trap.port)))
            assert (len(effects.groups), len(effects.dead)) == (0, 1)
            assert trap.caught() == 0


async def test_a_store_at_an_address_that_is_not_allowed_is_never_asked(
    lake: Lake, world: World, tmp_path: Path
) -> None:
    with set_trap() as trap:
        for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]"):
            endpoint = f"http://{host}:{trap.port}"
            inside = await new_lake(world, lake.cloud, secrets=tmp_path, folder="inside", **{"s3.endpoint": endpoint})
            other = Lake(world, lake.cloud, inside, tmp_path, lake.reads)
            other.handler = other.observe(egress=EgressRules.parse("public"))
            message = await other.pull(f"s3://{lake.cloud.bucket}/inside/orders/metadata/1.metadata.json")
            (dead,) = (await other.handle(message)).dead
            assert "LAKEPROOF_UPSTREAMS_ALLOWED" in dead.reason
            assert trap.caught() == 0
