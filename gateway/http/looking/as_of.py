# SPDX-License-Identifier: Apache-2.0
"""
Answers as they were when the log ended with an entry: the parameter `as_of`, its index.

A route has it only if what it reads still says exactly that: the log itself, or a read model that keeps every row with
the index of its entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeVar

from gateway.control.plane import ControlState
from gateway.errors import BadRequestError, UnavailableError
from gateway.http.looking.query import AS_OF, INDEX_MAX, Query
from gateway.http.looking.sight import Sight
from gateway.replaying.explaining import state_as_of
from ledger.format.entry import parse_entry
from ledger.store.read import read_entry, read_head
from ledger.store.session import Connection
from projections.processing.cursors import read_live
from projections.relational.as_of import read_names_then
from projections.relational.findings import FINDINGS, Finding, ScanSummary

_SINCE: Final = {FINDINGS: 4}
"""The version of a read model from which on it keeps what is replaced: a generation of an older one is not asked."""

R = TypeVar("R", Finding, ScanSummary)


def as_of_asked(query: Query) -> int | None:
    """
    Return the index that a request asks for, None if it asks for now.

    Raises:
        BadRequestError: if it is none.
    """
    return query.number(AS_OF, least=0, most=INDEX_MAX)


async def check_as_of(connection: Connection, log_id: int, as_of: int, *read_models: str) -> None:
    """
    Check that a log has an entry, and that read models have come to it.

    Raises:
        BadRequestError: if the log ends before it.
        UnavailableError: if a read model has not come to it yet, or was made before it kept what is replaced.
    """
    size = (await read_head(connection, log_id)).size
    if as_of >= size:
        raise BadRequestError(
            f"expected the index of an entry, found {as_of}: the log has {size:,} entries", field=AS_OF
        )
    for read_model in read_models:
        live = await read_live(connection, read_model, log_id)
        if live is None or live.next_index <= as_of:
            raise UnavailableError(f"the read model of {read_model} has not come to that entry yet: try again")
        if live.version < _SINCE.get(read_model, 0):
            raise UnavailableError(f"the read model of {read_model} is being rebuilt, and tells only of now: try again")


async def seen_as_called(sight: Sight, connection: Connection, rows: Sequence[R], *, as_of: int) -> list[R]:
    """
    Return rows that were read as of an entry, each with the name that its table had then.

    Those of tables that the caller may not see are left out: under the name of then, or under the present one.
    """
    names = await read_names_then(connection, sight.caller.log_id, [each.table_uuid for each in rows], index=as_of)
    called = [
        (replace(each, key=then or each.key), now or each.key)
        for each in rows
        for then, now in [names[each.table_uuid]]
    ]
    await sight.prepare(key or "" for each, now in called for key in (each.key, now))
    return [each for each, now in called if await sight.sees_all((each.key or "", now or ""))]


async def control_as_of(connection: Connection, log_id: int, as_of: int) -> tuple[ControlState, datetime]:
    """
    Return what had been decided of a tenant's configuration when its log ended with an entry, and when that was.

    `connection` reads as the tenant. Raises as `check_as_of`.
    """
    await check_as_of(connection, log_id, as_of)
    entry = parse_entry(await read_entry(connection, log_id, as_of))
    return await state_as_of(connection, log_id, as_of), entry.recorded_at
