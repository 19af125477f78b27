# SPDX-License-Identifier: Apache-2.0
"""
What an author writes of a restriction: read strictly, checked against its schemas and by its examples, and kept whole.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

import pytest

from gateway.errors import BadRequestError
from gateway.policy.policy_files import PolicyFileError
from gateway.policy.restriction_files import parse_restriction, read_restrictions
from gateway.policy.restrictions.columns import COLUMNS_MAX, format_schema, parse_schema
from gateway.policy.restrictions.compiled import RestrictionRefusedError, check_against, compile_for, read_restriction
from gateway.policy.restrictions.contents import (
    EXAMPLES_MAX,
    MASKS_MAX,
    SCHEMAS_MAX,
    SIZE_BYTES_MAX,
    examples_of,
    format_contents,
    parse_contents,
    schemas_of,
)
from gateway.policy.restrictions.examples import failing
from gateway.policy.restrictions.form import format_restrictions
from gateway.policy.restrictions.values import format_value, parse_row
from gateway.policy.restrictions.written import Written
from ledger.format.events import MaskAction, RestrictionContents, from_data, to_data
from testkit.gateway.restrictions import EU_ORDERS, EVERY_TYPE, ORDERS, caller, read, schema_of
from testkit.system.documents import blocks_of

FILE: Final = b"""\
id: eu-orders
reason: contracts
scope:
  names: [sales.orders]
filter: |
  row.region == 'EU'
    || 'admin' in principal.roles
masks:
  - column: email
    action: show-last-4
    unless: "'support' in principal.groups"
schemas:
  orders:
    fields:
      - {id: 1, name: id, required: true, type: long}
      - {id: 2, name: region, required: false, type: string}
      - {id: 3, name: email, required: false, type: string}
examples:
  - rows:
      - {row: {id: 1, region: EU, email: ada@acme.example}, expect: shown, values: {email: xxx@xxxx.xxxmple}}
      - {row: {id: 2}, expect: hidden}
"""


class ReadsHere:
    """Reads expressions in this process: their texts are the test's own."""

    async def read_condition(self, expression: str, *, kind: str, log_id: int, timeout_s: float) -> Written:
        """See `ReadsConditions.read_condition`."""
        assert log_id == 1
        assert timeout_s == 1
        return read(expression, kind=kind)


async def refused(members: dict[str, Any], *, schema: dict[str, Any] = ORDERS) -> RestrictionRefusedError:
    contents = parse_contents({"schemas": {"t": schema}, **members})
    with pytest.raises(RestrictionRefusedError) as error:
        check_against(await read_restriction(ReadsHere(), contents, log_id=1, timeout_s=1), schema_of(schema))
    return error.value


async def sentences(members: dict[str, Any]) -> tuple[str, ...]:
    contents = parse_contents(members)
    restriction = await read_restriction(ReadsHere(), contents, log_id=1, timeout_s=1)
    return failing(restriction, schemas_of(contents), examples_of(contents))


def test_what_is_written_is_what_is_kept_and_shown() -> None:
    contents = parse_contents(EU_ORDERS)
    assert from_data(RestrictionContents, to_data(contents)) == contents
    shown = format_contents(contents)
    assert parse_contents(shown) == contents
    assert shown["filter"] == EU_ORDERS["filter"]
    assert shown["masks"] == EU_ORDERS["masks"]
    assert shown["scope"] == EU_ORDERS["scope"]


@pytest.mark.parametrize("schema", [ORDERS, EVERY_TYPE])
def test_a_schema_comes_back(schema: dict[str, Any]) -> None:
    parsed = parse_schema(schema)
    assert parse_schema(format_schema(parsed)) == parsed
    assert len({column.id for column in parsed.columns}) == len(parsed.columns)


def _put(path: list[Any], value: Any) -> Callable[[dict[str, Any]], None]:
    def change(members: dict[str, Any]) -> None:
        inner: Any = members
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value

    return change


