"""
What detection's processes are handed: in files that nobody else reads, and in nothing that Spark shows.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from uuid import UUID

import pytest

from ledger.store.read import Log
from projections.relational.catalogs import CatalogRow
from spark_detect.driver.source import ScanReader, TaskPartition
from spark_detect.errors import DetectionError
from spark_detect.room import DRIVER_FILE, LAKE_FILE, Driver, Lake, Room
from spark_detect.tasks import Range, Scan, Task

DRIVER = Driver(
    detector_dsn="password=hidden1", appender_dsn="password=hidden2", batch_bytes_max=5, master="local", java_home="/j"
)
LAKE = Lake(
    warehouse="file:///lake", properties={"s3.secret-access-key": "hidden3"}, secrets="/secrets", upstreams_allowed=""
)


def test_what_is_put_into_a_room_is_found_there_and_by_nobody_else(tmp_path: Path) -> None:
    room = Room(tmp_path / "room")
    room.furnish(DRIVER, LAKE)
    assert (room.driver(), room.lake()) == (DRIVER, LAKE)
    for name in (DRIVER_FILE, LAKE_FILE):
        assert (room.folder / name).stat().st_mode & 0o777 == 0o600
    assert room.folder.stat().st_mode & 0o777 == 0o700
    room.clear()
    assert list(room.folder.iterdir()) == []


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.furnish(DRIVER, LAKE)
    (tmp_path / LAKE_FILE).chmod(0o644)
    with pytest.raises(DetectionError, match="can be read by others: run chmod 600"):
        room.lake()
    assert room.driver() == DRIVER


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"warehouse": 1, "properties": {}, "secrets": ""}'])
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, content: bytes) -> None:
    room = Room(tmp_path)
    room.furnish(DRIVER, LAKE)
    (tmp_path / LAKE_FILE).write_bytes(content)
    with pytest.raises(DetectionError, match="expected what `lakeproof detect run` writes"):
        room.lake()
    with pytest.raises(DetectionError, match="cannot be read"):
        Room(tmp_path / "none").lake()


def test_nothing_that_spark_is_given_holds_a_secret(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.furnish(DRIVER, LAKE)
    scan = Scan(
        range=Range(log_id=1, from_index=0, to_index=1),
        key="table:a/b/c",
        identifier=None,
        metadata_location="s3://b/m",
        table_uuid="u",
        snapshot="1",
        ruleset="r",
        request=None,
        gaps=(),
        files=0,
        rows=0,
        is_sampled=False,
        columns_cut=0,
        cut=(),
        columns=(),
        tasks=1,
    )
    log = Log(log_id=1, origin="o", tenant=UUID(int=1), reader=None)
    row = CatalogRow(log=log, alias="a", kind="rest", options={"s3.secret-access-key": "secret:s3"})
    partition = TaskPartition(task=Task(scan=scan, catalog=row, slices=(), columns=()), room=str(tmp_path))
    pickled = pickle.dumps(partition) + pickle.dumps(ScanReader(tmp_path))
    assert b"secret:s3" in pickled
    assert b"hidden" not in pickled
    assert "hidden" not in f"{DRIVER!r} {LAKE!r} {partition!r}"
    again = pickle.loads(pickled)  # noqa: S301 - our own
    assert isinstance(again, TaskPartition)
    assert Scan.parse(again.task.scan.format()) == scan
