# SPDX-License-Identifier: Apache-2.0
"""
The scope of a policy: which commits it is evaluated for.

Guarantee: `parse_scope` accepts what `format_scope` writes and nothing that could be read in two ways: unknown members,
kinds and operations are refused, and so is an empty list, which could mean everything or nothing. `covers` is pure and
depends on catalog, name, kind and operation of a commit, and on the uuid and the properties of its table or view before
and after it, alone.

A scope goes by names, not by catalogs: without `catalogs` a policy governs its names under every alias of the tenant,
so that a catalog reached under two aliases is governed once.

A scope by properties goes by a tag or a classification that a table carries, whatever it is called. It counts before
the commit and after it: neither is a policy lifted by the commit that removes the tag, nor is the commit that sets it
free. Metadata whose properties cannot be read is covered.

A scope by uuids goes by what a table is, whatever it is called and in whichever catalog: a table that is renamed, or
registered again elsewhere, keeps its uuid, and another table under its old name has another one. What has metadata
whose uuid is not known is covered: such a table may be any.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import orjson

from gateway.errors import BadRequestError
from gateway.identifiers import parse_alias, parse_name
from gateway.policy.access import content_path
from gateway.policy.nearest import nearest
from gateway.policy.variables import CommitView
from projections.name_patterns import DOT_WITHIN, ONE_LEVEL, pattern_covers

if TYPE_CHECKING:
    from ledger.format.canonical import Json

ITEMS_MAX: Final = 100
"""Of each member of a scope but `uuids`."""
UUIDS_MAX: Final = 50
"""With all else at its bound, a policy with more does not fit into one event."""
NAME_LENGTH_MAX: Final = 500
NAMES_SIZE_BYTES_MAX: Final = 8_192
"""All names of a scope as JSON: with them and its examples, a policy has to fit into one event."""
PROPERTIES_SIZE_BYTES_MAX: Final = 2_048
"""All properties of a scope as JSON, for the same reason."""

KINDS: Final = ("table", "view", "namespace")
OPERATIONS: Final = (
    "table.create",
    "table.commit",
    "table.drop",
    "table.register",
    "table.unregister",
    "table.rename_from",
    "table.rename_to",
    "view.create",
    "view.replace",
    "view.drop",
    "view.register",
    "view.rename_from",
    "view.rename_to",
    "namespace.create",
    "namespace.update",
    "namespace.drop",
)
"""What policies judge (`gateway.mutations.Operation`)."""

_UUIDS: Final = ("table-uuid", "view-uuid")
_ANY_BELOW: Final = ".*"
_PROPERTIES: Final = "properties"


@dataclass(frozen=True, slots=True)
class Tag:
    """A property of a table: its `name`, or what names begin with if it `is_prefix`, and its value (None: any)."""

    name: str
    is_prefix: bool
    value: str | None

    def is_among(self, properties: Mapping[str, Any]) -> bool:
        """Return whether one of `properties` is it."""
        if not self.is_prefix:
            return self.name in properties and self._has_value(properties[self.name])
        return any(name.startswith(self.name) and self._has_value(value) for name, value in properties.items())

    def includes(self, other: Tag) -> bool:
        """Return whether whatever is `other` is this, too."""
        is_wider = other.name.startswith(self.name) if self.is_prefix else self == replace(other, value=self.value)
        return is_wider and self.value in {None, other.value}

    def _has_value(self, value: object) -> bool:
        return self.value is None or value == self.value


def tag_of(text: str) -> Tag:
    """Return the property that an item of `properties` says: up to the first equals sign is its name."""
    name, equals, value = text.partition("=")
    is_prefix = name.endswith(_ANY_BELOW)
    return Tag(name.removesuffix("*") if is_prefix else name, is_prefix, value if equals else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """
    What a policy applies to; a member that is empty does not restrict.

    `catalogs` are aliases. `names` are paths as access rules have them in `path`: levels and name joined by dots, each
    dot within one as U+001D. `sales.*` is everything directly in the namespace `sales`; `sales.**` is that namespace,
    and everything in it on any level. `kinds` are some of `KINDS`, `operations` some of `OPERATIONS`.

    `properties` are those of a table or view, of which it has one: `classification=pii` is one with that value,
    `classification` one with any value; `classification.*=email` is any property whose name begins with
    `classification.`, with that value. A namespace has none that count.

    `uuids` are those of tables and views, in lower case with hyphens; a namespace has none.
    """

    catalogs: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    exact: frozenset[str] = field(init=False, compare=False, repr=False)
    """Those of `names` that are not a pattern."""
    tags: tuple[Tag, ...] = field(init=False, compare=False, repr=False)
    """What `properties` say."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "exact", frozenset(name for name in self.names if not name.endswith(ONE_LEVEL[1:])))
        object.__setattr__(self, "tags", tuple(map(tag_of, self.properties)))


