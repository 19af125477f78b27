# SPDX-License-Identifier: Apache-2.0
"""
GraphQL: every field says what the routes say to the same caller, with one statement for all objects of a level.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, get_args
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from graphql import GraphQLObjectType, build_schema, get_named_type, is_non_null_type
from psycopg import AsyncConnection

from gateway.admin.application import OPERATOR
from gateway.errors import UnavailableError
from gateway.http.answer_models import Answered, PolicyShown, ReasonShown
from gateway.http.graphql import answering, loading
from gateway.http.graphql.schema import SCHEMA
from gateway.http.looking import answers, reading
from gateway.http.looking.sight import Sight
from lakeproof.services import Services
from projections.graph.labels import EdgeLabel, VertexLabel
from projections.lineage.batched import Way, read_edges_of_each
from projections.lineage.read import read_lineage
from testkit.environment import PROJECT
from testkit.gateway.sales import NAMESPACES, TABLES, another_key, error_of, properties
from testkit.gateway.two_views import (
    RULE,
    SECRET,
    TwoViews,
    found_in,
    make_table,
    open_two_views,
    pages,
    project,
    shown,
)
from testkit.servers.gateways import Gateway
from testkit.statements import note_statements

pytestmark = pytest.mark.asyncio(loop_scope="module")

GRAPHQL = "/v1/graphql"
ORDERS = "table:lake/sales/orders"
HIDDEN = f"table:lake/hr/{SECRET}"
NAMES = (SECRET, "bonus", "clicks", "ada@acme.example")
"""What no answer to the second caller may hold: tables of `hr`, a topic, and who somebody is."""
TAGS = ("pii", "email", "iban")
NOWHERE: frozenset[str] = frozenset()
ANSWERS: dict[str, tuple[type[Answered], frozenset[str]]] = {
    "Decision": (answers.DecisionListed, NOWHERE),
    "Outcome": (answers.OutcomeShown, NOWHERE),
    "Reason": (ReasonShown, NOWHERE),
    "Finding": (answers.FindingShown, NOWHERE),
    "Review": (answers.ReviewShown, NOWHERE),
    "Table": (answers.TableListed, NOWHERE),
    "KindFound": (answers.KindFound, NOWHERE),
    "Owner": (answers.OwnerShown, NOWHERE),
    "Lineage": (answers.LineageShown, frozenset({"omitted", "is_cut"})),  # of the table alone; lists have `has_more`
    "LineageEdge": (answers.LineageEdgeShown, NOWHERE),
    "LineageColumn": (answers.LineageColumnShown, NOWHERE),
    "Cycle": (answers.CycleShown, NOWHERE),
    "Omitted": (answers.OmittedShown, NOWHERE),
    "Run": (answers.RunShown, NOWHERE),
    "Policy": (PolicyShown, NOWHERE),
}
"""The answer that a type repeats, and its members that are of another type here."""
HOSTILE = "</script><img src=x onerror=alert(1)> ' OR 1=1 -- $$ {{7*7}}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def views(module_services: Services, module_app: FastAPI) -> AsyncIterator[TwoViews]:
    """
    Two callers of one tenant, and another tenant, with a policy, a finding that was dismissed, lineage of columns, and
    lineage in a circle; the tests of this module change nothing else.
    """
    async with open_two_views(module_services, module_app) as views:
        body = {"id": "of-sales", "expression": "true", "message": "no", "scope": {"names": ["sales.*"]}}
        (await views.whole.post("/v1/policies", json=body)).raise_for_status()
        (dismissed,) = await pages(views.whole, "/v1/findings", "findings", table=HIDDEN)
        review = {"verdict": "dismissed", "reason": "test data"}
        (await views.whole.post(f"/v1/findings/{dismissed['index']}/review", json=review)).raise_for_status()
        for source, target in (("sales.orders", "sales.report"), ("sales.report", "sales.orders")):
            (await views.whole.post("/v1/lineage", json=columns_read(source, target))).raise_for_status()
        await views.project()
        yield views


def columns_read(source: str, target: str) -> dict[str, Any]:
    """Return an OpenLineage event: column `id` of one table was made from that of another one."""
    column = {"namespace": "lake", "name": source, "field": "id"}
    facet = {
        "_producer": "https://example.com/etl",
        "_schemaURL": "https://openlineage.io/spec/facets/1-2-0/ColumnLineageDatasetFacet.json",
        "fields": {"id": {"inputFields": [column]}},
    }
    return {
        "eventType": "COMPLETE",
        "eventTime": "2026-11-21T12:00:00Z",
        "producer": "https://example.com/etl",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": str(uuid4())},
        "job": {"namespace": "etl", "name": "columns"},
        "inputs": [{"namespace": "lake", "name": source}],
        "outputs": [{"namespace": "lake", "name": target, "facets": {"columnLineage": facet}}],
    }


async def ask(http: httpx.AsyncClient, query: str, **variables: Any) -> Any:
    """Return the data of an answer without errors."""
    answer = await asked(http, query, **variables)
    assert "errors" not in answer, answer["errors"]
    return answer["data"]


async def asked(http: httpx.AsyncClient, query: str, **variables: Any) -> Any:
    """Return an answer that must be 200."""
    answer = await http.post(GRAPHQL, json={"query": query, "variables": variables})
    assert answer.status_code == 200, answer.text
    return answer.json()


def leaves(of: str, *, but: tuple[str, ...] = ()) -> str:
    """Return a selection of all fields of a type that hold no objects with arguments; of objects, their leaves."""
    made = build_schema(SCHEMA.as_str()).get_type(of)
    assert isinstance(made, GraphQLObjectType)
    selected = []
    for name, field in made.fields.items():
        inner = get_named_type(field.type)
        if not isinstance(inner, GraphQLObjectType):
            selected.append(name)
        elif inner.name in {"Reason", "Outcome", "PolicyComing", "KindFound", "Review", "Owner"} and name not in but:
            selected.append(f"{name} {{ {leaves(inner.name)} }}")
    return " ".join(selected)


async def test_the_schema_is_the_documented_one() -> None:
    assert (PROJECT / "docs" / "schema.graphql").read_text(encoding="utf-8") == SCHEMA.as_str() + "\n"


async def test_a_type_has_every_member_of_the_answer_that_its_route_gives() -> None:
    made = build_schema(SCHEMA.as_str())
    for name, (model, elsewhere) in ANSWERS.items():
        type_ = made.get_type(name)
        assert isinstance(type_, GraphQLObjectType)
        for member, field in model.model_fields.items():
            if member not in elsewhere:
                may_be_null = type(None) in get_args(field.annotation)
                assert is_non_null_type(type_.fields[member].type) is not may_be_null, f"{name}.{member}"


async def test_every_field_of_a_decision_is_what_its_route_says(views: TwoViews) -> None:
    for http in (views.whole, views.part):
        routes = (await pages(http, "/v1/tables/lake/sales/orders/history", "decisions"))[::-1]
        for route in routes:
            for name in (str(route["index"]), route["group"]):
                query = f"query ($id: String!) {{ decision(id: $id) {{ {leaves('Decision')} }} }}"
                assert (await ask(http, query, id=name))["decision"] == route


async def test_every_field_of_findings_and_tables_is_what_their_routes_say(views: TwoViews) -> None:
    for http in (views.whole, views.part, views.other.http):
        data = await ask(
            http, f"{{ findings {{ items {{ {leaves('Finding')} }} }} tables {{ items {{ {leaves('Table')} }} }} }}"
        )
        assert data["findings"]["items"] == await pages(http, "/v1/findings", "findings")
        routes = await pages(http, "/v1/tables", "tables")
        tags = {tag: {each["key"] for each in await pages(http, "/v1/tables", "tables", tag=tag)} for tag in TAGS}
        for each in routes:
            assert each["owner"]["actor"]
            each["found"] = each["findings"]
            each["tags"] = [tag for tag in TAGS if each["key"] in tags[tag]]
        assert routes == [{**each, "findings": each["found"]} for each in data["tables"]["items"]]
        of_table = f'{{ table(name: "lake.sales.orders") {{ findings {{ {leaves("Finding")} }} }} }}'
        expected = (await shown(http, "/v1/tables/lake/sales/orders/findings"))["findings"]
        assert (await ask(http, of_table))["table"]["findings"] == expected


FILTERS: list[tuple[str, str, str, int, int]] = [
    ("findings", 'state: "open"', "state=open", 1, 1),
    ("findings", 'state: "dismissed"', "state=dismissed", 1, 0),
    ("findings", 'state: "confirmed"', "state=confirmed", 0, 0),
    ("findings", 'state: "open", kind: "email", confidence: 92', "state=open&kind=email&confidence=92", 1, 1),
    ("findings", 'state: "open", kind: "iban"', "state=open&kind=iban", 0, 0),
    ("findings", "confidence: 93", "confidence=93", 0, 0),
    ("findings", f'table: "{HIDDEN}", state: "dismissed"', f"table={HIDDEN}&state=dismissed", 1, 0),
    ("tables", 'tag: "pii"', "tag=pii", 1, 1),
    ("tables", 'tag: "email", catalog: "lake"', "tag=email&catalog=lake", 1, 1),
    ("tables", 'tag: "iban"', "tag=iban", 0, 0),
    ("tables", 'owner: "ada@acme.example"', "owner=ada@acme.example", 2, 0),
    ("tables", 'owner: "nobody"', "owner=nobody", 0, 0),
]


@pytest.mark.parametrize(("field", "given", "query", "whole", "part"), FILTERS, ids=[each[2] for each in FILTERS])
async def test_a_list_is_filtered_as_its_route_filters_it_and_its_cursor_is_the_same(
    views: TwoViews, field: str, given: str, query: str, whole: int, part: int
) -> None:
    parameters = dict(each.split("=", 1) for each in query.split("&"))
    for http, count in ((views.whole, whole), (views.part, part)):
        page = (await ask(http, f"{{ {field}({given}, limit: 1) {{ items {{ key }} cursor }} }}"))[field]
        route = await shown(http, f"/v1/{field}", **parameters, limit=1)
        assert page["items"] == [{"key": each["key"]} for each in route[field]]
        assert (page["cursor"] is None) == (route["cursor"] is None)
        if page["cursor"] is not None:
            await shown(http, f"/v1/{field}", **parameters, cursor=page["cursor"])
            behind = f"query ($at: String) {{ {field}({given}, cursor: $at) {{ cursor }} }}"
            await ask(http, behind, at=route["cursor"])
            other = f"query ($at: String) {{ {field}(cursor: $at) {{ cursor }} }}"
            (error,) = (await asked(http, other, at=page["cursor"]))["errors"]
            assert error["message"].startswith("cursor: "), "it is of another question"
        assert len(await pages(http, f"/v1/{field}", field, **parameters)) == count


async def test_who_may_not_know_people_finds_no_table_by_the_name_of_its_owner_but_by_the_actor(
    views: TwoViews,
) -> None:
    query = "query ($who: String) { tables(owner: $who) { items { key owner { actor principal } } } }"
    everything = (await ask(views.whole, query, who="ada@acme.example"))["tables"]["items"]
    assert {each["owner"]["principal"] for each in everything} == {"ada@acme.example"}
    assert (await ask(views.part, query, who="ada@acme.example"))["tables"]["items"] == []
    (actor,) = {each["owner"]["actor"] for each in everything}
    (orders,) = (await ask(views.part, query, who=actor))["tables"]["items"]
    assert orders == {"key": ORDERS, "owner": {"actor": actor, "principal": None}}


async def test_findings_of_a_table_are_of_one_state_as_its_route_has_them(views: TwoViews) -> None:
    query = """query ($table: String!, $state: String) {
        table(name: $table) { tags findings(state: $state) { index state } } }"""
    for name, state, count in (
        ("sales.orders", "open", 1),
        ("sales.orders", "dismissed", 0),
        (f"hr.{SECRET}", "dismissed", 1),
        (f"hr.{SECRET}", "open", 0),
    ):
        table = (await ask(views.whole, query, table=f"lake.{name}", state=state))["table"]
        route = await shown(views.whole, f"/v1/tables/lake/{name.replace('.', '/')}/findings", state=state)
        assert table["findings"] == [{"index": each["index"], "state": state} for each in route["findings"]]
        assert len(table["findings"]) == count
        assert table["tags"] == (["pii", "email"] if name == "sales.orders" else [])


async def test_lineage_of_a_table_is_what_its_route_says_as_far_as_it_may_be_seen(views: TwoViews) -> None:
    query = f"""query ($hops: Int!, $limit: Int!) {{ table(name: "{ORDERS}") {{ lineage(hops: $hops) {{
        upstream(limit: $limit) {{ items {{ {leaves("LineageEdge")} }} has_more }}
        downstream(limit: $limit) {{ items {{ {leaves("LineageEdge")} }} has_more }}
        columns(limit: $limit) {{ items {{ {leaves("LineageColumn")} }} has_more }}
        cycles(limit: $limit) {{ items {{ {leaves("Cycle")} }} has_more }}
        omitted {{ {leaves("Omitted")} }}
    }} }} }}"""
    for http, counts in ((views.whole, (2, 2, 1, 1)), (views.part, (0, 1, 1, 1))):
        for hops in (1, 3, 5):
            found = (await ask(http, query, hops=hops, limit=100))["table"]["lineage"]
            route = await shown(http, "/v1/tables/lake/sales/orders/lineage", hops=hops)
            of_table = [each for each in route["omitted"] if each.pop("key") == ORDERS]
            assert found.pop("omitted") == (of_table[0] if of_table else None)
            assert {name: each["items"] for name, each in found.items()} == {name: route[name] for name in found}
            assert tuple(len(each["items"]) for each in found.values()) == counts
            assert not any(each["has_more"] for each in found.values())
        assert not any(name in json.dumps(found) for name in NAMES) or http is views.whole
    first = (await ask(views.whole, query, hops=1, limit=1))["table"]["lineage"]
    assert (len(first["upstream"]["items"]), first["upstream"]["has_more"]) == (1, True)
    assert (len(first["cycles"]["items"]), first["cycles"]["has_more"]) == (1, False)
    jobs = {each["job"] for each in found["downstream"]["items"]}
    assert jobs == {None}, "whoever may not read lineage is told of no job"


async def test_lineage_around_each_of_many_tables_is_what_is_told_of_each_alone(views: TwoViews) -> None:
    gateway = views.gateway.services.gateway
    keys = [ORDERS, HIDDEN, "table:lake/sales/report", "table:lake/none/none", "table:lake/hr/bonus"]
    async with gateway.database.as_role(gateway.roles.tenant(views.gateway.acme.tenant)) as connection:
        for hops in (1, 2, 5):
            alone = [await read_lineage(connection, views.gateway.acme.log_id, key, hops=hops) for key in keys]
            for limit in (1, 2, 1_000):
                for way in Way:
                    together = await read_edges_of_each(
                        connection, views.gateway.acme.log_id, keys, way, hops=hops, limit=limit
                    )
                    assert together == [list(getattr(each, way)[:limit]) for each in alone]


async def test_runs_are_those_of_the_route_and_null_without_the_right(views: TwoViews) -> None:
    query = f"""query ($at: String) {{ runs(limit: 1, cursor: $at) {{ items {{ {leaves("Run")} }} cursor }} }}"""
    assert await everything(views.whole, query, "runs") == await pages(views.whole, "/v1/runs", "runs")
    page = (await ask(views.whole, query))["runs"]
    assert (await shown(views.whole, "/v1/runs", cursor=page["cursor"]))["runs"]
    assert (await ask(views.part, query))["runs"] is None


async def test_every_field_of_policies_is_what_their_routes_say_and_null_without_the_right(views: TwoViews) -> None:
    query = f"""{{ policies {{ items {{ {leaves("Policy")} }} cursor }} policy(id: "of-sales") {{ id }}
        table(name: "{ORDERS}") {{ policies {{ {leaves("Policy")} }} }} none: policy(id: "none") {{ id }} }}"""
    routes = (await shown(views.whole, "/v1/policies"))["policies"]
    assert await ask(views.whole, query) == {
        "policies": {"items": routes, "cursor": None},
        "policy": {"id": "of-sales"},
        "table": {"policies": routes},
        "none": None,
    }
    assert await ask(views.part, query) == {
        "policies": None,
        "policy": None,
        "table": {"policies": None},
        "none": None,
    }


async def test_what_belongs_together_is_had_in_one_request(views: TwoViews) -> None:
    query = f"""{{ table(name: "{ORDERS}") {{ decisions(limit: 1) {{ items {{
        snapshots findings {{ kind table {{ key }} }} table {{ key }}
        vertex {{ label properties table {{ key }} edges(labels: ["ACTUAL_WRITE"], direction: "out") {{
            items {{ label direction vertex {{ key table {{ key }} }} }}
        }} }}
    }} }} }} }}"""
    (decision,) = (await ask(views.whole, query))["table"]["decisions"]["items"]
    assert decision["findings"] == [{"kind": "email", "table": {"key": ORDERS}}]
    assert (decision["snapshots"], decision["table"]) == (["7"], {"key": ORDERS})
    vertex = decision["vertex"]
    assert (vertex["label"], vertex["table"]) == ("WriteEvent", None)
    assert vertex["properties"]["principal"] == "ada@acme.example"
    ends = {each["vertex"]["key"]: each["vertex"]["table"] for each in vertex["edges"]["items"]}
    assert ends == {f"snapshot:{views.uuids['orders']}/7": None, ORDERS: {"key": ORDERS}}
    assert {(each["label"], each["direction"]) for each in vertex["edges"]["items"]} == {("ACTUAL_WRITE", "out")}


async def test_lists_go_on_behind_their_cursors_which_are_those_of_the_routes(views: TwoViews) -> None:
    for name, path, member in (
        ("tables", "/v1/tables", "tables"),
        ("findings", "/v1/findings", "findings"),
    ):
        page = (await ask(views.whole, f"{{ {name}(limit: 1) {{ items {{ key }} cursor }} }}"))[name]
        behind = await shown(views.whole, path, cursor=page["cursor"])
        rest = await ask(
            views.whole, f"query ($at: String) {{ {name}(cursor: $at) {{ items {{ key }} }} }}", at=page["cursor"]
        )
        assert rest[name]["items"] == [{"key": each["key"]} for each in behind[member]] != []
    history = "/v1/tables/lake/sales/orders/history"
    first = await shown(views.whole, history, limit=1)
    query = (
        f'query ($at: String) {{ table(name: "{ORDERS}") {{ decisions(cursor: $at) {{ items {{ index }} cursor }} }} }}'
    )
    decisions = (await ask(views.whole, query, at=first["cursor"]))["table"]["decisions"]
    assert decisions["items"] == [{"index": (await pages(views.whole, history, "decisions"))[1]["index"]}]


async def everything(http: httpx.AsyncClient, query: str, *path: str) -> list[Any]:
    """Return all items of a list, one by one; `query` takes the cursor as `$at`."""
    found: list[Any] = []
    at: str | None = None
    while True:
        page = await ask(http, query, at=at)
        for name in path:
            page = page[name]
        found += page["items"]
        if (at := page["cursor"]) is None:
            return found


@pytest.mark.parametrize("label", VertexLabel)
async def test_vertices_of_a_label_are_listed_as_far_as_they_may_be_seen(views: TwoViews, label: VertexLabel) -> None:
    query = f"""query ($at: String) {{
        vertices(label: "{label}", limit: 1, cursor: $at) {{ items {{ key label }} cursor }}
    }}"""
    whole = await everything(views.whole, query, "vertices")
    part = await everything(views.part, query, "vertices")
    assert {each["label"] for each in whole} <= {label.value}
    assert len({each["key"] for each in whole}) == len(whole)
    assert all(each in whole for each in part)
    for each in whole:
        one = "query ($key: String!) { vertex(key: $key) { key label } }"
        assert (await ask(views.whole, one, key=each["key"]))["vertex"] == each
        assert (await ask(views.part, one, key=each["key"]))["vertex"] == (each if each in part else None)
        assert all(name not in each["key"] for name in NAMES) or each not in part
    if label in {VertexLabel.TABLE, VertexLabel.SNAPSHOT, VertexLabel.CLASSIFICATION, VertexLabel.WRITE_EVENT}:
        assert 0 < len(part) < len(whole)
    if label in {VertexLabel.PERSON, VertexLabel.RUN, VertexLabel.API_KEY, VertexLabel.DATASET, VertexLabel.TAG}:
        assert part == [] != whole


async def test_edges_are_those_of_which_both_ends_may_be_seen_and_go_on_behind_a_cursor(views: TwoViews) -> None:
    query = f"""query ($at: String) {{ vertex(key: "{ORDERS}") {{ edges(limit: 1, cursor: $at) {{
        items {{ label direction vertex {{ key }} }} cursor }} }} }}"""
    whole = await everything(views.whole, query, "vertex", "edges")
    part = await everything(views.part, query, "vertex", "edges")
    assert [each for each in whole if each in part] == part
    assert not any(name in json.dumps(part) for name in NAMES)
    of = {(each["label"], each["direction"], each["vertex"]["key"]) for each in whole}
    assert ("LINEAGE_OF", "in", HIDDEN) in of
    assert ("LINEAGE_OF", "out", "table:lake/hr/bonus") in of
    assert {each["vertex"]["key"] for each in part if each["label"] == "LINEAGE_OF"} == {"table:lake/sales/report"}
    assert len(of) == len(whole) == len({*of})
    chosen = f"""{{ vertex(key: "{ORDERS}") {{
        edges(labels: ["LINEAGE_OF"], direction: "in") {{ items {{ vertex {{ key }} }} }}
    }} }}"""
    ends = (await ask(views.whole, chosen))["vertex"]["edges"]["items"]
    assert [each["vertex"]["key"] for each in ends] == ["dataset:kafka%3A%2F%2Fprod/clicks", HIDDEN]


async def test_what_may_not_be_seen_is_not_there_and_not_told_apart_from_what_is_not(views: TwoViews) -> None:
    query = """query ($table: String!, $key: String!) { table(name: $table) { key } vertex(key: $key) { key }
        findings(table: $table) { items { index } cursor } tables(name: $table) { items { key } cursor } }"""
    told = []
    for name in (SECRET, "nothing"):
        data = await ask(views.part, query, table=f"lake.hr.{name}", key=f"table:lake/hr/{name}")
        told.append(data)
    assert told[0] == told[1]
    assert told[0]["table"] is told[0]["vertex"] is None
    index = (await pages(views.whole, f"/v1/tables/lake/hr/{SECRET}/history", "decisions"))[0]["index"]
    for http in (views.part, views.other.http):
        assert (await ask(http, f'{{ decision(id: "{index}") {{ key }} }}'))["decision"] is None


async def test_another_tenant_sees_its_own_things_alone(views: TwoViews) -> None:
    query = """{ tables { items { key table_uuid } } findings { items { index } }
        vertices(label: "Snapshot", limit: 50) { items { key } } }"""
    text = json.dumps(await ask(views.other.http, query))
    assert SECRET not in text
    assert not any(uuid in text for uuid in views.uuids.values())
    assert ORDERS in text
    page = (await ask(views.whole, "{ tables(limit: 1) { cursor } }"))["tables"]
    answer = await asked(views.other.http, "query ($at: String) { tables(cursor: $at) { cursor } }", at=page["cursor"])
    assert answer["errors"][0]["message"].startswith("cursor: expected the cursor of an earlier answer")


async def test_names_that_others_chose_are_values_in_json(sales: Gateway) -> None:
    body = {"name": HOSTILE, "schema": {"type": "struct", "fields": []}}
    assert (await sales.http.post(TABLES, json=body)).status_code == 200
    await project(sales)
    answer = await sales.http.post(GRAPHQL, json={"query": "{ tables { items { name key vertex { properties } } } }"})
    assert answer.headers["content-type"] == "application/json"
    items = answer.json()["data"]["tables"]["items"]
    assert {each["name"] for each in items} == {HOSTILE, "orders"}
    query = (
        "query ($key: String!) { table(name: $key) { name vertex { table { name } } decisions { items { name } } } }"
    )
    (key,) = [each["key"] for each in items if each["name"] == HOSTILE]
    table = (await ask(sales.http, query, key=key))["table"]
    assert (table["name"], table["vertex"]["table"]["name"]) == (HOSTILE, HOSTILE)
    assert table["decisions"]["items"] == [{"name": HOSTILE}]


async def test_what_was_found_in_a_table_that_moved_is_seen_by_who_sees_it_there(
    shared_gateway: Gateway,
) -> None:
    await shared_gateway.services.gateway.admin.create_access_rule(
        shared_gateway.acme.log_id, OPERATOR, rule_id="sellers", effect="permit", expression=RULE
    )
    uuid = await make_table(shared_gateway, "sales", "moving")
    await found_in(shared_gateway, "sales", "moving", uuid)
    (await shared_gateway.http.post(NAMESPACES, json={"namespace": ["hr"]})).raise_for_status()
    moved = {
        "source": {"namespace": ["sales"], "name": "moving"},
        "destination": {"namespace": ["hr"], "name": SECRET},
    }
    (await shared_gateway.http.post("/v1/iceberg/lake/tables/rename", json=moved)).raise_for_status()
    await project(shared_gateway)
    history = "/v1/tables/lake/sales/moving/history"
    (commit,) = [each for each in await pages(shared_gateway.http, history, "decisions") if each["snapshots"]]
    query = f"""{{ decision(id: "{commit["index"]}") {{ key table {{ key }} findings {{ key }}
        vertex {{ edges {{ items {{ vertex {{ key edges {{ items {{ vertex {{ key }} }} }} }} }} }} }} }} }}"""
    whole = (await ask(shared_gateway.http, query))["decision"]
    assert (whole["key"], whole["findings"]) == ("table:lake/sales/moving", [{"key": HIDDEN}])
    async with shared_gateway.client(await another_key(shared_gateway, "sam@acme.example", "seller")) as part:
        decision = (await ask(part, query))["decision"]
        assert (decision["key"], decision["table"], decision["findings"]) == (whole["key"], None, [])
        assert not any(text in json.dumps(decision) for text in (SECRET, uuid))


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement about read models that the gateway sends from here on."""
    return note_statements(monkeypatch, lambda text: "projections." in text or "ag_catalog" in text)


