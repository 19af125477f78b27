# SPDX-License-Identifier: Apache-2.0
"""
What an expression of the corpus gives, found in three ways: by cel-python alone, by our interpreter, and compiled.

A result is a text as the corpus has it (`cel_corpus.py`), so that results of different classes compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from celpy import Environment as CelPython
from celpy import InterpretedRunner, celtypes
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError

from gateway.metadata import Metadata
from gateway.metadata.draft import TableMetadata
from gateway.policy.access import AccessRequest, access_activation
from gateway.policy.cel.compile import NoValueError, compile_tree
from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.natives import FAILURES, CelType, wrapped
from gateway.policy.cel.parse import Node, parse
from gateway.policy.cel.values import TYPES, of_key
from gateway.policy.engine import POLICY
from gateway.policy.variables import (
    ClassifiedView,
    CommitView,
    FindingsView,
    FindingView,
    LineageView,
    PrincipalView,
    RequestView,
    UpstreamView,
    activation,
)
from testkit.gateway.cel_corpus import ERROR, NOT_CEL, SPANS_TYPE, TIMES_TYPE, Group
from testkit.gateway.cel_interpreter import evaluate

_BEFORE: Final[Metadata] = {
    "format-version": 2,
    "table-uuid": "c37b2f7d-74f1-4084-a4bf-1fd6a3b975c7",
    "location": "s3://lake/sales/orders",
    "current-schema-id": 0,
    "schemas": [
        {
            "schema-id": 0,
            "type": "struct",
            "fields": [
                {"id": 1, "name": "order_id", "required": True, "type": "long"},
                {"id": 2, "name": "tenant_id", "required": False, "type": "string", "doc": "owner of the row"},
            ],
        },
        {
            "schema-id": 1,
            "type": "struct",
            "fields": [
                {"id": 1, "name": "order_id", "required": True, "type": "long"},
                {"id": 2, "name": "tenant_id", "required": False, "type": "string", "doc": "owner of the row"},
                {"id": 3, "name": "amount", "required": False, "type": "decimal(9, 2)"},
            ],
        },
    ],
    "default-spec-id": 0,
    "partition-specs": [
        {"spec-id": 0, "fields": []},
        {
            "spec-id": 1,
            "fields": [{"name": "tenant_id", "transform": "identity", "source-id": 2, "field-id": 1000}],
        },
    ],
    "default-sort-order-id": 0,
    "sort-orders": [
        {"order-id": 0, "fields": []},
        {
            "order-id": 1,
            "fields": [{"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}],
        },
    ],
    "properties": {"owner": "ann", "größe": "1"},
    "current-snapshot-id": 993863745535017463,
    "snapshots": [
        {"snapshot-id": 993863745535017463, "summary": {"operation": "append", "added-records": "3"}},
    ],
    "refs": {"main": {"snapshot-id": 993863745535017463, "type": "branch"}},
}
_AFTER: Final[Metadata] = {
    **_BEFORE,
    "current-schema-id": 1,
    "default-spec-id": 1,
    "default-sort-order-id": 1,
    "properties": {"owner": "eve"},
}
_COMMIT: Final = CommitView(
    catalog="lake",
    namespace=("sales", "eu"),
    name="orders",
    kind="table",
    operation="table.commit",
    actions=("META_ADD_SCHEMA", "META_SET_PROPERTIES"),
    updates=(
        {"action": "add-schema", "schema": {"type": "struct", "fields": []}},
        {"action": "set-properties", "updates": {"owner": "eve"}},
    ),
    requirements=({"type": "assert-table-uuid", "uuid": _BEFORE["table-uuid"]},),
)
_PRINCIPAL: Final = PrincipalView(
    actor="0123456789abcdef0123456789abcdef",
    source="api_key",
    sub="ann",
    email="ann@example.com",
    roles=("data-eng", "reader"),
    groups=("analysts",),
    attributes=(("team", "sales"),),
)
_REQUEST: Final = RequestView(
    method="POST",
    path="/v1/iceberg/lake/namespaces/sales/tables/orders",
    client_version="PyIceberg 0.12",
    time="2026-11-21T12:00:00Z",
    address="192.0.2.7",
)
_FINDINGS: Final = FindingsView(
    columns=tuple(
        FindingView(
            column=column,
            field_id=field_id,
            kind=kind,
            confidence=confidence,
            matches=9,
            values=10,
            snapshot="7",
            found_at="2026-11-20T12:00:00.000000Z",
        )
        for column, field_id, kind, confidence in (("tenant_id", 2, "email", 92), ("amount", 3, "phone", 55))
    ),
    scanned_at="2026-11-20T12:00:00.000000Z",
    scanned_snapshot="7",
    as_of=12,
)
_LINEAGE: Final = LineageView(
    upstream=(
        UpstreamView(catalog="lake", namespace=("crm",), name="people", uuid="u", hops=1, kinds=(("email", 92),)),
    ),
    classified=(
        ClassifiedView(
            catalog="lake",
            namespace=("crm",),
            name="people",
            uuid="u",
            hops=1,
            is_known=True,
            classifications=("email", "restricted"),
        ),
    ),
    as_of=11,
)


@cache
def variables(kind: str = POLICY) -> Mapping[str, Any]:
    """
    Return the variables of policies and of access rules for one commit, which adds a column to a table.

    The variable `type` is of access rules alone: elsewhere it is CEL's type of types.
    """
    table = TableMetadata(_BEFORE)
    of_policies = activation(
        table=table,
        result=TableMetadata(_AFTER),
        commit=_COMMIT,
        principal=_PRINCIPAL,
        request=_REQUEST,
        findings=_FINDINGS,
        lineage=_LINEAGE,
    )
    of_rules = access_activation(AccessRequest(commit=_COMMIT, principal=_PRINCIPAL), ref="main")
    if kind == POLICY:
        del of_rules["type"]
    return {**of_policies, **of_rules}


@cache
def _cel_python(kind: str) -> tuple[CelPython, Mapping[str, Any]]:
    """cel-python as it comes, and the same variables in its classes."""
    converted = {name: json_to_cel(value) for name, value in variables(kind).items()}
    return CelPython(runner_class=InterpretedRunner), converted


def by_cel_python(expression: str, kind: str = POLICY) -> str:
    """Return what cel-python gives by itself."""
    environment, converted = _cel_python(kind)
    try:
        tree = environment.compile(expression)
    except CELParseError:
        return NOT_CEL
    try:
        return shown(environment.program(tree).evaluate(converted))
    except Exception:  # noqa: BLE001  whatever it raises, there is no value
        return ERROR


@cache
def tree_of(expression: str) -> Node:
    """Return the syntax tree of an expression; parsing is most of the work on the corpus."""
    return parse(expression, Interruption())


def by_interpreter(expression: str, kind: str = POLICY) -> str:
    """Return what our interpreter gives, with which compiled expressions are compared."""
    values = {name: wrapped(value) for name, value in variables(kind).items()}
    try:
        value = evaluate(tree_of(expression), values, Interruption())
    except FAILURES:
        return ERROR
    return ERROR if isinstance(value, CELEvalError) else shown(value)


def compiled(expression: str, kind: str = POLICY) -> str:
    """Return what the functions give to which we compile an expression."""
    values = variables(kind)
    try:
        return shown(compile_tree(tree_of(expression), list(values), Interruption()).value(values))
    except NoValueError:
        return ERROR


_TYPE_NAMES: Final[Mapping[type, str]] = {
    **{kind: name for name, kind in TYPES.items()},
    celtypes.TimestampType: TIMES_TYPE,
    celtypes.DurationType: SPANS_TYPE,
}
_ESCAPES: Final = {
    ord(character): escape
    for character, escape in (
        ("\\", r"\\"), ("'", r"\'"), ("\a", r"\a"), ("\b", r"\b"), ("\f", r"\f"), ("\n", r"\n"), ("\r", r"\r"),
        ("\t", r"\t"), ("\v", r"\v"), ("\0", r"\x00"),
    )
}  # fmt: skip


_FORMS: Final[Sequence[tuple[Any, Callable[[Any], str]]]] = (
    (CELEvalError, lambda _: ERROR),
    (type(None), lambda _: "null"),
    ((bool, celtypes.BoolType), lambda value: "true" if value == 1 else "false"),  # before int, which both are
    (celtypes.UintType, lambda value: f"{int(value)}u"),
    (int, lambda value: str(int(value))),
    (float, lambda value: _double(float(value))),
    (str, lambda value: f"'{str.__str__(value).translate(_ESCAPES)}'"),
    (bytes, lambda value: repr(bytes(value))),
    (datetime, lambda value: f"timestamp('{_time(value)}')"),
    (timedelta, lambda value: f"duration('{_seconds(value)}s')"),
    (list, lambda value: f"[{', '.join(map(shown, value))}]"),
    (dict, lambda value: f"{{{', '.join(f'{shown(of_key(key))}: {shown(item)}' for key, item in value.items())}}}"),
    (CelType, lambda value: shown(value.wrapped)),
    (type, lambda value: _TYPE_NAMES.get(value, value.__name__)),
)


def shown(value: Any) -> str:
    """Return the literal of a value, in our classes or cel-python's. Values of two types never look alike."""
    return next((form(value) for classes, form in _FORMS if isinstance(value, classes)), repr(value))


def _double(value: float) -> str:
    return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))


def _time(value: datetime) -> str:
    text = value.astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{text.rstrip('0') if '.' in text else text}Z"


def _seconds(value: timedelta) -> str:
    whole, micros = divmod(abs(value) // timedelta(microseconds=1), 10**6)
    text = f"{whole}.{micros:06}".rstrip("0").rstrip(".")
    return f"-{text}" if value < timedelta(0) else text


def differences_of_ours(group: Group) -> list[tuple[str, str, str, str]]:
    """
    Return the entries that the corpus is wrong about: expression, what it says, what is compiled, what is interpreted.

    Entries that are refused are left out.
    """
    found = [
        (
            entry.expression,
            entry.result,
            compiled(entry.expression, group.kind),
            by_interpreter(entry.expression, group.kind),
        )
        for entry in group.entries
        if entry.refused is None
    ]
    return [each for each in found if not each[1] == each[2] == each[3]]
