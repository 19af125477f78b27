"""
From commits to findings, on real tables behind a real gateway; without Spark, by the same code.
"""

from __future__ import annotations

from lakeproof.demo.people import PERSONAL
from tests.spark_detect.lakehouse import Lakehouse, make_people


async def test_what_is_personal_is_found_at_92_and_no_look_alike_is(lakehouse: Lakehouse) -> None:
    await lakehouse.play(lambda catalog: make_people(catalog, count=500))
    recorded = await lakehouse.detect()
    assert (recorded.scans, recorded.failed) == (1, 0)
    (completed,) = await lakehouse.completed()
    assert (completed.files, completed.rows, completed.rows_sampled, completed.columns) == (1, 500, None, 10)
    assert completed.identifier is not None
    assert completed.identifier.name == "people"
    strong = {event.column: event.kind for event in await lakehouse.found() if event.confidence_percent == 92}
    assert strong == PERSONAL
