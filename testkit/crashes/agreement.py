# SPDX-License-Identifier: Apache-2.0
"""
What must hold of commits whatever was killed: tables, log and what clients were told agree. Pure.

Each commit adds one snapshot with an id of its own, so that what has become of it can be read off the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

OK: Final = 200
CONFLICT: Final = 409
UNAVAILABLE: Final = 503
UNKNOWN: Final = frozenset({0, 500, 502, 504})
"""What says neither that a commit was made nor that it was not: 0 is no answer, the others are CommitStateUnknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intended:
    """A snapshot that a client was about to commit to a table, named by its key in the log."""

    client: int
    table: str
    has_idempotency_key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An answer about a snapshot: its status, and whether the table in it has the snapshot."""

    snapshot: str
    status: int
    shows_it: bool
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """An accepted outcome in the log: the table's key, the snapshots, and the hash of the request that was decided."""

    index: int
    table: str
    snapshots: tuple[str, ...]
    request: str


def check_agreement(
    intended: Mapping[str, Intended],
    told: Sequence[Told],
    *,
    accepted: Sequence[Accepted],
    tables: Mapping[str, Collection[str]],
) -> list[str]:
    """
    Return a sentence for each contradiction. `intended` is by snapshot, `tables` has all snapshots by table.
    """
    there = {(table, snapshot) for table, snapshots in tables.items() for snapshot in snapshots}
    return [
        *_unintended(intended, there),
        *_unrecorded(accepted, there),
        *_not_there(accepted, there),
        *_made_twice(accepted),
        *_lies(intended, told, there),
    ]


def unrecorded(accepted: Sequence[Accepted], tables: Mapping[str, Collection[str]]) -> set[tuple[str, str]]:
    """Return the snapshots that are in a table without an accepted outcome, with the table."""
    recorded = {(one.table, snapshot) for one in accepted for snapshot in one.snapshots}
    return {(table, each) for table, snapshots in tables.items() for each in snapshots} - recorded


def _unintended(intended: Mapping[str, Intended], there: set[tuple[str, str]]) -> Iterator[str]:
    for table, snapshot in sorted(there):
        if snapshot not in intended or intended[snapshot].table != table:
            yield f"{table}: it has snapshot {snapshot}, which no client has sent to it"


def _unrecorded(accepted: Sequence[Accepted], there: set[tuple[str, str]]) -> Iterator[str]:
    for table, snapshot in sorted(there - {(one.table, each) for one in accepted for each in one.snapshots}):
        yield f"{table}: it has snapshot {snapshot}, which no accepted outcome in the log names"


def _not_there(accepted: Sequence[Accepted], there: set[tuple[str, str]]) -> Iterator[str]:
    for one in accepted:
        for snapshot in one.snapshots:
            if (one.table, snapshot) not in there:
                yield f"{one.table}: entry {one.index} says that snapshot {snapshot} was accepted, which is not there"


def _made_twice(accepted: Sequence[Accepted]) -> Iterator[str]:
    for what, counts in (
        ("snapshot", Counter(snapshot for one in accepted for snapshot in one.snapshots)),
        ("request", Counter(one.request for one in accepted)),
    ):
        for name, count in counts.items():
            if count > 1:
                yield f"{what} {name} was accepted {count} times"


def _lies(intended: Mapping[str, Intended], told: Sequence[Told], there: set[tuple[str, str]]) -> Iterator[str]:
    for one in told:
        intention = intended.get(one.snapshot)
        if intention is None:
            yield f"snapshot {one.snapshot}: {one.status} was answered to a request that nobody intended"
            continue
        is_there = (intention.table, one.snapshot) in there
        about = f"{intention.table}: client {intention.client} was told {one.status} about snapshot {one.snapshot}"
        if one.status == OK and not is_there:
            yield f"{about}, which is not there"
        elif one.status == OK and not one.shows_it:
            yield f"{about}, but the answer does not show it"
        elif one.status == CONFLICT and is_there:
            yield f"{about}, which is there ({one.error})"
        elif one.status == UNAVAILABLE and is_there and not intention.has_idempotency_key:
            # Under a key it may also mean that what has become of the request is not known yet.
            yield f"{about}, which is there ({one.error})"
        elif one.status not in {OK, CONFLICT, UNAVAILABLE, *UNKNOWN}:
            yield f"{about}, which {'is' if is_there else 'is not'} there: no answer to expect ({one.error})"
