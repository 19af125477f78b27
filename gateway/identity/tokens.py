# SPDX-License-Identifier: Apache-2.0
"""
JSON Web Tokens as they arrive: read strictly, and not believed yet. Pure.

A token is three parts in base64url (RFC 7515, section 7.1). `parse_token` takes exactly one spelling of it: no padding,
no unused bits, UTF-8, JSON objects without a repeated member, at most 16 KiB. Two parsers cannot read different claims
from the same token, and nothing large is decoded. A header that asks to be understood (`crit`), names keys itself or
compresses is refused: the keys of an issuer come from its key set alone (RFC 8725, section 3).
"""

from __future__ import annotations

import binascii
import json
import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn

from gateway.identity.principal import TokenRefusedError

SEPARATOR: Final = "."
"""Between the parts of a token; no API key has one, so a credential is either or."""
LENGTH_MAX: Final = 16 * 1024
"""Characters of a token."""
KEY_ID_LENGTH_MAX: Final = 256
TEXT_LENGTH_MAX: Final = 320
"""Of a claim that names somebody: as long as an identity may be."""
NAMES_MAX: Final = 1_000
"""Audiences or groups in one claim."""
LIFETIME_MAX: Final = timedelta(hours=24)
"""From `iat` to `exp`: nothing else ends a token of a provider."""
SECONDS_MAX: Final = 253_402_300_799
"""The last second that a `datetime` can be (the year 9999)."""
TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""Values of `typ` for an access token (RFC 9068, section 2.1), in lower case; other tokens mean other things."""
DANGEROUS: Final = ("crit", "b64", "zip", "enc", "jwk", "jku", "x5c", "x5u")
"""Members of a header that change how the token is to be read, or bring the key that should verify it."""

_PART = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """
    A token that was read and whose signature was not checked. `signed` is what `signature` is over, in ASCII.

    `key_id` and `type` (in lower case) are None if the header has none. Its printed form shows no part of it.
    """

    algorithm: str
    key_id: str | None
    type: str | None
    claims: Mapping[str, object] = field(repr=False)
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def parse_token(text: str) -> Token:
    """
    Return the parts of a token.

    Raises:
        TokenRefusedError: if it is too long, is not of its form, or its header has a member of `DANGEROUS`.
    """
    if len(text) > LENGTH_MAX:
        raise TokenRefusedError(f"expected a token of at most {LENGTH_MAX} characters, found {len(text)}: get another")
    parts = text.split(SEPARATOR)
    if len(parts) != 3:
        raise TokenRefusedError(f"expected a signed token of three parts, found {len(parts)}: get another one")
    header = _object(_bytes(parts[0]), "header of the token")
    claims = _object(_bytes(parts[1]), "claims of the token")
    signature = _bytes(parts[2])
    for name in DANGEROUS:
        if name in header:
            raise TokenRefusedError(f"expected a token without {name!r} in its header, found one with: get another one")
    token_type = _text(header, "typ", length_max=KEY_ID_LENGTH_MAX)
    algorithm = _text(header, "alg", length_max=KEY_ID_LENGTH_MAX)
    if algorithm is None:
        raise _malformed("alg", "a text")
    return Token(
        algorithm=algorithm,
        key_id=_text(header, "kid", length_max=KEY_ID_LENGTH_MAX),
        type=None if token_type is None else token_type.lower(),
        claims=claims,
        signed=f"{parts[0]}.{parts[1]}".encode("ascii"),
        signature=signature,
    )


def issuer_of(token: Token) -> str:
    """
    Return the claim `iss`: whose token it says it is, which only that issuer's keys can prove.

    Raises:
        TokenRefusedError: if it has none.
    """
    return required_text(token.claims, "iss")


def check_times(token: Token, *, now: datetime, skew: timedelta) -> tuple[datetime, datetime]:
    """
    Return when a token was issued, and when it ends (its `exp` and `skew`, how much clocks may differ).

    `exp` and `iat` are required, and at most `LIFETIME_MAX` apart; `nbf` is not required (RFC 7519, section 4.1).

    Raises:
        TokenRefusedError: if it has expired, is not valid yet or lives too long, or a time is missing or malformed.
    """
    issued, ends = _time(token.claims, "iat"), _time(token.claims, "exp")
    if issued is None or ends is None:
        raise _malformed("iat" if issued is None else "exp", "a number of seconds")
    if ends - issued > LIFETIME_MAX:
        hours = LIFETIME_MAX.total_seconds() / 3600
        raise TokenRefusedError(f"expected a token that lives at most {hours:g} hours, found a longer life: shorten it")
    if now >= ends + skew:
        raise TokenRefusedError("the token has expired: get a new one")
    for begins in (issued, _time(token.claims, "nbf")):
        if begins is not None and now < begins - skew:
            raise TokenRefusedError("the token is not valid yet: check the clocks of its issuer and of this machine")
    return issued, ends + skew


def check_audience(token: Token, audience: str) -> None:
    """
    Check that a token is meant for `audience`: its `aud` is that text, or a list that has it (RFC 7519, section 4.1.3).

    Raises:
        TokenRefusedError: otherwise.
    """
    found = token.claims.get("aud")
    named = [found] if isinstance(found, str) else found
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named) or len(named) > NAMES_MAX:
        raise _malformed("aud", "a text or a list of texts")
    if audience not in named:
        raise TokenRefusedError("the token is for another audience: get one for this installation")


def required_text(claims: Mapping[str, object], name: str) -> str:
    """
    Return a claim that is a text of 1 to 320 printable characters.

    Raises:
        TokenRefusedError: if it is missing, or anything else.
    """
    found = optional_text(claims, name)
    if found is None:
        raise _malformed(name, f"a text of 1 to {TEXT_LENGTH_MAX} printable characters")
    return found


def optional_text(claims: Mapping[str, object], name: str) -> str | None:
    """
    Return a claim as `required_text` does; None if it is missing or null.

    Raises:
        TokenRefusedError: if it is anything else.
    """
    return _text(claims, name, length_max=TEXT_LENGTH_MAX)


def names_in(claims: Mapping[str, object], name: str) -> tuple[str, ...]:
    """
    Return a claim that is a list of texts, or one text of names with spaces between; none if it is missing or null.

    Raises:
        TokenRefusedError: if it is anything else, or has more than 1,000 names.
    """
    found = claims.get(name)
    if found is None:
        return ()
    names = found.split(" ") if isinstance(found, str) else found
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names) or len(names) > NAMES_MAX:
        raise _malformed(name, f"a list of at most {NAMES_MAX} texts")
    return tuple(names)


def encode_part(data: bytes) -> str:
    """Return a part of a token: base64url without padding (RFC 7515, section 2)."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_part(text: str) -> bytes:
    """
    Return the bytes that `encode_part` writes as `text`.

    Raises:
        ValueError: if `text` is any other spelling.
    """
    if _PART.fullmatch(text):
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        if encode_part(data) == text:
            return data
    message = "expected base64url without padding"
    raise ValueError(message)


