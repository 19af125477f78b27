# SPDX-License-Identifier: Apache-2.0
"""
An installation that was used in every way that leaves rows, and what its owner can change outside its logs.

Each change is a class of tampering of its own: what is done, how it is undone, and the place that is named then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import psycopg
from psycopg import AsyncConnection

from lakeproof.commands.verify_database import check_log_deeply
from lakeproof.installation import Installation
from lakeproof.projecting import PROJECTIONS, attest
from lakeproof.serving.system_log import record_in_system_log
from lakeproof.signing import open_signer
from lakeproof.tenants import found_tenant
from ledger.anchoring.anchor_log import anchor_logs
from ledger.errors import BrokenError, Fault
from ledger.store.read import Log, find_log, read_head
from ledger.store.session import Connection
from projections.graph.write import graph_name
from projections.processing.generations import rebuild
from projections.processing.runner import ProjectionRunner
from streams.handlers.alerts import Alerts
from testkit.gateway.backup_history import live_before, live_on
from testkit.gateway.decisions import decide
from testkit.gateway.sales import ORDERS, properties
from testkit.servers.gateways import Gateway

KEPT: Final = (
    "ledger.logs",
    "ledger.aggregates",
    "ledger.recorded_events",
    "ledger.erased_subjects",
    "ledger.checkpoints",
    "gateway.api_keys",
    "gateway.key_macs",
    "gateway.namespaces",
    "gateway.tables",
    "gateway.catalog_places",
    "gateway.open_decisions",
    "gateway.purges",
    "gateway.request_keys",
    "detection.marks",
    "detection.positions",
    "streams.cursors",
    "projections.commits",
    "projections.cursors",
)
"""What is changed, and put back."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is done, and how the place begins that is named; `undo` says how it is undone, if rows are not all."""

    statement: str
    where: str
    of_system: bool = False
    undo: str = ""
    fault: Fault = Fault.DERIVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """An installation that has been used, and its owner, who may change anything."""

    gateway: Gateway
    owner: psycopg.Connection
    installation: Installation
    auditor: Connection
    acme: Log
    system: Log
    names: Mapping[str, str]
    """What stands in the braces of a statement: roles, the tenant's graph, texts of functions."""

    async def check(self, log: Log) -> Sequence[str]:
        return await check_log_deeply(self.installation, self.auditor, log)

    async def verdict(self, change: Change) -> tuple[str, Fault | None]:
        """Make a change, return the place and the fault that are named then, and undo the change."""
        log = self.system if change.of_system else self.acme
        try:
            self.make(change.statement)
            await self.check(log)
        except BrokenError as error:
            return error.where, error.fault
        finally:
            if change.undo:
                self.owner.execute(change.undo.format(**self.names).encode())
            else:
                self.put_back()
        return "", None

    def make(self, statement: str) -> None:
        """Do what only the owner can; no trigger is in the way."""
        with self.owner.transaction():
            self.owner.execute("SET LOCAL session_replication_role = replica")
            done = self.owner.execute(statement.format(**self.names).encode())
            assert done.rowcount != 0, statement

    def put_back(self) -> None:
        with self.owner.transaction():
            self.owner.execute("SET LOCAL session_replication_role = replica")
            self.owner.execute("DELETE FROM ledger.heads WHERE log_id NOT IN (SELECT log_id FROM kept.ledger_logs)")
            for table in reversed(KEPT):
                self.owner.execute(f"DELETE FROM {table}".encode())  # noqa: S608
            for table in KEPT:
                saved = table.replace(".", "_")
                self.owner.execute(f"INSERT INTO {table} OVERRIDING SYSTEM VALUE TABLE kept.{saved}".encode())


