# SPDX-License-Identifier: Apache-2.0
"""
The page of a table, with and without a browser: findings are confirmed and dismissed on it, and it shows what became of
the table.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from gateway.admin.application import OPERATOR
from ledger.format.events import DetectionKind
from testkit.gateway.console.chromium import chromium_in_loop
from testkit.gateway.log_contents import read_stored
from testkit.gateway.recorded_scans import Detection
from testkit.gateway.sales import NAMESPACES, ORDERS, TABLES, another_key, properties
from testkit.gateway.two_views import project
from testkit.servers.gateways import Gateway
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = "/console/tables/lake/sales/orders"
OWN = {"Sec-Fetch-Site": "same-origin"}
FOUND = (
    ("email", DetectionKind.EMAIL, 92),
    ("note", DetectionKind.PHONE, 55),
    ("card", DetectionKind.CREDIT_CARD, 65),
)
REVENUE = ("lake", "mart.revenue_by_region_and_quarter")
READERS = "'reader' in roles && op in ['READ_ENTITY_VALUE', 'READ_CONTENT_KEY'] && contentType != 'LINEAGE'"
FIRST = [
    {"id": 1, "name": "id", "type": "long", "required": True},
    {"id": 2, "name": "mail", "type": "string", "required": False},
    {"id": 3, "name": "note", "type": "string", "required": False},
]
SECOND = [
    {"id": 1, "name": "id", "type": "long", "required": True},
    {"id": 2, "name": "email", "type": "string", "required": False, "doc": "classification: email"},
    {"id": 4, "name": "card", "type": "string", "required": False},
    {
        "id": 5,
        "name": "address",
        "required": False,
        "type": {"type": "struct", "fields": [{"id": 6, "name": "city", "type": "string", "required": False}]},
    },
]


def schema(fields: list[dict[str, Any]], schema_id: int) -> dict[str, Any]:
    return {"type": "struct", "schema-id": schema_id, "fields": fields}


async def lived(gateway: Gateway) -> None:
    """Let a table be made and changed, be scanned, and be part of lineage."""
    http = gateway.http
    (await http.post(NAMESPACES, json={"namespace": ["sales"]})).raise_for_status()
    made = await http.post(TABLES, json={"name": "orders", "schema": schema(FIRST, 0)})
    uuid, location = made.json()["metadata"]["table-uuid"], made.json()["metadata-location"]
    policy = {"id": "owned", "expression": "true", "message": "Name an owner", "scope": {"names": ["sales.**"]}}
    (await http.post("/v1/policies", json=policy)).raise_for_status()
    changes = [
        {"action": "add-schema", "schema": schema(SECOND, 1), "last-column-id": 6},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    (await http.post(ORDERS, json={"requirements": [], "updates": changes})).raise_for_status()
    summary = {"operation": "append", "engine-name": "spark", "engine-version": "4.0.1", "added-records": "1200"}
    added = {
        "snapshot-id": 11,
        "sequence-number": 1,
        "timestamp-ms": 4_102_444_800_000,
        "manifest-list": f"{location.rpartition('/')[0]}/snap-11.avro",
        "summary": summary,
        "schema-id": 1,
    }
    (
        await http.post(ORDERS, json={"requirements": [], "updates": [{"action": "add-snapshot", "snapshot": added}]})
    ).raise_for_status()
    (await http.post(ORDERS, json=properties(owner="ada@acme.example"))).raise_for_status()
    await Detection(gateway).scanned("11", *FOUND, table_uuid=uuid)
    await report_lineage(gateway)
    await project(gateway)


async def report_lineage(gateway: Gateway) -> None:
    def facet(**fields: tuple[str, str, str]) -> dict[str, Any]:
        return {
            "columnLineage": {
                "_producer": "https://example.com/etl",
                "_schemaURL": "https://openlineage.io/spec/facets/1-2-0/ColumnLineageDatasetFacet.json",
                "fields": {
                    name: {"inputFields": [{"namespace": space, "name": of, "field": field}]}
                    for name, (space, of, field) in fields.items()
                },
            }
        }

    runs: list[tuple[str, list[tuple[str, str]], tuple[str, str], dict[str, Any]]] = [
        ("ingest", [("kafka://prod", "clicks")], ("lake", "raw.events"), {}),
        (
            "nightly",
            [("lake", "raw.events"), ("lake", "raw.customers")],
            ("lake", "sales.orders"),
            facet(email=("lake", "raw.customers", "mail"), id=("lake", "raw.events", "order_id")),
        ),
        (
            "report",
            [("lake", "sales.orders")],
            REVENUE,
            facet(orders=("lake", "sales.orders", "id")),
        ),
        ("train", [("lake", "sales.orders")], ("lake", "ml.features"), {}),
    ]
    for job, inputs, output, facets in runs:
        event = {
            "eventType": "COMPLETE",
            "eventTime": "2026-11-20T12:00:00Z",
            "producer": "https://example.com/etl/1.4",
            "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
            "run": {"runId": str(uuid4())},
            "job": {"namespace": "etl", "name": job},
            "inputs": [{"namespace": namespace, "name": name} for namespace, name in inputs],
            "outputs": [{"namespace": output[0], "name": output[1], "facets": facets}],
        }
        (await gateway.http.post("/v1/lineage", json=event)).raise_for_status()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def table(module_gateway: Gateway) -> Gateway:
    """A tenant with one table, that all tests share: each reviews a finding that no other one does."""
    await lived(module_gateway)
    return module_gateway


@asynccontextmanager
async def logged_in(gateway: Gateway, key: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=gateway.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as visitor:
        assert (await visitor.post("/console/login", data={"key": key}, headers=OWN)).status_code == 303
        yield visitor


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visitor(table: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with logged_in(table, table.acme.key.secret) as visitor:
        yield visitor


def forms(page: httpx.Response) -> list[str]:
    return re.findall(r'<form class="review" method="post" action="([^"]*)">', page.text)


def form_of(page: httpx.Response, kind: str) -> str:
    """Where the form about a finding of some kind is sent."""
    (card,) = [each for each in page.text.split('<li class="card')[1:] if f"<strong>{kind}</strong>" in each]
    found = re.search(r'action="([^"]*)"', card)
    assert found is not None
    return found[1]


def said(page: httpx.Response) -> str:
    """What a page says, without its marks."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page.text)).split())


