# SPDX-License-Identifier: Apache-2.0
"""
Reads what the log says about the open decisions of one key: the I/O for `outcome_proof`.

Everything is read with the tenant's own reader role, so that another tenant's entries never count as evidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from gateway.commit.open_decisions import OpenDecision, read_after, read_open
from gateway.reconcile.outcome_proof import Before, Claim
from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.entry import Entry, parse_entry
from ledger.format.events import CommitDecided, CommitOutcome, CommitSettled, from_data
from ledger.format.json_object import parse_object
from ledger.format.sealing import PLAIN, Opener, StoredPart
from ledger.store.queries import load_queries
from ledger.store.session import Connection

MARGIN_ENTRIES: Final = 1_000
"""
How many entries before a decision outcomes are read: one that another process recorded just before the decision may
explain the state that was found after it.
"""

_QUERIES = load_queries("gateway", "reconciler.sql")


async def read_decided(connection: Connection, log_id: int, decisions: Sequence[OpenDecision]) -> dict[UUID, int]:
    """
    Return the index of each decision in its log.

    Raises:
        BrokenError: if one is missing: its row was made by the transaction that appended it.
    """
    first = await _first_entries(connection, log_id, [each.decision for each in decisions])
    for each in decisions:
        if each.decision not in first:
            where = f"gateway.open_decisions of log {log_id}"
            raise BrokenError(Fault.DERIVED, where=where, expected=f"group {each.decision} in the log", found="none")
    return {decision: entry.index for decision, entry in first.items()}


async def read_claims(connection: Connection, log_id: int, key: str, *, from_index: int) -> list[Claim]:
    """
    Return the claims of accepted outcomes on a key, from an index on.
    """
    where = {"log_id": log_id, "key": key, "from_index": from_index}
    rows = await (await connection.execute(_QUERIES["outcomes_of_key"], where)).fetchall()
    entries = [parse_entry(bytes(entry)) for (entry,) in rows]
    outcomes = [(entry.index, from_data(CommitSettled, entry.data)) for entry in entries]
    accepted = [(index, settled) for index, settled in outcomes if settled.outcome is CommitOutcome.ACCEPTED]
    first = await _first_entries(connection, log_id, [UUID(settled.decision) for _, settled in accepted])
    return [claim_of(index, settled, _operation(first, settled)) for index, settled in accepted]


def claim_of(index: int, settled: CommitSettled, operation: str) -> Claim:
    """
    Return the claim of an accepted outcome at `index` of its log, of a decision on `operation`.
    """
    return Claim(
        index=index,
        decision=UUID(settled.decision),
        operation=operation,
        evidence=settled.evidence,
        table_uuid=settled.table_uuid,
        metadata_location=settled.metadata_location,
        snapshots=settled.snapshots,
    )


async def read_requested(
    connection: Connection, log_id: int, index: int, *, opener: Opener = PLAIN
) -> Mapping[str, Any] | None:
    """
    Return the request's body of the decision at `index`; None if there is none, or it is no longer stored.

    Raises:
        SubjectKeysError: if it is sealed and `opener` cannot tell whether it was erased.
    """
    row = await (await connection.execute(_QUERIES["inputs"], {"log_id": log_id, "index": index})).fetchone()
    if row is None:
        return None
    part = opener.open(StoredPart(index, "inputs", row[0], row[1], bytes(row[2])))
    if part is None:
        return None
    try:
        return parse_object(parse_object(part.payload, what="part inputs")["body"], what="body of part inputs")
    except (FormatError, KeyError, TypeError):
        return None


async def read_before(
    connection: Connection, decision: OpenDecision, index: int, *, opener: Opener = PLAIN
) -> Before | None:
    """
    Return the decision after which this one, of a group that begins at `index`, is forwarded; None if after none.
    """
    log_id, own = decision.log_id, {"log_id": decision.log_id, "key": decision.key, "index": index}
    row = await (await connection.execute(_QUERIES["decided_on_key"], own)).fetchone()
    key = None if row is None else await read_after(connection, log_id, row[0], opener=opener)
    if key is None:
        return None
    # The row first: a decision that is closed has an outcome.
    is_open = any(each.decision == decision.decision for each in await read_open(connection, log_id, key))
    where = {"log_id": log_id, "key": key, "from_index": index}
    rows = await (await connection.execute(_QUERIES["outcomes_of_key"], where)).fetchall()
    outcomes = [from_data(CommitSettled, parse_entry(bytes(entry)).data) for (entry,) in rows]
    its = [settled for settled in outcomes if settled.decision == str(decision.decision)]
    return Before(key=key, is_open=is_open, settled=its[-1] if its else None)


async def _first_entries(connection: Connection, log_id: int, groups: Sequence[UUID]) -> dict[UUID, Entry]:
    where = {"log_id": log_id, "group_ids": list(groups)}
    rows = await (await connection.execute(_QUERIES["first_entries"], where)).fetchall()
    return {group_id: parse_entry(bytes(entry)) for group_id, entry in rows}


def _operation(first: Mapping[UUID, Entry], settled: CommitSettled) -> str:
    entry = first.get(UUID(settled.decision))
    return from_data(CommitDecided, entry.data).operation if entry and entry.type == CommitDecided.TYPE else ""
