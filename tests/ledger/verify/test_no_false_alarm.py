# SPDX-License-Identifier: Apache-2.0
"""Clean data never alarms: whatever may be appended verifies, wherever it has travelled. A changed bit does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.provision import Provisioned
from ledger.errors import BrokenError, Fault
from ledger.store.read import find_log
from ledger.verify.database import verify_database
from testkit.ledger.logs import change
from testkit.ledger.random_events import EventPool
from testkit.ledger.round_tripping import TENANTS, make_round_trip_site, round_trip
from testkit.ledger.tampering.instances import EXACT, FAST, seeded

ENTRIES = 1_400


async def test_random_entries_verify_wherever_they_have_travelled(
    database: str, installation: Provisioned, tmp_path: Path
) -> None:
    site = make_round_trip_site(database, installation)
    trip = await round_trip(site, tmp_path, entries=ENTRIES, appended=100, number=0)
    assert trip.parts > 50
    origin = installation.origin(TENANTS[0])
    change(
        database,
        "UPDATE ledger.entries SET entry = set_byte(entry, 40, get_byte(entry, 40) # 1) "
        "WHERE index = 1234 AND log_id = (SELECT log_id FROM ledger.logs WHERE origin = %s)",
        origin,
    )
    for effort in (EXACT, FAST):  # the control: what verifies so readily does notice one bit
        async with site.auditor("UTC") as connection:
            log = await find_log(connection, origin)
            with pytest.raises(BrokenError) as caught:
                await verify_database(connection, log, [site.signer(log).verifier_key], effort=effort)
            assert (caught.value.fault, caught.value.index) == (Fault.ENTRY, 1_234)


def test_random_events_reach_the_edges_of_what_is_allowed() -> None:
    pool = EventPool(seeded("edges"))
    events = [pool.event() for _ in range(2_000)]
    text = b"".join(event.event for event in events).decode()
    planes = {ord(character) >> 16 for character in text}
    assert planes >= {0, 1, 2, 3, 14, 15, 16}
    assert {"9007199254740991", "-9007199254740991"} <= set(text.replace("}", ",").replace(":", ",").split(","))
    assert min(len(event.key) for event in events) == 1
    assert max(len(event.key) for event in events) == 2_000
    assert max(len(event.event) for event in events) > 60_000
    assert {part.payload for event in events for part in event.parts if len(part.payload) < 2} >= {b""}
    assert '.000000Z"' in text
    assert '.999999Z"' in text
