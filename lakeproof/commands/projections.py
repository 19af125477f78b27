# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof projections …`: how far the read models are, and rebuilding them from the log.

They work on the database of the home, also while `lakeproof up` runs: rebuilds take their locks in the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Protocol

import typer

from lakeproof import console
from lakeproof.commands.opening import OpenServices, open_home_services
from lakeproof.commands.options import AsJson, SomeTenant, one_of
from lakeproof.projecting import PROJECTIONS, attest, find_projection, progress_shown, rebuilt_shown
from lakeproof.services import Services
from lakeproof.tenants import find_tenant
from ledger.format.sealing import Opener
from ledger.store.read import Log
from projections.errors import ProjectionError
from projections.processing.cursors import Progress
from projections.processing.generations import AppendAttestation, Rebuilt, ReportProgress, prune, rebuild, replace
from projections.processing.projection import Projection
from projections.processing.runner import ProjectionRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """The logs that a command is for: of a tenant, of an origin, or without either all that are projected."""

    tenant: str | None
    origin: str | None


Name = Annotated[
    str,
    typer.Argument(
        help="The projection: graph, commits, lineage, …",
        autocompletion=one_of(each.name for each in PROJECTIONS),
        show_default=False,
    ),
]
Origin = Annotated[str | None, typer.Option("--log", help="Only of the log with this origin.", show_default=False)]

_COLUMNS = ("log", "projection", "state", "generation", "version", "next_index", "size", "lag_entries")


def projections_app(
    open_services: OpenServices = open_home_services, projections: Sequence[Projection] = PROJECTIONS
) -> typer.Typer:
    """
    Return the commands on `projections`, working with the services that `open_services` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def status(*, as_json: AsJson = False) -> None:
        """Show how far every projection of every log is."""

        async def read() -> list[dict[str, object]]:
            async with open_services() as services:
                versions = {projection.name: projection.version for projection in projections}
                progress = await ProjectionRunner(projector_dsn(services), projections).progress()
            return [_row(each, versions) for each in progress]

        console.show_rows(_COLUMNS, asyncio.run(read()), as_json=as_json)

    @app.command("rebuild")
    def rebuild_(name: Name, *, tenant: SomeTenant = None, log: Origin = None, as_json: AsJson = False) -> None:
        """Build a projection again from the log, compare, and switch to it if it is the same."""
        selected = LogSelection(tenant=tenant, origin=log)
        asyncio.run(_build(open_services, projections, rebuild, name, selected, as_json=as_json))

    @app.command("replace")
    def replace_(name: Name, *, tenant: SomeTenant = None, log: Origin = None, as_json: AsJson = False) -> None:
        """Build a projection again and switch to it, whatever the live one says: that is outdated, or wrong."""
        selected = LogSelection(tenant=tenant, origin=log)
        asyncio.run(_build(open_services, projections, replace, name, selected, as_json=as_json))

    @app.command("prune")
    def prune_(*, tenant: SomeTenant = None, log: Origin = None, as_json: AsJson = False) -> None:
        """Drop the generations that are not live; readers that still hold the name of one lose it."""
        selected = LogSelection(tenant=tenant, origin=log)
        asyncio.run(_prune(open_services, projections, selected, as_json=as_json))

    return app


class _Builds(Protocol):
    """`rebuild`, or `replace`."""

    async def __call__(
        self,
        dsn: str,
        projection: Projection,
        log: Log,
        /,
        *,
        append: AppendAttestation,
        report: ReportProgress,
        opener: Opener,
    ) -> Rebuilt: ...


async def _build(
    open_services: OpenServices,
    projections: Sequence[Projection],
    build: _Builds,
    name: str,
    selected: LogSelection,
    *,
    as_json: bool,
) -> None:
    rows: list[dict[str, object]] = []
    async with open_services() as services:
        projection = find_projection(projections, name)
        logs = await select_logs(services, [projection], selected)
        if not logs and not as_json:
            console.say(f"no log has the projection {name} yet: `lakeproof up` makes it")
        for log in logs:
            with console.status_line() as show:
                report = _report(show, log)
                rebuilt = await build(
                    projector_dsn(services),
                    projection,
                    log,
                    append=partial(attest, services),
                    report=report,
                    opener=services.opener,
                )
            if not as_json:
                console.say(_sentence(rebuilt, log))
            rows.append({"log": log.origin, **rebuilt_shown(rebuilt)})
    if as_json:
        console.show_json(rows)


async def _prune(
    open_services: OpenServices, projections: Sequence[Projection], selected: LogSelection, *, as_json: bool
) -> None:
    dropped: list[dict[str, object]] = []
    async with open_services() as services:
        for log in await select_logs(services, projections, selected):
            for projection in projections:
                for generation in await prune(projector_dsn(services), projection, log):
                    if not as_json:
                        console.say(f"{projection.name} of {log.origin}: generation {generation} dropped")
                    dropped.append({"log": log.origin, "projection": projection.name, "generation": generation})
    console.show_done(f"{len(dropped)} generations dropped", {"dropped": dropped}, as_json=as_json)


def _row(progress: Progress, versions: Mapping[str, int]) -> dict[str, object]:
    tenant = progress.log.tenant
    row = progress_shown(progress, versions)
    return {"log": progress.log.origin, "tenant": tenant and tenant.hex, **row}


def projector_dsn(services: Services) -> str:
    """Return the connection string of the projector role."""
    return services.installation.as_role(services.installation.roles.projector)


async def select_logs(services: Services, projections: Sequence[Projection], selected: LogSelection) -> list[Log]:
    """
    Return the selected logs; if none is named, all that have a live generation.

    Raises:
        ProjectionError: if the named one does not exist.
    """
    progress = await ProjectionRunner(projector_dsn(services), projections).progress()
    if selected.tenant is None and selected.origin is None:
        return list({each.log.log_id: each.log for each in progress if each.generation is not None}.values())
    tenant = None if selected.tenant is None else (await find_tenant(services, selected.tenant))[0]
    chosen = {
        each.log.log_id: each.log
        for each in progress
        if (tenant is None or each.log.tenant == tenant) and selected.origin in {None, each.log.origin}
    }
    if not chosen:
        raise ProjectionError(f"log {selected.origin}: expected the origin of a tenant's log, found none of that name")
    return list(chosen.values())


def _report(show: Callable[[str], None], log: Log) -> ReportProgress:
    return lambda done, of: show(f"{log.origin}: {done:,} of {of:,} entries")


def _sentence(rebuilt: Rebuilt, log: Log) -> str:
    attested = rebuilt.attested
    digests = "digests equal" if rebuilt.compared else "not compared, digest"
    return (
        f"{attested.projection} of {log.origin}: generation {rebuilt.replaced} -> {attested.generation} "
        f"from {attested.size:,} entries; {digests}: {attested.digest}; attested in the log"
    )
