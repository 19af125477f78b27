# SPDX-License-Identifier: Apache-2.0
"""
Nessie's rule files: which rules they have, and where and how what cannot be read is mended.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.cel.check import check
from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.parse import parse
from gateway.policy.engine import ACCESS_RULE, PolicyNotCompiledError
from gateway.policy.mending import COMPILED_MAX, EDITS_MAX, edited, find_edits
from gateway.policy.rule_files import FILE_BYTES_MAX, PREFIX, RULES_MAX, RuleFileError, parse_rule_file
from testkit.environment import PROJECT

AS_PRINTED = (PROJECT / "testkit/gateway/rule_files/as-printed.properties").read_text()


async def compiles(expression: str) -> bool:
    try:
        check(parse(expression, Interruption()), kind=ACCESS_RULE)
    except PolicyNotCompiledError:
        return False
    return True


def test_the_rules_of_nessies_documentation_are_read() -> None:
    file = parse_rule_file(AS_PRINTED)
    assert file.refused == ()
    assert len(file.rules) == 14
    first = file.rules[0]
    assert (first.id, first.expression) == (
        "allow_branch_listing",
        "op=='VIEW_REFERENCE' && role.startsWith('test_') && ref.startsWith('allowedBranch')",
    )


async def test_three_of_them_cannot_be_parsed_as_printed() -> None:
    broken = [rule.id for rule in parse_rule_file(AS_PRINTED).rules if not await compiles(rule.expression)]
    assert broken == ["bob", "carol", "dave"]


def test_a_place_in_an_expression_is_one_in_the_file() -> None:
    text = "# one\n" + PREFIX + "r = op == \\\n     'A' &&\\u0020\\\n  rolls"
    file = parse_rule_file(text)
    (rule,) = file.rules
    assert rule.expression == "op == 'A' && rolls"
    lines = text.split("\n")
    for column, char in enumerate(rule.expression, start=1):
        refused = file.refuse(rule, "why", line=1, column=column)
        assert lines[refused.line - 1][refused.column - 1] in {char, "\\"}
    end = file.refuse(rule, "why", line=1, column=len(rule.expression) + 1)
    assert (end.line, end.column) == (4, 8)
    assert str(file.refuse(rule, "no such variable", line=1, column=14)) == (
        "line 4, column 3: rule r: no such variable"
    )


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        (f"{PREFIX}Alice=true", 1, "'Alice'; alice would be one"),
        (f'{PREFIX}"my\\ rule"=true', 1, "found 'my rule'; my-rule would be one"),
        (f"{PREFIX}=true", 1, "found ''; rule would be one"),
        (f"%dev.{PREFIX}r=true", 1, "one of one profile of Nessie's, '%dev.' before it"),
        (f"my.{PREFIX}r=true", 1, "one of another name, 'my.' before it"),
        (f"{PREFIX}r=op == '${{name}}'", 44, "expected an expression without ${"),
    ],
)
def test_what_is_no_rule_here_is_refused_and_never_left_out(line: str, column: int, reason: str) -> None:
    file = parse_rule_file(f"{PREFIX}fine=true\n{line}\n")
    assert [rule.id for rule in file.rules] == ["fine"]
    (refused,) = file.refused
    assert (refused.line, refused.column) == (2, column)
    assert reason in refused.reason


def test_a_rule_that_is_set_twice_is_refused_in_both_places() -> None:
    file = parse_rule_file(f"{PREFIX}r=true\n\n{PREFIX}r=false")
    assert [(one.id, one.line) for one in file.refused] == [("r", 1), ("r", 3)]
    assert file.rules == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "found 0"),
        ("nessie.version.store.type=IN_MEMORY", "found 0"),
        ("".join(f"{PREFIX}r{number}=true\n" for number in range(RULES_MAX + 1)), f"found {RULES_MAX + 1}"),
        ("#" * (FILE_BYTES_MAX + 1), "at most 262,144 bytes, found 262,145"),
        (f"{PREFIX}r=\\u00", "line 1, column 37: expected four hexadecimal digits"),
    ],
)
def test_a_file_that_is_none_is_refused(text: str, words: str) -> None:
    with pytest.raises(RuleFileError, match=re.escape(words)):
        parse_rule_file(text)


# Mended text


@pytest.mark.parametrize(
    ("expression", "mended"),
    [
        ("path=='BobsBar` && role=='Bob')", "path=='BobsBar' && role=='Bob'"),
        ("path==`Foo`", "path=='Foo'"),
        ("op == 'A') && ref == 'b'", "op == 'A' && ref == 'b'"),
        ("op == 'A' && (ref == 'b' || ref == 'c'", "op == 'A' && (ref == 'b' || ref == 'c')"),
        ("ref == 'b' || ref == 'c') && op == 'A'", "(ref == 'b' || ref == 'c') && op == 'A'"),
        ("`op == 'A'", "op == 'A'"),
    ],
)
async def test_the_smallest_edits_are_offered(expression: str, mended: str) -> None:
    assert edited(expression, await find_edits(expression, compiles)) == mended


@pytest.mark.parametrize(
    "expression", ["op = 'A'", "opp == 'A'", "'a' in", "((((op == 'A'", "", "`" * 30, "(" * 4_000, "op == 'A' && \\"]
)
async def test_what_few_edits_do_not_mend_has_no_offer(expression: str) -> None:
    assert await find_edits(expression, compiles) == ()


@given(st.text(alphabet="op=='A`()&& x", max_size=30))
async def test_what_is_offered_compiles_and_differs_little(expression: str) -> None:
    tried = []

    async def counted(text: str) -> bool:
        tried.append(text)
        return await compiles(text)

    edits = await find_edits(expression, counted)
    assert len(tried) <= COMPILED_MAX
    if edits:
        assert 1 <= len(edits) <= EDITS_MAX
        assert await compiles(edited(expression, edits))
        assert {edit.found for edit in edits} <= {"", "`", "(", ")"}
