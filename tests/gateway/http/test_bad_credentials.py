# SPDX-License-Identifier: Apache-2.0
"""
Bad credentials: refused with 401 without repeating them, and never at the cost of a slow hash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from gateway.errors import UnavailableError
from gateway.identity import refusal_pace
from gateway.identity.api_keys import ApiKeyText, KeyHasher, format_secret, mint_key, parse_key
from gateway.identity.principal import NotInForceError
from gateway.identity.refusal_pace import BURST, DELAY_MAX_S, HELD_MAX, PER_S, RefusalPace
from gateway.identity.slow_checks import FAILURES_MAX, INTERVAL_S, WAITING_MAX, SlowChecks
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import NAMESPACES, error_of
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

STRANGER = mint_key(Random(7235).randbytes).format()  # noqa: S311  (a key that nobody has, repeatable)


def _of_form(make: Callable[[str, str], str | bytes]) -> Callable[[str], str | bytes]:
    """Make a credential of the prefix and the secret of a key that is in force."""

    def header(key: str) -> str | bytes:
        _, prefix, secret = key.split("_", 2)
        return make(prefix, secret)

    return header


BAD: dict[str, Callable[[str], str | bytes]] = {
    # Another scheme, or none
    "empty": lambda _: "",
    "blank": lambda _: "   ",
    "the key alone": lambda key: key,
    "basic": lambda _: "Basic dXNlcjpwYXNz",
    "basic with the key": lambda key: f"Basic {key}",
    "digest": lambda _: 'Digest username="ada"',
    "negotiate": lambda _: "Negotiate YII=",
    "aws": lambda _: "AWS4-HMAC-SHA256 Credential=AKIA/20261120/eu/s3/aws4_request",
    "two schemes": lambda key: f"Basic Bearer {key}",
    "glued": lambda key: f"Bearer{key}",
    "with a colon": lambda key: f"Bearer: {key}",
    "with an equals sign": lambda key: f"Bearer={key}",
    "a scheme that looks like it": lambda key: f"B\u0435arer {key}".encode(),
    # No token
    "no token": lambda _: "Bearer",
    "blank token": lambda _: "Bearer    ",
    "None": lambda _: "Bearer None",
    "null": lambda _: "Bearer null",
    "undefined": lambda _: "Bearer undefined",
    "true": lambda _: "Bearer true",
    "zero": lambda _: "Bearer 0",
    "quoted": lambda key: f'Bearer "{key}"',
    # A token that is no key
    "a word": lambda _: "Bearer letmein",
    "a JWT": lambda _: "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.",
    "a UUID": lambda _: "Bearer 0190163d-8694-739b-aea5-966c26f8ad91",
    "a path": lambda _: "Bearer ../../../../etc/passwd",
    "SQL": lambda _: "Bearer ' OR 1=1 --",
    "SQL in the prefix": _of_form(lambda _, secret: f"Bearer lp_' OR 1=1 --_{secret}"),
    "a wildcard for the prefix": _of_form(lambda _, secret: f"Bearer lp_%%%%%%%%%%%%_{secret}"),
    "an array for the prefix": _of_form(lambda prefix, secret: f"Bearer lp_{{{prefix}}}_{secret}"),
    "a format": lambda _: "Bearer %s%s%s%n",
    "two tokens": lambda key: f"Bearer {STRANGER} {key}",
    "the key twice": lambda key: f"Bearer {key}{key}",
    "two with a comma": lambda key: f"Bearer {key}, Bearer {key}",
    "no prefix": _of_form(lambda _, secret: f"Bearer lp__{secret}"),
    "no secret": _of_form(lambda prefix, _: f"Bearer lp_{prefix}_"),
    "neither": lambda _: "Bearer lp__",
    "only the beginning": lambda _: "Bearer lp_",
    "another beginning": _of_form(lambda prefix, secret: f"Bearer lq_{prefix}_{secret}"),
    "upper case beginning": _of_form(lambda prefix, secret: f"Bearer LP_{prefix}_{secret}"),
    "upper case prefix": _of_form(lambda prefix, secret: f"Bearer lp_{prefix.upper()}_{secret}"),
    "digits of no alphabet": _of_form(lambda _, secret: f"Bearer lp_000000000000_{secret}"),
    "short prefix": _of_form(lambda prefix, secret: f"Bearer lp_{prefix[1:]}_{secret}"),
    "long prefix": _of_form(lambda prefix, secret: f"Bearer lp_{prefix}a_{secret}"),
    "short secret": lambda key: f"Bearer {key[:-1]}",
    "long secret": lambda key: f"Bearer {key}A",
    "padded": lambda key: f"Bearer {key}=",
    "base64 of the other alphabet": _of_form(lambda prefix, secret: f"Bearer lp_{prefix}_+/{secret[2:]}"),
    "the same bytes spelled differently": lambda key: f"Bearer {_respelled(key)}",
    "a space within": lambda key: f"Bearer {key[:20]} {key[20:]}",
    "a tab within": lambda key: f"Bearer {key[:20]}\t{key[20:]}",
    "reversed": lambda key: f"Bearer {key[::-1]}",
    "percent-encoded": lambda key: f"Bearer {key.replace('_', '%5F')}",
    # Bytes that are no text
    "a NUL at the end": lambda key: f"Bearer {key}\x00",
    "a NUL in front": lambda key: f"Bearer \x00{key}",
    "a NUL within": lambda key: f"Bearer {key[:15]}\x00{key[16:]}",
    "latin-1": lambda key: f"Bearer {key[:-1]}\xe9".encode("latin-1"),
    "no encoding": lambda _: b"Bearer \xff\xfe\xfd",
    "fullwidth letters": lambda key: f"Bearer \uff4c\uff50{key[2:]}".encode(),
    "a zero-width space": lambda key: f"Bearer {key}\u200b".encode(),
    "a byte order mark": lambda key: f"Bearer \ufeff{key}".encode(),
    "right to left": lambda key: f"Bearer \u202e{key}".encode(),
    "arabic digits": _of_form(lambda prefix, secret: f"Bearer lp_{prefix[:-1]}\u0662_{secret}".encode()),
    "an emoji": lambda _: "Bearer \U0001f511".encode(),
    # Too long
    "4 KiB": lambda _: f"Bearer {'A' * 4_096}",
    "4 KiB of a key": lambda key: f"Bearer {key}{'A' * 4_096}",
    "30 KiB": lambda _: f"Bearer lp_{'a' * 30_000}",
    # Keys that are of their form
    "unknown": lambda _: f"Bearer {STRANGER}",
    "all zeros": lambda _: f"Bearer {ApiKeyText(prefix='aaaaaaaaaaaa', secret=format_secret(bytes(32))).format()}",
    "a wrong secret": _of_form(lambda prefix, _: f"Bearer lp_{prefix}_{STRANGER.split('_', 2)[2]}"),
    "a wrong prefix": _of_form(lambda _, secret: f"Bearer lp_{STRANGER.split('_', 2)[1]}_{secret}"),
    "one bit of the secret": lambda key: f"Bearer {_flipped(key)}",
}


def _respelled(key: str) -> str:
    """Spell the same 32 bytes with other unused bits in the last character."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return key[:-1] + alphabet[alphabet.index(key[-1]) | 1]