@asynccontextmanager
async def used(gateway: Gateway) -> AsyncIterator[Home]:
    """Use a gateway in every way that leaves rows; a second tenant has done nothing."""
    services = gateway.services
    revoked = await live_before(gateway)
    await live_on(gateway, revoked)
    await decide(services, gateway.acme.log_id)
    await found_tenant(services, name="other", identity="eve@other.example")
    installation = services.installation
    signer = await open_signer(services.installation)
    await signer.sign_once()
    await record_in_system_log(services, signer.keys)
    auditor = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(auditor, autocommit=True) as connection:
        for _ in range(2):
            await signer.sign_once()
            await anchor_logs(
                connection,
                services.system,
                services.gateway.append,
                open_note=signer.keys.open,
                clock=services.gateway.clock,
            )
            (await gateway.http.post(ORDERS, json=properties(n="again"))).raise_for_status()
        await project(gateway)
        with psycopg.connect(services.installation.admin_dsn, autocommit=True) as owner:
            owner.execute("CREATE SCHEMA kept")
            position = "INSERT INTO detection.positions VALUES (%s, 1)"
            owner.execute(position, (gateway.acme.log_id,))
            cursor = "INSERT INTO streams.cursors VALUES (%s, %s, 3, 2)"
            owner.execute(cursor, (Alerts.name, gateway.acme.log_id))
            for table in KEPT:
                owner.execute(f"CREATE TABLE kept.{table.replace('.', '_')} AS TABLE {table}".encode())
            yield Home(
                gateway=gateway,
                owner=owner,
                installation=services.installation,
                auditor=connection,
                acme=await find_log(connection, gateway.acme.origin),
                system=services.system,
                names={
                    **installation.roles.duties(),
                    "first": FIRST,
                    "login": installation.roles.login,
                    "tenant": installation.roles.tenant(gateway.acme.tenant),
                    "graph": graph_name(gateway.acme.tenant, 2),
                    "database": str(owner.info.dbname),
                    "log_of": text_of(owner, "ledger.log_of(name)"),
                },
            )


def text_of(owner: psycopg.Connection, function: str) -> str:
    """Return the statement that makes a function again."""
    (text,) = owner.execute("SELECT pg_get_functiondef(%s::regprocedure)", (function,)).fetchone() or ("",)
    return str(text)


async def project(gateway: Gateway) -> None:
    """Bring the read models up to date, have two of them rebuilt and attested, and let the log grow on."""
    services = gateway.services
    projector = services.installation.as_role(services.installation.roles.projector)
    runner = ProjectionRunner(projector, PROJECTIONS, opener=services.opener)
    async with services.gateway.database.as_role(services.gateway.roles.auditor) as connection:
        log = await find_log(connection, gateway.acme.origin)
        await runner.catch_up(log.log_id, (await read_head(connection, log.log_id)).size)
    for projection in (PROJECTIONS[0], PROJECTIONS[-1]):
        await rebuild(projector, projection, log, append=partial(attest, services), opener=services.opener)
    (await gateway.http.post(ORDERS, json=properties(n="and again"))).raise_for_status()
    async with services.gateway.database.as_role(services.gateway.roles.auditor) as connection:
        await runner.catch_up(log.log_id, (await read_head(connection, log.log_id)).size)


