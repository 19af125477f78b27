# SPDX-License-Identifier: Apache-2.0
"""
Answers of the graph as lines of text, for a terminal. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from projections.graph.answers import RunSummary, TableAnswers, TableSnapshot, TableWrite
from projections.graph.display_names import display_name, legible
from projections.graph.read import KnownTable
from projections.graph.scan_coverage import ScanCoverage
from projections.graph.traversals import Impact, Propagation
from projections.graph.walking import Reached
from projections.lineage.runs import Omitted

_OMITTED: Final = "Omitted: lineage reported of these tables and not drawn"


def format_answers(answers: TableAnswers) -> list[str]:
    """
    Return the five answers, each under a heading.
    """
    return [
        legible(format_name(answers.table)),
        *_section("Who wrote it?", [*map(_write, answers.writes), *map(_ungoverned, answers.ungoverned)], "nobody yet"),
        *_section(
            "From what was it made?",
            [
                *(format_name(source.key) for source in answers.made_from),
                *(f"by {_work(work)}" for work in answers.made_by),
            ],
            "no lineage known",
        ),
        *_section(
            "Which policy allowed it?",
            (
                f"{policy.id} v{policy.version}, on {' and '.join(policy.governs)}"
                f"{'' if policy.is_in_force else ' (ended)'}"
                for policy in answers.allowed_by
            ),
            "no policy judged it",
        ),
        *_section(
            "What was found in it?",
            (
                f"{found.column}: {found.kind}, {found.confidence_percent} %, in {found.snapshots}"
                f" snapshots{found.reviewed}"
                for found in answers.found
            ),
            answers.evidence.nothing,
        ),
        *_rests_on(answers.evidence),
        *_section(
            "Who else reads it?",
            [*map(_work, answers.read_by), *(f"{format_name(data.key)} is made from it" for data in answers.read_into)],
            "nobody known",
        ),
        *([] if answers.omitted is None else _section(_OMITTED, [format_omitted(answers.omitted)], "nothing")),
    ]


def format_impact(impact: Impact) -> list[str]:
    """
    Return what lies downstream of a table.
    """
    return [
        *_heading(impact.table, impact.state),
        *_section("Tables made from it", _reached(impact.tables), "none known"),
        *_section("Columns made from its columns", _reached_from(impact.columns), "none known"),
        *_section("Who works with these tables", _reached_from(impact.readers), "nobody known"),
        *_section(_OMITTED, _omitted(impact.omitted), "nothing"),
    ]


def format_propagation(propagation: Propagation) -> list[str]:
    """
    Return where personal data that was found in a table may be.
    """
    return [
        *_heading(propagation.table, propagation.state),
        *_section(
            "Found in it",
            (
                f"{column.found.column}: {column.found.kind}, {column.found.confidence_percent} %"
                for column in propagation.found
            ),
            propagation.evidence.nothing,
        ),
        *_rests_on(propagation.evidence),
        *_section("Columns made from those", _reached_from(propagation.columns), "none known"),
        *_section("Tables made from it, which may hold it in any column", _reached(propagation.tables), "none known"),
        *_section(_OMITTED, _omitted(propagation.omitted), "nothing"),
    ]


def format_name(key: str) -> str:
    """
    Return the name in a key, and its place, in words.
    """
    name = display_name(key)
    return name.name if name.place is None else f"{name.name} in {name.place}"


def format_omitted(omitted: Omitted) -> str:
    """
    Return what is not drawn, in words.
    """
    return ", ".join(f"{count} {name}" for name, count in omitted.counts().items())


def _heading(key: str, table: KnownTable) -> list[str]:
    """Return what a table is called, and what became of it."""
    lines = [legible(format_name(key))]
    if table.renamed_to is not None:
        lines.append(legible(f"  called {format_name(table.renamed_to)} now"))
    elif table.is_dropped:
        lines.append("  dropped, or replaced by another table of this name")
    return lines


def _rests_on(evidence: ScanCoverage) -> list[str]:
    """Return what an answer about personal data rests on."""
    return [f"  ({evidence.summary})", *(legible(f"  not known: {gap}") for gap in evidence.gaps)]


def _section(heading: str, lines: Iterable[str], empty: str) -> list[str]:
    found = [f"  {legible(line)}" for line in lines]
    return ["", heading, *(found or [f"  {empty}"])]


def _write(write: TableWrite) -> str:
    by = "".join(f", by {version.id} v{version.version}" for version in write.decided_by)
    who = write.principal or f"person {write.actor}"
    return f"entry {write.index}: {who}, {write.operation}, {write.outcome or write.decision}{by}"


def _ungoverned(snapshot: TableSnapshot) -> str:
    return f"entry {snapshot.index}: somebody behind the gateway, snapshot {snapshot.snapshot_id}"


def _work(work: RunSummary) -> str:
    job = "a run" if work.job is None else f"{work.job[1]} in {work.job[0]}"
    return job if work.engine is None else f"{job}, on {work.engine}"


def _omitted(omitted: Mapping[str, Omitted]) -> list[str]:
    return [f"{format_name(key)}: {format_omitted(of)}" for key, of in omitted.items()]


def _reached(found: Sequence[Reached]) -> list[str]:
    return [f"{_hops(reached)}: {format_name(reached.key)}" for reached in found]


def _reached_from(found: Sequence[Reached]) -> list[str]:
    return [
        f"{_hops(reached)}: {reached.label.lower()} {format_name(reached.key)}, from {format_name(reached.origin)}"
        for reached in found
    ]


def _hops(reached: Reached) -> str:
    return f"{reached.hops} hop{'s' if reached.hops > 1 else ''}"
