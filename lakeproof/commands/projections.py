"""
The commands `lakeproof projections …`: how far the read models are, building them again from the log, and asking the
graph.

They work on the database of the home, also beside a running `lakeproof up`: rebuilds take their locks in the database.
The graph is asked as the tenant's reader, who sees nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias, TypeVar
from uuid import UUID

import typer
from psycopg import sql

from ledger.format.events import ProjectionAttested
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
from projections.processing.runner import Runner, connect

A = TypeVar("A", TableAnswers, Impact, Propagation)


class Workshop(Protocol):
    """What the commands work on; `dsn` works as the projector role."""

    @property
    def dsn(self) -> str: ...

    @property
    def projections(self) -> Sequence[Projection]: ...

    @property
    def opener(self) -> Opener:
        """What opens sealed payload parts."""

    async def attest(self, log: Log, attested: ProjectionAttested, /) -> None:
        """Append the attestation to the log that was projected."""

    async def tenant_of(self, name: str) -> UUID:
        """Return the tenant of that name or id."""


class Console(Protocol):
    """Where the commands print."""

    def show_json(self, value: object) -> None: ...

    def show_rows(self, columns: Sequence[str], rows: Sequence[Mapping[str, object]], *, as_json: bool) -> None: ...
    def say(self, text: str) -> None: ...
    def progress(self) -> AbstractContextManager[Callable[[str], None]]: ...


class State(StrEnum):
    """What an operator does about a projection: nothing, wait, start `lakeproof up`, or `replace`."""

    CURRENT = "current"
    BEHIND = "behind"
    NOT_BEGUN = "not begun"
    OTHER_VERSION = "other version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Which logs a command is for; without either, all that are projected."""

    tenant: str | None
    origin: str | None


