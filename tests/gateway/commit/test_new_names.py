# SPDX-License-Identifier: Apache-2.0
"""
New names: readable, and not confusable with a sibling's. Through the real routes, with the real catalog.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
import pytest

from gateway.admin.application import OPERATOR
from gateway.errors import BadRequestError, LookAlikeNameError
from gateway.identifiers import check_new_name
from lakeproof.tenants import found_tenant
from testkit.gateway.confusable_names import ALIKE
from testkit.gateway.log_contents import check_agreement, live_rows
from testkit.gateway.sales import CREATE, NAMESPACES, SALES, TABLES, before_each_append, error_of, properties
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNREADABLE = {
    "form NFC": "e\u0301te",
    "format": "fin\u200bance",
    "a joiner": "finance\u200d",
    "a direction": "fin\u202eance",
    "an isolate": "\u2066finance",
    "a soft hyphen": "fin\u00adance",
    "a byte order mark": "\ufefffinance",
    "control": "fin\tance",
    "private use": "fin\ue000ance",
    "unassigned": "fin\u0378ance",
    "a tag": "finance\U000e0041",
    "a variation selector": "finance\ufe0f",
    "a filler": "finance\u3164",
    "blank Braille": "fin\u2800ance",
    "an outer space": "finance ",
    "a space before": " finance",
    "a blank that is none": "fin\u00a0ance",
    "an ideographic space": "finance\u3000",
    "a mark without a letter": "\u0301finance",
}


@pytest.mark.parametrize("name", UNREADABLE.values(), ids=list(UNREADABLE))
async def test_an_unreadable_name_is_not_created(module_sales: Gateway, name: str) -> None:
    for path, body in (
        (NAMESPACES, {"namespace": [name]}),
        (NAMESPACES, {"namespace": ["sales", name]}),
        (TABLES, {**CREATE, "name": name}),
        (TABLES, {**CREATE, "name": name, "stage-create": True}),
    ):
        answer = await module_sales.http.post(path, json=body)
        assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException"), body
    create = {"requirements": [{"type": "assert-create"}], "updates": []}
    assert (await module_sales.http.post(f"{TABLES}/{quote(name, safe='')}", json=create)).status_code == 400


async def make(http: httpx.AsyncClient, kind: str, name: str, alias: str = "lake") -> httpx.Response:
    """Make a table or a namespace of that name in `sales`."""
    if kind == "table":
        return await http.post(TABLES.replace("/lake/", f"/{alias}/"), json={**CREATE, "name": name})
    return await http.post(NAMESPACES.replace("/lake/", f"/{alias}/"), json={"namespace": ["sales", name]})


KINDS = [("table", "table"), ("table", "namespace"), ("namespace", "table"), ("namespace", "namespace")]


@pytest.mark.parametrize(("first", "second"), KINDS, ids=" then ".join)
async def test_a_name_confusable_with_an_existing_one_is_refused(sales: Gateway, first: str, second: str) -> None:
    assert (await make(sales.http, first, "finance")).status_code == 200
    for name in ("Finance", "FINANCE", "ﬁnance", "f\u0456nance", "\uff46inance", "f\u0131nance"):
        try:
            check_new_name(name, field="name")
        except BadRequestError:
            continue
        answer = await make(sales.http, second, name)
        assert (answer.status_code, error_of(answer)["type"]) == (400, "LookAlikeNameException"), name
        assert "'finance'" not in error_of(answer)["message"], "the caller may not know of it"
    assert (await make(sales.http, second, "finances")).status_code == 200
    elsewhere = await sales.http.post(NAMESPACES, json={"namespace": ["Finance"]})
    assert elsewhere.status_code == 200, "it is beside nothing like it there"
    await check_agreement(sales.services, sales.acme.log_id)


async def test_the_five_names_of_one_thing_do_not_coexist(sales: Gateway) -> None:
    made = [
        await sales.http.post(NAMESPACES, json={"namespace": [name]})
        for name in ("finance", "Finance", "finance ", "ﬁnance", "finance\u200b")
    ]
    assert [answer.status_code for answer in made] == [200, 400, 400, 400, 400]
    assert (await sales.http.get(NAMESPACES)).json()["namespaces"] == [["finance"], ["sales"]]


@pytest.mark.parametrize(("one", "other"), ALIKE)
async def test_of_two_names_that_are_alike_one_is_created(module_sales: Gateway, one: str, other: str) -> None:
    parent = f"pair{ALIKE.index((one, other))}"
    assert (await module_sales.http.post(NAMESPACES, json={"namespace": [parent]})).status_code == 200
    pair = [{"namespace": [parent, name]} for name in (one, other)]
    statuses = [(await module_sales.http.post(NAMESPACES, json=body)).status_code for body in pair]
    assert statuses in ([200, 400], [400, 400])


async def test_a_table_and_a_namespace_do_not_share_a_name(sales: Gateway) -> None:
    answer = await make(sales.http, "namespace", "orders")
    assert (answer.status_code, error_of(answer)["type"]) == (400, "LookAlikeNameException")
    assert (await make(sales.http, "namespace", "archive")).status_code == 200
    assert (await make(sales.http, "table", "archive")).status_code == 400


async def test_a_name_that_was_dropped_makes_room_for_its_like(sales: Gateway) -> None:
    assert (await make(sales.http, "table", "finance")).status_code == 200
    assert (await sales.http.delete(f"{TABLES}/finance")).status_code == 204
    assert (await make(sales.http, "table", "Finance")).status_code == 200
    again = await make(sales.http, "table", "Finance")
    assert (again.status_code, error_of(again)["type"]) == (409, "AlreadyExistsException")


async def test_of_creators_at_once_one_wins(sales: Gateway) -> None:
    names = ("Finance", "finance", "FINANCE", "f\u0456nance", "f\u0131nance", "F\u0131nance")
    kinds = ("table", "namespace", "table", "namespace", "table", "table")
    answers = await asyncio.gather(*(make(sales.http, *one) for one in zip(kinds, names, strict=True)))
    assert sorted(answer.status_code for answer in answers) == [200, 400, 400, 400, 400, 400]
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_confusable_name_that_is_created_meanwhile_is_caught_by_the_guard(sales: Gateway) -> None:
    async def be_first(count: int) -> None:
        if count == 0:
            assert (await make(sales.http, "namespace", "Finance")).status_code == 200

    client = sales.through(append=before_each_append(sales, be_first))
    answer = await make(client, "table", "finance")
    assert (answer.status_code, error_of(answer)["type"]) == (400, "LookAlikeNameException")
    rows = await check_agreement(sales.services, sales.acme.log_id)
    assert ("lake", ("sales",), "finance") not in rows.tables


async def test_a_catalogs_option_allows_confusable_names(sales: Gateway) -> None:
    await sales.services.gateway.admin.create_catalog(
        sales.acme.log_id, OPERATOR, alias="lax", kind="builtin", options={"look-alike-names": "allowed"}
    )
    assert (await sales.http.post("/v1/iceberg/lax/namespaces", json={"namespace": ["sales"]})).status_code == 200
    for kind, name in (("table", "finance"), ("table", "Finance"), ("namespace", "finance"), ("namespace", "ﬁnance")):
        assert (await make(sales.http, kind, name, alias="lax")).status_code == 200, name
    assert (await make(sales.http, "table", "finance ", alias="lax")).status_code == 400, "of its form it must be still"


async def test_names_from_before_are_read_written_and_dropped(sales: Gateway) -> None:
    """Rows of names that could not be created any more, as an older version has left them."""
    log_id, old = sales.acme.log_id, "orders\u200b"
    with psycopg.connect(sales.services.installation.admin_dsn) as owner:
        owner.execute("SET LOCAL session_replication_role = replica")
        owner.execute("UPDATE gateway.namespaces SET namespace = ARRAY['sales '] WHERE log_id = %s", (log_id,))
        owner.execute(
            "UPDATE gateway.tables SET namespace = ARRAY['sales '], name = %s WHERE log_id = %s", (old, log_id)
        )
    table = f"{NAMESPACES}/{quote('sales ')}/tables/{quote(old)}"
    assert (await sales.http.get(table)).status_code == 200
    assert (await sales.http.post(table, json=properties(a="1"))).status_code == 200
    beside: dict[str, Any] = {**CREATE, "name": "fresh"}
    assert (await sales.http.post(f"{NAMESPACES}/{quote('sales ')}/tables", json=beside)).status_code == 200
    assert (await sales.http.delete(f"{NAMESPACES}/{quote('sales ')}/tables/fresh")).status_code == 204
    assert (await sales.http.delete(table)).status_code == 204
    assert (await sales.http.delete(f"{NAMESPACES}/{quote('sales ')}")).status_code == 204
    assert not (await live_rows(sales.services, log_id)).tables


async def test_an_alias_confusable_with_another_is_refused(sales: Gateway) -> None:
    admin = sales.services.gateway.admin
    with pytest.raises(LookAlikeNameError, match="alias: expected a name unlike"):
        await admin.create_catalog(sales.acme.log_id, OPERATOR, alias="1ake", kind="builtin", options={})
    assert (await admin.create_catalog(sales.acme.log_id, OPERATOR, alias="lake-2", kind="builtin", options={})).id


async def test_a_tenants_name_is_readable_and_unlike_the_others(sales: Gateway) -> None:
    await found_tenant(sales.services, name="Nordwind", identity="nora@nordwind.example")
    for name in ("nordwind", "N\u043erdwind", "Nordwind ", "Nord\u200bwind"):
        with pytest.raises(BadRequestError, match=r"^name: expected a name"):
            await found_tenant(sales.services, name=name, identity="nora@nordwind.example")


async def test_a_nested_namespace_is_compared_with_its_siblings_only(sales: Gateway) -> None:
    assert (await sales.http.post(NAMESPACES, json={"namespace": ["sales", "Sales"]})).status_code == 200
    answer = await sales.http.post(NAMESPACES, json={"namespace": ["sales", "SALES"]})
    assert answer.status_code == 400
    assert (await sales.http.get(f"{SALES}%1FSales")).status_code == 200
