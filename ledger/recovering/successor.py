# SPDX-License-Identifier: Apache-2.0
"""
Closes a log that cannot be recovered, and starts its successor under another origin.

Guarantee: a log is closed only if its database does not extend what was signed, and only once: the first entry of the
new log names the old one's last note and what was still stored. Nothing of the old log is copied or rewritten. It stays
readable and verifiable as far as it goes, and nothing is signed or appended to it any more.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from ledger.format.continuation import Continuation, check_continuation, predecessor_origin, successor_origin
from ledger.format.event import SYSTEM_ACTOR, derived_group_id, format_key
from ledger.format.events import LogContinued, prepare_event
from ledger.format.sequence import Appended, Group, LogHead, Stale
from ledger.recovering.replay import RecoveryError
from ledger.signing.key_directory import KeyDirectory, SignedNote
from ledger.store.read import Log, read_entries, read_head
from ledger.store.session import Connection
from ledger.store.stored_tree import read_frontier

CreateLog: TypeAlias = Callable[[str, UUID], Awaitable[Log]]
"""Creates the log of an origin for the tenant of that id, unless it exists; works as the owner."""
AppendGroup: TypeAlias = Callable[[int, Group], Awaitable[Appended | Stale]]


async def continue_log(
    auditor: Connection, log: Log, *, keys: KeyDirectory, make_log: CreateLog, append: AppendGroup, now: datetime
) -> tuple[Log, Continuation]:
    """
    Start the successor of `log`, and return it with the content of its first entry; safe to repeat after a crash.

    Raises:
        RecoveryError: if the log extends what was signed, nothing of it was signed, or it is the system log.
        BrokenError: if the new log does not begin with what it must.
        LedgerError: if the log cannot be created or appended to.
    """
    if log.tenant is None:
        raise RecoveryError(
            f"log {log.origin} is the installation's own, in which tenants are looked up: it can be recovered from an "
            "export only (--from)"
        )
    noted = keys.read_notes().get(log.origin)
    if noted is None:
        raise RecoveryError(f"the signer holds no note of {log.origin}: there is nothing to continue from")
    head = await read_head(auditor, log.log_id)
    await _check_lost(auditor, log, head, noted)
    origin = successor_origin(log.origin)
    successor = await make_log(origin, _tenant_of_successor(origin))
    if (await read_head(auditor, successor.log_id)).size == 0:
        await append(successor.log_id, _continued(log, noted, head, now))
    (first,) = await read_entries(auditor, successor.log_id, from_index=0, to_index=1)
    continuation = check_continuation(first, keys.verifier_keys(log.origin))
    if continuation is None:
        raise RecoveryError(f"log {origin} does not name its predecessor")
    return successor, continuation


def tenant_of(origin: str) -> UUID | None:
    """
    Return the id of the tenant that owns the log of that origin, None if it is not a tenant's.
    """
    if predecessor_origin(origin) is not None:
        return _tenant_of_successor(origin)
    last = origin.rpartition("/")[2]
    return UUID(last) if re.fullmatch("[0-9a-f]{32}", last) else None


def _tenant_of_successor(origin: str) -> UUID:
    """A log's reader sees the rows of one log, so the new log has a tenant of its own, with a derived id."""
    return derived_group_id("log.successor", {"origin": origin})


async def _check_lost(auditor: Connection, log: Log, head: LogHead, noted: SignedNote) -> None:
    """Check that the database does not extend the last note: a log that does is never closed."""
    signed = noted.checkpoint
    if head.size >= signed.size and (await read_frontier(auditor, log.log_id, signed.size)).root() == signed.root:
        raise RecoveryError(
            f"log {log.origin} holds {head.size} entries and extends what was signed ({signed.size}): nothing is "
            "lost, and it stays open"
        )


def _continued(log: Log, noted: SignedNote, head: LogHead, now: datetime) -> Group:
    event = LogContinued(origin=log.origin, note=noted.note.decode(), size=head.size, root=head.frontier.root().hex())
    prepared = prepare_event(event, key=format_key("log", [log.origin]), actor=SYSTEM_ACTOR, occurred_at=now)
    return Group(id=derived_group_id(event.TYPE, {"origin": successor_origin(log.origin)}), then=(prepared,))
