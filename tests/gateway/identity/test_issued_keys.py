# SPDX-License-Identifier: Apache-2.0
"""
Keys that callers issue: their expiry, their actors, and what the log records of them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import httpx
import psycopg
import pytest

from gateway.admin.application import OPERATOR
from gateway.admin.limits import EXPIRY_MAX
from gateway.control.plane import ControlPlane, ControlUnknownError
from gateway.errors import UnauthorizedError
from gateway.guard_replay import gateway_guards, subject_of
from gateway.identity import Authenticator, Principal
from gateway.identity.key_macs import open_key_macs
from gateway.identity.principal import NotInForceError
from gateway.identity.revoking import revoke_keys
from lakeproof.erasing import open_eraser
from lakeproof.services import KEY_SECRET, Services, now
from lakeproof.tenants import found_tenant
from ledger.erasing.erase import ErasureRequest
from ledger.format import canonical
from ledger.format.event import Event, prepare
from ledger.format.events import ErasureReason, KeyCreated, KeyCreatedV1, from_data, to_data
from ledger.format.guards import GuardCall
from ledger.format.sequence import Group
from ledger.recovering.replay import ReplayedEntry as Replayed
from ledger.store.read import find_log
from testkit.gateway.log_contents import StoredEntry, read_stored
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, TABLES, error_of
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOB = "bob@acme.example"
DAY = timedelta(days=1)


class Calendar:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = now()

    def __call__(self) -> datetime:
        return self.now


async def issue(http: httpx.AsyncClient, identity: str = BOB, **more: object) -> dict[str, str]:
    answer = await http.post("/v1/keys", json={"identity": identity, "roles": ["data-eng"], **more})
    assert answer.status_code == 201, answer.text
    issued: dict[str, str] = answer.json()
    return issued


async def who_is(gateway: Gateway, secret: str) -> Principal:
    return await gateway.services.gateway.authenticator.authenticate(f"Bearer {secret}")


async def permit_all(gateway: Gateway) -> None:
    """Let everybody with a key of the tenant do everything, so that no test here is about a right."""
    rule = {
        "id": "all",
        "effect": "permit",
        "expression": "'data-eng' in roles && has(grant.identity) && has(grant.roles)",
    }
    assert (await gateway.http.post("/v1/access-rules", json=rule)).status_code == 201


async def key_events(gateway: Gateway, key_id: str) -> list[StoredEntry]:
    return await read_stored(gateway.services, gateway.acme.log_id, key=f"key:{key_id}")


# The end of a key


async def test_a_key_is_refused_by_the_next_request_once_its_time_has_passed(shared_gateway: Gateway) -> None:
    services, calendar = shared_gateway.services, Calendar()
    await permit_all(shared_gateway)
    end = calendar.now + DAY
    issued = await issue(shared_gateway.http, expires_at=end.isoformat())
    lend = partial(services.gateway.database.as_role, services.gateway.roles.gateway)
    macs = open_key_macs(services.installation.keys / KEY_SECRET)
    authenticator = Authenticator(lend, ControlPlane(lend), macs=macs, clock=calendar)
    bob = shared_gateway.through(key=issued["secret"], authenticator=authenticator, clock=calendar)
    calendar.now = end - timedelta(microseconds=1)
    assert (await bob.get(NAMESPACES)).status_code == 200
    principal = await authenticator.authenticate(f"Bearer {issued['secret']}")
    calendar.now = end
    for _ in range(2):
        assert (await bob.get(NAMESPACES)).status_code == 401
    with pytest.raises(NotInForceError):  # as an unknown key is
        await authenticator.authenticate(f"Bearer {issued['secret']}")
    state = await services.gateway.control.current(principal.log_id)
    principal.check_in_force(state, now=end - timedelta(microseconds=1))
    with pytest.raises(UnauthorizedError):
        principal.check_in_force(state, now=end)


async def test_a_key_that_ends_during_a_request_changes_nothing(shared_gateway: Gateway) -> None:
    calendar = Calendar()
    await permit_all(shared_gateway)
    issued = await issue(shared_gateway.http, expires_at=(calendar.now + DAY).isoformat())
    told = await read_stored(shared_gateway.services, shared_gateway.acme.log_id)
    # The authenticator's clock is before the end, and the one by which the request is judged behind it.
    calendar.now += 2 * DAY
    late = shared_gateway.through(key=issued["secret"], clock=calendar)
    answer = await late.post(NAMESPACES, json={"namespace": ["late"]})
    assert (answer.status_code, error_of(answer)["type"]) == (401, "NotAuthorizedException")
    assert await read_stored(shared_gateway.services, shared_gateway.acme.log_id) == told


async def test_the_end_of_a_key_is_shown_and_in_the_log(shared_gateway: Gateway) -> None:
    end = now() + DAY
    issued = await issue(shared_gateway.http, expires_at=end.astimezone(timezone(timedelta(hours=1))).isoformat())
    assert issued["expires_at"] == canonical.format_time(end)
    keys = {key["id"]: key for key in (await shared_gateway.http.get("/v1/keys")).json()["keys"]}
    assert keys[issued["id"]]["expires_at"] == issued["expires_at"]
    assert keys[shared_gateway.acme.key.id]["expires_at"] is None
    (created,) = await key_events(shared_gateway, issued["id"])
    assert created.entry.version == 2
    assert from_data(KeyCreated, created.entry.data).expires_at == issued["expires_at"]


@pytest.mark.parametrize(
    "end",
    [
        "",
        "soon",
        "90d",
        "2027-01-31",
        "2027-01-31T12:00:00",
        "2027-02-31T12:00:00Z",
        "2027-01-31T12:00:00Z\n",
        "2027-01-31T12:00:00.1234567Z",
        "٢٠٢٧-01-31T12:00:00Z",
        "1999-12-31T23:59:59Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        pytest.param((now() + EXPIRY_MAX + DAY).isoformat(), id="beyond the last"),
        1_800_000_000,
        True,
    ],
)
async def test_an_end_that_is_none_or_has_passed_or_is_absurd_is_refused(module_gateway: Gateway, end: object) -> None:
    told = await read_stored(module_gateway.services, module_gateway.acme.log_id)
    answer = await module_gateway.http.post("/v1/keys", json={"identity": BOB, "expires_at": end})
    assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException"), answer.text
    assert error_of(answer)["message"].startswith("expires_at: ")
    assert await read_stored(module_gateway.services, module_gateway.acme.log_id) == told


async def test_an_expired_key_can_be_revoked_like_any_other(shared_gateway: Gateway) -> None:
    issued = await issue(shared_gateway.http, expires_at=(now() + DAY).isoformat())
    assert (await shared_gateway.http.delete(f"/v1/keys/{issued['id']}")).status_code == 204
    with pytest.raises(NotInForceError):
        await who_is(shared_gateway, issued["secret"])


async def test_no_key_is_issued_with_one_that_it_would_outlive(shared_gateway: Gateway) -> None:
    await permit_all(shared_gateway)
    end = now() + DAY
    issued = await issue(shared_gateway.http, expires_at=end.isoformat())
    bob = shared_gateway.client(issued["secret"])
    for later in (None, (end + timedelta(seconds=1)).isoformat()):
        answer = await bob.post("/v1/keys", json={"identity": BOB, "expires_at": later})
        assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException"), answer.text
        assert f"no later than {issued['expires_at']}" in error_of(answer)["message"]
    for earlier in (end, end - timedelta(hours=1)):
        answer = await bob.post("/v1/keys", json={"identity": BOB, "expires_at": earlier.isoformat()})
        assert answer.status_code == 201, answer.text


# For whom a key acts


async def test_a_key_that_alice_issues_for_bob_is_not_bobs_actor(shared_gateway: Gateway) -> None:
    admin, log_id = shared_gateway.services.gateway.admin, shared_gateway.acme.log_id
    bobs = await admin.create_key(log_id, OPERATOR, identity=BOB, roles=[])
    issued = await issue(shared_gateway.http)
    assert issued["actor"] not in {bobs.actor, shared_gateway.acme.key.actor}
    acting = await who_is(shared_gateway, issued["secret"])
    assert (acting.actor, acting.sub, acting.issuer) == (issued["actor"], BOB, shared_gateway.acme.key.actor)
    assert (await who_is(shared_gateway, bobs.secret)).issuer is None
    (created,) = await key_events(shared_gateway, issued["id"])
    assert created.entry.actor == shared_gateway.acme.key.actor
    assert from_data(KeyCreated, created.entry.data).issuer == shared_gateway.acme.key.actor
    keys = {key["id"]: key for key in (await shared_gateway.http.get("/v1/keys")).json()["keys"]}
    assert (keys[bobs.id]["issuer"], keys[issued["id"]]["issuer"]) == (None, shared_gateway.acme.key.actor)


async def test_what_one_issuer_gives_to_one_identity_acts_as_one(shared_gateway: Gateway) -> None:
    first, second, other = [await issue(shared_gateway.http, who) for who in (BOB, BOB, "eve@acme.example")]
    assert first["actor"] == second["actor"] != other["actor"]


async def test_no_detour_leads_from_an_issued_key_to_the_persons_own_actor(shared_gateway: Gateway) -> None:
    await permit_all(shared_gateway)
    admin, log_id = shared_gateway.services.gateway.admin, shared_gateway.acme.log_id
    own = {
        (await admin.create_key(log_id, OPERATOR, identity=who, roles=[])).actor for who in (BOB, "ada@acme.example")
    }
    as_bob = shared_gateway.client((await issue(shared_gateway.http))["secret"])
    for identity in (BOB, "ada@acme.example", "eve@acme.example"):
        issued = await issue(as_bob, identity)
        assert issued["actor"] not in own
        assert (await issue(shared_gateway.client(issued["secret"]), BOB))["actor"] not in own


async def test_a_key_that_an_identity_issues_to_itself_has_its_own_actor(shared_gateway: Gateway) -> None:
    await permit_all(shared_gateway)
    own = await issue(shared_gateway.http, "ada@acme.example")
    assert own["actor"] == shared_gateway.acme.key.actor
    assert (await who_is(shared_gateway, own["secret"])).issuer is None
    as_bob = await issue(shared_gateway.http)
    again = await issue(shared_gateway.client(as_bob["secret"]), BOB)
    assert again["actor"] == as_bob["actor"]
    assert (await who_is(shared_gateway, again["secret"])).issuer == shared_gateway.acme.key.actor


# What is recorded


async def test_the_record_of_a_decision_names_the_key_and_its_issuer(shared_gateway: Gateway) -> None:
    await permit_all(shared_gateway)
    issued = await issue(shared_gateway.http)
    bob = shared_gateway.client(issued["secret"])
    assert (await bob.post(NAMESPACES, json={"namespace": ["sales"]})).status_code == 200
    assert (await bob.post(TABLES, json=CREATE)).status_code == 200
    told = await read_stored(shared_gateway.services, shared_gateway.acme.log_id)
    decided = [one for one in told if one.entry.type == "commit.decided"]
    assert len(decided) == 2
    for one in decided:
        assert one.entry.actor == issued["actor"]
        principal = json.loads(one.parts["principal"])
        assert principal == {
            "actor": issued["actor"],
            "email": None,
            "issuer": shared_gateway.acme.key.actor,
            "key": issued["id"],
            "roles": ["data-eng"],
            "source": "api_key",
            "sub": BOB,
        }


async def test_the_log_distinguishes_two_keys_of_one_person(shared_gateway: Gateway) -> None:
    second = await issue(shared_gateway.http, "ada@acme.example")
    for http, name in ((shared_gateway.http, "a"), (shared_gateway.client(second["secret"]), "b")):
        assert (await http.post(NAMESPACES, json={"namespace": [name]})).status_code == 200
    told = await read_stored(shared_gateway.services, shared_gateway.acme.log_id)
    keys = [json.loads(one.parts["principal"])["key"] for one in told if one.entry.type == "commit.decided"]
    assert keys == [shared_gateway.acme.key.id, second["id"]]


async def test_an_edit_names_the_key_that_it_was_made_with(shared_gateway: Gateway) -> None:
    issued = await issue(shared_gateway.http)
    (created,) = await key_events(shared_gateway, issued["id"])
    principal = json.loads(created.parts["principal"])
    assert (principal["key"], principal["sub"]) == (shared_gateway.acme.key.id, "ada@acme.example")
    assert subject_of(created.entry, "principal") == shared_gateway.acme.key.actor
    by_operator = await shared_gateway.services.gateway.admin.create_key(
        shared_gateway.acme.log_id, OPERATOR, identity=BOB, roles=[]
    )
    (created,) = await key_events(shared_gateway, by_operator.id)
    assert (created.entry.actor, dict(created.parts)) == ("system", {})


async def test_a_refused_read_names_the_key(shared_gateway: Gateway) -> None:
    issued = await issue(shared_gateway.http, roles=[])
    assert (await shared_gateway.client(issued["secret"]).get(ORDERS)).status_code == 403
    refused = (await read_stored(shared_gateway.services, shared_gateway.acme.log_id))[-1].entry
    assert (refused.type, refused.version, refused.actor) == ("access.refused", 2, issued["actor"])
    assert refused.data["key"] == issued["id"]


# Erasing


async def test_erasing_a_person_reaches_every_actor_of_theirs(shared_gateway: Gateway) -> None:
    await permit_all(shared_gateway)
    services, log_id = shared_gateway.services, shared_gateway.acme.log_id
    await shared_gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})
    own = await services.gateway.admin.create_key(log_id, OPERATOR, identity=BOB, roles=["data-eng"])
    issued = await issue(shared_gateway.http)
    clients = [shared_gateway.client(secret) for secret in (own.secret, issued["secret"])]
    for number, client in enumerate(clients):
        assert (await client.post(f"{NAMESPACES}/sales/properties", json={"updates": {"n": str(number)}})).is_success
    await erase(shared_gateway, own.actor)
    told = await read_stored(services, log_id)
    erased = {str(one.entry.data["subject"]) for one in told if one.entry.type == "payload.erased"}
    assert erased == {own.actor, issued["actor"]}
    assert [client.status_code for client in [await each.get(NAMESPACES) for each in clients]] == [401, 401]
    for one in told:
        assert not one.parts or one.entry.actor == shared_gateway.acme.key.actor
    assert (await shared_gateway.http.get(NAMESPACES)).status_code == 200, "whoever issued the key is not erased"
    async with services.gateway.database.as_role(services.gateway.roles.projector) as connection:
        rows = await connection.execute("SELECT identity FROM ledger.subjects WHERE log_id = %s", (log_id,))
        assert await rows.fetchall() == [("ada@acme.example",)]


async def erase(gateway: Gateway, subject: str) -> None:
    installation = gateway.services.installation
    async with (
        installation.connect(installation.roles.auditor) as auditor,
        open_eraser(installation, auditor) as eraser,
    ):
        log = await find_log(auditor, installation.origin(gateway.acme.tenant))
        await eraser.erase_person(log, subject, ErasureRequest(reason=ErasureReason.REQUEST, at=now()))


# Logs from before


async def put(services: Services, log_id: int, event: KeyCreatedV1, *, version: int = 1) -> None:
    """Append a `key.created` as another process would, with the guard that makes its row."""
    prepared = prepare(
        Event(
            type=event.TYPE,
            version=version,
            key=f"key:{event.id}",
            actor="system",
            occurred_at=now(),
            data=to_data(event),
        )
    )
    guards = (
        GuardCall("aggregate.create", {"key": f"key:{event.id}"}),
        GuardCall(
            "key.create",
            {"key_id": event.id, "prefix": event.prefix, "hash": "$argon2id$", "actor": event.actor},
        ),
    )
    await services.gateway.append(log_id, Group(id=services.gateway.new_group_id(), then=(prepared,), guard=guards))


async def test_a_key_of_an_old_log_is_in_force_without_an_end(module_services: Services) -> None:
    old = await found_tenant(module_services, name="old", identity="ada@old.example")
    event = KeyCreatedV1(id="old", version=1, prefix="abcdefghij23", actor=old.key.actor, roles=("r",))
    await put(module_services, old.log_id, event)
    key = (await module_services.gateway.control.current(old.log_id)).keys["old"]
    assert (key.expires_at, key.issuer, key.is_expired(datetime.max.replace(tzinfo=UTC))) == (None, None, False)
    installation = module_services.installation
    dsn = installation.as_role(installation.roles.auditor)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as auditor:
        log = await find_log(auditor, installation.origin(old.tenant))
    revoked = await revoke_keys(module_services.gateway.control, clock=now)(log, old.key.actor)
    assert len(revoked.each) == 2


async def test_either_version_replays_to_the_row_that_its_guard_made(module_services: Services) -> None:
    both = await found_tenant(module_services, name="both", identity="ada@both.example")
    event = KeyCreatedV1(id="old", version=1, prefix="abcdefghij25", actor=both.key.actor, roles=())
    await put(module_services, both.log_id, event)
    entries = [one.entry for one in await read_stored(module_services, both.log_id) if one.entry.type == "key.created"]
    assert [entry.version for entry in entries] == [2, 1]
    guards = gateway_guards(module_services.gateway.random)
    for entry in entries:
        (call,) = guards([Replayed(entry=entry, data=b"", parts=())])
        assert call.guard == "key.create"
        told = {name: call.parameters[name] for name in ("key_id", "prefix", "actor")}
        assert told == {"key_id": entry.data["id"], "prefix": entry.data["prefix"], "actor": both.key.actor}


async def test_a_key_of_a_version_to_come_stops_this_process(module_services: Services) -> None:
    newer = await found_tenant(module_services, name="newer", identity="ada@newer.example")
    event = KeyCreatedV1(id="new", version=1, prefix="abcdefghij24", actor=newer.key.actor, roles=())
    await put(module_services, newer.log_id, event, version=3)
    with pytest.raises(ControlUnknownError, match=r"key\.created of version 3"):
        await module_services.gateway.control.current(newer.log_id)


async def test_the_end_of_a_key_is_a_canonical_time(shared_gateway: Gateway) -> None:
    end = now() + DAY
    issued = await shared_gateway.services.gateway.admin.create_key(
        shared_gateway.acme.log_id, OPERATOR, identity=BOB, roles=[], expires_at=end
    )
    (created,) = await key_events(shared_gateway, issued.id)
    assert canonical.parse_time(str(created.entry.data["expires_at"])) == end
