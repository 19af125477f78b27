# SPDX-License-Identifier: Apache-2.0
"""
The words that pages explain: every link to one leads to it, and every document that it names is there.
"""

from __future__ import annotations

import re

from gateway.console.rendering import TEMPLATES
from gateway.console.terms import TERMS
from testkit.environment import PROJECT

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
