# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof findings …`: what scans took for personal data, and what people say of that.

A finding is named by the index of its entry in the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from gateway.admin.application import OPERATOR
from gateway.admin.finding_reviews import check_named, no_finding
from gateway.http.looking.shown import plain, row_shown
from lakeproof import console
from lakeproof.commands.opening import OpenServices, open_home_services, run_with_services
from lakeproof.commands.options import AsJson, OneTenant, one_of
from lakeproof.errors import LakeproofError
from lakeproof.services import Services
from lakeproof.tenants import find_tenant
from ledger.format.events import FindingReviewed, FindingVerdict
from ledger.store.session import Connection
from projections.graph.display_names import key_of_table
from projections.relational.finding_reviews import FindingState, read_review_history
from projections.relational.findings import INDEX_END, ROWS_MAX, Finding, read_finding_at, read_findings_below

FindingIndex = Annotated[
    int, typer.Argument(metavar="INDEX", min=0, help="The index of its entry in the log.", show_default=False)
]
_COLUMNS: Final = ("index", "recorded_at", "key", "column_path", "kind", "confidence_percent", "state", "reason")


def findings_app(open_services: OpenServices = open_home_services) -> typer.Typer:
    """
    Return the commands, working with the services that `open_services` opens.
    """
    app = typer.Typer(rich_markup_mode=None)
    _add_shown(app, open_services)
    _add_review(app, open_services)
    return app


def _add_shown(app: typer.Typer, open_services: OpenServices) -> None:
    @app.command("list")
    def list_(
        *,
        tenant: OneTenant,
        table: Annotated[
            str | None, typer.Option(help="Of this one: alias.namespace.table.", show_default=False)
        ] = None,
        state: Annotated[
            str | None,
            typer.Option(
                help="Those that are open, confirmed or dismissed.",
                autocompletion=one_of(FindingState),
                show_default=False,
            ),
        ] = None,
        number: Annotated[int, typer.Option("--number", "-n", min=1, max=ROWS_MAX, help="How many.")] = 100,
        as_json: AsJson = False,
    ) -> None:
        """Show the newest findings: one for each scan, column and kind."""
        asked = None if state is None else _parsed(FindingState, state, option="--state")
        key = None if table is None else key_of_table(table)

        async def work(services: Services) -> list[Finding]:
            async with _reading(services, tenant) as (connection, log_id):
                found, _ = await read_findings_below(
                    connection, log_id, before=INDEX_END, key=key, state=asked, limit=number
                )
                return found

        shown = [row_shown(each) for each in run_with_services(open_services, work)]
        console.show_rows(_COLUMNS, shown if as_json else [_row(each) for each in shown], as_json=as_json)

    @app.command()
    def show(finding: FindingIndex, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Show a finding, and all that was said of it."""

        async def work(services: Services) -> dict[str, Any]:
            async with _reading(services, tenant) as (connection, log_id):
                found = await _find(connection, log_id, finding)
                reviews = await read_review_history(
                    connection, table_uuid=found.table_uuid, field_id=found.field_id, kind=found.kind
                )
                return {**row_shown(found), "reviews": [plain(asdict(each)) for each in reviews]}

        console.show_object(run_with_services(open_services, work), as_json=as_json)


def _add_review(app: typer.Typer, open_services: OpenServices) -> None:
    @app.command()
    def review(
        finding: FindingIndex,
        verdict: Annotated[
            str,
            typer.Argument(
                help="confirmed: it is personal data; dismissed: it is none.", autocompletion=one_of(FindingVerdict)
            ),
        ],
        *,
        tenant: OneTenant,
        reason: Annotated[str, typer.Option("--reason", help="Why, for the record.", show_default=False)],
        as_json: AsJson = False,
    ) -> None:
        """Say of a finding that it is real, or that it is none; it takes the place of an earlier review."""
        said = _parsed(FindingVerdict, verdict, option="VERDICT")

        async def work(services: Services) -> FindingReviewed:
            async with _reading(services, tenant) as (connection, log_id):
                found = await _find(connection, log_id, finding)
                await check_named(connection, log_id, found)
            return await services.gateway.admin.review_finding(
                log_id, OPERATOR, finding=finding, key=found.key, verdict=said, reason=reason
            )

        done = run_with_services(open_services, work)
        members = {"finding": finding, "verdict": done.verdict.value, "version": done.version, "reason": done.reason}
        sentence = f"finding {finding} of tenant {tenant} is {done.verdict} ({done.kind} in {done.column})"
        console.show_done(sentence, members, as_json=as_json)


@asynccontextmanager
async def _reading(services: Services, tenant: str) -> AsyncIterator[tuple[Connection, int]]:
    """Yield a connection that reads as a tenant, and the tenant's log."""
    owner, log_id = await find_tenant(services, tenant)
    gateway = services.gateway
    async with gateway.database.as_role(gateway.roles.tenant(owner)) as connection:
        yield connection, log_id


async def _find(connection: Connection, log_id: int, index: int) -> Finding:
    found = await read_finding_at(connection, log_id, index)
    if found is None:
        raise no_finding(index)
    return found


def _parsed(kind: Any, text: str, *, option: str) -> Any:
    if text not in set(kind):
        raise LakeproofError(f"{option}: expected one of {', '.join(kind)}, found {text!r:.80}")
    return kind(text)


def _row(shown: Mapping[str, Any]) -> dict[str, Any]:
    return {**shown, "reason": (shown["review"] or {}).get("reason", "")}
