# SPDX-License-Identifier: Apache-2.0
"""
`POST /v1/{prefix}/events`: every operation that was made is an event, once and in order, for those who may see it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import httpx
import psycopg
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.http.events import made
from gateway.http.events import page as paging
from gateway.http.events.query import PAGE_SIZE_MAX
from lakeproof.erasing import open_eraser
from lakeproof.services import Services, now
from lakeproof.tenants import found_tenant
from ledger.erasing.erase import ErasureRequest
from ledger.format.event import Event, prepare
from ledger.format.events import CommitDecided, CommitSettled, ErasureReason
from ledger.format.sequence import Group
from ledger.store.read import read_head
from testkit.gateway.foreign_tenant import ALIAS, RENAME, ForeignTenant, open_far
from testkit.gateway.foreign_tenant import TABLES as FAR_TABLES
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import (
    CREATE,
    NAMESPACES,
    ORDERS,
    SALES,
    TABLES,
    another_guest,
    another_key,
    error_of,
    location_of_orders,
    properties,
)
from testkit.gateway.table_requests import snapshot
from testkit.gateway.view_requests import RENAME_VIEW, REPORT, VIEWS, view_created, view_renamed, view_replaced
from testkit.servers.faulty_wire import Fault, Loss
from testkit.servers.gateways import Gateway
from testkit.servers.upstream import Upstream, serve_upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVENTS: Final = "/v1/iceberg/lake/events"
REQUIRED: Final[Mapping[str, set[str]]] = {
    "create-table": {"identifier", "table-uuid", "updates"},
    "register-table": {"identifier", "table-uuid"},
    "drop-table": {"identifier", "table-uuid"},
    "update-table": {"identifier", "table-uuid", "updates"},
    "rename-table": {"source", "destination", "table-uuid"},
    "create-view": {"identifier", "view-uuid", "updates"},
    "drop-view": {"identifier", "view-uuid"},
    "update-view": {"identifier", "view-uuid", "updates"},
    "rename-view": {"source", "destination", "view-uuid"},
    "create-namespace": {"namespace"},
    "update-namespace-properties": {"namespace", "updated", "removed"},
    "drop-namespace": {"namespace"},
}
"""The members that the proposal requires of each operation, beside its type."""


async def query(http: httpx.AsyncClient, path: str = EVENTS, **members: Any) -> dict[str, Any]:
    """One page; the names of members are written with underscores."""
    answer = await http.post(path, json={name.replace("_", "-"): value for name, value in members.items()})
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    assert set(page) == {"continuation-token", "events"}
    for event in page["events"]:
        check_form(event)
    return page


def check_form(event: Mapping[str, Any]) -> None:
    """Check that an event is as the proposal has it."""
    members = {"event-id", "request-id", "request-event-count", "timestamp-ms", "actor", "operation"}
    assert set(event) == members
    assert isinstance(event["timestamp-ms"], int)
    operation = event["operation"]
    assert REQUIRED[operation["operation-type"]] <= set(operation)


async def all_events(http: httpx.AsyncClient, path: str = EVENTS, **members: Any) -> list[dict[str, Any]]:
    """Every event, read page by page until there is none behind the token."""
    page = await query(http, path, **members)
    events: list[dict[str, Any]] = []
    while page["events"]:
        events += page["events"]
        assert len({each["event-id"] for each in events}) == len(events), "none comes twice"
        page = await query(http, path, **members, continuation_token=page["continuation-token"])
    return events


def told(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The type of each event, and the path of its object under its present name."""
    return [(each["operation"]["operation-type"], path_of(each["operation"])) for each in events]


def path_of(operation: Mapping[str, Any]) -> str:
    """The dotted name of the object of an operation."""
    named = operation.get("destination") or operation.get("identifier")
    levels = operation["namespace"] if named is None else [*named["namespace"], named["name"]]
    return ".".join(levels)


async def done(answering: Any) -> httpx.Response:
    """The answer to a request that must succeed."""
    answer: httpx.Response = await answering
    assert answer.is_success, answer.text
    return answer


async def put(http: httpx.AsyncClient, path: str, body: Any = None) -> httpx.Response:
    """Send a change that must be made."""
    return await done(http.post(path, json=body))


