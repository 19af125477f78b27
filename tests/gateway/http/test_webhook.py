# SPDX-License-Identifier: Apache-2.0
"""
`POST /v1/webhooks/polaris` as its reference has it: only signed callbacks count, and other senders learn nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.errors import BadRequestError, UnavailableError
from gateway.http.webhooks import LOCATION_LENGTH_MAX, SECRETS_MAX, parse_callback
from ledger.errors import LogUnavailableError, OutcomeUnknownError, QueueFullError
from ledger.format.entry import Entry, parse_entry
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.read import read_entries
from projections.errors import SecretMissingError
from testkit.gateway.sales import error_of
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/v1/webhooks/polaris"
SECRET = "correct horse battery staple"
LOCATION = "s3://warehouse/sales/orders/metadata/00042-abc123.metadata.json"
# RFC 4231, test case 2 (HMAC-SHA256): what a signature is, with its source.
RFC_4231_2 = (
    b"Jefe",
    b"what do ya want for nothing?",
    "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
)


class Kept(dict[tuple[UUID, str], str]):
    """Secrets of the test's own (implements `gateway.catalogs.upstreams.Secrets`)."""

    looked: list[str]

    def read(self, tenant: UUID, secret: str) -> str:
        self.looked.append(secret)
        if (tenant, secret) not in self:
            raise SecretMissingError(f"no secret {secret}")
        return self[tenant, secret]


class Callbacks:
    """A gateway whose tenant has a catalog `polaris` that knows a secret, and a client that has no key."""

    def __init__(self, gateway: Gateway, http: httpx.AsyncClient, kept: Kept) -> None:
        self.gateway, self.http, self.kept = gateway, http, kept
        self.tenant = gateway.acme.tenant
        # Fewer than would wait longer for a connection of the gateway's pool than it lets them, on a busy machine.
        self._turns = asyncio.Semaphore(32)

    def body(self, **members: object) -> bytes:
        said = {
            "tenant_id": str(self.tenant),
            "metadata_location": LOCATION,
            "namespace": "sales",
            "table_name": "orders",
            **members,
        }
        return json.dumps({name: value for name, value in said.items() if value is not None}).encode()

    async def send(self, body: bytes, signature: str | None = None, **headers: str) -> httpx.Response:
        signature = sign(body) if signature is None else signature
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._turns:
            return await self.http.post(PATH, content=body, headers={"X-Polaris-Signature": signature, **named})

    async def entries(self) -> list[Entry]:
        services = self.gateway.services
        async with services.gateway.database.as_role(services.installation.roles.auditor) as connection:
            found = await read_entries(connection, self.gateway.acme.log_id, from_index=0, to_index=10_000)
        return [entry for entry in map(parse_entry, found) if entry.type == "trigger.received"]

    async def triggers(self) -> list[Mapping[str, Any]]:
        return [entry.data for entry in await self.entries()]

    async def add_catalog(self, alias: str, secret: str | None, **options: str) -> None:
        named = {"webhook-secret": f"secret:{alias}-hook"} if secret else {}
        if secret:
            self.kept[self.tenant, f"{alias}-hook"] = secret
        await self.gateway.services.gateway.admin.create_catalog(
            self.gateway.acme.log_id,
            OPERATOR,
            alias=alias,
            kind="rest",
            options={"uri": "http://127.0.0.1:9", **named, **options},
        )


