# SPDX-License-Identifier: Apache-2.0
"""
Bad tokens: each is refused with 401 and in bounded time, and accepted once the one thing is repaired that is wrong.

Each member of the corpus changes a good token in one way, or signs something that is none. The good token it is made
from is accepted in the same test, so none is refused for another reason than its own.
"""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.identity.tokens import LENGTH_MAX
from testkit.gateway.sales import NAMESPACES, error_of
from testkit.gateway.token_gateway import TokenGateway, issuer_for, token_gateway, unhurried
from testkit.servers.gateways import Gateway
from testkit.servers.identity_provider import (
    IdentityProvider,
    assemble,
    hmac_signature,
    identity_provider,
    part,
    private_key,
    public_jwk,
    signature,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND_S = 1.0
"""How much of the processor a refusal may take: some thousand times what it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a bad token is made with: the provider, the time, and the good token."""

    provider: IdentityProvider
    now_s: int
    good: str

    def token(self, **changed: Any) -> str:
        return self.provider.token(now_s=self.now_s, **changed)

    def claims(self, **changed: Any) -> dict[str, Any]:
        return self.provider.claims(now_s=self.now_s, **changed)

    def signed(self, header: object, claims: object, key: str = "rsa-1") -> str:
        """Sign any header and claims, which may be bytes that are no JSON."""
        return assemble(header, claims, lambda signed: signature(key, signed))

    @property
    def parts(self) -> list[str]:
        return self.good.split(".")


HEADER = {"alg": "RS256", "kid": "rsa-1", "typ": "at+jwt"}
Make = Callable[[Made], str]


def claim(**changed: Any) -> Make:
    return lambda made: made.token(**changed)


def header(**changed: Any) -> Make:
    return lambda made: made.token(header=changed)


def times(**seconds: float) -> Make:
    return lambda made: made.token(**{name: made.now_s + each for name, each in seconds.items()})


def raw_claims(change: Callable[[bytes], bytes]) -> Make:
    """Sign other bytes than a JSON encoder would write."""
    return lambda made: made.signed(HEADER, change(json.dumps(made.claims()).encode()))


def raw_header(change: Callable[[bytes], bytes]) -> Make:
    return lambda made: made.signed(change(json.dumps(HEADER).encode()), made.claims())


def as_hmac(secret: Callable[[], bytes]) -> Make:
    """Sign with HS256 and what everybody knows: the public key, in some form."""
    head = {**HEADER, "alg": "HS256"}
    return lambda made: assemble(head, made.claims(), lambda signed: hmac_signature(secret(), signed))


def pem(format_: PublicFormat) -> bytes:
    return private_key("rsa-1").public_key().public_bytes(Encoding.PEM, format_)


def flipped(text: str, at: int) -> str:
    return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]


def standard_base64(made: Made) -> str:
    """Write the signature in the other alphabet of base64; some character differs in almost any, so try some."""
    for number in range(100):
        found = made.token(jti=str(number)).split(".")
        if "-" in found[2] or "_" in found[2]:
            return ".".join((*found[:2], found[2].replace("-", "+").replace("_", "/")))
    raise AssertionError


