# SPDX-License-Identifier: Apache-2.0
"""
Leases: which process works on which duty of which log. A duty is a handler's (`handler:<name>`) or a sink's
(`sink:<name>`).

A lease expires by the database's clock, so a process that was killed or suspended blocks nobody for longer. It is
therefore no lock: another process may have taken over. So the transaction that stores what was done also releases the
lease, and fails if the lease belongs to another by then (`release`): work that two have done is stored once.

A lease belongs to the task that claimed it. While it works, `kept` renews the lease over the connection that stores the
result; nothing else may use that connection meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ledger.store.queries import load_queries
from ledger.store.session import Connection
from streams.errors import StreamError

LEASE_S: Final = 10.0
"""After this, the leases of a killed process are taken over."""

PUT_OFF_S: Final = 0.1
"""The pause after a first failure; it doubles with each further one in a row …"""
PUT_OFF_S_MAX: Final = 30.0
"""… up to this."""

_QUERIES: Final = load_queries("streams", "leases.sql")


class LeaseLostError(StreamError):
    """Another process has taken over: nothing that was done here is stored, the other process does it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to do a duty on one log until it is released or expires, after `failures` in a row."""

    duty: str
    log_id: int
    lease: UUID
    failures: int


def handler_duty(handler: str) -> str:
    """
    Return the duty of the handler of that name.
    """
    return f"handler:{handler}"


def sink_duty(sink: str) -> str:
    """
    Return the duty of the sink of that name.
    """
    return f"sink:{sink}"


async def release(connection: Connection, lease: Lease) -> None:
    """
    Release `lease`, in the open transaction that stores what was done under it.

    Raises:
        LeaseLostError: if another has taken over; the transaction must be undone.
    """
    if await (await connection.execute(_QUERIES["release"], _which(lease))).fetchone() is None:
        raise _lost(lease)


async def hold(connection: Connection, lease: Lease, *, lease_s: float) -> None:
    """
    Extend `lease`, in the open transaction that stores what was done under it so far.

    Raises:
        LeaseLostError: if another has taken over; the transaction must be undone.
    """
    if await (await connection.execute(_QUERIES["hold"], {**_which(lease), "lease_s": lease_s})).fetchone() is None:
        raise _lost(lease)


async def put_off(connection: Connection, lease: Lease) -> None:
    """
    Release `lease` after a failure: the next attempt is in 0.1 s, twice that after the next failure, at most 30 s.
    """
    pause = {"pause_s": PUT_OFF_S, "pause_s_max": PUT_OFF_S_MAX}
    await connection.execute(_QUERIES["put_off"], {**_which(lease), **pause})


async def drop(connection: Connection, lease: Lease) -> None:
    """
    Release `lease` without a result; any process may take it at once.
    """
    await connection.execute(_QUERIES["drop"], _which(lease))


@asynccontextmanager
async def kept(connection: Connection, lease: Lease, *, lease_s: float = LEASE_S) -> AsyncIterator[None]:
    """
    Renew `lease` while the context is open; nothing else may use `connection` meanwhile.

    If it is lost all the same, `release` raises.
    """

    async with renewed(connection, _QUERIES["renew"], _which(lease), lease_s=lease_s):
        yield


@asynccontextmanager
async def renewed(
    connection: Connection, query: str, which: Mapping[str, object], *, lease_s: float
) -> AsyncIterator[None]:
    """
    Renew a lease by `query` every third of its duration while the context is open.
    """

    async def renew() -> None:
        while True:
            await asyncio.sleep(lease_s / 3)
            await connection.execute(query, {**which, "lease_s": lease_s})

    renewing = asyncio.create_task(renew(), name="renew a lease")
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
    if not renewing.cancelled():
        renewing.result()  # it ends by itself only if the connection fails: raise that here


def _lost(lease: Lease) -> LeaseLostError:
    return LeaseLostError(f"{lease.duty} on log {lease.log_id}: another has taken over")


def _which(lease: Lease) -> dict[str, object]:
    return {"duty": lease.duty, "log_id": lease.log_id, "lease": lease.lease}
