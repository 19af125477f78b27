# SPDX-License-Identifier: Apache-2.0
"""
Resolves a name once, checks all its addresses, and connects to one of them, with nothing in between.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final, TypeAlias

from projections.egress.addresses import parse_address
from projections.egress.rules import EgressRules
from projections.errors import AddressRefusedError, NameUnresolvedError

ADDRESSES_MAX: Final = 32
"""Addresses of one name that are looked at; a name with more is refused."""

Resolve: TypeAlias = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host and port, as texts. Blocks. Raises OSError or ValueError if there are none."""


def resolve_host(host: str, port: int) -> Sequence[str]:
    """
    Return the addresses of `host` as the system's resolver has them, each once, in its order.

    Raises:
        OSError, ValueError: if it has none, or is no name.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def checked_addresses(rules: EgressRules, host: str, port: int, *, resolve: Resolve = resolve_host) -> Sequence[str]:
    """
    Return the addresses of `host` that may be connected to: all that it has. Blocks.

    Raises:
        NameUnresolvedError: if it has none now.
        AddressRefusedError: if one of them is not allowed.
    """
    try:
        found = resolve(host, port)
        addresses = [parse_address(text) for text in found]
    except (OSError, ValueError) as error:
        raise NameUnresolvedError.of(host, port) from error
    if not addresses:
        raise NameUnresolvedError.of(host, port)
    if len(addresses) > ADDRESSES_MAX:
        raise AddressRefusedError.of(host, port)
    rules.check(host, port, addresses)
    # Without its interface: none but a link-local address has one.
    return [text.partition("%")[0] for text in found]


def connect_checked(
    rules: EgressRules, host: str, port: int, *, timeout_s: float, resolve: Resolve = resolve_host
) -> socket.socket:
    """
    Return a connection to `host`, whose addresses are tried in turn. Blocks.

    Raises:
        AddressRefusedError: if one of them is not allowed, or it has none.
        OSError: if none of them answers within `timeout_s`.
    """
    addresses = checked_addresses(rules, host, port, resolve=resolve)
    deadline = monotonic() + timeout_s
    for left, address in zip(range(len(addresses), 1, -1), addresses, strict=False):
        with suppress(OSError):
            return socket.create_connection((address, port), timeout=share_of(deadline - monotonic(), left))
    return socket.create_connection((addresses[-1], port), timeout=max(deadline - monotonic(), 0.001))


def share_of(left_s: float, addresses: int) -> float:
    """Return how long the first of `addresses` may take of the time that is left: one that is silent leaves enough."""
    return max(left_s / addresses, 0.001)
