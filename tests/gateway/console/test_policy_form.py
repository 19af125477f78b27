# SPDX-License-Identifier: Apache-2.0
"""
The form in which a policy is written: what it says is what a policy says, and what is wrong has its place.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console.policy_form import COMPARED_MAX, PolicyForm, body_of_text, diff_lines, problem_at, written
from gateway.policy.policy_library import library
from gateway.policy.scopes import format_scope
from testkit.gateway.console.hostile_texts import HOSTILE_TEXTS

lines = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12).map("\n".join)


def members_of(policy: Any) -> dict[str, Any]:
    form = {"expression": policy.expression, "message": policy.message, "reason": policy.reason}
    examples = [{"name": one.name, "expect": str(one.expect), "given": dict(one.given)} for one in policy.examples]
    return {**form, "scope": format_scope(policy.scope), "examples": examples}


@pytest.mark.parametrize("policy", library(), ids=lambda policy: policy.id)
def test_the_form_of_a_policy_says_what_the_policy_says(policy: Any) -> None:
    form = PolicyForm.of(policy.id, members_of(policy))
    sent = {name: text.replace("\n", "\r\n") for name, text in form.texts.items()}  # as browsers send it
    again = PolicyForm.sent({**sent, **{f"kind_{kind}": "on" for kind in form.kinds}})
    text, problems = again.read()
    assert problems == []
    assert (text.expression, text.message, text.scope, text.examples) == (
        policy.expression,
        policy.message,
        policy.scope,
        policy.examples,
    )
    assert again.reason == policy.reason
    assert PolicyForm.of(policy.id, body_of_text(text, reason=policy.reason)) == form


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_any_text_is_kept_or_refused_and_never_changed(text: str) -> None:
    for name in ("message", "expression", "examples", "reason", "names", "catalogs", "operations", "properties"):
        form = PolicyForm.sent({"id": "p", "message": "m", "expression": "true", name: text})
        assert form.texts[name] == text.rstrip()
        read, problems = form.read()
        if name == "properties" and not problems:
            assert read.scope.properties == (text.strip(),)


@pytest.mark.parametrize(
    ("text", "line", "column", "parts"),
    [
        ("ab\ncd", 2, 1, ("", "c", "d")),
        ("ab\ncd", 2, 3, ("cd", "", "")),
        ("ab", 9, 1, ("", "", "")),
        ("", 1, 1, ("", "", "")),
    ],
)
def test_a_problem_has_its_line_around_its_column(text: str, line: int, column: int, parts: tuple[str, ...]) -> None:
    problem = problem_at("expression", text, "no", line, column)
    assert (problem.before, problem.at, problem.after) == parts


@given(lines, lines)
def test_a_comparison_has_both_texts_whole(older: str, newer: str) -> None:
    compared = diff_lines(older, newer, context_lines=100)
    if older.splitlines() == newer.splitlines():
        assert compared == []
    else:
        for kind, text in (("removed", older), ("added", newer)):
            assert [line.text for line in compared if line.kind in {kind, "same"}] == text.splitlines()


def test_what_is_the_same_far_from_a_change_is_counted() -> None:
    same = "\n".join(map(str, range(20)))
    (first, *_, last) = diff_lines(f"{same}\nx\n{same}", f"{same}\ny\n{same}")
    assert (first.text, last.text) == ("17 lines that are the same", "17 lines that are the same")


def test_texts_that_are_too_large_to_compare_are_both_shown() -> None:
    count = int(COMPARED_MAX**0.5) + 1
    compared = diff_lines("\n".join("a" * count), "\n".join("a" * count + "b"))
    assert [line.kind for line in compared] == ["removed"] * count + ["added"] * (count + 1)


def test_an_end_says_nothing() -> None:
    assert written(None) == written({"expression": None, "message": None, "scope": None, "examples": None}) == ""
