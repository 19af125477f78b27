# SPDX-License-Identifier: Apache-2.0
"""
Agents ask the graph in openCypher: they read the live graph of their own tenant, if their key may see all of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from fastapi import FastAPI
from fastapi import Request as HttpRequest

from gateway.admin.application import OPERATOR
from gateway.agents import graph_query
from gateway.agents.cypher import ROWS_MAX, Written, write_query
from gateway.agents.graph_query import NUMBER_MAX, PARAMETERS_MAX, VALUE_LENGTH_MAX, query_graph
from gateway.errors import BadRequestError, ForbiddenError, UnauthorizedError, UnavailableError
from lakeproof.services import Services
from testkit.gateway.sales import another_key
from testkit.gateway.two_views import SECRET, TwoViews, open_two_views
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

ORDERS = "table:lake/sales/orders"
HIDDEN = f"table:lake/hr/{SECRET}"
BUT_INPUTS = "'seers' in roles && contentType != 'LOG_INPUTS'"
BUT_ONE = f"'most' in roles && path != 'hr.{SECRET}'"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def views(module_services: Services, module_app: FastAPI) -> AsyncIterator[TwoViews]:
    """Two callers of one tenant, and another tenant; the tests of this module change nothing but rules."""
    async with open_two_views(module_services, module_app) as views:
        yield views


async def ask(gateway: Gateway, key: str | None, query: str, /, **parameters: object) -> dict[str, Any]:
    """Ask as a tool does, with the request of an agent."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "query_string": b"",
        "headers": [] if key is None else [(b"authorization", f"Bearer {key}".encode())],
        "app": gateway.app,
        "state": {},
    }
    return await query_graph(HttpRequest(scope), query, parameters)


async def whole(views: TwoViews, query: str, /, **parameters: object) -> list[list[Any]]:
    """Return the rows that whoever sees everything gets."""
    found = await ask(views.gateway, views.gateway.acme.key.secret, query, **parameters)
    assert not found["is_cut"]
    rows: list[list[Any]] = found["rows"]
    return rows


async def test_a_query_returns_what_the_graph_has(views: TwoViews) -> None:
    assert await whole(views, "MATCH (t:Table) WHERE t.key = $key RETURN t.key, label(t)", key=ORDERS) == [
        [ORDERS, "Table"]
    ]
    made_from = "MATCH (s)-[:LINEAGE_OF]->(t:Table) WHERE t.key = $key RETURN s.key AS source ORDER BY source"
    assert await whole(views, made_from, key=ORDERS) == [["dataset:kafka%3A%2F%2Fprod/clicks"], [HIDDEN]]
    back = "MATCH (t:Table)<-[:LINEAGE_OF]-(s:Table) RETURN t.key, s.key ORDER BY t.key DESC SKIP 1 LIMIT $n"
    assert await whole(views, back, n=1) == [[ORDERS, HIDDEN]]
    either = "MATCH (t:Table)-[:LINEAGE_OF]-(s) WHERE t.key = $key RETURN count(*) AS n, max(s.key) AS last"
    assert await whole(views, either, key=ORDERS) == [[4, "table:lake/sales/report"]]


async def test_conditions_mean_what_they_say(views: TwoViews) -> None:
    writes = """MATCH (w:WriteEvent)-[:INTENDED_WRITE]->(t:Table)
        WHERE t.key = $key AND (%s) RETURN w.operation ORDER BY w.index"""
    for condition, operations in (
        ("w.decision = $approved", ["table.create", "table.commit"]),
        ("w.operation <> $create", ["table.commit"]),
        ("NOT w.operation = $create", ["table.commit"]),
        ("NOT w.index < 0 AND NOT w.index <= 0", ["table.create", "table.commit"]),
        ("NOT w.index > 0 OR NOT w.index >= 0 OR NOT w.index <> 1", []),
        ("w.index >= 0 AND w.index > 0 AND w.index <= 999 AND w.index < 999", ["table.create", "table.commit"]),
        ("w.index >= 999 OR w.operation = $create", ["table.create"]),
        ("w.principal IS NOT NULL", ["table.create", "table.commit"]),
        ("w.no_such IS NULL", ["table.create", "table.commit"]),
        ("w.no_such <> 1", []),
    ):
        given = {"approved": "approved", "create": "table.create"}
        parameters = {name: value for name, value in given.items() if f"${name}" in condition}
        rows = await whole(views, writes % condition, key=ORDERS, **parameters)
        assert [operation for (operation,) in rows] == operations, condition


