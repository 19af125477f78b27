# SPDX-License-Identifier: Apache-2.0
"""Each requirement: where it holds, and the exact text where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.errors import BadRequestError, RequirementFailedError
from gateway.metadata import (
    ASSERT_CREATE,
    CorruptMetadataError,
    TableExistsError,
    check_requirements,
    parse_requirements,
)

UUID = "0cc7a4b9-3a2c-4b1b-9b35-3c6e8a6b6a01"
OTHER = "11111111-2222-3333-4444-555555555555"

HOLDING: list[dict[str, Any]] = [
    {"type": "assert-table-uuid", "uuid": UUID},
    {"type": "assert-table-uuid", "uuid": UUID.upper()},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 12},
    {"type": "assert-ref-snapshot-id", "ref": "first", "snapshot-id": 11},
    {"type": "assert-ref-snapshot-id", "ref": "new", "snapshot-id": None},
    {"type": "assert-ref-snapshot-id", "ref": "new"},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1000},
    {"type": "assert-default-spec-id", "default-spec-id": 0},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
    {"type": "Assert-Default-Spec-Id", "default-spec-id": 0},
]

# the texts of org.apache.iceberg.UpdateRequirement, Iceberg 1.12
FAILING = [
    ({"type": "assert-table-uuid", "uuid": OTHER}, f"UUID does not match: expected {UUID} != {OTHER}"),
    (
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 11},
        "branch main has changed: expected id 11 != 12",
    ),
    (
        {"type": "assert-ref-snapshot-id", "ref": "first", "snapshot-id": 12},
        "tag first has changed: expected id 12 != 11",
    ),
    ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}, "branch main was created concurrently"),
    ({"type": "assert-ref-snapshot-id", "ref": "first", "snapshot-id": None}, "tag first was created concurrently"),
    (
        {"type": "assert-ref-snapshot-id", "ref": "gone", "snapshot-id": 9},
        "branch or tag gone is missing, expected 9",
    ),
    (
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2},
        "last assigned field id changed: expected id 2 != 3",
    ),
    ({"type": "assert-current-schema-id", "current-schema-id": 1}, "current schema changed: expected id 1 != 0"),
    (
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
        "last assigned partition id changed: expected id 999 != 1000",
    ),
    ({"type": "assert-default-spec-id", "default-spec-id": 1}, "default partition spec changed: expected id 1 != 0"),
    (
        {"type": "assert-default-sort-order-id", "default-sort-order-id": 1},
        "default sort order changed: expected id 1 != 0",
    ),
]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_requirements_that_hold_are_passed(table_of_version: Callable[[int], dict[str, Any]], version: int) -> None:
    check_requirements(table_of_version(version), parse_requirements(HOLDING))


@pytest.mark.parametrize(("requirement", "text"), FAILING)
def test_a_requirement_that_fails_says_so_in_the_reference_words(
    table: dict[str, Any], requirement: dict[str, Any], text: str
) -> None:
    with pytest.raises(RequirementFailedError) as caught:
        check_requirements(table, parse_requirements([*HOLDING, requirement]))
    assert str(caught.value) == f"Requirement failed: {text}"
    assert (caught.value.status, caught.value.kind) == (409, "CommitFailedException")
    assert not isinstance(caught.value, TableExistsError)


def test_a_table_must_not_exist_to_be_created(table: dict[str, Any]) -> None:
    check_requirements(None, parse_requirements([ASSERT_CREATE]))
    with pytest.raises(TableExistsError) as caught:
        check_requirements(table, parse_requirements([ASSERT_CREATE]))
    assert str(caught.value) == "Requirement failed: table already exists"


@pytest.mark.parametrize("requirement", [requirement for requirement, _ in FAILING])
def test_nothing_can_be_required_of_a_table_that_is_gone(requirement: dict[str, Any]) -> None:
    with pytest.raises(RequirementFailedError, match="Requirement failed: current table metadata is missing"):
        check_requirements(None, parse_requirements([requirement]))


def test_no_requirements_are_met_by_everything(table: dict[str, Any]) -> None:
    check_requirements(table, [])
    check_requirements(None, [])


def test_a_requirement_on_views_is_refused_by_name(table: dict[str, Any]) -> None:
    requirements = parse_requirements([{"type": "assert-view-uuid", "uuid": UUID}])
    with pytest.raises(BadRequestError, match="Cannot validate AssertViewUUID against a table: assert-view-uuid"):
        check_requirements(table, requirements)


def test_a_v1_table_without_the_lists_of_later_versions_can_be_required(
    table_of_version: Callable[[int], dict[str, Any]],
) -> None:
    table = table_of_version(1)
    for name in ("schemas", "current-schema-id", "partition-specs", "default-spec-id", "last-partition-id", "refs"):
        del table[name]
    for name in ("sort-orders", "default-sort-order-id", "table-uuid"):
        del table[name]
    for field in table["partition-spec"]:
        del field["field-id"]
    held = [one for one in HOLDING if one["type"] != "assert-table-uuid" and one.get("ref") != "first"]
    check_requirements(table, parse_requirements(held))
    with pytest.raises(RequirementFailedError, match=f"UUID does not match: expected null != {UUID}"):
        check_requirements(table, parse_requirements([HOLDING[0]]))


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({}, "requirements: expected a list, found an object"),
        (None, "requirements: expected a list, found nothing"),
        ([7], "requirements[0]: expected an object, found 7"),
        ([{}], "requirements[0].type: expected a text, found nothing"),
        ([{"type": "assert-luck"}], "requirements[0].type: unknown requirement 'assert-luck'"),
        ([{"type": "assert-table-uuid"}], "requirements[0].uuid: expected a text, found nothing"),
        (
            [{"type": "assert-current-schema-id", "current-schema-id": "0"}],
            "requirements[0].current-schema-id: expected an integer, found '0'",
        ),
        (
            [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1.0}],
            "requirements[0].snapshot-id: expected an integer, found 1.0",
        ),
        (
            [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 2**63}],
            "requirements[0].snapshot-id: expected an integer of at most 64 bits",
        ),
        (
            [ASSERT_CREATE, {"type": "assert-default-spec-id", "default-spec-id": 0}],
            "requirements: Invalid create requirements: [assert-default-spec-id]",
        ),
        ([ASSERT_CREATE] * 1_001, "requirements: expected at most 1000 items, found 1001"),
    ],
)
def test_malformed_requirements_are_refused_with_their_place(raw: object, text: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse_requirements(raw)
    assert str(caught.value) == text


@pytest.mark.parametrize("missing", ["format-version", "schemas", "current-schema-id", "last-column-id", "location"])
def test_metadata_that_is_none_is_called_corrupt(table: dict[str, Any], missing: str) -> None:
    del table[missing]
    with pytest.raises(CorruptMetadataError, match=f"cannot be read: metadata.{missing}"):
        check_requirements(table, [])
