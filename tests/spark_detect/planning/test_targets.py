# SPDX-License-Identifier: Apache-2.0
"""
What each entry leads to: a table to be looked at, or nothing.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from ledger.format.events import (
    CatalogCreated,
    CommitObserved,
    CommitOutcome,
    Identifier,
    TriggerReceived,
    TriggerSource,
)
from ledger.store.read import Log
from spark_detect.classify import RULESET
from spark_detect.planning.targets import ScanTarget, catalog_of, read_target
from testkit.projections.story import ORDERS, Story

ORDERS_OF_LAKE = Identifier(alias="lake", namespace=("sales",), name="orders")
METADATA = "s3://lake/orders/metadata/00001-a.metadata.json"
TABLE_UUID = "5f0c9d1e-0000-4000-8000-000000000001"


def led_to(story: Story) -> list[ScanTarget]:
    targets = [read_target(item, ruleset=RULESET) for item in story.entries()]
    return [target for target in targets if target is not None]


def trigger(source: TriggerSource, location: str | None = METADATA) -> TriggerReceived:
    return TriggerReceived(
        alias="lake", file_count=0, files=(), identifier=ORDERS_OF_LAKE, metadata_location=location, source=source
    )


def test_an_accepted_commit_leads_to_its_table_and_snapshots() -> None:
    story = Story()
    story.committed(snapshots=["11", "12"])
    (target,) = led_to(story)
    assert (target.key, target.snapshots, target.table_uuid) == (ORDERS, (11, 12), TABLE_UUID)


@pytest.mark.parametrize("outcome", [each for each in CommitOutcome if each is not CommitOutcome.ACCEPTED])
def test_a_commit_that_did_not_happen_leads_to_nothing(outcome: CommitOutcome) -> None:
    story = Story()
    story.settled(story.decided(snapshots=["11"]), outcome=outcome, snapshots=["11"])
    assert led_to(story) == []


def test_a_webhook_leads_to_the_table_that_it_names() -> None:
    story = Story()
    story.add(story.event(trigger(TriggerSource.POLARIS_WEBHOOK), key=ORDERS))
    (target,) = led_to(story)
    assert (target.key, target.metadata_location, target.snapshots) == (ORDERS, METADATA, ())


@pytest.mark.parametrize("location", [None, "s3://lake/orders/data/a.parquet"])
def test_a_webhook_about_no_metadata_file_leads_to_nothing(location: str | None) -> None:
    story = Story()
    story.add(story.event(trigger(TriggerSource.POLARIS_WEBHOOK, location), key=ORDERS))
    assert led_to(story) == []


@pytest.mark.parametrize("source", [TriggerSource.S3, TriggerSource.POLLER])
def test_what_streams_tell_of_leads_to_a_scan_once_they_have_found_out_whose_it_is(source: TriggerSource) -> None:
    story = Story()
    story.add(story.event(trigger(source), key="catalog:lake"))
    assert led_to(story) == []
    observed = CommitObserved(
        identifier=ORDERS_OF_LAKE,
        metadata_location=METADATA,
        operation="append",
        parent=None,
        snapshot="13",
        table_uuid=TABLE_UUID,
        trigger=None,
    )
    story.add(story.event(observed, key=ORDERS))
    (target,) = led_to(story)
    assert (target.key, target.snapshots) == (ORDERS, (13,))


def test_of_folders_in_one_another_the_most_specific_one_is_the_catalogs() -> None:
    catalogs = {
        alias: CatalogCreated(id=alias, version=1, kind="rest", options={"location": location})
        for alias, location in (("all", "s3://lake"), ("orders", "s3a://lake/orders/"), ("ord", "s3://lake/ord"))
    }
    story = Story()
    story.observed("11", key=None)
    (target,) = led_to(story)
    log = Log(log_id=1, origin="example.com/x", tenant=UUID(int=1), reader=None)
    for location, alias in ((METADATA, "orders"), ("s3://lake/x/metadata/1.metadata.json", "all")):
        found = catalog_of(target, location, catalogs, log=log, warehouse="file:///wh")
        assert found is not None
        assert found.alias == alias
    assert catalog_of(target, "s3://lakes/x", catalogs, log=log, warehouse="file:///wh") is None