EVERYTHING: Final = Scope()
_MEMBERS: Final = tuple(member.name for member in fields(Scope) if member.init)


def covers(
    scope: Scope, view: CommitView, *, table: Mapping[str, Any] | None = None, result: Mapping[str, Any] | None = None
) -> bool:
    """
    Return whether a policy with this scope applies to a commit; `table` and `result` are the metadata before and after
    it, None where there is none.
    """
    return (
        (not scope.operations or view.operation in scope.operations)
        and (not scope.kinds or view.kind in scope.kinds)
        and (not scope.catalogs or view.catalog in scope.catalogs)
        and (not scope.names or _names_cover(scope, view))
        and (not scope.properties or has_tag(scope, table) or has_tag(scope, result))
        and (not scope.uuids or has_uuid(scope, table) or has_uuid(scope, result))
    )


def without_metadata(scope: Scope) -> Scope:
    """
    Return a scope that covers whatever this one does with some properties and some uuid.
    """
    return replace(scope, properties=(), uuids=()) if scope.properties or scope.uuids else scope


def has_uuid(scope: Scope, metadata: Mapping[str, Any] | None) -> bool:
    """
    Return whether a table or view is, or may be, one that the scope names; None, which is no table, is not.
    """
    if metadata is None:
        return False
    found = next((found for name in _UUIDS if (found := metadata.get(name))), None)
    return may_be_among(scope, found)


def may_be_among(scope: Scope, uuid: object) -> bool:
    """
    Return whether a uuid is one that the scope names, in any form of writing, or is none that can be read.
    """
    try:
        return str(UUID(str(uuid))) in scope.uuids
    except ValueError:
        return True


def has_tag(scope: Scope, metadata: Mapping[str, Any] | None) -> bool:
    """
    Return whether a table or view has one of the properties that the scope names; None has none.
    """
    properties = None if metadata is None else metadata.get(_PROPERTIES)
    if not properties:
        return False
    if not isinstance(properties, Mapping):
        return True
    return any(tag.is_among(properties) for tag in scope.tags)


def _names_cover(scope: Scope, view: CommitView) -> bool:
    path, is_namespace = content_path(view), view.kind == "namespace"
    return path in scope.exact or any(pattern_covers(name, path, is_namespace=is_namespace) for name in scope.names)


def parse_scope(value: Json, *, where: str = "scope") -> Scope:
    """
    Return the scope that `value` describes; None, and an object without members, describe `EVERYTHING`.

    Raises:
        BadRequestError: if it is anything but an object of some of these lists, or a member of one is malformed or
            unknown; names the field, and the nearest known name.
    """
    if value is None:
        return EVERYTHING
    if not isinstance(value, Mapping):
        raise BadRequestError(
            f"expected an object with some of {', '.join(_MEMBERS)}, found {value!r:.80}", field=where
        )
    for name in value:
        _check_known(name, _MEMBERS, where=where)
    return Scope(
        catalogs=_checked(value, "catalogs", where, _check_catalog),
        names=_names(value, where),
        kinds=_checked(value, "kinds", where, _check_kind),
        operations=_checked(value, "operations", where, _check_operation),
        properties=_properties(value, where),
        uuids=_checked(value, "uuids", where, _check_uuid, items_max=UUIDS_MAX),
    )


def format_scope(scope: Scope) -> dict[str, Json]:
    """Return a scope as JSON, without the members that do not restrict."""
    return {name: list(items) for name in _MEMBERS if (items := getattr(scope, name))}


