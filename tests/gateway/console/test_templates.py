# SPDX-License-Identifier: Apache-2.0
"""
What templates say: every link to a word that is explained leads to it, and labels have room beside what they name.
"""

from __future__ import annotations

import re

from gateway.console.rendering import TEMPLATES
from gateway.console.terms import TERMS
from testkit.environment import PROJECT

LABEL_LENGTH_MAX = 17
"""Characters that fit beside a value where rows are cards: 8.5rem in `console.css`."""
TERM_IDS = [one.id for terms in TERMS.values() for one in terms]


def test_every_link_to_a_word_leads_to_one() -> None:
    linked = {
        found
        for file in TEMPLATES.iterdir()
        for found in re.findall(r"/console/terms#([a-z-]+)", file.read_text(encoding="utf-8"))
    }
    assert len(linked) > 3
    assert linked <= set(TERM_IDS)
    assert len(TERM_IDS) == len(set(TERM_IDS))


def test_every_document_that_a_word_names_is_there() -> None:
    for terms in TERMS.values():
        for one in terms:
            assert not one.document or (PROJECT / "docs" / one.document).is_file(), one.document
            assert one.meaning.endswith("."), one.id


def test_a_label_fits_beside_its_value_on_a_small_screen() -> None:
    labels = {
        label
        for file in TEMPLATES.iterdir()
        for label in re.findall(r'data-label="([^"]+)"', file.read_text(encoding="utf-8"))
    }
    assert "recorded at" in labels
    assert [label for label in labels if len(label) > LABEL_LENGTH_MAX] == []
