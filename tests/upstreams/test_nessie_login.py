# SPDX-License-Identifier: Apache-2.0
"""
A Nessie that answers nobody without a token of an OpenID provider: how the gateway logs in there, for tables and for
the log of commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from gateway.control.aggregates import Catalog
from lakeproof.inspecting.upstreams import check_upstream
from lakeproof.services import Services
from ledger.format.events import CommitOutcome
from testkit.environment import PATIENCE_S
from testkit.gateway.foreign_faults import snapshot_of
from testkit.gateway.foreign_tenant import ALIAS, TABLES, UNKNOWN_STATUSES
from testkit.gateway.nessie_tenant import NessieTenant, open_nessie_tenant
from testkit.gateway.sales import SCHEMA, error_of
from testkit.servers.chained import secrets_of
from testkit.servers.cloud import fresh_cloud
from testkit.servers.faulty_wire import Fault, Loss
from testkit.servers.nessie import Nessie, start_nessie
from testkit.servers.oidc_provider import SECRET, OidcProvider, oidc_provider

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUDIENCE = "https://nessie.example"
CREDENTIAL, TOKEN = "credential", "token"
LOGINS = (CREDENTIAL, TOKEN)


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    """The provider whose tokens are for Nessie."""
    with oidc_provider(AUDIENCE) as provider:
        yield provider


@pytest.fixture(scope="module")
def nessie(moto: str, provider: OidcProvider) -> Iterator[Nessie]:
    """A real server that asks for a token, which the test itself has."""
    with start_nessie(fresh_cloud(moto), provider) as server:
        yield replace(server, headers={"Authorization": f"Bearer {provider.token()}"})


def options(provider: OidcProvider) -> dict[str, str]:
    """The options with which the gateway gets tokens."""
    return {"oauth2-server-uri": provider.token_url, "scope": "catalog", "resource": AUDIENCE}


def secrets(provider: OidcProvider, login: str) -> Mapping[str, str]:
    """The secret of a login."""
    if login == TOKEN:
        return {TOKEN: provider.token()}
    return {CREDENTIAL: f"{provider.client_id('RS256')}:{SECRET}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenants(
    module_services: Services, nessie: Nessie, provider: OidcProvider
) -> AsyncIterator[Mapping[str, NessieTenant]]:
    """A tenant for each login, whose catalog `far` is the branch `main`."""
    async with AsyncExitStack() as stack:
        yield {
            login: await stack.enter_async_context(
                open_nessie_tenant(
                    module_services,
                    nessie,
                    secrets=secrets(provider, login),
                    options=options(provider) if login == CREDENTIAL else None,
                )
            )
            for login in LOGINS
        }


@pytest.fixture(params=LOGINS)
def tenant(request: pytest.FixtureRequest, tenants: Mapping[str, NessieTenant]) -> NessieTenant:
    """The tenant with one of the logins."""
    return tenants[request.param]


@pytest_asyncio.fixture(loop_scope="module")
async def far(tenant: NessieTenant) -> NessieTenant:
    """The tenant, with a table of the test's own."""
    return await tenant.with_new_table()


async def test_it_answers_nobody_without_a_token(nessie: Nessie) -> None:
    async with httpx.AsyncClient(base_url=nessie.url, trust_env=False, timeout=PATIENCE_S) as http:
        for path in ("/iceberg/v1/config", "/api/v2/trees/main/history"):
            for headers in ({}, {"Authorization": "Bearer nonsense"}):
                assert (await http.get(path, headers=headers)).status_code == 401
    known = await asyncio.to_thread(nessie.history, "sales.orders")
    assert isinstance(known, list)


async def test_a_table_is_created_and_changed_with_each_login(far: NessieTenant) -> None:
    name = f"{far.name}-made"
    made = await far.gateway.http.post(TABLES, json={"name": name, "schema": SCHEMA})
    assert made.status_code == 200, made.text
    body = await far.next_append()
    assert (await far.gateway.http.post(far.orders, json=body)).status_code == 200
    assert await far.snapshots() == {snapshot_of(body)}
    assert await far.words() == ["approved", "accepted"]
    await far.check()


