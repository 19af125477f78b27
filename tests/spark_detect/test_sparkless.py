# SPDX-License-Identifier: Apache-2.0
"""
From commits to findings, on real tables behind a real gateway; without Spark, by the same code.
"""

from __future__ import annotations

from pyiceberg.catalog.rest import RestCatalog

from lakeproof.demo.personal_data import PERSON_SCHEMA, PERSONAL, person_rows
from testkit.spark_detect.lakehouse import Lakehouse, make_people


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


async def test_files_are_scanned_wherever_a_table_may_have_them(lakehouse: Lakehouse) -> None:
    """In its location, however that is spelled, and in a folder of the catalog's that a property names."""
    root = f"{lakehouse.services.gateway.catalogs.warehouse}/{lakehouse.tenant.hex}/lake"
    places = {
        "spelled": (f"file:{root.removeprefix('file://')}/spelled", {}),
        "data": (None, {"write.data.path": f"{root}/data elsewhere"}),
        "stored": (None, {"write.object-storage.enabled": "true", "write.data.path": f"{root}/objects/of stored"}),
        "meta": (None, {"write.metadata.path": f"{root}/meta elsewhere"}),
    }

    def write(catalog: RestCatalog) -> None:
        catalog.create_namespace(("crm",))
        for name, (location, texts) in places.items():
            table = catalog.create_table(("crm", name), PERSON_SCHEMA, location=location, properties=texts)
            table.append(person_rows(0, 50))

    await lakehouse.play(write)
    recorded = await lakehouse.detect()
    assert (recorded.scans, recorded.failed) == (len(places), 0), await lakehouse.failed()
    scanned = {event.identifier.name: event.rows for event in await lakehouse.completed() if event.identifier}
    assert scanned == dict.fromkeys(places, 50)
