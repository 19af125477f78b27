# SPDX-License-Identifier: Apache-2.0
"""
The format of verdicts in the log.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.engine import ACCESS_RULE, POLICY, Outcome, Verdict
from gateway.policy.verdicts import DETAIL_CHARACTERS_MAX, format_verdicts, parse_verdicts
from ledger.errors import FormatError
from ledger.format.canonical import decode, encode

VERDICT = Verdict(kind=POLICY, id="p1", version=3, outcome=Outcome.ERROR, detail="divides by zero")

any_verdict = st.builds(
    Verdict,
    kind=st.sampled_from([POLICY, ACCESS_RULE]),
    id=st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    version=st.integers(1, 2**53 - 1),
    outcome=st.sampled_from(Outcome),
    detail=st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)


def test_the_stored_form_does_not_change() -> None:
    """Version 1 of the form, written out: what is in a log is read by every later version."""
    assert encode(format_verdicts([VERDICT])) == (
        b'{"verdicts":[{"detail":"divides by zero","id":"p1","kind":"policy","outcome":"error","version":3}]'
        b',"version":1}'
    )


@given(st.lists(any_verdict, max_size=5))
@settings(max_examples=50)
def test_what_is_written_is_canonical_and_is_read_back(verdicts: list[Verdict]) -> None:
    assert parse_verdicts(decode(encode(format_verdicts(verdicts)))) == tuple(verdicts)


def test_a_long_detail_is_cut() -> None:
    long = Verdict(kind=POLICY, id="p", version=1, outcome=Outcome.ERROR, detail="x" * 5000)
    (kept,) = parse_verdicts(format_verdicts([long]))
    assert kept.detail == "x" * DETAIL_CHARACTERS_MAX


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "maybe"},
        {"outcome": "ALLOW"},
        {"outcome": True},
        {"version": "3"},
        {"version": True},
        {"id": 1},
        {"detail": None},
        {"more": 1},
    ],
)
def test_a_changed_verdict_is_not_read(change: dict[str, Any]) -> None:
    stored: Any = format_verdicts([VERDICT])
    stored["verdicts"][0] |= change
    with pytest.raises(FormatError):
        parse_verdicts(stored)


@pytest.mark.parametrize("member", ["detail", "id", "kind", "outcome", "version"])
def test_a_verdict_without_one_of_its_members_is_not_read(member: str) -> None:
    stored: Any = format_verdicts([VERDICT])
    del stored["verdicts"][0][member]
    with pytest.raises(FormatError):
        parse_verdicts(stored)


@pytest.mark.parametrize(
    "value",
    [None, [], {}, {"verdicts": []}, {"verdicts": [], "version": 2}, {"verdicts": [], "version": True},
     {"verdicts": {}, "version": 1}, {"verdicts": [], "version": 1, "more": 1}, {"verdicts": ["x"], "version": 1}],
)  # fmt: skip
def test_another_form_is_not_read(value: Any) -> None:
    with pytest.raises(FormatError):
        parse_verdicts(value)
