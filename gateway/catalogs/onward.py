# SPDX-License-Identifier: Apache-2.0
"""
What a request carries to a foreign catalog: the gateways it has passed, and how its engine wants to access the files.

Each gateway appends itself to the header `X-Lakeproof-Hops` as `<installation>/<tenant>/<alias>`. An alias that would
reach itself, over however many gateways, is refused instead of looping until a limit is hit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from gateway.errors import BadRequestError, ForwardingLoopError
from ledger.values import value_class

HOPS_HEADER: Final = "X-Lakeproof-Hops"
HOPS_MAX: Final = 8
HOPS_LENGTH_MAX: Final = 2_048
DELEGATION_HEADER: Final = "X-Iceberg-Access-Delegation"
VENDED: Final = "vended-credentials"
"""The one delegation that is passed on: with remote signing, engines would bypass the gateway."""

_HOP = re.compile(r"[A-Za-z0-9._-]{1,128}/[0-9a-f]{32}/[A-Za-z0-9_-]{1,64}")

Observe = Callable[[str, str], None]
"""Called with the HTTP method of a request to an upstream, and its outcome."""


@value_class
class Onward:
    """`hops` are the gateways that the request passed, `delegation` is the access to files that its engine requests."""

    hops: tuple[str, ...] = ()
    delegation: str | None = None
    observe: Observe = lambda _method, _outcome: None

    def through(self, hop: str) -> Onward:
        """
        Return a copy with the gateway `hop` appended.

        Raises:
            ForwardingLoopError: if it has passed `hop` before, or would have passed more than 8.
        """
        if hop in self.hops:
            raise ForwardingLoopError(
                f"the catalog leads back to itself ({' -> '.join((*self.hops, hop))}): point its uri elsewhere",
                field=HOPS_HEADER,
            )
        if len(self.hops) >= HOPS_MAX:
            raise ForwardingLoopError(f"expected at most {HOPS_MAX} gateways in a row, found more", field=HOPS_HEADER)
        return Onward(hops=(*self.hops, hop), delegation=self.delegation, observe=self.observe)


def format_hop(*, installation: str, tenant_hex: str, alias: str) -> str:
    """
    Return the name of one alias among all gateways.
    """
    return f"{installation}/{tenant_hex}/{alias}"


def parse_hops(text: str | None) -> tuple[str, ...]:
    """
    Return the gateways that a request has passed, in order.

    Raises:
        BadRequestError: if the header is not of its form.
        ForwardingLoopError: if there are more than 8.
    """
    if not text:
        return ()
    hops = tuple(hop.strip() for hop in text.split(","))
    if len(text) > HOPS_LENGTH_MAX or not all(map(_HOP.fullmatch, hops)):
        raise BadRequestError(f"expected <installation>/<tenant>/<alias>, …, found {text!r:.80}", field=HOPS_HEADER)
    if len(hops) > HOPS_MAX:
        raise ForwardingLoopError(
            f"expected at most {HOPS_MAX} gateways in a row, found {len(hops)}", field=HOPS_HEADER
        )
    return hops


def parse_delegation(text: str | None) -> str | None:
    """
    Return the delegated access to pass on from an engine's header; None if there is none.
    """
    if not text:
        return None
    wished = {wish.strip() for wish in text.split(",")}
    return VENDED if VENDED in wished else None
