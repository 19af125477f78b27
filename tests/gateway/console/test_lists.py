# SPDX-License-Identifier: Apache-2.0
"""
The lists of the console as JSON and CSV: what is on the page, to whom may see it, and nothing that calculates.
"""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from re import findall

import httpx
import pytest
import pytest_asyncio
from fastapi.routing import APIRoute

from gateway.console import pages
from gateway.console.lists import FORMULA, LISTS, OPERATED, POLICY_DRAFTS, RESTRICTION_DRAFTS, Listed, format_csv
from gateway.console.routers import ROUTERS
from testkit.gateway.console.furnished import write_restrictions
from testkit.gateway.sales import CREATE, NAMESPACES, another_key
from testkit.gateway.two_views import found_in, make_table, project
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN = {"Sec-Fetch-Site": "same-origin"}
COMMITS = "/console/tables/lake/sales/orders/commits"
DRAFTS = {"policies/_drafts": POLICY_DRAFTS, "restrictions/_drafts": RESTRICTION_DRAFTS}
HAS_ITS_FIRST = {"log", "access-rules"}
"""Lists that have something as soon as the tenant is founded."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visitor(module_gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that is logged in, of a tenant with a table, a finding and a policy, which the tests share."""
    async with visiting(module_gateway) as browser:
        yield browser


