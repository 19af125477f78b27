# SPDX-License-Identifier: Apache-2.0
"""
Everything of Apache AGE, as a tenant's reader: what it may call is listed, and nothing breaks or tells of another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import psycopg
import pytest
from psycopg import AsyncConnection, sql
from psycopg.conninfo import make_conninfo

from lakeproof.errors import ProvisionError
from lakeproof.provision import provision
from ledger.store.session import Connection
from projections.graph.age_functions import PROJECTOR_FUNCTIONS, READER_FUNCTIONS
from projections.graph.labels import EdgeLabel
from projections.graph.neighbours import Start, read_edges, read_vertices, read_vertices_of_label
from projections.graph.projection import GraphProjection
from projections.graph.read import open_graph
from projections.graph.traversals import impact_analysis, pii_propagation
from projections.graph.walking import Direction
from projections.graph.write import graph_name
from projections.processing.projection import Transaction
from testkit.databases import LOGIN_PASSWORD
from testkit.projections.eventful_table import happened
from testkit.projections.story import ORDERS

if TYPE_CHECKING:
    from ledger.store.read import Log
    from testkit.projections.story import Story, World

MARK: Final = "of-another-tenant"
STATEMENT_TIMEOUT_MS: Final = 20_000
FUNCTIONS_MIN: Final = 300

ROLES_RIGHTS: Final = """
    SELECT p.oid::regprocedure::text FROM pg_proc AS p
    WHERE p.pronamespace = 'ag_catalog'::regnamespace AND has_function_privilege(%s, p.oid, 'EXECUTE')
"""
EVERYBODYS: Final = """
    SELECT 'function ' || p.oid::regprocedure
    FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS g
    WHERE p.pronamespace = 'ag_catalog'::regnamespace AND g.grantee = 0
    UNION ALL
    SELECT 'type ' || t.oid::regtype
    FROM pg_type AS t, aclexplode(coalesce(t.typacl, acldefault('T', t.typowner))) AS g
    WHERE t.typnamespace = 'ag_catalog'::regnamespace AND t.typtype IN ('b', 'd') AND t.typelem = 0 AND g.grantee = 0
    UNION ALL
    SELECT 'relation ' || c.relname FROM pg_class AS c, aclexplode(c.relacl) AS g
    WHERE c.relnamespace = 'ag_catalog'::regnamespace AND g.grantee = 0
"""
FUNCTIONS: Final = """
    SELECT p.proname, p.oid::regprocedure::text,
           ARRAY(SELECT t::regtype::text FROM unnest(p.proargtypes) WITH ORDINALITY AS a (t, n) ORDER BY n),
           p.provariadic <> 0, coalesce(a.aggkind = 'o', false)
    FROM pg_proc AS p LEFT JOIN pg_aggregate AS a ON a.aggfnoid = p.oid
    WHERE p.pronamespace = 'ag_catalog'::regnamespace
    ORDER BY 2