FIELDS: Final = ["schemas", "orders", "fields"]
ROW: Final = ["examples", 0, "rows", 0]


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        (_put(["mask"], []), None, "the nearest is masks"),
        (_put(["filter"], 1), "filter", "expected CEL in a text"),
        (_put(["filter"], "  "), "filter", "expected CEL in a text"),
        (_put(["masks"], "x"), "masks", "expected a list"),
        (_put(["masks"], [{}] * (MASKS_MAX + 1)), "masks", "at most 100"),
        (_put(["masks", 0, "action"], "show-last-five"), "masks[0].action", "the nearest is show-last-4"),
        (_put(["masks", 0, "column"], ""), "masks[0].column", "printable"),
        (_put(["masks", 0, "unless"], 1), "masks[0].unless", "expected CEL in a text"),
        (_put(["masks", 0, "when"], "x"), "masks[0]", "the nearest is"),
        (_put(["scope", "kinds"], ["table"]), "scope.kinds", "about reading tables"),
        (_put(["scope", "operations"], ["table.commit"]), "scope.operations", "about reading tables"),
        (_put(["scope", "names"], ["*"]), "scope.names[0]", "expected the path"),
        (_put(["schemas"], {}), "schemas", "1 to 8 schemas"),
        (_put(["schemas"], {str(number): ORDERS for number in range(SCHEMAS_MAX + 1)}), "schemas", "1 to 8 schemas"),
        (_put(["schemas", "orders"], []), "schemas.orders", "expected a schema"),
        (_put([*FIELDS], []), "schemas.orders.fields", "at least one field"),
        (_put([*FIELDS, 0, "id"], 2), "schemas.orders.fields[1].id", "no other field has"),
        (_put([*FIELDS, 0, "id"], True), "schemas.orders.fields[0].id", "expected a number"),
        (_put([*FIELDS, 0, "name"], "region"), "schemas.orders.fields[1].name", "each name once"),
        (_put([*FIELDS, 0, "required"], None), "schemas.orders.fields[0].required", "true or false"),
        (_put([*FIELDS, 0, "type"], "decimal(39,2)"), "schemas.orders.fields[0].type", "expected a type"),
        (_put([*FIELDS, 0, "type"], "decimal(2,3)"), "schemas.orders.fields[0].type", "expected a type"),
        (_put([*FIELDS, 0, "type"], {"type": "set"}), "schemas.orders.fields[0].type.type", "struct, list or map"),
        (
            _put([*FIELDS, 0, "type"], {"type": "list", "element-id": 9, "element": "long"}),
            "schemas.orders.fields[0].type.element-required",
            "true or false",
        ),
        (_put(["examples"], [{}] * (EXAMPLES_MAX + 1)), "examples", "at most 50"),
        (_put(["examples", 0, "schema"], "order"), "examples[0].schema", "one of the schemas (orders)"),
        (_put(["examples", 0, "rows"], []), "examples[0].rows", "1 to 50 rows"),
        (_put(["examples", 0, "row"], []), "examples[0]", "the nearest is rows"),
        (_put(["examples", 0, "principal", "role"], "x"), "examples[0].principal", "the nearest is roles"),
        (_put(["examples", 0, "principal", "roles"], "x"), "examples[0].principal.roles", "a list"),
        (_put([*ROW, "expect"], "seen"), "examples[0].rows[0].expect", "shown or hidden"),
        (_put([*ROW, "expect"], "hidden"), "examples[0].rows[0].values", "expected none"),
        (_put([*ROW, "row", "regoin"], "EU"), "examples[0].rows[0].row", "the nearest is region"),
        (_put([*ROW, "row", "id"], None), "examples[0].rows[0].row.id", "is required"),
        (_put([*ROW, "row", "id"], "1"), "examples[0].rows[0].row.id", "an integer of 64 bits"),
        (_put([*ROW, "row", "region"], "\ud800"), "examples[0].rows[0].row.region", "a text"),
        (_put([*ROW, "values", "mail"], "x"), "examples[0].rows[0].values", "the nearest is email"),
    ],
)
def test_what_is_malformed_is_refused_with_its_place(
    change: Callable[[dict[str, Any]], None], field: str | None, words: str
) -> None:
    members = deepcopy(EU_ORDERS)
    change(members)
    with pytest.raises(BadRequestError) as error:
        parse_contents(members)
    assert words in str(error.value)
    assert error.value.field == field


def test_what_would_restrict_nothing_is_refused() -> None:
    with pytest.raises(BadRequestError, match="it would restrict nothing"):
        parse_contents({"schemas": {"orders": ORDERS}})


def test_what_would_not_fit_into_an_event_is_refused() -> None:
    rows: list[Any] = [{"row": {"id": 1, "region": "x" * 4_000}, "expect": "hidden"}] * 16
    with pytest.raises(BadRequestError, match=f"at most {SIZE_BYTES_MAX:,} bytes"):
        parse_contents({**EU_ORDERS, "examples": [{"rows": rows}]})


def test_a_schema_is_bounded() -> None:
    fields: list[Any] = [
        {"id": number, "name": f"c{number}", "required": False, "type": "int"} for number in range(COLUMNS_MAX)
    ]
    parse_schema({"fields": fields})
    with pytest.raises(BadRequestError, match="at most 1,000 fields"):
        parse_schema({"fields": [*fields, {"id": COLUMNS_MAX, "name": "c", "required": False, "type": "int"}]})
    deep: Any = "int"
    for number in range(16):
        deep = {"type": "list", "element-id": number + 1, "element": deep, "element-required": False}
    with pytest.raises(BadRequestError, match="at most 16 levels"):
        parse_schema({"fields": [{"id": 0, "name": "c", "required": False, "type": deep}]})


