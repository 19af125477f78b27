# SPDX-License-Identifier: Apache-2.0
"""
Signatures of tokens, and the keys that verify them. The one module that imports joserfc.

Only signatures with public keys are known here (RFC 7518, section 3; RFC 8037): neither `none` nor an HMAC can be asked
for, so a public key is never taken for a secret. A key verifies the algorithms of its own kind, and of them only its
`alg` if it names one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from gateway.identity.principal import TokenRefusedError
from gateway.identity.tokens import KEY_ID_LENGTH_MAX, Token, decode_part, encode_part, parse_unambiguous
from ledger.errors import FormatError

DEFAULT_ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
ALGORITHMS: Final = (*DEFAULT_ALGORITHMS, "RS384", "RS512", "PS256", "PS384", "PS512", "ES384", "ES512")
"""What an issuer may be allowed to sign with. EdDSA is Ed25519 here."""
KEYS_MAX: Final = 100
"""Keys in one set."""
RSA_BITS: Final = (2_048, 8_192)
"""The smallest and the largest modulus: below it is not safe (RFC 7518, section 3.3), above it costs too much."""

_OF_CURVE: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_OF_RSA: Final = frozenset(name for name in ALGORITHMS if name[:2] in {"RS", "PS"})
_IMPLEMENTED: Final = {name: JWSRegistry.algorithms["Ed25519" if name == "EdDSA" else name] for name in ALGORITHMS}
"""Ed25519 is EdDSA's fully specified name (RFC 9864); taken here, a key of another curve is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationKey:
    """A public key `id` and the algorithms that it verifies."""

    id: str
    algorithms: frozenset[str]
    key: Any = field(repr=False)  # Any: joserfc's three classes have no common type that its algorithms take


def parse_key_set(document: bytes) -> Mapping[tuple[str, str], VerificationKey]:
    """
    Return the keys of a JSON Web Key Set (RFC 7517, section 5) that verify signatures, by id and algorithm.

    Keys of other kinds, for other uses, without an id, with a private half or of an unsafe size are left out, as the
    specification asks. Of two keys that one token could mean, neither is taken.

    Raises:
        FormatError: if it is no such set, or none of its keys can be used.
    """
    try:
        members = parse_unambiguous(document).get("keys")
    except ValueError as error:
        raise FormatError("key set", expected="a JSON object with each member once", found="something else") from error
    if not isinstance(members, list) or len(members) > KEYS_MAX:
        raise FormatError("key set", expected=f"a list of at most {KEYS_MAX} keys", found=type(members).__name__)
    found: dict[tuple[str, str], VerificationKey | None] = {}
    for member in members:
        if isinstance(member, dict) and (key := _parse_key(member)) is not None:
            for algorithm in key.algorithms:
                name = (key.id, algorithm)
                found[name] = None if name in found else key
    usable = {name: key for name, key in found.items() if key is not None}
    if not usable:
        raise FormatError("key set", expected="a key that verifies signatures", found=f"none among {len(members)}")
    return MappingProxyType(usable)


def check_signature(token: Token, key: VerificationKey) -> None:
    """
    Check that a token was signed with the private half of `key`.

    Raises:
        TokenRefusedError: if it was not, or the key does not verify the token's algorithm.
    """
    is_valid = False
    if token.algorithm in key.algorithms:
        algorithm = _IMPLEMENTED[token.algorithm]
        try:
            algorithm.check_key(key.key)
            is_valid = algorithm.verify(token.signed, token.signature, key.key)
        except (JoseError, ValueError, TypeError):
            is_valid = False  # a signature that is no number of its curve, say
    if not is_valid:
        raise TokenRefusedError("the signature of the token is not valid: get a new one from its issuer")


def ed25519_key(key_id: str, public: bytes) -> VerificationKey:
    """Return the verification key of 32 bytes of Ed25519."""
    members: dict[str, str | list[str]] = {"kty": "OKP", "crv": "Ed25519", "x": encode_part(public)}
    return VerificationKey(id=key_id, algorithms=frozenset({"EdDSA"}), key=OKPKey.import_key(members))


def _parse_key(members: Mapping[str, object]) -> VerificationKey | None:
    """Return the key that a member of a set is; None if it is not one that verifies signatures."""
    id_, operations = members.get("kid"), members.get("key_ops", ["verify"])
    is_for_signatures = members.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
    if not isinstance(id_, str) or not 1 <= len(id_) <= KEY_ID_LENGTH_MAX or not is_for_signatures or "d" in members:
        return None
    try:
        algorithms, key = _import(members)
        key.get_op_key("verify")  # raises for numbers that are no key
    except (JoseError, KeyError, TypeError, ValueError, OverflowError):
        return None
    if (named := members.get("alg")) is not None:
        algorithms = frozenset(name for name in algorithms if name == named)
    return VerificationKey(id=id_, algorithms=algorithms, key=key) if algorithms else None


def _import(members: Mapping[str, object]) -> tuple[frozenset[str], RSAKey | ECKey | OKPKey]:
    """Return the algorithms of a key's kind, and the key. Raises errors of many kinds for what is no such key."""
    names: Mapping[object, tuple[str, ...]] = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
    kind = members["kty"]
    numbers = {name: str(members[name]) for name in names[kind]}
    match kind:
        case "RSA":
            size = int.from_bytes(decode_part(numbers["n"])).bit_length()
            exponent = int.from_bytes(decode_part(numbers["e"]))
            if not RSA_BITS[0] <= size <= RSA_BITS[1] or exponent.bit_length() > 32:
                message = f"expected a modulus of {RSA_BITS[0]} to {RSA_BITS[1]} bits and a short exponent"
                raise ValueError(message)
            return _OF_RSA, RSAKey.import_key({"kty": "RSA", **numbers})
        case "EC":
            return frozenset({_OF_CURVE[numbers["crv"]]}), ECKey.import_key({"kty": "EC", **numbers})
        case _:
            algorithms = frozenset({"EdDSA"}) if numbers["crv"] == "Ed25519" else frozenset()
            return algorithms, OKPKey.import_key({"kty": "OKP", **numbers})
