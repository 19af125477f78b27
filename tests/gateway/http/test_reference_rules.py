# SPDX-License-Identifier: Apache-2.0
"""
Imported rules about references, where these are the branches of a table: what a writer may do on which of them.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gateway.policy.rule_files import PREFIX
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, TABLES, another_key, error_of, properties
from testkit.gateway.table_requests import snapshot
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

MISSING = "no access rule permits this: "
FILE = f"""
{PREFIX}reading='writer' in roles && op in ['VIEW_REFERENCE', 'READ_ENTITY_VALUE']
{PREFIX}writing='writer' in roles && op == 'UPDATE_ENTITY' && path == 'sales.orders'
{PREFIX}branches='writer' in roles && ref.startsWith('dev-') && \\
  op in ['CREATE_REFERENCE', 'COMMIT_CHANGE_AGAINST_REFERENCE']
"""


def moved(ref: str, snapshot_id: int, *updates: dict[str, Any]) -> dict[str, Any]:
    """A commit that makes or moves a branch, after other updates."""
    to = {"action": "set-snapshot-ref", "ref-name": ref, "type": "branch", "snapshot-id": snapshot_id}
    return {"requirements": [], "updates": [*updates, to]}


async def added(gateway: Gateway, ref: str, snapshot_id: int) -> dict[str, Any]:
    """A commit that adds a snapshot to a branch."""
    metadata = (await gateway.http.get(ORDERS)).json()["metadata"]
    (update,) = snapshot(f"{metadata['location']}/metadata/snap-{snapshot_id}.avro")["updates"]
    numbered = {"snapshot-id": snapshot_id, "sequence-number": metadata["last-sequence-number"] + 1}
    update["snapshot"] |= {**numbered, "timestamp-ms": metadata["last-updated-ms"]}
    return moved(ref, snapshot_id, update)


async def refused(http: httpx.AsyncClient, body: dict[str, Any]) -> str:
    """Send a commit that must be refused by rules; return what is missing."""
    answer = await http.post(ORDERS, json=body)
    assert answer.status_code == 403, answer.text
    message: str = error_of(answer)["message"]
    return message.removeprefix(MISSING)


async def test_a_writer_has_branches_of_their_own_and_no_others(sales: Gateway) -> None:
    first = await sales.http.post(ORDERS, json=await added(sales, "main", 1))
    assert first.status_code == 200, first.text
    (await sales.http.post("/v1/access-rules/import", json={"file": FILE})).raise_for_status()
    writer = sales.client(await another_key(sales, "wim@acme.example", "writer"))
    assert (await writer.get(ORDERS)).status_code == 200
    commit = "COMMIT_CHANGE_AGAINST_REFERENCE on reference 'main'"
    assert await refused(writer, properties(a="b")) == commit
    assert await refused(writer, await added(sales, "main", 2)) == commit
    assert await refused(writer, moved("prod", 1)) == "CREATE_REFERENCE on reference 'prod'"
    made = await writer.post(ORDERS, json=moved("dev-wim", 1))
    assert made.status_code == 200, made.text
    assert (await writer.post(ORDERS, json=await added(sales, "dev-wim", 2))).status_code == 200
    # To move a branch back, or to remove it, is another right; so is to publish it.
    assert await refused(writer, moved("dev-wim", 1)) == "ASSIGN_REFERENCE_TO_HASH on reference 'dev-wim'"
    assert await refused(writer, moved("main", 2)) == "ASSIGN_REFERENCE_TO_HASH on reference 'main'"
    removed = {"requirements": [], "updates": [{"action": "remove-snapshot-ref", "ref-name": "dev-wim"}]}
    assert await refused(writer, removed) == "DELETE_REFERENCE on reference 'dev-wim'"
    assert (await sales.http.post(ORDERS, json=moved("main", 2))).status_code == 200, "the founder publishes it"
    assert (await sales.http.post(ORDERS, json=removed)).status_code == 200
    stored = await read_stored(sales.services, sales.acme.log_id)
    words = [one.words for one in stored if one.entry.type == "commit.decided" and one.entry.key.endswith("/orders")]
    assert words.count("rejected") == 6


async def test_what_is_done_to_a_whole_catalog_is_about_main(sales: Gateway) -> None:
    (await sales.http.post("/v1/access-rules/import", json={"file": FILE})).raise_for_status()
    writer = sales.client(await another_key(sales, "wim@acme.example", "writer"))
    listed = await writer.get(TABLES)
    assert error_of(listed)["message"] == f"{MISSING}READ_ENTRIES on reference 'main'"
    made = await writer.post(NAMESPACES, json={"namespace": ["more"]})
    assert error_of(made)["message"] == f"{MISSING}COMMIT_CHANGE_AGAINST_REFERENCE on reference 'main'"
    more = f"{PREFIX}lists='writer' in roles && op in ['READ_ENTRIES', 'READ_CONTENT_KEY'] && ref == 'main'\n"
    (await sales.http.post("/v1/access-rules/import", json={"file": more})).raise_for_status()
    assert (await writer.get(TABLES)).status_code == 200
    # What Nessie does not have stays closed, whatever the rules say of reading.
    for path in ("/v1/access-rules", "/v1/policies", "/log/checkpoint"):
        assert (await writer.get(path)).status_code == 403, path


async def test_who_may_create_a_namespace_need_not_read_it_and_reads_none_by_it(sales: Gateway) -> None:
    creates = f"{PREFIX}creates='maker' in roles && op in ['VIEW_REFERENCE', 'COMMIT_CHANGE_AGAINST_REFERENCE', "
    creates += "'CREATE_ENTITY'] && ref in ['', 'main']\n"
    (await sales.http.post("/v1/access-rules/import", json={"file": creates})).raise_for_status()
    maker = sales.client(await another_key(sales, "mia@acme.example", "maker"))
    hidden = {"namespace": ["hidden"], "properties": {"owner": "payroll"}}
    (await sales.http.post(NAMESPACES, json=hidden)).raise_for_status()
    made = await maker.post(NAMESPACES, json={"namespace": ["more"], "properties": {"owner": "mia"}})
    assert made.status_code == 200, made.text
    assert made.json() == {"namespace": ["more"], "properties": {"owner": "mia"}}
    there = await maker.post(NAMESPACES, json={"namespace": ["hidden"], "properties": {}})
    assert there.status_code == 409
    assert "payroll" not in there.text
    # To load or to change one, also the one that was made, needs READ_ENTITY_VALUE, as does a table that is created.
    missing = f"{MISSING}READ_ENTITY_VALUE on "
    for asked in (
        await maker.get(f"{NAMESPACES}/more"),
        await maker.get(f"{NAMESPACES}/hidden"),
        await maker.post(f"{NAMESPACES}/more/properties", json={"updates": {"owner": "wim"}, "removals": []}),
        await maker.post(f"{NAMESPACES}/more/tables", json=CREATE),
    ):
        assert asked.status_code == 403, asked.text
        assert error_of(asked)["message"].startswith(missing), asked.text


async def test_rules_that_were_there_before_an_import_keep_their_meaning(sales: Gateway) -> None:
    rule = {"id": "readers", "effect": "permit", "expression": "'reader' in roles && op.startsWith('READ_')"}
    (await sales.http.post("/v1/access-rules", json=rule)).raise_for_status()
    reader = sales.client(await another_key(sales, "rik@acme.example", "reader"))
    paths = (ORDERS, TABLES, NAMESPACES, "/v1/policies")
    before = [(await reader.get(path)).status_code for path in paths]
    assert before == [200, 200, 200, 200]
    strict = f"{PREFIX}strict=op == 'VIEW_REFERENCE' && role == 'somebody else'\n"
    (await sales.http.post("/v1/access-rules/import", json={"file": strict})).raise_for_status()
    assert [(await reader.get(path)).status_code for path in paths] == before
    assert (await reader.post(ORDERS, json=properties(a="b"))).status_code == 403
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200


async def test_a_rule_of_each_check_that_forbids_is_made_by_itself(sales: Gateway) -> None:
    rule = {"id": "keep", "effect": "forbid", "expression": "op == 'CREATE_REFERENCE' && ref == 'prod'"}
    assert (await sales.http.post(ORDERS, json=await added(sales, "main", 1))).status_code == 200
    created = await sales.http.post("/v1/access-rules", json={**rule, "vocabulary": 3})
    assert (created.status_code, created.json()["vocabulary"]) == (201, 3)
    answer = await sales.http.post(ORDERS, json=moved("prod", 1))
    assert (answer.status_code, "keep" in error_of(answer)["message"]) == (403, True)
    assert (await sales.http.post(ORDERS, json=moved("dev", 1))).status_code == 200
    unknown = await sales.http.post("/v1/access-rules", json={**rule, "id": "other", "vocabulary": 5})
    expected = "vocabulary: expected one of [2, 3, 4], found 5"
    assert (unknown.status_code, error_of(unknown)["message"]) == (400, expected)
