# SPDX-License-Identifier: Apache-2.0
"""
Client credentials at an upstream over real sockets: when a token is asked for, and what a token server can do wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

import orjson
import pytest

from gateway.catalogs.catalog import Outgoing
from gateway.catalogs.client_credentials import TOKEN_ANSWER_SIZE_BYTES_MAX
from gateway.catalogs.connections import Call
from gateway.catalogs.onward import Onward
from gateway.catalogs.replies import Answered, NeverSent, Refused, Unanswered, outcome_of
from gateway.catalogs.rest import RestCatalog
from gateway.catalogs.upstream import open_client
from gateway.catalogs.upstreams import Upstreams
from gateway.errors import GatewayError, UnavailableError, UpstreamCredentialsError, UpstreamNotAllowedError
from gateway.identifiers import Target
from gateway.mutations import Mutation, Operation
from ledger.format.events import CommitOutcome
from projections.egress.rules import EgressRules
from projections.errors import SecretMissingError
from testkit.servers.faulty_wire import Fault, FaultyWire, Loss, Replaced, answer
from testkit.servers.loopback import LOOPBACK, serve
from testkit.servers.oauth import TOKENS_PATH, TokenServer
from testkit.servers.script import Script
from testkit.servers.traps import set_trap
from testkit.servers.upstream import Upstream, app_of

TENANT: Final = UUID(int=7)
SALES: Final = Target(alias="beyond", namespace=("sales",))
MADE: Final = Outgoing(
    mutation=Mutation(operation=Operation.NAMESPACE_CREATE, target=SALES), body=b'{"namespace":["sales"]}'
)
CONFIG_PATH: Final = "/v1/config"


@dataclass(slots=True)
class Kept:
    """The one secret of the tenant, which can be replaced."""

    secret: str | None = "gateway:hunter2"

    def read(self, tenant: UUID, secret: str) -> str:
        if (tenant, secret, self.secret is None) != (TENANT, "login", False):
            raise SecretMissingError("none")
        assert self.secret is not None
        return self.secret


@dataclass(slots=True, kw_only=True)
class Beyond:
    """A catalog at an upstream that lets tokens through, the server of these, and a clock that a test moves on."""

    server: TokenServer
    upstream: Upstream
    catalog: RestCatalog
    kept: Kept
    url: str
    now_s: list[float] = field(default_factory=lambda: [1_000.0])

    async def loads(self, times: int = 1) -> None:
        for _ in range(times):
            await self.catalog.load(SALES)

    def later(self, seconds: float) -> None:
        self.now_s[0] += seconds

    async def request_ends(self) -> None:
        """Wait until no token is being asked for."""
        request = self.catalog.upstream.login.tokens._request
        assert request is not None
        await asyncio.wait([request.task])


@asynccontextmanager
async def beyond(
    options: Mapping[str, str] | None = None,
    *,
    rules: EgressRules = LOOPBACK,
    timeout_s: float = 5.0,
    server: TokenServer | None = None,
) -> AsyncIterator[Beyond]:
    server, upstream, kept, now_s = server or TokenServer(), Upstream(), Kept(), [1_000.0]
    async with serve(server.app(app_of(upstream))) as url, open_client(rules) as client:
        upstreams = Upstreams(client=client, secrets=kept, timeout_s=timeout_s, clock_s=lambda: now_s[0])
        made = upstreams.upstream(TENANT, "beyond", {"uri": url, "credential": "secret:login", **(options or {})})
        catalog = RestCatalog(upstream=made, onward=Onward())
        yield Beyond(server=server, upstream=upstream, catalog=catalog, kept=kept, url=url, now_s=now_s)


async def test_a_token_is_asked_for_once_and_sent_with_every_request() -> None:
    async with beyond() as far:
        assert isinstance(await far.catalog.forward(MADE), Answered)
        assert (await far.catalog.load(SALES)).namespace_exists
    assert far.server.forms == [
        {
            "grant_type": "client_credentials",
            "client_id": "gateway",
            "client_secret": "hunter2",
            "scope": "catalog",
        }
    ]
    assert far.server.let_through == ["token-0:sub=gateway"] * 3
    assert not far.server.turned_away


async def test_the_options_say_what_the_token_is_for() -> None:
    named = {"scope": "PRINCIPAL_ROLE:ALL email", "audience": "api://x?y=z&a", "resource": "urn:lake"}
    async with beyond(named) as far:
        await far.loads()
    assert far.server.forms[0].items() >= named.items()


@pytest.mark.parametrize(
    ("credential", "client"),
    [
        ("hunter2", {"client_secret": "hunter2"}),
        ("gateway:hunter:2", {"client_id": "gateway", "client_secret": "hunter:2"}),
        ("ö&=:%+ &ü", {"client_id": "ö&=", "client_secret": "%+ &ü"}),
    ],
)
async def test_a_credential_is_an_id_and_a_secret_or_only_a_secret(credential: str, client: dict[str, str]) -> None:
    async with beyond(server=TokenServer(credential=credential)) as far:
        far.kept.secret = credential
        await far.loads()
    common = {"grant_type": "client_credentials", "scope": "catalog"}
    assert far.server.forms == [client | common]


async def test_all_who_wait_for_a_token_get_the_same_one() -> None:
    async with beyond() as far:
        far.server.go_on = asyncio.Event()
        waiting = [asyncio.create_task(far.loads()) for _ in range(10)]
        await far.server.asked.wait()
        # Whoever asked first gives up: that takes the token from nobody.
        waiting[0].cancel()
        far.server.go_on.set()
        done = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(done[0], asyncio.CancelledError)
    assert done[1:] == [None] * 9
    assert far.server.issued == ["token-0:sub=gateway"]


@pytest.mark.parametrize(("expires_in", "replaced_s"), [(600, 540), ("600", 540), (60.0, 54), (None, 3_300)])
async def test_a_token_is_replaced_before_it_expires_and_nobody_waits_for_that(
    expires_in: object, replaced_s: float
) -> None:
    async with beyond(server=TokenServer(expires_in=expires_in)) as far:
        await far.loads()
        far.later(replaced_s - 1)
        await far.loads()
        assert len(far.server.forms) == 1
        far.server.go_on = asyncio.Event()
        far.later(2)
        await far.loads(2)
        assert set(far.server.let_through) == {"token-0:sub=gateway"}, "the old one is still valid"
        far.server.go_on.set()
        await far.request_ends()
        await far.loads()
        assert far.server.let_through[-1] == "token-1:sub=gateway"
    assert len(far.server.forms) == 2


@pytest.mark.parametrize(("expires_in", "after_s"), [(600, 600), (1, 1), (None, 3_600), (10**12, 86_400)])
async def test_a_token_that_has_expired_is_not_sent(expires_in: object, after_s: float) -> None:
    async with beyond(server=TokenServer(expires_in=expires_in)) as far:
        await far.loads()
        far.server.valid.clear()
        far.later(after_s)
        await far.loads()
    assert far.server.let_through[-1] == "token-1:sub=gateway"
    assert not far.server.turned_away


async def test_a_token_stays_in_use_until_its_end_while_no_other_can_be_had() -> None:
    async with beyond(server=TokenServer(expires_in=600)) as far:
        await far.loads()
        far.server.says = (503, b"")
        far.later(580)
        for _ in range(3):
            await far.loads()
            await far.request_ends()
        assert len(far.server.forms) == 2, "it is left alone for a second"
        far.later(20)
        with pytest.raises(UnavailableError):
            await far.loads()


# Refused by the upstream


async def test_a_refused_token_is_dropped_and_the_change_is_repeated_once() -> None:
    """Its clock is ten minutes ahead of the token server's, or it was revoked: nothing on our side has to know."""
    async with beyond() as far:
        await far.loads()
        far.server.valid.clear()
        reply = await far.catalog.forward(MADE)
        assert isinstance(reply, Answered)
        assert reply.status == 200
    assert far.upstream.mutations == 1
    assert far.server.turned_away == ["Bearer token-0:sub=gateway"]
    assert len(far.server.forms) == 2


