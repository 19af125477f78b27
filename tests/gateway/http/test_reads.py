# SPDX-License-Identifier: Apache-2.0
"""
Reads: pages, existing and missing objects, who may learn of them, and cached judgements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

import httpx
import pytest

from gateway.admin.application import OPERATOR
from gateway.policy.engine import EngineUnavailableError, PolicyEngine, Program, Verdict
from ledger.format.canonical import Json
from testkit.gateway.log_contents import read_stored, words
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, SALES, TABLES, another_key, error_of
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

TABLE_NAMES = sorted(["a", "a b", "a.b", "a/b", "b", "ü", "ünder", "表格", "%2F", "Z"])


@pytest.fixture
def http(sales: Gateway) -> httpx.AsyncClient:
    return sales.http


async def pages(http: httpx.AsyncClient, path: str, member: str, *, size: int) -> list[object]:
    """Every item of a list that is asked for page by page."""
    token, items = "", list[object]()
    while True:
        separator = "&" if "?" in path else "?"
        answer = await http.get(f"{path}{separator}pageSize={size}&pageToken={quote(token, safe='')}")
        assert answer.status_code == 200, answer.text
        assert len(answer.json()[member]) <= size
        items += answer.json()[member]
        if "next-page-token" not in answer.json():
            return items
        token = answer.json()["next-page-token"]


async def test_tables_are_listed_page_by_page_without_a_gap(http: httpx.AsyncClient) -> None:
    for name in TABLE_NAMES:
        (await http.post(TABLES, json={**CREATE, "name": name})).raise_for_status()
    whole = (await http.get(TABLES)).json()
    assert "next-page-token" not in whole
    assert sorted(item["name"] for item in whole["identifiers"]) == sorted([*TABLE_NAMES, "orders"])
    for size in (1, 2, 3, 11, 50):
        assert await pages(http, TABLES, "identifiers", size=size) == whole["identifiers"]
    unasked = (await http.get(f"{TABLES}?pageSize=2")).json()
    assert unasked == whole, "a client that does not page gets everything"


async def test_namespaces_are_listed_page_by_page_one_level_at_a_time(http: httpx.AsyncClient) -> None:
    for name in TABLE_NAMES:
        (await http.post(NAMESPACES, json={"namespace": [name]})).raise_for_status()
        (await http.post(NAMESPACES, json={"namespace": ["sales", name]})).raise_for_status()
        (await http.post(NAMESPACES, json={"namespace": ["sales", name, "deep"]})).raise_for_status()
    top, below = sorted([[name] for name in [*TABLE_NAMES, "sales"]]), sorted(["sales", name] for name in TABLE_NAMES)
    assert sorted((await http.get(NAMESPACES)).json()["namespaces"]) == top
    assert sorted((await http.get(f"{NAMESPACES}?parent=")).json()["namespaces"]) == top
    for size in (1, 3, 50):
        assert sorted(await pages(http, NAMESPACES, "namespaces", size=size)) == top  # type: ignore[type-var]  # lists
        found = await pages(http, f"{NAMESPACES}?parent=sales", "namespaces", size=size)
        assert sorted(found) == below  # type: ignore[type-var]  # lists
    assert (await http.get(f"{NAMESPACES}?parent=sales%1Fa")).json() == {"namespaces": [["sales", "a", "deep"]]}
    assert (await http.get(f"{NAMESPACES}?parent=sales%1Fa%1Fdeep")).json() == {"namespaces": []}


async def test_lists_of_what_does_not_exist_are_404(http: httpx.AsyncClient) -> None:
    for path in (f"{NAMESPACES}?parent=no", f"{NAMESPACES}/no/tables"):
        answer = await http.get(path)
        assert (answer.status_code, error_of(answer)["type"]) == (404, "NoSuchNamespaceException")
        assert error_of(answer)["message"] == "Namespace does not exist: no"


async def test_what_does_not_exist_is_named(http: httpx.AsyncClient) -> None:
    table = error_of(await http.get(f"{TABLES}/no"))
    assert (table["type"], table["message"]) == ("NoSuchTableException", "Table does not exist: sales.no")
    namespace = error_of(await http.get(f"{NAMESPACES}/no"))
    assert (namespace["type"], namespace["message"]) == ("NoSuchNamespaceException", "Namespace does not exist: no")


async def test_a_metadata_table_is_answered_as_no_table_so_that_engines_load_it_from_its_table(
    http: httpx.AsyncClient,
) -> None:
    # The Iceberg library asks for sales.orders.snapshots first, and goes on only at NoSuchTableException.
    path = f"{NAMESPACES}/sales%1Forders/tables/snapshots"
    for answer in (await http.get(path), await http.post(path, json={"requirements": [], "updates": []})):
        assert answer.status_code == 404
        error = error_of(answer)
        assert (error["type"], error["message"]) == (
            "NoSuchTableException",
            "Table does not exist: sales.orders.snapshots",
        )


# Access


async def test_who_may_not_read_learns_nothing_and_is_counted(sales: Gateway) -> None:
    eve = sales.client(await another_key(sales))
    denied = set()
    for path in (ORDERS, f"{TABLES}/no", SALES, f"{NAMESPACES}/no", TABLES, f"{NAMESPACES}/no/tables", NAMESPACES):
        answer = await eve.get(path)
        assert answer.status_code == 403
        denied.add(answer.text)
    assert len(denied) == 1, "whatever is there"
    assert [(await eve.head(path)).status_code for path in (ORDERS, f"{TABLES}/no", SALES)] == [403, 403, 403]
    before = await words(sales.services, sales.acme.log_id)
    assert before.count("access.refused") == 10
    assert (await eve.get(ORDERS)).status_code == 403
    assert await words(sales.services, sales.acme.log_id) == before, "counted, and recorded again in a minute"


async def test_reading_and_writing_are_permitted_apart(sales: Gateway) -> None:
    rule = {"id": "readers", "effect": "permit", "expression": "'reader' in roles && op.startsWith('READ_')"}
    assert (await sales.http.post("/v1/access-rules", json=rule)).status_code == 201
    eve = sales.client(await another_key(sales, "eve", "reader"))
    assert (await eve.get(ORDERS)).status_code == 200
    assert (await eve.get(TABLES)).status_code == 200
    assert (await eve.delete(ORDERS)).status_code == 403
    assert (await sales.http.delete("/v1/access-rules/readers")).status_code == 204
    assert (await eve.get(ORDERS)).status_code == 403, "at once"


class CountedEngine:
    """The gateway's engine, and how often it was asked to judge."""

    def __init__(self, engine: PolicyEngine) -> None:
        self._engine = engine
        self.judged = 0

    async def check(self, expression: str, *, log_id: int, timeout_s: float, kind: str = "policy") -> None:
        await self._engine.check(expression, log_id=log_id, timeout_s=timeout_s, kind=kind)

    async def judge(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, log_id: int, timeout_s: float
    ) -> tuple[Verdict, ...]:
        self.judged += 1
        return await self._engine.judge(programs, activation, log_id=log_id, timeout_s=timeout_s)


