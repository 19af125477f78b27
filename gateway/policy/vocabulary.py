# SPDX-License-Identifier: Apache-2.0
"""
The variables an expression may name, and their fields: one table for each kind of program.

Guarantee: `variables.activation` and `access.access_activation` fill exactly these (tests compare them), so that an
expression that passed the check when it was saved never meets a variable or a field that does not exist. A misspelt
field is refused with its position on save; otherwise it would stop every later commit, or, after `!has()`, let it pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from gateway.policy.engine import ACCESS_RULE, POLICY

Fields: TypeAlias = "Mapping[str, Fields | None]"
"""The known fields below a name; None if anything may follow (a list, a scalar, a map whose keys users choose)."""


class Number(StrEnum):
    """The types of numbers, by their names in CEL."""

    INT = "int"
    UINT = "uint"
    DOUBLE = "double"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list whose elements all have one shape."""

    element: Shape


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map from names that users choose to values of one shape."""

    value: Shape


Shape: TypeAlias = "Mapping[str, Shape] | ListOf | MapOf | Number | None"
"""What is known of a value: its fields, the shape of its elements, or its type of number; None: nothing."""

_TABLE: Final[Fields] = {
    "exists": None,
    "uuid": None,
    "location": None,
    "format_version": None,
    "columns": None,
    "partition_fields": None,
    "sort_fields": None,
    "properties": None,
    "refs": None,
    "snapshot": {"id": None, "operation": None, "summary": None},
    "queries": None,
    "fields": None,
    "ref_list": None,
    "snapshots": None,
    "statistics": None,
}

_VARIABLES: Final[Mapping[str, Fields]] = {
    POLICY: {
        "table": _TABLE,
        "result": _TABLE,
        "commit": {
            "catalog": None,
            "namespace": None,
            "name": None,
            "kind": None,
            "operation": None,
            "actions": None,
            "purge": None,
            "updates": None,
            "requirements": None,
            "snapshots": None,
            "added_columns": None,
            "removed_columns": None,
            "changed_columns": None,
            "removed_snapshots": None,
        },
        "principal": {
            "actor": None,
            "sub": None,
            "email": None,
            "roles": None,
            "source": None,
            "groups": None,
            "attributes": None,
        },
        "request": {"method": None, "path": None, "client": None, "time": None, "address": None},
        "findings": {"columns": None, "scanned_at": None, "scanned_snapshot": None, "as_of": None},
        "lineage": {"upstream": None, "classified": None, "cut": None, "as_of": None},
    },
    # Nessie's authorization rules, and four of ours: `actor`, the pseudonym under which the log knows the caller;
    # `catalog`, the alias, empty for what is not content of a catalog; `grant`, the key to be issued; `uuid`, that of a
    # table or view, which it keeps when it is renamed.
    ACCESS_RULE: {
        "op": None,
        "role": None,
        "roles": None,
        "ref": None,
        "path": None,
        "contentType": None,
        "type": None,
        "actions": None,
        "api": {"apiName": None, "apiVersion": None},
        "actor": None,
        "catalog": None,
        "grant": {"identity": None, "roles": None},
        "uuid": None,
    },
}

_INT: Final = Number.INT
_COLUMN: Final[Mapping[str, Shape]] = {"id": _INT, "name": None, "type": None, "required": None, "doc": None}
_FIELD: Final[Mapping[str, Shape]] = {"path": None, **_COLUMN}
_SOURCE: Final[Mapping[str, Shape]] = {"source_id": _INT, "source": None}
_REF: Final[Mapping[str, Shape]] = {"type": None, "snapshot_id": None}
_SNAPSHOT: Final[Mapping[str, Shape]] = {"id": None, "operation": None, "summary": None}
_LISTED_SNAPSHOT: Final[Mapping[str, Shape]] = {**_SNAPSHOT, "parent_id": None, "timestamp": None, "referenced": None}
_OLD: Final[Mapping[str, Shape]] = {"old_path": None, "old_type": None, "old_required": None, "old_doc": None}
_SHAPES_OF_TABLE: Final[Mapping[str, Shape]] = {
    "format_version": _INT,
    "columns": ListOf(_COLUMN),
    "fields": ListOf(_FIELD),
    "partition_fields": ListOf({"name": None, "transform": None, **_SOURCE}),
    "sort_fields": ListOf({"transform": None, "direction": None, "null_order": None, **_SOURCE}),
    "refs": MapOf(_REF),
    "ref_list": ListOf(
        {
            "name": None,
            **_REF,
            "timestamp": None,
            "max_ref_age_ms": _INT,
            "max_snapshot_age_ms": _INT,
            "min_snapshots_to_keep": _INT,
        }
    ),
    "snapshots": ListOf(_LISTED_SNAPSHOT),
    "statistics": ListOf(
        {"kind": None, "snapshot_id": None, "path": None, "size_bytes": _INT, "blob_types": None},
    ),
}
_SHAPES: Final[Mapping[str, Mapping[str, Mapping[str, Shape]]]] = {
    POLICY: {
        "table": _SHAPES_OF_TABLE,
        "result": _SHAPES_OF_TABLE,
        "commit": {
            "snapshots": ListOf(_SNAPSHOT),
            "added_columns": ListOf(_FIELD),
            "removed_columns": ListOf(_FIELD),
            "changed_columns": ListOf({**_FIELD, **_OLD}),
            "removed_snapshots": ListOf({**_LISTED_SNAPSHOT, "kept": None}),
        },
        "findings": {
            "columns": ListOf(
                {
                    "column": None,
                    "field_id": _INT,
                    "kind": None,
                    "confidence": _INT,
                    "matches": _INT,
                    "values": _INT,
                    "snapshot": None,
                    "found_at": None,
                    "state": None,
                }
            ),
            "as_of": _INT,
        },
        "lineage": {
            "upstream": ListOf(
                {
                    "catalog": None,
                    "namespace": None,
                    "name": None,
                    "uuid": None,
                    "hops": _INT,
                    "kinds": ListOf({"kind": None, "confidence": _INT}),
                }
            ),
            "classified": ListOf(
                {
                    "catalog": None,
                    "namespace": None,
                    "name": None,
                    "uuid": None,
                    "hops": _INT,
                    "known": None,
                    "classifications": None,
                }
            ),
            "as_of": _INT,
        },
    },
    ACCESS_RULE: {"api": {"apiVersion": _INT}},
}
"""
What is known of the fields of variables: of lists and maps the fields of their elements, which no program may misspell,
and of numbers their type, which no program compares with another one.
"""

_OF_TABLE: Final = frozenset({"fields", "ref_list", "snapshots", "statistics"})
ON_DEMAND: Final[Mapping[str, frozenset[str]]] = {
    "table": _OF_TABLE,
    "result": _OF_TABLE,
    "commit": frozenset({"added_columns", "removed_columns", "changed_columns", "removed_snapshots"}),
    "principal": frozenset({"groups", "attributes"}),
    "request": frozenset({"time", "address"}),
    "findings": frozenset({"columns", "scanned_at", "scanned_snapshot", "as_of"}),
    "lineage": frozenset({"upstream", "classified", "cut", "as_of"}),
}
"""
The fields of policies' variables that are made, or looked up, only where a policy in force reads them.

