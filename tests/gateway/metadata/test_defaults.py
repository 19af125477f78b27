# SPDX-License-Identifier: Apache-2.0
"""Default values of columns: those of each type, and those that are none (table spec, appendix C)."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import BadRequestError
from gateway.metadata import parse_updates


def _schema(type_: str, **members: Any) -> list[dict[str, Any]]:
    field = {"id": 1, "name": "a", "required": False, "type": type_} | members
    return [{"action": "add-schema", "schema": {"type": "struct", "fields": [field]}}]


DEFAULTS: dict[str, tuple[list[Any], list[Any]]] = {
    "boolean": ([True], [1, "true"]),
    "int": ([5, -(2**31)], [2**31, 1.5, "5", True]),
    "long": ([2**63 - 1], ["5", 1.0]),
    "double": ([1, 1.5], ["1.5", True]),
    "decimal(9, 2)": (["14.20", "-0.00"], ["14.2", "14", 14.2, "1e2", "99999999.00"]),
    "decimal(9, 999999999)": ([], ["1.0"]),
    "decimal(4,0)": (["14"], ["14.0"]),
    "string": (["", "x"], [1]),
    "uuid": (["0cc7a4b9-3a2c-4b1b-9b35-3c6e8a6b6a01"], ["x"]),
    "binary": (["", "00fF"], ["0", "0x"]),
    "fixed[2]": (["00ff"], ["00", "00ff00"]),
    "date": (["2026-11-20"], ["2026-11-31", "20261120", 5]),
    "time": (["23:59:59", "00:00:00.000001"], ["24:00:00", "1:00"]),
    "timestamp": (["2026-11-20T01:02:03.123456"], ["2026-11-20", "2026-11-20T01:02:03+00:00"]),
    "timestamptz": (["2026-11-20T01:02:03+00:00"], ["2026-11-20T01:02:03", "2026-11-20T01:02:03+01:00"]),
    "timestamp_ns": (["2026-11-20T01:02:03.123456789"], ["2026-11-20T25:02:03.123456789"]),
    "timestamptz_ns": (["2026-11-20T01:02:03.123456789+00:00"], ["x"]),
    "variant": ([], ["x", 1]),
    "geometry(srid:4326)": ([], ["x"]),
    "unknown": ([], [1]),
}


@pytest.mark.parametrize("type_", DEFAULTS)
def test_defaults_are_values_of_their_type(type_: str) -> None:
    good, bad = DEFAULTS[type_]
    for value in (None, *good):
        parse_updates(_schema(type_, **{"initial-default": value, "write-default": value}))
    for value in bad:
        with pytest.raises(BadRequestError) as caught:
            parse_updates(_schema(type_, **{"write-default": value}))
        assert f"fields[0].write-default: Cannot parse default as a {type_} value: " in str(caught.value)
