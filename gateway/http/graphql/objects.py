# SPDX-License-Identifier: Apache-2.0
"""
Objects, and what may be asked of each: tables, decisions, findings, lineage, and the graph's vertices and edges.

They refer to each other: a query goes from a table to its decisions, and from there to what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final, TypeVar, cast

import strawberry
from strawberry.scalars import JSON

from gateway.errors import BadRequestError
from gateway.http.graphql.arguments import (
    LIMIT_DEFAULT,
    check_now,
    checked_hops,
    checked_limit,
    checked_percent,
    cursor_to,
    index_below,
    key_behind,
    one_of,
)
from gateway.http.graphql.loading import Asking
from gateway.http.graphql.records import (
    Cycle,
    Cycles,
    KindFound,
    LineageColumn,
    LineageColumns,
    LineageEdge,
    LineageEdges,
    Long,
    Omitted,
    Outcome,
    Owner,
    Policy,
    Reason,
    Review,
    made_of,
    policy_of,
)
from gateway.http.graphql.vertices import properties_shown
from gateway.http.inner import names_in_path
from gateway.http.looking.cursors import format_cursor
from gateway.http.looking.lineage import column_shown, cycle_shown, edge_shown
from gateway.http.looking.query import AS_OF, context_of
from gateway.http.looking.shown import commit_shown, members, row_shown
from gateway.http.looking.sight import target_of
from gateway.http.table_routes import names_shown, owner_shown, policies_of
from projections.graph.labels import EdgeLabel, VertexLabel, vertex_key
from projections.graph.neighbours import FoundVertex
from projections.graph.walking import Direction
from projections.lineage.batched import Way
from projections.lineage.read import HOPS
from projections.relational.commits import Commit
from projections.relational.finding_reviews import FindingState
from projections.relational.findings import Finding as FoundRow

TABLE: Final = "table:"
"""How the key of a table begins."""

F = TypeVar("F", bound=Callable[..., Any])


def field(description: str) -> Callable[[F], F]:
    """Return strawberry's decorator of a field that a function answers, with a type."""
    return cast("Callable[[F], F]", strawberry.field(description=description))


Info = strawberry.Info[Asking, None]


@strawberry.type(description="Personal data of one kind in one column: matches of not_null values. Never a value.")
class Finding:
    index: Long
    group: str
    recorded_at: str
    key: str
    table_uuid: str
    snapshot: str
    ruleset: str
    field_id: Long
    column_path: str
    kind: str
    confidence_percent: int
    matches: Long
    not_null: Long
    state: str
    review: Review | None
    then: strawberry.Private[int | None]

    @field(description="The table, if it is still called that.")
    async def table(self, info: Info) -> Table | None:
        return await table_of(info.context, self.key, as_of=self.then)


@strawberry.type(description="A decision on a table, view or namespace. The outcome is null until it is known.")
class Decision:
    index: Long
    group: str
    key: str
    recorded_at: str
    actor: str
    principal: str | None
    principal_source: str
    operation: str
    actions: list[str]
    catalog: str
    namespace: list[str]
    name: str | None
    decision: str
    reason: Reason | None
    policy_set: str
    as_of: Long
    base: str | None
    table_uuid: str | None
    snapshots: list[str]
    outcome: Outcome | None
    row: strawberry.Private[Commit]
    then: strawberry.Private[int | None]

    @field(description="The table, if the decision is on one and it is still called that.")
    async def table(self, info: Info) -> Table | None:
        return await table_of(info.context, self.key, as_of=self.then)

    @field(description="What was found in the snapshots that the decision names.")
    async def findings(self, info: Info, limit: int = LIMIT_DEFAULT) -> list[Finding]:
        sight = info.context.looking.sight
        found = await info.context.findings_of(self.row, limit=checked_limit(limit), as_of=self.then)
        # They bear the name that their table has now, which may be another one.
        seen = [each for each in found if self.then is not None or await sight.sees(each.key)]
        return findings_shown(seen, as_of=self.then)

    @field(description="Its vertex in the graph.")
    async def vertex(self, info: Info) -> Vertex | None:
        check_now(self.then)
        return await vertex_of(info.context, vertex_key(VertexLabel.WRITE_EVENT, self.group, self.key))


@strawberry.type(description="Decisions, the newest first.")
class Decisions:
    items: list[Decision]
    cursor: str | None


