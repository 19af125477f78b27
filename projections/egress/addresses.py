# SPDX-License-Identifier: Apache-2.0
"""
Classifies an IP address for connections on behalf of tenants. Pure.

The tables are those of IANA's special-purpose address registries (RFC 6890), written out: what Python's `ipaddress`
calls global differs between its versions. IPv6 is closed by default: an address outside 2000::/3 is never public.
"""

from __future__ import annotations

import socket
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network


class Reach(StrEnum):
    """Who is meant to reach an address."""

    PUBLIC = "public"
    """Everybody: an address of the internet."""

    PRIVATE = "private"
    """Machines of one site, or this one alone: loopback, private ranges, shared address space, documentation."""

    LINK = "link"
    """The machine's own link or provider: metadata services that hand out credentials, or no machine at all."""


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(map(ip_network, texts))


LINK_NETWORKS: Final = _networks(
    "0.0.0.0/32",  # "this host": Linux connects to loopback
    "169.254.0.0/16",  # link-local; the metadata services of AWS, Azure, Google, OpenStack
    "224.0.0.0/4",  # multicast
    "255.255.255.255/32",  # broadcast
    "100.100.100.200/32",  # metadata of Alibaba Cloud
    "168.63.129.16/32",  # Azure's platform, though it is numbered as a public address
    "192.0.0.192/32",  # metadata of Oracle Cloud Classic
    "::/128",
    "fe80::/10",  # link-local
    "ff00::/8",  # multicast
    "fd00:ec2::/32",  # metadata, name and time services of AWS
    "fd20:ce::/32",  # metadata of Google Cloud
    "fd00:42::42/128",  # metadata of Scaleway
)
"""Addresses that a network or a name never permits: each has to be named by itself."""

PRIVATE_IPV4: Final = _networks(
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "240.0.0.0/4",
)
GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
PRIVATE_IPV6: Final = _networks(
    "2001::/23",  # IETF protocol assignments; Teredo, which hides an IPv4 address, among them
    "2001:db8::/32",
    "2002::/16",  # 6to4 hides an IPv4 address
    "3fff::/20",
)
"""What of the global unicast space is not for everybody."""

NAT64: Final = IPv6Network("64:ff9b::/96")
"""The well-known prefix (RFC 6052): in a network without IPv4 every IPv4 address looks like that."""
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})
_LOW_32_BITS: Final = 0xFFFFFFFF


def parse_address(text: str) -> Address:
    """
    Return the address that a resolver has answered with; an interface (`%eth0`) behind it is left out.

    An IPv4 address in an IPv6 one (`::ffff:0:0/96`, `64:ff9b::/96`) is returned as the IPv4 address it leads to.

    Raises:
        ValueError: if it is none.
    """
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in NAT64:
            return IPv4Address(int(address) & _LOW_32_BITS)
    return address


def parse_literal(host: str) -> Address | None:
    """
    Return the address that a URL's host is by itself, without asking anybody: None for a name.

    Numbers are read as the C library reads them (`inet_aton`): `127.1`, `0x7f.1`, `017700000001` and `2130706433` are
    127.0.0.1. So are `localhost` and every name below it (RFC 6761).
    """
    host = host.strip("[]").removesuffix(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return IPv4Address("127.0.0.1")
    try:
        return parse_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def reach_of(address: Address) -> Reach:
    """
    Return who is meant to reach an address that `parse_address` has returned.
    """
    if any(address in network for network in LINK_NETWORKS):
        return Reach.LINK
    if isinstance(address, IPv4Address):
        return Reach.PRIVATE if any(address in network for network in PRIVATE_IPV4) else Reach.PUBLIC
    if address not in GLOBAL_UNICAST or any(address in network for network in PRIVATE_IPV6):
        return Reach.PRIVATE
    # ISATAP (RFC 5214) hides an IPv4 address behind any prefix.
    return Reach.PRIVATE if (int(address) >> 32) & _LOW_32_BITS in _ISATAP else Reach.PUBLIC
