# SPDX-License-Identifier: Apache-2.0
"""
The pages about policies: what was written stays, what is saved is saved as over HTTP, and what is tried saves nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from html import unescape
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi.routing import APIRoute

from gateway.console import policy_editor, policy_pages, policy_replays
from gateway.console.policy_replays import REPLAY
from gateway.console.rendering import HEADERS
from gateway.jobs import DIED, JobKind
from gateway.policy.process import Child
from lakeproof.working import jobs_of
from testkit.gateway.console.browsing import OWN, browser_of, check_harmless, log_in, permit_all
from testkit.gateway.console.hostile_texts import HOSTILE_TEXTS
from testkit.gateway.jobs import replaying
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import CREATE, ORDERS, TABLES, another_key, properties
from testkit.gateway.two_views import project
from testkit.servers.forked_workers import fork_worker
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRITE = "/console/policies/_write"
OWNED = {
    "id": "owned",
    "expression": "'owner' in result.properties",
    "message": "Name an owner",
    "examples": "- expect: deny\n  given: {result: {properties: {a: b}}}",
    "reason": "somebody has to answer",
    "names": "sales.**",
    "kind_table": "on",
    "operations": "table.commit",
}


@pytest_asyncio.fixture(loop_scope="module")
async def visitor(sales: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that is logged in with the key of acme."""
    async with browser_of(sales) as browser:
        assert (await log_in(browser, sales.acme.key.secret)).status_code == 303
        yield browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guest(module_sales: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """A browser of a tenant that tests share which save nothing, or policies by ids of their own."""
    async with browser_of(module_sales) as browser:
        await log_in(browser, module_sales.acme.key.secret)
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def reviewer(sales: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """The browser of another person of acme, to whom everything is permitted, too."""
    await permit_all(sales, "reviewer")
    async with browser_of(sales) as browser:
        await log_in(browser, await another_key(sales, "grace@acme.example", "reviewer"))
        yield browser


async def send(browser: httpx.AsyncClient, path: str, **fields: str) -> httpx.Response:
    return await browser.post(path, data=fields, headers=OWN)


async def write(browser: httpx.AsyncClient, do: str, **fields: str) -> httpx.Response:
    return await send(browser, WRITE, **{**OWNED, **fields}, do=do)


async def require_review(gateway: Gateway) -> None:
    assert (await gateway.http.put("/v1/settings/policy-review", json={"value": "required"})).status_code == 200


async def size_of(gateway: Gateway) -> int:
    return len(await read_stored(gateway.services, gateway.acme.log_id))


def field_in(page: str, name: str) -> str:
    """The text of a field of the form."""
    (area,) = re.findall(rf'<textarea name="{name}"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    return unescape(area)


def hidden_in(page: str, name: str) -> str:
    """The value of a hidden field of a form."""
    found: list[str] = re.findall(rf'type="hidden" name="{name}" value="([^"]*)"', page)
    return found[0]


def told_by(page: str) -> str:
    """What is said in the box of problems."""
    found = re.search(r'<section class="problem" role="alert">(.*?)</section>', page, re.DOTALL)
    return "" if found is None else unescape(re.sub(r"<[^>]*>", "", found[1]))


# Writing


async def test_a_draft_is_saved_as_it_was_written_and_is_not_in_force(
    visitor: httpx.AsyncClient, sales: Gateway
) -> None:
    answer = await write(visitor, "draft")
    assert (answer.status_code, answer.headers.get("location")) == (303, "/console/policies/owned"), told_by(
        answer.text
    )
    draft = (await sales.http.get("/v1/policy-drafts/owned")).json()
    assert draft["expression"] == OWNED["expression"]
    assert draft["scope"] == {"names": ["sales.**"], "kinds": ["table"], "operations": ["table.commit"]}
    assert draft["examples"] == [{"expect": "deny", "given": {"result": {"properties": {"a": "b"}}}}]
    assert (await sales.http.get("/v1/policies")).json() == {"policies": []}
    shown = (await visitor.get("/console/policies/owned")).text
    assert "It was never in force." in shown
    assert "Draft 1 waits for a review" in shown
    form = (await visitor.get("/console/policies/owned/edit")).text
    assert field_in(form, "expression") == OWNED["expression"]
    assert field_in(form, "names") == "sales.**"
    assert (hidden_in(form, "draft_version"), hidden_in(form, "policy_version")) == ("1", "0")


async def test_all_that_is_wrong_is_said_at_once_with_its_place_and_the_text_stays(
    guest: httpx.AsyncClient, module_sales: Gateway
) -> None:
    before = await size_of(module_sales)
    wrong = {
        "expression": "true &&\n  result.propertis.size() > 0",
        "message": "{commit.nam}",
        "names": "sales.orders\n\n  a*b",
        "examples": "- expect: deny\n  given:\n    resul: {}",
        "operations": "table.comit",
    }
    for do in ("check", "try", "draft", "activate", "replay"):
        answer = await write(guest, do, **wrong, since="7d")
        assert answer.status_code == 422
        told = told_by(answer.text)
        assert "expression: line 2, column 10: " in told
        assert "'properties'" in told
        assert "commit.name" in told
        assert "names: line 3, column 3: " in told
        assert "examples: line 2, column 3: " in told
        assert "the nearest is result" in told
        assert "the nearest is table.commit" in told
        assert '<code class="place">  result.<mark>p</mark>ropertis.size() &gt; 0</code>' in answer.text
        for name, text in wrong.items():
            assert field_in(answer.text, name) == text.rstrip()
    assert await size_of(module_sales) == before


async def test_an_example_that_does_not_hold_is_shown_with_the_value_of_each_part(guest: httpx.AsyncClient) -> None:
    answer = await write(guest, "check", examples="- {expect: allow, name: no owner, given: {}}")
    assert answer.status_code == 422
    assert "0 of 1 examples hold" in told_by(answer.text)
    assert "no owner" in answer.text
    assert "<code>result.properties</code>" in answer.text
    answer = await write(guest, "draft", examples="- {expect: allow, name: no owner, given: {}}")
    assert (answer.status_code, "example 1 (no owner): expected allow" in told_by(answer.text)) == (422, True)
    answer = await write(guest, "check")
    assert (answer.status_code, "1 of 1 examples hold. Nothing was saved." in answer.text) == (200, True)


async def test_what_fails_on_some_inputs_is_told_by_the_check(guest: httpx.AsyncClient) -> None:
    answer = await write(guest, "check", expression="result.properties['owner'] == 'ada'", examples="")
    assert "It compiles, but" in answer.text


async def test_an_edit_of_somebody_else_meanwhile_is_shown_and_nothing_is_lost(
    visitor: httpx.AsyncClient, sales: Gateway
) -> None:
    assert (await write(visitor, "draft")).status_code == 303
    assert (await write(visitor, "draft", draft_version="1", message="Theirs")).status_code == 303
    answer = await write(visitor, "draft", draft_version="1", message="Mine")
    assert answer.status_code == 409
    assert "expected version 1, found version 2" in told_by(answer.text)
    assert field_in(answer.text, "message") == "Mine"
    assert '<del><span class="sign">removed</span><span>message: Theirs</span></del>' in answer.text
    assert '<ins><span class="sign">added</span><span>message: Mine</span></ins>' in answer.text
    assert (await sales.http.get("/v1/policy-drafts/owned")).json()["message"] == "Theirs"
    again = await write(visitor, "draft", draft_version=hidden_in(answer.text, "draft_version"), message="Mine")
    assert again.status_code == 303
    assert (await sales.http.get("/v1/policy-drafts/owned")).json()["message"] == "Mine"


async def test_who_saw_no_policy_does_not_overwrite_one_that_came_meanwhile(
    visitor: httpx.AsyncClient, sales: Gateway
) -> None:
    theirs = {"id": "owned", "expression": "true", "message": "Theirs"}
    assert (await sales.http.post("/v1/policies", json=theirs)).status_code == 201
    for do in ("draft", "activate"):
        answer = await write(visitor, do)
        assert answer.status_code == 409
        assert "Theirs" in answer.text
        assert hidden_in(answer.text, "policy_version") == "1"
    assert (await write(visitor, "activate", policy_version="1")).status_code == 303
    assert (await sales.http.get("/v1/policies/owned")).json()["message"] == "Name an owner"
    assert (await write(visitor, "activate", policy_version="1")).status_code == 409


async def test_a_policy_is_put_in_force_at_a_time(visitor: httpx.AsyncClient, sales: Gateway) -> None:
    answer = await write(visitor, "activate", activate_at="2001-01-01T00:00")
    assert "activate_at: " in told_by(answer.text)
    assert (await write(visitor, "activate", activate_at="2033-01-01T00:00")).status_code == 303
    assert (await sales.http.get("/v1/policies/owned")).json()["active_from"] == "2033-01-01T00:00:00.000000Z"
    page = (await visitor.get("/console/policies/owned")).text
    assert "version 1 will be from 2033-01-01 00:00:00 UTC" in re.sub(r"</?time[^>]*>", "", page)


async def test_a_policy_of_the_library_is_what_a_new_one_begins_with(guest: httpx.AsyncClient) -> None:
    form = (await guest.get("/console/policies/_new?library=owner-property")).text
    assert "owner" in field_in(form, "expression")
    assert field_in(form, "examples").startswith("- ")
    assert (await guest.get("/console/policies/_new?library=none")).status_code == 404


# Review, comparison, end


async def test_another_person_than_the_author_approves(
    visitor: httpx.AsyncClient, reviewer: httpx.AsyncClient, sales: Gateway
) -> None:
    await require_review(sales)
    answer = await write(visitor, "activate")
    assert (answer.status_code, "policy-review is required" in told_by(answer.text)) == (403, True)
    assert 'value="activate"' not in answer.text
    assert (await write(visitor, "draft")).status_code == 303
    own = (await visitor.get("/console/policies/owned")).text
    assert 'value="approve"' not in own
    approval = {"version": "1", "verdict": "approve", "reason": "agreed"}
    refused = await send(visitor, "/console/policies/owned/review", **approval)
    assert (refused.status_code, "another person than the author" in refused.text) == (403, True)
    theirs = (await reviewer.get("/console/policies/owned")).text
    assert 'value="approve"' in theirs
    assert '<ins><span class="sign">added</span>' in theirs
    assert (await send(reviewer, "/console/policies/owned/review", **approval)).status_code == 303
    assert (await sales.http.get("/v1/policies/owned")).json()["in_force"]
    assert "Review:</span> agreed" in (await visitor.get("/console/policies/owned")).text


async def test_what_is_refused_is_gone_and_what_is_approved_may_wait_for_its_time(
    visitor: httpx.AsyncClient, reviewer: httpx.AsyncClient, sales: Gateway
) -> None:
    await write(visitor, "draft")
    answer = await send(reviewer, "/console/policies/owned/review", version="1", verdict="refuse", reason="why?")
    assert (answer.status_code, answer.headers.get("location")) == (303, "/console/policies")
    await write(visitor, "draft")
    stale = await send(reviewer, "/console/policies/owned/review", version="1", verdict="approve")
    assert (stale.status_code, "expected version 1, found 3" in stale.text) == (409, True)
    answer = await send(
        reviewer, "/console/policies/owned/review", version="3", verdict="approve", activate_at="2033-01-01T00:00"
    )
    assert answer.status_code == 303
    assert not (await sales.http.get("/v1/policies/owned")).json()["in_force"]


async def test_any_two_versions_and_the_draft_are_compared_in_words(visitor: httpx.AsyncClient, sales: Gateway) -> None:
    await write(visitor, "activate")
    await write(visitor, "activate", policy_version="1", message="Second")
    await write(visitor, "draft", policy_version="2", message="Third")
    for older, newer, words in (("1", "2", ("Name an owner", "Second")), ("1", "draft", ("Name an owner", "Third"))):
        shown = (await visitor.get(f"/console/policies/owned/diff?from={older}&to={newer}")).text
        for sign, text in zip(("removed", "added"), words, strict=True):
            assert f'<span class="sign">{sign}</span><span>message: {text}</span>' in shown
    same = (await visitor.get("/console/policies/owned/diff?from=2&to=2")).text
    assert "They say the same." in same
    for sides in ("from=1&to=9", "from=x&to=1", "from=&to="):
        assert (await visitor.get(f"/console/policies/owned/diff?{sides}")).status_code == 404


async def test_a_policy_is_retired_with_a_reason_or_its_end_is_proposed(
    visitor: httpx.AsyncClient, reviewer: httpx.AsyncClient, sales: Gateway
) -> None:
    await write(visitor, "activate")
    await write(visitor, "activate", id="other")
    assert (await send(visitor, "/console/policies/other/retire", do="retire", reason="over")).status_code == 303
    shown = (await visitor.get("/console/policies/other")).text
    assert "It was retired" in shown
    assert "over" in shown
    assert (await visitor.get("/console/policies/other/edit")).status_code == 409
    await require_review(sales)
    assert (await send(visitor, "/console/policies/owned/retire", do="retire", reason="x")).status_code == 403
    assert (await send(visitor, "/console/policies/owned/retire", do="draft", reason="done")).status_code == 303
    assert "It is to retire the policy." in (await reviewer.get("/console/policies/owned")).text
    answer = await send(reviewer, "/console/policies/owned/review", version="1", verdict="approve")
    assert answer.status_code == 303
    assert (await sales.http.get("/v1/policies/owned")).status_code == 404


async def test_the_end_of_a_policy_is_shown_before_it_comes(visitor: httpx.AsyncClient, sales: Gateway) -> None:
    await write(visitor, "activate")
    path, end = "/v1/policies/owned", f"{sales.services.gateway.clock() + timedelta(days=30):%Y-%m-%dT00:00:00Z}"
    assert (await sales.http.delete(path, params={"retire_at": end})).status_code == 204
    for page in ("/console/policies", "/console/policies/owned"):
        shown = re.sub(r"</?time[^>]*>", "", (await visitor.get(page)).text)
        assert f"t ends {end[:10]} 00:00" in shown
        assert "was retired" not in shown
    assert "/console/policies/owned/edit" not in shown, "nobody changes it any more"


# Trying


@pytest_asyncio.fixture(loop_scope="module")
async def busy(sales: Gateway) -> Gateway:
    """A table with two commits that were made, and one that a policy refused."""
    assert (await sales.http.post(ORDERS, json=properties(a="1"))).status_code == 200
    policy = {"id": "owned", "expression": OWNED["expression"], "message": "Name an owner"}
    policy["scope"] = {"operations": ["table.commit"]}  # type: ignore[assignment]
    assert (await sales.http.post("/v1/policies", json=policy)).status_code == 201
    assert (await sales.http.post(ORDERS, json=properties(a="2"))).status_code == 403
    assert (await sales.http.post(ORDERS, json=properties(owner="ada"))).status_code == 200
    await project(sales)
    return sales


async def test_a_text_is_tried_on_the_last_decisions_with_both_verdicts_and_their_parts(
    visitor: httpx.AsyncClient, busy: Gateway
) -> None:
    before = await size_of(busy)
    edited = "result.properties.exists(name, name == 'a') && commit.kind == 'table'"
    for of in ("lake.sales.orders", "lake", "table:lake/sales/orders"):
        answer = await write(visitor, "try", expression=edited, examples="", of=of, count="4", policy_version="1")
        page = unescape(answer.text)
        assert answer.status_code == 200, told_by(answer.text)
        assert f"The last 4 decisions of {of}." in page
        assert page.count("was refused, would pass") == 1
        assert "said deny (version 1)" in page
        assert "<code>'owner' in result.properties</code>" in page
        assert "<code>result.properties.exists(name, name == 'a')</code>" in page
        assert len(set(re.findall(r'href="(/console/decisions/\d+)"', page))) == 4
    assert await size_of(busy) == before


async def test_one_decision_is_tried_from_its_page(visitor: httpx.AsyncClient, busy: Gateway) -> None:
    listed = (await busy.http.get("/v1/tables/lake/sales/orders/history")).json()["decisions"]
    (refused,) = [each["index"] for each in listed if each["decision"] == "rejected"]
    page = (await visitor.get(f"/console/decisions/{refused}")).text
    (path,) = re.findall(r'href="(/console/policies/owned/edit[^"]*)"', page)
    form = (await visitor.get(unescape(path))).text
    assert f'name="decision" type="text" value="{refused}"' in form
    answer = await write(visitor, "try", expression="true", examples="", decision=str(refused))
    assert "was refused, would pass" in answer.text


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"of": "lake", "count": "51"}, "expected a number from 1 to 50"),
        ({"of": "lake", "count": "many"}, "expected a number from 1 to 50"),
        ({"of": "lake", "count": "000000005123"}, "expected a number from 1 to 50"),
        ({"of": "a..b"}, "expected <catalog>.<namespace>.<table>"),
        ({"decision": "x"}, "expected the index of an entry"),
        ({"decision": "0"}, "expected a decision that you may see"),
        ({"decision": "999999"}, "expected a decision that you may see"),
    ],
)
async def test_what_cannot_be_tried_is_said_in_a_sentence(
    guest: httpx.AsyncClient, asked: dict[str, str], words: str
) -> None:
    answer = await write(guest, "try", **asked)
    assert (answer.status_code, words in told_by(answer.text)) == (422, True), told_by(answer.text)
    assert field_in(answer.text, "expression") == OWNED["expression"]


