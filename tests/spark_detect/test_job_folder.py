# SPDX-License-Identifier: Apache-2.0
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
from spark_detect.job_folder import DRIVER_FILE, LAKE_FILE, Driver, JobFolder, Lake
from spark_detect.tasks import Range, Scan, Task

DRIVER = Driver(
    detector_dsn="password=hidden1", appender_dsn="password=hidden2", batch_bytes_max=5, master="local", java_home="/j"
)
LAKE = Lake(
    warehouse="file:///lake", properties={"s3.secret-access-key": "hidden3"}, secrets="/secrets", upstreams_allowed=""
)


def test_what_is_put_into_a_room_is_found_there_and_by_nobody_else(tmp_path: Path) -> None:
    job = JobFolder(tmp_path / "job")
    job.write(DRIVER, LAKE)
    assert (job.driver(), job.lake()) == (DRIVER, LAKE)
    for name in (DRIVER_FILE, LAKE_FILE):
        assert (job.folder / name).stat().st_mode & 0o777 == 0o600
    assert job.folder.stat().st_mode & 0o777 == 0o700
    job.clear()
    assert list(job.folder.iterdir()) == []


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    job = JobFolder(tmp_path)
    job.write(DRIVER, LAKE)
    (tmp_path / LAKE_FILE).chmod(0o644)
    with pytest.raises(DetectionError, match="can be read by others: run chmod 600"):
        job.lake()
    assert job.driver() == DRIVER


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"warehouse": 1, "properties": {}, "secrets": ""}'])
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, content: bytes) -> None:
    job = JobFolder(tmp_path)
    job.write(DRIVER, LAKE)
    (tmp_path / LAKE_FILE).write_bytes(content)
    with pytest.raises(DetectionError, match="expected what `lakeproof detect run` writes"):
        job.lake()
    with pytest.raises(DetectionError, match="cannot be read"):
        JobFolder(tmp_path / "none").lake()


def test_nothing_that_spark_is_given_holds_a_secret(tmp_path: Path) -> None:
    job = JobFolder(tmp_path)
    job.write(DRIVER, LAKE)
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
    partition = TaskPartition(task=Task(scan=scan, catalog=row, slices=(), columns=()), job=str(tmp_path))
    pickled = pickle.dumps(partition) + pickle.dumps(ScanReader(tmp_path))
    assert b"secret:s3" in pickled
    assert b"hidden" not in pickled
    assert "hidden" not in f"{DRIVER!r} {LAKE!r} {partition!r}"
    again = pickle.loads(pickled)  # noqa: S301 - our own
    assert isinstance(again, TaskPartition)
    assert Scan.parse(again.task.scan.format()) == scan