async def test_the_examples_hold_and_what_does_not_is_said() -> None:
    assert await sentences(EU_ORDERS) == ()
    members = deepcopy(EU_ORDERS)
    members["filter"] = "row.region != 'EU'"
    assert await sentences(members) == (
        "example 1 (an analyst), row 1: expected it to be shown, found it hidden",
        "example 1 (an analyst), row 2: expected it to be hidden, found it shown",
    )
    members = {**deepcopy(EU_ORDERS), "masks": [{"column": "email", "action": "mask-alphanum"}]}
    assert await sentences(members) == (
        "example 1 (an analyst), row 1: email: expected 'xxx@xxxx.xxxmple', found 'xxx@xxxx.xxxxxxx'",
        "example 2 (an administrator of support), row 1: email: expected 'bob@acme.example', found 'xxx@xxxx.xxxxxxx'",
    )


async def test_a_hash_that_differs_with_each_query_is_never_compared() -> None:
    members = {**deepcopy(EU_ORDERS), "masks": [{"column": "email", "action": "sha-256-query-local"}]}
    del members["examples"][0]["rows"][0]["values"]
    assert await sentences(members) == ()
    members["examples"][0]["rows"][0]["values"] = {"email": "ba78"}
    assert await sentences(members) == (
        "example 1 (an analyst), row 1: email: expected no value, since it differs with each query, found one",
    )


async def test_a_restriction_is_compiled_for_one_caller() -> None:
    contents = parse_contents(EU_ORDERS)
    restriction = await read_restriction(ReadsHere(), contents, log_id=1, timeout_s=1)
    email = [{"field-id": 3, "action": "show-last-4"}]
    region = {"type": "eq", "left": {"type": "reference", "id": 2}, "right": {"type": "literal", "value": "EU"}}
    for who, expected in (
        (caller(), {"required-row-filter": region, "required-column-projections": email}),
        (caller(roles=("admin",)), {"required-column-projections": email}),
        (caller(groups=("support",)), {"required-row-filter": region}),
        (caller(roles=("admin",), groups=("support",)), {}),
    ):
        assert format_restrictions(compile_for(restriction, schema_of(ORDERS), who)) == expected


@pytest.mark.parametrize(
    ("masks", "member", "words"),
    [
        ([("emial", "mask-alphanum")], "masks[0].column", "the nearest is 'email'"),
        ([("id", "mask-alphanum")], "masks[0].action", "mask-alphanum is not for a long"),
        ([("id", "replace-with-null")], "masks[0].action", "is required"),
        ([("email", "mask-alphanum"), ("email", "show-last-4")], "masks[1].column", "email is masked twice"),
    ],
)
async def test_a_mask_that_no_reader_could_apply_is_refused(
    masks: list[tuple[str, str]], member: str, words: str
) -> None:
    error = await refused({"masks": [{"column": column, "action": action} for column, action in masks]})
    assert (error.member, words in error.reason) == (member, True), error


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("address", "address.city"), ("tags", "tags.element"), ("prices", "prices.value")],
)
@pytest.mark.parametrize("turned", [False, True])
async def test_a_field_and_one_around_it_cannot_both_be_masked(outer: str, inner: str, turned: bool) -> None:
    masks = [{"column": outer, "action": "mask-to-fixed-value"}, {"column": inner, "action": "replace-with-null"}]
    error = await refused({"masks": masks[::-1] if turned else masks}, schema=EVERY_TYPE)
    assert error.member == f"masks[{0 if turned else 1}].column"
    assert f"{inner} is within {outer}" in error.reason


async def test_the_key_of_a_map_cannot_be_masked() -> None:
    error = await refused({"masks": [{"column": "prices.key", "action": "mask-alphanum"}]}, schema=EVERY_TYPE)
    assert "the key of a map" in error.reason


async def test_a_name_that_means_two_columns_is_refused() -> None:
    fields = [
        {"id": 1, "name": "a.b", "required": False, "type": "string"},
        {
            "id": 2,
            "name": "a",
            "required": False,
            "type": {"type": "struct", "fields": [{"id": 3, "name": "b", "required": False, "type": "string"}]},
        },
    ]
    error = await refused({"masks": [{"column": "a.b", "action": "mask-alphanum"}]}, schema={"fields": fields})
    assert "names 2 columns" in error.reason


