# SPDX-License-Identifier: Apache-2.0
"""
Decisions, findings, tables and lineage over HTTP: all of it for who may see everything, and for who may see one
namespace nothing that names another.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from gateway.commit.gateway import LOOKS_MAX
from gateway.errors import UnavailableError
from gateway.http.looking import answers, reading
from gateway.http.openapi import ANSWERS
from gateway.http.walk_routes import Preset
from lakeproof.services import Services
from ledger.format.events import DetectionKind
from ledger.signing.key_directory import create_key_directory
from projections.relational import findings
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import ORDERS, error_of, properties
from testkit.gateway.two_views import SECRET, TwoViews, open_two_views, pages, project, shown
from testkit.servers.gateways import sign
from testkit.statements import note_statements

pytestmark = pytest.mark.asyncio(loop_scope="module")

TABLE = "/v1/tables/lake/sales/orders"
HIDDEN = f"/v1/tables/lake/hr/{SECRET}"
PARTS = ("", "/history", "/findings", "/lineage", "/graph", "/schema-history")
NAMES = (SECRET, "bonus", "clicks", "ada@acme.example")
"""What no answer to the second caller may hold: tables of `hr`, a topic, and who somebody is."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def views(module_services: Services, module_app: FastAPI) -> AsyncIterator[TwoViews]:
    """Two callers of one tenant, and another tenant; the tests of this module change nothing."""
    async with open_two_views(module_services, module_app) as views:
        await sign(views.gateway, create_key_directory(module_services.installation.keys))
        yield views


async def decisions(views: TwoViews, key: str) -> list[int]:
    told = await read_stored(views.gateway.services, views.gateway.acme.log_id, key=key)
    return [one.entry.index for one in told if one.entry.type == "commit.decided"]


