# SPDX-License-Identifier: Apache-2.0
"""
The file of identity providers, and the keys of one: cached, rotated, and closed when they cannot be known.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from uuid import UUID

import pytest
import pytest_asyncio
from starlette.responses import JSONResponse, RedirectResponse, Response

from gateway.errors import UnavailableError
from gateway.identity.issuers import Issuer, parse_issuers
from gateway.identity.key_sets import DOCUMENT_BYTES_MAX, KEPT_S, PAUSE_S, REFRESH_S, KeySet, read_over
from gateway.identity.login_clients import LoginClient
from gateway.identity.principal import TokenRefusedError
from gateway.identity.signatures import check_signature
from gateway.identity.tokens import parse_token
from ledger.errors import FormatError
from projections.egress.client import open_client
from projections.egress.rules import EgressRules
from testkit.servers.identity_provider import IdentityProvider, identity_provider, part, public_jwk
from testkit.servers.loopback import LOOPBACK

TENANT = "0190163d-8694-739b-aea5-966c26f8ad91"
FILE = f"""
[[issuers]]
issuer = "https://idp.example.org/"
tenant = "{TENANT}"
audience = "lakeproof"

[[issuers]]
issuer = "https://login.example.org/t/v2.0"
tenant = "{TENANT}"
audience = "api://lake"
algorithms = ["RS256", "PS512"]
jwks_url = "https://keys.example.org/keys?t=1"
clock_skew_s = 5
subject_claim = "email"
email_claim = "mail"
groups_claim = "https://example.org/groups"

attribute_claims = ["department", "https://example.org/site"]

[issuers.roles]
"Lake Writers" = ["data-eng", "reader"]
readers = "reader"