@strawberry.type(description="A table that has this name since the entry at named_index.")
class Table:
    key: str
    catalog: str | None
    namespace: list[str]
    name: str | None
    table_uuid: str
    named_index: Long
    then: strawberry.Private[int | None]

    @field(description="Which kinds of personal data were found in it.")
    async def found(self, info: Info) -> list[KindFound]:
        found = await info.context.kinds_found(self.table_uuid, as_of=self.then)
        return [made_of(KindFound, asdict(each)) for each in found]

    @field(
        description="The kinds that were found for certain and that nobody has dismissed, and pii if there is one: "
        "tables(tag:) finds it by each of them."
    )
    async def tags(self, info: Info) -> list[str]:
        return await info.context.tags(self.table_uuid, as_of=self.then)

    @field(description="Who made it or registered it; null if the log does not say.")
    async def owner(self, info: Info) -> Owner | None:
        found = await info.context.owner(self.table_uuid, as_of=self.then)
        shown = owner_shown(found, with_principal=await info.context.reads_inputs())
        return None if shown is None else made_of(Owner, shown)

    @field(description="Decisions on it, the newest first.")
    async def decisions(self, info: Info, limit: int = LIMIT_DEFAULT, cursor: str | None = None) -> Decisions:
        asking, limit, target = info.context, checked_limit(limit), target_of(self.key)
        path = self.key if target is None else "/".join(names_in_path(target))
        context = context_of(f"/v1/tables/{path}/history", as_of_given(self.then))
        before = index_below(asking, cursor, context=context)
        if self.then is not None:
            before = min(before, self.then + 1)
        rows = await asking.history(self.key, before=before, limit=limit)
        going_on = None if len(rows) < limit else format_cursor(asking.cursor_key, rows[-1].index, context=context)
        shown = [await decision_shown(asking, each, as_of=self.then) for each in rows]
        return Decisions(items=shown, cursor=going_on)

    @field(
        description="What was found last in each of its columns, of each kind: of some confidence or more, and those "
        "that are open, confirmed or dismissed."
    )
    async def findings(
        self, info: Info, limit: int = LIMIT_DEFAULT, confidence: int = 0, state: str | None = None
    ) -> list[Finding]:
        found = await info.context.last_findings(
            self.table_uuid,
            confidence=checked_percent(confidence),
            state=None if state is None else one_of(FindingState, state, field="state"),
            limit=checked_limit(limit),
            as_of=self.then,
        )
        return findings_shown(found, as_of=self.then)

    @field(description="What it was made from, and what was made from it, within so many hops (1 to 5).")
    async def lineage(self, info: Info, hops: int = HOPS) -> Lineage:  # noqa: ARG002 - as strawberry calls it
        check_now(self.then)
        return Lineage(key=self.key, hops=checked_hops(hops))

    @field(description="The policies in force whose scope covers it; null if you may not read policies.")
    async def policies(self, info: Info, limit: int = LIMIT_DEFAULT) -> list[Policy] | None:
        asking, target, limit = info.context, target_of(self.key), checked_limit(limit)
        if target is None or not await asking.reads_policies():
            return None
        state, now = await asking.in_force(self.then)
        shown = policies_of(state, target, uuid=self.table_uuid, now=now)
        return [policy_of(each) for each in shown[:limit]]

    @field(description="Its vertex in the graph.")
    async def vertex(self, info: Info) -> Vertex | None:
        check_now(self.then)
        return await vertex_of(info.context, self.key)


@strawberry.type(description="Lineage around a table, nearest first: an edge is there if you may see both of its ends.")
class Lineage:
    key: str
    hops: strawberry.Private[int]

    @field(description="What it was made from.")
    async def upstream(self, info: Info, limit: int = LIMIT_DEFAULT) -> LineageEdges:
        return await self._edges(info.context, Way.UPSTREAM, limit)

    @field(description="What was made from it.")
    async def downstream(self, info: Info, limit: int = LIMIT_DEFAULT) -> LineageEdges:
        return await self._edges(info.context, Way.DOWNSTREAM, limit)

    @field(description="Columns of it that were made from others, and others that were made from its columns.")
    async def columns(self, info: Info, limit: int = LIMIT_DEFAULT) -> LineageColumns:
        found = await info.context.lineage_columns(self.key, limit=checked_limit(limit))
        items = [made_of(LineageColumn, column_shown(each)) for each in found.rows]
        return LineageColumns(items=items, has_more=found.has_more)

    @field(description="Edges from and to it that were not drawn: each would close a cycle.")
    async def cycles(self, info: Info, limit: int = LIMIT_DEFAULT) -> Cycles:
        found = await info.context.lineage_cycles(self.key, limit=checked_limit(limit))
        return Cycles(items=[made_of(Cycle, cycle_shown(each)) for each in found.rows], has_more=found.has_more)

    @field(description="How much was reported of the table itself and is not drawn; null if all is.")
    async def omitted(self, info: Info) -> Omitted | None:
        found = await info.context.omitted(self.key)
        return None if found is None else made_of(Omitted, members(found))

    async def _edges(self, asking: Asking, way: Way, limit: int) -> LineageEdges:
        found = await asking.lineage_edges(self.key, way, hops=self.hops, limit=checked_limit(limit))
        with_jobs = await asking.reads_lineage()
        items = [made_of(LineageEdge, edge_shown(each, with_jobs=with_jobs)) for each in found.rows]
        return LineageEdges(items=items, has_more=found.has_more)