@asynccontextmanager
async def visiting(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """Fill the lists of a tenant, and lend a browser that is logged in there."""
    await found_in(gateway, "sales", "orders", await make_table(gateway, "sales", "orders"))
    policy = {"id": "owned", "expression": "true", "message": "=1+1", "reason": "@SUM(A1)"}
    assert (await gateway.http.post("/v1/policies", json=policy)).status_code == 201
    drafted = {"expression": "true", "message": "=1+1", "reason": "-2"}
    assert (await gateway.http.put("/v1/policy-drafts/proposed", json=drafted)).status_code == 200
    await write_restrictions(gateway.http, "=1+1")
    await project(gateway)
    async with browser_of(gateway, gateway.acme.key.secret) as browser:
        await browser.post("/console/login", data={"key": gateway.acme.key.secret})
        yield browser


def browser_of(gateway: Gateway, key: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=gateway.app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=OWN)


def rows_of(answer: httpx.Response) -> list[dict[str, str]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/csv")
    return list(csv.DictReader(io.StringIO(answer.text)))


@pytest.mark.parametrize("name", LISTS)
async def test_every_list_links_to_itself_as_json_and_csv_with_the_same_rows(
    visitor: httpx.AsyncClient, name: str
) -> None:
    page = await visitor.get(f"/console/{name}")
    # That of the drafts that wait, if there are any, comes before it.
    as_json, as_csv = (
        unescape(link) for link in findall(r'<p class="twins">.*href="([^"]*)".*href="([^"]*)"', page.text)[-1]
    )
    assert (as_json, as_csv) == (f"/console/{name}.json", f"/console/{name}.csv")
    listed = (await visitor.get(as_json)).json()[LISTS[name].member]
    rows = rows_of(await visitor.get(as_csv))
    assert len(listed) == len(rows) > 0
    assert list(rows[0]) == list(LISTS[name].columns)
    assert set(LISTS[name].columns) <= set(listed[0])


async def test_the_drafts_that_wait_are_lists_with_twins(shared_gateway: Gateway) -> None:
    async with visiting(shared_gateway) as visitor:
        for name, listed in DRAFTS.items():
            await check_drafts(visitor, shared_gateway.http, name, listed)


async def check_drafts(visitor: httpx.AsyncClient, http: httpx.AsyncClient, name: str, listed: Listed) -> None:
    """Compare a list of drafts with its twins, and review them until there are none."""
    of = name.partition("/")[0]
    page = (await visitor.get(f"/console/{of}")).text
    assert f'href="/console/{name}.json"' in page
    assert f'href="/console/{name}.csv"' in page
    found = (await visitor.get(f"/console/{name}.json")).json()[listed.member]
    answer = await visitor.get(f"/console/{name}.csv")
    assert f'filename="{listed.member}.csv"' in answer.headers["content-disposition"]
    rows = rows_of(answer)
    assert [row["id"] for row in rows] == [each["id"] for each in found]
    assert list(rows[0]) == list(listed.columns)
    assert set(listed.columns) <= set(found[0])
    assert rows[0]["reason"] in {"'-2", "'=1+1"}, "whoever opens it calculates nothing"
    assert (await visitor.get(f"/console/{name}.xml")).status_code == 404
    for draft in found:
        verdict = {"version": draft["version"], "verdict": "refuse", "reason": "no"}
        reviewed = await http.post(f"/v1/{listed.member}/{draft['id']}/review", json=verdict)
        assert reviewed.status_code == 200, reviewed.text
    assert rows_of(await visitor.get(f"/console/{name}.csv")) == []
    assert f"/console/{name}" not in (await visitor.get(f"/console/{of}")).text


async def test_every_list_of_an_empty_tenant_is_there_as_json_and_csv_and_its_page_says_what_to_do(
    shared_gateway: Gateway,
) -> None:
    routes = [each for router in ROUTERS for each in router.routes if isinstance(each, APIRoute)]
    paths = {each.path for each in routes if "GET" in (each.methods or ()) and "{" not in each.path}
    paths.remove("/console/log/follow")  # it does not end
    async with browser_of(shared_gateway, shared_gateway.acme.key.secret) as browser:
        await browser.post("/console/login", data={"key": shared_gateway.acme.key.secret})
        pages_seen = {path: await browser.get(path) for path in (*paths, "/console/tables/lake/sales/none")}
        twins = {
            tuple(unescape(link) for link in findall('href="([^"]*)"', twin))
            for page in pages_seen.values()
            for twin in findall(r'<p class="twins">This list as(.*?)</p>', page.text)
        }
        of_operators = {f"/console/operate/{name}" for name in OPERATED}
        lists = {f"/console/{name}" for name in LISTS} | of_operators | {"/console/tables/lake/sales/none/commits"}
        assert twins == {(f"{each}.json", f"{each}.csv") for each in lists}
        for as_json, as_csv in twins:
            assert (await browser.get(as_json)).status_code == 200
            rows = rows_of(await browser.get(as_csv))
            has_some = {*of_operators, *(f"/console/{name}" for name in HAS_ITS_FIRST)}
            if as_csv.removesuffix(".csv") not in has_some:
                assert rows == [], as_csv
    for name in {*LISTS} - HAS_ITS_FIRST:
        assert pages_seen[f"/console/{name}"].status_code == 200, name
        assert "data-label=" not in pages_seen[f"/console/{name}"].text, name


@pytest.mark.parametrize("name", ["log", "tables", "findings"])
async def test_a_list_as_of_an_entry_is_that_of_then_in_every_form(visitor: httpx.AsyncClient, name: str) -> None:
    member = LISTS[name].member
    for as_of, is_whole in ((0, False), (await last_index(visitor), True)):
        page = await visitor.get(f"/console/{name}?as_of={as_of}")
        assert f'name="as_of" value="{as_of}"' in page.text
        assert "follow.mjs" not in page.text, "what comes is not of then"
        as_json, as_csv = (
            unescape(link) for link in findall(r'<p class="twins">.*href="([^"]*)".*href="([^"]*)"', page.text)[0]
        )
        listed, rows = (await visitor.get(as_json)).json()[member], rows_of(await visitor.get(as_csv))
        assert (
            len(listed)
            == len(rows)
            == (len((await visitor.get(f"/console/{name}.json")).json()[member]) if is_whole else int(name == "log"))
        )
    beyond = await visitor.get(f"/console/{name}?as_of=99999")
    assert (beyond.status_code, "the log has" in beyond.text) == (400, True)


async def last_index(visitor: httpx.AsyncClient) -> int:
    """The index of the last entry."""
    return int((await visitor.get("/console/log.json")).json()["entries"][0]["index"])


async def test_the_commits_of_a_table_are_a_list_too(visitor: httpx.AsyncClient) -> None:
    page = await visitor.get("/console/tables/lake/sales/orders")
    assert f'href="{COMMITS}.json"' in page.text
    assert f'href="{COMMITS}.csv"' in page.text
    rows = rows_of(await visitor.get(f"{COMMITS}.csv"))
    assert [row["operation"] for row in rows] == ["table.commit", "table.create"]
    assert len((await visitor.get(f"{COMMITS}.json")).json()["decisions"]) == 2


async def test_the_commits_of_a_table_with_any_name_are_found(
    visitor: httpx.AsyncClient, module_gateway: Gateway
) -> None:
    name = "a/b?c.csv"
    made = await module_gateway.http.post(f"{NAMESPACES}/sales/tables", json={**CREATE, "name": name})
    assert made.status_code == 200
    await project(module_gateway)
    listed = await visitor.get("/console/tables", params={"name": "a/b"})
    (path,) = findall(r'href="(/console/tables/[^"]*)"', listed.text)
    links = findall(r'href="(/console/tables/[^"]*/commits\.csv)"', (await visitor.get(unescape(path))).text)
    assert [row["operation"] for row in rows_of(await visitor.get(unescape(links[0])))] == ["table.create"]


async def test_a_twin_is_filtered_as_its_page_is(visitor: httpx.AsyncClient) -> None:
    page = await visitor.get("/console/log?type=commit.decided&actor=")
    assert 'href="/console/log.csv?type=commit.decided"' in page.text
    rows = rows_of(await visitor.get("/console/log.csv?type=commit.decided"))
    assert {row["type"] for row in rows} == {"commit.decided"}
    assert (await visitor.get("/console/log.json?type=commit.decided")).json()["entries"] != []
    for form in ("json", "csv"):
        assert (await visitor.get(f"/console/findings.{form}?confidence=many")).status_code == 400


@pytest.mark.parametrize("path", [*(f"/console/{name}" for name in LISTS), "/console/operate/keys", COMMITS])
async def test_a_parameter_that_a_list_does_not_have_is_refused_in_every_form(
    visitor: httpx.AsyncClient, path: str
) -> None:
    listed = path.rpartition("/")[2]
    forms = [
        f"{path}.json",
        f"{path}.csv",
        *([path] if listed in {"log", "tables", "findings", "access-rules"} else []),
    ]
    for form in forms:
        for query, words in (("colour=red", "colour: expected "), ("colour=red&colour=blue", "colour: expected ")):
            answer = await visitor.get(f"{form}?{query}")
            assert (answer.status_code, words in answer.text) == (400, True), answer.text
    if listed in LISTS and "as_of" in LISTS[listed].filters:
        twice = await visitor.get(f"{path}.csv?as_of=1&as_of=2")
        assert (twice.status_code, "as_of: expected it once, found it repeated" in twice.text) == (400, True)


async def test_what_a_twin_cannot_answer_is_said_in_json_to_programs_and_on_a_page_to_browsers(
    visitor: httpx.AsyncClient,
) -> None:
    for path, status in (("log.json?cursor=x", 400), ("findings.csv?state=none", 400), ("keys.json", 404)):
        program = await visitor.get(f"/console/{path}")
        error = program.json()["error"]
        assert (program.status_code, error["code"]) == (status, status)
        assert program.headers["cache-control"] == "private, no-store"
        browser = await visitor.get(f"/console/{path}", headers={"Accept": "text/html,*/*;q=0.8"})
        assert browser.status_code == status
        assert browser.headers["content-type"].startswith("text/html")
        assert error["message"] in unescape(browser.text)


async def test_a_csv_is_bounded_and_says_where_it_goes_on(
    visitor: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rows_of(await visitor.get("/console/log.csv"))
    monkeypatch.setattr(pages, "PAGE", 3)
    monkeypatch.setattr(pages, "ROWS_MAX", 7)
    path, parts = "/console/log.csv?actor=", list[dict[str, str]]()
    while True:
        answer = await visitor.get(path)
        rows = rows_of(answer)
        assert len(rows) <= 7
        parts += rows
        if "link" not in answer.headers:
            break
        assert 'filename="log.part.csv"' in answer.headers["content-disposition"]
        path = answer.headers["link"].removeprefix("<").removesuffix('>; rel="next"')
    assert 'filename="log.csv"' in answer.headers["content-disposition"]
    assert parts == whole
    assert len(whole) > 7


async def test_nobody_reads_in_a_twin_what_is_not_on_their_page(
    visitor: httpx.AsyncClient, module_gateway: Gateway
) -> None:
    key = await another_key(module_gateway, "eve@acme.example", "analyst")
    async with browser_of(module_gateway, key) as other:
        for path in (*(f"/console/{name}.csv" for name in LISTS), f"{COMMITS}.csv"):
            assert (await other.get(path)).headers["location"].startswith("/console/login")
        await other.post("/console/login", data={"key": key})
        for name in ("log", "tables", "findings"):
            assert rows_of(await other.get(f"/console/{name}.csv")) == []
            assert (await other.get(f"/console/{name}.json")).json()[LISTS[name].member] == []
        of_configuration = ("policies", "restrictions", "access-rules", *DRAFTS)
        for path in (COMMITS, *(f"/console/{name}" for name in of_configuration)):
            for form in ("csv", "json"):
                assert (await other.get(f"{path}.{form}")).status_code == 403, path


@pytest.mark.parametrize("path", ["/console/log.xml", "/console/keys.csv", "/console/.csv", f"{COMMITS}.xlsx"])
async def test_a_list_or_form_that_is_none_is_not_there(visitor: httpx.AsyncClient, path: str) -> None:
    assert (await visitor.get(path)).status_code == 404


async def test_nothing_in_a_csv_is_a_formula(visitor: httpx.AsyncClient) -> None:
    (row,) = rows_of(await visitor.get("/console/policies.csv"))
    assert (row["message"], row["reason"]) == ("'=1+1", "'@SUM(A1)")
    for first in FORMULA:
        text = f'{first}cmd|"/c calc"!A1,\r\n=2+2'
        (row,) = csv.DictReader(io.StringIO(format_csv(("a", "b"), [{"a": text, "b": [text]}]), newline=""))
        assert row["a"] == f"'{text}"
        assert row["b"].startswith("[")
    (row,) = csv.DictReader(io.StringIO(format_csv(("a", "b", "c"), [{"a": -5, "b": None, "c": True}])))
    assert row == {"a": "-5", "b": "", "c": "true"}
