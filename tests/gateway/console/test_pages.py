# SPDX-License-Identifier: Apache-2.0
"""
The console: who is let in, what a page shows, and what it never does.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from html import unescape

import httpx
import pytest
import pytest_asyncio
from fastapi.routing import APIRoute
from psycopg import AsyncConnection

from gateway.console.logins import COOKIE, ENDED
from gateway.console.pages import ENTRIES_A_PAGE, router
from gateway.console.rendering import HEADERS
from gateway.console.sessions import LIFETIME, Session, Sessions
from gateway.control.plane import BROKEN
from gateway.database import Database
from gateway.identifiers import Target
from gateway.identity import Arrived
from gateway.identity.authenticator import Credentials
from gateway.identity.request_rates import Limits, RequestRates, SharedCounts
from testkit.gateway.console.browsing import OWN, browser_of, log_in, permit_all
from testkit.gateway.sales import CREATE, ORDERS, ORDERS_KEY, TABLES, another_key, error_of, properties
from testkit.gateway.two_views import project
from testkit.gateway.unreadable_logs import append_newer, change_policy
from testkit.servers.gateways import Gateway, app_of
from testkit.servers.loopback import serve_gateway
from testkit.statements import note_statements

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPTS = ("follow.mjs", "checking.mjs")
FILES = ("/console/static/console.css", "/console/static/follow.mjs", "/console/static/none.css")
PAGES = ("/console", "/console/log", "/console/log/0", "/console/tables", "/console/findings", "/console/policies")


@pytest_asyncio.fixture(loop_scope="module")
async def visitor(sales: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that is logged in with the key of acme."""
    async with browser_of(sales) as browser:
        assert (await log_in(browser, sales.acme.key.secret)).status_code == 303
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def guest(module_sales: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """A browser with a session of its own, of a tenant that tests share which only look or are refused."""
    async with browser_of(module_sales) as browser:
        assert (await log_in(browser, module_sales.acme.key.secret)).status_code == 303
        yield browser


async def sessions_of(gateway: Gateway) -> list[tuple[bytes, bytes]]:
    parts = gateway.services.gateway
    async with parts.database.as_role(parts.roles.gateway) as connection:
        rows = await connection.execute("SELECT session, sealed FROM gateway.console_sessions")
        return [(bytes(session), bytes(sealed)) for session, sealed in await rows.fetchall()]


def indices_in(page: httpx.Response) -> list[int]:
    return [int(each) for each in re.findall(r'<a href="/console/log/(\d+)">', page.text)]


def main_of(page: str) -> str:
    """What a page shows, without the visitor's own name above and below."""
    return page.partition("<main")[2].partition("</main>")[0]


# Who is let in


@pytest.mark.parametrize("path", PAGES)
async def test_who_is_not_logged_in_is_sent_to_the_login_and_back(module_sales: Gateway, path: str) -> None:
    async with browser_of(module_sales) as browser:
        answer = await browser.get(path)
        assert (answer.status_code, answer.headers["location"]) == (
            303,
            f"/console/login?to={path.replace('/', '%2F')}",
        )
        form = await browser.get(answer.headers["location"])
        assert f'name="to" value="{path}"' in form.text
        answer = await log_in(browser, module_sales.acme.key.secret, path)
        assert (answer.status_code, answer.headers["location"]) == (303, path)
        assert (await browser.get(path)).status_code == 200


async def test_every_page_but_the_login_asks_who_is_there(module_sales: Gateway) -> None:
    routes = [route for route in router.routes if isinstance(route, APIRoute)]
    paths = {route.path for route in routes if "GET" in (route.methods or ())}
    async with browser_of(module_sales) as browser:
        for path in paths - {"/console/login", "/console/static/{name}"}:
            answer = await browser.get(re.sub(r"\{.*?\}", "0", path), headers=module_sales.http.headers)
            assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/console/login"), path


async def test_a_wrong_key_begins_no_session(sales: Gateway) -> None:
    before = await sessions_of(sales)
    key = sales.acme.key.secret
    wrong = key[:-1] + ("a" if key[-1] != "a" else "b")
    async with browser_of(sales) as browser:
        for tried, status in ((wrong, 401), ("", 401), ("x" * 9_000, 401)):
            answer = await log_in(browser, tried)
            assert (answer.status_code, answer.headers.get("set-cookie")) == (status, None)
            assert tried == "" or tried not in answer.text
    assert await sessions_of(sales) == before


async def test_the_cookie_is_of_no_use_to_scripts_nor_to_other_sites(sales: Gateway) -> None:
    for scheme, name, more in (("http", COOKIE, set()), ("https", f"__Host-{COOKIE}", {"secure"})):
        async with browser_of(sales, scheme=scheme) as browser:
            cookie = (await log_in(browser, sales.acme.key.secret)).headers["set-cookie"]
        value, *attributes = cookie.split("; ")
        assert re.fullmatch(rf"{name}=[0-9a-f]{{64}}", value)
        assert {each.lower() for each in attributes} == {"httponly", "samesite=lax", "path=/", "max-age=28800"} | more


async def test_neither_the_database_nor_the_cookie_alone_has_the_key(sales: Gateway) -> None:
    before = await sessions_of(sales)
    async with browser_of(sales) as browser:
        await log_in(browser, sales.acme.key.secret)
        cookie = browser.cookies[COOKIE]
    (added,) = set(await sessions_of(sales)) - set(before)
    for stored in added:
        assert bytes.fromhex(cookie) not in stored
        assert sales.acme.key.secret.encode() not in stored


async def test_a_session_whose_row_was_written_by_hand_logs_nobody_in(
    visitor: httpx.AsyncClient, sales: Gateway
) -> None:
    owner = await AsyncConnection.connect(sales.services.installation.admin_dsn, autocommit=True)
    async with owner:
        await owner.execute("UPDATE gateway.console_sessions SET sealed = set_byte(sealed, 0, get_byte(sealed, 0) # 1)")
    assert (await visitor.get("/console")).status_code == 303


@pytest.mark.parametrize("cookie", ["", "0" * 63, "0" * 64, "g" * 64, "0" * 65, "ü" * 64])
async def test_a_cookie_that_is_none_logs_nobody_in(module_sales: Gateway, cookie: str) -> None:
    async with browser_of(module_sales) as browser:
        headers = [(b"cookie", f"{COOKIE}={cookie}".encode())]
        assert (await browser.get("/console", headers=headers)).status_code == 303


async def test_a_session_ends_with_its_key(shared_gateway: Gateway) -> None:
    await permit_all(shared_gateway, "reader")
    key = await another_key(shared_gateway, "grace@acme.example", "reader")
    async with browser_of(shared_gateway) as browser:
        await log_in(browser, key)
        assert (await browser.get("/console/log")).status_code == 200
        keys = (await shared_gateway.http.get("/v1/keys")).json()["keys"]
        (theirs,) = [each["id"] for each in keys if each["roles"] == ["reader"]]
        assert (await shared_gateway.http.delete(f"/v1/keys/{theirs}")).status_code == 204
        ended = await browser.get("/console/log")
        assert ended.status_code == 303
        assert ENDED in (await browser.get(ended.headers["location"])).text


async def test_a_session_ends_by_itself(sales: Gateway) -> None:
    parts = sales.services.gateway
    sessions = Sessions(parts.database, parts.roles.gateway, clock=parts.clock, random=parts.random)
    cookie = await sessions.begin("Bearer key")
    assert await sessions.find(cookie) == Session(credentials="Bearer key")
    later = Sessions(
        parts.database,
        parts.roles.gateway,
        clock=lambda: parts.clock() + LIFETIME + timedelta(seconds=1),
        random=parts.random,
    )
    assert await later.find(cookie) is None
    await later.begin("Bearer another")  # a login removes what has expired
    assert await sessions.find(cookie) is None


async def test_who_logs_out_is_out_and_so_is_a_copy_of_the_cookie(visitor: httpx.AsyncClient, sales: Gateway) -> None:
    copy = visitor.cookies[COOKIE]
    answer = await visitor.post("/console/logout", headers={**OWN, "Content-Type": "application/x-www-form-urlencoded"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/login")
    async with browser_of(sales) as browser:
        browser.cookies.set(COOKIE, copy)
        assert (await browser.get("/console")).status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_a_form_of_another_site_is_refused(module_sales: Gateway, headers: dict[str, str]) -> None:
    async with browser_of(module_sales) as browser:
        answer = await browser.post("/console/login", data={"key": module_sales.acme.key.secret}, headers=headers)
        assert (answer.status_code, answer.headers.get("set-cookie")) == (403, None)
        assert "expected a form of this site" in answer.text


async def test_a_form_of_this_site_is_taken_from_a_browser_without_fetch_metadata(sales: Gateway) -> None:
    async with browser_of(sales) as browser:
        answer = await browser.post(
            "/console/login", data={"key": sales.acme.key.secret}, headers={"Origin": "http://gateway"}
        )
        assert answer.status_code == 303


@pytest.mark.parametrize(
    "to", ["https://evil.example", "//evil.example", "/v1/keys", "/consoles", "/console/\\evil", "/console/\nx", ""]
)
async def test_a_login_leads_nowhere_but_to_the_console(module_sales: Gateway, to: str) -> None:
    async with browser_of(module_sales) as browser:
        assert (await log_in(browser, module_sales.acme.key.secret, to)).headers["location"] == "/console"


async def test_a_session_is_of_no_use_for_other_routes(guest: httpx.AsyncClient) -> None:
    assert (await guest.get("/v1/policies")).status_code == 401
    assert (await guest.get(ORDERS)).status_code == 401


# What a page shows


@pytest.mark.parametrize(
    "path",
    [*PAGES, "/console/login", "/console/static/console.css", "/console/static/follow.mjs", "/console/static/none.css"],
)
async def test_every_answer_keeps_browsers_from_loading_anything_else(guest: httpx.AsyncClient, path: str) -> None:
    answer = await guest.get(path)
    for name in ("Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy"):
        assert answer.headers[name] == HEADERS[name]
    scripts = re.findall(r"<script[^>]*>[^<]*", answer.text)
    assert set(scripts) <= {
        f'<script type="module" src="/console/static/{name}.mjs">' for name in ("times", "follow", "checking")
    }
    assert not re.search(r"\s(style|on[a-z]+)=", answer.text)


async def test_the_log_is_shown_newest_first_in_pages(visitor: httpx.AsyncClient, sales: Gateway) -> None:
    for number in range(ENTRIES_A_PAGE):
        created = await sales.http.post("/v1/iceberg/lake/namespaces", json={"namespace": [f"n{number}"]})
        assert created.status_code == 200
    newest = await visitor.get("/console/log")
    indices = indices_in(newest)
    assert len(indices) == ENTRIES_A_PAGE
    assert indices == sorted(indices, reverse=True)
    (older,) = re.findall(r'rel="next" href="([^"]*)"', newest.text)
    page = await visitor.get(unescape(older))
    assert indices_in(page)[0] == indices[-1] - 1
    assert 'rel="first"' in page.text


async def test_the_log_is_filtered_as_it_is_asked_for(visitor: httpx.AsyncClient, sales: Gateway) -> None:
    page = await visitor.get("/console/log", params={"type": "commit.decided", "key": ORDERS_KEY, "actor": ""})
    (index,) = indices_in(page)
    assert 'value="commit.decided"' in page.text
    assert ORDERS_KEY in (await visitor.get(f"/console/log/{index}")).text


async def test_the_log_is_filtered_by_the_name_of_a_table(visitor: httpx.AsyncClient, sales: Gateway) -> None:
    led = await visitor.get("/console/log", params={"type": "commit.decided", "key": "lake.sales.orders"})
    assert led.status_code == 303
    shown = await visitor.get(led.headers["location"])
    assert indices_in(shown) == indices_in(
        await visitor.get("/console/log", params={"type": "commit.decided", "key": ORDERS_KEY})
    )
    assert len(indices_in(shown)) == 1
    assert (await visitor.get("/console/log", params={"key": "orders"})).status_code in {200, 400}  # no table's name


async def test_entries_have_the_name_of_who_made_them_for_whoever_may_read_inputs(
    visitor: httpx.AsyncClient, sales: Gateway
) -> None:
    rule = {"id": "readers", "effect": "permit", "expression": "'reader' in roles && contentType != 'LOG_INPUTS'"}
    assert (await sales.http.post("/v1/access-rules", json=rule)).status_code == 201
    actor = sales.acme.key.actor
    async with browser_of(sales) as reader:
        await log_in(reader, await another_key(sales, "rae@acme.example", "reader"))
        page = await visitor.get("/console/log?type=commit.decided")
        index = indices_in(page)[0]
        for path in ("/console/log?type=commit.decided", f"/console/log/{index}"):
            named, unnamed = [main_of((await each.get(path)).text) for each in (visitor, reader)]
            assert "ada@acme.example" in named
            assert "ada@acme.example" not in unnamed
            assert actor[:8] in named
            assert actor[:8] in unnamed


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/console/log?before=x", 400, "before: "),
        ("/console/log?cursor=x", 400, "cursor"),
        ("/console/log/1e3", 400, "expected the index of an entry"),
        ("/console/log/%D9%A1", 400, "expected the index of an entry"),
        ("/console/log/999999999", 404, "expected an entry of the log"),
        ("/console/log/999999999/proof", 404, "expected an entry of the log"),
        ("/console/findings?confidence=many", 400, "confidence: "),
        ("/console/policies/none", 404, "none"),
        ("/console/decisions/999999", 404, "expected a decision"),
        ("/console/decisions/x", 400, "expected the id"),
    ],
)
async def test_what_cannot_be_shown_is_said_in_a_sentence(
    guest: httpx.AsyncClient, path: str, status: int, words: str
) -> None:
    answer = await guest.get(path)
    assert answer.status_code == status
    (told,) = re.findall(r'class="problem" role="alert">([^<]*)<', answer.text)
    assert words in unescape(told)


async def test_the_first_page_takes_few_statements(
    visitor: httpx.AsyncClient, sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await project(sales)
    await visitor.get("/console")
    sent = note_statements(monkeypatch)
    assert (await visitor.get("/console")).status_code == 200
    # In four transactions: the session, commits, what follows the log, and findings. Each begins and ends with one.
    assert 4 * 2 < len(sent) <= 24


async def test_the_log_is_followed_with_a_session(sales: Gateway) -> None:
    async with serve_gateway(sales.app) as url, httpx.AsyncClient(base_url=url, timeout=30) as browser:
        assert (await browser.get("/console/log/follow")).headers["location"].startswith("/console/login")
        await log_in(browser, sales.acme.key.secret)
        async with browser.stream("GET", "/console/log/follow?type=commit.decided") as events:
            assert events.headers["content-type"].startswith("text/event-stream")
            lines = events.aiter_lines()
            await anext(lines)  # how soon to come again: it has begun
            await sales.http.post(ORDERS, json=properties(note="new"))
            while not (line := await anext(lines)).startswith("data:"):
                pass
            row = json.loads(line.removeprefix("data:"))
            assert (row["type"], row["says"]) == ("commit.decided", "table.commit, approved")
            assert (row["about"][0], row["path"]) == (["lake", True], "/console/tables/lake/sales/orders")
        path = f"/console/log/follow?type=commit.decided&from={row['index']}"
        async with browser.stream("GET", path) as events:
            since = [line async for line in until_data(events)][-1]
            assert json.loads(since.removeprefix("data:")) == row, "what came since the page was made"


async def until_data(events: httpx.Response) -> AsyncIterator[str]:
    """The lines of a stream of events up to the first one's data."""
    async for line in events.aiter_lines():
        yield line
        if line.startswith("data:"):
            return


async def test_what_users_write_is_shown_as_text(visitor: httpx.AsyncClient, sales: Gateway) -> None:
    text = "<script>alert('1')</script>"
    policy = {"id": "p", "expression": "result.location != '<b>'", "message": text, "reason": text}
    assert (await sales.http.post("/v1/policies", json=policy)).status_code == 201
    for path in ("/console/policies", "/console/policies/p"):
        shown = (await visitor.get(path)).text
        assert text not in shown
        assert "&lt;script&gt;" in shown
    assert "&lt;b&gt;" in (await visitor.get("/console/policies/p")).text


async def test_a_refusal_is_explained_with_the_value_of_each_part(visitor: httpx.AsyncClient, sales: Gateway) -> None:
    policy = {"id": "owned", "expression": "'owner' in result.properties", "message": "Name an owner"}
    assert (await sales.http.post("/v1/policies", json=policy)).status_code == 201
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 403
    await project(sales)
    index = indices_in(await visitor.get("/console/log?type=commit.decided"))[0]
    assert f'href="/console/decisions/{index}"' in (await visitor.get(f"/console/log/{index}")).text
    shown = (await visitor.get(f"/console/decisions/{index}")).text
    assert "Name an owner" in shown
    assert "<code>result.properties</code>" in shown
    assert "<code>false</code>" in shown
    first = (await visitor.get("/console")).text
    assert f'<a href="/console/decisions/{index}">Decision {index}</a>, rejected' in first
    assert "table.commit, rejected" in (await visitor.get("/console/log")).text
    evidence = (await visitor.get(f"/console/operate/evidence?decision={index}")).text
    assert f'name="decision" value="{index}"' in evidence


async def test_a_table_is_shown_with_its_commits_and_policies(visitor: httpx.AsyncClient, sales: Gateway) -> None:
    policy = {"id": "owned", "expression": "true", "message": "Name an owner", "scope": {"names": ["sales.**"]}}
    assert (await sales.http.post("/v1/policies", json=policy)).status_code == 201
    await project(sales)
    listed = await visitor.get("/console/tables?name=orders")
    (path,) = re.findall(r'href="(/console/tables/[^"]*)"', listed.text)
    shown = (await visitor.get(path)).text
    assert "table.create" in shown
    assert 'href="/console/policies/owned"' in shown
    assert "It was never scanned" in shown
    assert "<code>id</code> long, required" in shown, "what its first schema added"


async def test_a_page_authenticates_its_visitor_once_whatever_it_asks(
    visitor: httpx.AsyncClient, sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator, arrived = sales.services.gateway.authenticator, list[object]()
    arrive = authenticator.arrive

    async def counted(credentials: Credentials, table: Target | None = None) -> Arrived:
        arrived.append(credentials)
        return await arrive(credentials, table)

    monkeypatch.setattr(authenticator, "arrive", counted)
    assert (await visitor.get("/console/tables/lake/sales/orders")).status_code == 200
    assert len(arrived) == 1


async def test_a_table_of_which_nothing_is_known_is_said_to_be_none(visitor: httpx.AsyncClient, sales: Gateway) -> None:
    await project(sales)
    words = "Nothing is known of a table of this name."
    unknown = (await visitor.get("/console/tables/lake/sales/odrers")).text
    assert words in unknown
    assert '<a href="/console/tables?name=odrers">' in unknown
    assert words not in (await visitor.get("/console/tables/lake/sales/orders")).text


async def test_names_of_tables_are_no_paths(visitor: httpx.AsyncClient, sales: Gateway) -> None:
    name = 'a/../b?c#"<d>%2F'
    assert (await sales.http.post(TABLES, json={**CREATE, "name": name})).status_code == 200
    await project(sales)
    listed = (await visitor.get("/console/tables", params={"name": "../b"})).text
    (path,) = re.findall(r'href="(/console/tables/[^"]*)"', listed)
    shown = (await visitor.get(path)).text
    assert 'lake.sales.a/%2E%2E/b?c#"<d>%252F' in unescape(shown)
    assert "<d>" not in shown
    assert name not in listed


async def test_who_may_see_nothing_is_shown_nothing(sales: Gateway) -> None:
    key = await another_key(sales, "eve@acme.example", "analyst")
    await project(sales)
    async with browser_of(sales) as browser:
        await log_in(browser, key)
        for path in ("/console", "/console/policies", "/console/tables/lake/sales/orders"):
            assert (await browser.get(path)).status_code == 403
        for path in ("/console/log/0", "/console/log/0/proof", "/console/decisions/0"):
            assert (await browser.get(path)).status_code in {403, 404}
        for path in ("/console/log", "/console/tables", "/console/findings"):
            shown = await browser.get(path)
            assert shown.status_code == 200
            assert "There is none that you may see." in shown.text
            assert "orders" not in shown.text.replace("lake/sales/orders", "").replace("lake.sales.orders", "")


async def test_a_tenant_sees_its_own_log_alone(
    visitor: httpx.AsyncClient, module_sales: Gateway, sales: Gateway
) -> None:
    async with browser_of(module_sales) as other:
        await log_in(other, module_sales.acme.key.secret)
        assert module_sales.acme.origin in (await other.get("/console")).text
        assert sales.acme.origin not in (await other.get("/console")).text
    assert sales.acme.origin in (await visitor.get("/console")).text


async def test_files_are_those_of_the_console_alone(visitor: httpx.AsyncClient) -> None:
    css = await visitor.get("/console/static/console.css")
    assert (css.status_code, css.headers["content-type"]) == (200, "text/css; charset=utf-8")
    for name in ("console", "none.css", "..%2Fpages.py", "%2e%2e/templates/base.html", "pages.py"):
        assert (await visitor.get(f"/console/static/{name}")).status_code == 404


BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
FORM = "application/x-www-form-urlencoded"


def told_in(answer: httpx.Response, status: int) -> str:
    """What the page of an error tells; it says what to do, too, and has a way back."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8"), answer.text
    assert answer.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
    (told,) = re.findall(r'class="problem" role="alert">([^<]*)</p>\n<p>[A-Z][^<]*\.</p>', answer.text)
    assert '<a href="/console">Back to the first page</a>' in answer.text
    return unescape(told)


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/console/x", 404, "expected the address of a page of the console, found '/console/x'"),
        ("GET", "/console/", 404, "expected the address of a page"),
        ("GET", "/console/policies/a/b/c", 404, "expected the address of a page"),
        ("GET", "/console/%3Cimg%20src=x%3E", 404, "found '/console/<img src=x>'"),
        ("GET", "/console/tables/a", 404, "expected the address of a page"),
        ("GET", "/console/tab%6Ces/a", 404, "expected the address of a page"),
        ("POST", "/console/x", 404, "expected the address of a page"),
        ("POST", "/console/log", 405, "expected GET at '/console/log', found POST"),
        ("DELETE", "/console", 405, "expected GET at '/console', found DELETE"),
        ("GET", "/console/logout", 405, "expected POST at '/console/logout', found GET"),
        ("GET", "/console/" + "x" * 20_000, 414, "expected a path of at most 16384 bytes"),
        ("GET", "/console/static/none.css", 404, "There is no such file."),
    ],
)
async def test_an_address_without_a_page_is_said_on_a_page_to_browsers_and_in_json_to_programs(
    guest: httpx.AsyncClient, module_sales: Gateway, method: str, path: str, status: int, words: str
) -> None:
    page = await guest.request(method, path, headers=BROWSER)
    assert words in told_in(page, status)
    assert ("Log out" in page.text) == ("/static/" not in path)
    async with browser_of(module_sales) as stranger:
        page = await stranger.request(method, path, headers=BROWSER)
        assert words in told_in(page, status)
        assert "Log out" not in page.text
        if "/static/" not in path:
            answer = await stranger.request(method, path, headers={"Accept": "*/*"})
            assert (answer.status_code, error_of(answer)["code"]) == (status, status)
    assert (await guest.request("HEAD", path, headers=BROWSER)).content == b""


@pytest.mark.parametrize(
    ("headers", "content", "status", "words"),
    [
        ({"Content-Type": FORM}, b"key=" + b"x" * 20_000, 413, "expected a body of at most"),
        ({"Content-Type": FORM, "Content-Encoding": "br"}, b"x", 415, "expected a body without Content-Encoding"),
        ({"Content-Type": FORM, "Content-Encoding": "gzip"}, b"x", 400, "expected a whole body in gzip"),
        ({"Content-Type": "application/json"}, b"{}", 400, "expected a form"),
        ({"Content-Type": FORM, "Sec-Fetch-Site": "cross-site"}, b"key=x", 403, "expected a form of this site"),
    ],
)
async def test_a_form_that_cannot_be_taken_is_answered_with_a_page(
    module_sales: Gateway, headers: dict[str, str], content: bytes, status: int, words: str
) -> None:
    async with browser_of(module_sales) as browser:
        answer = await browser.post("/console/login", headers=BROWSER | OWN | headers, content=content)
        assert words in told_in(answer, status)


async def test_what_was_not_expected_is_a_page_that_says_nothing_of_what_is_within(
    sales: Gateway, visitor: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*args: object, **named: object) -> None:
        raise RuntimeError("an internal detail")

    monkeypatch.setattr("gateway.console.pages.read_hours", fail)
    answer = await visitor.get("/console", headers=BROWSER)
    assert told_in(answer, 500) == "the gateway failed; its log says why"
    assert "an internal detail" not in answer.text


async def test_too_many_requests_are_a_page_that_says_when_to_come_again(
    sales: Gateway, visitor: httpx.AsyncClient
) -> None:
    authenticator = sales.services.gateway.authenticator
    rates = RequestRates(Limits(caller=1), SharedCounts(1), 0, monotonic_s=lambda: 1_000.0)
    authenticator.admit, before = rates.admit, authenticator.admit
    try:
        answers = [await visitor.get("/console/policies/none", headers=BROWSER) for _ in range(2)]
    finally:
        authenticator.admit = before
    assert "policy 'none'" in told_in(answers[0], 404)
    assert "requests a second" in told_in(answers[1], 429)
    assert answers[1].headers["retry-after"] == "1"


async def test_an_outage_is_a_page_with_a_sentence(sales: Gateway) -> None:
    parts = replace(sales.services.gateway, database=Database("host=127.0.0.1 port=1 dbname=none"))
    async with browser_of(sales, app=app_of(parts)) as browser:
        browser.cookies.set(COOKIE, "0" * 64)
        answer = await browser.get("/console")
        assert "the database cannot be reached" in told_in(answer, 503)
        assert "expected the address of a page" in told_in(await browser.get("/console/x", headers=BROWSER), 404)


async def test_where_nothing_can_be_judged_every_page_says_why_as_programs_are_told(
    sales: Gateway, visitor: httpx.AsyncClient
) -> None:
    assert (await visitor.get("/console")).status_code == 200
    await append_newer(sales.services, sales.acme.log_id)
    why = "a policy.archived of version 1, which this process does not know: a newer one must serve"
    for path in ("/console", "/console/operate", "/console/policies"):
        page = await visitor.get(path)
        assert page.status_code == 503
        assert why in page.text
    for path in ("/v1/status", ORDERS):
        answer = await sales.http.get(path)
        assert answer.status_code == 503
        assert error_of(answer)["message"].endswith(why)


async def test_what_was_changed_in_the_database_is_said_and_not_shown(
    sales: Gateway, visitor: httpx.AsyncClient
) -> None:
    policy = {"id": "p", "expression": "commit.name != 'frozen'", "message": "frozen"}
    (await sales.http.post("/v1/policies", json=policy)).raise_for_status()
    change_policy(sales.services.installation.admin_dsn, sales.acme.log_id, "frozen", "thawed")
    assert (await visitor.get("/console")).status_code == 503
    for path in ("/v1/status", "/v1/policies", ORDERS):
        answer = await sales.http.get(path)
        assert (answer.status_code, error_of(answer)["message"]) == (503, BROKEN)
    refused = await sales.http.post(ORDERS, json=properties(a="b"))
    assert (refused.status_code, error_of(refused)["message"]) == (503, BROKEN)
    change_policy(sales.services.installation.admin_dsn, sales.acme.log_id, "thawed", "frozen")
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200
