# SPDX-License-Identifier: Apache-2.0
"""
`/v1/log/entries`, one entry, figures and anchors: what a caller may not see is not there, and every page has its end.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from fastapi import FastAPI

from gateway.admin.application import OPERATOR
from gateway.http.looking import entries
from gateway.http.looking.cursors import format_cursor
from gateway.http.looking.entries import AskedEntries, read_page
from gateway.http.looking.query import LIMIT_MAX
from gateway.http.looking.reading import own_log, reading_as
from gateway.http.looking.sight import Sight
from gateway.policy.engine import Program, Verdict
from gateway.policy.variables import RequestView
from lakeproof.services import Services
from ledger.format.entry import parse_entry
from ledger.format.merkle import check_inclusion, leaf_hash
from ledger.proving import tally
from ledger.proving.search import EntryFilter, Order
from ledger.signing.key_directory import create_key_directory
from testkit.gateway.log_contents import StoredEntry, read_stored
from testkit.gateway.sales import another_key, error_of
from testkit.gateway.two_views import RULE, SECRET, TwoViews, open_two_views, pages, shown
from testkit.servers.gateways import Gateway, sign

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENTRIES = "/v1/log/entries"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def views(module_services: Services, module_app: FastAPI) -> AsyncIterator[TwoViews]:
    """Two callers of one tenant, and another tenant; the tests of this module change nothing."""
    async with open_two_views(module_services, module_app) as views:
        await sign(views.gateway, create_key_directory(module_services.installation.keys))
        yield views


async def stored(views: TwoViews) -> list[StoredEntry]:
    return await read_stored(views.gateway.services, views.gateway.acme.log_id)


def is_of_sales(one: StoredEntry) -> bool:
    """Whether an entry is about the namespace `sales`, or a table in it, and of a kind that is seen with it."""
    of_object = one.entry.type.startswith(("commit.", "scan.", "detection.", "alert."))
    return of_object and one.entry.key in {"namespace:lake/sales", "table:lake/sales/orders"}


async def test_who_may_read_everything_gets_every_entry_newest_first_and_in_the_order_of_the_log(
    views: TwoViews,
) -> None:
    everything = [one.entry.index for one in await stored(views)]
    newest = await pages(views.whole, ENTRIES, "entries", limit=7)
    assert [each["index"] for each in newest] == everything[::-1]
    oldest = await pages(views.whole, ENTRIES, "entries", limit=7, order="oldest")
    assert [each["index"] for each in oldest] == everything


async def test_an_entry_is_listed_as_the_log_has_it_without_its_payload_parts(views: TwoViews) -> None:
    for listed, one in zip(
        await pages(views.whole, ENTRIES, "entries", order="oldest"), await stored(views), strict=True
    ):
        assert listed["data"] == one.entry.data
        assert (listed["type"], listed["key"], listed["actor"]) == (one.entry.type, one.entry.key, one.entry.actor)
        assert listed["group"]["id"] == str(one.entry.group_id)
        assert listed["parts"] == sorted(one.entry.parts)


async def test_who_may_see_one_namespace_gets_the_entries_about_it_and_no_other(views: TwoViews) -> None:
    expected = [one.entry.index for one in await stored(views) if is_of_sales(one)]
    assert len(expected) > 5
    for order, indices in (("newest", expected[::-1]), ("oldest", expected)):
        for limit in (1, 3, LIMIT_MAX):
            found = await pages(views.part, ENTRIES, "entries", order=order, limit=limit)
            assert [each["index"] for each in found] == indices
    assert SECRET not in (await views.part.get(ENTRIES, params={"limit": LIMIT_MAX})).text


async def test_another_tenant_gets_its_own_entries_alone(views: TwoViews) -> None:
    own = await pages(views.other.http, ENTRIES, "entries", limit=LIMIT_MAX)
    assert {each["actor"] for each in own} <= {views.other.acme.key.actor, "system"}
    assert views.gateway.acme.key.actor not in {each["actor"] for each in own}
    answer = (await views.other.http.get(ENTRIES)).json()
    assert answer["log"] == views.other.acme.origin


async def test_a_caller_without_any_right_gets_nothing(views: TwoViews) -> None:
    async with views.gateway.client(await another_key(views.gateway, "nobody@acme.example")) as nobody:
        assert (await shown(nobody, ENTRIES))["entries"] == []
        assert (await nobody.get(f"{ENTRIES}/0")).status_code == 404
        assert (await nobody.get("/v1/log/stats")).status_code == 403
        assert (await nobody.get("/v1/anchors")).status_code == 403
    async with views.gateway.client(None) as unknown:
        for path in (ENTRIES, f"{ENTRIES}/0", "/v1/log/stats", "/v1/anchors", "/v1/log/follow"):
            assert (await unknown.get(path)).status_code == 401


async def test_filters_are_applied(views: TwoViews) -> None:
    told = await stored(views)
    actor = views.gateway.acme.key.actor

    def of(found: list[dict[str, Any]]) -> list[int]:
        return sorted(each["index"] for each in found)

    found = await pages(views.whole, ENTRIES, "entries", type="commit.settled", limit=2)
    assert of(found) == [one.entry.index for one in told if one.entry.type == "commit.settled"]
    found = await pages(views.whole, ENTRIES, "entries", type="commit.*")
    assert of(found) == [one.entry.index for one in told if one.entry.type.startswith("commit.")]
    found = await pages(views.whole, ENTRIES, "entries", key="table:lake/hr/*")
    assert of(found) == [one.entry.index for one in told if one.entry.key.startswith("table:lake/hr/")]
    assert await pages(views.part, ENTRIES, "entries", key="table:lake/hr/*") == []
    found = await pages(views.whole, ENTRIES, "entries", actor=actor)
    assert of(found) == [one.entry.index for one in told if one.entry.actor == actor]
    found = await pages(views.whole, ENTRIES, "entries", actor="ada@acme.example")
    assert of(found) == [one.entry.index for one in told if one.entry.actor == actor], "who it is, by name"
    found = await pages(views.whole, ENTRIES, "entries", from_=9)
    assert of(found) == [one.entry.index for one in told if one.entry.index >= 9]
    middle = told[len(told) // 2].entry.recorded_at
    found = await pages(views.whole, ENTRIES, "entries", after=middle.isoformat(), limit=3)
    assert of(found) == [one.entry.index for one in told if one.entry.recorded_at >= middle]
    found = await pages(views.whole, ENTRIES, "entries", before=middle.isoformat(), limit=3)
    assert of(found) == [one.entry.index for one in told if one.entry.recorded_at < middle]


async def test_who_an_actor_is_is_only_looked_up_for_those_who_may_know(views: TwoViews) -> None:
    refused = await views.part.get(ENTRIES, params={"actor": "ada@acme.example"})
    unknown = await views.part.get(ENTRIES, params={"actor": "nobody@elsewhere.example"})
    assert (refused.status_code, refused.json()) == (unknown.status_code, unknown.json())
    assert error_of(refused)["message"].startswith("actor: ")


async def test_a_page_is_short_where_much_is_looked_through_and_goes_on_behind_its_cursor(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [one.entry.index for one in await stored(views) if is_of_sales(one)]
    monkeypatch.setattr(entries, "SCANNED_MAX", 4)
    monkeypatch.setattr(entries, "FETCHED_MAX", 2)
    for order, indices in (("newest", expected[::-1]), ("oldest", expected)):
        found = await pages(views.part, ENTRIES, "entries", order=order)
        assert [each["index"] for each in found] == indices
    first = await shown(views.part, ENTRIES, order="oldest")
    assert first["entries"] == []
    assert first["cursor"] is not None
    monkeypatch.setattr(entries, "SCANNED_MAX", 1_000)
    monkeypatch.setattr(entries, "PAGE_BYTES_MAX", 1)
    assert len((await shown(views.whole, ENTRIES))["entries"]) == 1, "its bytes are bounded"
    monkeypatch.setattr(entries, "PAGE_BYTES_MAX", 2**20)
    monkeypatch.setattr(entries, "EXAMINED_MAX", 3)
    found = await pages(views.part, ENTRIES, "entries", order="oldest")
    assert [each["index"] for each in found] == expected


BAD: Mapping[str, str] = {
    "limit=0": "limit",
    "limit=501": "limit",
    "limit=x": "limit",
    "limit=1&limit=2": "limit",
    "from=-1": "from",
    "order=up": "order",
    "after=yesterday": "after",
    "before=2026-02-31T00:00:00Z": "before",
    "type=": "type",
    f"key={'x' * 2_001}": "key",
    "cursor=AAAA": "cursor",
    "cursor=%F0%9F": "cursor",
    "colour=red": "colour",
    "from=99999999999999999": "from",
}


@pytest.mark.parametrize(("query", "field"), BAD.items())
async def test_a_bad_parameter_is_refused_by_its_name(views: TwoViews, query: str, field: str) -> None:
    answer = await views.whole.get(f"{ENTRIES}?{query}")
    assert answer.status_code == 400, answer.text
    assert error_of(answer)["message"].startswith(f"{field}: ")


async def test_a_cursor_is_good_for_the_same_request_of_the_same_tenant_alone(views: TwoViews) -> None:
    cursor = (await shown(views.whole, ENTRIES, limit=1))["cursor"]
    assert (await views.whole.get(ENTRIES, params={"cursor": cursor, "limit": 5})).status_code == 200
    data = bytearray(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    data[len(data) // 2] ^= 1
    changed = base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    for http, query in (
        (views.whole, {"cursor": changed}),
        (views.whole, {"cursor": cursor + "="}),
        (views.whole, {"cursor": cursor, "type": "commit.*"}),
        (views.whole, {"cursor": cursor, "order": "oldest"}),
        (views.other.http, {"cursor": cursor}),
    ):
        answer = await http.get(ENTRIES, params=query)
        assert answer.status_code == 400, query
        assert error_of(answer)["message"].startswith("cursor: expected the cursor of an earlier answer")
    assert (await views.whole.get("/v1/findings", params={"cursor": cursor})).status_code == 400


async def test_one_entry_is_shown_with_its_bytes_and_a_proof_that_holds(views: TwoViews) -> None:
    signed = (await shown(views.whole, "/v1/anchors"))["checkpoint_size"]
    assert signed > 10
    for one in (await stored(views))[:signed]:
        entry = await shown(views.whole, f"{ENTRIES}/{one.entry.index}")
        content = base64.b64decode(entry["stored"])
        assert parse_entry(content) == one.entry
        assert entry["leaf"] == leaf_hash(content).hex()
        assert {each["name"] for each in entry["parts"] if each["held"]} == set(one.parts)
        proof = entry["proof"]
        hashes = [bytes.fromhex(each) for each in proof["hashes"]]
        root, size = bytes.fromhex(proof["root"]), proof["size"]
        check_inclusion(index=one.entry.index, size=size, leaf=leaf_hash(content), proof=hashes, root=root)


async def test_what_belongs_to_an_entry_is_found_from_each_of_them(views: TwoViews) -> None:
    told = await stored(views)
    uuid = views.uuids["orders"]
    belonging = {
        one.entry.index: one.entry.type
        for one in told
        if (one.entry.data.get("snapshots") == ["7"] or one.entry.data.get("snapshot") == "7")
        and one.entry.data.get("table_uuid") == uuid
    }
    assert sorted(belonging.values()) == [
        "alert.raised",
        "commit.decided",
        "commit.settled",
        "detection.found",
        "scan.completed",
    ]
    for http in (views.whole, views.part):
        for index in belonging:
            related = (await shown(http, f"{ENTRIES}/{index}"))["related"]
            assert {each["index"]: each["type"] for each in related} == {
                other: type_ for other, type_ in belonging.items() if other != index
            }


async def test_an_entry_that_may_not_be_seen_is_as_one_that_is_not_there(views: TwoViews) -> None:
    told = await stored(views)
    for one in told:
        answer = await views.part.get(f"{ENTRIES}/{one.entry.index}")
        assert answer.status_code == (200 if is_of_sales(one) else 404), one.entry.key
        assert SECRET not in answer.text
    hidden = next(one.entry.index for one in told if not is_of_sales(one))
    beyond = len(told) + 5
    texts = [error_of(await views.part.get(f"{ENTRIES}/{index}"))["message"] for index in (hidden, beyond)]
    assert texts[0].replace(str(hidden), "N") == texts[1].replace(str(beyond), "N")
    told_to_readers = error_of(await views.whole.get(f"{ENTRIES}/{beyond + 1_000}"))["message"]
    assert "found none: the log has " in told_to_readers


@pytest.mark.parametrize("index", ["-1", "01", "x", "1.5", "9" * 20])
async def test_an_index_that_is_none_is_refused(views: TwoViews, index: str) -> None:
    answer = await views.whole.get(f"{ENTRIES}/{index}")
    assert answer.status_code == 400
    assert error_of(answer)["message"].startswith("index: ")


async def test_figures_are_answered_while_a_long_log_is_counted_on(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, counts, goes_on = len(await stored(views)), tally.Tally.advance, asyncio.Event()

    async def advance(counted: tally.Tally, *arguments: Any, **named: Any) -> None:
        if counted.counted:
            await goes_on.wait()
        await counts(counted, *arguments, **named)

    monkeypatch.setattr(tally, "STEP_MAX", 5)
    monkeypatch.setattr(tally.Tally, "advance", advance)
    monkeypatch.setattr("gateway.http.looking.figures.COUNTING_S", 0.0)
    views.gateway.app.state.figures = type(views.gateway.app.state.figures)()
    first, *others = [await shown(views.whole, "/v1/log/stats") for _ in range(3)]
    assert (first["counted"], first["bytes"]) == (5, sum(each["bytes"] for each in first["types"]))
    assert others == [first, first]
    goes_on.set()
    while (await shown(views.whole, "/v1/log/stats"))["counted"] < size:
        pass


async def test_figures_count_every_entry_and_take_the_right_to_read_the_log(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await stored(views)
    figures = await shown(views.whole, "/v1/log/stats")
    assert figures["entries"] == figures["counted"] == len(told) >= figures["checkpoint_size"] > 10
    assert sum(each["entries"] for each in figures["types"]) == len(told)
    of_commits = next(each for each in figures["types"] if each["type"] == "commit.decided")
    indices = [one.entry.index for one in told if one.entry.type == "commit.decided"]
    assert (of_commits["entries"], of_commits["first_index"], of_commits["last_index"]) == (
        len(indices),
        indices[0],
        indices[-1],
    )
    monkeypatch.setattr(tally, "STEP_MAX", 5)
    views.gateway.app.state.figures = type(views.gateway.app.state.figures)()
    monkeypatch.setattr("gateway.http.looking.figures.COUNTING_S", 0.0)
    counted = [(await shown(views.whole, "/v1/log/stats"))["counted"]]
    assert counted == [5], "a long log is counted in steps"
    while counted[-1] < len(told):  # and further meanwhile
        counted.append((await shown(views.whole, "/v1/log/stats"))["counted"])
    assert counted == sorted(counted)
    again = await shown(views.whole, "/v1/log/stats")
    assert again["types"] == figures["types"]
    assert (await views.part.get("/v1/log/stats")).status_code == 403


async def test_anchors_are_told_of_the_own_log_and_nothing_of_the_installations(views: TwoViews) -> None:
    anchors = await shown(views.whole, "/v1/anchors")
    assert 10 < anchors.pop("checkpoint_size") <= len(await stored(views))
    assert anchors == {
        "log": views.gateway.acme.origin,
        "anchor": None,
        "published": False,
        "cosigned_by": [],
        "stamped_at": None,
    }
    assert (await views.part.get("/v1/anchors")).status_code == 403


async def test_rules_that_permit_everything_are_evaluated_once_and_not_for_each_row(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = views.gateway.services.gateway.judge
    asked: list[Mapping[str, Any]] = []
    real = type(judge.engine).judge

    async def counting(
        self: Any, programs: list[Program], activation: Mapping[str, Any], **more: Any
    ) -> tuple[Verdict, ...]:
        asked.append(activation)
        return await real(self, programs, activation, **more)

    monkeypatch.setattr(type(judge.engine), "judge", counting)
    admin, log_id = views.gateway.services.gateway.admin, views.gateway.acme.log_id
    await admin.create_access_rule(
        log_id, OPERATOR, rule_id="eyes", effect="permit", expression="'eye' in roles || path == 'nothing'"
    )
    key = await another_key(views.gateway, "new@acme.example", "eye")
    async with views.gateway.client(key) as whole:
        assert len((await shown(whole, ENTRIES, limit=LIMIT_MAX, type="detection.*"))["entries"]) == 2
    of_tables = [each for each in asked if each.get("contentType") == "ICEBERG_TABLE"]
    assert ["path" in each for each in of_tables] == [False]


async def test_a_cursor_of_a_time_that_was_lost_is_410_and_one_of_another_kind_400(views: TwoViews) -> None:
    key = await views.gateway.services.gateway.intake.request_keys.key(views.gateway.acme.log_id)
    lost = format_cursor(key, 10**6, context=ENTRIES)
    answer = await views.whole.get(ENTRIES, params={"cursor": lost})
    assert (answer.status_code, error_of(answer)["type"]) == (410, "GoneException")
    other = format_cursor(key, "table:lake/sales/orders", context=ENTRIES)
    assert (await views.whole.get(ENTRIES, params={"cursor": other})).status_code == 400


async def test_what_cannot_be_judged_fails_and_is_not_left_out(sales: Gateway) -> None:
    await sales.services.gateway.admin.create_access_rule(
        sales.acme.log_id,
        OPERATOR,
        rule_id="broken",
        effect="forbid",
        expression="path == 'sales.orders' && 1 / 0 == 1",
    )
    for path in (ENTRIES, f"{ENTRIES}?type=commit.*"):
        answer = await sales.http.get(path)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    found = await shown(sales.http, ENTRIES, key="namespace:lake/sales")
    assert len(found["entries"]) == 2, "what can be judged is there"


async def test_entries_are_seen_by_rules_that_are_not_older_than_they_are(sales: Gateway) -> None:
    gateway, log_id = sales.services.gateway, sales.acme.log_id
    await gateway.admin.create_access_rule(log_id, OPERATOR, rule_id="sellers", effect="permit", expression=RULE)
    key = await another_key(sales, "sam@acme.example", "seller")
    caller = await gateway.authenticator.authenticate(f"Bearer {key}")
    state = await gateway.rules_in_force(caller)
    sight = Sight(gateway=gateway, state=state, caller=caller, request=RequestView(method="GET", path=ENTRIES))
    everything = AskedEntries(selection=EntryFilter(), from_index=0)

    async def seen() -> int:
        async with reading_as(gateway, caller) as connection:
            log = await own_log(connection, caller)
            page = await read_page(connection, log, sight, everything, order=Order.OLDEST, limit=LIMIT_MAX, at=None)
        return len(page.entries)

    assert await seen() > 0
    await gateway.admin.retire_access_rule(log_id, OPERATOR, rule_id="sellers")
    assert await seen() == 0
