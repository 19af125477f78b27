# SPDX-License-Identifier: Apache-2.0
"""
An identity provider on loopback for what a real one would not do: keys that rotate or vanish, and tokens of any form.

It serves a discovery document and a key set (RFC 7517), signs what it is told, and gives for a code what it is told.
Signatures are made with `cryptography` alone, so that what verifies them is not also what made them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl

from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from testkit.servers.loopback import serve

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
HOUR_S: Final = 3_600


@cache
def private_key(name: str) -> PrivateKey:
    """Return a key, made once in a process: `rsa-…`, `weak-…`, `p256-…`, `p384-…`, `k1-…`, `ed-…` or `ed448-…`."""
    match name.partition("-")[0]:
        case "rsa":
            return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        case "weak":
            return rsa.generate_private_key(public_exponent=65_537, key_size=1_024)  # noqa: S505  (to be refused)
        case "p256":
            return ec.generate_private_key(ec.SECP256R1())
        case "p384":
            return ec.generate_private_key(ec.SECP384R1())
        case "k1":
            return ec.generate_private_key(ec.SECP256K1())
        case "ed448":
            return ed448.Ed448PrivateKey.generate()
        case _:
            return ed25519.Ed25519PrivateKey.generate()


def part(content: object) -> str:
    """Return a part of a token: bytes as they are, anything else as JSON."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def public_jwk(name: str) -> dict[str, Any]:
    """Return the public half of a key as a JSON Web Key."""
    key = private_key(name)
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = key.public_key().public_numbers()
        return {"kid": name, "kty": "RSA", "n": _number(numbers.n, 0), "e": _number(numbers.e, 0)}
    if isinstance(key, ec.EllipticCurvePrivateKey):
        point = key.public_key().public_numbers()
        size = (key.key_size + 7) // 8
        curve = {"secp256r1": "P-256", "secp384r1": "P-384", "secp256k1": "secp256k1"}[key.curve.name]
        return {"kid": name, "kty": "EC", "crv": curve, "x": _number(point.x, size), "y": _number(point.y, size)}
    raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    curve = "Ed25519" if isinstance(key, ed25519.Ed25519PrivateKey) else "Ed448"
    return {"kid": name, "kty": "OKP", "crv": curve, "x": part(raw)}


def algorithm_of(name: str) -> str:
    """Return the algorithm that a key is meant for."""
    kinds = {"rsa": "RS256", "weak": "RS256", "p256": "ES256", "p384": "ES384", "k1": "ES256K"}
    return kinds.get(name.partition("-")[0], "EdDSA")


def signature(name: str, signed: bytes) -> bytes:
    """Return the signature of a key as RFC 7518 writes it."""
    key = private_key(name)
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(signed, padding.PKCS1v15(), SHA256())
    if isinstance(key, ec.EllipticCurvePrivateKey):
        size = (key.key_size + 7) // 8
        return b"".join(number.to_bytes(size) for number in decode_dss_signature(key.sign(signed, ec.ECDSA(SHA256()))))
    return key.sign(signed)


def hmac_signature(secret: bytes, signed: bytes) -> bytes:
    """Return what HS256 is with `secret`."""
    return hmac.digest(secret, signed, hashlib.sha256)


def assemble(header: object, claims: object, sign: Callable[[bytes], bytes]) -> str:
    """Return the token of any header and claims."""
    signed = f"{part(header)}.{part(claims)}"
    return f"{signed}.{part(sign(signed.encode()))}"


@dataclass(slots=True, kw_only=True)
class IdentityProvider:
    """
    The provider at `url`. `keys` are those that it publishes, `members` other members of the two documents; `reads`
    counts requests for the key set, and `answer` is what it answers instead of it, if anything. `forms` are the
    requests for tokens (form and Authorization), and `exchange` answers them.
    """

    url: str = ""
    audience: str = "lakeproof"
    keys: list[str] = field(default_factory=lambda: ["rsa-1", "p256-1", "ed-1"])
    extra_keys: list[dict[str, Any]] = field(default_factory=list)
    discovery: dict[str, Any] = field(default_factory=dict)
    reads: int = 0
    answer: Callable[[], Response] | None = None
    forms: list[tuple[dict[str, str], str | None]] = field(default_factory=list)
    exchange: Callable[[], Response] | None = None

    def claims(self, *, now_s: int, **changed: Any) -> dict[str, Any]:
        """Return the claims of a good token, with some changed; None leaves one out."""
        claims = {
            "iss": self.url,
            "aud": self.audience,
            "sub": "ada@acme.example",
            "iat": now_s - 5,
            "nbf": now_s - 5,
            "exp": now_s + HOUR_S,
            "jti": "1",
            "email": "ada@acme.example",
            "groups": ["lake-writers"],
        } | changed
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, *, now_s: int, key: str = "rsa-1", header: Mapping[str, Any] | None = None, **changed: Any) -> str:
        """Return a good token, with some claims changed."""
        head = {"alg": algorithm_of(key), "kid": key, "typ": "at+jwt", **(header or {})}
        return assemble(head, self.claims(now_s=now_s, **changed), lambda signed: signature(key, signed))

    def app(self) -> Starlette:
        """Return the application that serves both documents."""

        async def documents(request: Request) -> Response:
            if request.url.path == "/.well-known/openid-configuration":
                places = {
                    "jwks_uri": f"{self.url}/keys",
                    "authorization_endpoint": f"{self.url}/authorize?flow=1",
                    "token_endpoint": f"{self.url}/token",
                }
                return JSONResponse({"issuer": self.url, **places, **self.discovery})
            self.reads += 1
            if self.answer is not None:
                return self.answer()
            return JSONResponse({"keys": [*map(public_jwk, self.keys), *self.extra_keys]})

        async def tokens(request: Request) -> Response:
            form = dict(parse_qsl((await request.body()).decode("ascii"), strict_parsing=True))
            self.forms.append((form, request.headers.get("authorization")))
            assert self.exchange is not None
            return self.exchange()

        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", documents),
                Route("/keys", documents),
                Route("/token", tokens, methods=["POST"]),
            ]
        )


@asynccontextmanager
async def identity_provider() -> AsyncIterator[IdentityProvider]:
    """Yield a provider that is served on a free port."""
    provider = IdentityProvider()
    async with serve(provider.app()) as url:
        provider.url = url
        yield provider


def _number(number: int, size: int) -> str:
    return part(number.to_bytes(size or (number.bit_length() + 7) // 8))
