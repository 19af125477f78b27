# SPDX-License-Identifier: Apache-2.0
"""
What every request that looks has in common: its caller, what that may see, and a connection with a bound in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import psycopg
from fastapi import Request

from gateway.commit.gateway import Gateway
from gateway.errors import UnavailableError
from gateway.http.looking.sight import Sight
from gateway.http.request import authenticate
from gateway.identity import Principal
from gateway.policy.variables import RequestView
from ledger.store.read import Log, read_logs
from ledger.store.session import Connection

WAIT_S: Final = 3.0
TIMEOUT_S: Final = 5
"""For each statement; the database ends it then, and the client is told to ask for less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """One request that looks: its gateway, its caller, and what the caller may see by the rules in force."""

    gateway: Gateway
    caller: Principal
    sight: Sight

    async def key(self) -> bytes:
        """Return the tenant's key, which cursors are sealed with."""
        return await self.gateway.intake.request_keys.key(self.caller.log_id)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """Yield a connection as `reading_as` does, for the caller's tenant."""
        async with reading_as(self.gateway, self.caller) as connection:
            yield connection


async def look(request: Request) -> Looking:
    """
    Return who looks, and what that caller may see.

    Raises:
        UnauthorizedError: if there are no credentials, or none in force.
        UnavailableError: if that cannot be determined now.
    """
    gateway, caller = await authenticate(request)
    return Looking(gateway=gateway, caller=caller, sight=await sight_of(gateway, caller, request))


async def sight_of(gateway: Gateway, caller: Principal, request: Request) -> Sight:
    """
    Return what a caller may see by the rules in force now.

    Raises:
        UnauthorizedError: if the caller's credentials are not in force any more.
        UnavailableError: if the rules cannot be read.
    """
    return Sight(
        gateway=gateway,
        state=await gateway.rules_in_force(caller),
        caller=caller,
        request=RequestView(method=request.method, path=request.url.path),
    )


@asynccontextmanager
async def reading_as(gateway: Gateway, caller: Principal) -> AsyncIterator[Connection]:
    """
    Yield a connection that reads as the caller's tenant, each statement of which may take `TIMEOUT_S`.

    Raises:
        UnavailableError: if one takes longer, too many look already, or the database cannot be reached.
    """
    role = gateway.roles.tenant(caller.tenant)
    async with _turn(gateway), gateway.database.as_role(role, statement_timeout_s=TIMEOUT_S) as connection:
        try:
            yield connection
        except psycopg.errors.QueryCanceled as error:
            raise UnavailableError(
                f"the database took longer than {TIMEOUT_S} s: ask for less, such as a shorter time or fewer hops"
            ) from error


@asynccontextmanager
async def _turn(gateway: Gateway) -> AsyncIterator[None]:
    """
    Wait until one more may look: what looks must leave connections to what commits.

    Raises:
        UnavailableError: if that takes longer than `WAIT_S`.
    """
    try:
        async with asyncio.timeout(WAIT_S):
            await gateway.looks.acquire()
    except TimeoutError as error:
        raise UnavailableError("too many look at the log now: try again") from error
    try:
        yield
    finally:
        gateway.looks.release()


async def own_log(connection: Connection, caller: Principal) -> Log:
    """Return the log of the caller's tenant; `connection` works as its reader."""
    (log,) = [each for each in await read_logs(connection) if each.log_id == caller.log_id]
    return log
