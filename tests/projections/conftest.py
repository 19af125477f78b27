"""
Made-up histories for the projections' tests, and a log of the test's own database to append them to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from psycopg import AsyncConnection, sql

from lakeproof.provision import Installation, create_tenant_log
from ledger import canonical
from ledger.append import Appender
from ledger.event import Event, Part, PreparedEvent, is_control, prepare
from ledger.events import (
    AccessRuleCreated,
    CommitDecided,
    CommitSettled,
    Decided,
    Effect,
    Evidence,
    Identifier,
    PolicyChanged,
    PolicyCreated,
    PolicyRetired,
    ProjectionAttested,
    Reason,
    Settled,
    to_data,
)
from ledger.guards import GuardRegistry
from ledger.keys import format_key, parse_key
from ledger.read import Log, find_log
from ledger.sequence import Group, Head, sequence
from projections.commits import CommitsProjection
from projections.entries import LogEntry, read_log_entry
from projections.graph.projection import GraphProjection
from projections.metrics import MetricsProjection
from projections.projection import Projection
from projections.runner import Runner

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ADA = "a" * 32
BOB = "b" * 32
ORDERS = "table:lake/sales/orders"


class Story:
    """What happens to one log, group by group, from its first entry; everything in it is a function of the calls."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.size = 0
        self.as_of = -1
        self._appended = 0

    def add(self, *events: PreparedEvent) -> UUID:
        """Let a group happen; return its id."""
        group_id = UUID(int=(1 << 127) + len(self.groups), version=4)
        self.groups.append(Group(id=group_id, then=events))
        for event in events:
            if event.is_control:
                self.as_of = self.size
            self.size += 1
        return group_id

    def event(
        self, data: object, *, key: str, actor: str = ADA, parts: tuple[tuple[str, bytes], ...] = ()
    ) -> PreparedEvent:
        """Return one of the events of `ledger.events`, prepared; salts are made up too."""
        salted = tuple(
            Part(name=name, payload=payload, salt=bytes([position]) * 32, subject=actor)
            for position, (name, payload) in enumerate(parts)
        )
        event = Event(
            type=type(data).TYPE,  # type: ignore[attr-defined]  # any of the vocabulary
            version=type(data).VERSION,  # type: ignore[attr-defined]  # any of the vocabulary
            key=key,
            actor=actor,
            occurred_at=NOON,
            data=to_data(data),
            parts=salted,
        )
        return prepare(event)

    def decision(
        self,
        key: str = ORDERS,
        decision: Decided = Decided.APPROVED,
        *,
        actor: str = ADA,
        principal: str | None = "ada@example.com",
        operation: str = "table.commit",
        reason: Reason | None = None,
        snapshots: Sequence[str] = (),
    ) -> PreparedEvent:
        """Return a decision on what `key` names."""
        kind, (alias, *path) = parse_key(key)
        is_namespace = kind == "namespace"
        data = CommitDecided(
            actions=("META_ADD_SNAPSHOT",),
            as_of=self.as_of,
            base=None,
            decision=decision,
            identifier=Identifier(
                alias=alias,
                namespace=tuple(path) if is_namespace else tuple(path[:-1]),
                name=None if is_namespace else path[-1],
            ),
            operation=operation,
            policy_set="0" * 64,
            principal_source="api_key",
            reason=reason,
            request="1" * 64,
            snapshots=tuple(snapshots),
            table_uuid=None,
        )
        who = {"actor": actor, "email": None, "roles": ["data-eng"], "source": "api_key", "sub": principal}
        parts = () if principal is None else (("principal", canonical.encode(who)),)
        return self.event(data, key=key, actor=actor, parts=parts)

    def outcome(
        self,
        group_id: UUID,
        key: str = ORDERS,
        outcome: Settled = Settled.ACCEPTED,
        *,
        snapshots: Sequence[str] = (),
        table_uuid: str | None = "5f0c9d1e-0000-4000-8000-000000000001",
    ) -> PreparedEvent:
        """Return the outcome of what that group decided."""
        accepted = outcome is Settled.ACCEPTED
        data = CommitSettled(
            decision=str(group_id),
            evidence=Evidence.ANSWER,
            metadata_location=f"file:///lake/{len(self.groups)}.json" if accepted else None,
            metadata_sha256="2" * 64 if accepted else None,
            outcome=outcome,
            snapshots=tuple(snapshots),
            table_uuid=table_uuid,
        )
        return self.event(data, key=key)

    def decided(self, key: str = ORDERS, decision: Decided = Decided.APPROVED, **more: Any) -> UUID:
        """A decision in a group of its own."""
        return self.add(self.decision(key, decision, **more))

    def settled(self, group_id: UUID, key: str = ORDERS, outcome: Settled = Settled.ACCEPTED, **more: Any) -> None:
        """An outcome in a group of its own."""
        self.add(self.outcome(group_id, key, outcome, **more))

    def committed(self, key: str = ORDERS, *, snapshots: Sequence[str] = (), **more: Any) -> UUID:
        """An approved and accepted commit."""
        group_id = self.decided(key, snapshots=snapshots, **more)
        self.settled(group_id, key, snapshots=snapshots)
        return group_id

    def policy(self, policy_id: str, version: int = 1, *, expression: str = "true") -> None:
        """A version of a policy."""
        cls = PolicyCreated if version == 1 else PolicyChanged
        data = cls(id=policy_id, version=version, expression=expression, message="no")
        self.add(self.event(data, key=format_key("policy", [policy_id])))

    def policy_retired(self, policy_id: str, version: int) -> None:
        """The end of a policy."""
        self.add(self.event(PolicyRetired(id=policy_id, version=version), key=format_key("policy", [policy_id])))

    def rule(self, rule_id: str) -> None:
        """An access rule."""
        data = AccessRuleCreated(id=rule_id, version=1, effect=Effect.PERMIT, expression="true")
        self.add(self.event(data, key=format_key("access_rule", [rule_id])))

    def raw(self, event_type: str, version: int = 1) -> None:
        """An event of a type or version that may not be in the vocabulary."""
        event = Event(type=event_type, version=version, key="x:y", actor=ADA, occurred_at=NOON, data={"new": True})
        assert prepare(event).is_control == is_control(event_type)
        self.add(prepare(event))

    def entries(self, origin: str = "example.com/log") -> list[LogEntry]:
        """Return the entries of a log in which just this happened, a second apart, without a database."""
        head, entries = Head.empty(), []
        for position, group in enumerate(self.groups):
            clock = NOON + timedelta(seconds=position)
            sequencing = sequence(head, [group], log=origin, stored={}, clock=clock)
            try:
                next(sequencing)
            except StopIteration as end:
                sequenced = end.value
            head = sequenced.head
            entries += [read_log_entry(row.entry, {part.name: part for part in row.parts}) for row in sequenced.rows]
        return entries

    def take_new(self) -> list[Group]:
        """Return the groups that were not taken yet."""
        groups, self._appended = self.groups[self._appended :], len(self.groups)
        return groups


