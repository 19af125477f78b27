# SPDX-License-Identifier: Apache-2.0
"""
The scope of a policy: which commits it is evaluated for.

Guarantee: `parse_scope` accepts what `format_scope` writes and nothing that could be read in two ways: unknown members,
kinds and operations are refused, and so is an empty list, which could mean everything or nothing. `covers` is pure and
depends on catalog, name, kind and operation of a commit alone.

A scope goes by names, not by catalogs: without `catalogs` a policy governs its names under every alias of the tenant,
so that a catalog reached under two aliases is governed once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

import orjson

from gateway.errors import BadRequestError
from gateway.identifiers import parse_alias, parse_name
from gateway.policy.access import DOT_WITHIN, content_path
from gateway.policy.nearest import nearest
from gateway.policy.variables import CommitView

if TYPE_CHECKING:
    from ledger.format.canonical import Json

ITEMS_MAX: Final = 100
"""Of each member of a scope."""
NAME_LENGTH_MAX: Final = 500
NAMES_SIZE_BYTES_MAX: Final = 8_192
"""All names of a scope as JSON: with them and its examples, a policy has to fit into one event."""

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

_ONE_LEVEL: Final = ".*"
_ALL_LEVELS: Final = ".**"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """
    What a policy applies to; a member that is empty does not restrict.

    `catalogs` are aliases. `names` are paths as access rules have them in `path`: levels and name joined by dots, each
    dot within one as U+001D. `sales.*` is everything directly in the namespace `sales`; `sales.**` is that namespace,
    and everything in it on any level. `kinds` are some of `KINDS`, `operations` some of `OPERATIONS`.
    """

    catalogs: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    exact: frozenset[str] = field(init=False, compare=False, repr=False)
    """Those of `names` that are not a pattern."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "exact", frozenset(name for name in self.names if not name.endswith(_ONE_LEVEL[1:])))


EVERYTHING: Final = Scope()
_MEMBERS: Final = tuple(member.name for member in fields(Scope) if member.init)


def covers(scope: Scope, view: CommitView) -> bool:
    """
    Return whether a policy with this scope applies to a commit.
    """
    return (
        (not scope.operations or view.operation in scope.operations)
        and (not scope.kinds or view.kind in scope.kinds)
        and (not scope.catalogs or view.catalog in scope.catalogs)
        and (not scope.names or _names_cover(scope, view))
    )


def _names_cover(scope: Scope, view: CommitView) -> bool:
    path = content_path(view)
    if path in scope.exact:
        return True
    for name in scope.names:
        if name.endswith(_ALL_LEVELS):
            within = name[: -len(_ALL_LEVELS)]
            if path.startswith(f"{within}.") or (path == within and view.kind == "namespace"):
                return True
        elif name.endswith(_ONE_LEVEL):
            within = name[: -len(_ONE_LEVEL) + 1]
            if path.startswith(within) and "." not in path[len(within) :]:
                return True
    return False


def parse_scope(value: Json, *, where: str = "scope") -> Scope:
    """
    Return the scope that `value` describes; None, and an object without members, describe `EVERYTHING`.

    Raises:
        BadRequestError: if it is anything but an object of some of the four lists, or a member of one is malformed or
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
    )


def format_scope(scope: Scope) -> dict[str, Json]:
    """Return a scope as JSON, without the members that do not restrict."""
    return {name: list(items) for name in _MEMBERS if (items := getattr(scope, name))}


def _names(value: Mapping[str, Json], where: str) -> tuple[str, ...]:
    names = _checked(value, "names", where, _check_name)
    if (size_bytes := len(orjson.dumps(names))) > NAMES_SIZE_BYTES_MAX:
        raise BadRequestError(
            f"expected at most {NAMES_SIZE_BYTES_MAX:,} bytes together, found {size_bytes:,}", field=f"{where}.names"
        )
    return names


def _checked(value: Mapping[str, Json], name: str, where: str, check: Callable[[str, str], None]) -> tuple[str, ...]:
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
    if len(items) > ITEMS_MAX:
        raise BadRequestError(f"expected at most {ITEMS_MAX} items, found {len(items)}", field=field_name)
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
