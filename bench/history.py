# SPDX-License-Identifier: Apache-2.0
"""
An invented history of a lake, and a fast way to write it into an empty log: for benches that read a log.

Commits, decided and settled, by 50 people on 2,000 tables under five policies; a refusal now and then; runs of lineage;
scans with two findings each. The entries are the same every time. `ledger.format.sequence` sequences them, and they are
copied in as the owner, because row-level security forbids COPY to the Appender. Tiles are left out, since no projection
reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

import psycopg

from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.event import Event, Part, PreparedEvent, format_key, prepare
from ledger.format.events import (
    CatalogCreated,
    CommitDecided,
    CommitDecision,
    CommitOutcome,
    CommitSettled,
    DatasetName,
    DetectionFound,
    DetectionKind,
    Identifier,
    LineageDataset,
    LineageKind,
    LineageReceived,
    OutcomeEvidence,
    PolicyCreatedV1,
    Reason,
    ScanCompleted,
    to_data,
)
from ledger.format.sequence import Group, LogHead, SequencedEntry, sequence
from ledger.store.read import Log

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TABLES = 2_000
PEOPLE = 50
POLICIES = (
    "result.columns.exists(c, c.name == 'tenant_id')",
    "'data-eng' in principal.roles",
    "!(commit.operation == 'table.drop')",
    "size(result.columns) < 500 && principal.sub != ''",
    "true",
)
GROUPS_LOADED = 500


def history() -> Iterator[Group]:
    """Yield the groups of a log without end, the same ones every time."""
    for number, expression in enumerate(POLICIES):
        policy = PolicyCreatedV1(id=f"p{number}", version=1, expression=expression, message="no")
        yield group_of(number, event(policy, format_key("policy", (policy.id,)), person=0))
    lake = CatalogCreated(id="lake", version=1, kind="builtin", options={})
    yield group_of(len(POLICIES), event(lake, "catalog:lake", person=0))
    for number in range(len(POLICIES) + 1, 2**60):
        table, person = number * 7_919 % TABLES, number % PEOPLE
        match number % 20:
            case 18:
                yield group_of(number, *scan(number, table))
            case 19:
                yield group_of(number, event(run(number, table), "run:x", person))
            case 7:
                reason = Reason(id="p1", version=1)
                yield group_of(number, decision(number, table, person, CommitDecision.REJECTED, reason))
            case _:
                yield group_of(
                    number, decision(number, table, person, CommitDecision.APPROVED, None), outcome(number, table)
                )


def group_of(number: int, *events: PreparedEvent) -> Group:
    """Return the group of that number."""
    return Group(id=UUID(int=(1 << 127) + number, version=4), then=events)


def event(data: object, key: str, person: int, parts: tuple[Part, ...] = ()) -> PreparedEvent:
    """Return an event of that person."""
    return prepare(
        Event(
            type=type(data).TYPE,  # type: ignore[attr-defined]  # any of the vocabulary
            version=type(data).VERSION,  # type: ignore[attr-defined]
            key=key,
            actor=f"{person:032x}",
            occurred_at=NOON,
            data=to_data(data),
            parts=parts,
        )
    )


def decision(
    number: int,
    table: int,
    person: int,
    decided: CommitDecision,
    reason: Reason | None,
    *,
    uuid: str | None = None,
    as_of: int = len(POLICIES),
    policy_set: str = "0" * 64,
) -> PreparedEvent:
    """Return a decision on a commit; a table's `uuid` is its number unless it is given, here and below."""
    name, actor = f"person-{person}@example.com", f"{person:032x}"
    who: dict[str, Json] = {"actor": actor, "email": name, "issuer": None, "key": None, "sub": name}
    who |= {"roles": ["data-eng"], "source": "api_key"}
    data = CommitDecided(
        actions=("META_ADD_SNAPSHOT", "META_SET_SNAPSHOT_REF"),
        as_of=as_of,
        base=f"s3://lake/t{table}/metadata/{number - 1}.metadata.json",
        decision=decided,
        identifier=identifier(table),
        operation="table.commit",
        policy_set=policy_set,
        principal_source="api_key",
        reason=reason,
        request="1" * 64,
        snapshots=(str(number),),
        table_uuid=uuid or table_uuid(table),
    )
    principal = Part(name="principal", payload=canonical.encode(who), salt=bytes(32), subject=f"{person:032x}")
    return event(data, key_of(table), person, (principal,))


