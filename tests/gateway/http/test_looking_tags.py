# SPDX-License-Identifier: Apache-2.0
"""
Who asks again for what has not changed is told so; after a change, after other rules, and to anybody else, it is not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from gateway.admin.application import OPERATOR
from lakeproof.services import Services
from testkit.gateway.sales import ORDERS, properties
from testkit.gateway.two_views import TwoViews, open_two_views

pytestmark = pytest.mark.asyncio(loop_scope="module")

TABLE = "/v1/tables/lake/sales/orders"
PATHS = ("/v1/findings", "/v1/findings?state=open&limit=1", "/v1/tables", f"{TABLE}/history", f"{TABLE}/lineage")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def views(module_services: Services, module_app: FastAPI) -> AsyncIterator[TwoViews]:
    async with open_two_views(module_services, module_app) as views:
        yield views


async def ask(http: httpx.AsyncClient, path: str, held: str = "") -> httpx.Response:
    return await http.get(path, headers={"If-None-Match": held} if held else {})


@pytest.mark.parametrize("path", PATHS)
async def test_an_answer_has_a_tag_until_the_read_models_have_more(views: TwoViews, path: str) -> None:
    first = await ask(views.whole, path)
    tag = first.headers["etag"]
    assert tag.startswith('W/"')
    assert first.headers["cache-control"] == "private, no-cache"
    for held in (tag, f'"x", {tag}', tag.removeprefix("W/"), "*"):
        again = await ask(views.whole, path, held)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    for held in ('"x"', "x", tag[:-2]):
        assert (await ask(views.whole, path, held)).status_code == 200
    (await views.whole.post(ORDERS, json=properties(note=path))).raise_for_status()
    assert (await ask(views.whole, path, tag)).status_code == 304, "no read model has it yet"
    await views.project()
    after = await ask(views.whole, path, tag)
    assert (after.status_code, after.headers["etag"] == tag) == (200, False)


async def test_a_tag_is_of_one_caller_one_question_and_the_rules_of_now(views: TwoViews) -> None:
    tags = [(await ask(http, path)).headers["etag"] for http in (views.whole, views.part) for path in PATHS]
    assert len(set(tags)) == len(tags)
    assert (await ask(views.other.http, PATHS[0], tags[0])).status_code == 200
    held = (await ask(views.part, "/v1/findings")).headers["etag"]
    await views.gateway.services.gateway.admin.create_access_rule(
        views.gateway.acme.log_id, OPERATOR, rule_id="closed", effect="forbid", expression="'seller' in roles"
    )
    after = await ask(views.part, "/v1/findings", held)
    assert (after.status_code, after.json()["findings"]) == (200, []), "no tag of yesterday shows it"
    assert (await ask(views.part, f"{TABLE}/history", "*")).status_code == 403


async def test_where_rules_read_uuids_there_is_no_tag(views: TwoViews) -> None:
    await views.gateway.services.gateway.admin.create_access_rule(
        views.gateway.acme.log_id, OPERATOR, rule_id="one", effect="forbid", expression="uuid == 'x'"
    )
    assert "etag" not in (await ask(views.whole, "/v1/findings", "*")).headers
    assert (await ask(views.whole, "/v1/findings", "*")).status_code == 200
    await views.gateway.services.gateway.admin.retire_access_rule(views.gateway.acme.log_id, OPERATOR, rule_id="one")