async def test_what_a_with_hands_on_is_asked_further(views: TwoViews) -> None:
    query = """
        MATCH (t:Table)-[:HAS_SNAPSHOT]->(s:Snapshot)
        WITH t, count(DISTINCT s.key) AS snapshots, max(s.index) AS last
        ORDER BY last DESC LIMIT 5
        WHERE snapshots >= $least
        MATCH (t)-[:HAS_COLUMN]->(c:Column)-[:CLASSIFIED_AS]->(f)
        RETURN DISTINCT t.key, snapshots, c.path, f.kind ORDER BY t.key
    """
    assert await whole(views, query, least=1) == [[HIDDEN, 1, "id", "email"], [ORDERS, 1, "id", "email"]]
    assert await whole(views, query, least=2) == []


async def test_five_hops_are_walked(views: TwoViews) -> None:
    query = """MATCH (p:Person)-[:WROTE]->(w)-[:ACTUAL_WRITE]->(s:Snapshot)<-[:HAS_SNAPSHOT]-(t)-[:HAS_COLUMN]->(c)
        WHERE t.key = $key MATCH (c)-[:CLASSIFIED_AS]->(f) RETURN p.actor, f.kind"""
    assert await whole(views, query, key=ORDERS) == [[views.gateway.acme.key.actor, "email"]]


async def test_no_answer_has_more_rows_than_its_bound_and_one_that_is_cut_says_so(views: TwoViews) -> None:
    found = await ask(views.gateway, views.gateway.acme.key.secret, "MATCH (a), (b) RETURN a.key AS x, b.key AS y")
    assert (len(found["rows"]), found["is_cut"], found["columns"]) == (ROWS_MAX, True, ["x", "y"])


async def test_a_query_that_takes_too_long_is_ended(views: TwoViews, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_query, "TIMEOUT_S", 1)
    with pytest.raises(UnavailableError, match="the query took longer than 1 s"):
        await whole(views, "MATCH (a), (b), (c), (d), (e), (f) RETURN count(*)")
    assert await whole(views, "MATCH (t:Table) WHERE t.key = $key RETURN t.name", key=ORDERS) == [["orders"]]


async def test_whoever_may_not_see_everything_may_not_ask_and_learns_which_right_is_missing(views: TwoViews) -> None:
    gateway = views.gateway
    for name, expression in (("seers", BUT_INPUTS), ("most", BUT_ONE)):
        await gateway.services.gateway.admin.create_access_rule(
            gateway.acme.log_id, OPERATOR, rule_id=f"rule-{name}", effect="permit", expression=expression
        )
    query = "MATCH (t:Table) RETURN t.key"
    for role, words in (
        ("seller", "may not see all that the log has"),
        ("nobody", "may not see all that the log has"),
        ("seers", "may not see contents of payload parts"),
        ("most", "may not see every table"),
    ):
        key = await another_key(gateway, f"{role}@acme.example", role)
        for asked in (query, "MATCH (t:Table) WHERE t.key = $key RETURN count(*)", "CALL x()"):
            with pytest.raises(ForbiddenError, match=words):
                await ask(gateway, key, asked)
    for wrong in (None, "lp_wrong"):
        with pytest.raises(UnauthorizedError):
            await ask(gateway, wrong, query)


async def test_another_tenants_graph_is_not_there(views: TwoViews) -> None:
    key = views.other.acme.key.secret
    found = await ask(views.other, key, "MATCH (t:Table) RETURN t.key, t.table_uuid")
    ((name, uuid),) = found["rows"]
    assert (name, uuid in views.uuids.values()) == (ORDERS, False)
    found = await ask(views.other, key, "MATCH (t:Table) WHERE t.key = $key RETURN count(*)", key=HIDDEN)
    assert found["rows"] == [[0]]