[issuers.login]
name = "acme"
origin = "https://lake.example.org:8443"
client_id = "console"
client_secret_file = "/run/secrets/console"
resource = "api://lake"
"""
TWICE = f"""
[[issuers]]
issuer = "https://third.example.org/"
tenant = "{TENANT}"
audience = "lakeproof"
login = {{ name = "acme", origin = "https://lake.example.org", client_id = "console" }}
"""


# The file


def test_a_file_describes_its_issuers() -> None:
    first, second = parse_issuers(FILE)
    assert first == Issuer(
        url="https://idp.example.org/",
        tenant=UUID(TENANT),
        audience="lakeproof",
        algorithms=frozenset({"RS256", "ES256", "EdDSA"}),
        jwks_url=None,
        skew=timedelta(seconds=60),
        subject_claim="sub",
        email_claim="email",
        groups_claim="groups",
        roles={},
    )
    assert first.discovery_url == "https://idp.example.org/.well-known/openid-configuration"
    # printf 'lakeproof issuer\0https://idp.example.org/' | sha256sum
    assert first.actor == "8535fdd13eacdcabe63612097447f920"
    assert second.roles == {"Lake Writers": ("data-eng", "reader"), "readers": ("reader",)}
    assert second.attribute_claims == ("department", "https://example.org/site")
    assert (second.skew, second.algorithms) == (timedelta(seconds=5), frozenset({"RS256", "PS512"}))
    assert second.login == LoginClient(
        name="acme",
        origin="https://lake.example.org:8443",
        id="console",
        secret_file="/run/secrets/console",
        scope="openid email",
        resource="api://lake",
    )
    assert second.login.redirect_uri == "https://lake.example.org:8443/console/login/at/acme/answer"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("[[issuers]]", "[[issuer]]"), "issuers"),
        (lambda _: "", "1 to 100 tables"),
        (lambda text: "x = 1\n" + text, "nothing else"),
        (lambda text: text + "[[issuers", "TOML"),
        (lambda text: text.replace("clock_skew_s", "clock_skew"), "clock_skew"),
        (lambda text: text.replace('"RS256", "PS512"', '"HS256"'), "algorithms"),
        (lambda text: text.replace('"RS256", "PS512"', '"none"'), "algorithms"),
        (lambda text: text.replace('"RS256", "PS512"', ""), "algorithms"),
        (lambda text: text.replace("clock_skew_s = 5", "clock_skew_s = 601"), "from 0 to 600"),
        (lambda text: text.replace("clock_skew_s = 5", "clock_skew_s = true"), "from 0 to 600"),
        (lambda text: text.replace('audience = "lakeproof"', 'audience = ""'), "audience"),
        (lambda text: text.replace('audience = "lakeproof"\n', ""), "audience"),
        (lambda text: text.replace(TENANT, "acme", 1), "the id of a tenant"),
        (lambda text: text.replace("https://idp.example.org/", "http://idp.example.org/"), "https"),
        (lambda text: text.replace("https://idp.example.org/", "http://localhost/"), "https"),
        (lambda text: text.replace("https://idp.example.org/", "https://ada@idp.example.org/"), "https"),
        (lambda text: text.replace("https://idp.example.org/", "https://idp.example.org:x/"), "https"),
        (lambda text: text.replace("https://idp.example.org/", "https://[idp"), "https"),
        (lambda text: text.replace("https://idp.example.org/", "file:///etc/passwd"), "https"),
        (lambda text: text.replace("https://idp.example.org/", "https://idp.example.org/?t=1"), "without query"),
        (lambda text: text.replace("https://keys.example.org", "http://keys.example.org"), "jwks_url"),
        (lambda text: text.replace("https://login.example.org/t/v2.0", "https://idp.example.org/"), "each issuer once"),
        (lambda text: text.replace('"data-eng", "reader"', '"data eng"'), "a role"),
        (lambda text: text.replace('readers = "reader"', "readers = 1"), "a role"),
        (lambda text: text.replace('["department", ', '["", '), "attribute_claims: expected a list of at most 32"),
        (lambda text: text.replace('["department", ', '["a", "a", '), "attribute_claims"),
        (lambda text: text.replace('["department", ', f"[{'1, ' * 3}"), "attribute_claims"),
        (lambda text: text.replace('["department", ', f"[{', '.join(map(repr, map(str, range(32))))}, "), "at most 32"),
        (lambda text: text.replace('["department", "https://example.org/site"]', '"department"'), "attribute_claims"),
        (lambda text: text.replace("org:8443", "org:8443/"), "origin: expected scheme, host and perhaps port"),
        (
            lambda text: text.replace("https://lake.example.org:8443", "http://lake.example.org"),
            "origin: expected an https",
        ),
        (lambda text: text.replace('name = "acme"', 'name = "Acme/x"'), "name: expected 1 to 40 lower-case"),
        (lambda text: text.replace('name = "acme"\n', ""), "name"),
        (lambda text: text.replace('client_id = "console"', ""), "client_id"),
        (
            lambda text: text.replace('client_id = "console"', 'client_id = "console"\nclient_secret = "x"'),
            "client_secret",
        ),
        (lambda text: text.replace('client_id = "console"', 'client_id = "console"\nscope = "email"'), "openid among"),
        (lambda text: text + TWICE, "each name of a login once"),
    ],
)
def test_a_file_with_a_mistake_is_refused(change: Callable[[str], str], words: str) -> None:
    with pytest.raises(FormatError, match=words):
        parse_issuers(change(FILE))


# The keys


class Ticking:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Keys:
    """The keys of one provider, as a process has them."""

    def __init__(self, provider: IdentityProvider, keys: KeySet, ticking: Ticking) -> None:
        self.provider = provider
        self.keys = keys
        self.ticking = ticking

    async def check(self, key: str, *, kid: str | None = None) -> None:
        """Check the signature of a new token."""
        header = {} if kid is None else {"kid": kid}
        token = parse_token(self.provider.token(now_s=int(time.time()), key=key, header=header))
        check_signature(token, await self.keys.find(token))


def issuer(provider: IdentityProvider, **changed: object) -> Issuer:
    (described,) = parse_issuers(
        f'[[issuers]]\nissuer = "{provider.url}"\ntenant = "{TENANT}"\naudience = "lakeproof"\n'
        + "".join(f"{name} = {json.dumps(value)}\n" for name, value in changed.items())
    )
    return described


@pytest_asyncio.fixture
async def keys() -> AsyncIterator[Keys]:
    ticking = Ticking()
    async with identity_provider() as provider, open_client(LOOPBACK) as client:
        found = KeySet(issuer(provider), read_over(client), monotonic_s=ticking)
        yield Keys(provider, found, ticking)
        await found.close()


async def test_keys_are_read_once_for_all_who_wait(keys: Keys) -> None:
    await asyncio.gather(*(keys.check("rsa-1") for _ in range(50)))
    for _ in range(50):
        await keys.check("ed-1")
    assert keys.provider.reads == 1


async def test_a_new_key_is_read_once_when_a_token_first_names_it(keys: Keys) -> None:
    await keys.check("rsa-1")
    keys.provider.keys.append("rsa-2")
    keys.ticking.now_s += PAUSE_S
    await asyncio.gather(*(keys.check("rsa-2") for _ in range(50)))
    assert keys.provider.reads == 2


async def test_unknown_keys_have_the_provider_asked_once_in_a_while(keys: Keys) -> None:
    await keys.check("rsa-1")
    for second in range(30):
        keys.ticking.now_s = 1_000.0 + second
        outcomes = await asyncio.gather(
            *(keys.check("rsa-1", kid=f"unknown-{number}") for number in range(10)), return_exceptions=True
        )
        assert {type(each) for each in outcomes} == {TokenRefusedError}
        await keys.check("rsa-1")
    assert keys.provider.reads == 1 + 29 // PAUSE_S


async def test_a_key_that_is_removed_is_refused_after_five_minutes(keys: Keys) -> None:
    await keys.check("rsa-1")
    keys.provider.keys.remove("rsa-1")
    keys.ticking.now_s += REFRESH_S
    await keys.check("rsa-1")
    keys.ticking.now_s += 1
    with pytest.raises(TokenRefusedError, match="does not have"):
        await keys.check("rsa-1")


async def test_keys_that_vanish_count_for_an_hour_and_then_no_more(
    keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    await keys.check("rsa-1")
    keys.provider.answer = lambda: Response(status_code=404)
    keys.ticking.now_s += REFRESH_S + 1
    await keys.check("rsa-1")
    with pytest.raises(TokenRefusedError):
        await keys.check("rsa-2")
    assert "expected 200" in caplog.text
    keys.ticking.now_s = 1_000.0 + KEPT_S
    await keys.check("rsa-1")
    keys.ticking.now_s += PAUSE_S
    with pytest.raises(UnavailableError, match="cannot be read"):
        await keys.check("rsa-1")
    keys.provider.answer = None
    keys.ticking.now_s += PAUSE_S
    await keys.check("rsa-1")


STRANGE_MEMBERS: list[dict[str, object]] = [{"alg": []}, {"kty": {}}, {"use": []}, {"key_ops": 1}, {"e": "!"}]
NO_KEYS: dict[str, Callable[[], Response]] = {
    "no document": lambda: Response(status_code=404),
    "a failure": lambda: Response(status_code=500),
    "a redirect": lambda: RedirectResponse("/elsewhere"),
    "no JSON": lambda: Response(b"<html>"),
    "a list": lambda: JSONResponse([public_jwk("rsa-1")]),
    "no keys": lambda: JSONResponse({"keys": []}),
    "keys that are no list": lambda: JSONResponse({"keys": {"rsa-1": public_jwk("rsa-1")}}),
    "keys that are none": lambda: JSONResponse({"keys": [None, 1, "rsa-1", [], {}]}),
    "keys of strange members": lambda: JSONResponse({"keys": [public_jwk("rsa-1") | each for each in STRANGE_MEMBERS]}),
    "keys twice": lambda: Response(b'{"keys": [], "keys": ' + json.dumps([public_jwk("rsa-1")]).encode() + b"}"),
    "a secret": lambda: JSONResponse({"keys": [{"kid": "rsa-1", "kty": "oct", "k": part(b"s" * 32), "alg": "HS256"}]}),
    "too many keys": lambda: JSONResponse({"keys": [public_jwk("rsa-1") | {"kid": str(n)} for n in range(101)]}),
    "a long document": lambda: Response(json.dumps({"keys": [public_jwk("rsa-1")]}) + " " * DOCUMENT_BYTES_MAX),
    "a compressed document": lambda: Response(
        gzip.compress(json.dumps({"keys": [public_jwk("rsa-1")]}).encode()), headers={"Content-Encoding": "gzip"}
    ),
}


@pytest.mark.parametrize("answer", NO_KEYS.values(), ids=NO_KEYS.keys())
async def test_what_is_no_key_set_verifies_nothing(keys: Keys, answer: Callable[[], Response]) -> None:
    keys.provider.answer = answer
    for _ in range(2):
        with pytest.raises(UnavailableError):
            await keys.check("rsa-1")
    assert keys.provider.reads == 1
    keys.provider.answer = None
    keys.ticking.now_s += PAUSE_S
    await keys.check("rsa-1")


@pytest.mark.parametrize(
    "discovery",
    [
        {"issuer": "https://elsewhere.example"},
        {"issuer": None},
        {"jwks_uri": None},
        {"jwks_uri": "http://idp.example.org/keys"},
        {"jwks_uri": "file:///etc/passwd"},
    ],
)
async def test_a_discovery_document_that_is_not_the_issuers_is_not_followed(
    keys: Keys, discovery: dict[str, object]
) -> None:
    keys.provider.discovery = discovery
    with pytest.raises(UnavailableError):
        await keys.check("rsa-1")
    assert keys.provider.reads == 0


async def test_keys_are_read_where_connections_are_allowed_and_nowhere_else(keys: Keys) -> None:
    token = parse_token(keys.provider.token(now_s=int(time.time())))
    for rules, is_allowed in ((LOOPBACK, True), (EgressRules.parse("public"), False)):
        async with open_client(rules) as client:
            found = KeySet(issuer(keys.provider, jwks_url=f"{keys.provider.url}/keys"), read_over(client))
            if is_allowed:
                check_signature(token, await found.find(token))
            else:
                with pytest.raises(UnavailableError):
                    await found.find(token)
    assert keys.provider.reads == 1


async def test_who_stops_waits_for_no_provider(keys: Keys) -> None:
    token = parse_token(keys.provider.token(now_s=int(time.time())))
    forever = asyncio.Event()

    async def read(_: str) -> bytes:
        await forever.wait()
        return b""

    found = KeySet(issuer(keys.provider), read)
    waiting = asyncio.create_task(found.find(token))
    await asyncio.sleep(0)
    await found.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
