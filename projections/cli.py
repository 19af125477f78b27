"""
The commands `lakeproof projections …`: how far the read models are, and building them again from the log.

They work on the database of the home, also beside a running `lakeproof up`: rebuilds take their locks in the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Protocol, TypeAlias
from uuid import UUID

import typer

from ledger.events import ProjectionAttested
from ledger.read import Log
from projections.cursors import Progress
from projections.errors import ProjectionError
from projections.generations import AppendAttestation, Rebuilt, Report, prune, rebuild, replace
from projections.projection import Projection
from projections.runner import Runner


class Workshop(Protocol):
    """What the commands work on; `dsn` works as the projector role."""

    @property
    def dsn(self) -> str: ...

    @property
    def projections(self) -> Sequence[Projection]: ...

    async def attest(self, log: Log, attested: ProjectionAttested, /) -> None:
        """Append the attestation to the log that was projected."""

    async def tenant_of(self, name: str) -> UUID:
        """Return the tenant of that name or id."""


class Console(Protocol):
    """Where the commands print."""

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
Name = Annotated[str, typer.Argument(help="The projection: commits, metrics or graph.", show_default=False)]
Tenant = Annotated[
    str | None, typer.Option("--tenant", help="Only of this tenant: its name or id.", show_default=False)
]
Origin = Annotated[str | None, typer.Option("--log", help="Only of the log with this origin.", show_default=False)]

_COLUMNS = ("log", "projection", "state", "generation", "version", "next_index", "size", "lag_entries")


def projections_app(open_workshop: OpenWorkshop, console: Console) -> typer.Typer:
    """
    Return the commands, working on what `open_workshop` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def status(*, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
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

    return app


class _Builds(Protocol):
    """`rebuild`, or `replace`."""

    async def __call__(
        self, dsn: str, projection: Projection, log: Log, /, *, append: AppendAttestation, report: Report
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
                rebuilt = await build(workshop.dsn, projection, log, append=workshop.attest, report=report)
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


def _report(show: Callable[[str], None], log: Log) -> Report:
    return lambda done, of: show(f"{log.origin}: {done:,} of {of:,} entries")


def _sentence(rebuilt: Rebuilt, log: Log) -> str:
    attested = rebuilt.attested
    digests = "digests equal" if rebuilt.compared else "not compared, digest"
    return (
        f"{attested.projection} of {log.origin}: generation {rebuilt.replaced} -> {attested.generation} "
        f"from {attested.size:,} entries; {digests}: {attested.digest}; attested in the log"
    )
