# SPDX-License-Identifier: Apache-2.0
"""
A table's schemas through time: what each added, removed, renamed or changed. Pure.

Columns are told apart by their field ids (Iceberg table specification, "Column Projection"), so that one that got
another name is one that was renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

COLUMNS_MAX: Final = 1_000
"""Of one schema; further ones are not compared."""
DEPTH_MAX: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column by its path, with its type in a word."""

    path: str
    type: str
    is_required: bool
    doc: str

    @property
    def words(self) -> str:
        """What it is."""
        return f"{self.type}, required" if self.is_required else self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """
    A schema, and how it differs from the one before it. `decision` is the decision that added it, as the API shows it,
    if that can be told.
    """

    schema_id: int
    is_current: bool
    columns: int
    added: Sequence[Column] = ()
    removed: Sequence[Column] = ()
    renamed: Sequence[tuple[str, str]] = ()
    changed: Sequence[tuple[str, str, str]] = ()
    """Path, what it was, and what it is."""
    decision: Mapping[str, Any] | None = None


def schema_steps(
    schemas: Sequence[Mapping[str, Any]], *, current: int | None, changes: Sequence[Mapping[str, Any]], is_whole: bool
) -> list[Step]:
    """
    Return the schemas of a table, the newest first.

    `changes` are the decisions that were to add one, newest first, and `is_whole` says whether these are all. Metadata
    does not say which commit added a schema: only where there are as many accepted ones as schemas, each is told its
    own.
    """
    accepted = [each for each in changes if (each["outcome"] or {}).get("outcome") == "accepted"][::-1]
    decisions = accepted if is_whole and len(accepted) == len(schemas) else [None] * len(schemas)
    ordered = sorted(schemas, key=lambda schema: int(schema.get("schema-id", 0)))
    steps: list[Step] = []
    before: Mapping[int, Column] = {}
    for schema, decision in zip(ordered, decisions, strict=True):
        columns = columns_of(schema)
        schema_id = int(schema.get("schema-id", 0))
        steps.append(
            Step(
                schema_id=schema_id,
                is_current=schema_id == current,
                columns=len(columns),
                added=[columns[each] for each in columns if each not in before],
                removed=[before[each] for each in before if each not in columns],
                renamed=[
                    (before[each].path, columns[each].path)
                    for each in columns
                    if each in before and before[each].path != columns[each].path
                ],
                changed=[
                    change for each in columns if each in before for change in _changed(before[each], columns[each])
                ],
                decision=decision,
            )
        )
        before = columns
    return steps[::-1]


def columns_of(schema: Mapping[str, Any]) -> dict[int, Column]:
    """
    Return the columns of a schema by field id, also those within others, at most `COLUMNS_MAX`.
    """
    found: dict[int, Column] = {}
    for field_id, column in _columns(schema, prefix=(), depth=0):
        if len(found) == COLUMNS_MAX:
            break
        found[field_id] = column
    return found


def _columns(type_: Any, *, prefix: tuple[str, ...], depth: int) -> Iterator[tuple[int, Column]]:
    """Yield the columns within a type (Iceberg table specification, appendix C)."""
    if not isinstance(type_, Mapping) or depth > DEPTH_MAX:
        return
    match type_.get("type"):
        case "struct":
            within = [
                (each.get("id"), str(each.get("name", "")), each.get("type"), each.get("required"), each.get("doc"))
                for each in type_.get("fields", ())
            ]
        case "list":
            within = [(type_.get("element-id"), "element", type_.get("element"), type_.get("element-required"), None)]
        case "map":
            within = [
                (type_.get("key-id"), "key", type_.get("key"), True, None),
                (type_.get("value-id"), "value", type_.get("value"), type_.get("value-required"), None),
            ]
        case _:
            return
    for field_id, name, inner, required, doc in within:
        path = (*prefix, name)
        if isinstance(field_id, int):
            column = Column(path=".".join(path), type=_word(inner), is_required=bool(required), doc=str(doc or ""))
            yield field_id, column
        yield from _columns(inner, prefix=path, depth=depth + 1)


def _word(type_: Any) -> str:
    return str(type_.get("type", "")) if isinstance(type_, Mapping) else str(type_)


def _changed(before: Column, after: Column) -> Iterator[tuple[str, str, str]]:
    if before.words != after.words:
        yield after.path, before.words, after.words
    if before.doc != after.doc:
        yield after.path, before.doc or "no doc", after.doc or "no doc"
