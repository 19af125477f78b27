# SPDX-License-Identifier: Apache-2.0
"""
Access tokens for one upstream, got with client credentials (RFC 6749, section 4.4).

A token is requested once, however many requests wait for it, and again before it expires; while it is valid, nobody
waits for the next one. Its age comes from a clock that only goes forward and from `expires_in`, so a wrong date on
either side changes nothing.

The token server is reached as the upstream is: over checked connections, without following redirects, within a deadline
and a size. Guarantee: nothing that it says is in an error but its status and a code of the specification. Its texts may
repeat what it was sent.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from gateway.catalogs.connections import Call, Connections
from gateway.catalogs.login_options import (
    AUDIENCE,
    CREDENTIAL,
    RESOURCE,
    SCOPE,
    SCOPE_DEFAULT,
    TOKEN_URI,
    token_uri_of,
)
from gateway.catalogs.replies import Answered, NeverSent, Refused, Unanswered
from gateway.catalogs.upstream import exchange
from gateway.errors import GatewayError, UnavailableError, UpstreamCredentialsError, UpstreamNotAllowedError
from ledger.errors import FormatError
from ledger.format.json_object import parse_object
from ledger.futures import retrieve

FORM: Final = "application/x-www-form-urlencoded"
TOKEN_TIMEOUT_S: Final = 10.0
"""
How long a token server may take. Less than an upstream may: a commit that waits for a token is an open decision.
"""
TOKEN_ANSWER_SIZE_BYTES_MAX: Final = 64 * 1024
EXPIRES_IN_DEFAULT_S: Final = 3_600.0
"""If the server does not say; the default of Iceberg's own clients."""
EXPIRES_IN_MAX_S: Final = 86_400.0
"""A token that is valid for longer is replaced all the same, so that a client that was shut out is noticed."""
EARLY_SHARE: Final = 0.1
EARLY_MAX_S: Final = 300.0
"""It is replaced when a tenth of its time is left, at most five minutes before its end, as Iceberg's client does."""
PAUSE_S: Final = 1.0
"""After a failure, how long no other token is asked for with the same credential: servers lock clients that insist."""

_REFUSES: Final = frozenset({400, 401, 403})
_ABSENT: Final = frozenset({404, 405, 501})
"""How catalogs say that they give no tokens; Nessie with 501."""
_CODES: Final = frozenset(
    {
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "unauthorized_client",
        "unsupported_grant_type",
        "invalid_scope",
        "invalid_target",
    }
)
"""RFC 6749, section 5.2, and RFC 8707, section 2."""
_ACCESS_TOKEN = re.compile(r"[!-~]{1,16384}")
"""RFC 6749, appendix A.12, without the space. RFC 6750 allows less in a header, but Iceberg's server uses a colon."""
_SECONDS = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    """A token that was got with `credential`; the times are the clock's."""

    credential: str = field(repr=False)
    text: str = field(repr=False)
    replaced_at_s: float
    expires_at_s: float


@dataclass(slots=True, eq=False, kw_only=True)
class _Request:
    """A token that is being asked for, or could not be got at `failed_at_s`."""

    credential: str = field(repr=False)
    task: asyncio.Task[_Token] = field(init=False)
    failed_at_s: float | None = None