def respelled(made: Made) -> str:
    """Spell the same signature with other unused bits in its last character."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return made.good[:-1] + alphabet[alphabet.index(made.good[-1]) | 1]


def general_serialization(made: Made) -> str:
    """Write it with two signatures (RFC 7515, section 7.2.1)."""
    protected, payload, signed = made.parts
    one = {"protected": protected, "signature": signed}
    return json.dumps({"payload": payload, "signatures": [one, one]})


BAD: dict[str, Make] = {
    # Algorithms
    "none without a signature": lambda made: f"{part({**HEADER, 'alg': 'none'})}.{made.parts[1]}.",
    "none with a signature": header(alg="none"),
    "None": header(alg="None"),
    "nOnE": header(alg="nOnE"),
    "no algorithm": header(alg=None),
    "an empty algorithm": header(alg=""),
    "a number for the algorithm": header(alg=256),
    "a list of algorithms": header(alg=["RS256"]),
    "HS256 with the public key in PEM": as_hmac(lambda: pem(PublicFormat.SubjectPublicKeyInfo)),
    "HS256 with the public key in PKCS 1": as_hmac(lambda: pem(PublicFormat.PKCS1)),
    "HS256 with the public key as JWK": as_hmac(lambda: json.dumps(public_jwk("rsa-1")).encode()),
    "HS256 with nothing": as_hmac(lambda: b""),
    "HS256 with the published secret": lambda made: assemble(
        {**HEADER, "alg": "HS256", "kid": "oct"}, made.claims(), lambda signed: hmac_signature(b"s" * 32, signed)
    ),
    "an algorithm that is not allowed": lambda made: made.token(key="p384-1"),
    "an unknown algorithm": header(alg="RS1024"),
    "the algorithm in lower case": header(alg="rs256"),
    "PS256 for a signature of RS256": header(alg="PS256"),
    "ES256 for an RSA key": header(alg="ES256"),
    "RS256 for a key of P-256": lambda made: made.token(key="p256-1", header={"alg": "RS256"}),
    "EdDSA for a key of P-256": lambda made: made.token(key="p256-1", header={"alg": "EdDSA"}),
    # Keys
    "no key id": header(kid=None),
    "an empty key id": header(kid=""),
    "a list of key ids": header(kid=["rsa-1"]),
    "a key id of 10,000 characters": header(kid="k" * 10_000),
    "another key's id": header(kid="rsa-2"),
    "the id of a key of another kind": header(kid="p256-1"),
    "an unknown key id": header(kid="nobody"),
    "a path for a key id": header(kid="../../../../dev/null"),
    "SQL for a key id": header(kid="x' UNION SELECT 'secret' --"),
    "a URL for a key id": header(kid="http://127.0.0.1:1/keys"),
    "a NUL in the key id": header(kid="rsa-1\x00"),
    "a key nobody has published": lambda made: made.token(key="rsa-9"),
    "a key nobody has published under a known id": lambda made: made.token(key="rsa-9", header={"kid": "rsa-1"}),
    "a key of another curve": lambda made: made.token(key="k1-1", header={"alg": "ES256"}),
    "a key of P-384 for ES256": lambda made: made.token(key="p384-1", header={"alg": "ES256"}),
    "Ed448": lambda made: made.token(key="ed448-1"),
    "a short RSA key": lambda made: made.token(key="weak-1"),
    "a key for encryption": lambda made: made.token(key="rsa-3"),
    "a key for other operations": lambda made: made.token(key="rsa-4"),
    "a key for another algorithm": lambda made: made.token(key="rsa-5"),
    "a key id that two keys have": lambda made: made.token(key="rsa-6"),
    "a key whose private half is published": lambda made: made.token(key="ed-2"),
    # Headers that ask for something
    "crit": header(crit=["exp"], exp=1),
    "an empty crit": header(crit=[]),
    "an unencoded payload": header(b64=False, crit=["b64"]),
    "its own key": lambda made: made.token(key="rsa-9", header={"jwk": public_jwk("rsa-9")}),
    "its own key in a good token": header(jwk=public_jwk("rsa-1")),
    "the URL of its keys": lambda made: made.token(key="rsa-9", header={"jku": f"{made.provider.url}/keys"}),
    "the URL of its certificate": header(x5u="https://127.0.0.1/"),
    "its own certificate": header(x5c=["MIIB"]),
    "compression": header(zip="DEF"),
    "a header of encryption": header(enc="A256GCM"),
    # Kinds of tokens
    "an ID token of a logout": header(typ="logout+jwt"),
    "a proof of DPoP": header(typ="dpop+jwt"),
    "a number for the type": header(typ=1),
    "bound to a key of the caller": claim(cnf={"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}),
    # Times
    "expired": times(exp=-61),
    "expired long ago": times(iat=-86_400, exp=-80_000),
    "not valid yet": times(nbf=120),
    "issued in the future": times(iat=120),
    "valid for a year": times(exp=365 * 86_400),
    "no end": claim(exp=None),
    "no time of issue": claim(iat=None),
    "a text for the end": lambda made: made.token(exp=str(made.now_s + 60)),
    "a list for the end": lambda made: made.token(exp=[made.now_s + 60]),
    "true for the end": claim(exp=True),
    "a huge end": claim(exp=10**30),
    "a negative end": claim(exp=-1),
    "an infinite end": raw_claims(lambda text: text.replace(b'"exp": ', b'"exp": 1e999, "x": ')),
    "NaN for the end": raw_claims(lambda text: text.replace(b'"exp": ', b'"exp": NaN, "x": ')),
    "a text for the beginning": claim(nbf="yesterday"),
    "an object for the time of issue": claim(iat={}),
    # Who, and for whom
    "another issuer": claim(iss="https://idp.example"),
    "an issuer with a slash more": lambda made: made.token(iss=made.provider.url + "/"),
    "an issuer in capitals": lambda made: made.token(iss=made.provider.url.upper()),
    "a list of issuers": lambda made: made.token(iss=[made.provider.url]),
    "no issuer": claim(iss=None),
    "another audience": claim(aud="elsewhere"),
    "a part of the audience": claim(aud="lakeproo"),
    "a list without the audience": claim(aud=["elsewhere", "lakeproof.example"]),
    "an empty list of audiences": claim(aud=[]),
    "a list of lists of audiences": claim(aud=[["lakeproof"]]),
    "an object for the audience": claim(aud={"lakeproof": True}),
    "no audience": claim(aud=None),
    "no subject": claim(sub=None),
    "an empty subject": claim(sub=""),
    "a blank subject": claim(sub="   "),
    "a list of subjects": claim(sub=["ada@acme.example"]),
    "a number for the subject": claim(sub=1),
    "an object for the subject": claim(sub={"id": 1}),
    "a long subject": claim(sub="a" * 321),
    "a NUL in the subject": claim(sub="ada\x00"),
    "a line break in the subject": claim(sub="ada\nroot"),
    "a right-to-left override in the subject": claim(sub="ada\u202e"),
    "a lone surrogate in the subject": raw_claims(lambda text: text.replace(b'"sub": "ada', b'"sub": "\\ud800')),
    "a number for the groups": claim(groups=1),
    "an object for the groups": claim(groups={"lake-writers": True}),
    "a list of lists of groups": claim(groups=[["lake-writers"]]),
    "ten thousand groups": claim(groups="a " * 5_000),
    "a list for the address": claim(email=["ada@acme.example"]),
    # Text
    "a member twice": raw_claims(lambda text: text[:-1] + b', "sub": "eve@acme.example"}'),
    "a member twice, deeper": raw_claims(lambda text: text[:-1] + b', "x": {"a": 1, "a": 2}}'),
    "a member of the header twice": raw_header(lambda text: text[:-1] + b', "alg": "RS256"}'),
    "claims that are a list": lambda made: made.signed(HEADER, [made.claims()]),
    "claims that are a text": lambda made: made.signed(HEADER, "ada"),
    "claims that are null": lambda made: made.signed(HEADER, None),
    "claims that are no JSON": raw_claims(lambda text: text[:-1]),
    "claims with a comment": raw_claims(lambda text: text + b"// ada"),
    "claims in UTF-16": raw_claims(lambda text: text.decode().encode("utf-16")),
    "claims that are not UTF-8": raw_claims(lambda text: text.replace(b'"jti": "1"', b'"jti": "\xff"')),
    "claims behind a byte order mark": raw_claims(lambda text: b"\xef\xbb\xbf" + text),
    "claims nested ten thousand times": raw_claims(lambda text: text[:-1] + b', "x": ' + b"[" * 6_000),
    "a number of ten thousand digits": raw_claims(lambda text: text[:-1] + b', "x": ' + b"9" * 5_000 + b"}"),
    "a header that is a list": lambda made: made.signed([HEADER], made.claims()),
    "a header that is no JSON": raw_header(lambda text: text[1:]),
    "no header": lambda made: f".{made.parts[1]}.{made.parts[2]}",
    "no claims": lambda made: f"{made.parts[0]}..{made.parts[2]}",
    "no signature": lambda made: f"{made.parts[0]}.{made.parts[1]}.",
    "two parts": lambda made: ".".join(made.parts[:2]),
    "four parts": lambda made: f"{made.good}.{made.parts[2]}",
    "five parts": lambda made: f"{made.good}.{made.parts[1]}.{made.parts[2]}",
    "two signatures": general_serialization,
    "the token twice": lambda made: f"{made.good}{made.good}",
    "two tokens": lambda made: f"{made.good},{made.good}",
    "dots": lambda _: "..",
    "more dots": lambda _: "." * 1_000,
    "a space within": lambda made: f"{made.good[:50]} {made.good[50:]}",
    "in quotes": lambda made: f'"{made.good}"',
    "padded": lambda made: f"{made.good}==",
    "the other alphabet of base64": standard_base64,
    "the same signature spelled differently": respelled,
    "percent-encoded": lambda made: made.good.replace(".", "%2E"),
    "reversed": lambda made: made.good[::-1],
    "truncated": lambda made: made.good[:-1],
    "half of it": lambda made: made.good[: len(made.good) // 2],
    "another signature": lambda made: ".".join((*made.parts[:2], made.token(jti="2").split(".")[2])),
    "another bit of the signature": lambda made: flipped(made.good, len(made.good) - 20),
    "a signature of zeros": lambda made: ".".join((*made.parts[:2], part(bytes(256)))),
    "a signature of 64 zeros for P-256": lambda made: (
        made.token(key="p256-1").rpartition(".")[0] + "." + part(bytes(64))
    ),
    "a signature of P-256 in DER": lambda made: (
        made.token(key="p256-1").rpartition(".")[0] + "." + part(b"\x30\x06\x02\x01\x01\x02\x01\x01")
    ),
    "other claims under the signature": lambda made: ".".join(
        (made.parts[0], part(made.claims(sub="eve@acme.example")), made.parts[2])
    ),
    "another header over the signature": lambda made: ".".join((part({**HEADER, "typ": "JWT"}), *made.parts[1:])),
    "huge": lambda made: made.token(x="x" * LENGTH_MAX),
    "a huge signature": lambda made: ".".join((*made.parts[:2], urlsafe_b64encode(bytes(30_000)).decode())),
}  # fmt: skip

GOOD: dict[str, Make] = {
    "as it is": lambda made: made.good,
    "P-256": lambda made: made.token(key="p256-1"),
    "Ed25519": lambda made: made.token(key="ed-1"),
    "JWT": header(typ="JWT"),
    "the long name of its type": header(typ="application/at+JWT"),
    "no type": header(typ=None),
    "a member of the header that says nothing": header(x5t="abc", nonce="1"),
    "a list with the audience": claim(aud=["elsewhere", "lakeproof"]),
    "no beginning": claim(nbf=None),
    "expired within the skew": times(exp=-30),
    "issued within the skew": times(iat=30, nbf=30),
    "a fraction of a second": times(iat=-5.5, exp=60.25),
    "no groups": claim(groups=None),
    "no address": claim(email=None),
    "groups with spaces between": claim(groups="lake-writers lake-readers"),
    "as long as may be": lambda made: made.token(x="x" * (LENGTH_MAX * 3 // 4 - 800)),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider() -> AsyncIterator[IdentityProvider]:
    async with identity_provider() as provider:
        provider.keys += ["rsa-2", "p384-1", "k1-1", "ed448-1", "weak-1"]
        provider.extra_keys = [
            public_jwk("rsa-3") | {"use": "enc"},
            public_jwk("rsa-4") | {"key_ops": ["encrypt"]},
            public_jwk("rsa-5") | {"alg": "PS256"},
            public_jwk("rsa-6"),
            public_jwk("rsa-7") | {"kid": "rsa-6"},
            public_jwk("ed-2") | {"d": part(private_key("ed-2").private_bytes_raw())},  # type: ignore[union-attr]
            {"kid": "oct", "kty": "oct", "k": part(b"s" * 32)},
            {"kid": "no point", "kty": "EC", "crv": "P-256", "x": part(bytes(32)), "y": part(bytes(32))},
            {"kid": "no number", "kty": "RSA", "n": 1, "e": "AQAB"},
            {"kty": "unknown"},
        ]
        yield provider


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def accepting(module_gateway: Gateway, provider: IdentityProvider) -> AsyncIterator[TokenGateway]:
    async with token_gateway(module_gateway, issuer_for(module_gateway, provider)) as accepting:
        yield accepting


@pytest.fixture
def made(provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> Made:
    unhurried(monkeypatch)
    now_s = int(time.time())
    return Made(provider=provider, now_s=now_s, good=provider.token(now_s=now_s))


@pytest.mark.parametrize("make", BAD.values(), ids=BAD.keys())
async def test_a_bad_token_is_refused_in_bounded_time_and_accepted_after_its_repair(
    accepting: TokenGateway, made: Made, make: Make
) -> None:
    bad = make(made)
    assert bad != made.good
    client = accepting.client()
    began_s = time.process_time()
    refused = await client.get(NAMESPACES, headers=[(b"Authorization", f"Bearer {bad}".encode())])
    took_s = time.process_time() - began_s
    assert (refused.status_code, error_of(refused)["type"]) == (401, "NotAuthorizedException")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert took_s < BOUND_S
    message = error_of(refused)["message"]
    assert len(message) < 300, "one sentence"
    assert "acme.example" not in message
    assert not any(len(piece) > 8 and piece in message for piece in bad.split("."))
    repaired = await client.get(NAMESPACES, headers={"Authorization": f"Bearer {made.good}"})
    assert repaired.status_code == 403, "verified, and permitted nothing yet"


@pytest.mark.parametrize("make", GOOD.values(), ids=GOOD.keys())
async def test_a_good_token_is_accepted(accepting: TokenGateway, made: Made, make: Make) -> None:
    assert (await accepting.client(make(made)).get(NAMESPACES)).status_code == 403


async def test_a_token_is_no_api_key_and_an_api_key_is_no_token(
    accepting: TokenGateway, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = accepting.gateway.acme.key.secret
    looked_up: list[str] = []
    find, verify = accepting.authenticator._lookups.find, accepting.tokens.verify

    async def find_counted(prefix: str) -> Any:
        looked_up.append("key")
        return await find(prefix)

    async def verify_counted(text: str) -> Any:
        looked_up.append("token")
        return await verify(text)

    monkeypatch.setattr(accepting.authenticator._lookups, "find", find_counted)
    monkeypatch.setattr(accepting.tokens, "verify", verify_counted)
    assert (await accepting.client(key).get(NAMESPACES)).status_code == 200
    assert looked_up == ["key"]
    for text in (made.good, f"{key}.{key}.{key}", f"{key}."):
        await accepting.client(text).get(NAMESPACES)
    assert looked_up == ["key", "token", "token", "token"]


async def test_without_an_issuer_every_token_is_refused(module_gateway: Gateway, made: Made) -> None:
    assert module_gateway.services.installation.settings.token_issuers is None
    answer = await module_gateway.client(made.good).get(NAMESPACES)
    assert answer.status_code == 401
    assert "configure the issuer" in error_of(answer)["message"]
