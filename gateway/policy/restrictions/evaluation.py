# SPDX-License-Identifier: Apache-2.0
"""
What a restriction means: which rows of a table it shows, and with which values. Written to be read, not to be fast.

This is what every other reader of the form is compared with. Predicates have two values, as Iceberg's evaluator has
them: null is less than every other value, and equal to none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from gateway.policy.restrictions.columns import TableSchema
from gateway.policy.restrictions.form import (
    Comparing,
    Comparison,
    Constant,
    Joined,
    Joining,
    Member,
    Membership,
    Not,
    Nullness,
    NullTest,
    Predicate,
    ReadRestrictions,
)
from gateway.policy.restrictions.masking import masked_row
from gateway.policy.restrictions.values import Value


def shown_row(
    restrictions: ReadRestrictions, schema: TableSchema, row: Mapping[str, Value], *, salt: bytes
) -> dict[str, Value] | None:
    """
    Return a row as its reader sees it, None if it is hidden; `row` has the original values, by name.

    The filter sees the original values, and what it shows is masked. `salt` is that of the query (`masking.masked`).
    """
    if not holds(restrictions.row_filter, values_by_id(schema, row)):
        return None
    actions = {one.field_id: one.action for one in restrictions.projections}
    return masked_row(schema.fields, row, actions, salt=salt)


def values_by_id(schema: TableSchema, row: Mapping[str, Value]) -> dict[int, Value]:
    """
    Return the values of a row by field id, on all levels outside of lists and maps; within a null struct all are null.
    """
    found: dict[int, Value] = {}
    for column in schema.columns:
        if column.is_repeated:
            continue
        value: Value = row
        for name in column.path:
            value = None if value is None else value[name]
        found[column.id] = value
    return found


def holds(predicate: Predicate, values: Mapping[int, Value]) -> bool:
    """
    Return whether a predicate holds for the values of a row, by field id.
    """
    match predicate:
        case Constant(value=value):
            return value
        case Comparison(op=op, field_id=field_id, literal=literal):
            return _compares(op, values[field_id], literal)
        case Membership(op=op, field_id=field_id, literals=literals):
            value = values[field_id]
            is_one = value is not None and value in literals
            return is_one if op is Member.IN else not is_one
        case NullTest(op=op, field_id=field_id):
            return (values[field_id] is None) == (op is Nullness.IS_NULL)
        case Not(child=child):
            return not holds(child, values)
        case Joined(op=Joining.AND, left=left, right=right):
            return holds(left, values) and holds(right, values)
        case Joined(left=left, right=right):
            return holds(left, values) or holds(right, values)
        case _:
            assert_never(predicate)


def _compares(op: Comparing, value: Value, literal: Value) -> bool:
    is_null = value is None
    match op:
        case Comparing.EQ:
            return not is_null and bool(value == literal)
        case Comparing.NOT_EQ:
            return is_null or bool(value != literal)
        case Comparing.LT:
            return is_null or bool(value < literal)
        case Comparing.LT_EQ:
            return is_null or bool(value <= literal)
        case Comparing.GT:
            return not is_null and bool(value > literal)
        case Comparing.GT_EQ:
            return not is_null and bool(value >= literal)
        case Comparing.STARTS_WITH:
            return not is_null and bool(value.startswith(literal))
        case Comparing.NOT_STARTS_WITH:
            return is_null or not value.startswith(literal)
        case _:
            assert_never(op)
