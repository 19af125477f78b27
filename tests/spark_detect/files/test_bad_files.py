# SPDX-License-Identifier: Apache-2.0
"""
A file that cannot be scanned fails its own scan: with its class, once, and beside scans that succeed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.manifest import FileFormat

from ledger.format.events import ScanFault
from testkit.spark_detect.lakehouse import Lakehouse, append_file, make_people, some_people


def cut(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def cut_within(file: Path) -> None:
    """Leave the footer, and zeros where the pages were."""
    data = file.read_bytes()
    size = int.from_bytes(data[-8:-4], "little") + 8
    file.write_bytes(data[:4] + bytes(len(data) - size - 4) + data[-size:])


def encrypt(file: Path) -> None:
    """Leave the magic of an encrypted footer (Parquet modular encryption, section 5.4)."""
    data = file.read_bytes()
    file.write_bytes(b"PARE" + data[4:-4] + b"PARE")


def replace_by_avro(file: Path) -> None:
    file.write_bytes(b"Obj\x01" + bytes(100))


async def test_a_bad_file_fails_that_scan_alone(lakehouse: Lakehouse) -> None:
    spoils: list[tuple[Callable[[Path], object], ScanFault]] = [
        (Path.unlink, ScanFault.FILE_MISSING),
        (cut, ScanFault.FILE_UNREADABLE),
        (cut_within, ScanFault.FILE_UNREADABLE),
        (encrypt, ScanFault.FILE_ENCRYPTED),
        (replace_by_avro, ScanFault.FILE_UNREADABLE),
        (lambda file: file.write_bytes(b""), ScanFault.FILE_UNREADABLE),
    ]

    def act(catalog: RestCatalog) -> list[str]:
        locations = []
        for number in range(len(spoils)):
            table = make_people(catalog, name=f"people{number}", count=20)
            (task,) = table.refresh().scan().plan_files()
            table.append(some_people(20, 5 + number))
            locations.append(task.file.file_path)
        return locations

    locations = await asyncio.to_thread(lambda: act(lakehouse.connect()))
    for location, (spoil, _) in zip(locations, spoils, strict=True):
        spoil(lakehouse.path(location))
    recorded = await lakehouse.detect()
    assert (recorded.scans, recorded.failed) == (2 * len(spoils), len(spoils))
    found = {failed.file: failed.fault for failed in await lakehouse.failed()}
    assert found == {location: fault for location, (_, fault) in zip(locations, spoils, strict=True)}
    assert sorted(scan.rows for scan in await lakehouse.completed()) == [5 + number for number in range(len(spoils))]
    assert (await lakehouse.detect()).scans == 0, "what has failed is not tried again"


async def test_a_file_that_its_manifest_says_cannot_be_read_is_not_opened(lakehouse: Lakehouse) -> None:
    described: list[tuple[dict[str, Any], ScanFault]] = [
        ({"file_format": FileFormat.ORC}, ScanFault.FORMAT_UNSUPPORTED),
        ({"file_format": FileFormat.AVRO}, ScanFault.FORMAT_UNSUPPORTED),
        ({"file_format": FileFormat.PARQUET, "key_metadata": b"key"}, ScanFault.FILE_ENCRYPTED),
    ]

    def act(catalog: RestCatalog) -> list[str]:
        locations = []
        for number, (members, _) in enumerate(described):
            table = make_people(catalog, name=f"people{number}", count=20).refresh()
            locations.append(f"{table.location()}/data/other")
            append_file(table, locations[-1], **members)
        return locations

    locations = await asyncio.to_thread(lambda: act(lakehouse.connect()))
    await lakehouse.detect()
    found = {failed.file: failed.fault for failed in await lakehouse.failed()}
    assert found == {location: fault for location, (_, fault) in zip(locations, described, strict=True)}


async def test_metadata_that_cannot_be_read_fails_the_scan(lakehouse: Lakehouse) -> None:
    def act(catalog: RestCatalog) -> dict[str, ScanFault]:
        faults = {}
        for number, (what, is_missing) in enumerate(product(("manifest list", "manifest", "metadata"), (True, False))):
            table = make_people(catalog, name=f"people{number}", count=20).refresh()
            snapshot = table.current_snapshot()
            assert snapshot is not None
            places = {
                "manifest list": snapshot.manifest_list,
                "manifest": snapshot.manifests(table.io)[0].manifest_path,
                "metadata": table.metadata_location,
            }
            file = lakehouse.path(places[what])
            file.unlink() if is_missing else file.write_bytes(b"\x00garbage" * 20)
            faults[places[what]] = ScanFault.METADATA_MISSING if is_missing else ScanFault.METADATA_UNREADABLE
        return faults

    faults = await asyncio.to_thread(lambda: act(lakehouse.connect()))
    recorded = await lakehouse.detect()
    assert (recorded.scans, recorded.failed) == (len(faults), len(faults))
    assert {failed.file: failed.fault for failed in await lakehouse.failed()} == faults


async def test_a_metadata_file_that_was_cleaned_up_is_told_of_by_a_newer_one(lakehouse: Lakehouse) -> None:
    def act(catalog: RestCatalog) -> str:
        table = make_people(catalog, count=20)
        first = table.refresh().metadata_location
        table.append(some_people(20, 5))
        return first

    location = await asyncio.to_thread(lambda: act(lakehouse.connect()))
    lakehouse.path(location).unlink()
    await lakehouse.detect()
    assert await lakehouse.failed() == []
    assert [scan.rows for scan in await lakehouse.completed()] == [20, 5]


async def test_a_file_outside_the_catalogs_folder_is_not_opened(lakehouse: Lakehouse, tmp_path: Path) -> None:
    def act(catalog: RestCatalog) -> str:
        table = make_people(catalog, count=20)
        (task,) = table.refresh().scan().plan_files()
        return task.file.file_path

    location = await asyncio.to_thread(lambda: act(lakehouse.connect()))
    file = lakehouse.path(location)
    elsewhere = tmp_path / "elsewhere.parquet"
    pq.write_table(some_people(0, 5), elsewhere)
    file.unlink()
    file.symlink_to(elsewhere)
    await lakehouse.detect()
    (failed,) = await lakehouse.failed()
    assert failed.fault is ScanFault.FILE_UNREADABLE
