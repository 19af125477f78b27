# SPDX-License-Identifier: Apache-2.0
"""Which values can be stored and written again, wherever they are in an object."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import BadRequestError
from gateway.metadata.shapes import DEPTH_MAX, INT64_MAX, check_bounds

RIGHT: list[Any] = ["a", "ü", "\U0001f600", "", 0, INT64_MAX, -INT64_MAX - 1, True, None, 1.5, [], {}, {"ü": 1}, [[1]]]
WRONG: list[Any] = ["\ud800", INT64_MAX + 1, -INT64_MAX - 2, float("nan"), float("inf"), b"a", {"\ud800": 1}, {1: 1}]


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_what_json_holds_can_be_stored() -> None:
    for value in RIGHT:
        check_bounds(value, "at")
    check_bounds([*RIGHT, {"a": RIGHT, "b": {"c": RIGHT}}], "at")
    check_bounds(nested(DEPTH_MAX), "at")


@pytest.mark.parametrize("wrong", [*WRONG, nested(DEPTH_MAX)])
def test_one_value_that_cannot_be_stored_is_named_among_others(wrong: object) -> None:
    with pytest.raises(BadRequestError) as caught:
        check_bounds({"a": RIGHT, "b": [*RIGHT, wrong, *RIGHT], "c": 1}, "at")
    assert (caught.value.field or "").startswith(f"at.b[{len(RIGHT)}]")
    with pytest.raises(BadRequestError) as caught:
        check_bounds({"a": RIGHT, "b": {"x": 1, "y": wrong, "z": 2}}, "at")
    assert (caught.value.field or "").startswith("at.b.y")


@pytest.mark.parametrize("wrong", WRONG)
def test_a_value_alone_that_cannot_be_stored_is_refused(wrong: object) -> None:
    with pytest.raises(BadRequestError):
        check_bounds(wrong, "at")