async def reviewed(gateway: Gateway, kind: str) -> list[tuple[str, str]]:
    stored = await read_stored(gateway.services, gateway.acme.log_id)
    return [
        (str(one.entry.data["verdict"]), str(one.entry.data["reason"]))
        for one in stored
        if one.entry.type == "finding.reviewed" and one.entry.data["kind"] == kind
    ]


async def test_a_finding_is_dismissed_with_a_form_and_the_page_says_who_and_why(
    visitor: httpx.AsyncClient, table: Gateway
) -> None:
    page = await visitor.get(PAGE)
    path = form_of(page, "phone")
    answer = await visitor.post(
        path, data={"verdict": "dismissed", "reason": "<b>a number of ours</b>", "version": "0"}, headers=OWN
    )
    finding = path.split("/")[-2]
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PAGE}?reviewed={finding}#findings")
    assert await reviewed(table, "phone") == [("dismissed", "<b>a number of ours</b>")]
    assert f"The review of finding {finding} is in the log." in said(await visitor.get(answer.headers["location"]))
    await project(table)
    page = await visitor.get(PAGE)
    assert "Dismissed: “<b>a number of ours</b>”" in said(page)
    assert "<b>a number of ours</b>" not in page.text
    assert "Review it again" in page.text


async def test_what_was_refused_is_said_on_the_page_and_what_was_written_stays(
    visitor: httpx.AsyncClient, table: Gateway
) -> None:
    path = form_of(await visitor.get(PAGE), "email")
    empty = await visitor.post(path, data={"verdict": "dismissed", "reason": " "}, headers=OWN)
    assert (empty.status_code, "reason: expected a text that is not empty" in said(empty)) == (400, True)
    nothing = await visitor.post(path, data={"verdict": "maybe", "reason": "my reason"}, headers=OWN)
    assert (nothing.status_code, "verdict: expected one of" in said(nothing)) == (400, True)
    assert 'value="my reason"' in nothing.text
    assert forms(nothing) == forms(await visitor.get(PAGE))
    for version in ("x", "-1", "²", "9" * 16, "9" * 5_000):
        wrong = await visitor.post(
            path, data={"verdict": "confirmed", "reason": "it is", "version": version}, headers=OWN
        )
        assert (wrong.status_code, "version: expected the number of a version" in said(wrong)) == (400, True)
        assert 'value="it is"' in wrong.text
    assert await reviewed(table, "email") == []
    sent = {"verdict": "confirmed", "reason": "it is", "version": "0"}
    assert (await visitor.post(path, data=sent, headers=OWN)).status_code == 303
    stale = await visitor.post(path, data=sent, headers=OWN)
    assert (stale.status_code, "found version 1" in said(stale)) == (409, True)
    assert await reviewed(table, "email") == [("confirmed", "it is")]


