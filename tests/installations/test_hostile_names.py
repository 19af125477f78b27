# SPDX-License-Identifier: Apache-2.0
"""
Names that would mean something else if they were ever a part of a statement, a path or a pattern: two tenants use the
same ones, each sees its own things under them, and nothing else happens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import quote

import pytest_asyncio

from ledger.store.read import find_log, iterate_entries, read_head
from projections.graph.read import open_graph
from projections.relational.commits import read_commits
from testkit.gateway.sales import SCHEMA, properties
from testkit.servers.gateways import Gateway
from testkit.system.two_tenants import Tenant, new_tenant, nobody_projects, project, run_event

__all__ = ["nobody_projects"]

NAMES: Final = (
    "o'brien",
    'double"quote',
    "back\\slash",
    "100%",
    "%s %(log_id)s %%",
    "{0} {name}",
    "$1 $$ $tag$",
    "'; DROP TABLE ledger.entries; --",
    "') OR true --",
    "x' UNION SELECT secret FROM gateway.api_keys --",
    "$$) AS (v ag_catalog.agtype); TABLE ledger.parts; --",
    "'}) MATCH (n) DETACH DELETE n //",
    "`]->() RETURN 1 //",
    "/* */",
    "_",
    "*",
    "a.b",
    "a b",
    "..",
    "a/../b",
    "%2e%2e%2f",
    "http://169.254.169.254/",
    "<script>alert(1)</script>",
    "${jndi:ldap://x}",
    "naïve-Ω-東京",
    "null",
    "__proto__",
    "pg_catalog",
    "a" * 200,
)


@pytest_asyncio.fixture
async def tenants(gateway: Gateway) -> AsyncIterator[tuple[Tenant, Tenant]]:
    """Two tenants that have lived."""
    both = [await new_tenant(gateway, name) for name in ("acmemark", "boltmark")]
    yield both[0], both[1]
    for tenant in both:
        await tenant.http.aclose()


async def use(tenant: Tenant, name: str) -> tuple[int, ...]:
    """Name everything that can be named; return the status of each answer."""
    http, secret = tenant.http, tenant.secret
    namespaces = f"/v1/iceberg/{tenant.alias}/namespaces"
    tables = f"{namespaces}/{quote(name, safe='')}/tables"
    policy = {"id": name, "expression": "true", "message": f"{name} {secret}"}
    rule = {"id": name, "effect": "forbid", "expression": f"{cel(name)} in roles"}
    column = {"type": "struct", "fields": [{**SCHEMA["fields"][0], "name": name}]}
    answers = [
        await http.post(namespaces, json={"namespace": [name], "properties": {name: secret}}),
        await http.post(tables, json={"name": name, "schema": column, "properties": {name: secret}}),
        await http.post(f"{tables}/{quote(name, safe='')}", json=properties(**{name: secret})),
        await http.post("/v1/policies", json=policy),
        await http.post("/v1/access-rules", json=rule),
        await http.post("/v1/catalogs", json={"alias": name, "kind": "builtin"}),
        await http.post("/v1/keys", json={"identity": name, "roles": [name]}),
        await http.post("/v1/lineage", json=run_event(name, f"{name}{secret}")),
    ]
    return tuple(answer.status_code for answer in answers)


def cel(text: str) -> str:
    """A string of CEL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


async def test_names_stay_names(gateway: Gateway, tenants: tuple[Tenant, Tenant]) -> None:
    services = gateway.services
    for name in NAMES:
        statuses = [await use(tenant, name) for tenant in tenants]
        assert all(status < 500 for status in statuses[0]), f"{name!r}: {statuses[0]}"
        assert statuses[0] == statuses[1], f"{name!r}: what is a name for one is one for the other"
    for tenant in tenants:
        await project(services, tenant)
    for tenant, other in (tenants, tenants[::-1]):
        used = await listed(tenant)
        assert used == await listed(other)
        assert len(used) > len(NAMES) / 2
        for name in used:
            place = f"/v1/iceberg/{tenant.alias}/namespaces/{quote(name, safe='')}"
            loaded = [await tenant.http.get(place), await tenant.http.get(f"{place}/tables")]
            for answer in loaded:
                assert answer.status_code == 200, name
                assert not any(mark in answer.text for mark in other.marks), name
            assert loaded[0].json()["properties"][name] == tenant.secret
        async with services.gateway.database.as_role(
            services.gateway.roles.tenant(tenant.founded.tenant)
        ) as connection:
            texts = [repr(await read_commits(connection))]
            texts.append(repr(await (await open_graph(connection)).writes()))
            log = await find_log(connection, tenant.founded.origin)
            size = (await read_head(connection, log.log_id)).size
            pages = iterate_entries(connection, log.log_id, from_index=0, to_index=size)
            texts += [repr(entry) async for page in pages for entry in page]
        assert not [text for text in texts for mark in (other.name, *other.marks) if mark in text]
        assert size > len(NAMES)


async def listed(tenant: Tenant) -> set[str]:
    """Return the namespaces of a tenant's catalog that have names of these."""
    answer = await tenant.http.get(f"/v1/iceberg/{tenant.alias}/namespaces")
    return {levels[0] for levels in answer.json()["namespaces"]} - {tenant.namespace}


async def test_no_name_reaches_what_is_not_the_callers(gateway: Gateway) -> None:
    """As alias, namespace, table, id and place, without anything of that name being there."""
    for name in NAMES:
        encoded = quote(name, safe="")
        for path in (
            f"/v1/config?warehouse={encoded}",
            f"/v1/iceberg/{encoded}/namespaces",
            f"/v1/iceberg/lake/namespaces/{encoded}",
            f"/v1/iceberg/lake/namespaces/{encoded}/tables/{encoded}",
            f"/v1/iceberg/lake/namespaces?parent={encoded}&pageToken={encoded}",
            f"/log/{encoded}/checkpoint",
            f"/log/{gateway.acme.origin}/{encoded}",
        ):
            answer = await gateway.http.get(path)
            assert 400 <= answer.status_code < 500, f"{path}: {answer.status_code}"
        for path in (f"/v1/policies/{encoded}", f"/v1/access-rules/{encoded}", f"/v1/keys/{encoded}"):
            answer = await gateway.http.delete(path)
            assert 400 <= answer.status_code < 500, f"{path}: {answer.status_code}"
