# SPDX-License-Identifier: Apache-2.0
"""
The command `lakeproof lineage show <table>`: what a table was made from, and what was made from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Final
from uuid import UUID

import typer

from lakeproof import console
from lakeproof.commands.opening import OpenServices, open_home_services
from lakeproof.commands.options import AsJson
from lakeproof.tenants import find_tenant
from ledger.store.read import Log, read_logs
from projections.errors import ProjectionError, UnknownTableError
from projections.lineage.data_names import key_of_data
from projections.lineage.openlineage import WHOLE_DATASET
from projections.lineage.read import HOPS, HOPS_MAX, Cycle, Lineage, LineageEdge, is_known, read_lineage
from projections.lineage.runs import Omitted
from projections.processing.runner import connect

TableOrDataSet = Annotated[
    str, typer.Argument(help="alias.namespace.table, or a key such as dataset:…", metavar="TABLE", show_default=False)
]
Owner = Annotated[
    str | None,
    typer.Option("--tenant", help="Its tenant, by name or id; needed if there are several.", show_default=False),
]
Hops = Annotated[int, typer.Option("--hops", min=1, max=HOPS_MAX, help="How many steps to follow.")]

_EDGES: Final = (
    *("hops", "source", "target", "job", "run_id", "state", "event_time", "engine", "count"),
    *("source_version", "target_version", "is_kept"),
)
_COLUMNS: Final = ("target", "target_column", "source", "source_column", "count")
_CYCLES: Final = ("index", "last_index", "count", "source", "target", "path", "told_index")
_OMITTED: Final = ("key", *Omitted.__dataclass_fields__)


def lineage_app(open_services: OpenServices = open_home_services) -> typer.Typer:
    """
    Return the command, working with the services that `open_services` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.callback()
    def group() -> None:
        """See what was made from what."""

    @app.command()
    def show(table: TableOrDataSet, *, tenant: Owner = None, hops: Hops = HOPS, as_json: AsJson = False) -> None:
        """Show what a table was made from, what was made from it, by which jobs, and what was refused as a cycle."""
        key = key_of_data(table)

        async def read() -> Lineage:
            async with open_services() as services:
                installation = services.installation
                async with connect(installation.as_role(installation.roles.projector)) as connection:
                    owner = tenant and (await find_tenant(services, tenant))[0]
                    log = _log_of(await read_logs(connection), owner)
                    if not await is_known(connection, log.log_id, key):
                        raise UnknownTableError(key, nameless=0)
                    return await read_lineage(connection, log.log_id, key, hops=hops)

        _print(asyncio.run(read()), as_json=as_json)

    return app


def _log_of(logs: Iterable[Log], tenant: UUID | str | None) -> Log:
    chosen = [log for log in logs if log.tenant is not None and tenant in {None, log.tenant}]
    if len(chosen) != 1:
        found = "none" if not chosen else f"{len(chosen)}: name one with --tenant"
        raise ProjectionError(f"expected the log of one tenant, found {found}")
    return chosen[0]


def _print(lineage: Lineage, *, as_json: bool) -> None:
    if as_json:
        console.show_json(_document(lineage))
        return
    console.say(lineage.key)
    for title, columns, rows in (
        ("made from", _EDGES, [_edge(edge) for edge in lineage.upstream]),
        ("made of it", _EDGES, [_edge(edge) for edge in lineage.downstream]),
        ("columns", _COLUMNS, [_column(asdict(column)) for column in lineage.columns]),
        ("not drawn: it would be made from itself", _CYCLES, [_cycle(cycle) for cycle in lineage.cycles]),
        ("omitted: reported, and not drawn", _OMITTED, _omitted(lineage)),
    ):
        console.say(f"\n{title}")
        console.show_rows(columns, rows, as_json=False)


def _document(lineage: Lineage) -> dict[str, object]:
    return {
        "key": lineage.key,
        "upstream": [_edge(edge) for edge in lineage.upstream],
        "downstream": [_edge(edge) for edge in lineage.downstream],
        "columns": [asdict(column) for column in lineage.columns],
        "cycles": [_cycle(cycle) for cycle in lineage.cycles],
        "omitted": _omitted(lineage),
    }


def _edge(edge: LineageEdge) -> dict[str, object]:
    return asdict(edge)


def _column(column: dict[str, object]) -> dict[str, object]:
    return {**column, "target_column": "(every one)"} if column["target_column"] == WHOLE_DATASET else column


def _omitted(lineage: Lineage) -> list[dict[str, object]]:
    return [{"key": key, **asdict(omitted)} for key, omitted in lineage.omitted.items()]


def _cycle(cycle: Cycle) -> dict[str, object]:
    return {**asdict(cycle), "group_id": str(cycle.group_id), "path": list(cycle.path)}
