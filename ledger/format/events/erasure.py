# SPDX-License-Identifier: Apache-2.0
"""
Erasures of payload parts. The log records which parts, when, by whom and why, and nothing of their content.

Nothing is appended to a closed log, so its successor records what is erased from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from ledger.errors import FormatError


class ErasureReason(StrEnum):
    """Why something was erased. A closed set: free text could itself be personal."""

    REQUEST = "request"  # a person requested it (GDPR, article 17)
    RETENTION = "retention"  # the retention time is over
    MISTAKE = "mistake"  # it should never have been recorded
    ORDER = "order"  # a court or an authority ordered it


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadErased:
    """
    Parts are erased, in one of three ways; the members of the other ways are null.

    All parts about the person `subject`, appended before or after. One part: `index` and `name`. Or all parts of the
    entries below `before`: of one `name` or every, of entries of one `type` or every.
    """

    TYPE: ClassVar[str] = "payload.erased"
    VERSION: ClassVar[int] = 1

    before: int | None
    index: int | None
    name: str | None
    reason: ErasureReason
    subject: str | None
    type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadErasedElsewhere:
    """
    Parts of the closed log of `origin` are erased, which this log continues; otherwise as `PayloadErased`.
    """

    TYPE: ClassVar[str] = "payload.erased"
    VERSION: ClassVar[int] = 2

    before: int | None
    index: int | None
    name: str | None
    origin: str
    reason: ErasureReason
    subject: str | None
    type: str | None

    @property
    def erased(self) -> PayloadErased:
        """The erasure, as the log of `origin` would record it."""
        return PayloadErased(
            before=self.before,
            index=self.index,
            name=self.name,
            reason=self.reason,
            subject=self.subject,
            type=self.type,
        )


def erased_elsewhere(origin: str, erased: PayloadErased) -> PayloadErasedElsewhere:
    """
    Return the record that parts of the log of `origin` are erased.
    """
    return PayloadErasedElsewhere(
        origin=origin,
        before=erased.before,
        index=erased.index,
        name=erased.name,
        reason=erased.reason,
        subject=erased.subject,
        type=erased.type,
    )


def check_erased(erased: PayloadErased) -> PayloadErased:
    """
    Return `erased`, checked to be of exactly one of the three ways.

    Raises:
        FormatError: if it is not, so that its meaning is unclear.
    """
    person, single, older = erased.subject is not None, erased.index is not None, erased.before is not None
    alone = not (person and (erased.name or erased.type))
    whole = not single or (erased.name is not None and erased.type is None)
    if person + single + older != 1 or not (alone and whole):
        raise FormatError(
            "payload.erased",
            expected="a subject alone, or an index with a name, or the index before which parts are erased",
            found=(erased.subject, erased.index, erased.name, erased.type, erased.before),
        )
    return erased
