# SPDX-License-Identifier: Apache-2.0
"""
The forms of recorded decisions, as they are made of a tenant's entries.

That the leaves of entries are those that were signed is what `lakeproof ledger verify` checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import orjson

from gateway.catalogs.judged_metadata import DigestOf
from gateway.identifiers import Target
from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.events import CommitDecided, CommitDecision, CommitOutcome
from ledger.format.merkle import leaf_hash
from ledger.store.queries import load_queries
from ledger.store.session import Connection

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
    A recorded decision. `parts` has those payload parts that were asked for and still exist; `commitments` are those of
    all parts, until they were checked.

    `base` is the metadata that it was judged on, None if there was none, or it was not recorded which; `made` is what
    the outcome in its own group names, or the file that was to be registered in a foreign catalog.
    """

    decision: CommitDecision
    index: int
    leaf: bytes
    group_id: str
    position: int
    of: int
    key: str
    actor: str
    occurred_at: str
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
            _DECISIONS[outcome],
            index,
            leaf,
            group_id,
            position,
            of,
            key,
            actor,
            occurred_at,
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


async def index_of_group(connection: Connection, log_id: int, group_id: UUID) -> int | None:
    """Return the index of the first entry of a group, None if there is no such group."""
    values = {"log_id": log_id, "group_id": group_id}
    row = await (await connection.execute(QUERIES["first_of_group"], values)).fetchone()
    return None if row is None else int(row[0])
