# SPDX-License-Identifier: Apache-2.0
"""
Lineage events in made-up histories, and the rule about cycles in its plainest form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ledger.format.canonical import parse_time
from ledger.format.events import (
    LINEAGE_CYCLES,
    CatalogCreated,
    CatalogRetired,
    CommitOutcome,
    CommitSettled,
    LineageCycleFound,
    OnCycle,
    OutcomeEvidence,
    SettingChanged,
)
from projections.lineage.cycle_events import cycle_group
from projections.lineage.ingest import LineageGroup, to_groups

if TYPE_CHECKING:
    from testkit.projections.story import Story

NOON_TEXT = "2026-11-20T12:00:00.000000Z"
NOON = parse_time(NOON_TEXT)
ADA = "a" * 32
TABLE_UUID = "5f0c9d1e-0000-4000-8000-000000000001"
FACET = {"_producer": "https://example.com/etl", "_schemaURL": "https://example.com/facet.json"}

TopicsRead = tuple[Sequence[str], Sequence[str]]
"""Topics that were read, and topics that were written."""


def key(name: str) -> str:
    """The key of a topic, which is no table of any catalog."""
    return f"dataset:kafka%3A%2F%2Fprod/{name}"


def topic(name: str) -> dict[str, Any]:
    """A topic as OpenLineage names it."""
    return {"namespace": "kafka://prod", "name": name}


def dataset(namespace: str, name: str, *, version: str | None = None, symlink: tuple[str, str] | None = None) -> Any:
    """A data set with a version and another name."""
    facets: dict[str, Any] = {}
    if version is not None:
        facets["version"] = {**FACET, "datasetVersion": version}
    if symlink is not None:
        identifier = {"namespace": symlink[0], "name": symlink[1], "type": "TABLE"}
        facets["symlinks"] = {**FACET, "identifiers": [identifier]}
    return {"namespace": namespace, "name": name, "facets": facets}


def run_event(inputs: Sequence[Any], outputs: Sequence[Any], *, number: int = 0, **members: Any) -> bytes:
    """A run event; `number` tells runs apart."""
    event = {
        "eventType": "COMPLETE",
        "eventTime": NOON_TEXT,
        "producer": "test",
        "run": {"runId": str(UUID(int=number))},
        "job": {"namespace": "etl", "name": f"job{number % 3}"},
        "inputs": inputs,
        "outputs": outputs,
    }
    return json.dumps({**event, **members}).encode()


def topics_event(topics: TopicsRead, *, number: int = 0, **members: Any) -> bytes:
    """A run event about topics."""
    return run_event(
        [topic(name) for name in topics[0]],
        [topic(name) for name in topics[1]],
        number=number,
        **members,
    )


def tell(story: Story, sent: bytes) -> int:
    """Let one event arrive; return its index."""
    (event,) = to_groups(sent, actor=ADA, at=NOON, random=bytes).events
    assert isinstance(event, LineageGroup), event
    story.add(*event.group.then)
    return story.size - 1


def settle(story: Story, of: str, metadata_location: str | None, *, snapshots: Sequence[str] = ()) -> None:
    """An accepted commit; without a metadata location a drop."""
    data = CommitSettled(
        decision=str(UUID(int=1)),
        evidence=OutcomeEvidence.ANSWER,
        metadata_location=metadata_location,
        metadata_sha256=metadata_location and "2" * 64,
        outcome=CommitOutcome.ACCEPTED,
        snapshots=tuple(snapshots),
        table_uuid=TABLE_UUID,
    )
    story.add(story.event(data, key=of))


def set_cycles(story: Story, value: OnCycle, *, version: int = 1) -> None:
    """A change of what becomes of cycles."""
    changed = SettingChanged(id=LINEAGE_CYCLES, version=version, value=value.value)
    story.add(story.event(changed, key=f"setting:{LINEAGE_CYCLES}"))


def create_catalog(story: Story, alias: str, options: Mapping[str, str]) -> None:
    """A catalog with options."""
    data = CatalogCreated(id=alias, version=1, kind="rest", options=dict(options))
    story.add(story.event(data, key=f"catalog:{alias}"))


def retire_catalog(story: Story, alias: str) -> None:
    """The end of a catalog."""
    story.add(story.event(CatalogRetired(id=alias, version=2), key=f"catalog:{alias}"))


def find_cycle(story: Story, lineage: UUID, source: str, target: str) -> None:
    """An entry that reports an edge that was not drawn, or one that never existed."""
    found = LineageCycleFound(lineage=str(lineage), path=(target, source), source=source, target=target)
    story.add(*cycle_group(found, at=NOON).then)


class Oracle:
    """
    The rule in plain words. A run's edges are from all that it read to all that it wrote, once it is complete, each
    once; not those that contradict each other. An edge is drawn unless its target already reaches its source, or if
    the tenant keeps cycles; of the others it is known which event reported it first, why, and how often.
    """

    def __init__(self) -> None:
        self.edges: dict[tuple[str, str], int] = {}
        self.cycles: dict[tuple[str, str], tuple[int, tuple[str, ...], int]] = {}
        self.keeps_cycles = False
        self._read: dict[int, list[str]] = {}
        self._written: dict[int, list[str]] = {}
        self._complete: set[int] = set()

    def tell(self, index: int, topics: TopicsRead, *, run: int, event_type: str = "COMPLETE") -> None:
        """Judge the edges of one event."""
        before = self._pairs(run) if run in self._complete else []
        self._read.setdefault(run, []).extend(map(key, topics[0]))
        self._written.setdefault(run, []).extend(map(key, topics[1]))
        if event_type == "COMPLETE":
            self._complete.add(run)
        if run not in self._complete:
            return
        every = self._pairs(run)
        for source, target in every:
            if (source, target) in before or (not self.keeps_cycles and _path(every, target, source)):
                continue
            self._judge(index, source, target)

    def _judge(self, index: int, source: str, target: str) -> None:
        is_drawn = (source, target) in self.edges
        path = None if is_drawn or self.keeps_cycles else _path(self.edges, target, source)
        if path is None:
            self.edges[source, target] = self.edges.get((source, target), 0) + 1
            self.cycles.pop((source, target), None)
        else:
            first, first_path, count = self.cycles.get((source, target), (index, path, 0))
            self.cycles[source, target] = (first, first_path, count + 1)

    def _pairs(self, run: int) -> list[tuple[str, str]]:
        pairs = ((source, target) for source in self._read[run] for target in self._written[run])
        return list(dict.fromkeys((source, target) for source, target in pairs if source != target))


def _path(edges: Iterable[tuple[str, str]], start: str, end: str) -> tuple[str, ...] | None:
    """Return the first of the shortest paths."""
    paths: list[tuple[str, ...]] = [(start,)]
    seen = {start}
    while paths:
        for path in paths:
            if path[-1] == end:
                return path
        longer = sorted((*path, target) for path in paths for source, target in edges if source == path[-1])
        paths = []
        for path in longer:
            if path[-1] not in seen:
                seen.add(path[-1])
                paths.append(path)
    return None
