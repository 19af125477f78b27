"""
What the commands of the gateway work with and print on: named here as Protocols, made by the composition root.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Protocol, TypeAlias, TypeVar
from uuid import UUID

import typer

from gateway.admin.application import Admin, IssuedKey
from gateway.control.aggregates import Tenant as KnownTenant


class Founded(Protocol):
    """A tenant that was just founded."""

    @property
    def tenant(self) -> UUID: ...

    @property
    def origin(self) -> str: ...

    @property
    def key(self) -> IssuedKey: ...


class Desk(Protocol):
    """What the commands work with: `url` is where engines reach the gateway."""

    @property
    def admin(self) -> Admin: ...

    @property
    def url(self) -> str: ...

    async def log_of(self, tenant: str) -> int:
        """Return the log of the tenant of that name or id."""

    async def tenants(self) -> Sequence[KnownTenant]:
        """Return the tenants, oldest first."""

    async def found(self, *, name: str, identity: str, roles: Sequence[str], alias: str | None) -> Founded:
        """Make a tenant with its log and its first key, and perhaps a built-in catalog under `alias`."""

    async def store_secret(self, tenant: str, secret: str, value: str) -> None:
        """Store what options of the tenant's catalogs name as `secret:<secret>`, in place of what is there."""


class Console(Protocol):
    """Where the commands print."""

    def show_rows(self, columns: Sequence[str], rows: Sequence[Mapping[str, object]], *, as_json: bool) -> None: ...
    def show_json(self, value: object) -> None: ...
    def say(self, text: str) -> None: ...
    def explain(self, text: str) -> None: ...


OpenDesk: TypeAlias = Callable[[], AbstractAsyncContextManager[Desk]]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant: its name or id.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

R = TypeVar("R")


def run_at(open_desk: OpenDesk, work: Callable[[Desk], Awaitable[R]]) -> R:
    """Open a desk, do one piece of work at it, and close it again."""

    async def with_desk() -> R:
        async with open_desk() as desk:
            return await work(desk)

    return asyncio.run(with_desk())
