# SPDX-License-Identifier: Apache-2.0
"""
Loads SQL from the named files that each package keeps under `sql/`.

A file is a sequence of queries. Each begins with a line `-- name: <name>` and one comment line that says what it is
for. A query that is used and missing is a programming error and raises at import.
"""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: ([a-z][a-z0-9_]*)$", re.MULTILINE)


def load_queries(package: str, file: str = "queries.sql") -> dict[str, str]:
    """
    Return the queries of `<package>/sql/<file>` by name, without comments.

    Raises:
        LookupError: if a name appears twice in the file.
    """
    text = files(package).joinpath("sql", file).read_text(encoding="utf-8")
    pieces = _NAME.split(text)[1:]
    queries: dict[str, str] = {}
    for name, body in zip(pieces[::2], pieces[1::2], strict=True):
        if name in queries:
            message = f"{package}/sql/{file}: the query {name} appears twice"
            raise LookupError(message)
        lines = (line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--"))
        queries[name] = "\n".join(lines).rstrip().rstrip(";")
    return queries
