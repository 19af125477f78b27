# SPDX-License-Identifier: Apache-2.0
"""
What must hold of acknowledged commits, whatever was killed: each is in the log once, in the table, and on disk.

Writers commit to tables, one commit after another, and each sets a property of its own to the number of the commit. So
the table's metadata tells which commit of a writer was its last one, and the log must have the commits of a writer in
the order of their numbers. A commit that was not acknowledged may be in the log or not.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LOCAL = "file://"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A commit that was answered with 200, and the metadata location of that answer."""

    table: str
    writer: str
    number: int
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """An accepted outcome in the log: the table, and where its metadata is from then on."""

    table: str
    location: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """A table as the gateway loads it afterwards."""

    location: str
    properties: Mapping[str, str]


def check_acknowledged(
    acknowledged: Sequence[Acknowledged],
    sent: Mapping[tuple[str, str], int],
    *,
    settled: Sequence[Settled],
    tables: Mapping[str, FoundTable],
) -> list[str]:
    """
    Return a sentence for each contradiction between what was acknowledged, the log, and the tables.

    `sent` has the last number that a writer sent to a table, by table and writer. `settled` is in the log's order.
    """
    return [
        *_not_in_the_log_once(acknowledged, settled),
        *_out_of_order(acknowledged, settled),
        *_not_the_table(settled, tables),
        *_lost_in_the_table(acknowledged, sent, tables),
    ]


def check_files(settled: Sequence[Settled]) -> list[str]:
    """Return a sentence for each local metadata file that the log names and that is gone, or has other bytes."""
    found = []
    for one in settled:
        path = Path(one.location.removeprefix(LOCAL))
        if not path.is_file():
            found.append(f"{one.table}: the log names {path.name}, which is gone")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != one.sha256:
            found.append(f"{one.table}: {path.name} has other bytes than the log says")
    return found


def _not_in_the_log_once(acknowledged: Sequence[Acknowledged], settled: Sequence[Settled]) -> list[str]:
    in_log = Counter((one.table, one.location) for one in settled)
    answered = Counter((one.table, one.location) for one in acknowledged)
    found = [
        f"{one.table}: commit {one.number} of {one.writer} was acknowledged and is not in the log"
        for one in acknowledged
        if not in_log[one.table, one.location]
    ]
    found += [
        f"{table}: the log has {location} {count} times" for (table, location), count in in_log.items() if count > 1
    ]
    found += [
        f"{table}: {count} commits were answered with {location}"
        for (table, location), count in answered.items()
        if count > 1
    ]
    return found


def _out_of_order(acknowledged: Sequence[Acknowledged], settled: Sequence[Settled]) -> list[str]:
    commits = {(one.table, one.location): one for one in acknowledged}
    last: dict[tuple[str, str], int] = {}
    found = []
    for one in settled:
        commit = commits.get((one.table, one.location))
        if commit is None:
            continue
        before = last.get((commit.table, commit.writer), -1)
        if commit.number <= before:
            found.append(f"{one.table}: the log has commit {commit.number} of {commit.writer} behind its {before}")
        last[commit.table, commit.writer] = commit.number
    return found


def _not_the_table(settled: Sequence[Settled], tables: Mapping[str, FoundTable]) -> list[str]:
    newest = {one.table: one.location for one in settled}
    return [
        f"{name}: the newest outcome in the log is {newest[name]}, the table is at {table.location}"
        for name, table in tables.items()
        if name in newest and newest[name] != table.location
    ]


def _lost_in_the_table(
    acknowledged: Sequence[Acknowledged], sent: Mapping[tuple[str, str], int], tables: Mapping[str, FoundTable]
) -> list[str]:
    last: defaultdict[tuple[str, str], int] = defaultdict(lambda: -1)
    for one in acknowledged:
        last[one.table, one.writer] = max(last[one.table, one.writer], one.number)
    found = []
    for (name, writer), newest in sent.items():
        value = int(tables[name].properties.get(writer, "-1"))
        if not last[name, writer] <= value <= newest:
            found.append(
                f"{name}: {writer} sent up to {newest} and was acknowledged up to {last[name, writer]}, "
                f"the table has {value}"
            )
    return found