# Replays


Wait = Callable[[], Awaitable[None]]


@pytest_asyncio.fixture(loop_scope="module")
async def replayed(sales: Gateway) -> AsyncIterator[Wait]:
    """What waits for the replays that are asked for, which a process does meanwhile."""
    async with replaying(sales.services) as wait:
        yield wait


async def test_a_replay_says_what_changes_by_principal_table_and_rule_and_is_attested(
    visitor: httpx.AsyncClient, busy: Gateway, replayed: Wait
) -> None:
    assert "None was started yet." in (await visitor.get(REPLAY)).text
    answer = await write(visitor, "replay", expression="!('owner' in result.properties)", examples="", since="24h")
    assert (answer.status_code, answer.headers.get("location")) == (303, REPLAY), told_by(answer.text)
    await replayed()
    page = unescape((await visitor.get(REPLAY)).text)
    assert "ada@acme.example" in page
    assert "By principal" in page
    assert "was refused, would pass" in page
    branches = page.partition("Branches that decisions reached")[2].partition("For the record")[0]
    assert "'owner' in result.properties" in branches
    assert "decisions took 2 of 2 directions" in branches
    assert '<a class="key" href="/console/tables/lake/sales/orders">' in page
    replay = hidden_in(page, "replay")
    before = await size_of(busy)
    answer = await send(visitor, f"{REPLAY}/attest", replay=replay)
    entry = (await read_stored(busy.services, busy.acme.log_id))[-1].entry
    assert answer.headers["location"] == f"/console/log/{entry.index}"
    assert (entry.type, entry.data["narrowed"], entry.data["widened"]) == ("proposal.replayed", 1, 1)
    assert entry.actor == busy.acme.key.actor
    await send(visitor, f"{REPLAY}/attest", replay=replay)
    assert await size_of(busy) == before + 1


