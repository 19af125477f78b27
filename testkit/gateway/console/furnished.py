# SPDX-License-Identifier: Apache-2.0
"""
A tenant whose every page has something to show: commits that were approved and refused, findings, lineage, policies in
force and a draft, an erased part. Names, messages and values are `words`, so that a test may choose what they are.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from fastapi import FastAPI
from playwright.async_api import Browser, BrowserContext, Page

from lakeproof.services import Services
from testkit.gateway.sales import NAMESPACES, properties
from testkit.gateway.two_views import found_in, make_table, project, report_lineage
from testkit.servers.gateways import Gateway, keep_signing, open_gateway
from testkit.servers.loopback import serve_gateway

WORDS = "Name an owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Furnished:
    """The tenant, and the URL of its gateway."""

    gateway: Gateway
    url: str

    async def log_in(self, browser: Browser, **kind: object) -> Page:
        """Return a page of a browser of its own that is logged in; `kind` is what a context of Playwright takes."""
        context: BrowserContext = await browser.new_context(**kind)  # type: ignore[arg-type]
        page = await context.new_page()
        await page.goto(f"{self.url}/console/login")
        await page.fill("#key", self.gateway.acme.key.secret)
        await page.click("form.login button")
        await page.wait_for_url(f"{self.url}/console")
        return page


@asynccontextmanager
async def open_furnished(services: Services, app: FastAPI, *, words: str = WORDS) -> AsyncIterator[Furnished]:
    """Yield the tenant, whose log is signed, while its gateway is served."""
    async with open_gateway(services, app=app) as gateway, keep_signing(gateway), serve_gateway(app) as url:
        for namespace, name in (("sales", "orders"), ("hr", "salaries")):
            await found_in(gateway, namespace, name, await make_table(gateway, namespace, name))
        await report_lineage(gateway)
        await write_policies(gateway, words)
        orders = f"{NAMESPACES}/sales/tables/orders"
        for texts, status in (({"owner": "ada", "note": words}, 200), ({"note": words}, 200), ({"owner": ""}, 403)):
            answer = await gateway.http.post(orders, json=properties(**texts))
            assert answer.status_code == status, answer.text
        await project(gateway)
        yield Furnished(gateway=gateway, url=url)


async def write_policies(gateway: Gateway, words: str) -> None:
    """Write a policy with two versions, and a draft of a third one."""
    policy = {
        "expression": "!('owner' in result.properties) || result.properties['owner'] != ''",
        "message": words.replace("{", "{{").replace("}", "}}"),
        "reason": words,
    }
    made = await gateway.http.post("/v1/policies", json={"id": "owned", **policy, "expression": "true"})
    assert made.status_code == 201, made.text
    changed = await gateway.http.put("/v1/policies/owned", json=policy)
    assert changed.status_code == 200, changed.text
    drafted = await gateway.http.put("/v1/policy-drafts/owned", json={**policy, "scope": {"names": ["sales.**"]}})
    assert drafted.status_code in {200, 201}, drafted.text
    await write_restrictions(gateway.http, words)
    await write_access_rules(gateway.http, words)


async def write_access_rules(http: httpx.AsyncClient, words: str) -> None:
    """Write a rule, one that it covers, one that holds for no request, and one in Cedar with the words in its text."""
    reads = "op == 'READ_ENTITY_VALUE' && 'reader' in roles"
    text = json.dumps(words)
    cedar = f'forbid(principal in Role::"nobody", action, resource) when {{ resource.path == {text} }};'
    for rule_id, effect, expression, vocabulary in (
        ("readers", "permit", reads, 2),
        ("readers-of-orders", "permit", f"{reads} && path == 'sales.orders'", 2),
        ("never", "permit", f"op == 'READ_IT' && path == {text}", 2),
        ("nobody", "forbid", cedar, 4),
    ):
        rule = {"id": rule_id, "effect": effect, "expression": expression, "vocabulary": vocabulary}
        made = await http.post("/v1/access-rules", json=rule)
        assert made.status_code == 201, made.text


async def write_restrictions(http: httpx.AsyncClient, words: str) -> None:
    """Write a restriction with two versions, and a draft of a third one."""
    fields = [{"id": 1, "name": "region", "required": False, "type": "string"}]
    schemas = {"orders": {"type": "struct", "fields": fields}}
    restriction = {"filter": "row.region == 'EU'", "schemas": schemas, "reason": words}
    made = await http.post("/v1/restrictions", json={"id": "eu", **restriction})
    assert made.status_code == 201, made.text
    masks = [{"column": "region", "action": "show-last-4"}]
    changed = await http.put("/v1/restrictions/eu", json={**restriction, "masks": masks})
    assert changed.status_code == 200, changed.text
    drafted = await http.put("/v1/restriction-drafts/eu", json={**restriction, "filter": "row.region != null"})
    assert drafted.status_code == 200, drafted.text