@pytest_asyncio.fixture(loop_scope="module")
async def far(module_services: Services) -> AsyncIterator[ForeignTenant]:
    """A tenant with a foreign catalog, a simulator."""
    async with serve_upstream(Upstream()) as url, open_far(module_services, url) as far:
        yield far


async def make_one_of_each(http: httpx.AsyncClient, location: str) -> None:
    """Every change that there is, to what `sales` has."""
    await put(http, ORDERS, snapshot(f"{location.rpartition('/')[0]}/snap-7.avro"))
    await put(http, f"{SALES}/properties", {"updates": {"owner": "ada"}, "removals": []})
    await put(http, "/v1/iceberg/lake/tables/rename", renaming("orders", "invoices"))
    last = (await put(http, f"{TABLES}/invoices/unregister")).json()["metadata-location"]
    await put(http, f"{SALES}/register", {"name": "orders", "metadata-location": last})
    await put(http, VIEWS, view_created())
    await put(http, REPORT, view_replaced("SELECT 1"))
    await put(http, RENAME_VIEW, view_renamed("summary"))
    await done(http.delete(f"{VIEWS}/summary"))
    await done(http.delete(f"{ORDERS}?purgeRequested=true"))
    await put(http, NAMESPACES, {"namespace": ["sales", "old"]})
    await done(http.delete(f"{NAMESPACES}/sales%1Fold"))


def renaming(of: str, to: str) -> dict[str, Any]:
    """The body of a renameTable within `sales`."""
    return {"source": {"namespace": ["sales"], "name": of}, "destination": {"namespace": ["sales"], "name": to}}


async def test_every_operation_is_one_event_in_the_order_in_which_they_were_made(sales: Gateway) -> None:
    location = await location_of_orders(sales)
    await make_one_of_each(sales.http, location)
    events = await all_events(sales.http)
    assert told(events) == [
        ("create-namespace", "sales"),
        ("create-table", "sales.orders"),
        ("update-table", "sales.orders"),
        ("update-namespace-properties", "sales"),
        ("rename-table", "sales.invoices"),
        ("drop-table", "sales.invoices"),
        ("register-table", "sales.orders"),
        ("create-view", "sales.report"),
        ("update-view", "sales.report"),
        ("rename-view", "sales.summary"),
        ("drop-view", "sales.summary"),
        ("drop-table", "sales.orders"),
        ("create-namespace", "sales.old"),
        ("drop-namespace", "sales.old"),
    ]
    assert {each["operation"]["operation-type"] for each in events} == set(REQUIRED)
    assert len({each["event-id"] for each in events}) == len({each["request-id"] for each in events}) == len(events)
    assert {each["request-event-count"] for each in events} == {1}
    assert [each["timestamp-ms"] for each in events] == sorted(each["timestamp-ms"] for each in events)
    assert {each["actor"]["id"] for each in events} == {sales.acme.key.actor}


async def test_an_event_says_what_the_entries_say_and_nothing_of_the_request(sales: Gateway) -> None:
    uuid = (await sales.http.get(ORDERS)).json()["metadata"]["table-uuid"]
    folder = (await location_of_orders(sales)).rpartition("/")[0]
    await put(sales.http, ORDERS, snapshot(f"{folder}/snap-7.avro"))
    location = await location_of_orders(sales)
    await put(sales.http, "/v1/iceberg/lake/tables/rename", renaming("orders", "invoices"))
    await done(sales.http.delete(f"{TABLES}/invoices?purgeRequested=true"))
    *_, updated, renamed, dropped = await all_events(sales.http)
    stored = await read_stored(sales.services, sales.acme.log_id)
    decided = next(one for one in stored if one.entry.type == CommitDecided.TYPE and one.decided.snapshots)
    outcome = next(one.entry for one in stored if one.entry.type == CommitSettled.TYPE and one.settled.snapshots)
    assert updated == {
        "event-id": f"{outcome.group_id}/{outcome.position}",
        "request-id": str(decided.entry.group_id),
        "request-event-count": 1,
        "timestamp-ms": int(outcome.recorded_at.timestamp() * 1_000_000) // 1000,
        "actor": {"id": sales.acme.key.actor},
        "operation": {
            "operation-type": "update-table",
            "identifier": {"namespace": ["sales"], "name": "orders"},
            "table-uuid": uuid,
            "updates": [],
            "metadata-location": location,
            "snapshot-ids": [int(each) for each in decided.decided.snapshots],
        },
    }
    assert renamed["operation"] == {
        "operation-type": "rename-table",
        "source": {"namespace": ["sales"], "name": "orders"},
        "destination": {"namespace": ["sales"], "name": "invoices"},
        "table-uuid": uuid,
        "metadata-location": location,
    }
    assert dropped["operation"] == {
        "operation-type": "drop-table",
        "identifier": {"namespace": ["sales"], "name": "invoices"},
        "table-uuid": uuid,
        "purge": True,
    }


