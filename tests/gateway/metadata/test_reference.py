# SPDX-License-Identifier: Apache-2.0
"""What the Java reference implementation answered to the same requests: known answers for every update."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.errors import GatewayError
from gateway.metadata import (
    ASSERT_CREATE,
    InvalidUpdateError,
    apply_updates,
    check_requirements,
    create_updates,
    parse_requirements,
    parse_updates,
)


def _comparable(metadata: dict[str, Any]) -> dict[str, Any]:
    """
    Bring metadata into one form where the reference writes another that means the same.

    It keeps statistics in no order, leaves out a sequence number of 0 and spells transforms in lower case.
    """
    copy: dict[str, Any] = json.loads(json.dumps(metadata))
    for name in ("statistics", "partition-statistics"):
        copy[name] = sorted(copy[name], key=lambda file: int(file["snapshot-id"]))
    for snapshot in copy["snapshots"]:
        if snapshot.get("sequence-number") == 0:
            del snapshot["sequence-number"]
    for definition in [*copy["partition-specs"], *copy["sort-orders"], {"fields": copy.get("partition-spec", [])}]:
        for field in definition["fields"]:
            field["transform"] = field["transform"].lower()
    for schema in [*copy["schemas"], copy.get("schema", {})]:
        if not schema.get("identifier-field-ids"):
            schema.pop("identifier-field-ids", None)
    return copy


def test_tables_are_created_as_the_reference_creates_them(recorded: list[dict[str, Any]]) -> None:
    for table in recorded:
        expected = table["metadata"]
        updates = create_updates(table["create"], table_uuid=expected["table-uuid"], location=expected["location"])
        check_requirements(None, [ASSERT_CREATE])
        created = apply_updates(None, updates, now_ms=expected["last-updated-ms"], base_location=None)
        assert _comparable(created) == _comparable(expected)


def test_commits_result_in_the_metadata_the_reference_wrote(recorded: list[dict[str, Any]]) -> None:
    compared = 0
    for table in recorded:
        base = table["metadata"]
        for step in table["steps"]:
            if step["status"] != 200:
                continue
            expected = step["metadata"]
            check_requirements(base, parse_requirements(step["requirements"]))
            updates = parse_updates(step["updates"])
            found = apply_updates(base, updates, now_ms=expected["last-updated-ms"], base_location=step["base"])
            # the reference calls it a change to remove specs and schemas that are not there
            if found != base:
                assert _comparable(found) == _comparable(expected), step["updates"]
                compared += 1
            base = expected
    assert compared > 40


def test_commits_are_refused_as_the_reference_refused_them(recorded: list[dict[str, Any]]) -> None:
    refused = 0
    for table in recorded:
        base = table["metadata"]
        for step in table["steps"]:
            if step["status"] == 200:
                base = step["metadata"]
                continue
            with pytest.raises(GatewayError) as caught:
                _commit(base, step)
            assert caught.value.status == step["status"]
            # ours has the path of a malformed member in front; the time of the commit is another
            expected = step["message"].partition("timestamp 1")[0]
            assert str(caught.value).partition("timestamp 1")[0].endswith(expected)
            refused += 1
    assert refused > 10


def _commit(base: dict[str, Any], step: dict[str, Any]) -> None:
    check_requirements(base, parse_requirements(step["requirements"]))
    apply_updates(base, parse_updates(step["updates"]), now_ms=base["last-updated-ms"], base_location=step["base"])


def test_a_changed_answer_is_noticed(recorded: list[dict[str, Any]]) -> None:
    expected = recorded[0]["metadata"]
    updates = create_updates(recorded[0]["create"], table_uuid=expected["table-uuid"], location="file:///elsewhere")
    created = apply_updates(None, updates, now_ms=expected["last-updated-ms"], base_location=None)
    assert _comparable(created) != _comparable(expected)
    with pytest.raises(InvalidUpdateError, match="Cannot remove the current schema"):
        apply_updates(
            created, parse_updates([{"action": "remove-schemas", "schema-ids": [0]}]), now_ms=1, base_location=None
        )
