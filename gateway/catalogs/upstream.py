# SPDX-License-Identifier: Apache-2.0
"""
Requests to an upstream over HTTP: each is sent once, and the reply says how far it got.

Connections go only where the operator's rules allow, to the very address that was checked (`projections/egress`).

Guarantee: `NeverSent` only if no byte of the request was handed to the network. That is not guessed from the type of an
error: the connection reports when it begins to send. Redirects are not followed, and an answer is read up to a cap and
a deadline.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from gateway.catalogs.connection import AnswerError, AnswerTooLargeError
from gateway.catalogs.connections import Call, Connections
from gateway.catalogs.replies import Answered, NeverSent, Refused, Reply, Unanswered
from projections.egress.client import trusted_certificates
from projections.egress.connecting import Resolve, resolve_host
from projections.egress.names import CheckedNames
from projections.egress.rules import EgressRules
from projections.errors import AddressRefusedError

ANSWER_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
NOT_ALLOWED: Final = (
    "expected a host with an address that LAKEPROOF_UPSTREAMS_ALLOWED permits, found none: check the catalog's uri, or "
    "have the operator add its host to that setting"
)
_CAUSE_LENGTH_MAX: Final = 200


@asynccontextmanager
async def open_client(egress: EgressRules, *, resolve: Resolve = resolve_host) -> AsyncIterator[Connections]:
    """
    Yield the connections that all upstreams of a process share; they are closed afterwards.
    """
    connections = Connections(CheckedNames(egress, resolve), trusted_certificates())
    try:
        yield connections
    finally:
        connections.close()


@dataclass(slots=True)
class _Wire:
    """Whether any byte of one request was handed to the network."""

    is_used: bool = False

    def use(self) -> None:
        """Record that the request is about to be sent."""
        self.is_used = True


async def exchange(
    client: Connections, call: Call, *, timeout_s: float, answer_size_bytes_max: int | None = None
) -> Reply:
    """
    Send `call` once and return the reply within `timeout_s`; its body is at most `answer_size_bytes_max`, or the cap.
    """
    size_bytes_max = ANSWER_SIZE_BYTES_MAX if answer_size_bytes_max is None else answer_size_bytes_max
    wire = _Wire()
    try:
        async with asyncio.timeout(timeout_s):
            answer = await client.ask(call, timeout_s=timeout_s, answer_size_bytes_max=size_bytes_max, on_send=wire.use)
    except TimeoutError:
        cause = f"no whole answer within {timeout_s:g} s"
    except AddressRefusedError:
        # Its own text names the host, and engines receive this text.
        return Refused(cause=NOT_ALLOWED)
    except AnswerTooLargeError:
        cause = f"the upstream's answer is over {size_bytes_max} bytes"
    except (AnswerError, OSError, ValueError) as error:
        # ValueError: a header or URL that has no form on the wire; found before anything is sent.
        cause = _cause_of(error)
    else:
        return Answered(
            status=answer.status,
            body=answer.body,
            content_type=answer.header("content-type") or "application/json",
            retry_after=answer.header("retry-after"),
        )
    return Unanswered(cause=cause) if wire.is_used else NeverSent(cause=cause)


def _cause_of(error: Exception) -> str:
    """A short cause; never contains the URL's query or a header, nor the name that a certificate should be for."""
    if isinstance(error, ssl.SSLCertVerificationError):
        # "Hostname mismatch, certificate is not valid for 'catalog.internal'."
        return f"{type(error).__name__}: certificate verify failed: {error.verify_message.partition(',')[0]}"
    return f"{type(error).__name__}: {error}"[:_CAUSE_LENGTH_MAX] if str(error) else type(error).__name__
