# SPDX-License-Identifier: Apache-2.0
"""
Findings and tables as of an entry, over HTTP: what was answered then, to whoever may see it now.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import psycopg
import pytest
import pytest_asyncio
from fastapi import FastAPI

from gateway.http.looking.query import OF_NOW_ALONE
from lakeproof.services import Services
from testkit.gateway.sales import error_of
from testkit.gateway.two_views import SECRET, TwoViews, found_in, open_two_views, pages, project, shown

pytestmark = pytest.mark.asyncio(loop_scope="module")

TABLES = "/v1/iceberg/lake/namespaces/sales/tables"
RENAME = "/v1/iceberg/lake/tables/rename"
PATHS = (
    *("/v1/findings", "/v1/findings?state=open", "/v1/findings?table=lake.sales.orders", "/v1/tables"),
    *("/v1/tables?finding=email", "/v1/tables?tag=pii", "/v1/tables?name=or"),
    *("/v1/tables/lake/sales/orders/findings", "/v1/tables/lake/sales/orders/history"),
)

GRAPHQL = """query ($as_of: Long) {
    tables(as_of: $as_of, limit: 4) { items {
        key table_uuid named_index tags found { kind confidence_percent columns } owner { actor principal }
        findings(limit: 4) { index key state review { version verdict } table { key table_uuid named_index } }
        decisions(limit: 20) { items { index outcome { index outcome } table { key } } }
        recent: decisions(limit: 4) { items { findings(limit: 4) { index key state table { key } } } }
        policies(limit: 2) { id version }
    } }
    open: findings(as_of: $as_of, state: "open", limit: 4) { items { index key state table { key table_uuid } } }
    findings(as_of: $as_of, table: "lake.sales.orders") { items { index key state review { version } } }
    table(name: "lake.sales.orders", as_of: $as_of) { table_uuid named_index findings(limit: 4) { index } }
    policies(as_of: $as_of, limit: 2) { items { id version in_force message } }
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def views(module_services: Services, module_app: FastAPI) -> AsyncIterator[TwoViews]:
    """Two callers of one tenant, and another tenant."""
    async with open_two_views(module_services, module_app) as views:
        yield views


def named(namespace: str, name: str) -> dict[str, Any]:
    return {"namespace": [namespace], "name": name}


async def rename(views: TwoViews, source: dict[str, Any], destination: dict[str, Any]) -> None:
    answer = await views.whole.post(RENAME, json={"source": source, "destination": destination})
    assert answer.status_code == 204, answer.text


async def end_of(views: TwoViews) -> int:
    """The index of the last entry, which the read models have."""
    await project(views.gateway)
    return int((await shown(views.whole, "/v1/log/entries", limit=1))["entries"][0]["index"])


async def test_findings_and_tables_as_of_an_entry_are_what_was_answered_then(views: TwoViews) -> None:
    uuid = views.uuids["orders"]
    finding = (await shown(views.whole, "/v1/findings", table="lake.sales.orders"))["findings"][0]["index"]
    review = f"/v1/findings/{finding}/review"

    async def reviewed(verdict: str) -> None:
        (await views.whole.post(review, json={"verdict": verdict, "reason": "seen"})).raise_for_status()

    async def made() -> None:
        body = {"name": "other", "schema": {"type": "struct", "fields": []}}
        (await views.whole.post(TABLES, json=body)).raise_for_status()

    async def dropped() -> None:
        (await views.whole.delete(f"{TABLES}/other")).raise_for_status()

    async def governed() -> None:
        body = {"id": "of-sales", "expression": "true", "message": "no", "scope": {"names": ["sales.*"]}}
        (await views.whole.post("/v1/policies", json=body)).raise_for_status()

    async def changed() -> None:
        body = {"expression": "true", "message": "not at all", "scope": {"names": ["hr.*"]}}
        (await views.whole.put("/v1/policies/of-sales", json=body)).raise_for_status()

    steps: tuple[Callable[[], Awaitable[None]], ...] = (
        governed,
        lambda: reviewed("confirmed"),
        lambda: reviewed("dismissed"),
        lambda: found_in(views.gateway, "sales", "orders", uuid),
        lambda: rename(views, named("sales", "orders"), named("sales", "sold")),
        changed,
        made,
        lambda: rename(views, named("sales", "other"), named("sales", "orders")),
        lambda: rename(views, named("sales", "orders"), named("sales", "other")),
        dropped,
        lambda: rename(views, named("sales", "sold"), named("sales", "orders")),
    )
    paths = (*PATHS, f"/v1/findings/{finding}", "/v1/graphql", "/v1/policies", "/v1/tables/lake/sales/orders/policies")
    answered = {(await end_of(views), path): await everything(views, path) for path in paths}
    for step in steps:
        await step()
        at = await end_of(views)
        answered |= {(at, path): await everything(views, path) for path in paths}
    for (as_of, path), then in answered.items():
        assert await everything(views, path, as_of=as_of) == then, (as_of, path)
    for path in paths:
        assert len({json.dumps(then) for (_, each), then in answered.items() if each == path}) > 1, path


async def everything(views: TwoViews, path: str, **asked: Any) -> Any:
    """What is answered; of a list all of it, page by page."""
    url = httpx.URL(path)
    asked |= dict(url.params)
    if url.path == "/v1/graphql":
        answer = await asked_in_graphql(views, GRAPHQL, **asked)
        assert "errors" not in answer, answer
        return answer
    if url.path in {"/v1/findings", "/v1/tables"}:
        return await pages(views.whole, url.path, url.path.rpartition("/")[2], limit=1, **asked)
    answer = await views.whole.get(url.path, params=asked)
    return answer.status_code, answer.json() | {"cursor": None}


async def asked_in_graphql(views: TwoViews, query: str, **variables: Any) -> Any:
    return (await views.whole.post("/v1/graphql", json={"query": query, "variables": variables})).json()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("{ tables(as_of: 9000) { cursor } }", "as_of: expected the index of an entry, found 9000: the log has "),
        ("{ findings(as_of: 9000) { cursor } }", "as_of: expected the index of an entry, found 9000: the log has "),
        ("{ policies(as_of: 9000) { cursor } }", "as_of: expected the index of an entry, found 9000: the log has "),
        ('{ table(name: "a.b.c", as_of: 9000) { key } }', "as_of: expected the index of an entry, found 9000: "),
        ("{ tables(as_of: -1) { cursor } }", "as_of: expected a whole number from 0 to "),
        ("{ tables(as_of: 9007199254740991) { cursor } }", "as_of: expected a whole number from 0 to "),
        ('{ tables(as_of: "4") { cursor } }', "expected a whole number, found '4'"),
        ("{ tables(as_of: 4.5) { cursor } }", "expected a whole number, found 4.5"),
        ("{ tables(as_of: true) { cursor } }", "expected a whole number, found True"),
        ("query ($as_of: Long) { tables(as_of: $as_of) { items { lineage { key } } } }", f"as_of: {OF_NOW_ALONE}"),
        ("query ($as_of: Long) { tables(as_of: $as_of) { items { vertex { key } } } }", f"as_of: {OF_NOW_ALONE}"),
        (
            "query ($as_of: Long) { tables(as_of: $as_of) { items { decisions { items { vertex { key } } } } } }",
            f"as_of: {OF_NOW_ALONE}",
        ),
    ],
)
async def test_graphql_refuses_as_of_as_the_routes_do(views: TwoViews, query: str, words: str) -> None:
    variables = {"as_of": await end_of(views)} if "$as_of" in query else {}
    answer = await asked_in_graphql(views, query, **variables)
    assert answer["errors"][0]["message"].startswith(words), answer


