# SPDX-License-Identifier: Apache-2.0
"""
API keys: their text, their hashes and their principals, on a real database.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from psycopg import AsyncConnection

from gateway.admin.application import OPERATOR, Editor
from gateway.control.plane import ControlPlane
from gateway.errors import GatewayError, UnauthorizedError, UnavailableError
from gateway.identity import Authenticator, Principal, PrincipalSource, key_lookups
from gateway.identity.api_keys import ApiKeyText, KeyHasher, format_secret, mint_key, parse_key
from gateway.identity.authenticator import parse_bearer
from gateway.identity.key_macs import KeyMacs, open_key_macs
from gateway.identity.key_rows import actor_for, create_guard
from gateway.identity.principal import NotInForceError
from gateway.identity.slow_checks import FAILURES_MAX
from lakeproof.services import KEY_SECRET, Services, new_group_id, now
from lakeproof.tenants import Founded, found_tenant
from ledger.errors import FormatError, KeyDirectoryError
from ledger.format.entry import Branch, parse_entry
from ledger.format.event import Event, prepare
from ledger.format.sequence import Appended, Group
from ledger.store.session import Connection
from testkit.servers.gateways import QUICK_HASHES

KEY = ApiKeyText(prefix="abcdefghij27", secret=format_secret(bytes(range(32))))
# The base64url of 00 01 … 1f without padding.
KEY_TEXT = "lp_abcdefghij27_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
# By hand: printf 'lakeproof API key\0lp_…' | openssl dgst -sha256 -mac HMAC -macopt hexkey:00…00
KEY_MAC = "39d19535bb1eec53478d7dee5429e38d686bfbd01560da3a0f57557f72a71252"
SECRET_ID = "8f9c528eafa60420"
# By hand: printf 'lakeproof key of access tokens\0' | openssl dgst -sha256 -mac HMAC -macopt hexkey:00…00
SIGNING_SEED = "8461edd8a095a1ddbbf0f5404a41d25ab908155ea4b98b3588ba5bb56c6536a3"

_random = Random(6750)  # noqa: S311  (keys of tests, repeatable)


class CountingHasher(KeyHasher):
    """Counts the hashes that were checked, as cheaply as argon2id allows."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost_kib=8)
        self.checked: list[str] = []

    def check(self, key: ApiKeyText, *, stored_hash: str) -> None:
        self.checked.append(stored_hash)
        super().check(key, stored_hash=stored_hash)


class Instance:
    """What one more gateway process would have: its own control plane and its own memory of keys."""

    def __init__(self, services: Services, *, known_max: int = 10, macs: KeyMacs | None = None) -> None:
        self.hasher = CountingHasher()
        self.looked_up = 0
        lend = partial(services.gateway.database.as_role, services.gateway.roles.gateway)

        @asynccontextmanager
        async def lend_for_keys() -> AsyncIterator[Connection]:
            self.looked_up += 1
            async with lend() as connection:
                yield connection

        self.authenticator = Authenticator(
            lend_for_keys,
            ControlPlane(lend),
            macs=macs or open_key_macs(services.installation.keys / KEY_SECRET),
            hasher=self.hasher,
            known_max=known_max,
        )

    async def __call__(self, secret: str) -> Principal:
        return await self.authenticator.authenticate(f"Bearer {secret}")


on_module_loop = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def services(module_services: Services) -> Services:
    """The services that the tests of this module share; each has tenants of its own."""
    return module_services


@pytest_asyncio.fixture(loop_scope="module")
async def acme(services: Services) -> Founded:
    return await found_tenant(services, name="acme", identity="ada@acme.example", roles=["data-eng"])


@pytest_asyncio.fixture(loop_scope="module")
async def other(services: Services) -> Founded:
    return await found_tenant(services, name="other", identity="ada@acme.example")


@pytest.fixture
def instance(services: Services) -> Instance:
    return Instance(services)


# The text of a key


