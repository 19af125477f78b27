# SPDX-License-Identifier: Apache-2.0
"""
The sink `webhook`: each message is one POST of JSON, with its id in the header `Idempotency-Key`.

There are three results. 2xx: delivered. 408, 429, 5xx, or no answer: retried, after Retry-After if it is given.
Anything else: rejected, a dead letter. The URL is a secret (for Slack, whoever has it may post), so no error text names
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import httpx

from projections.egress.rules import EgressRules
from projections.errors import AddressRefusedError
from streams.errors import StreamError
from streams.state.outbox import Delivered, QueuedMessage, Rejected, RetryLater, SinkResult

WEBHOOK: Final = "webhook"
"""The sink's name."""
ID_HEADER: Final = "Idempotency-Key"
"""The usual name for it: a receiver that keeps the ids it has seen can tell a repeated message."""

TIMEOUT_S: Final = 10.0
RETRY_AFTER_S_MAX: Final = 3_600.0
"""However long a delay the receiver asks for, the next attempt is within the hour."""
ANSWER_BYTES_MAX: Final = 300
"""Of the body of a refusal: Slack says there in a word what it did not like."""
NOT_ALLOWED: Final = "expected a host with an address that LAKEPROOF_UPSTREAMS_ALLOWED permits, found none"
"""Without the host, which is a part of the URL."""

_PORTS: Final = {"http": 80, "https": 443}


class WebhookSink:
    """
    Posts messages to `url` over `client`, one after the other (implements `streams.state.outbox.Sink`).

    Redirects are not followed: a URL that has moved is to be configured. Where it may lead is the client's to check
    (`projections.egress.client`); `check_egress` says it early.

    Raises:
        StreamError: if `url` is not one of http or https.
    """

    name: str = WEBHOOK
    batch_max: int = 10
    """So many at most are sent again if this process dies behind them."""

    def __init__(
        self, url: str, client: httpx.AsyncClient, *, clock: Callable[[], datetime], timeout_s: float = TIMEOUT_S
    ) -> None:
        try:
            self._url = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise StreamError("the webhook's URL: expected http:// or https:// and a host, found no URL") from error
        if self._url.scheme not in _PORTS or not self._url.host:
            raise StreamError(f"the webhook's URL: expected http:// or https:// and a host, found {self._url.scheme!r}")
        self._client = client
        self._clock = clock
        self._timeout_s = timeout_s

    def check_egress(self, egress: EgressRules) -> None:
        """
        Check a URL whose host is an address; a name is checked when it is connected to.

        Raises:
            StreamError: if it is not allowed.
        """
        try:
            egress.check_literal(self._url.host, self._url.port or _PORTS[self._url.scheme])
        except AddressRefusedError as error:
            raise StreamError(f"the webhook's URL: {NOT_ALLOWED}") from error

    async def send(self, messages: Sequence[QueuedMessage]) -> Sequence[SinkResult]:
        """Post `messages` in order; see `Sink`."""
        answers: list[SinkResult] = []
        waiting: set[str] = set()
        for each in messages:
            if each.message.key in waiting:
                answers.append(RetryLater("it waits for the one before it"))
                continue
            answer = await self._post(each)
            if isinstance(answer, RetryLater):
                waiting.add(each.message.key)
            answers.append(answer)
        return answers

    async def _post(self, outgoing: QueuedMessage) -> SinkResult:
        # Not compressed: of a refusal's body only the beginning is read, and it must not swell.
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "Accept-Encoding": "identity",
            ID_HEADER: outgoing.message.id,
        }
        try:
            # httpx limits each read and write; whoever answers byte by byte is limited here.
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream(
                    "POST",
                    self._url,
                    content=outgoing.message.payload,
                    headers=headers,
                    timeout=self._timeout_s,
                    follow_redirects=False,
                ) as response,
            ):
                if response.is_success:
                    return Delivered()
                if response.status_code in {408, 429} or response.status_code >= 500:
                    after_s = self._retry_after_s(response.headers.get("Retry-After"))
                    return RetryLater(f"answered {response.status_code}", after_s)
                return Rejected(f"answered {response.status_code}: {await _beginning(response)}")
        except TimeoutError:
            return RetryLater(f"no answer within {self._timeout_s:g} s")
        except AddressRefusedError:
            return RetryLater(NOT_ALLOWED)
        except httpx.HTTPError as error:
            return RetryLater(f"no answer ({type(error).__name__})")

    def _retry_after_s(self, value: str | None) -> float | None:
        """Return the seconds that Retry-After asks for (RFC 9110, section 10.2.3), None if it is not of its form."""
        if value is None:
            return None
        if value.isascii() and value.isdigit():
            return min(float(value[:10]), RETRY_AFTER_S_MAX)
        try:
            at = parsedate_to_datetime(value)
        except (ValueError, TypeError, OverflowError):
            return None
        # A date without a zone is in UTC: RFC 9110 knows no other.
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return min(max((at - self._clock()).total_seconds(), 0.0), RETRY_AFTER_S_MAX)


async def _beginning(response: httpx.Response) -> str:
    """Return the beginning of the body, as text."""
    body = b""
    async for piece in response.aiter_raw(ANSWER_BYTES_MAX):
        body += piece
        if len(body) >= ANSWER_BYTES_MAX:
            break
    return body[:ANSWER_BYTES_MAX].decode("utf-8", errors="replace")
