# SPDX-License-Identifier: Apache-2.0
"""
The keys of an identity provider: read over checked connections, cached, and read again when they change.

Keys are read again once they are five minutes old, and when a token names a key that is not among them. However many
tokens do so, there is one read at a time and none within ten seconds of the last one: nobody can have a provider
flooded. While a provider cannot be reached, its last keys count for an hour; then its tokens are refused (503). A key
that the provider removes is therefore refused after five minutes, or after an hour if it cannot be reached.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import httpx

from gateway.errors import UnavailableError
from gateway.identity.issuers import Issuer
from gateway.identity.principal import TokenRefusedError
from gateway.identity.provider_urls import parse_discovery, url_in
from gateway.identity.signatures import VerificationKey, parse_key_set
from gateway.identity.tokens import Token
from ledger.errors import FormatError
from projections.errors import ProjectionError

REFRESH_S: Final = 300.0
"""Age from which keys are read again."""
KEPT_S: Final = 3_600.0
"""Age up to which keys count if they cannot be read again."""
PAUSE_S: Final = 10.0
"""Between two reads, whether or not the first one succeeded."""
TIMEOUT_S: Final = 5.0
"""How long a read may take, discovery included."""
DOCUMENT_BYTES_MAX: Final = 256 * 1024
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}
"""A compressed body could expand beyond any bound before it is seen."""

Read = Callable[[str], Awaitable[bytes]]
"""Returns the document at a URL. Raises `UnreadableError`."""
Auth = tuple[str, str]
"""User and password of HTTP Basic."""

_log = logging.getLogger(__name__)


class UnreadableError(Exception):
    """A document of a provider cannot be read; says why, and is answered by what asked for it."""


class KeySet:
    """
    The keys of `issuer`. `read` reads one document.

    Event loop only. `_keys` are the newest keys; `_read_at_s` is when they were read, `_tried_at_s` when a read last
    began; `_reading` is the one that runs. `_has_failed` says that the last one did.
    """

    def __init__(self, issuer: Issuer, read: Read, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._issuer = issuer
        self._read = read
        self._monotonic_s = monotonic_s
        self._keys: Mapping[tuple[str, str], VerificationKey] = {}
        self._read_at_s: float | None = None
        self._tried_at_s: float | None = None
        self._reading: asyncio.Task[None] | None = None
        self._has_failed = False

    async def find(self, token: Token) -> VerificationKey:
        """
        Return the key that a token names.

        Raises:
            TokenRefusedError: if it names none, or none of this issuer's.
            UnavailableError: if the issuer's keys are not known, or too old.
        """
        if token.key_id is None:
            raise TokenRefusedError("expected 'kid' in the header of the token, found none: get another one")
        wanted = (token.key_id, token.algorithm)
        if self._age_s() > REFRESH_S or wanted not in self._keys:
            reading = self._refresh()
            # While the provider fails, a key that still counts need not wait for each attempt.
            still_counts = wanted in self._keys and self._age_s() <= KEPT_S
            if reading is not None and not (still_counts and self._has_failed):
                await asyncio.shield(reading)  # other requests wait for it, too
        if self._age_s() > KEPT_S:
            raise UnavailableError("the keys of the token's issuer cannot be read: try again, or use an API key")
        if (found := self._keys.get(wanted)) is None:
            raise TokenRefusedError("the token is signed with a key that its issuer does not have: get a new one")
        return found

    async def close(self) -> None:
        """End a read that runs."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def _age_s(self) -> float:
        return float("inf") if self._read_at_s is None else self._monotonic_s() - self._read_at_s

    def _refresh(self) -> asyncio.Task[None] | None:
        """Return the read that runs, after beginning one if the last is long enough ago; None if it is not."""
        if self._reading is None:
            now_s = self._monotonic_s()
            if self._tried_at_s is not None and now_s - self._tried_at_s < PAUSE_S:
                return None
            self._tried_at_s = now_s
            self._reading = asyncio.create_task(self._read_keys(), name="read of an issuer's keys")
            self._reading.add_done_callback(self._ended)
        return self._reading

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        if not task.cancelled():
            task.exception()  # retrieved, in case nobody waits any more

    async def _read_keys(self) -> None:
        began_s = self._monotonic_s()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                document = await self._read(self._issuer.jwks_url or await self._discovered_url())
            keys = parse_key_set(document)
        except (UnreadableError, FormatError, TimeoutError) as error:
            # The last keys still count for a while; whoever needs others is answered 401 or 503.
            self._has_failed = True
            reason = str(error) or "it does not answer"
            _log.warning("the keys of issuer %s cannot be read: %s", self._issuer.url, reason)
            return
        self._keys, self._read_at_s, self._has_failed = keys, began_s, False

    async def _discovered_url(self) -> str:
        """Return where the discovery document says that the keys are."""
        document = await self._read(self._issuer.discovery_url)
        return url_in(parse_discovery(document, issuer=self._issuer.url), "jwks_uri")


def read_over(client: httpx.AsyncClient) -> Read:
    """
    Return what reads documents over `client`, whose connections are checked (`projections.egress.client`).
    """

    async def read(url: str) -> bytes:
        status, document = await send_over(client, "GET", url)
        if status != httpx.codes.OK:
            raise UnreadableError(f"expected 200 from {url}, found {status}")
        return document

    return read


async def send_over(
    client: httpx.AsyncClient, method: str, url: str, *, form: Mapping[str, str] | None = None, auth: Auth | None = None
) -> tuple[int, bytes]:
    """
    Return the status and the body of an answer.

    Raises:
        UnreadableError: if there is none, or it is too large or compressed.
    """
    document = bytearray()
    try:
        async with client.stream(method, url, headers=_HEADERS, data=form, auth=auth) as answer:
            if "content-encoding" in answer.headers:
                raise UnreadableError(f"expected a plain body from {url}, found a compressed one")
            async for piece in answer.aiter_raw():
                document += piece
                if len(document) > DOCUMENT_BYTES_MAX:
                    raise UnreadableError(f"expected at most {DOCUMENT_BYTES_MAX} bytes from {url}, found more")
    except (httpx.HTTPError, httpx.InvalidURL, ProjectionError) as error:
        raise UnreadableError(f"{url} does not answer: {str(error) or type(error).__name__}") from error
    return answer.status_code, bytes(document)
