# SPDX-License-Identifier: Apache-2.0
"""
Commits that are tried on what a process knows of caller and table: nothing is read before them, and what another
process has changed since counts all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import httpx
import psycopg
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.commit.target_queues import TargetQueues
from gateway.identifiers import Target
from gateway.identity import authenticator
from lakeproof.erasing import open_eraser
from lakeproof.services import Services, now
from ledger.erasing.erase import ErasureRequest
from ledger.format.events import ErasureReason
from ledger.store.read import find_log
from testkit.gateway.log_contents import check_agreement, words
from testkit.gateway.sales import (
    CREATE,
    ORDERS,
    TABLES,
    another_key,
    files_beside,
    location_of_orders,
    new_key,
    properties,
    revoke,
)
from testkit.servers.gateways import Gateway, app_of, open_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFUSED = {
    "a commit": properties(late="yes"),
    "one that changes nothing": properties(first="yes"),
    "one whose requirement does not hold": properties([{"type": "assert-current-schema-id", "current-schema-id": 7}]),
    "one that names another table": {**properties(late="yes"), "identifier": {"namespace": ["sales"], "name": "other"}},
    "one of an unknown kind": {"requirements": [], "updates": [{"action": "no-such"}]},
}


@pytest.fixture(autouse=True)
def _verified_lately(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the test is, its key was verified a moment ago."""
    monkeypatch.setattr(authenticator, "KNOWN_S", 600.0)


@pytest_asyncio.fixture(loop_scope="module")
async def known(sales: Gateway) -> Gateway:
    """A gateway that has just verified its key, and was the last to change its table."""
    assert (await sales.http.post(ORDERS, json=properties(first="yes"))).status_code == 200
    return sales


@asynccontextmanager
async def nothing_read(gateway: Gateway) -> AsyncIterator[None]:
    """Nobody's rights can be read in the context."""
    admin_dsn = gateway.services.installation.admin_dsn
    async with await psycopg.AsyncConnection.connect(admin_dsn) as connection, connection.transaction():
        await connection.execute("LOCK TABLE ledger.subjects IN ACCESS EXCLUSIVE MODE")
        yield


async def properties_of(gateway: Gateway) -> dict[str, str]:
    found: dict[str, str] = (await gateway.http.get(ORDERS)).json()["metadata"]["properties"]
    return found


# Nothing is read


async def test_a_commit_of_a_known_caller_to_a_known_table_waits_for_no_read(known: Gateway) -> None:
    before = await words(known.services, known.acme.log_id)
    async with nothing_read(known):
        for name in ("one", "two"):
            answer = await known.http.post(ORDERS, json=properties(**{name: "yes"}))
            assert answer.status_code == 200, answer.text
    assert (await properties_of(known)).items() >= {"first": "yes", "one": "yes", "two": "yes"}.items()
    assert await words(known.services, known.acme.log_id) == [*before, *["approved", "accepted"] * 2]
    assert len(files_beside(await location_of_orders(known))) == 4
    await check_agreement(known.services, known.acme.log_id)


async def test_many_commits_at_once_are_judged_each_on_the_one_before(known: Gateway) -> None:
    async with nothing_read(known):
        sent = [known.http.post(ORDERS, json=properties(**{f"n{number}": "yes"})) for number in range(12)]
        assert {answer.status_code for answer in await asyncio.gather(*sent)} == {200}
    assert set(await properties_of(known)) >= {f"n{number}" for number in range(12)}
    await check_agreement(known.services, known.acme.log_id)


async def waits(gateway: Gateway, client: httpx.AsyncClient, **headers: str) -> None:
    """Check that a commit is not made before the caller's rights were read."""
    async with nothing_read(gateway):
        committing = asyncio.create_task(client.post(ORDERS, json=properties(late="yes"), headers=headers))
        await asyncio.wait([committing], timeout=0.2)
        assert not committing.done()
    assert (await committing).status_code == 200


async def test_a_key_that_was_verified_longer_ago_is_read(known: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator, "KNOWN_S", 0.0)
    await waits(known, known.http)


async def test_a_table_that_this_process_has_not_changed_is_read(known: Gateway) -> None:
    await waits(known, known.through())


async def test_a_request_that_may_have_been_made_before_reads_who_makes_it(known: Gateway) -> None:
    await waits(known, known.http, **new_key())


async def test_where_requests_are_counted_the_caller_is_read(known: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known.services.gateway.authenticator, "admit", lambda _tenant, _actor: None)
    await waits(known, known.http)


async def test_who_waits_in_vain_for_the_turn_of_a_table_waits_once(known: Gateway, others: Services) -> None:
    gateway, log_id = known.services.gateway, known.acme.log_id
    await others.gateway.admin.create_access_rule(log_id, OPERATOR, rule_id="all", effect="permit", expression="true")
    target, queues = Target(alias="lake", namespace=("sales",), name="orders"), TargetQueues(waiting_s=0.05)
    secret = await another_key(known, "lee@acme.example")
    async with known.client(secret) as client:
        assert (await client.post(ORDERS, json=properties(lee="yes"))).status_code == 200
    busy = known.through(queues=queues, known_tables=gateway.known_tables, key=secret)
    async with queues.turn(log_id, target):
        for revoked, status in ((False, 503), (True, 401)):
            if revoked:
                await revoke(known, secret)
            assert (await busy.post(ORDERS, json=properties(late="yes"))).status_code == status
    assert "late" not in await properties_of(known)


# What another process has changed


