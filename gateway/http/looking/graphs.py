# SPDX-License-Identifier: Apache-2.0
"""
Answers of the graph for one caller: tables, columns and data sets that may not be seen are left out, and so are jobs,
engines and people for whoever may not read lineage. A walk may have passed what is left out: its hops count it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

from gateway.errors import BadRequestError, NotFoundError, UnavailableError
from gateway.http.looking.reading import Looking
from gateway.http.looking.shown import plain
from gateway.http.looking.sight import Sight
from ledger.store.session import Connection
from projections.errors import NotProjectedError, ProjectionError, UnknownTableError
from projections.graph.answers import DataRef, TableAnswers
from projections.graph.projection import GRAPH
from projections.graph.read import Graph, KnownTable, open_graph
from projections.graph.scan_coverage import ScanCoverage
from projections.graph.traversals import Impact, Propagation
from projections.graph.walking import Reached
from projections.lineage.runs import Omitted
from projections.relational.current_findings import read_end


@asynccontextmanager
async def asking_graph(looking: Looking) -> AsyncIterator[tuple[Graph, int]]:
    """
    Yield the graph of the caller's tenant, and how many entries of the log it does not hold yet.

    Raises:
        NotFoundError: if it has no such table.
        BadRequestError: if the question is none.
        UnavailableError: if there is no graph yet, or it takes too long.
    """
    try:
        async with looking.reading() as connection:
            graph, lag_entries = await open_graph(connection), await read_lag(connection, looking.caller.log_id)
            yield graph, lag_entries
    except UnknownTableError as error:
        raise NotFoundError(str(error), kind="NoSuchTableException") from error
    except NotProjectedError as error:
        raise UnavailableError(f"{error}: try again") from error
    except ProjectionError as error:
        raise BadRequestError(str(error)) from error


async def read_lag(connection: Connection, log_id: int) -> int:
    """Return how many entries of a log its graph does not hold yet."""
    end = await read_end(connection, log_id, GRAPH)
    return end.size - end.next_index


async def answers_shown(answers: TableAnswers, state: KnownTable, sight: Sight) -> dict[str, Any]:
    """
    Return the five answers about a table, which the caller may see.
    """
    shown = asdict(answers)
    if not await sight.reads_inputs():
        for write in shown["writes"]:
            write["principal"] = None
    with_jobs = await sight.reads_lineage()
    return {
        **plain(shown),
        "made_from": plain(await _seen(answers.made_from, sight)),
        "read_into": plain(await _seen(answers.read_into, sight)),
        "made_by": plain(shown["made_by"]) if with_jobs else None,
        "read_by": plain(shown["read_by"]) if with_jobs else None,
        "evidence": _evidence(answers.evidence),
        **await _state(state, sight),
    }


async def impact_shown(impact: Impact, sight: Sight) -> dict[str, Any]:
    """
    Return what lies downstream of a table, as far as the caller may see it.
    """
    return {
        "table": impact.table,
        **await _state(impact.state, sight),
        "tables": await _reached(impact.tables, sight),
        "columns": await _reached(impact.columns, sight),
        "readers": await _readers(impact.readers, sight),
        "omitted": await _omitted(impact.omitted, sight),
        "is_cut": impact.is_cut,
    }


async def propagation_shown(gone: Propagation, sight: Sight) -> dict[str, Any]:
    """
    Return where personal data of a table may have gone, as far as the caller may see that.
    """
    return {
        "table": gone.table,
        **await _state(gone.state, sight),
        "found": plain([asdict(each) for each in gone.found if await sight.sees(each.key)]),
        "evidence": _evidence(gone.evidence),
        "columns": await _reached(gone.columns, sight),
        "tables": await _reached(gone.tables, sight),
        "omitted": await _omitted(gone.omitted, sight),
        "is_cut": gone.is_cut,
    }


async def _seen(refs: Sequence[DataRef], sight: Sight) -> list[dict[str, Any]]:
    await sight.prepare(each.key for each in refs)
    return [asdict(each) for each in refs if await sight.sees(each.key)]


async def _reached(found: Sequence[Reached], sight: Sight) -> list[dict[str, Any]]:
    await sight.prepare(key for each in found for key in (each.key, each.origin))
    return [_shown(each) for each in found if await sight.sees_all((each.key, each.origin))]


async def _readers(found: Sequence[Reached], sight: Sight) -> list[dict[str, Any]]:
    """Jobs, engines and people, each by the table that it reads."""
    if not await sight.reads_lineage():
        return []
    await sight.prepare(each.origin for each in found)
    return [_shown(each) for each in found if await sight.sees(each.origin)]


def _shown(reached: Reached) -> dict[str, Any]:
    # Not by `asdict`: there are thousands.
    return {"label": reached.label.value, "key": reached.key, "hops": reached.hops, "origin": reached.origin}


async def _omitted(omitted: Mapping[str, Omitted], sight: Sight) -> dict[str, Any]:
    await sight.prepare(omitted)
    return {key: asdict(each) for key, each in omitted.items() if await sight.sees(key)}


async def _state(state: KnownTable, sight: Sight) -> dict[str, Any]:
    """What became of a table: its present name is told to whoever may see it there."""
    is_seen = state.renamed_to is not None and await sight.sees(state.renamed_to)
    return {
        "table_uuid": state.table_uuid,
        "renamed_to": state.renamed_to if is_seen else None,
        "is_dropped": state.is_dropped,
    }


def _evidence(evidence: ScanCoverage) -> dict[str, Any]:
    """How much of a table was scanned, and why what was not found may be there all the same."""
    return {**plain(asdict(evidence)), "gaps": list(evidence.gaps)}
