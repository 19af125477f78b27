# SPDX-License-Identifier: Apache-2.0
"""
Every list that goes on behind a cursor, on every surface: after each read model was rebuilt it goes on at the same
place, and another text than its own cursor is refused in one sentence.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from html import unescape
from typing import Any, Final, TypeAlias

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from graphql import GraphQLInterfaceType, GraphQLObjectType

from gateway.agents.tools import TOOLS
from gateway.console import pages, table_pages
from gateway.console.lists import HISTORY, LISTS, OPERATED
from gateway.http.graphql.schema import SCHEMA
from gateway.http.looking.query import CURSOR
from lakeproof.projecting import PROJECTIONS
from lakeproof.services import Services
from ledger.format.events import ProjectionAttested
from ledger.store.read import Log, read_logs
from projections.processing.generations import rebuild
from projections.relational import commits
from testkit.gateway.console.browsing import browser_of, log_in
from testkit.gateway.sales import ORDERS, error_of, properties
from testkit.gateway.two_views import TwoViews, open_two_views, project
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFUSED: Final = (
    "cursor: expected the cursor of an earlier answer to the same request, with the same filters, found another text: "
    "without a cursor, the list begins anew"
)
TABLE: Final = "/v1/tables/lake/sales/orders"
ORDERS_PAGE: Final = "/console/tables/lake/sales/orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a list has answered: its rows, its cursor, or why it has none."""

    rows: Any = None
    cursor: str | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Asking:
    """A tenant's clients: for programs, and a browser that is logged in."""

    http: httpx.AsyncClient
    browser: httpx.AsyncClient


Ask: TypeAlias = Callable[[Asking, str | None], Awaitable[Page]]


async def of_route(path: str, member: str, query: Mapping[str, Any], asking: Asking, cursor: str | None) -> Page:
    limit = {} if path.endswith("/schema-history") else {"limit": 1}
    answer = await asking.http.get(path, params={**limit, **query, **({} if cursor is None else {CURSOR: cursor})})
    if answer.status_code != 200:
        assert answer.status_code == 400, answer.text
        return Page(problem=error_of(answer)["message"])
    return Page(rows=answer.json()[member], cursor=answer.json()[CURSOR])


async def of_graphql(question: str, path: str, asking: Asking, cursor: str | None) -> Page:
    query = f"query ($at: String) {{ {question} }}"
    answer = await asking.http.post("/v1/graphql", json={"query": query, "variables": {"at": cursor}})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    if "errors" in found:
        return Page(problem=found["errors"][0]["message"])
    listed = found["data"]
    for name in path.split("."):
        listed = listed[name]
    return Page(rows=listed["items"], cursor=listed[CURSOR])


