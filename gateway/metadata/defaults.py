# SPDX-License-Identifier: Apache-2.0
"""
Default values of columns as JSON (table spec, appendix C): is this text or number a value of that type?

Readers refuse a whole table for one default that is none, so that such a schema must not get in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any, Final

from gateway.errors import BadRequestError
from gateway.metadata.columns import describe_type
from gateway.metadata.shapes import INT32_MAX, INT64_MAX, found

_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
_PATTERNS: Final = {
    "date": re.compile(_DATE),
    "time": re.compile(rf"{_TIME}(\.[0-9]{{1,6}})?"),
    "timestamp": re.compile(rf"{_DATE}T{_TIME}(\.[0-9]{{1,6}})?"),
    "timestamptz": re.compile(rf"{_DATE}T{_TIME}(\.[0-9]{{1,6}})?\+00:00"),
    "timestamp_ns": re.compile(rf"{_DATE}T{_TIME}(\.[0-9]{{1,9}})?"),
    "timestamptz_ns": re.compile(rf"{_DATE}T{_TIME}(\.[0-9]{{1,9}})?\+00:00"),
    "uuid": re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "binary": re.compile(r"([0-9a-fA-F]{2})*"),
}
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_SECONDS_AT: Final = {"date": 10, "time": 8}  # where the calendar part of a text ends, 19 for timestamps

_READ: Final[Mapping[str, Callable[[str], object]]] = {"date": date.fromisoformat, "time": time.fromisoformat}


def check_default(type_: str | Mapping[str, Any], value: object, at: str) -> None:
    """
    Check that `value` is a default of a column of `type_`; that of a nested type is only checked for its kind.

    Raises:
        BadRequestError: if it is not.
    """
    name = type_.lower() if isinstance(type_, str) else str(type_["type"])
    is_default = _CHECKS.get(name) or _CHECKS.get(name.split("(")[0].split("[")[0].strip(), _never)
    if not is_default(name, value):
        raise BadRequestError(f"Cannot parse default as a {describe_type(type_)} value: {found(value)}", field=at)


def _never(name: str, value: object) -> bool:
    """Variants, geometries and columns of type unknown have no default but null."""
    del name, value
    return False


def _is_integer(name: str, value: object) -> bool:
    most = INT32_MAX if name == "int" else INT64_MAX
    return isinstance(value, int) and not isinstance(value, bool) and -most - 1 <= value <= most


def _is_number(name: str, value: object) -> bool:
    del name
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_of(kind: type) -> Callable[[str, object], bool]:
    return lambda _, value: isinstance(value, kind)


def _is_written(name: str, value: object) -> bool:
    return isinstance(value, str) and _PATTERNS[name].fullmatch(value) is not None


def _is_in_calendar(name: str, value: object) -> bool:
    if not isinstance(value, str) or not _is_written(name, value):
        return False
    try:
        _READ.get(name, datetime.fromisoformat)(value[: _SECONDS_AT.get(name, 19)])
    except ValueError:
        return False
    return True


def _is_fixed(name: str, value: object) -> bool:
    length = int(name[len("fixed[") : -1])
    return isinstance(value, str) and len(value) == 2 * length and _is_written("binary", value)


def _is_decimal(name: str, value: object) -> bool:
    precision, scale = (int(number) for number in name[len("decimal(") : -1].split(","))
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        return False
    whole, _, fraction = value.removeprefix("-").partition(".")
    return len(fraction) == scale and len((whole + fraction).lstrip("0")) <= precision


_CHECKS: Final[Mapping[str, Callable[[str, object], bool]]] = {
    "boolean": _is_of(bool),
    "int": _is_integer,
    "long": _is_integer,
    "float": _is_number,
    "double": _is_number,
    "decimal": _is_decimal,
    "string": _is_of(str),
    "uuid": _is_written,
    "binary": _is_written,
    "fixed": _is_fixed,
    **dict.fromkeys(("date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"), _is_in_calendar),
    "struct": _is_of(dict),
    "map": _is_of(dict),
    "list": _is_of(list),
}