@pytest.mark.parametrize(
    "value",
    ["'", "$lakeproof$", "$$", "x' OR 1=1 --", "\\", '"}', "\u202e", "}::agtype", "*/", "\u00e9", "\U0001f600"],
)
async def test_whatever_a_parameter_holds_it_is_a_value(views: TwoViews, value: str) -> None:
    query = "MATCH (t:Table) WHERE t.key = $key OR t.key = $value RETURN t.key, $value"
    assert await whole(views, query, key=ORDERS, value=value) == [[ORDERS, value]]


async def test_parameters_are_those_of_the_query_and_bounded(views: TwoViews) -> None:
    query = "MATCH (t:Table) WHERE t.key = $key RETURN t.key"
    longest = "x" * VALUE_LENGTH_MAX
    for taken in (longest, NUMBER_MAX, -NUMBER_MAX, True, None, ""):
        assert await whole(views, query, key=taken) == []
    refused: list[Any] = [longest + "x", NUMBER_MAX + 1, -NUMBER_MAX - 1, 1.5, [ORDERS], {}, "\x00", "\ud800"]
    for value in refused:
        with pytest.raises(BadRequestError, match=r"parameters\.key: expected a text of at most"):
            await whole(views, query, key=value)
    for given in ({}, {"key": 1, "other": 2}, {"Key": 1}):
        with pytest.raises(BadRequestError, match="expected exactly those of the query: key"):
            await whole(views, query, **given)
    with pytest.raises(BadRequestError, match=f"expected at most {PARAMETERS_MAX}"):
        await whole(views, query, **{f"p{n}": n for n in range(PARAMETERS_MAX + 1)})
    for count in (-1, ROWS_MAX + 1, "1", True, None):
        with pytest.raises(BadRequestError, match=f"a whole number from 0 to {ROWS_MAX}"):
            await whole(views, "MATCH (t:Table) RETURN t.key LIMIT $n", n=count)


@pytest.mark.parametrize(
    "query",
    [
        "MATCH (t:Table) WHERE count(*) > 1 RETURN t.key",
        "MATCH (t)-[r]->(u)-[r]->(v) RETURN t.key",
        "MATCH (t:Table) WITH t.key AS k RETURN k ORDER BY count(*)",
        "MATCH (t:Table) RETURN max(max(t.key))",
        "MATCH (t:Table) WHERE t.key RETURN t.key",
    ],
)
async def test_what_the_database_refuses_is_refused_in_words_without_its_own(views: TwoViews, query: str) -> None:
    with pytest.raises(BadRequestError) as error:
        await whole(views, query)
    assert "agtype" not in str(error.value)
    assert "ag_catalog" not in str(error.value)


async def test_beyond_the_grammar_the_database_lets_nobody_write_or_call_anything(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the grammar had a hole: the role of the connection may read its own graph, and call what our queries call."""

    def unchecked(text: str) -> Written:
        return Written(text=text, columns=("x",), parameters=frozenset(), counts={}, hops=0)

    monkeypatch.setattr(graph_query, "write_query", unchecked)
    for text in (
        "CREATE (t:Table {key: 'x'}) RETURN 1",
        "MATCH (t:Table) SET t.key = 'x' RETURN 1",
        "MATCH (t:Table) DETACH DELETE t RETURN 1",
        "MATCH (t:Table) RETURN pg_catalog.pg_read_file('/etc/passwd')",
        "MATCH (t)-[*]->(u) RETURN u.key",
        "RETURN $lakeproof$ ; SELECT 1",
    ):
        with pytest.raises((BadRequestError, UnavailableError), match="expected"):
            await whole(views, text)
    monkeypatch.undo()
    assert len(await whole(views, "MATCH (t:Table) RETURN t.key")) >= 2
    assert write_query("MATCH (t:Table) RETURN t.key").hops == 0
