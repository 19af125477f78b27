# SPDX-License-Identifier: Apache-2.0
"""
Callers with tokens of an identity provider: who they are in the log, what they may, and what becomes of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.errors import UnauthorizedError
from gateway.identity import Principal, PrincipalSource
from gateway.identity.principal import TokenRefusedError
from gateway.identity.request_rates import Limits, RequestRates, SharedCounts
from lakeproof.erasing import open_eraser
from lakeproof.errors import SettingsError
from lakeproof.provision import provision
from lakeproof.services import now
from ledger.erasing.erase import ErasureRequest
from ledger.format.events import ErasureReason
from ledger.store.read import find_log
from testkit.databases import LOGIN_PASSWORD
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import CREATE, NAMESPACES, TABLES, error_of
from testkit.gateway.token_gateway import TokenGateway, issuer_for, token_gateway, unhurried
from testkit.servers.gateways import Gateway, app_of, start_services
from testkit.servers.identity_provider import HOUR_S, IdentityProvider, identity_provider

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADA = "ada@acme.example"
"""Also the identity of the tenant's founder, who has an API key."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider() -> AsyncIterator[IdentityProvider]:
    async with identity_provider() as provider:
        yield provider


@pytest_asyncio.fixture(loop_scope="module")
async def accepting(shared_gateway: Gateway, provider: IdentityProvider) -> AsyncIterator[TokenGateway]:
    async with token_gateway(shared_gateway, issuer_for(shared_gateway, provider)) as accepting:
        yield accepting


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    unhurried(monkeypatch)


def token(provider: IdentityProvider, **changed: object) -> str:
    return provider.token(now_s=int(time.time()), **changed)  # type: ignore[arg-type]


async def who_is(accepting: TokenGateway, text: str) -> Principal:
    return await accepting.authenticator.authenticate(f"Bearer {text}")


async def permit(accepting: TokenGateway, expression: str = "'data-eng' in roles") -> None:
    await accepting.gateway.services.gateway.admin.create_access_rule(
        accepting.gateway.acme.log_id, OPERATOR, rule_id="engineers", effect="permit", expression=expression
    )


# Who a token stands for


async def test_a_token_stands_for_its_subject_in_the_tenant_of_its_issuer(
    accepting: TokenGateway, provider: IdentityProvider
) -> None:
    now_s = int(time.time())
    principal = await who_is(accepting, provider.token(now_s=now_s, sub="00u1abc"))
    assert principal == Principal(
        tenant=accepting.gateway.acme.tenant,
        log_id=accepting.gateway.acme.log_id,
        actor=principal.actor,
        issuer=issuer_for(accepting.gateway, provider).actor,
        sub="00u1abc",
        roles=("data-eng",),
        source=PrincipalSource.JWT,
        key_id=None,
        email=ADA,
        ends_at=datetime.fromtimestamp(now_s + HOUR_S + 60, tz=UTC),
        groups=("lake-writers",),
    )
    assert principal.payload() == {
        "actor": principal.actor,
        "email": ADA,
        "issuer": principal.issuer,
        "key": None,
        "roles": ["data-eng"],
        "source": "jwt",
        "sub": "00u1abc",
    }


async def test_a_subject_has_the_same_actor_at_every_login_and_in_every_process(
    accepting: TokenGateway, provider: IdentityProvider
) -> None:
    first = await who_is(accepting, token(provider))
    assert (await who_is(accepting, token(provider, jti="2", key="ed-1"))).actor == first.actor
    async with token_gateway(accepting.gateway, issuer_for(accepting.gateway, provider)) as other:
        assert (await who_is(other, token(provider))).actor == first.actor
    assert (await who_is(accepting, token(provider, sub="eve@acme.example"))).actor != first.actor


async def test_no_provider_can_act_as_whoever_has_a_key(accepting: TokenGateway, provider: IdentityProvider) -> None:
    principal = await who_is(accepting, token(provider, sub=ADA))
    assert (principal.sub, principal.actor == accepting.gateway.acme.key.actor) == (ADA, False)
    # The founder's rule names the founder's actor.
    assert (await accepting.client(token(provider, sub=ADA)).get(NAMESPACES)).status_code == 403


