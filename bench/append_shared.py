# SPDX-License-Identifier: Apache-2.0
"""
What callers share, and what repeated calls cost: the flushes of a hundred tenants, the price of idempotency.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import LiteralString
from unittest.mock import patch
from uuid import uuid4

import psycopg

from bench.append_sides import example_event, in_turns, log, new_groups
from bench.servers import new_database
from bench.waiting import wait_for
from lakeproof.provision import create_tenant_log, provision
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Group
from ledger.store.wire import Query, Statement

LOGS = 100
ROUNDS = 20
END_TIMEOUT_S = 30.0
NO_APPENDER = "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'lakeproof appender')"
FLUSHES = "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal' AND backend_type = 'client backend'"
COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
NOTHING = Query("SELECT NULL::integer, NULL::bigint, NULL::bytea WHERE false")


def hundred_logs(admin_dsn: str, dsn: str, logs: Sequence[int]) -> dict[str, float]:
    """
    Let each of many tenants append one event at the same time, again and again; returns what a round costs.

    The server counts flushes of its write-ahead log by client sessions and commits, when a session ends: so a session
    of one round is taken away from one of many.
    """
    few = _rounds(admin_dsn, dsn, logs, 1)
    many = _rounds(admin_dsn, dsn, logs, 1 + ROUNDS)
    return {"logs": len(logs)} | {name: round((many[name] - few[name]) / ROUNDS, 2) for name in few}


def _rounds(admin_dsn: str, dsn: str, logs: Sequence[int], rounds: int) -> dict[str, float]:
    before = asyncio.run(_counters(admin_dsn))
    took_s = asyncio.run(_append_rounds(dsn, logs, rounds))
    after = asyncio.run(_counters(admin_dsn))
    return {"ms": 1000 * took_s} | {name: after[name] - before[name] for name in before}


async def _append_rounds(dsn: str, logs: Sequence[int], rounds: int) -> float:
    event = example_event()
    async with Appender(dsn, GuardRegistry(CORE_GUARDS)) as appender:
        begin = time.perf_counter()
        for _ in range(rounds):
            groups = new_groups(event, len(logs))
            await asyncio.gather(*(appender.append(one, group) for one, group in zip(logs, groups, strict=True)))
        return time.perf_counter() - begin


async def _counters(admin_dsn: str) -> dict[str, float]:
    async with await psycopg.AsyncConnection.connect(admin_dsn, autocommit=True) as connection:

        async def fetch(query: LiteralString) -> float | None:
            row = await (await connection.execute(query)).fetchone()
            return None if row is None or row[0] is None else float(row[0])

        # A session's counts are there when it has ended.
        await wait_for(lambda: fetch(NO_APPENDER), "the Appender's sessions end", timeout_s=END_TIMEOUT_S, pause_s=0.01)
        flushes, commits = await fetch(FLUSHES), await fetch(COMMITS)
    assert flushes is not None
    assert commits is not None
    return {"flushes": flushes, "transactions": commits}


def idempotency(admin_dsn: str, *, callers: Sequence[int], seconds: float, rounds: int) -> list[dict[str, object]]:
    """
    Return what it costs to append an id once: the Appender against itself without lookup and without unique index.

    Each has a database of its own. Without: the index of group ids is dropped, and the lookup is a statement that
    looks at nothing.
    """
    logs = {name: _database(admin_dsn, name) for name in ("idempotent", "not_idempotent")}
    with psycopg.connect(logs["not_idempotent"][0], autocommit=True) as connection:
        connection.execute("DROP INDEX ledger.entries_group")
    event = example_event()
    found: list[dict[str, object]] = []
    for count in callers:
        of_round: dict[str, list[float]] = {name: [] for name in logs}
        for _ in range(rounds):
            for name, (_, dsn, log_id) in logs.items():
                with nullcontext() if name == "idempotent" else _no_look_up():
                    one = in_turns({name: log(dsn, log_id, event)}, callers=count, seconds=seconds, rounds=1)
                of_round[name].append(one[name]["per_second"])
        with_, without = (sorted(rates)[len(rates) // 2] for rates in of_round.values())
        cost = round(100 * (1 - with_ / without), 1)
        found.append({"callers": count, "with_per_second": with_, "without_per_second": without, "cost_percent": cost})
    return found


def _database(admin_dsn: str, name: str) -> tuple[str, str, int]:
    """Make a database with one log; returns the owner's and the Appender's connection strings, and the log."""
    owner = new_database(admin_dsn, name)
    installation = provision(owner, login_password=secrets.token_urlsafe())
    return owner, installation.as_role(installation.roles.appender), create_tenant_log(owner, installation, uuid4())


@contextmanager
def _no_look_up() -> Iterator[None]:
    def find_nothing(_: Mapping[int, Sequence[Group]]) -> Statement:
        return NOTHING, {}

    with patch("ledger.append.batch.find_groups", find_nothing):
        yield