"""


async def everybodys(connection: Connection) -> list[str]:
    rows = await connection.execute(EVERYBODYS)
    return [str(thing) for (thing,) in await rows.fetchall()]


async def rights(connection: Connection, role: str) -> set[str]:
    async with connection.transaction():
        await connection.execute("SET LOCAL search_path = ag_catalog, pg_catalog")
        return {str(name) for (name,) in await (await connection.execute(ROLES_RIGHTS, (role,))).fetchall()}


# What may be called


async def test_nothing_of_age_is_everybodys_and_each_role_has_its_list_and_no_more(world: World, story: Story) -> None:
    log = await world.new_log()
    assert log.reader is not None
    async with world.as_admin() as connection:
        assert await everybodys(connection) == []
        assert await rights(connection, log.reader) == set(READER_FUNCTIONS)
        assert await rights(connection, world.roles.projector) == set(PROJECTOR_FUNCTIONS)
        for role in (world.roles.gateway, world.roles.appender, world.roles.auditor, world.roles.login):
            assert await rights(connection, role) == set()


async def test_what_somebody_has_granted_again_is_taken_away_at_the_next_start(world: World) -> None:
    log = await world.new_log()
    assert log.reader is not None
    async with world.as_admin() as connection:
        await connection.execute("GRANT ALL ON ALL ROUTINES IN SCHEMA ag_catalog TO PUBLIC")
        await connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA ag_catalog TO PUBLIC")
        await connection.execute("GRANT ALL ON TYPE ag_catalog.agtype TO PUBLIC")
        granted = sql.SQL("GRANT EXECUTE ON FUNCTION ag_catalog.age_vertex_stats TO {}")
        await connection.execute(granted.format(sql.Identifier(world.roles.reader)))
        assert len(await everybodys(connection)) > 300
        provision(world.database, login_password=LOGIN_PASSWORD)
        assert await everybodys(connection) == []
        assert await rights(connection, log.reader) == set(READER_FUNCTIONS)


async def test_a_restored_database_without_any_grants_of_age_is_what_a_new_one_is(world: World) -> None:
    async with world.as_admin() as connection:
        for role in (world.roles.reader, world.roles.projector):
            for what in ("ALL ROUTINES IN SCHEMA ag_catalog", "TYPE ag_catalog.agtype", "TYPE ag_catalog.graphid"):
                await connection.execute(
                    sql.SQL("REVOKE ALL ON {} FROM {}").format(sql.SQL(what), sql.Identifier(role))
                )
        await connection.execute("GRANT ALL ON ALL ROUTINES IN SCHEMA ag_catalog TO PUBLIC")
        provision(world.database, login_password=LOGIN_PASSWORD)
        assert await rights(connection, world.roles.reader) == set(READER_FUNCTIONS)
        assert await rights(connection, world.roles.projector) == set(PROJECTOR_FUNCTIONS)


async def test_a_function_that_a_later_version_of_age_adds_is_nobodys(world: World) -> None:
    async with world.as_admin() as connection:
        for signature in ("age_added(integer)", "age_collect(integer)"):
            await connection.execute(f"CREATE FUNCTION ag_catalog.{signature} RETURNS integer LANGUAGE sql RETURN 1")
            await connection.execute(f"ALTER EXTENSION age ADD FUNCTION ag_catalog.{signature}")
        provision(world.database, login_password=LOGIN_PASSWORD)
        assert await everybodys(connection) == []
        for role in (world.roles.reader, world.roles.projector):
            assert not {"age_added(integer)", "age_collect(integer)"} & await rights(connection, role)


async def test_an_owner_who_may_not_take_rights_away_is_told_what_to_do(world: World) -> None:
    name = f"{world.roles.owner}_no_superuser"
    async with world.as_admin() as connection:
        await connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN CREATEROLE PASSWORD 'of a throw-away server'").format(sql.Identifier(name))
        )
        try:
            for statement in (
                "GRANT ALL ON ALL ROUTINES IN SCHEMA ag_catalog TO PUBLIC",
                "GRANT ALL ON SCHEMA lakeproof, ag_catalog TO {name} WITH GRANT OPTION",
                "GRANT ALL ON ALL TABLES IN SCHEMA lakeproof TO {name} WITH GRANT OPTION",
                "GRANT ALL ON DATABASE {database} TO {name} WITH GRANT OPTION",
            ):
                database = sql.Identifier(connection.info.dbname)
                await connection.execute(sql.SQL(statement).format(name=sql.Identifier(name), database=database))
            duties = (*world.roles.duties().values(), world.roles.login)
            for role in duties:
                await connection.execute(
                    sql.SQL("GRANT {} TO {} WITH ADMIN OPTION").format(*map(sql.Identifier, (role, name)))
                )
            dsn = make_conninfo(world.database, user=name, password="of a throw-away server")
            with pytest.raises(ProvisionError, match=r"keep rights .* let LAKEPROOF_DSN name a superuser"):
                provision(dsn, login_password=LOGIN_PASSWORD)
            assert len(await everybodys(connection)) > 300, "nothing is half done"
        finally:
            await connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(name)))
            await connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


# What is needed


async def read_everything(connection: Connection) -> None:
    """Ask every query that is asked of a graph, as the role that the connection works as."""
    graph = await open_graph(connection)
    assert await graph.writes()
    assert await graph.writes(target=ORDERS)
    assert (await graph.answers(ORDERS)).writes
    assert (await impact_analysis(graph, ORDERS)).tables
    assert (await pii_propagation(graph, ORDERS)).columns
    (vertex,) = await read_vertices(connection, graph.name, [ORDERS])
    assert vertex is not None
    assert await read_vertices_of_label(connection, graph.name, vertex.label, after="", limit=1)
    starts = [Start(id=vertex.id, label=vertex.label, after="")]
    assert await read_edges(
        connection, graph.name, starts, labels=tuple(EdgeLabel), directions=tuple(Direction), limit=1
    )
    for of_an_agent in (
        "MATCH (t:Table) WHERE t.key <> 1 OR t.key >= 1 RETURN t.key",
        "MATCH (t:Table) RETURN max(t.key)",
        "MATCH (t:Table) RETURN count(t)",
        "MATCH (a)-[]->(b)-[]->(c)-[]->(d) RETURN a.key LIMIT 1",
        "MATCH (a)-[]->(b)-[]->(c)-[]->(d)-[]-(e) RETURN a.key LIMIT 1",
    ):
        await graph.query(of_an_agent, ["key"])


async def test_without_any_one_function_of_its_list_some_query_of_a_reader_fails(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.project(log, happened(story))
    unneeded = []
    for function in READER_FUNCTIONS:
        async with world.as_admin() as connection, connection.transaction(force_rollback=True):
            await revoke(connection, function, world.roles.reader)
            await connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(str(log.reader))))
            try:
                await read_everything(connection)
            except psycopg.errors.InsufficientPrivilege:
                continue
            unneeded.append(function)
    assert unneeded == []


async def test_without_any_one_function_of_its_list_the_projector_cannot_project(world: World, story: Story) -> None:
    log = await world.new_log()
    happened(story)
    story.erased(subject="a" * 32)
    graph, entries = GraphProjection(), story.entries(log.origin)

    async def use(connection: Connection) -> None:
        transaction = Transaction(connection=connection, log=log, generation=1)
        await graph.apply(entries, transaction)
        await graph.apply(entries[:2], transaction)
        await graph.digest(transaction)
        await graph.drop(transaction)

    async def make(connection: Connection) -> None:
        await graph.prepare(Transaction(connection=connection, log=log, generation=2))

    async def fails(work: Callable[[Connection], Awaitable[None]], function: str | None) -> bool:
        async with world.as_admin() as connection, connection.transaction(force_rollback=True):
            if function is not None:
                await revoke(connection, function, world.roles.projector)
            await connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(world.roles.projector)))
            try:
                await work(connection)
            except psycopg.errors.InsufficientPrivilege:
                return True
        return False

    # All that is ever done with a graph: to make one takes longest, so that is tried last.
    functions = (None, *PROJECTOR_FUNCTIONS)
    unneeded = [one for one in functions if not await fails(use, one) and not await fails(make, one)]
    assert unneeded == [None], "with all of them it can"


async def revoke(connection: Connection, function: str, role: str) -> None:
    await connection.execute("SET LOCAL search_path = ag_catalog, pg_catalog")
    statement = sql.SQL("REVOKE EXECUTE ON FUNCTION {} FROM {}")
    await connection.execute(statement.format(sql.SQL(function), sql.Identifier(role)))
    await connection.execute("SET LOCAL search_path = DEFAULT")


# What happens when it is called


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A graph whose parts are given to every function: its name, one vertex and one edge of it."""

    name: str
    oid: int
    vertex: int
    edge: int

    def named(self, type_name: str) -> sql.Composable:
        """Return a value of a type, as SQL, that names this graph where the type allows it."""
        values = {
            "name": self.name,
            "text": self.name,
            "cstring": self.name,
            "oid": self.oid,
            "regclass": f'{self.name}."Person"',
            "graphid": self.vertex,
            "agtype": f'"{self.name}"',
            "agtype[]": f'{{"\\"{self.name}\\"",{self.vertex}}}',
            "json": "{}",
            "jsonb": "{}",
            "boolean": "true",
            "double precision[]": "{1,2,3}",
        }
        return typed(sql.Literal(str(values.get(shown(type_name), 1))), type_name)

    def with_vertex(self, type_name: str) -> sql.Composable:
        """Return the same, but a vertex of this graph where that is of the type."""
        if shown(type_name) != "agtype":
            return self.named(type_name)
        return typed(sql.Literal(f'{{"id": {self.vertex}, "label": "Person", "properties": {{}}}}::vertex'), "agtype")

    def with_edge(self, type_name: str) -> sql.Composable:
        """Return the same, but an edge of this graph where that is of the type."""
        if shown(type_name) != "agtype":
            return self.named(type_name)
        ends = f'"start_id": {self.vertex}, "end_id": {self.vertex}'
        edge = f'{{"id": {self.edge}, "label": "WROTE", {ends}, "properties": {{}}}}::edge'
        return typed(sql.Literal(edge), "agtype")