async def test_the_same_subject_of_two_providers_is_two_callers(
    shared_gateway: Gateway, provider: IdentityProvider
) -> None:
    async with identity_provider() as other:
        other.keys = ["rsa-other"]
        issuers = [issuer_for(shared_gateway, each) for each in (provider, other)]
        async with token_gateway(shared_gateway, *issuers) as accepting:
            callers = [await who_is(accepting, token(provider)), await who_is(accepting, token(other, key="rsa-other"))]
            assert len({each.actor for each in callers}) == 2
            with pytest.raises(TokenRefusedError, match="does not have"):
                await who_is(accepting, token(other, key="rsa-other", iss=provider.url))


async def test_policies_see_all_groups_and_the_claims_that_the_operator_names(
    accepting: TokenGateway, provider: IdentityProvider
) -> None:
    named = issuer_for(accepting.gateway, provider, attribute_claims=("department", "level", "contractor", "missing"))
    claims = {"department": "risk", "level": 3, "contractor": True, "secret": "x"}
    async with token_gateway(accepting.gateway, named) as other:
        caller = await who_is(other, token(provider, groups=["lake-writers", "everybody"], **claims))
        assert caller.groups == ("everybody", "lake-writers")
        assert dict(caller.attributes) == {"department": "risk", "level": "3", "contractor": "true"}
        assert "groups" not in caller.payload()
        for wrong in (["risk"], 1.5, "", "a\nb"):
            with pytest.raises(TokenRefusedError, match="department"):
                await who_is(other, token(provider, department=wrong))


async def test_groups_become_roles_and_unknown_groups_nothing(
    accepting: TokenGateway, provider: IdentityProvider
) -> None:
    for groups, roles in (
        (["lake-readers", "lake-writers", "lake-writers", "admins"], ("data-eng", "guest", "reader")),
        ("lake-readers everybody", ("guest", "reader")),
        (["data-eng"], ()),
        ([], ()),
    ):
        assert (await who_is(accepting, token(provider, groups=groups))).roles == roles


async def test_an_address_that_is_not_verified_is_none(accepting: TokenGateway, provider: IdentityProvider) -> None:
    for verified in (True, "true"):
        assert (await who_is(accepting, token(provider, email_verified=verified))).email == ADA
    refused: list[object] = [False, "false", 0, 1, []]
    for unverified in refused:
        assert (await who_is(accepting, token(provider, email_verified=unverified))).email is None
    issuer = issuer_for(accepting.gateway, provider, subject_claim="email")
    async with token_gateway(accepting.gateway, issuer) as by_email:
        assert (await who_is(by_email, token(provider, sub="00u1", email_verified=True))).sub == ADA
        with pytest.raises(TokenRefusedError, match="not verified"):
            await who_is(by_email, token(provider, email_verified=False))


# What is recorded


async def test_a_commit_names_the_caller_of_the_token(accepting: TokenGateway, provider: IdentityProvider) -> None:
    await permit(accepting)
    http = accepting.client(token(provider, sub="bob@acme.example"))
    assert (await http.post(NAMESPACES, json={"namespace": ["sales"]})).status_code == 200
    assert (await http.post(TABLES, json=CREATE)).status_code == 200
    principal = await who_is(accepting, token(provider, sub="bob@acme.example"))
    told = await read_stored(accepting.gateway.services, accepting.gateway.acme.log_id)
    decided = [one for one in told if one.entry.type == "commit.decided"]
    assert len(decided) == 2
    for one in decided:
        assert one.entry.actor == principal.actor
        assert one.entry.data["principal_source"] == "jwt"
        assert json.loads(one.parts["principal"]) == principal.payload()


