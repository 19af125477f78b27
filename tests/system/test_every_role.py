# SPDX-License-Identifier: Apache-2.0
"""
Every database role of an installation against every table, view, sequence and function of its database: a reader sees
nothing of another tenant, whatever is there to be read, and can do nothing but read.

The lists are PostgreSQL's own. A table that is new is tried as it comes; one with rows of tenants that has no row-level
security fails here, and so does a function that somebody may execute and that is not in `EXECUTED`. The functions of
Apache AGE's own schema are tried elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection, sql

from lakeproof.services import Services
from ledger.store.session import Connection
from testkit.servers.gateways import Gateway, open_gateway
from testkit.system.two_tenants import Tenant, new_tenant, nobody_projects

__all__ = ["nobody_projects"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


SYSTEM: Final = ("pg_catalog", "information_schema")
NOT_OURS: Final = (*SYSTEM, "ag_catalog")
"""Schemas of PostgreSQL, and of Apache AGE."""
FILLED: Final = frozenset(
    {
        *(
            f"ledger.{name}"
            for name in ("logs", "heads", "entries", "parts", "subjects", "aggregates", "recorded_events")
        ),
        *(f"gateway.{name}" for name in ("api_keys", "namespaces", "tables")),
        *(f"projections.{name}" for name in ("commits", "catalogs", "scans", "findings", "alerts", "ungoverned")),
        *(f"streams.{name}" for name in ("leases", "cursors", "outbox", "dead_letters", "hosts", "deferred")),
    }
)
"""Tables in which each of the tenants has rows."""
EXECUTED: Final = frozenset({"ledger.log_of(reader name)"})
"""
The functions of our schemas that everybody may execute: row-level security asks this one for the number of the log that
a role reads. The number is ours, and says nothing of the tenant.
"""


class Roles:
    """Two tenants that have lived, and connections that work as any role."""

    def __init__(self, gateway: Gateway, database: str, tenants: tuple[Tenant, Tenant]) -> None:
        self.gateway, self.database, self.tenants = gateway, database, tenants
        self.names = gateway.services.gateway.roles

    def pairs(self) -> tuple[tuple[Tenant, Tenant], ...]:
        """Each tenant with the other one."""
        return (self.tenants, self.tenants[::-1])

    def reader(self, tenant: Tenant) -> str:
        """The tenant's role."""
        return self.names.tenant(tenant.founded.tenant)

    @asynccontextmanager
    async def superuser(self) -> AsyncIterator[Connection]:
        """A connection that sees everything."""
        async with await AsyncConnection.connect(self.database, autocommit=True) as connection:
            yield connection

    @asynccontextmanager
    async def session_of(self, role: str) -> AsyncIterator[Connection]:
        """A session that is this role's from its beginning, as if it had logged in: no other is behind it."""
        async with self.superuser() as connection:
            await connection.execute(sql.SQL("SET SESSION AUTHORIZATION {}").format(sql.Identifier(role)))
            yield connection

    async def all(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return what the superuser sees."""
        async with self.superuser() as connection:
            return await (await connection.execute(query, parameters or None)).fetchall()

    async def roles(self) -> list[str]:
        """Return every role of the installation but those of tenants of other databases, which share the server."""
        of_others = f"lp_{self.names.installation}_t_%"
        readers = [self.reader(tenant) for tenant in self.tenants]
        query = "SELECT rolname FROM pg_roles WHERE rolname LIKE %s AND (rolname NOT LIKE %s OR rolname = ANY (%s))"
        return [role for (role,) in await self.all(query, f"lp_{self.names.installation}_%", of_others, readers)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def roles(module_services: Services, module_database: str) -> AsyncIterator[Roles]:
    """Two tenants that have lived; the tests of this module change nothing."""
    async with open_gateway(module_services) as gateway:
        both = [await new_tenant(gateway, name) for name in ("acmemark", "boltmark")]
        yield Roles(gateway, module_database, (both[0], both[1]))
        for tenant in both:
            await tenant.http.aclose()


RELATIONS: Final = """
    SELECT n.nspname, c.relname
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f', 'S') AND n.nspname <> ALL (%s) AND n.nspname NOT LIKE 'pg\\_toast%%'
        AND n.nspname NOT LIKE 'pg\\_temp%%'
    ORDER BY 1, 2
"""


async def relations(roles: Roles, *, without: tuple[str, ...] = NOT_OURS) -> list[sql.Identifier]:
    """Return every table, view and sequence, whoever may read it."""
    return [sql.Identifier(schema, name) for schema, name in await roles.all(RELATIONS, list(without))]


async def rows_of(connection: Connection, relation: sql.Identifier) -> list[str] | None:
    """Return all rows as text; None if this role may not read them, all columns or any."""
    try:
        async with connection.transaction():
            rows = await connection.execute(sql.SQL("SELECT t::text FROM {} AS t").format(relation))
            return [row[0] for row in await rows.fetchall()]
    except psycopg.errors.InsufficientPrivilege:
        return None
    except psycopg.Error:
        return []  # a view of the system that needs what is not there


async def readable(roles: Roles, role: str, *, without: tuple[str, ...] = NOT_OURS) -> Mapping[str, list[str]]:
    """Return what a role sees of all that it may read, by name."""
    seen = {}
    async with roles.session_of(role) as connection:
        for relation in await relations(roles, without=without):
            if (rows := await rows_of(connection, relation)) is not None:
                seen[relation.as_string(connection).replace('"', "")] = rows
    return seen


POLICIES: Final = """
    SELECT n.nspname || '.' || c.relname, c.relrowsecurity, pg_get_expr(p.polqual, p.polrelid)
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'log_id' AND NOT a.attisdropped
    LEFT JOIN pg_policy AS p ON p.polrelid = c.oid AND (0 = ANY (p.polroles) OR %s::regrole = ANY (p.polroles))
    WHERE c.relkind IN ('r', 'p') AND n.nspname <> ALL (%s) AND has_table_privilege(%s, c.oid, 'SELECT')
    ORDER BY 1
"""
"""Of tables with rows of tenants that readers may read: whether security is on, and the policies that are theirs."""


async def test_every_table_with_rows_of_tenants_shows_a_reader_those_of_its_log(roles: Roles) -> None:
    reader = roles.names.reader
    rows = await roles.all(POLICIES, reader, list(NOT_OURS), reader)
    assert len({name for name, _, _ in rows}) > 20
    for name, is_on, policy in rows:
        assert is_on, name
        assert policy == "(log_id = ( SELECT ledger.log_of(CURRENT_USER) AS log_of))", name


async def test_what_has_no_row_level_security_has_nothing_of_tenants(roles: Roles) -> None:
    open_ = await roles.all(
        "SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p', 'm') AND n.nspname <> ALL (%s) AND NOT c.relrowsecurity"
        " AND has_schema_privilege(%s, n.oid, 'USAGE') AND has_table_privilege(%s, c.oid, 'SELECT')",
        list(NOT_OURS),
        roles.names.reader,
        roles.names.reader,
    )
    async with roles.superuser() as connection:
        for schema, name in open_:
            for row in await rows_of(connection, sql.Identifier(schema, name)) or ():
                assert not [mark for tenant in roles.tenants for mark in tenant.marks if mark in row], (
                    f"{schema}.{name}"
                )


async def test_a_reader_sees_nothing_of_another_tenant_in_whatever_it_may_read(roles: Roles) -> None:
    for tenant, other in roles.pairs():
        seen = await readable(roles, roles.reader(tenant))
        for name, rows in seen.items():
            leaks = [row for row in rows if other.name in row or any(mark in row for mark in other.marks)]
            assert leaks == [], f"{tenant.name} reads {other.name} in {name}"
        assert any(tenant.secret in row for row in seen["gateway.namespaces"])


async def test_there_was_something_to_see(roles: Roles) -> None:
    """That nothing is seen says little of a table in which nothing is."""
    async with roles.superuser() as connection:
        found = set()
        for name in FILLED:
            query = sql.SQL("SELECT DISTINCT log_id FROM {}").format(sql.Identifier(*name.split(".")))
            logs = {log_id for (log_id,) in await (await connection.execute(query)).fetchall()}
            if {tenant.founded.log_id for tenant in roles.tenants} <= logs:
                found.add(name)
    assert found == FILLED


async def test_a_reader_learns_nothing_of_another_tenants_contents_from_the_system(roles: Roles) -> None:
    """PostgreSQL shows everybody which roles and schemas there are, and with that the ids of tenants; nothing else."""
    for tenant, other in roles.pairs():
        seen = await readable(roles, roles.reader(tenant), without=("ag_catalog",))
        for name, rows in seen.items():
            if name.startswith(SYSTEM):
                assert not [row for row in rows if other.name in row or other.secret in row], name
        assert "pg_catalog.pg_authid" not in seen
        assert "pg_catalog.pg_statistic" not in seen


async def test_a_reader_writes_and_makes_nothing(roles: Roles) -> None:
    denied = (psycopg.errors.InsufficientPrivilege, psycopg.errors.WrongObjectType)
    async with roles.session_of(roles.reader(roles.tenants[0])) as connection:
        for relation in await relations(roles):
            for statement in (
                "DELETE FROM {}",
                "TRUNCATE {}",
                "INSERT INTO {} DEFAULT VALUES",
                "DROP TABLE {}",
                "ALTER TABLE {} DISABLE ROW LEVEL SECURITY",
                "CREATE POLICY mine ON {} USING (true)",
                "LOCK TABLE {} IN EXCLUSIVE MODE",
                "SELECT setval({}::regclass::text, 1)",
            ):
                name = relation if "setval" not in statement else sql.Literal(relation.as_string(connection))
                with pytest.raises((*denied, psycopg.errors.ObjectNotInPrerequisiteState)):
                    async with connection.transaction():
                        await connection.execute(sql.SQL(statement).format(name))
        done = []
        for statement in MADE:
            try:
                async with connection.transaction():
                    await connection.execute(statement)
                    done.append(statement)
                    raise psycopg.errors.InsufficientPrivilege
            except denied:
                continue
        assert done == []


MADE: Final = (
    "CREATE TABLE public.mine (a int)",
    "CREATE TEMP TABLE mine (a int)",
    "CREATE SCHEMA mine",
    "CREATE FUNCTION public.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION pg_temp.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE EXTENSION dblink",
    "CREATE ROLE mine",
    "SELECT lo_from_bytea(0, 'mine')",
    "SELECT lo_create(0)",
    "COPY (SELECT 1) TO PROGRAM 'true'",
    "COPY (SELECT 1) TO '/tmp/mine'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_ls_dir('/')",
    "SELECT pg_reload_conf()",
    "SELECT pg_switch_wal()",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
    "CHECKPOINT",
)
"""What a reader could otherwise leave behind, or do to the server."""


async def functions(roles: Roles) -> list[tuple[int, str]]:
    """Return the functions of our schemas, whatever kind they are of: oid, and name with types."""
    return [
        (oid, f"{schema}.{name}({arguments})")
        for oid, schema, name, arguments in await roles.all(
            "SELECT p.oid::int8, n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)"
            " FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE n.nspname <> ALL (%s)",
            list(NOT_OURS),
        )
    ]


async def test_a_reader_executes_no_function_of_ours_that_is_not_listed(roles: Roles) -> None:
    found = set()
    for oid, name in await functions(roles):
        for tenant in roles.tenants:
            query = "SELECT has_function_privilege(%s, %s::int8::oid, 'EXECUTE')"
            if await roles.all(query, roles.reader(tenant), oid) == [(True,)]:
                found.add(name)
    assert found == EXECUTED


async def test_what_a_reader_executes_tells_a_number_at_most(roles: Roles) -> None:
    for tenant, other in roles.pairs():
        async with roles.session_of(roles.reader(tenant)) as connection:
            rows = await connection.execute("SELECT ledger.log_of(%s)", (roles.reader(other),))
            assert await rows.fetchone() == (other.founded.log_id,)
            for argument in (roles.names.owner, other.name, "", "nobody", "'; --", None):
                rows = await connection.execute("SELECT ledger.log_of(%s)", (argument,))
                assert await rows.fetchone() == (None,), argument


async def test_no_role_becomes_another_but_the_one_that_services_log_in_as(roles: Roles) -> None:
    every = await roles.roles()
    assert {roles.reader(tenant) for tenant in roles.tenants} < set(every)
    for role in every:
        if role == roles.names.login:
            continue
        async with roles.session_of(role) as connection:
            for other in every:
                if other in {role, roles.names.reader}:
                    continue  # the group of all readers has rights, and no rows
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    await connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(other)))


async def test_the_group_of_all_readers_sees_no_tenants_rows(roles: Roles) -> None:
    for name, rows in (await readable(roles, roles.names.reader)).items():
        for tenant in roles.tenants:
            assert not [row for row in rows if any(mark in row for mark in tenant.marks)], name


async def test_what_services_log_in_as_sees_and_does_nothing_by_itself(roles: Roles) -> None:
    seen = await readable(roles, roles.names.login)
    assert {name for name, rows in seen.items() if rows} == set()
    query = "SELECT has_function_privilege(%s, %s::int8::oid, 'EXECUTE')"
    found = {
        name for oid, name in await functions(roles) if await roles.all(query, roles.names.login, oid) == [(True,)]
    }
    assert found == EXECUTED


async def test_no_role_of_ours_is_more_than_a_role(roles: Roles) -> None:
    """None but the login role logs in, and none goes round row-level security."""
    rows = await roles.all(
        "SELECT rolname, rolcanlogin, rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb OR rolreplication"
        " FROM pg_roles WHERE rolname LIKE %s",
        f"lp_{roles.names.installation}_%",
    )
    assert len(rows) > 10
    assert {name for name, logs_in, _ in rows if logs_in} == {roles.names.login}
    assert not [name for name, _, is_more in rows if is_more]
