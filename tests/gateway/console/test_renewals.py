# SPDX-License-Identifier: Apache-2.0
"""
A session that its identity provider renews: with a certified one (node-oidc-provider), and with one that lies.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from psycopg import AsyncConnection
from starlette.responses import JSONResponse, Response

from gateway.console.logins import COOKIE, ENDED
from gateway.console.renewals import REFUSED
from gateway.console.sessions import LIFETIME, Renewable, Session, Sessions
from gateway.identity.principal import TokenRefusedError
from testkit.environment import PATIENCE_S
from testkit.gateway.console.code_login import BEGIN, ORIGIN, Login, browser_at
from testkit.gateway.console.logins import ANSWER, NAME, MovedClock, answer_to, console_with
from testkit.gateway.token_gateway import TokenGateway, unhurried
from testkit.servers.gateways import Gateway
from testkit.servers.identity_provider import HOUR_S, IdentityProvider, identity_provider
from testkit.servers.oidc_provider import CONSOLE, OidcProvider, oidc_provider

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUDIENCE = "https://lake.example"
TOKEN_S = 600
ENTRY = 'href="/console/log/0"'
"""A link to an entry, which the list of the log has for who may see it."""
OWN = {"Origin": ORIGIN, "Content-Type": "application/x-www-form-urlencoded"}
OUT = timedelta(seconds=TOKEN_S + 60)
"""After that long the first token has ended, with the seconds by which clocks may differ."""


@dataclass(slots=True, kw_only=True)
class Person:
    """A browser that has logged in at the real provider."""

    accepting: TokenGateway
    provider: OidcProvider
    clock: MovedClock
    http: httpx.AsyncClient

    @property
    def cookie(self) -> str:
        return self.http.cookies[COOKIE]

    async def session(self) -> Session | None:
        """What the console keeps for the browser's cookie, as it is."""
        return await sessions_of(self.accepting, self.clock).find(self.cookie)

    async def renewable(self) -> Renewable:
        session = await self.session()
        assert session is not None
        assert session.renewable is not None
        return session.renewable

    async def end_token(self) -> None:
        """Let the time of the token be over; the next one lasts long."""
        self.provider.change(lifetime_s=10 * TOKEN_S)
        self.clock.ahead = OUT

    async def check_ended(self, words: str) -> None:
        """Check that the next page leads to the login, which says why, and that nothing is kept."""
        answer = await self.http.get("/console/log")
        assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/console/login")
        assert words in (await self.http.get(answer.headers["location"])).text
        assert await self.session() is None


def sessions_of(accepting: TokenGateway, clock: MovedClock) -> Sessions:
    parts = accepting.gateway.services.gateway
    return Sessions(parts.database, parts.roles.gateway, clock=clock, random=parts.random)


@pytest.fixture(scope="module")
def real() -> Iterator[OidcProvider]:
    with oidc_provider(AUDIENCE, redirect_uri=ORIGIN + ANSWER) as provider:
        yield provider


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ruled(module_sales: Gateway) -> Gateway:
    """A gateway that lets the provider's group of writers, and nobody else, read the log."""
    rule = {"id": "engineers", "effect": "permit", "expression": "'data-eng' in roles"}
    (await module_sales.http.post("/v1/access-rules", json=rule)).raise_for_status()
    return module_sales


@asynccontextmanager
async def logged_in(ruled: Gateway, real: OidcProvider, *, scope: str, person: str) -> AsyncIterator[Person]:
    """Log a person in with these scopes; what a test changes of the provider is set back."""
    clock, known = MovedClock(), IdentityProvider(url=real.url, audience=AUDIENCE)
    real.change(lifetime_s=TOKEN_S)
    async with AsyncExitStack() as stack:
        accepting = await stack.enter_async_context(
            console_with(ruled, known, origin=ORIGIN, clock=clock, resource=AUDIENCE, scope=scope)
        )
        http = await stack.enter_async_context(browser_at(accepting))
        elsewhere = await stack.enter_async_context(httpx.AsyncClient(timeout=PATIENCE_S))
        begun = await http.get(BEGIN, params={"to": "/console/log"})
        finished = await http.get(await answer_to(elsewhere, begun.headers["location"], person=person))
        assert (finished.status_code, finished.headers["location"]) == (303, "/console/log"), finished.text
        try:
            yield Person(accepting=accepting, provider=real, clock=clock, http=http)
        finally:
            real.change(groups=["lake-writers", "everybody"], gone=None, lifetime_s=TOKEN_S)


