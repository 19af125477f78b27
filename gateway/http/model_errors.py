# SPDX-License-Identifier: Apache-2.0
"""
What is answered to values that are not as their model has them: what was expected, what was found, and of which member.

Values are quoted in few characters, and none of a member that may hold a secret. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from gateway.errors import BadRequestError

QUOTED_MAX: Final = 60
"""Characters of a value that are quoted."""
NAME_LENGTH_MAX: Final = 80
"""Characters of each name of a member; a caller chooses those of members that are not known."""
NAMED_MAX: Final = 40
"""Members that are named to whom sends another one."""
UNKNOWN: Final = "another value"
"""What is expected where no more can be said."""
_SECRET: Final = re.compile("secret|password|token|credential|key|option|header|authorization", re.IGNORECASE)

_Context = Mapping[str, Any]
_NOUNS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("string_type", "string_sub_type"), "a text"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "decimal_type", "decimal_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "mapping_type"), "an object"),
    "none_required": "null",
    "string_unicode": "a text in UTF-8",
    "finite_number": "a number that is finite",
    "int_parsing_size": "a whole number of fewer digits",
}
"""What is expected where a value is of another kind."""
_BOUNDED: Final[Mapping[str, Callable[[_Context], str]]] = {
    "greater_than": lambda given: f"more than {given['gt']}",
    "greater_than_equal": lambda given: f"at least {given['ge']}",
    "less_than": lambda given: f"less than {given['lt']}",
    "less_than_equal": lambda given: f"at most {given['le']}",
    "string_pattern_mismatch": lambda given: f"a text that matches {given['pattern']:.200}",
    "literal_error": lambda given: f"{given['expected']:.400}",
    "enum": lambda given: f"{given['expected']:.400}",
}
"""What is expected of a value that is of the right kind, by the context of the error; the value is quoted."""
_COUNTED: Final[Mapping[str, Callable[[_Context], str]]] = {
    "string_too_short": lambda given: f"at least {given['min_length']} characters, found fewer",
    "string_too_long": lambda given: f"at most {given['max_length']} characters, found more",
    "too_short": lambda given: f"at least {given['min_length']} items, found {given['actual_length']}",
    "too_long": lambda given: f"at most {given['max_length']} items, found {given['actual_length'] or 'more'}",
    "missing": lambda _: "a value, found none",
    "json_invalid": lambda given: f"JSON, found text that is none: {given['error']:.200}",
    "recursion_loop": lambda _: "values that are nested less deeply",
}
"""What is expected and found, where the value itself says nothing more."""


def not_of_model(error: ValidationError, *, whole: str, model: type[BaseModel] | None = None) -> BadRequestError:
    """
    Return what is answered to values that are not as their model has them; `whole` names all of them together, and with
    their `model` whoever sends an unknown member is told which there are.
    """
    known = [] if model is None else [each.alias or name for name, each in model.model_fields.items()]
    return first_of(error.errors(include_url=False), whole=whole, known=known)


def first_of(
    errors: Sequence[Mapping[str, Any]], *, whole: str, known: Sequence[str] = (), skipped: Iterable[str] = ()
) -> BadRequestError:
    """
    Return what is answered to the first of some errors, as Pydantic lists them.

    `known` are the members that there are; of the place of an error those in `skipped` at its beginning say nothing.
    """
    first = errors[0]
    place = [part for part in first["loc"] if part not in set(skipped)]
    kinds = _kinds_of(errors)
    if len(kinds) > 1:
        place.pop()  # which of the kinds it was compared with
        words = f"expected {_either(kinds)}, found {_found(first['input'], place)}"
    else:
        words = _sentence(first, place, known)
    return BadRequestError(words, field=".".join(map(_name, place)) or whole)


def _sentence(error: Mapping[str, Any], place: Sequence[object], known: Sequence[str]) -> str:
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind == "value_error" and "error" in context:
        return str(context["error"])[:400]  # our own words
    if kind == "extra_forbidden":
        if known and len(place) == 1:
            return f"expected members of {', '.join(known[:NAMED_MAX])}, found another"
        return "expected no member of this name, found one"
    if kind in _COUNTED:
        return f"expected {_COUNTED[kind](context)}"
    expected = _BOUNDED[kind](context) if kind in _BOUNDED else _NOUNS.get(kind, UNKNOWN)
    return f"expected {expected}, found {_found(error['input'], place)}"


def _kinds_of(errors: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the kinds of which the first value may be one, if it is compared with several."""
    first = errors[0]
    compared = [
        each
        for each in errors
        if each["loc"][:-1] == first["loc"][:-1] and each["type"] in _NOUNS and each["input"] == first["input"]
    ]
    return list(dict.fromkeys(_NOUNS[each["type"]] for each in compared)) if first["type"] in _NOUNS else []


def _either(kinds: Sequence[str]) -> str:
    return f"{', '.join(kinds[:-1])} or {kinds[-1]}"


def _found(value: object, place: Sequence[object]) -> str:
    """Return what stands for a value: itself, in few characters, unless it may be secret."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case dict():
            return "an object"
        case list() | tuple() | set():
            return "a list"
        case str() | int() | float() if not any(_SECRET.search(str(part)) for part in place):
            text = repr(value[:QUOTED_MAX]) if isinstance(value, str) else f"{value!r:.{QUOTED_MAX}}"
            return f"{text}…" if isinstance(value, str) and len(value) > QUOTED_MAX else text
        case str() | bytes():
            return "a text"
        case int() | float():
            return "a number"
    return "another"


def _name(part: object) -> str:
    name = str(part)
    return name if len(name) <= NAME_LENGTH_MAX and name.isprintable() else f"{name!r:.{NAME_LENGTH_MAX}}"
