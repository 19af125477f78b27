# SPDX-License-Identifier: Apache-2.0
"""Groups with guards to append, and what their guards have left: for tests of guards that run together or alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import psycopg

from ledger.append.appender import Appender
from ledger.format.event import PreparedEvent
from ledger.format.guards import Guard, GuardCall
from ledger.format.sequence import Appended, Group, Stale
from testkit.ledger.appending import event, new_id
from testkit.ledger.cutting_proxy import CuttingProxy

SHARE: Final = Guard(name="share", statements=("SELECT 6 / %(by)s WHERE %(log_id)s > 0",))
TEXT: Final = Guard(name="text", statements=("SELECT %(value)s::text WHERE %(log_id)s > 0",))
NONE: Final = Guard(name="none", statements=())
GUARDS: Final = (SHARE, TEXT, NONE)

Answer = Appended | Stale | BaseException
"""What a caller of `append` got, or what was raised."""


async def append_all(running: Appender, log_id: int, groups: Sequence[Group]) -> list[Answer]:
    """Append groups at the same time: they are one batch."""
    return await asyncio.gather(*(running.append(log_id, one) for one in groups), return_exceptions=True)


def guarded(*calls: GuardCall, otherwise: tuple[PreparedEvent, ...] = ()) -> Group:
    """Return a group of one event with these guards."""
    return Group(id=new_id(), then=(event(),), otherwise=otherwise, guard=calls)


def counted(key: str, *calls: GuardCall) -> Group:
    """Return a group whose guards count in the row `key` how often what they have changed has stayed."""
    return guarded(GuardCall("aggregate.count", {"key": key}), *calls)


def rows(database: str, log_id: int) -> dict[str, int]:
    """Return the versions of the aggregates of a log, which guards write."""
    with psycopg.connect(database) as owner:
        query = "SELECT key, version FROM ledger.aggregates WHERE log_id = %s"
        return dict(owner.execute(query, (log_id,)).fetchall())


def kinds(proxy: CuttingProxy) -> list[str]:
    """Return how each statement begins that came to the proxy."""
    return [" ".join(statement.decode().split()[:2]) for statement in proxy.trace]
