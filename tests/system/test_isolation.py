# SPDX-License-Identifier: Apache-2.0
"""
Two tenants with the same names for everything: neither reads or writes the other's, in HTTP, SQL or openCypher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import httpx
import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection, sql

from gateway.database import Database
from gateway.identity.api_keys import mint_key
from lakeproof.projecting import PROJECTIONS
from lakeproof.services import Services
from lakeproof.tenants import Founded, found_tenant
from ledger.store.read import read_head
from ledger.store.session import Connection
from projections.graph.read import open_graph
from projections.processing.runner import ProjectionRunner
from testkit.gateway.log_contents import check_agreement, read_stored
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, SALES, SCHEMA, TABLES, error_of, properties
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

EDITED = ("/v1/policies", "/v1/access-rules", "/v1/catalogs", "/v1/keys")
SCHEMAS = ("ledger", "gateway", "projections", "lakeproof")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A tenant and a client with its key; `mark` stands in everything it writes and in nothing of the other's."""

    founded: Founded
    http: httpx.AsyncClient
    mark: str

    @property
    def marks(self) -> tuple[str, ...]:
        """What would tell that this tenant is there: its mark and id, as text and as bytes in hex."""
        texts = (self.mark, self.founded.tenant.hex, str(self.founded.tenant))
        return (*texts, *(text.encode().hex() for text in texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One gateway, two tenants."""

    gateway: Gateway
    acme: Tenant
    bolt: Tenant

    @property
    def services(self) -> Services:
        return self.gateway.services

    def pairs(self) -> tuple[tuple[Tenant, Tenant], ...]:
        """Each tenant with the other one."""
        return ((self.acme, self.bolt), (self.bolt, self.acme))

    def reader(self, tenant: Tenant) -> str:
        """The tenant's database role."""
        return self.services.gateway.roles.tenant(tenant.founded.tenant)


async def live(tenant: Tenant) -> None:
    """Do a little of everything; what has names has the same ones for both tenants."""
    http, mark = tenant.http, tenant.mark
    (await http.post(NAMESPACES, json={"namespace": ["sales"], "properties": {"mark": mark}})).raise_for_status()
    (await http.post(TABLES, json={**CREATE, "properties": {"mark": mark}})).raise_for_status()
    (await http.post(ORDERS, json=properties(more=mark))).raise_for_status()
    policy = {"id": "p", "expression": "!('no' in result.properties)", "message": f"{mark} says no"}
    (await http.post("/v1/policies", json=policy)).raise_for_status()
    assert (await http.post(ORDERS, json=properties(no=mark))).status_code == 403
    rule = {"id": "r", "effect": "permit", "expression": f"'{mark}' in roles"}
    (await http.post("/v1/access-rules", json=rule)).raise_for_status()
    (await http.post("/v1/keys", json={"identity": f"eve@{mark}.example", "roles": [mark]})).raise_for_status()
    (await http.post("/v1/catalogs", json={"alias": f"{mark}-vault", "kind": "builtin"})).raise_for_status()


async def two_tenants(gateway: Gateway) -> World:
    """Found two tenants, which then live."""
    services = gateway.services
    tenants = []
    for mark in ("acmemark", "boltmark"):
        founded = await found_tenant(services, name=mark, identity=f"ada@{mark}.example", roles=[mark], alias="lake")
        tenant = Tenant(founded=founded, http=gateway.client(founded.key.secret), mark=mark)
        await live(tenant)
        tenants.append(tenant)
    return World(gateway=gateway, acme=tenants[0], bolt=tenants[1])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(module_gateway: Gateway) -> World:
    """Two tenants that have lived, projected; the tests that share them change nothing of theirs."""
    world = await two_tenants(module_gateway)
    services, roles = world.services, world.services.gateway.roles
    runner = ProjectionRunner(services.installation.as_role(roles.projector), PROJECTIONS, opener=services.opener)
    for tenant in (world.acme, world.bolt):
        async with services.gateway.database.as_role(roles.auditor) as connection:
            head = await read_head(connection, tenant.founded.log_id)
        await runner.catch_up(tenant.founded.log_id, head.size)
    return world


# HTTP


def bytes_of(answer: httpx.Response) -> tuple[int, bytes, dict[str, str]]:
    headers = {name: value for name, value in answer.headers.items() if name != "x-request-id"}  # of each its own
    return answer.status_code, answer.content, headers


async def test_another_tenants_alias_is_answered_as_if_it_did_not_exist(shared_gateway: Gateway) -> None:
    gateway, services = shared_gateway, shared_gateway.services
    bolt = await found_tenant(services, name="bolt", identity="eve@bolt.example")
    http = gateway.client(bolt.key.secret)

    async def everything(alias: str) -> list[tuple[int, bytes, dict[str, str]]]:
        namespaces = f"/v1/iceberg/{alias}/namespaces"
        orders = f"{namespaces}/sales/tables/orders"
        return [
            bytes_of(answer)
            for answer in (
                await http.get(f"/v1/config?warehouse={alias}"),
                await http.get(namespaces),
                await http.get(orders),
                await http.head(orders),
                await http.post(namespaces, json={"namespace": ["sales"]}),
                await http.post(f"{namespaces}/sales/tables", json=CREATE),
                await http.post(orders, json=properties(a="b")),
                await http.delete(orders),
                await http.delete(f"{orders}?purgeRequested=true"),
                await http.post(orders, content=b"{"),
                await http.get("/v1/catalogs"),
            )
        ]

    before = await everything("vault")
    vault = {"alias": "vault", "kind": "builtin"}
    (await gateway.http.post("/v1/catalogs", json=vault)).raise_for_status()
    namespaces = "/v1/iceberg/vault/namespaces"
    (await gateway.http.post(namespaces, json={"namespace": ["sales"]})).raise_for_status()
    (await gateway.http.post(f"{namespaces}/sales/tables", json=CREATE)).raise_for_status()
    assert await everything("vault") == before
    assert {status for status, _, _ in before} == {200, 400, 404}
    await check_agreement(services, gateway.acme.log_id)


async def test_what_answers_show_is_the_callers_own(world: World) -> None:
    for tenant, other in world.pairs():
        for path in ("/v1/config?warehouse=lake", NAMESPACES, SALES, TABLES, ORDERS, *EDITED):
            answer = await tenant.http.get(path)
            assert answer.status_code == 200
            assert not any(mark in answer.text for mark in other.marks), path
        assert tenant.mark in (await tenant.http.get(ORDERS)).text
        folder = f"/{tenant.founded.tenant.hex}/lake/"
        assert folder in (await tenant.http.get(ORDERS)).json()["metadata-location"]


async def test_another_tenants_ids_are_unknown(shared_gateway: Gateway) -> None:
    world = await two_tenants(shared_gateway)
    for tenant, other in world.pairs():
        keys = (await other.http.get("/v1/keys")).json()["keys"]
        before = [(await other.http.get(path)).text for path in EDITED]
        for key in keys:
            unknown = await tenant.http.delete(f"/v1/keys/{'0' * len(key['id'])}")
            theirs = await tenant.http.delete(f"/v1/keys/{key['id']}")
            assert theirs.status_code == unknown.status_code == 404
            assert theirs.text.replace(key["id"], "") == unknown.text.replace("0" * len(key["id"]), "")
        change = {"expression": "true", "message": "changed"}
        own = (await tenant.http.put("/v1/policies/p", json=change)).json()
        assert own["version"] == 2, "the tenant's own, of the same id"
        assert [(await other.http.get(path)).text for path in EDITED] == before


async def test_a_table_cannot_be_put_into_another_tenants_folder(shared_gateway: Gateway) -> None:
    world = await two_tenants(shared_gateway)
    for tenant, other in world.pairs():
        theirs = (await other.http.get(ORDERS)).json()["metadata"]["location"]
        create = await tenant.http.post(TABLES, json={"name": "t", "schema": SCHEMA, "location": theirs})
        assert (create.status_code, error_of(create)["type"]) == (400, "BadRequestException")
        updates = [{"action": "set-location", "location": theirs}]
        assert (await tenant.http.post(ORDERS, json={"requirements": [], "updates": updates})).status_code == 400
        beside = properties(**{"write.metadata.path": f"{theirs}/metadata"})
        assert (await tenant.http.post(ORDERS, json=beside)).status_code == 400


async def test_what_a_tenant_does_stands_in_its_own_log_alone(world: World) -> None:
    for tenant, other in world.pairs():
        told = await read_stored(world.services, tenant.founded.log_id)
        text = repr([(one.entry, dict(one.parts)) for one in told])
        assert tenant.mark in text
        assert not any(mark in text for mark in other.marks)
    forged = world.acme.founded.key.secret[:-4] + world.bolt.founded.key.secret[-4:]
    assert (await world.gateway.client(forged).get(ORDERS)).status_code == 401
    stranger = mint_key(lambda size: b"s" * size).format()
    assert (await world.gateway.client(stranger).get(ORDERS)).status_code == 401


# SQL


async def relations(connection: Connection) -> list[sql.Identifier]:
    """Every table and view of ours, whoever may read it."""
    found = await connection.execute(
        "SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'v', 'm', 'p') AND (n.nspname = ANY(%s) OR n.nspname LIKE 'g\\_%%')",
        (list(SCHEMAS),),
    )
    return [sql.Identifier(schema, name) for schema, name in await found.fetchall()]


async def readable(connection: Connection, relation: sql.Identifier) -> list[str] | None:
    """All rows of a table as text, or None if this role may not read it."""
    try:
        async with connection.transaction():
            rows = await connection.execute(sql.SQL("SELECT t::text FROM {} AS t").format(relation))
            return [row[0] for row in await rows.fetchall()]
    except psycopg.errors.InsufficientPrivilege:
        return None


async def readable_tables(world: World, role: str) -> Mapping[str, list[str]]:
    """What a role sees of every table it may read, by name."""
    seen = {}
    async with world.services.gateway.database.as_role(role) as connection:
        for relation in await relations(connection):
            rows = await readable(connection, relation)
            if rows is not None:
                seen[relation.as_string(connection)] = rows
    return seen


async def test_a_reader_sees_nothing_of_another_tenant_in_any_table(world: World) -> None:
    for tenant, other in world.pairs():
        seen = await readable_tables(world, world.reader(tenant))
        assert {'"ledger"."entries"', '"ledger"."parts"', '"gateway"."tables"', '"gateway"."namespaces"'} <= seen.keys()
        assert '"gateway"."api_keys"' not in seen
        assert '"gateway"."request_keys"' not in seen
        for name, rows in seen.items():
            leaks = [row for row in rows if any(mark in row for mark in other.marks)]
            assert leaks == [], f"{tenant.mark} reads {other.mark} in {name}"
        assert any(tenant.mark in row for row in seen['"gateway"."namespaces"'])
        graphs = {name for name in seen if name.startswith('"g_')}
        assert graphs
        assert all(tenant.founded.tenant.hex in name for name in graphs)


async def test_the_gateways_role_reads_no_tenants_content(world: World) -> None:
    seen = await readable_tables(world, world.services.gateway.roles.gateway)
    assert '"gateway"."tables"' not in seen
    assert '"ledger"."parts"' not in seen


async def test_a_reader_writes_nothing(world: World) -> None:
    async with world.services.gateway.database.as_role(world.reader(world.acme)) as connection:
        for relation in await relations(connection):
            for statement in (
                sql.SQL("DELETE FROM {}").format(relation),
                sql.SQL("TRUNCATE {}").format(relation),
                sql.SQL("INSERT INTO {} DEFAULT VALUES").format(relation),
            ):
                with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.WrongObjectType)):
                    async with connection.transaction():
                        await connection.execute(statement)