async def heard_again(gateway: Gateway) -> None:
    """Wait until the process that replays has said once more that it does, and so has heard what was asked of it."""
    jobs, log_id = jobs_of(gateway.services), gateway.acme.log_id
    (before,) = (await jobs.newest(log_id, JobKind.POLICY_REPLAY)).values()
    while [job.seen_at for job in (await jobs.newest(log_id, JobKind.POLICY_REPLAY)).values()] == [before.seen_at]:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def test_one_replay_of_a_tenant_is_under_way_at_a_time_and_is_cancelled(
    visitor: httpx.AsyncClient, busy: Gateway
) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def held(judging_bytes_max: int, progress: int) -> Child:
        begun.set()
        await goes_on.wait()
        return await fork_worker(judging_bytes_max, progress)

    assert (await write(visitor, "replay", since="24h")).status_code == 303
    page = (await visitor.get(REPLAY)).text
    assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in page
    assert "it waits for a process that does it" in page
    async with replaying(busy.services, spawn=held) as replayed:
        await begun.wait()
        answers = [
            (await visitor.get(f"{REPLAY}/state")).json(),
            await write(visitor, "replay", since="24h"),
            await send(visitor, f"{REPLAY}/attest", replay=hidden_in(page, "replay")),
            await send(visitor, f"{REPLAY}/cancel", replay="0"),
            await send(visitor, f"{REPLAY}/cancel", replay=hidden_in(page, "replay")),
            await visitor.get(REPLAY),
        ]
        await heard_again(busy)
        goes_on.set()
        await replayed()
    state, again, *others, stopping = answers
    assert (state["state"], state["waits"], state["replay"]) == ("running", False, hidden_in(page, "replay"))
    assert (again.status_code, "found one that runs" in told_by(again.text)) == (409, True)
    assert [answer.status_code for answer in others] == [409, 409, 303]
    assert "It is being stopped." in stopping.text
    assert "It was cancelled" in (await visitor.get(REPLAY)).text
    assert (await send(visitor, f"{REPLAY}/cancel", replay=hidden_in(page, "replay"))).status_code == 404


