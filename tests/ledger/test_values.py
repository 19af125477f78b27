# SPDX-License-Identifier: Apache-2.0
"""Value classes: what the type checker refuses, and what holds at run time."""

from __future__ import annotations

from dataclasses import field, fields, replace

import pytest

from ledger.values import value_class


@value_class
class _Place:
    """A value with each kind of field."""

    name: str
    number: int = 7
    tags: tuple[str, ...] = field(default=(), compare=False)


@value_class
class _Numbered:
    """A value that is hashed by one of its fields."""

    number: int
    name: str

    def __hash__(self) -> int:
        return self.number


def test_the_type_checker_refuses_to_change_a_value() -> None:
    place = _Place(name="a")
    # mypy reports this comment as unused as soon as it lets the next line pass.
    place.name = "b"  # type: ignore[misc]


def test_a_value_is_made_by_the_names_of_its_fields() -> None:
    assert [each.name for each in fields(_Place)] == ["name", "number", "tags"]
    with pytest.raises(TypeError):
        _Place("a")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        _Place(name="a", colour="red")  # type: ignore[call-arg]


def test_values_are_equal_and_hashed_by_the_fields_that_are_compared() -> None:
    assert _Place(name="a", tags=("x",)) == _Place(name="a")
    assert hash(_Place(name="a", tags=("x",))) == hash(_Place(name="a"))
    assert _Place(name="a") != _Place(name="a", number=8)
    assert len({_Place(name="a"), _Place(name="a"), _Place(name="b")}) == 2


def test_a_value_class_may_say_how_its_values_are_hashed() -> None:
    assert hash(_Numbered(number=5, name="a")) == 5
    assert _Numbered(number=5, name="a") != _Numbered(number=5, name="b")


def test_a_value_has_no_other_fields() -> None:
    place = _Place(name="a")
    with pytest.raises(AttributeError):
        place.colour = "red"  # type: ignore[attr-defined]


def test_a_value_is_copied_with_changes() -> None:
    assert replace(_Place(name="a"), number=8) == _Place(name="a", number=8)
