# SPDX-License-Identifier: Apache-2.0
"""
Access tokens for API keys: what the endpoint grants, what it refuses in the words of OAuth, and how tokens end.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import OAuthError, UnauthorizedError

from gateway.admin.application import OPERATOR
from gateway.catalogs.onward import Onward
from gateway.catalogs.rest import RestCatalog as RestAdapter
from gateway.catalogs.upstream import open_client
from gateway.catalogs.upstreams import Upstreams
from gateway.errors import UpstreamCredentialsError
from gateway.http.oauth import ACCESS_TOKEN, TOKEN_EXCHANGE
from gateway.identifiers import Target
from gateway.identity.access_tokens import LIFETIME, RENEWED_MAX
from gateway.identity.api_keys import mint_key
from lakeproof.services import now
from testkit.environment import PROJECT
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import CREATE, NAMESPACES, TABLES, error_of
from testkit.gateway.token_gateway import TokenGateway, issuer_for, token_gateway, unhurried
from testkit.servers.gateways import Gateway
from testkit.servers.identity_provider import assemble, identity_provider, part, signature
from testkit.servers.java import find_compiling_java
from testkit.servers.loopback import LOOPBACK
from testkit.servers.maven import jars

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKENS = "/v1/oauth/tokens"
JAVA_CLIENT = PROJECT / "testkit" / "servers" / "java_clients" / "Login.java"
JAVA_TIMEOUT_S = 120
STRANGER = mint_key(lambda size: bytes(range(size))).format()


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    unhurried(monkeypatch)


def credentials_of(gateway: Gateway, **changed: str) -> dict[str, str]:
    key = gateway.acme.key
    return {"grant_type": "client_credentials", "client_id": key.id, "client_secret": key.secret} | changed


def basic(id_: str, secret: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'{id_}:{secret}'.encode()).decode()}"}


def exchange(text: str, **changed: str) -> dict[str, str]:
    given = {"grant_type": TOKEN_EXCHANGE, "subject_token": text, "subject_token_type": ACCESS_TOKEN} | changed
    return {name: value for name, value in given.items() if value}


async def ask(gateway: Gateway, form: Mapping[str, str], headers: Mapping[str, str] | None = None) -> httpx.Response:
    return await gateway.client(None).post(TOKENS, data=dict(form), headers=headers)


async def token_of(gateway: Gateway, **changed: str) -> str:
    answer = await ask(gateway, credentials_of(gateway, **changed))
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["access_token"]
    return text


def claims_of(text: str) -> dict[str, Any]:
    middle = text.split(".")[1]
    claims: dict[str, Any] = json.loads(urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return claims


# What is granted


async def test_the_id_and_the_text_of_a_key_get_a_token_that_stands_for_the_key(shared_gateway: Gateway) -> None:
    answer = await ask(shared_gateway, credentials_of(shared_gateway, scope="catalog"))
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert body == {
        "access_token": body["access_token"],
        "token_type": "bearer",
        "expires_in": 900,
        "issued_token_type": ACCESS_TOKEN,
        "scope": "catalog",
    }
    authenticator = shared_gateway.services.gateway.authenticator
    by_key = await authenticator.authenticate(f"Bearer {shared_gateway.acme.key.secret}")
    by_token = await authenticator.authenticate(f"Bearer {body['access_token']}")
    assert by_token.payload() == by_key.payload()
    assert by_token.ends_at is not None
    assert timedelta(0) < by_token.ends_at - now() <= LIFETIME
    http = shared_gateway.client(body["access_token"])
    assert (await http.post(NAMESPACES, json={"namespace": ["sales"]})).status_code == 200
    assert (await http.post(TABLES, json=CREATE)).status_code == 200
    told = await read_stored(shared_gateway.services, shared_gateway.acme.log_id)
    decided = [one.entry for one in told if one.entry.type == "commit.decided"]
    assert [one.data["principal_source"] for one in decided] == ["api_key"] * 2


async def test_a_token_names_a_key_and_nobody(shared_gateway: Gateway) -> None:
    text = await token_of(shared_gateway)
    assert claims_of(text)["sub"] == shared_gateway.acme.key.id
    assert "ada@" not in json.dumps(claims_of(text))
    assert shared_gateway.acme.key.secret[16:] not in text


async def test_basic_is_as_good_as_the_body(shared_gateway: Gateway) -> None:
    key = shared_gateway.acme.key
    form = {"grant_type": "client_credentials", "scope": "PRINCIPAL_ROLE:ALL"}
    answer = await ask(shared_gateway, form, basic(key.id, key.secret))
    assert (answer.status_code, answer.json()["scope"]) == (200, "catalog"), answer.text


async def test_a_token_issues_keys_as_its_key_does(shared_gateway: Gateway) -> None:
    http = shared_gateway.client(await token_of(shared_gateway))
    answer = await http.post("/v1/keys", json={"identity": "bob@acme.example"})
    assert answer.status_code == 201, answer.text


# How a token ends


async def test_revoking_a_key_ends_its_tokens_at_once(shared_gateway: Gateway) -> None:
    admin, log_id = shared_gateway.services.gateway.admin, shared_gateway.acme.log_id
    issued = await admin.create_key(log_id, OPERATOR, identity="bob@acme.example", roles=[])
    text = await token_of(shared_gateway, client_id=issued.id, client_secret=issued.secret)
    http = shared_gateway.client(text)
    assert (await http.get(NAMESPACES)).status_code == 403
    await admin.revoke_key(log_id, OPERATOR, key_id=issued.id)
    answer = await http.get(NAMESPACES)
    assert (answer.status_code, "no longer in force" in error_of(answer)["message"]) == (401, True)
    for form in (exchange(text), credentials_of(shared_gateway, client_id=issued.id, client_secret=issued.secret)):
        assert (await ask(shared_gateway, form)).status_code in {400, 401}
    assert (await shared_gateway.client(await token_of(shared_gateway)).get(NAMESPACES)).status_code == 200


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC).replace(microsecond=0)

    def __call__(self) -> datetime:
        return self.now


@pytest_asyncio.fixture(loop_scope="module")
async def timed(shared_gateway: Gateway) -> AsyncIterator[tuple[TokenGateway, Clock]]:
    """The gateway of the test, whose clock the test moves."""
    clock = Clock()
    async with token_gateway(shared_gateway, clock=clock) as timed:
        yield timed, clock


async def test_a_token_ends_after_a_quarter_of_an_hour(timed: tuple[TokenGateway, Clock]) -> None:
    gateway, clock = timed
    answer = await gateway.client().post(TOKENS, data=credentials_of(gateway.gateway))
    http = gateway.client(answer.json()["access_token"])
    clock.now += LIFETIME - timedelta(seconds=1)
    assert (await http.get(NAMESPACES)).status_code == 200
    clock.now += timedelta(seconds=1)
    refused = await http.get(NAMESPACES)
    assert (refused.status_code, error_of(refused)["message"]) == (401, "the token has expired: get a new one")


async def test_a_token_ends_with_its_key_and_counts_where_clocks_are_behind(
    timed: tuple[TokenGateway, Clock],
) -> None:
    gateway, clock = timed
    acme = gateway.gateway.acme
    issued = await gateway.gateway.services.gateway.admin.create_key(
        acme.log_id, OPERATOR, identity="bob@acme.example", roles=[], expires_at=clock.now + LIFETIME / 2
    )
    form = {"grant_type": "client_credentials", "client_id": issued.id, "client_secret": issued.secret}
    http = gateway.client((await gateway.client().post(TOKENS, data=form)).json()["access_token"])
    clock.now -= timedelta(seconds=30)
    assert (await http.get(NAMESPACES)).status_code == 403, "verified, and permitted nothing"
    clock.now += timedelta(seconds=30) + LIFETIME / 2
    refused = await http.get(NAMESPACES)
    assert (refused.status_code, "no longer in force" in error_of(refused)["message"]) == (401, True)


async def test_a_token_is_exchanged_for_a_day_and_then_the_key_is_asked_for(timed: tuple[TokenGateway, Clock]) -> None:
    gateway, clock = timed
    key = gateway.gateway.acme.key
    began = clock.now
    text: str = (await gateway.client().post(TOKENS, data=credentials_of(gateway.gateway))).json()["access_token"]
    while clock.now + LIFETIME < began + RENEWED_MAX:
        clock.now += LIFETIME - timedelta(seconds=1)
        answer = await gateway.client(text).post(TOKENS, data=exchange(text))
        assert answer.status_code == 200, answer.text
        text = answer.json()["access_token"]
    clock.now = began + RENEWED_MAX
    answer = await gateway.client(text).post(TOKENS, data=exchange(text))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    clock.now += LIFETIME
    answer = await gateway.client().post(TOKENS, data=exchange(text))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    answer = await gateway.client().post(TOKENS, data=exchange(text), headers=basic(key.id, key.secret))
    assert answer.status_code == 200, answer.text
    assert (await gateway.client(answer.json()["access_token"]).get(NAMESPACES)).status_code == 200


# What is refused


async def test_every_refusal_has_the_form_of_oauth(shared_gateway: Gateway) -> None:
    key, good = shared_gateway.acme.key, credentials_of(shared_gateway)
    other = await shared_gateway.services.gateway.admin.create_key(
        shared_gateway.acme.log_id, OPERATOR, identity="eve@acme.example", roles=[]
    )
    text = await token_of(shared_gateway)
    others = await token_of(shared_gateway, client_id=other.id, client_secret=other.secret)
    bearer = {"Authorization": f"Bearer {text}"}
    cases: list[tuple[Mapping[str, str], Mapping[str, str], int, str]] = [
        ({}, {}, 400, "invalid_request"),
        ({"grant_type": ""}, {}, 400, "invalid_request"),
        ({"grant_type": "password", "username": "ada"}, {}, 400, "unsupported_grant_type"),
        ({"grant_type": "authorization_code"}, {}, 400, "unsupported_grant_type"),
        ({"grant_type": "client_credentials"}, {}, 401, "invalid_client"),
        (good | {"client_id": ""}, {}, 401, "invalid_client"),
        (good | {"client_secret": ""}, {}, 401, "invalid_client"),
        (good | {"client_id": other.id}, {}, 401, "invalid_client"),
        (good | {"client_id": "nobody"}, {}, 401, "invalid_client"),
        (good | {"client_secret": STRANGER}, {}, 401, "invalid_client"),
        (good | {"client_secret": "nobody"}, {}, 401, "invalid_client"),
        (good | {"client_secret": text}, {}, 401, "invalid_client"),
        (good | {"scope": "sign"}, {}, 400, "invalid_scope"),
        (good | {"scope": "catalog admin"}, {}, 400, "invalid_scope"),
        (good, basic(key.id, key.secret), 400, "invalid_request"),
        (good, {"Authorization": f"Bearer {key.secret}"}, 401, "invalid_client"),
        ({"grant_type": "client_credentials"}, basic(other.id, key.secret), 401, "invalid_client"),
        ({"grant_type": "client_credentials", "client_id": other.id}, basic(key.id, key.secret), 401, "invalid_client"),
        ({"grant_type": "client_credentials"}, {"Authorization": "Basic nobody"}, 401, "invalid_client"),
        ({"grant_type": "client_credentials"}, {"Authorization": "Basic /////w=="}, 401, "invalid_client"),
        ({"grant_type": "client_credentials"}, {"Authorization": "Basic"}, 401, "invalid_client"),
        (exchange("nobody"), {}, 400, "invalid_request"),
        (exchange(""), {}, 400, "invalid_request"),
        (exchange(text, subject_token_type=""), {}, 400, "invalid_request"),
        (exchange(text, subject_token_type="urn:ietf:params:oauth:token-type:id_token"), {}, 400, "invalid_request"),
        (exchange(text, requested_token_type="urn:ietf:params:oauth:token-type:saml2"), {}, 400, "invalid_request"),
        (exchange(text, actor_token=text), bearer, 400, "invalid_request"),
        (exchange(others), bearer, 400, "invalid_request"),
        (exchange(key.secret), {}, 400, "invalid_request"),
        (exchange(text[:-2]), {}, 400, "invalid_request"),
        (exchange(text[:-2]), basic(key.id, key.secret), 400, "invalid_request"),
        (exchange(others), basic(key.id, key.secret), 400, "invalid_grant"),
        (exchange(text), basic(key.id, other.secret), 401, "invalid_client"),
        (exchange(text), {"Authorization": "Digest x"}, 401, "invalid_client"),
    ]  # fmt: skip
    for form, headers, status, code in cases:
        answer = await ask(shared_gateway, form, headers)
        assert (answer.status_code, answer.json().get("error")) == (status, code), (form, headers, answer.text)
        assert set(answer.json()) == {"error", "error_description"}
        assert answer.headers["cache-control"] == "no-store"
        assert ("www-authenticate" in answer.headers) == (status == 401)
        for secret in (key.secret, other.secret, STRANGER, text, others):
            assert secret not in answer.text


async def test_a_body_that_is_no_form_is_refused(shared_gateway: Gateway) -> None:
    form = "application/x-www-form-urlencoded"
    good = httpx.QueryParams(credentials_of(shared_gateway))
    for content, content_type, status in (
        (json.dumps(credentials_of(shared_gateway)), "application/json", 400),
        (str(good), "text/plain", 400),
        (f"{good}&client_id=other", form, 400),
        (f"{good}&grant_type=client_credentials", form, 400),
        (f"{good}&%ff=1", form, 400),
        (b"\xff=1", form, 400),
        ("grant_type", form, 400),
        ("&".join(f"a{number}=1" for number in range(100)), form, 400),
        (f"{good}&x={'x' * 40_000}", form, 413),
        (str(good), f"{form}; charset=utf-8", 200),
    ):
        answer = await shared_gateway.client(None).post(TOKENS, content=content, headers={"Content-Type": content_type})
        assert answer.status_code == status, (content, answer.text)
        assert status == 200 or answer.json()["error"] == "invalid_request"
    twice = await shared_gateway.client(None).post(
        TOKENS, content=str(good), headers=[("Content-Type", form), ("X-Api-Key", "a"), ("Authorization", "Basic a")]
    )
    assert twice.status_code == 400
    assert (await shared_gateway.client(None).get(TOKENS)).status_code == 405


async def test_no_other_signature_makes_an_access_token(shared_gateway: Gateway) -> None:
    good = await token_of(shared_gateway)
    header, claims = {"alg": "EdDSA", "typ": "at+jwt"}, claims_of(good)
    kid = json.loads(urlsafe_b64decode(good.split(".")[0] + "=="))["kid"]
    forged = [
        assemble(header | {"kid": kid}, claims, lambda signed: signature("ed-1", signed)),
        assemble(header | {"kid": "ed-1"}, claims, lambda signed: signature("ed-1", signed)),
        assemble({"alg": "RS256", "kid": "rsa-1"}, claims, lambda signed: signature("rsa-1", signed)),
        ".".join((part({"alg": "none", "kid": kid, "typ": "at+jwt"}), good.split(".")[1], part(b"x"))),
        ".".join((good.split(".")[0], part(claims | {"sub": "key-0"}), good.split(".")[2])),
        ".".join((good.split(".")[0], part(claims | {"exp": claims["exp"] + 1}), good.split(".")[2])),
        good.rpartition(".")[0] + "." + part(bytes(64)),
    ]
    for text in forged:
        assert (await shared_gateway.client(text).get(NAMESPACES)).status_code == 401
    assert (await shared_gateway.client(good).get(NAMESPACES)).status_code == 200


async def test_a_token_of_a_provider_is_not_exchanged(shared_gateway: Gateway) -> None:
    async with (
        identity_provider() as provider,
        token_gateway(shared_gateway, issuer_for(shared_gateway, provider)) as accepting,
    ):
        text = provider.token(now_s=int(time.time()))
        assert (await accepting.client(text).get(NAMESPACES)).status_code == 403
        answer = await accepting.client(text).post(TOKENS, data=exchange(text))
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


async def test_refusals_are_counted_where_other_bad_credentials_are(shared_gateway: Gateway) -> None:
    system = shared_gateway.services.gateway.refusals._system_log_id
    for _ in range(20):
        await ask(shared_gateway, credentials_of(shared_gateway, client_secret=STRANGER))
    told = await read_stored(shared_gateway.services, system)
    recorded = [one.entry.data for one in told if one.entry.type == "access.refused"]
    assert [one["operation"] for one in recorded].count(f"POST {TOKENS}") == 1


# A real client


async def test_pyiceberg_logs_in_with_the_id_and_the_text_of_a_key(sales: Gateway, module_url: str) -> None:
    key = sales.acme.key
    oauth = f"{module_url}{TOKENS}"

    def connect(credential: str) -> RestCatalog:
        return RestCatalog(
            "test", uri=module_url, warehouse="lake", credential=credential, **{"oauth2-server-uri": oauth}
        )

    catalog = await asyncio.to_thread(connect, f"{key.id}:{key.secret}")
    assert await asyncio.to_thread(catalog.list_tables, "sales") == [("sales", "orders")]
    await asyncio.to_thread(catalog.create_namespace, "by_token")
    with pytest.raises(OAuthError, match="invalid_client"):
        await asyncio.to_thread(connect, f"{key.id}:{STRANGER}")
    with pytest.raises(OAuthError, match="invalid_client"):
        await asyncio.to_thread(connect, f"nobody:{key.secret}")
    issued = await sales.services.gateway.admin.create_key(
        sales.acme.log_id, OPERATOR, identity="ada@acme.example", roles=["data-eng"]
    )
    other = await asyncio.to_thread(connect, f"{issued.id}:{issued.secret}")
    assert await asyncio.to_thread(other.list_tables, "sales") == [("sales", "orders")]
    await sales.services.gateway.admin.revoke_key(sales.acme.log_id, OPERATOR, key_id=issued.id)
    # PyIceberg logs in once more when it is refused, which is refused too.
    with pytest.raises((UnauthorizedError, OAuthError)):
        await asyncio.to_thread(other.list_tables, "sales")


async def test_pyiceberg_logs_in_with_basic(sales: Gateway, module_url: str) -> None:
    key = sales.acme.key
    oauth = {"client_id": key.id, "client_secret": key.secret, "token_url": f"{module_url}{TOKENS}", "scope": "catalog"}

    auth: Any = {"type": "oauth2", "oauth2": oauth}

    def tables() -> list[tuple[str, ...]]:
        catalog = RestCatalog("test", uri=module_url, warehouse="lake", auth=auth)
        return list(catalog.list_tables("sales"))

    assert await asyncio.to_thread(tables) == [("sales", "orders")]


async def test_a_gateway_logs_in_at_another_one(sales: Gateway, module_url: str) -> None:
    key, tenant, secrets = sales.acme.key, sales.acme.tenant, sales.services.installation.secrets
    secrets.write(tenant, "login", f"{key.id}:{key.secret}")
    secrets.write(tenant, "wrong", f"{key.id}:{STRANGER}")
    there = Target(alias="beyond", namespace=("sales",))
    async with open_client(LOOPBACK) as client:
        upstreams = Upstreams(client=client, secrets=secrets, timeout_s=10.0)
        found = []
        for secret in ("login", "wrong"):
            options = {"uri": module_url, "warehouse": "lake", "credential": f"secret:{secret}"}
            found.append(RestAdapter(upstream=upstreams.upstream(tenant, f"beyond-{secret}", options), onward=Onward()))
        assert (await found[0].load(there)).namespace_exists
        with pytest.raises(UpstreamCredentialsError):
            await found[1].load(there)


async def test_icebergs_java_library_logs_in_and_renews_its_token(sales: Gateway, module_url: str) -> None:
    java, libraries, key = find_compiling_java(), jars("iceberg-kit"), sales.acme.key
    command = [str(java), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{libraries}/*", str(JAVA_CLIENT), module_url]
    process = await asyncio.create_subprocess_exec(
        *command, f"{key.id}:{key.secret}", "sales", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    printed, failed = await asyncio.wait_for(process.communicate(), JAVA_TIMEOUT_S)
    assert printed.decode().splitlines() == ["[sales.orders]", "true", "true"], failed.decode()[-2_000:]