def test_a_key_reads_as_its_prefix_and_its_secret_in_base64url() -> None:
    assert KEY.format() == KEY_TEXT
    assert parse_key(KEY_TEXT) == KEY
    assert "AAEC" not in repr(KEY)
    assert "secret" not in repr(KEY)


@given(random=st.integers(0, 2**64).map(lambda seed: Random(seed).randbytes))  # noqa: S311  (repeatable)
def test_a_minted_key_reads_back_as_itself(random: Any) -> None:
    key = mint_key(random)
    assert parse_key(key.format()) == key
    assert len(key.format()) == 3 + 12 + 1 + 43


@pytest.mark.parametrize(
    "text",
    [
        "",
        "None",
        KEY_TEXT[:-1],
        KEY_TEXT + "A",
        KEY_TEXT + "\n",
        KEY_TEXT + "=",
        KEY_TEXT[:-1] + "9",  # the same 32 bytes, spelled with other unused bits
        KEY_TEXT.replace("lp_", "LP_"),
        KEY_TEXT.replace("abcdefghij27", "abcdefghij01"),
        KEY_TEXT.replace("abcdefghij27", "ABCDEFGHIJ27"),
        KEY_TEXT.replace("Hh8", "Hh+"),
        KEY_TEXT.replace("Hh8", "Hhé"),
    ],
)
def test_no_other_text_is_a_key_and_none_is_repeated(text: str) -> None:
    with pytest.raises(UnauthorizedError) as refused:
        parse_key(text)
    assert "AAECAwQF" not in str(refused.value)


def test_a_hash_is_of_one_key_only() -> None:
    hasher = KeyHasher(time_cost=1, memory_cost_kib=8)
    stored = hasher.hash(KEY)
    assert stored.startswith("$argon2id$")
    assert stored != hasher.hash(KEY)  # another salt
    hasher.check(KEY, stored_hash=stored)
    for wrong in (
        ApiKeyText(prefix=KEY.prefix, secret=format_secret(bytes(32))),
        ApiKeyText(prefix="bbcdefghij27", secret=KEY.secret),
    ):
        with pytest.raises(NotInForceError):
            hasher.check(wrong, stored_hash=stored)
    for corrupt in ("", "$argon2id$", stored[:-1], stored.replace("argon2id", "argon2x")):
        with pytest.raises((FormatError, NotInForceError)):
            hasher.check(KEY, stored_hash=corrupt)


@pytest.mark.parametrize("header", [f"Bearer {KEY_TEXT}", f"bearer  {KEY_TEXT} ", f"BEARER {KEY_TEXT}"])
def test_the_scheme_is_bearer_in_any_case(header: str) -> None:
    assert parse_bearer(header) == KEY_TEXT


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (None, "found none"),
        ("", "another scheme"),
        ("Basic dXNlcjpwYXNz", "another scheme"),
        (KEY_TEXT, "another scheme"),
        ("Bearer", "not set"),
        ("Bearer ", "not set"),
        ("Bearer None", "the token 'None'"),
        ("Bearer null", "not set"),
    ],
)
def test_a_malformed_header_is_refused_in_words_that_repeat_no_secret(header: str | None, words: str) -> None:
    with pytest.raises(UnauthorizedError, match=words) as refused:
        parse_bearer(header)
    assert KEY_TEXT not in str(refused.value)
    assert "dXNl" not in str(refused.value)


# Who a key stands for


@on_module_loop
async def test_a_key_stands_for_its_identity_in_its_tenant(acme: Founded, instance: Instance) -> None:
    principal = await instance(acme.key.secret)
    assert principal == Principal(
        tenant=acme.tenant,
        log_id=acme.log_id,
        actor=acme.key.actor,
        issuer=None,
        sub="ada@acme.example",
        roles=("data-eng",),
        source=PrincipalSource.API_KEY,
        key_id=acme.key.id,
    )
    assert principal.payload() == {
        "actor": acme.key.actor,
        "email": None,
        "issuer": None,
        "key": acme.key.id,
        "roles": ["data-eng"],
        "source": "api_key",
        "sub": "ada@acme.example",
    }


