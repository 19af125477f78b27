# SPDX-License-Identifier: Apache-2.0
"""
Entries as CloudEvents: the required attributes, the event's data, and nothing that the log keeps apart.
"""

from __future__ import annotations

import json
from typing import Final
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.format import canonical
from ledger.format.entry import parse_entry
from ledger.format.event import Event, Part, prepare
from ledger.format.events import DetectionFound
from ledger.format.sequence import Group, LogHead, sequence
from streams.errors import PoisonError
from streams.handler import Message
from streams.handlers.cloud_events import Publish, format_cloud_event
from testkit.streams.answering import NOON, happened, told
from testkit.streams.world import World

ORIGIN: Final = "logs.example.org/00112233445566778899aabbccddeeff"


def entry_of(event: Event) -> bytes:
    """Return the first entry of a log that holds just `event`."""
    steps = sequence(
        LogHead.empty(), [Group(id=UUID(int=1, version=4), then=(prepare(event),))], log=ORIGIN, stored={}, clock=NOON
    )
    with pytest.raises(StopIteration) as done:
        next(steps)
    return bytes(done.value.value.rows[0].entry)


def test_an_entry_is_the_event_that_the_specification_asks_for() -> None:
    part = Part(name="inputs", payload=b"personal", salt=bytes(32))
    event = Event(
        type="test.told",
        version=3,
        key="table:lake/sales/orders",
        actor="system",
        occurred_at=NOON,
        data={"n": 1},
        parts=(part,),
    )
    # CloudEvents 1.0.2, section 3.1: id, source, specversion and type are required; here all that are used.
    assert json.loads(format_cloud_event(parse_entry(entry_of(event)))) == {
        "specversion": "1.0",
        "id": f"{ORIGIN}/0",
        "source": ORIGIN,
        "type": "test.told",
        "typeversion": 3,
        "subject": "table:lake/sales/orders",
        "time": "2026-11-20T12:00:00.000000Z",
        "datacontenttype": "application/json",
        "data": {"n": 1},
    }


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from("abc"), st.recursive(_texts | st.integers(-5, 5), st.lists, max_leaves=5)))
def test_any_data_arrives_as_it_stands_in_the_log(data: dict[str, canonical.Json]) -> None:
    event = Event(type="test.told", version=1, key="a:b", actor="system", occurred_at=NOON, data=data)
    assert json.loads(format_cloud_event(parse_entry(entry_of(event))))["data"] == data


async def test_every_entry_is_published_once_under_its_place_keyed_by_its_table(
    world: World, finding: DetectionFound
) -> None:
    log = await world.new_log()
    await world.tell(log, told("test.dreamt"), happened(finding, key="table:lake/crm/customers"), told("policy.dreamt"))
    await world.catch_up(log, Publish(), batch_max=2)
    await world.catch_up(log, Publish())
    rows = await world.rows("SELECT id, sink, key, payload FROM streams.outbox ORDER BY position")
    assert [id_ for id_, *_ in rows] == [f"{log.origin}/{index}" for index in range(3)]
    assert {sink for _, sink, *_ in rows} == {"kafka"}
    assert rows[1][2] == "table:lake/crm/customers"
    published = json.loads(rows[1][3])
    assert published["type"] == "detection.found"
    assert published["data"]["column"] == finding.column
    assert await world.size(log) == 3  # publishing says nothing to the log


async def test_what_is_no_entry_is_poison(world: World) -> None:
    log = await world.new_log()
    async with world.as_role(world.roles.streams) as connection:
        with pytest.raises(PoisonError):
            await Publish().handle([Message(id="topic/0/1", log=log, value=b"{}")], connection)