FIRST: Final = "(SELECT log_id FROM ledger.logs WHERE tenant IS NOT NULL ORDER BY log_id LIMIT 1)"
TABLE = "gateway.tables table:lake/sales/orders"
NOTE = "ledger.recorded_events event/aggregate:note"
KEY = "(log_id, key_id, prefix, hash, actor)"
_BESIDE: Final = (
    ("UPDATE gateway.tables SET metadata_location = 'x' WHERE name = 'orders'", TABLE),
    ("UPDATE gateway.tables SET table_uuid = gen_random_uuid() WHERE name = 'orders'", TABLE),
    ("UPDATE gateway.tables SET metadata_sha256 = repeat('0', 64) WHERE name = 'orders'", TABLE),
    ("UPDATE gateway.tables SET places = '{{}}', folders = '{{}}' WHERE name = 'orders'", TABLE),
    ("UPDATE gateway.tables SET is_view = true WHERE name = 'orders'", TABLE),
    ("UPDATE gateway.tables SET looks = '{{}}' WHERE name = 'orders'", TABLE),
    ("UPDATE gateway.tables SET name = 'gone' WHERE name = 'orders'", "gateway.tables table:lake/sales/gone"),
    ("DELETE FROM gateway.tables WHERE name = 'orders'", TABLE),
    ("UPDATE ledger.aggregates SET version = 7 WHERE key = 'policy:p'", "ledger.aggregates policy:p"),
    ("DELETE FROM ledger.aggregates WHERE key = 'policy:p'", "ledger.aggregates policy:p"),
    ("INSERT INTO ledger.aggregates VALUES ({first}, 'policy:a', 1)", "ledger.aggregates policy:a"),
    (
        "INSERT INTO ledger.recorded_events VALUES ({first}, 'event', 'aggregate:ghost', 1, gen_random_uuid(), 0)",
        "ledger.recorded_events event/aggregate:ghost/1",
    ),
    ("DELETE FROM ledger.recorded_events WHERE kind = 'event' AND version = 2", f"{NOTE}/2"),
    ("DELETE FROM ledger.recorded_events WHERE kind = 'snapshot'", "ledger.recorded_events snapshot/aggregate:note/1"),
    ("UPDATE ledger.recorded_events SET version = 7 WHERE kind = 'event' AND version = 3", f"{NOTE}/3"),
    ("UPDATE ledger.recorded_events SET originator = 'aggregate:other' WHERE version = 3", f"{NOTE}/3"),
    ("UPDATE ledger.recorded_events SET position = 1 - position WHERE version > 1 AND kind = 'event'", f"{NOTE}/2"),
    (
        "UPDATE ledger.recorded_events SET group_id = gen_random_uuid() WHERE kind = 'event' AND version = 1",
        f"{NOTE}/1",
    ),
    (
        "UPDATE ledger.recorded_events SET kind = 'snapshot' WHERE kind = 'event' AND version = 2",
        f"{NOTE}/2",
    ),
    (
        "INSERT INTO ledger.erased_subjects VALUES ({first}, 'eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee')",
        "ledger.erased_subjects eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee",
    ),
    (
        (
            "INSERT INTO gateway.api_keys SELECT log_id, 'ghost', 'ghostghostgh', hash, actor FROM gateway.api_keys "
            "WHERE log_id = {first} LIMIT 1"
        ),
        "gateway.api_keys ghost",
    ),
    ("DELETE FROM gateway.api_keys WHERE log_id = {first}", "gateway.api_keys "),
    (
        "UPDATE gateway.api_keys SET actor = 'ffffffffffffffffffffffffffffffff' WHERE log_id = {first}",
        "gateway.api_keys ",
    ),
    (
        "INSERT INTO gateway.namespaces VALUES ({first}, 'lake', '{{ghost}}', '{{}}')",
        "gateway.namespaces namespace:lake/ghost",
    ),
    (
        'UPDATE gateway.namespaces SET properties = \'{{"location": "s3://x"}}\'',
        "gateway.namespaces namespace:lake/sales",
    ),
    ("DELETE FROM gateway.namespaces WHERE namespace = '{{sales,eu}}'", "gateway.namespaces namespace:lake/sales/eu"),
    ("UPDATE gateway.catalog_places SET held = false WHERE alias = 'kept'", "gateway.catalog_places kept/"),
    ("UPDATE gateway.catalog_places SET held = true WHERE alias = 'lost'", "gateway.catalog_places lost/"),
    ("DELETE FROM gateway.purges", "gateway.purges "),
    ("UPDATE gateway.purges SET places = '{{}}', folders = '{{}}'", "gateway.purges "),
    ("UPDATE gateway.purges SET metadata_location = 'x'", "gateway.purges "),
    ("UPDATE gateway.purges SET key = key || 'x'", "gateway.purges "),
    ("DELETE FROM gateway.open_decisions", "gateway.open_decisions "),
    ("UPDATE gateway.open_decisions SET result = NULL", "gateway.open_decisions "),
    ("UPDATE gateway.open_decisions SET is_unknown = NOT is_unknown", "gateway.open_decisions "),
    (
        (
            "INSERT INTO gateway.open_decisions SELECT log_id, '00000000-0000-4000-8000-000000000000', key, operation, "
            "alias, namespace, name, base, table_uuid, snapshots, owner, deadline, requirements, result, is_unknown "
            "FROM gateway.open_decisions LIMIT 1"
        ),
        "gateway.open_decisions 00000000-",
    ),
    ("INSERT INTO detection.marks VALUES ({first}, 'a', 'b', 'c')", "detection.marks a/b/c"),
    ("UPDATE detection.marks SET scans = scans + 1", "detection.marks "),
    ("DELETE FROM detection.marks", "detection.marks "),
    ("UPDATE gateway.request_keys SET key = sha256('x')", "gateway.request_keys"),
    ("INSERT INTO streams.cursors VALUES ('ghost', {first})", "streams.cursors ghost"),
    ("UPDATE streams.cursors SET next_index = 1000000", "streams.cursors alerts"),
    ("UPDATE streams.cursors SET handled = 4", "streams.cursors alerts"),
    ("UPDATE detection.positions SET next_index = 1000000", "detection.positions"),
    ("UPDATE projections.cursors SET next_index = 1000000 WHERE projection = 'lineage'", "projections.cursors lineage"),
    ("UPDATE projections.commits SET principal = 'somebody else'", "projection commits, generation 2"),
    (
        "DELETE FROM projections.commits WHERE index = (SELECT max(index) FROM projections.commits)",
        "projection commits",
    ),
)
"""What is changed outside the tenant's log, and the beginning of the place that the fault names."""
_BESIDE_SYSTEM: Final = (
    ("UPDATE ledger.aggregates SET version = 9 WHERE key = 'logs:anchored'", "ledger.aggregates logs:anchored"),
    ("DELETE FROM ledger.aggregates WHERE key = 'logs:anchored'", "ledger.aggregates logs:anchored"),
    (
        "INSERT INTO gateway.request_keys SELECT log_id, sha256('x') FROM ledger.logs WHERE tenant IS NULL",
        "gateway.request_keys",
    ),
    ("UPDATE ledger.logs SET reader = 'postgres' WHERE log_id = {first}", "ledger.logs "),
    ("DELETE FROM ledger.logs WHERE log_id = (SELECT max(log_id) FROM ledger.logs)", "ledger.logs of tenant "),
    (
        (
            "WITH ghost AS (INSERT INTO ledger.logs (origin, tenant, reader) "
            "SELECT replace(origin, 'system', repeat('1', 32)), repeat('1', 32)::uuid, "
            "(SELECT left(reader, 14) FROM ledger.logs WHERE tenant IS NOT NULL LIMIT 1) || repeat('1', 32) "
            "FROM ledger.logs WHERE tenant IS NULL RETURNING log_id) "
            "INSERT INTO ledger.heads SELECT log_id, 1, sha256(''), sha256(''), -1, now() FROM ghost"
        ),
        "ledger.logs ",
    ),
)
"""The same outside the system log."""
_NEWEST: Final = (
    "DELETE FROM ledger.checkpoints AS d WHERE d.log_id ! {first} "
    "AND d.size = (SELECT max(c.size) FROM ledger.checkpoints AS c WHERE c.log_id = d.log_id)"
)
_MACHINERY: Final = (
    (
        (
            "CREATE TRIGGER evil BEFORE UPDATE ON ledger.entries FOR EACH ROW "
            "EXECUTE FUNCTION suppress_redundant_updates_trigger()"
        ),
        "DROP TRIGGER evil ON ledger.entries",
        "trigger ledger.entries.evil",
    ),
    (
        (
            "CREATE TRIGGER evil BEFORE UPDATE ON ledger.parts FOR EACH ROW "
            "EXECUTE FUNCTION suppress_redundant_updates_trigger()"
        ),
        "DROP TRIGGER evil ON ledger.parts",
        "trigger ledger.parts.evil",
    ),
    (
        "CREATE RULE evil AS ON DELETE TO ledger.parts DO INSTEAD NOTHING",
        "DROP RULE evil ON ledger.parts",
        "rule ledger.parts.evil",
    ),
    (
        "GRANT DELETE ON ledger.entries TO {appender}",
        "REVOKE DELETE ON ledger.entries FROM {appender}",
        "table ledger.entries (grants)",
    ),
    (
        "GRANT UPDATE (entry) ON ledger.entries TO {appender}",
        "REVOKE UPDATE (entry) ON ledger.entries FROM {appender}",
        "column ledger.entries.entry (grants)",
    ),
    ("GRANT USAGE ON SCHEMA ledger TO PUBLIC", "REVOKE USAGE ON SCHEMA ledger FROM PUBLIC", "schema ledger (grants)"),
    ("ALTER ROLE {gateway} BYPASSRLS", "ALTER ROLE {gateway} NOBYPASSRLS", "role {gateway}"),
    ("ALTER ROLE {login} SUPERUSER", "ALTER ROLE {login} NOSUPERUSER", "role {login}"),
    ("ALTER ROLE {tenant} BYPASSRLS", "ALTER ROLE {tenant} NOBYPASSRLS", "role {t_"),
    ("GRANT {owner} TO {tenant}", "REVOKE {owner} FROM {tenant}", "membership {t_"),
    (
        "ALTER TABLE ledger.entries DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE ledger.entries ENABLE ROW LEVEL SECURITY",
        "table ledger.entries",
    ),
    ("CREATE POLICY evil ON ledger.parts USING (true)", "DROP POLICY evil ON ledger.parts", "policy ledger.parts.evil"),
    (
        (
            "CREATE OR REPLACE FUNCTION ledger.log_of(reader name) RETURNS integer LANGUAGE sql STABLE "
            "SECURITY DEFINER PARALLEL SAFE SET search_path = '' RETURN 1"
        ),
        "{log_of}",
        "function ledger.log_of(name)",
    ),
    (
        "ALTER TABLE gateway.tables DISABLE TRIGGER ALL",
        "ALTER TABLE gateway.tables ENABLE TRIGGER ALL",
        "table gateway.tables",
    ),
    (
        "DROP INDEX ledger.entries_group",
        "CREATE UNIQUE INDEX entries_group ON ledger.entries (log_id, group_id) WHERE group_id IS NOT NULL",
        "index ledger.entries_group",
    ),
    (
        "ALTER TABLE ledger.entries DROP CONSTRAINT entries_leaf_check",
        "ALTER TABLE ledger.entries ADD CONSTRAINT entries_leaf_check CHECK (length(leaf) = 32)",
        "constraint ledger.entries.entries_leaf_check",
    ),
    (
        "ALTER TABLE ledger.entries ALTER leaf DROP NOT NULL",
        "ALTER TABLE ledger.entries ALTER leaf SET NOT NULL",
        "column ledger.entries.leaf",
    ),
    (
        "ALTER ROLE {auditor} SET row_security = off",
        "ALTER ROLE {auditor} RESET row_security",
        "setting {auditor} row_security",
    ),
    (
        "GRANT CREATE ON DATABASE {database} TO {reader}",
        "REVOKE CREATE ON DATABASE {database} FROM {reader}",
        "database itself (grants)",
    ),
    (
        "GRANT EXECUTE ON FUNCTION ag_catalog.graph_exists(name) TO PUBLIC",
        "REVOKE EXECUTE ON FUNCTION ag_catalog.graph_exists(name) FROM PUBLIC",
        "rights in ag_catalog of PUBLIC",
    ),
    ("GRANT USAGE ON SCHEMA {graph} TO {reader}", "REVOKE USAGE ON SCHEMA {graph} FROM {reader}", "graph g_"),
    (
        'GRANT UPDATE ON {graph}."WriteEvent" TO {tenant}',
        'REVOKE UPDATE ON {graph}."WriteEvent" FROM {tenant}',
        "graph g_",
    ),
)
"""What decides who may write and what readers are shown: how it is changed, and how that is undone."""
CHANGES: Final = (
    *(Change(statement, where) for statement, where in _BESIDE),
    *(Change(statement, where, of_system=True) for statement, where in _BESIDE_SYSTEM),
    Change(_NEWEST.replace("!", "="), "ledger.checkpoints", fault=Fault.CHECKPOINT),
    Change(_NEWEST.replace("!", "<>"), "ledger.checkpoints", of_system=True, fault=Fault.CHECKPOINT),
    *(Change(statement, where, of_system=True, undo=undo) for statement, undo, where in _MACHINERY),
)
"""Every class of tampering with what is stored outside the logs."""
