# SPDX-License-Identifier: Apache-2.0
"""
Read untrusted JSON member by member.

Every function returns a value of the shape it names or raises BadRequestError with the path of what is wrong, as in
`updates[3].snapshot-id`. A member that is null counts as absent: the Java reference writes null for what is not set,
but its readers do not accept null everywhere, so parsers drop such members instead of storing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final, TypeAlias

from gateway.errors import BadRequestError

JsonObject: TypeAlias = dict[str, Any]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
DEPTH_MAX = 160  # the JSON encoder stops at 254 levels, and answers wrap what is stored in a few more
FOUND_CHARS_MAX = 64
_CONTAINERS: Final = (list, dict)
"""A union of types would be made for each value that is checked."""


def check_bounds(value: object, at: str) -> None:
    """
    Check that `value` can be stored and written again: JSON only, no deeper than `DEPTH_MAX`, integers of 64 bits.

    Unknown members are kept, so they are bounded too. Walks without recursion.

    Raises:
        BadRequestError: at the first value that is not so.
    """
    stack: list[_Node] = [(value, at, None, 1)]
    while stack:
        node = stack.pop()
        item, _, _, depth = node
        if isinstance(item, str):
            if not item.isascii():
                _check_text(item, node)
        elif isinstance(item, _CONTAINERS):
            if depth > DEPTH_MAX:
                raise BadRequestError(f"nested deeper than {DEPTH_MAX} levels", field=_path(node))
            for step, child in enumerate(item) if isinstance(item, list) else _members(item, node):
                # Most values are short texts and numbers: they are looked at here, without a node for each.
                if type(child) is str:
                    is_right = child.isascii()
                else:
                    is_right = type(child) is int and -INT64_MAX - 1 <= child <= INT64_MAX
                if not is_right:
                    stack.append((child, step, node, depth + 1))
        elif item is not None and not isinstance(item, bool):
            _check_number(item, node)


def _members(item: dict[Any, object], node: _Node) -> Iterable[tuple[str, object]]:
    for name in item:
        if type(name) is not str or not name.isascii():
            _check_text(name, node)
    return item.items()


# a value, the last step of its path, the node around it, its depth; the path is built only for an error
_Node: TypeAlias = "tuple[object, str | int, _Node | None, int]"


def _path(node: _Node) -> str:
    steps: list[str] = []
    _, step, around, _ = node
    while around is not None:
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step[:FOUND_CHARS_MAX]}")
        _, step, around, _ = around
    return "".join(reversed([*steps, str(step)]))


def _check_text(item: object, node: _Node) -> None:
    if not isinstance(item, str):
        raise BadRequestError(f"expected member names that are text, found {found(item)}", field=_path(node))
    if not item.isascii():
        try:
            item.encode()
        except UnicodeEncodeError as error:
            raise BadRequestError("expected text, found half of a surrogate pair", field=_path(node)) from error


def _check_number(item: object, node: _Node) -> None:
    if isinstance(item, int):
        if not -INT64_MAX - 1 <= item <= INT64_MAX:
            raise BadRequestError("expected an integer of at most 64 bits", field=_path(node))
    elif not isinstance(item, float) or not isfinite(item):
        raise BadRequestError(f"expected a JSON value, found {found(item)}", field=_path(node))


def found(value: object) -> str:
    """Describe `value` in an error: its JSON kind, and the value where it is short."""
    match value:
        case None:
            return "nothing"
        case dict():
            return "an object"
        case list():
            return "a list"
        case bool():
            return "true" if value else "false"
        case int() if not -INT64_MAX - 1 <= value <= INT64_MAX:
            return "an integer of more than 64 bits"
        case str() if len(value) > FOUND_CHARS_MAX:
            return f"a text of {len(value)} characters"
        case _:
            return repr(value)


def member(at: str, name: str) -> str:
    """Return the path of the member `name` of what is at `at`; names that users choose are cut where they are long."""
    return f"{at}.{name[:FOUND_CHARS_MAX]}" if at else name[:FOUND_CHARS_MAX]


def without_nulls(value: Mapping[str, Any]) -> JsonObject:
    """Copy an object without the members that are null."""
    return {name: member for name, member in value.items() if member is not None}


def as_object(value: object, at: str) -> JsonObject:
    """Return `value` if it is an object."""
    if not isinstance(value, dict):
        raise BadRequestError(f"expected an object, found {found(value)}", field=at)
    return value


def as_list(value: object, at: str, *, count_max: int = INT32_MAX) -> list[Any]:
    """Return `value` if it is a list of at most `count_max` items."""
    if not isinstance(value, list):
        raise BadRequestError(f"expected a list, found {found(value)}", field=at)
    if len(value) > count_max:
        raise BadRequestError(f"expected at most {count_max} items, found {len(value)}", field=at)
    return value


def as_int(value: object, at: str, *, least: int = -INT64_MAX - 1, most: int = INT64_MAX) -> int:
    """Return `value` if it is an integer from `least` to `most`; true and 1.0 are none."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadRequestError(f"expected an integer, found {found(value)}", field=at)
    if not least <= value <= most:
        raise BadRequestError(f"expected an integer from {least} to {most}, found {found(value)}", field=at)
    return value


