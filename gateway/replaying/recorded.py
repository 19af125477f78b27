# SPDX-License-Identifier: Apache-2.0
"""
Recorded decisions, read from a tenant's log in pages, each with the outcome that its own group has.

Guarantee: the bytes of every entry hash to the leaf that was stored with it, and every payload part matches the
commitment in its entry; otherwise reading stops with `BrokenError`. That the leaves are those that were signed is what
`lakeproof ledger verify` checks.

A page has whole groups. Entries of other types are not fetched. Where the outcomes before the first page are, the read
model of commits tells as far as it is; what they say is read from the log.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import orjson

from gateway.catalogs.judged_metadata import JUDGED_ON, DigestOf, parse_judged
from gateway.identifiers import Target
from gateway.mutations import RENAMES_FROM, RENAMES_TO
from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.event import Part, commitment
from ledger.format.events import CommitDecided, CommitDecision, CommitOutcome, CommitSettled
from ledger.format.merkle import leaf_hash
from ledger.format.sealing import KeyOpener, Opener, StoredPart
from ledger.store.queries import load_queries
from ledger.store.session import Connection

PAGE_ENTRIES: Final = 4_000
"""Indices read at a time: usually some MB."""
FEW_ENTRIES: Final = 500
READ_AT_ONCE_BYTES: Final = 256 * 1024
"""
Of an answer of the server, if it has more than a few entries. The client library reads 16 KiB at a time, and the event
loop waits for each. It reads as much as the widest row that it has seen, since it keeps the memory.
"""
SEARCH_ENTRIES: Final = 50_000
"""Indices searched at a time for the outcomes before the first page."""
OUTCOMES_KEPT: Final = 8
"""Of each target, the newest: a decision may have been judged on a state that had just been changed."""

INPUTS: Final = "inputs"
PRINCIPAL: Final = "principal"
VERDICTS: Final = "verdicts"
ENTRIES: Final = "ledger.entries"

_DECISIONS: Final = {decision.value: decision for decision in CommitDecision}
_ACCEPTED: Final = CommitOutcome.ACCEPTED.value
QUERIES: Final = load_queries("gateway", "decisions.sql")
_OF_EVENT: Final = itemgetter("version", "key", "actor", "occurred_at", "data", "parts")
_OF_GROUP: Final = itemgetter("id", "position", "of")
_OF_IDENTIFIER: Final = itemgetter("alias", "namespace", "name")
_OF_DATA: Final = itemgetter(
    *("decision", "reason", "as_of", "policy_set", "operation", "identifier", "actions", "principal_source"),
    *("table_uuid", "base"),
)
Lend: TypeAlias = Callable[[], AbstractAsyncContextManager[Connection]]
"""Lends a connection that may read the log and its payload parts."""


class File(NamedTuple):
    """
    Metadata that the log names: the location of its file, and a SHA-256 (hex; None: not recorded).

    It is of the bytes of the file; of a foreign catalog, `of` says of what.
    """

    location: str
    sha256: str | None
    of: DigestOf | None = None


@dataclass(slots=True)
class Decision:
    """
    A recorded decision. `parts` has those payload parts that were asked for and still exist.

    `base` is the metadata that it was judged on, None if there was none, or it was not recorded which; `made` is what
    the outcome in its own group names, or the file that was to be registered in a foreign catalog.
    """

    index: int
    leaf: bytes
    group_id: str
    position: int
    of: int
    key: str
    actor: str
    occurred_at: str
    decision: CommitDecision
    reason: tuple[str, int] | None
    as_of: int
    policy_set: str
    operation: str
    alias: str
    namespace: tuple[str, ...]
    name: str | None
    actions: tuple[str, ...]
    principal_source: str
    table_uuid: str | None
    base_location: str | None
    commitments: Mapping[str, str]
    parts: dict[str, bytes] = field(default_factory=dict)
    base: File | None = None
    made: File | None = None

    @property
    def kind(self) -> str:
        """Return "table", "view" or "namespace"."""
        return self.operation.partition(".")[0]

    @property
    def target(self) -> Target:
        """Return what it is about."""
        return Target(alias=self.alias, namespace=self.namespace, name=self.name, is_view=self.kind == "view")

    @property
    def path(self) -> str:
        """Return the dotted name of the target, its alias first."""
        return ".".join((self.alias, *self.namespace, *((self.name,) if self.name is not None else ())))


class Files:
    """Which metadata files the outcomes in a log name, the newest of each target. Belongs to one replay."""

    def __init__(self) -> None:
        self._newest: dict[str, dict[str, File]] = {}
        """By target and location, the newest last."""

    def add(self, key: str, file: File) -> None:
        """Add the file of a newer outcome."""
        files = self._newest.setdefault(key, {})
        files.pop(file.location, None)
        files[file.location] = file
        if len(files) > OUTCOMES_KEPT:
            del files[next(iter(files))]

    def add_older(self, key: str, file: File) -> None:
        """Add the file of an outcome that is older than all that are known of its target."""
        files = self._newest.setdefault(key, {})
        if len(files) < OUTCOMES_KEPT and file.location not in files:
            self._newest[key] = {file.location: file, **files}

    def takes_older(self, key: str) -> bool:
        """Return whether fewer files of a target are known than are kept."""
        return len(self._newest.get(key, {})) < OUTCOMES_KEPT

    def find(self, key: str, location: str) -> File | None:
        """Return the file at a location, if an outcome of the target names it."""
        return self._newest.get(key, {}).get(location)


class DecisionReader:
    """
    Reads the decisions of one log. `with_files` says whether their metadata files are looked up, too; `parts` names the
    payload parts that are read of all. Of those that were not approved the verdicts are read, and with files also the
    inputs of those that were not made. One task uses it at a time.
    """

    def __init__(
        self,
        lend: Lend,
        log_id: int,
        *,
        opener: Opener,
        parts: Collection[str],
        with_files: bool,
        first: int,
        page_entries: int = PAGE_ENTRIES,
    ) -> None:
        self._lend = lend
        self._page_entries = page_entries
        self._log_id = log_id
        self._opener = opener
        self._parts = sorted({*parts, JUDGED_ON} if with_files else parts)
        self._late_parts = sorted({VERDICTS, INPUTS} - {*parts} if with_files else {VERDICTS})
        self._types = [CommitDecided.TYPE, *([CommitSettled.TYPE] if with_files else [])]
        self._with_files = with_files
        self._first = first
        self._files = Files()
        self._searched: set[str] = set()
        """The targets whose outcomes before the first page were searched."""

    async def pages(self, first: int, end: int) -> AsyncIterator[tuple[list[Decision], int]]:
        """
        Yield the decisions of entries `first` … `end` - 1 in order, and the index up to which they are all there.

        The next page is fetched while one is worked on.

        Raises:
            BrokenError: if an entry or a payload part is corrupt.
        """
        fetching = asyncio.create_task(self._fetch(first, end))
        try:
            at = first
            while at < end:
                entries, parts, at = await fetching
                if at < end:
                    fetching = asyncio.create_task(self._fetch(at, end))
                    await asyncio.sleep(0)  # so that the server begins
                yield await self._decisions(entries, parts), at
        finally:
            fetching.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([fetching])

    async def _fetch(self, first: int, end: int) -> tuple[list[Any], list[Any], int]:
        """Return the rows of one page, and where the next one begins: behind a whole group."""
        page_end = min(first + self._page_entries, end)
        bounds = {"log_id": self._log_id, "from_index": first, "to_index": page_end}
        async with self._lend() as connection:
            if page_end - first > FEW_ENTRIES:
                await self._rows(connection, "wide_row", wide_bytes=READ_AT_ONCE_BYTES)
            entries = await self._rows(connection, "entries_of_types", types=self._types, **bounds)
            if entries:
                group = orjson.loads(entries[-1][1])["group"]
                group_end = entries[-1][0] - group["position"] + group["of"]
                if page_end < group_end:
                    more = {**bounds, "from_index": page_end, "to_index": group_end, "types": self._types}
                    entries += await self._rows(connection, "entries_of_types", **more)
                    page_end = group_end
            parts: list[Any] = []
            if self._parts:
                of_page = {**bounds, "to_index": page_end}
                parts = await self._rows(connection, "parts_of_names", names=self._parts, **of_page)
        return entries, parts, page_end

    async def _rows(self, connection: Connection, query: str, /, **values: object) -> list[Any]:
        return await (await connection.execute(QUERIES[query], values, binary=True)).fetchall()

    async def _decisions(self, entries: Iterable[Any], parts: Iterable[Any]) -> list[Decision]:
        decisions = self._parsed(entries)
        by_index = {decision.index: decision for decision in decisions}
        self._open(parts, by_index)
        if self._with_files:
            await self._find_bases(decisions)
        late = [one.index for one in decisions if one.decision is not CommitDecision.CONFLICTED and self._is_late(one)]
        if late:
            async with self._lend() as connection:
                values = {"log_id": self._log_id, "indices": late, "names": self._late_parts}
                self._open(await self._rows(connection, "parts_of_entries", **values), by_index)
        return decisions

    def _open(self, parts: Iterable[Any], by_index: Mapping[int, Decision]) -> None:
        """Add stored payload parts to their decisions."""
        opener = self._opener.for_page() if isinstance(self._opener, KeyOpener) else self._opener
        for row in parts:
            if (of := by_index.get(row[0])) is not None and (part := opener.open(StoredPart(*row))) is not None:
                of.parts[part.name] = _checked(of, part)

    def _is_late(self, decision: Decision) -> bool:
        """
        Whether parts of a decision are needed that others do not need: the verdicts on what was not approved, the
        request that was not carried out.
        """
        return decision.decision is not CommitDecision.APPROVED or (self._with_files and decision.made is None)

    def _parsed(self, entries: Iterable[Any]) -> list[Decision]:
        """Return the decisions of a page, with the files that were known when each was recorded."""
        decisions: list[Decision] = []
        of_group: dict[str, Decision] = {}
        group_id = ""
        for index, entry, leaf in entries:
            members = parse_stored(index, entry, leaf)
            event = members["event"]
            if event["type"] == CommitDecided.TYPE:
                decision = parse_decision(index, leaf, members)
                if decision.group_id != group_id:
                    group_id, of_group = decision.group_id, {}
                of_group[decision.key] = decision
                decisions.append(decision)
                if self._with_files and decision.base_location is not None:
                    decision.base = self._files.find(decision.key, decision.base_location)
            elif (file := file_of(members)) is not None:
                if members["group"]["id"] == group_id and (of := of_group.get(event["key"])) is not None:
                    of.made = file
                self._files.add(event["key"], file)
        return decisions

    async def _find_bases(self, decisions: Sequence[Decision]) -> None:
        """Find what decisions were judged on: as they say it themselves, or as outcomes before the replay name it."""
        for decision in decisions:
            if (payload := decision.parts.get(JUDGED_ON)) is not None:
                _set_judged(decision, payload)
        wanted = [
            (decision, location)
            for decision in decisions
            if decision.base is None and (location := decision.base_location) is not None
        ]
        if wanted:
            await self._find_older(wanted)
        for before, decision in itertools.pairwise(decisions):
            # Both ends of a rename are judged on the table under its old name, which is recorded first.
            is_rename = decision.operation in RENAMES_TO and before.operation in RENAMES_FROM
            if is_rename and decision.group_id == before.group_id:
                decision.base = before.base

    async def _find_older(self, wanted: Sequence[tuple[Decision, str]]) -> None:
        """Search the outcomes before the replay's first entry for the files that decisions were judged on."""
        unsearched = {decision.key for decision, _ in wanted} - self._searched
        self._searched |= unsearched
        if unsearched and self._first > 0:
            async with self._lend() as connection:
                of_keys = {"log_id": self._log_id, "to_index": self._first, "keys": sorted(unsearched)}
                rows = await self._rows(connection, "last_outcomes_of_keys", each_max=OUTCOMES_KEPT, **of_keys)
                # What the read model has not come to is searched entry by entry: mostly nothing, or a few of them.
                projected, end = min(rows[0][0] or 0, self._first), self._first
                while end > projected and (missing := self._missing(wanted, unsearched)):
                    start = max(projected, end - SEARCH_ENTRIES)
                    bounds = {"log_id": self._log_id, "from_index": start, "to_index": end, "keys": missing}
                    self._add_older(await self._rows(connection, "outcomes_before", **bounds))
                    end = start
            self._add_older(row for _, *row in rows if row[0] is not None and row[0] < projected)
        for decision, location in wanted:
            decision.base = self._files.find(decision.key, location)

    def _missing(self, wanted: Sequence[tuple[Decision, str]], keys: Collection[str]) -> list[str]:
        """Return those keys of which a file is wanted that is not known, though older ones may be."""
        return sorted(
            {
                decision.key
                for decision, at in wanted
                if decision.key in keys
                and self._files.find(decision.key, at) is None
                and self._files.takes_older(decision.key)
            }
        )

    def _add_older(self, rows: Iterable[Any]) -> None:
        """Add the files of outcomes, the newest first."""
        for index, entry, leaf in rows:
            event = (members := parse_stored(index, entry, leaf))["event"]
            if event["type"] == CommitSettled.TYPE and (file := file_of(members)) is not None:
                self._files.add_older(event["key"], file)