async def test_what_was_not_made_is_no_event(sales: Gateway) -> None:
    before = await all_events(sales.http)
    assert [each["operation"]["operation-type"] for each in before] == ["create-namespace", "create-table"]
    await sales.services.gateway.admin.create_policy(
        sales.acme.log_id,
        OPERATOR,
        policy_id="no",
        text=PolicyText(expression="commit.operation != 'table.commit'", message="no"),
    )
    refused = await sales.http.post(ORDERS, json=properties(a="b"))
    assert refused.status_code == 403
    conflict = await sales.http.post(TABLES, json=CREATE)
    assert conflict.status_code == 409
    staged = await sales.http.post(TABLES, json={**CREATE, "name": "staged", "stage-create": True})
    assert staged.status_code == 200
    assert (await sales.client(await another_key(sales)).get(ORDERS)).status_code == 403
    assert await all_events(sales.http) == before


async def test_the_tables_of_a_transaction_are_events_of_one_request(sales: Gateway) -> None:
    for name in ("lines", "more"):
        await put(sales.http, TABLES, {**CREATE, "name": name})
    before = len(await all_events(sales.http))
    changes = [
        {"identifier": {"namespace": ["sales"], "name": name}, **properties(a="1")}
        for name in ("orders", "more", "lines")
    ]
    await put(sales.http, "/v1/iceberg/lake/transactions/commit", {"table-changes": changes})
    for size in (1, 2, 100):  # also if a page ends within it
        events = (await all_events(sales.http, page_size=size))[before:]
        assert sorted(told(events)) == [("update-table", f"sales.{name}") for name in ("lines", "more", "orders")]
        assert len({each["request-id"] for each in events}) == 1
        assert len({each["event-id"] for each in events}) == 3
        assert {each["request-event-count"] for each in events} == {3}


# Going on


async def test_reading_on_beside_commits_loses_nothing_and_repeats_nothing(sales: Gateway) -> None:
    tables = [f"t{number}" for number in range(4)]
    for name in tables:
        await put(sales.http, TABLES, {**CREATE, "name": name})
    stop = asyncio.Event()

    async def write(number: int) -> None:
        for round_ in range(12):
            await put(sales.http, f"{TABLES}/{tables[number]}", properties(round=str(round_)))
            if round_ % 4 == 3:
                await put(sales.http, "/v1/iceberg/lake/tables/rename", renaming(f"t{number}", f"t{number}-{round_}"))
                tables[number] = f"t{number}-{round_}"
                await put(sales.http, "/v1/iceberg/lake/tables/rename", renaming(tables[number], f"t{number}"))
                tables[number] = f"t{number}"

    async def read(size: int) -> list[dict[str, Any]]:
        found, page = [], await query(sales.http, page_size=size)
        while True:
            is_over = stop.is_set()  # a page that was asked for before may lack the last event
            assert len(page["events"]) <= size
            found += page["events"]
            page = await query(sales.http, page_size=size, continuation_token=page["continuation-token"])
            if is_over and not page["events"]:
                return found

    readers = [asyncio.create_task(read(size)) for size in (1, 3, 50)]
    await asyncio.gather(*(write(number) for number in range(len(tables))))
    stop.set()
    whole = await all_events(sales.http)
    assert len(whole) == len({each["event-id"] for each in whole}) == 2 + len(tables) * (1 + 12 + 6)
    for found in await asyncio.gather(*readers):
        assert found == whole