async def test_requests_that_were_refused_together_are_repeated_with_one_new_token() -> None:
    async with beyond() as far:
        await far.loads()
        far.server.valid.clear()
        await asyncio.gather(*(far.loads() for _ in range(8)))
    assert far.server.issued == ["token-0:sub=gateway", "token-1:sub=gateway"]
    assert far.server.let_through[-8:] == ["token-1:sub=gateway"] * 8


@pytest.mark.parametrize("status", [401, 419])
async def test_new_credentials_that_are_refused_too_are_not_tried_again(status: int) -> None:
    script = Script(answers={"/v1/namespaces": (status, b"{}")})
    async with serve(script.app()) as url, beyond() as far:
        catalog = replace_upstream(far, url)
        script.answers[CONFIG_PATH] = (200, b"{}")
        reply = await catalog.forward(MADE)
        assert isinstance(reply, Answered)
        assert outcome_of(Operation.NAMESPACE_CREATE, reply).settled is CommitOutcome.REFUSED
        assert isinstance(catalog.refusal(reply), UpstreamCredentialsError)
    assert script.paths() == [CONFIG_PATH, "/v1/namespaces", "/v1/namespaces"]
    assert len(far.server.issued) == 2


def replace_upstream(far: Beyond, url: str) -> RestCatalog:
    """Return a catalog at `url` whose tokens are those of `far`."""
    options = {"uri": url, "credential": "secret:login", "oauth2-server-uri": f"{far.url}{TOKENS_PATH}"}
    upstream = far.catalog.upstream
    upstreams = Upstreams(client=upstream.client, secrets=far.kept, timeout_s=5, clock_s=lambda: far.now_s[0])
    return RestCatalog(upstream=upstreams.upstream(TENANT, "beyond", options), onward=Onward())


