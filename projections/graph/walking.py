# SPDX-License-Identifier: Apache-2.0
"""
Walks through a graph, level by level: what is within so many steps of some vertices, nearest first.

A level is one statement that follows edges by the indexes of their ends, so its cost depends on the vertices that were
reached, not on the graph. Vertices are named in one statement, once they may be enough. The walk ends where enough was
found. Two bounds hold in between: of each vertex the last edges of a label are followed (`fan`), and of each level the
last `LEVEL_MAX` pairs of origin and vertex. To what a table was called before, or is called now, is no hop: it is the
same table.

AGE's id of a vertex begins with the number of its label. The inventory says which labels an edge joins, so no edge is
looked for where there can be none, and no key in the tables of other labels.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter
from typing import Any, Final, TypeAlias

from psycopg import sql

from ledger.store.session import Connection
from projections.graph.agtype import agtype
from projections.graph.labels import EDGES, VERTICES, EdgeLabel, VertexLabel
from projections.graph.write import compose

FAN_MAX: Final = 10_000
"""Edges of one label that are followed from one vertex, the last ones."""
LEVEL_MAX: Final = 20_000
"""Pairs of an origin and a vertex that are gone on from, at each distance."""
LABEL_BITS: Final = 48
"""Above these bits, AGE's id of a vertex is the number of its label in the graph."""

_LABEL_OF_KEY: Final = {kind.key: label for label, kind in VERTICES.items()}

_ALL: Final = frozenset(VertexLabel)

Pairs: TypeAlias = dict[str, set[str]]
"""The origins from which each vertex was reached, by AGE's ids."""


class Direction(StrEnum):
    """The direction in which a traversal follows edges: from start to end, or from end to start."""

    OUT = "out"
    IN = "in"


Step: TypeAlias = tuple[EdgeLabel, Direction]

