# SPDX-License-Identifier: Apache-2.0
"""
To rename a table: both names are judged and recorded, the table keeps its uuid, its history and its files, and nothing
is written. Through the real routes, with the real catalog.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from testkit.gateway.log_contents import check_agreement, live_rows, path_of, read_stored, words
from testkit.gateway.sales import (
    CREATE,
    NAMESPACES,
    ORDERS,
    TABLES,
    another_key,
    before_each_append,
    error_of,
    location_of_orders,
    properties,
)
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

RENAME = "/v1/iceberg/lake/tables/rename"


def renaming(to: str = "invoices", of: str = "orders", *, into: str = "sales") -> dict[str, Any]:
    """The body of a renameTable."""
    return {
        "source": {"namespace": ["sales"], "name": of},
        "destination": {"namespace": [into], "name": to},
    }


async def rename(http: httpx.AsyncClient, to: str = "invoices", of: str = "orders", *, into: str = "sales") -> int:
    """Rename a table, and return the status of the answer."""
    return (await http.post(RENAME, json=renaming(to, of, into=into))).status_code


async def make_archive(sales: Gateway) -> None:
    assert (await sales.http.post(NAMESPACES, json={"namespace": ["archive"]})).status_code == 200


@pytest.mark.parametrize("into", ["sales", "archive"])
async def test_a_renamed_table_is_the_same_table_under_its_new_name(sales: Gateway, into: str) -> None:
    await make_archive(sales)
    before, location = await sales.http.get(ORDERS), await location_of_orders(sales)
    told = len(await read_stored(sales.services, sales.acme.log_id))
    files = sorted(path_of(location).parent.iterdir())
    assert await rename(sales.http, into=into) == 204
    new = f"{NAMESPACES}/{into}/tables/invoices"
    loaded = await sales.http.get(new)
    assert (loaded.content, loaded.headers["etag"]) == (before.content, before.headers["etag"])
    assert (await sales.http.head(ORDERS)).status_code == 404
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 404
    assert sorted(path_of(location).parent.iterdir()) == files
    entries = await read_stored(sales.services, sales.acme.log_id, after=told)
    assert [one.words for one in entries[:4]] == ["approved", "approved", "accepted", "accepted"]
    assert len({one.entry.group_id for one in entries[:4]}) == 1
    source, destination = (one.decided for one in entries[:2])
    assert (source.operation, source.base) == ("table.rename_from", location)
    assert (destination.operation, destination.base) == ("table.rename_to", None)
    assert source.actions == ("CATALOG_RENAME_ENTITY_FROM",)
    assert destination.actions == ("CATALOG_RENAME_ENTITY_TO",)
    uuid = loaded.json()["metadata"]["table-uuid"]
    gone, there = (one.settled for one in entries[2:4])
    assert (gone.metadata_location, gone.table_uuid) == (None, uuid)
    assert (there.metadata_location, there.table_uuid) == (location, uuid)
    assert (await sales.http.post(new, json=properties(a="b"))).status_code == 200
    assert (await sales.http.post(TABLES, json=CREATE)).status_code == 200
    await check_agreement(sales.services, sales.acme.log_id)


async def test_there_and_back_again(sales: Gateway) -> None:
    for to, of in (("invoices", "orders"), ("orders", "invoices"), ("Orders", "orders"), ("orders", "Orders")):
        assert await rename(sales.http, to, of) == 204
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    await check_agreement(sales.services, sales.acme.log_id)


@pytest.mark.parametrize(
    ("to", "of", "into", "status", "kind"),
    [
        ("invoices", "nothing", "sales", 404, "NoSuchTableException"),
        ("invoices", "orders", "nowhere", 404, "NoSuchNamespaceException"),
        ("orders", "orders", "sales", 409, "AlreadyExistsException"),
        ("more", "orders", "sales", 409, "AlreadyExistsException"),
        ("More", "orders", "sales", 400, "LookAlikeNameException"),
        ("in\u200bvoices", "orders", "sales", 400, "BadRequestException"),
        ("", "orders", "sales", 400, "BadRequestException"),
    ],
)
async def test_what_cannot_be_renamed_stays(
    sales: Gateway, to: str, of: str, into: str, status: int, kind: str
) -> None:
    assert (await sales.http.post(TABLES, json={**CREATE, "name": "more"})).status_code == 200
    before = await live_rows(sales.services, sales.acme.log_id)
    answer = await sales.http.post(RENAME, json=renaming(to, of, into=into))
    assert (answer.status_code, error_of(answer)["type"]) == (status, kind), answer.text
    assert await live_rows(sales.services, sales.acme.log_id) == before


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"source": renaming()["source"]},
        {"destination": renaming()["destination"]},
        {"source": "sales.orders", "destination": "sales.invoices"},
        {"source": {"namespace": "sales", "name": "orders"}, "destination": renaming()["destination"]},
        {"source": {"namespace": [], "name": "orders"}, "destination": renaming()["destination"]},
        {"source": {"namespace": ["sales"]}, "destination": renaming()["destination"]},
        {"source": renaming()["source"], "destination": {"namespace": ["sales"], "name": None}},
    ],
)
async def test_a_body_of_another_shape_is_refused(module_sales: Gateway, body: object) -> None:
    assert (await module_sales.http.post(RENAME, json=body)).status_code == 400


@pytest.mark.parametrize("end", ["rename_from", "rename_to"])
async def test_a_policy_on_either_end_refuses(sales: Gateway, end: str) -> None:
    admin, log_id = sales.services.gateway.admin, sales.acme.log_id
    await admin.create_policy(
        log_id,
        OPERATOR,
        policy_id="fixed",
        text=PolicyText(
            expression=f"commit.operation != 'table.{end}' || size(result.columns) == 0 || commit.name == 'free'",
            message="names are fixed",
        ),
    )
    answer = await sales.http.post(RENAME, json=renaming())
    assert answer.status_code == 403
    assert error_of(answer)["message"].startswith("names are fixed")
    (*_, last) = await read_stored(sales.services, log_id)
    assert (last.words, last.decided.operation) == ("rejected", f"table.{end}")
    assert last.decided.identifier.name == ("orders" if end == "rename_from" else "invoices")
    assert (await sales.http.head(ORDERS)).status_code == 204
    if end == "rename_to":
        assert await rename(sales.http, "free") == 204


@pytest.mark.parametrize("permitted", ["sales.orders", "sales.invoices"])
async def test_access_to_both_names_is_needed(sales: Gateway, permitted: str) -> None:
    admin, log_id = sales.services.gateway.admin, sales.acme.log_id
    await admin.create_access_rule(
        log_id,
        OPERATOR,
        rule_id="one",
        effect="permit",
        expression=f"'guest' in roles && path == '{permitted}'",
    )
    async with sales.client(await another_key(sales, "eve@acme.example", "guest")) as eve:
        assert await rename(eve) == 403
        assert await rename(eve, of="nothing") == 403
    assert (await sales.http.head(ORDERS)).status_code == 204


async def test_a_name_that_is_taken_meanwhile_conflicts(sales: Gateway) -> None:
    async def first(count: int) -> None:
        if count == 0:
            assert (await sales.http.post(TABLES, json={**CREATE, "name": "invoices"})).status_code == 200

    async with sales.through(append=before_each_append(sales, first)) as http:
        assert await rename(http) == 409
    assert (await words(sales.services, sales.acme.log_id))[-1] == "conflicted"
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_commit_that_came_first_goes_with_the_table(sales: Gateway) -> None:
    async def first(count: int) -> None:
        if count == 0:
            assert (await sales.http.post(ORDERS, json=properties(first="yes"))).status_code == 200

    async with sales.through(append=before_each_append(sales, first)) as http:
        assert await rename(http) == 204
    loaded = (await sales.http.get(f"{TABLES}/invoices")).json()
    assert loaded["metadata"]["properties"]["first"] == "yes"
    await check_agreement(sales.services, sales.acme.log_id)


async def test_of_many_renames_and_commits_at_once_each_is_made_or_refused(sales: Gateway) -> None:
    renames = [rename(sales.http, f"t{number}") for number in range(6)]
    commits = [sales.http.post(ORDERS, json=properties(**{f"p{number}": "1"})) for number in range(6)]
    renamed, committed = await asyncio.gather(asyncio.gather(*renames), asyncio.gather(*commits))
    assert sorted(renamed) == [204, *[404] * 5]
    assert {answer.status_code for answer in committed} <= {200, 404}
    new = f"{TABLES}/t{renamed.index(204)}"
    found = (await sales.http.get(new)).json()["metadata"]["properties"]
    made = {f"p{number}" for number, answer in enumerate(committed) if answer.status_code == 200}
    assert made == {name for name in found if name.startswith("p")}
    await check_agreement(sales.services, sales.acme.log_id)