async def test_a_token_goes_on_with_the_filters_it_was_made_with_unless_others_are_named(sales: Gateway) -> None:
    await make_one_of_each(sales.http, await location_of_orders(sales))
    first = await query(sales.http, page_size=1, operation_types=["drop-table", "drop-view"])
    token = first["continuation-token"]
    assert told(first["events"]) == [("drop-table", "sales.invoices")]
    on = await query(sales.http, continuation_token=token)
    assert told(on["events"]) == [("drop-view", "sales.summary"), ("drop-table", "sales.orders")]
    other = await query(sales.http, continuation_token=token, object_types=["namespace"])
    assert told(other["events"]) == [("create-namespace", "sales.old"), ("drop-namespace", "sales.old")]
    again = await query(sales.http, continuation_token=other["continuation-token"])
    assert again["events"] == []
    await put(sales.http, NAMESPACES, {"namespace": ["later"]})
    later = await query(sales.http, continuation_token=again["continuation-token"])
    assert told(later["events"]) == [("create-namespace", "later")]


async def test_a_token_is_taken_by_another_process(sales: Gateway) -> None:
    token = (await query(sales.http, page_size=1))["continuation-token"]
    keys = sales.services.gateway.intake.request_keys
    keys._keys.clear()  # what a process that has just started knows
    async with sales.through() as other:
        assert told((await query(other, continuation_token=token))["events"]) == [("create-table", "sales.orders")]


async def test_a_token_of_another_tenant_catalog_or_nobody_is_refused(sales: Gateway) -> None:
    log_id, admin = sales.acme.log_id, sales.services.gateway.admin
    await admin.create_catalog(log_id, OPERATOR, alias="other", kind="builtin", options={})
    token = (await query(sales.http))["continuation-token"]
    of_other = (await query(sales.http, "/v1/iceberg/other/events"))["continuation-token"]
    umbra = await found_tenant(sales.services, name="umbra", identity="eve@u.example", roles=["x"], alias="lake")
    async with sales.client(umbra.key.secret) as eve:
        of_umbra = (await query(eve))["continuation-token"]
    changed = token[:-1] + ("A" if token[-1] != "A" else "B")
    for bad in (of_other, of_umbra, changed, token[:20], token + "AAAA", "", "0", "äöü", "AAAA" * 20, token * 2):
        answer = await sales.http.post(EVENTS, json={"continuation-token": bad})
        assert answer.status_code == 400, bad
        assert error_of(answer)["type"] == "BadRequestException"
        assert "continuation-token: expected a token of an earlier answer" in error_of(answer)["message"]
    assert (await sales.http.post(EVENTS, json={"continuation-token": token})).status_code == 200


async def test_a_token_from_behind_the_end_of_a_restored_log_is_gone(sales: Gateway) -> None:
    token = (await query(sales.http))["continuation-token"]
    with psycopg.connect(sales.services.installation.admin_dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE ledger.heads SET size = 0, frontier = '', control_index = -1 WHERE log_id = %s",
            (sales.acme.log_id,),
        )
    answer = await sales.http.post(EVENTS, json={"continuation-token": token})
    assert (answer.status_code, error_of(answer)["type"]) == (410, "GoneException")


# Filters


async def test_filters_are_by_type_name_uuid_and_object_and_all_of_them_count(sales: Gateway) -> None:
    uuid = (await sales.http.get(ORDERS)).json()["metadata"]["table-uuid"]
    await make_one_of_each(sales.http, await location_of_orders(sales))
    await put(sales.http, NAMESPACES, {"namespace": ["salesmen"]})
    everything = await all_events(sales.http)

    async def found(**members: Any) -> list[tuple[str, str]]:
        events = await all_events(sales.http, **members)
        assert [each for each in everything if each in events] == events
        return told(events)

    assert await found(operation_types=["register-table", "x-mine", "update-view"]) == [
        ("register-table", "sales.orders"),
        ("update-view", "sales.report"),
    ]
    assert len(await found(catalog_objects_by_name=[["sales"]])) == len(everything) - 1
    assert await found(catalog_objects_by_name=[["salesmen"], ["sale"]]) == [("create-namespace", "salesmen")]
    assert await found(catalog_objects_by_name=[["sales", "invoices"]]) == [
        ("rename-table", "sales.invoices"),
        ("drop-table", "sales.invoices"),
    ]
    of_report = [("create-view", "sales.report"), ("update-view", "sales.report"), ("rename-view", "sales.summary")]
    assert await found(catalog_objects_by_name=[["sales", "report"]]) == of_report, "also under its old name"
    assert {kind.rpartition("-")[2] for kind, _ in await found(catalog_objects_by_uuid=[uuid.upper()])} == {"table"}
    assert len(await found(catalog_objects_by_uuid=[uuid])) == 6
    assert await found(catalog_objects_by_uuid=[uuid], object_types=["view"]) == []
    assert len(await found(object_types=["view", "table"])) == 10
    assert await found(object_types=["namespace"], catalog_objects_by_name=[["sales", "old"]]) == [
        ("create-namespace", "sales.old"),
        ("drop-namespace", "sales.old"),
    ]
    assert await found(catalog_objects_by_name=None, custom_filters={}) == told(everything)


