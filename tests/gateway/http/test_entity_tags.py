# SPDX-License-Identifier: Apache-2.0
"""
Entity tags of tables: an engine that has the current answer is told so, and nobody else learns anything by them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.metadata.files import MetadataFiles
from testkit.gateway.sales import CREATE, ORDERS, TABLES, another_key, properties
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_engine_that_has_the_table_is_answered_304_until_it_changes(sales: Gateway) -> None:
    first = await sales.http.get(ORDERS)
    tag = first.headers["etag"]
    for held in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = await sales.http.get(ORDERS, headers={"If-None-Match": held})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    for held in ('"other"', tag.strip('"'), tag.upper(), "", "nonsense"):
        answer = await sales.http.get(ORDERS, headers={"If-None-Match": held})
        assert (answer.status_code, answer.content) == (200, first.content), held
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    answer = await sales.http.get(ORDERS, headers={"If-None-Match": tag})
    assert answer.status_code == 200
    assert answer.headers["etag"] != tag
    assert answer.json()["metadata"]["properties"]["a"] == "b"


async def test_each_form_of_a_table_has_a_tag_of_its_own(sales: Gateway) -> None:
    tags = {query: (await sales.http.get(f"{ORDERS}{query}")).headers["etag"] for query in ("", "?snapshots=refs")}
    assert len(set(tags.values())) == 2
    answer = await sales.http.get(f"{ORDERS}?snapshots=refs", headers={"If-None-Match": tags[""]})
    assert answer.status_code == 200
    assert (await sales.http.get(f"{ORDERS}?snapshots=all")).headers["etag"] == tags[""]


async def test_a_tag_tells_nothing_to_who_may_not_load_the_table(sales: Gateway) -> None:
    tag = (await sales.http.get(ORDERS)).headers["etag"]
    eve = sales.client(await another_key(sales))
    for held in (tag, "*"):
        assert (await eve.get(ORDERS, headers={"If-None-Match": held})).status_code == 403
        assert (await sales.client(None).get(ORDERS, headers={"If-None-Match": held})).status_code == 401
        assert (await sales.http.get(f"{TABLES}/none", headers={"If-None-Match": held})).status_code == 404


async def test_a_tag_is_the_same_in_every_process(sales: Gateway) -> None:
    tag = (await sales.http.get(ORDERS)).headers["etag"]
    parts = sales.services.gateway
    other = sales.through(catalogs=replace(parts.catalogs, files=MetadataFiles()))
    assert (await other.get(ORDERS)).headers["etag"] == tag


async def test_a_commit_and_a_create_answer_with_the_tag_of_what_is_loaded_next(sales: Gateway) -> None:
    for answer, path in (
        (await sales.http.post(ORDERS, json=properties(a="b")), ORDERS),
        (await sales.http.post(TABLES, json={**CREATE, "name": "new"}), f"{TABLES}/new"),
    ):
        assert answer.status_code == 200
        loaded = await sales.http.get(path)
        assert loaded.headers["etag"] == answer.headers["etag"]
        assert loaded.content == answer.content
        assert (await sales.http.get(path, headers={"If-None-Match": answer.headers["etag"]})).status_code == 304
    staged = await sales.http.post(TABLES, json={**CREATE, "name": "staged", "stage-create": True})
    assert staged.status_code == 200
    assert "etag" not in staged.headers, "there is nothing to load"


async def test_what_a_commit_answers_is_what_another_process_loads_byte_by_byte(sales: Gateway) -> None:
    parts = sales.services.gateway
    for name in ("plain", "ünï", "\U0001f600", 'with "quotes"', "\u2028"):
        answer = await sales.http.post(ORDERS, json=properties(**{name: name, "n": "1.50"}))
        assert answer.status_code == 200
        other = sales.through(catalogs=replace(parts.catalogs, files=MetadataFiles()))
        loaded = await other.get(ORDERS)
        assert (loaded.content, loaded.headers["etag"]) == (answer.content, answer.headers["etag"])