NESTED = """query ($most: Int!) { tables(limit: $most) { items {
    key found { kind } findings(limit: 1) { kind table { key } } policies(limit: 1) { id }
    tags owner { actor principal } open: findings(limit: 1, state: "open") { kind }
    lineage(hops: 2) {
        upstream(limit: 1) { items { source job } has_more } downstream(limit: 1) { items { target } }
        columns(limit: 1) { items { source } } cycles(limit: 1) { items { path } } omitted { refused }
    }
    decisions(limit: 1) {
        items { index principal findings(limit: 1) { kind } vertex { key properties } table { key } }
    }
    vertex { key edges(limit: 2) { items { label vertex { key table { key } } } } }
} } }"""
NESTED_THEN = """query ($most: Int!, $as_of: Long) { tables(limit: $most, as_of: $as_of) { items {
    key found { kind } findings(limit: 1) { kind table { key } } policies(limit: 1) { id }
    tags owner { actor principal } open: findings(limit: 1, state: "open") { kind }
} } }"""


async def test_a_nested_query_takes_as_many_statements_for_fifty_tables_as_for_one(
    sales: Gateway, statements: list[str]
) -> None:
    for number in range(49):
        body = {"name": f"t{number:02}", "schema": {"type": "struct", "fields": []}}
        (await sales.http.post(TABLES, json=body)).raise_for_status()
    (await sales.http.post(f"{TABLES}/t07", json=properties(a="b"))).raise_for_status()
    targets = [{"namespace": "lake", "name": f"sales.{name}"} for name in ("orders", *(f"t{n:02}" for n in range(49)))]
    event = columns_read("sales.source", "sales.t00") | {"outputs": targets}
    (await sales.http.post("/v1/lineage", json=event)).raise_for_status()
    await project(sales)
    counts, found = [], []
    for most in (1, 50):
        statements.clear()
        data = await ask(sales.http, NESTED, most=most)
        counts.append(len(statements))
        found.append(data["tables"]["items"])
    assert [len(each) for each in found] == [1, 50]
    assert all(len(each["vertex"]["edges"]["items"]) == 2 and each["decisions"]["items"] for each in found[1])
    assert all(each["lineage"]["upstream"]["items"] and each["owner"] for each in found[1])
    assert counts[0] == counts[1] <= 26, counts
    (newest,) = (await shown(sales.http, "/v1/log/entries", limit=1))["entries"]
    counts.clear()
    for most in (1, 50):
        statements.clear()
        data = await ask(sales.http, NESTED_THEN, most=most, as_of=newest["index"])
        counts.append(len(statements))
    assert data["tables"]["items"] == [{name: each[name] for name in data["tables"]["items"][0]} for each in found[1]]
    assert counts[0] == counts[1] <= 20, counts


