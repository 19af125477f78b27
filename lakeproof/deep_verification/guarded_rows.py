"""
The guarded rows that a log tells, folded in memory: what `verify --deep` holds against the rows that are there.

Which guards a group ran, the rooms tell (`guard_replay.py`), as for a recovery; here is what each guard makes of rows
that are a dictionary. A payload part that was erased tells nothing any more: what would come from it is `ERASED`, and
is equal to whatever is found.
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
_FORWARDED: Final = ("owner", "deadline", "requirements", "result")
"""Those that come from the payload part `forward`."""
_NAMESPACES: Final = frozenset({Operation.NAMESPACE_CREATE, Operation.NAMESPACE_UPDATE})
_NOTHING: Final = {
    INPUTS: b'{"body":"{}"}',
    FORWARD: b'{"deadline":"1970-01-01T00:00:00.000000Z","owner":"","requirements":"","result":null}',
    PLACES: b"[]",
}
"""What stands for a part that was erased: of its form, and what is made of it is not compared."""


class Erased:
    """Equal to everything: what the log told once, and tells no more."""

    def __eq__(self, _other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]  # nothing that is equal to everything can be looked up

    def __repr__(self) -> str:
        return "erased"


ERASED: Final = Erased()


@dataclass(slots=True, kw_only=True)
class ToldEntry:
    """An entry, and those of its payload parts that are left and that rows are made of."""

    entry: Entry
    parts: Mapping[str, bytes]
    lacking: set[str] = field(default_factory=set)

    def part(self, name: str) -> bytes:
        """Return a payload part; of one that was erased, what has its form."""
        if name in self.parts:
            return self.parts[name]
        self.lacking.add(name)
        return _NOTHING[name]


def wanted_parts(entry: Entry) -> set[str]:
    """
    Return the names of the payload parts of an entry that rows are made of.
    """
    if entry.type != CommitDecided.TYPE:
        return set()
    inputs = {INPUTS} if entry.data.get("operation") in _NAMESPACES else set()
    return (inputs | {FORWARD, PLACES}) & entry.parts.keys() if _is_approved(entry) else set()


def _is_approved(entry: Entry) -> bool:
    return entry.data.get("decision") == CommitDecision.APPROVED


class GuardedRows:
    """
    The rows that there must be, by table and key, once `take` was given every group of a log in order.

    `misfits` names what no guard could have done: the log does not tell rows then.
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
        self.marks: Counter[Key] = Counter()
        self.misfits: list[str] = []
        self._guards = (core_guards, gateway_guards(os.urandom), scan_guards)

    def take(self, group: Sequence[ToldEntry]) -> None:
        """Let a group make its rows, if its guards held."""
        if group[0].entry.branch is not Branch.THEN:
            return
        for guards in self._guards:
            try:
                for call in guards(group):
                    lacking = {name for told in group for name in told.lacking}
                    _APPLY[call.guard](self, {**call.parameters}, lacking)
            except (KeyError, ValueError, LedgerError) as error:
                self.misfits.append(f"entry {group[0].entry.index}: {type(error).__name__} {error}")


def _aggregate(rows: GuardedRows, told: Row, _: set[str]) -> None:
    rows.aggregates[told["key"],] = {"version": told.get("version", 1)}


def _aggregate_count(rows: GuardedRows, told: Row, _: set[str]) -> None:
    row = rows.aggregates.setdefault((told["key"],), {"version": 0})
    row["version"] += 1


def _recorded_insert(rows: GuardedRows, told: Row, _: set[str]) -> None:
    for key, version, position in zip(told["originators"], told["versions"], told["positions"], strict=True):
        row = {"group_id": told["group_id"], "position": position}
        if rows.recorded_events.setdefault((told["kind"], key, version), row) is not row:
            expected = f"the first {told['kind']} {version} of {key}"
            raise FormatError("aggregate", expected=expected, found="another before it")