A commit costs nothing for those that none reads.
"""

LOOKED_UP: Final = frozenset({"findings", "lineage"})
"""
The variables that the gateway asks the database for, which takes longer than to judge: they are looked up only for a
commit to which a policy applies that reads them, and a name in a string or a comment reads nothing (`words.reads`).
"""

FIELDS_READ: Final[Mapping[str, frozenset[str]]] = {
    "classification_satisfied": frozenset({"fields", "properties"}),
    "column_type": frozenset({"fields"}),
    "has_column": frozenset({"fields"}),
    "has_partition": frozenset({"partition_fields"}),
    "is_narrowed": frozenset({"exists", "fields"}),
    "region": frozenset({"location", "properties"}),
}
"""For each function of tables (`cel/tables.py`): the fields that it reads of a table or result among its arguments."""

FINDINGS_READ: Final[Mapping[str, frozenset[str]]] = {"classification_satisfied": frozenset({"columns"})}
"""The same of `findings` among the arguments."""

TIME_READ_BY: Final = "age"
"""The function that reads `request.time` besides its argument."""


def read_of_argument(function: str, known: Mapping[str, object]) -> frozenset[str] | None:
    """
    Return the fields that a function of tables reads of an argument that has the `known` ones; None for all of it.
    """
    for read in (FIELDS_READ.get(function), FINDINGS_READ.get(function)):
        if read is not None and read <= known.keys():
            return read
    return None


def variables_of(kind: str) -> Fields:
    """Return the variables of a `kind` of program; none for a kind that does not exist, so that nothing compiles."""
    return _VARIABLES.get(kind, MappingProxyType({}))


def shapes_of(kind: str) -> Mapping[str, Shape]:
    """Return the shapes of the variables of a `kind` of program."""
    known = _SHAPES.get(kind, {})
    return {name: _shape_of(fields, known.get(name, {})) for name, fields in variables_of(kind).items()}


def _shape_of(fields: Fields | None, known: Mapping[str, Shape]) -> Shape:
    if fields is None:
        return None
    return {name: known.get(name, _shape_of(below, {})) for name, below in fields.items()}


NOT_THERE: Final[Mapping[str, str]] = {"contract": "there are no data contracts yet, so no policy can name one"}
"""Names that authors may expect to be variables, and why they are not."""
