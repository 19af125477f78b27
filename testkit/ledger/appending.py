# SPDX-License-Identifier: Apache-2.0
"""What tests of the Appender share: groups to append, and checks of what the database really holds afterwards."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Final
from uuid import UUID

import psycopg
import pytest
from psycopg import AsyncConnection, sql
from psycopg.conninfo import make_conninfo

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.format.canonical import Json
from ledger.format.entry import Branch, Entry, parse_entry
from ledger.format.event import Event, Part, PreparedEvent, prepare, random_group_id
from ledger.format.guards import Guard, GuardCall, GuardRegistry
from ledger.format.sequence import Appended, Group, Stale
from ledger.format.verification import VerificationReport
from ledger.store.queries import load_queries
from ledger.store.read import Log, read_entries, read_head, read_logs
from ledger.verify.database import verify_database

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CONFIRM = load_queries("ledger.store", "signing.sql")["confirm"]
SESSIONS: Final = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'lakeproof appender' AND datname = current_database()"
)
"""Asks for the process ids of the appenders' sessions in this database."""


_tenants: Final = defaultdict[str, Iterator[int]](count)
"""How many tenants have logs in each database."""


def new_log(database: str, installation: Provisioned) -> int:
    """
    Make the log of one more tenant; return its log_id.

    Tenants have the same ids in every database: each new one would be one more role of the server, and with a thousand
    of these every session begins twice as slowly.
    """
    return create_tenant_log(database, installation, UUID(int=next(_tenants[database]), version=4))


def logged(caplog: pytest.LogCaptureFixture, name: str) -> list[tuple[int, str]]:
    """Return what the logger of that name has said, with the levels."""
    return [(record.levelno, record.message) for record in caplog.records if record.name == name]


def new_id() -> UUID:
    """Return a fresh UUIDv7."""
    return random_group_id(now_ms=time.time_ns() // 1_000_000, random=os.urandom(10))


def event(
    data: Mapping[str, Json] | None = None,
    *,
    kind: str = "commit.decided",
    key: str = "table:lake/t",
    payloads: Mapping[str, bytes] | None = None,
) -> PreparedEvent:
    """Return an event whose parts, if any, have fresh salts."""
    parts = tuple(Part(name=name, payload=data, salt=os.urandom(32)) for name, data in (payloads or {}).items())
    return prepare(Event(type=kind, version=1, key=key, actor="system", occurred_at=NOON, data=data or {}, parts=parts))


def group(*events: PreparedEvent, group_id: UUID | None = None, as_of: int | None = None) -> Group:
    """Return an unguarded group of these events, or of one if none is given."""
    return Group(id=group_id or new_id(), then=events or (event(),), as_of=as_of)


def aggregate(key: str, version: int, *, otherwise: tuple[PreparedEvent, ...] = ()) -> Group:
    """Return a group that brings the aggregate of that key to that version, if it is at the one before."""
    call = (
        GuardCall("aggregate.create", {"key": key})
        if version == 1
        else GuardCall("aggregate.change", {"key": key, "version": version})
    )
    kind = "policy.created" if version == 1 else "policy.changed"
    then = (event({"id": key.partition(":")[2], "version": version}, kind=kind, key=key),)
    return Group(id=new_id(), then=then, otherwise=otherwise, guard=(call,))


def appender_dsn(installation: Provisioned, *, host: str | None = None) -> str:
    """Return the appender role's connection string, through the proxy in the directory `host` if there is one."""
    dsn = installation.as_role(installation.roles.appender)
    return dsn if host is None else make_conninfo(dsn, host=host)


def appender(installation: Provisioned, *guards: Guard, host: str | None = None) -> Appender:
    """Return an Appender, not started, that knows these guards besides those of the core."""
    return Appender(appender_dsn(installation, host=host), GuardRegistry((*CORE_GUARDS, *guards)))


def appended(outcome: Appended | Stale) -> Appended:
    """Return the outcome if the group is in the log, and fail if not."""
    assert isinstance(outcome, Appended)
    return outcome


def confirm(database: str, installation: Provisioned) -> None:
    """Do what the signer does when it has compared every head with its notes after a restart of the server."""
    with psycopg.connect(database) as connection:
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(installation.roles.signer)))
        sizes: dict[int, int] = dict(connection.execute("SELECT log_id, size FROM ledger.heads").fetchall())
        connection.execute(CONFIRM, {"log_ids": list(sizes), "sizes": list(sizes.values())})


async def read_log(database: str, log_id: int) -> list[Entry]:
    """Return all entries of a log, behind the head lock: nothing that was on its way is still to come."""
    async with await AsyncConnection.connect(database) as connection:
        await connection.execute("SELECT FROM ledger.heads WHERE log_id = %s FOR UPDATE", (log_id,))
        size = (await read_head(connection, log_id)).size
        return [parse_entry(entry) for entry in await read_entries(connection, log_id, from_index=0, to_index=size)]


def places(entries: list[Entry], group_id: UUID) -> tuple[Branch, range] | None:
    """Return where a group is in its log, and which branch of it, or None."""
    found = [entry for entry in entries if entry.group_id == group_id]
    if not found:
        return None
    return found[0].branch, range(found[0].index, found[-1].index + 1)


async def verify(installation: Provisioned, log_id: int) -> VerificationReport:
    """Verify everything about a log that the database holds; no checkpoint is required."""
    dsn = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        logs: dict[int, Log] = {log.log_id: log for log in await read_logs(connection)}
        return await verify_database(connection, logs[log_id], [])