def _subject_erase(rows: GuardedRows, told: Row, _: set[str]) -> None:
    rows.erased_subjects[told["subject"],] = {}


def _key_create(rows: GuardedRows, told: Row, _: set[str]) -> None:
    rows.api_keys[told["key_id"],] = {"prefix": told["prefix"], "actor": told["actor"]}


def _key_revoke(rows: GuardedRows, told: Row, _: set[str]) -> None:
    del rows.api_keys[told["key_id"],]


def _namespace(told: Row) -> Key:
    return (told["alias"], *told["namespace"])


def _namespace_create(rows: GuardedRows, told: Row, lacking: set[str]) -> None:
    properties = ERASED if INPUTS in lacking else orjson.loads(told["properties"])
    rows.namespaces[_namespace(told)] = {"properties": properties}


def _namespace_replay(rows: GuardedRows, told: Row, lacking: set[str]) -> None:
    row = rows.namespaces[_namespace(told)]
    if INPUTS in lacking or row["properties"] is ERASED:
        row["properties"] = ERASED
        return
    kept = {name: text for name, text in row["properties"].items() if name not in told["removals"]}
    row["properties"] = kept | orjson.loads(told["updates"])


def _namespace_drop(rows: GuardedRows, told: Row, _: set[str]) -> None:
    del rows.namespaces[_namespace(told)]


def _table(told: Row) -> Key:
    return (told["alias"], *told["namespace"], told["name"])


def _table_create(rows: GuardedRows, told: Row, _: set[str]) -> None:
    pointer = {name: told[name] for name in ("metadata_location", "metadata_sha256")}
    rows.tables[_table(told)] = {**pointer, "table_uuid": UUID(str(told["table_uuid"])), "places_told": False}


def _table_swap(rows: GuardedRows, told: Row, _: set[str]) -> None:
    pointer = {name: told[name] for name in ("metadata_location", "metadata_sha256")}
    rows.tables[_table(told)] |= pointer


def _table_drop(rows: GuardedRows, told: Row, _: set[str]) -> None:
    del rows.tables[_table(told)]


def _table_replay(rows: GuardedRows, told: Row, lacking: set[str]) -> None:
    is_erased = PLACES in lacking
    places = {name: ERASED if is_erased else told[name] for name in ("places", "folders")}
    rows.tables[_table(told)] |= {**places, "places_told": True}


def _table_expect(rows: GuardedRows, told: Row, _: set[str]) -> None:
    row = rows.tables[_table(told)]
    if not row["places_told"]:
        row |= {name: told[name] for name in ("places", "folders")}


def _place_replay(rows: GuardedRows, told: Row, _: set[str]) -> None:
    row = {"digest": told["digest"], "folders": told["folders"], "held": True}
    rows.catalog_places[told["alias"], told["place"]] = row


def _place_forget(rows: GuardedRows, told: Row, _: set[str]) -> None:
    for row in rows.catalog_places.values():
        if told["digest"] in row["folders"]:
            row["held"] = False


def _decision_open(rows: GuardedRows, told: Row, lacking: set[str]) -> None:
    row = {name: told[name] for name in OPENED}
    if FORWARD in lacking:
        row |= dict.fromkeys(_FORWARDED, ERASED)
    rows.open_decisions[told["decision"],] = {**row, "is_unknown": False}


def _decision_close(rows: GuardedRows, told: Row, _: set[str]) -> None:
    del rows.open_decisions[told["decision"],]


def _decision_doubt(rows: GuardedRows, told: Row, _: set[str]) -> None:
    rows.open_decisions[told["decision"],]["is_unknown"] = True


def _scan_requested(rows: GuardedRows, told: Row, _: set[str]) -> None:
    rows.marks[told["table_uuid"], told["snapshot"], told["ruleset"]] += 1


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
    "scan.requested": _scan_requested,
}
"""What each guard makes of the rows."""
