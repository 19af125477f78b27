# SPDX-License-Identifier: Apache-2.0
"""
The pages about restrictions: what is wrong has its place and stays in the form, and another person approves a draft.
"""

from __future__ import annotations

import re
from html import unescape

import pytest

from testkit.gateway.console.browsing import OWN, browser_of, log_in, permit_all
from testkit.gateway.sales import another_key
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRITE = "/console/restrictions/_write"
TEXT = """id: eu
reason: contracts
filter: row.region == 'EU'
schemas:
  orders:
    fields:
    - {id: 1, name: region, required: false, type: string}
"""


async def test_a_draft_is_mended_saved_and_approved_by_another_person(sales: Gateway) -> None:
    await permit_all(sales, "reviewer")
    async with browser_of(sales) as author, browser_of(sales) as reviewer:
        await log_in(author, sales.acme.key.secret)
        await log_in(reviewer, await another_key(sales, "grace@acme.example", "reviewer"))
        assert "Row filters and column masks" in (await author.get("/console/policies")).text
        assert "row.region" in (await author.get("/console/restrictions/_new")).text
        wrong = TEXT.replace("row.region", "row.regoin")
        answer = await author.post(WRITE, data={"text": wrong, "do": "draft"}, headers=OWN)
        assert answer.status_code == 422
        told = unescape(re.sub(r"<[^>]*>", "", answer.text))
        assert "line 3, column 9: " in told
        assert "'regoin'" in told
        assert "regoin == 'EU'" in unescape(answer.text.split("<textarea")[1])
        answer = await author.post(WRITE, data={"text": TEXT, "do": "draft"}, headers=OWN)
        assert (answer.status_code, answer.headers["location"]) == (303, "/console/restrictions/eu")
        assert "draft 1" in (await author.get("/console/restrictions")).text
        waits = re.compile(r'<a href="/console/restrictions">[^<]*</a>')
        first_page = (await author.get("/console")).text
        assert "1 draft of restrictions not reviewed yet (eu)" in first_page
        assert waits.search(first_page)
        assert 'value="approve"' not in (await author.get("/console/restrictions/eu")).text
        assert 'value="approve"' in (await reviewer.get("/console/restrictions/eu")).text
        review = {"version": "1", "verdict": "approve", "reason": "read it"}
        own = await author.post("/console/restrictions/eu/review", data=review, headers=OWN)
        assert own.status_code == 403
        answer = await reviewer.post("/console/restrictions/eu/review", data=review, headers=OWN)
        assert answer.status_code == 303
        assert "not reviewed yet" not in (await author.get("/console")).text
        shown = (await author.get("/console/restrictions/eu")).text
        assert "Review:</span> read it" in shown
        assert "reads do not enforce it yet" in shown
        second = TEXT.replace("'EU'", "'US'")
        stale = await author.post(WRITE, data={"text": second, "do": "save"}, headers=OWN)
        assert stale.status_code == 409, "whoever saw no version overwrites none"
        saved = {"text": second, "do": "save", "policy_version": "1"}
        assert (await author.post(WRITE, data=saved, headers=OWN)).status_code == 303
        compared = unescape((await author.get("/console/restrictions/eu/diff?from=1&to=2")).text)
        assert "filter: row.region == 'US'" in compared
        assert "row.region == 'EU'" in unescape((await author.get("/console/restrictions/eu/edit?version=1")).text)
        for do in ("draft", "retire"):
            ended = await author.post("/console/restrictions/eu/retire", data={"do": do}, headers=OWN)
            assert ended.status_code == 303, ended.text
        assert "It was retired" in (await author.get("/console/restrictions/eu")).text
        assert (await author.get("/console/restrictions/none")).status_code == 404


async def test_who_may_not_read_restrictions_sees_none_and_other_sites_send_no_forms(sales: Gateway) -> None:
    async with browser_of(sales) as eve, browser_of(sales) as author:
        await log_in(eve, await another_key(sales, "eve@acme.example", "nobody"))
        for path in ("", "/_new", "/eu", "/eu/edit"):
            assert (await eve.get(f"/console/restrictions{path}")).status_code == 403, path
        assert (await eve.post(WRITE, data={"text": TEXT, "do": "draft"}, headers=OWN)).status_code == 403
        await log_in(author, sales.acme.key.secret)
        for path in ("_write", "eu/review", "eu/retire"):
            answer = await author.post(
                f"/console/restrictions/{path}", data={"text": TEXT}, headers={"Sec-Fetch-Site": "cross-site"}
            )
            assert answer.status_code == 403, path
