# SPDX-License-Identifier: Apache-2.0
"""
Made-up histories for the projections' tests, and a log of the test's own database to append them to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection, sql

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.append.appender import Appender
from ledger.format import canonical
from ledger.format.event import Event, Part, PreparedEvent, format_key, is_control, parse_key, prepare
from ledger.format.events import (
    AccessRuleCreated,
    AccessRuleCreatedV1,
    AccessRuleCreatedV3,
    AccessRuleCreatedV4,
    AlertDelivered,
    AlertRaised,
    CatalogCreated,
    CommitDecided,
    CommitDecision,
    CommitObserved,
    CommitOutcome,
    CommitSettled,
    DatasetName,
    DetectionFound,
    DetectionKind,
    Effect,
    ErasureReason,
    EventData,
    FindingReviewed,
    FindingVerdict,
    Identifier,
    IdentitySource,
    LineageColumn,
    LineageDataset,
    LineageKind,
    LineageReceived,
    OutcomeEvidence,
    PayloadErased,
    PolicyChanged,
    PolicyChangedV1,
    PolicyContents,
    PolicyCreated,
    PolicyCreatedV1,
    PolicyRetired,
    PolicyRetiredV3,
    PolicyScope,
    ProjectionAttested,
    Reason,
    ScanCompleted,
    ScanFailed,
    ScanFault,
    TableIdentified,
    TriggerReceived,
    TriggerSource,
    UnreadColumn,
    to_data,
)
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Group, LogHead, sequence
from ledger.store.read import Log, find_log
from ledger.store.session import Connection
from projections.entries import LogEntry, read_log_entry
from projections.graph.projection import GraphProjection
from projections.lineage.projection import LineageProjection
from projections.processing.projection import Projection
from projections.processing.runner import ProjectionRunner
from projections.relational.commits import CommitsProjection
from projections.relational.findings import FindingsProjection
from projections.relational.metrics import MetricsProjection

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ADA = "a" * 32
BOB = "b" * 32
ORDERS = "table:lake/sales/orders"
ORDERS_UUID = "5f0c9d1e-0000-4000-8000-000000000001"
RULESET = "pii-1"


def identifier_of(key: str) -> Identifier:
    """Return the identifier that an event key is of."""
    kind, (alias, *path) = parse_key(key)
    if kind == "namespace":
        return Identifier(alias=alias, namespace=tuple(path), name=None)
    return Identifier(alias=alias, namespace=tuple(path[:-1]), name=path[-1])


def dataset(name: str, namespace: str = "lake", *, version: str | None = None) -> LineageDataset:
    """Return a data set as an engine names it; in namespace `lake` a table of that catalog."""
    return LineageDataset(namespace=namespace, name=name, symlinks=(), version=version)


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
        """Return one of the events of `ledger.format.events`, prepared; salts are made up too."""
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
        decision: CommitDecision = CommitDecision.APPROVED,
        *,
        actor: str = ADA,
        principal: str | None = "ada@example.com",
        operation: str = "table.commit",
        reason: Reason | None = None,
        snapshots: Sequence[str] = (),
        table_uuid: str | None = None,
    ) -> PreparedEvent:
        """Return a decision on what `key` names."""
        data = CommitDecided(
            actions=("META_ADD_SNAPSHOT",),
            as_of=self.as_of,
            base=None,
            decision=decision,
            identifier=identifier_of(key),
            operation=operation,
            policy_set="0" * 64,
            principal_source="api_key",
            reason=reason,
            request="1" * 64,
            snapshots=tuple(snapshots),
            table_uuid=table_uuid,
        )
        who = {"actor": actor, "email": None, "roles": ["data-eng"], "source": "api_key", "sub": principal}
        parts = () if principal is None else (("principal", canonical.encode(who)),)
        return self.event(data, key=key, actor=actor, parts=parts)

    def outcome(
        self,
        group_id: UUID,
        key: str = ORDERS,
        outcome: CommitOutcome = CommitOutcome.ACCEPTED,
        *,
        snapshots: Sequence[str] = (),
        table_uuid: str | None = ORDERS_UUID,
    ) -> PreparedEvent:
        """Return the outcome of what that group decided."""
        accepted = outcome is CommitOutcome.ACCEPTED
        data = CommitSettled(
            decision=str(group_id),
            evidence=OutcomeEvidence.ANSWER,
            metadata_location=f"file:///lake/{len(self.groups)}.json" if accepted else None,
            metadata_sha256="2" * 64 if accepted else None,
            outcome=outcome,
            snapshots=tuple(snapshots),
            table_uuid=table_uuid,
        )
        return self.event(data, key=key)

    def decided(self, key: str = ORDERS, decision: CommitDecision = CommitDecision.APPROVED, **more: Any) -> UUID:
        """A decision in a group of its own."""
        return self.add(self.decision(key, decision, **more))

    def settled(
        self, group_id: UUID, key: str = ORDERS, outcome: CommitOutcome = CommitOutcome.ACCEPTED, **more: Any
    ) -> None:
        """An outcome in a group of its own."""
        self.add(self.outcome(group_id, key, outcome, **more))

    def committed(
        self, key: str = ORDERS, *, snapshots: Sequence[str] = (), table_uuid: str | None = ORDERS_UUID, **more: Any
    ) -> UUID:
        """An approved and accepted commit."""
        group_id = self.decided(key, snapshots=snapshots, **more)
        self.settled(group_id, key, snapshots=snapshots, table_uuid=table_uuid)
        return group_id

    def erased(self, *, reason: ErasureReason = ErasureReason.REQUEST, **selected: Any) -> None:
        """The erasure of a person, a part, or whatever is older than an index."""
        every = dict.fromkeys(("before", "index", "name", "subject", "type")) | selected
        self.add(self.event(PayloadErased(reason=reason, **every), key="subject:x", actor="system"))

    def policy(
        self, policy_id: str, version: int = 1, *, expression: str = "true", scope: PolicyScope | None = None
    ) -> None:
        """A version of a policy; without a scope it is one from before there were any."""
        if scope is None:
            before = PolicyCreatedV1 if version == 1 else PolicyChangedV1
            data: EventData = before(id=policy_id, version=version, expression=expression, message="no")
        else:
            contents = PolicyContents(expression=expression, message="no", scope=scope, examples=())
            later = PolicyCreated if version == 1 else PolicyChanged
            rest: dict[str, Any] = {"reason": "", **dict.fromkeys(("active_from", "draft", "author"))}
            data = later(id=policy_id, version=version, contents=contents, **rest)
        self.add(self.event(data, key=format_key("policy", [policy_id])))

    def policy_retired(self, policy_id: str, version: int) -> None:
        """The end of a policy."""
        self.add(
            self.event(PolicyRetired(id=policy_id, version=version, reason=""), key=format_key("policy", [policy_id]))
        )

    def policy_ends(self, policy_id: str, version: int, *, retired_from: str) -> None:
        """The end of a policy at a time to come."""
        event = PolicyRetiredV3(id=policy_id, version=version, reason="", retired_from=retired_from)
        self.add(self.event(event, key=format_key("policy", [policy_id])))

    def observed(
        self, snapshot: str, *, key: str | None = ORDERS, parent: str | None = None, table_uuid: str = ORDERS_UUID
    ) -> None:
        """A snapshot without a request to the gateway."""
        data = CommitObserved(
            identifier=None if key is None else identifier_of(key),
            metadata_location=f"s3://lake/{snapshot}.json",
            operation="append",
            parent=parent,
            snapshot=snapshot,
            table_uuid=table_uuid,
            trigger=None,
        )
        self.add(self.event(data, key=key or format_key("snapshot", [table_uuid, snapshot]), actor="system"))

    def scanned(
        self,
        snapshot: str,
        *found: tuple[str, DetectionKind, int],
        key: str = ORDERS,
        table_uuid: str = ORDERS_UUID,
        of_catalog: bool = True,
        unread: Sequence[UnreadColumn] = (),
    ) -> UUID:
        """A scan and its findings (column, kind, confidence) in one group."""
        completed = ScanCompleted(
            bytes_read=1000,
            cells=500,
            columns=5,
            columns_unread=len(unread),
            files=1,
            findings=len(found),
            gaps=(),
            identifier=identifier_of(key) if of_catalog else None,
            metadata_location=f"s3://lake/{snapshot}.json",
            rows=100,
            rows_sampled=None,
            ruleset=RULESET,
            snapshot=snapshot,
            table_uuid=table_uuid,
            unread=tuple(unread),
        )
        findings = [
            DetectionFound(
                column=column,
                confidence_percent=percent,
                field_id=number,
                kind=kind,
                matches=90,
                ruleset=RULESET,
                snapshot=snapshot,
                table_uuid=table_uuid,
                values=100,
            )
            for number, (column, kind, percent) in enumerate(found, start=1)
        ]
        of = key if of_catalog else format_key("snapshot", [table_uuid, snapshot])
        return self.add(*(self.event(data, key=of, actor="system") for data in (completed, *findings)))

    def reviewed(
        self,
        finding: int,
        verdict: FindingVerdict = FindingVerdict.DISMISSED,
        *,
        version: int = 1,
        reason: str = "test data",
        actor: str = ADA,
    ) -> None:
        """What somebody says of the finding at an index."""
        item = self.entries()[finding]
        assert isinstance(item.event, DetectionFound)
        found = item.event
        data = FindingReviewed(
            column=found.column,
            confidence_percent=found.confidence_percent,
            field_id=found.field_id,
            finding=finding,
            kind=found.kind,
            reason=reason,
            ruleset=found.ruleset,
            snapshot=found.snapshot,
            table_uuid=found.table_uuid,
            verdict=verdict,
            version=version,
        )
        self.add(self.event(data, key=item.entry.key, actor=actor))

    def scan_failed(self, snapshot: str, fault: ScanFault = ScanFault.FILE_MISSING, *, key: str = ORDERS) -> None:
        """A scan that could not be done."""
        data = ScanFailed(
            fault=fault,
            file="s3://lake/1.parquet",
            identifier=identifier_of(key),
            metadata_location=f"s3://lake/{snapshot}.json",
            ruleset=RULESET,
            snapshot=snapshot,
            table_uuid=ORDERS_UUID,
        )
        self.add(self.event(data, key=key, actor="system"))

    def identified(self, key: str = ORDERS, table_uuid: str = ORDERS_UUID) -> None:
        """A catalog elsewhere was asked for a table by its name."""
        data = TableIdentified(
            identifier=identifier_of(key),
            metadata_location=None,
            source=IdentitySource.POLLER,
            table_uuid=table_uuid,
        )
        self.add(self.event(data, key=key, actor="system"))

    def dropped(self, key: str = ORDERS, table_uuid: str | None = ORDERS_UUID) -> None:
        """An accepted commit that leaves nothing."""
        self.add(self.gone(self.decided(key, operation="table.drop"), key, table_uuid))

    def gone(self, group_id: UUID, key: str, table_uuid: str | None) -> PreparedEvent:
        """Return the outcome after which there is no table of that name."""
        data = CommitSettled(
            decision=str(group_id),
            evidence=OutcomeEvidence.ANSWER,
            metadata_location=None,
            metadata_sha256=None,
            outcome=CommitOutcome.ACCEPTED,
            snapshots=(),
            table_uuid=table_uuid,
        )
        return self.event(data, key=key)

    def renamed(self, source: str, destination: str, table_uuid: str = ORDERS_UUID) -> None:
        """A table that the gateway has renamed: a decision and an outcome for each of its names."""
        group_id = self.add(
            self.decision(source, operation="table.rename_from"),
            self.decision(destination, operation="table.rename_to"),
        )
        self.add(
            self.gone(group_id, source, table_uuid),
            self.outcome(group_id, destination, table_uuid=table_uuid),
        )

    def alerted(self, finding: UUID, snapshot: str, column: str = "email") -> UUID:
        """An alert about a finding."""
        data = AlertRaised(
            column=column,
            confidence_percent=92,
            field_id=1,
            finding=str(finding),
            kind=DetectionKind.EMAIL,
            snapshot=snapshot,
            table_uuid=ORDERS_UUID,
        )
        return self.add(self.event(data, key=ORDERS, actor="system"))

    def delivered(self, alert: UUID, *, sink: str = "webhook", attempt: int = 1) -> None:
        """The delivery of an alert."""
        data = AlertDelivered(alert=str(alert), attempt=attempt, sink=sink)
        self.add(self.event(data, key=ORDERS, actor="system"))

    def triggered(self, source: TriggerSource = TriggerSource.S3, *, files: int = 1) -> None:
        """Something from outside."""
        data = TriggerReceived(
            alias="lake", file_count=files, files=(), identifier=None, metadata_location=None, source=source
        )
        self.add(self.event(data, key="catalog:lake", actor="system"))

    def lineage(
        self,
        inputs: Sequence[LineageDataset],
        outputs: Sequence[LineageDataset],
        *,
        columns: Sequence[tuple[str, str]] = (),
        run_id: str | None = "0b9f0b7e-4c9c-4a57-a6f0-0c5d7a1f5f0e",
        job: str = "make_orders",
        engine: str | None = "spark 4.1.4",
        event_type: str = "COMPLETE",
        actor: str = ADA,
    ) -> UUID:
        """A run; `columns` are (of the first input, of the first output)."""
        datasets = tuple(dict.fromkeys((*inputs, *outputs)))
        places = {dataset: position for position, dataset in enumerate(datasets)}
        data = LineageReceived(
            columns=tuple(
                LineageColumn(output=places[outputs[0]], field=field, input=places[inputs[0]], input_field=input_field)
                for input_field, field in columns
            ),
            columns_omitted=0,
            datasets=datasets,
            datasets_omitted=0,
            engine=engine,
            event_time="2026-11-20T12:00:00Z",
            event_type=event_type,
            inputs=tuple(dict.fromkeys(places[dataset] for dataset in inputs)),
            job=DatasetName(namespace="airflow", name=job),
            kind=LineageKind.RUN,
            names_omitted=0,
            outputs=tuple(dict.fromkeys(places[dataset] for dataset in outputs)),
            payload_sha256="3" * 64,
            producer="https://example.com/producer",
            run_id=run_id,
        )
        return self.add(self.event(data, key="run:x", actor=actor))

    def catalog(self, alias: str = "lake") -> None:
        """A catalog, whose tables lineage can name by its alias."""
        data = CatalogCreated(id=alias, version=1, kind="builtin", options={})
        self.add(self.event(data, key=format_key("catalog", [alias])))

    def rule(
        self,
        rule_id: str,
        kind: type[
            AccessRuleCreated | AccessRuleCreatedV1 | AccessRuleCreatedV3 | AccessRuleCreatedV4
        ] = AccessRuleCreated,
    ) -> None:
        """An access rule."""
        data = kind(id=rule_id, version=1, effect=Effect.PERMIT, expression="true")
        self.add(self.event(data, key=format_key("access_rule", [rule_id])))

    def raw(self, event_type: str, version: int = 1) -> None:
        """An event of a type or version that may not be in the vocabulary."""
        event = Event(type=event_type, version=version, key="x:y", actor=ADA, occurred_at=NOON, data={"new": True})
        assert prepare(event).is_control == is_control(event_type)
        self.add(prepare(event))

    def entries(self, origin: str = "example.com/log") -> list[LogEntry]:
        """Return the entries of a log in which just this happened, a second apart, without a database."""
        head, entries = LogHead.empty(), []
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

    def __init__(self, database: str, installation: Provisioned, *, ready: int = 0) -> None:
        """Take the database; the first `ready` tenants have their logs and first generations there (`make_ready`)."""
        self.database = database
        self.installation = installation
        self.roles = installation.roles
        self.dsn = installation.as_role(installation.roles.projector)
        self.graph = GraphProjection()
        self.commits = CommitsProjection()
        self.metrics = MetricsProjection()
        self.findings = FindingsProjection()
        self.lineage = LineageProjection()
        self.projections: tuple[Projection, ...] = (
            self.graph,
            self.commits,
            self.metrics,
            self.findings,
            self.lineage,
        )
        self.without_graph = self.projections[1:]
        """For tests in which it does not matter what is projected: a graph costs ten times as much as the others."""
        self.attested: list[tuple[Log, ProjectionAttested]] = []
        self._ready = iter(range(1, ready + 1))
        self._tenants = count(ready + 1)

    async def new_log(self) -> Log:
        """Return the empty log of another tenant, whose first generations may be there, and empty."""
        number = next(self._ready, None)
        return await (self.untouched_log() if number is None else self._find(number))

    async def untouched_log(self) -> Log:
        """Make a tenant with an empty log that no runner has seen."""
        number = next(self._tenants)
        create_tenant_log(self.database, self.installation, _tenant(number))
        return await self._find(number)

    async def make_ready(self, logs: int) -> None:
        """Make so many logs with their first generations: most of what a test would do otherwise is to make a graph."""
        for _ in range(logs):
            log = await self.untouched_log()
            await self.runner().catch_up(log.log_id, 0)

    async def _find(self, number: int) -> Log:
        async with self.as_projector() as connection:
            return await find_log(connection, self.installation.origin(_tenant(number)))

    async def append(self, log: Log, story: Story) -> None:
        """Append what the story has told since it was last appended."""
        dsn = self.installation.as_role(self.roles.appender)
        async with Appender(dsn, GuardRegistry([])) as appender:
            await asyncio.gather(*(appender.append(log.log_id, group) for group in story.take_new()))

    async def project(self, log: Log, story: Story, **options: Any) -> None:
        """Append and bring all projections up to the end."""
        await self.append(log, story)
        await self.runner(**options).catch_up(log.log_id, story.size)

    def runner(self, **options: Any) -> ProjectionRunner:
        """Return a runner of all projections."""
        return ProjectionRunner(self.dsn, self.projections, **options)

    async def attest(self, log: Log, attested: ProjectionAttested) -> None:
        """Take an attestation as a caller's Appender would."""
        self.attested.append((log, attested))

    @asynccontextmanager
    async def as_projector(self) -> AsyncIterator[Connection]:
        """Yield a connection of the projector role."""
        async with await AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            yield connection

    @asynccontextmanager
    async def as_admin(self) -> AsyncIterator[Connection]:
        """Yield a connection of the superuser."""
        async with await AsyncConnection.connect(self.database, autocommit=True) as connection:
            yield connection

    @asynccontextmanager
    async def as_role(self, role: str) -> AsyncIterator[Connection]:
        """Yield the login role's connection, working as `role` in one transaction."""
        async with (
            await AsyncConnection.connect(self.installation.dsn, autocommit=True) as connection,
            connection.transaction(),
        ):
            await connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
            yield connection

    @asynccontextmanager
    async def as_reader(self, log: Log) -> AsyncIterator[Connection]:
        """Yield a connection that works as the reader of that log's tenant."""
        assert log.reader is not None
        async with self.as_role(log.reader) as connection:
            yield connection


def _tenant(number: int) -> UUID:
    return UUID(int=number << 64, version=4)
