# SPDX-License-Identifier: Apache-2.0
"""Which types of columns are looked at, and what becomes of structs, lists and maps."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from spark_detect.classify import ColumnCounts, Pattern, classify
from spark_detect.classify.columns import as_texts, leaves, scan_array
from testkit.spark_detect.families import card, column

CARDS = column(card, 50)
NUMBERS = [int(number) for number in CARDS]


@pytest.mark.parametrize(
    "kind",
    [pa.int64(), pa.uint64(), pa.decimal128(16), pa.decimal128(19, 0), pa.decimal128(38), pa.decimal256(40)],
    ids=str,
)
def test_cards_are_found_among_numbers(kind: pa.DataType) -> None:
    array = pa.array([None, *map(Decimal, NUMBERS), -4111111111111111, 0, 536904399], pa.decimal256(40)).cast(
        kind, safe=False
    )
    if kind == pa.uint64():
        array = pa.array([None, *NUMBERS, 2**64 - 1, 0, 536904399], kind)
    found = scan_array(array)
    assert found.values == 53
    assert found.of(Pattern.CREDIT_CARD) == scan_array(pa.array(CARDS)).of(Pattern.CREDIT_CARD)
    assert [finding.confidence_percent for finding in classify("card_number", found)] == [92]
    assert [finding.confidence_percent for finding in classify("n", found)] == [55]


@pytest.mark.parametrize("blank", ["", "  ", "\t\n"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_an_empty_text_is_no_value_and_hides_no_address(kind: pa.DataType, blank: str) -> None:
    texts = [f"ada{number}@example.com" if number % 25 == 0 else [blank, None][number % 2] for number in range(1_000)]
    found = scan_array(pa.array(texts, pa.string()).cast(kind))
    assert found.values == 40
    assert [finding.confidence_percent for finding in classify("contact_email", found)] == [92]
    assert [finding.confidence_percent for finding in classify("notes", found)] == [55]
    # Among texts that say something, one in 25 is too few for more than the name.
    told = scan_array(pa.array([text if text and "@" in text else "nothing to see" for text in texts]))
    assert told.values == 1_000
    assert [finding.confidence_percent for finding in classify("contact_email", told)] == [65]


def test_bytes_that_a_table_calls_texts_are_looked_at_as_texts() -> None:
    texts = pa.array([*CARDS, None, ""])
    for kind in (pa.binary(), pa.large_binary()):
        as_bytes = pa.array([None if text is None else text.encode() for text in texts.to_pylist()], kind)
        assert scan_array(as_texts(as_bytes)) == scan_array(texts)
        assert scan_array(as_texts(as_bytes.slice(3))) == scan_array(texts.slice(3))
        assert scan_array(as_texts(as_bytes.dictionary_encode())) == scan_array(texts)
    assert as_texts(texts) is texts


@pytest.mark.parametrize("number", [536904399, 4155552671, 491711234567])
def test_nothing_else_is_looked_for_among_numbers(number: int) -> None:
    assert scan_array(pa.array([number] * 50)) == ColumnCounts(values=50)
    assert scan_array(pa.array([str(number)] * 50)) != ColumnCounts(values=50)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None], pa.int8()),
        pa.array([2**31 - 1, None], pa.int32()),
        pa.array([4111111111111111.0, None]),
        pa.array([Decimal("4111111111111111.00"), None]),
        pa.array([Decimal(4111), None], pa.decimal128(12)),
        pa.array([True, None]),
        pa.array([date(2026, 11, 20), None]),
        pa.array([datetime(2026, 11, 20), None]),  # noqa: DTZ001 - a column without a zone
        pa.array([b"4111111111111111", None]),
        pa.array([b"4111111111111111", None], pa.binary(16)),
        pa.array([["4111111111111111"], None]),
        pa.array([{"a": "4111111111111111"}, None]),
        pa.array([[("a", "4111111111111111")], None], pa.map_(pa.string(), pa.string())),
    ],
    ids=lambda array: str(array.type),
)
def test_other_columns_are_counted_and_not_looked_at(array: pa.Array) -> None:
    assert scan_array(array) == ColumnCounts(values=1)
    assert scan_array(array.slice(1)) == ColumnCounts()


def test_a_column_of_nulls_has_no_values() -> None:
    assert scan_array(pa.nulls(3)) == ColumnCounts()
    assert scan_array(pa.chunked_array([], pa.string())) == ColumnCounts()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.int64(), pa.decimal128(19)], ids=str)
def test_an_entry_of_a_dictionary_counts_as_often_as_it_is_referred_to(kind: pa.DataType) -> None:
    entries = (
        pa.array([*CARDS, None], pa.string()) if pa.types.is_string(kind) else pa.array([*NUMBERS, None]).cast(kind)
    )
    indices = pa.array([0, 0, None, 3, 50, 2, 0], pa.int8())
    encoded = pa.DictionaryArray.from_arrays(indices, entries.cast(kind))
    expected = scan_array(pa.array([CARDS[at] for at in (0, 0, 3, 2, 0)]))
    assert scan_array(encoded) == expected
    assert scan_array(encoded.slice(2)) == scan_array(pa.array([CARDS[at] for at in (3, 2, 0)]))
    unused = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), entries.cast(kind))
    assert scan_array(unused) == ColumnCounts()


def test_extension_types_are_what_they_are_stored_as() -> None:
    json = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"card": "4111111111111111"}']))
    assert scan_array(json).of(Pattern.CREDIT_CARD).valid == 1
    identifiers = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"4111111111111111"], pa.binary(16)))
    assert scan_array(identifiers) == ColumnCounts(values=1)


NESTED = pa.struct(
    [
        ("email", pa.string()),
        ("phones", pa.list_(pa.struct([("number", pa.string()), ("kind", pa.string())]))),
        ("tags", pa.map_(pa.string(), pa.large_list(pa.int64()))),
    ]
)
ROWS = [
    {"email": "x@example.com", "phones": [{"number": "x", "kind": "x"}], "tags": [("x", [0])]},
    {"email": "a@example.com", "phones": [{"number": "1", "kind": "home"}, {"number": "2", "kind": None}], "tags": []},
    None,
    {"email": None, "phones": None, "tags": [("b", [1, 2]), ("c", None)]},
]
LEAVES = {
    "contact.email": ["a@example.com", None, None],
    "contact.phones.element.number": ["1", "2"],
    "contact.phones.element.kind": ["home", None],
    "contact.tags.key": ["b", "c"],
    "contact.tags.value.element": [1, 2],
}


def test_structs_lists_and_maps_are_taken_apart_by_their_iceberg_paths() -> None:
    array = pa.array(ROWS, NESTED).slice(1)
    assert {path: leaf.to_pylist() for path, leaf in leaves("contact", array)} == LEAVES
    chunks = list(leaves("contact", pa.chunked_array([array.slice(0, 1), array.slice(1)])))
    assert [path for path, _ in chunks] == [*LEAVES, *LEAVES]
    assert sum((scan_array(leaf) for path, leaf in chunks if path == "contact.email"), start=ColumnCounts()).values == 1


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.string(), 2), pa.list_view(pa.string()), pa.large_list_view(pa.string())], ids=str
)
def test_lists_of_all_sorts_are_taken_apart(kind: pa.DataType) -> None:
    array = pa.array([["x", "y"], ["a", "b"], None], kind).slice(1)
    assert [(path, leaf.to_pylist()) for path, leaf in leaves("c", array)] == [("c.element", ["a", "b"])]


def test_a_flat_column_is_its_own_leaf() -> None:
    array = pa.array(["a"])
    assert list(leaves("name", array)) == [("name", array)]
    assert [
        path
        for path, _ in leaves("id", pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16))))
    ] == ["id"]
