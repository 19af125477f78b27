# SPDX-License-Identifier: Apache-2.0
"""
Functions on texts, patterns and numbers: of CEL's extension libraries (google/cel-go, `ext`) the parts that expressions
on commits need.

Operands are values of compiled expressions (`natives.py`). Positions count characters, as CEL does.

Guarantee: each gives a value, or raises one of `natives.FAILURES` for operands that it is not defined on. No text has
more than `TEXT_CHARACTERS_MAX` characters, no list more than `ELEMENTS_MAX` elements. Patterns are RE2's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.policy.cel.functions import compile_capturing
from gateway.policy.cel.natives import INT64_MIN, kind_of
from gateway.policy.cel.values import Kind, Value

TEXT_CHARACTERS_MAX: Final = 2**20
ELEMENTS_MAX: Final = 100_000
ALL: Final = -1
"""A count without a limit, as in cel-go."""

_BLANKS: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""Characters with Unicode's property White_Space, which Go trims; Python would trim the separators of ASCII, too."""
_UPPER: Final = {letter: letter - 32 for letter in range(ord("a"), ord("z") + 1)}
_LOWER: Final = {letter: letter + 32 for letter in range(ord("A"), ord("Z") + 1)}
_QUOTED: Final = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)
_REPLACEMENT: Final = re.compile(r"\\(.?)", re.DOTALL)


def _text(value: Value) -> str:
    if type(value) is not str:
        raise TypeError("not a text")
    return value


def _index(value: Value) -> int:
    if type(value) is not int:
        raise TypeError("not an int")
    return value


def _bounded(text: str) -> str:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ValueError("a text that is too long")
    return text


def char_at(text: Value, index: Value) -> str:
    """Return one character; right after the last one, the empty text."""
    at = _index(index)
    if not 0 <= at <= len(_text(text)):
        raise IndexError("outside of the text")
    return str(text[at : at + 1])


def index_of(text: Value, part: Value, offset: Value = 0) -> int:
    """Return where `part` is first, from `offset` on; -1 if nowhere."""
    start = _index(offset)
    if not _text(part):
        _text(text)
        return start
    if start < 0:
        raise IndexError("outside of the text")
    return _text(text).find(part, start)


def last_index_of(text: Value, part: Value, offset: Value = None) -> int:
    """Return where `part` is last, beginning at `offset` or before; -1 if nowhere."""
    whole = _text(text)
    if offset is None:
        return whole.rfind(_text(part))
    start = _index(offset)
    if not _text(part):
        return start
    if start < 0:
        raise IndexError("outside of the text")
    return -1 if start >= len(whole) else whole.rfind(part, 0, start + len(part))


def join(texts: Value, separator: Value = "") -> str:
    """Return the texts of a list with `separator` between them."""
    if type(texts) is not list:
        raise TypeError("not a list")
    between = _text(separator)
    if sum(len(_text(each)) for each in texts) + len(between) * (len(texts) - 1) > TEXT_CHARACTERS_MAX:
        raise ValueError("a text that is too long")
    return between.join(texts)


def lower_ascii(text: Value) -> str:
    """Return `text` with A to Z in lower case."""
    return _text(text).translate(_LOWER)


def upper_ascii(text: Value) -> str:
    """Return `text` with a to z in upper case."""
    return _text(text).translate(_UPPER)


def replace(text: Value, old: Value, new: Value, count: Value = ALL) -> str:
    """Return `text` with the first `count` of `old`, or all of them if it is negative, replaced by `new`."""
    whole, most = _text(text), _index(count)
    found = whole.count(_text(old))
    replaced = found if most < 0 else min(found, most)
    if len(whole) + replaced * (len(_text(new)) - len(old)) > TEXT_CHARACTERS_MAX:
        raise ValueError("a text that is too long")
    return whole.replace(old, new, most if most >= 0 else ALL)


def split(text: Value, separator: Value, count: Value = ALL) -> list[Value]:
    """Return the texts between `separator`, at most `count` if that is not negative: the last is the rest."""
    whole, between, most = _text(text), _text(separator), _index(count)
    if most == 0:
        return []
    if not between:
        cut = len(whole) if most < 0 else most - 1
        parts = list(whole[:cut]) + ([whole[cut:]] if whole[cut:] else [])
    else:
        parts = whole.split(between, min(ELEMENTS_MAX, most - 1) if most > 0 else ELEMENTS_MAX)
    if len(parts) > ELEMENTS_MAX:
        raise ValueError("a list that is too long")
    return parts


def substring(text: Value, start: Value, end: Value = None) -> str:
    """Return the characters from `start` to before `end`, or to the last one."""
    whole, first = _text(text), _index(start)
    behind = len(whole) if end is None else _index(end)
    if not 0 <= first <= behind <= len(whole):
        raise IndexError("outside of the text")
    return whole[first:behind]


def trim(text: Value) -> str:
    """Return `text` without blanks at both ends."""
    return _text(text).strip(_BLANKS)


def reverse(text: Value) -> str:
    """Return the characters of `text` in the other order."""
    return _text(text)[::-1]


def quote(text: Value) -> str:
    """Return `text` in double quotes, with escapes."""
    return _bounded(f'"{_text(text).translate(_QUOTED)}"')


