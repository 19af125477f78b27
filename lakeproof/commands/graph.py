# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof graph …`: what the graph of a tenant says about a table.

Queries run as the tenant's reader, which can read nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from psycopg import sql

from lakeproof import console
from lakeproof.commands.opening import OpenServices, open_home_services
from lakeproof.commands.options import AsJson, SomeTenant
from lakeproof.commands.projections import LogSelection, Origin, projector_dsn, select_logs
from lakeproof.projecting import PROJECTIONS, find_projection
from projections.errors import ProjectionError
from projections.graph.answers import TableAnswers
from projections.graph.answers_svg import draw_answers
from projections.graph.answers_text import format_answers, format_impact, format_propagation
from projections.graph.display_names import key_of_table
from projections.graph.projection import GRAPH
from projections.graph.read import HOPS, Graph, open_graph
from projections.graph.traversals import Impact, Propagation, Traversal, impact_analysis, pii_propagation
from projections.processing.projection import Projection
from projections.processing.runner import ProjectionRunner, connect

A = TypeVar("A", TableAnswers, Impact, Propagation)

TableArgument = Annotated[
    str,
    typer.Argument(help="The table: <catalog>.<namespace>.<table>, or its key table:…/…", show_default=False),
]
Svg = Annotated[Path | None, typer.Option("--svg", help="Also draw it to this file.", show_default=False)]


def graph_app(
    open_services: OpenServices = open_home_services, projections: Sequence[Projection] = PROJECTIONS
) -> typer.Typer:
    """
    Return the commands, working with the services that `open_services` opens; the graph is one of `projections`.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command("show")
    def show_(
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
        logs = await select_logs(services, [find_projection(projections, GRAPH)], selected)
        if len(logs) != 1:
            raise ProjectionError(f"expected one log with a graph, found {len(logs)}: name it by --tenant or --log")
        progress = await ProjectionRunner(projector_dsn(services), projections).progress()
        lag = {each.log.log_id: each.lag_entries for each in progress if each.projection == GRAPH}
        async with connect(projector_dsn(services)) as connection, connection.transaction():
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
