# SPDX-License-Identifier: Apache-2.0
"""Metadata files: written once and durably, read as they were committed or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.errors import BadRequestError, UnavailableError
from gateway.metadata import files as metadata_files
from gateway.metadata.files import MetadataFileError, MetadataFiles, Written, local_path
from testkit.gateway.metadata_files import write_file

METADATA: dict[str, Any] = {"format-version": 2, "note": "ü"}


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    (tmp_path / "warehouse").mkdir()
    return f"file://{tmp_path}/warehouse"


def root_of(warehouse: str) -> Path:
    return Path(warehouse.removeprefix("file://"))


async def test_what_is_written_is_read_with_its_digest(warehouse: str) -> None:
    location = f"{warehouse}/t/metadata/00000-x.metadata.json"
    written = await write_file(MetadataFiles(), location, METADATA, within=warehouse)
    path = local_path(location)
    assert path is not None
    assert written == Written(location=location, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    assert orjson.loads(path.read_bytes()) == METADATA
    assert await MetadataFiles().read(location, digest=written.sha256) == METADATA


async def test_a_file_that_was_changed_is_not_read(warehouse: str) -> None:
    location = f"{warehouse}/00000-x.metadata.json"
    written = await write_file(MetadataFiles(), location, METADATA, within=warehouse)
    path = root_of(warehouse) / "00000-x.metadata.json"
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(MetadataFileError, match="expected the committed file"):
            await MetadataFiles().read(location, digest=written.sha256)
    path.unlink()
    with pytest.raises(MetadataFileError, match="cannot be read"):
        await MetadataFiles().read(location, digest=written.sha256)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff"])
async def test_a_file_that_is_no_json_object_is_not_read(warehouse: str, data: bytes) -> None:
    path = root_of(warehouse) / "m.json"
    path.write_bytes(data)
    with pytest.raises(MetadataFileError, match="expected"):
        await MetadataFiles().read(f"{warehouse}/m.json", digest=hashlib.sha256(data).hexdigest())


async def test_what_is_remembered_is_remembered_with_its_digest(warehouse: str) -> None:
    files = MetadataFiles()
    location = f"{warehouse}/00000-x.metadata.json"
    written = await write_file(files, location, METADATA, within=warehouse)
    (root_of(warehouse) / "00000-x.metadata.json").unlink()
    assert await files.read(location, digest=written.sha256) is METADATA
    with pytest.raises(MetadataFileError):
        await files.read(location, digest="0" * 64)


async def test_no_more_is_remembered_than_fits(warehouse: str) -> None:
    size_bytes = len(orjson.dumps(METADATA))
    files = MetadataFiles(cached_bytes_max=2 * size_bytes)
    written = [await write_file(files, f"{warehouse}/{number}", METADATA, within=warehouse) for number in range(3)]
    for number in range(3):
        (root_of(warehouse) / str(number)).unlink()
    with pytest.raises(MetadataFileError):
        await files.read(written[0].location, digest=written[0].sha256)
    await files.delete(written[1])
    await write_file(files, f"{warehouse}/3", METADATA, within=warehouse)
    for one in (written[2], Written(location=f"{warehouse}/3", sha256=written[0].sha256)):
        assert await files.read(one.location, digest=one.sha256) == METADATA
    large = await write_file(files, f"{warehouse}/4", {"note": "x" * 3 * size_bytes}, within=warehouse)
    assert await files.read(written[2].location, digest=written[2].sha256) == METADATA, "nothing made way in vain"
    assert (await files.read(large.location, digest=large.sha256))["note"]


async def test_of_one_table_only_the_newest_metadata_is_remembered(warehouse: str) -> None:
    files, metadata = MetadataFiles(), dict(METADATA)
    first, second = [
        await write_file(files, f"{warehouse}/{number:05}-x.metadata.json", metadata, within=warehouse)
        for number in range(2)
    ]
    other = await write_file(files, f"{warehouse}/t/00000-x.metadata.json", metadata, within=warehouse)
    for _ in range(2):  # nor is it remembered when it is read late
        assert await files.read(first.location, digest=first.sha256) is not metadata
    assert await files.read(second.location, digest=second.sha256) is metadata
    assert await files.read(other.location, digest=other.sha256) is metadata
    await files.delete(second)
    found = await files.read(first.location, digest=first.sha256)
    assert await files.read(first.location, digest=first.sha256) is found


async def test_what_is_dropped_is_read_again_if_somebody_asks_for_it(warehouse: str) -> None:
    files = MetadataFiles()
    written = await write_file(files, f"{warehouse}/m.json", METADATA, within=warehouse)
    for _ in range(2):
        files.drop(written)
    found = await files.read(written.location, digest=written.sha256)
    assert found == METADATA
    assert found is not METADATA


async def test_a_file_is_never_written_over(warehouse: str) -> None:
    files = MetadataFiles()
    location = f"{warehouse}/00000-x.metadata.json"
    written = await write_file(files, location, METADATA, within=warehouse)
    with pytest.raises(UnavailableError, match="cannot be written"):
        await write_file(files, location, {"other": 1}, within=warehouse)
    assert await MetadataFiles().read(location, digest=written.sha256) == METADATA


async def test_what_cannot_be_written_is_unavailable(warehouse: str) -> None:
    (root_of(warehouse) / "t").write_bytes(b"")
    with pytest.raises(UnavailableError, match="cannot be written, nothing was changed"):
        await write_file(MetadataFiles(), f"{warehouse}/t/metadata/m.json", METADATA, within=warehouse)


async def test_metadata_that_could_not_be_read_again_is_not_written(
    warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_files, "METADATA_SIZE_BYTES_MAX", 100)
    files = MetadataFiles()
    fits = {"x": "y" * (100 - len('{"x":""}'))}
    written = await write_file(files, f"{warehouse}/fits", fits, within=warehouse)
    assert await MetadataFiles().read(f"{warehouse}/fits", digest=written.sha256) == fits
    with pytest.raises(BadRequestError, match="expected at most 100 bytes of metadata, found 101"):
        await write_file(files, f"{warehouse}/over", {"x": fits["x"] + "y"}, within=warehouse)
    (root_of(warehouse) / "over").write_bytes(orjson.dumps({"x": fits["x"] + "y"}))
    with pytest.raises(MetadataFileError, match="found more"):
        await files.read(f"{warehouse}/over", digest="0" * 64)


async def test_deleting_is_repeatable(warehouse: str) -> None:
    files = MetadataFiles()
    written = await write_file(files, f"{warehouse}/m.json", METADATA, within=warehouse)
    for _ in range(2):
        await files.delete(written)
    with pytest.raises(MetadataFileError):
        await files.read(written.location, digest=written.sha256)
    (root_of(warehouse) / "folder").mkdir()
    with pytest.raises(MetadataFileError, match="cannot be deleted"):
        await files.delete(Written(location=f"{warehouse}/folder", sha256="0" * 64))


async def test_a_link_out_of_the_warehouse_is_not_followed(warehouse: str, tmp_path: Path) -> None:
    root = root_of(warehouse)
    (tmp_path / "elsewhere").mkdir()
    (root / "out").symlink_to(tmp_path / "elsewhere")
    (root / "inside").mkdir()
    (root / "in").symlink_to(root / "inside")
    files = MetadataFiles()
    for folder in ("out", "out/deeper", "in/../../elsewhere"):
        with pytest.raises(BadRequestError, match="a link that leads out of it"):
            await write_file(files, f"{warehouse}/{folder}/m.json", METADATA, within=warehouse)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    await write_file(files, f"{warehouse}/in/m.json", METADATA, within=warehouse)
    assert (root / "inside" / "m.json").exists()


async def test_a_warehouse_behind_a_link_is_one(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "warehouse").symlink_to(tmp_path / "disk")
    warehouse = f"file://{tmp_path}/warehouse"
    await write_file(MetadataFiles(), f"{warehouse}/t/m.json", METADATA, within=warehouse)
    assert (tmp_path / "disk" / "t" / "m.json").exists()


@pytest.mark.parametrize("name", ["plain.json", "a b.json", "%20.json", "t%2Fm.json"])
@pytest.mark.parametrize("uri", ["file://{}", "file:{}", "{}"])
async def test_a_file_is_written_where_it_is_read(tmp_path: Path, uri: str, name: str) -> None:
    files, location = MetadataFiles(cached_bytes_max=0), uri.format(tmp_path / name)
    written = await write_file(files, location, METADATA, within=uri.format(tmp_path))
    assert (tmp_path / name).exists()
    assert await files.read(location, digest=written.sha256) == METADATA


def test_only_files_of_this_machine_have_a_path() -> None:
    assert local_path("file:///a%20b/c d") == Path("/a%20b/c d")
    assert local_path("/a/b") == Path("/a/b")
    assert local_path("s3://bucket/a") is None
