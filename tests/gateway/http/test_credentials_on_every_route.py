# SPDX-License-Identifier: Apache-2.0
"""
Bad credentials over HTTP: each is refused alike on every route, and a flood of them is counted rather than recorded.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import dataclass

import httpx
import pytest

from gateway.admin.application import OPERATOR
from ledger.format.events import AccessRefused
from testkit.gateway.log_contents import read_stored, words
from testkit.gateway.raw_http import Answer, exchange
from testkit.gateway.sales import NAMESPACES, ORDERS
from testkit.servers.gateways import Gateway
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = (
    ("GET", "/v1/config?warehouse=lake"),
    ("GET", NAMESPACES),
    ("POST", ORDERS),
    ("DELETE", ORDERS),
    ("POST", "/v1/iceberg/lake/events"),
    ("GET", "/v1/policies"),
    ("POST", "/v1/keys"),
    ("POST", "/v1/lineage"),
    ("GET", "/log/lakeproof.invalid/checkpoint"),
)
CREDENTIALS_MIN = 60
FORM = "lp_abcdefghijkl_" + "A" * 43
TOKENS = (
    "Bearer", "Bearer ", "Bearer  ", "Bearer None", "Bearer null", "Bearer undefined", "bearer nobody", "Bearer nobody",
    "Bearer lp_", "Bearer lp__", "Bearer " + FORM[:-1], "Bearer " + FORM + "A", "Bearer  " + FORM[3:],
    "Bearer " + FORM.upper(), "Bearer " + FORM.replace("a", "0"), "Bearer " + FORM[:-1] + "=",
    "Bearer " + FORM[:-1] + "/", "Bearer " + FORM[:-1] + "B", "Bearer " + FORM + " " + FORM,
    "Bearer " + FORM + "," + FORM, "Bearer: " + FORM, "Bearer\t" + FORM, "Bearer " + "A" * 20_000,
    "Bearer ' OR 1=1 --", "Bearer %00", "Bearer ${jndi:ldap://x/y}", "Bearer {}", "Bearer []",
    "Bearer ../../../etc/passwd", "Bearer <script>", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.",
    "Bearer lp_abcdefghijkl_" + "\N{LATIN SMALL LETTER E WITH ACUTE}" * 43, "Bearer \U0001f511",
)  # fmt: skip
OTHER_SCHEMES = (
    "", "Basic", "Token " + FORM, "Digest username=x", "Negotiate YII=", "AWS4-HMAC-SHA256 Credential=x", FORM,
    "Basic " + base64.b64encode(b"ada:secret").decode(), "Basic " + base64.b64encode(FORM.encode()).decode(),
)  # fmt: skip
API_KEYS = ("", "nobody", "None", FORM[:-1], "Bearer " + FORM, FORM + ";", "0", "-1", "A" * 10_000)
MALFORMED = {
    *(f"Authorization: {text}".encode() for text in (*TOKENS, *OTHER_SCHEMES)),
    *(f"X-Api-Key: {text}".encode() for text in API_KEYS),
    *(b"Authorization: Bearer \xff\xfe", b"X-Api-Key: \x80", b"Cookie: key=" + FORM.encode(), b"X-No: header"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Credentials of the right form that stand for nobody."""

    unknown: list[bytes]
    wrong: list[bytes]
    revoked: list[bytes]

    @property
    def all(self) -> list[bytes]:
        return [*self.unknown, *self.wrong, *self.revoked]


async def keys_of(gateway: Gateway) -> Keys:
    """Keys that nobody has, that have one wrong character, and that were revoked, in both headers."""
    admin, log_id = gateway.services.gateway.admin, gateway.acme.log_id
    revoked = await admin.create_key(log_id, OPERATOR, identity="eve@acme.example", roles=())
    await admin.revoke_key(log_id, OPERATOR, key_id=revoked.id)
    right = gateway.acme.key.secret
    prefix, secret = right[:16], right[16:]
    other = "B" if secret[0] != "B" else "C"
    wrong = [prefix + other + secret[1:], prefix + secret[:5] + ("B" if secret[5] != "B" else "C") + secret[6:]]

    def both(*texts: str) -> list[bytes]:
        return [f"{name}{text}".encode() for text in texts for name in ("Authorization: Bearer ", "X-Api-Key: ")]

    return Keys(unknown=both(FORM, f"lp_zzzzzzzzzzzz_{secret}"), wrong=both(*wrong), revoked=both(revoked.secret))


