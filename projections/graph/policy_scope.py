"""
What a policy governs, told from its expression. Pure.

A policy that reads `table` or `result` judges what a table looks like: it governs the schema. One that reads `commit`,
`principal` or `request` judges who does what: it governs the write. One may do both. One that reads neither holds for
every write alike, and governs the write.

A name counts wherever it stands as a variable could: not after a dot, not in a string or a comment. A macro's own
variable of such a name counts too, so that an expression may govern more than it reads and never less.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

_SCHEMA: Final = frozenset({"table", "result"})
_WRITE: Final = frozenset({"commit", "principal", "request"})

_TOKEN: Final = re.compile(
    r"""
      //[^\n]*                                                     # a comment
    | [bB]?[rR][bB]?(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')  # a raw string: a backslash is one
    | [bB]?(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3})
    | [bB]?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | \.\s*[A-Za-z_][A-Za-z0-9_]*                                  # a field, or a method
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    """,
    re.VERBOSE | re.DOTALL,
)
"""The tokens of CEL in which a name can hide (cel-spec, "Syntax"); names that stand free are in the group `name`."""


class Governs(StrEnum):
    """What a policy is about; the beginnings of the two labels."""

    SCHEMA = "schema"
    WRITE = "write"


def governs(expression: str) -> tuple[Governs, ...]:
    """
    Return what a policy of this expression (CEL) governs: one of the two at least.
    """
    names = {match["name"] for match in _TOKEN.finditer(expression)}
    found = [kind for kind, variables in ((Governs.SCHEMA, _SCHEMA), (Governs.WRITE, _WRITE)) if names & variables]
    return tuple(found) or (Governs.WRITE,)
