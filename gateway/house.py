"""
What the gateway is made of, in one place: everything that `commit_flow` and the routes use is handed to them from here.

Wired once by the composition root; nothing is a global.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from gateway.admin.application import Admin
from gateway.catalogs import KINDS, BuiltinCatalog
from gateway.control import ControlPlane, ControlState
from gateway.database import Database
from gateway.errors import ForbiddenError, NotFoundError, UnavailableError
from gateway.identifiers import Target
from gateway.identity import Authenticator, Principal
from gateway.judgement import Judgement, ReadJudgements
from gateway.metadata_files import MetadataFiles
from gateway.policy.engine import PolicyEngine
from gateway.refusals import Refusals
from gateway.request_keys import RequestKeys
from ledger.events import Decided
from ledger.roles import Roles
from ledger.sequence import Appended, Group, Stale


class Append(Protocol):
    """How the gateway appends: to one log, one group, durable when it returns (see `ledger.append.Appender.append`)."""

    async def __call__(self, log_id: int, group: Group) -> Appended | Stale:
        """Append `group`, or learn that it was stale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """The parts of one gateway process."""

    append: Append
    authenticator: Authenticator
    control: ControlPlane
    engine: PolicyEngine
    policy_timeout_s: float
    body_size_bytes_max: int
    admin: Admin
    database: Database
    files: MetadataFiles
    request_keys: RequestKeys
    refusals: Refusals
    roles: Roles
    warehouse: str
    """The URI below which built-in catalogs keep their tables: `<warehouse>/<tenant>/<alias>/…`."""
    clock: Callable[[], datetime]
    random: Callable[[int], bytes]
    catalogs: dict[tuple[UUID, str], BuiltinCatalog] = field(default_factory=dict)
    read_judgements: ReadJudgements = field(default_factory=ReadJudgements)

    def catalog(self, tenant: UUID, state: ControlState, alias: str) -> BuiltinCatalog:
        """
        Return the adapter behind `alias` as the tenant's control plane has it.

        Raises:
            NotFoundError: if the tenant has no such catalog; another tenant's is none.
        """
        registered = state.catalogs.get(alias)
        if registered is None or registered.kind not in KINDS:
            raise NotFoundError(f"Catalog does not exist: {alias}", kind="NotFoundException")
        key = (tenant, alias)
        if key not in self.catalogs:
            self.catalogs[key] = BuiltinCatalog(
                alias=alias,
                reader=self.roles.tenant(tenant),
                # Of the tenant and the alias alone, not of options: never two tenants below one folder.
                warehouse=f"{self.warehouse.rstrip('/')}/{tenant.hex}/{alias}",
                database=self.database,
                files=self.files,
            )
        return self.catalogs[key]

    async def check_permitted(
        self, caller: Principal, judgement: Judgement, *, operation: str, target: Target | None
    ) -> None:
        """
        Check that access was permitted to what no decision is recorded for; a refusal is counted.

        Raises:
            ForbiddenError: if no rule permits it, or one forbids it.
            UnavailableError: if access could not be judged.
        """
        if judgement.decision is Decided.APPROVED:
            return
        if judgement.decision is Decided.UNDECIDABLE:
            raise UnavailableError(f"access could not be judged: {judgement.message}")
        await self.refusals.not_permitted(caller.log_id, caller.actor, operation, target, judgement.reason)
        raise ForbiddenError(judgement.message)
