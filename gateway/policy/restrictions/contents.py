# SPDX-License-Identifier: Apache-2.0
"""
What an author writes of a restriction, as JSON (or YAML) and as the events of the log hold it.

Guarantee: `parse_contents` accepts what `format_contents` returns, and nothing that could be read in two ways: unknown
members, names that stand twice and values that no column has are refused. What it returns fits into one event.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.errors import BadRequestError
from gateway.policy.nearest import nearest
from gateway.policy.restrictions.columns import TableSchema, format_schema, parse_schema
from gateway.policy.restrictions.examples import (
    ReaderExample,
    format_example,
    parse_example,
)
from gateway.policy.scopes import Scope, format_scope, parse_scope
from ledger.errors import FormatError
from ledger.format.events import (
    MaskAction,
    PolicyScope,
    RestrictionContents,
    RestrictionExample,
    RestrictionMask,
    RestrictionSchema,
)

if TYPE_CHECKING:
    from ledger.format.canonical import Json

MEMBERS: Final = ("scope", "filter", "masks", "schemas", "examples")
MASKS_MAX: Final = 100
SCHEMAS_MAX: Final = 8
EXAMPLES_MAX: Final = 50
CONDITION_LENGTH_MAX: Final = 2_000
NAME_LENGTH_MAX: Final = 500
SIZE_BYTES_MAX: Final = 60_000
"""Of all contents in an event, which has at most 64,512."""

_ACTIONS: Final = tuple(action.value for action in MaskAction)
_MASK_MEMBERS: Final = ("column", "action", "unless")


def parse_contents(members: Mapping[str, Json]) -> RestrictionContents:
    """
    Return the contents that an author has written. Expressions are not looked into.

    Raises:
        BadRequestError: if a member is missing, malformed or unknown; names it, and the nearest known name.
    """
    _check_known(members, MEMBERS, where="")
    row_filter = members.get("filter")
    if row_filter is not None and (not isinstance(row_filter, str) or not row_filter.strip()):
        raise BadRequestError(
            f"expected CEL in a text, or nothing for all rows, found {row_filter!r:.80}", field="filter"
        )
    masks = _masks(members.get("masks"))
    if row_filter is None and not masks:
        raise BadRequestError("expected a filter or masks, found neither: it would restrict nothing", field="filter")
    schemas = _schemas(members.get("schemas"))
    contents = RestrictionContents(
        scope=_scope(members.get("scope")),
        filter=None if row_filter is None else row_filter.rstrip(),
        masks=masks,
        schemas=tuple(
            RestrictionSchema(name=name, given=_text(format_schema(schema))) for name, schema in schemas.items()
        ),
        examples=_examples(members.get("examples"), schemas),
    )
    if (size_bytes := len(orjson.dumps(_as_stored(contents)))) > SIZE_BYTES_MAX:
        raise BadRequestError(
            f"expected at most {SIZE_BYTES_MAX:,} bytes of filter, masks, schemas and examples together, found "
            f"{size_bytes:,}: leave out columns and rows that show nothing new"
        )
    return contents


def format_contents(contents: RestrictionContents) -> dict[str, Json]:
    """
    Return the contents of a restriction as an author writes them.
    """
    scope = Scope(catalogs=contents.scope.catalogs, names=contents.scope.names, uuids=contents.scope.uuids)
    masks: list[Json] = [
        {"column": one.column, "action": one.action.value, "unless": one.unless} for one in contents.masks
    ]
    return {
        "scope": dict(format_scope(scope)),
        "filter": contents.filter,
        "masks": masks,
        "schemas": {one.name: _parsed(one.given) for one in contents.schemas},
        "examples": [{"name": one.name, **_parsed(one.given)} for one in contents.examples],
    }


def schemas_of(contents: RestrictionContents) -> dict[str, TableSchema]:
    """
    Return the schemas that an event holds, by name.
    """
    return {one.name: parse_schema(_parsed(one.given), where=one.name) for one in contents.schemas}


def examples_of(contents: RestrictionContents) -> tuple[ReaderExample, ...]:
    """
    Return the examples that an event holds.
    """
    schemas = schemas_of(contents)
    return tuple(
        parse_example({"name": one.name, **_parsed(one.given)}, schemas, where=f"examples[{position}]")
        for position, one in enumerate(contents.examples)
    )


def _scope(value: Json) -> PolicyScope:
    scope = parse_scope(value)
    for member in ("kinds", "operations", "properties"):
        if getattr(scope, member):
            raise BadRequestError(
                "expected none: a restriction is about reading tables; name catalogs, names and uuids alone",
                field=f"scope.{member}",
            )
    return PolicyScope(
        catalogs=scope.catalogs, names=scope.names, kinds=(), operations=(), properties=(), uuids=scope.uuids
    )


def _masks(value: Json) -> tuple[RestrictionMask, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > MASKS_MAX:
        raise BadRequestError(f"expected a list of at most {MASKS_MAX} masks, found {value!r:.80}", field="masks")
    return tuple(_mask(one, where=f"masks[{position}]") for position, one in enumerate(value))


def _mask(value: Json, *, where: str) -> RestrictionMask:
    if not isinstance(value, Mapping):
        raise BadRequestError(f"expected an object with column and action, found {value!r:.80}", field=where)
    _check_known(value, _MASK_MEMBERS, where=where)
    action = value.get("action")
    if not isinstance(action, str) or action not in _ACTIONS:
        close = f"; the nearest is {nearest(action[:80], _ACTIONS)}" if isinstance(action, str) else ""
        raise BadRequestError(
            f"expected one of {', '.join(_ACTIONS)}, found {action!r:.80}{close}", field=f"{where}.action"
        )
    unless = value.get("unless")
    if unless is not None and (not isinstance(unless, str) or not 0 < len(unless.strip()) <= CONDITION_LENGTH_MAX):
        raise BadRequestError(
            f"expected CEL in a text of at most {CONDITION_LENGTH_MAX:,} characters, found {unless!r:.80}",
            field=f"{where}.unless",
        )
    return RestrictionMask(
        column=_name(value.get("column"), where=f"{where}.column"), action=MaskAction(action), unless=unless
    )


def _schemas(value: Json) -> dict[str, TableSchema]:
    if not isinstance(value, Mapping) or not 0 < len(value) <= SCHEMAS_MAX:
        raise BadRequestError(
            f"expected 1 to {SCHEMAS_MAX} schemas by name, each as in a table's metadata, found {value!r:.80}",
            field="schemas",
        )
    return {
        _name(name, where="schemas"): parse_schema(one, where=f"schemas.{name}"[:200]) for name, one in value.items()
    }


def _examples(value: Json, schemas: Mapping[str, TableSchema]) -> tuple[RestrictionExample, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > EXAMPLES_MAX:
        raise BadRequestError(
            f"expected a list of at most {EXAMPLES_MAX} examples, found {value!r:.80}", field="examples"
        )
    held = []
    for position, one in enumerate(value):
        example = format_example(parse_example(one, schemas, where=f"examples[{position}]"))
        given = {member: each for member, each in example.items() if member != "name"}
        held.append(RestrictionExample(name=str(example.get("name", "")), given=_text(given)))
    return tuple(held)


def _name(value: object, *, where: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= NAME_LENGTH_MAX or not value.isprintable():
        raise BadRequestError(
            f"expected 1 to {NAME_LENGTH_MAX} printable characters, found {value!r:.80}", field=where[:200]
        )
    return value


def _check_known(value: Mapping[str, Json], known: Collection[str], *, where: str) -> None:
    for member in value:
        if member not in known:
            raise BadRequestError(
                f"expected some of {', '.join(known)}, found {member!r:.80}; the nearest is "
                f"{nearest(str(member)[:80], known)}",
                field=where or None,
            )


def _text(value: Any) -> str:
    """
    Return JSON as a text with its names sorted.

    Names of columns are any characters, and members of an event have names in ASCII.

    Raises:
        BadRequestError: if it holds a lone surrogate, or an integer beyond 64 bits.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError as error:
        raise BadRequestError(f"expected JSON that can be written again, found some that cannot: {error}") from error


def _parsed(text: str) -> dict[str, Any]:
    """
    Return what `_text` was given.

    Raises:
        FormatError: if it is nothing that the log holds.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise FormatError("restriction", expected=f"JSON ({error})", found=text) from error
    if not isinstance(value, dict):
        raise FormatError("restriction", expected="an object", found=text)
    return value


def _as_stored(contents: RestrictionContents) -> Json:
    """Return contents in the size that they have in an event."""
    return [
        contents.filter,
        [[one.column, one.action.value, one.unless] for one in contents.masks],
        [[one.name, one.given] for one in (*contents.schemas, *contents.examples)],
        [contents.scope.catalogs, contents.scope.names, contents.scope.uuids],
    ]
