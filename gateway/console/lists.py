# SPDX-License-Identifier: Apache-2.0
"""
The lists of the console for programs and spreadsheets: each page of a list has a twin in JSON and one in CSV.

The JSON is a page of what the route answers. The CSV (RFC 4180) has up to `ROWS_MAX` rows, read page by page, as the
visitor may see them; what continues it is named in a Link header (RFC 8288), and its file is called `part`.

Whoever writes a name or a message writes what a spreadsheet opens. A text that one would take for a formula has an
apostrophe before it, which spreadsheets do not show.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from fastapi.responses import Response

from gateway.http import admin_routes, decision_routes, log_entry_routes, table_routes

FORMS: Final = ("json", "csv")
ROWS_MAX: Final = 5_000
PAGES_MAX: Final = 20
"""Pages that are read for one file: some are short, or empty, with more behind them."""
PAGE: Final = 500
FORMULA: Final = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""How a cell begins that a spreadsheet may calculate, or send away (OWASP, CSV Injection), in full width, too."""

Answer = Callable[..., Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """
    A list: the route that answers it, the parameters by which it is asked for, the member with its rows, and the
    members of a row that are the columns of its CSV. `in_pages`: the route answers page by page.
    """

    answer: Answer
    member: str
    columns: Sequence[str]
    filters: Sequence[str] = ()
    in_pages: bool = True


LISTS: Final[Mapping[str, Listed]] = {
    "log": Listed(
        answer=log_entry_routes.list_entries,
        member="entries",
        filters=("type", "key", "actor", "after", "before"),
        columns=("index", "recorded_at", "occurred_at", "type", "version", "key", "actor", "parts", "data"),
    ),
    "tables": Listed(
        answer=table_routes.list_tables,
        member="tables",
        filters=("name", "finding", "tag", "owner", "catalog"),
        columns=("key", "table_uuid", "named_index", "owner", "findings"),
    ),
    "findings": Listed(
        answer=decision_routes.list_findings,
        member="findings",
        filters=("table", "kind", "confidence", "state"),
        columns=(
            "index",
            "recorded_at",
            "key",
            "column_path",
            "kind",
            "confidence_percent",
            "matches",
            "not_null",
            "snapshot",
            "state",
        ),
    ),
    "policies": Listed(
        answer=admin_routes.list_policies,
        member="policies",
        columns=(
            "id",
            "version",
            "in_force",
            "active_from",
            "retired_from",
            "message",
            "expression",
            "scope",
            "reason",
            "coming",
        ),
        in_pages=False,
    ),
}
"""Every list that has a page at `/console/<name>`."""
HISTORY: Final = Listed(
    answer=table_routes.list_table_history,
    member="decisions",
    columns=("index", "recorded_at", "operation", "decision", "reason", "outcome", "principal", "actor"),
)
"""The commits of one table, at `/console/tables/{alias}/{namespace}/{table}/commits`."""


def format_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """
    Return rows as CSV (RFC 4180), the names of the columns first; members that are no scalars are JSON.
    """
    file = io.StringIO()
    writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in columns])
    return file.getvalue()


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            return f"'{value}" if value.startswith(FORMULA) else value
        case _:
            return orjson.dumps(value).decode()