@strawberry.type(description="Tables by name.")
class Tables:
    items: list[Table]
    cursor: str | None


@strawberry.type(description="Findings, the newest first.")
class Findings:
    items: list[Finding]
    cursor: str | None


@strawberry.type(description="A vertex of the graph: its label, its key, and what else it holds.")
class Vertex:
    label: str
    key: str
    found: strawberry.Private[FoundVertex]

    @field(description="What it holds.")
    async def properties(self, info: Info) -> JSON:
        return JSON(properties_shown(self.found, with_principal=await info.context.reads_inputs()))

    @field(description="Its edges: of some labels, and those that begin (out) or end (in) at it.")
    async def edges(
        self,
        info: Info,
        labels: list[str] | None = None,
        direction: str | None = None,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> Edges:
        asking, limit = info.context, checked_limit(limit)
        chosen = (
            tuple(EdgeLabel)
            if labels is None
            else tuple(one_of(EdgeLabel, each, field="labels") for each in dict.fromkeys(labels))
        )
        directions = tuple(Direction) if direction is None else (one_of(Direction, direction, field="direction"),)
        if not chosen:
            raise BadRequestError(
                "expected one label or more, or none of them at all, found an empty list", field="labels"
            )
        given = {"labels": " ".join(sorted(chosen)), "direction": " ".join(directions)}
        context = context_of(f"graphql/edges/{self.key}", given)
        after = key_behind(asking, cursor, context=context)
        page = await asking.edges(self.found, labels=chosen, directions=directions, after=after, limit=limit)
        return Edges(
            items=[
                Edge(label=each.label.value, direction=each.direction.value, vertex=vertex_shown(each.vertex))
                for each in page.edges
            ],
            cursor=cursor_to(asking, page.going_on, context=context),
        )

    @field(description="The table that it is, if it is one and is still called that.")
    async def table(self, info: Info) -> Table | None:
        return await table_of(info.context, self.key)


@strawberry.type(description="An edge of a vertex, and the vertex at its other end.")
class Edge:
    label: str
    direction: str
    vertex: Vertex


@strawberry.type(description="Edges in the order of their labels.")
class Edges:
    items: list[Edge]
    cursor: str | None


@strawberry.type(description="Vertices of one label in the order of their keys.")
class Vertices:
    items: list[Vertex]
    cursor: str | None


async def table_of(asking: Asking, key: str, *, as_of: int | None = None) -> Table | None:
    """
    Return the table that has a key now, or had it as of an entry; None if there is none, or the caller may not see it.
    """
    if not key.startswith(TABLE):
        return None
    if as_of is not None:
        then = await asking.names_then(key, as_of)
        return None if then is None else table_shown(key, table_uuid=then[0], index=then[1], as_of=as_of)
    named = await asking.names(key)
    if named is None or not await asking.looking.sight.sees(key):
        return None
    return table_shown(key, table_uuid=named.table_uuid, index=named.index)


def table_shown(key: str, *, table_uuid: str, index: int, as_of: int | None = None) -> Table:
    """Return a table that the caller may see, which has this key since the entry at `index`, or had it as of one."""
    return Table(**names_shown(key), table_uuid=table_uuid, named_index=Long(index), then=as_of)


def as_of_given(as_of: int | None) -> dict[str, str]:
    """Return the parameters that a cursor belongs to, as a route's does: `as_of`, if the question has one."""
    return {} if as_of is None else {AS_OF: str(as_of)}


async def vertex_of(asking: Asking, key: str) -> Vertex | None:
    """Return the vertex of a key; None if there is none, or the caller may not see it."""
    found = await asking.vertex(key)
    return None if found is None else vertex_shown(found)


def vertex_shown(found: FoundVertex) -> Vertex:
    """Return a vertex that the caller may see."""
    return Vertex(label=found.label.value, key=found.key, found=found)


async def decision_shown(asking: Asking, commit: Commit, *, as_of: int | None = None) -> Decision:
    """Return a decision that the caller may see, with what was known of it as of an entry, if one is given."""
    shown = commit_shown(commit, with_principal=await asking.reads_inputs(), as_of=as_of)
    reason, outcome = shown["reason"], shown["outcome"]
    return made_of(
        Decision,
        shown
        | {
            "reason": None if reason is None else made_of(Reason, reason),
            "outcome": None if outcome is None else made_of(Outcome, outcome),
            "row": commit,
            "then": as_of,
        },
    )


def findings_shown(rows: Sequence[FoundRow], *, as_of: int | None = None) -> list[Finding]:
    """Return findings that the caller may see, read as of an entry if one is given."""
    shown = [row_shown(each) | {"then": as_of} for each in rows]
    for each in shown:
        if each["review"] is not None:
            each["review"] = made_of(Review, each["review"])
    return [made_of(Finding, each) for each in shown]