async def test_cursors_of_graphql_as_of_an_entry_are_those_of_the_routes(views: TwoViews) -> None:
    as_of = await end_of(views)
    query = "query ($as_of: Long, $cursor: String) { tables(as_of: $as_of, limit: 1, cursor: $cursor) { cursor } }"
    first = await asked_in_graphql(views, query, as_of=as_of)
    cursor = first["data"]["tables"]["cursor"]
    whole = await shown(views.whole, "/v1/tables", as_of=as_of)
    assert (await shown(views.whole, "/v1/tables", as_of=as_of, cursor=cursor))["tables"] == whole["tables"][1:]
    for other in (as_of - 1, None):
        refused = await asked_in_graphql(views, query, as_of=other, cursor=cursor)
        assert refused["errors"][0]["message"].startswith("cursor: "), refused


async def test_what_is_seen_as_of_an_entry_is_judged_by_the_rules_and_names_of_now(views: TwoViews) -> None:
    before = await end_of(views)
    await rename(views, named("hr", SECRET), named("sales", "shown"))
    await rename(views, named("sales", "orders"), named("hr", "hidden"))
    await end_of(views)
    assert [each["key"] for each in await pages(views.part, "/v1/tables", "tables")] == ["table:lake/sales/shown"]
    # What was called `hr.…` then, and what is called so now: of neither anything is told to who may see `sales` alone.
    for path, member in (("/v1/tables", "tables"), ("/v1/findings", "findings")):
        assert len(await pages(views.whole, path, member, as_of=before)) == 2
        assert await pages(views.part, path, member, as_of=before) == []
    asked = {"query": GRAPHQL, "variables": {"as_of": before}}
    data = (await views.part.post("/v1/graphql", json=asked)).json()["data"]
    assert [len(data[name]["items"]) for name in ("tables", "open", "findings")] == [0, 0, 0]
    assert (data["table"], data["policies"]) == (None, None)
    orders = "/v1/tables/lake/sales/orders/findings"
    assert len((await shown(views.whole, orders, as_of=before))["findings"]) == 1
    then = await shown(views.part, orders, as_of=before)
    assert (then["findings"], then["scans"]) == ([], [])
    for finding in [each["index"] for each in await pages(views.whole, "/v1/findings", "findings", as_of=before)]:
        assert (await views.whole.get(f"/v1/findings/{finding}?as_of={before}")).status_code == 200
        assert (await views.part.get(f"/v1/findings/{finding}?as_of={before}")).status_code == 404


async def test_a_read_model_that_kept_nothing_yet_tells_of_no_entry(views: TwoViews) -> None:
    as_of = await end_of(views)
    with psycopg.connect(views.gateway.services.installation.admin_dsn, autocommit=True) as owner:
        of_log = "WHERE projection = 'findings' AND log_id = %s"
        log_id = (views.gateway.acme.log_id,)
        owner.execute(f"UPDATE projections.cursors SET version = version - 1 {of_log}", log_id)  # noqa: S608 - ours
        for path in ("/v1/findings", "/v1/tables"):
            refused = await views.whole.get(path, params={"as_of": as_of})
            assert (refused.status_code, "is being rebuilt" in error_of(refused)["message"]) == (503, True)
            name = path.rpartition("/")[2]
            query = f"query ($as_of: Long) {{ {name}(as_of: $as_of) {{ cursor }} }}"
            body = {"query": query, "variables": {"as_of": as_of}}
            assert (await views.whole.post("/v1/graphql", json=body)).status_code == 503
            assert (await views.whole.get(path)).status_code == 200
        owner.execute(f"UPDATE projections.cursors SET version = version + 1 {of_log}", log_id)  # noqa: S608 - ours
    assert (await views.whole.get("/v1/findings", params={"as_of": as_of})).status_code == 200