def shown(type_name: str) -> str:
    """Return the type that a value is given for a parameter; for one of any type it is AGE's."""
    return "agtype" if type_name == '"any"' else type_name


def typed(value: sql.Composable, type_name: str) -> sql.Composable:
    return value + sql.SQL("::") + sql.SQL(shown(type_name))  # PostgreSQL's own rendering


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function, procedure or aggregate of AGE, as PostgreSQL describes it."""

    name: str
    signature: str
    types: list[str]
    is_variadic: bool
    is_ordered: bool

    def calls(self, graphs: Iterable[Graph]) -> Iterator[sql.Composed]:
        """Yield calls: with nothing but NULLs, and for each graph with its parts, also with a NULL in each place."""
        yield self._call([typed(sql.NULL, each) for each in self.types])
        for graph in graphs:
            for value in (graph.named, graph.with_vertex, graph.with_edge):
                yield self._call([value(each) for each in self.types])
            # Many functions take the graph's name first, and vertices of the same type behind it.
            first, rest = self.types[:1], self.types[1:]
            yield self._call([*map(graph.named, first), *map(graph.with_vertex, rest)])
            for hole in range(len(self.types)):
                values = [graph.named(each) for each in self.types]
                values[hole] = typed(sql.NULL, self.types[hole])
                yield self._call(values)

    def _call(self, values: list[sql.Composable]) -> sql.Composed:
        function, comma = sql.Identifier("ag_catalog", self.name), sql.SQL(", ")
        if self.is_variadic:
            values[-1] = sql.SQL("VARIADIC ") + values[-1]
        if self.is_ordered:
            given = sql.SQL("{}) WITHIN GROUP (ORDER BY {}").format(values[0], comma.join(values[1:]))
        else:
            given = comma.join(values)
        return sql.SQL("SELECT ({}({}))::text").format(function, given)


async def graph_of(world: World, log: Log) -> Graph:
    assert log.tenant is not None
    name = graph_name(log.tenant, 1)
    query = sql.SQL(
        "SELECT oid::bigint, (SELECT id::text::bigint FROM {} LIMIT 1), (SELECT id::text::bigint FROM {} LIMIT 1)"
        " FROM pg_namespace WHERE nspname = {}"
    )
    async with world.as_admin() as connection:
        await connection.execute("SET search_path = ag_catalog, public")
        places = (sql.Identifier(name, "Person"), sql.Identifier(name, "WROTE"), sql.Literal(name))
        row = await (await connection.execute(query.format(*places))).fetchone()
    assert row is not None
    return Graph(name=name, oid=row[0], vertex=row[1], edge=row[2])


async def outcome(connection: Connection, call: sql.Composed) -> list[str]:
    """Return what a call says: its values, or the error; the connection must outlive it."""
    try:
        rows = await (await connection.execute(call)).fetchall()
    except psycopg.errors.QueryCanceled:
        raise
    except psycopg.Error as error:
        if connection.closed:
            pytest.fail(f"{call.as_string(connection)} has ended the server: {error}")
        return [f"{type(error).__name__} {error}"]
    return [str(value) for value in chain.from_iterable(rows) if value is not None]


async def test_no_function_of_age_ends_the_server_or_tells_a_reader_of_another_tenant(
    world: World, new_story: Callable[[], Story]
) -> None:
    ours, theirs = await world.new_log(), await world.new_log()
    await world.project(ours, happened(new_story()))
    marked = new_story()
    marked.committed(principal=MARK, snapshots=["21"])
    await world.project(theirs, marked)
    graphs = (await graph_of(world, ours), await graph_of(world, theirs))
    dsn = make_conninfo(world.installation.dsn, options=f"-c role={ours.reader} -c search_path=public,ag_catalog")
    async with world.as_admin() as watcher, await AsyncConnection.connect(dsn, autocommit=True) as reader:
        await reader.execute(sql.SQL("SET statement_timeout = {}").format(STATEMENT_TIMEOUT_MS))
        rows = await (await watcher.execute(FUNCTIONS)).fetchall()
        functions = [Function(name=n, signature=s, types=t, is_variadic=v, is_ordered=o) for n, s, t, v, o in rows]
        assert len(functions) > FUNCTIONS_MIN
        notices: list[str] = []
        reader.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
        told, answered = [], set()
        for function in functions:
            for call in function.calls(graphs):
                said = await outcome(reader, call)
                told += [(function.signature, text) for text in (*said, *notices) if MARK in text]
                if any("InsufficientPrivilege" not in text for text in said):
                    answered.add(function.signature.replace("ag_catalog.", ""))
                notices.clear()
        assert told == []
        assert set(READER_FUNCTIONS) & answered
        assert await (await watcher.execute("SELECT 1")).fetchone() == (1,), "a crash would have ended every session"