@pytest_asyncio.fixture(loop_scope="module")
async def grace(ruled: Gateway, real: OidcProvider, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Person]:
    """Somebody whose session can be renewed."""
    unhurried(monkeypatch)
    async with logged_in(ruled, real, scope="openid offline_access catalog", person="grace") as person:
        yield person


# With the real provider


async def test_a_session_goes_on_when_its_token_ends_with_another_token_and_refresh_token(grace: Person) -> None:
    before = await grace.session()
    assert before is not None
    assert before.renewable is not None
    await grace.end_token()
    answer = await grace.http.get("/console/log")
    assert answer.status_code == 200
    assert "set-cookie" not in answer.headers
    after = await grace.session()
    assert after is not None
    assert after.renewable is not None
    assert after.credentials != before.credentials
    assert after.renewable.refresh_token != before.renewable.refresh_token
    assert after.renewable.version != before.renewable.version
    assert after.renewable.actor == before.renewable.actor
    assert (await grace.http.get("/console/log")).status_code == 200
    assert await grace.renewable() == after.renewable  # not renewed again before its time


async def test_a_refresh_token_that_was_used_is_refused_by_the_provider_and_ends_the_session(grace: Person) -> None:
    spent = await grace.renewable()
    session = await grace.session()
    assert session is not None
    await grace.end_token()
    assert (await grace.http.get("/console/log")).status_code == 200
    codes, token = grace.accepting.tokens.codes, session.credentials.removeprefix("Bearer ")
    with pytest.raises(TokenRefusedError, match="invalid_grant"):
        await codes.renew(token, refresh_token=spent.refresh_token)
    grace.clock.ahead += timedelta(seconds=10 * TOKEN_S)  # the provider has now revoked what came of it, too
    await grace.check_ended(REFUSED)


async def test_a_session_whose_refresh_token_was_revoked_ends_and_says_why(grace: Person) -> None:
    form = {"token": (await grace.renewable()).refresh_token, "client_id": CONSOLE}
    async with httpx.AsyncClient(timeout=PATIENCE_S) as elsewhere:
        (await elsewhere.post(f"{grace.provider.url}/token/revocation", data=form)).raise_for_status()
    assert (await grace.http.get("/console/log")).status_code == 200  # as long as its token lasts
    await grace.end_token()
    await grace.check_ended(REFUSED)


async def test_who_logs_out_is_out_at_the_provider_too(grace: Person) -> None:
    session, renewable = await grace.session(), await grace.renewable()
    assert session is not None
    assert (await grace.http.post("/console/logout", headers=OWN)).status_code == 303
    codes, token = grace.accepting.tokens.codes, session.credentials.removeprefix("Bearer ")
    with pytest.raises(TokenRefusedError, match="invalid_grant"):
        await codes.renew(token, refresh_token=renewable.refresh_token)


async def test_who_lost_a_group_at_the_provider_has_its_roles_no_more_after_the_renewal(grace: Person) -> None:
    grace.provider.change(groups=["everybody"])
    assert ENTRY in (await grace.http.get("/console/log")).text  # as long as its token lasts
    await grace.end_token()
    assert ENTRY not in (await grace.http.get("/console/log")).text
    assert (await grace.http.get("/console")).status_code == 403


async def test_whose_account_the_provider_has_removed_is_out_at_the_renewal(grace: Person) -> None:
    grace.provider.change(gone="grace")
    await grace.end_token()
    await grace.check_ended(REFUSED)


