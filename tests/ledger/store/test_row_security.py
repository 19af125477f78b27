# SPDX-License-Identifier: Apache-2.0
"""Who may do what to the log's tables: nobody changes what is written, and a tenant sees its own log alone."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL, Identifier

from lakeproof.provision import Provisioned, create_tenant_log
from testkit.ledger.appending import aggregate, appender, event, group

TABLES = ("logs", "heads", "entries", "parts", "tiles", "checkpoints", "subjects", "aggregates", "recorded_events")
WRITTEN = ("entries", "parts", "tiles", "checkpoints", "logs", "recorded_events")
"""What nobody but the owner changes."""


@dataclass
class Tenants:
    """Two tenants with a log each, with something in every table."""

    installation: Provisioned
    logs: dict[UUID, int]

    def connect(self, role: str | None = None) -> psycopg.Connection:
        """Connect as the services do: as the login role, working as `role`."""
        dsn = self.installation.dsn if role is None else self.installation.as_role(role)
        return psycopg.connect(dsn, autocommit=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenants(module_database: str, module_installation: Provisioned) -> Tenants:
    """No test changes anything of them."""
    database, installation = module_database, module_installation
    logs = {
        tenant: create_tenant_log(database, installation, tenant)
        for tenant in (UUID(int=number, version=4) for number in range(2))
    }
    async with appender(installation) as running:
        for log_id in logs.values():
            await running.append(log_id, aggregate("policy:p", 1))
            await running.append(log_id, group(*[event({"n": n}, payloads={"inputs": b"a"}) for n in range(256)]))
    with psycopg.connect(database, autocommit=True) as owner:
        for log_id in logs.values():
            owner.execute("INSERT INTO ledger.checkpoints VALUES (%s, 256, 'note')", (log_id,))
            owner.execute("INSERT INTO ledger.subjects VALUES (%s, %s, 'alice')", (log_id, "0" * 32))
            recorded = "INSERT INTO ledger.recorded_events VALUES (%s, 'event', 'aggregate:a', 1, gen_random_uuid(), 0)"
            owner.execute(recorded, (log_id,))
    return Tenants(installation, logs)


def logs_seen(connection: psycopg.Connection, table: str) -> set[int]:
    query = SQL("SELECT DISTINCT log_id FROM ledger.{}").format(Identifier(table))
    return {log_id for (log_id,) in connection.execute(query)}


def check_that_nothing_can_be_changed(connection: psycopg.Connection, table: str) -> None:
    name, column = Identifier("ledger", table), Identifier("origin" if table == "logs" else "log_id")
    for statement in (SQL("UPDATE {} SET {} = DEFAULT").format(name, column), SQL("DELETE FROM {}").format(name)):
        with pytest.raises(InsufficientPrivilege):
            connection.execute(statement)
    with pytest.raises(InsufficientPrivilege):
        connection.execute(SQL("TRUNCATE {}").format(name))


@pytest.fixture(scope="module")
def service_roles(tenants: Tenants) -> list[str]:
    roles = tenants.installation.roles
    return [roles.appender, roles.signer, roles.projector, roles.auditor, roles.gateway, roles.reader]


def test_a_tenant_s_reader_sees_its_own_log_alone(tenants: Tenants) -> None:
    for tenant, log_id in tenants.logs.items():
        with tenants.connect(tenants.installation.roles.tenant(tenant)) as reader:
            assert {table: logs_seen(reader, table) for table in TABLES} == {table: {log_id} for table in TABLES}


def test_the_login_role_by_itself_sees_nothing(tenants: Tenants) -> None:
    with tenants.connect() as login:
        for table in TABLES:
            with pytest.raises(InsufficientPrivilege):
                logs_seen(login, table)


def test_the_group_of_readers_is_no_tenant_and_sees_no_row(tenants: Tenants) -> None:
    with tenants.connect(tenants.installation.roles.reader) as reader:
        assert {table: logs_seen(reader, table) for table in TABLES} == {table: set() for table in TABLES}


def test_a_tenant_s_reader_writes_nothing(tenants: Tenants) -> None:
    (tenant, log_id), *_ = tenants.logs.items()
    with tenants.connect(tenants.installation.roles.tenant(tenant)) as reader:
        for table in TABLES:
            check_that_nothing_can_be_changed(reader, table)
        with pytest.raises(InsufficientPrivilege):
            reader.execute("INSERT INTO ledger.aggregates VALUES (%s, 'policy:mine', 1)", (log_id,))


def test_no_service_changes_what_is_written(tenants: Tenants, service_roles: list[str]) -> None:
    for role in service_roles:
        with tenants.connect(role) as connection:
            for table in WRITTEN:
                check_that_nothing_can_be_changed(connection, table)


def test_only_the_appender_moves_heads_and_inserts_entries(tenants: Tenants, service_roles: list[str]) -> None:
    for role in service_roles[1:]:
        with tenants.connect(role) as connection:
            with pytest.raises(InsufficientPrivilege):
                connection.execute("UPDATE ledger.heads SET size = size")
            with pytest.raises(InsufficientPrivilege):
                connection.execute("INSERT INTO ledger.entries SELECT * FROM ledger.entries LIMIT 0")
            with pytest.raises(InsufficientPrivilege):
                connection.execute("SELECT FROM ledger.heads FOR UPDATE")
    with tenants.connect(service_roles[0]) as connection:
        assert connection.execute("UPDATE ledger.heads SET size = size").rowcount == 3


def test_the_auditor_reads_every_log_and_no_payload(tenants: Tenants) -> None:
    with tenants.connect(tenants.installation.roles.auditor) as auditor:
        for table in ("heads", "entries", "tiles", "checkpoints", "aggregates"):
            assert logs_seen(auditor, table) >= set(tenants.logs.values())
        for table in ("parts", "subjects"):
            with pytest.raises(InsufficientPrivilege):
                logs_seen(auditor, table)


def test_a_role_that_was_taken_for_one_transaction_is_gone_after_it(tenants: Tenants) -> None:
    (tenant, log_id), *_ = tenants.logs.items()
    role = SQL("SET LOCAL ROLE {}").format(Identifier(tenants.installation.roles.tenant(tenant)))
    with tenants.connect() as login:
        with login.transaction():
            login.execute(role)
            assert logs_seen(login, "entries") == {log_id}
        with pytest.raises(InsufficientPrivilege):
            logs_seen(login, "entries")


def test_a_tenant_cannot_be_taken_for_another_by_a_setting(tenants: Tenants, module_database: str) -> None:
    (one, log_id), (other, _) = tenants.logs.items()
    role = tenants.installation.roles.tenant(one)
    with psycopg.connect(module_database) as owner:  # an installation takes this right from everybody
        grant = SQL("GRANT TEMPORARY ON DATABASE {} TO {}")
        owner.execute(grant.format(Identifier(owner.info.dbname), Identifier(role)))
    with tenants.connect(role) as reader:
        reader.execute("SET search_path = pg_temp, ledger")
        reader.execute(
            SQL("CREATE FUNCTION pg_temp.log_of(name) RETURNS integer LANGUAGE sql AS {}").format(
                f"SELECT {tenants.logs[other]}"
            )
        )
        reader.execute("SET row_security = on")
        assert logs_seen(reader, "entries") == {log_id}


def test_every_table_has_row_security_and_no_role_is_exempt(tenants: Tenants, module_database: str) -> None:
    with psycopg.connect(module_database) as owner:
        off = owner.execute(
            "SELECT relname FROM pg_class "
            "WHERE relnamespace = 'ledger'::regnamespace AND relkind = 'r' AND NOT relrowsecurity"
        )
        assert off.fetchall() == []
        exempt = "SELECT rolname FROM pg_roles WHERE starts_with(rolname, %s) AND (rolbypassrls OR rolsuper)"
        assert owner.execute(exempt, (f"lp_{tenants.installation.id}_",)).fetchall() == []
