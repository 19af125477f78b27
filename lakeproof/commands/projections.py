# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof projections …`: how far the read models are, rebuilding them from the log, and
querying the graph.

They work on the database of the home, also while `lakeproof up` runs: rebuilds take their locks in the database.
Queries of the graph run as the tenant's reader, which can read nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import typer
from psycopg import sql

from lakeproof import console
from lakeproof.commands.opening import OpenServices, open_home_services
from lakeproof.commands.options import AsJson, SomeTenant
from lakeproof.projecting import PROJECTIONS, attest
from lakeproof.services import Services
from lakeproof.tenants import find_tenant
from ledger.format.sealing import Opener
from ledger.store.read import Log
from projections.errors import ProjectionError
from projections.graph.answers import TableAnswers
from projections.graph.answers_svg import draw_answers
from projections.graph.answers_text import format_answers, format_impact, format_propagation
from projections.graph.display_names import key_of_table
from projections.graph.projection import GRAPH
from projections.graph.read import HOPS, Graph, open_graph
from projections.graph.traversals import Impact, Propagation, Traversal, impact_analysis, pii_propagation
from projections.processing.cursors import Progress
from projections.processing.generations import AppendAttestation, Rebuilt, ReportProgress, prune, rebuild, replace
from projections.processing.projection import Projection
from projections.processing.runner import ProjectionRunner, connect

A = TypeVar("A", TableAnswers, Impact, Propagation)


class ProjectionState(StrEnum):
    """What an operator does about a projection: nothing, wait, start `lakeproof up`, or `replace`."""

    CURRENT = "current"
    BEHIND = "behind"
    NOT_BEGUN = "not begun"
    OTHER_VERSION = "other version"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """The logs that a command is for: of a tenant, of an origin, or without either all that are projected."""

    tenant: str | None
    origin: str | None


Name = Annotated[str, typer.Argument(help="The projection: graph, commits, lineage, …", show_default=False)]
Origin = Annotated[str | None, typer.Option("--log", help="Only of the log with this origin.", show_default=False)]
TableArgument = Annotated[
    str,
    typer.Argument(help="The table: <catalog>.<namespace>.<table>, or its key table:…/…", show_default=False),
]
Svg = Annotated[Path | None, typer.Option("--svg", help="Also draw it to this file.", show_default=False)]

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
                progress = await ProjectionRunner(_dsn(services), projections).progress()
            return [_row(each, versions[each.projection]) for each in progress]

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

    @app.command("graph")
    def graph_(
        table: TableArgument, *, svg: Svg = None, as_json: AsJson = False, tenant: SomeTenant = None, log: Origin = None
    ) -> None:
        """Answer for a table: who wrote it, made from what, allowed by which policy, what was found, who reads it."""
        selected, key = LogSelection(tenant=tenant, origin=log), key_of_table(table)
        answers, lag = asyncio.run(_query(open_services, projections, selected, lambda graph: graph.answers(key)))
        if svg is not None:
            _write_picture(svg, draw_answers(answers))
        _show(answers, format_answers(answers), lag=lag, as_json=as_json)

    @app.command()
    def traverse(
        preset: Annotated[Traversal, typer.Argument(help="What to follow.", show_default=False)],
        table: TableArgument,
        *,
        hops: Annotated[int, typer.Option("--hops", help="How far, at most 5.")] = HOPS,
        as_json: AsJson = False,
        tenant: SomeTenant = None,
        log: Origin = None,
    ) -> None:
        """Follow lineage downstream of a table: what a change touches, or where personal data may have gone."""
        selected, key = LogSelection(tenant=tenant, origin=log), key_of_table(table)
        match preset:
            case Traversal.IMPACT_ANALYSIS:
                impact, lag = asyncio.run(
                    _query(open_services, projections, selected, lambda graph: impact_analysis(graph, key, hops=hops))
                )
                _show(impact, format_impact(impact), lag=lag, as_json=as_json)
            case Traversal.PII_PROPAGATION:
                gone, lag = asyncio.run(
                    _query(open_services, projections, selected, lambda graph: pii_propagation(graph, key, hops=hops))
                )
                _show(gone, format_propagation(gone), lag=lag, as_json=as_json)

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
        projection = _projection(projections, name)
        logs = await _logs(services, [projection], selected)
        if not logs and not as_json:
            console.say(f"no log has the projection {name} yet: `lakeproof up` makes it")
        for log in logs:
            with console.status_line() as show:
                report = _report(show, log)
                rebuilt = await build(
                    _dsn(services),
                    projection,
                    log,
                    append=partial(attest, services),
                    report=report,
                    opener=services.opener,
                )
            if not as_json:
                console.say(_sentence(rebuilt, log))
            rows.append(_rebuilt_row(rebuilt, log))
    if as_json:
        console.show_json(rows)


