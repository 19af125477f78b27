# SPDX-License-Identifier: Apache-2.0
"""
Keys that are rotated over HTTP: by whom, what becomes of the old one, and what the log records.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import httpx
import pytest

from gateway.admin.application import OPERATOR
from gateway.admin.limits import KEYS_OF_HOLDER_MAX
from gateway.control.plane import ControlPlane
from gateway.identity import Authenticator
from gateway.identity.key_macs import open_key_macs
from lakeproof.services import KEY_SECRET, now
from ledger.format.events import KeyReplaced, from_data
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import NAMESPACES, error_of
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOB = "bob@acme.example"
DAY = timedelta(days=1)
RULE = {
    "id": "bobs",
    "effect": "permit",
    "expression": "'etl' in roles && (contentType != 'CONFIG_KEY' || path.startsWith('.config.key'))",
}


async def issued_by_operator(gateway: Gateway, *roles: str, expires_at: datetime | None = None) -> dict[str, Any]:
    """Return a key of Bob's own."""
    key = await gateway.services.gateway.admin.create_key(
        gateway.acme.log_id, OPERATOR, identity=BOB, roles=roles or ("etl",), expires_at=expires_at
    )
    return {"id": key.id, "actor": key.actor, "secret": key.secret}


async def bobs(gateway: Gateway, **more: Any) -> tuple[dict[str, Any], httpx.AsyncClient]:
    """Permit Bob what he does, issue him a key, and return it with a client that has it."""
    assert (await gateway.http.post("/v1/access-rules", json=RULE)).status_code == 201
    key = await issued_by_operator(gateway, **more)
    return key, gateway.client(key["secret"])


async def rotate(http: httpx.AsyncClient, key_id: str, **body: Any) -> httpx.Response:
    return await http.post(f"/v1/keys/{key_id}/rotate", json=body)


async def keys_of(gateway: Gateway) -> dict[str, dict[str, Any]]:
    """Return the keys of the tenant that were not revoked."""
    return {key["id"]: key for key in (await gateway.http.get("/v1/keys")).json()["keys"]}


async def test_a_holder_rotates_their_own_key_and_both_are_in_force_until_the_old_one_ends(
    shared_gateway: Gateway,
) -> None:
    old, bob = await bobs(shared_gateway)
    before = now()
    answer = await rotate(bob, old["id"])
    assert answer.status_code == 201, answer.text
    new = answer.json()
    assert (new["actor"], new["expires_at"], new["replaces"]) == (old["actor"], None, old["id"])
    ends_at = datetime.fromisoformat(new["replaced_ends_at"])
    assert before + DAY <= ends_at <= now() + DAY
    keys = await keys_of(shared_gateway)
    assert (keys[old["id"]]["replaced_by"], keys[old["id"]]["expires_at"]) == (new["id"], new["replaced_ends_at"])
    assert (keys[new["id"]]["roles"], keys[new["id"]]["replaced_by"]) == (["etl"], None)
    for secret in (old["secret"], new["secret"]):
        assert (await shared_gateway.client(secret).get(NAMESPACES)).status_code == 200
    services = shared_gateway.services
    lend = partial(services.gateway.database.as_role, services.gateway.roles.gateway)
    macs = open_key_macs(services.installation.keys / KEY_SECRET)
    late = Authenticator(lend, ControlPlane(lend), macs=macs, clock=lambda: ends_at)
    for secret, status in ((old["secret"], 401), (new["secret"], 200)):
        client = shared_gateway.through(key=secret, authenticator=late, clock=lambda: ends_at)
        assert (await client.get(NAMESPACES)).status_code == status


async def test_the_log_has_both_in_one_group_in_the_name_of_who_did_it(shared_gateway: Gateway) -> None:
    old, bob = await bobs(shared_gateway)
    new = (await rotate(bob, old["id"], overlap_s=60)).json()
    created, replaced = (await read_stored(shared_gateway.services, shared_gateway.acme.log_id))[-2:]
    assert (created.entry.type, replaced.entry.type) == ("key.created", "key.replaced")
    assert created.entry.group_id == replaced.entry.group_id
    assert (created.entry.key, replaced.entry.key) == (f"key:{new['id']}", f"key:{old['id']}")
    assert {created.entry.actor, replaced.entry.actor} == {old["actor"]}
    event = from_data(KeyReplaced, replaced.entry.data)
    assert (event.by, event.version, event.expires_at) == (new["id"], 2, new["replaced_ends_at"])


async def test_without_an_overlap_the_old_key_is_refused_by_the_next_request(shared_gateway: Gateway) -> None:
    old, bob = await bobs(shared_gateway)
    new = (await rotate(bob, old["id"], overlap_s=0)).json()
    assert new["replaced_ends_at"] is None
    assert (await bob.get(NAMESPACES)).status_code == 401
    assert (await shared_gateway.client(new["secret"]).get(NAMESPACES)).status_code == 200
    assert old["id"] not in await keys_of(shared_gateway)
    told = [one.entry.type for one in await read_stored(shared_gateway.services, shared_gateway.acme.log_id)]
    assert told[-2:] == ["key.created", "key.revoked"]