async def test_policies_see_the_address_and_the_source(accepting: TokenGateway, provider: IdentityProvider) -> None:
    await permit(accepting)
    await accepting.gateway.services.gateway.admin.create_policy(
        accepting.gateway.acme.log_id,
        OPERATOR,
        policy_id="staff",
        text=PolicyText(
            expression="principal.source == 'jwt' && principal.email.endsWith('@acme.example')", message="only staff"
        ),
    )
    for email, status in ((ADA, 200), ("eve@elsewhere.example", 403), (None, 403)):
        answer = await accepting.client(token(provider, email=email)).post(
            NAMESPACES, json={"namespace": [f"n{status}"]}
        )
        assert answer.status_code == status, answer.text
    assert (
        await accepting.client(accepting.gateway.acme.key.secret).post(NAMESPACES, json={"namespace": ["by-key"]})
    ).status_code == 403


async def test_a_refused_read_of_a_token_is_recorded_under_its_actor(
    accepting: TokenGateway, provider: IdentityProvider
) -> None:
    text = token(provider, groups=[])
    assert (await accepting.client(text).get(NAMESPACES)).status_code == 403
    last = (await read_stored(accepting.gateway.services, accepting.gateway.acme.log_id))[-1].entry
    assert (last.type, last.version, last.actor) == ("access.refused", 1, (await who_is(accepting, text)).actor)


