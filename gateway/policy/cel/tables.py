# SPDX-License-Identifier: Apache-2.0
"""
Functions on `table` and `result` (`gateway/policy/table.py`), one with `findings`: what else takes a long expression.

Each reads the fields that `vocabulary.FIELDS_READ` and `FINDINGS_READ` name, and none other. Operands are values of
compiled expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.policy.cel.values import Value
from gateway.policy.classifications import CLASSIFICATION

_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*\)")
_PROMOTIONS: Final = frozenset(
    {
        ("int", "long"),
        ("float", "double"),
        ("date", "timestamp"),
        ("date", "timestamp_ns"),
    }
)
"""Types whose values all have one in the other type (Iceberg specification, "Schema Evolution")."""
_UNKNOWN: Final = "unknown"
"""The type of a column that has only nulls: any other type holds them."""
_REGION_PROPERTIES: Final = ("client.region", "s3.region", "region")
_DIRECTIONS: Final = "central|north|south|east|west|northeast|northwest|southeast|southwest"
_REGION: Final = re.compile(
    r"(?:^|[./-])("
    rf"(?:af|ap|ca|cn|eu|il|me|mx|sa|us)(?:-gov|-iso[a-z]?)?-(?:{_DIRECTIONS})-[0-9]"
    rf"|(?:africa|asia|australia|europe|me|northamerica|southamerica|us)-(?:{_DIRECTIONS})[0-9]{{1,2}}"
    r")(?:[./-]|$)"
)
"""A region of AWS or Google Cloud in the name of a bucket or a host."""


def classification_satisfied(table: Value, findings: Value, confidence: Value = 0) -> bool:
    """
    Return whether each column in which personal data was found, at least with this confidence, is classified.

    A column is classified if its doc, or that of a column around it, has "classification:", or the table has the
    property "classification." with the path of one of them. Columns are found by their ids: one that is gone needs no
    classification, and one with another name keeps its findings.
    """
    if type(confidence) is not int:
        raise TypeError("not an integer")
    found = {each["field_id"] for each in _listed(findings, "columns") if each["confidence"] >= confidence}
    fields, properties = _listed(table, "fields"), _member(table, "properties")
    if type(properties) is not dict:
        raise TypeError("not a table")
    by_path = {each["path"]: each for each in fields}
    return all(_is_classified(each, by_path, properties) for each in fields if each["id"] in found)


def _is_classified(column: dict[str, Any], by_path: Mapping[str, dict[str, Any]], properties: Any) -> bool:
    around: dict[str, Any] | None = column
    while around is not None:
        path, name = around["path"], around["name"]
        if f"{CLASSIFICATION}:" in around["doc"] or f"{CLASSIFICATION}.{path}" in properties:
            return True
        around = None if path == name else by_path.get(path[: -len(name) - 1])
    return False


def has_column(table: Value, path: Value) -> bool:
    """
    Return whether there is a column with this path, such as `address.city`.
    """
    return any(each["path"] == _text(path) for each in _listed(table, "fields"))


def column_type(table: Value, path: Value) -> str:
    """
    Return the type of the column with this path, as in `fields`; the empty text if there is none.
    """
    wanted = _text(path)
    return next((_text(each["type"]) for each in _listed(table, "fields") if each["path"] == wanted), "")


def has_partition(table: Value, column: Value, transform: Value = None) -> bool:
    """
    Return whether a partition field has this column as its source, and this transform.

    A transform without its parameter, such as `bucket`, stands for those with any. One that is not given stands for all
    but `void`, which does not partition.
    """
    source, wanted = _text(column), None if transform is None else _text(transform)
    for each in _listed(table, "partition_fields"):
        found = each["transform"]
        if each["source"] != source:
            continue
        if (found != "void") if wanted is None else wanted in {found, found.partition("[")[0]}:
            return True
    return False


def is_narrowed(table: Value, result: Value) -> bool:
    """
    Return whether `result` has no place for values that `table` has.

    That is so if a column is gone, if an optional one is required, or if a type is another one to which Iceberg does
    not promote the former: int to long, float to double, decimal(P, S) to a larger P, date to timestamp or
    timestamp_ns, and unknown to all. Columns are the same if their ids are: a new name or place does not matter. A
    table that is created or dropped is not narrowed.
    """
    if _member(table, "exists") is not True or _member(result, "exists") is not True:
        return False
    now = {each["id"]: each for each in _listed(result, "fields")}
    for was in _listed(table, "fields"):
        column = now.get(was["id"])
        if column is None or (column["required"] and not was["required"]) or not _holds(column["type"], was["type"]):
            return True
    return False


def _holds(kind: str, former: str) -> bool:
    """Return whether each value of the `former` type has one in `kind`."""
    if kind == former or former == _UNKNOWN or (former, kind) in _PROMOTIONS:
        return True
    now, was = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(former)
    return now is not None and was is not None and now[2] == was[2] and int(now[1]) >= int(was[1])


def region(place: Value) -> str:
    """
    Return the region of a table, of a location or of properties; the empty text if none is named.

    It is the one in the location's bucket or host, such as `s3://acme-eu-central-1/t`; if there is none, that of the
    properties `client.region`, `s3.region` or `region`, which whoever commits can set.
    """
    if type(place) is str:
        return _region_of_location(place)
    if type(place) is not dict:
        raise TypeError("neither a table, nor a location, nor properties")
    properties: Any = place
    if type(place.get("properties")) is dict:
        properties = place["properties"]
        if found := _region_of_location(_text(place["location"])):
            return found
    return next((_text(properties[name]) for name in _REGION_PROPERTIES if properties.get(name)), "")


def _region_of_location(location: str) -> str:
    try:
        host = urlsplit(location).netloc.lower()
    except ValueError:
        return ""
    found = _REGION.search(host)
    return "" if found is None else found[1]


def _member(table: Value, name: str) -> Any:
    if type(table) is not dict:
        raise TypeError("not a table")
    return table[name]


def _listed(table: Value, name: str) -> list[dict[str, Any]]:
    found = _member(table, name)
    if type(found) is not list:
        raise TypeError("not a table")
    return found


def _text(value: Value) -> str:
    if type(value) is not str:
        raise TypeError("not a text")
    return value


FUNCTIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "classification_satisfied": classification_satisfied,
    "column_type": column_type,
    "has_column": has_column,
    "has_partition": has_partition,
    "is_narrowed": is_narrowed,
    "region": region,
}
