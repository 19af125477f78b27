# SPDX-License-Identifier: Apache-2.0
"""
A restriction as it was read, checked against a schema, and made for one caller into what that one may see.

Guarantee: what `check_against` lets pass can be compiled for every caller, and obeys the rules of the specification: at
most one action a field, never on a field and one around it, never on the key of a map, none that is not defined for the
column's type, no null for a required one. The condition `unless` of a mask takes it away only where it is true.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

from gateway.errors import UnprocessableError
from gateway.policy.engine import PolicyNotCompiledError
from gateway.policy.restrictions.columns import Column, TableSchema
from gateway.policy.restrictions.form import (
    EVERY_ROW,
    Projection,
    ReadRestrictions,
    RestrictionTooLargeError,
)
from gateway.policy.restrictions.lowering import check_filter, decide, lower_filter
from gateway.policy.restrictions.masking import why_not
from gateway.policy.restrictions.written import MASK_CONDITION, ROW_FILTER, ReadsConditions, Written
from gateway.policy.variables import PrincipalView
from ledger.format.events import MaskAction, RestrictionContents

FILTER: Final = "filter"


class RestrictionRefusedError(UnprocessableError):
    """
    A restriction cannot be saved; `member` says which part of it is to blame, as in `masks[0].unless`.

    `line` and `column` are the place within the text of an expression, from 1; None where no place is to blame.
    """

    def __init__(self, member: str, reason: str, *, line: int | None = None, column: int | None = None) -> None:
        place = "" if line is None else f", line {line}, column {column}"
        super().__init__(f"{member}{place}: {reason}")
        self.member = member
        self.reason = reason
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMask:
    """A mask whose condition was read; `column` is the name of a column with dots, `unless` None without one."""

    column: str
    action: MaskAction
    unless: Written | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRestriction:
    """A restriction whose expressions were read; `row_filter` is None where all rows are shown."""

    row_filter: Written | None
    masks: tuple[ReadMask, ...]


async def read_restriction(
    reader: ReadsConditions, contents: RestrictionContents, *, log_id: int, timeout_s: float
) -> ReadRestriction:
    """
    Return a restriction with its expressions read, each within `timeout_s`.

    Raises:
        RestrictionRefusedError: if one is no row filter, or no condition; carries the place.
        PolicyEngineError: if the engine gave no answer.
    """

    async def read(member: str, expression: str, kind: str) -> Written:
        try:
            return await reader.read_condition(expression, kind=kind, log_id=log_id, timeout_s=timeout_s)
        except PolicyNotCompiledError as error:
            _refuse_place(member, error)

    row_filter = None if contents.filter is None else await read(FILTER, contents.filter, ROW_FILTER)
    masks = []
    for position, mask in enumerate(contents.masks):
        member = f"masks[{position}].unless"
        unless = None if mask.unless is None else await read(member, mask.unless, MASK_CONDITION)
        masks.append(ReadMask(column=mask.column, action=mask.action, unless=unless))
    return ReadRestriction(row_filter=row_filter, masks=tuple(masks))


def check_against(restriction: ReadRestriction, schema: TableSchema) -> None:
    """
    Check that a restriction can be compiled for this schema, whoever the caller is.

    Raises:
        RestrictionRefusedError: if not; says what is to blame, and what to do.
    """
    if restriction.row_filter is not None:
        try:
            check_filter(restriction.row_filter, schema)
        except PolicyNotCompiledError as error:
            _refuse_place(FILTER, error)
        except RestrictionTooLargeError as error:
            raise RestrictionRefusedError(FILTER, str(error)) from error
    columns = [_masked_column(mask, schema, position) for position, mask in enumerate(restriction.masks)]
    _check_apart(columns)


def compile_for(restriction: ReadRestriction, schema: TableSchema, caller: PrincipalView) -> ReadRestrictions:
    """
    Return what one caller may see of a table with this schema.

    Raises:
        RestrictionRefusedError: if the restriction does not fit the schema.
        RestrictionTooLargeError: if the caller has more roles or groups than a filter takes.
    """
    check_against(restriction, schema)
    row_filter = EVERY_ROW if restriction.row_filter is None else lower_filter(restriction.row_filter, schema, caller)
    projections = tuple(
        Projection(field_id=_masked_column(mask, schema, position).id, action=mask.action)
        for position, mask in enumerate(restriction.masks)
        if mask.unless is None or decide(mask.unless, caller) is not True
    )
    return ReadRestrictions(row_filter=row_filter, projections=projections)


def _masked_column(mask: ReadMask, schema: TableSchema, position: int) -> Column:
    member = f"masks[{position}].column"
    found = schema.named(mask.column)
    if not found:
        nearest_one = schema.nearest_to(mask.column)
        raise RestrictionRefusedError(
            member, f"there is no column {mask.column!r:.80}; the nearest is {nearest_one!r:.80}"
        )
    if len(found) > 1:
        raise RestrictionRefusedError(
            member, f"{mask.column!r:.80} names {len(found)} columns, since names have dots in them: rename one"
        )
    (column,) = found
    if (reason := why_not(mask.action, column)) is not None:
        raise RestrictionRefusedError(f"masks[{position}].action", reason)
    return column


def _check_apart(columns: Iterable[Column]) -> None:
    """Check that no field has two actions, and none that is within another field with one."""
    masked: dict[int, Column] = {}
    for position, column in enumerate(columns):
        if column.id in masked:
            raise RestrictionRefusedError(f"masks[{position}].column", f"{column.name} is masked twice: expected once")
        masked[column.id] = column
    for position, column in enumerate(masked.values()):
        for parent in column.parents:
            if parent in masked:
                raise RestrictionRefusedError(
                    f"masks[{position}].column",
                    f"{column.name} is within {masked[parent].name}, which is masked, too: mask one of them",
                )


def _refuse_place(member: str, error: PolicyNotCompiledError) -> NoReturn:
    raise RestrictionRefusedError(member, error.reason, line=error.line, column=error.column) from error