async def test_what_became_of_a_lost_change_is_read_in_the_log_of_commits_with_each_login(far: NessieTenant) -> None:
    ours = await far.next_append()
    far.wire.fault = Fault(happens=Loss.ANSWER, path=far.path)
    assert (await far.gateway.http.post(far.orders, json=ours)).status_code in UNKNOWN_STATUSES
    await far.commit_behind(await far.next_append())
    read = len(far.wire.seen)
    assert [each.outcome for each in await far.reconcile() if each.key == far.key] == [CommitOutcome.ACCEPTED]
    assert any("/history?" in seen.target for seen in far.wire.seen[read:]), "the table does not show it any more"
    await far.check()


REFUSED = {
    CREDENTIAL: f"the token server of catalog {ALIAS} answered 401 (invalid_client): check the secret of the option "
    "credential, and scope",
    TOKEN: f"the upstream of catalog {ALIAS} refuses the gateway's credentials (401): replace the secret of the option "
    "token",
}


@pytest.mark.parametrize("login", LOGINS)
async def test_a_wrong_secret_is_told_in_one_sentence_and_changes_nothing(
    tenants: Mapping[str, NessieTenant], provider: OidcProvider, login: str
) -> None:
    far = await tenants[login].with_new_table()
    body = await far.next_append()
    kept, owner, right = secrets_of(far.services), far.gateway.acme.tenant, secrets(provider, login)[login]
    name = f"upstream-{ALIAS}" if login == TOKEN else f"{CREDENTIAL}-{ALIAS}"
    kept.write(owner, name, f"{right[:-4]}nope")
    try:
        answer = await far.gateway.http.post(far.orders, json=body)
    finally:
        kept.write(owner, name, right)
    assert (answer.status_code, error_of(answer)["message"]) == (403, REFUSED[login])
    assert await far.snapshots() == set()
    assert await far.open_decisions() == set()
    assert (await far.gateway.http.post(far.orders, json=body)).status_code == 200
    await far.check()


async def test_the_check_says_what_is_wrong_with_a_login(
    tenants: Mapping[str, NessieTenant], nessie: Nessie, provider: OidcProvider
) -> None:
    far = tenants[CREDENTIAL]
    kept, owner = secrets_of(far.services), far.gateway.acme.tenant
    kept.write(owner, "bad", "client-RS256:nope")
    kept.write(owner, "old", provider.token("ES256")[:-4] + "AAAA")
    right = f"secret:{CREDENTIAL}-{ALIAS}"
    for given, trouble in (
        ({}, "refuses the gateway's credentials (401): register it under another alias, with the option token or"),
        ({"token": "secret:old"}, "refuses the gateway's credentials (401): replace the secret of the option token"),
        ({CREDENTIAL: "secret:bad", **options(provider)}, "answered 401 (invalid_client): check the secret"),
        # Without a resource the provider gives a token that says nothing by itself.
        (
            {CREDENTIAL: right, "oauth2-server-uri": provider.token_url},
            "refuses the gateway's credentials (401): the token server has given a token, so check the options scope",
        ),
        ({CREDENTIAL: right}, "answered 501: name the URL that gives tokens in the option oauth2-server-uri"),
        ({CREDENTIAL: right, **options(provider)}, ""),
    ):
        catalog = Catalog(id="looked-at", version=1, kind="rest", options={"uri": nessie.iceberg, **given})
        found = await check_upstream(far.services.installation, owner, catalog)
        assert (trouble in found.trouble, bool(found.trouble)) == (True, bool(trouble)), found.trouble
        assert ("it is branch main of a Nessie, whose log of commits is used" in found.notes) is not bool(trouble)