OpenWorkshop: TypeAlias = Callable[[], AbstractAsyncContextManager[Workshop]]
Name = Annotated[str, typer.Argument(help="The projection: graph, commits, lineage, …", show_default=False)]
Tenant = Annotated[
    str | None, typer.Option("--tenant", help="Only of this tenant: its name or id.", show_default=False)
]
Origin = Annotated[str | None, typer.Option("--log", help="Only of the log with this origin.", show_default=False)]
Table = Annotated[
    str,
    typer.Argument(help="The table: <catalog>.<namespace>.<table>, or its key table:…/…", show_default=False),
]
Svg = Annotated[Path | None, typer.Option("--svg", help="Also draw it to this file.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

_COLUMNS = ("log", "projection", "state", "generation", "version", "next_index", "size", "lag_entries")


def projections_app(open_workshop: OpenWorkshop, console: Console) -> typer.Typer:
    """
    Return the commands, working on what `open_workshop` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def status(*, as_json: AsJson = False) -> None:
        """Show how far every projection of every log is."""

        async def read() -> list[dict[str, object]]:
            async with open_workshop() as workshop:
                versions = {projection.name: projection.version for projection in workshop.projections}
                progress = await Runner(workshop.dsn, workshop.projections).progress()
            return [_row(each, versions[each.projection]) for each in progress]

        console.show_rows(_COLUMNS, asyncio.run(read()), as_json=as_json)

    @app.command("rebuild")
    def rebuild_(name: Name, *, tenant: Tenant = None, log: Origin = None) -> None:
        """Build a projection again from the log, compare, and switch to it if it is the same."""
        asyncio.run(_build(open_workshop, console, rebuild, name, Which(tenant=tenant, origin=log)))

    @app.command("replace")
    def replace_(name: Name, *, tenant: Tenant = None, log: Origin = None) -> None:
        """Build a projection again and switch to it, whatever the live one says: that is outdated, or wrong."""
        asyncio.run(_build(open_workshop, console, replace, name, Which(tenant=tenant, origin=log)))

    @app.command("prune")
    def prune_(*, tenant: Tenant = None, log: Origin = None) -> None:
        """Drop the generations that are not live; readers that still hold the name of one lose it."""

        asyncio.run(_prune(open_workshop, console, Which(tenant=tenant, origin=log)))

    @app.command("graph")
    def graph_(
        table: Table, *, svg: Svg = None, as_json: AsJson = False, tenant: Tenant = None, log: Origin = None
    ) -> None:
        """Answer for a table: who wrote it, made from what, allowed by which policy, what was found, who reads it."""
        which, key = Which(tenant=tenant, origin=log), key_of_table(table)
        answers, lag = asyncio.run(_ask(open_workshop, which, lambda graph: graph.answers(key)))
        if svg is not None:
            _write_picture(svg, draw_answers(answers))
        _show(console, answers, format_answers(answers), lag=lag, as_json=as_json)

    @app.command()
    def traverse(
        preset: Annotated[Traversal, typer.Argument(help="What to follow.", show_default=False)],
        table: Table,
        *,
        hops: Annotated[int, typer.Option("--hops", help="How far, at most 5.")] = HOPS,
        as_json: AsJson = False,
        tenant: Tenant = None,
        log: Origin = None,
    ) -> None:
        """Follow lineage downstream of a table: what a change touches, or where personal data may have gone."""
        which, key = Which(tenant=tenant, origin=log), key_of_table(table)
        match preset:
            case Traversal.IMPACT_ANALYSIS:
                impact, lag = asyncio.run(
                    _ask(open_workshop, which, lambda graph: impact_analysis(graph, key, hops=hops))
                )
                _show(console, impact, format_impact(impact), lag=lag, as_json=as_json)
            case Traversal.PII_PROPAGATION:
                gone, lag = asyncio.run(
                    _ask(open_workshop, which, lambda graph: pii_propagation(graph, key, hops=hops))
                )
                _show(console, gone, format_propagation(gone), lag=lag, as_json=as_json)

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


async def _build(open_workshop: OpenWorkshop, console: Console, build: _Builds, name: str, which: Which) -> None:
    async with open_workshop() as workshop:
        projection = _projection(workshop, name)
        logs = await _logs(workshop, [projection], which)
        if not logs:
            console.say(f"no log has the projection {name} yet: `lakeproof up` makes it")
        for log in logs:
            with console.progress() as show:
                report = _report(show, log)
                rebuilt = await build(
                    workshop.dsn, projection, log, append=workshop.attest, report=report, opener=workshop.opener
                )
            console.say(_sentence(rebuilt, log))


async def _prune(open_workshop: OpenWorkshop, console: Console, which: Which) -> None:
    dropped = 0
    async with open_workshop() as workshop:
        for log in await _logs(workshop, workshop.projections, which):
            for projection in workshop.projections:
                for generation in await prune(workshop.dsn, projection, log):
                    console.say(f"{projection.name} of {log.origin}: generation {generation} dropped")
                    dropped += 1
    console.say(f"{dropped} generations dropped")


async def _ask(
    open_workshop: OpenWorkshop, which: Which, question: Callable[[Graph], Coroutine[Any, Any, A]]
) -> tuple[A, int]:
    """
    Ask the graph of the one log that is meant, as its tenant's reader; return also how many entries it is behind.

    Raises:
        ProjectionError: if it is not one, or the question cannot be answered.
    """
    async with open_workshop() as workshop:
        logs = await _logs(workshop, [_projection(workshop, GRAPH)], which)
        if len(logs) != 1:
            raise ProjectionError(f"expected one log with a graph, found {len(logs)}: name it by --tenant or --log")
        progress = await Runner(workshop.dsn, workshop.projections).progress()
        lag = {each.log.log_id: each.lag_entries for each in progress if each.projection == GRAPH}
        async with connect(workshop.dsn) as connection, connection.transaction():
            role = sql.Identifier(logs[0].reader or "none")
            await connection.execute(sql.SQL("SET LOCAL ROLE {}").format(role))
            return await question(await open_graph(connection)), lag.get(logs[0].log_id) or 0


def _show(
    console: Console, answer: TableAnswers | Impact | Propagation, lines: Iterable[str], *, lag: int, as_json: bool
) -> None:
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


def _state(progress: Progress, version: int) -> State:
    if progress.generation is None:
        return State.NOT_BEGUN
    if progress.version != version:
        return State.OTHER_VERSION
    return State.BEHIND if progress.lag_entries else State.CURRENT


def _projection(workshop: Workshop, name: str) -> Projection:
    for projection in workshop.projections:
        if projection.name == name:
            return projection
    names = ", ".join(projection.name for projection in workshop.projections)
    raise ProjectionError(f"projection {name!r:.80}: expected one of {names}")


async def _logs(workshop: Workshop, projections: Iterable[Projection], which: Which) -> list[Log]:
    """
    Return the logs that `which` names; of those that it does not name, the ones that have a live generation.

    Raises:
        ProjectionError: if it names one that is not there.
    """
    names = {projection.name for projection in projections}
    progress = [
        each for each in await Runner(workshop.dsn, workshop.projections).progress() if each.projection in names
    ]
    if which.tenant is None and which.origin is None:
        return list({each.log.log_id: each.log for each in progress if each.generation is not None}.values())
    tenant = None if which.tenant is None else await workshop.tenant_of(which.tenant)
    chosen = {
        each.log.log_id: each.log
        for each in progress
        if (tenant is None or each.log.tenant == tenant) and which.origin in {None, each.log.origin}
    }
    if not chosen:
        raise ProjectionError(f"log {which.origin}: expected the origin of a tenant's log, found none of that name")
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
