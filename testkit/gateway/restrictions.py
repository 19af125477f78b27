# SPDX-License-Identifier: Apache-2.0
"""
Restrictions for tests: a table with a column of each type, readers of expressions without a process, and the meaning of
a written filter in three values, which shares no code with what makes predicates of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.policy.cel.programs import Programs
from gateway.policy.restrictions.columns import TableSchema, parse_schema
from gateway.policy.restrictions.values import Value, parse_row
from gateway.policy.restrictions.written import (
    ROW_FILTER,
    Always,
    CallerCompared,
    CallerHas,
    CallerIn,
    CallerMatches,
    CallerText,
    CallerTexts,
    ColumnCompared,
    ColumnIn,
    ColumnIsNull,
    ColumnStartsWith,
    Every,
    Negated,
    Operand,
    Some,
    Written,
    WrittenLiteral,
)
from gateway.policy.variables import PrincipalView

TYPES: Final = (
    *("boolean", "int", "long", "float", "double", "decimal(9,2)", "date", "time", "timestamp", "timestamptz"),
    *("timestamp_ns", "timestamptz_ns", "string", "uuid", "fixed[4]", "binary", "variant", "geometry", "geography"),
    "unknown",
)
"""Every type that is not nested."""

NESTED: Final[list[dict[str, Any]]] = [
    {
        "id": 100,
        "name": "address",
        "required": False,
        "type": {
            "type": "struct",
            "fields": [
                {"id": 101, "name": "city", "required": False, "type": "string"},
                {"id": 102, "name": "zip code", "required": True, "type": "string"},
            ],
        },
    },
    {
        "id": 110,
        "name": "tags",
        "required": False,
        "type": {"type": "list", "element-id": 111, "element": "string", "element-required": False},
    },
    {
        "id": 120,
        "name": "prices",
        "required": False,
        "type": {
            "type": "map",
            "key-id": 121,
            "key": "string",
            "value-id": 122,
            "value": "decimal(9,2)",
            "value-required": False,
        },
    },
]


def name_of(type_: str) -> str:
    """Return the name of the column of a type."""
    return f"c_{type_.partition('(')[0].partition('[')[0]}"


EVERY_TYPE: Final[dict[str, Any]] = {
    "type": "struct",
    "fields": [
        *(
            {"id": number, "name": name_of(type_), "required": False, "type": type_}
            for number, type_ in enumerate(TYPES, start=1)
        ),
        {"id": 50, "name": "id", "required": True, "type": "long"},
        *NESTED,
    ],
}
"""A column of each type, all but `id` optional, and a struct, a list and a map."""

ORDERS: Final[dict[str, Any]] = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "region", "required": False, "type": "string"},
        {"id": 3, "name": "email", "required": False, "type": "string"},
        {"id": 4, "name": "amount", "required": False, "type": "decimal(10,2)"},
    ],
}
"""A table of orders."""

EU_ORDERS: Final[dict[str, Any]] = {
    "scope": {"catalogs": ["lake"], "names": ["sales.orders"]},
    "filter": "row.region == 'EU' || 'admin' in principal.roles",
    "masks": [{"column": "email", "action": "show-last-4", "unless": "'support' in principal.groups"}],
    "schemas": {"orders": ORDERS},
    "examples": [
        {
            "name": "an analyst",
            "principal": {"roles": ["analyst"]},
            "rows": [
                {
                    "row": {"id": 1, "region": "EU", "email": "ada@acme.example", "amount": "12.50"},
                    "expect": "shown",
                    "values": {"email": "xxx@xxxx.xxxmple"},
                },
                {"row": {"id": 2, "region": "US"}, "expect": "hidden"},
                {"row": {"id": 3}, "expect": "hidden"},
            ],
        },
        {
            "name": "an administrator of support",
            "principal": {"roles": ["admin"], "groups": ["support"]},
            "rows": [{"row": {"id": 2, "region": "US", "email": "bob@acme.example"}, "expect": "shown"}],
        },
    ],
}
"""What an author writes of a restriction of that table."""

_programs: Final = Programs()


def read(expression: str, *, kind: str = ROW_FILTER) -> Written:
    """Return what is written in an expression, read in this process: its text is the test's own."""
    return _programs.read_condition(expression, kind=kind)