def _rebuilt_row(rebuilt: Rebuilt, log: Log) -> dict[str, object]:
    attested = rebuilt.attested
    return {
        "log": log.origin,
        "projection": attested.projection,
        "replaced": rebuilt.replaced,
        "generation": attested.generation,
        "size": attested.size,
        "digest": attested.digest,
        "compared": rebuilt.compared,
    }


async def _prune(
    open_services: OpenServices, projections: Sequence[Projection], selected: LogSelection, *, as_json: bool
) -> None:
    dropped: list[dict[str, object]] = []
    async with open_services() as services:
        for log in await _logs(services, projections, selected):
            for projection in projections:
                for generation in await prune(_dsn(services), projection, log):
                    if not as_json:
                        console.say(f"{projection.name} of {log.origin}: generation {generation} dropped")
                    dropped.append({"log": log.origin, "projection": projection.name, "generation": generation})
    console.show_done(f"{len(dropped)} generations dropped", {"dropped": dropped}, as_json=as_json)


async def _query(
    open_services: OpenServices,
    projections: Sequence[Projection],
    selected: LogSelection,
    question: Callable[[Graph], Coroutine[Any, Any, A]],
) -> tuple[A, int]:
    """
    Query the graph of the selected log as its tenant's reader; return the answer, and how many entries the graph lags.

    Raises:
        ProjectionError: if the selection is not exactly one log, or the query fails.
    """
    async with open_services() as services:
        logs = await _logs(services, [_projection(projections, GRAPH)], selected)
        if len(logs) != 1:
            raise ProjectionError(f"expected one log with a graph, found {len(logs)}: name it by --tenant or --log")
        progress = await ProjectionRunner(_dsn(services), projections).progress()
        lag = {each.log.log_id: each.lag_entries for each in progress if each.projection == GRAPH}
        async with connect(_dsn(services)) as connection, connection.transaction():
            role = sql.Identifier(logs[0].reader or "none")
            await connection.execute(sql.SQL("SET LOCAL ROLE {}").format(role))
            return await question(await open_graph(connection)), lag.get(logs[0].log_id) or 0


def _show(answer: TableAnswers | Impact | Propagation, lines: Iterable[str], *, lag: int, as_json: bool) -> None:
    """Print an answer; `lag` entries of the log are not in it yet."""
    if as_json:
        document = asdict(answer) | {"lag_entries": lag}
        if not isinstance(answer, Impact):
            document["evidence"] |= {"gaps": list(answer.evidence.gaps)}
        console.show_json(document)
        return
    for line in lines:
        console.say(line)
    if lag:
        console.say(f"\nThe graph is {lag} entries behind the log: ask again when `projections status` says current.")


def _write_picture(file: Path, picture: str) -> None:
    try:
        file.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise ProjectionError(f"picture {file}: cannot be written: {error.strerror}") from error


def _row(progress: Progress, version: int) -> dict[str, object]:
    return {
        "log": progress.log.origin,
        "tenant": progress.log.tenant and progress.log.tenant.hex,
        "projection": progress.projection,
        "state": _state(progress, version),
        "generation": progress.generation,
        "version": progress.version,
        "next_index": progress.next_index,
        "size": progress.size,
        "lag_entries": progress.lag_entries,
    }


def _state(progress: Progress, version: int) -> ProjectionState:
    if progress.generation is None:
        return ProjectionState.NOT_BEGUN
    if progress.version != version:
        return ProjectionState.OTHER_VERSION
    return ProjectionState.BEHIND if progress.lag_entries else ProjectionState.CURRENT


def _projection(projections: Sequence[Projection], name: str) -> Projection:
    for projection in projections:
        if projection.name == name:
            return projection
    names = ", ".join(projection.name for projection in projections)
    raise ProjectionError(f"projection {name!r:.80}: expected one of {names}")


def _dsn(services: Services) -> str:
    """Return the connection string of the projector role."""
    return services.installation.as_role(services.installation.roles.projector)


async def _logs(services: Services, projections: Sequence[Projection], selected: LogSelection) -> list[Log]:
    """
    Return the selected logs; if none is named, all that have a live generation.

    Raises:
        ProjectionError: if the named one does not exist.
    """
    progress = await ProjectionRunner(_dsn(services), projections).progress()
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