async def test_links_lead_back_to_the_table_whatever_its_name_is(visitor: httpx.AsyncClient) -> None:
    path = "/console/tables/lake/findings%1F%22%3E/findings"
    page = await visitor.post(f"{path}/findings/0/review", data={"verdict": "x", "reason": "y"}, headers=OWN)
    assert page.status_code == 400
    assert f'href="{path}?access=yes#access"' in page.text


@pytest.mark.parametrize("headers", [{}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}])
async def test_a_form_of_another_site_reviews_nothing(
    visitor: httpx.AsyncClient, table: Gateway, headers: dict[str, str]
) -> None:
    path = form_of(await visitor.get(PAGE), "credit_card")
    answer = await visitor.post(path, data={"verdict": "dismissed", "reason": "x"}, headers=headers)
    assert answer.status_code == 403
    assert ("dismissed", "x") not in await reviewed(table, "credit_card")


async def test_who_may_only_read_has_no_forms_and_is_refused(table: Gateway, visitor: httpx.AsyncClient) -> None:
    await table.services.gateway.admin.create_access_rule(
        table.acme.log_id, OPERATOR, rule_id="readers", effect="permit", expression=READERS
    )
    path = form_of(await visitor.get(PAGE), "credit_card")
    async with logged_in(table, await another_key(table, "eve@acme.example", "reader")) as reader:
        page = await reader.get(PAGE)
        assert (page.status_code, forms(page)) == (200, [])
        assert "takes a right that you do not have here" in said(page)
        answer = await reader.post(path, data={"verdict": "dismissed", "reason": "x"}, headers=OWN)
        assert (answer.status_code, "no access rule permits this" in said(answer)) == (403, True)
        shown = said(await reader.get(f"{PAGE}?access=yes"))
        assert "Who may do what is shown to whom access rules permit to read rules and keys." in shown
    async with logged_in(table, await another_key(table, "bob@acme.example")) as nobody:
        assert (await nobody.get(PAGE)).status_code == 403
    assert ("dismissed", "x") not in await reviewed(table, "credit_card")


async def test_the_page_tells_what_each_commit_did_and_what_each_schema_changed(visitor: httpx.AsyncClient) -> None:
    page = said(await visitor.get(PAGE))
    assert "snapshot 11: append, added records 1,200" in page
    assert "· ada@acme.example · spark 4.0.1" in page
    assert "judged by owned (allow)" in page
    assert "found in it: email in email (" in page
    schemas = page.partition("Schema through time")[2].partition("Lineage")[0]
    assert "Schema 1 current 5 columns, by decision" in schemas
    for change in (
        "added card string",
        "added address struct",
        "added address.city string",
        "removed note string",
        "renamed mail to email",
        "changed email : no doc → classification: email",
    ):
        assert change in schemas, schemas
    assert schemas.index("Schema 1") < schemas.index("Schema 0")