async def test_a_replay_that_nobody_has_taken_is_cancelled_at_once(visitor: httpx.AsyncClient, busy: Gateway) -> None:
    await write(visitor, "replay", since="24h")
    page = (await visitor.get(REPLAY)).text
    assert (await send(visitor, f"{REPLAY}/cancel", replay=hidden_in(page, "replay"))).status_code == 303
    assert "It was cancelled, at 0 of 0 entries." in (await visitor.get(REPLAY)).text
    assert await jobs_of(busy.services).take(JobKind.POLICY_REPLAY) is None


async def test_a_replay_whose_process_has_died_says_so_and_another_one_begins(
    visitor: httpx.AsyncClient, busy: Gateway
) -> None:
    jobs = jobs_of(busy.services)
    await write(visitor, "replay", since="24h")
    taken = await jobs.take(JobKind.POLICY_REPLAY)
    assert taken is not None
    await jobs.beat(taken, done=3, total=9)
    await jobs.end_lost()
    assert (await visitor.get(f"{REPLAY}/state")).json()["state"] == "running", "it is not silent yet"
    await jobs.end_lost(silent=timedelta(0))
    page = (await visitor.get(REPLAY)).text
    assert "The process that ran it has ended, and the replay with it, at 3 of 9 entries." in page
    assert "http-equiv" not in page
    assert (await visitor.get(f"{REPLAY}/state")).json()["state"] == "lost"
    assert not await jobs.end(taken, taken.state, problem=DIED), "what was taken for dead does not end it any more"
    assert (await write(visitor, "replay", since="24h")).status_code == 303
    async with replaying(busy.services) as replayed:
        await replayed()
    assert "For the record" in (await visitor.get(REPLAY)).text
    kept = [job for job in await jobs.of_kind(JobKind.POLICY_REPLAY) if job.log_id == busy.acme.log_id]
    assert len(kept) == 1, "the last one takes the place of the one before"