async def ask(url: str, route: tuple[str, str], header: bytes) -> Answer:
    """Send one request with one credential; return its answer."""
    method, path = route
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n".encode()
    (answer,) = (await exchange(url, [head + header + b"\r\n\r\n{}"], method=method.encode())).answers
    return answer


async def ask_all(url: str, asked: Sequence[tuple[tuple[str, str], bytes]]) -> list[Answer]:
    """Send several at a time; return the answers in the same order."""
    turns = asyncio.Semaphore(16)

    async def one(route: tuple[str, str], header: bytes) -> Answer:
        async with turns:
            return await ask(url, route, header)

    return await asyncio.gather(*(one(*each) for each in asked))


def is_refused(answer: Answer) -> bool:
    """Whether an answer is the one to bad credentials."""
    return answer.status == 401 and answer.headers.get("www-authenticate") == "Bearer"


async def test_bad_credentials_are_refused_on_every_route_and_change_nothing(sales: Gateway) -> None:
    keys = await keys_of(sales)
    bad = [*sorted(MALFORMED), *keys.all]
    assert len(set(bad)) == len(bad) >= CREDENTIALS_MIN
    before = await words(sales.services, sales.acme.log_id)
    async with serve_gateway(sales.app) as url:
        asked = [(ROUTES[i % len(ROUTES)], header) for i, header in enumerate(bad)]
        asked += [(route, header) for route in ROUTES for header in sorted(MALFORMED)[:4]]
        answers = await ask_all(url, asked)
        async with httpx.AsyncClient(base_url=url, headers=dict(sales.http.headers)) as client:
            assert (await client.get(ORDERS)).status_code == 200, "the right key is as good as before"
    assert [each for each, answer in zip(asked, answers, strict=True) if not is_refused(answer)] == []
    assert await words(sales.services, sales.acme.log_id) == before


async def test_unknown_wrong_and_revoked_keys_get_the_same_answer(sales: Gateway) -> None:
    keys = await keys_of(sales)
    async with serve_gateway(sales.app) as url:
        for route in ROUTES:
            heard = [await ask(url, route, header) for header in (keys.unknown[0], keys.wrong[0], keys.revoked[0])]
            own = {"date", "x-request-id"}
            shown = {
                (one.status, one.body, tuple(sorted((n, value) for n, value in one.headers.items() if n not in own)))
                for one in heard
            }
            assert len(shown) == 1, route
            assert b"revoked" not in heard[0].body


async def test_no_answer_repeats_what_may_be_a_secret(sales: Gateway) -> None:
    keys = await keys_of(sales)
    async with serve_gateway(sales.app) as url:
        for header in (
            *keys.all,
            b"Authorization: Bearer my-secret-of-elsewhere",
            b"X-Api-Key: my-secret-of-elsewhere",
        ):
            answer = await ask(url, ROUTES[0], header)
            secret = header.split()[-1]
            assert secret not in answer.body
            assert all(secret.decode() not in value for value in answer.headers.values())


async def test_a_flood_of_bad_credentials_is_counted_and_not_recorded_one_by_one(sales: Gateway) -> None:
    system = sales.services.gateway.refusals._system_log_id
    before = len(await read_stored(sales.services, system))
    flood = [(ROUTES[i % len(ROUTES)], f"Authorization: Bearer nobody-{i}".encode()) for i in range(200)]
    async with serve_gateway(sales.app) as url:
        assert all(map(is_refused, await ask_all(url, flood)))
    told = (await read_stored(sales.services, system))[before:]
    recorded = [entry for entry in told if entry.entry.type == AccessRefused.TYPE]
    assert len(recorded) <= len(ROUTES), "at most one an operation in a minute"
    assert all(b"nobody-" not in b"".join(entry.parts.values()) for entry in recorded)
    assert await words(sales.services, sales.acme.log_id) == ["approved", "accepted"] * 2
