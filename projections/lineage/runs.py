# SPDX-License-Identifier: Apache-2.0
"""
What a run says, put together from its events, and which of it may be drawn. Pure.

OpenLineage describes a run in several events, in any order: one may name the inputs, another the outputs. So the pairs
(input, output) of a run are those of all its events, and they count once it is complete: a run that failed, or only
started, has made nothing that others could rely on. Job and dataset events count by themselves.

- The state of a run is that of its latest event by the event's own time. An event that ends the run takes precedence
  over others, so a START that arrives late changes nothing. A COMPLETE is never taken back.
- If column lineage says from which columns a data set was made, it decides between the data sets that it names; another
  input (of a filter, a join) may have gone into any output. For data sets that were both read and written, only column
  lineage is certain.
- Pairs of one run that contradict each other are ambiguous, and none of them is drawn.
- The number of pairs per run is limited. Whatever is not drawn is counted (`Omitted`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Final, TypeAlias

from projections.lineage.changes import ColumnPair, Pair, ResolvedEvent
from projections.lineage.openlineage import parse_time

EDGES_MAX: Final = 1_000
"""Pairs that one run, or one static event, may draw: each costs a decision."""
RUN_DATASETS_MAX: Final = 1_000
"""Data sets that one run may read and write in all its events."""
RUN_COLUMNS_MAX: Final = 5_000
"""Column edges that are kept for one run until it completes."""

COMPLETE: Final = "COMPLETE"
_ENDS: Final = frozenset({COMPLETE, "ABORT", "FAIL"})
_NEVER: Final = datetime.min.replace(tzinfo=UTC)

Versions: TypeAlias = dict[str, str | None]
"""Data sets by bounded key, in the order of their first event, each with its last version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Omitted:
    """
    How much was reported and is not drawn.

    `columns`, `datasets` and `names` did not fit (`lineage.received`); `edges` are more than one run may draw;
    `ambiguous` contradict others of the same run; `refused` would close a cycle, each counted once.
    """

    columns: int = 0
    datasets: int = 0
    names: int = 0
    edges: int = 0
    ambiguous: int = 0
    refused: int = 0

    def counts(self) -> dict[str, int]:
        """Return the counts that are not 0, by name."""
        return {each.name: count for each in fields(self) if (count := getattr(self, each.name))}


@dataclass(slots=True, kw_only=True)
class Run:
    """
    A run after some of its events; `columns` are kept until it completes, `judged` counts its pairs so far.

    `derived` are the pairs of its column edges, including those of a data set with itself.
    """

    run_id: str
    first_index: int
    last_index: int
    state: str
    event_time: str
    job: str | None = None
    engine: str | None = None
    is_complete: bool = False
    inputs: Versions = field(default_factory=dict)
    outputs: Versions = field(default_factory=dict)
    derived: dict[Pair, None] = field(default_factory=dict)
    columns: dict[ColumnPair, None] = field(default_factory=dict)
    judged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUpdate:
    """
    What one event leads to: pairs to be judged and column edges, both in order; and how much is not drawn.

    A pair has the versions of its source and its target. `omitted` belongs to the data sets `about`. `run` changes with
    later events; `state` and `job` are its values after this one.
    """

    event: ResolvedEvent
    run: Run
    pairs: Mapping[Pair, tuple[str | None, str | None]]
    columns: tuple[ColumnPair, ...]
    omitted: Omitted
    about: frozenset[str]
    state: str
    job: str | None


def update_run(event: ResolvedEvent, runs: dict[str, Run]) -> RunUpdate:
    """
    Apply the next event in log order to its run in `runs` (by id), and return what it leads to.
    """
    run_id = event.run_id
    if run_id is None:
        run = _begun(event, "")
        run.is_complete = True
        was: dict[Pair, bool] = {}
        is_new = True
    else:
        run = runs.setdefault(run_id, _begun(event, run_id))
        was = dict(_candidates(run)) if run.is_complete else {}
        is_new = not run.is_complete
        _take_state(run, event)
    datasets_left_out = _take_data(run, event)
    columns_left_out = _take_columns(run, event)
    columns: tuple[ColumnPair, ...] = ()
    pairs: dict[Pair, bool] = {}
    edges = ambiguous = 0
    if run.is_complete:
        columns, run.columns = tuple(run.columns), {}
        if is_new or event.inputs or event.outputs or event.derived:
            fresh = [(pair, certain) for pair, certain in _candidates(run) if pair not in was]
            pairs = dict(fresh[: EDGES_MAX - run.judged])
            edges = len(fresh) - len(pairs)
            run.judged += len(pairs)
            if not event.keeps_cycles:
                drawn = _unambiguous(pairs, among=was)
                ambiguous = len(pairs) - len(drawn)
                pairs = drawn
    received = event.event
    of_run = (*run.inputs, *run.outputs) if run.is_complete else ()
    return RunUpdate(
        event=event,
        run=run,
        pairs={pair: (run.inputs.get(pair[0]), run.outputs.get(pair[1])) for pair in pairs},
        columns=columns,
        about=frozenset((*event.inputs, *event.outputs, *of_run)),
        omitted=Omitted(
            columns=received.columns_omitted + columns_left_out,
            datasets=received.datasets_omitted + datasets_left_out,
            names=received.names_omitted,
            edges=edges,
            ambiguous=ambiguous,
        ),
        state=run.state,
        job=run.job,
    )


