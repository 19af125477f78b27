# SPDX-License-Identifier: Apache-2.0
"""
The client's address of a request, and whether it came over TLS: as the peer's connection shows it, or as a trusted
proxy reports it.

Anyone can send `X-Forwarded-For`, `X-Forwarded-Proto` or `Forwarded` (RFC 7239), so they are read only from a proxy
that the operator trusts: addresses from the right, past further trusted proxies, to the first other one. If they are
malformed, absent or contradict each other the client is unknown: a proxy that sets one header and passes the other on
must not let clients choose their address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from projections.egress.addresses import Address, Network

FORWARDING: Final = (b"forwarded", b"x-forwarded-for")
"""Headers in which a proxy reports its client."""
PROTO: Final = b"x-forwarded-proto"
OF_PROXIES: Final = (*FORWARDING, PROTO, b"x-forwarded-host")
"""Headers that show that a request came through a proxy, whoever it is."""
HOPS_MAX: Final = 32
NETWORK_BITS_V6: Final = 64
"""The prefix of an IPv6 address that identifies a peer: it can choose the rest freely (RFC 4291, section 2.5.1)."""

_FOR = re.compile(r'(?:^|;)\s*for=(?:"([^"]*)"|([^";\s]+))\s*(?:;|$)', re.IGNORECASE)
_PROTO = re.compile(r'(?:^|;)\s*proto="?([a-z]{1,8})"?\s*(?:;|$)', re.IGNORECASE)
_WITH_PORT = re.compile(r"\[([^\]]+)\](?::[0-9]{1,5})?|([0-9.]+):[0-9]{1,5}")


def parse_address(text: str) -> Address | None:
    """
    Return the address in `text`, None if it is none. An IPv4-mapped IPv6 address is returned as the IPv4 address.
    """
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def peer_of(address: Address) -> bytes:
    """Return the key by which connections are counted: an IPv4 address, or the network of an IPv6 one."""
    return address.packed if isinstance(address, IPv4Address) else address.packed[: NETWORK_BITS_V6 // 8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxies:
    """The trusted proxies; none unless the operator names them."""

    networks: Sequence[Network] = ()

    def is_named(self, address: Address | None) -> bool:
        """Return whether `address` is a trusted proxy's."""
        return address is not None and any(address in network for network in self.networks)

    def client(self, peer: Address | None, headers: Iterable[tuple[bytes, bytes]]) -> Address | None:
        """
        Return the client of a request from `peer`; None if it is unknown. Names of headers are in lower case.
        """
        if not self.is_named(peer):
            return peer
        texts: dict[bytes, str] = {}
        for name, value in headers:
            if name in FORWARDING:
                texts[name] = f"{texts[name]},{value.decode('latin-1')}" if name in texts else value.decode("latin-1")
        found = {
            self._first_other(_nodes(text) if name == b"forwarded" else text.split(",")) for name, text in texts.items()
        }
        return found.pop() if len(found) == 1 else None

    def is_https(self, peer: Address | None, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """
        Return whether the proxy `peer` says that its client came over TLS: at least one header does, and every proxy on
        the way that a header tells of. Names of headers are in lower case.
        """
        if not self.is_named(peer):
            return False
        found: set[str] = set()
        for name, value in headers:
            if name == PROTO:
                found.update(each.strip().lower() for each in value.decode("latin-1").split(","))
            elif name == b"forwarded":
                matches = [_PROTO.search(element.strip()) for element in value.decode("latin-1").split(",")]
                found.update("" if match is None else match[1].lower() for match in matches)
        return found == {"https"}

    def _first_other(self, nodes: Sequence[str]) -> Address | None:
        """The first address from the right that is not a trusted proxy's; the leftmost if all are."""
        address = None
        for node in reversed(nodes[-HOPS_MAX:]):
            address = _address_in(node.strip())
            if not self.is_named(address):
                break
        return address


def _nodes(text: str) -> list[str]:
    """The `for` of each element of a Forwarded header (RFC 7239, section 4); an element without one is unknown."""
    found = [_FOR.search(element.strip()) for element in text.split(",")]
    return ["" if match is None else match[1] or match[2] or "" for match in found]


def _address_in(node: str) -> Address | None:
    if with_port := _WITH_PORT.fullmatch(node):
        return parse_address(with_port[1] or with_port[2])
    return parse_address(node)