@on_module_loop
async def test_a_wrong_secret_and_an_unknown_prefix_are_answered_and_cost_the_same(
    acme: Founded, instance: Instance
) -> None:
    right = parse_key(acme.key.secret)
    wrong = ApiKeyText(prefix=right.prefix, secret=format_secret(bytes(32))).format()
    unknown = ApiKeyText(prefix="aaaaaaaaaaaa", secret=right.secret).format()
    told = []
    for number, text in enumerate([wrong, unknown], start=1):
        with pytest.raises(UnauthorizedError) as refused:
            await instance(text)
        told.append(str(refused.value))
        assert instance.looked_up == number
    assert told[0] == told[1]
    assert instance.hasher.checked == []


@on_module_loop
async def test_a_key_is_looked_up_once_and_then_known(acme: Founded, instance: Instance) -> None:
    first = await instance(acme.key.secret)
    assert [await instance(acme.key.secret) for _ in range(5)] == [first] * 5
    assert (instance.looked_up, instance.hasher.checked) == (1, [])


@on_module_loop
async def test_a_wrong_secret_is_not_remembered(acme: Founded, instance: Instance) -> None:
    await instance(acme.key.secret)
    wrong = ApiKeyText(prefix=parse_key(acme.key.secret).prefix, secret=format_secret(bytes(32))).format()
    for _ in range(2):
        with pytest.raises(UnauthorizedError):
            await instance(wrong)
    assert instance.looked_up == 3


@on_module_loop
async def test_what_is_known_is_bounded(services: Services, acme: Founded) -> None:
    instance = Instance(services, known_max=1)
    second = await services.gateway.admin.create_key(acme.log_id, OPERATOR, identity="bob", roles=[])
    for secret in (acme.key.secret, second.secret, acme.key.secret):
        await instance(secret)
    assert instance.looked_up == 3


@on_module_loop
async def test_requests_that_arrive_during_a_look_up_share_the_next_one(acme: Founded, instance: Instance) -> None:
    unknown = [mint_key(_random.randbytes).format() for _ in range(50)]
    results = await asyncio.gather(*map(instance, [*unknown, acme.key.secret]), return_exceptions=True)
    assert [type(result) for result in results] == [NotInForceError] * 50 + [Principal]
    assert instance.looked_up <= 2


