"""
What the gateway is made of, in one place: everything that `commit_flow` and the routes use is handed to them from here.

Wired once by the composition root; nothing is a global.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from gateway.admin.application import Admin
from gateway.catalogs import KINDS, LOOK_ALIKES, LOOK_ALIKES_ALLOWED, REST, Adapter, BuiltinCatalog, Onward, RestCatalog
from gateway.catalogs.onward import format_hop
from gateway.catalogs.upstreams import Secrets, Upstream, Upstreams
from gateway.commit.judgement import Judgement, ReadJudgements
from gateway.commit.large_requests import LargeRequests
from gateway.commit.metrics import FailedPrograms
from gateway.commit.refusals import Refusals
from gateway.commit.request_keys import RequestKeys
from gateway.control.plane import ControlPlane, ControlState
from gateway.database import Database
from gateway.errors import ForbiddenError, NotFoundError, PlaceContestedError, UnavailableError
from gateway.identifiers import Target
from gateway.identity import Authenticator, Principal
from gateway.metadata.files import MetadataFiles
from gateway.policy.engine import PolicyEngine
from ledger.format.event import random_group_id
from ledger.format.events import CommitDecision
from ledger.format.sealing import PLAIN, Opener
from ledger.format.sequence import Appended, Group, Stale
from ledger.proving.receipts import Receipts
from ledger.store.roles import Roles


class Append(Protocol):
    """
    How the gateway appends: to one log, one group, durable when it returns (see
    `ledger.append.appender.Appender.append`).
    """

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
    table_config: Mapping[str, str]
    """What engines are told with each table of a built-in catalog about its storage; no credentials."""
    upstreams: Upstreams
    secrets: Secrets
    """What the options of catalogs name as `secret:<id>`."""
    polaris_webhook: bool
    """Whether callbacks of Polaris are taken."""
    decision_timeout: timedelta
    """How long a decision that was forwarded is its process's own; then its outcome is looked for."""
    installation: str
    owner: str
    """This process, in 32 hex digits."""
    request_keys: RequestKeys
    receipts: Receipts
    refusals: Refusals
    roles: Roles
    warehouse: str
    """The URI below which built-in catalogs keep their tables: `<warehouse>/<tenant>/<alias>/…`."""
    clock: Callable[[], datetime]
    random: Callable[[int], bytes]
    contested: Mapping[tuple[UUID, str], str] = field(default_factory=dict)
    """Catalogs (tenant and alias) whose place another tenant holds, and why: they wait for the operator."""
    opener: Opener = PLAIN
    """Opens payload parts that are sealed."""
    catalogs: dict[tuple[UUID, str], BuiltinCatalog | Upstream] = field(default_factory=dict)
    read_judgements: ReadJudgements = field(default_factory=ReadJudgements)
    failed_programs: FailedPrograms = field(default_factory=FailedPrograms)
    large_requests: LargeRequests = field(default_factory=LargeRequests)

    def catalog(self, tenant: UUID, state: ControlState, alias: str, onward: Onward | None = None) -> Adapter:
        """
        Return the adapter behind `alias` as the tenant's control plane has it; `onward` is what a request takes along.

        Raises:
            NotFoundError: if the tenant has no such catalog; another tenant's is none.
            PlaceContestedError: if its place is another tenant's, so that the operator has to decide.
            ForwardingLoopError: if the request has come through this very alias before.
        """
        registered = state.catalogs.get(alias)
        if registered is None or registered.kind not in KINDS:
            raise no_such_catalog(alias)
        key = (tenant, alias)
        if key in self.contested:
            raise PlaceContestedError(
                f"catalog {alias}: its location overlaps one that another tenant was first to register: its operator "
                "is told, and can move the place or retire the catalog"
            )
        if key not in self.catalogs:
            if registered.kind == REST:
                self.catalogs[key] = self.upstreams.upstream(tenant, alias, registered.options)
            else:
                self.catalogs[key] = self._builtin(tenant, alias, registered.options)
        match self.catalogs[key]:
            case BuiltinCatalog() as builtin:
                return builtin
            case Upstream() as upstream:
                hop = format_hop(installation=self.installation, tenant_hex=tenant.hex, alias=alias)
                return RestCatalog(upstream=upstream, onward=(onward or Onward()).through(hop))

    def _builtin(self, tenant: UUID, alias: str, options: Mapping[str, str]) -> BuiltinCatalog:
        return BuiltinCatalog(
            alias=alias,
            reader=self.roles.tenant(tenant),
            # Of the tenant and the alias alone, not of options: never two tenants below one folder.
            warehouse=f"{self.warehouse.rstrip('/')}/{tenant.hex}/{alias}",
            database=self.database,
            files=self.files,
            table_config=self.table_config,
            allows_look_alikes=options.get(LOOK_ALIKES) == LOOK_ALIKES_ALLOWED,
        )

    def new_group_id(self) -> UUID:
        """Return the id of a group that is not derived from its content."""
        now_ms = int(self.clock().timestamp() * 1000)
        return random_group_id(now_ms=now_ms, random=self.random(10))

    def count_failures(self, judgement: Judgement) -> None:
        """Count the access rules and policies that could not be judged."""
        for kind in judgement.failed:
            self.failed_programs.count(kind)

    async def check_permitted(
        self, caller: Principal, judgement: Judgement, *, operation: str, target: Target | None
    ) -> None:
        """
        Check that access was permitted to what no decision is recorded for; a refusal is counted.

        Raises:
            ForbiddenError: if no rule permits it, or one forbids it.
            UnavailableError: if access could not be judged.
        """
        self.count_failures(judgement)
        if judgement.decision is CommitDecision.APPROVED:
            return
        if judgement.decision is CommitDecision.UNDECIDABLE:
            raise UnavailableError(f"access could not be judged: {judgement.message}")
        await self.refusals.not_permitted(caller, operation, target, judgement.reason)
        raise ForbiddenError(judgement.message)


def no_such_catalog(alias: str) -> NotFoundError:
    """
    Return the error for an alias that is none of the tenant's, or none for the caller.
    """
    return NotFoundError(f"Catalog does not exist: {alias}", kind="NotFoundException")
