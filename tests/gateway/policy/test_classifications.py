# SPDX-License-Identifier: Apache-2.0
"""What a table's docs and properties say of its classification is found, and nothing else; too much is not known."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.metadata.draft import TableMetadata
from gateway.policy.classifications import (
    CLASSIFICATION_CHARACTERS_MAX,
    CLASSIFICATIONS_MAX,
    classifications_of,
)


def table(*, docs: tuple[str, ...] = (), properties: dict[str, str] | None = None) -> TableMetadata:
    nested = {"type": "struct", "fields": [{"id": 100, "name": "x", "type": "string", "required": False, "doc": "d"}]}
    columns: list[dict[str, Any]] = [
        {"id": number, "name": f"c{number}", "type": "string", "required": False, "doc": doc}
        for number, doc in enumerate(docs, 1)
    ]
    columns.append({"id": 99, "name": "deep", "type": nested, "required": False})
    return TableMetadata(
        {
            "schemas": [{"schema-id": 0, "type": "struct", "fields": columns}],
            "current-schema-id": 0,
            "properties": properties or {},
        }
    )


@pytest.mark.parametrize(
    ("doc", "found"),
    [
        ("of the buyer; classification: email", ("email",)),
        ("classification:email, or not", ("email",)),
        ("Is classification: restricted.", ("restricted",)),
        ("classification: a; classification: b", ("a", "b")),
        ("classification:", ("",)),
        ("classification email", ()),
        ("", ()),
    ],
)
def test_a_doc_says_the_word_behind_it(doc: str, found: tuple[str, ...]) -> None:
    assert classifications_of(table(docs=(doc,))) == found


def test_properties_say_it_of_the_table_and_of_columns() -> None:
    said = {"classification": "restricted", "classification.c1": "email", "classification.deep.x": "email"}
    assert classifications_of(table(properties={**said, "classifications": "no", "owner": "no"})) == (
        "email",
        "restricted",
    )
    assert classifications_of(table(docs=("classification: phone",), properties=said)) == (
        "email",
        "phone",
        "restricted",
    )


def test_a_column_within_another_one_says_it_too() -> None:
    metadata = table()
    metadata["schemas"][0]["fields"][-1]["type"]["fields"][0]["doc"] = "classification: iban"
    assert classifications_of(metadata) == ("iban",)


def test_too_much_is_not_known() -> None:
    many = {f"classification.c{number}": str(number) for number in range(CLASSIFICATIONS_MAX)}
    assert len(classifications_of(table(properties=many)) or ()) == CLASSIFICATIONS_MAX
    assert classifications_of(table(docs=("classification: more",), properties=many)) is None
    long = "x" * CLASSIFICATION_CHARACTERS_MAX
    assert classifications_of(table(properties={"classification": long})) == (long,)
    assert classifications_of(table(properties={"classification": long + "x"})) is None


def test_metadata_that_contradicts_the_specification_is_not_known() -> None:
    metadata = table()
    metadata["current-schema-id"] = 7
    assert classifications_of(metadata) is None
