# SPDX-License-Identifier: Apache-2.0
"""A file of policies in Cedar is split as Cedar would, each is one rule or refused with its place, and none is lost."""

from __future__ import annotations

import re

import cedarpy
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.access import IN_CEDAR
from gateway.policy.access_checker import Checkers
from gateway.policy.cedar.files import DERIVED_PREFIX, parse_cedar_file
from gateway.policy.cel.programs import Programs
from gateway.policy.engine import CEDAR_PERMIT, PolicyNotCompiledError
from gateway.policy.rule_files import FILE_BYTES_MAX, RULES_MAX, RuleFileError
from ledger.format.events import Effect

ALL = "permit(principal, action, resource);"
FILE = f"""\
// All; "readers" of it
@note("it; has one")
@id("readers") // the first
{ALL}

forbid(principal, action, resource)
  when {{ resource.path like "a;\\"b" }} // not here;
  unless {{ true }};
@id ( "last" ) @empty {ALL} // the end;
"""


def test_each_policy_is_a_rule_with_its_effect_and_its_text() -> None:
    file = parse_cedar_file(FILE.replace("\n", "\r\n"))
    assert file.refused == ()
    assert [(rule.effect, rule.vocabulary) for rule in file.rules] == [
        (Effect.PERMIT, IN_CEDAR),
        (Effect.FORBID, IN_CEDAR),
        (Effect.PERMIT, IN_CEDAR),
    ]
    readers, derived, last = (rule.id for rule in file.rules)
    assert (readers, last) == ("readers", "last")
    assert re.fullmatch(rf"{DERIVED_PREFIX}[0-9a-f]{{16}}", derived)
    texts = [rule.expression for rule in file.rules]
    assert texts[0].startswith('@note("it; has one")\n@id("readers")')
    assert texts[1].endswith("unless { true };")
    assert texts[2] == f'@id ( "last" ) @empty {ALL}'


def test_an_id_that_is_derived_is_that_of_the_text_wherever_it_stands() -> None:
    forbid = "forbid(principal, action, resource);"
    one, other = parse_cedar_file(f"{ALL}\n{forbid}").rules, parse_cedar_file(f"// c\n{forbid}{ALL}").rules
    assert [rule.id for rule in one] == [rule.id for rule in reversed(other)]
    assert len({rule.id for rule in one}) == 2
    assert parse_cedar_file(ALL.replace("action", "action ")).rules[0].id != one[0].id


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (f'{ALL}\n  @id("a b") {ALL}', (2, 3), "found 'a b'; a-b would be one"),
        (f'@id("a") {ALL}\n@id("a") {ALL}', (2, 1), "expected a policy of this id once, found 2"),
        (f"{ALL}\n{ALL}", (1, 1), "expected a policy of this id once, found 2"),
        (f'{ALL}\n@id("a")\n  allow(principal, action, resource);', (3, 3), "expected permit or forbid, found 'allow("),
        (f"{ALL};", (1, len(ALL) + 1), "expected permit or forbid, found ';'"),
        (
            f"{ALL} @(x) permit(principal, action, resource);",
            (1, len(ALL) + 2),
            "expected permit or forbid, found '@(x)",
        ),
    ],
)
def test_what_is_no_rule_is_refused_with_its_place(text: str, place: tuple[int, int], words: str) -> None:
    refused = parse_cedar_file(text).refused
    assert place in [(one.line, one.column) for one in refused]
    assert all(words in one.reason for one in refused)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", f"expected 1 to {RULES_MAX} policies in Cedar, found 0"),
        ("// nothing;\n", "found 0"),
        (ALL * (RULES_MAX + 1), f"found {RULES_MAX + 1}"),
        (f"{ALL}\n permit(principal", "line 2, column 2: expected a policy that ends with ;"),
        (f'{ALL}\n permit(principal == User::"a\\";', "line 2, column 28: expected a string that ends"),
        (" " * FILE_BYTES_MAX + ALL, f"expected at most {FILE_BYTES_MAX:,} bytes"),
    ],
)
def test_what_is_no_file_of_policies_is_refused(text: str, words: str) -> None:
    with pytest.raises(RuleFileError, match=re.escape(words)):
        parse_cedar_file(text)


WORDS = "permit forbid ( principal , action resource ) ; when { } unless true // / @ @id"
PIECES = st.sampled_from(
    [*WORDS.split(), ALL, '"', '\\"', "\\\\", "\n", " ", '("a")', '"x;"', "\u00e9", "\x00", "\ud800"]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_a_file_that_is_read_has_all_of_its_policies(text: str) -> None:
    """What Cedar takes has as many rules, and what is refused has a place in the file."""
    try:
        policies = len(orjson.loads(cedarpy.policies_to_json_str(text))["staticPolicies"])
    except (ValueError, UnicodeEncodeError):
        policies = None
    try:
        file = parse_cedar_file(text)
    except RuleFileError:
        assert not policies
        return
    if policies is not None:
        assert len(file.rules) + len(file.refused) == policies
    lines = file.text.split("\n")
    for one in file.refused:
        assert 1 <= one.column <= len(lines[one.line - 1]) + 1


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("permit(principal, action, resource) when { true } unless { context.op == };", 74),
        ('permit(principal == User::"a;)", action, resource;', 50),
        ("permit(principal, action, resource) when { 1 == 1 when };", 51),
    ],
)
def test_a_token_that_cedar_does_not_expect_is_shown_where_it_stands(text: str, column: int) -> None:
    with pytest.raises(PolicyNotCompiledError, match="unexpected token") as refused:
        Checkers(Programs()).check(text, kind=CEDAR_PERMIT)
    assert (refused.value.line, refused.value.column) == (1, column)
