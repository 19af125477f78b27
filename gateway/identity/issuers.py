# SPDX-License-Identifier: Apache-2.0
"""
The identity providers whose tokens are accepted, as the operator describes them in one TOML file. Pure.

Each issuer is of one tenant: whoever can make its tokens can be anybody of that tenant and nobody of another. A claim
that named the tenant would put every tenant into the hands of one provider, and of whoever may edit its users.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

from gateway.identity.login_clients import LoginClient, parse_login_client
from gateway.identity.principal import TokenRefusedError
from gateway.identity.provider_urls import check_url
from gateway.identity.setting_tables import ROLES_MAX, parse_roles, parse_table, parse_tables, parse_tenant, parse_text
from gateway.identity.signatures import ALGORITHMS, DEFAULT_ALGORITHMS
from gateway.identity.tokens import (
    TEXT_LENGTH_MAX,
    TYPES,
    Token,
    check_audience,
    check_times,
    names_in,
    optional_text,
    required_text,
)
from ledger.errors import FormatError

ISSUERS_MAX: Final = 100
GROUPS_MAX: Final = 1_000
"""Groups that one issuer maps to roles."""
ATTRIBUTES_MAX: Final = 32
"""Claims of one issuer that policies see."""
SKEW_S_MAX: Final = 600
SKEW_S_DEFAULT: Final = 60
DISCOVERY: Final = "/.well-known/openid-configuration"

_MEMBERS: Final = frozenset(
    {
        "issuer",
        "tenant",
        "audience",
        "algorithms",
        "jwks_url",
        "clock_skew_s",
        "subject_claim",
        "email_claim",
        "groups_claim",
        "attribute_claims",
        "roles",
        "login",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """
    An identity provider of one tenant. `url` is what its tokens have as `iss`, to the letter.

    Its keys are at `jwks_url`; None: where its discovery document says. `roles` has the roles of each group, and
    `attribute_claims` the names of claims that policies see. With `login` people log in to the console there.
    """

    url: str
    tenant: UUID
    audience: str
    algorithms: frozenset[str]
    jwks_url: str | None
    skew: timedelta
    subject_claim: str
    email_claim: str
    groups_claim: str
    roles: Mapping[str, tuple[str, ...]]
    attribute_claims: tuple[str, ...] = ()
    login: LoginClient | None = None

    @property
    def discovery_url(self) -> str:
        """Where its discovery document is (OpenID Connect Discovery 1.0, section 4)."""
        return self.url.rstrip("/") + DISCOVERY

    @property
    def actor(self) -> str:
        """
        Return the pseudonym of the issuer: the first 16 bytes of SHA-256("lakeproof issuer" || 0x00 || url) in hex.

        It stands where the actor does who issues an API key: callers of a provider have actors of their own, since
        whoever runs the provider could act as them.
        """
        return hashlib.sha256(b"lakeproof issuer\x00" + self.url.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a verified token says of its caller; it counts from `issued_at` until `ends_at`."""

    subject: str
    email: str | None
    roles: tuple[str, ...]
    groups: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...]
    issued_at: datetime
    ends_at: datetime


def read_claims(issuer: Issuer, token: Token, *, now: datetime) -> Claims:
    """
    Return what a token of `issuer`, whose signature is valid, says of its caller.

    Groups without a role give none. An address that the provider calls unverified is none.

    Raises:
        TokenRefusedError: if it is of another kind, for another audience, not valid now, bound to a key that the caller
            would have to prove (`cnf`, RFC 7800), or a claim is missing or malformed.
    """
    if token.type is not None and token.type not in TYPES:
        raise TokenRefusedError("expected an access token, found a token of another kind: get an access token")
    if token.claims.get("cnf") is not None:
        raise TokenRefusedError("the token is bound to a key, which cannot be checked here: get one that is not bound")
    check_audience(token, issuer.audience)
    issued_at, ends_at = check_times(token, now=now, skew=issuer.skew)
    verified = token.claims.get("email_verified", True)
    is_unverified = verified is not True and verified != "true"
    if is_unverified and issuer.subject_claim == "email":
        raise TokenRefusedError("the mail address of the token is not verified: verify it at the identity provider")
    email = optional_text(token.claims, issuer.email_claim)
    groups = names_in(token.claims, issuer.groups_claim)
    roles = {role for group in groups for role in issuer.roles.get(group, ())}
    if len(roles) > ROLES_MAX:
        raise TokenRefusedError(f"expected groups of at most {ROLES_MAX} roles, found {len(roles)}: leave some groups")
    return Claims(
        subject=required_text(token.claims, issuer.subject_claim),
        email=None if is_unverified else email,
        roles=tuple(sorted(roles)),
        groups=tuple(sorted(set(groups))),
        attributes=tuple(_attributes(token.claims, issuer.attribute_claims)),
        issued_at=issued_at,
        ends_at=ends_at,
    )