def parse_stored(index: int, entry: bytes, leaf: bytes) -> dict[str, Any]:
    """
    Return the members of a stored entry.

    Raises:
        BrokenError: if its bytes do not hash to `leaf`, or are not JSON.
    """
    if (found := leaf_hash(entry)) != leaf:
        raise BrokenError(Fault.ENTRY, where=ENTRIES, expected=leaf.hex(), found=found.hex(), index=index)
    try:
        members: dict[str, Any] = orjson.loads(entry)
    except orjson.JSONDecodeError as error:
        raise BrokenError(Fault.ENTRY, where=ENTRIES, expected="an entry", found=error, index=index) from error
    return members


def parse_decision(index: int, leaf: bytes, members: Mapping[str, Any]) -> Decision:
    """
    Return the decision of a `commit.decided` with these members.

    Raises:
        FormatError: if a member is missing, or of a version that this process does not know.
    """
    try:
        version, key, actor, occurred_at, data, parts = _OF_EVENT(members["event"])
        if version != CommitDecided.VERSION:
            raise FormatError(
                f"version of the commit.decided at index {index}",
                expected=f"version {CommitDecided.VERSION}",
                found=version,
            )
        outcome, reason, as_of, policy_set, operation, identifier, actions, source, table_uuid, base = _OF_DATA(data)
        group_id, position, of = _OF_GROUP(members["group"])
        alias, namespace, name = _OF_IDENTIFIER(identifier)
        # By position, which is a third faster: a replay makes one for each decision.
        return Decision(
            index,
            leaf,
            group_id,
            position,
            of,
            key,
            actor,
            occurred_at,
            _DECISIONS[outcome],
            None if reason is None else (reason["id"], reason["version"]),
            as_of,
            policy_set,
            operation,
            alias,
            tuple(namespace),
            name,
            tuple(actions),
            source,
            table_uuid,
            base,
            dict(parts),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"commit.decided at index {index}", expected="its members", found=error) from error