async def test_a_replay_that_takes_too_long_ends_by_itself(visitor: httpx.AsyncClient, busy: Gateway) -> None:
    await write(visitor, "replay", since="24h")
    async with replaying(busy.services, timeout_s=0) as replayed:
        await replayed()
    assert "It failed: it was ended, since it took too long" in (await visitor.get(REPLAY)).text


async def test_a_period_without_decisions_is_said(shared_gateway: Gateway) -> None:
    async with browser_of(shared_gateway) as other, replaying(shared_gateway.services) as replayed:
        await log_in(other, shared_gateway.acme.key.secret)
        await write(other, "replay", since="1h")
        await replayed()
        assert "no decision was recorded since" in (await other.get(REPLAY)).text
        assert (await write(other, "replay", since="900d")).status_code == 400


# Rights, and hostile input


async def test_every_page_asks_who_is_there_and_takes_forms_of_this_site_alone(
    sales: Gateway, visitor: httpx.AsyncClient
) -> None:
    routers = (policy_pages.router, policy_editor.router, policy_replays.router)
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    async with browser_of(sales) as browser:
        for route in routes:
            path = route.path.replace("{policy_id}", "p")
            (method,) = route.methods or {""}
            answer = await browser.request(method, path, headers={**dict(sales.http.headers), **OWN})
            assert answer.headers["location"].startswith("/console/login"), path
            if method == "POST":
                answer = await visitor.post(path, data=OWNED, headers={"Sec-Fetch-Site": "cross-site"})
                assert (answer.status_code, "expected a form of this site" in answer.text) == (403, True), path


