# SPDX-License-Identifier: Apache-2.0
"""
The page of a table: what was found in it and what people say of that, its commits, its schemas through time, its
lineage as a picture, and who may do what.

Who may do so confirms or dismisses findings here. Columns of lineage, and who may do what, are shown on demand, by a
link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from fastapi import APIRouter
from fastapi.responses import Response

from gateway.admin.limits import REASON_LENGTH_MAX
from gateway.console.actor_names import names_by_entry
from gateway.console.lineage_picture import lineage_picture
from gateway.console.logins import form_of, redirect
from gateway.console.pages import TABLE, Visit, more_of, twins_of, visited
from gateway.console.policy_form import version_of
from gateway.console.schema_steps import Step, schema_steps
from gateway.errors import BadRequestError, ConflictError, ForbiddenError, GatewayError
from gateway.http import access_routes, finding_routes, table_routes, timeline_routes
from gateway.http.looking.query import CURSOR
from projections.relational.finding_reviews import FindingState

router = APIRouter(prefix="/console", include_in_schema=False)

HISTORY_A_PAGE: Final = 25
EDGES_A_PAGE: Final = 100
"""Of lineage, each way."""
ASKED: Final = {
    "table.load": "read",
    "table.commit": "write",
    "table.drop": "drop",
    "table.review": "review findings",
}
"""The operations that the page says who may do, and its words for them."""
YES: Final = "yes"


@router.get(TABLE)
@visited
async def table(visit: Visit, alias: str, namespace: str, table: str) -> Response:
    """Show a table."""
    return await _page(visit, (alias, namespace, table))


@router.post(f"{TABLE}/findings/{{finding}}/review")
@visited
async def review(visit: Visit, alias: str, namespace: str, table: str, finding: str) -> Response:
    """Confirm or dismiss a finding, and show the table again; what was refused is said above it."""
    form = await form_of(visit.request)
    named = (alias, namespace, table)
    body: dict[str, Any] = {"verdict": form.get("verdict", ""), "reason": form.get("reason", "").strip()}
    try:
        if "version" in form:
            body["version"] = version_of(form, "version")
        await visit.send(finding_routes.review_finding, finding, body=body)
    except (BadRequestError, ConflictError) as error:
        written = {"finding": finding, "reason": body["reason"]}
        return await _page(visit, named, status=error.status, problem=str(error), written=written)
    return redirect(f"{_path_of(named)}?reviewed={quote(finding, safe='')}#findings")


def _path_of(named: tuple[str, str, str]) -> str:
    """Return the path of a table's page; names are percent-encoded, as they came."""
    return "/console/tables/" + "/".join(quote(name, safe="%") for name in named)


async def _page(
    visit: Visit,
    named: tuple[str, str, str],
    *,
    status: int = 200,
    problem: str = "",
    written: Mapping[str, str] | None = None,
) -> Response:
    asked = visit.asked_alone(CURSOR, "columns", "access", "reviewed")
    cursor, with_columns = asked[CURSOR], asked["columns"] == YES
    timeline = await visit.read(timeline_routes.show_timeline, *named, limit=HISTORY_A_PAGE, cursor=cursor)
    findings = await visit.read(table_routes.list_table_findings, *named)
    # What waits for somebody comes first.
    findings["findings"].sort(key=lambda each: each["state"] != FindingState.OPEN)
    lineage = await visit.read(table_routes.show_table_lineage, *named, limit=EDGES_A_PAGE)
    try:
        policies = (await visit.read(table_routes.list_table_policies, *named))["policies"]
    except ForbiddenError:
        policies = None  # who may see the table may still not read policies
    return visit.page(
        "table.html",
        status,
        base=_path_of(named),
        timeline=timeline,
        findings=findings,
        lineage=lineage,
        picture=lineage_picture(lineage, with_columns=with_columns),
        with_columns=with_columns,
        steps=await _steps(visit, named),
        policies=policies,
        names=await names_by_entry(
            visit, {one["review"]["actor"]: one["review"]["index"] for one in findings["findings"] if one["review"]}
        ),
        access=await _access(visit, timeline["key"]) if asked["access"] == YES else None,
        operations=ASKED,
        reviewed=asked["reviewed"],
        problem=problem,
        written=written or {"finding": "", "reason": ""},
        reason_max=REASON_LENGTH_MAX,
        more=more_of(visit, timeline[CURSOR], {}),
        twins=twins_of(f"{_path_of(named)}/commits", {}),
    )


async def _steps(visit: Visit, named: tuple[str, str, str]) -> Sequence[Step] | None:
    """Return the schemas of a table; None if it cannot be loaded now."""
    try:
        found = await visit.read(table_routes.show_schema_history, *named)
    except GatewayError:
        return None  # it was dropped, or what is behind its catalog does not answer: the log's part of the page stays
    return schema_steps(
        found["schemas"],
        current=found["current_schema_id"],
        changes=found["changes"],
        is_whole=found[CURSOR] is None,
    )


async def _access(visit: Visit, key: str) -> list[dict[str, Any]] | str:
    """Return who may do what on a table, one row for each caller that the rules tell apart; a sentence if not known."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    try:
        for operation in ASKED:
            found = await visit.read(access_routes.ask_who_may, operation=operation, target=key)
            for one in found["callers"]:
                caller = (one["identity"], one["actor"], *one["roles"])
                row = rows.setdefault(caller, {"identity": one["identity"], "roles": one["roles"], "decisions": {}})
                row["decisions"][operation] = one
    except ForbiddenError:
        return "Who may do what is shown to whom access rules permit to read rules and keys."
    except GatewayError as error:
        return str(error)
    return list(rows.values())
