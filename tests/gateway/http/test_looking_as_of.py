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

    steps: tuple[Callable[[], Awaitable[None]], ...] = (
        lambda: reviewed("confirmed"),
        lambda: reviewed("dismissed"),
        lambda: found_in(views.gateway, "sales", "orders", uuid),
        lambda: rename(views, named("sales", "orders"), named("sales", "sold")),
        made,
        lambda: rename(views, named("sales", "other"), named("sales", "orders")),
        lambda: rename(views, named("sales", "orders"), named("sales", "other")),
        dropped,
        lambda: rename(views, named("sales", "sold"), named("sales", "orders")),
    )
    paths = (*PATHS, f"/v1/findings/{finding}")
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
    if url.path in {"/v1/findings", "/v1/tables"}:
        return await pages(views.whole, url.path, url.path.rpartition("/")[2], limit=1, **asked)
    answer = await views.whole.get(url.path, params=asked)
    return answer.status_code, answer.json() | {"cursor": None}


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
            assert (await views.whole.get(path)).status_code == 200
        owner.execute(f"UPDATE projections.cursors SET version = version + 1 {of_log}", log_id)  # noqa: S608 - ours
    assert (await views.whole.get("/v1/findings", params={"as_of": as_of})).status_code == 200
