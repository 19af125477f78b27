# SPDX-License-Identifier: Apache-2.0
"""
What a policy governs, derived from the variables that its expression reads. Pure.

A policy that reads `table` or `result` judges what a table looks like: it governs the schema. One that reads `commit`,
`principal` or `request` judges who does what: it governs the write. One may do both. One that reads none of them
applies to every write alike, and governs the write. The variable of a macro counts if it has one of these names, so a
policy may be said to govern more than it does, and never less.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

_SCHEMA: Final = frozenset({"table", "result"})
_WRITE: Final = frozenset({"commit", "principal", "request"})


class Governs(StrEnum):
    """What a policy is about; the beginnings of the two edge labels."""

    SCHEMA = "schema"
    WRITE = "write"


def governs(expression: str) -> tuple[Governs, ...]:
    """
    Return what a policy of this expression (CEL) governs: at least one of the two, both if it cannot be read.
    """
    # The first policy of a process loads cel-python, in 0.4 s; most commands never read one.
    from projections.cel_grammar import free_names

    names = free_names(expression)
    if names is None:
        return (Governs.SCHEMA, Governs.WRITE)
    found = [kind for kind, variables in ((Governs.SCHEMA, _SCHEMA), (Governs.WRITE, _WRITE)) if names & variables]
    return tuple(found) or (Governs.WRITE,)