def as_text(value: object, at: str) -> str:
    """Return `value` if it is text."""
    if not isinstance(value, str):
        raise BadRequestError(f"expected a text, found {found(value)}", field=at)
    return value


def are_all(kind: type, values: Iterable[object]) -> bool:
    """
    Return whether all of `values` are of this very type: sooner than one by one, which then tells which one is not.
    """
    return {*map(type, values)} <= {kind}


def read_object(holder: Mapping[str, Any], name: str, at: str) -> JsonObject:
    """Return the member `name`, an object."""
    value = holder.get(name)
    return value if type(value) is dict else as_object(value, member(at, name))


def read_list(holder: Mapping[str, Any], name: str, at: str, *, count_max: int = INT32_MAX) -> list[Any]:
    """Return the member `name`, a list of at most `count_max` items."""
    value = holder.get(name)
    if type(value) is list and len(value) <= count_max:
        return value
    return as_list(value, member(at, name), count_max=count_max)


def read_int(holder: Mapping[str, Any], name: str, at: str, *, least: int = 0, most: int = INT64_MAX) -> int:
    """Return the member `name`, an integer from `least` to `most`."""
    value = holder.get(name)
    if type(value) is int and least <= value <= most:
        return value  # a path is made only for an error
    return as_int(value, member(at, name), least=least, most=most)


def read_int_or_none(
    holder: Mapping[str, Any], name: str, at: str, *, least: int = 0, most: int = INT64_MAX
) -> int | None:
    """Return the member `name`, an integer from `least` to `most`, or None if it is absent."""
    value = holder.get(name)
    if value is None or (type(value) is int and least <= value <= most):
        return value
    return as_int(value, member(at, name), least=least, most=most)


def read_text(holder: Mapping[str, Any], name: str, at: str) -> str:
    """Return the member `name`, a text."""
    value = holder.get(name)
    return value if isinstance(value, str) else as_text(value, member(at, name))


def read_text_or_none(holder: Mapping[str, Any], name: str, at: str) -> str | None:
    """Return the member `name`, a text, or None if it is absent."""
    value = holder.get(name)
    return value if value is None or isinstance(value, str) else as_text(value, member(at, name))


def read_bool(holder: Mapping[str, Any], name: str, at: str) -> bool:
    """Return the member `name`, true or false."""
    value = holder.get(name)
    if not isinstance(value, bool):
        raise BadRequestError(f"expected true or false, found {found(value)}", field=member(at, name))
    return value


def read_texts(holder: Mapping[str, Any], name: str, at: str) -> dict[str, str]:
    """Return the member `name`, an object whose members are all texts."""
    value = read_object(holder, name, at)
    if not are_all(str, value.values()):
        for key, text in value.items():
            as_text(text, member(member(at, name), key))
    return value


def read_ids(holder: Mapping[str, Any], name: str, at: str, *, most: int = INT32_MAX) -> list[int]:
    """Return the member `name`, a list of ids: integers from 0 to `most`."""
    items = read_list(holder, name, at)
    return [as_int(item, f"{at}.{name}[{index}]", least=0, most=most) for index, item in enumerate(items)]