def _begun(event: ResolvedEvent, run_id: str) -> Run:
    index = event.entry.index
    return Run(run_id=run_id, first_index=index, last_index=index, state="", event_time="")


def _take_state(run: Run, event: ResolvedEvent) -> None:
    received = event.event
    state = received.event_type or ""
    run.last_index = event.entry.index
    run.job = event.job or run.job
    run.engine = received.engine or run.engine
    run.is_complete = run.is_complete or state == COMPLETE
    # Of two events with the same time, the one that arrived last counts.
    if _precedence(state, received.event_time) >= _precedence(run.state, run.event_time):
        run.state, run.event_time = state, received.event_time


def _precedence(state: str, event_time: str) -> tuple[bool, datetime]:
    return state in _ENDS, parse_time(event_time) or _NEVER


def _take_data(run: Run, event: ResolvedEvent) -> int:
    """Add what was read and written; return how many data sets exceed the limit."""
    left_out = 0
    for known, named in ((run.inputs, event.inputs), (run.outputs, event.outputs)):
        for key, version in named.items():
            if key in known or len(run.inputs) + len(run.outputs) < RUN_DATASETS_MAX:
                known[key] = version or known.get(key)
            else:
                left_out += 1
    run.derived |= dict.fromkeys(pair for pair in event.derived if pair[1] in run.outputs)
    return left_out


def _take_columns(run: Run, event: ResolvedEvent) -> int:
    """Add column edges; return how many exceed the limit."""
    columns = dict.fromkeys(column for column in event.columns if column not in run.columns)
    free = len(columns) if run.is_complete else max(0, RUN_COLUMNS_MAX - len(run.columns))
    run.columns |= dict.fromkeys(list(columns)[:free])
    return max(0, len(columns) - free)


def _candidates(run: Run) -> Iterator[tuple[Pair, bool]]:
    """Yield the pairs of a run, each once, and whether column edges confirm them."""
    decided, named = {target for _, target in run.derived}, {source for source, _ in run.derived}
    for source, target in run.derived:
        if source != target:
            yield (source, target), True
    for source in run.inputs:
        for target in run.outputs:
            if source == target or (source, target) in run.derived:
                continue
            if target in decided and (source in named or source in run.outputs):
                continue  # column lineage of the target is known, and the source is not in it
            yield (source, target), False


def _unambiguous(pairs: Mapping[Pair, bool], *, among: Iterable[Pair]) -> dict[Pair, bool]:
    """Return those of `pairs` that contradict neither each other nor `among`; column lineage takes precedence."""
    tangled = _in_cycles((*among, *pairs))
    certain = {pair: is_certain for pair, is_certain in pairs.items() if is_certain or pair not in tangled}
    tangled = _in_cycles((*among, *certain))
    return {pair: is_certain for pair, is_certain in certain.items() if pair not in tangled}


def _in_cycles(pairs: Iterable[Pair]) -> set[Pair]:
    """Return those of `pairs` that are part of a cycle of pairs."""
    every = set(pairs)
    through = {source for source, _ in every} & {target for _, target in every}
    successors: dict[str, list[str]] = defaultdict(list)
    for source, target in every:
        if source in through and target in through:
            successors[source].append(target)
    return {
        (source, target)
        for target in through
        for reached in [_reached(target, successors)]
        for source in reached
        if (source, target) in every
    }


def _reached(start: str, successors: Mapping[str, list[str]]) -> set[str]:
    """Return what can be reached from `start` over the pairs."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for target in successors.get(waiting.pop(), ()):
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    return reached