def sign(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


@asynccontextmanager
async def taking_callbacks(gateway: Gateway) -> AsyncIterator[Callbacks]:
    """Let the tenant of `gateway` take callbacks."""
    kept = Kept()
    kept.looked = []
    async with gateway.through(webhook_secrets=kept) as http:
        del http.headers["Authorization"]
        callbacks = Callbacks(gateway, http, kept)
        await callbacks.add_catalog("polaris", SECRET)
        yield callbacks


@pytest_asyncio.fixture(loop_scope="module")
async def callbacks(shared_gateway: Gateway) -> AsyncIterator[Callbacks]:
    """A tenant of the test's own that takes callbacks."""
    async with taking_callbacks(shared_gateway) as callbacks:
        yield callbacks


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_callbacks(module_gateway: Gateway) -> AsyncIterator[Callbacks]:
    """A tenant that takes callbacks, for the tests of those that are refused."""
    async with taking_callbacks(module_gateway) as callbacks:
        yield callbacks


async def test_a_signed_callback_is_in_the_log_when_it_is_answered(callbacks: Callbacks) -> None:
    answer = await callbacks.send(callbacks.body())
    assert (answer.status_code, answer.content) == (200, b"")
    (entry,) = await callbacks.entries()
    assert (entry.key, entry.actor) == ("table:polaris/sales/orders", "system")
    assert entry.data == {
        "alias": "polaris",
        "file_count": 0,
        "files": [],
        "identifier": {"alias": "polaris", "name": "orders", "namespace": ["sales"]},
        "metadata_location": LOCATION,
        "source": "polaris-webhook",
    }


async def test_the_signature_is_the_hmac_of_the_bytes_that_were_sent(callbacks: Callbacks) -> None:
    key, data, digest = RFC_4231_2
    assert sign(data, key.decode()) == digest
    spaced = json.dumps(json.loads(callbacks.body()), indent=3).encode() + b"\n\n"
    assert (await callbacks.send(spaced, sign(callbacks.body()))).status_code == 401
    assert (await callbacks.send(spaced)).status_code == 200
    assert (await callbacks.send(spaced, sign(spaced).upper())).status_code == 200


async def test_a_callback_that_comes_again_adds_nothing(callbacks: Callbacks) -> None:
    answers = await asyncio.gather(*(callbacks.send(callbacks.body()) for _ in range(8)))
    answers.append(await callbacks.send(callbacks.body(namespace="other", table_name="name")))
    answers.append(await callbacks.send(callbacks.body(namespace=None)))
    assert {answer.status_code for answer in answers} == {200}
    assert len(await callbacks.triggers()) == 1
    assert (await callbacks.send(callbacks.body(metadata_location=f"{LOCATION}.next"))).status_code == 200
    assert len(await callbacks.triggers()) == 2


@pytest.mark.parametrize(
    ("members", "key"),
    [
        ({"namespace": None}, "catalog:polaris"),
        ({"table_name": None}, "catalog:polaris"),
        ({"namespace": "", "table_name": ""}, "catalog:polaris"),
        ({"namespace": ["a", "b.c"]}, "table:polaris/a/b.c/orders"),
        ({"namespace": "a.b"}, "table:polaris/a.b/orders"),
        ({"more": {"than": ["expected"]}}, "table:polaris/sales/orders"),
    ],
)
async def test_the_name_of_the_table_is_advice(callbacks: Callbacks, members: dict[str, Any], key: str) -> None:
    assert (await callbacks.send(callbacks.body(**members))).status_code == 200
    assert [entry.key for entry in await callbacks.entries()] == [key]


async def test_the_tenant_may_stand_in_the_header_in_the_body_or_in_both(callbacks: Callbacks) -> None:
    tenant = str(callbacks.tenant)
    assert (await callbacks.send(callbacks.body(tenant_id=None), X_Polaris_Tenant=tenant)).status_code == 200
    assert (await callbacks.send(callbacks.body(tenant_id=""), X_Polaris_Tenant=tenant.upper())).status_code == 200
    assert (await callbacks.send(callbacks.body(), X_Polaris_Tenant=tenant)).status_code == 200
    other = await callbacks.send(callbacks.body(), X_Polaris_Tenant=str(uuid4()))
    assert other.status_code == 400
    assert "found another" in error_of(other)["message"]


async def test_the_tenant_is_named_as_tenants_add_prints_it(callbacks: Callbacks) -> None:
    printed = callbacks.tenant.hex
    assert (await callbacks.send(callbacks.body(tenant_id=printed))).status_code == 200
    assert (await callbacks.send(callbacks.body(), X_Polaris_Tenant=printed.upper())).status_code == 200
    assert (await callbacks.send(callbacks.body(tenant_id=uuid4().hex))).status_code == 401


async def test_a_flipped_bit_of_a_signature_is_refused_wherever_it_is(module_callbacks: Callbacks) -> None:
    body, right = module_callbacks.body(), bytes.fromhex(sign(module_callbacks.body()))
    wrong = [(int.from_bytes(right) ^ (1 << bit)).to_bytes(32).hex() for bit in range(0, 256, 9)]
    answers = await asyncio.gather(*(module_callbacks.send(body, signature) for signature in wrong))
    assert {answer.status_code for answer in answers} == {401}
    assert await module_callbacks.triggers() == []


async def test_a_changed_byte_of_a_body_is_refused_wherever_it_is(module_callbacks: Callbacks) -> None:
    body = module_callbacks.body()
    signature = sign(body)
    changed = [body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :] for at in range(0, len(body), 5)]
    answers = await asyncio.gather(*(module_callbacks.send(other, signature) for other in changed))
    assert {answer.status_code for answer in answers} <= {400, 401}
    assert await module_callbacks.triggers() == []