def _attributes(claims: Mapping[str, object], names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield those of the claims `names` that the token has; numbers and booleans as JSON spells them."""
    for name in names:
        found = claims.get(name)
        if isinstance(found, bool | int):
            yield name, str(found).lower()
        elif (text := optional_text(claims, name)) is not None:
            yield name, text


def parse_issuers(text: str) -> tuple[Issuer, ...]:
    """
    Return the issuers of a TOML file: a table `[[issuers]]` for each.

    Raises:
        FormatError: if it is not TOML, a member is missing, unknown or malformed, or two issuers have one URL, or one
            name of their logins.
    """
    (tables,) = parse_tables(text, "issuers", most=ISSUERS_MAX)
    issuers = tuple(_parse_issuer(table, f"issuer {number}") for number, table in enumerate(tables, start=1))
    urls = [issuer.url for issuer in issuers]
    for url in urls:
        if urls.count(url) > 1:
            raise FormatError("file of issuers", expected="each issuer once", found=url)
    names = [issuer.login.name for issuer in issuers if issuer.login is not None]
    for name in names:
        if names.count(name) > 1:
            raise FormatError("file of issuers", expected="each name of a login once", found=name)
    return issuers


def _parse_issuer(found: object, what: str) -> Issuer:
    table = parse_table(found, _MEMBERS, what)
    url = parse_text(table, "issuer", what)
    check_url(url, what=f"{what}, issuer")
    jwks_url = None if "jwks_url" not in table else parse_text(table, "jwks_url", what)
    if jwks_url is not None:
        check_url(jwks_url, what=f"{what}, jwks_url")
    elif urlsplit(url).query:
        raise FormatError(f"{what}, issuer", expected="a URL without query, or a jwks_url", found=url)
    return Issuer(
        url=url,
        tenant=parse_tenant(table, what),
        audience=parse_text(table, "audience", what),
        algorithms=_parse_algorithms(table.get("algorithms", list(DEFAULT_ALGORITHMS)), f"{what}, algorithms"),
        jwks_url=jwks_url,
        skew=timedelta(seconds=_parse_skew(table.get("clock_skew_s", SKEW_S_DEFAULT), f"{what}, clock_skew_s")),
        subject_claim=parse_text(table, "subject_claim", what, "sub"),
        email_claim=parse_text(table, "email_claim", what, "email"),
        groups_claim=parse_text(table, "groups_claim", what, "groups"),
        roles=_parse_roles(table.get("roles", {}), f"{what}, roles"),
        attribute_claims=_parse_attributes(table.get("attribute_claims", []), f"{what}, attribute_claims"),
        login=None if "login" not in table else parse_login_client(table["login"], f"{what}, login"),
    )


def _parse_algorithms(found: object, what: str) -> frozenset[str]:
    if not isinstance(found, list) or not found or not all(one in ALGORITHMS for one in found):
        raise FormatError(what, expected=f"a list of some of {', '.join(ALGORITHMS)}", found=found)
    return frozenset(found)


def _parse_skew(found: object, what: str) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= SKEW_S_MAX:
        raise FormatError(what, expected=f"a whole number of seconds from 0 to {SKEW_S_MAX}", found=found)
    return found


def _parse_roles(found: object, what: str) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(found, dict) or len(found) > GROUPS_MAX:
        raise FormatError(what, expected=f"a table of at most {GROUPS_MAX} groups, each with its roles", found=found)
    return {group: tuple(parse_roles(given, what)) for group, given in found.items()}


def _parse_attributes(found: object, what: str) -> tuple[str, ...]:
    if (
        not isinstance(found, list)
        or not all(isinstance(one, str) and 0 < len(one) <= TEXT_LENGTH_MAX for one in found)
        or len(found) > ATTRIBUTES_MAX
        or len(set(found)) < len(found)
    ):
        raise FormatError(what, expected=f"a list of at most {ATTRIBUTES_MAX} names of claims, each once", found=found)
    return tuple(found)