class World:
    """The test's database, its tenants, and what one does to them."""

    def __init__(self, database: str, installation: Installation) -> None:
        self.database = database
        self.installation = installation
        self.roles = installation.roles
        self.dsn = installation.as_role(installation.roles.projector)
        self.graph = GraphProjection()
        self.commits = CommitsProjection()
        self.metrics = MetricsProjection()
        self.projections: tuple[Projection, ...] = (self.graph, self.commits, self.metrics)
        self.attested: list[tuple[Log, ProjectionAttested]] = []
        self._tenants = count(1)

    async def new_log(self) -> Log:
        """Make a tenant with an empty log."""
        tenant = UUID(int=next(self._tenants) << 64, version=4)
        create_tenant_log(self.database, self.installation, tenant)
        async with self.as_projector() as connection:
            return await find_log(connection, self.installation.origin(tenant))

    async def append(self, log: Log, story: Story) -> None:
        """Append what the story has told since it was last appended."""
        dsn = self.installation.as_role(self.roles.appender)
        async with Appender(dsn, GuardRegistry([])) as appender:
            await asyncio.gather(*(appender.append(log.log_id, group) for group in story.take_new()))

    async def project(self, log: Log, story: Story, **options: Any) -> None:
        """Append and bring all projections up to the end."""
        await self.append(log, story)
        await self.runner(**options).catch_up(log.log_id, story.size)

    def runner(self, **options: Any) -> Runner:
        """Return a runner of all projections."""
        return Runner(self.dsn, self.projections, **options)

    async def attest(self, log: Log, attested: ProjectionAttested) -> None:
        """Take an attestation as a caller's Appender would."""
        self.attested.append((log, attested))

    @asynccontextmanager
    async def as_projector(self) -> AsyncIterator[AsyncConnection[Any]]:
        """Yield a connection of the projector role."""
        async with await AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            yield connection

    @asynccontextmanager
    async def as_admin(self) -> AsyncIterator[AsyncConnection[Any]]:
        """Yield a connection of the superuser."""
        async with await AsyncConnection.connect(self.database, autocommit=True) as connection:
            yield connection

    @asynccontextmanager
    async def as_role(self, role: str) -> AsyncIterator[AsyncConnection[Any]]:
        """Yield the login role's connection, working as `role` in one transaction."""
        async with (
            await AsyncConnection.connect(self.installation.dsn, autocommit=True) as connection,
            connection.transaction(),
        ):
            await connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
            yield connection

    @asynccontextmanager
    async def as_reader(self, log: Log) -> AsyncIterator[AsyncConnection[Any]]:
        """Yield a connection that works as the reader of that log's tenant."""
        assert log.reader is not None
        async with self.as_role(log.reader) as connection:
            yield connection


@pytest.fixture
def world(database: str, installation: Installation) -> World:
    """The test's database with the projections' tables."""
    return World(database, installation)


@pytest.fixture
def new_story() -> Callable[[], Story]:
    """Makes stories that have not begun."""
    return Story


@pytest.fixture
def story() -> Story:
    """One story that has not begun."""
    return Story()