async def test_a_query_that_takes_too_long_is_503_and_leaves_the_connection_to_others(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "TIMEOUT_S", 0.0)
    answer = await views.whole.post(GRAPHQL, json={"query": "{ tables { items { found { kind } } } }"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "took longer" in error_of(answer)["message"]
    monkeypatch.undo()
    assert (await ask(views.whole, "{ tables { items { key } } }"))["tables"]["items"]


async def test_a_statement_that_takes_too_long_is_503_although_others_fail_behind_it(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleep(connection: AsyncConnection[Any], *rest: object, **more: object) -> None:
        await connection.execute("SELECT pg_sleep(60)")

    monkeypatch.setattr(reading, "TIMEOUT_S", 1)
    monkeypatch.setattr(loading, "read_found_in_tables", sleep)
    query = "{ tables { items { findings { kind } found { kind } vertex { key } decisions { items { key } } } } }"
    answer = await views.whole.post(GRAPHQL, json={"query": query})
    assert answer.status_code == 503
    assert "the database took longer than 1 s" in error_of(answer)["message"]


async def test_rules_that_cannot_be_judged_are_503_and_hide_nothing(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*args: object, **named: object) -> None:
        raise UnavailableError("access could not be judged: try again")

    monkeypatch.setattr(Sight, "sees", fail)
    answer = await views.whole.post(GRAPHQL, json={"query": "{ tables { items { key } } }"})
    assert (answer.status_code, error_of(answer)["message"]) == (503, "access could not be judged: try again")


async def test_a_body_is_json_and_says_so_and_no_page_of_another_site_sends_it(views: TwoViews) -> None:
    body = json.dumps({"query": "{ tables { cursor } }"})
    for content_type in ("application/json", "application/json; charset=utf-8"):
        answer = await views.whole.post(GRAPHQL, content=body, headers={"Content-Type": content_type})
        assert answer.status_code == 200
    for content_type in (
        "text/plain",
        "application/graphql",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ):
        answer = await views.whole.post(GRAPHQL, content=body, headers={"Content-Type": content_type})
        assert answer.status_code == 400
        assert "Content-Type: expected application/json" in error_of(answer)["message"]
    assert (await views.whole.post(GRAPHQL, content=body)).status_code == 400
    headers = {"Content-Type": "application/json"}
    for origin, status in (("https://evil.example", 403), ("null", 403), ("http://[", 403), ("http://gateway", 200)):
        answer = await views.whole.post(GRAPHQL, content=body, headers={**headers, "Origin": origin})
        assert answer.status_code == status
    for method in ("GET", "PUT", "DELETE"):
        assert (
            await views.whole.request(method, GRAPHQL, params={"query": "{ tables { cursor } }"})
        ).status_code == 405
    async with views.gateway.client(None) as nobody:
        assert (await nobody.post(GRAPHQL, content=body, headers=headers)).status_code == 401


BODIES: list[tuple[str, Any]] = [
    ("a list of queries", [{"query": "{ tables { cursor } }"}]),
    ("no query", {}),
    ("an empty query", {"query": ""}),
    ("a query that is no text", {"query": 1}),
    ("another member", {"query": "{ tables { cursor } }", "sql": "DROP TABLE x"}),
    ("variables that are none", {"query": "{ tables { cursor } }", "variables": []}),
    ("nothing", None),
]


@pytest.mark.parametrize(("what", "body"), BODIES, ids=[what for what, _ in BODIES])
async def test_a_body_that_is_no_request_is_400(views: TwoViews, what: str, body: Any) -> None:
    assert (await views.whole.post(GRAPHQL, json=body)).status_code == 400


async def test_the_schema_is_told_to_who_may_read_settings_and_no_name_is_suggested_to_anybody(views: TwoViews) -> None:
    for query in ("{ __schema { queryType { name } } }", '{ __type(name: "Table") { name } }'):
        assert await ask(views.whole, query)
        (error,) = (await asked(views.part, query))["errors"]
        assert "takes the right to read settings" in error["message"]
        assert error["locations"] == [{"line": 1, "column": 3}]
    hidden = 'query { ...F } fragment F on Query { a: __type(name: "Table") { name } }'
    assert "takes the right" in (await asked(views.part, hidden))["errors"][0]["message"]
    assert (await ask(views.part, "{ __typename }")) == {"__typename": "Query"}
    guesses = (
        "{ tabels { items { key } } }",
        "{ tables(nam: 1) { cursor } }",
        "{ tables { items { ke } } }",
        "{ tables @inclde(if: true) { cursor } }",
        "query ($a: Strin) { tables(name: $a) { cursor } }",
        "query ($a: Tabl) { tables { cursor } }",
        "{ tables { ... on Tablee { cursor } } }",
    )
    for http in (views.whole, views.part):
        for guess in guesses:
            answer = await asked(http, guess)
            assert "data" not in answer
            for error in answer["errors"]:
                assert error["message"].endswith(answering.NAMES)
                assert error["extensions"] == {"type": "BadRequestException"}
                assert error["locations"]
            assert not any(said in json.dumps(answer) for said in ("id you mean", "suggest"))


async def test_errors_have_line_and_column_and_nothing_of_what_is_within(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (error,) = (await asked(views.whole, "{\n  tables {\n    items { key \n"))["errors"]
    assert error["message"].startswith("Syntax Error")
    assert error["locations"] == [{"line": 4, "column": 1}]
    (error,) = (await asked(views.whole, "{\n  tables(limit: 0) { cursor }\n}"))["errors"]
    assert error["message"] == "limit: expected a whole number from 1 to 500, found 0"
    assert (error["locations"], error["path"]) == ([{"line": 2, "column": 3}], ["tables"])
    assert error["extensions"] == {"type": "BadRequestException"}

    async def fail(*args: object, **named: object) -> None:
        raise RuntimeError("an internal detail")

    monkeypatch.setattr("gateway.http.graphql.schema.page_of_tables", fail)
    answer = await asked(views.whole, "{ tables { cursor } }")
    (error,) = answer["errors"]
    assert (answer["data"], error["message"]) == (None, "the gateway failed; its log says why")
    assert error["extensions"] == {"type": "InternalServerError"}
    assert "an internal detail" in caplog.text


REFUSED: list[tuple[str, str]] = [
    ('{ table(name: "orders") { key } }', "name: "),
    ('{ table(name: "") { key } }', "name: "),
    ('{ table(name: "lake.sales.o\\u0000") { key } }', "name: "),
    ('{ tables(catalog: "a b") { cursor } }', "catalog: "),
    ('{ tables(cursor: "AAAA") { cursor } }', "cursor: "),
    ("{ tables(limit: 501) { cursor } }", "limit: "),
    ("{ tables(limit: -1) { cursor } }", "limit: "),
    ("{ findings(confidence: 101) { cursor } }", "confidence: "),
    ('{ findings(table: "x") { cursor } }', "table: "),
    ('{ decision(id: "x") { key } }', "decision: "),
    ('{ findings(state: "new") { cursor } }', "state: expected one of open, confirmed, dismissed, found 'new'"),
    ('{ findings(state: "") { cursor } }', "state: "),
    ('{ tables(tag: "") { cursor } }', "tag: "),
    ('{ tables(owner: "%s") { cursor } }' % ("x" * 501), "owner: "),
    ('{ runs(cursor: "AAAA") { cursor } }', "cursor: "),
    ('{ table(name: "lake.sales.orders") { findings(state: "x") { kind } } }', "state: expected one of open, "),
    ('{ table(name: "lake.sales.orders") { lineage(hops: 6) { key } } }', "hops: expected a whole number from 1 to 5"),
    ('{ table(name: "lake.sales.orders") { lineage(hops: 0) { key } } }', "hops: "),
    ('{ table(name: "lake.sales.orders") { lineage { upstream(limit: 0) { has_more } } } }', "limit: "),
    ('{ vertices(label: "Tables") { cursor } }', "label: expected one of Catalog, "),
    (
        '{ vertex(key: "table:lake/sales/orders") { edges(labels: ["X"]) { cursor } } }',
        "labels: expected one of IN_",
    ),
    ('{ vertex(key: "table:lake/sales/orders") { edges(labels: []) { cursor } } }', "labels: "),
    ('{ vertex(key: "table:lake/sales/orders") { edges(direction: "both") { cursor } } }', "direction: "),
    ('{ table(name: "table:lake/sales/orders") { findings(confidence: -1) { kind } } }', "confidence: "),
]


@pytest.mark.parametrize(("query", "words"), REFUSED, ids=[query for query, _ in REFUSED])
async def test_what_is_no_question_is_refused_in_words(views: TwoViews, query: str, words: str) -> None:
    (error,) = (await asked(views.whole, query))["errors"]
    assert error["message"].startswith(words), error
    assert error["locations"][0]["line"] == 1


async def test_all_labels_of_edges_and_both_directions_may_be_asked_for(views: TwoViews) -> None:
    query = (
        'query ($labels: [String!]) { vertex(key: "%s") { edges(labels: $labels, limit: 100) { items { label } } } }'
    )
    data = await ask(views.whole, query, labels=[each.value for each in EdgeLabel])
    assert data == await ask(views.whole, query, labels=None)


def mutations(text: str, change: Callable[[str, int], str]) -> list[str]:
    return [change(text, place) for place in range(1, len(text), 9)]


async def test_no_broken_query_is_a_fault_of_the_gateway(views: TwoViews) -> None:
    text = """query Q($n: Int = 2, $c: String) {
        t: tables(limit: $n, cursor: $c) { ...F } ... @include(if: true) { __typename }
    }
    fragment F on Tables { items { key decisions(limit: 1) { items { vertex { edges { items { label } } } } } } }"""
    assert "data" in await asked(views.part, text)
    broken = [
        *mutations(text, lambda text, at: text[:at] + text[at + 1 :]),
        *mutations(text, lambda text, at: text[:at] + text[at] + text[at:]),
        *mutations(text, lambda text, at: text[:at] + "\u0000" + text[at:]),
        *mutations(text, lambda text, at: text[:at]),
        *(text.replace("Tables", name) for name in ("Table", "Query", "Long", "String", "__Schema")),
        *(
            text.replace("$n: Int = 2", f"$n: {type_}")
            for type_ in ("Int!", "[Int]", "Long", "JSON", "Tables", "Int = null")
        ),
        "{ ...A } fragment A on Query { ...B } fragment B on Query { ...A }",
        "{ " * 400 + "} " * 400,
        "{ a(b: " + "[" * 900 + "]" * 900 + ") }",
        "{ " + "... { " * 300 + "__typename " + "} " * 300 + "}",
        "subscription { tables { cursor } }",
        "mutation { tables { cursor } }",
        "type Query { a: Int }",
        "\ufeff{ tables { cursor } }",
        '{ table(name: "\\uD800") { key } }',
        '{ tables(finding: "\\u{DC00}") { cursor } }',
        '{ vertex(key: "\\u0000") { key } }',
        '{ vertex(key: "nothing:x") { key } none: vertex(key: "x") { key } }',
    ]
    for query in broken:
        answer = await asked(views.part, query)
        assert "InternalServerError" not in json.dumps(answer), query
    numbers: list[Any] = [2**31, 2**40, -1, "2", None, [1], {}, 1e300, True]
    texts: list[Any] = [1, "\u0000", "", [], "x" * 9_000]
    for variables in (*({"n": each} for each in numbers), *({"c": each} for each in texts), {"x": 1}):
        answer = await asked(views.part, text, **variables)
        assert "InternalServerError" not in json.dumps(answer), variables
