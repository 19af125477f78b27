# SPDX-License-Identifier: Apache-2.0
"""
`POST /v1/oauth/tokens` (getToken of the Iceberg REST specification): an access token for an API key.

Two grants are taken. `client_credentials` (RFC 6749, section 4.4): `client_id` is the key's id, `client_secret` its
text, both in the body or both in Basic. Token exchange (RFC 8693): an access token for a new one, as engines renew
theirs; with Basic also one that has expired. A token of an identity provider is not exchanged: it can be used itself.

Errors have the form of RFC 6749, section 5.2, which the specification asks for here and nowhere else.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

import orjson
from fastapi import Request
from fastapi.responses import Response

from gateway.commit.gateway import Gateway
from gateway.errors import GatewayError, UnauthorizedError, UnavailableError
from gateway.http.asked import credential_of
from gateway.http.error_answers import FOR_OPERATORS
from gateway.http.request import body_of
from gateway.identity import Principal
from gateway.identity.access_tokens import LIFETIME, RENEWED_MAX, AccessTokens
from gateway.identity.principal import NotInForceError
from gateway.identity.tokens import LENGTH_MAX, parse_token

BODY_BYTES_MAX: Final = 2 * LENGTH_MAX
"""A token, percent-encoded where it need not be, and the other parameters."""
PARAMETERS_MAX: Final = 20
CLIENT_CREDENTIALS: Final = "client_credentials"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105  (a name, no secret)
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105
SCOPE: Final = "catalog"
"""The only scope: all that the key is permitted."""
SCOPES: Final = frozenset({SCOPE, "PRINCIPAL_ROLE:ALL"})
"""What clients ask for unless told otherwise, Iceberg's own and DuckDB: both mean that scope."""
FORM: Final = "application/x-www-form-urlencoded"
_OPERATION: Final = "POST /v1/oauth/tokens"
HEADERS: Final = {"Cache-Control": "no-store", "Pragma": "no-cache"}
"""Of every answer: it has a secret, or could be taken for the next one (RFC 6749, section 5.1)."""


class OAuthError(GatewayError):
    """A request for a token was refused; `code` is its word (RFC 6749, section 5.2)."""

    status = 400

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client:
    """What a client says of itself: the id of a key, and its text."""

    id: str
    secret: str = field(repr=False)


async def answer_token(request: Request) -> Response:
    """
    Return the answer to a request for a token: the token, or an error; it is never to be stored.
    """
    gateway: Gateway = request.app.state.gateway
    try:
        return await _granted(gateway, request)
    except UnauthorizedError as error:
        await gateway.refusals.unauthenticated(_OPERATION)
        challenge = {"WWW-Authenticate": 'Basic realm="lakeproof"'}
        return _error(401, "invalid_client", str(error), challenge)
    except OAuthError as error:
        if isinstance(error.__cause__, UnauthorizedError):
            await gateway.refusals.unauthenticated(_OPERATION)
        return _error(error.status, error.code, str(error))
    except UnavailableError as error:
        if isinstance(error.__cause__, FOR_OPERATORS):
            raise  # its text describes this machine: it is answered as everywhere else
        # The specification's list has no word for it; this is the one of RFC 6749, section 4.1.2.1.
        return _error(error.status, "temporarily_unavailable", str(error), {"Retry-After": str(error.retry_after_s)})
    except GatewayError as error:
        return _error(error.status, "invalid_request", str(error))


async def _granted(gateway: Gateway, request: Request) -> Response:
    if gateway.authenticator.tokens is None:
        raise OAuthError("unauthorized_client", "expected an API key as bearer token: no access tokens are issued here")
    tokens = gateway.authenticator.tokens.access_tokens
    authorization = credential_of(request.scope["headers"])
    parameters = _parameters(request, await body_of(request, size_bytes_max=BODY_BYTES_MAX))
    if parameters.get("scope", SCOPE) not in SCOPES:
        raise OAuthError("invalid_scope", f"expected the scope {SCOPE!r} or none, found another: leave it out")
    grant = parameters.get("grant_type")
    if grant is None:
        raise OAuthError("invalid_request", "expected the parameter grant_type, found none: send it in the body")
    if grant == CLIENT_CREDENTIALS:
        return _issued(tokens.sign(await _authenticated(gateway, _client(authorization, parameters))))
    if grant == TOKEN_EXCHANGE:
        return _issued(await _exchanged(gateway, tokens, authorization, parameters))
    raise OAuthError(
        "unsupported_grant_type", f"expected the grant {CLIENT_CREDENTIALS} or {TOKEN_EXCHANGE}, found another"
    )