@pytest.mark.parametrize("signature", ["x", "0" * 63, "0" * 65, "0" * 64, "g" * 64, "sha256=" + "0" * 64, "é" * 32])
async def test_what_is_no_signature_is_a_wrong_one(module_callbacks: Callbacks, signature: str) -> None:
    body = module_callbacks.body()
    headers = {b"X-Polaris-Signature": signature.encode("latin-1")}
    answer = await module_callbacks.http.post(PATH, content=body, headers=headers)
    assert answer.status_code == 401


async def test_senders_without_a_secret_do_not_learn_whether_a_tenant_exists(callbacks: Callbacks) -> None:
    """Same bytes, same headers, same number of looks: whoever asks, and whatever is there."""
    known = callbacks.tenant
    answers, looks = [], []
    bodies = [callbacks.body(tenant_id=str(tenant)) for tenant in (known, uuid4(), UUID(int=0))]
    del callbacks.kept[known, "polaris-hook"]
    for body, signature in [(bodies[0], "0" * 64), (bodies[0], None), (bodies[1], None), (bodies[2], None)]:
        callbacks.kept.looked.clear()
        answers.append(await callbacks.send(body, signature))
        looks.append(len(callbacks.kept.looked))
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    for answer in answers:
        del answer.headers["x-request-id"]  # each has its own
    assert len({str(answer.headers) for answer in answers}) == 1
    assert looks == [SECRETS_MAX] * 4


async def test_a_refusal_is_counted_like_any_without_credentials(module_callbacks: Callbacks) -> None:
    counted: list[str] = []

    class Refusals:
        async def unauthenticated(self, operation: str) -> None:
            counted.append(operation)

    async with module_callbacks.gateway.through(webhook_secrets=module_callbacks.kept, refusals=Refusals()) as http:
        await http.post(PATH, content=module_callbacks.body(), headers={"X-Polaris-Signature": "0" * 64})
        await http.post(PATH, content=b"{}", headers={"X-Polaris-Signature": "0" * 64})
    assert counted == [f"POST {PATH}"]


async def test_another_tenants_secret_signs_nothing(module_callbacks: Callbacks) -> None:
    module_callbacks.kept[uuid4(), "polaris-hook"] = "theirs"
    body = module_callbacks.body()
    assert (await module_callbacks.send(body, sign(body, "theirs"))).status_code == 401


async def test_of_several_catalogs_the_one_whose_secret_signed_is_meant(callbacks: Callbacks) -> None:
    await callbacks.add_catalog("quiet", None)
    await callbacks.add_catalog("second", "another secret")
    body = callbacks.body()
    assert (await callbacks.send(body, sign(body, "another secret"))).status_code == 200
    assert (await callbacks.send(body)).status_code == 200
    assert [trigger["alias"] for trigger in await callbacks.triggers()] == ["second", "polaris"]


