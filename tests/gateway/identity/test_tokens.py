# SPDX-License-Identifier: Apache-2.0
"""
Whatever a token or a key set holds, reading it ends with a value or with the one error that its reader expects.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.identity.issuers import parse_issuers, read_claims
from gateway.identity.principal import TokenRefusedError
from gateway.identity.signatures import check_signature, parse_key_set
from gateway.identity.tokens import parse_token
from ledger.errors import FormatError
from testkit.servers.identity_provider import part, public_jwk

NOW: Final = datetime(2026, 11, 26, tzinfo=UTC)
(ISSUER,) = parse_issuers(
    '[[issuers]]\nissuer = "https://idp.example/"\ntenant = "0190163d-8694-739b-aea5-966c26f8ad91"\naudience = "a"\n'
    "[issuers.roles]\na = 'a'\n"
)
CLAIMS: Final = ("iss", "aud", "sub", "exp", "iat", "nbf", "email", "email_verified", "groups", "cnf")
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(NOW.timestamp()) | st.just("a"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.text() | st.text(alphabet="eyJ.0-_=") | st.binary().map(lambda data: f"{part(data)}.{part(data)}.{part(data)}")
)
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(TokenRefusedError):
        parse_token(text)


@given(
    header=st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "x"]), JSON),
    claims=st.dictionaries(st.sampled_from(CLAIMS), JSON),
)
@example(header={"alg": "RS256"}, claims={"aud": "a", "iat": NOW.timestamp(), "exp": NOW.timestamp() + 1, "sub": []})
def test_any_claims_are_read_or_refused(header: dict[str, Any], claims: dict[str, Any]) -> None:
    text = f"{part(header | {'alg': 'RS256'})}.{part(claims)}.{part(b'x')}"
    with suppress(TokenRefusedError):
        read_claims(ISSUER, parse_token(text), now=NOW)


@given(
    kind=st.sampled_from(["rsa-1", "p256-1", "ed-1"]),
    changed=st.dictionaries(
        st.sampled_from(["kid", "kty", "crv", "x", "y", "n", "e", "alg", "use", "key_ops", "d"]),
        JSON | st.sampled_from(["RSA", "EC", "OKP", "oct", "P-256", "P-521", "Ed25519", "Ed448", "X25519", "sig"]),
    ),
    algorithm=st.sampled_from(["RS256", "PS256", "ES256", "EdDSA", "HS256", "none"]),
)
def test_any_key_set_is_read_or_refused_and_verifies_nothing_unsigned(
    kind: str, changed: dict[str, Any], algorithm: str
) -> None:
    with suppress(FormatError):
        keys = parse_key_set(json.dumps({"keys": [public_jwk(kind) | changed]}).encode())
        token = parse_token(f"{part({'alg': algorithm})}.{part({})}.{part(bytes(64))}")
        for key in keys.values():
            try:
                check_signature(token, key)
            except TokenRefusedError:
                continue
            raise AssertionError
