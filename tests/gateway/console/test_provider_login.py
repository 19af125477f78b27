# SPDX-License-Identifier: Apache-2.0
"""
A login with an identity provider that does what a real one would not: everything that is not as it should be is refused
with a sentence, and begins no session.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from html import unescape
from re import findall
from typing import Any

import httpx
import pytest
import pytest_asyncio
from starlette.responses import JSONResponse, Response

from gateway.console.logins import ATTEMPT_COOKIE, COOKIE
from gateway.identity.code_logins import ATTEMPT_LIFETIME
from testkit.gateway.console.code_login import BEGIN, CODE, ORIGIN, Login, browser_at
from testkit.gateway.console.logins import ANSWER, NAME, MovedClock, console_with
from testkit.gateway.token_gateway import unhurried
from testkit.servers.gateways import Gateway
from testkit.servers.identity_provider import identity_provider, part
from testkit.servers.oidc_provider import CONSOLE

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOT_BEGUN = "This login was not begun in this browser, or was finished already"


@pytest_asyncio.fixture(loop_scope="module")
async def login(module_sales: Gateway, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Login]:
    unhurried(monkeypatch)
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(identity_provider())
        clock = MovedClock()
        accepting = await stack.enter_async_context(console_with(module_sales, provider, origin=ORIGIN, clock=clock))
        http = await stack.enter_async_context(browser_at(accepting))
        yield Login(accepting=accepting, provider=provider, clock=clock, http=http)


def check_refused(answer: httpx.Response, words: str) -> None:
    """Check that a page says why, that no session began, and that nothing secret is on the page."""
    assert answer.status_code in {401, 503}, answer.text
    (told,) = findall(r'class="problem" role="alert">([^<]*)<', answer.text)
    assert words in unescape(told)
    assert not any(each.startswith(f"{COOKIE}=") for each in answer.headers.get_list("set-cookie"))
    assert CODE not in answer.text
    assert "eyJ" not in answer.text


async def test_a_login_with_a_good_answer_begins_a_session_at_the_page_that_was_asked_for(login: Login) -> None:
    await login.begin("/console/log?type=commit.decided")
    assert login.asked["redirect_uri"] == ORIGIN + ANSWER
    assert (login.asked["response_type"], login.asked["flow"]) == ("code", "1")
    answer = await login.finish()
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/log?type=commit.decided")
    assert set(login.http.cookies) == {COOKIE}
    ((form, authorization),) = login.provider.forms
    assert authorization is None
    assert form | {"code_verifier": ""} == {
        "grant_type": "authorization_code",
        "code": CODE,
        "redirect_uri": ORIGIN + ANSWER,
        "client_id": CONSOLE,
        "code_verifier": "",
    }
    challenge = part(sha256(form["code_verifier"].encode()).digest())
    assert (challenge, "S256") == (login.asked["code_challenge"], login.asked["code_challenge_method"])
    assert (await login.http.get("/console/log")).status_code == 200


async def test_the_cookie_of_a_login_is_of_no_use_to_scripts_nor_after_ten_minutes(login: Login) -> None:
    begun = await login.http.get(BEGIN)
    _, *attributes = begun.headers["set-cookie"].split("; ")
    assert {each.lower() for each in attributes} == {"httponly", "samesite=lax", "path=/", "max-age=600"}
    assert begun.headers["Referrer-Policy"] == "same-origin"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"state": None}, NOT_BEGUN),
        ({"state": ""}, NOT_BEGUN),
        ({"state": "A" * 43}, NOT_BEGUN),
        ({"state": "ü"}, NOT_BEGUN),
        ({"code": None}, "expected a code"),
        ({"code": "c" * 5_000}, "expected a code"),
        ({"iss": "https://other.example"}, "of another identity provider"),
        ({"code": None, "error": "access_denied"}, "(access_denied): log in again"),
        ({"code": None, "error": "<b>call 555</b>"}, "(it does not say why): log in again"),
    ],
)
async def test_an_answer_that_is_not_the_providers_to_this_login_is_refused(
    login: Login, changed: dict[str, str | None], words: str
) -> None:
    await login.begin()
    check_refused(await login.finish(**changed), words.replace("expected", "Expected", 1))
    assert login.provider.forms == []


async def test_a_parameter_that_comes_twice_is_refused(login: Login) -> None:
    await login.begin()
    answer = await login.http.get(f"{ANSWER}?code=a&code=b&state={login.asked['state']}")
    check_refused(answer, NOT_BEGUN)


async def test_an_answer_without_an_issuer_is_refused_if_the_provider_says_that_it_names_one(login: Login) -> None:
    login.provider.discovery = {"authorization_response_iss_parameter_supported": True}
    await login.begin()
    check_refused(await login.finish(), "of another identity provider")
    await login.begin()
    assert (await login.finish(iss=login.provider.url)).status_code == 303


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        ({"nonce": "other"}, "not the answer to this login"),
        ({"nonce": None}, "expected 'nonce'"),
        ({"iss": "https://other.example"}, "of another identity provider"),
        ({"aud": "another-client"}, "another audience"),
        ({"aud": [CONSOLE, "another-client"]}, "made for another client"),
        ({"aud": [CONSOLE, "another-client"], "azp": "another-client"}, "made for another client"),
        ({"azp": "another-client"}, "made for another client"),
        ({"exp": 1_000_000_000, "iat": 999_999_000}, "expired"),
        ({"iat": 4_000_000_000, "exp": 4_000_000_100}, "not valid yet"),
        ({"sub": "eve@acme.example"}, "not of the same person"),
        ({"at_hash": part(b"0" * 16)}, "with another access token"),
    ],
)
async def test_an_id_token_that_is_not_for_this_login_is_refused(
    login: Login, identity: dict[str, Any], words: str
) -> None:
    await login.begin()
    login.identity = identity
    check_refused(await login.finish(), words if words[0] != "e" or words == "expired" else "E" + words[1:])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda login: login.access.update(aud="elsewhere"), "another audience"),
        (lambda login: login.access.update(exp=1_000_000_000, iat=999_999_000), "expired"),
        (lambda login: login.access.update(iss="https://other.example"), "not of the same person"),
        (lambda login: login.access.update(sub="eve@acme.example"), "not of the same person"),
        (lambda login: login.access.update(key="ed-9"), "a key that its issuer does not have"),
        (lambda login: setattr(login, "key", "p256-9"), "a key that its issuer does not have"),
        (lambda login: login.header.update(kid="ed-1"), "a key that its issuer does not have"),
        (lambda login: login.header.update(alg="none"), "found another algorithm"),
        (lambda login: login.header.update(typ="at+jwt"), "a token of another kind"),
        (lambda login: login.answers.update(access_token="opaque"), "says for whom it is"),
        (lambda login: login.answers.update(access_token=None), "found others"),
        (lambda login: login.answers.update(id_token=None), "found others"),
        (lambda login: login.answers.update(id_token="a.b.c"), "base64url"),
        (lambda login: login.answers.update(id_token=7), "found others"),
    ],
)
async def test_a_token_that_no_issuer_of_the_tenant_has_signed_for_this_installation_is_refused(
    login: Login, change: Callable[[Login], object], words: str
) -> None:
    await login.begin()
    change(login)
    check_refused(await login.finish(), words)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: JSONResponse({"error": "invalid_grant"}, status_code=400), "(invalid_grant): log in again"),
        (lambda: JSONResponse({"error": "<script>"}, status_code=401), "(it does not say why)"),
        (lambda: Response("no", status_code=400), "(it does not say why)"),
        (lambda: JSONResponse(["a list"]), "found others"),
        (lambda: Response("", status_code=302, headers={"Location": "https://evil.example"}), "(it does not say why)"),
        (lambda: JSONResponse({}, status_code=500), "try again in a minute"),
        (lambda: Response("x" * 300_000), "try again in a minute"),
        (lambda: Response(b"x", headers={"Content-Encoding": "gzip"}), "try again in a minute"),
    ],
)
async def test_a_provider_that_gives_no_tokens_logs_nobody_in(
    login: Login, answer: Callable[[], Response], words: str
) -> None:
    await login.begin()
    login.provider.exchange = answer
    check_refused(await login.finish(), words)


async def test_a_login_counts_once(login: Login) -> None:
    await login.begin()
    kept = login.http.cookies[ATTEMPT_COOKIE]
    assert (await login.finish()).status_code == 303
    check_refused(await login.finish(), NOT_BEGUN)
    async with browser_at(login.accepting) as other:  # not even with a copy of what the browser kept, and another code
        other.cookies.set(ATTEMPT_COOKIE, kept)
        check_refused(await replace(login, http=other).finish(code="another"), NOT_BEGUN)


async def test_a_login_counts_in_the_browser_that_began_it_alone(login: Login) -> None:
    await login.begin()
    async with browser_at(login.accepting) as other:
        check_refused(await replace(login, http=other).finish(), NOT_BEGUN)
        await other.get(BEGIN)  # nor in one that has begun a login of its own
        check_refused(await replace(login, http=other).finish(), NOT_BEGUN)
    assert login.provider.forms == []


async def test_an_answer_that_another_site_made_up_does_not_end_a_login_that_is_under_way(login: Login) -> None:
    await login.begin()
    check_refused(await login.finish(state="A" * 43), NOT_BEGUN)
    assert (await login.finish()).status_code == 303


async def test_what_a_browser_kept_cannot_be_changed_to_lead_elsewhere_or_last_longer(login: Login) -> None:
    await login.begin()
    secret, began, to = login.http.cookies[ATTEMPT_COOKIE].split(".")
    elsewhere = b64encode(b"https://evil.example").decode()
    for changed in (
        f"{secret}.{began}.{elsewhere}",
        f"{secret}.{int(began) + 600}.{to}",
        f"{secret[:-2]}.{began}.{to}",
        f"{secret}.{began}.{to}.",
        f"{secret}.{'9' * 5_000}.{to}",
        f"{secret}.x.{to}",
        "",
    ):
        login.http.cookies.clear()
        login.http.cookies.set(ATTEMPT_COOKIE, changed)
        check_refused(await login.finish(), NOT_BEGUN)


@pytest.mark.parametrize("to", ["https://evil.example", "//evil.example", "/v1/keys", "/console/\\evil", ""])
async def test_a_login_leads_nowhere_but_to_the_console(login: Login, to: str) -> None:
    await login.begin(to)
    assert (await login.finish()).headers["location"] == "/console"


async def test_a_login_that_takes_longer_than_ten_minutes_begins_anew(login: Login) -> None:
    await login.begin()
    login.clock.ahead = ATTEMPT_LIFETIME + timedelta(seconds=1)
    check_refused(await login.finish(), "took longer than ten minutes")


@pytest.mark.parametrize(
    "discovery",
    [
        {"issuer": "https://other.example"},
        {"token_endpoint": None},
        {"token_endpoint": "http://evil.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": 7},
    ],
)
async def test_a_provider_that_does_not_say_where_people_log_in_is_not_asked_again_at_once(
    login: Login, discovery: dict[str, Any]
) -> None:
    login.provider.discovery = discovery
    for _ in range(2):
        answer = await login.http.get(BEGIN)
        assert answer.status_code == 503
        assert "try again in a minute, or use an API key" in answer.text
        login.provider.discovery = {}  # within ten seconds it is not asked whether that has changed


async def test_a_client_with_a_secret_shows_it_to_the_provider_alone(login: Login, module_sales: Gateway) -> None:
    async with console_with(module_sales, login.provider, origin=ORIGIN, clock=login.clock) as accepting:
        _, provider = accepting.tokens.codes._find(NAME)
        provider.client = replace(provider.client, secret="of:the client")  # type: ignore[misc]
        async with browser_at(accepting) as http:
            confidential = replace(login, accepting=accepting, http=http)
            await confidential.begin()
            assert (await confidential.finish()).status_code == 303
    form, authorization = login.provider.forms[-1]
    assert authorization == "Basic " + b64encode(b"console:of%3Athe+client").decode()
    assert "client_id" not in form
    assert "of:the client" not in repr(provider.client)


async def test_a_login_that_nobody_configured_is_not_there(login: Login) -> None:
    for path in ("/console/login/at/other", "/console/login/at/other/answer?code=1&state=2"):
        answer = await login.http.get(path)
        assert answer.status_code == 404
        assert "expected a login that the operator has configured" in answer.text