async def test_an_expression_that_is_refused_says_in_which_member_it_stands() -> None:
    masks = [{"column": "email", "action": "mask-alphanum", "unless": "row.id == 1"}]
    error = await refused({"masks": masks})
    assert (error.member, error.line, error.column) == ("masks[0].unless", 1, 1)
    error = await refused({"filter": "row.region ==\n row.email"})
    assert (error.member, error.line, error.column) == ("filter", 1, 1)


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1},
        {
            "id": -(2**63),
            "c_boolean": True,
            "c_int": 2**31 - 1,
            "c_long": 2**63 - 1,
            "c_float": 1.5,
            "c_double": -0.25,
            "c_decimal": "-1234567.89",
            "c_date": "0001-01-01",
            "c_time": "23:59:59.999999",
            "c_timestamp": "9999-12-31T23:59:59.999999",
            "c_timestamptz": "1969-12-31T23:59:59.999999+00:00",
            "c_timestamp_ns": "1969-12-31T23:59:59.999999999",
            "c_timestamptz_ns": "2026-01-31T13:00:00.000000001+00:00",
            "c_string": "é😀",
            "c_uuid": "eb26bdb1-a1d8-4aa6-990e-da940875492c",
            "c_fixed": "00FF00FF",
            "c_binary": "",
            "c_variant": {"a": [1, None]},
            "address": {"city": None, "zip code": "1"},
            "tags": ["a", None],
            "prices": {"keys": ["a", "b"], "values": ["1.00", None]},
        },
    ],
)
def test_a_row_comes_back_as_it_was_written(row: dict[str, Any]) -> None:
    schema = schema_of(EVERY_TYPE)
    parsed = parse_row(schema.fields, row, where="row")
    shown = {field.path[-1]: format_value(field.type, parsed[field.path[-1]]) for field in schema.fields}
    assert {name: value for name, value in shown.items() if value is not None} == row


@pytest.mark.parametrize("name", ["c_float", "c_double"])
def test_what_json_has_no_number_for_is_a_text(name: str) -> None:
    schema = schema_of(EVERY_TYPE)
    (column,) = schema.named(name)
    for text, shown in (("NaN", "nan"), ("-Infinity", "-inf"), ("1.5", 1.5)):
        parsed = parse_row(schema.fields, {"id": 1, name: text}, where="row")[name]
        assert format_value(column.type, parsed) == shown


# Files


def test_a_file_says_a_restriction() -> None:
    file = parse_restriction(FILE, name="eu.yaml")
    assert (file.id, file.reason) == ("eu-orders", "contracts")
    assert file.contents.filter == "row.region == 'EU'\n  || 'admin' in principal.roles"
    assert [mask.action for mask in file.contents.masks] == [MaskAction.SHOW_LAST_4]


def test_a_folder_has_each_id_once(tmp_path: Any) -> None:
    (tmp_path / "a.yaml").write_bytes(FILE)
    assert [file.id for file in read_restrictions(tmp_path)] == ["eu-orders"]
    (tmp_path / "b.yaml").write_bytes(FILE)
    with pytest.raises(PolicyFileError, match=r"b\.yaml:1:1: expected an id that no other file has"):
        read_restrictions(tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong", "place", "words"),
    [
        (b"filter:", b"filtre:", (5, 1), "the nearest is filter"),
        (b"show-last-4", b"show-last-5", (10, 5), "the nearest is show-last-4"),
        (b"id: 2, name: region", b"id: 1, name: region", (16, 10), "no other field has"),
        (b"expect: hidden}", b"expect: gone}", (21, 24), "shown or hidden"),
        (b"id: eu-orders", b"id: 7", (1, 1), "expected a text"),
        (b"schemas:\n", b"schema:\n", (12, 1), "the nearest is schemas"),
    ],
)
def test_a_file_that_is_wrong_is_refused_at_its_place(
    right: bytes, wrong: bytes, place: tuple[int, int], words: str
) -> None:
    assert right in FILE
    with pytest.raises(PolicyFileError) as error:
        parse_restriction(FILE.replace(right, wrong, 1), name="eu.yaml")
    assert words in str(error.value)
    assert error.value.place == place, error.value


def test_a_place_in_an_expression_is_one_in_the_file() -> None:
    file = parse_restriction(FILE, name="eu.yaml")
    error = RestrictionRefusedError("filter", "no", line=2, column=6)
    assert str(file.refused(error)) == "eu.yaml:7:8: filter: no"
    error = RestrictionRefusedError("masks[0].unless", "no", line=1, column=1)
    assert str(file.refused(error)) == "eu.yaml:11:14: masks[0].unless: no"
    assert str(file.refused(RestrictionRefusedError("masks[0].action", "no"))) == "eu.yaml:10:5: masks[0].action: no"


async def test_the_example_of_the_page_holds() -> None:
    ((_, text),) = blocks_of("docs/restrictions.md", "yaml")
    file = parse_restriction(text.encode(), name="restrictions.md")
    restriction = await read_restriction(ReadsHere(), file.contents, log_id=1, timeout_s=1)
    examples = examples_of(file.contents)
    assert sum(len(example.rows) for example in examples) == 3
    assert failing(restriction, schemas_of(file.contents), examples) == ()
