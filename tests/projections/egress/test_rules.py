# SPDX-License-Identifier: Apache-2.0
"""
What an address is for, and what the operator's list allows: pure, and closed wherever it says nothing.
"""

from __future__ import annotations

import pickle
from ipaddress import IPv4Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.egress.addresses import Reach, parse_address, parse_literal, reach_of
from projections.egress.rules import PLACES_MAX, EgressRules
from projections.errors import AddressRefusedError, EgressRulesError
from testkit.servers.traps import INSIDE, LOOPBACK_SPELLINGS

PUBLIC = EgressRules.parse("public")
OUTSIDE = (
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "93.184.215.14",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "134744072",
    "0x08080808",
    "2606:4700::1111",
    "2a00:1450:4001:82a::200e",
    "64:ff9b::8.8.8.8",
    "::ffff:8.8.8.8",
)


def test_the_table_of_hostile_spellings_is_large_and_says_nothing_twice() -> None:
    spellings = (*LOOPBACK_SPELLINGS, *INSIDE)
    assert len(set(spellings)) == len(spellings) >= 90


@pytest.mark.parametrize("host", [*LOOPBACK_SPELLINGS, *INSIDE])
def test_what_is_not_for_everybody_is_refused_however_it_is_spelled(host: str) -> None:
    address = parse_literal(host)
    assert address is not None, "it can be told without a name server"
    assert reach_of(address) is not Reach.PUBLIC
    for rules in (PUBLIC, EgressRules.parse(""), EgressRules.parse("catalog.example, 8.8.8.0/24")):
        with pytest.raises(AddressRefusedError, match="LAKEPROOF_UPSTREAMS_ALLOWED"):
            rules.check_literal(host, 443)


@pytest.mark.parametrize("host", OUTSIDE)
def test_what_is_for_everybody_is_allowed_by_the_word_public_alone(host: str) -> None:
    address = parse_literal(host)
    assert address is not None
    assert reach_of(address) is Reach.PUBLIC
    PUBLIC.check_literal(host, 443)
    for text in ("", "10.0.0.0/8", "catalog.example"):
        with pytest.raises(AddressRefusedError):
            EgressRules.parse(text).check_literal(host, 443)


