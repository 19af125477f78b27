# SPDX-License-Identifier: Apache-2.0
"""
The pages about access rules: which are in force and which do nothing, who may do something, and what somebody may do.
Each answer is what the routes for programs say, with the rules that decide.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio

from testkit.gateway.console.browsing import browser_of, check_harmless, log_in
from testkit.gateway.console.hostile_texts import HOSTILE_TEXTS
from testkit.gateway.sales import another_key
from testkit.gateway.two_views import project
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULES = "/console/access-rules"
READS = "op == 'READ_ENTITY_VALUE' && 'reader' in roles"
CEDAR = 'permit(principal in Role::"auditor", action in [Action::"read", Action::"inspect"], resource);'
ASKS = (RULES, f"{RULES}?findings=yes", f"{RULES}/first-key", f"{RULES}/_who", f"{RULES}/_what")


@pytest_asyncio.fixture(loop_scope="module")
async def visitor(sales: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that is logged in with the key of acme."""
    await project(sales)
    async with browser_of(sales) as browser:
        assert (await log_in(browser, sales.acme.key.secret)).status_code == 303
        yield browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asker(module_sales: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that is logged in, of a tenant that the tests of this module share."""
    await project(module_sales)
    async with browser_of(module_sales) as browser:
        assert (await log_in(browser, module_sales.acme.key.secret)).status_code == 303
        yield browser


async def put_in_force(gateway: Gateway, rule_id: str, expression: str, effect: str = "permit", **more: Any) -> None:
    rule = {"id": rule_id, "effect": effect, "expression": expression, **more}
    made = await gateway.http.post("/v1/access-rules", json=rule)
    assert made.status_code == 201, made.text


async def read(browser: httpx.AsyncClient, path: str, status: int = 200) -> str:
    """Return a page as it is written."""
    answer = await browser.get(path)
    assert answer.status_code == status, answer.text
    check_harmless(answer.text)
    return answer.text


async def words(browser: httpx.AsyncClient, path: str, status: int = 200) -> str:
    """Return the text of a page, with single blanks."""
    return said(await read(browser, path, status))


def said(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def row_of(page: str, name: str) -> str:
    """Return the row of a table whose first cell names something."""
    rows = [said(row) for row in page.split("<tr>")[1:]]
    (found,) = [row for row in rows if row.startswith(name)]
    return found


async def test_the_rules_in_force_are_listed_with_language_operations_author_and_entry(
    visitor: httpx.AsyncClient, sales: Gateway
) -> None:
    await put_in_force(sales, "readers", f"{READS} && op.startsWith('READ_')")
    await put_in_force(sales, "checks", "op == 'VIEW_REFERENCE'", vocabulary=3)
    await put_in_force(sales, "auditors", CEDAR, vocabulary=4)
    page = await read(visitor, RULES)
    assert 'aria-current="page">Access rules</a>' in page
    readers = row_of(page, "readers")
    assert "permits" in readers
    assert f"{READS} && op.startsWith('READ_')" in readers
    assert "version 1, CEL; names READ_ENTITY_VALUE, READ_…" in readers
    assert "by ada@acme.example" in readers
    assert "by system" in row_of(page, "first-key")
    assert "names no operation" in row_of(page, "first-key")
    assert "Cedar; names read, inspect" in row_of(page, "auditors")
    assert "asked about each check" in row_of(page, "checks")
    (index,) = re.findall(
        r'"/console/log/(\d+)">entry&nbsp;', page.split(f'href="{RULES}/readers"')[1].split("</tr>")[0]
    )
    entry = await read(visitor, f"/console/log/{index}")
    assert f'href="{RULES}/readers"' in entry
    listed = (await visitor.get(f"{RULES}.json")).json()["access-rules"]
    rows = list(csv.DictReader(io.StringIO((await visitor.get(f"{RULES}.csv")).text)))
    assert [row["id"] for row in rows] == [rule["id"] for rule in listed]
    assert [rule["id"] for rule in listed] == ["first-key", "readers", "checks", "auditors"]
    assert [row["language"] for row in rows] == ["CEL", "CEL", "CEL", "Cedar"]
    assert rows[1]["operations"] == '["READ_ENTITY_VALUE","READ_…"]'
    assert {rule["findings"] for rule in listed} == {None}, "nobody has looked"


async def test_rules_that_do_nothing_are_named_with_what_decides_for_them_in_every_form(
    visitor: httpx.AsyncClient, sales: Gateway
) -> None:
    await another_key(sales, "rita@acme.example", "reader", "auditor")
    await put_in_force(sales, "readers", READS)
    await put_in_force(sales, "narrow", f"{READS} && path == 'sales.orders'")
    await put_in_force(sales, "dead", "op == 'READ_ENTITY_VALUE' && op == 'DELETE_ENTITY'")
    await put_in_force(sales, "matched", "path.matches('^s.*s$') && 'reader' in roles && op == 'DELETE_ENTITY'")
    await put_in_force(sales, "auditors", CEDAR, vocabulary=4)
    page = await read(visitor, f"{RULES}?findings=yes")
    assert re.search("dead : it holds for no .*proven", row_of(page, "dead"))
    narrow = page.split(f'href="{RULES}/narrow"')[1].split("</tr>")[0]
    assert "shadowed" in narrow
    assert f'href="{RULES}/readers"' in narrow
    assert "not looked at" in row_of(page, "auditors")
    assert "not known : nothing can be proven of" in row_of(page, "matched")
    for rule in ("readers", "first-key"):
        assert not re.search("dead|shadowed|not known|not looked", row_of(page, rule)), rule
    assert "Not looked at: rules in Cedar" in said(page)
    linted = (await sales.http.get("/v1/access/lint")).json()
    listed = (await visitor.get(f"{RULES}.json?findings=yes")).json()
    assert listed["looked_at"]["as_of"] == linted["as_of"]
    found = {rule["id"]: rule["findings"] for rule in listed["access-rules"]}
    assert {id_: [one["finding"] for one in each] for id_, each in found.items() if each} == {
        "narrow": ["covered"],
        "dead": ["never"],
    }
    assert (found["readers"], found["auditors"]) == ([], None)
    assert f'href="{RULES}.csv?findings=yes"' in page
    rows = list(csv.DictReader(io.StringIO((await visitor.get(f"{RULES}.csv?findings=yes")).text)))
    assert ["covered" in row["findings"] for row in rows if row["id"] in {"narrow", "readers"}] == [False, True]
    assert (await visitor.get(f"{RULES}.json?findings=perhaps")).status_code == 400


async def test_a_rule_has_a_page_with_its_text_its_author_and_its_end(
    visitor: httpx.AsyncClient, sales: Gateway
) -> None:
    await put_in_force(sales, "readers", READS)
    shown = await words(visitor, f"{RULES}/readers")
    assert "It is in force." in shown
    assert READS in shown
    assert "Version 1: put in force" in shown
    assert "retired, " not in shown
    assert (await sales.http.delete("/v1/access-rules/readers")).status_code == 204
    page = await read(visitor, f"{RULES}/readers")
    assert "It was retired" in said(page)
    assert said(page).index("Version 2: retired") < said(page).index("Version 1: put in force")
    assert said(page).count("by ada@acme.example") == 2
    assert 'href="/console/log?key=access_rule%3Areaders"' in page
    assert f'href="{RULES}/readers"' not in await read(visitor, RULES), "it is in force no more"
    assert "expected one in the log, found none" in await words(visitor, f"{RULES}/never-was", 404)
    assert await words(visitor, f"{RULES}/No%20Id", 400)


async def test_who_may_do_something_is_answered_as_over_http_with_the_rules_that_decide(
    visitor: httpx.AsyncClient, sales: Gateway
) -> None:
    await another_key(sales, "rita@acme.example", "reader")
    await another_key(sales, "wim@acme.example", "writer")
    await put_in_force(sales, "readers", f"{READS} && path.startsWith('sales.')")
    await put_in_force(sales, "writers", "'writer' in roles && 'META_SET_PROPERTIES' in actions")
    asked = "operation=table.load&target=lake.sales.orders"
    page = await read(visitor, f"{RULES}/_who?{asked}")
    assert row_of(page, "rita@acme.example") == "rita@acme.example reader yes readers"
    assert row_of(page, "ada@acme.example").endswith("yes first-key")
    others = [said(row) for row in page.split("<tr>") if "whoever has a token or certificate" in row]
    assert [row.split("certificate ")[1].split(" Callers are")[0] for row in others] == [
        "reader yes readers",
        "none no no rule permits it",
        "writer no no rule permits it",
    ]
    assert "erased" not in said(page)
    assert row_of(page, "wim@acme.example").endswith("no no rule permits it")
    assert f'href="{RULES}/readers"' in page
    assert "yes 3" in said(page)
    answered = (await sales.http.get(f"/v1/access/who?{asked}")).json()
    assert (await visitor.get(f"{RULES}/_who.json?{asked}")).json() == answered
    rows = list(csv.DictReader(io.StringIO((await visitor.get(f"{RULES}/_who.csv?{asked}")).text)))
    assert [row["decision"] for row in rows] == [one["decision"] for one in answered["callers"]]
    assert f'href="{RULES}/_who.csv?operation=table.load&amp;target=lake.sales.orders"' in page
    assert "No table" not in said(page)
    # What a commit does in detail does not follow from the question.
    commit = await read(visitor, f"{RULES}/_who?operation=table.commit&target=table:lake/sales/orders")
    assert "not known writers" in row_of(commit, "wim@acme.example")
    assert "reads what is done in detail (actions)" in row_of(commit, "wim@acme.example")
    assert row_of(commit, "rita@acme.example").endswith("no no rule permits it")


async def test_what_somebody_may_do_is_answered_for_a_key_and_for_roles(
    visitor: httpx.AsyncClient, sales: Gateway
) -> None:
    await another_key(sales, "rita@acme.example", "reader", "auditor")
    await put_in_force(sales, "readers", f"{READS} && 'auditor' in roles && path.startsWith('sales.')")
    (key_id,) = [key["id"] for key in (await sales.http.get("/v1/keys")).json()["keys"] if "reader" in key["roles"]]
    form = await read(visitor, f"{RULES}/_what")
    assert f'<option value="{key_id}">rita@acme.example, auditor, reader (key {key_id})</option>' in form
    for caller in (f"key={key_id}&roles=", "key=&roles=reader,%20auditor"):
        page = await read(visitor, f"{RULES}/_what?{caller}&target=lake.sales.orders")
        assert row_of(page, "table.load").endswith("yes readers"), caller
        who = "rita@acme.example, with" if "key=&" not in caller else "a caller with"
        assert f"What {who} the roles auditor, reader" in said(page)
        assert row_of(page, "table.drop").endswith("no no rule permits it")
        assert page.index(">table.load<") < page.index(">table.exists<"), "what is permitted comes first"
    of_one = await read(visitor, f"{RULES}/_what?roles=reader&target=lake.sales.orders")
    assert row_of(of_one, "table.load").endswith("no no rule permits it"), "of two roles one is not enough"
    assert "What a caller with the roles reader may do on lake.sales.orders" in said(of_one)
    twin = (await visitor.get(f"{RULES}/_what.json?roles=reader,auditor&target=lake.sales.orders")).json()
    over_http = "/v1/access/what?role=reader&role=auditor&target=lake.sales.orders"
    assert twin == (await sales.http.get(over_http)).json()
    own = await read(visitor, f"{RULES}/_what?key={sales.acme.key.id}&target=")
    assert row_of(own, "log.load").endswith("yes first-key")
    rows = csv.DictReader(io.StringIO((await visitor.get(f"{RULES}/_what.csv?key={sales.acme.key.id}")).text))
    assert {row["decision"] for row in rows} == {"permitted"}


@pytest.mark.parametrize(
    ("question", "status", "sentence"),
    [
        ("_who?operation=&target=", 400, "Choose an operation, such as table.load."),
        ("_who?operation=tabel.load&target=lake.sales.orders", 400, "There is no operation tabel.load: the nearest is"),
        ("_who?operation=table.load&target=", 400, "Name on what: table.load takes a name, as in lake.sales.orders."),
        ("_who?operation=table.load&target=lake", 400, "expected alias, namespace and name of a table"),
        ("_who?operation=log.load&target=x", 400, "expected no target for log.load"),
        ("_who?operation=table.load&target=lake.sales.order", 200, "the nearest is lake.sales.orders"),
        ("_who?operation=table.load&target=lak.sales.orders", 200, "No catalog lak is in force: the nearest is lake."),
        ("_what?key=&roles=&target=", 400, "Choose a key, or name roles."),
        ("_what?key=k&roles=reader&target=", 400, "and not both"),
        ("_what?key=none&roles=&target=", 404, "key 'none': expected one in force, found none"),
        ("_what?key=&roles=re%20ader&target=", 400, "roles: "),
        ("_what?key=&roles=reader&target=lake.sales.order", 200, "the nearest is lake.sales.orders"),
    ],
)
async def test_what_is_wrong_with_a_question_is_a_sentence_and_the_fields_stay(
    asker: httpx.AsyncClient, question: str, status: int, sentence: str
) -> None:
    page = await read(asker, f"{RULES}/{question}", status)
    assert sentence in said(page)
    assert ('role="alert"' in page) == (status != 200)
    assert ("what a request for this one would get" in said(page)) == (status == 200)
    target = question.rpartition("target=")[2]
    assert f'name="target" value="{target}"' in page


async def test_a_form_that_was_not_sent_has_no_answer_and_nothing_wrong(asker: httpx.AsyncClient) -> None:
    for path in ("_who", "_what", "_who?target=lake.sales.orders"):
        page = await read(asker, f"{RULES}/{path}")
        assert 'role="alert"' not in page
        assert "<table" not in page
    assert 'value="lake.sales.orders"' in page
    for path in ("_who.json", "_what.csv"):
        assert (await asker.get(f"{RULES}/{path}")).status_code == 400


async def test_who_may_not_read_rules_is_told_as_elsewhere_and_who_may_not_read_keys_asks_nothing(
    visitor: httpx.AsyncClient, sales: Gateway
) -> None:
    async with browser_of(sales) as eve, browser_of(sales) as auditor:
        await log_in(eve, await another_key(sales, "eve@acme.example", "nobody"))
        elsewhere = await words(eve, "/console/policies", 403)
        for path in ASKS:
            assert (await words(eve, path, 403)).startswith(elsewhere.split(" This page without")[0][:200]), path
        for path in (f"{RULES}.json", f"{RULES}.csv", f"{RULES}/_who.json", f"{RULES}/_what.csv"):
            refused = await eve.get(path)
            error = refused.json()["error"]
            assert (refused.status_code, error["message"]) == (403, "no access rule permits this"), path
        await put_in_force(sales, "auditors", "'auditor' in roles && contentType == 'CONFIG_ACCESS_RULE'")
        await log_in(auditor, await another_key(sales, "olga@acme.example", "auditor"))
        assert "first-key" in await words(auditor, RULES)
        looked = await words(auditor, f"{RULES}?findings=yes")
        assert "Which rules do nothing is shown to whom access rules permit to read rules and keys." in looked
        assert "first-key" in looked
        for path in (f"{RULES}/_who", f"{RULES}/_what", f"{RULES}.json?findings=yes", f"{RULES}/_who.csv?operation=x"):
            assert (await auditor.get(path)).status_code == 403, path
        assert "ada@acme.example" not in await words(auditor, RULES), "names are a right of their own"


async def test_tenants_see_nothing_of_each_others_rules_keys_and_tables(
    visitor: httpx.AsyncClient, sales: Gateway, module_sales: Gateway
) -> None:
    await put_in_force(module_sales, "theirs", "'their-role' in roles && op == 'READ_ENTITY_VALUE'")
    await another_key(module_sales, "bob@other.example", "their-role")
    (theirs,) = [key for key in (await module_sales.http.get("/v1/keys")).json()["keys"] if key["roles"]][-1:]
    for path in (
        RULES,
        f"{RULES}?findings=yes",
        f"{RULES}/_what",
        f"{RULES}/_who?operation=table.load&target=lake.sales.orders",
        f"{RULES}.json",
    ):
        text = (await visitor.get(path)).text
        assert not re.search("theirs|their-role", text), path
        assert "bob@other.example" not in text, path
    assert (await visitor.get(f"{RULES}/theirs")).status_code == 404
    assert (await visitor.get(f"{RULES}/_what?key={theirs['id']}&roles=")).status_code == 404


async def test_hostile_texts_in_rules_and_questions_are_shown_as_text(
    asker: httpx.AsyncClient, module_sales: Gateway
) -> None:
    texts = [text.replace("\u2028", "") for text in HOSTILE_TEXTS]
    for number, text in enumerate(texts):
        literal = text.replace("\\", "\\\\").replace('"', '\\"')
        await put_in_force(module_sales, f"hostile-{number}", f"path == \"{literal}\" && 'x' in roles")
        assert literal in unescape(await read(asker, f"{RULES}/hostile-{number}"))
        sent = quote(text, safe="")
        for question in (
            f"_who?operation={sent}&target=x",
            f"_who?operation=table.load&target={sent}",
            f"_who?operation=policy.inspect&target={sent}",
            f"_what?key={sent}&roles=",
            f"_what?roles={sent}&target={sent}",
            f"_what?roles=x&target={sent}",
            sent,
        ):
            answer = await asker.get(f"{RULES}/{question}", headers={"Accept": "text/html"})
            assert answer.headers["content-type"].startswith("text/html")
            check_harmless(answer.text)
    for path in (RULES, f"{RULES}?findings=yes"):
        page = unescape(await read(asker, path))
        assert all(text.replace('"', '\\"') in page for text in texts), path


async def test_a_decision_and_a_table_lead_to_the_rules_that_decided(
    visitor: httpx.AsyncClient, sales: Gateway
) -> None:
    assert (await sales.http.post("/v1/iceberg/lake/namespaces/sales/tables/orders", json=SET)).status_code == 200
    await project(sales)
    (index,) = [
        entry["index"]
        for entry in (await sales.http.get("/v1/log/entries?type=commit.decided&limit=1")).json()["entries"]
    ]
    assert f'href="{RULES}/first-key"' in await read(visitor, f"/console/decisions/{index}")
    table = await read(visitor, "/console/tables/lake/sales/orders?access=yes")
    assert f'href="{RULES}/first-key"' in table
    (link,) = re.findall(rf'href="({RULES}/_who[^"]*)"', table)
    assert 'value="table:lake/sales/orders"' in await read(visitor, unescape(link))


SET = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