def file_of(members: Mapping[str, Any]) -> File | None:
    """Return the metadata file that a `commit.settled` names, if it was accepted."""
    data = members["event"]["data"]
    location = data["metadata_location"]
    if location is None or data["outcome"] != _ACCEPTED:
        return None
    # Of a built-in catalog decision and outcome are one group.
    is_foreign = data["decision"] != members["group"]["id"]
    return File(location, data["metadata_sha256"], DigestOf.FILE if is_foreign else None)


def _set_judged(decision: Decision, payload: bytes) -> None:
    """Set what a decision of a foreign catalog was judged on: its table, or the file that was to be registered."""
    judged = parse_judged(payload)
    file = File(judged.location, judged.sha256, judged.of)
    if decision.base_location is None:
        decision.made = file
    else:
        decision.base = file


def _checked(decision: Decision, part: Part) -> bytes:
    """
    Return the payload of a part.

    Raises:
        BrokenError: (`Fault.PART`) if it does not match the commitment in the entry.
    """
    found = commitment(salt=part.salt, payload=part.payload).hex()
    expected = decision.commitments.get(part.name)
    if found != expected:
        where, says = f"ledger.parts {part.name}", expected or "no part of this name"
        raise BrokenError(Fault.PART, where=where, expected=says, found=found, index=decision.index)
    return part.payload


async def index_of_group(connection: Connection, log_id: int, group_id: UUID) -> int | None:
    """Return the index of the first entry of a group, None if there is no such group."""
    values = {"log_id": log_id, "group_id": group_id}
    row = await (await connection.execute(QUERIES["first_of_group"], values)).fetchone()
    return None if row is None else int(row[0])