async def test_a_read_is_judged_once_under_one_set_of_rules(sales: Gateway) -> None:
    parts = sales.services.gateway
    engine = CountedEngine(parts.judge.engine)
    http = sales.through(judge=replace(sales.services.gateway.judge, engine=engine))
    for _ in range(3):
        assert (await http.get(ORDERS)).status_code == 200
    assert engine.judged == 1
    assert (await http.head(ORDERS)).status_code == 204
    assert (await http.get(SALES)).status_code == 200
    assert engine.judged == 1, "the rule names neither operation nor target"
    await parts.admin.create_access_rule(
        sales.acme.log_id, OPERATOR, rule_id="closed", effect="forbid", expression="path == 'sales.orders'"
    )
    for _ in range(2):
        assert (await http.get(ORDERS)).status_code == 403
    assert engine.judged == 2
    await parts.admin.retire_access_rule(sales.acme.log_id, OPERATOR, rule_id="closed")
    assert (await http.get(ORDERS)).status_code == 200
    assert engine.judged == 2, "the same rules as at first, so the same judgement"
    other = await another_key(sales, "grace")
    eve = sales.through(key=other, judge=replace(sales.services.gateway.judge, engine=engine))
    assert (await eve.get(ORDERS)).status_code == 403
    assert engine.judged == 3


class SilentEngine(CountedEngine):
    """An engine that gives no answer."""

    async def judge(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, log_id: int, timeout_s: float
    ) -> tuple[Verdict, ...]:
        self.judged += 1
        asked = f"{len(programs)} programs of log {log_id} over {sorted(activation)}"
        raise EngineUnavailableError(f"the policy worker was asked for {asked} within {timeout_s} s, and ended")


async def test_a_read_that_cannot_be_judged_is_503_and_judged_again(sales: Gateway) -> None:
    engine = SilentEngine(sales.services.gateway.judge.engine)
    http = sales.through(judge=replace(sales.services.gateway.judge, engine=engine))
    for _ in range(2):
        answer = await http.get(ORDERS)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert engine.judged == 2
    assert "undecidable" not in await words(sales.services, sales.acme.log_id)


async def test_reading_appends_nothing(sales: Gateway) -> None:
    told = await read_stored(sales.services, sales.acme.log_id)
    for path in (ORDERS, TABLES, SALES, NAMESPACES, f"{TABLES}/no", "/v1/config?warehouse=lake"):
        await sales.http.get(path)
    assert await read_stored(sales.services, sales.acme.log_id) == told