def parse_unambiguous(data: bytes) -> dict[str, object]:
    """
    Return a JSON object in UTF-8 of which all parsers read the same: no member twice, no NaN or infinity.

    RFC 7519, section 4, lets a parser refuse a repeated claim; whoever takes the last one may be told something else
    than whoever takes the first.

    Raises:
        ValueError: if it is anything else, or nested too deeply.
    """
    try:
        found = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError as error:
        message = "expected fewer levels"
        raise ValueError(message) from error
    if not isinstance(found, dict):
        message = "expected an object"
        raise ValueError(message)  # noqa: TRY004  (a parser's error, of one kind)
    return found


def _bytes(part: str) -> bytes:
    try:
        return decode_part(part)
    except (ValueError, binascii.Error) as error:
        raise TokenRefusedError("expected parts in base64url without padding, found others: get another one") from error


def _object(data: bytes, what: str) -> dict[str, object]:
    try:
        return parse_unambiguous(data)
    except ValueError as error:  # its text may repeat a part of the token
        raise TokenRefusedError(
            f"expected the {what} to be a JSON object with each member once, found something else: get another token"
        ) from error


def _text(members: Mapping[str, object], name: str, *, length_max: int) -> str | None:
    found = members.get(name)
    if found is None:
        return None
    if not isinstance(found, str) or not 1 <= len(found) <= length_max or not found.isprintable() or found.isspace():
        raise _malformed(name, f"a text of 1 to {length_max} printable characters")
    return found


def _time(claims: Mapping[str, object], name: str) -> datetime | None:
    """Return a NumericDate (RFC 7519, section 2): seconds since 1970, perhaps with a fraction."""
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise _malformed(name, "a number of seconds")
    if not 0 <= found <= SECONDS_MAX - LIFETIME_MAX.total_seconds():
        raise _malformed(name, "a number of seconds before the year 9999")
    return datetime.fromtimestamp(found, tz=UTC)


def _malformed(name: str, expected: str) -> TokenRefusedError:
    return TokenRefusedError(f"expected {name!r} in the token to be {expected}, found something else: get another one")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        message = "expected each member once"
        raise ValueError(message)
    return found


def _no_constant(name: str) -> NoReturn:
    message = f"expected a number, found {name}"
    raise ValueError(message)