async def test_of_catalogs_with_one_secret_the_one_that_holds_the_file_is_meant(callbacks: Callbacks) -> None:
    await callbacks.add_catalog("near", SECRET, location="s3://warehouse/sal")
    await callbacks.add_catalog("here", SECRET, location="s3://warehouse/sales/")
    assert (await callbacks.send(callbacks.body())).status_code == 200
    assert [trigger["alias"] for trigger in await callbacks.triggers()] == ["here"]


async def test_the_most_specific_folder_decides_whichever_catalog_signed(callbacks: Callbacks) -> None:
    await callbacks.add_catalog("around", SECRET, location="s3://nested/sales")
    await callbacks.add_catalog("within", "another secret", location="s3://nested/sales/orders/")
    body = callbacks.body(metadata_location=LOCATION.replace("warehouse", "nested"))
    assert (await callbacks.send(body)).status_code == 200
    assert [trigger["alias"] for trigger in await callbacks.triggers()] == ["within"]


async def test_so_many_secrets_are_tried_and_no_more(callbacks: Callbacks) -> None:
    for number in range(SECRETS_MAX):
        await callbacks.add_catalog(f"more{number}", f"secret of {number}")
    last, beyond = f"secret of {SECRETS_MAX - 2}", f"secret of {SECRETS_MAX - 1}"
    body = callbacks.body()
    assert (await callbacks.send(body, sign(body, last))).status_code == 200
    assert (await callbacks.send(body, sign(body, beyond))).status_code == 401


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"no json", "body"),
        (b"[]", "body"),
        (b"null", "body"),
        (b"[" * 100_000, "body"),
        (b"\xff", "body"),
        (b"{}", "tenant_id"),
        ({"tenant_id": None}, "tenant_id"),
        ({"tenant_id": ""}, "tenant_id"),
        ({"tenant_id": 5}, "tenant_id"),
        ({"tenant_id": "acme"}, "tenant_id"),
        ({"tenant_id": "01900a3bc4d57e6f89abcdef0123456"}, "tenant_id"),
        ({"tenant_id": "01900a3bc4d5-7e6f89abcdef01234567"}, "tenant_id"),
        ({"tenant_id": "{01900a3b-c4d5-7e6f-89ab-cdef01234567}"}, "tenant_id"),
        ({"tenant_id": "01900a3b-c4d5-7e6f-89ab-cdef0123456g"}, "tenant_id"),
        ({"tenant_id": "01900a3b-c4d5-7e6f-89ab-cdef01234567\n"}, "tenant_id"),
        ({"metadata_location": None}, "metadata_location"),
        ({"metadata_location": ""}, "metadata_location"),
        ({"metadata_location": 5}, "metadata_location"),
        ({"metadata_location": "s3://a\x00b"}, "metadata_location"),
        ({"metadata_location": "s3://" + "a" * LOCATION_LENGTH_MAX}, "metadata_location"),
        ({"namespace": 5}, "namespace"),
        ({"namespace": ["a"] * 17}, "namespace"),
        ({"table_name": "\x1f"}, "table_name"),
        ({"table_name": "a" * 256}, "table_name"),
    ],
)
async def test_what_is_malformed_is_refused_before_anything_is_looked_up(
    module_callbacks: Callbacks, body: bytes | dict[str, Any], field: str
) -> None:
    sent, before = module_callbacks.body(**body) if isinstance(body, dict) else body, list(module_callbacks.kept.looked)
    answer = await module_callbacks.send(sent)
    assert answer.status_code == 400
    assert error_of(answer)["message"].startswith(field)
    assert module_callbacks.kept.looked == before


