# SPDX-License-Identifier: Apache-2.0
"""
What people ask evidence for, in words: a decision, a table, a period, or a table in a period. Pure.

The same words are options of a command, and members of a request.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from ledger.format.canonical import format_time
from ledger.format.event import format_key, parse_key
from ledger.proving.evidence.gather import DecisionAt, DecisionOf, EvidenceRefusedError, EvidenceRequest, Rules
from ledger.proving.evidence.scope import Period, PeriodScope, TableScope

INDEX_DIGITS_MAX: Final = len(str(2**53))


def parse_decision(text: str, rules: Rules) -> DecisionAt | DecisionOf:
    """
    Return the decision that is named by the index of its entry, or by its group.

    Raises:
        EvidenceRefusedError: if it is neither.
    """
    if text.isascii() and text.isdigit() and len(text) <= INDEX_DIGITS_MAX:
        return DecisionAt(index=int(text), rules=rules)
    try:
        return DecisionOf(group_id=UUID(text), rules=rules)
    except ValueError as error:
        raise EvidenceRefusedError(f"decision: expected an index or the id of a group, found {text!r:.100}") from error


def parse_table(name: str) -> str:
    """
    Return the event key of what people call `alias.namespace.table`; an event key is taken as it is.

    Raises:
        FormatError: if it is neither.
    """
    if ":" in name:
        parse_key(name)
        return name
    return format_key("table", name.split("."))


def period_of(since: datetime | None, until: datetime | None) -> Period | None:
    """
    Return the period between two times, None if there is neither.

    Raises:
        EvidenceRefusedError: if there is one of them.
        FormatError: if it ends before it begins.
    """
    if since is None and until is None:
        return None
    if since is None or until is None:
        raise EvidenceRefusedError("a period has two ends: name from and to")
    return Period(since=format_time(since), until=format_time(until))


def request_of(
    *, decision: str | None, table: str | None, since: datetime | None, until: datetime | None, rules: Rules
) -> EvidenceRequest:
    """
    Return what is asked for.

    Raises:
        EvidenceRefusedError, FormatError: if it is none of the four, or one of them is not of its form.
    """
    period = period_of(since, until)
    if decision is not None and table is None and period is None:
        return parse_decision(decision, rules)
    if decision is None and rules is Rules.OMITTED:
        if table is not None:
            return TableScope(key=parse_table(table), period=period)
        if period is not None:
            return PeriodScope(period=period)
    raise EvidenceRefusedError(
        "name a decision, or a table, or a period by from and to, or a table and a period; policies go with a decision"
    )