def schema_of(value: Mapping[str, Any]) -> TableSchema:
    """Return a schema."""
    return parse_schema(dict(value))


def row_of(schema: TableSchema, **values: Any) -> dict[str, Value]:
    """Return a row with these values in JSON, and null in all other columns."""
    return parse_row(schema.fields, values, where="row")


def caller(
    *,
    email: str = "",
    roles: tuple[str, ...] = (),
    groups: tuple[str, ...] = (),
    attributes: Mapping[str, str] | None = None,
) -> PrincipalView:
    """Return a caller."""
    pairs = tuple((attributes or {}).items())
    return PrincipalView(actor="a", source="s", email=email, roles=roles, groups=groups, attributes=pairs)


def meaning(written: Written, row: Mapping[str, Value], who: PrincipalView) -> bool | None:
    """
    Return what a filter says of a row: true, false, or None for neither, by SQL's rules.

    Literals are compared as they are written, so this is for columns of strings, integers and booleans.
    """
    match written:
        case Always(value=value):
            return value
        case Negated(part=part):
            found = meaning(part, row, who)
            return None if found is None else not found
        case Every(parts=parts):
            results = [meaning(part, row, who) for part in parts]
            return False if False in results else None if None in results else True
        case Some(parts=parts):
            results = [meaning(part, row, who) for part in parts]
            return True if True in results else None if None in results else False
        case ColumnIsNull() | ColumnCompared() | ColumnStartsWith() | ColumnIn():
            return _of_column(written, row, who)
        case _:
            return _of_caller(written, who)


def _of_column(
    test: ColumnIsNull | ColumnCompared | ColumnStartsWith | ColumnIn, row: Mapping[str, Value], who: PrincipalView
) -> bool | None:
    match test:
        case ColumnIsNull(column=column):
            return _at(row, column.path) is None
        case ColumnCompared(column=column, op=op, operand=operand):
            return _compare(_at(row, column.path), op, _value(operand, who))
        case ColumnStartsWith(column=column, prefix=prefix):
            text, start = _at(row, column.path), _value(prefix, who)
            return None if text is None or start is None else bool(text.startswith(start))
        case ColumnIn(column=column, options=options):
            return _is_in(_at(row, column.path), options, who)


def _of_caller(test: CallerIn | CallerCompared | CallerMatches | CallerHas, who: PrincipalView) -> bool | None:
    match test:
        case CallerIn(operand=operand, options=options):
            return _is_in(_value(operand, who), options, who)
        case CallerCompared(left=left, right=right):
            return _compare(_value(left, who), "==", _value(right, who))
        case CallerMatches(operand=operand, method=method, part=part):
            text, affix = _value(operand, who), _value(part, who)
            if text is None or affix is None:
                return None
            return bool(text.startswith(affix) if method == "startsWith" else text.endswith(affix))
        case CallerHas(key=key):
            return key in dict(who.attributes)


def _is_in(value: Any, options: tuple[Operand, ...] | CallerTexts, who: PrincipalView) -> bool | None:
    if isinstance(options, CallerTexts):
        values: list[Any] = list(who.roles if options.field == "roles" else who.groups)
    else:
        values = [_value(each, who) for each in options]
    if value is None:
        return None
    if value in [each for each in values if each is not None]:
        return True
    return None if None in values else False


def _at(row: Mapping[str, Value], path: tuple[str, ...]) -> Value:
    value: Value = row
    for name in path:
        value = None if value is None else value[name]
    return value


def _value(operand: WrittenLiteral | CallerText, who: PrincipalView) -> Any:
    if isinstance(operand, WrittenLiteral):
        return operand.value
    return (who.email or None) if operand.key is None else dict(who.attributes).get(operand.key)


def _compare(left: Any, op: str, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    match op:
        case "==":
            return bool(left == right)
        case "!=":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case _:
            return bool(left >= right)
