# SPDX-License-Identifier: Apache-2.0
"""
Which files are a table's own, which locations name one file, and what becomes of a file that is deleted.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.catalogs.places import parse_place
from gateway.purging.deleting import Deletion, FileDeleter
from gateway.purging.manifests import UndecodableError, read_metadata
from gateway.purging.own_files import FileKeys, OwnFile, OwnFolders
from projections.errors import StorageUnavailableError
from projections.lake.storage import Storage
from testkit.servers.cloud import fresh_cloud, put

ROOT = "s3://lake/w"
PLACE = parse_place(f"{ROOT}/t", field="place")


@pytest.mark.parametrize(
    "location",
    [
        f"{ROOT}/t/1.parquet",
        "s3a://lake/w/t/data/1.parquet",
        f"{ROOT}/t/data/day=a%2Fb/1.parquet",
        f"{ROOT}/t/data/%25/1.parquet",
        f"{ROOT}/t//data/1.parquet",
    ],
)
def test_a_file_inside_a_place_is_the_tables_own(location: str) -> None:
    found = OwnFolders([PLACE], [ROOT]).find(location)
    assert found is not None
    assert (found.location, found.root) == (location, None)


@pytest.mark.parametrize(
    "location",
    [
        f"{ROOT}/t",
        f"{ROOT}/t/",
        f"{ROOT}/t/data/",
        f"{ROOT}/u/1.parquet",
        f"{ROOT}/tt/1.parquet",
        f"{ROOT}/1.parquet",
        f"{ROOT}/t/../u/1.parquet",
        f"{ROOT}/t/./1.parquet",
        f"{ROOT}/t/%2E%2E/u/1.parquet",
        f"{ROOT}/t/%252E%252E%252Fu/1.parquet",
        f"{ROOT}/t/1.parquet?version=1",
        f"{ROOT}/t/1.parquet#1",
        f"{ROOT}/t/a\\b/1.parquet",
        f"{ROOT}/t/a\nb/1.parquet",
        "s3://other/w/t/1.parquet",
        "file:///w/t/1.parquet",
        "/w/t/1.parquet",
        "t/1.parquet",
        "",
    ],
)
def test_a_file_elsewhere_or_that_readers_disagree_about_is_not(location: str) -> None:
    assert OwnFolders([PLACE], [ROOT]).find(location) is None


def test_nothing_is_the_tables_own_outside_the_folders_of_its_catalog() -> None:
    assert OwnFolders([PLACE], ["s3://lake/other"]).find(f"{ROOT}/t/1.parquet") is None
    assert OwnFolders([PLACE], []).find(f"{ROOT}/t/1.parquet") is None


@pytest.mark.parametrize(
    "location",
    [
        "s3a://lake/w/t/a%2Fb/1.parquet",
        f"{ROOT}/t/a/b/1.parquet",
        f"{ROOT}/u/../t/a/b/1.PARQUET",
        f"{ROOT}/t/a%252Fb/./1.parquet",
        f"{ROOT}/u/%2E%2E%2Ft/a/b/1.parquet",
    ],
)
def test_locations_that_a_reader_may_take_for_one_file_have_one_key(location: str) -> None:
    keys = FileKeys([PLACE])
    assert keys.key(location) == keys.key(f"{ROOT}/t/a%2Fb/1.parquet") is not None
    assert keys.key(f"{ROOT}/t/a%2Fb/2.parquet") != keys.key(location)
    assert keys.key(f"{ROOT}/u/a/b/1.parquet") is None


def test_a_file_behind_a_link_has_the_key_of_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t")
    keys = FileKeys([parse_place(f"{tmp_path}/t", field="place")])
    assert keys.key(f"file:{tmp_path}/link/1") == keys.key(f"{tmp_path}/t/1") is not None


def test_what_is_no_file_or_behind_a_link_is_kept(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "folder" / "1").write_bytes(b"12")
    outcomes = {
        ("folder",): Deletion.KEPT,
        ("file", "1"): Deletion.KEPT,
        ("link", "1"): Deletion.KEPT,
        ("nothing", "1"): Deletion.MISSING,
        ("folder", "1"): Deletion.DELETED,
    }
    deleter = FileDeleter(Storage())
    assert {names: deleter.delete(OwnFile("", tmp_path, names))[0] for names in outcomes} == outcomes


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UndecodableError, match="expected a file"):
        read_metadata(Storage(), f"file://{tmp_path}/pipe", digest="")


def test_objects_are_deleted_and_a_store_that_does_not_answer_is_asked_again(moto: str) -> None:
    cloud = fresh_cloud(moto)
    known = {"s3.region": "us-east-1", "s3.access-key-id": "x", "s3.secret-access-key": "y"}
    deleter = FileDeleter(Storage(properties={**known, "s3.endpoint": cloud.endpoint}))
    names = ("data/a%2Fb/1.parquet", "data/2.parquet", "data/3.parquet")
    files = [OwnFile(put(cloud, f"w/t/{name}", b"1234"), None, ()) for name in names]
    for file in files[:2]:
        assert [deleter.delete(file) for _ in range(2)] == [(Deletion.DELETED, 4), (Deletion.MISSING, None)]
    left = cloud.client("s3").list_objects_v2(Bucket=cloud.bucket)["Contents"]
    # Arrow leaves empty objects in place of folders.
    assert [each["Key"] for each in left if each["Size"]] == ["w/t/data/3.parquet"]
    away = FileDeleter(Storage(properties={**known, "s3.endpoint": "http://127.0.0.1:9"}))
    with pytest.raises(StorageUnavailableError):
        away.delete(files[2])
