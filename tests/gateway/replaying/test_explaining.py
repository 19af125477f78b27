# SPDX-License-Identifier: Apache-2.0
"""
A decision explained: on what it was judged, how each rule came to its verdict, and the proof that it is in the log.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.replaying import findings, reading
from gateway.replaying.explaining import Explanation, explain
from lakeproof.signing import open_signer
from ledger.errors import BrokenError, Fault
from testkit.gateway.log_contents import StoredEntry, read_stored
from testkit.gateway.replays import erase_ada
from testkit.gateway.sales import CREATE, ORDERS, TABLES, another_guest, error_of, properties
from testkit.gateway.table_requests import commit_to, transaction
from testkit.gateway.two_views import project
from testkit.servers.gateways import Gateway
from testkit.statements import note_statements

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWNED = "commit.operation != 'table.commit' || result.properties.exists(name, name == 'owner')"
WIDE = "result.columns.all(c, c.type != 'binary')"


@pytest_asyncio.fixture(loop_scope="module")
async def busy(sales: Gateway) -> Gateway:
    """A tenant with two policies, one of which has refused a commit and let another pass; all of it is signed."""
    admin, log_id = sales.services.gateway.admin, sales.acme.log_id
    for policy_id, expression in (("wide", WIDE), ("owned", OWNED)):
        await admin.create_policy(
            log_id, OPERATOR, policy_id=policy_id, text=PolicyText(expression=expression, message="name an owner")
        )
    assert (await sales.http.post(ORDERS, json=properties(a="1", b="2"))).status_code == 403
    assert (await sales.http.post(ORDERS, json=properties(owner="ada"))).status_code == 200
    await (await open_signer(sales.services.installation)).sign_once()
    return sales


async def last(gateway: Gateway, words: str) -> StoredEntry:
    return [one for one in await read_stored(gateway.services, gateway.acme.log_id) if one.words == words][-1]


async def explained(gateway: Gateway, words: str) -> Explanation:
    found = await last(gateway, words)
    return await explain(gateway.services.gateway, gateway.acme.tenant, gateway.acme.log_id, found.entry.index)


def rule(found: Explanation, rule_id: str) -> Any:
    (one,) = [rule for rule in found.rules if rule.program.id == rule_id]
    return one


def steps(found: Explanation, rule_id: str) -> list[tuple[str, str | None, int]]:
    return [(step.text, step.value, step.times) for step in rule(found, rule_id).traced.steps]


async def test_a_refusal_shows_the_value_of_every_part_of_the_policy(busy: Gateway) -> None:
    found = await explained(busy, "rejected")
    assert found.decision.reason == ("owned", 1)
    assert found.message == "name an owner (policy owned, version 1)"
    assert steps(found, "owned") == [
        (OWNED, "false", 1),
        ("commit.operation != 'table.commit'", "false", 1),
        ("commit.operation", '"table.commit"', 1),
        ("result.properties.exists(name, name == 'owner')", "false", 1),
        ("result.properties", '{"write.parquet.compression-codec": "zstd", "a": "1", "b": "2"}', 1),
        ("name == 'owner'", "false", 3),
        ("name", '"b"', 3),
    ]
    assert rule(found, "owned").agrees
    assert [one.agrees for one in found.rules] == [True] * 3, "the founder's rule, and two policies"
    assert found.unknown == {}


async def test_an_approval_shows_why_it_passed_and_what_was_not_evaluated(busy: Gateway) -> None:
    found = await explained(busy, "approved")
    assert found.message is None
    shown = {text: value for text, value, _ in steps(found, "owned")}
    assert shown[OWNED] == "true"
    assert shown["name == 'owner'"] == "true"
    assert [one.traced.verdict.outcome.value for one in found.rules if one.traced] == ["allow"] * 3


async def test_it_is_proven_to_be_in_the_log(busy: Gateway) -> None:
    found = await explained(busy, "rejected")
    checkpoint = found.inclusion.checkpoint
    assert checkpoint is not None
    assert checkpoint.size > found.decision.index
    assert len(found.inclusion.hashes) > 0


async def test_what_is_not_signed_yet_is_said_not_to_be_proven(busy: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.replaying.explaining.PROOF_TIMEOUT_S", 0.05)
    assert (await busy.http.post(ORDERS, json=properties(c="3"))).status_code == 200
    found = await explained(busy, "approved")
    assert found.inclusion.checkpoint is None
    assert "no signed checkpoint covers it" in found.inclusion.trouble


async def project_to_the_end(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Project the log; a search of the log would go entry by entry from here on."""
    await project(gateway)
    monkeypatch.setattr(reading, "SEARCH_ENTRIES", 1)
    monkeypatch.setattr(findings, "SEARCH_ENTRIES", 1)


