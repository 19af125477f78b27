# SPDX-License-Identifier: Apache-2.0
"""
What the page of a table makes of schemas and of lineage.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from gateway.console.lineage_picture import BOX_WIDTH, COLUMNS_MAX, LAYER_MAX, Picture, lineage_picture
from gateway.console.schema_steps import COLUMNS_MAX as SCHEMA_COLUMNS_MAX
from gateway.console.schema_steps import Step, columns_of, schema_steps

ORDERS = "table:lake/sales/orders"


def field(number: int, name: str, type_: Any = "long", **more: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "type": type_, "required": False, **more}


def schema(schema_id: int, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"schema-id": schema_id, "type": "struct", "fields": list(fields)}


def decision(index: int, outcome: str | None = "accepted") -> dict[str, Any]:
    return {"index": index, "outcome": None if outcome is None else {"outcome": outcome}}


def steps(*schemas: dict[str, Any], changes: Any = (), is_whole: bool = True) -> list[Step]:
    return schema_steps(schemas, current=0, changes=changes, is_whole=is_whole)


def test_columns_are_compared_by_their_ids_and_not_by_name_or_place() -> None:
    newest, first = steps(
        schema(0, field(1, "a"), field(2, "b")),
        schema(1, field(3, "a"), field(2, "c"), field(1, "b", "string", required=True)),
    )
    assert ([each.path for each in first.added], first.is_current) == (["a", "b"], True)
    assert [each.path for each in newest.added] == ["a"]
    assert newest.removed == []
    assert newest.renamed == [("b", "c"), ("a", "b")]
    assert newest.changed == [("b", "long", "string, required")]
    again, _ = steps(schema(0, field(1, "a"), field(2, "b")), schema(1, field(2, "b"), field(1, "a")))
    assert (again.added, again.removed, again.renamed, again.changed) == ([], [], [], [])


def test_columns_within_others_are_columns_too() -> None:
    inner = {"type": "struct", "fields": [field(4, "city", "string")]}
    listed = {"type": "list", "element-id": 6, "element": inner, "element-required": True}
    mapped = {"type": "map", "key-id": 8, "key": "string", "value-id": 9, "value": "int", "value-required": False}
    found = columns_of(schema(0, field(1, "home", listed), field(7, "counts", mapped)))
    assert {number: (each.path, each.words) for number, each in found.items()} == {
        1: ("home", "list"),
        6: ("home.element", "struct, required"),
        4: ("home.element.city", "string"),
        7: ("counts", "map"),
        8: ("counts.key", "string, required"),
        9: ("counts.value", "int"),
    }


@pytest.mark.parametrize(
    "broken",
    [{}, {"type": "struct"}, {"type": "struct", "fields": [{"name": "x"}]}, {"type": "list", "element": {"type": 3}}],
)
def test_a_schema_that_lacks_something_is_not_an_error(broken: dict[str, Any]) -> None:
    assert columns_of(broken) == {}


def test_a_schema_without_end_is_cut() -> None:
    deep: Any = "long"
    for number in range(200, 0, -1):
        deep = {"type": "struct", "fields": [field(number, "x", deep)]}
    assert len(columns_of(deep)) < 60
    wide = schema(0, *(field(number, f"c{number}") for number in range(SCHEMA_COLUMNS_MAX + 5)))
    assert len(columns_of(wide)) == SCHEMA_COLUMNS_MAX


def test_a_schema_is_told_its_decision_only_where_each_can_be() -> None:
    schemas = (schema(0, field(1, "a")), schema(1, field(2, "b")))
    both = [decision(9), decision(7, "conflicted"), decision(6, None), decision(5)]
    assert [each.decision for each in steps(*schemas, changes=both)] == [decision(9), decision(5)]
    assert [each.decision for each in steps(*schemas, changes=both, is_whole=False)] == [None, None]
    assert [each.decision for each in steps(*schemas, changes=both[:1])] == [None, None]
    assert [each.decision for each in steps(*schemas, changes=[decision(11), *both])] == [None, None]


def edge(source: str, target: str, hops: int = 1) -> dict[str, Any]:
    return {"source": source, "target": target, "hops": hops, "job": None}


def column(source: str, source_column: str, target: str, target_column: str | None) -> dict[str, Any]:
    return {
        "source": source,
        "source_column": source_column,
        "target": target,
        "target_column": target_column,
    }


def picture(up: Any = (), down: Any = (), columns: Any = (), *, with_columns: bool = False) -> Picture:
    lineage = {"key": ORDERS, "upstream": list(up), "downstream": list(down), "columns": list(columns)}
    return lineage_picture(lineage, with_columns=with_columns)


def test_what_a_table_was_made_from_is_to_its_left_and_what_was_made_from_it_to_its_right() -> None:
    drawn = picture(
        up=[edge("table:lake/a", ORDERS), edge("dataset:kafka%3A%2F%2Fb/clicks", "table:lake/a", 2)],
        down=[edge(ORDERS, "table:lake/z")],
    )
    by_place = [box.key for box in sorted(drawn.boxes, key=lambda box: box.x)]
    assert by_place == ["dataset:kafka%3A%2F%2Fb/clicks", "table:lake/a", ORDERS, "table:lake/z"]
    assert [box.key for box in drawn.boxes if box.is_this] == [ORDERS]
    assert [line.words for line in drawn.lines] == [
        "sales.orders was made from a",
        "a was made from kafka://b clicks",
        "z was made from sales.orders",
    ]


def test_no_box_is_over_another_or_out_of_the_picture_however_many_there_are() -> None:
    drawn = picture(
        up=[edge(f"table:lake/up{n}", ORDERS) for n in range(40)],
        down=[edge(ORDERS, f"table:lake/down{n}") for n in range(3)],
        columns=[column(f"table:lake/up{n % 5}", f"c{n}", ORDERS, f"d{n}") for n in range(80)],
        with_columns=True,
    )
    assert drawn.left_out == 40 - LAYER_MAX
    assert len(drawn.boxes) == LAYER_MAX + 4
    for box in drawn.boxes:
        assert 0 <= box.x <= box.x + BOX_WIDTH <= drawn.width
        assert 0 <= box.y <= box.y + box.height <= drawn.height
        assert len(box.rows) <= COLUMNS_MAX
        assert all(box.y < row.y < box.y + box.height for row in box.rows)
        beside = [each for each in drawn.boxes if each.x == box.x and each is not box]
        assert all(each.y + each.height < box.y or box.y + box.height < each.y for each in beside)
    for line in drawn.lines:
        ends = [int(number) for number in re.findall(r"\d+", line.path)]
        assert max(ends[1::2]) <= drawn.height


def test_an_edge_in_a_circle_is_drawn_once_and_ends_at_both_boxes() -> None:
    drawn = picture(
        up=[edge("table:lake/a", ORDERS), edge(ORDERS, "table:lake/a", 2)],
        down=[edge(ORDERS, "table:lake/a"), edge("table:lake/a", ORDERS, 2)],
    )
    assert [box.key for box in drawn.boxes] == ["table:lake/a", ORDERS]
    assert len(drawn.lines) == 2


def test_a_column_that_stands_for_all_leads_to_the_table_itself() -> None:
    drawn = picture(
        up=[edge("table:lake/a", ORDERS)],
        columns=[column("table:lake/a", "x", ORDERS, None), column("table:lake/else", "y", ORDERS, "z")],
        with_columns=True,
    )
    (of_columns,) = [line for line in drawn.lines if line.is_of_columns]
    assert of_columns.words == "every column was made from x"
    assert {row.text for box in drawn.boxes for row in box.rows} == {"x"}


def test_a_table_alone_is_a_picture_too() -> None:
    drawn = picture()
    assert (len(drawn.boxes), drawn.lines, drawn.left_out) == (1, [], 0)