async def spoken(http: httpx.AsyncClient, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """What an agent's message is answered."""
    sent = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = await http.post("/mcp", json=sent, headers={"Accept": "application/json, text/event-stream"})
    assert answer.status_code in {200, 400}, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def of_tool(tool: str, member: str, given: Mapping[str, Any], asking: Asking, cursor: str | None) -> Page:
    arguments = {**given, "limit": 1, CURSOR: cursor or ""}
    found = (await spoken(asking.http, "tools/call", {"name": tool, "arguments": arguments}))["result"]
    if found.get("isError"):
        return Page(problem=found["content"][0]["text"])
    return Page(rows=found["structuredContent"][member], cursor=found["structuredContent"][CURSOR])


async def of_resources(asking: Asking, cursor: str | None) -> Page:
    if cursor is None:  # a page has 100: its cursors are those of the tool
        return await of_tool("find_tables", "tables", {}, asking, None)
    found = await spoken(asking.http, "resources/list", {CURSOR: cursor})
    if "error" in found:
        return Page(problem=found["error"]["message"])
    return Page(rows=found["result"]["resources"])


async def of_page(path: str, asking: Asking, cursor: str | None) -> Page:
    answer = await asking.browser.get(path, params={} if cursor is None else {CURSOR: cursor})
    if answer.status_code != 200:
        assert answer.status_code == 400, answer.text
        (problem,) = re.findall(r'<p class="problem" role="alert">(.*?)</p>', answer.text)
        return Page(problem=unescape(problem))
    more = re.search(r'rel="next" href="([^"]*)"', answer.text)
    following = None if more is None else httpx.URL(unescape(more[1])).params[CURSOR]
    rows = re.findall("<tr>.*?</tr>|<li.*?</li>", answer.text, re.DOTALL)
    return Page(rows=rows, cursor=following)


async def of_twin(path: str, member: str, asking: Asking, cursor: str | None) -> Page:
    answer = await asking.browser.get(path, params={} if cursor is None else {CURSOR: cursor})
    if answer.status_code != 200:
        assert answer.status_code == 400, answer.text
        return Page(problem=error_of(answer)["message"])
    return Page(rows=answer.json()[member], cursor=answer.json()[CURSOR])


def route(path: str, member: str, **query: Any) -> Ask:
    return partial(of_route, path, member, query)


def graphql(question: str, path: str) -> Ask:
    return partial(of_graphql, question, path)


ROUTES: Final[Mapping[str, Ask]] = {
    "/v1/log/entries": route("/v1/log/entries", "entries"),
    "/v1/findings": route("/v1/findings", "findings"),
    "/v1/tables": route("/v1/tables", "tables"),
    "/v1/runs": route("/v1/runs", "runs"),
    "/v1/tables/{alias}/{namespace}/{table}/history": route(f"{TABLE}/history", "decisions"),
    "/v1/tables/{alias}/{namespace}/{table}/timeline": route(f"{TABLE}/timeline", "commits"),
    "/v1/tables/{alias}/{namespace}/{table}/graph": route(f"{TABLE}/graph", "edges"),
    "/v1/tables/{alias}/{namespace}/{table}/schema-history": route(f"{TABLE}/schema-history", "changes"),
}
"""By the path of the route; the filtered ones below are those with filters."""
FILTERED: Final[Mapping[str, Ask]] = {
    "/v1/log/entries": route("/v1/log/entries", "entries", type="commit.*"),
    "/v1/log/entries, oldest first": route("/v1/log/entries", "entries", order="oldest"),
    "/v1/findings": route("/v1/findings", "findings", kind="email"),
    "/v1/tables": route("/v1/tables", "tables", catalog="lake"),
    "/v1/tables/{alias}/{namespace}/{table}/graph": route(f"{TABLE}/graph", "edges", direction="in"),
}
FIELDS: Final[Mapping[str, Ask]] = {
    "Query.tables": graphql("tables(limit: 1, cursor: $at) { items { key } cursor }", "tables"),
    "Query.findings": graphql("findings(limit: 1, cursor: $at) { items { index } cursor }", "findings"),
    "Query.runs": graphql("runs(limit: 1, cursor: $at) { items { run_id } cursor }", "runs"),
    "Query.policies": graphql("policies(limit: 1, cursor: $at) { items { id } cursor }", "policies"),
    "Query.vertices": graphql('vertices(label: "Table", limit: 1, cursor: $at) { items { key } cursor }', "vertices"),
    "Table.decisions": graphql(
        'table(name: "lake.sales.orders") { decisions(limit: 1, cursor: $at) { items { index } cursor } }',
        "table.decisions",
    ),
    "Vertex.edges": graphql(
        'vertex(key: "table:lake/sales/orders") { edges(limit: 1, cursor: $at) '
        "{ items { label direction vertex { key } } cursor } }",
        "vertex.edges",
    ),
}
AGENTS: Final[Mapping[str, Ask]] = {
    "find_tables": partial(of_tool, "find_tables", "tables", {}),
    "find_entries": partial(of_tool, "find_entries", "entries", {}),
}
CONSOLE: Final[Mapping[str, Ask]] = {
    **{f"/console/{name}": partial(of_page, f"/console/{name}") for name, each in LISTS.items() if each.in_pages},
    **{
        f"/console/{name}.json": partial(of_twin, f"/console/{name}.json", each.member)
        for name, each in LISTS.items()
        if each.in_pages
    },
    "a table's page": partial(of_page, ORDERS_PAGE),
    "a table's commits": partial(of_twin, f"{ORDERS_PAGE}/commits.json", HISTORY.member),
}
EVERY: Final[Mapping[str, Ask]] = {
    **ROUTES,
    **{f"{name}, filtered": ask for name, ask in FILTERED.items()},
    **FIELDS,
    **AGENTS,
    "resources/list": of_resources,
    **CONSOLE,
}
SAME: Final = (
    {"/v1/tables", "Query.tables"},
    {"/v1/findings", "Query.findings"},
    {"/v1/runs", "Query.runs"},
    {"/v1/tables/{alias}/{namespace}/{table}/history", "Table.decisions"},
    {"find_tables", "resources/list"},
)
"""Lists that are one: what begins in one goes on in the other."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def views(module_services: Services, module_app: FastAPI) -> AsyncIterator[TwoViews]:
    """A tenant with more than one row in every list, and another with the same names."""
    async with open_two_views(module_services, module_app) as views:
        for gateway in (views.gateway, views.other):
            for id_ in ("first", "second"):
                policy = {"id": id_, "expression": "true", "message": "m"}
                (await gateway.http.post("/v1/policies", json=policy)).raise_for_status()
            for note in ("one", "two"):
                (await gateway.http.post(ORDERS, json=properties(note=note))).raise_for_status()
            await project(gateway)
        yield views


@pytest_asyncio.fixture(loop_scope="module")
async def asking(views: TwoViews, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Asking]:
    """The tenant's clients, for whom pages have one row each."""
    monkeypatch.setattr(pages, "ENTRIES_A_PAGE", 1)
    monkeypatch.setattr(pages, "TABLES_A_PAGE", 1)
    monkeypatch.setattr(pages, "PAGE", 1)
    monkeypatch.setattr(table_pages, "HISTORY_A_PAGE", 1)
    monkeypatch.setattr(commits, "EXAMINED_MAX", 3)  # of four: that with a schema is the first
    async with clients_of(views.gateway) as asking:
        yield asking


@asynccontextmanager
async def clients_of(gateway: Gateway) -> AsyncIterator[Asking]:
    async with browser_of(gateway) as browser:
        assert (await log_in(browser, gateway.acme.key.secret)).status_code == 303
        yield Asking(gateway.http, browser)


async def first_pages(asking: Asking) -> dict[str, str]:
    """The cursor of the first page of every list."""
    found = {name: await ask(asking, None) for name, ask in EVERY.items()}
    assert {name for name, page in found.items() if page.cursor is None} == set()
    return {name: page.cursor or "" for name, page in found.items()}


async def test_every_list_that_has_a_cursor_is_here(views: TwoViews) -> None:
    described = (await views.whole.get("/openapi.json")).json()["paths"]
    routes = {
        path
        for path, methods in described.items()
        for each in methods.get("get", {}).get("parameters", ())
        if each["name"] == CURSOR
    }
    assert routes == set(ROUTES)
    types = SCHEMA._schema.type_map.items()
    objects = {name: each for name, each in types if isinstance(each, GraphQLObjectType | GraphQLInterfaceType)}
    fields = {f"{name}.{field}": has.args for name, each in objects.items() for field, has in each.fields.items()}
    assert {name for name, arguments in fields.items() if CURSOR in arguments} == set(FIELDS)
    assert {name for name, tool in TOOLS.items() if CURSOR in tool.takes.model_fields} == set(AGENTS)
    assert not [name for name, each in OPERATED.items() if each.in_pages]


async def test_after_every_read_model_was_rebuilt_each_list_goes_on_behind_its_cursor(
    views: TwoViews, asking: Asking
) -> None:
    cursors = await first_pages(asking)
    before = {name: await ask(asking, cursors[name]) for name, ask in EVERY.items()}
    generations = await generations_of(views)
    await rebuild_all(views)
    assert {name: each - 1 for name, each in (await generations_of(views)).items()} == generations
    for name, ask in EVERY.items():
        page = await ask(asking, cursors[name])
        assert (page.problem, page.rows) == ("", before[name].rows), name
        assert page.rows, name


async def test_another_text_than_its_own_cursor_is_refused_in_one_sentence(views: TwoViews, asking: Asking) -> None:
    cursors = await first_pages(asking)
    async with clients_of(views.other) as other:
        for name, ask in EVERY.items():
            own = cursors[name]
            same = {each for lists in SAME if name in lists for each in lists} | {name}
            strange = {each: cursor for each, cursor in cursors.items() if each not in same}
            strange |= {"cut": own[:-1], "cut short": own[:4], "longer": f"{own}A", "padded": f"{own}="}
            strange |= {"altered": ("B" if own[0] == "A" else "A") + own[1:], "no text of ours": "päge"}
            for what, cursor in strange.items():
                assert (await ask(asking, cursor)).problem == REFUSED, (name, what)
            assert (await ask(other, own)).problem == REFUSED, f"{name}: the cursor of another tenant"
            assert (await ask(asking, own)).problem == ""


async def generations_of(views: TwoViews) -> dict[str, int]:
    listed = (await views.whole.get("/v1/projections")).json()["projections"]
    return {each["projection"]: each["generation"] for each in listed}


async def rebuild_all(views: TwoViews) -> None:
    """Build every read model of the tenant again, and switch to it."""
    installation = views.gateway.services.installation
    dsn = installation.as_role(installation.roles.projector)
    async with installation.connect(installation.roles.auditor) as auditor:
        (log,) = [each for each in await read_logs(auditor) if each.log_id == views.gateway.acme.log_id]

    async def append(_log: Log, _attested: ProjectionAttested) -> None:
        """That it was built is not recorded: the log stays as it is."""

    for projection in PROJECTIONS:
        await rebuild(dsn, projection, log, append=append, opener=views.gateway.services.opener)
