# SPDX-License-Identifier: Apache-2.0
"""
What a query asks the database: one statement for all objects of one level that ask for the same, whatever their number.

Everything is read in one transaction of the caller's tenant (`gateway/http/looking/reading.py`), and judged by one
`Sight`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from strawberry.dataloader import DataLoader

from gateway.control.plane import ControlState
from gateway.errors import UnavailableError
from gateway.http.graphql.vertices import seen_vertices
from gateway.http.looking.as_of import check_as_of, control_as_of, seen_as_called
from gateway.http.looking.reading import Looking
from ledger.store.session import Connection
from projections.errors import NotProjectedError
from projections.graph.labels import EdgeLabel, VertexLabel
from projections.graph.neighbours import (
    FoundEdge,
    FoundVertex,
    Start,
    read_edges,
    read_vertices,
    read_vertices_of_label,
)
from projections.graph.read import Graph, open_graph
from projections.graph.walking import Direction
from projections.keys import bounded_key
from projections.lineage.batched import Way, read_columns_of_each, read_cycles_of_each, read_edges_of_each
from projections.lineage.projection import LINEAGE
from projections.lineage.read import ColumnLineage, Cycle, LineageEdge, read_omitted
from projections.lineage.runs import Omitted
from projections.relational.as_of import read_each_table_named, read_names_then
from projections.relational.batched import (
    read_findings_of_each,
    read_histories,
    read_last_findings_of_tables,
    read_tags,
)
from projections.relational.commits import COMMITS, Commit
from projections.relational.finding_reviews import FindingState
from projections.relational.findings import FINDINGS, Finding, FoundKind, read_found_in_tables
from projections.relational.table_names import TableName, read_live_names, read_owners

EXAMINED_MAX: Final = 500
"""Edges and vertices that are judged for one page: it may be short, with more behind its cursor."""

EXAMINED_MIN: Final = 50

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges of a vertex that the caller may see, and the place behind which there may be more."""

    edges: Sequence[FoundEdge]
    going_on: str | None


@dataclass(frozen=True, slots=True)
class Seen(Generic[R]):
    """Rows that the caller may see, and whether there may be more: not all that there are were looked through."""

    rows: Sequence[R]
    has_more: bool