def regex_replace(text: Value, pattern: Value, replacement: Value, count: Value = ALL) -> str:
    r"""
    Return `text` with what matches `pattern` replaced, at most `count` times if that is not negative.

    In `replacement`, `\1` to `\9` stand for the groups, `\0` for all that matched, and `\\` for a backslash.
    """
    whole, most, pieces, end = _text(text), _index(count), [], 0
    compiled, replaced, size = compile_capturing(_text(pattern)), _text(replacement), 0
    _check_replacement(replaced, compiled.groups)
    for number, match in enumerate(compiled.finditer(whole)):
        if number == most:
            break
        made = _REPLACEMENT.sub(lambda escape, match=match: _expanded(escape[1], match), replaced)  # type: ignore[misc]
        pieces += [whole[end : match.start()], made]
        end = match.end()
        size += len(pieces[-2]) + len(made)
        if size > TEXT_CHARACTERS_MAX:
            raise ValueError("a text that is too long")
    return _bounded("".join([*pieces, whole[end:]]))


def _check_replacement(replacement: str, groups: int) -> None:
    for escape in _REPLACEMENT.finditer(replacement):
        if escape[1] != "\\" and not (escape[1].isascii() and escape[1].isdigit() and int(escape[1]) <= groups):
            raise ValueError("a replacement that names no group")


def _expanded(escaped: str, match: Any) -> str:
    return "\\" if escaped == "\\" else str(match[int(escaped)] or "")


def regex_extract(text: Value, pattern: Value) -> str:
    """
    Return what first matches `pattern`, or its one group; an error if nothing does.
    """
    compiled = _with_one_group(pattern)
    match = compiled.search(_text(text))
    if match is None or (found := match[compiled.groups]) is None:
        raise LookupError("nothing matches")
    return str(found)


def regex_extract_all(text: Value, pattern: Value) -> list[Value]:
    """
    Return all that matches `pattern`, or what its one group matches.
    """
    compiled, found = _with_one_group(pattern), []
    for match in compiled.finditer(_text(text)):
        if (part := match[compiled.groups]) is not None:
            found.append(str(part))
        if len(found) > ELEMENTS_MAX:
            raise ValueError("a list that is too long")
    return found


def _with_one_group(pattern: Value) -> Any:
    compiled = compile_capturing(_text(pattern))
    if compiled.groups > 1:
        raise ValueError("a pattern with more than one group")
    return compiled


def _number(value: Value) -> Value:
    if kind_of(value) is not Kind.NUMBER:
        raise TypeError("not a number")
    return value


def _double(value: Value) -> float:
    if type(value) is not float:
        raise TypeError("not a double")
    return value


def _numbers(operands: tuple[Value, ...]) -> list[Value]:
    several = operands[0] if len(operands) == 1 and type(operands[0]) is list else list(operands)
    if not several:
        raise ValueError("no number")
    return [_number(each) for each in several]


def greatest(*operands: Value) -> Value:
    """Return the greatest of some numbers, or of those in a list."""
    return max(_numbers(operands), key=_plain)


def least(*operands: Value) -> Value:
    """Return the least of some numbers, or of those in a list."""
    return min(_numbers(operands), key=_plain)


def _plain(number: Value) -> int | float:
    return number if type(number) is float else int(number)


def absolute(value: Value) -> Value:
    """Return a number without its sign."""
    if _number(value) == INT64_MIN and type(value) is int:
        raise ValueError("overflow")
    return abs(value) if type(value) in {int, float} else value


def sign(value: Value) -> Value:
    """Return 1, 0 or -1 in the number's own type."""
    number = _plain(_number(value))
    return type(value)((number > 0) - (number < 0)) if number == number else value  # a NaN has none


def _rounded(function: Callable[[float], int]) -> Callable[[Value], float]:
    def result(value: Value) -> float:
        number = _double(value)
        return float(function(number)) if math.isfinite(number) else number

    return result


def _away(number: float) -> int:
    """Round to the nearest, and halves away from zero."""
    whole = math.trunc(number)
    return whole + (1 if number > 0 else -1) if abs(number - whole) >= 0.5 else whole


FUNCTIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "strings.quote": quote,
    "regex.extract": regex_extract,
    "regex.extractAll": regex_extract_all,
    "regex.replace": regex_replace,
    "math.abs": absolute,
    "math.ceil": _rounded(math.ceil),
    "math.floor": _rounded(math.floor),
    "math.greatest": greatest,
    "math.isFinite": lambda value: math.isfinite(_double(value)),
    "math.isInf": lambda value: math.isinf(_double(value)),
    "math.isNaN": lambda value: math.isnan(_double(value)),
    "math.least": least,
    "math.round": _rounded(_away),
    "math.sign": sign,
    "math.trunc": _rounded(math.trunc),
}
"""Called as `namespace.f(x)`."""

METHODS: Final[Mapping[str, Callable[..., Value]]] = {
    "charAt": char_at,
    "indexOf": index_of,
    "join": join,
    "lastIndexOf": last_index_of,
    "lowerAscii": lower_ascii,
    "replace": replace,
    "reverse": reverse,
    "split": split,
    "substring": substring,
    "trim": trim,
    "upperAscii": upper_ascii,
}
"""Called as `x.f(y)`."""