@pytest.mark.parametrize(
    ("loss", "settled", "changes"),
    [
        (Loss.REQUEST, CommitOutcome.UNKNOWN, 0),
        (Loss.ANSWER, CommitOutcome.UNKNOWN, 1),
        (Replaced(answer=answer(503), carried_out=True), CommitOutcome.UNKNOWN, 1),
        (Replaced(answer=answer(401), carried_out=False), CommitOutcome.REFUSED, 0),
    ],
)
async def test_what_becomes_of_the_repeated_change_is_what_the_record_says(
    loss: Loss | Replaced, settled: CommitOutcome, changes: int
) -> None:
    async with beyond() as far, FaultyWire(far.url) as wire:
        catalog = replace_upstream(far, wire.url)
        await catalog.load(SALES)
        far.server.valid.clear()
        wire.fault = Fault(happens=Replaced(answer=answer(401), carried_out=False), path="/namespaces")
        refused = wire.fault

        async def arm() -> None:
            await refused.hit.wait()
            wire.fault = Fault(happens=loss, path="/namespaces")

        arming = asyncio.create_task(arm())
        reply = await catalog.forward(MADE)
        await arming
        assert outcome_of(Operation.NAMESPACE_CREATE, reply).settled is settled
    assert far.upstream.mutations == changes


async def test_a_refusal_stands_if_the_change_cannot_be_sent_again() -> None:
    async with beyond() as far, FaultyWire(far.url) as wire:
        catalog = replace_upstream(far, wire.url)
        await catalog.load(SALES)
        refused = Fault(happens=Replaced(answer=answer(401), carried_out=False), path="/namespaces")
        wire.fault = refused

        async def stop() -> None:
            await refused.hit.wait()
            assert wire._server is not None
            wire._server.close()

        stopping = asyncio.create_task(stop())
        reply = await catalog.forward(MADE)
        await stopping
        assert isinstance(reply, Answered), "it was sent, so it is not one that never was"
        assert reply.status == 401
        assert (len(far.server.issued), far.upstream.mutations) == (2, 0)