@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_an_ipv4_address_is_never_more_public_than_python_says_nor_than_in_an_ipv6_one(number: int) -> None:
    address = IPv4Address(number)
    if reach_of(address) is Reach.PUBLIC:
        assert address.is_global
        assert not address.is_multicast
    for inside in (f"::ffff:{address}", f"64:ff9b::{address}"):
        assert parse_address(inside) == address
    for inside in (f"::{address}", f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1", f"2001:0:{address}::"):
        try:
            found = parse_address(inside)
        except ValueError:
            continue
        assert reach_of(found) is not Reach.PUBLIC


@given(st.integers(min_value=0, max_value=2**128 - 1))
def test_an_ipv6_address_outside_the_global_space_is_never_public(number: int) -> None:
    address = ip_address(number.to_bytes(16, "big"))
    found = parse_address(str(address))
    if found == address and reach_of(found) is Reach.PUBLIC:
        assert number >> 125 == 0b001
        assert address.is_global


@pytest.mark.parametrize(
    "name", ["catalog.example", "localhost.example", "notlocalhost", "1.2.3.4.5", "x1", "0xg", "1e1.a", ""]
)
def test_a_name_is_judged_by_what_it_resolves_to(name: str) -> None:
    assert parse_literal(name) is None
    PUBLIC.check_literal(name, 443)
    PUBLIC.check(name, 443, [IPv4Address("8.8.8.8")])
    with pytest.raises(AddressRefusedError):
        PUBLIC.check(name, 443, [IPv4Address("8.8.8.8"), IPv4Address("127.0.0.1")])
    with pytest.raises(AddressRefusedError):
        PUBLIC.check(name, 443, [])


@pytest.mark.parametrize(
    ("text", "allowed", "refused"),
    [
        ("catalog.internal", ("catalog.internal", 1, "10.0.0.1"), ("other.internal", 1, "10.0.0.1")),
        ("Catalog.Internal.", ("catalog.INTERNAL", 1, "8.8.8.8"), ("a.catalog.internal", 1, "8.8.8.8")),
        ("catalog.internal:8181", ("catalog.internal.", 8181, "10.0.0.1"), ("catalog.internal", 8182, "10.0.0.1")),
        ("10.1.2.3", ("x.example", 1, "10.1.2.3"), ("x.example", 1, "10.1.2.4")),
        ("10.1.2.3:80", ("10.1.2.3", 80, "10.1.2.3"), ("10.1.2.3", 443, "10.1.2.3")),
        ("10.1.0.0/16", ("x.example", 1, "10.1.255.255"), ("x.example", 1, "10.2.0.0")),
        ("10.1.0.0/16:9000", ("x.example", 9000, "10.1.0.0"), ("x.example", 9001, "10.1.0.0")),
        ("127.0.0.0/8", ("localhost", 1, "127.0.0.1"), ("localhost", 1, "::1")),
        ("::1", ("localhost", 1, "::1"), ("localhost", 1, "127.0.0.1")),
        ("[::1]:8181", ("localhost", 8181, "::1"), ("localhost", 8182, "::1")),
        ("fd12::/16", ("x", 1, "fd12:3::1"), ("x", 1, "fd13::1")),
        ("[fd12::/16]:9", ("x", 9, "fd12::1"), ("x", 8, "fd12::1")),
        ("169.254.169.254", ("x", 80, "169.254.169.254"), ("x", 80, "169.254.169.253")),
        ("fd00:ec2::254", ("x", 80, "fd00:ec2::254"), ("x", 80, "fd00:ec2::253")),
        ("public, 10.0.0.1", ("x", 80, "8.8.8.8"), ("x", 80, "10.0.0.2")),
    ],
)
def test_each_form_of_an_entry_allows_what_it_names_and_nothing_else(
    text: str, allowed: tuple[str, int, str], refused: tuple[str, int, str]
) -> None:
    rules = EgressRules.parse(text)
    host, port, address = allowed
    rules.check(host, port, [parse_address(address)])
    host, port, address = refused
    with pytest.raises(AddressRefusedError, match=f"{host}:{port}"):
        rules.check(host, port, [parse_address(address)])


@pytest.mark.parametrize(
    "text", ["x", "169.254.0.0/16", "0.0.0.0/0, ::/0", "168.63.0.0/16", "fd00::/8", "fe80::/10", "public"]
)
@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "169.254.1.1", "100.100.100.200", "168.63.129.16", "0.0.0.0", "224.0.0.1", "255.255.255.255",  # noqa: S104
     "fd00:ec2::254", "fd20:ce::254", "fe80::1", "ff02::1", "::", "64:ff9b::a9fe:a9fe", "::ffff:169.254.169.254"],
)  # fmt: skip
def test_metadata_and_link_addresses_are_permitted_by_no_name_and_no_network(text: str, address: str) -> None:
    with pytest.raises(AddressRefusedError):
        EgressRules.parse(text).check("x", 80, [parse_address(address)])
    EgressRules.parse(f"{text}, {parse_address(address)}").check("x", 80, [parse_address(address)])


@pytest.mark.parametrize(
    "entry",
    ["http://catalog.internal", "catalog.internal/", "catalog.internal:0", "catalog.internal:65536", "catalog:x", "a b",
     "*.internal", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "10.0.0.0/33", "10.1.2.3/8", "[::1", "[10.0.0.1",
     "[catalog.internal]", "fd12::/16:9", ":80", "[]:80", "::ffff:10.0.0.1", "64:ff9b::/100", "-a", "ä.example", "a..b",
     "x" * 64, "user@host", "fe80::1%eth0"],
)  # fmt: skip
def test_an_entry_of_another_form_is_an_error_instead_of_doing_nothing(entry: str) -> None:
    with pytest.raises(EgressRulesError, match="expected"):
        EgressRules.parse(f"public, {entry}")


def test_the_list_is_bounded_and_blank_entries_are_none() -> None:
    assert EgressRules.parse(" , public ,,").text == "public"
    assert EgressRules.parse(",".join(["public"] * PLACES_MAX)).places
    with pytest.raises(EgressRulesError, match=f"expected at most {PLACES_MAX} entries"):
        EgressRules.parse(",".join(["public"] * (PLACES_MAX + 1)))


def test_rules_are_a_value_that_processes_hand_on_as_text() -> None:
    rules = EgressRules.parse("public,catalog.internal:8181")
    assert EgressRules.parse(rules.text) == rules
    assert pickle.loads(pickle.dumps(rules)) == rules  # noqa: S301 - what was pickled here
    assert rules.also("127.0.0.0/8") == EgressRules.parse("public, catalog.internal:8181, 127.0.0.0/8")
    assert len({rules, EgressRules.parse(rules.text)}) == 1


def test_a_refusal_does_not_tell_what_a_name_resolves_to() -> None:
    for addresses in ([], [IPv4Address("10.20.30.40")]):
        with pytest.raises(AddressRefusedError) as refused:
            PUBLIC.check("db.internal", 5432, addresses)
        assert "10.20" not in str(refused.value)
        assert str(refused.value).startswith("db.internal:5432: expected a host with an address that LAKEPROOF_")