async def test_neither_key_ends_later_than_the_old_one_would_have(shared_gateway: Gateway) -> None:
    end = now() + timedelta(hours=1)
    old, bob = await bobs(shared_gateway, expires_at=end)
    for later in ((end + timedelta(seconds=1)).isoformat(), (end + DAY).isoformat()):
        refused = await rotate(bob, old["id"], expires_at=later)
        assert (refused.status_code, error_of(refused)["type"]) == (400, "BadRequestException")
        assert "expected an end no later than" in error_of(refused)["message"]
    new = (await rotate(bob, old["id"], overlap_s=7 * 86_400)).json()
    keys = await keys_of(shared_gateway)
    assert keys[old["id"]]["expires_at"] == keys[new["id"]]["expires_at"] == new["replaced_ends_at"]


async def test_a_key_is_rotated_once(shared_gateway: Gateway) -> None:
    old, bob = await bobs(shared_gateway)
    new = (await rotate(bob, old["id"])).json()
    again = await rotate(bob, old["id"])
    assert again.status_code == 409
    assert f"rotate {new['id']}, which replaced it" in error_of(again)["message"]
    outlived = await rotate(bob, new["id"])
    assert outlived.status_code == 400, "the old key, which ends now, is not prolonged by another one"
    assert (await rotate(shared_gateway.client(new["secret"]), new["id"])).status_code == 201
    assert (await shared_gateway.http.delete(f"/v1/keys/{old['id']}")).status_code == 204, "it may end before"
    assert (await shared_gateway.client(old["secret"]).get(NAMESPACES)).status_code == 401


async def test_a_key_that_would_get_another_actor_is_not_rotated(shared_gateway: Gateway) -> None:
    own, _ = await bobs(shared_gateway)
    others = (await shared_gateway.http.post("/v1/keys", json={"identity": BOB, "roles": []})).json()
    told = await read_stored(shared_gateway.services, shared_gateway.acme.log_id)
    refused = await rotate(shared_gateway.http, own["id"])
    assert refused.status_code == 409
    assert "has another actor, which the rules may treat otherwise" in error_of(refused)["message"]
    assert await read_stored(shared_gateway.services, shared_gateway.acme.log_id) == told
    issuer = await rotate(shared_gateway.http, others["id"])
    assert (issuer.status_code, issuer.json()["actor"]) == (201, others["actor"])


async def test_whoever_may_not_issue_such_a_key_does_not_rotate_it(shared_gateway: Gateway) -> None:
    rule = {"id": "clerks", "effect": "permit", "expression": "'clerk' in roles && contentType == 'CONFIG_KEY'"}
    assert (await shared_gateway.http.post("/v1/access-rules", json=rule)).status_code == 201
    admin, log_id = shared_gateway.services.gateway.admin, shared_gateway.acme.log_id
    clerk = await admin.create_key(log_id, OPERATOR, identity="carl@acme.example", roles=["clerk"])
    http = shared_gateway.client(clerk.secret)
    stronger = await admin.create_key(log_id, OPERATOR, identity="carl@acme.example", roles=["clerk", "admin"])
    for key_id in ((await issued_by_operator(shared_gateway))["id"], stronger.id, shared_gateway.acme.key.id):
        assert (await rotate(http, key_id)).status_code == 403, "a right to revoke keys is none to issue them"
    assert (await rotate(http, "key-0000000000000000")).status_code == 404
    assert (await rotate(http, clerk.id)).status_code == 201


async def test_a_revoked_and_an_erased_holders_key_are_not_rotated(shared_gateway: Gateway) -> None:
    old, bob = await bobs(shared_gateway)
    other = await issued_by_operator(shared_gateway)
    assert (await shared_gateway.http.delete(f"/v1/keys/{other['id']}")).status_code == 204
    assert (await rotate(bob, other["id"])).status_code == 404
    assert (await rotate(shared_gateway.client(other["secret"]), old["id"])).status_code == 401


async def test_the_keys_of_a_holder_are_limited_and_those_that_ended_do_not_count(shared_gateway: Gateway) -> None:
    old, bob = await bobs(shared_gateway)
    for _ in range(KEYS_OF_HOLDER_MAX - 1):
        assert (await bob.post("/v1/keys", json={"identity": BOB, "roles": ["etl"]})).status_code == 201
    for refused in (
        await bob.post("/v1/keys", json={"identity": BOB, "roles": ["etl"]}),
        await rotate(bob, old["id"]),
    ):
        assert (refused.status_code, error_of(refused)["type"]) == (422, "UnprocessableEntityException")
        assert f"at most {KEYS_OF_HOLDER_MAX} keys of one holder" in error_of(refused)["message"]
    assert (await rotate(bob, old["id"], overlap_s=0)).status_code == 201, "one comes, one goes"