async def test_a_refusal_stands_if_no_other_token_can_be_had() -> None:
    async with beyond() as far:
        await far.loads()
        far.server.valid.clear()
        far.server.says = (500, b"")
        reply = await far.catalog.forward(MADE)
        assert isinstance(reply, Answered)
        assert (reply.status, far.upstream.mutations) == (401, 0)
        with pytest.raises(UnavailableError, match="the token server of catalog beyond answered 500"):
            await far.loads()
    assert len(far.server.turned_away) == 1


# Refused by the token server


async def test_a_wrong_secret_is_one_error_and_nothing_reaches_the_upstream() -> None:
    async with beyond() as far:
        far.kept.secret = "gateway:hunter3"
        with pytest.raises(UpstreamCredentialsError) as refused:
            await far.loads()
        said = str(refused.value)
        assert said == (
            "the token server of catalog beyond answered 401 (invalid_client): check the secret of the option "
            "credential, and scope"
        )
        reply = await far.catalog.forward(MADE)
        assert reply == NeverSent(cause=said)
        assert len(far.server.forms) == 1, "a server that locks clients out is not asked again at once"
        far.later(1)
        with pytest.raises(UpstreamCredentialsError):
            await far.loads()
        assert len(far.server.forms) == 2
        far.kept.secret = "gateway:hunter2"
        await far.loads()
    assert not far.server.turned_away


async def test_a_secret_that_was_replaced_or_removed_counts_at_once() -> None:
    async with beyond() as far:
        await far.loads()
        far.server.credential = far.kept.secret = "gateway:correct horse"
        await far.loads()
        assert far.server.let_through[-1] == "token-1:sub=gateway"
        far.kept.secret = None
        with pytest.raises(UpstreamCredentialsError, match="secret:login is not there"):
            await far.loads()
        assert isinstance(await far.catalog.forward(MADE), NeverSent)
    assert far.upstream.mutations == 0


def token(**changed: object) -> tuple[int, bytes]:
    parts: Mapping[str, object] = {"access_token": "t", "token_type": "Bearer", "expires_in": 60, **changed}
    return 200, orjson.dumps({name: part for name, part in parts.items() if part != "left out"})


OTHER_ANSWERS: Final = [
    ((200, b""), "expected a JSON object"),
    ((200, b"<html>hunter2</html>"), "expected a JSON object"),
    ((200, b"[]"), "expected a JSON object"),
    (token(access_token="left out"), "expected an access_token"),
    (token(access_token=""), "expected an access_token"),
    (token(access_token=7), "expected an access_token"),
    (token(access_token="a\r\nX-Evil: b"), "expected an access_token"),
    (token(access_token="hünter2"), "expected an access_token"),
    (token(access_token="x" * 16_385), "expected an access_token"),
    (token(token_type="left out"), "expected the token_type Bearer"),
    (token(token_type="mac"), "expected the token_type Bearer"),
    (token(expires_in=0), "expected an expires_in"),
    (token(expires_in=-1), "expected an expires_in"),
    (token(expires_in=True), "expected an expires_in"),
    (token(expires_in="soon"), "expected an expires_in"),
    (token(expires_in=[]), "expected an expires_in"),
    ((201, token()[1]), "answered 201: expected 200 with a token"),
    ((204, b""), "answered 204"),
    ((404, b"hunter2"), "answered 404: name the URL that gives tokens in the option oauth2-server-uri"),
    ((405, b""), "answered 405: name the URL that gives tokens in the option oauth2-server-uri"),
    ((501, b"hunter2"), "answered 501: name the URL that gives tokens in the option oauth2-server-uri"),
    ((429, b"{}"), "answered 429"),
    ((500, b'{"error":"hunter2"}'), "answered 500: expected"),
    ((503, b'{"error":"server_error"}'), "answered 503: expected"),
    ((200, b" " * (10 * 2**20)), f"the upstream's answer is over {TOKEN_ANSWER_SIZE_BYTES_MAX} bytes"),
]


async def test_a_token_server_that_answers_anything_else_is_unavailable() -> None:
    async with beyond() as far:
        for says, expected in OTHER_ANSWERS:
            far.server.says = says
            await check_unavailable(far, expected)
            far.later(1)
    assert len(far.server.forms) == len(OTHER_ANSWERS)