async def test_who_may_not_write_drafts_checks_tries_and_replays_nothing(
    sales: Gateway, visitor: httpx.AsyncClient, replayed: Wait
) -> None:
    rule = {"id": "readers", "effect": "permit", "expression": "'reader' in roles && op.startsWith('READ_')"}
    assert (await sales.http.post("/v1/access-rules", json=rule)).status_code == 201
    await write(visitor, "activate")
    async with browser_of(sales) as browser:
        await log_in(browser, await another_key(sales, "eve@acme.example", "reader"))
        assert (await browser.get("/console/policies/owned")).status_code == 200
        for do in ("check", "try", "draft", "activate", "replay"):
            answer = await write(browser, do, since="24h", of="lake")
            assert answer.status_code == 403
            assert field_in(answer.text, "expression") == OWNED["expression"]
        assert (await write(visitor, "replay", since="24h")).status_code == 303
        await replayed()
        replay = hidden_in((await browser.get(REPLAY)).text, "replay")
        for path in ("attest", "cancel"):
            assert (await send(browser, f"{REPLAY}/{path}", replay=replay)).status_code == 403


async def test_a_replay_takes_the_right_to_see_whatever_decisions_are_about(
    busy: Gateway, replayed: Wait, visitor: httpx.AsyncClient
) -> None:
    await write(visitor, "replay", since="24h")
    await replayed()
    rule = "'author' in roles && (contentType != 'ICEBERG_TABLE' || path == 'elsewhere.t')"
    body = {"id": "authors", "effect": "permit", "expression": rule}
    assert (await busy.http.post("/v1/access-rules", json=body)).status_code == 201
    async with browser_of(busy) as browser:
        await log_in(browser, await another_key(busy, "eve@acme.example", "author"))
        answer = await write(browser, "replay", since="24h")
        assert (answer.status_code, "the right to load every table" in told_by(answer.text)) == (403, True)
        assert (await browser.get(REPLAY)).status_code == 403
        answer = await write(browser, "try", of="lake.sales.orders")
        assert "expected a table that you may see" in told_by(answer.text)
        answer = await write(browser, "try", of="lake")
        assert "orders" not in unescape(answer.text).split("<form")[1].split("Recorded decisions")[-1][:200]