async def test_an_explanation_takes_few_statements_however_long_the_log_is(
    busy: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await last(busy, "approved")
    searched = await explained(busy, "approved")
    await project_to_the_end(busy, monkeypatch)
    path = f"/v1/decisions/{found.entry.index}"
    for _ in range(2):  # the first request may log in, and the first receipt connects
        statements = note_statements(monkeypatch)
        assert (await busy.http.get(f"{path}/explanation")).status_code == 200
    assert len(statements) <= 10, statements
    statements = note_statements(monkeypatch)
    assert (await busy.http.get(path)).status_code == 200
    assert len(statements) <= 8, statements
    again = await explained(busy, "approved")
    assert (again.rules, again.unknown) == (searched.rules, {}), "what the read model tells is what the log tells"


async def test_a_changed_outcome_is_not_what_a_decision_was_judged_on(
    busy: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await last(busy, "accepted")
    await project_to_the_end(busy, monkeypatch)
    with psycopg.connect(busy.services.installation.admin_dsn, autocommit=True) as owner:
        owner.execute(
            "UPDATE ledger.entries SET entry = replace(encode(entry, 'escape'), '\"metadata_sha256\":\"', "
            "'\"metadata_sha256\":\"0')::bytea WHERE log_id = %s AND type = 'commit.settled' AND index < %s",
            (busy.acme.log_id, created.entry.index),
        )
    with pytest.raises(BrokenError) as caught:
        await explained(busy, "approved")
    assert caught.value.fault is Fault.ENTRY


async def test_a_read_model_that_names_another_entry_leaves_unknown_what_a_decision_was_judged_on(
    busy: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await project_to_the_end(busy, monkeypatch)
    with psycopg.connect(busy.services.installation.admin_dsn, autocommit=True) as owner:
        owner.execute("UPDATE projections.commits SET settled_index = index WHERE log_id = %s", (busy.acme.log_id,))
    found = await explained(busy, "approved")
    assert {"table", "result"} & found.unknown.keys() == {"table"}
    assert rule(found, "owned").agrees, "it reads what the commit made, which its own group names"


async def test_a_changed_entry_is_not_explained(busy: Gateway) -> None:
    index = (await last(busy, "rejected")).entry.index
    with psycopg.connect(busy.services.installation.admin_dsn, autocommit=True) as owner:
        owner.execute(
            "UPDATE ledger.entries SET entry = replace(encode(entry, 'escape'), '\"rejected\"', '\"approved\"')::bytea "
            "WHERE log_id = %s AND index = %s",
            (busy.acme.log_id, index),
        )
    with pytest.raises(BrokenError) as caught:
        await explain(busy.services.gateway, busy.acme.tenant, busy.acme.log_id, index)
    assert caught.value.fault is Fault.ENTRY


async def test_an_entry_that_was_changed_with_its_hash_does_not_lead_to_the_signed_root(busy: Gateway) -> None:
    index = (await last(busy, "rejected")).entry.index
    changed = "replace(encode(entry, 'escape'), '\"rejected\"', '\"approved\"')::bytea"
    with psycopg.connect(busy.services.installation.admin_dsn, autocommit=True) as owner:
        owner.execute(
            f"UPDATE ledger.entries SET entry = {changed}, leaf = sha256('\\x00'::bytea || {changed}) "  # noqa: S608
            "WHERE log_id = %s AND index = %s".encode(),
            (busy.acme.log_id, index),
        )
    with pytest.raises(BrokenError):
        await explain(busy.services.gateway, busy.acme.tenant, busy.acme.log_id, index)


async def test_what_was_erased_is_named_and_judged_as_far_as_it_is_known(busy: Gateway) -> None:
    await erase_ada(busy)
    found = await explained(busy, "rejected")
    assert found.caller is None
    assert found.inputs is None
    assert found.message is None
    assert set(found.unknown) >= {"principal", "request", "commit", "result"}
    assert rule(found, "owned").agrees is None
    assert rule(found, "owned").recorded is None


async def test_long_values_are_cut(busy: Gateway) -> None:
    many = {f"p{number}": "x" * 500 for number in range(50)}
    assert (await busy.http.post(ORDERS, json=properties(**many, owner="ada"))).status_code == 200
    found = await explained(busy, "approved")
    for one in found.rules:
        for step in one.traced.steps if one.traced else ():
            assert len(step.value or "") <= 200


async def test_it_is_told_over_http_by_index_and_by_the_id_of_its_group(busy: Gateway) -> None:
    found = (await last(busy, "rejected")).entry
    by_index = await busy.http.get(f"/v1/decisions/{found.index}/explanation")
    by_id = await busy.http.get(f"/v1/decisions/{found.group_id}/explanation")
    assert by_index.status_code == 200, by_index.text
    assert by_index.json() == by_id.json()
    assert by_index.json()["reason"] == {"id": "owned", "version": 1}
    assert by_index.json()["principal"]["sub"] == "ada@acme.example"


@pytest.mark.parametrize(
    ("named", "status", "says"),
    [
        (str(uuid4()), 404, "expected a decision of this log, found none"),
        ("999999", 404, "expected an index below the log's size"),
        ("0", 404, "entry 0 is no decision, but access_rule.created"),
        ("nonsense", 400, "expected the id of a decision's group, or the index of its entry, found 'nonsense'"),
        ("-1", 400, "found '-1'"),
    ],
)
async def test_what_is_no_decision_is_an_error_that_says_so(busy: Gateway, named: str, status: int, says: str) -> None:
    answer = await busy.http.get(f"/v1/decisions/{named}/explanation")
    assert answer.status_code == status
    assert says in error_of(answer)["message"]


async def test_a_group_with_several_decisions_names_their_indices(busy: Gateway) -> None:
    assert (await busy.http.post(TABLES, json={**CREATE, "name": "more"})).status_code == 200
    both = transaction(*(commit_to(name, properties(owner="eve")) for name in ("orders", "more")))
    assert (await busy.http.post("/v1/iceberg/lake/transactions/commit", json=both)).status_code == 204
    found = (await last(busy, "approved")).entry
    answer = await busy.http.get(f"/v1/decisions/{found.group_id}/explanation")
    assert answer.status_code == 404
    assert f"has 2 decisions: name one by its index, of {found.index - 1}, {found.index}" in error_of(answer)["message"]


async def test_who_may_not_read_the_log_is_told_nothing(busy: Gateway) -> None:
    index = (await last(busy, "rejected")).entry.index
    eve = busy.client(await another_guest(busy))
    assert (await eve.get(f"/v1/decisions/{index}/explanation")).status_code == 403


async def test_who_may_read_the_log_alone_is_not_told_who_asked_for_what(busy: Gateway) -> None:
    index = (await last(busy, "rejected")).entry.index
    eve, path = busy.client(await another_guest(busy)), f"/v1/decisions/{index}/explanation"
    for rule_id, content_type in (("auditors", "LOG"), ("explained", "LOG_INPUTS")):
        assert (await eve.get(path)).status_code == 403
        await busy.services.gateway.admin.create_access_rule(
            busy.acme.log_id,
            OPERATOR,
            rule_id=rule_id,
            effect="permit",
            expression=f"'guest' in roles && contentType == '{content_type}'",
        )
    assert (await eve.get(path)).status_code == 200
