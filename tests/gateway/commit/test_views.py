# SPDX-License-Identifier: Apache-2.0
"""
Views of the built-in catalog: created, replaced, renamed, dropped and registered as tables are, judged and recorded,
under names that tables and views share. Through the real routes, with the real catalog.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from testkit.gateway.log_contents import check_agreement, live_rows, path_of, read_stored, words
from testkit.gateway.sales import (
    CREATE,
    NAMESPACES,
    ORDERS,
    SALES,
    TABLES,
    another_key,
    before_each_append,
    error_of,
    properties,
)
from testkit.gateway.view_requests import (
    QUERY,
    RENAME_VIEW,
    REPORT,
    REPORT_KEY,
    VIEWS,
    version,
    view_created,
    view_renamed,
    view_replaced,
)
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

REGISTER = f"{SALES}/register-view"


async def make_view(sales: Gateway, name: str = "report") -> dict[str, Any]:
    """Make a view, and return what it was answered with."""
    answer = await sales.http.post(VIEWS, json=view_created(name))
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def named_views(sales: Gateway) -> list[str]:
    listed = (await sales.http.get(VIEWS)).json()["identifiers"]
    return [each["name"] for each in listed]


async def test_a_view_is_loaded_as_it_was_created(sales: Gateway) -> None:
    created = await make_view(sales)
    metadata = created["metadata"]
    assert metadata["versions"] == [version(QUERY)]
    assert metadata["properties"] == {"comment": "orders"}
    assert json.loads(path_of(created["metadata-location"]).read_bytes()) == metadata
    loaded = await sales.http.get(REPORT)
    assert loaded.json() == created
    held = {"If-None-Match": loaded.headers["etag"]}
    assert (await sales.http.get(REPORT, headers=held)).status_code == 304
    assert (await sales.http.head(REPORT)).status_code == 204
    assert await named_views(sales) == ["report"]
    assert [each["name"] for each in (await sales.http.get(TABLES)).json()["identifiers"]] == ["orders"]
    decision, outcome = await read_stored(sales.services, sales.acme.log_id, key=REPORT_KEY)
    assert (decision.decided.operation, decision.decided.table_uuid) == ("view.create", metadata["view-uuid"])
    assert decision.decided.actions == ("CATALOG_CREATE_ENTITY",)
    assert outcome.settled.metadata_location == created["metadata-location"]
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_replaced_view_has_another_version_and_the_same_uuid(sales: Gateway) -> None:
    before = (await make_view(sales))["metadata"]
    answer = await sales.http.post(REPORT, json=view_replaced("SELECT 2", view_uuid=before["view-uuid"]))
    assert answer.status_code == 200, answer.text
    after = answer.json()["metadata"]
    assert after["view-uuid"] == before["view-uuid"]
    assert after["current-version-id"] == 2
    assert (await sales.http.get(REPORT)).json() == answer.json()
    told = len(await read_stored(sales.services, sales.acme.log_id))
    # The same again changes nothing, and is not recorded.
    assert (await sales.http.post(REPORT, json=view_replaced("SELECT 2"))).json() == answer.json()
    assert len(await read_stored(sales.services, sales.acme.log_id)) == told
    other = "00000000-0000-4000-8000-000000000000"
    refused = await sales.http.post(REPORT, json=view_replaced("SELECT 3", view_uuid=other))
    assert (refused.status_code, error_of(refused)["type"]) == (409, "CommitFailedException")
    assert (await sales.http.get(REPORT)).json() == answer.json()
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_dropped_view_is_gone_and_can_be_registered_again(sales: Gateway) -> None:
    created = await make_view(sales)
    assert (await sales.http.delete(REPORT)).status_code == 204
    assert (await sales.http.get(REPORT)).status_code == 404
    assert error_of(await sales.http.get(REPORT))["type"] == "NoSuchViewException"
    assert (await sales.http.delete(REPORT)).status_code == 404
    body = {"name": "again", "metadata-location": created["metadata-location"]}
    answer = await sales.http.post(REGISTER, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json() == created
    assert (await sales.http.post(REGISTER, json=body)).status_code == 409
    entries = await read_stored(sales.services, sales.acme.log_id, key="view:lake/sales/again")
    assert entries[0].decided.operation == "view.register"
    await check_agreement(sales.services, sales.acme.log_id)


async def test_only_the_metadata_of_a_view_is_registered_as_one(sales: Gateway) -> None:
    view = await make_view(sales)
    table = (await sales.http.get(ORDERS)).json()
    for route, location in ((REGISTER, table["metadata-location"]), (f"{SALES}/register", view["metadata-location"])):
        answer = await sales.http.post(route, json={"name": "other", "metadata-location": location})
        assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException"), answer.text
        assert "expected metadata of a" in answer.text
    await check_agreement(sales.services, sales.acme.log_id)


async def test_metadata_of_both_kinds_is_registered_as_neither(sales: Gateway) -> None:
    await sales.services.gateway.admin.create_policy(
        sales.acme.log_id,
        OPERATOR,
        policy_id="no-ids",
        text=PolicyText(
            expression="commit.operation != 'table.register' || !result.columns.exists(column, column.name == 'id')",
            message="no ids",
        ),
    )
    view = (await make_view(sales))["metadata"]
    location = str((await sales.http.post(f"{ORDERS}/unregister")).json()["metadata-location"])
    of_table = json.loads(path_of(location).read_bytes())
    hidden = {"type": "struct", "schema-id": 7, "fields": []}
    of_view = {name: view[name] for name in ("version-log", "current-version-id")} | {
        "schemas": [*of_table["schemas"], hidden],
        "versions": [{**view["versions"][0], "schema-id": 7}],
    }
    file = path_of(location).with_name("00009-both.metadata.json")
    body = {"name": "both", "metadata-location": f"{location.rpartition('/')[0]}/{file.name}"}
    file.write_text(json.dumps({**of_table, **of_view}))
    answer = await sales.http.post(f"{SALES}/register", json=body)
    assert (answer.status_code, error_of(answer)["message"][:6]) == (403, "no ids"), answer.text
    assert (await sales.http.post(REGISTER, json=body)).status_code == 400
    file.write_text(json.dumps({**of_table, **of_view, "view-uuid": view["view-uuid"], "format-version": 1}))
    for route in (f"{SALES}/register", REGISTER):
        answer = await sales.http.post(route, json=body)
        assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException"), answer.text


@pytest.mark.parametrize(
    ("members", "status"),
    [
        ({"properties": None}, 200),
        ({"view-uuid": "urn:uuid:9c12d441-03fe-4693-9a96-a0705ddf69c1"}, 400),
        ({"view-uuid": "{9c12d441-03fe-4693-9a96-a0705ddf69c1}"}, 400),
        ({"view-uuid": "9C12D441-03FE-4693-9A96-A0705DDF69C1"}, 200),
        ({"version-log": [{"version-id": [], "timestamp-ms": 1}]}, 400),
        # What only tables have means nothing in a view.
        ({"snapshots": [{}], "statistics": [1]}, 200),
        ({"snapshots": 1}, 200),
    ],
)
async def test_a_file_of_another_writer_is_registered_or_refused(
    sales: Gateway, members: dict[str, Any], status: int
) -> None:
    made = await make_view(sales)
    folder = made["metadata-location"].rpartition("/")[0]
    file = path_of(made["metadata-location"]).with_name("00009-other.metadata.json")
    file.write_text(json.dumps({**made["metadata"], **members}))
    assert (await sales.http.delete(REPORT)).status_code == 204
    body = {"name": "report", "metadata-location": f"{folder}/{file.name}"}
    answer = await sales.http.post(REGISTER, json=body)
    assert answer.status_code == status, answer.text
    if status == 200:
        assert (await sales.http.post(REPORT, json=view_replaced("SELECT 2"))).status_code == 200
    await check_agreement(sales.services, sales.acme.log_id)


@pytest.mark.parametrize("into", ["sales", "archive"])
async def test_a_renamed_view_is_the_same_view_under_its_new_name(sales: Gateway, into: str) -> None:
    assert (await sales.http.post(NAMESPACES, json={"namespace": ["archive"]})).status_code == 200
    created = await make_view(sales)
    assert (await sales.http.post(RENAME_VIEW, json=view_renamed(into=into))).status_code == 204
    assert (await sales.http.get(f"{NAMESPACES}/{into}/views/summary")).json() == created
    assert (await sales.http.head(REPORT)).status_code == 404
    entries = await read_stored(sales.services, sales.acme.log_id)
    operations = [one.decided.operation for one in entries if one.words == "approved"][-2:]
    assert operations == ["view.rename_from", "view.rename_to"]
    assert (await sales.http.post(VIEWS, json=view_created())).status_code == 200
    await check_agreement(sales.services, sales.acme.log_id)


async def test_tables_and_views_share_their_names(sales: Gateway) -> None:
    await make_view(sales)
    as_view = await sales.http.post(VIEWS, json=view_created("orders"))
    as_table = await sales.http.post(TABLES, json={**CREATE, "name": "report"})
    onto_table = await sales.http.post(RENAME_VIEW, json=view_renamed("orders"))
    onto_view = await sales.http.post("/v1/iceberg/lake/tables/rename", json=view_renamed("report", "orders"))
    again = await sales.http.post(VIEWS, json=view_created())
    answers = (as_view, as_table, onto_table, onto_view, again)
    assert {(each.status_code, error_of(each)["type"]) for each in answers} == {(409, "AlreadyExistsException")}
    assert [error_of(each)["message"] for each in answers] == [
        "Table with same name already exists: sales.orders",
        "View with same name already exists: sales.report",
        "Cannot rename sales.report to sales.orders. Table already exists",
        "Cannot rename sales.orders to sales.report. View already exists",
        "View already exists: sales.report",
    ]
    # Under the other kind's route, it does not exist.
    assert error_of(await sales.http.get(f"{TABLES}/report"))["type"] == "NoSuchTableException"
    assert error_of(await sales.http.get(f"{VIEWS}/orders"))["type"] == "NoSuchViewException"
    for path in (f"{TABLES}/report", f"{VIEWS}/orders"):
        assert (await sales.http.head(path)).status_code == 404
        assert (await sales.http.post(path, json=properties(a="b"))).status_code == 404
        assert (await sales.http.delete(path)).status_code == 404
    looks_alike = await sales.http.post(VIEWS, json=view_created("Orders"))
    assert error_of(looks_alike)["type"] == "LookAlikeNameException"
    dropped = await sales.http.delete(SALES)
    assert error_of(dropped)["type"] == "NamespaceNotEmptyException"
    assert (await sales.http.delete(ORDERS)).status_code == 204
    assert (await sales.http.delete(SALES)).status_code == 409
    assert (await sales.http.delete(REPORT)).status_code == 204
    assert (await sales.http.delete(SALES)).status_code == 204
    await check_agreement(sales.services, sales.acme.log_id)


@pytest.mark.parametrize("of_view", [True, False])
async def test_a_name_that_the_other_kind_takes_meanwhile_is_not_taken_twice(sales: Gateway, of_view: bool) -> None:
    ours = (VIEWS, view_created("report")) if of_view else (TABLES, {**CREATE, "name": "report"})
    theirs = (TABLES, {**CREATE, "name": "report"}) if of_view else (VIEWS, view_created("report"))

    async def act(count: int) -> None:
        if count == 0:
            assert (await sales.http.post(theirs[0], json=theirs[1])).status_code == 200

    async with sales.through(append=before_each_append(sales, act)) as http:
        answer = await http.post(ours[0], json=ours[1])
    assert (answer.status_code, error_of(answer)["type"]) == (409, "AlreadyExistsException"), answer.text
    rows = await live_rows(sales.services, sales.acme.log_id)
    assert ("lake", ("sales",), "report") in rows.tables
    await check_agreement(sales.services, sales.acme.log_id)


async def test_many_replacements_at_once_are_all_made(sales: Gateway) -> None:
    await make_view(sales)
    statuses = await asyncio.gather(
        *(sales.http.post(REPORT, json=view_replaced(f"SELECT {number}")) for number in range(8))
    )
    assert [each.status_code for each in statuses] == [200] * 8
    metadata = (await sales.http.get(REPORT)).json()["metadata"]
    assert [each["version-id"] for each in metadata["versions"]] == list(range(1, 10))
    await check_agreement(sales.services, sales.acme.log_id)


async def test_policies_judge_what_a_view_queries(sales: Gateway) -> None:
    await sales.services.gateway.admin.create_policy(
        sales.acme.log_id,
        OPERATOR,
        policy_id="no-stars",
        text=PolicyText(
            expression="commit.kind != 'view' || result.queries.all(dialect, !result.queries[dialect].contains('*'))",
            message="views name their columns",
        ),
    )
    refused = await sales.http.post(VIEWS, json=view_created("report", "SELECT * FROM sales.orders"))
    assert (refused.status_code, error_of(refused)["message"]) == (
        403,
        "views name their columns (policy no-stars, version 1)",
    )
    await make_view(sales)
    for body in (view_replaced("SELECT *"), view_replaced("SELECT 1", trino="SELECT *")):
        assert (await sales.http.post(REPORT, json=body)).status_code == 403
    assert (await sales.http.post(REPORT, json=view_replaced("SELECT 1", trino="SELECT 2"))).status_code == 200
    said = await words(sales.services, sales.acme.log_id, key=REPORT_KEY)
    assert said == ["rejected", "approved", "accepted", "rejected", "rejected", "approved", "accepted"]
    await check_agreement(sales.services, sales.acme.log_id)


async def test_access_rules_judge_views_by_their_type(sales: Gateway) -> None:
    await make_view(sales)
    await sales.services.gateway.admin.create_access_rule(
        sales.acme.log_id,
        OPERATOR,
        rule_id="readers",
        effect="permit",
        expression="'reader' in roles && contentType == 'ICEBERG_VIEW' && op == 'READ_ENTITY_VALUE'",
    )
    key = await another_key(sales, "eve@acme.example", "reader")
    headers = {"Authorization": f"Bearer {key}"}
    assert (await sales.http.get(REPORT, headers=headers)).status_code == 200
    assert (await sales.http.get(ORDERS, headers=headers)).status_code == 403
    for request in (
        sales.http.post(REPORT, json=view_replaced("SELECT 2"), headers=headers),
        sales.http.delete(REPORT, headers=headers),
        sales.http.post(RENAME_VIEW, json=view_renamed(), headers=headers),
        sales.http.post(VIEWS, json=view_created("more"), headers=headers),
        sales.http.head(REPORT, headers=headers),
    ):
        assert (await request).status_code == 403


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "re\u200bport"}, "name"),
        ({"schema": None}, "schema"),
        ({"schema": {"type": "struct"}}, "schema.fields"),
        ({"view-version": None}, "view-version"),
        ({"view-version": {**version(QUERY), "representations": []}}, "view-version.representations"),
        ({"properties": {"a": 1}}, "properties.a"),
        ({"location": "file:///elsewhere/report"}, "location"),
        ({"properties": {"write.metadata.path": "file:///elsewhere"}}, "write.metadata.path"),
    ],
)
async def test_a_view_that_cannot_be_created_leaves_nothing(
    module_sales: Gateway, members: dict[str, Any], field: str
) -> None:
    before = await live_rows(module_sales.services, module_sales.acme.log_id)
    answer = await module_sales.http.post(VIEWS, json=view_created(**{"name": "report", **members}))
    assert answer.status_code == 400, answer.text
    assert field in error_of(answer)["message"]
    assert await live_rows(module_sales.services, module_sales.acme.log_id) == before
    assert await named_views(module_sales) == []


async def test_a_view_has_a_place_of_its_own(sales: Gateway) -> None:
    table = (await sales.http.get(ORDERS)).json()["metadata"]
    answer = await sales.http.post(VIEWS, json=view_created(location=f"{table['location']}/inside"))
    assert error_of(answer)["type"] == "PlaceTakenException"
    view = (await make_view(sales))["metadata"]
    taken = {**CREATE, "name": "more", "location": view["location"]}
    assert error_of(await sales.http.post(TABLES, json=taken))["type"] == "PlaceTakenException"


async def test_views_are_listed_in_pages(sales: Gateway) -> None:
    for name in ("a1", "b2", "c3", "d4", "e5"):
        await make_view(sales, name)
    names: list[str] = []
    token: str | None = ""
    while token is not None:
        page = (await sales.http.get(VIEWS, params={"pageToken": token, "pageSize": "2"})).json()
        assert len(page["identifiers"]) <= 2
        names += [each["name"] for each in page["identifiers"]]
        token = page.get("next-page-token")
    assert names == ["a1", "b2", "c3", "d4", "e5"]
    assert (await sales.http.get(f"{NAMESPACES}/nowhere/views")).status_code == 404