def keys_in(edges: Iterable[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(each["source"], each["target"]) for each in edges}


async def test_a_decision_is_shown_with_all_that_belongs_to_it(views: TwoViews) -> None:
    *_, index = await decisions(views, "table:lake/sales/orders")
    decision = await shown(views.whole, f"/v1/decisions/{index}")
    assert (decision["operation"], decision["decision"], decision["snapshots"]) == ("table.commit", "approved", ["7"])
    assert decision["outcome"]["outcome"] == "accepted"
    assert decision["principal"] == "ada@acme.example"
    assert {each["id"] for each in decision["verdicts"]} == {"first-key", "sellers"}
    assert [each["snapshot"] for each in decision["scans"]] == ["7"]
    (found,), (alert,) = decision["findings"], decision["alerts"]
    assert (found["kind"], found["column_path"], found["matches"], found["not_null"]) == ("email", "id", 9, 10)
    assert alert["finding"] == found["group"]
    assert ("table:lake/hr/salaries", "table:lake/sales/orders") in keys_in(decision["made_from"])
    assert await shown(views.whole, f"/v1/decisions/{decision['group']}") == decision


async def test_who_asked_and_what_the_rules_said_takes_a_right_of_its_own(views: TwoViews) -> None:
    *_, index = await decisions(views, "table:lake/sales/orders")
    decision = await shown(views.part, f"/v1/decisions/{index}")
    assert [decision[name] for name in ("principal", "verdicts", "message")] == [None, None, None]
    assert decision["actor"] == views.gateway.acme.key.actor
    assert len(decision["findings"]) == len(decision["alerts"]) == len(decision["scans"]) == 1
    assert decision["made_from"] == []


async def test_a_decision_that_may_not_be_seen_is_as_one_that_is_not_there(views: TwoViews) -> None:
    *_, index = await decisions(views, f"table:lake/hr/{SECRET}")
    group = (await shown(views.whole, f"/v1/decisions/{index}"))["group"]
    settled = (await shown(views.whole, f"/v1/decisions/{index}"))["outcome"]["index"]
    for name in (index, group, settled, 10**9, "00000000-0000-4000-8000-000000000000"):
        answer = await views.part.get(f"/v1/decisions/{name}")
        assert answer.status_code == 404
        text = error_of(answer)["message"]
        assert text == f"decision {name}: expected a decision that you may see, found none"
    assert (await views.other.http.get(f"/v1/decisions/{group}")).status_code == 404
    assert error_of(await views.whole.get("/v1/decisions/x"))["message"].startswith("decision: ")


async def test_a_decision_that_the_read_model_does_not_have_yet_is_503_and_not_404(views: TwoViews) -> None:
    (await views.other.http.post(ORDERS, json=properties(note="new"))).raise_for_status()
    told = await read_stored(views.other.services, views.other.acme.log_id)
    index = [one.entry.index for one in told if one.entry.type == "commit.decided"][-1]
    answer = await views.other.http.get(f"/v1/decisions/{index}")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_findings_are_listed_of_tables_that_may_be_seen(views: TwoViews) -> None:
    everything = await pages(views.whole, "/v1/findings", "findings", limit=1)
    assert [each["key"] for each in everything] == [f"table:lake/hr/{SECRET}", "table:lake/sales/orders"]
    part = await pages(views.part, "/v1/findings", "findings", limit=1)
    assert part == [each for each in everything if each["key"] == "table:lake/sales/orders"]
    assert await pages(views.part, "/v1/findings", "findings", table=f"lake.hr.{SECRET}") == []
    assert len(await pages(views.whole, "/v1/findings", "findings", table=f"lake.hr.{SECRET}")) == 1
    assert len(await pages(views.whole, "/v1/findings", "findings", kind="email", confidence=92)) == 2
    assert await pages(views.whole, "/v1/findings", "findings", kind="iban") == []
    assert await pages(views.whole, "/v1/findings", "findings", confidence=93) == []
    assert await pages(views.other.http, "/v1/findings", "findings") == []
    for query in ("confidence=101", "confidence=x", "table=orders", "kind=", "limit=0"):
        assert (await views.whole.get(f"/v1/findings?{query}")).status_code == 400


async def test_a_page_of_findings_is_short_where_much_is_looked_through_and_goes_on_behind_its_cursor(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = await pages(views.whole, "/v1/findings", "findings")
    monkeypatch.setattr(findings, "EXAMINED_MAX", 1)
    assert await pages(views.whole, "/v1/findings", "findings") == everything
    first = await shown(views.whole, "/v1/findings", kind="iban")
    assert first["findings"] == []
    assert first["cursor"] is not None, "it has looked through one, which is not of that kind"
    assert await pages(views.whole, "/v1/findings", "findings", kind="iban") == []


async def test_tables_are_listed_by_name_as_far_as_they_may_be_seen(views: TwoViews) -> None:
    everything = await pages(views.whole, "/v1/tables", "tables", limit=1)
    assert [each["key"] for each in everything] == [f"table:lake/hr/{SECRET}", "table:lake/sales/orders"]
    assert everything[1]["findings"] == [{"kind": "email", "confidence_percent": 92, "columns": 1}]
    first = (await views.part.get("/v1/tables?limit=1")).json()["tables"]
    assert len(first) == 1, "a page is as long as was asked for, however many hidden tables come before"
    assert [each["key"] for each in await pages(views.part, "/v1/tables", "tables", limit=1)] == [
        "table:lake/sales/orders"
    ]
    for name in ("SALES.or", "orders", "ales.orders"):
        assert len(await pages(views.whole, "/v1/tables", "tables", name=name)) == 1
    assert await pages(views.part, "/v1/tables", "tables", name=SECRET) == []
    assert await pages(views.whole, "/v1/tables", "tables", catalog="sea") == []
    assert len(await pages(views.whole, "/v1/tables", "tables", catalog="lake", finding="email")) == 2
    assert await pages(views.whole, "/v1/tables", "tables", finding="iban") == []
    assert len(await pages(views.other.http, "/v1/tables", "tables")) == 1
    assert (await views.whole.get("/v1/tables?catalog=a%20b")).status_code == 400


async def test_tables_are_found_by_tag_and_by_owner_and_who_owns_one_is_a_right_of_its_own(views: TwoViews) -> None:
    actor = views.gateway.acme.key.actor

    async def found(http: httpx.AsyncClient, **query: str) -> list[str]:
        return [each["name"] for each in await pages(http, "/v1/tables", "tables", limit=1, **query)]

    assert await found(views.whole, tag="email") == await found(views.whole, tag="pii") == [SECRET, "orders"]
    assert await found(views.part, tag="pii") == ["orders"]
    assert await found(views.whole, tag="iban") == []
    for owner in (actor, "ada@acme.example"):
        assert await found(views.whole, owner=owner) == [SECRET, "orders"]
        assert await found(views.whole, owner=owner, tag="email", name="orders") == ["orders"]
    assert await found(views.whole, owner="eve@acme.example") == []
    assert await found(views.part, owner=actor) == ["orders"]
    assert await found(views.part, owner="ada@acme.example") == [], "who actors are is not theirs to know"
    assert await found(views.other.http, owner=actor) == []
    (whole, *_), (part,) = [await pages(http, "/v1/tables", "tables") for http in (views.whole, views.part)]
    assert (whole["owner"], part["owner"]) == (
        {"actor": actor, "principal": "ada@acme.example"},
        {"actor": actor, "principal": None},
    )
    for query in ("tag=", "owner=", f"owner={'x' * 501}", "tag=a&tag=b"):
        assert (await views.whole.get(f"/v1/tables?{query}")).status_code == 400


KNOWN_KINDS = ", ".join(DetectionKind)


@pytest.mark.parametrize(
    ("path", "question", "known"),
    [
        ("/v1/findings?kind=e-mail", '{ findings(kind: "e-mail") { cursor } }', KNOWN_KINDS),
        ("/v1/tables?finding=e-mail", '{ tables(finding: "e-mail") { cursor } }', KNOWN_KINDS),
        ("/v1/tables?tag=e-mail", '{ tables(tag: "e-mail") { cursor } }', f"pii, {KNOWN_KINDS}"),
    ],
)
async def test_a_kind_that_is_none_is_refused_so_that_nobody_takes_it_for_one_that_was_not_found(
    views: TwoViews, path: str, question: str, known: str
) -> None:
    name = path.partition("?")[2].partition("=")[0]
    answer = await views.whole.get(path)
    words = f"{name}: expected one of {known}, found 'e-mail'"
    assert (answer.status_code, error_of(answer)["message"]) == (400, words)
    told = (await views.whole.post("/v1/graphql", json={"query": question})).json()
    assert [each["message"] for each in told["errors"]] == [words]


async def test_a_table_is_shown_as_the_graph_has_it(views: TwoViews) -> None:
    table = await shown(views.whole, TABLE)
    assert (table["key"], table["table_uuid"]) == ("table:lake/sales/orders", views.uuids["orders"])
    assert [each["principal"] for each in table["writes"]] == ["ada@acme.example"] * 2
    assert {each["key"] for each in table["made_from"]} == {
        f"table:lake/hr/{SECRET}",
        "dataset:kafka%3A%2F%2Fprod/clicks",
    }
    assert table["found"] == [
        {"column": "id", "kind": "email", "confidence_percent": 92, "snapshots": 1, "state": "open"}
    ]
    assert table["lag_entries"] == 0
    part = await shown(views.part, TABLE)
    assert part["made_from"] == []
    assert (part["made_by"], part["read_by"]) == (None, None)
    assert [each["principal"] for each in part["writes"]] == [None, None]
    assert part["found"] == table["found"]


async def test_a_table_stands_in_the_graph_with_the_edges_of_which_both_ends_may_be_seen(views: TwoViews) -> None:
    whole = await shown(views.whole, f"{TABLE}/graph", label="LINEAGE_OF", direction="in")
    assert (whole["vertex"]["label"], whole["vertex"]["key"]) == ("Table", "table:lake/sales/orders")
    assert {each["vertex"]["key"] for each in whole["edges"]} >= {"table:lake/hr/salaries"}
    assert {(each["label"], each["direction"]) for each in whole["edges"]} == {("LINEAGE_OF", "in")}
    part = await shown(views.part, f"{TABLE}/graph", label="LINEAGE_OF", direction="in")
    assert [each for each in part["edges"] if "/hr/" in each["vertex"]["key"]] == []
    all_edges = (await shown(views.whole, f"{TABLE}/graph"))["edges"]
    assert await pages(views.whole, f"{TABLE}/graph", "edges", limit=2) == all_edges
    assert "expected one of" in error_of(await views.whole.get(f"{TABLE}/graph?label=OWNS"))["message"]


async def test_the_history_of_a_table_can_be_read_as_it_was(views: TwoViews) -> None:
    created, changed = await decisions(views, "table:lake/sales/orders")
    history = await pages(views.whole, f"{TABLE}/history", "decisions", limit=1)
    assert [each["index"] for each in history] == [changed, created]
    (then,) = await pages(views.whole, f"{TABLE}/history", "decisions", as_of=created)
    assert (then["index"], then["outcome"]) == (created, None), "its outcome came with a later entry"
    part = await pages(views.part, f"{TABLE}/history", "decisions")
    assert [each["index"] for each in part] == [changed, created]
    assert {each["principal"] for each in part} == {None}


async def test_findings_and_schemas_of_a_table_are_shown(views: TwoViews) -> None:
    for http in (views.whole, views.part):
        found = await shown(http, f"{TABLE}/findings")
        assert [each["kind"] for each in found["findings"]] == ["email"]
        assert [each["status"] for each in found["scans"]] == ["completed"]
        schemas = await shown(http, f"{TABLE}/schema-history")
        assert schemas["current_schema_id"] == 0
        assert [each["fields"][0]["name"] for each in schemas["schemas"]] == ["id"]
        assert [each["operation"] for each in schemas["changes"]] == ["table.create"]


async def test_policies_of_a_table_are_those_whose_scope_covers_it_for_who_may_read_policies(views: TwoViews) -> None:
    for policy_id, namespace in (("of-sales", "sales"), ("of-hr", "hr")):
        body = {"id": policy_id, "expression": "true", "message": "no", "scope": {"names": [f"{namespace}.*"]}}
        answer = await views.whole.post("/v1/policies", json=body)
        assert answer.status_code == 201, answer.text
    policies = (await shown(views.whole, f"{TABLE}/policies"))["policies"]
    assert [each["id"] for each in policies] == ["of-sales"]
    assert (await views.part.get(f"{TABLE}/policies")).status_code == 403


async def test_what_is_asked_as_of_an_entry_is_what_was_answered_when_the_log_ended_with_it(views: TwoViews) -> None:
    finding = (await shown(views.whole, "/v1/findings"))["findings"][0]["index"]
    body = {"expression": "true", "message": "no", "scope": {"names": ["sales.*"]}}
    steps = (
        ("POST", "/v1/policies", {**body, "id": "then"}),
        ("POST", f"/v1/findings/{finding}/review", {"verdict": "dismissed", "reason": "made up"}),
        ("PUT", "/v1/policies/then", {**body, "message": "never", "version": 1}),
        ("POST", f"/v1/findings/{finding}/review", {"verdict": "confirmed", "reason": "real"}),
        ("DELETE", "/v1/policies/then?reason=over", None),
    )
    paths = ("/v1/policies", f"{TABLE}/policies", f"/v1/findings/{finding}", "/v1/log/entries?limit=500")
    answered: dict[tuple[int, str], Any] = {}
    for method, path, sent in steps:
        answer = await views.whole.request(method, path, json=sent)
        assert answer.status_code < 300, answer.text
        await project(views.gateway)
        ends_with = (await shown(views.whole, "/v1/log/entries", limit=1))["entries"][0]["index"]
        answered |= {(ends_with, each): (await views.whole.get(each)).json() for each in paths}
    for (as_of, path), then in answered.items():
        asked = f"{path}{'&' if '?' in path else '?'}as_of={as_of}"
        assert (await views.whole.get(asked)).json() == then, asked
    for path in paths:
        assert len({json.dumps(then) for (_, each), then in answered.items() if each == path}) > 2, path


async def test_an_entry_that_is_not_there_and_a_list_that_only_knows_now_are_refused_as_of_it(views: TwoViews) -> None:
    (end, *_) = (await shown(views.whole, "/v1/log/entries", limit=1))["entries"]
    finding = (await shown(views.whole, "/v1/findings"))["findings"][0]["index"]
    read = ("/v1/findings", f"/v1/findings/{finding}", "/v1/tables", f"{TABLE}/findings", f"{TABLE}/history")
    for path in ("/v1/policies", f"{TABLE}/policies", "/v1/log/entries", *read):
        beyond = await views.whole.get(path, params={"as_of": end["index"] + 10})
        assert beyond.status_code == 400
        assert f"found {end['index'] + 10}: the log has " in error_of(beyond)["message"]
        assert (await views.whole.get(path, params={"as_of": "now"})).status_code == 400
    assert (await views.whole.get(f"/v1/findings/{finding}?as_of={finding - 1}")).status_code == 404
    for path in (TABLE, f"{TABLE}/lineage", "/v1/lineage/lake.sales.orders", "/v1/runs", f"/v1/impact{TABLE[10:]}"):
        refused = await views.whole.get(path, params={"as_of": end["index"]})
        assert (refused.status_code, error_of(refused)["message"]) == (
            400,
            "as_of: expected none here: what this answer is made of is kept as it is now alone",
        )
    assert (await views.part.get(f"/v1/policies?as_of={end['index']}")).status_code == 403


async def test_lineage_has_the_edges_of_which_both_ends_may_be_seen(views: TwoViews) -> None:
    for path in (f"{TABLE}/lineage", "/v1/lineage/table:lake/sales/orders", "/v1/lineage/lake.sales.orders"):
        lineage = await shown(views.whole, path)
        assert keys_in(lineage["upstream"]) == {
            (f"table:lake/hr/{SECRET}", "table:lake/sales/orders"),
            ("dataset:kafka%3A%2F%2Fprod/clicks", "table:lake/sales/orders"),
        }
        assert all(each["job"] == "pipeline:etl/nightly" for each in lineage["upstream"])
        part = await shown(views.part, path)
        assert part["upstream"] == []
        assert keys_in(part["downstream"]) == {("table:lake/sales/orders", "table:lake/sales/report")}
        assert {each["job"] for each in part["downstream"]} == {None}
    topic = await shown(views.whole, "/v1/lineage/dataset:kafka%3A%2F%2Fprod/clicks", hops=1)
    assert keys_in(topic["downstream"]) == {("dataset:kafka%3A%2F%2Fprod/clicks", "table:lake/sales/orders")}
    assert (await views.part.get("/v1/lineage/dataset:kafka%3A%2F%2Fprod/clicks")).status_code == 403
    assert (await views.whole.get("/v1/lineage/lake.s%61les.orders")).status_code == 200
    assert (await views.part.get(f"/v1/lineage/table:lake/hr/{SECRET}")).status_code == 403
    assert (await views.whole.get("/v1/lineage/table:lake/sales/nothing")).status_code == 404
    assert (await views.other.http.get(f"/v1/lineage/table:lake/hr/{SECRET}")).status_code == 404
    for path in ("x", "table:", "run:1", "lake.orders"):
        assert (await views.whole.get(f"/v1/lineage/{path}")).status_code == 400
    assert (await views.whole.get("/v1/lineage/lake.sales.orders?hops=6")).status_code == 400


async def test_lineage_has_as_many_edges_as_are_asked_for_and_says_that_there_may_be_more(views: TwoViews) -> None:
    for path in (f"{TABLE}/lineage", "/v1/lineage/table:lake/sales/orders"):
        whole, cut = await shown(views.whole, path), await shown(views.whole, path, limit=1)
        assert len(whole["upstream"]) > 1
        assert not whole["is_cut"]
        assert (cut["upstream"], cut["is_cut"]) == (whole["upstream"][:1], True)
        assert all(len(cut[part]) <= 1 for part in ("downstream", "columns", "cycles"))
        assert (await views.whole.get(path, params={"limit": 501})).status_code == 400
    explained = await shown(views.whole, "/v1/traverse/explain_a_number/lake/sales/orders", limit=1)
    assert (len(explained["made_from"]), explained["is_cut"]) == (1, True)


async def test_a_timeline_takes_as_many_statements_for_many_decisions_as_for_one(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{TABLE}/timeline"
    one_by_one = await pages(views.whole, path, "commits", limit=1)
    statements = note_statements(monkeypatch, lambda text: "projections." in text or "ledger.parts" in text)
    counts = []
    for most in (1, 25):
        statements.clear()
        timeline = await shown(views.whole, path, limit=most)
        counts.append(len(statements))
    assert timeline["commits"] == one_by_one
    assert len(one_by_one) > 1
    assert counts[0] == counts[1] <= 4
    for commit in one_by_one:
        decision = await shown(views.whole, f"/v1/decisions/{commit['index']}")
        verdicts = [each for each in decision["verdicts"] if each["kind"] == "policy"]
        judged = [{name: each[name] for name in ("id", "version", "outcome")} for each in verdicts]
        assert (commit["policies"], commit["findings"]) == (judged, decision["findings"])
    assert all(each["policies"] is None is each["client"] for each in (await shown(views.part, path))["commits"])


async def test_runs_take_the_right_to_read_lineage(views: TwoViews) -> None:
    runs = await pages(views.whole, "/v1/runs", "runs", limit=1)
    assert len(runs) == len({each["run_id"] for each in runs}) == 2
    assert {each["job"] for each in runs} == {"pipeline:etl/nightly"}
    assert {key for each in runs for key in each["inputs"]} == {
        f"table:lake/hr/{SECRET}",
        "dataset:kafka%3A%2F%2Fprod/clicks",
        "table:lake/sales/orders",
    }
    assert (await views.part.get("/v1/runs")).status_code == 403
    assert (await shown(views.other.http, "/v1/runs"))["runs"] == []


async def test_walks_from_a_table_reach_what_may_be_seen(views: TwoViews) -> None:
    impact = await shown(views.whole, f"/v1/impact/lake/hr/{SECRET}")
    assert "table:lake/sales/orders" in {each["key"] for each in impact["tables"]}
    gone = await shown(views.whole, f"/v1/traverse/pii_propagation/lake/hr/{SECRET}", hops=5)
    assert [each["found"]["kind"] for each in gone["found"]] == ["email"]
    assert "table:lake/sales/orders" in {each["key"] for each in gone["tables"]}
    part = await shown(views.part, "/v1/impact/lake/sales/orders")
    assert {each["key"] for each in part["tables"]} <= {"table:lake/sales/report"}
    assert part["readers"] == []
    for path in (f"/v1/impact/lake/hr/{SECRET}", f"/v1/traverse/pii_propagation/lake/hr/{SECRET}"):
        assert (await views.part.get(path)).status_code == 403
        assert (await views.other.http.get(path)).status_code == 404
    unknown = await views.whole.get("/v1/traverse/everything/lake/sales/orders")
    assert unknown.status_code == 400
    assert "explain_a_number" in error_of(unknown)["message"]
    assert (await views.whole.get("/v1/impact/lake/sales/orders?hops=0")).status_code == 400
    few = await shown(views.whole, f"/v1/impact/lake/hr/{SECRET}", limit=1)
    assert ([len(few[kind]) for kind in ("tables", "readers")], few["is_cut"], impact["is_cut"]) == (
        [1, 1],
        True,
        False,
    )
    assert (await views.whole.get(f"/v1/traverse/ai_agent_context/lake/hr/{SECRET}?limit=1")).status_code == 400


async def test_a_number_is_explained_and_an_agent_given_context_as_far_as_each_may_see(views: TwoViews) -> None:
    explained = await shown(views.whole, "/v1/traverse/explain_a_number/lake/sales/orders")
    assert f"table:lake/hr/{SECRET}" in {each["source"] for each in explained["made_from"]}
    history = (await shown(views.whole, f"{TABLE}/history", limit=5))["decisions"]
    assert explained["last_decisions"] == history
    assert history
    part = await shown(views.part, "/v1/traverse/explain_a_number/lake/sales/orders")
    assert (part["made_from"], len(part["last_decisions"])) == ([], len(history))
    assert {each["principal"] for each in part["last_decisions"]} == {None}
    for view in (views.whole, views.part):
        context = await shown(view, "/v1/traverse/ai_agent_context/lake/sales/orders")
        assert context == {"preset": "ai_agent_context", **await shown(view, TABLE)}
    for preset in ("explain_a_number", "ai_agent_context"):
        assert (await views.part.get(f"/v1/traverse/{preset}/lake/hr/{SECRET}")).status_code == 403
        assert (await views.whole.get(f"/v1/traverse/{preset}/lake/sales/orders?hops=6")).status_code == 400


async def test_a_table_that_may_not_be_loaded_is_403_whatever_is_asked_of_it_and_whether_or_not_it_is_there(
    views: TwoViews,
) -> None:
    for part in PARTS:
        texts = set()
        for path in (HIDDEN, "/v1/tables/lake/hr/nothing", "/v1/tables/sea/hr/nothing"):
            answer = await views.part.get(f"{path}{part}")
            assert answer.status_code == 403, path
            texts.add(error_of(answer)["message"])
        assert len(texts) == 1
        assert (await views.other.http.get(f"{HIDDEN}{part}")).status_code in {200, 404}


async def test_no_answer_to_who_may_see_one_namespace_names_what_is_in_another(views: TwoViews) -> None:
    (index, *_) = await decisions(views, "table:lake/sales/orders")
    paths = [
        "/v1/log/entries?limit=500",
        "/v1/log/entries?order=oldest&limit=500",
        f"/v1/decisions/{index}",
        "/v1/findings",
        "/v1/tables",
        *(f"{TABLE}{part}" for part in PARTS),
        "/v1/lineage/lake.sales.orders?hops=5",
        "/v1/impact/lake/sales/orders?hops=5",
        *(f"/v1/traverse/{each.value}/lake/sales/orders?hops=5" for each in Preset),
    ]
    told = await read_stored(views.gateway.services, views.gateway.acme.log_id)
    paths += [f"/v1/log/entries/{one.entry.index}" for one in told]
    for path in paths:
        answer = await views.part.get(path)
        assert not [name for name in NAMES if name in answer.text or quote(name, safe="") in answer.text], path


async def test_the_status_of_the_own_log_is_told_to_who_may_read_it(views: TwoViews) -> None:
    status = await shown(views.whole, "/v1/status")
    told = await read_stored(views.gateway.services, views.gateway.acme.log_id)
    assert (status["log"], status["size"]) == (views.gateway.acme.origin, len(told))
    assert (status["open_decisions"], status["dead_letters"]) == (0, 0)
    behind = {each["name"]: each["lag_entries"] for each in status["projections"]}
    assert set(behind) == {"commits", "metrics", "catalogs", "lineage", "findings", "graph"}
    assert 10 < status["checkpoint_size"] <= len(told)
    assert (await views.part.get("/v1/status")).status_code == 403
    other = await shown(views.other.http, "/v1/status")
    assert other["log"] == views.other.acme.origin


async def test_a_name_with_a_slash_is_one_name(views: TwoViews) -> None:
    answer = await views.whole.get("/v1/tables/lake/sales/or%2Fders")
    assert answer.status_code == 404
    assert "or%2Fders" in json.dumps(answer.json()) or "or/ders" in json.dumps(answer.json())
    assert (await views.whole.get("/v1/tables/lake/sales%1Feu/orders/history")).status_code == 200


async def test_every_answer_is_as_its_model_has_it(views: TwoViews) -> None:
    index = (await decisions(views, "table:lake/sales/orders"))[-1]
    finding = (await shown(views.whole, f"/v1/decisions/{index}"))["findings"][0]["index"]
    values = {
        "finding": str(finding),
        "index": str(index),
        "decision": str(index),
        "alias": "lake",
        "namespace": "sales",
        "table": "orders",
        "dataset": "lake.sales.orders",
        "preset": "pii_propagation",
    }
    looking = [route for route in ANSWERS if route[0] == "GET" and ANSWERS[route].__module__ == answers.__name__]
    assert len(looking) > 15
    for http in (views.whole, views.part):
        for method, path in looking:
            answer = await http.request(method, path.format(**values))
            assert answer.status_code in ({200} if http is views.whole else {200, 403}), path
            if answer.status_code == 200:
                ANSWERS[method, path].model_validate_json(answer.content)


async def test_so_many_look_at_once_and_commits_do_not_wait_for_them(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "WAIT_S", 0.05)
    looks = views.gateway.services.gateway.looks
    for _ in range(LOOKS_MAX):
        await looks.acquire()
    try:
        answer = await views.whole.get("/v1/tables")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        (await views.other.http.post(ORDERS, json=properties(note="meanwhile"))).raise_for_status()
    finally:
        for _ in range(LOOKS_MAX):
            looks.release()
    assert (await views.whole.get("/v1/tables")).status_code == 200


async def test_a_statement_that_takes_too_long_is_ended_and_says_what_to_do(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "TIMEOUT_S", 0.05)
    gateway = views.gateway.services.gateway
    caller = await gateway.authenticator.authenticate(f"Bearer {views.gateway.acme.key.secret}")
    with pytest.raises(UnavailableError, match="ask for less"):
        async with reading.reading_as(gateway, caller) as connection:
            await connection.execute("SELECT pg_sleep(60)")