async def test_a_session_is_renewed_for_as_long_as_it_could_last_at_its_login_and_no_longer(grace: Person) -> None:
    grace.provider.change(lifetime_s=24 * HOUR_S)
    grace.clock.ahead = OUT
    assert (await grace.http.get("/console/log")).status_code == 200
    grace.clock.ahead = LIFETIME + timedelta(seconds=1)
    await grace.check_ended(ENDED)


async def test_a_session_ends_with_its_token_where_offline_access_is_not_asked_for(
    ruled: Gateway, real: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    unhurried(monkeypatch)
    async with logged_in(ruled, real, scope="openid catalog", person="alan") as person:
        session = await person.session()
        assert session is not None
        assert session.renewable is None
        await person.end_token()
        await person.check_ended(ENDED)


async def test_the_database_has_no_token_that_can_be_read_without_the_cookie(grace: Person) -> None:
    installation, first = grace.accepting.gateway.services.installation, await grace.renewable()
    await grace.end_token()
    assert (await grace.http.get("/console/log")).status_code == 200
    second = await grace.renewable()
    async with await AsyncConnection.connect(installation.admin_dsn) as owner:
        rows = await (await owner.execute("SELECT s::text FROM gateway.console_sessions AS s")).fetchall()
    stored = "".join(row for (row,) in rows)
    for text in (first.refresh_token, second.refresh_token, grace.cookie):
        assert text.encode().hex() not in stored
        assert text not in stored
    assert second.refresh_token not in repr(second)


# With a provider that lies


@pytest_asyncio.fixture(loop_scope="module")
async def login(ruled: Gateway, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Login]:
    """Somebody who has logged in at a provider that gives what a test says, and whose token has ended."""
    unhurried(monkeypatch)
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(identity_provider())
        clock = MovedClock()
        accepting = await stack.enter_async_context(console_with(ruled, provider, origin=ORIGIN, clock=clock))
        http = await stack.enter_async_context(browser_at(accepting))
        login = Login(accepting=accepting, provider=provider, clock=clock, http=http)
        await login.begin("/console/log")
        login.answers["refresh_token"] = "the-first"
        assert (await login.finish()).status_code == 303
        clock.ahead = timedelta(seconds=HOUR_S + 60)
        login.identity["nonce"] = None
        login.answers["refresh_token"] = "the-second"
        provider.forms.clear()
        yield login


async def kept(login: Login) -> Renewable | None:
    session = await sessions_of(login.accepting, login.clock).find(login.http.cookies[COOKIE])
    return None if session is None else session.renewable


async def test_the_provider_is_sent_the_refresh_token_once_whatever_is_asked_at_once(login: Login) -> None:
    answers = await asyncio.gather(*(login.http.get("/console/log") for _ in range(8)))
    assert {answer.status_code for answer in answers} == {200}
    ((form, authorization),) = login.provider.forms
    assert form == {"grant_type": "refresh_token", "refresh_token": "the-first", "client_id": CONSOLE}
    assert authorization is None


@pytest.mark.parametrize(
    ("answers", "expected"),
    [({}, "the-second"), ({"refresh_token": None}, "the-first"), ({"refresh_token": "x" * 5_000}, "the-first")],
)
async def test_a_refresh_token_counts_on_if_the_provider_gives_no_other(
    login: Login, answers: dict[str, Any], expected: str
) -> None:
    login.answers |= answers
    assert (await login.http.get("/console/log")).status_code == 200
    found = await kept(login)
    assert found is not None
    assert found.refresh_token == expected


async def test_a_renewal_needs_no_id_token(login: Login) -> None:
    login.answers["id_token"] = None
    assert (await login.http.get("/console/log")).status_code == 200


@pytest.mark.parametrize(
    "change",
    [
        lambda login: login.access.update(sub="eve@acme.example"),
        lambda login: [each.update(sub="eve@acme.example") for each in (login.access, login.identity)],
        lambda login: login.access.update(aud="elsewhere"),
        lambda login: login.access.update(exp=1_000_000_000, iat=999_999_000),
        lambda login: login.access.update(key="ed-9"),
        lambda login: login.identity.update(sub="eve@acme.example"),
        lambda login: login.identity.update(aud="another-client"),
        lambda login: login.identity.update(iss="https://other.example"),
        lambda login: setattr(login, "key", "p256-9"),
        lambda login: login.answers.update(access_token="opaque"),
        lambda login: login.answers.update(access_token=None),
        lambda login: login.answers.update(id_token=7),
        lambda login: setattr(login.provider, "exchange", lambda: JSONResponse({"error": "invalid_grant"}, 400)),
    ],
)
async def test_a_renewal_that_gives_something_else_than_the_same_persons_token_ends_the_session(
    login: Login, change: Callable[[Login], object]
) -> None:
    change(login)
    answer = await login.http.get("/console/log")
    assert answer.headers["location"] == "/console/login?to=%2Fconsole%2Flog&ended=renewal"
    assert REFUSED in (await login.http.get(answer.headers["location"])).text
    assert await kept(login) is None
    assert (await login.http.get("/console/log")).status_code == 303


@pytest.mark.parametrize("answer", [lambda: JSONResponse({}, status_code=503), lambda: Response("x" * 300_000)])
async def test_a_provider_that_does_not_answer_ends_no_session(login: Login, answer: Callable[[], Response]) -> None:
    login.provider.exchange = answer
    found = await asyncio.gather(*(login.http.get("/console/log") for _ in range(3)))
    assert {each.status_code for each in found} == {503}
    assert all("try again in a minute" in each.text for each in found)
    assert len(login.provider.forms) == 1  # those who waited for that one try do not try again themselves
    login.provider.exchange = login.tokens
    assert (await login.http.get("/console/log")).status_code == 200


async def test_a_process_that_ended_while_it_renewed_holds_a_session_up_for_half_a_minute_only(login: Login) -> None:
    sessions, found = sessions_of(login.accepting, login.clock), await kept(login)
    assert found is not None
    cookie, until = login.http.cookies[COOKIE], login.clock() + timedelta(seconds=30)
    assert await sessions.begin_renewal(cookie, found, until=until)
    assert not await sessions.begin_renewal(cookie, found, until=until)
    login.clock.ahead += timedelta(seconds=31)
    assert (await login.http.get("/console/log")).status_code == 200


async def test_what_was_renewed_for_a_session_that_has_ended_meanwhile_is_given_back(login: Login) -> None:
    login.provider.discovery = {"revocation_endpoint": f"{login.provider.url}/token"}
    cookie, given = login.http.cookies[COOKIE], login.tokens
    _, provider = login.accepting.tokens.codes._find(NAME)
    provider._read_at_s = float("-inf")  # it reads where tokens are given back
    sessions = sessions_of(login.accepting, login.clock)

    def ended() -> Response:
        login.provider.exchange = lambda: Response("")
        login.provider.forms.append(({"ended": "now"}, None))
        return given()

    login.provider.exchange = ended
    renew = Sessions.renew

    async def too_late(self: Sessions, *arguments: Any, **more: Any) -> bool:
        await sessions.end(cookie)  # the person logs out while the provider answers
        return await renew(self, *arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sessions, "renew", too_late)
        assert (await login.http.get("/console/log")).status_code == 303
    form, _ = login.provider.forms[-1]
    assert form == {"token": "the-second", "token_type_hint": "refresh_token", "client_id": CONSOLE}


async def test_who_logs_out_is_out_even_if_the_provider_does_not_take_the_token_back(login: Login) -> None:
    login.provider.discovery = {"revocation_endpoint": f"{login.provider.url}/token"}
    _, provider = login.accepting.tokens.codes._find(NAME)
    provider._read_at_s = float("-inf")
    login.provider.exchange = lambda: Response("", status_code=503)
    assert (await login.http.post("/console/logout", headers=OWN)).status_code == 303
    assert [form["token"] for form, _ in login.provider.forms] == ["the-first"]
    assert (await login.http.get("/console/log")).status_code == 303
