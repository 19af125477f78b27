# SPDX-License-Identifier: Apache-2.0
"""Sort orders as JSON: their shape, what makes two of them the same, and whether they fit a schema."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

from gateway.errors import BadRequestError
from gateway.metadata.columns import Columns, describe_type
from gateway.metadata.errors import InvalidUpdateError
from gateway.metadata.shapes import (
    INT32_MAX,
    JsonObject,
    as_object,
    found,
    read_int,
    read_int_or_none,
    read_list,
    read_text,
    without_nulls,
)
from gateway.metadata.transforms import can_transform, canonical_transform, check_new_transform, check_transform

UNSORTED_ID: Final = 0
FIELDS_MAX: Final = 1_000
_DIRECTIONS: Final = {"asc": "ASC", "desc": "DESC"}
_NULL_ORDERS: Final = {"nulls-first": "NULLS FIRST", "nulls-last": "NULLS LAST"}


def unsorted() -> JsonObject:
    """Return the order of tables without one."""
    return {"order-id": UNSORTED_ID, "fields": []}


def parse_order(value: object, at: str) -> JsonObject:
    """
    Return a copy of a sort order whose shape has been checked.

    Raises:
        BadRequestError: where a member is missing or has another shape, or the id is another order's.
    """
    order = without_nulls(as_object(value, at))
    order_id = read_int_or_none(order, "order-id", at, most=INT32_MAX)
    items = read_list(order, "fields", at, count_max=FIELDS_MAX)
    order["fields"] = [_parse_field(item, f"{at}.fields[{index}]") for index, item in enumerate(items)]
    if order_id is not None and not items and order_id != UNSORTED_ID:
        raise BadRequestError("Unsorted order ID must be 0", field=f"{at}.order-id")
    if order_id == UNSORTED_ID and items:
        raise BadRequestError("Sort order ID 0 is reserved for unsorted order", field=f"{at}.order-id")
    return order


def _parse_field(value: object, at: str) -> JsonObject:
    field = without_nulls(as_object(value, at))
    read_int(field, "source-id", at, most=INT32_MAX)
    check_transform(read_text(field, "transform", at), f"{at}.transform")
    for name, allowed in (("direction", _DIRECTIONS), ("null-order", _NULL_ORDERS)):
        text = read_text(field, name, at).lower()
        if text not in allowed:
            expected = " or ".join(repr(one) for one in allowed)
            raise BadRequestError(f"expected {expected}, found {found(field[name])}", field=f"{at}.{name}")
        field[name] = text
    return field


def order_key(order: Mapping[str, Any]) -> Hashable:
    """Return what two orders share exactly if they are the same one: all but the id."""
    return tuple(
        (canonical_transform(f["transform"]), f["source-id"], f["direction"].lower(), f["null-order"].lower())
        for f in order["fields"]
    )


def check_new_order(order: Mapping[str, Any], columns: Columns) -> None:
    """
    Check that an order that is being added fits these columns.

    Raises:
        InvalidUpdateError: at the first field that does not.
    """
    for field in order["fields"]:
        column = columns.by_id.get(field["source-id"])
        if column is not None:
            check_new_transform(field["transform"], column)
    check_order(order, columns)


def check_order(order: Mapping[str, Any], columns: Columns) -> None:
    """
    Check that a table with these columns can be sorted so.

    Raises:
        InvalidUpdateError: at the first field by which it cannot.
    """
    for field in order["fields"]:
        column = columns.by_id.get(field["source-id"])
        if column is None:
            raise InvalidUpdateError(f"Cannot find source column for sort field: {_describe(field)}")
        if not column.is_primitive:
            raise InvalidUpdateError(f"Cannot sort by non-primitive source field: {describe_type(column.type)}")
        if not can_transform(field["transform"], column):
            transform = canonical_transform(field["transform"])
            raise InvalidUpdateError(f"Invalid source type {describe_type(column.type)} for transform: {transform}")


def _describe(field: Mapping[str, Any]) -> str:
    transform = canonical_transform(field["transform"])
    direction, null_order = _DIRECTIONS[field["direction"].lower()], _NULL_ORDERS[field["null-order"].lower()]
    return f"{transform}({field['source-id']}) {direction} {null_order}"
