"""
What is told of lineage in made-up histories, and the rule about cycles in its plainest form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ledger.canonical import parse_time
from ledger.events import CatalogCreated, CatalogRetired, CommitSettled, Evidence, LineageCycleFound, Settled
from projections.lineage.receiving import receive
from projections.lineage.tell import cycle_group

if TYPE_CHECKING:
    from tests.projections.conftest import Story

NOON_TEXT = "2026-11-20T12:00:00.000000Z"
NOON = parse_time(NOON_TEXT)
ADA = "a" * 32
TABLE_UUID = "5f0c9d1e-0000-4000-8000-000000000001"
FACET = {"_producer": "https://example.com/etl", "_schemaURL": "https://example.com/facet.json"}

Told = tuple[Sequence[str], Sequence[str]]
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


def topics_event(told: Told, *, number: int = 0, **members: Any) -> bytes:
    """A run event about topics."""
    return run_event([topic(name) for name in told[0]], [topic(name) for name in told[1]], number=number, **members)


def tell(story: Story, sent: bytes) -> int:
    """Let one event arrive; return its index."""
    (group,) = receive(sent, actor=ADA, at=NOON, random=bytes)
    story.add(*group.then)
    return story.size - 1


def settle(story: Story, of: str, metadata_location: str | None, *, snapshots: Sequence[str] = ()) -> None:
    """An accepted commit; without a metadata location a drop."""
    data = CommitSettled(
        decision=str(UUID(int=1)),
        evidence=Evidence.ANSWER,
        metadata_location=metadata_location,
        metadata_sha256=metadata_location and "2" * 64,
        outcome=Settled.ACCEPTED,
        snapshots=tuple(snapshots),
        table_uuid=TABLE_UUID,
    )
    story.add(story.event(data, key=of))


def create_catalog(story: Story, alias: str, options: Mapping[str, str]) -> None:
    """A catalog with options."""
    data = CatalogCreated(id=alias, version=1, kind="rest", options=dict(options))
    story.add(story.event(data, key=f"catalog:{alias}"))


def retire_catalog(story: Story, alias: str) -> None:
    """The end of a catalog."""
    story.add(story.event(CatalogRetired(id=alias, version=2), key=f"catalog:{alias}"))


def find_cycle(story: Story, lineage: UUID, source: str, target: str) -> None:
    """An entry that tells of an edge that was not drawn, or of none that there ever was."""
    found = LineageCycleFound(lineage=str(lineage), path=(target, source), source=source, target=target)
    story.add(*cycle_group(found, at=NOON).then)


class Oracle:
    """The rule in plain words: an edge is drawn unless its target already reaches its source."""

    def __init__(self) -> None:
        self.edges: dict[tuple[str, str], int] = {}
        self.cycles: list[tuple[int, str, str, tuple[str, ...]]] = []

    def tell(self, index: int, told: Told) -> None:
        """Judge the edges of one event."""
        refused = []
        for source, target in dict.fromkeys((key(source), key(target)) for source in told[0] for target in told[1]):
            if source == target:
                continue
            path = None if (source, target) in self.edges else self._path(target, source)
            if path is not None:
                refused.append((index, source, target, path))
            else:
                self.edges[source, target] = self.edges.get((source, target), 0) + 1
        self.cycles += sorted(refused)

    def _path(self, start: str, end: str) -> tuple[str, ...] | None:
        """Return the first of the shortest paths."""
        paths: list[tuple[str, ...]] = [(start,)]
        seen = {start}
        while paths:
            for path in paths:
                if path[-1] == end:
                    return path
            longer = sorted((*path, target) for path in paths for source, target in self.edges if source == path[-1])
            paths = []
            for path in longer:
                if path[-1] not in seen:
                    seen.add(path[-1])
                    paths.append(path)
        return None
