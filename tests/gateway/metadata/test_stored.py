# SPDX-License-Identifier: Apache-2.0
"""Stored metadata is opened and written alike, whether or not parts of it are remembered from other tables."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.metadata import CorruptMetadataError, apply_updates, create_updates, to_sorted_json
from gateway.metadata.draft import TableMetadata
from gateway.metadata.stored import open_draft, view_draft

PLACE = "file:///warehouse/orders"
FIELDS = [{"id": 1, "name": "id", "required": True, "type": "long"}]
OTHER_SCHEMA = {"type": "struct", "fields": [*FIELDS, {"id": 2, "name": "day", "required": False, "type": "date"}]}
UPDATES: dict[str, list[dict[str, Any]]] = {
    "properties": [{"action": "set-properties", "updates": {"a": "b"}}],
    "another schema": [{"action": "add-schema", "schema": OTHER_SCHEMA, "last-column-id": 2}],
    "a schema less": [{"action": "remove-schemas", "schema-ids": [1]}],
    "the schema in force": [{"action": "set-current-schema", "schema-id": 1}],
}


def stored(*, with_another_schema: bool = True) -> dict[str, Any]:
    created = create_updates(
        {"name": "orders", "schema": {"type": "struct", "fields": FIELDS}},
        table_uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1",
        location=PLACE,
    )
    more = UPDATES["another schema"] if with_another_schema else []
    metadata = apply_updates(None, [*created, *more], now_ms=1, base_location=None)
    parsed: dict[str, Any] = orjson.loads(orjson.dumps(metadata))
    return parsed


def sorted_json(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


@pytest.mark.parametrize("kind", UPDATES)
def test_the_json_of_metadata_is_the_same_before_and_after_it_is_opened_and_changed(kind: str) -> None:
    plain = stored(with_another_schema=kind != "another schema")
    metadata = TableMetadata(plain)
    assert to_sorted_json(metadata) == sorted_json(plain)
    view_draft(metadata)
    assert to_sorted_json(metadata) == sorted_json(plain)
    base = f"{PLACE}/metadata/1.json"
    changed = apply_updates(metadata, UPDATES[kind], now_ms=2, base_location=base)
    assert isinstance(changed, TableMetadata)
    assert to_sorted_json(changed) == sorted_json(dict(changed))
    assert dict(changed) == dict(
        apply_updates(plain, UPDATES[kind], now_ms=2, base_location=f"{PLACE}/metadata/1.json")
    )
    assert to_sorted_json(metadata) == sorted_json(plain)


def test_json_without_some_members_has_all_others() -> None:
    plain = stored()
    for left_out in ("schemas", "properties"):
        expected = {name: value for name, value in plain.items() if name != left_out}
        assert to_sorted_json(TableMetadata(plain), without={left_out}) == sorted_json(expected)


def test_a_schema_that_is_there_twice_is_written_as_it_was_read() -> None:
    plain = stored(with_another_schema=False)
    plain["schemas"] *= 2
    metadata = TableMetadata(plain)
    view_draft(metadata)
    assert to_sorted_json(metadata) == sorted_json(plain)
    changed = apply_updates(metadata, UPDATES["properties"], now_ms=2, base_location=None)
    assert to_sorted_json(changed) == sorted_json(dict(changed))


def test_opened_tables_share_no_containers_though_their_specs_and_orders_are_remembered() -> None:
    first, second = (open_draft(TableMetadata(stored())) for _ in range(2))
    first.specs.by_id.clear()
    first.orders.by_id.clear()
    first.schemas.by_id.clear()
    assert second.specs.by_id
    assert second.orders.by_id
    assert second.schemas.by_id == open_draft(stored()).schemas.by_id


def test_columns_are_those_of_the_schema_in_force_in_a_table_with_several() -> None:
    metadata = TableMetadata(stored())
    assert [*open_draft(metadata).columns().by_path] == ["id"]
    changed = apply_updates(metadata, UPDATES["the schema in force"], now_ms=2, base_location=None)
    assert [*open_draft(changed).columns().by_path] == ["id", "day"]


@pytest.mark.parametrize(
    "entry",
    [
        {"timestamp-ms": True, "metadata-file": "f"},
        {"timestamp-ms": -1, "metadata-file": "f"},
        {"timestamp-ms": 2**63, "metadata-file": "f"},
        {"timestamp-ms": 1.0, "metadata-file": "f"},
        {"metadata-file": "f"},
        {"timestamp-ms": 1},
        {"timestamp-ms": 1, "metadata-file": 7},
        "f",
    ],
)
def test_one_wrong_entry_of_a_metadata_log_is_found_among_right_ones(entry: object) -> None:
    right = {"timestamp-ms": 1, "metadata-file": "f"}
    assert view_draft({**stored(), "metadata-log": [right, right]}).metadata_log == [right, right]
    with pytest.raises(CorruptMetadataError, match=r"metadata\.metadata-log"):
        view_draft({**stored(), "metadata-log": [right, entry, right]})


def test_properties_that_are_no_texts_are_named() -> None:
    with pytest.raises(CorruptMetadataError, match=r"metadata\.properties\.b"):
        view_draft({**stored(), "properties": {"a": "b", "b": 1}})


def test_a_wrong_spec_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(CorruptMetadataError, match=r"partition-specs\.fields\[0\]"):
            view_draft({**stored(), "partition-specs": [{"spec-id": 0, "fields": [{"name": "x"}]}]})
    with pytest.raises(CorruptMetadataError, match="sort-orders"):
        view_draft({**stored(), "sort-orders": [{"order-id": 0, "fields": [{}]}]})
