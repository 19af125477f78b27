# SPDX-License-Identifier: Apache-2.0
"""
The examples of a restriction: rows that one caller must see, with which values, and rows that the caller must not see.

A column that is not named in `values` must come out as it went in, so an example notices a mask that nobody meant. What
`sha-256-query-local` makes of a value differs with each query, and is never compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gateway.errors import BadRequestError
from gateway.policy.nearest import nearest
from gateway.policy.restrictions.columns import Column, TableSchema
from gateway.policy.restrictions.compiled import ReadRestriction, compile_for
from gateway.policy.restrictions.evaluation import shown_row
from gateway.policy.restrictions.form import ReadRestrictions
from gateway.policy.restrictions.masking import SALT_BYTES_MIN
from gateway.policy.restrictions.values import Value, format_value, parse_row, parse_value
from gateway.policy.variables import PrincipalView
from ledger.format.events import MaskAction

if TYPE_CHECKING:
    from ledger.format.canonical import Json

ROWS_MAX: Final = 50
"""Of one example."""
TEXTS_MAX: Final = 256
"""Roles, groups or attributes of a caller."""
NAME_LENGTH_MAX: Final = 200
TEXT_LENGTH_MAX: Final = 1_000

SHOWN: Final = "shown"
HIDDEN: Final = "hidden"

_MEMBERS: Final = ("name", "schema", "principal", "rows")
_OF_PRINCIPAL: Final = ("email", "roles", "groups", "attributes")
_OF_ROW: Final = ("row", "expect", "values")
_NO_SALT: Final = bytes(SALT_BYTES_MIN)
"""Of a query that nobody makes: what depends on it is not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleRow:
    """
    A row with its original values, and what its reader must see: `values` are those that are masked, by name; None if
    the row must be hidden. All of them are JSON.
    """

    row: Mapping[str, Json]
    values: Mapping[str, Json] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderExample:
    """What one caller must see of some rows of a table with the schema of that name."""

    name: str
    schema: str
    principal: PrincipalView
    rows: tuple[ExampleRow, ...]


def parse_example(value: Json, schemas: Mapping[str, TableSchema], *, where: str) -> ReaderExample:
    """
    Return the example that `value` describes, of a table with one of `schemas`.

    Raises:
        BadRequestError: if it is malformed, or its rows are none of such a table; names the place.
    """
    members = _members(value, _MEMBERS, where=where)
    name = members.get("name", "")
    if not isinstance(name, str) or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise BadRequestError(
            f"expected at most {NAME_LENGTH_MAX} printable characters, found {name!r:.80}", field=f"{where}.name"
        )
    schema_name = members.get("schema", next(iter(schemas)) if len(schemas) == 1 else None)
    if not isinstance(schema_name, str) or schema_name not in schemas:
        raise BadRequestError(
            f"expected the name of one of the schemas ({', '.join(schemas)}), found {schema_name!r:.80}",
            field=f"{where}.schema",
        )
    rows = members.get("rows")
    if not isinstance(rows, list | tuple) or not 0 < len(rows) <= ROWS_MAX:
        raise BadRequestError(f"expected a list of 1 to {ROWS_MAX} rows, found {rows!r:.80}", field=f"{where}.rows")
    return ReaderExample(
        name=name,
        schema=schema_name,
        principal=_principal(members.get("principal"), where=f"{where}.principal"),
        rows=tuple(
            _row(one, schemas[schema_name], where=f"{where}.rows[{position}]") for position, one in enumerate(rows)
        ),
    )


def format_example(example: ReaderExample) -> dict[str, Json]:
    """
    Return an example as JSON: what `parse_example` reads.
    """
    caller = example.principal
    principal: dict[str, Json] = {
        "email": caller.email,
        "roles": list(caller.roles),
        "groups": list(caller.groups),
        "attributes": dict(caller.attributes),
    }
    rows: list[Json] = [
        {"row": dict(one.row), "expect": HIDDEN}
        if one.values is None
        else {"row": dict(one.row), "expect": SHOWN, "values": dict(one.values)}
        for one in example.rows
    ]
    return {
        "name": example.name,
        "schema": example.schema,
        "principal": {member: each for member, each in principal.items() if each},
        "rows": rows,
    }