class ClientCredentials:
    """The token of one upstream, whose catalog is `alias` and has `options`. Belongs to one event loop."""

    def __init__(
        self,
        alias: str,
        options: Mapping[str, str],
        client: Connections,
        *,
        timeout_s: float,
        clock_s: Callable[[], float],
    ) -> None:
        self._alias = alias
        self._url = token_uri_of(options)
        self._form = {SCOPE: SCOPE_DEFAULT} | {
            name: options[name] for name in (SCOPE, AUDIENCE, RESOURCE) if name in options
        }
        self._client = client
        self._timeout_s = min(timeout_s, TOKEN_TIMEOUT_S)
        self._clock_s = clock_s
        self._held: _Token | None = None
        self._request: _Request | None = None

    async def token(self, credential: str, *, tls: ssl.SSLContext | None) -> str:
        """
        Return a token for `credential`, which is `<client id>:<client secret>` or only a secret.

        Raises:
            UpstreamCredentialsError: if the token server refuses the credential.
            UnavailableError: if it gives no token for another reason; UpstreamNotAllowedError if it must not be asked.
        """
        held = self._held
        if held is None or held.credential != credential or self._clock_s() >= held.expires_at_s:
            # Shielded: who gives up does not take the token from the others who wait for it.
            return (await asyncio.shield(self._requested(credential, tls))).text
        if self._clock_s() >= held.replaced_at_s:
            self._requested(credential, tls)
        return held.text

    def drop(self, token: str) -> None:
        """Forget a token that the upstream refused; if it has been replaced since, the new one stays."""
        if self._held is not None and self._held.text == token:
            self._held = None

    def _requested(self, credential: str, tls: ssl.SSLContext | None) -> asyncio.Task[_Token]:
        """Return the request for a token that is under way or has just failed; else begin one."""
        request = self._request
        if request is not None and request.credential == credential:
            failed_at_s = request.failed_at_s
            if not request.task.done() or (failed_at_s is not None and self._clock_s() < failed_at_s + PAUSE_S):
                return request.task
        self._request = begun = _Request(credential=credential)
        begun.task = asyncio.create_task(self._carry_out(begun, tls))
        begun.task.add_done_callback(retrieve)
        return begun.task

    async def _carry_out(self, request: _Request, tls: ssl.SSLContext | None) -> _Token:
        try:
            token = await self._ask(request.credential, tls)
        except GatewayError:
            request.failed_at_s = self._clock_s()
            raise
        if self._request is request:  # else the credential has been replaced meanwhile
            self._held = token
        return token

    async def _ask(self, credential: str, tls: ssl.SSLContext | None) -> _Token:
        client_id, colon, secret = credential.partition(":")
        client = {"client_id": client_id, "client_secret": secret} if colon else {"client_secret": credential}
        # In the body, as Iceberg's own clients and servers do it, not in the header Authorization (section 2.3.1).
        form = {"grant_type": "client_credentials"} | client | self._form
        call = Call(method="POST", url=self._url, headers={}, body=urlencode(form).encode(), content_type=FORM, tls=tls)
        asked_at_s = self._clock_s()
        reply = await exchange(
            self._client, call, timeout_s=self._timeout_s, answer_size_bytes_max=TOKEN_ANSWER_SIZE_BYTES_MAX
        )
        match reply:
            case Answered(status=200, body=body):
                text, expires_in_s = self._parse(body)
                return _Token(
                    credential=credential,
                    text=text,
                    replaced_at_s=asked_at_s + expires_in_s - min(expires_in_s * EARLY_SHARE, EARLY_MAX_S),
                    expires_at_s=asked_at_s + expires_in_s,
                )
            case Answered():
                raise self._refusal(reply)
            case Refused(cause=cause):
                raise UpstreamNotAllowedError(f"the token server of catalog {self._alias}: {cause}")
            case NeverSent(cause=cause) | Unanswered(cause=cause):
                raise UnavailableError(f"the token server of catalog {self._alias} does not answer: {cause}")

    def _parse(self, body: bytes) -> tuple[str, float]:
        """Return the token and for how many seconds it is valid (RFC 6749, section 5.1)."""
        try:
            answer = parse_object(body, what="answer")
        except FormatError as error:
            raise self._malformed("a JSON object") from error
        text, kind = answer.get("access_token"), answer.get("token_type")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise self._malformed("the token_type Bearer")
        if not isinstance(text, str) or not _ACCESS_TOKEN.fullmatch(text):
            raise self._malformed("an access_token that a header can hold")
        expires_in_s = _seconds(answer.get("expires_in", EXPIRES_IN_DEFAULT_S))
        if expires_in_s is None:
            raise self._malformed("an expires_in in seconds")
        return text, expires_in_s

    def _malformed(self, expected: str) -> UnavailableError:
        return UnavailableError(f"the token server of catalog {self._alias}: expected {expected}, found none")

    def _refusal(self, answered: Answered) -> GatewayError:
        said = f"the token server of catalog {self._alias} answered {answered.status}{_code(answered.body)}"
        if answered.status in _REFUSES:
            return UpstreamCredentialsError(f"{said}: check the secret of the option {CREDENTIAL}, and {SCOPE}")
        if answered.status in _ABSENT:
            return UnavailableError(f"{said}: name the URL that gives tokens in the option {TOKEN_URI}")
        return UnavailableError(f"{said}: expected 200 with a token")


def _seconds(value: Any) -> float | None:
    """Return a number of seconds, which some servers write as a text; None if it is none."""
    if isinstance(value, str) and _SECONDS.fullmatch(value):
        value = int(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # A whole number may be too large for a float; it is bounded before it becomes one.
    return float(min(value, EXPIRES_IN_MAX_S)) if is_number and value > 0 else None


def _code(body: bytes) -> str:
    try:
        code = parse_object(body, what="error").get("error")
    except FormatError:
        return ""
    return f" ({code})" if isinstance(code, str) and code in _CODES else ""