async def test_lineage_is_a_picture_and_a_list_and_rights_are_shown_on_demand(visitor: httpx.AsyncClient) -> None:
    plain = await visitor.get(PAGE)
    picture = plain.text.partition("<svg")[2].partition("</svg>")[0]
    boxes = re.findall(r"<title>([a-z]+:[^<]*)</title>", picture)
    assert set(boxes) == {
        "dataset:kafka://prod » clicks",
        *(f"table:lake.{name}" for name in ("raw.events", "raw.customers", "sales.orders", "ml.features")),
        "table:lake.mart.revenue_by_region_and_quarter",
    }
    assert "sales.orders was made from raw.events by etl/nightly" in picture or "made from raw.events" in picture
    assert ">order_id<" not in plain.text
    listed = said(plain).partition("Made from")[2].partition("Policies")[0]
    assert all(name in listed for name in ("lake . raw . events", "clicks", "lake . ml . features"))
    with_columns = await visitor.get(f"{PAGE}?columns=yes")
    assert ">order_id<" in with_columns.text.partition("<svg")[2].partition("</svg>")[0]
    assert "email of lake . sales . orders from mail of lake . raw . customers" in said(with_columns)
    rights = said(await visitor.get(f"{PAGE}?access=yes")).partition("Who may do what caller")[2]
    assert "ada@acme.example" in rights
    assert "yes first-key" in rights


async def test_a_table_that_was_dropped_keeps_what_the_log_says_of_it(
    visitor: httpx.AsyncClient, table: Gateway
) -> None:
    (await table.http.post(TABLES, json={"name": "old", "schema": schema(FIRST, 0)})).raise_for_status()
    assert (await table.http.delete(f"{TABLES}/old")).status_code == 204
    await project(table)
    page = await visitor.get("/console/tables/lake/sales/old")
    assert page.status_code == 200
    assert "table.drop" in page.text
    assert "so its schemas are not known" in said(page)


# In a browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium_in_loop() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def page(table: Gateway, browser: Browser) -> AsyncIterator[Page]:
    """The page, in a browser that runs no script."""
    async with serve_gateway(table.app) as url:
        context = await browser.new_context(java_script_enabled=False)
        page = await context.new_page()
        await page.goto(f"{url}{PAGE}")
        await page.fill("#key", table.acme.key.secret)
        await page.click("main button")
        await page.wait_for_url(f"**{PAGE}")
        yield page
        await context.close()


async def test_a_person_dismisses_a_finding_without_script(page: Page, table: Gateway) -> None:
    card = page.locator(".card", has_text="credit_card")
    await card.get_by_label("Why").fill("a number of an order")
    await card.get_by_role("button", name="Dismiss: none").click()
    await page.wait_for_url("**?reviewed=*")
    assert await reviewed(table, "credit_card") == [("dismissed", "a number of an order")]
    await project(table)
    await page.reload()
    assert "a number of an order" in await page.locator(".card.dismissed", has_text="credit_card").inner_text()


async def test_nothing_but_the_picture_and_tables_is_wider_than_a_telephone(page: Page) -> None:
    await page.set_viewport_size({"width": 360, "height": 800})
    await page.goto(f"{page.url}?columns=yes&access=yes")
    for each in await page.locator("main > *, main section > *").all():
        box = await each.bounding_box()
        assert box is None or box["x"] + box["width"] <= 360.5, await each.inner_text()
    picture = await page.locator(".picture svg").bounding_box()
    assert picture is not None
    assert picture["width"] > 360, "it scrolls in a box of its own"
