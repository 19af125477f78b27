# SPDX-License-Identifier: Apache-2.0
"""
Files of the lake: what is missing for ever, and what is away for a moment, are told apart.
"""

from __future__ import annotations

import pickle
import socket
from pathlib import Path
from uuid import UUID

import pytest

from projections.egress.rules import EgressRules
from projections.errors import FileMissingError, FileUnreadableError, SecretMissingError, StorageUnavailableError
from projections.lake.secrets import SecretDirectory
from projections.lake.storage import Storage

ACME = UUID(int=1)
PUBLIC = EgressRules.parse("public")
LOCAL = Storage()
FALLBACK = {"s3.endpoint": "http://127.0.0.1:9", "s3.access-key-id": "ours", "s3.secret-access-key": "our secret"}


@pytest.mark.parametrize("prefix", ["file://", ""])
def test_a_local_file_is_read_whole(tmp_path: Path, prefix: str) -> None:
    file = tmp_path / "a b%20c.json"
    file.write_bytes(b"{}")
    assert LOCAL.read_bytes(f"{prefix}{file}", size_bytes_max=2) == b"{}"


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"abc")
    with pytest.raises(FileUnreadableError, match="expected at most 2 bytes, found 3"):
        LOCAL.read_bytes(f"file://{file}", size_bytes_max=2)


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileMissingError, match="expected a file, found none"):
        LOCAL.read_bytes(f"file://{tmp_path}/none/x", size_bytes_max=10)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadableError, match="expected a file that may be read"):
        LOCAL.read_bytes(f"file://{tmp_path}", size_bytes_max=10)


@pytest.mark.parametrize("location", ["gs://bucket/x", "relative/x", "http://example.com/x", ""])
def test_a_location_of_another_kind_is_refused(location: str) -> None:
    with pytest.raises(FileUnreadableError, match="expected a location that begins with file: or s3:"):
        LOCAL.read_bytes(location, size_bytes_max=10)


def test_an_object_store_that_does_not_answer_is_not_a_missing_file() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    storage = Storage(properties={**FALLBACK, "s3.endpoint": f"http://127.0.0.1:{port}", "s3.region": "us-east-1"})
    with pytest.raises(StorageUnavailableError, match="does not answer"):
        storage.read_bytes("s3://bucket/x", size_bytes_max=10)


def test_options_name_secrets_and_storage_resolves_them(tmp_path: Path) -> None:
    secrets = SecretDirectory(tmp_path)
    secrets.write(ACME, "store", "their secret")
    options = {
        "uri": "https://catalog.example",
        "location": "s3://theirs/lake",
        "s3.endpoint": "https://store.example",
        "s3.access-key-id": "theirs",
        "s3.secret-access-key": "secret:store",
    }
    storage = Storage.of_foreign_catalog(options, tenant=ACME, secrets=secrets, egress=PUBLIC)
    assert storage.within == ("s3://theirs/lake",)
    assert storage.properties == {
        "s3.endpoint": "https://store.example",
        "s3.access-key-id": "theirs",
        "s3.secret-access-key": "their secret",
        "s3.region": "us-east-1",
    }
    assert pickle.loads(pickle.dumps(storage)) == storage  # noqa: S301 - what was pickled here
    assert "their secret" not in repr(storage)


def test_our_credentials_are_never_used_for_a_catalog_that_is_elsewhere(tmp_path: Path) -> None:
    secrets = SecretDirectory(tmp_path)
    storage = Storage.of_foreign_catalog(
        {"s3.endpoint": "https://evil.example"}, tenant=ACME, secrets=secrets, egress=PUBLIC
    )
    assert storage.properties == {
        "s3.endpoint": "https://evil.example",
        "s3.anonymous": "true",
        "s3.region": "us-east-1",
    }
    with pytest.raises(FileUnreadableError, match="expected a file below s3://nowhere/"):
        storage.read_bytes("s3://bucket/x", size_bytes_max=10)
    assert Storage.of_foreign_catalog({}, tenant=ACME, secrets=secrets, egress=PUBLIC).properties == {
        "s3.anonymous": "true",
        "s3.region": "us-east-1",
    }


@pytest.mark.parametrize(
    "location",
    [
        "file:///lake/evil/t/x",
        "file:///lake/acme/lake/../../evil/x",
        "file:///lake/acme/lake2/x",
        "/lake/acme/lake",
        "s3://lake/acme/lake/x",
        "file:/lake/evil/x",
    ],
)
def test_nothing_outside_a_catalogs_folder_is_opened(location: str) -> None:
    storage = Storage(within=("file:///lake/acme/lake",))
    with pytest.raises(FileUnreadableError, match="expected a file below file:///lake/acme/lake"):
        storage.filesystem(location)


@pytest.mark.parametrize("location", ["s3://lake/evil/x", "s3://lake/acme/../evil/x", "s3://lake/acme", "/lake/acme/x"])
def test_nothing_outside_a_catalogs_prefix_is_opened(location: str) -> None:
    storage = Storage(properties=FALLBACK, within=("s3://lake/acme/",))
    with pytest.raises(FileUnreadableError, match="expected a file below s3://lake/acme/"):
        storage.filesystem(location)
    assert storage.filesystem("s3a://lake/acme/t/x")[1] == "lake/acme/t/x"


def test_a_link_that_leads_out_of_the_folder_is_outside(tmp_path: Path) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "x").write_bytes(b"theirs")
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "link").symlink_to(tmp_path / "evil")
    storage = Storage(within=(f"file://{tmp_path}/acme",))
    with pytest.raises(FileUnreadableError, match="expected a file below"):
        storage.read_bytes(f"file://{tmp_path}/acme/link/x", size_bytes_max=10)


def test_a_secret_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SecretMissingError, match="lakeproof secrets create gone"):
        Storage.of_foreign_catalog(
            {"s3.secret-access-key": "secret:gone"}, tenant=ACME, secrets=SecretDirectory(tmp_path), egress=PUBLIC
        )
