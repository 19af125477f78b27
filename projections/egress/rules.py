# SPDX-License-Identifier: Apache-2.0
"""
Where the operator allows connections on behalf of tenants: the setting LAKEPROOF_UPSTREAMS_ALLOWED. Pure.

A list, separated by commas; what is not on it is refused:

    public                     every address of the internet
    catalog.internal           a host, whatever private address it has
    catalog.internal:8181      the same, on one port
    10.1.2.3, [fd12::1]:9000   an address
    10.1.0.0/16, fd12::/48     a network

Link-local addresses, those of metadata services, multicast and unspecified ones are refused unless the very address is
on the list: neither a name nor a network permits them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Network, ip_network
from typing import Final

from projections.egress.addresses import NAT64, Address, Network, Reach, parse_literal, reach_of
from projections.errors import AddressRefusedError, EgressRulesError

PUBLIC: Final = "public"
PLACES_MAX: Final = 256

_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_PLACE = re.compile(
    r"(?:\[(?P<bracketed>[^\[\]]*)\]|(?P<plain>[^\[\]:]*)|(?P<ipv6>[^\[\]]*:[^\[\]]*:[^\[\]]*))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """One entry of the list: a host by name, or a network (of one address, perhaps); None is every port."""

    text: str
    name: str | None = None
    network: Network | None = None
    port: int | None = None

    def permits(self, host: str, port: int, address: Address, reach: Reach) -> bool:
        if self.port not in {None, port}:
            return False
        if self.network is None:
            return self.name == host and reach is not Reach.LINK
        is_one = self.network.num_addresses == 1
        return address in self.network and (is_one or reach is not Reach.LINK)


@dataclass(frozen=True, slots=True)
class EgressRules:
    """The list, parsed; `text` is how it was written. Without any entry nothing is allowed."""

    text: str
    places: tuple[_Place, ...]

    @classmethod
    def parse(cls, text: str) -> EgressRules:
        """
        Return the rules that `text` spells.

        Raises:
            EgressRulesError: at the first entry that is not of its form, or of which there is more than one reading.
        """
        entries = [entry.strip() for entry in text.split(",") if entry.strip()]
        if len(entries) > PLACES_MAX:
            raise EgressRulesError(f"expected at most {PLACES_MAX} entries, found {len(entries)}")
        return cls(", ".join(entries), tuple(_parse_place(entry) for entry in entries))

    def also(self, text: str) -> EgressRules:
        """
        Return rules that allow what these do, and what `text` spells.

        Raises:
            EgressRulesError: as `parse`.
        """
        return EgressRules.parse(f"{self.text},{text}")

    def check(self, host: str, port: int, addresses: Sequence[Address]) -> None:
        """
        Check that a connection may go to `host`, of which `addresses` (as `parse_address` returns them) are all.

        All have to be allowed: a name with one address inside and one outside is nobody's honest mistake.

        Raises:
            AddressRefusedError: if one is not allowed, or there is none.
        """
        name = host.removesuffix(".").lower()
        if not addresses or not all(self._permits(name, port, address) for address in addresses):
            raise AddressRefusedError.of(host, port)

    def check_literal(self, host: str, port: int) -> None:
        """
        Check a host that is an address itself, however it is spelled; a name is checked when it is connected to.

        Raises:
            AddressRefusedError: if it is not allowed.
        """
        address = parse_literal(host)
        if address is not None:
            self.check(host, port, [address])

    def _permits(self, name: str, port: int, address: Address) -> bool:
        reach = reach_of(address)
        return any(
            reach is Reach.PUBLIC if place.text == PUBLIC else place.permits(name, port, address, reach)
            for place in self.places
        )


def _parse_place(text: str) -> _Place:
    if text == PUBLIC:
        return _Place(text=text)
    match = _PLACE.fullmatch(text)
    if match is None or "%" in text:  # an interface: no address that is judged has one
        raise _malformed(text)
    port = None if match["port"] is None else int(match["port"])
    if port is not None and not 1 <= port <= 65_535:
        raise _malformed(text)
    host = match["bracketed"] or match["plain"] or match["ipv6"] or ""
    network = _network(host, text)
    if network is not None:
        return _Place(text=text, network=network, port=port)
    name = host.removesuffix(".").lower()
    if match["plain"] is None or not _NAME.fullmatch(name) or _is_number(name):
        raise _malformed(text)
    return _Place(text=text, name=name, port=port)


def _network(host: str, text: str) -> Network | None:
    try:
        network = ip_network(host)
    except ValueError:
        return None
    if isinstance(network, IPv6Network) and (network.subnet_of(_MAPPED) or network.subnet_of(NAT64)):
        # Connections to it are judged as IPv4: an entry that never holds would only seem to allow something.
        raise EgressRulesError(f"expected the IPv4 address that {text} leads to, found it inside an IPv6 one")
    return network


def _is_number(name: str) -> bool:
    """Return whether the C library would read a name as an address (URL standard, 'ends in a number')."""
    last = name.rpartition(".")[2]
    return last.isdigit() or re.fullmatch(r"0x[0-9a-f]*", last) is not None


def _malformed(text: str) -> EgressRulesError:
    return EgressRulesError(
        f"expected '{PUBLIC}', a host, an address or a network (10.1.0.0/16), with an optional port behind a colon, "
        f"IPv6 with a port in brackets, found {text!r:.100}"
    )
