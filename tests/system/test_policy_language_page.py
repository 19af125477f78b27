# SPDX-License-Identifier: Apache-2.0
"""The page of the language of policies says what the corpus of expressions says."""

from __future__ import annotations

from dataclasses import replace

from testkit.gateway.cel_corpus import CORPUS, ERROR, Entry, Group
from testkit.policy_language_page import PAGE, page


def test_the_page_is_what_the_corpus_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(CORPUS), "run `python -m testkit.policy_language_page`"


def test_another_entry_is_another_page() -> None:
    first, *others = CORPUS
    assert page([*others]) != page(CORPUS)
    differing = Entry("1 + 1 || true", "2", ours=ERROR, why="a reason")
    more = page([replace(first, entries=(*first.entries, differing)), *others])
    assert r"| `1 + 1 \|\| true` is `2` | `error` | a reason |" in more
    assert f"| {first.title} | {first.section} | {len(first.entries) + 1} |" in more


def test_every_difference_is_counted_and_every_reason_stands_once() -> None:
    differing = [entry for group in CORPUS for entry in group.entries if entry.differs]
    assert differing
    text = page(CORPUS)
    for why in {entry.why for entry in differing}:
        assert text.count(f" | {why} |\n") == 1
    assert f"\n{len(differing)} of the expressions give something else here" in text
    refused = Entry("x ==", "not CEL", refused=(1, 5))
    empty = page([Group(title="a", section="b", entries=(refused,))])
    assert "| a | b | 1 | 0 | 1 | 0 |" in empty
