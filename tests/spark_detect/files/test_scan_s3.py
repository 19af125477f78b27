# SPDX-License-Identifier: Apache-2.0
"""
A task whose files are on S3: opened with what the catalog's options say, its secret read by name.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pyarrow.parquet as pq
import pytest

from lakeproof.demo.cloud import Cloud
from lakeproof.demo.personal_data import PERSON_SCHEMA, person_rows
from ledger.format.events import ScanFault
from ledger.store.read import Log
from projections.lake.secrets import SecretDirectory
from projections.relational.catalogs import CatalogRow
from spark_detect.files.parquet_scan import run_task
from spark_detect.job_folder import Lake
from spark_detect.tasks import FileSlice, Range, Scan, ScannedColumn, Task
from testkit.servers.cloud import fresh_cloud, put
from testkit.servers.loopback import LOOPBACK
from testkit.servers.traps import set_trap

TENANT = UUID(int=7)


@pytest.fixture
def cloud(moto: str) -> Cloud:
    """A bucket."""
    return fresh_cloud(moto)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An installation with the tenant's secret, and without storage of its own."""
    SecretDirectory(tmp_path).write(TENANT, "s3", "hidden")
    return Lake(warehouse="file:///nowhere", properties={}, secrets=str(tmp_path), upstreams_allowed=LOOPBACK.text)


def parquet(count: int) -> bytes:
    stream = io.BytesIO()
    pq.write_table(person_rows(0, count), stream, row_group_size=100)
    return stream.getvalue()


def task(moto: str, location: str, *, below: str | None = None) -> Task:
    """Return a task that reads the row groups 0 and 2 of the file at `location`."""
    columns = tuple(
        ScannedColumn(field_id=number, path=name) for number, name in enumerate(PERSON_SCHEMA.names, start=1)
    )
    scan = Scan(
        range=Range(log_id=1, from_index=0, to_index=1),
        key="table:away/crm/people",
        identifier=None,
        metadata_location="",
        table_uuid="",
        snapshot="1",
        ruleset="",
        request=None,
        gaps=(),
        files=1,
        rows=0,
        is_sampled=False,
        columns_cut=0,
        cut=(),
        columns=columns,
        tasks=1,
    )
    options = {
        "location": below or location.rpartition("/")[0],
        "s3.endpoint": moto,
        "s3.region": "us-east-1",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret:s3",
    }
    row = CatalogRow(
        log=Log(log_id=1, origin="o", tenant=TENANT, reader=None), alias="away", kind="rest", options=options
    )
    return Task(scan=scan, catalog=row, slices=(FileSlice(location=location, row_groups=(0, 2)),), columns=columns)


def test_row_groups_of_a_file_on_s3_are_counted(moto: str, cloud: Cloud, lake: Lake) -> None:
    location = put(cloud, "t/data/a.parquet", parquet(250))
    result = run_task(task(moto, location), lake)
    assert (result.fault, result.is_postponed, result.rows) == (None, False, 150)
    assert len(result.field_ids) == len(PERSON_SCHEMA.names)
    assert 0 < result.bytes_read < len(parquet(250))


def test_what_is_wrong_on_s3_is_told_apart(moto: str, cloud: Cloud, lake: Lake) -> None:
    good = put(cloud, "t/data/a.parquet", parquet(250))
    cut = put(cloud, "t/data/cut.parquet", parquet(250)[:500])
    one = put(cloud, "t/data/one.parquet", parquet(50))
    missing = good.replace("a.parquet", "none.parquet")
    assert run_task(task(moto, missing), lake).fault is ScanFault.FILE_MISSING
    assert run_task(task(moto, cut), lake).fault is ScanFault.FILE_UNREADABLE
    assert run_task(task(moto, one), lake).fault is ScanFault.FILE_UNREADABLE, "it has one row group"
    outside = run_task(task(moto, good, below=f"s3://{cloud.bucket}/other"), lake)
    assert outside.fault is ScanFault.FILE_UNREADABLE
    assert run_task(task(moto, good, below=f"s3://{cloud.bucket}/t"), lake).fault is None


def test_a_secret_that_is_not_there_puts_the_scan_off(moto: str, cloud: Cloud, lake: Lake) -> None:
    wanted = task(moto, put(cloud, "t/data/a.parquet", parquet(250)))
    assert run_task(wanted, replace(lake, secrets=f"{lake.secrets}/none")).is_postponed


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0177.0.0.1", "[::1]", "[::ffff:7f00:1]"])
def test_a_store_at_an_address_that_is_not_allowed_is_never_asked(lake: Lake, cloud: Cloud, host: str) -> None:
    with set_trap() as trap:
        inside = task(f"http://{host}:{trap.port}", f"s3://{cloud.bucket}/t/data/a.parquet")
        result = run_task(inside, replace(lake, upstreams_allowed="public"))
        assert result.fault is ScanFault.FILE_UNREADABLE
        assert trap.caught() == 0
