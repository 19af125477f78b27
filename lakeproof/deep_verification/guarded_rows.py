# SPDX-License-Identifier: Apache-2.0
"""
The guarded rows that follow from a log, computed in memory: `verify --deep` compares the database with them.

The `guard_replay.py` of each package say which guards a group ran, as for a recovery; here is what each guard does to
rows that are a dictionary. The content of an erased payload part is unknown: a value that comes from one is `ERASED`,
which equals any value that is found.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from uuid import UUID

import orjson

from gateway.catalogs.table_places import PLACES
from gateway.commit.open_decisions import FORWARD
from gateway.guard_replay import gateway_guards
from gateway.mutations import Operation
from ledger.errors import FormatError, LedgerError
from ledger.format.entry import Branch, Entry
from ledger.format.events import CommitDecided, CommitDecision
from ledger.recovering.replay import core_guards
from spark_detect.guard_replay import scan_guards

Key: TypeAlias = tuple[object, ...]
Row: TypeAlias = dict[str, Any]
Table: TypeAlias = dict[Key, Row]

INPUTS: Final = "inputs"
OPENED: Final = (
    "key", "operation", "alias", "namespace", "name", "base", "table_uuid", "snapshots", "owner", "deadline",
    "requirements", "result",
)  # fmt: skip
"""The columns of an open decision."""
PURGED: Final = ("alias", "namespace", "name", "metadata_location", "metadata_sha256", "places", "folders")
"""The columns of an open purge that are not its key."""
_FORWARDED: Final = ("owner", "deadline", "requirements", "result")
"""Those that come from the payload part `forward`."""
_NAMESPACES: Final = frozenset({Operation.NAMESPACE_CREATE, Operation.NAMESPACE_UPDATE})
_PLACEHOLDERS: Final = {
    INPUTS: b'{"body":"{}"}',
    FORWARD: b'{"deadline":"1970-01-01T00:00:00.000000Z","owner":"","requirements":"","result":null}',
    PLACES: b"[]",
}
"""A part of the right form in place of an erased one; values that come from it are not compared."""


class Erased:
    """Equal to everything: a value that was erased from the log."""

    def __eq__(self, _other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]  # a value that equals everything cannot be looked up

    def __repr__(self) -> str:
        return "erased"


ERASED: Final = Erased()


@dataclass(slots=True, kw_only=True)
class DecodedEntry:
    """An entry, and those of its payload parts that rows come from and that are not erased."""

    entry: Entry
    parts: Mapping[str, bytes]
    erased: set[str] = field(default_factory=set)

    def part(self, name: str) -> bytes:
        """Return a payload part, or a placeholder for an erased one."""
        if name in self.parts:
            return self.parts[name]
        self.erased.add(name)
        return _PLACEHOLDERS[name]


def parts_needed(entry: Entry) -> set[str]:
    """
    Return the names of the payload parts of an entry that rows come from.
    """
    if entry.type != CommitDecided.TYPE:
        return set()
    inputs = {INPUTS} if entry.data.get("operation") in _NAMESPACES else set()
    return (inputs | {FORWARD, PLACES}) & entry.parts.keys() if _is_approved(entry) else set()


def _is_approved(entry: Entry) -> bool:
    return entry.data.get("decision") == CommitDecision.APPROVED


class GuardedRows:
    """
    The rows that must exist, by table and key, once `take` was given every group of a log in order.

    `conflicts` names groups whose guards cannot have held: no rows follow from the log then.
    """

    def __init__(self) -> None:
        self.aggregates: Table = {}
        self.recorded_events: Table = {}
        self.erased_subjects: Table = {}
        self.api_keys: Table = {}
        self.namespaces: Table = {}
        self.tables: Table = {}
        self.catalog_places: Table = {}
        self.open_decisions: Table = {}
        self.purges: Table = {}
        self.marks: Counter[Key] = Counter()
        self.conflicts: list[str] = []
        self._guards = (core_guards, gateway_guards(os.urandom), scan_guards)

    def take(self, group: Sequence[DecodedEntry]) -> None:
        """Apply the guards of a group, if they held."""
        if group[0].entry.branch is not Branch.THEN:
            return
        for guards in self._guards:
            try:
                for call in guards(group):
                    erased = {name for entry in group for name in entry.erased}
                    _APPLY[call.guard](self, {**call.parameters}, erased)
            except (KeyError, ValueError, LedgerError) as error:
                self.conflicts.append(f"entry {group[0].entry.index}: {type(error).__name__} {error}")


def _aggregate(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    rows.aggregates[parameters["key"],] = {"version": parameters.get("version", 1)}


def _aggregate_count(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    row = rows.aggregates.setdefault((parameters["key"],), {"version": 0})
    row["version"] += 1


def _recorded_insert(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    for key, version, position in zip(
        parameters["originators"], parameters["versions"], parameters["positions"], strict=True
    ):
        row = {"group_id": parameters["group_id"], "position": position}
        if rows.recorded_events.setdefault((parameters["kind"], key, version), row) is not row:
            expected = f"the first {parameters['kind']} {version} of {key}"
            raise FormatError("aggregate", expected=expected, found="another before it")


def _subject_erase(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    rows.erased_subjects[parameters["subject"],] = {}


def _key_create(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    rows.api_keys[parameters["key_id"],] = {"prefix": parameters["prefix"], "actor": parameters["actor"]}


def _key_revoke(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    del rows.api_keys[parameters["key_id"],]


def _namespace(parameters: Row) -> Key:
    return (parameters["alias"], *parameters["namespace"])


def _namespace_create(rows: GuardedRows, parameters: Row, erased: set[str]) -> None:
    properties = ERASED if INPUTS in erased else orjson.loads(parameters["properties"])
    rows.namespaces[_namespace(parameters)] = {"properties": properties}


def _namespace_replay(rows: GuardedRows, parameters: Row, erased: set[str]) -> None:
    row = rows.namespaces[_namespace(parameters)]
    if INPUTS in erased or row["properties"] is ERASED:
        row["properties"] = ERASED
        return
    kept = {name: text for name, text in row["properties"].items() if name not in parameters["removals"]}
    row["properties"] = kept | orjson.loads(parameters["updates"])


def _namespace_drop(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    del rows.namespaces[_namespace(parameters)]


def _table(parameters: Row) -> Key:
    return (parameters["alias"], *parameters["namespace"], parameters["name"])


def _table_create(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    pointer = {name: parameters[name] for name in ("metadata_location", "metadata_sha256")}
    named = {"table_uuid": UUID(str(parameters["table_uuid"])), "is_view": parameters["is_view"]}
    rows.tables[_table(parameters)] = {**pointer, **named, "places_told": False}


def _table_swap(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    pointer = {name: parameters[name] for name in ("metadata_location", "metadata_sha256")}
    rows.tables[_table(parameters)] |= pointer


def _table_drop(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    del rows.tables[_table(parameters)]


def _table_replay(rows: GuardedRows, parameters: Row, erased: set[str]) -> None:
    is_erased = PLACES in erased
    places = {name: ERASED if is_erased else parameters[name] for name in ("places", "folders")}
    rows.tables[_table(parameters)] |= {**places, "places_told": True}


def _table_expect(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    row = rows.tables[_table(parameters)]
    if not row["places_told"]:
        row |= {name: parameters[name] for name in ("places", "folders")}


def _place_replay(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    row = {"digest": parameters["digest"], "folders": parameters["folders"], "held": True}
    rows.catalog_places[parameters["alias"], parameters["place"]] = row


def _place_forget(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    for row in rows.catalog_places.values():
        if parameters["digest"] in row["folders"]:
            row["held"] = False


def _decision_open(rows: GuardedRows, parameters: Row, erased: set[str]) -> None:
    row = {name: parameters[name] for name in OPENED}
    if FORWARD in erased:
        row |= dict.fromkeys(_FORWARDED, ERASED)
    rows.open_decisions[parameters["decision"], parameters["key"]] = {**row, "is_unknown": False}


def _decision_close(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    del rows.open_decisions[parameters["decision"], parameters["key"]]


def _decision_doubt(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    rows.open_decisions[parameters["decision"], parameters["key"]]["is_unknown"] = True


def _purge_open(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    rows.purges[parameters["purge"], parameters["key"]] = {name: parameters[name] for name in PURGED}


def _purge_close(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    del rows.purges[parameters["purge"], parameters["key"]]


def _scan_requested(rows: GuardedRows, parameters: Row, _: set[str]) -> None:
    rows.marks[parameters["table_uuid"], parameters["snapshot"], parameters["ruleset"]] += 1


_APPLY: Final[Mapping[str, Callable[[GuardedRows, Row, set[str]], None]]] = {
    "aggregate.create": _aggregate,
    "aggregate.change": _aggregate,
    "aggregate.count": _aggregate_count,
    "recorded.insert": _recorded_insert,
    "subject.erase": _subject_erase,
    "key.create": _key_create,
    "key.revoke": _key_revoke,
    "namespace.create": _namespace_create,
    "namespace.replay": _namespace_replay,
    "namespace.drop": _namespace_drop,
    "table.create": _table_create,
    "table.swap": _table_swap,
    "table.drop": _table_drop,
    "table.replay": _table_replay,
    "table.expect": _table_expect,
    "place.replay": _place_replay,
    "place.forget": _place_forget,
    "decision.open": _decision_open,
    "decision.close": _decision_close,
    "decision.doubt": _decision_doubt,
    "purge.open": _purge_open,
    "purge.close": _purge_close,
    "scan.requested": _scan_requested,
}
"""What each guard does to the rows."""