async def _exchanged(
    gateway: Gateway, tokens: AccessTokens, authorization: str | None, parameters: Mapping[str, str]
) -> str:
    """Return a new token for the key of an access token that is still valid, or whose key is shown with it."""
    text = parameters.get("subject_token", "")
    if not text or parameters.get("subject_token_type") != ACCESS_TOKEN:
        raise OAuthError(
            "invalid_request", f"expected a subject_token and the subject_token_type {ACCESS_TOKEN}: send both"
        )
    if "actor_token" in parameters or parameters.get("requested_token_type", ACCESS_TOKEN) != ACCESS_TOKEN:
        raise OAuthError("invalid_request", "expected to be asked for an access token without an actor: ask for that")
    is_bearer = authorization is not None and authorization.strip().lower().startswith("bearer ")
    if is_bearer and authorization is not None and authorization.strip()[len("bearer ") :].strip() != text:
        raise OAuthError("invalid_request", "expected the subject_token as bearer token, found another: send one token")
    if authorization is None or is_bearer:
        # The bearer of the token alone: the key it names is looked up as for any other request.
        try:
            principal = await gateway.authenticator.authenticate(f"Bearer {text}")
        except UnauthorizedError as error:
            raise OAuthError("invalid_request", f"the subject_token is refused: {error}") from error
        if principal.key_id is None or principal.ends_at is None:
            raise OAuthError(
                "invalid_request", "expected an access token of this installation, found another credential: use that"
            )
        shown_at = tokens.verify(parse_token(text)).shown_at
        if gateway.clock() >= shown_at + RENEWED_MAX:
            hours = RENEWED_MAX.total_seconds() / 3600
            raise OAuthError("invalid_grant", f"the API key was shown over {hours:g} hours ago: show it again")
        return tokens.sign(principal, shown_at=shown_at)
    principal = await _authenticated(gateway, _client(authorization, {}))
    try:
        shown = tokens.verify_expired(parse_token(text))
    except UnauthorizedError as error:
        raise OAuthError("invalid_request", f"the subject_token is refused: {error}") from error
    if shown.key_id != principal.key_id:
        raise OAuthError("invalid_grant", "expected a token of this client's API key, found another's: log in instead")
    return tokens.sign(principal)


async def _authenticated(gateway: Gateway, client: _Client) -> Principal:
    """
    Return the principal of a client.

    Raises:
        UnauthorizedError: if it has no key of that id and text that is in force.
    """
    if "." in client.secret:
        raise UnauthorizedError("expected the text of an API key as client_secret, found a token: use that itself")
    principal = await gateway.authenticator.authenticate(f"Bearer {client.secret}")
    if principal.key_id != client.id:
        raise NotInForceError
    return principal


def _client(authorization: str | None, parameters: Mapping[str, str]) -> _Client:
    """
    Return what a client says of itself, in the body or in Basic (RFC 6749, section 2.3.1).

    Raises:
        OAuthError: if it does so twice.
        UnauthorizedError: if it does not, or not in this form.
    """
    if authorization is None:
        id_, secret = parameters.get("client_id", ""), parameters.get("client_secret", "")
        if not id_ or not secret:
            raise UnauthorizedError(
                "expected client_id (the id of an API key) and client_secret (its text), found less: send both "
                "(PyIceberg: `credential` is <id>:<text>)"
            )
        return _Client(id=id_, secret=secret)
    scheme, _, encoded = authorization.strip().partition(" ")
    if scheme.lower() != "basic":
        raise UnauthorizedError("expected the key in the body or in Basic, found an Authorization of another scheme")
    if "client_secret" in parameters:
        raise OAuthError("invalid_request", "expected one way to authenticate, found Basic and client_secret: use one")
    try:
        id_, colon, secret = b64decode(encoded.strip(), validate=True).decode("ascii").partition(":")
    except (binascii.Error, ValueError) as error:
        raise UnauthorizedError("expected Basic with base64 of <id>:<text>, found something else") from error
    if not colon or not id_ or not secret or parameters.get("client_id", id_) != id_:
        raise UnauthorizedError("expected Basic with base64 of <id>:<text> of one API key, found something else")
    return _Client(id=id_, secret=secret)


def _parameters(request: Request, body: bytes) -> Mapping[str, str]:
    """
    Return the parameters of a form, each at most once (RFC 6749, section 3.2); one without a value counts as absent.

    Raises:
        OAuthError: if the body is no such form.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != FORM:
        raise OAuthError("invalid_request", f"expected a body of {FORM}, found another type: send a form")
    try:
        pairs = parse_qsl(
            body.decode("utf-8"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=PARAMETERS_MAX,
        )
    except ValueError as error:  # its text may repeat a secret
        raise OAuthError("invalid_request", f"expected a form of at most {PARAMETERS_MAX} parameters") from error
    found = dict(pairs)
    if len(found) != len(pairs):
        raise OAuthError("invalid_request", "expected each parameter once, found one twice: send it once")
    return {name: value for name, value in found.items() if value}


def _issued(token: str) -> Response:
    body = {
        "access_token": token,
        "token_type": "bearer",
        "expires_in": int(LIFETIME.total_seconds()),
        "issued_token_type": ACCESS_TOKEN,
        "scope": SCOPE,
    }
    return Response(orjson.dumps(body), media_type="application/json", headers=HEADERS)


def _error(status: int, code: str, text: str, headers: Mapping[str, str] | None = None) -> Response:
    body = {"error": code, "error_description": text.replace('"', "'").replace("\\", "/")}
    return Response(
        orjson.dumps(body), status_code=status, media_type="application/json", headers={**HEADERS, **(headers or {})}
    )