@dataclass(slots=True)
class Asking:
    """One query: who asks, the connection that it reads with, and what loads many things at once."""

    looking: Looking
    cursor_key: bytes
    _connection: Connection
    _loaders: dict[object, DataLoader[Any, Any]] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _is_closed: bool = False

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """
        Yield the connection, to one at a time.

        Raises:
            UnavailableError: if the query has ended; what it began may not go on after that.
        """
        async with self._turn:
            if self._is_closed:
                raise UnavailableError("the query has ended")
            yield self._connection

    async def close(self) -> None:
        """Wait for the statement that runs, and let none follow."""
        async with self._turn:
            self._is_closed = True

    async def reads_inputs(self) -> bool:
        """Return whether the caller may read what payload parts of decisions hold."""
        return await self._once("inputs.load", self.looking.sight.reads_inputs)

    async def reads_policies(self) -> bool:
        """Return whether the caller may read policies."""
        return await self._once("policy.inspect", lambda: self.looking.sight.reads_configuration("policy"))

    async def reads_lineage(self) -> bool:
        """Return whether the caller may read lineage."""
        return await self._once("lineage.load", self.looking.sight.reads_lineage)

    async def check_as_of(self, as_of: int | None) -> None:
        """
        Check that what is asked as of an entry can be told, if it is: by the log, and by what is read of tables.

        Raises as `looking.as_of.check_as_of`.
        """
        if as_of is None:
            return
        index = as_of

        async def check() -> None:
            async with self.reading() as connection:
                await check_as_of(connection, self.looking.caller.log_id, index, FINDINGS, COMMITS)

        await self._once(("as of", index), check)

    async def in_force(self, as_of: int | None) -> tuple[ControlState, datetime]:
        """Return what is in force of the tenant's configuration and the time; with `as_of`, when that was recorded."""
        if as_of is None:
            return self.looking.sight.state, self.looking.gateway.clock()
        index = as_of

        async def read() -> tuple[ControlState, datetime]:
            async with self.reading() as connection:
                return await control_as_of(connection, self.looking.caller.log_id, index)

        return await self._once(("in force", index), read)

    async def names(self, key: str) -> TableName | None:
        """Return the name of the table that has this key now, None if none has."""

        async def load(keys: Sequence[str]) -> list[TableName | None]:
            async with self.reading() as connection:
                found = await read_live_names(connection, self.looking.caller.log_id, keys=keys)
            current = {each.key: each for each in found if each.is_current}
            return [current.get(each) for each in keys]

        return await self._load("names", load, key)

    async def names_then(self, key: str, as_of: int) -> tuple[str, int] | None:
        """
        Return the table that had this key as of an entry, and the index since which it had it; None if none had, or the
        caller may not see what it was called or is called now.
        """

        async def load(keys: Sequence[str]) -> list[tuple[str, int] | None]:
            log_id, sight = self.looking.caller.log_id, self.looking.sight
            async with self.reading() as connection:
                found = await read_each_table_named(connection, log_id, keys, index=as_of)
                uuids = [uuid for uuid, _ in found.values()]
                called = await read_names_then(connection, log_id, uuids, index=as_of)
            now = {each: called[uuid][1] or each for each, (uuid, _) in found.items()}
            await sight.prepare({*now, *now.values()})
            return [found[each] if each in now and await sight.sees_all((each, now[each])) else None for each in keys]

        return await self._load(("names", as_of), load, key)

    async def kinds_found(self, table_uuid: str, *, as_of: int | None) -> list[FoundKind]:
        """Return which kinds of personal data were found in a table."""

        async def load(uuids: Sequence[str]) -> list[list[FoundKind]]:
            async with self.reading() as connection:
                found = await read_found_in_tables(connection, self.looking.caller.log_id, uuids, as_of=as_of)
            return [found.get(each, []) for each in uuids]

        return await self._load(("kinds", as_of), load, table_uuid)

    async def tags(self, table_uuid: str, *, as_of: int | None) -> list[str]:
        """Return the tags of a table."""

        async def load(uuids: Sequence[str]) -> list[list[str]]:
            async with self.reading() as connection:
                found = await read_tags(connection, self.looking.caller.log_id, uuids, as_of=as_of)
            return [found.get(each, []) for each in uuids]

        return await self._load(("tags", as_of), load, table_uuid)

    async def owner(self, table_uuid: str, *, as_of: int | None) -> tuple[str, str | None] | None:
        """Return who made a table: actor and principal; None if the log does not say."""

        async def load(uuids: Sequence[str]) -> list[tuple[str, str | None] | None]:
            async with self.reading() as connection:
                found = await read_owners(connection, self.looking.caller.log_id, uuids, as_of=as_of)
            return [found.get(each) for each in uuids]

        return await self._load(("owners", as_of), load, table_uuid)

    async def history(self, key: str, *, before: int, limit: int) -> list[Commit]:
        """Return the last decisions on a table below an index."""

        async def load(targets: Sequence[tuple[str, int]]) -> list[list[Commit]]:
            async with self.reading() as connection:
                return await read_histories(connection, self.looking.caller.log_id, targets, limit=limit)

        return await self._load(("history", limit), load, (key, before))

    async def last_findings(
        self, table_uuid: str, *, confidence: int, state: FindingState | None, limit: int, as_of: int | None
    ) -> list[Finding]:
        """Return what was found last in each column of a table, of one state if it is given."""

        async def load(uuids: Sequence[str]) -> list[list[Finding]]:
            log_id = self.looking.caller.log_id
            async with self.reading() as connection:
                found = await read_last_findings_of_tables(
                    connection, log_id, uuids, confidence_percent_min=confidence, state=state, limit=limit, as_of=as_of
                )
                return await self._called(connection, found, as_of=as_of)

        return await self._load(("findings", confidence, state, limit, as_of), load, table_uuid)

    async def findings_of(self, commit: Commit, *, limit: int, as_of: int | None) -> list[Finding]:
        """Return what was found in the snapshots that a decision may have added."""
        if commit.table_uuid is None or not commit.added:
            return []

        async def load(scanned: Sequence[tuple[str, Sequence[str]]]) -> list[list[Finding]]:
            async with self.reading() as connection:
                log_id = self.looking.caller.log_id
                found = await read_findings_of_each(connection, log_id, scanned, limit=limit, as_of=as_of)
                return await self._called(connection, found, as_of=as_of)

        return await self._load(("found", limit, as_of), load, (commit.table_uuid, commit.added))

    async def _called(
        self, connection: Connection, found: Sequence[list[Finding]], *, as_of: int | None
    ) -> list[list[Finding]]:
        """Return findings as they are; as of an entry, with the names of then, as far as the caller may see these."""
        if as_of is None:
            return list(found)
        rows = [each for of_one in found for each in of_one]
        named = {each.index: each for each in await seen_as_called(self.looking.sight, connection, rows, as_of=as_of)}
        return [[named[each.index] for each in of_one if each.index in named] for of_one in found]

    async def lineage_edges(self, key: str, way: Way, *, hops: int, limit: int) -> Seen[LineageEdge]:
        """Return edges one way from a table, the nearest first, of which the caller may see both ends."""
        examined = _examined(limit)

        async def load(keys: Sequence[str]) -> list[Seen[LineageEdge]]:
            log_id = self.looking.caller.log_id
            async with self.reading() as connection:
                found = await read_edges_of_each(connection, log_id, keys, way, hops=hops, limit=examined)
            return await self._seen_of(found, lambda edge: (edge.source, edge.target), limit=limit)

        return await self._load((way, hops, limit), load, key)

    async def lineage_columns(self, key: str, *, limit: int) -> Seen[ColumnLineage]:
        """Return column edges into and out of a table, of which the caller may see both ends."""
        examined = _examined(limit)

        async def load(keys: Sequence[str]) -> list[Seen[ColumnLineage]]:
            async with self.reading() as connection:
                found = await read_columns_of_each(connection, self.looking.caller.log_id, keys, limit=examined)
            return await self._seen_of(found, lambda edge: (edge.source, edge.target), limit=limit)

        return await self._load(("columns", limit), load, key)

    async def lineage_cycles(self, key: str, *, limit: int) -> Seen[Cycle]:
        """Return edges of a table that were not drawn, of whose paths the caller may see everything."""
        examined = _examined(limit)

        async def load(keys: Sequence[str]) -> list[Seen[Cycle]]:
            async with self.reading() as connection:
                found = await read_cycles_of_each(connection, self.looking.caller.log_id, keys, limit=examined)
            return await self._seen_of(found, lambda edge: (edge.source, edge.target, *edge.path), limit=limit)

        return await self._load(("cycles", limit), load, key)

    async def omitted(self, key: str) -> Omitted | None:
        """Return how much lineage was reported of a table and is not drawn; None if all is."""

        async def load(keys: Sequence[str]) -> list[Omitted | None]:
            bounded = [bounded_key(each) for each in keys]
            async with self.reading() as connection:
                found = await read_omitted(connection, bounded, projection=LINEAGE, log_id=self.looking.caller.log_id)
            return [found.get(each) for each in bounded]

        return await self._load("omitted", load, key)

    async def vertex(self, key: str) -> FoundVertex | None:
        """Return the vertex of a key; None if there is none, or the caller may not see it."""

        async def load(keys: Sequence[str]) -> list[FoundVertex | None]:
            graph = await self._graph()
            if graph is None:
                return [None] * len(keys)
            async with self.reading() as connection:
                found = await read_vertices(connection, graph.name, keys)
                seen = {each.key for each in await self._seen(connection, [each for each in found if each is not None])}
            return [None if each is None or each.key not in seen else each for each in found]

        return await self._load("vertices", load, key)

    async def vertices(self, label: VertexLabel, *, after: str, limit: int) -> tuple[list[FoundVertex], str | None]:
        """Return vertices of one label behind a key, and the key behind which there may be more."""
        graph = await self._graph()
        if graph is None:
            return [], None
        seen: list[FoundVertex] = []
        async with self.reading() as connection:
            rows = await read_vertices_of_label(connection, graph.name, label, after=after, limit=EXAMINED_MAX)
            step = _examined(limit)
            for start in range(0, len(rows), step):
                seen += await self._seen(connection, rows[start : start + step])
                if len(seen) > limit:
                    return seen[:limit], seen[limit - 1].key
        return seen, rows[-1].key if len(rows) == EXAMINED_MAX else None

    async def edges(
        self,
        vertex: FoundVertex,
        *,
        labels: tuple[EdgeLabel, ...],
        directions: tuple[Direction, ...],
        after: str,
        limit: int,
    ) -> Edges:
        """Return edges of a vertex whose other end the caller may see."""
        examined = _examined(limit)

        async def load(starts: Sequence[Start]) -> list[Edges]:
            graph = await self._graph()
            if graph is None:
                return [Edges((), None)] * len(starts)
            async with self.reading() as connection:
                found = await read_edges(
                    connection, graph.name, starts, labels=labels, directions=directions, limit=examined
                )
                ends = {each.vertex.id: each.vertex for edges in found for each in edges}
                seen = {each.id for each in await self._seen(connection, list(ends.values()))}
            return [_page(edges, seen, examined=examined, limit=limit) for edges in found]

        start = Start(id=vertex.id, label=vertex.label, after=after)
        return await self._load(("edges", labels, directions, limit), load, start)

    async def _seen(self, connection: Connection, vertices: Sequence[FoundVertex]) -> list[FoundVertex]:
        looking = self.looking
        seen = await seen_vertices(connection, looking.caller.log_id, looking.sight, vertices)
        return [each for each, is_seen in zip(vertices, seen, strict=True) if is_seen]

    async def _seen_of(
        self, found: Sequence[Sequence[R]], keys_of: Callable[[R], Iterable[str]], *, limit: int
    ) -> list[Seen[R]]:
        """Return of each list the first `limit` rows that the caller may see; as many as may be were looked through."""
        sight = self.looking.sight
        await sight.prepare(key for rows in found for row in rows for key in keys_of(row))
        visible = [[row for row in rows if await sight.sees_all(keys_of(row))] for rows in found]
        return [
            Seen(seen[:limit], has_more=len(seen) > limit or len(rows) == _examined(limit))
            for seen, rows in zip(visible, found, strict=True)
        ]

    async def _graph(self) -> Graph | None:
        """Return the tenant's graph, None if there is none yet."""

        async def load() -> Graph | None:
            async with self.reading() as connection:
                try:
                    return await open_graph(connection)
                except NotProjectedError:
                    return None

        return await self._once("graph", load)

    async def _once(self, what: object, load: Callable[[], Awaitable[V]]) -> V:
        """Return what `load` returns; it is asked once, however many ask for it meanwhile."""

        async def load_for(asked: Sequence[None]) -> list[V]:
            return [await load()] * len(asked)

        return await self._load(what, load_for, None)

    async def _load(self, what: object, load: Callable[[Sequence[K]], Awaitable[Sequence[V]]], key: K) -> V:
        """Return what `load` returns for `key`, asked with all keys that ask for the same at the same time."""
        if what not in self._loaders:

            async def load_list(keys: list[K]) -> Sequence[V]:
                return await load(keys)

            self._loaders[what] = DataLoader(load_fn=load_list)
        found: V = await self._loaders[what].load(key)
        return found


def _examined(limit: int) -> int:
    """Return how many are judged at once for so many that are asked for."""
    return min(max(2 * limit, EXAMINED_MIN), EXAMINED_MAX)


def _page(edges: Sequence[FoundEdge], seen: set[str], *, examined: int, limit: int) -> Edges:
    visible = [each for each in edges if each.vertex.id in seen]
    if len(visible) > limit:
        return Edges(visible[:limit], visible[limit - 1].place)
    return Edges(visible, edges[-1].place if len(edges) == examined else None)