def outcome(number: int, table: int, *, group: UUID | None = None, uuid: str | None = None) -> PreparedEvent:
    """Return the outcome of the commit that the group of that number decides, or the one with the id `group`."""
    data = CommitSettled(
        decision=str(group or group_of(number).id),
        evidence=OutcomeEvidence.ANSWER,
        metadata_location=f"s3://lake/t{table}/metadata/{number}.metadata.json",
        metadata_sha256="2" * 64,
        outcome=CommitOutcome.ACCEPTED,
        snapshots=(str(number),),
        table_uuid=uuid or table_uuid(table),
    )
    return event(data, key_of(table), 0)


def scan(number: int, table: int, *, uuid: str | None = None) -> tuple[PreparedEvent, ...]:
    """Return a scan with two findings."""
    completed = ScanCompleted(
        bytes_read=1_000_000,
        cells=100_000,
        columns=10,
        columns_unread=0,
        files=1,
        findings=2,
        gaps=(),
        identifier=identifier(table),
        metadata_location=f"s3://lake/t{table}/metadata/{number}.metadata.json",
        rows=10_000,
        rows_sampled=None,
        ruleset="pii-1",
        snapshot=str(number),
        table_uuid=uuid or table_uuid(table),
        unread=(),
    )
    found = (
        DetectionFound(
            column=f"c{field_id}",
            confidence_percent=92,
            field_id=field_id,
            kind=kind,
            matches=9_000,
            ruleset="pii-1",
            snapshot=str(number),
            table_uuid=uuid or table_uuid(table),
            values=10_000,
        )
        for field_id, kind in ((3, DetectionKind.EMAIL), (4, DetectionKind.IBAN))
    )
    return tuple(event(data, key_of(table), 0) for data in (completed, *found))


def run(number: int, table: int) -> LineageReceived:
    """Return a run that made a table from two others; tables are made from those of lower numbers, so no cycle."""
    names = [f"sales.t{of}" for of in {table, table // 2, table // 3}]
    return LineageReceived(
        columns=(),
        columns_omitted=0,
        datasets=tuple(LineageDataset(namespace="lake", name=name, symlinks=(), version=None) for name in names),
        datasets_omitted=0,
        engine="spark 4.1.4",
        event_time="2026-11-20T12:00:00Z",
        event_type="COMPLETE",
        inputs=tuple(position for position, name in enumerate(names) if name != f"sales.t{table}"),
        job=DatasetName(namespace="jobs", name=f"make-{table}"),
        kind=LineageKind.RUN,
        names_omitted=0,
        outputs=(names.index(f"sales.t{table}"),),
        payload_sha256=f"{number:064x}",
        producer="https://example.com/producer",
        run_id=str(UUID(int=number)),
    )


def key_of(table: int) -> str:
    """Return the key of the table of that number."""
    return f"table:lake/sales/t{table}"


def identifier(table: int) -> Identifier:
    """Return the same as an identifier."""
    return Identifier(alias="lake", namespace=("sales",), name=f"t{table}")


def table_uuid(table: int) -> str:
    """Return its uuid."""
    return str(UUID(int=table))


def load(admin_dsn: str, log: Log, entries: int) -> int:
    """Fill the empty log with at least so many entries of the history; return their number."""
    head, groups, clock = LogHead.empty(), history(), NOON
    with psycopg.connect(admin_dsn) as connection:
        while head.size < entries:
            clock += timedelta(milliseconds=1)
            batch = sequence(head, list(islice(groups, GROUPS_LOADED)), log=log.origin, stored={}, clock=clock)
            try:
                next(batch)
            except StopIteration as end:
                rows, head = end.value.rows, end.value.head
            copy_rows(connection, log.log_id, rows)
        connection.execute(
            "UPDATE ledger.heads SET size = %s, last = %s, frontier = %s, control_index = %s, recorded_at = %s"
            " WHERE log_id = %s",
            (head.size, head.last, head.frontier.pack(), head.control_index, head.recorded_at, log.log_id),
        )
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE ledger.entries, ledger.parts")
    return head.size


def copy_rows(connection: psycopg.Connection[Any], log_id: int, rows: list[SequencedEntry]) -> None:
    """Copy sequenced rows, and the parts that belong to them."""
    columns = "log_id, index, entry, leaf, type, key, is_control, group_id"
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY ledger.entries ({columns}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(
                    (log_id, row.index, row.entry, row.leaf, row.type, row.key, row.is_control, row.group_id)
                )
        with cursor.copy("COPY ledger.parts (log_id, index, name, subject, sealed) FROM STDIN") as copy:
            for row in rows:
                for part in row.parts:
                    copy.write_row((log_id, row.index, part.name, part.subject, part.salt + part.payload))
