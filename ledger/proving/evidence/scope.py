# SPDX-License-Identifier: Apache-2.0
"""
What a bundle claims to be about, and how much of that claim follows from its entries. Pure.

    decision <group id>            the whole group of a decision: no table of a transaction was left out
    decision <group id> <key>      the decision about one of its tables
    table <key>                    entries about a table (or view, namespace, …: any event key)
    table <key> <from> <to>        those recorded in a period
    period <from> <to>             every entry recorded in a period; the times are of `recorded_at`, `to` is outside

A decision may come with its outcomes (`commit.settled` that name it) and the rules it was judged by. A period is
complete: its entries are contiguous in the log, with a neighbour on each side that was recorded before or after it
(none where the log begins, or ends with what was signed). This holds because times never fall in a log.

Guarantee: `check_scope` calls something complete only if nothing could have been left out of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format import canonical
from ledger.format.canonical import Json, format_time, parse_time
from ledger.format.entry import Entry
from ledger.format.event import KEY_FORM
from ledger.format.events import CommitDecided, CommitSettled

RULE_FAMILIES: Final = ("access_rule", "policy")
"""The control entries that decide; catalogs, keys and tenants do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Times as entries spell them; `until` is outside."""

    since: str
    until: str

    def __post_init__(self) -> None:
        if not parse_time(self.since) < parse_time(self.until):
            raise FormatError("period", expected="a beginning before its end", found=f"{self.since} to {self.until}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionScope:
    """The decision of one group; with `key`, the decision about one of its tables."""

    group_id: UUID
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScope:
    """Entries about what an event key names."""

    key: str
    period: Period | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodScope:
    """Every entry of a period."""

    period: Period


Scope: TypeAlias = DecisionScope | TableScope | PeriodScope


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What of a scope is complete, and what was selected by the maker of the bundle, in words."""

    complete: tuple[str, ...] = ()
    selected: tuple[str, ...] = ()


def format_scope(scope: Scope) -> str:
    """
    Return the text of a scope line.
    """
    match scope:
        case DecisionScope(group_id=group_id, key=key):
            return f"decision {group_id}" if key is None else f"decision {group_id} {key}"
        case TableScope(key=key, period=period):
            return f"table {key}" if period is None else f"table {key} {period.since} {period.until}"
        case PeriodScope(period=period):
            return f"period {period.since} {period.until}"


def parse_scope(text: str) -> Scope:
    """
    Return the scope that `format_scope` writes as `text`.

    Raises:
        FormatError: if it writes no scope so.
    """
    scope: Scope | None = None
    match text.split(" "):
        case ["decision", group_id, *keys] if len(keys) <= 1 and all(map(KEY_FORM.fullmatch, keys)):
            scope = DecisionScope(group_id=_parse_group_id(group_id), key=keys[0] if keys else None)
        case ["table", key] if KEY_FORM.fullmatch(key):
            scope = TableScope(key=key)
        case ["table", key, since, until] if KEY_FORM.fullmatch(key):
            scope = TableScope(key=key, period=Period(since=since, until=until))
        case ["period", since, until]:
            scope = PeriodScope(period=Period(since=since, until=until))
    if scope is None or format_scope(scope) != text:
        raise FormatError("scope", expected="a decision, a table or a period (see scope.py)", found=text)
    return scope


def check_scope(scope: Scope, entries: Sequence[Entry], *, size: int) -> Coverage:
    """
    Check that proven `entries` of a log of `size`, in order, are what the scope says, and say how complete that is.

    Raises:
        BrokenError: (`Fault.PROOF`) if one does not belong, or one that must be there is missing.
    """
    match scope:
        case DecisionScope():
            return _check_decision(scope, entries)
        case TableScope(key=key, period=period):
            for entry in entries:
                if entry.key != key or (period is not None and _side(entry, period) != 0):
                    raise _bad(f"entries of the scope {format_scope(scope)}", f"one about {entry.key}", entry)
            return Coverage(selected=("the log may hold other entries about this, also of the same time",))
        case PeriodScope(period=period):
            return _check_period(period, entries, size)