@pytest.mark.parametrize("body", list(REFUSED.values()), ids=list(REFUSED))
async def test_a_key_that_another_process_has_revoked_is_told_nothing_else(
    known: Gateway, others: Services, body: dict[str, object]
) -> None:
    admin, log_id = others.gateway.admin, known.acme.log_id
    await admin.create_access_rule(log_id, OPERATOR, rule_id="all", effect="permit", expression="true")
    issued = await admin.create_key(log_id, OPERATOR, identity="bob@acme.example", roles=[])
    async with known.client(issued.secret) as client:
        assert (await client.post(ORDERS, json=properties(first="yes"))).status_code == 200
        assert (await client.post(ORDERS, json=properties(bob="yes"))).status_code == 200
        await admin.revoke_key(log_id, OPERATOR, key_id=issued.id)
        before = await words(known.services, log_id), files_beside(await location_of_orders(known))
        for _ in range(2):
            assert (await client.post(ORDERS, json=body)).status_code == 401
    assert (await words(known.services, log_id), files_beside(await location_of_orders(known))) == before
    assert (await known.http.post(ORDERS, json=properties(after="yes"))).status_code == 200
    assert "late" not in await properties_of(known)


async def test_a_key_that_has_expired_since_it_was_verified_commits_nothing(known: Gateway) -> None:
    gateway, log_id = known.services.gateway, known.acme.log_id
    await gateway.admin.create_access_rule(log_id, OPERATOR, rule_id="all", effect="permit", expression="true")
    ends = now() + timedelta(hours=1)
    issued = await gateway.admin.create_key(log_id, OPERATOR, identity="may@acme.example", roles=[], expires_at=ends)
    async with known.client(issued.secret) as client:
        assert (await client.post(ORDERS, json=properties(may="yes"))).status_code == 200
    before = await words(known.services, log_id)
    later = known.through(clock=lambda: ends, known_tables=gateway.known_tables, key=issued.secret)
    assert (await later.post(ORDERS, json=properties(late="yes"))).status_code == 401
    assert await words(known.services, log_id) == before


async def test_a_person_whom_another_process_has_erased_commits_nothing(known: Gateway, others: Services) -> None:
    admin, log_id, installation = others.gateway.admin, known.acme.log_id, others.installation
    await admin.create_access_rule(log_id, OPERATOR, rule_id="all", effect="permit", expression="true")
    issued = await admin.create_key(log_id, OPERATOR, identity="eve@acme.example", roles=[])
    async with known.client(issued.secret) as client:
        assert (await client.post(ORDERS, json=properties(eve="yes"))).status_code == 200
        async with (
            installation.connect(installation.roles.auditor) as auditor,
            open_eraser(installation, auditor) as eraser,
        ):
            log = await find_log(auditor, installation.origin(known.acme.tenant))
            await eraser.erase_person(log, issued.actor, ErasureRequest(reason=ErasureReason.REQUEST, at=now()))
        before = await words(known.services, log_id)
        assert (await client.post(ORDERS, json=properties(late="yes"))).status_code == 401
    assert await words(known.services, log_id) == before


async def test_a_rule_that_another_process_has_made_refuses_the_next_commit_once(
    known: Gateway, others: Services
) -> None:
    admin, log_id = others.gateway.admin, known.acme.log_id
    before = await words(known.services, log_id)
    await admin.create_access_rule(log_id, OPERATOR, rule_id="closed", effect="forbid", expression="true")
    for count in (1, 2):  # at first it is stale, then known to be refused
        assert (await known.http.post(ORDERS, json=properties(late="yes"))).status_code == 403
        assert await words(known.services, log_id) == [*before, *["rejected"] * count]
    assert len(files_beside(await location_of_orders(known))) == 2


async def test_a_catalog_that_another_process_has_retired_is_gone(known: Gateway, others: Services) -> None:
    await others.gateway.admin.retire_catalog(known.acme.log_id, OPERATOR, alias="lake")
    answer = await known.http.post(ORDERS, json=properties(late="yes"))
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "Catalog does not exist: lake")


async def test_a_commit_is_made_on_what_another_process_has_made(known: Gateway, others: Services) -> None:
    async with open_gateway(others, known.acme, app_of(others.gateway)) as there:
        for number in range(3):
            assert (await there.http.post(ORDERS, json=properties(**{f"there{number}": "yes"}))).status_code == 200
            assert (await known.http.post(ORDERS, json=properties(**{f"here{number}": "yes"}))).status_code == 200
    assert set(await properties_of(known)) >= {f"{place}{number}" for place in ("here", "there") for number in range(3)}
    assert len(files_beside(await location_of_orders(known))) == 8, "what was tried in vain is deleted"
    await check_agreement(known.services, known.acme.log_id)


async def test_a_table_that_another_process_has_dropped_is_not_changed(known: Gateway, others: Services) -> None:
    async with open_gateway(others, known.acme, app_of(others.gateway)) as there:
        assert (await there.http.delete(ORDERS)).status_code == 204
        assert (await known.http.post(ORDERS, json=properties(late="yes"))).status_code == 404
        assert (await there.http.post(TABLES, json=CREATE)).status_code == 200
        assert (await known.http.post(ORDERS, json=properties(new="yes"))).status_code == 200
    found = await properties_of(known)
    assert found["new"] == "yes"
    assert "first" not in found
    await check_agreement(known.services, known.acme.log_id)


async def test_a_caller_whom_no_rule_permits_is_refused_on_the_record_once(known: Gateway) -> None:
    secret = await another_key(known, "kim@acme.example")
    async with known.client(secret) as client:
        for count in (1, 2):
            assert (await client.post(ORDERS, json=properties(late="yes"))).status_code == 403
            assert (await words(known.services, known.acme.log_id)).count("rejected") == count