async def test_a_connection_keeps_nothing_of_the_tenant_before(world: World) -> None:
    installation = world.services.installation
    async with Database(installation.dsn, connections_max=1) as database:
        for tenant in (world.acme, world.bolt, world.acme):
            async with database.as_role(world.reader(tenant)) as connection:
                rows = await connection.execute("SELECT current_user, (SELECT array_agg(log_id) FROM ledger.heads)")
                assert await rows.fetchone() == (world.reader(tenant), [tenant.founded.log_id])
        with pytest.raises(RuntimeError, match="in the middle"):  # noqa: PT012 - what is done before it fails counts
            async with database.as_role(world.reader(world.acme)) as connection:
                await connection.execute("SELECT 1")
                raise RuntimeError("in the middle")
        async with database.as_role(world.reader(world.bolt)) as connection:
            rows = await connection.execute("SELECT session_user, current_user")
            assert await rows.fetchone() == (installation.roles.login, world.reader(world.bolt))
    async with await AsyncConnection.connect(installation.dsn, autocommit=True) as login:
        assert all([await readable(login, relation) in (None, []) for relation in await relations(login)])


# openCypher


async def test_a_graph_is_its_tenants_alone(world: World) -> None:
    database = world.services.gateway.database
    for tenant, other in world.pairs():
        async with database.as_role(world.reader(other)) as connection:
            theirs = (await open_graph(connection)).name
        async with database.as_role(world.reader(tenant)) as connection:
            graph = await open_graph(connection)
            assert tenant.founded.tenant.hex in graph.name
            writes = await graph.writes()
            assert {write.principal for write in writes} == {f"ada@{tenant.mark}.example"}
            assert {write.decision for write in writes} == {"approved", "rejected"}
            query = "SELECT * FROM ag_catalog.cypher({}, $$ MATCH (n) RETURN n $$) AS (n ag_catalog.agtype)"
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                async with connection.transaction():
                    await connection.execute(sql.SQL(query).format(sql.Literal(theirs)))