def _flipped(key: str) -> str:
    right = parse_key(key)
    return ApiKeyText(prefix=right.prefix, secret=("B" if right.secret[0] == "A" else "A") + right.secret[1:]).format()


@pytest.fixture
def slow_hashes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The slow hashes that are computed meanwhile."""
    computed: list[str] = []

    def check(_: KeyHasher, key: ApiKeyText, *, stored_hash: str) -> None:
        computed.append(key.prefix)
        raise NotInForceError

    monkeypatch.setattr(KeyHasher, "check", check)
    return computed


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no refusal wait for its turn: the pace has tests of its own."""
    monkeypatch.setattr(refusal_pace, "HELD_MAX", 0)


@pytest.mark.parametrize("make", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("header", ["Authorization", "X-Api-Key"])
async def test_bad_credentials_are_401_and_cost_no_slow_hash(
    module_gateway: Gateway, slow_hashes: list[str], make: Callable[[str], str | bytes], header: str
) -> None:
    key = module_gateway.acme.key.secret
    told = make(key)
    raw = told if isinstance(told, bytes) else told.encode("latin-1")
    if header == "X-Api-Key" and (raw := raw.removeprefix(b"Bearer").strip()) == key.encode():
        return  # without its scheme it is the key
    anonymous = module_gateway.client(None)
    answer = await anonymous.get(NAMESPACES, headers=[(header.encode(), raw)])
    assert (answer.status_code, error_of(answer)["type"]) == (401, "NotAuthorizedException"), answer.text
    assert answer.headers["www-authenticate"] == "Bearer"
    assert key[16:] not in answer.text
    assert STRANGER[16:] not in answer.text
    assert slow_hashes == []
    assert (await module_gateway.http.get(NAMESPACES)).status_code == 200


async def test_what_is_refused_is_counted_and_never_kept(shared_gateway: Gateway) -> None:
    anonymous = shared_gateway.client(None)
    for make in BAD.values():
        told = make(shared_gateway.acme.key.secret)
        raw = told if isinstance(told, bytes) else told.encode("latin-1")
        await anonymous.get(NAMESPACES, headers=[(b"Authorization", raw)])
    system = await read_stored(shared_gateway.services, shared_gateway.services.system.log_id, key="gateway:access")
    assert system
    kept = repr([(one.entry, one.parts) for one in system])
    for secret in (shared_gateway.acme.key.secret, STRANGER, "letmein", "passwd"):
        assert secret not in kept


async def test_300_wrong_keys_at_once_keep_no_valid_one_waiting(
    shared_gateway: Gateway, slow_hashes: list[str]
) -> None:
    prefix = parse_key(shared_gateway.acme.key.secret).prefix
    random = Random(300)  # noqa: S311  (repeatable)
    wrong = [mint_key(random.randbytes).format() for _ in range(150)]
    wrong += [ApiKeyText(prefix=prefix, secret=format_secret(random.randbytes(32))).format() for _ in range(150)]
    anonymous = shared_gateway.client(None)

    async def get(key: str) -> int:
        return (await anonymous.get(NAMESPACES, headers={"Authorization": f"Bearer {key}"})).status_code

    flood = [asyncio.create_task(get(key)) for key in wrong]
    valid = [await get(shared_gateway.acme.key.secret) for _ in range(10)]
    assert valid == [200] * 10
    assert await asyncio.gather(*flood) == [401] * 300
    assert slow_hashes == []


# The pace of refusals


class Ticking:
    """A monotonic clock that stands still unless somebody sleeps or a test moves it."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Ticking:
    monkeypatch.setattr(refusal_pace, "HELD_MAX", HELD_MAX)
    return Ticking()


async def test_few_refusals_are_answered_at_once(ticking: Ticking) -> None:
    pace = RefusalPace(monotonic_s=ticking, sleep=ticking.sleep)
    for _ in range(BURST):
        await pace.wait()
    for _ in range(10 * PER_S):
        ticking.now_s += 1.001 / PER_S
        await pace.wait()
    assert ticking.slept == []


async def test_many_refusals_wait_each_longer_than_the_one_before_but_not_for_ever(ticking: Ticking) -> None:
    random = Random(1)  # noqa: S311  (repeatable)
    pace = RefusalPace(monotonic_s=ticking, sleep=ticking.sleep, fraction=random.random)
    in_turn = int(DELAY_MAX_S * PER_S)
    for _ in range(BURST + in_turn + 1_000):
        await pace.wait()
    assert ticking.slept[:in_turn] == pytest.approx([(number + 1) / PER_S for number in range(in_turn)])
    spread = ticking.slept[in_turn:]
    assert len(spread) == 1_000
    assert DELAY_MAX_S / 2 <= min(spread) < 0.6 * DELAY_MAX_S
    assert 0.9 * DELAY_MAX_S < max(spread) <= DELAY_MAX_S
    ticking.now_s += DELAY_MAX_S + BURST / PER_S
    ticking.slept.clear()
    for _ in range(BURST):
        await pace.wait()
    assert ticking.slept == [], "the flood is over, and so is the wait"


async def test_no_more_answers_are_held_back_than_may(ticking: Ticking) -> None:
    released = asyncio.Event()

    async def sleep(_: float) -> None:
        await released.wait()

    pace = RefusalPace(monotonic_s=ticking, sleep=sleep)
    refusals = [asyncio.create_task(pace.wait()) for _ in range(BURST + HELD_MAX + 100)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sum(each.done() for each in refusals) == BURST + 100
    released.set()
    await asyncio.gather(*refusals)
    again = asyncio.create_task(pace.wait())
    await again


# Keys that have only a slow hash yet


class Wrong(KeyHasher):
    """Finds every key wrong but one, and counts."""

    def __init__(self, right: ApiKeyText | None = None) -> None:
        super().__init__(time_cost=1, memory_cost_kib=8)
        self.right = right
        self.checked: list[ApiKeyText] = []

    def check(self, key: ApiKeyText, *, stored_hash: str) -> None:  # noqa: ARG002  (the caller names it)
        self.checked.append(key)
        if key != self.right:
            raise NotInForceError


def of_prefix(prefix: str, number: int) -> ApiKeyText:
    return ApiKeyText(prefix=prefix, secret=format_secret(number.to_bytes(32)))


async def outcomes(checks: SlowChecks, keys: list[ApiKeyText]) -> list[type[BaseException]]:
    found = await asyncio.gather(*(checks.check(key, stored_hash="") for key in keys), return_exceptions=True)
    return [type(each) for each in found if isinstance(each, BaseException)]


async def test_a_flood_on_one_prefix_waits_in_a_line_of_its_own(ticking: Ticking) -> None:
    hasher = Wrong(right=of_prefix("bbbbbbbbbbbb", 0))
    checks = SlowChecks(hasher, monotonic_s=ticking)
    flood = [of_prefix("aaaaaaaaaaaa", number) for number in range(300)]
    found = await outcomes(checks, [*flood, of_prefix("bbbbbbbbbbbb", 0)])
    assert found == [NotInForceError] * FAILURES_MAX + [UnavailableError] * (300 - FAILURES_MAX)
    assert len(hasher.checked) == FAILURES_MAX + 1
    # The other prefix came last and was checked among the first.
    assert hasher.checked.index(of_prefix("bbbbbbbbbbbb", 0)) <= 2


async def test_a_prefix_may_try_again_after_a_minute(ticking: Ticking) -> None:
    hasher = Wrong(right=of_prefix("aaaaaaaaaaaa", 0))
    checks = SlowChecks(hasher, monotonic_s=ticking)
    assert FAILURES_MAX < WAITING_MAX
    wrong = [of_prefix("aaaaaaaaaaaa", number + 1) for number in range(FAILURES_MAX)]
    assert await outcomes(checks, wrong) == [NotInForceError] * FAILURES_MAX
    ticking.now_s += INTERVAL_S - 1
    assert await outcomes(checks, [of_prefix("aaaaaaaaaaaa", 0)]) == [UnavailableError]
    ticking.now_s += 1
    assert await outcomes(checks, [of_prefix("aaaaaaaaaaaa", 0)]) == []


async def test_who_goes_away_leaves_the_check_to_those_who_wait(ticking: Ticking) -> None:
    right = of_prefix("aaaaaaaaaaaa", 0)
    checks = SlowChecks(Wrong(right=right), monotonic_s=ticking)
    first, second = [asyncio.create_task(checks.check(right, stored_hash="")) for _ in range(2)]
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled() or first.cancelling()