@on_module_loop
async def test_no_more_requests_wait_for_a_look_up_than_may(
    acme: Founded, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_lookups, "WAITING_MAX", 1)
    results = await asyncio.gather(*(instance(acme.key.secret) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [Principal, UnavailableError, UnavailableError]
    assert await instance(acme.key.secret) == results[0]


# Keys without a keyed hash: issued before there were any, or known under another secret


@pytest.fixture
def old_keys(acme: Founded, module_database: str) -> None:
    with psycopg.connect(module_database) as connection:
        connection.execute("DELETE FROM gateway.key_macs WHERE log_id = %s", (acme.log_id,))


@pytest.mark.usefixtures("old_keys")
@on_module_loop
async def test_an_old_key_is_checked_slowly_once_by_whichever_process(services: Services, acme: Founded) -> None:
    first, second = Instance(services), Instance(services)
    principals = await asyncio.gather(*(first(acme.key.secret) for _ in range(20)))
    assert len(set(principals)) == 1
    assert len(first.hasher.checked) == 1
    assert await second(acme.key.secret) == principals[0]
    assert second.hasher.checked == []


@pytest.mark.usefixtures("old_keys")
@on_module_loop
async def test_wrong_secrets_of_an_old_key_are_bounded_and_then_neither_checked_nor_called_unknown(
    services: Services, acme: Founded, instance: Instance
) -> None:
    second = await services.gateway.admin.create_key(acme.log_id, OPERATOR, identity="bob", roles=[])
    prefix = parse_key(acme.key.secret).prefix
    wrong = [
        ApiKeyText(prefix=prefix, secret=format_secret(bytes([number] * 32))).format()
        for number in range(FAILURES_MAX + 3)
    ]
    told = []
    for text in wrong:
        with pytest.raises(GatewayError) as refused:
            await instance(text)
        told.append(type(refused.value))
    assert told == [NotInForceError] * FAILURES_MAX + [UnavailableError] * 3
    assert len(instance.hasher.checked) == FAILURES_MAX
    with pytest.raises(UnavailableError):
        await instance(acme.key.secret)
    assert (await instance(second.secret)).sub == "bob", "other keys do not wait for that"


@pytest.mark.usefixtures("old_keys")
@on_module_loop
async def test_a_revoked_old_key_leaves_no_keyed_hash_behind(
    services: Services, acme: Founded, instance: Instance, module_database: str
) -> None:
    await instance(acme.key.secret)
    with psycopg.connect(module_database) as connection:
        assert connection.execute(
            "SELECT count(*) FROM gateway.key_macs WHERE log_id = %s", (acme.log_id,)
        ).fetchone() == (1,)
    await services.gateway.admin.revoke_key(acme.log_id, OPERATOR, key_id=acme.key.id)
    with psycopg.connect(module_database) as connection:
        assert connection.execute(
            "SELECT count(*) FROM gateway.key_macs WHERE log_id = %s", (acme.log_id,)
        ).fetchone() == (0,)


@on_module_loop
async def test_another_secret_of_the_installation_costs_one_slow_check_and_all_keys_still_work(
    services: Services, acme: Founded, instance: Instance
) -> None:
    elsewhere = Instance(services, macs=KeyMacs(bytes(32)))
    for each, checks in ((elsewhere, 1), (instance, 0), (Instance(services, macs=KeyMacs(bytes(32))), 0)):
        await each(acme.key.secret)
        assert len(each.hasher.checked) == checks


def test_a_keyed_hash_is_of_one_key_under_one_secret() -> None:
    macs = KeyMacs(bytes(32))
    assert macs.mac(KEY).hex() == KEY_MAC
    others = (
        ApiKeyText(prefix=KEY.prefix, secret=format_secret(bytes(32))),
        ApiKeyText(prefix="bbcdefghij27", secret=KEY.secret),
    )
    assert len({macs.mac(KEY), KeyMacs(bytes([1] * 32)).mac(KEY), *map(macs.mac, others)}) == 4
    assert macs.secret_id == SECRET_ID
    assert macs.signing_seed().hex() == SIGNING_SEED
    with pytest.raises(FormatError):
        KeyMacs(bytes(31))


def test_the_secret_is_made_once_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "secret"
    first = open_key_macs(path)
    assert open_key_macs(path).mac(KEY) == first.mac(KEY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert first.secret_id in repr(first)
    path.chmod(0o640)
    with pytest.raises(KeyDirectoryError, match="chmod 600"):
        open_key_macs(path)


@pytest.mark.parametrize("content", [b"", b"AAAA\n", b"\xff\n", b"!" * 44 + b"\n"])
def test_a_damaged_secret_is_refused_and_not_repeated(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_bytes(content)
    with pytest.raises(KeyDirectoryError, match="restore it from a backup, or remove it") as refused:
        open_key_macs(path)
    assert "!!!" not in str(refused.value)


# The end of a key


@on_module_loop
async def test_a_revoked_key_is_refused_at_once_by_every_instance(
    services: Services, acme: Founded, instance: Instance, module_database: str
) -> None:
    elsewhere = Instance(services)
    principal = await instance(acme.key.secret)
    await elsewhere(acme.key.secret)
    state = await services.gateway.control.current(acme.log_id)
    principal.check_in_force(state, now=now())
    by = Editor(actor=principal.actor, as_of=state.as_of)
    revoked = await services.gateway.admin.revoke_key(acme.log_id, by, key_id=acme.key.id)
    assert (revoked.retired, revoked.version) == (True, 2)
    for each in (instance, elsewhere, Instance(services)):
        for _ in range(2):
            with pytest.raises(NotInForceError):
                await each(acme.key.secret)
    with pytest.raises(NotInForceError):
        principal.check_in_force(await services.gateway.control.current(acme.log_id), now=now())
    with psycopg.connect(module_database) as connection:
        assert connection.execute(
            "SELECT count(*) FROM gateway.api_keys WHERE log_id = %s", (acme.log_id,)
        ).fetchone() == (0,)


@on_module_loop
async def test_a_key_whose_row_outlived_its_revocation_is_refused(
    services: Services, acme: Founded, instance: Instance, module_database: str
) -> None:
    with psycopg.connect(module_database) as connection:
        rows = connection.execute("SELECT * FROM gateway.api_keys WHERE log_id = %s", (acme.log_id,)).fetchall()
    await services.gateway.admin.revoke_key(acme.log_id, OPERATOR, key_id=acme.key.id)
    with psycopg.connect(module_database) as connection:
        connection.execute("INSERT INTO gateway.api_keys VALUES (%s, %s, %s, %s, %s)", rows[0])
    with pytest.raises(NotInForceError):
        await instance(acme.key.secret)


@on_module_loop
async def test_the_key_of_an_erased_identity_is_refused_by_the_next_request(
    acme: Founded, instance: Instance, module_database: str
) -> None:
    await instance(acme.key.secret)
    with psycopg.connect(module_database) as connection:
        connection.execute("DELETE FROM ledger.subjects WHERE actor = %s", (acme.key.actor,))
    with pytest.raises(NotInForceError):
        await instance(acme.key.secret)


@on_module_loop
async def test_a_key_is_of_one_tenant_alone(
    services: Services, acme: Founded, other: Founded, instance: Instance
) -> None:
    ours, theirs = await instance(acme.key.secret), await instance(other.key.secret)
    assert (ours.tenant, theirs.tenant) == (acme.tenant, other.tenant)
    assert ours.sub == theirs.sub
    assert ours.actor != theirs.actor  # the same person is another pseudonym in another tenant
    with pytest.raises(UnauthorizedError):
        theirs.check_in_force(await services.gateway.control.current(acme.log_id), now=now())
    crossed = ApiKeyText(prefix=parse_key(acme.key.secret).prefix, secret=parse_key(other.key.secret).secret)
    with pytest.raises(UnauthorizedError):
        await instance(crossed.format())


@on_module_loop
async def test_a_prefix_is_of_one_tenant_alone(services: Services, acme: Founded, other: Founded) -> None:
    taken = parse_key(acme.key.secret)
    stolen = ApiKeyText(prefix=taken.prefix, secret=format_secret(bytes(32)))
    guard = create_guard("key-x", stolen, stored_hash=QUICK_HASHES.hash(stolen), actor="0" * 32)
    event = Event(
        type="commit.observed", version=1, key="table:t", actor="system", occurred_at=services.gateway.clock(), data={}
    )
    group = Group(id=new_group_id(), then=(prepare(event),), guard=(guard,))
    outcome = await services.appender.append(other.log_id, group)
    assert isinstance(outcome, Appended)
    assert (outcome.branch, len(outcome.indices)) == (Branch.ELSE, 0)
    assert (await Instance(services)(acme.key.secret)).tenant == acme.tenant


@on_module_loop
async def test_an_identity_has_one_actor_even_if_two_callers_make_it_at_once(services: Services, acme: Founded) -> None:
    async def mint(identity: str) -> str:
        async with services.gateway.database.as_role(services.gateway.roles.appender) as connection:
            found = await actor_for(connection, acme.log_id, identity, issuer=None, random=_random.randbytes)
            return found.actor

    actors = await asyncio.gather(*(mint("bob@acme.example") for _ in range(5)))
    assert len(set(actors)) == 1
    assert await mint("ada@acme.example") == acme.key.actor
    first, second = [
        await services.gateway.admin.create_key(acme.log_id, OPERATOR, identity="bob@acme.example", roles=[])
        for _ in range(2)
    ]
    assert first.actor == second.actor == actors[0]
    assert first.id != second.id


@on_module_loop
async def test_the_rows_of_keys_are_a_function_of_the_log_but_for_their_hashes(
    services: Services, acme: Founded, module_database: str
) -> None:
    admin = services.gateway.admin
    issued = [await admin.create_key(acme.log_id, OPERATOR, identity=name, roles=[]) for name in ("b", "c", "b")]
    await admin.revoke_key(acme.log_id, OPERATOR, key_id=issued[1].id)
    replayed: dict[str, Mapping[str, object]] = {}
    with psycopg.connect(module_database) as connection:
        for (data,) in connection.execute(
            "SELECT entry FROM ledger.entries WHERE log_id = %s ORDER BY index", (acme.log_id,)
        ):
            entry = parse_entry(bytes(data))
            if entry.type == "key.created":
                replayed[str(entry.data["id"])] = entry.data
            elif entry.type == "key.revoked":
                del replayed[str(entry.data["id"])]
        rows = connection.execute(
            "SELECT key_id, prefix, actor, hash FROM gateway.api_keys WHERE log_id = %s", (acme.log_id,)
        ).fetchall()
    assert {(key_id, prefix, actor) for key_id, prefix, actor, _ in rows} == {
        (key_id, data["prefix"], data["actor"]) for key_id, data in replayed.items()
    }
    assert len(rows) == 3
    assert len({stored_hash for *_, stored_hash in rows}) == 3


@pytest.mark.parametrize(
    ("duty", "statement"),
    [
        ("appender", "SELECT hash FROM gateway.api_keys"),
        ("auditor", "SELECT hash FROM gateway.api_keys"),
        ("projector", "SELECT key_id FROM gateway.api_keys"),
        ("tenant", "SELECT key_id FROM gateway.api_keys"),
        ("gateway", "DELETE FROM gateway.api_keys"),
        ("gateway", "UPDATE gateway.api_keys SET hash = ''"),
        ("gateway", "UPDATE gateway.key_macs SET mac = ''"),
        ("gateway", "DELETE FROM gateway.key_macs"),
        ("appender", "SELECT mac FROM gateway.key_macs"),
        ("auditor", "SELECT mac FROM gateway.key_macs"),
        ("tenant", "SELECT mac FROM gateway.key_macs"),
        ("gateway", "SELECT ledger.actors_beside(1, 'a')"),
        ("tenant", "SELECT ledger.actors_beside(1, 'a')"),
        ("gateway", "INSERT INTO ledger.subjects VALUES (1, 'a', 'b')"),
    ],
)
@on_module_loop
async def test_no_role_reads_or_writes_more_of_a_key_than_its_duty(
    duty: str, statement: str, services: Services, acme: Founded
) -> None:
    roles = services.gateway.roles
    role = roles.tenant(acme.tenant) if duty == "tenant" else getattr(roles, duty)
    async with services.gateway.database.as_role(role) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with connection.transaction():
                await connection.execute(statement)


@on_module_loop
async def test_credentials_cannot_be_checked_while_the_database_cannot_be_reached() -> None:
    @asynccontextmanager
    async def lend() -> AsyncIterator[Connection]:
        async with await AsyncConnection.connect("host=127.0.0.1 port=1 connect_timeout=2") as connection:
            yield connection

    unreachable = Authenticator(lend, ControlPlane(lend), macs=KeyMacs(bytes(32)), hasher=CountingHasher())
    with pytest.raises(UnavailableError):
        await unreachable.authenticate(f"Bearer {KEY_TEXT}")
