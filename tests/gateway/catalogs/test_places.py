# SPDX-License-Identifier: Apache-2.0
"""
Storage places: one normal form for each folder, and whether one contains another.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalogs.places import DIGEST_SIZE_BYTES, FOLDERS_MAX, PLACE_LENGTH_MAX, StoragePlace, parse_place
from gateway.catalogs.table_places import (
    added_places,
    expected_places,
    format_places,
    parse_places,
    place_digests,
    table_places,
)
from gateway.errors import BadRequestError
from gateway.metadata.paths import changed_paths, path_properties
from ledger.errors import FormatError


def place(text: str) -> StoragePlace:
    return parse_place(text, field="location")


@pytest.mark.parametrize(
    "spelled",
    [
        "file:/lake/sales",
        "file:///lake/sales",
        "file:////lake/sales",
        "file://localhost/lake/sales",
        "FILE:/lake/sales",
        "/lake/sales",
        "/lake/sales/",
        "/lake//sales",
        "/lake/./sales/.",
        "/lake/s%61les",
        "/LAKE/Sales",  # one folder on a disk that ignores case
    ],
)
def test_a_folder_of_a_disk_is_one_place_however_it_is_spelled(spelled: str) -> None:
    assert place(spelled).digest() == place("file:///lake/sales").digest()
    assert place(spelled).overlaps(place("/lake/sales/orders"))
    assert not place(spelled).overlaps(place("/lake/sales2"))


@pytest.mark.parametrize("spelled", ["s3://lake/sales", "s3a://lake/sales/", "s3n://Lake//sales", "S3://lake/./sales"])
def test_a_folder_of_a_bucket_is_one_place_however_it_is_spelled(spelled: str) -> None:
    assert place(spelled).digest() == place("s3://lake/sales").digest()
    assert place("s3://lake").holds(place(spelled))
    assert not place(spelled).holds(place("s3://lake"))


def test_places_of_different_storages_do_not_overlap() -> None:
    texts = ("s3://lake/sales", "s3://lake2/sales", "gs://lake/sales", "/lake/sales", "s3://lake/Sales")
    for number, one in enumerate(texts):
        for other in texts[number + 1 :]:
            assert not place(one).overlaps(place(other)), (one, other)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sales",
        "./sales",
        "../sales",
        "file:sales",
        "file://elsewhere/sales",
        "/lake/../etc",
        "/lake/%2e%2e/etc",
        "/lake/.%2E/etc",
        "/lake/a%2Fb",
        "/lake/a%5Cb",
        "/lake/a%00b",
        "/lake/a%252e",
        "/lake/%ff",
        "/lake\\sales",
        "/lake/sales?x",
        "/lake/sales#x",
        "/lake/\nsales",
        "/lake/\u2028sales",
        "s3:/lake/sales",
        "s3:///sales",
        "s3://",
        "s3://a b/c",
        "://lake",
        "/" + "x" * PLACE_LENGTH_MAX,
        "/x" * (FOLDERS_MAX + 1),
    ],
)
def test_what_is_read_in_more_than_one_way_is_no_place(text: str) -> None:
    with pytest.raises(BadRequestError, match=r"^location: expected "):
        place(text)


segments = st.lists(
    st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\?#%\u2028\u2029"), min_size=1).filter(
        lambda text: text not in {".", ".."}
    ),
    max_size=5,
)


@given(st.sampled_from(["file://", "s3://lake"]), segments, segments)
def test_a_place_holds_what_is_below_it(root: str, above: list[str], below: list[str]) -> None:
    upper = place("/".join((root, *above, "")))
    lower = place("/".join((root, *above, *below, "")))
    assert upper.holds(lower)
    assert lower.holds(upper) == (not below)
    assert upper.overlaps(lower)
    assert lower.overlaps(upper)
    assert upper.digest() in lower.folder_digests()
    assert place(lower.format()) == lower


@given(segments, segments)
def test_digests_compare_as_places_do(one: list[str], other: list[str]) -> None:
    """The guards compare digests alone."""
    here, there = (place("/".join(("s3://lake", *parts, ""))) for parts in (one, other))
    overlap = here.digest() in there.folder_digests() or there.digest() in here.folder_digests()
    assert overlap == here.overlaps(there)
    assert {len(digest) for digest in here.folder_digests()} == {DIGEST_SIZE_BYTES}


def table(location: str, **properties: str) -> dict[str, object]:
    return {"location": location, "properties": properties}


def test_a_table_takes_up_its_location_and_the_folders_of_its_properties() -> None:
    paths = {"write.data.path": "s3://lake/data/t", "write.metadata.path": "s3a://lake/t/meta", "owner": "/ada"}
    found = table_places(table("s3://lake/t", **paths))
    assert found == [place("s3://lake/t"), place("s3://lake/data/t")], "what lies in another is no place of its own"
    assert parse_places(format_places(found)) == sorted(found, key=StoragePlace.format)
    assert table_places(table("s3://lake/t", **{"write.data.path": "nowhere"})) == [place("s3://lake/t")]
    assert table_places(None) == []


def test_what_a_table_takes_up_newly_is_what_it_did_not_before() -> None:
    before, after = [place("/a/b")], [place("/a/b/c"), place("/a"), place("/d")]
    assert added_places(after, before) == [place("/a"), place("/d")]
    assert place_digests([])["places"] == []


@pytest.mark.parametrize("payload", [b"", b"{}", b"[1]", b'["../x"]', b"null"])
def test_a_part_without_places_is_refused(payload: bytes) -> None:
    with pytest.raises(FormatError):
        parse_places(payload)


def test_a_table_without_recorded_places_is_expected_above_its_metadata() -> None:
    assert expected_places("file:///lake/t/metadata/00000-x.metadata.json") == [place("/lake/t")]
    assert expected_places("s3://lake/meta of t/00000-x.metadata.json") == [place("s3://lake/meta of t")]
    assert expected_places("nowhere") == []


def test_the_properties_that_are_paths_are_known() -> None:
    paths = {
        "write.data.path": "anything",
        "write.metadata.path": "anything",
        "write.object-storage.path": "anything",
        "write.folder-storage.path": "anything",
        "engine.scratch-location": "s3://elsewhere/x",
        "engine.scratchPath": " /tmp/x",
        "x.LOCATION": "file:/etc",
    }
    others = {"docs.location": "https://wiki.example/t", "x.path": "a.b.c", "write.data.paths": "/x", "path.x": "/x"}
    assert path_properties({**paths, **others}) == paths
    after = {"location": "/a", "properties": {**paths, **others}}
    assert [field for field, _ in changed_paths(after, {"location": "/a", "properties": {"write.data.path": "b"}})] == [
        f"properties.{name}" for name in sorted(paths)
    ]
    assert list(changed_paths(after, after)) == []