async def test_what_is_logged_of_a_refusal_names_nobody(
    accepting: TokenGateway, provider: IdentityProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    bad = token(provider, exp=1, iat=0, nbf=0)
    assert (await accepting.client(bad).get(NAMESPACES)).status_code == 401
    assert (await accepting.client(token(provider, key="rsa-9")).get(NAMESPACES)).status_code == 401
    assert ADA not in caplog.text
    assert not any(piece in caplog.text for piece in bad.split("."))


async def test_requests_with_tokens_are_limited_as_those_with_keys(
    accepting: TokenGateway, provider: IdentityProvider
) -> None:
    rates = RequestRates(Limits(caller=1), SharedCounts(1), 0, monotonic_s=lambda: 1_000.0)
    accepting.authenticator.admit = rates.admit
    key = accepting.gateway.acme.key
    form = {"grant_type": "client_credentials", "client_id": key.id, "client_secret": key.secret}
    granted, limited = [await accepting.client().post("/v1/oauth/tokens", data=form) for _ in range(2)]
    assert (granted.status_code, limited.status_code, limited.headers["retry-after"]) == (200, 429, "1")
    assert limited.json()["error"] == "temporarily_unavailable"
    statuses = [(await accepting.client(token(provider)).get(NAMESPACES)).status_code for _ in range(2)]
    assert statuses == [403, 429]


# Keys that are issued with a token


async def test_no_key_outlives_the_token_that_it_is_issued_with(
    accepting: TokenGateway, provider: IdentityProvider
) -> None:
    await permit(accepting, "'data-eng' in roles && has(grant.roles) && has(grant.identity)")
    text = token(provider, sub="bob@acme.example")
    http, caller = accepting.client(text), await who_is(accepting, text)
    assert caller.ends_at is not None
    for end in (None, (caller.ends_at + timedelta(seconds=1)).isoformat()):
        answer = await http.post("/v1/keys", json={"identity": "bob@acme.example", "expires_at": end})
        assert answer.status_code == 400, answer.text
        assert "issued with" in error_of(answer)["message"]
    issued = await http.post(
        "/v1/keys",
        json={"identity": "bob@acme.example", "roles": ["data-eng"], "expires_at": caller.ends_at.isoformat()},
    )
    assert issued.status_code == 201, issued.text
    by_key = await who_is(accepting, issued.json()["secret"])
    assert (by_key.actor, by_key.issuer, by_key.sub) == (caller.actor, caller.issuer, caller.sub)


# Its end


async def test_a_token_that_ends_during_a_request_changes_nothing(
    accepting: TokenGateway, provider: IdentityProvider
) -> None:
    await permit(accepting)
    late = replace(
        accepting.gateway.services.gateway,
        authenticator=accepting.authenticator,
        clock=lambda: now() + timedelta(seconds=HOUR_S + 120),
    )
    told = await read_stored(accepting.gateway.services, accepting.gateway.acme.log_id)
    answer = (
        await replace(accepting, app=app_of(late))
        .client(token(provider))
        .post(NAMESPACES, json={"namespace": ["late"]})
    )
    assert (answer.status_code, error_of(answer)["message"]) == (401, "the token has expired: get a new one")
    assert await read_stored(accepting.gateway.services, accepting.gateway.acme.log_id) == told


async def test_an_erased_caller_is_refused_until_the_provider_issues_a_new_token(
    accepting: TokenGateway, provider: IdentityProvider
) -> None:
    await permit(accepting)
    services, log_id = accepting.gateway.services, accepting.gateway.acme.log_id
    text = token(provider, sub="bob@acme.example")
    assert (await accepting.client(text).post(NAMESPACES, json={"namespace": ["bobs"]})).status_code == 200
    erased = await who_is(accepting, text)
    own = await services.gateway.admin.create_key(log_id, OPERATOR, identity="bob@acme.example", roles=[])
    installation = services.installation
    async with (
        installation.connect(installation.roles.auditor) as auditor,
        open_eraser(installation, auditor) as eraser,
    ):
        log = await find_log(auditor, installation.origin(accepting.gateway.acme.tenant))
        await eraser.erase_person(log, own.actor, ErasureRequest(reason=ErasureReason.REQUEST, at=now()))
    told = await read_stored(services, log_id)
    assert erased.actor in {one.entry.data.get("subject") for one in told if one.entry.type == "payload.erased"}
    assert not any(one.parts for one in told if one.entry.actor == erased.actor)
    for _ in range(2):
        answer = await accepting.client(text).get(NAMESPACES)
        assert (answer.status_code, "older than an erasure" in error_of(answer)["message"]) == (401, True)
    async with services.gateway.database.as_role(services.gateway.roles.projector) as connection:
        rows = await connection.execute("SELECT identity FROM ledger.subjects WHERE log_id = %s", (log_id,))
        assert await rows.fetchall() == [(ADA,)]

    def later() -> datetime:
        return now() + timedelta(minutes=5)

    async with token_gateway(accepting.gateway, issuer_for(accepting.gateway, provider), clock=later) as next_one:
        new = provider.token(now_s=int(later().timestamp()), sub="bob@acme.example")
        assert (await who_is(next_one, new)).actor != erased.actor
        with pytest.raises(UnauthorizedError):
            await who_is(accepting, text + "x")


# Settings


async def test_issuers_of_a_file_are_accepted_from_the_start(
    shared_gateway: Gateway, module_database: str, provider: IdentityProvider, tmp_path: Path
) -> None:
    file = tmp_path / "issuers.toml"
    file.write_text(
        f'[[issuers]]\nissuer = "{provider.url}"\ntenant = "{shared_gateway.acme.tenant}"\naudience = "lakeproof"\n'
        'roles = { "lake-writers" = "data-eng" }\n'
    )
    installation = provision(module_database, login_password=LOGIN_PASSWORD)
    home = shared_gateway.services.installation.settings.home
    async with start_services(module_database, installation, home.parent, token_issuers=str(file)) as services:
        principal = await services.gateway.authenticator.authenticate(f"Bearer {token(provider)}")
        assert (principal.tenant, principal.roles) == (shared_gateway.acme.tenant, ("data-eng",))
    file.write_text(file.read_text().replace(str(shared_gateway.acme.tenant), "0" * 32))
    with pytest.raises(SettingsError, match="does not exist: `lakeproof tenants list`"):
        async with start_services(module_database, installation, home.parent, token_issuers=str(file)):
            pass
    for content, words in (
        (b"\xff", "not UTF-8"),
        (b"x" * 1_000_001, "shorten it"),
        (b"[[issuers]]\n", "correct it"),
        (None, "cannot be read"),
    ):
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.raises(SettingsError, match=words):
            async with start_services(module_database, installation, home.parent, token_issuers=str(file)):
                pass