def _check_decision(scope: DecisionScope, entries: Sequence[Entry]) -> Coverage:
    group = [one for one in entries if one.group_id == scope.group_id and scope.key in {None, one.key}]
    decided = [one for one in group if one.type == CommitDecided.TYPE]
    if not decided:
        raise _bad(f"a {CommitDecided.TYPE} of the group {scope.group_id}", "none")
    keys = {one.key for one in decided}
    rules: list[Entry] = []
    for entry in entries:
        is_outcome = entry.type == CommitSettled.TYPE and entry.data.get("decision") == str(scope.group_id)
        if entry.type.partition(".")[0] in RULE_FAMILIES:
            rules.append(entry)
        elif entry not in group and not (is_outcome and entry.key in keys):
            raise _bad("an outcome of the decision, or a rule", f"a {entry.type} about {entry.key}", entry)
    complete: list[str] = []
    if scope.key is None:
        if [one.position for one in group] != list(range(group[0].of)):
            raise _bad(f"all {group[0].of} entries of the group {scope.group_id}", f"{len(group)} of them")
        complete.append(f"the group of the decision: {len(group)} entries, no table of it was left out")
    if rules:
        _check_rules(rules, decided)
        complete.append(f"the rules in force when it was judged: {len(rules)}, they have the digest in the decision")
    return Coverage(complete=tuple(complete), selected=("the log may hold other outcomes of the decision",))


def _check_rules(rules: Sequence[Entry], decided: Sequence[Entry]) -> None:
    """Check that these rules, and no others, were in force where the decisions stand."""
    digest = rules_digest(rules)
    for decision in decided:
        as_of, policy_set = decision.data.get("as_of"), decision.data.get("policy_set")
        if policy_set != digest:
            raise _bad(f"rules with the digest {policy_set}", f"rules with the digest {digest}", decision)
        if not isinstance(as_of, int) or rules[-1].index > as_of:
            raise _bad(f"rules up to control entry {as_of}", f"one at {rules[-1].index}", decision)


def rules_digest(rules: Iterable[Entry]) -> str:
    """
    Return the digest of the rules that these entries have put in force (docs/formats.md, "Hashes").

    Raises:
        BrokenError: (`Fault.PROOF`) if one is not an entry that puts a rule in force.
    """
    references: list[tuple[str, str, int]] = []
    for rule in rules:
        identifier, version = rule.data.get("id"), rule.data.get("version")
        if rule.type.endswith(".retired") or not isinstance(identifier, str) or not isinstance(version, int):
            raise _bad("an entry that puts a rule in force", f"a {rule.type}", rule)
        references.append((rule.type.partition(".")[0], identifier, version))
    judges: list[Json] = [list(reference) for reference in sorted(references)]
    return hashlib.sha256(canonical.encode(judges)).hexdigest()


def _check_period(period: Period, entries: Sequence[Entry], size: int) -> Coverage:
    first, last = entries[0].index, entries[-1].index
    for expected, entry in enumerate(entries, start=first):
        if entry.index != expected:
            raise _bad(f"entry {expected}: those of a period stand side by side", f"entry {entry.index}", entry)
    sides = [_side(entry, period) for entry in entries]
    if sides.count(-1) > 1 or (sides.count(-1) == 0 and first > 0):
        raise _bad("one entry before the period, or the log's first", f"{sides.count(-1)} before it", entries[0])
    if sides.count(1) > 1 or (sides.count(1) == 0 and last < size - 1):
        raise _bad("one entry after the period, or the log's last", f"{sides.count(1)} after it", entries[-1])
    until = "" if sides.count(1) else f", as far as signed: the log had {size:,} entries then, and may have grown since"
    return Coverage(complete=(f"the period: all {sides.count(0):,} entries that were recorded in it{until}",))


def _side(entry: Entry, period: Period) -> int:
    """Return -1, 0 or 1 for an entry recorded before, in or after the period."""
    recorded_at = format_time(entry.recorded_at)
    return -1 if recorded_at < period.since else int(recorded_at >= period.until)


def _parse_group_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise FormatError("scope", expected="a group id", found=text) from error


def _bad(expected: object, found: object, entry: Entry | None = None) -> BrokenError:
    index = None if entry is None else entry.index
    return BrokenError(Fault.PROOF, where="evidence scope", expected=expected, found=found, index=index)