def _names(value: Mapping[str, Json], where: str) -> tuple[str, ...]:
    names = _checked(value, "names", where, _check_name)
    _check_size(names, f"{where}.names", NAMES_SIZE_BYTES_MAX)
    return names


def _properties(value: Mapping[str, Json], where: str) -> tuple[str, ...]:
    properties = _checked(value, _PROPERTIES, where, _check_property)
    _check_size(properties, f"{where}.{_PROPERTIES}", PROPERTIES_SIZE_BYTES_MAX)
    return properties


def _check_size(items: tuple[str, ...], field_name: str, size_bytes_max: int) -> None:
    if (size_bytes := len(orjson.dumps(items))) > size_bytes_max:
        raise BadRequestError(
            f"expected at most {size_bytes_max:,} bytes together, found {size_bytes:,}", field=field_name
        )


def _checked(
    value: Mapping[str, Json],
    name: str,
    where: str,
    check: Callable[[str, str], None],
    *,
    items_max: int = ITEMS_MAX,
) -> tuple[str, ...]:
    """Return a member of a scope: each item once, in the order of writing; empty if there is no such member."""
    field_name = f"{where}.{name}"
    if name not in value:
        return ()
    items = value[name]
    if not isinstance(items, list) or not items:
        raise BadRequestError(
            f"expected a list with at least one item, found {items!r:.80}: leave it out where it does not restrict",
            field=field_name,
        )
    if len(items) > items_max:
        raise BadRequestError(f"expected at most {items_max} items, found {len(items)}", field=field_name)
    found: dict[str, None] = {}
    for position, item in enumerate(items):
        place = f"{field_name}[{position}]"
        if not isinstance(item, str):
            raise BadRequestError(f"expected a text, found {item!r:.80}", field=place)
        check(item, place)
        found[item] = None
    return tuple(found)


def _check_catalog(alias: str, place: str) -> None:
    parse_alias(alias, field=place)


def _check_kind(kind: str, place: str) -> None:
    _check_known(kind, KINDS, where=place)


def _check_operation(operation: str, place: str) -> None:
    _check_known(operation, OPERATIONS, where=place)


def _check_uuid(text: str, place: str) -> None:
    """Refuse every form of a uuid but one, so that two texts are two tables."""
    try:
        uuid = str(UUID(text))
    except ValueError:
        uuid = None
    if uuid != text:
        raise BadRequestError(
            f"expected the uuid of a table or view in lower case with hyphens, found {text!r:.80}"
            + (f"; write {uuid}" if uuid is not None else ""),
            field=place,
        )


def _check_property(text: str, place: str) -> None:
    """Refuse what names no property, and a wildcard anywhere but at the end of a name, behind a dot."""
    name = text.partition("=")[0]
    if not text.isprintable():
        raise BadRequestError(f"expected printable characters, found {text!r:.80}", field=place)
    if not name.removesuffix(_ANY_BELOW) or "*" in name.removesuffix(_ANY_BELOW):
        raise BadRequestError(
            "expected a property of a table with its value, as in classification=pii, or a name alone, or the begin of "
            f"a name with .* behind it, found {text!r:.80}",
            field=place,
        )


def _check_known(name: str, known: Collection[str], *, where: str) -> None:
    if name not in known:
        raise BadRequestError(
            f"expected some of {', '.join(known)}, found {name!r:.80}; the nearest is {nearest(name[:80], known)}",
            field=where,
        )


def _check_name(name: str, place: str) -> None:
    """Refuse what no path can be, and a wildcard anywhere but at the end, behind a namespace."""
    if not 0 < len(name) <= NAME_LENGTH_MAX:
        raise BadRequestError(f"expected 1 to {NAME_LENGTH_MAX} characters, found {len(name):,}", field=place)
    levels = name.split(".")
    if levels[-1] in {"*", "**"}:
        levels.pop()
    if not all(levels) or not levels or "*" in "".join(levels):
        raise BadRequestError(
            "expected the path of a table, view or namespace, as in sales.orders, or of a namespace with .* or .** "
            f"behind it, found {name!r:.80}",
            field=place,
        )
    for level in levels:
        parse_name(level.replace(DOT_WITHIN, "."), field=place)
