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

from gateway.console.access_rule_rows import FINDINGS, ask_what, list_rules
from gateway.http import (
    access_routes,
    admin_routes,
    decision_routes,
    evidence_routes,
    lineage_reading_routes,
    log_entry_routes,
    operating_routes,
    policy_routes,
    restriction_routes,
    table_routes,
    tenant_routes,
)
from gateway.http.looking.query import AS_OF

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
    members of a row that are the columns of its CSV. `in_pages`: the route answers page by page. `rows_of` makes the
    rows of what the route answers, if no one member has them.
    """

    answer: Answer
    member: str
    columns: Sequence[str]
    filters: Sequence[str] = ()
    in_pages: bool = True
    rows_of: Callable[[Mapping[str, Any]], list[dict[str, Any]]] | None = None

    def rows(self, found: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of what the route has answered."""
        return list(found[self.member]) if self.rows_of is None else self.rows_of(found)


def runners_of(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """
    Return what follows the log, one row each: read models, streams, and detection.
    """
    detection = {
        "name": "detection",
        "lag_entries": status["detection_waiting"],
        "put_off": status["detection_put_off"],
    }
    return [
        *({"follows": "read model", **each} for each in status["projections"]),
        *({"follows": "stream", **each} for each in status["streams"]),
        {"follows": "detection", **detection},
    ]


_JOB: Final = ("state", "asked_at", "began_at", "ended_at", "done", "of", "problem")

LISTS: Final[Mapping[str, Listed]] = {
    "log": Listed(
        answer=log_entry_routes.list_entries,
        member="entries",
        filters=("type", "key", "actor", "after", "before", AS_OF),
        columns=("index", "recorded_at", "occurred_at", "type", "version", "key", "actor", "parts", "data"),
    ),
    "tables": Listed(
        answer=table_routes.list_tables,
        member="tables",
        filters=("name", "finding", "tag", "owner", "catalog", AS_OF),
        columns=("key", "table_uuid", "named_index", "owner", "findings"),
    ),
    "findings": Listed(
        answer=decision_routes.list_findings,
        member="findings",
        filters=("table", "kind", "confidence", "state", AS_OF),
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
    "restrictions": Listed(
        answer=restriction_routes.list_restrictions,
        member="restrictions",
        columns=("id", "version", "scope", "filter", "masks", "reason", "enforced"),
        in_pages=False,
    ),
    "access-rules": Listed(
        answer=list_rules,
        member="access-rules",
        filters=(FINDINGS,),
        columns=(
            "id",
            "version",
            "effect",
            "language",
            "vocabulary",
            "operations",
            "expression",
            "author",
            "recorded_at",
            "index",
            "findings",
            "undecided",
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

POLICY_DRAFTS: Final = Listed(
    answer=policy_routes.list_policy_drafts,
    member="policy-drafts",
    columns=("id", "version", "retires", "message", "expression", "scope", "examples", "reason"),
    in_pages=False,
)
"""The drafts of policies that wait for a review, at `/console/policies/_drafts`."""
RESTRICTION_DRAFTS: Final = Listed(
    answer=restriction_routes.list_restriction_drafts,
    member="restriction-drafts",
    columns=("id", "version", "retires", "scope", "filter", "masks", "reason"),
    in_pages=False,
)
"""The drafts of restrictions that wait for a review, at `/console/restrictions/_drafts`."""

_DECIDED: Final = ("decision", "rule", "message")
WHO: Final = Listed(
    answer=access_routes.ask_who_may,
    member="callers",
    filters=("operation", "target"),
    columns=("identity", "actor", "roles", "keys", *_DECIDED),
    in_pages=False,
)
"""Who may do an operation on a target, at `/console/access-rules/_who`."""
WHAT: Final = Listed(
    answer=ask_what,
    member="operations",
    filters=("target", "key", "roles"),
    columns=("operation", "catalog", "path", *_DECIDED),
    in_pages=False,
)
"""What somebody may do on a target, at `/console/access-rules/_what`."""

OPERATED: Final[Mapping[str, Listed]] = {
    "runners": Listed(
        answer=lineage_reading_routes.show_status,
        member="projections",
        columns=("follows", "name", "lag_entries", "behind_s", "trouble", "put_off"),
        in_pages=False,
        rows_of=runners_of,
    ),
    "open-decisions": Listed(
        answer=operating_routes.list_open_decisions,
        member="open-decisions",
        columns=("decision", "index", "key", "operation", "state", "decided_at", "deadline", "age_s"),
        in_pages=False,
    ),
    "dead-letters": Listed(
        answer=tenant_routes.list_dead_letters,
        member="dead-letters",
        filters=("source",),
        columns=("source", "id", "died_at", "attempts", "reason"),
        in_pages=False,
    ),
    "projections": Listed(
        answer=operating_routes.list_projections,
        member="projections",
        columns=("projection", "state", "generation", "next_index", "lag_entries", "rebuild"),
        in_pages=False,
    ),
    "replays": Listed(
        answer=operating_routes.list_replays,
        member="replays",
        columns=("id", "source", "letter", *_JOB, "result"),
        in_pages=False,
    ),
    "keys": Listed(
        answer=admin_routes.list_keys,
        member="keys",
        columns=(
            *("id", "version", "prefix", "principal", "actor", "issuer", "roles", "expires_at", "expired"),
            "replaced_by",
        ),
        in_pages=False,
    ),
    "catalogs": Listed(
        answer=admin_routes.list_catalogs, member="catalogs", columns=("alias", "kind", "options"), in_pages=False
    ),
    "evidence": Listed(
        answer=evidence_routes.list_evidence, member="evidence", columns=("id", "asked", *_JOB, "file"), in_pages=False
    ),
}
"""Every list of the pages of an operator, at `/console/operate/<name>`; secrets are in none of the routes' answers."""


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