async def test_tenants_see_their_own_replay_alone(
    busy: Gateway, module_gateway: Gateway, visitor: httpx.AsyncClient, replayed: Wait
) -> None:
    await write(visitor, "replay", since="24h")
    await replayed()
    replay = hidden_in((await visitor.get(REPLAY)).text, "replay")
    async with browser_of(module_gateway) as other:
        await log_in(other, module_gateway.acme.key.secret)
        assert replay not in (await other.get(REPLAY)).text
        assert (await send(other, f"{REPLAY}/attest", replay=replay)).status_code == 409


@pytest.mark.parametrize(("number", "text"), [*enumerate(HOSTILE_TEXTS)])
async def test_hostile_texts_are_shown_as_text(
    guest: httpx.AsyncClient, module_sales: Gateway, number: int, text: str
) -> None:
    fields = dict.fromkeys(("message", "reason", "examples", "names", "of", "count", "decision", "since"), text)
    pages: list[Any] = [await write(guest, do, **fields) for do in ("check", "try", "draft", "nothing")]
    pages.append(await write(guest, "check", expression=text))
    pages.append(await write(guest, "check", id=text))
    policy = {"id": f"p{number}", "expression": "true", "message": "m", "reason": text[:400]}
    policy["examples"] = [{"expect": "allow", "given": {"result": {"properties": {text: text}}}}]  # type: ignore[assignment]
    policy["scope"] = {"properties": [f"a={text}"]}  # type: ignore[assignment]
    await module_sales.http.post("/v1/policies", json=policy)
    paths = ("", "/edit", "/diff?from=1&to=1", "/diff")
    pages += [await guest.get(f"/console/policies/p{number}{path}") for path in paths]
    for page in pages:
        assert page.status_code < 500
        for name in ("Content-Security-Policy", "X-Content-Type-Options"):
            assert page.headers[name] == HEADERS[name]
        check_harmless(page.text)


async def test_hostile_names_of_tables_are_shown_as_text(
    visitor: httpx.AsyncClient, busy: Gateway, replayed: Wait
) -> None:
    for text in HOSTILE_TEXTS[:8]:
        await busy.http.post(TABLES, json={**CREATE, "name": text})
    await project(busy)
    edited = {"expression": "commit.kind != 'table'", "examples": "", "names": "", "operations": ""}
    assert (await write(visitor, "replay", since="24h", **edited)).status_code == 303
    await replayed()
    pages = [await visitor.get(REPLAY), await write(visitor, "try", of="lake", count="20", **edited)]
    for page in pages:
        assert "alert" in page.text
        check_harmless(page.text)


@pytest.mark.parametrize("version", ["-1", "x", "9" * 20, "٣"])
async def test_versions_that_are_none_are_refused(guest: httpx.AsyncClient, version: str) -> None:
    assert (await write(guest, "draft", draft_version=version)).status_code == 400


async def test_forms_are_bounded(guest: httpx.AsyncClient) -> None:
    assert (await write(guest, "check", expression="x" * 300_000)).status_code == 413
    answer = await write(guest, "check", examples="- {}\n" * 20_000)
    assert "expected at most 49,152 characters" in told_by(answer.text)
    answer = await write(guest, "check", expression="x" * 17_000)
    assert "expected at most 16384 characters" in told_by(answer.text)
    assert (await send(guest, WRITE, **{f"f{number}": "" for number in range(40)})).status_code == 400
