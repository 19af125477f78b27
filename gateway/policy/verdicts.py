# SPDX-License-Identifier: Apache-2.0
"""
The format of verdicts in the log: the payload part `verdicts` of a `commit.decided`.

Guarantee: `format_verdicts` returns canonical JSON, and `parse_verdicts` accepts nothing else. Version 1 is final.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from gateway.policy.engine import Outcome, Verdict
from ledger.errors import FormatError

if TYPE_CHECKING:
    from ledger.format.canonical import Json

VERSION: Final = 1
DETAIL_CHARACTERS_MAX: Final = 500

_MEMBERS: Final = {"detail", "id", "kind", "outcome", "version"}


def format_verdicts(verdicts: Sequence[Verdict]) -> dict[str, Json]:
    """Return `{"verdicts":[{"detail","id","kind","outcome","version"}, …],"version":1}`, in the order of judging."""
    return {
        "verdicts": [
            {
                "detail": verdict.detail[:DETAIL_CHARACTERS_MAX],
                "id": verdict.id,
                "kind": verdict.kind,
                "outcome": str(verdict.outcome),
                "version": verdict.version,
            }
            for verdict in verdicts
        ],
        "version": VERSION,
    }


def parse_verdicts(value: Json) -> tuple[Verdict, ...]:
    """
    Return the verdicts that `format_verdicts` wrote as `value`.

    Raises:
        FormatError: if it is anything else.
    """
    match value:
        case {"verdicts": [*items], "version": int(version), **rest} if (
            not rest and version is not True and version == 1
        ):
            return tuple(_parse(item) for item in items)
        case _:
            raise FormatError("verdicts", expected="an object with verdicts and version 1", found=value)


def _parse(item: Json) -> Verdict:
    match item:
        case {
            "detail": str(detail),
            "id": str(id_),
            "kind": str(kind),
            "outcome": str(outcome),
            "version": int(version),
        }:
            known = {str(member): member for member in Outcome}
            if isinstance(item, Mapping) and set(item) == _MEMBERS and outcome in known and version is not True:
                return Verdict(kind=kind, id=id_, version=version, outcome=known[outcome], detail=detail)
    raise FormatError("verdict", expected="detail, id, kind, outcome (allow, deny, error) and version", found=item)
