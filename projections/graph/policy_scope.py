# SPDX-License-Identifier: Apache-2.0
"""
What a policy governs, derived from its scope and from what its expression reads. Pure.

A policy governs the tables whose commits it was evaluated for: those in its scope. One that reads `table` or `result`
judges what a table looks like: it governs the schema. One that reads `commit`, `principal` or `request` judges who does
what: it governs the write. One may do both. One that reads none of them applies to every write alike, and governs the
write. The variable of a macro counts if it has one of these names, so a policy may be said to govern more than it does,
and never less. So it is with scopes: of one that this module does not know the whole of, the rest does not restrict.

A policy of retention is one that reads `commit.removed_snapshots`: it decides which snapshots a commit may take away.
It has a RetentionPolicy in the graph besides its Policy, which retains the tables in its scope. A policy that forbids
removals by their action alone (`'META_REMOVE_SNAPSHOTS' in commit.actions`) knows no ages, and is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from ledger.format.canonical import Json
from ledger.format.events import PolicyScope, PolicyScopeV1, PolicyScopeV2
from projections.name_patterns import pattern_covers

_SCHEMA: Final = frozenset({"table", "result"})
_WRITE: Final = frozenset({"commit", "principal", "request"})
_REMOVED: Final = ("commit", "removed_snapshots")
_TABLE: Final = "table"


class Governs(StrEnum):
    """What a policy is about; the beginnings of the two edge labels."""

    SCHEMA = "schema"
    WRITE = "write"


class TableWrite(NamedTuple):
    """
    A write of a table as scopes see it: the alias, the path (`sales.orders`), the operation, and the uuid of the table
    (None: it is not known, so that every scope by uuids covers it).
    """

    catalog: str
    path: str
    operation: str
    uuid: str | None = None


def governs(expression: str) -> tuple[Governs, ...]:
    """
    Return what a policy of this expression (CEL) governs: at least one of the two, both if it cannot be read.
    """
    # The first policy of a process loads cel-python, in 0.4 s; most commands never read one.
    from projections.cel_grammar import free_names

    names = free_names(expression)
    if names is None:
        return (Governs.SCHEMA, Governs.WRITE)
    found = [kind for kind, variables in ((Governs.SCHEMA, _SCHEMA), (Governs.WRITE, _WRITE)) if names & variables]
    return tuple(found) or (Governs.WRITE,)


def is_of_retention(expression: str) -> bool:
    """
    Return whether a policy of this expression decides which snapshots may be removed.
    """
    from projections.cel_grammar import fields_named

    fields = fields_named(expression)
    return fields is not None and _REMOVED in fields


def scope_of(scope: PolicyScope | PolicyScopeV1 | PolicyScopeV2 | None) -> dict[str, Json]:
    """
    Return a scope as a vertex has it: the members that restrict; None, and none of them, is every commit.
    """
    if scope is None:
        return {}
    members: dict[str, Sequence[str]] = {
        "catalogs": scope.catalogs,
        "names": scope.names,
        "kinds": scope.kinds,
        "operations": scope.operations,
        "uuids": scope.uuids if isinstance(scope, PolicyScope) else (),
    }
    return {name: list(items) for name, items in members.items() if items}


def covers(scope: Json, write: TableWrite) -> bool:
    """
    Return whether a scope, as `scope_of` returns it, covers a write of a table (`gateway.policy.scopes.covers`).
    """
    members = scope if isinstance(scope, Mapping) else {}

    def items(member: str) -> Sequence[Json]:
        found = members.get(member)
        return found if isinstance(found, list | tuple) else ()

    exact = (("catalogs", write.catalog), ("kinds", _TABLE), ("operations", write.operation))
    if any(items(member) and value not in items(member) for member, value in exact):
        return False
    if items("uuids") and write.uuid is not None and write.uuid not in items("uuids"):
        return False
    names = items("names")
    return not names or any(pattern_covers(str(name), write.path) for name in names)