async def test_a_header_that_is_missing_empty_or_twice_there_is_refused(module_callbacks: Callbacks) -> None:
    body, right = module_callbacks.body(), sign(module_callbacks.body())
    name = "X-Polaris-Signature"
    for headers in ([], [(name, "")], [(name, "  ")], [(name, right), (name, right)]):
        answer = await module_callbacks.http.post(PATH, content=body, headers=headers)
        assert answer.status_code == 400
        assert error_of(answer)["message"].startswith("x-polaris-signature")
    assert (await module_callbacks.send(body, X_Polaris_Tenant="acme")).status_code == 400


async def test_a_body_is_capped_at_256_kib(callbacks: Callbacks) -> None:
    largest = callbacks.body(padding="")
    largest = callbacks.body(padding="x" * (256 * 1024 - len(largest)))
    assert len(largest) == 256 * 1024
    assert (await callbacks.send(largest)).status_code == 200
    assert (await callbacks.send(largest + b" ")).status_code == 413

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65_536

    answer = await callbacks.http.post(PATH, content=endless(), headers={"X-Polaris-Signature": "0" * 64})
    assert answer.status_code == 413


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "HEAD"])
async def test_any_other_method_is_refused(module_callbacks: Callbacks, method: str) -> None:
    assert (await module_callbacks.http.request(method, PATH)).status_code == 405


async def test_callbacks_that_are_switched_off_are_gone_for_every_sender(callbacks: Callbacks) -> None:
    async with callbacks.gateway.through(webhook_secrets=None) as http:
        body = callbacks.body()
        for content, signature in ((body, sign(body)), (b"x" * 300_000, "")):
            answer = await http.post(PATH, content=content, headers={"X-Polaris-Signature": signature})
            assert answer.status_code == 410
    assert await callbacks.triggers() == []


@pytest.mark.parametrize("away", [LogUnavailableError, QueueFullError, OutcomeUnknownError])
async def test_nothing_is_answered_200_before_it_is_durable(callbacks: Callbacks, away: type[Exception]) -> None:
    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        raise away("away")

    async with callbacks.gateway.through(webhook_secrets=callbacks.kept, append=append) as http:
        body = callbacks.body()
        answer = await http.post(PATH, content=body, headers={"X-Polaris-Signature": sign(body)})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert (await callbacks.send(body)).status_code == 200


async def test_a_database_that_is_away_is_503_for_everyone(callbacks: Callbacks) -> None:
    class Away:
        def as_role(self, _role: str) -> Any:
            raise UnavailableError("the database cannot be reached")

    async with callbacks.gateway.through(webhook_secrets=callbacks.kept, database=Away()) as http:
        for tenant in (callbacks.tenant, uuid4()):
            body = callbacks.body(tenant_id=str(tenant))
            answer = await http.post(PATH, content=body, headers={"X-Polaris-Signature": sign(body)})
            assert answer.status_code == 503


async def test_a_catalog_that_was_retired_signs_nothing_any_more(callbacks: Callbacks) -> None:
    assert (await callbacks.send(callbacks.body())).status_code == 200
    admin = callbacks.gateway.services.gateway.admin
    await admin.retire_catalog(callbacks.gateway.acme.log_id, OPERATOR, alias="polaris")
    assert (await callbacks.send(callbacks.body())).status_code == 401


async def test_names_too_long_together_are_refused_once_it_is_known_who_asks(callbacks: Callbacks) -> None:
    body = callbacks.body(namespace=["東" * 200] * 3)
    assert (await callbacks.send(body, "0" * 64)).status_code == 401
    assert (await callbacks.send(body)).status_code == 400


async def test_a_parsed_callback_names_no_table_unless_both_names_are_there() -> None:
    body = json.dumps({"tenant_id": str(UUID(int=5)), "metadata_location": "s3://a/b", "namespace": []}).encode()
    callback = parse_callback(body, tenant_header=None)
    assert (callback.namespace, callback.name) == ((), None)
    with pytest.raises(BadRequestError, match="body"):
        parse_callback(body[:-1], tenant_header=None)
