# SPDX-License-Identifier: Apache-2.0
"""
Answers as they were when the log ended with an entry: the parameter `as_of`, its index.

A route has it only if what it reads still says exactly that: the log itself, or a read model that keeps every row with
the index of its entry.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from gateway.control.plane import ControlState
from gateway.errors import BadRequestError, UnavailableError
from gateway.http.looking.query import INDEX_MAX, Query
from gateway.replaying.explaining import state_as_of
from ledger.format.entry import parse_entry
from ledger.store.read import read_entry, read_head
from ledger.store.session import Connection
from projections.processing.cursors import read_live

AS_OF: Final = "as_of"


def as_of_asked(query: Query) -> int | None:
    """
    Return the index that a request asks for, None if it asks for now.

    Raises:
        BadRequestError: if it is none.
    """
    return query.number(AS_OF, least=0, most=INDEX_MAX)


async def check_as_of(connection: Connection, log_id: int, as_of: int, *, read_model: str | None = None) -> None:
    """
    Check that a log has an entry, and that a read model has come to it.

    Raises:
        BadRequestError: if the log ends before it.
        UnavailableError: if the read model has not come to it yet.
    """
    size = (await read_head(connection, log_id)).size
    if as_of >= size:
        raise BadRequestError(
            f"expected the index of an entry, found {as_of}: the log has {size:,} entries", field=AS_OF
        )
    if read_model is not None:
        live = await read_live(connection, read_model, log_id)
        if live is None or live.next_index <= as_of:
            raise UnavailableError(f"the read model of {read_model} has not come to that entry yet: try again")


async def control_as_of(connection: Connection, log_id: int, as_of: int) -> tuple[ControlState, datetime]:
    """
    Return what had been decided of a tenant's configuration when its log ended with an entry, and when that was.

    `connection` reads as the tenant. Raises as `check_as_of`.
    """
    await check_as_of(connection, log_id, as_of)
    entry = parse_entry(await read_entry(connection, log_id, as_of))
    return await state_as_of(connection, log_id, as_of), entry.recorded_at
