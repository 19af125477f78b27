# SPDX-License-Identifier: Apache-2.0
"""
A guard's statement as one that fails unless the guard holds.

A guard holds if its statement affects exactly one row, which the client sees in the answer. Where COMMIT is sent behind
the statement before any answer has come, the server has to see it: the statement becomes a part of one that counts its
rows, and fails unless there is one. It changes the same rows, with the same rights, as the statement alone.
"""

from __future__ import annotations

import re
from typing import Final

from ledger.store.queries import load_queries

_NAME: Final = "lakeproof_guard"
_REQUIRED: Final = load_queries("ledger.store", "guards.sql")["required"]
_KNOWN: Final = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})
_OTHER: Final = frozenset({"MERGE", "TABLE", "VALUES"})
_TOKEN: Final = re.compile(
    r"'[^']*'|\"[^\"]*\"|--[^\n]*|(?P<word>[A-Za-z_][A-Za-z_0-9]*)|(?P<sign>[();$]|/\*)|.", re.DOTALL
)


def must_hold(statement: str) -> str | None:
    """
    Return the statement that does what `statement` does if that affects exactly one row, and fails otherwise.

    None if it is of a form that is not known here: not SELECT, INSERT, UPDATE or DELETE, with or without WITH; or with
    comments in slashes, backslashes or quotes in dollars.
    """
    if _NAME in statement or "\\" in statement:
        return None
    depth, main, words = 0, None, list[str]()
    for token in _TOKEN.finditer(statement):
        match token["sign"]:
            case "(":
                depth += 1
            case ")":
                depth -= 1
            case None:
                if token["word"] and depth == 0:
                    words.append(token["word"].upper())
                    if main is None and words[-1] in _KNOWN | _OTHER:
                        main = token.start(), words[-1]
            case _:
                return None
    if main is None or depth != 0 or words[0] not in _KNOWN | {"WITH"}:
        return None
    start, verb = main
    if verb in _OTHER:
        return None
    before, counted = statement[:start].rstrip(), statement[start:].rstrip()
    if verb != "SELECT" and "RETURNING" not in words:
        counted += "\nRETURNING true"
    # MATERIALIZED: otherwise the server need not compute what the guard selects, and might miss that it fails.
    return f"{f'{before},' if before else 'WITH'} {_NAME} AS MATERIALIZED (\n{counted}\n)\n{_REQUIRED}"
