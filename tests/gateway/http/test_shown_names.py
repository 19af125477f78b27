# SPDX-License-Identifier: Apache-2.0
"""
Lists show what the caller may see, and do not tell that there is more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from gateway.admin.application import OPERATOR
from gateway.errors import UnavailableError
from gateway.http.looking.sight import Sight
from gateway.policy.engine import EngineUnavailableError, Program
from gateway.policy.rule_files import PREFIX
from gateway.policy.rule_formulas import Formula, JudgesRules
from gateway.policy.variables import RequestView
from lakeproof.services import Services
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import NAMESPACES, SCHEMA, TABLES, another_key, create_orders
from testkit.gateway.view_requests import VIEWS, view_created
from testkit.servers.chained import BEYOND, Chained, open_chain
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAR = f"/v1/iceberg/{BEYOND}/namespaces"
LISTING = "op == 'READ_CONTENT_KEY' && contentType == 'NAMESPACE'"


async def rule(gateway: Gateway, rule_id: str, expression: str, effect: str = "permit") -> None:
    await gateway.services.gateway.admin.create_access_rule(
        gateway.acme.log_id, OPERATOR, rule_id=rule_id, effect=effect, expression=expression
    )


async def reader(gateway: Gateway, *rules: str) -> httpx.AsyncClient:
    """A client of a reader who may list namespaces, and whom `rules` permit more."""
    await rule(gateway, "listing", f"'reader' in roles && {LISTING}")
    for number, expression in enumerate(rules):
        await rule(gateway, f"reads-{number}", f"'reader' in roles && {expression}")
    return gateway.client(await another_key(gateway, "rita@acme.example", "reader"))


async def make(http: httpx.AsyncClient, *names: str) -> None:
    for name in names:
        (await http.post(TABLES, json={"name": name, "schema": SCHEMA})).raise_for_status()


async def listed(http: httpx.AsyncClient, path: str = TABLES) -> list[str]:
    answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert "next-page-token" not in body
    return [one["name"] for one in body["identifiers"]]


async def paged(http: httpx.AsyncClient, size: int, path: str = TABLES) -> tuple[list[list[str]], list[str]]:
    """The names of each page, and the tokens."""
    pages, tokens, token = [], list[str](), ""
    while True:
        answer = await http.get(path, params={"pageToken": token, "pageSize": size})
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        pages.append([one["name"] for one in body["identifiers"]])
        if "next-page-token" not in body:
            return pages, tokens
        token = body["next-page-token"]
        tokens.append(token)


async def test_a_list_shows_what_may_be_loaded_or_known_to_exist(sales: Gateway) -> None:
    await make(sales.http, "customers", "invoices", "secrets")
    rita = await reader(
        sales,
        "op == 'READ_ENTITY_VALUE' && path == 'sales.orders'",
        "op == 'READ_CONTENT_KEY' && path == 'sales.customers'",
        "op == 'UPDATE_ENTITY' && path == 'sales.invoices'",
    )
    assert await listed(rita) == ["customers", "orders"]
    assert await listed(sales.http) == ["customers", "invoices", "orders", "secrets"]
    await rule(sales, "never", "path == 'sales.orders' && 'reader' in roles", "forbid")
    assert await listed(rita) == ["customers"]


async def test_whoever_may_list_alone_sees_nothing_and_nothing_is_recorded(sales: Gateway) -> None:
    rita = await reader(sales)
    before = await read_stored(sales.services, sales.acme.log_id)
    assert await listed(rita) == []
    assert (await rita.get(f"{TABLES}/orders")).status_code == 403
    refused = (await read_stored(sales.services, sales.acme.log_id))[len(before) :]
    assert [one.entry.type for one in refused] == ["access.refused"], "of the load alone"


async def test_without_the_right_to_list_nothing_is_listed(sales: Gateway) -> None:
    await rule(sales, "reads", "'reader' in roles && path == 'sales.orders'")
    rita = sales.client(await another_key(sales, "rita@acme.example", "reader"))
    assert (await rita.get(TABLES)).status_code == 403
    assert (await rita.get(f"{TABLES}/orders")).status_code == 200


async def test_pages_are_filled_with_what_is_shown_and_end_where_it_ends(sales: Gateway) -> None:
    names = [f"t{number:02}" for number in range(25)]
    await make(sales.http, *names)
    rita = await reader(sales, "path.matches('t[0-9]*[05]$') && op == 'READ_ENTITY_VALUE'")
    shown = ["t00", "t05", "t10", "t15", "t20"]
    assert await listed(rita) == shown
    for size in (1, 2, 3, 5, 7, 30):
        pages, tokens = await paged(rita, size)
        assert [name for page in pages for name in page] == shown, size
        assert all(len(page) == size for page in pages[:-1]), "a short page would tell how many are hidden"
        assert set(tokens) <= set(shown), "a token is no name that is hidden"
    # Somebody who sees all has the same pages as before.
    pages, _ = await paged(sales.http, 10)
    assert [len(page) for page in pages] == [10, 10, 6]


async def test_namespaces_and_views_are_left_out_alike(sales: Gateway) -> None:
    for levels in (["hr"], ["hr", "pay"], ["sales", "eu"], ["sales", "us"]):
        (await sales.http.post(NAMESPACES, json={"namespace": levels})).raise_for_status()
    for name in ("report", "payroll"):
        (await sales.http.post(VIEWS, json=view_created(name))).raise_for_status()
    await rule(sales, "top", "'reader' in roles && op == 'READ_CONTENT_KEY' && path in ['', 'sales', 'sales.eu']")
    await rule(sales, "view", "'reader' in roles && contentType == 'ICEBERG_VIEW' && path == 'sales.report'")
    rita = sales.client(await another_key(sales, "rita@acme.example", "reader"))
    assert (await rita.get(NAMESPACES)).json() == {"namespaces": [["sales"]]}
    assert (await rita.get(f"{NAMESPACES}?parent=sales")).json() == {"namespaces": [["sales", "eu"]]}
    assert (await rita.get(f"{NAMESPACES}?parent=hr")).status_code == 403
    assert await listed(rita, VIEWS) == ["report"]
    assert await listed(rita) == []
    page = (await rita.get(NAMESPACES, params={"pageToken": "", "pageSize": 1})).json()
    assert page == {"namespaces": [["sales"]]}


async def test_what_cannot_be_judged_is_left_out_and_the_rest_is_shown(sales: Gateway) -> None:
    await make(sales.http, "customers")
    rita = await reader(sales, "path.startsWith('sales.')")
    await rule(sales, "broken", "path == 'sales.orders' && roles[5] == 'x'", "forbid")
    assert (await rita.get(f"{TABLES}/orders")).status_code == 503
    assert await listed(rita) == ["customers"]


async def test_rules_by_uuid_hold_in_lists_too(sales: Gateway) -> None:
    await make(sales.http, "customers")
    uuid = (await sales.http.get(f"{TABLES}/orders")).json()["metadata"]["table-uuid"]
    rita = await reader(sales, f"uuid == '{uuid}'")
    assert await listed(rita) == ["orders"]
    source, destination = ({"namespace": ["sales"], "name": name} for name in ("orders", "zz"))
    await sales.http.post("/v1/iceberg/lake/tables/rename", json={"source": source, "destination": destination})
    assert await listed(rita) == ["zz"]
    await rule(sales, "all", "'reader' in roles && catalog == 'lake'")
    await rule(sales, "not", f"uuid == '{uuid}' && 'reader' in roles", "forbid")
    assert await listed(rita) == ["customers"]


async def test_imported_rules_hold_for_each_entry_with_its_reference(sales: Gateway) -> None:
    await make(sales.http, "customers")
    file = "\n".join(
        (
            f"{PREFIX}viewing=op in ['VIEW_REFERENCE', 'READ_ENTRIES'] && 'reader' in roles",
            f"{PREFIX}listing=op == 'READ_CONTENT_KEY' && path in ['sales', 'sales.orders'] && 'reader' in roles",
        )
    )
    (await sales.http.post("/v1/access-rules/import", json={"file": file})).raise_for_status()
    rita = sales.client(await another_key(sales, "rita@acme.example", "reader"))
    assert await listed(rita) == ["orders"]
    (await sales.http.delete("/v1/access-rules/viewing")).raise_for_status()
    assert (await rita.get(TABLES)).status_code == 403


class CountedRows:
    """What judges rows, and how often it was asked; with an error, it gives no answer."""

    def __init__(self, judges: JudgesRules, error: EngineUnavailableError | None = None) -> None:
        self._judges, self._error = judges, error
        self.rows: list[int] = []

    async def read_rule(self, expression: str, *, log_id: int, timeout_s: float) -> Formula:
        return await self._judges.read_rule(expression, log_id=log_id, timeout_s=timeout_s)

    async def judge_rows(
        self,
        programs: Sequence[Program],
        shared: Mapping[str, Any],
        rows: Sequence[Mapping[str, Any]],
        *,
        log_id: int,
        timeout_s: float,
    ) -> list[str]:
        self.rows.append(len(rows))
        if self._error is not None:
            raise self._error
        return await self._judges.judge_rows(programs, shared, rows, log_id=log_id, timeout_s=timeout_s)


async def test_rules_without_names_are_not_evaluated_for_each_name(sales: Gateway) -> None:
    await make(sales.http, *(f"t{number}" for number in range(8)))
    rita_key = await another_key(sales, "rita@acme.example", "reader")
    await rule(sales, "reads", "'reader' in roles && op.startsWith('READ_')")
    judge = sales.services.gateway.judge
    counted = CountedRows(judge.rows)
    rita = sales.through(key=rita_key, judge=replace(judge, rows=counted))
    assert len(await listed(rita)) == 9
    assert counted.rows == []
    await rule(sales, "hidden", "path == 'sales.t3'", "forbid")
    assert len(await listed(rita)) == 8
    assert counted.rows == [9, 1], "of those that are not known to exist, whether they may be loaded"


async def test_a_list_that_cannot_be_judged_is_503(sales: Gateway) -> None:
    await rule(sales, "hidden", "path == 'sales.t3'", "forbid")
    judge = sales.services.gateway.judge
    silent = CountedRows(judge.rows, EngineUnavailableError("the policy worker ended"))
    client = sales.through(judge=replace(judge, rows=silent))
    assert (await client.get(TABLES)).status_code == 503


@pytest_asyncio.fixture(loop_scope="module")
async def chained(module_services: Services, module_app: FastAPI, module_url: str) -> AsyncIterator[Chained]:
    async with open_chain(module_services, module_app, module_url) as chained:
        await create_orders(chained.far.http)
        yield chained


async def test_pages_of_a_foreign_catalog_are_the_upstreams_without_what_is_hidden(chained: Chained) -> None:
    await make(chained.far.http, "a", "b", "c", "d")
    near = chained.near
    await rule(near, "some", f"'reader' in roles && catalog == '{BEYOND}' && path in ['', 'sales', 'sales.c']")
    rita = near.client(await another_key(near, "rita@acme.example", "reader"))
    assert await listed(rita, f"{FAR}/sales/tables") == ["c"]
    pages, _ = await paged(rita, 2, f"{FAR}/sales/tables")
    assert [name for page in pages for name in page] == ["c"]
    assert len(pages) == 3, "an empty page is followed by others"
    assert (await rita.get(FAR)).json() == {"namespaces": [["sales"]]}
    assert await listed(near.http, f"{FAR}/sales/tables") == ["a", "b", "c", "d", "orders"]


async def test_many_objects_are_judged_together_as_each_alone(sales: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    rita = await reader(
        sales,
        "op == 'READ_ENTITY_VALUE' && path.startsWith('sales.p')",
        "contentType == 'ICEBERG_VIEW' && path == 'sales.v1' && roles[3] == 'x'",
    )
    gateway = sales.services.gateway
    caller = await gateway.authenticator.authenticate(rita.headers["Authorization"])
    keys = [*(f"table:lake/sales/{letter}{number}" for number in range(40) for letter in "pq"), "view:lake/sales/v1"]

    async def sight() -> Sight:
        state = await gateway.rules_in_force(caller)
        return Sight(gateway=gateway, state=state, caller=caller, request=RequestView(method="GET", path="/v1/tables"))

    asked = 0
    alone = type(gateway.judge).read

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        asked += 1
        return await alone(*args, **kwargs)

    monkeypatch.setattr(type(gateway.judge), "read", counted)
    together, each = await sight(), await sight()
    await together.prepare([*keys, "run:n", "table:lake"])
    seen = [await together.sees(key) for key in keys[:-1]]
    assert asked == 0
    assert seen == [await each.sees(key) for key in keys[:-1]]
    assert (asked, seen.count(True)) == (80, 40)
    # What could not be judged is not hidden: whoever asks learns it.
    for looking in (together, each):
        with pytest.raises(UnavailableError):
            await looking.sees(keys[-1])


async def test_a_name_is_decided_once_as_long_as_rules_and_caller_are_the_same(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(sales.http, "customers", "invoices")
    rita = await reader(sales, "path.endsWith('s')")
    judged: list[int] = []
    rows = type(sales.services.gateway.judge.rows).judge_rows

    async def counted(self: Any, programs: Any, shared: Any, given: Sequence[Any], **more: Any) -> list[str]:
        judged.append(len(given))
        return await rows(self, programs, shared, given, **more)

    monkeypatch.setattr(type(sales.services.gateway.judge.rows), "judge_rows", counted)
    assert await listed(rita) == ["customers", "invoices", "orders"]
    first = list(judged)
    assert sum(first) >= 3
    assert await listed(rita) == ["customers", "invoices", "orders"]
    assert judged == first
    await rule(sales, "no-invoices", "path == 'sales.invoices'", "forbid")
    assert await listed(rita) == ["customers", "orders"]
    assert len(judged) > len(first)