def failing(
    restriction: ReadRestriction, schemas: Mapping[str, TableSchema], examples: Iterable[ReaderExample]
) -> tuple[str, ...]:
    """
    Return a sentence for each row of which a caller does not see what the example expects.

    Raises:
        RestrictionRefusedError: if the restriction does not fit one of the schemas.
        RestrictionTooLargeError: if a caller has more roles or groups than a filter takes.
    """
    sentences: list[str] = []
    for number, example in enumerate(examples, start=1):
        schema = schemas[example.schema]
        restrictions = compile_for(restriction, schema, example.principal)
        named = f"example {number} ({example.name})" if example.name else f"example {number}"
        for place, one in enumerate(example.rows, start=1):
            found = "; ".join(_differences(one, schema, restrictions))
            if found:
                sentences.append(f"{named}, row {place}: {found}")
    return tuple(sentences)


def _differences(one: ExampleRow, schema: TableSchema, restrictions: ReadRestrictions) -> Iterator[str]:
    """Yield how what a caller sees of a row differs from what the example expects."""
    row = parse_row(schema.fields, one.row, where="row")
    seen = shown_row(restrictions, schema, row, salt=_NO_SALT)
    if one.values is None:
        if seen is not None:
            yield "expected it to be hidden, found it shown"
        return
    if seen is None:
        yield "expected it to be shown, found it hidden"
        return
    local = {each.field_id for each in restrictions.projections if each.action is MaskAction.SHA_256_QUERY_LOCAL}
    for column in schema.fields:
        name = column.path[-1]
        if _is_within(column, local):
            if name in one.values:
                yield f"{name}: expected no value, since it differs with each query, found one"
            continue
        expected = _comparable(column, one.values.get(name, format_value(column.type, row[name])))
        found = format_value(column.type, seen[name])
        if expected != found:
            yield f"{name}: expected {_shown(expected)}, found {_shown(found)}"


def _comparable(column: Column, value: Json) -> Json:
    """Return a value in the one spelling that values are returned in."""
    try:
        return format_value(column.type, parse_value(column.type, value, where=column.name))
    except BadRequestError:
        return value  # no value of the column: it differs from what is found


def _is_within(column: Column, field_ids: set[int]) -> bool:
    return column.id in field_ids or any(_is_within(each, field_ids) for each in column.type.fields)


def _shown(value: Value) -> str:
    return f"{value!r:.80}"


def _row(value: Json, schema: TableSchema, *, where: str) -> ExampleRow:
    members = _members(value, _OF_ROW, where=where)
    names = [field.path[-1] for field in schema.fields]
    expect, row = members.get("expect"), _members(members.get("row"), names, where=f"{where}.row")
    parse_row(schema.fields, row, where=f"{where}.row")
    if expect not in {SHOWN, HIDDEN}:
        raise BadRequestError(f"expected {SHOWN} or {HIDDEN}, found {expect!r:.80}", field=f"{where}.expect")
    values = members.get("values")
    if expect == HIDDEN:
        if values is not None:
            raise BadRequestError("expected none for a row that is hidden", field=f"{where}.values")
        return ExampleRow(row=row, values=None)
    return ExampleRow(row=row, values=_members({} if values is None else values, names, where=f"{where}.values"))


def _principal(value: Json, *, where: str) -> PrincipalView:
    members = _members({} if value is None else value, _OF_PRINCIPAL, where=where)
    email = members.get("email", "")
    attributes = members.get("attributes", {})
    if not _is_text(email):
        raise BadRequestError(f"expected a printable text, found {email!r:.80}", field=f"{where}.email")
    if (
        not isinstance(attributes, Mapping)
        or len(attributes) > TEXTS_MAX
        or not all(_is_text(each) for pair in attributes.items() for each in pair)
    ):
        raise BadRequestError(
            f"expected printable texts by name, found {attributes!r:.80}", field=f"{where}.attributes"
        )
    return PrincipalView(
        actor="",
        source="",
        email=email,
        roles=_texts(members.get("roles", []), where=f"{where}.roles"),
        groups=_texts(members.get("groups", []), where=f"{where}.groups"),
        attributes=tuple(attributes.items()),
    )


def _texts(value: Json, *, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > TEXTS_MAX or not all(map(_is_text, value)):
        raise BadRequestError(
            f"expected a list of at most {TEXTS_MAX} printable texts, found {value!r:.80}", field=where
        )
    return tuple(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= TEXT_LENGTH_MAX and value.isprintable()


def _members(value: Json, known: Iterable[str], *, where: str) -> Mapping[str, Any]:
    names = tuple(known)
    if not isinstance(value, Mapping):
        raise BadRequestError(f"expected an object with some of {', '.join(names)}, found {value!r:.80}", field=where)
    for member in value:
        if member not in names:
            raise BadRequestError(
                f"expected some of {', '.join(names)}, found {member!r:.80}; the nearest is "
                f"{nearest(str(member)[:80], names)}",
                field=where,
            )
    return value
