# SPDX-License-Identifier: Apache-2.0
"""
Pins: the requirements added to a commit hold for the judged state, and for no other.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalogs.pins import pins_of, with_requirements
from gateway.errors import BadRequestError, RequirementFailedError
from gateway.metadata import apply_updates, check_requirements, create_updates, parse_requirements, parse_updates

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": True}]}
UUID = "0f6b5a3e-2f0c-4d3c-9a44-2a5e1d6c7b80"


def table(*updates: dict[str, Any]) -> dict[str, Any]:
    created = create_updates({"schema": SCHEMA, "name": "t"}, table_uuid=UUID, location="s3://b/t")
    metadata = apply_updates(None, created, now_ms=1, base_location=None)
    return apply_updates(metadata, parse_updates(list(updates)), now_ms=2, base_location="s3://b/0.json")


def snapshot(number: int, ref: str = "main") -> list[dict[str, Any]]:
    return [
        {
            "action": "add-snapshot",
            "snapshot": {
                "snapshot-id": number,
                "sequence-number": number,
                "timestamp-ms": number,
                "manifest-list": "s3://b/l.avro",
                "summary": {"operation": "append"},
                "schema-id": 0,
            },
        },
        {"action": "set-snapshot-ref", "ref-name": ref, "type": "branch", "snapshot-id": number},
    ]


def test_a_commit_is_pinned_to_what_policies_read() -> None:
    pins = pins_of(table(*snapshot(7)), parse_updates(snapshot(8, "audit")), ())
    assert list(pins) == [
        {"type": "assert-table-uuid", "uuid": UUID},
        {"type": "assert-current-schema-id", "current-schema-id": 0},
        {"type": "assert-default-spec-id", "default-spec-id": 0},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
        {"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": None},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7},
    ]
    assert parse_requirements([dict(pin) for pin in pins]) == list(pins), "the specification knows them all"


def test_what_a_commit_requires_itself_is_not_repeated() -> None:
    metadata = table(*snapshot(7))
    own: list[dict[str, Any]] = [
        {"type": "assert-table-uuid", "uuid": UUID.upper()},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7},
    ]
    kinds = [pin["type"] for pin in pins_of(metadata, [], own)]
    assert kinds == ["assert-current-schema-id", "assert-default-spec-id", "assert-default-sort-order-id"]


def test_metadata_of_version_1_is_pinned_by_what_it_has() -> None:
    assert list(pins_of({"current-snapshot-id": 5}, [], ())) == [
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 5}
    ]
    assert list(pins_of({"current-snapshot-id": -1, "refs": None}, [], ())) == [
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}
    ]


@pytest.mark.parametrize(
    "moves",
    [
        snapshot(9),
        [
            {"action": "add-schema", "schema": {**SCHEMA, "fields": []}},
            {"action": "set-current-schema", "schema-id": -1},
        ],
        [
            {"action": "add-spec", "spec": {"fields": [{"name": "i", "transform": "identity", "source-id": 1}]}},
            {"action": "set-default-spec", "spec-id": -1},
        ],
        [{"action": "set-snapshot-ref", "ref-name": "audit", "type": "branch", "snapshot-id": 7}],
        [{"action": "remove-snapshot-ref", "ref-name": "main"}],
    ],
)
def test_pins_hold_until_what_was_judged_moves(moves: list[dict[str, Any]]) -> None:
    judged = table(*snapshot(7))
    pins = pins_of(judged, parse_updates(snapshot(8, "audit")), ())
    check_requirements(judged, pins)
    moved = apply_updates(judged, parse_updates(moves), now_ms=3, base_location="s3://b/1.json")
    with pytest.raises(RequirementFailedError):
        check_requirements(moved, pins)


spaces = st.sampled_from(["", " ", "\n\t "])
requirement = st.fixed_dictionaries({"type": st.text(max_size=5), "n": st.integers(-(2**63), 2**63 - 1)})


@given(own=st.lists(requirement, max_size=3), pins=st.lists(requirement, max_size=3), a=spaces, b=spaces)
def test_pins_stand_behind_the_commits_own_requirements(
    own: list[dict[str, Any]], pins: list[dict[str, Any]], a: str, b: str
) -> None:
    listed = ",".join(json.dumps(one) for one in own)
    before, after = f'{{ "updates":[{{"x":1.50}}],{a}"requirements":', f'{b},"z":null }}'
    found = with_requirements(f"{before}[{a}{listed}{b}]{after}", pins)
    assert json.loads(found)["requirements"] == [*own, *pins]
    assert found.startswith(before)
    assert found.endswith(after)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            '{"requirements":[],"updates":[{"requirements":[9]}]}',
            '{"requirements":[PIN],"updates":[{"requirements":[9]}]}',
        ),
        (
            '{"updates":[{"requirements":[9]}],"requirements":[]}',
            '{"updates":[{"requirements":[9]}],"requirements":[PIN]}',
        ),
        (
            '{"updates":[{"a":"requirements"}],"requirements":[]}',
            '{"updates":[{"a":"requirements"}],"requirements":[PIN]}',
        ),
        (
            '{"updates":{"requirements":[9]},"requirement\\u0073":[]}',
            '{"updates":{"requirements":[9]},"requirement\\u0073":[PIN]}',
        ),
        ('{"requirements":[8],"updates":"\\""}', '{"requirements":[8,PIN],"updates":"\\""}'),
    ],
)
def test_pins_go_where_all_parsers_look_for_requirements(body: str, expected: str) -> None:
    pin = {"type": "x"}
    assert with_requirements(body, [pin]) == expected.replace("PIN", '{"type":"x"}')


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        '{"requirements":null}',
        '{"requirements":[],"requirements":[]}',
        '{"updates":[{"requirements":[]}]}',
        '{"updates":"requirements"}',
        "[]",
        "",
    ],
)
def test_a_body_without_one_list_of_requirements_is_no_commit(body: str) -> None:
    with pytest.raises(BadRequestError):
        with_requirements(body, [{"type": "x"}])
