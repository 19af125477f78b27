# SPDX-License-Identifier: Apache-2.0
"""
Confusable names: UTS 39 skeletons, without regard to case.
"""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.confusables import DIGEST_SIZE_BYTES, are_alike, skeleton, skeleton_columns, skeletons
from testkit.gateway.confusable_names import ALIKE

UNLIKE = [
    ("finance", "finances"),
    ("finance", "finance_2"),
    ("t1", "t2"),
    ("t1", "ti"),
    ("orders", "order"),
    ("a b", "ab"),
    ("n", "v"),
    ("\u5317", "\u6771"),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_confusable_names_have_a_look_in_common(one: str, other: str) -> None:
    assert are_alike(one, other)
    assert are_alike(other, one)


@pytest.mark.parametrize(("one", "other"), UNLIKE)
def test_distinguishable_names_have_no_look_in_common(one: str, other: str) -> None:
    assert not are_alike(one, other)


def test_skeletons_are_those_of_uts_39() -> None:
    # Rows of confusables.txt, Unicode 18.0.0, and the example of UTS 39, section 4.
    assert skeleton("\u0430") == "a"
    assert skeleton("m") == "rn"
    assert skeleton("1") == skeleton("I") == skeleton("|") == "l"
    assert skeleton("\u2165") == "Vl"
    assert skeleton("\u01c9") == "lj"
    assert skeleton("p\u0430yp\u0430l") == skeleton("paypal")


@given(st.text(max_size=40))
def test_a_skeleton_of_a_skeleton_is_itself(text: str) -> None:
    once = skeleton(text)
    assert skeleton(once) == skeleton(skeleton(once))


@given(st.text(st.characters(exclude_categories=("Cs", "Cn")), min_size=1, max_size=40))
def test_every_spelling_of_a_name_is_like_it(name: str) -> None:
    for spelled in (name.casefold(), unicodedata.normalize("NFD", name), f" {name}", f"{name}\u200d\t"):
        assert are_alike(name, spelled), (name, spelled)


@given(st.text("abcdefghijklmnopqrstuvwxyz0123456789_", min_size=1, max_size=20), st.data())
def test_one_letter_of_another_script_hides_nothing(name: str, data: st.DataObject) -> None:
    of_other_scripts = {"a": "\u0430", "c": "\u0441", "e": "\u0435", "i": "\u0456", "o": "\u03bf", "p": "\u0440"}
    places = [place for place, letter in enumerate(name) if letter in of_other_scripts]
    if places:
        at = data.draw(st.sampled_from(places))
        assert are_alike(name, f"{name[:at]}{of_other_scripts[name[at]]}{name[at + 1 :]}")


def test_a_look_depends_on_the_parent() -> None:
    one, other = (skeleton_columns(*path)["looks"] for path in (("a", "t"), ("b", "t")))
    assert isinstance(one, list)
    assert isinstance(other, list)
    assert set(one).isdisjoint(other)
    assert {len(digest) for digest in one} == {DIGEST_SIZE_BYTES}
    assert skeleton_columns("a", "T")["looks"] == one
    assert skeleton_columns("ab", "c") != skeleton_columns("a", "bc")


def test_invisible_characters_do_not_change_a_look() -> None:
    assert skeletons("\u200b") == skeletons("\ufe0f") == {""}