async def test_events_begin_at_a_time(sales: Gateway) -> None:
    for name in ("a", "b", "c"):
        await put(sales.http, TABLES, {**CREATE, "name": name})
    events = await all_events(sales.http)
    for each in events:
        since = each["timestamp-ms"]
        assert await all_events(sales.http, since_timestamp_ms=since) == [
            one for one in events if one["timestamp-ms"] >= since
        ]
    for since in (0, -1, -(2**63)):
        assert await all_events(sales.http, since_timestamp_ms=since) == events
    future = await query(sales.http, since_timestamp_ms=2**63 - 1)
    assert future["events"] == []
    first = await query(sales.http, page_size=1)
    on = await query(sales.http, continuation_token=first["continuation-token"], since_timestamp_ms=2**62)
    assert on["events"] == events[1:], "a token tells where to go on"


BAD: Final[tuple[tuple[Any, str], ...]] = (
    ([], "body"),
    ("{", "body"),
    ({"page-size": 0}, "page-size"),
    ({"page-size": -1}, "page-size"),
    ({"page-size": True}, "page-size"),
    ({"page-size": 1.5}, "page-size"),
    ({"page-size": "1"}, "page-size"),
    ({"page-size": 2**31}, "page-size"),
    ({"since-timestamp-ms": 2**63}, "since-timestamp-ms"),
    ({"since-timestamp-ms": "now"}, "since-timestamp-ms"),
    ({"operation-types": []}, "operation-types"),
    ({"operation-types": "drop-table"}, "operation-types"),
    ({"operation-types": ["x" * 101]}, "operation-types"),
    ({"operation-types": ["a"] * 101}, "operation-types"),
    ({"object-types": ["function"]}, "object-types"),
    ({"catalog-objects-by-name": [[]]}, "catalog-objects-by-name"),
    ({"catalog-objects-by-name": ["sales"]}, "catalog-objects-by-name"),
    ({"catalog-objects-by-name": [["sales", ""]]}, "catalog-objects-by-name"),
    ({"catalog-objects-by-name": [["a\u0000b"]]}, "catalog-objects-by-name"),
    ('{"operation-types": ["\\ud800"]}', "body"),
    ({"catalog-objects-by-name": [["a"] * 18]}, "catalog-objects-by-name"),
    (
        {"catalog-objects-by-name": [[f"{number}" * 100] * 16 for number in range(10, 40)]},
        "body: expected filters of at most",
    ),
    ({"catalog-objects-by-uuid": ["orders"]}, "catalog-objects-by-uuid"),
    ({"custom-filters": {"actor": "ada"}}, "custom-filters"),
    ({"after-timestamp-ms": 0}, "after-timestamp-ms"),
    ({"continuation-token": "A" * 50_000}, "continuation-token"),
)


@pytest.mark.parametrize(("body", "named"), BAD, ids=lambda each: str(each)[:40])
async def test_a_request_that_is_not_of_the_proposals_shape_is_refused_by_name(
    module_sales: Gateway, body: Any, named: str
) -> None:
    content = {"content": body} if isinstance(body, str) else {"json": body}
    answer = await module_sales.http.post(EVENTS, **content)
    assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException")
    assert error_of(answer)["message"].startswith(named), answer.text


async def test_a_body_that_is_too_large_is_not_read(module_sales: Gateway) -> None:
    answer = await module_sales.http.post(EVENTS, content=b" " * 200_000)
    assert answer.status_code == 413


