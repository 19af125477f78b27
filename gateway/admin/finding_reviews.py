# SPDX-License-Identifier: Apache-2.0
"""
Reviews of findings: somebody says that one is real, or that it is none.

Guarantee: a review names an entry of this log that is a finding, and repeats what that entry says of it. The reviews of
one column and kind of a table are counted under a guard (`ledger.aggregates`), so that of two at once one conflicts:
nobody replaces a review that they could not know.
"""

from __future__ import annotations

from typing import Final

from gateway.admin.edits import CHANGED, NOT_FOUND, Editor, Edits
from gateway.admin.limits import REASON_LENGTH_MAX, check_text
from gateway.database import outage_as_unavailable
from gateway.errors import ConflictError, NotFoundError
from ledger.format.entry import parse_entry
from ledger.format.event import format_key
from ledger.format.events import DetectionFound, FindingReviewed, FindingVerdict, from_data
from ledger.format.guards import GuardCall
from ledger.store.log_store import LendConnection
from ledger.store.queries import load_queries
from ledger.store.read import read_entry, read_head
from ledger.store.session import Connection
from projections.keys import bounded_key
from projections.relational.findings import Finding
from projections.relational.table_names import read_live_names

QUERIES: Final = load_queries("gateway", "finding_reviews.sql")


class FindingReviews:
    """Appends reviews to all tenants' logs. `lend` lends connections of the appender's role."""

    def __init__(self, edits: Edits, lend: LendConnection) -> None:
        self._edits = edits
        self._lend = lend

    async def review(
        self,
        log_id: int,
        by: Editor,
        *,
        finding: int,
        key: str,
        verdict: FindingVerdict,
        reason: str,
        version: int | None,
    ) -> FindingReviewed:
        """
        Append a review of the finding at index `finding`, and return it; `key` is the present key of its table.

        With `version`, only if its column and kind have been reviewed as often: 0 is never.

        Raises:
            BadRequestError: if the reason is empty, too long, or has control characters.
            NotFoundError: if there is no finding at that index.
            ConflictError: if it was reviewed meanwhile.
            And as `Edits.record`.
        """
        check_text(reason, field="reason", length_max=REASON_LENGTH_MAX)
        found, reviews = await self._read(log_id, finding)
        if version is not None and version != reviews:
            raise ConflictError(
                f"finding {finding}: expected version {version} of its review, found version {reviews}", kind=CHANGED
            )
        review = FindingReviewed(
            column=found.column,
            confidence_percent=found.confidence_percent,
            field_id=found.field_id,
            finding=finding,
            kind=found.kind,
            reason=reason,
            ruleset=found.ruleset,
            snapshot=found.snapshot,
            table_uuid=found.table_uuid,
            verdict=verdict,
            version=reviews + 1,
        )
        try:
            await self._edits.record(log_id, by, review, key=key, guard=(review_guard(review),), as_of=by.as_of)
        except ConflictError as error:
            text = f"finding {finding} was reviewed by somebody else meanwhile: look at that, and review it again"
            raise ConflictError(text, kind=CHANGED) from error
        return review

    async def _read(self, log_id: int, finding: int) -> tuple[DetectionFound, int]:
        """Return the finding at an index of a log, and how often its column and kind were reviewed."""
        with outage_as_unavailable("the database cannot be reached: nothing was changed, try again"):
            async with self._lend() as connection:
                if finding >= (await read_head(connection, log_id)).size:
                    raise no_finding(finding)
                entry = parse_entry(await read_entry(connection, log_id, finding))
                if (entry.type, entry.version) != (DetectionFound.TYPE, DetectionFound.VERSION):
                    raise no_finding(finding)
                found = from_data(DetectionFound, entry.data)
                reviewed = {"log_id": log_id, "key": _counted_by(found.table_uuid, found.field_id, found.kind.value)}
                row = await (await connection.execute(QUERIES["reviews_counted"], reviewed)).fetchone()
        return found, 0 if row is None else int(row[0])


def review_guard(review: FindingReviewed) -> GuardCall:
    """
    Return the guard that holds if a review is the next one of its column and kind.
    """
    key = {"key": _counted_by(review.table_uuid, review.field_id, review.kind.value)}
    if review.version == 1:
        return GuardCall("aggregate.create", key)
    return GuardCall("aggregate.change", {**key, "version": review.version})


async def check_named(connection: Connection, log_id: int, found: Finding) -> None:
    """
    Check that the table of a finding has a name now; `connection` reads as the tenant.

    Raises:
        NotFoundError: if it was dropped, or no catalog names it.
    """
    names = await read_live_names(connection, log_id, uuids=[found.table_uuid])
    if not any(each.is_current and each.key == found.key for each in names):
        raise NotFoundError(
            f"finding {found.index}: expected one in a table that has a name now, found one in a table that was "
            "dropped, or that no catalog names",
            kind="NoSuchTableException",
        )


def no_finding(finding: int | str) -> NotFoundError:
    """
    Return what is answered where there is no finding that the caller may see.
    """
    return NotFoundError(f"finding {finding}: expected a finding that you may see, found none", kind=NOT_FOUND)


def _counted_by(table_uuid: str, field_id: int, kind: str) -> str:
    return bounded_key(format_key("finding", (table_uuid, str(field_id), kind)))
