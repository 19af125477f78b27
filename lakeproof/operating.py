"""
What operators' commands work with: the database of the home, opened for one command, beside a running server or alone.

`lakeproof/commands/` names in Protocols what it needs; here it is, made of `services.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from gateway.admin.application import Admin
from gateway.admin.limits import check_id, check_tenant_name
from gateway.control.aggregates import Tenant
from gateway.errors import ConflictError
from lakeproof.confirming import confirm_logs
from lakeproof.console import say_aside
from lakeproof.installation import Installation, open_existing_installation, open_installation
from lakeproof.messages import Say
from lakeproof.projecting import PROJECTIONS, attest
from lakeproof.services import Services, open_services
from lakeproof.settings import Settings, load_settings
from lakeproof.tenants import Founded, find_tenant, found_tenant
from ledger.format.events import ProjectionAttested
from ledger.format.sealing import Opener
from ledger.store.read import Log
from projections.processing.projection import Projection


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDesk:
    """What people edit, in the hands of the operator (implements `lakeproof.commands.desk.Desk`)."""

    services: Services

    @property
    def admin(self) -> Admin:
        """The operations themselves."""
        return self.services.gateway.admin

    @property
    def url(self) -> str:
        """Where the gateway is reached once `lakeproof up` runs."""
        settings = self.services.installation.settings
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        return f"http://{host}:{settings.port or '<port>'}"

    async def log_of(self, tenant: str) -> int:
        """
        Return the log of the tenant of that name or id.

        Raises:
            NotFoundError: if there is none.
        """
        return (await find_tenant(self.services, tenant))[1]

    async def tenants(self) -> Sequence[Tenant]:
        """Return the tenants, oldest first."""
        state = await self.services.gateway.control.current(self.services.system.log_id)
        return tuple(state.tenants.values())

    async def found(self, *, name: str, identity: str, roles: Sequence[str], alias: str | None) -> Founded:
        """
        Make a tenant with its log and its first key, and perhaps a built-in catalog under `alias`.

        Raises:
            BadRequestError: if the alias or the name is not of its form, or the name looks like another tenant's.
            ConflictError: if there is one of that name: commands that name it would mean either.
            GatewayError, ServerError: as `lakeproof.tenants.found_tenant`.
        """
        if alias is not None:
            check_id(alias, field="alias")  # or the tenant would be founded, and its key lost, before it is refused
        known = [tenant.name for tenant in await self.tenants()]
        check_tenant_name(name, known)
        if name in known:
            raise ConflictError(
                f"tenant {name!r:.80} exists already: choose another name", kind="AlreadyExistsException"
            )
        return await found_tenant(self.services, name=name, identity=identity, roles=roles, alias=alias)

    async def store_secret(self, tenant: str, secret: str, value: str) -> None:
        """
        Store what the options of a tenant's catalogs name as `secret:<secret>`, in place of what is there.

        Raises:
            NotFoundError: if there is no such tenant.
            SecretMissingError: if the id or the value is not of its form, or it cannot be stored.
        """
        owner, _ = await find_tenant(self.services, tenant)
        await asyncio.to_thread(self.services.installation.secrets.write, owner, secret, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorWorkshop:
    """The projections, in the hands of the operator (implements `lakeproof.commands.projections.Workshop`)."""

    services: Services
    projections: Sequence[Projection] = PROJECTIONS

    @property
    def dsn(self) -> str:
        """The connection string of the projector role."""
        installation = self.services.installation
        return installation.as_role(installation.roles.projector)

    @property
    def opener(self) -> Opener:
        """What opens sealed payload parts."""
        return self.services.opener

    async def attest(self, log: Log, attested: ProjectionAttested, /) -> None:
        """Append the attestation to the log that was projected."""
        await attest(self.services, log, attested)

    async def tenant_of(self, name: str) -> UUID:
        """
        Return the tenant of that name or id.

        Raises:
            NotFoundError: if there is none.
        """
        return (await find_tenant(self.services, name))[0]


@asynccontextmanager
async def open_desk() -> AsyncIterator[OperatorDesk]:
    """Yield a desk on the database of the home; see `open_existing_installation` for what it raises."""
    async with _open_services(open_existing_installation) as services:
        yield OperatorDesk(services=services)


@asynccontextmanager
async def open_new_desk() -> AsyncIterator[OperatorDesk]:
    """Yield a desk on the database of the home, which is made if it is not there; raises as `open_installation`."""
    async with _open_services(open_installation) as services:
        yield OperatorDesk(services=services)


@asynccontextmanager
async def open_workshop() -> AsyncIterator[OperatorWorkshop]:
    """Yield a workshop on the database of the home; see `open_existing_installation` for what it raises."""
    async with _open_services(open_existing_installation) as services:
        yield OperatorWorkshop(services=services)


@asynccontextmanager
async def _open_services(
    open_: Callable[[Settings, Say], AbstractContextManager[Installation]],
) -> AsyncIterator[Services]:
    # Opening blocks the loop, on which nothing else runs yet.
    settings = load_settings(os.environ, directory=Path.cwd())
    with open_(settings, say_aside) as installation:
        async with open_services(installation) as services:
            await confirm_logs(services, say_aside)
            yield services
