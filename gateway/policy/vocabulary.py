# SPDX-License-Identifier: Apache-2.0
"""
The variables an expression may name, and their fields: one table for each kind of program.

Guarantee: `variables.activation` and `access.access_activation` fill exactly these (tests compare them), so that an
expression that passed the check when it was saved never meets a variable or a field that does not exist. A misspelt
field is refused with its position on save; otherwise it would stop every later commit, or, after `!has()`, let it pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from gateway.policy.engine import ACCESS_RULE, POLICY

Fields: TypeAlias = "Mapping[str, Fields | None]"
"""The known fields below a name; None if anything may follow (a list, a scalar, a map whose keys users choose)."""

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