_PART: Final = {Direction.OUT: "edges_out", Direction.IN: "edges_in"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A vertex that a traversal reached; `hops` is its least distance from `origin`, the key of a start vertex."""

    label: VertexLabel
    key: str
    hops: int
    origin: str


@dataclass(slots=True, kw_only=True)
class Walk:
    """A walk through `graph` along `steps`, for vertices with a label in `ends`. It is good for one."""

    connection: Connection
    graph: str
    steps: Sequence[Step]
    ends: Sequence[VertexLabel]
    fan: int
    is_cut: bool = field(default=False, init=False)
    """Whether there may be more than was returned: a bound was reached."""
    _seen: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set), init=False)
    _origins: dict[str, str] = field(default_factory=dict, init=False)
    _labels: dict[int, frozenset[VertexLabel]] = field(default_factory=dict, init=False)
    """Which label those vertices may have whose ids begin with a number: one of these, or any."""

    async def reached(self, keys: Sequence[str], *, hops: int, limit: int) -> list[Reached]:
        """
        Return what is within `hops` of the vertices with these keys, at most `limit`: by distance, key and origin.
        """
        self._origins = {id_: key async for id_, key in self._starts(keys)}
        names = [step for step in self.steps if step[0] is EdgeLabel.RENAMED_TO]
        others = [step for step in self.steps if step[0] is not EdgeLabel.RENAMED_TO]
        level = self._new((id_, id_) for id_ in self._origins)
        found: list[Reached] = []
        unnamed: list[tuple[int, Pairs]] = []
        for distance in range(hops + 1):
            is_last = distance == hops or not others
            room = limit - len(found) - sum(_count(each) for _, each in unnamed)
            # Where the next level is needed in any case, it is read with the names that lead to this one.
            goes_on = not is_last and _count(level) < room
            ahead: list[tuple[str, str]] = []
            renamed = level
            while names and renamed:
                again, more = await self._rows(renamed, names, others if goes_on else ())
                ahead += more
                renamed = self._new(again)
                level = {**level, **{id_: level.get(id_, set()) | origins for id_, origins in renamed.items()}}
            unnamed.append((distance, level))
            # What was reached is named once it may be enough: its keys are one statement then.
            if is_last or _count(level) >= room:
                found += await self._named(unnamed, limit=limit - len(found))
                unnamed.clear()
                if is_last or len(found) >= limit:
                    break
            if not (goes_on and names):
                _, ahead = await self._rows(level, (), others)
            level = self._new(ahead)
            if sum(map(len, level.values())) > LEVEL_MAX:
                level, self.is_cut = dict(_last(level)), True
        self.is_cut |= len(found) >= limit
        return found[:limit]

    async def _starts(self, keys: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
        """Yield the id and the key of each vertex that is there."""
        by_label: defaultdict[VertexLabel, list[str]] = defaultdict(list)
        for key in keys:
            if (label := _LABEL_OF_KEY.get(key.partition(":")[0])) is not None:
                by_label[label].append(key)
        for label, of_label in by_label.items():
            query = compose("vertices_of_keys", label=sql.Identifier(self.graph, label.value))
            rows = await (await self.connection.execute(query, {"keys": agtype(list(of_label))})).fetchall()
            if rows:
                self._labels[int(rows[0][0]) >> LABEL_BITS] = frozenset({label})
            for row in rows:
                yield row

    async def _rows(
        self, level: Pairs, names: Sequence[Step], others: Sequence[Step]
    ) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Return what is one step away, each with an origin: by steps to other names, and by all others."""
        steps, ids, numbers = [*names, *others], list(level), _by_number(level)
        parameters: dict[str, Any] = {"ids": _array(ids), "fan": self.fan}
        parts: list[sql.Composed] = []
        for step, (edge, direction) in enumerate(steps):
            starts = [number for number in numbers if self._labels_of(number) & near(edge, direction)]
            if starts:
                parameters[f"near_{step}"], label = starts, sql.Identifier(self.graph, edge.value)
                of_starts = sql.Placeholder(f"near_{step}")
                parts.append(compose(_PART[direction], label=label, step=sql.Literal(step), near=of_starts))
        if not parts:
            return [], []
        query = compose("step", edges=sql.SQL(" UNION ALL ").join(parts))
        rows = await (await self.connection.execute(query, parameters)).fetchall()
        if len(rows) >= self.fan:
            self.is_cut |= max(Counter(map(itemgetter(0), rows)).values()) >= self.fan
        # Each pair once: thousands of runs of one table belong to few jobs, engines and people.
        by_names, ahead = dict[tuple[str, str], int](), dict[tuple[str, str], int]()
        origins, names_end = list(level.values()), len(names)
        for place, there, step in rows:
            into = by_names if step < names_end else ahead
            for origin in origins[place - 1]:
                into[there, origin] = step
        reached = {(int(there) >> LABEL_BITS, step) for (there, _), step in (*by_names.items(), *ahead.items())}
        for number, step in reached:
            self._labels[number] = self._labels_of(number) & far(*steps[step])
        return list(by_names), list(ahead)

    def _new(self, pairs: Iterable[tuple[str, str]]) -> Pairs:
        """Return those pairs of vertex and origin that were not seen before, and see them."""
        new: defaultdict[str, set[str]] = defaultdict(set)
        for id_, origin in pairs:
            if origin not in self._seen[id_]:
                self._seen[id_].add(origin)
                new[id_].add(origin)
        return new

    async def _named(self, levels: Sequence[tuple[int, Pairs]], *, limit: int) -> list[Reached]:
        """
        Return what was reached at each distance and has a label in `ends`, without the origins themselves: at most
        `limit`, the first ones.
        """
        keys = await self._keys(id_ for _, level in levels for id_, origins in level.items() if origins != {id_})
        found: list[Reached] = []
        for hops, level in levels:
            # Of a hub there are thousands, of which few are returned: they are sorted as plain pairs.
            pairs = sorted(
                (key, self._origins[origin])
                for id_, origins in level.items()
                if (key := keys.get(id_)) is not None
                for origin in origins - {id_}
            )
            found += [
                Reached(label=_LABEL_OF_KEY[key.partition(":")[0]], key=key, hops=hops, origin=origin)
                for key, origin in pairs[: max(limit - len(found), 0)]
            ]
        return found

    def _labels_of(self, number: int) -> frozenset[VertexLabel]:
        return self._labels.get(number, _ALL)

    async def _keys(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the keys of those vertices that have a label in `ends`."""
        asked: defaultdict[VertexLabel, list[str]] = defaultdict(list)
        for number, alike in _by_number(ids).items():
            for label in self._labels_of(number).intersection(self.ends):
                asked[label] += alike
        if not asked:
            return {}
        parts = [
            compose("keys_of_label", label=sql.Identifier(self.graph, label.value), ids=sql.Placeholder(label.value))
            for label in asked
        ]
        query = sql.SQL(" UNION ALL ").join(parts)
        rows = await self.connection.execute(query, {label.value: _array(ids) for label, ids in asked.items()})
        return dict(await rows.fetchall())


def _array(ids: Iterable[str]) -> str:
    """Return AGE's ids, which are digits, as the text of an array: the driver would look at each for what to quote."""
    return f"{{{','.join(ids)}}}"


def _by_number(ids: Iterable[str]) -> dict[int, list[str]]:
    """Return ids by the number of their label, each once."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for id_ in dict.fromkeys(ids):
        found[int(id_) >> LABEL_BITS].append(id_)
    return found


def near(edge: EdgeLabel, direction: Direction) -> frozenset[VertexLabel]:
    """Return the labels from which a step leads on."""
    return EDGES[edge].starts if direction is Direction.OUT else EDGES[edge].ends


def far(edge: EdgeLabel, direction: Direction) -> frozenset[VertexLabel]:
    """Return the labels to which a step leads."""
    return EDGES[edge].ends if direction is Direction.OUT else EDGES[edge].starts


def _count(level: Pairs) -> int:
    """Return how many pairs of a level may be found: those of a vertex and another one."""
    return sum(len(origins) - (id_ in origins) for id_, origins in level.items())


def _last(level: Pairs) -> Iterator[tuple[str, set[str]]]:
    """Yield the last pairs of a level, by the vertices' ids, which are given in the order of the log."""
    left = LEVEL_MAX
    for id_ in sorted(level, key=int, reverse=True):
        left -= len(level[id_])
        if left < 0:
            return
        yield id_, level[id_]
