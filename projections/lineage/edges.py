# SPDX-License-Identifier: Apache-2.0
"""
Draws lineage edges without closing a cycle: exact, in the order of the log, for cycles of any length.

An edge whose target already reaches its source is refused. Drawn edges are never removed, so a refused edge is refused
again whenever an event repeats it: it is recorded once and counted. If the tenant's setting keeps cycles, such an edge
is drawn all the same, as an edge between versions of its data sets, and is marked. The caller holds the generation, so
nobody else draws meanwhile.

Most edges need no search: an edge that is drawn already is known, and no path leads from a target that nothing was made
from, or to a source that was made from nothing. Only the remaining edges, which could close a cycle, are searched for
in the database.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from ledger.format.canonical import Json
from ledger.store.queries import load_queries
from projections.entries import encode_json
from projections.lineage.changes import Pair
from projections.processing.projection import Transaction

QUERIES: Final = load_queries("projections", "lineage.sql")
LOOK_UP_MAX: Final = 5_000
PATH_SIZE_BYTES_MAX: Final = 16 * 1024
"""The size of a path that is stored and reported; the path itself may be longer."""
LEFT_OUT: Final = "…"


def lineage_of_graph(transaction: Transaction) -> Transaction:
    """
    Return the transaction on the lineage rows that belong to a graph's generation; `transaction` is the graph's.

    Two projections keep rows in the lineage tables, which have one column `generation`: generation n of the lineage
    projection is stored as n, and the lineage that belongs to generation n of the graph as -n. This function is the
    only code that makes such a number; the query `omitted_at` of `sql/lineage.sql` reads them by the same rule.
    """
    return replace(transaction, generation=-transaction.generation)


def generation_of(transaction: Transaction) -> Mapping[str, object]:
    """
    Return the parameters that every statement on a generation takes.
    """
    return {"log_id": transaction.log.log_id, "generation": transaction.generation}


async def _among(transaction: Transaction, query: str, pairs: Iterable[Pair]) -> set[Pair]:
    """Return which of `pairs` a query finds: `drawn` (they are edges) or `refused` (they were refused)."""
    found: set[Pair] = set()
    for chunk in _chunks(pairs):
        ends = {"sources": [source for source, _ in chunk], "targets": [target for _, target in chunk]}
        found.update(await _select(transaction, query, **ends))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnEdges:
    """
    What became of the pairs of one event: `edges`, new or not, and `refused` pairs.

    A refused pair has the path from its target to its source; None if it was refused before. `lifted` pairs were
    refused before and are drawn now.
    """

    edges: tuple[Pair, ...]
    refused: Mapping[Pair, tuple[str, ...] | None]
    lifted: tuple[Pair, ...]


@dataclass(slots=True, kw_only=True)
class AcyclicEdges:
    """
    The edges of one batch: which exist, which keys have outgoing (`sources`) or incoming (`targets`) edges, and which
    edges are drawn and not yet written.
    """

    transaction: Transaction
    drawn: set[Pair]
    refused: set[Pair]
    sources: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    pending: list[Json] = field(default_factory=list)

    @classmethod
    async def begin(cls, transaction: Transaction, pairs: Iterable[Pair], *, columns: Iterable[Pair]) -> Self:
        """
        Read what is stored of `pairs`, the only ones that this batch may draw.

        `columns` are the pairs that have column edges: `refused` includes those of them that were refused.
        """
        distinct = set(pairs)
        refused = await _among(transaction, "refused", distinct.union(columns))
        drawing = cls(transaction=transaction, drawn=await _among(transaction, "drawn", distinct), refused=refused)
        for chunk in _chunks(distinct - drawing.drawn):
            sources, targets = ([pair[end] for pair in chunk] for end in (0, 1))
            drawing.sources.update(key for (key,) in await _select(transaction, "sources_among", keys=targets))
            drawing.targets.update(key for (key,) in await _select(transaction, "targets_among", keys=sources))
        return drawing

    async def draw(self, pairs: Collection[Pair], *, index: int, keeps_cycles: bool) -> DrawnEdges:
        """
        Draw, one after the other, those of `pairs` that are not edges yet, for the entry at `index`.
        """
        refused: dict[Pair, tuple[str, ...] | None] = {}
        lifted: list[Pair] = []
        new = [pair for pair in pairs if pair not in self.drawn]
        reached = _Reached(self.transaction, among={source for source, _ in new} | {target for _, target in new})
        for pair in new:
            source, target = pair
            if pair in self.refused and not keeps_cycles:
                refused[pair] = None
                continue
            closes = False
            if target in self.sources and source in self.targets:
                await self.write()
                closes = source in await reached.from_key(target)
            if closes and not keeps_cycles:
                refused[pair] = await _path(self.transaction, start=target, end=source)
                self.refused.add(pair)
                continue
            if pair in self.refused:
                self.refused.discard(pair)
                lifted.append(pair)
            reached.drawn(pair, leads_on=target in self.sources)
            self.drawn.add(pair)
            self.sources.add(source)
            self.targets.add(target)
            self.pending.append({"source": source, "target": target, "index": index, "is_kept": closes})
        edges = tuple(pair for pair in pairs if pair not in refused)
        return DrawnEdges(edges=edges, refused=refused, lifted=tuple(lifted))

    async def write(self) -> None:
        """
        Insert the edges that are drawn, each once, with a count of 0.
        """
        if self.pending:
            rows = encode_json(self.pending)
            where = generation_of(self.transaction)
            await self.transaction.connection.execute(QUERIES["insert_edges"], {**where, "rows": rows})
            self.pending.clear()


class _Reached:
    """
    Which keys of one event each of its targets reaches: looked up once, and updated while the event draws.

    Without it, an event with n inputs and n outputs would need n² searches.
    """

    def __init__(self, transaction: Transaction, *, among: set[str]) -> None:
        self._transaction = transaction
        self._among = sorted(among)
        self._found: dict[str, set[str]] = {}

    async def from_key(self, start: str) -> set[str]:
        """Return what `start` reaches, itself included; all drawn edges must be written before."""
        if start not in self._found:
            rows = await _select(self._transaction, "reached_among", start=start, keys=self._among)
            self._found[start] = {key for (key,) in rows}
        return self._found[start]

    def drawn(self, pair: Pair, *, leads_on: bool) -> None:
        """Update for a new edge; `leads_on` if its target has outgoing edges."""
        source, target = pair
        beyond = self._found.get(target, None if leads_on else {target})
        for start, keys in list(self._found.items()):
            if source in keys and beyond is not None:
                keys |= beyond
            elif source in keys:
                del self._found[start]  # looked up again when it is needed


async def _path(transaction: Transaction, *, start: str, end: str) -> tuple[str, ...]:
    """
    Return the shortest path along the edges, abbreviated; of several the bytewise first, so that a log determines it.
    """
    successors: dict[str, list[str]] = defaultdict(list)
    for source, target in await _select(transaction, "edges_between", start=start, end=end):
        successors[source].append(target)
    before: dict[str, str | None] = {start: None}
    frontier = [start]
    while end not in before:
        if not frontier:
            raise AssertionError(f"expected {end} to be reached from {start}: that is why the edge is not drawn")
        reached = []
        for source in frontier:  # in the order of the paths that lead here
            for target in successors[source]:
                if target not in before:
                    before[target] = source
                    reached.append(target)
        frontier = reached
    path: list[str] = []
    at: str | None = end
    while at is not None:
        path.append(at)
        at = before[at]
    return shortened(tuple(reversed(path)))


def shortened(path: Sequence[str], *, size_bytes_max: int = PATH_SIZE_BYTES_MAX) -> tuple[str, ...]:
    """
    Return `path`, or as much of its two ends as fits (4 KiB at least), with `…` for the keys between them.
    """
    if sum(map(len, path)) <= size_bytes_max:
        return tuple(path)
    room_bytes, kept = size_bytes_max, 0
    while (ends := len(path[kept]) + len(path[-1 - kept])) <= room_bytes:
        room_bytes -= ends
        kept += 1
    return (*path[:kept], LEFT_OUT, *path[len(path) - kept :])


def _chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    distinct = sorted(set(pairs))
    for at in range(0, len(distinct), LOOK_UP_MAX):
        yield distinct[at : at + LOOK_UP_MAX]


async def _select(transaction: Transaction, query: str, **parameters: object) -> list[Any]:
    """Return the rows of a query on the generation."""
    parameters |= generation_of(transaction)
    return await (await transaction.connection.execute(QUERIES[query], parameters)).fetchall()