async def test_pages_are_bounded_whatever_is_asked_for(sales: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        await put(sales.http, ORDERS, properties(round=str(number)))
    whole = await all_events(sales.http)
    assert (await query(sales.http, page_size=2**31 - 1))["events"] == whole
    assert PAGE_SIZE_MAX <= made.EXAMINED_MAX
    # A page of what was examined, or of the part of the log that was looked through, may be short or empty.
    monkeypatch.setattr(paging, "EXAMINED_MAX", 2)
    assert (await query(sales.http))["events"] == whole[:2]
    assert await all_events(sales.http) == whole
    monkeypatch.setattr(made, "SCANNED_MAX", 3)
    size = (await read_stored(sales.services, sales.acme.log_id))[-1].entry.index + 1
    answer = await query(sales.http)
    found = answer["events"]
    for _ in range(size // 3):
        answer = await query(sales.http, continuation_token=answer["continuation-token"])
        found += answer["events"]
    assert found == whole


# Who may see what


async def permit(sales: Gateway, rule_id: str, expression: str, effect: str = "permit") -> None:
    """Put an access rule in force."""
    await sales.services.gateway.admin.create_access_rule(
        sales.acme.log_id, OPERATOR, rule_id=rule_id, effect=effect, expression=expression
    )


async def test_a_caller_sees_the_events_of_what_they_may_see_and_no_count_of_others(sales: Gateway) -> None:
    http = sales.http
    for name in ("lines", "secret"):
        await put(http, TABLES, {**CREATE, "name": name})
    changes = [
        {"identifier": {"namespace": ["sales"], "name": name}, **properties(a="1")}
        for name in ("orders", "lines", "secret")
    ]
    await put(http, "/v1/iceberg/lake/transactions/commit", {"table-changes": changes})
    await put(http, "/v1/iceberg/lake/tables/rename", renaming("lines", "secret-lines"))
    await put(http, VIEWS, view_created())
    await permit(sales, "readers", "'reader' in roles && op == 'READ_ENTITY_VALUE' && contentType == 'ICEBERG_TABLE'")
    await permit(sales, "secrets", "'reader' in roles && path.startsWith('sales.secret')", effect="forbid")
    before = len(await read_stored(sales.services, sales.acme.log_id))
    async with sales.client(await another_key(sales, "eve@acme.example", "reader")) as eve:
        told_before = len(await read_stored(sales.services, sales.acme.log_id))
        events = await all_events(eve)
        assert told(events) == [
            ("create-table", "sales.orders"),
            ("create-table", "sales.lines"),
            *sorted([("update-table", "sales.lines"), ("update-table", "sales.orders")]),
        ]
        assert [each["request-event-count"] for each in events] == [1, 1, 2, 2]
        (updated,) = await all_events(
            eve, operation_types=["update-table"], catalog_objects_by_name=[["sales", "lines"]]
        )
        assert updated["request-event-count"] == 2, "whatever else is asked for"
        assert len(await read_stored(sales.services, sales.acme.log_id)) == told_before > before, "nothing was refused"
        await permit(sales, "lists", "'reader' in roles && op == 'READ_CONTENT_KEY' && contentType == 'NAMESPACE'")
        assert told(await all_events(eve))[0] == ("create-namespace", "sales")
        await sales.services.gateway.admin.retire_access_rule(sales.acme.log_id, OPERATOR, rule_id="secrets")
        assert ("rename-table", "sales.secret-lines") in told(await all_events(eve)), "by the rules in force now"
    assert len(await all_events(http)) == 9


async def test_who_is_permitted_nothing_in_a_catalog_does_not_learn_whether_it_exists(sales: Gateway) -> None:
    async with sales.client(await another_key(sales)) as eve:
        answers = [await eve.post(path, json={}) for path in (EVENTS, "/v1/iceberg/nowhere/events")]
        listing = await eve.get(NAMESPACES)
        assert {(one.status_code, one.text) for one in answers} == {(listing.status_code, listing.text)}
        assert listing.status_code == 403
    async with sales.client(None) as nobody:
        assert (await nobody.post(EVENTS, json={})).status_code == 401
        assert (await nobody.post("/v1/iceberg/a%20b/events", content=b"{")).status_code == 401
    answer = await sales.http.post("/v1/iceberg/nowhere/events", json={})
    assert (answer.status_code, error_of(answer)["message"]) == (404, "Catalog does not exist: nowhere")


async def test_who_may_see_nothing_of_what_was_changed_reads_an_empty_page(sales: Gateway) -> None:
    async with sales.client(await another_guest(sales)) as guest:
        assert (await query(guest))["events"] == []


async def test_rules_that_came_into_force_meanwhile_judge_what_was_changed_behind_them(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await permit(sales, "readers", "'reader' in roles && op.startsWith('READ_')")

    async def read_later(*arguments: Any) -> Any:
        monkeypatch.setattr(paging, "read_head", read_head)
        await permit(sales, "secrets", "'reader' in roles && path == 'sales.secret'", effect="forbid")
        await put(sales.http, TABLES, {**CREATE, "name": "secret"})
        return await read_head(*arguments)

    monkeypatch.setattr(paging, "read_head", read_later)
    async with sales.client(await another_key(sales, "eve@acme.example", "reader")) as eve:
        assert told((await query(eve))["events"]) == [("create-namespace", "sales"), ("create-table", "sales.orders")]
    assert told(await all_events(sales.http))[-1] == ("create-table", "sales.secret")


async def test_what_cannot_be_judged_is_not_passed_over(sales: Gateway) -> None:
    await permit(sales, "readers", "'reader' in roles && op.startsWith('READ_')")
    await permit(sales, "broken", "path == 'sales.orders' && roles[5] == 'x'", effect="forbid")
    async with sales.client(await another_key(sales, "eve@acme.example", "reader")) as eve:
        answer = await eve.post(EVENTS, json={})
        assert answer.status_code == 503
        assert "access rule broken" in error_of(answer)["message"]
        await sales.services.gateway.admin.retire_access_rule(sales.acme.log_id, OPERATOR, rule_id="broken")
        assert len(await all_events(eve)) == 2


async def test_events_of_other_catalogs_of_the_tenant_are_not_there(sales: Gateway) -> None:
    log_id, admin = sales.acme.log_id, sales.services.gateway.admin
    await admin.create_catalog(log_id, OPERATOR, alias="lake2", kind="builtin", options={})
    await put(sales.http, "/v1/iceberg/lake2/namespaces", {"namespace": ["lake"]})
    assert told(await all_events(sales.http)) == [("create-namespace", "sales"), ("create-table", "sales.orders")]
    assert told(await all_events(sales.http, "/v1/iceberg/lake2/events")) == [("create-namespace", "lake")]


async def test_of_an_erased_caller_an_event_has_the_pseudonym_and_nothing_else(sales: Gateway) -> None:
    bob = sales.client(await another_key(sales, "bob@acme.example", "data-eng"))
    await permit(sales, "engineers", "'data-eng' in roles && op.startsWith('READ_')")
    before = await all_events(bob)
    (log,) = [log for log in await sales.services.logs() if log.log_id == sales.acme.log_id]
    installation = sales.services.installation
    async with (
        installation.connect(installation.roles.auditor) as auditor,
        open_eraser(installation, auditor) as eraser,
    ):
        await eraser.erase_subject(log, sales.acme.key.actor, ErasureRequest(reason=ErasureReason.REQUEST, at=now()))
    assert (await sales.http.post(EVENTS, json={})).status_code == 401
    assert await all_events(bob) == before
    assert [each["actor"] for each in before] == [{"id": sales.acme.key.actor}] * 2


# Foreign catalogs


def lose(far: ForeignTenant, path: str | None = None) -> None:
    """Let the answer to the next mutation of `path` (None: of the table) be lost."""
    far.wire.fault = Fault(happens=Loss.ANSWER, path=path or far.path)


async def test_what_a_foreign_catalog_made_is_an_event_when_its_outcome_is_known(far: ForeignTenant) -> None:
    http, path = far.gateway.http, f"/v1/iceberg/{ALIAS}/events"
    lose(far)
    assert (await http.post(far.orders, json=await far.next_append())).status_code == 504
    await put(http, FAR_TABLES, {**CREATE, "name": "lines"})
    first = await query(http, path)
    assert told(first["events"]) == [("create-table", "sales.lines")], "what is not known is not told"
    await put(http, f"{FAR_TABLES}/lines", properties(a="1"))
    assert len(await far.reconcile()) == 1
    table = await far.table()
    on = await query(http, path, continuation_token=first["continuation-token"])
    assert told(on["events"]) == [("update-table", "sales.lines"), ("update-table", "sales.orders")]
    late = on["events"][-1]
    assert late["operation"]["table-uuid"] == table["metadata"]["table-uuid"]
    assert late["operation"]["metadata-location"] == table["metadata-location"]
    assert set(map(str, late["operation"]["snapshot-ids"])) == await far.snapshots()
    assert late["actor"] == {"id": far.gateway.acme.key.actor}, "who asked for it, not who found out"
    assert await all_events(http, path) == first["events"] + on["events"]


async def test_a_rename_at_a_foreign_catalog_is_one_event_however_its_outcomes_became_known(far: ForeignTenant) -> None:
    http, path = far.gateway.http, f"/v1/iceberg/{ALIAS}/events"
    await put(http, RENAME, renaming(far.name, "renamed"))
    (at_once,) = await all_events(http, path)
    lose(far, "/tables/rename")
    assert (await http.post(RENAME, json=renaming("renamed", "again"))).status_code == 504
    assert await all_events(http, path) == [at_once]
    assert len(await far.reconcile()) == 2, "one for each name"
    _, late = await all_events(http, path)
    for event, names in ((at_once, (far.name, "renamed")), (late, ("renamed", "again"))):
        operation = event["operation"]
        assert operation["operation-type"] == "rename-table"
        assert (operation["source"]["name"], operation["destination"]["name"]) == names
        assert event["request-event-count"] == 1


async def test_what_a_foreign_catalog_refused_is_no_event(far: ForeignTenant) -> None:
    http = far.gateway.http
    assert (await http.delete(f"{FAR_TABLES}/nowhere")).status_code == 404
    answer = await http.post(FAR_TABLES, json={**CREATE, "name": far.name})
    assert answer.status_code == 409
    assert await all_events(http, f"/v1/iceberg/{ALIAS}/events") == []


async def test_both_kinds_of_catalogs_are_advertised_with_it(far: ForeignTenant) -> None:
    for alias in ("lake", ALIAS):
        found = (await far.gateway.http.get(f"/v1/config?warehouse={alias}")).json()
        assert "POST /v1/{prefix}/events" in found["endpoints"]


# A long log

INDEXES: Final = {"entries_trigger", "entries_group", "entries_pkey"}
"""By log and index, or log and group."""


async def test_a_page_of_a_long_log_is_read_by_index_and_within_bounds(sales: Gateway) -> None:
    parts, log_id = sales.services.gateway, sales.acme.log_id
    event = prepare(
        Event(
            type="commit.settled", version=1, key="table:other/a/b", actor="system", occurred_at=parts.clock(), data={}
        )
    )
    for _ in range(30):
        await parts.append(log_id, Group(id=parts.new_group_id(), then=(event,) * 1_000))
    await put(sales.http, ORDERS, properties(a="1"))
    first = await query(sales.http)
    assert len(first["events"]) == 2
    on = await query(sales.http, continuation_token=first["continuation-token"])
    assert told(on["events"]) == [("update-table", "sales.orders")]
    # Plans depend on statistics, which the server would otherwise gather at a moment of its own.
    with psycopg.connect(sales.services.installation.admin_dsn, autocommit=True) as owner:
        owner.execute("ANALYZE ledger.entries")
    scanned_max = 5_000
    some: dict[str, dict[str, Any]] = {
        "outcomes": {
            "from_index": 10,
            "to_index": 10 + scanned_max,
            "limit": made.EXAMINED_MAX,
            "prefixes": ["table:lake/"],
        },
        "first_entries": {"group_ids": [parts.new_group_id()]},
        "ranges": {"starts": [1, 20_000], "ends": [3, 20_100]},
    }
    async with parts.database.as_role(parts.roles.tenant(sales.acme.tenant)) as connection:
        assert (await read_head(connection, log_id)).size > 30_000
        for name, parameters in some.items():
            explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {made._QUERIES[name]}".encode()
            row = await (await connection.execute(explain, {"log_id": log_id, **parameters})).fetchone()
            assert row is not None
            plan = nodes(row[0][0]["Plan"])
            scans = [node for node in plan if node.get("Relation Name") == "entries"]
            assert scans
            assert not [node for node in scans if node["Node Type"] == "Seq Scan"], name
            assert {node["Index Name"] for node in plan if "Index Name" in node} <= INDEXES
            read = sum(
                node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) for node in scans
            )
            assert read <= scanned_max, name


def nodes(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A node of a plan, and all below it."""
    return [plan, *(node for each in plan.get("Plans", ()) for node in nodes(each))]