async def check_unavailable(far: Beyond, expected: str, kind: type[GatewayError] = UnavailableError) -> None:
    """Check that a read and a change fail with one error, and that nothing reaches the upstream."""
    with pytest.raises(kind) as raised:
        await far.loads()
    reply = await far.catalog.forward(MADE)
    assert isinstance(reply, NeverSent)
    assert outcome_of(Operation.NAMESPACE_CREATE, reply).settled is CommitOutcome.FAILED
    for text in (str(raised.value), reply.cause):
        assert expected in text
        assert "hunter" not in text
        assert far.url.removeprefix("http://") not in text
    assert not far.server.let_through
    assert not far.server.turned_away


async def test_a_token_server_that_redirects_is_not_followed() -> None:
    with set_trap() as trap:
        async with beyond() as far:
            for status in (301, 302, 303, 307, 308):
                far.server.says, far.server.headers = (status, b""), {"location": f"{trap.url}/token"}
                await check_unavailable(far, f"answered {status}: expected 200 with a token")
                far.later(1)
        assert trap.caught() == 0


async def test_a_token_server_that_is_slow_is_unavailable() -> None:
    async with beyond(timeout_s=0.05) as far:
        far.server.go_on = asyncio.Event()
        await check_unavailable(far, "does not answer: no whole answer within 0.05 s")
        far.server.go_on.set()


async def test_a_token_server_that_is_down_is_unavailable() -> None:
    async with serve(Script().app()) as url:
        pass
    async with beyond({"oauth2-server-uri": f"{url}/token"}) as far:
        await check_unavailable(far, "does not answer: NotConnectedError")
        assert not far.server.forms


async def test_a_token_server_where_the_operator_allows_nothing_is_not_connected_to() -> None:
    with set_trap("127.0.0.2") as trap:
        options = {"oauth2-server-uri": f"http://127.0.0.2:{trap.port}/token"}
        async with beyond(options, rules=EgressRules.parse("127.0.0.1")) as far:
            await check_unavailable(far, "LAKEPROOF_UPSTREAMS_ALLOWED", UpstreamNotAllowedError)
            reply = await far.catalog.forward(MADE)
            assert isinstance(reply, NeverSent)
        assert trap.caught() == 0


# Where tokens come from


async def test_another_token_server_is_used_if_the_options_name_it_and_no_upstream_names_one() -> None:
    with set_trap() as trap:
        named = {"oauth2-server-uri": f"{trap.url}/token", "token": "evil", "credential": "evil:evil"}
        script = Script(answers={CONFIG_PATH: (200, orjson.dumps({"defaults": named, "overrides": named}))})
        async with serve(script.app()) as url, beyond() as far:
            catalog = replace_upstream(far, url)
            for _ in range(2):
                await catalog.load(SALES)
                far.later(3_600)
        assert trap.caught() == 0
    assert len(far.server.forms) == 2
    assert {sent["authorization"] for sent in script.received_headers} == {
        "Bearer token-0:sub=gateway",
        "Bearer token-1:sub=gateway",
    }
    assert TOKENS_PATH not in script.paths()


async def test_no_credential_is_in_the_text_of_what_holds_it() -> None:
    async with beyond() as far:
        await far.loads()
        tokens: Any = far.catalog.upstream.login.tokens
        call = Call(method="POST", url="http://h/", headers={"Authorization": "Bearer hunter2"}, body=b"hunter2")
        for holder in (tokens._held, tokens._request, call, replace(call, url="http://i/")):
            assert "hunter2" not in repr(holder)
            assert "token-0" not in repr(holder)


async def test_an_unanswered_request_is_not_repeated() -> None:
    async with beyond() as far, FaultyWire(far.url) as wire:
        catalog = replace_upstream(far, wire.url)
        await catalog.load(SALES)
        wire.fault = Fault(happens=Loss.ANSWER, path="/namespaces")
        assert isinstance(await catalog.forward(MADE), Unanswered)
        assert far.upstream.mutations == 1
        assert not isinstance(await catalog.forward(MADE), Refused)
