# SPDX-License-Identifier: Apache-2.0
"""
What people have said of findings: whether each is real.

A review holds for the column and kind in its table: what later scans find there is the same finding, found again. What
was dismissed is open again once a scan is surer of it than the finding that was dismissed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias

from ledger.format.events import FindingVerdict
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.keys import bounded_name
from projections.relational.as_of import as_of as as_of_entry
from projections.relational.commits import INDEX_END

QUERIES: Final = load_queries("projections", "finding_reviews.sql")
_LAST_AS_OF: Final = as_of_entry(QUERIES["last_reviews"])
REVIEWS_MAX: Final = 100
"""Of one finding, as many are shown: the newest."""

Reviewable: TypeAlias = tuple[str, int, str]
"""Table uuid, field id and kind: what a review is about."""


class FindingState(StrEnum):
    """What is known of whether a finding is real."""

    OPEN = "open"
    """Nobody has said, or a scan is surer than it was when somebody dismissed it."""
    CONFIRMED = FindingVerdict.CONFIRMED.value
    DISMISSED = FindingVerdict.DISMISSED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingReview:
    """
    A review, the entry of which is at `index`; it names the entry of a finding, which had `confidence_percent`.
    """

    version: int
    index: int
    finding: int
    recorded_at: datetime
    actor: str
    verdict: str
    confidence_percent: int
    reason: str


def state_of(verdict: str | None, *, reviewed_percent: int, confidence_percent: int) -> FindingState:
    """
    Return the state of a finding of some confidence, given the verdict on its column and kind (None: there is none),
    which was about a finding of `reviewed_percent`.
    """
    if verdict is None or (verdict == FindingVerdict.DISMISSED and reviewed_percent < confidence_percent):
        return FindingState.OPEN
    return FindingState(verdict)


async def read_reviews(
    connection: Connection, reviewed: Iterable[Reviewable], *, as_of: int | None = None
) -> Mapping[Reviewable, FindingReview]:
    """
    Return the last review of each column and kind, of those that have one.
    """
    asked = list(dict.fromkeys(reviewed))
    if not asked:
        return {}
    uuids, field_ids, kinds = zip(*asked, strict=True)
    parameters = {"uuids": list(uuids), "field_ids": list(field_ids), "kinds": list(kinds), "as_of": as_of}
    query = QUERIES["last_reviews"] if as_of is None else _LAST_AS_OF
    rows = await (await connection.execute(query, parameters)).fetchall()
    return {(row[0], row[1], row[2]): _review(row[3:]) for row in rows}


async def read_review_history(
    connection: Connection, *, table_uuid: str, field_id: int, kind: str, before: int = INDEX_END
) -> list[FindingReview]:
    """
    Return the newest reviews of a column and kind of a table, newest first: of those in entries below an index.
    """
    about: dict[str, object] = {"table_uuid": bounded_name(table_uuid), "field_id": field_id, "kind": kind}
    about |= {"before": before, "limit": REVIEWS_MAX}
    return [_review(row) for row in await (await connection.execute(QUERIES["reviews"], about)).fetchall()]


def _review(row: Sequence[Any]) -> FindingReview:
    members = dict(zip(FindingReview.__dataclass_fields__, row, strict=True))
    return FindingReview(**{**members, "recorded_at": members["recorded_at"].astimezone(UTC)})
