# SPDX-License-Identifier: Apache-2.0
"""
The pages for operators without script: who is let in, what a page shows to whom, and which forms are taken.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from html import unescape

import httpx
import pytest
import pytest_asyncio
from fastapi.routing import APIRoute

from gateway.admin.application import OPERATOR
from gateway.admin.limits import KNOWN_SETTINGS
from gateway.console.lists import LISTS, OPERATED, runners_of
from gateway.console.operate import SETTINGS, router
from gateway.console.rendering import HEADERS
from gateway.console.verifier_page import verifier_page
from gateway.version import installed_version
from lakeproof import evidence
from lakeproof.services import Services
from testkit.gateway.console.furnished import write_restrictions
from testkit.gateway.console.operated import REASON, give_up, open_operated
from testkit.gateway.console.visits import pages_of
from testkit.gateway.jobs import ended
from testkit.gateway.sales import another_key
from testkit.gateway.two_views import SECRET, TwoViews

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPERATE = "/console/operate"
OWN = {"Sec-Fetch-Site": "same-origin"}
FOREIGN = {"Sec-Fetch-Site": "cross-site"}
PAGES = (
    "",
    "/projections/graph",
    "/projections/graph/replace",
    "/replays",
    "/keys",
    "/catalogs",
    "/evidence",
    "/tenant",
)
FORMULA = "=HYPERLINK(1)"
SUMMARIES = {
    "Settings": "of one tenant, whose JSON has them",
    "Witnesses": "of the log, whose state has them",
    "Reasons": "sums of what the log has, which is a list",
    "Parts": "of one entry, whose JSON has them",
    "Who may do what": "an answer about one table, asked for by a link",
    "Dead letters replayed": "of one replay, whose row in the list has them",
    "By principal": "of one replay of policies, which the command lists whole",
    "By table": "likewise",
    "By rule": "likewise",
    "Each decision that changes": "likewise",
    "Branches": "likewise",
}
"""Tables that are no lists, by their labels: why they have no twins."""
NOT_PERMITTED = "The access rules do not permit you to see this."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def views(module_services: Services) -> AsyncIterator[TwoViews]:
    async with open_operated(module_services) as views:
        await give_up(views.gateway, "handler:gone", "m-1", FORMULA)
        yield views


@asynccontextmanager
async def visiting(views: TwoViews, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """A browser without script, logged in with a key."""
    transport = httpx.ASGITransport(app=views.gateway.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as browser:
        answer = await browser.post("/console/login", data={"key": key, "to": OPERATE}, headers=OWN)
        assert answer.headers["location"] == OPERATE
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def visitor(views: TwoViews) -> AsyncIterator[httpx.AsyncClient]:
    async with visiting(views, views.gateway.acme.key.secret) as browser:
        yield browser


async def sent(browser: httpx.AsyncClient, path: str, **fields: str) -> httpx.Response:
    """Send a form, and follow where it leads."""
    # Without a field httpx sends no form, which browsers do.
    fields = fields or {"": ""}
    return await browser.post(f"{OPERATE}{path}", data=fields, headers=OWN, follow_redirects=True)


async def test_every_page_and_every_form_asks_who_is_there(views: TwoViews) -> None:
    transport = httpx.ASGITransport(app=views.gateway.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=views.whole.headers) as nobody:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            for method in route.methods or ():
                path = re.sub(r"\{.*?\}", "0", route.path)
                answer = await nobody.request(method, path, headers=OWN)
                assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/console/login")


async def test_a_form_of_another_site_changes_nothing(views: TwoViews, visitor: httpx.AsyncClient) -> None:
    before = (await views.whole.get("/v1/keys")).json()
    for route in router.routes:
        assert isinstance(route, APIRoute)
        if "POST" in (route.methods or ()):
            path = re.sub(r"\{.*?\}", before["keys"][0]["id"], route.path)
            answer = await visitor.post(path, data={"identity": "eve@acme.example"}, headers=FOREIGN)
            assert (answer.status_code, "a form of this site" in answer.text) == (403, True), path
    assert (await views.whole.get("/v1/keys")).json() == before
    assert (await views.whole.get("/v1/dead-letters/replay")).json() == {"replays": []}


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_loads_nothing_but_the_consoles_own(visitor: httpx.AsyncClient, path: str) -> None:
    answer = await visitor.get(f"{OPERATE}{path}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
    scripts = set(re.findall(r"<script[^>]*>[^<]*", answer.text))
    assert scripts <= {f'<script type="module" src="/console/static/{name}.mjs">' for name in ("times", "watched")}
    assert not re.search(r"\s(style|on[a-z]+)=", answer.text)


async def test_what_needs_somebody_is_shown_with_what_to_do(views: TwoViews, visitor: httpx.AsyncClient) -> None:
    text = (await visitor.get(OPERATE)).text
    assert REASON in unescape(text)
    assert "<script>alert" not in text
    assert 'aria-label="Replay m-1"' in text
    places = [text.index(f'<h2 id="{each}">') for each in ("letters", "decisions", "runners", "projections")]
    assert places == sorted(places)
    for words in ("Runners", "Open decisions", "None: the outcome of every approved change is known.", "not yet"):
        assert words in text
    assert f'2 messages could not be handled: <a href="{OPERATE}#letters">' in (await visitor.get("/console")).text
    for each in (await views.whole.get("/v1/projections")).json()["projections"]:
        assert f'href="{OPERATE}/projections/{each["projection"]}"' in text


async def test_who_may_see_nothing_of_it_is_told_so_in_each_place(views: TwoViews) -> None:
    async with visiting(views, await another_key(views.gateway, "nick@acme.example", "nobody")) as guest:
        page = await guest.get(OPERATE)
        assert page.status_code == 200
        assert page.text.count(NOT_PERMITTED) == 5
        assert "m-1" not in page.text
        for path in ("/keys", "/catalogs", "/replays", "/projections/graph", "/tenant", "/tenant.json"):
            assert (await guest.get(f"{OPERATE}{path}")).status_code == 403
        assert (await sent(guest, "/projections/graph/rebuild")).status_code == 403
        assert (await sent(guest, "/replay", source="handler:gone")).status_code == 403
        assert (await sent(guest, "/keys", identity="nick@acme.example")).status_code == 403
        assert (await sent(guest, "/evidence", table=f"lake.hr.{SECRET}")).status_code == 403


async def test_the_verifier_is_downloaded_with_the_hash_that_the_page_names(visitor: httpx.AsyncClient) -> None:
    page = (await visitor.get(f"{OPERATE}/evidence")).text
    file = await visitor.get(f"{OPERATE}/verifier")
    assert file.headers["content-disposition"].startswith("attachment; ")
    assert file.content == verifier_page(installed_version())
    assert sha256(file.content).hexdigest() in page


async def test_another_tenant_sees_nothing_of_it(views: TwoViews) -> None:
    async with visiting(views, views.other.acme.key.secret) as other:
        text = (await other.get(OPERATE)).text
    assert "m-1" not in text
    assert views.gateway.acme.tenant.hex not in text
    assert views.other.acme.tenant.hex in text


async def test_a_rebuild_shows_how_far_it_is_each_time_it_is_looked_at(
    views: TwoViews, visitor: httpx.AsyncClient
) -> None:
    page = await sent(visitor, "/projections/lineage/rebuild")
    assert page.url.path == f"{OPERATE}/projections/lineage"
    await ended(views.whole, "/v1/projections/lineage", "rebuild")
    text = (await visitor.get(page.url.path)).text
    assert "yes, digests equal" in text
    asked = (await visitor.get(f"{page.url.path}/replace")).text
    assert 'name="replace" value="yes"' in asked
    await sent(visitor, "/projections/lineage/rebuild", replace="yes")
    done = await ended(views.whole, "/v1/projections/lineage", "rebuild")
    assert (done["state"], done["replace"]) == ("done", True)
    gone = await sent(visitor, "/projections/lineage/cancel")
    assert (gone.status_code, "no rebuild is under way" in gone.text) == (404, True)


async def test_a_key_is_rotated_and_each_secret_is_shown_once(views: TwoViews, visitor: httpx.AsyncClient) -> None:
    made = await sent(visitor, "/keys", identity="ada@acme.example", roles=" data-eng , ")
    (secret,) = re.findall(r'<pre id="secret" tabindex="0">(\S+)</pre>', made.text)
    (name,) = re.findall(r"<h1>Key (\S+) was made</h1>", made.text)
    assert made.headers["Cache-Control"] == "private, no-store"
    rotated = await sent(visitor, f"/keys/{name}/rotate", overlap_hours="0")
    (newer,) = re.findall(r'<pre id="secret" tabindex="0">(\S+)</pre>', rotated.text)
    (rotated_name,) = re.findall(r"<h1>Key (\S+) was made</h1>", rotated.text)
    for key, status in ((secret, 401), (newer, 200)):
        async with views.gateway.client(key) as http:
            assert (await http.get("/v1/tenant")).status_code == status
    listed = (await visitor.get(f"{OPERATE}/keys")).text
    assert secret not in listed
    assert newer not in listed
    assert '<td data-label="whose">ada@acme.example <code>' in listed
    assert "<dt>Whose</dt><dd>ada@acme.example</dd>" in (await visitor.get(f"{OPERATE}/keys/{rotated_name}")).text
    for hours in ("", "-1", "soon", "721", "99999", "1.5", "²"):
        refused = await sent(visitor, f"/keys/{name}/rotate", overlap_hours=hours)
        assert refused.status_code == 400
        assert "overlap_hours: expected a whole number of hours from 0 to 720, found" in refused.text


async def test_whose_a_key_is_is_in_every_form_of_the_list_for_whom_it_is_on_the_page(
    views: TwoViews, visitor: httpx.AsyncClient
) -> None:
    await views.gateway.services.gateway.admin.create_access_rule(
        views.gateway.acme.log_id,
        OPERATOR,
        rule_id="keepers",
        effect="permit",
        expression="'keeper' in roles && contentType == 'CONFIG_KEY'",
    )
    async with visiting(views, await another_key(views.gateway, "kim@acme.example", "keeper")) as keeper:
        for http, name in ((visitor, "sam@acme.example"), (keeper, "")):
            listed = (await http.get(f"{OPERATE}/keys.json")).json()["keys"]
            assert [each["principal"] for each in listed if each["roles"] == ["seller"]] == [name or None]
            rows = rows_in(await http.get(f"{OPERATE}/keys.csv"))
            assert [each["principal"] for each in rows if each["roles"] == '["seller"]'] == [name]
            assert ("sam@acme.example" in (await http.get(f"{OPERATE}/keys")).text) == bool(name)


async def test_a_catalog_is_checked(views: TwoViews, visitor: httpx.AsyncClient) -> None:
    options = {"uri": "https://127.0.0.1:9/catalog", "warehouse": "w"}
    registered = await views.whole.post("/v1/catalogs", json={"alias": "partner", "kind": "rest", "options": options})
    assert registered.status_code == 201
    assert "It answers, and takes our credentials." in (await sent(visitor, "/catalogs/lake/check")).text
    assert "see that it runs" in (await sent(visitor, "/catalogs/partner/check")).text
    assert (await sent(visitor, "/catalogs/none/check")).status_code == 404


async def test_evidence_that_cannot_be_made_says_why(visitor: httpx.AsyncClient) -> None:
    for fields, status in (({}, 400), ({"decision": "0"}, 422), ({"table": "lake.sales.none"}, 422)):
        answer = await sent(visitor, "/evidence", **fields)
        assert (answer.status_code, 'role="alert"' in answer.text) == (status, True), answer.text
    assert (await visitor.get(f"{OPERATE}/evidence/0/file")).status_code == 400


async def test_a_tenant_is_shown_with_its_log_its_key_and_what_is_in_force(
    views: TwoViews, visitor: httpx.AsyncClient
) -> None:
    tenant = (await views.whole.get("/v1/tenant")).json()
    text = unescape((await visitor.get(f"{OPERATE}/tenant")).text)
    log, acme = views.gateway.services.gateway.receipts, views.gateway.acme
    (key,) = tenant["verifier_keys"]
    assert key == log.keys_for(tenant["log"], tenant["checkpoint_size"])[0].format()
    (first,) = (await views.whole.get("/v1/log/entries", params={"order": "oldest", "limit": 1})).json()["entries"]
    assert tenant["founded_at"] == first["recorded_at"]
    for said in (acme.tenant.hex, tenant["log"], key, f'datetime="{first["recorded_at"]}"'):
        assert said in text
    for path in ("/console/operate/catalogs", "/console/operate/keys", "/console/policies", "/console/log"):
        assert f'href="{path}"' in text
    assert f'<a href="/console/operate/catalogs">{len(tenant["catalogs"])}</a>' in text
    twin = await visitor.get(f"{OPERATE}/tenant.json")
    assert (twin.json(), twin.headers["Cache-Control"]) == (tenant, "private, no-store")
    assert (await visitor.get(f"{OPERATE}/tenant.csv")).status_code == 404


async def test_every_setting_is_described_and_has_a_button_for_each_other_value(visitor: httpx.AsyncClient) -> None:
    assert set(SETTINGS) == set(KNOWN_SETTINGS)
    text = unescape((await visitor.get(f"{OPERATE}/tenant")).text)
    for setting, values in KNOWN_SETTINGS.items():
        assert SETTINGS[setting] in text
        buttons = re.findall(f'aria-label="Set to ([a-z]+): {setting}"', text)
        (value,) = re.findall(f'<code>{setting}</code></td>.*?data-label="value">([a-z]+)<', text)
        assert {value, *buttons} == set(values)
        assert value not in buttons


async def test_a_setting_is_changed_once_and_by_whoever_may(views: TwoViews, visitor: httpx.AsyncClient) -> None:
    path = "/tenant/settings/lineage-cycles"
    page = await sent(visitor, path, value="keep", version="0")
    assert (page.status_code, page.url.path) == (200, f"{OPERATE}/tenant")
    setting = {"id": "lineage-cycles", "version": 1, "value": "keep"}
    assert (await views.whole.get("/v1/settings/lineage-cycles")).json() == setting
    assert 'aria-label="Set to refuse: lineage-cycles"' in page.text
    stale = await sent(visitor, path, value="refuse", version="0")
    assert (stale.status_code, "expected version 0, found 1" in unescape(stale.text)) == (409, True)
    for fields, status in (
        ({"value": "keep"}, 400),
        ({"value": "keep", "version": "-1"}, 400),
        ({"value": "keep", "version": "9" * 16}, 400),
        ({"value": "perhaps", "version": "1"}, 400),
    ):
        assert (await sent(visitor, path, **fields)).status_code == status
    assert (await sent(visitor, "/tenant/settings/none", value="keep", version="0")).status_code == 400
    await views.gateway.services.gateway.admin.create_access_rule(
        views.gateway.acme.log_id,
        OPERATOR,
        rule_id="readers",
        effect="permit",
        expression="'reader' in roles && op == 'READ_REPOSITORY_CONFIG'",
    )
    async with visiting(views, await another_key(views.gateway, "rita@acme.example", "reader")) as reader:
        text = (await reader.get(f"{OPERATE}/tenant")).text
        assert "do not permit you to change them" in text
        assert '<button type="submit" name="value"' not in text
        assert (await sent(reader, path, value="refuse", version="1")).status_code == 403
    assert (await views.whole.get("/v1/settings/lineage-cycles")).json() == setting


# Lists for programs and spreadsheets


def rows_in(answer: httpx.Response) -> list[dict[str, str]]:
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/csv"), answer.text
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))


async def pages_with_something(browser: httpx.AsyncClient, views: TwoViews) -> dict[str, str]:
    """Every page that is reached by links, one of each route, by its path."""
    routes = pages_of(views.gateway.app)
    waiting, found, done = [path for path in routes if "{" not in path], dict[str, str](), set[str]()
    for path in waiting:
        route = next((each for each, pattern in routes.items() if pattern.fullmatch(path)), None)
        if route is None or route in done:
            continue
        done.add(route)
        page = await browser.get(path)
        assert page.status_code < 500, path
        found[path] = page.text
        waiting += re.findall(r'href="(/console[^"?#]*)', unescape(page.text))
    return found


async def test_every_list_of_the_console_links_to_its_json_and_its_csv(
    views: TwoViews, visitor: httpx.AsyncClient
) -> None:
    policy = {"id": "all", "expression": "true", "message": "m", "reason": "r"}
    assert (await views.whole.post("/v1/policies", json=policy)).status_code == 201
    await write_restrictions(views.whole, "r")
    linked = set[str]()
    for path, text in (await pages_with_something(visitor, views)).items():
        for after in text.split('<div class="wide" role="group" aria-label="')[1:]:
            label = after.partition('"')[0]
            has_twins = '<p class="twins">' in after
            assert has_twins or label in SUMMARIES, f"{path}: {label} links to no JSON and CSV: name it in `lists.py`"
        for as_json, as_csv in re.findall(r'<p class="twins">.*href="([^"]*)".*href="([^"]*)"', unescape(text)):
            linked.add(as_json.removeprefix("/console/").removesuffix(".json"))
            assert (await visitor.get(as_json)).json() is not None
            rows_in(await visitor.get(as_csv))
    commits = {each for each in linked if re.fullmatch("tables/[^/]+/[^/]+/[^/]+/commits", each)}
    drafts = {"restrictions/_drafts"}  # one waits
    assert linked - commits - drafts == {*LISTS, *(f"operate/{name}" for name in OPERATED)}
    assert drafts <= linked
    assert len(commits) == 1


@pytest.mark.parametrize("name", OPERATED)
async def test_the_lists_of_operators_have_the_same_rows_in_every_form(
    views: TwoViews, visitor: httpx.AsyncClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "SHORT_ENTRIES_MAX", 0)
    if name == "replays":
        await sent(visitor, "/replay", source="handler:none")
    if name == "evidence":
        await sent(visitor, "/evidence", table="lake.sales.orders")
    found = (await visitor.get(f"{OPERATE}/{name}.json")).json()
    rows, listed = rows_in(await visitor.get(f"{OPERATE}/{name}.csv")), OPERATED[name].rows(found)
    assert len(rows) == len(listed)
    assert bool(rows) == (name != "open-decisions")
    for row, each in zip(rows, listed, strict=True):
        assert tuple(row) == tuple(OPERATED[name].columns)
        if name != "runners":
            assert set(row) <= set(each)


async def test_detection_is_a_runner_too() -> None:
    status = {"projections": [{"name": "graph"}], "streams": [], "detection_waiting": 3, "detection_put_off": 1}
    assert [each["name"] for each in runners_of(status)] == ["graph", "detection"]
    assert runners_of(status)[-1]["lag_entries"] == 3


async def test_what_senders_write_is_no_formula_in_a_file(visitor: httpx.AsyncClient) -> None:
    ids = {row["id"] for row in rows_in(await visitor.get(f"{OPERATE}/dead-letters.csv"))}
    assert ids == {"m-1", f"'{FORMULA}"}
    listed = (await visitor.get(f"{OPERATE}/dead-letters.json?source=handler:gone")).json()["dead-letters"]
    assert FORMULA in {each["id"] for each in listed}
    assert rows_in(await visitor.get(f"{OPERATE}/dead-letters.csv?source=handler:none")) == []


async def test_no_secret_is_in_a_list(views: TwoViews, visitor: httpx.AsyncClient) -> None:
    for name in OPERATED:
        for form in ("json", "csv"):
            assert views.gateway.acme.key.secret not in (await visitor.get(f"{OPERATE}/{name}.{form}")).text


async def test_lists_of_operators_are_for_whom_their_pages_are(views: TwoViews) -> None:
    async with visiting(views, await another_key(views.gateway, "nick@acme.example", "nobody")) as guest:
        for name in OPERATED.keys() - {"evidence"}:
            for form in ("json", "csv"):
                assert (await guest.get(f"{OPERATE}/{name}.{form}")).status_code == 403, name
        assert rows_in(await guest.get(f"{OPERATE}/evidence.csv")) == []
    async with visiting(views, views.other.acme.key.secret) as other:
        assert rows_in(await other.get(f"{OPERATE}/dead-letters.csv")) == []
        assert rows_in(await other.get(f"{OPERATE}/evidence.csv")) == []


@pytest.mark.parametrize("path", ["keys.xml", "tenants.csv", ".csv", "keys.csv.csv"])
async def test_a_list_of_operators_that_is_none_is_not_there(visitor: httpx.AsyncClient, path: str) -> None:
    assert (await visitor.get(f"{OPERATE}/{path}")).status_code == 404
