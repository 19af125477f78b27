# SPDX-License-Identifier: Apache-2.0
"""
The types of the GraphQL API, and what answers each field.

Names are those of the JSON of the routes, and cursors are theirs, too: a list goes on in either. What a caller may not
see is null or left out, as it is there. Every list takes `limit` and, where it may go on, `cursor`, and answers `items`
and `cursor`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from enum import StrEnum
from typing import Any, Final, NewType, TypeVar, cast

import strawberry
from strawberry.scalars import JSON
from strawberry.schema.config import StrawberryConfig

from gateway.admin.limits import check_text
from gateway.admin.shown import policy_shown
from gateway.errors import BadRequestError, NotFoundError
from gateway.http.decision_routes import find_decision, page_of_findings
from gateway.http.graphql.loading import Asking
from gateway.http.graphql.vertices import properties_shown
from gateway.http.inner import names_in_path
from gateway.http.looking.cursors import format_cursor, parse_index_cursor, parse_key_cursor
from gateway.http.looking.query import CURSOR, CURSOR_LENGTH_MAX, LIMIT, LIMIT_MAX, TEXT_LENGTH_MAX, context_of
from gateway.http.looking.shown import commit_shown, row_shown
from gateway.http.looking.sight import target_of
from gateway.http.table_routes import NAME_LENGTH_MAX, names_shown, page_of_tables, policies_of
from gateway.identifiers import parse_alias
from projections.errors import ProjectionError
from projections.graph.display_names import key_of_table
from projections.graph.labels import EdgeLabel, VertexLabel, vertex_key
from projections.graph.neighbours import FoundVertex
from projections.graph.walking import Direction
from projections.relational.commits import INDEX_END, Commit
from projections.relational.findings import Finding as FoundRow

TABLE: Final = "table:"
"""How the key of a table begins."""
LIMIT_DEFAULT: Final = 10

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
F = TypeVar("F", bound=Callable[..., Any])


def field(description: str) -> Callable[[F], F]:
    """Return strawberry's decorator of a field that a function answers, with a type."""
    return cast("Callable[[F], F]", strawberry.field(description=description))


Long = NewType("Long", int)
Info = strawberry.Info[Asking, None]


@strawberry.type(description="Personal data of one kind in a table: the highest confidence, and in how many columns.")
class KindFound:
    kind: str
    confidence_percent: int
    columns: int


@strawberry.type(description="A version of a policy or an access rule.")
class Reason:
    id: str
    version: Long


@strawberry.type(description="The outcome of an approved decision, and how it is known.")
class Outcome:
    index: Long
    recorded_at: str | None
    outcome: str | None
    evidence: str | None
    metadata_location: str | None
    metadata_sha256: str | None


@strawberry.type(description="A version of a policy that comes into force later, and when.")
class PolicyComing:
    version: Long
    active_from: str | None


@strawberry.type(description="A policy in the version that is in force, or else in the first that will be.")
class Policy:
    id: str
    version: Long
    in_force: bool
    expression: str
    message: str
    scope: JSON
    examples: JSON
    reason: str
    active_from: str | None
    retired_from: str | None
    coming: list[PolicyComing]


@strawberry.type(
    description="What somebody has said of a finding, whose entry is at its index: confirmed, or dismissed."
)
class Review:
    version: Long
    index: Long
    finding: Long
    recorded_at: str
    actor: str
    verdict: str
    confidence_percent: int
    reason: str


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

    @field(description="The table, if it is still called that.")
    async def table(self, info: Info) -> Table | None:
        return await table_of(info.context, self.key)


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

    @field(description="The table, if the decision is on one and it is still called that.")
    async def table(self, info: Info) -> Table | None:
        return await table_of(info.context, self.key)

    @field(description="What was found in the snapshots that the decision names.")
    async def findings(self, info: Info, limit: int = LIMIT_DEFAULT) -> list[Finding]:
        sight = info.context.looking.sight
        found = await info.context.findings_of(self.row, limit=checked_limit(limit))
        # They bear the name that their table has now, which may be another one.
        return findings_shown([each for each in found if await sight.sees(each.key)])

    @field(description="Its vertex in the graph.")
    async def vertex(self, info: Info) -> Vertex | None:
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

    @field(description="Which kinds of personal data were found in it.")
    async def found(self, info: Info) -> list[KindFound]:
        return [made_of(KindFound, asdict(each)) for each in await info.context.kinds_found(self.table_uuid)]

    @field(description="Decisions on it, the newest first.")
    async def decisions(self, info: Info, limit: int = LIMIT_DEFAULT, cursor: str | None = None) -> Decisions:
        asking, limit, target = info.context, checked_limit(limit), target_of(self.key)
        path = self.key if target is None else "/".join(names_in_path(target))
        context = context_of(f"/v1/tables/{path}/history", {})
        before = index_below(asking, cursor, context=context)
        rows = await asking.history(self.key, before=before, limit=limit)
        going_on = None if len(rows) < limit else format_cursor(asking.cursor_key, rows[-1].index, context=context)
        return Decisions(items=[await decision_shown(asking, each) for each in rows], cursor=going_on)

    @field(description="What was found last in each of its columns, of each kind.")
    async def findings(self, info: Info, limit: int = LIMIT_DEFAULT, confidence: int = 0) -> list[Finding]:
        return findings_shown(
            await info.context.last_findings(
                self.table_uuid, confidence=checked_percent(confidence), limit=checked_limit(limit)
            )
        )

    @field(description="The policies in force whose scope covers it; null if you may not read policies.")
    async def policies(self, info: Info, limit: int = LIMIT_DEFAULT) -> list[Policy] | None:
        asking, target, limit = info.context, target_of(self.key), checked_limit(limit)
        if target is None or not await asking.reads_policies():
            return None
        looking = asking.looking
        shown = policies_of(looking.sight, target, now=looking.gateway.clock())
        return [policy_of(each) for each in shown[:limit]]

    @field(description="Its vertex in the graph.")
    async def vertex(self, info: Info) -> Vertex | None:
        return await vertex_of(info.context, self.key)


@strawberry.type(description="Tables by name.")
class Tables:
    items: list[Table]
    cursor: str | None


@strawberry.type(description="Findings, the newest first.")
class Findings:
    items: list[Finding]
    cursor: str | None


@strawberry.type(description="Policies by id.")
class Policies:
    items: list[Policy]
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
            else tuple(label_of(EdgeLabel, each, field="labels") for each in dict.fromkeys(labels))
        )
        directions = tuple(Direction) if direction is None else (label_of(Direction, direction, field="direction"),)
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


@strawberry.type(description="What may be asked for.")
class Query:
    @field(description="A table by its name (catalog.namespace.table) or key.")
    async def table(self, info: Info, name: str) -> Table | None:
        key = table_key_of(name, field="name")
        return await table_of(info.context, key)

    @field(description="Tables by name: of a catalog, with a text in their name, with a kind of finding.")
    async def tables(
        self,
        info: Info,
        catalog: str | None = None,
        name: str | None = None,
        finding: str | None = None,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> Tables:
        asking, limit = info.context, checked_limit(limit)
        if name is not None:
            check_text(name, field="name", length_max=NAME_LENGTH_MAX)
        given = checked_texts(catalog=catalog, name=name, finding=finding)
        context = context_of("/v1/tables", given)
        after = key_behind(asking, cursor, context=context)
        alias = None if catalog is None else parse_alias(catalog, field="catalog")
        async with asking.reading() as connection:
            found, going_on = await page_of_tables(
                asking.looking.sight,
                connection,
                after=after,
                alias=alias,
                text=given.get("name"),
                kind=given.get("finding"),
                limit=limit,
            )
        return Tables(
            items=[
                Table(**names_shown(each.key), table_uuid=each.table_uuid, named_index=Long(each.index))
                for each in found
            ],
            cursor=cursor_to(asking, going_on, context=context),
        )

    @field(description="A decision by the index of its entry, or the id of its group.")
    async def decision(self, info: Info, id: str) -> Decision | None:  # noqa: A002 - as it is called everywhere
        asking = info.context
        named = check_text(id, field="id", length_max=TEXT_LENGTH_MAX)
        try:
            async with asking.reading() as connection:
                commit = await find_decision(asking.looking, connection, named)
        except NotFoundError:
            return None
        return await decision_shown(asking, commit)

    @field(description="Findings, the newest first: of a table, of a kind, of some confidence or more.")
    async def findings(
        self,
        info: Info,
        table: str | None = None,
        kind: str | None = None,
        confidence: int | None = None,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> Findings:
        asking, limit = info.context, checked_limit(limit)
        given = checked_texts(table=table, kind=kind)
        if confidence is not None:
            given["confidence"] = str(checked_percent(confidence))
        context = context_of("/v1/findings", given)
        before = index_below(asking, cursor, context=context)
        key = None if table is None else table_key_of(table, field="table")
        async with asking.reading() as connection:
            found, going_on = await page_of_findings(
                asking.looking,
                connection,
                before=before,
                key=key,
                kind=given.get("kind"),
                confidence=confidence or 0,
                limit=limit,
            )
        return Findings(
            items=findings_shown(found),
            cursor=cursor_to(asking, going_on, context=context),
        )

    @field(description="A policy that is in force, or will be; null if you may not read it.")
    async def policy(self, info: Info, id: str) -> Policy | None:  # noqa: A002 - as it is called everywhere
        looking = info.context.looking
        named = check_text(id, field="id", length_max=TEXT_LENGTH_MAX)
        policy = looking.sight.state.newest_policies.get(named)
        if policy is None or not await looking.sight.reads_configuration("policy", named):
            return None
        return policy_of(policy_shown(policy, now=looking.gateway.clock()))

    @field(description="The policies that are in force, or will be; null if you may not read policies.")
    async def policies(self, info: Info, limit: int = LIMIT_DEFAULT, cursor: str | None = None) -> Policies | None:
        asking, limit = info.context, checked_limit(limit)
        if not await asking.reads_policies():
            return None
        looking, context = asking.looking, context_of("graphql/policies", {})
        after = key_behind(asking, cursor, context=context)
        everything = sorted(looking.sight.state.newest_policies.values(), key=lambda each: each.id)
        rest = [each for each in everything if each.id > after]
        now = looking.gateway.clock()
        page = rest[:limit]
        return Policies(
            items=[policy_of(policy_shown(each, now=now)) for each in page],
            cursor=None if len(rest) <= limit else format_cursor(asking.cursor_key, page[-1].id, context=context),
        )

    @field(description="A vertex of the graph by its key, such as table:lake/sales/orders.")
    async def vertex(self, info: Info, key: str) -> Vertex | None:
        return await vertex_of(info.context, check_text(key, field="key", length_max=TEXT_LENGTH_MAX))

    @field(description="Vertices of one label in the order of their keys.")
    async def vertices(self, info: Info, label: str, limit: int = LIMIT_DEFAULT, cursor: str | None = None) -> Vertices:
        asking, chosen, limit = info.context, label_of(VertexLabel, label, field="label"), checked_limit(limit)
        context = context_of("graphql/vertices", {"label": chosen.value})
        after = key_behind(asking, cursor, context=context)
        found, going_on = await asking.vertices(chosen, after=after, limit=limit)
        return Vertices(
            items=[vertex_shown(each) for each in found],
            cursor=cursor_to(asking, going_on, context=context),
        )


async def table_of(asking: Asking, key: str) -> Table | None:
    """Return the table that has a key now; None if there is none, or the caller may not see it."""
    if not key.startswith(TABLE):
        return None
    named = await asking.names(key)
    if named is None or not await asking.looking.sight.sees(key):
        return None
    return Table(**names_shown(key), table_uuid=named.table_uuid, named_index=Long(named.index))


async def vertex_of(asking: Asking, key: str) -> Vertex | None:
    """Return the vertex of a key; None if there is none, or the caller may not see it."""
    found = await asking.vertex(key)
    return None if found is None else vertex_shown(found)


def vertex_shown(found: FoundVertex) -> Vertex:
    """Return a vertex that the caller may see."""
    return Vertex(label=found.label.value, key=found.key, found=found)


async def decision_shown(asking: Asking, commit: Commit) -> Decision:
    """Return a decision that the caller may see."""
    shown = commit_shown(commit, with_principal=await asking.reads_inputs())
    reason, outcome = shown["reason"], shown["outcome"]
    return made_of(
        Decision,
        shown
        | {
            "reason": None if reason is None else made_of(Reason, reason),
            "outcome": None if outcome is None else made_of(Outcome, outcome),
            "row": commit,
        },
    )


def findings_shown(rows: Sequence[FoundRow]) -> list[Finding]:
    """Return findings that the caller may see."""
    shown = [row_shown(each) for each in rows]
    for each in shown:
        if each["review"] is not None:
            each["review"] = made_of(Review, each["review"])
    return [made_of(Finding, each) for each in shown]


def policy_of(shown: Mapping[str, Any]) -> Policy:
    """Return a policy that the caller may read."""
    return made_of(Policy, {**shown, "coming": [made_of(PolicyComing, each) for each in shown["coming"]]})


def made_of(kind: type[T], shown: Mapping[str, Any]) -> T:
    """Return a type of this schema with the members of what a route shows that it has, too."""
    names = [each.name for each in fields(kind) if each.init]  # type: ignore[arg-type]  # strawberry makes dataclasses
    return kind(**{name: shown[name] for name in names})


def checked_limit(limit: int) -> int:
    """
    Return how many items one list may have.

    Raises:
        BadRequestError: if it is not 1 to `LIMIT_MAX`.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise BadRequestError(f"expected a whole number from 1 to {LIMIT_MAX}, found {limit}", field=LIMIT)
    return limit


def checked_percent(percent: int) -> int:
    """
    Return a confidence.

    Raises:
        BadRequestError: if it is not 0 to 100.
    """
    if not 0 <= percent <= 100:
        raise BadRequestError(f"expected a whole number from 0 to 100, found {percent}", field="confidence")
    return percent


def key_behind(asking: Asking, cursor: str | None, *, context: str) -> str:
    """Return the key that a list continues behind. Raises BadRequestError if that is no cursor of this list."""
    return "" if cursor is None else parse_key_cursor(asking.cursor_key, checked_cursor(cursor), context=context)


def index_below(asking: Asking, cursor: str | None, *, context: str) -> int:
    """Return the index that a list continues below. Raises as `key_behind`."""
    if cursor is None:
        return INDEX_END
    return parse_index_cursor(asking.cursor_key, checked_cursor(cursor), context=context)


def cursor_to(asking: Asking, place: int | str | None, *, context: str) -> str | None:
    """Return the cursor of what continues a list behind a place; None at its end."""
    return None if place is None else format_cursor(asking.cursor_key, place, context=context)


def checked_cursor(cursor: str) -> str:
    """
    Return a cursor, unread.

    Raises:
        BadRequestError: if it can be none.
    """
    return check_text(cursor, field=CURSOR, length_max=CURSOR_LENGTH_MAX)


def checked_texts(**given: str | None) -> dict[str, str]:
    """
    Return the texts that were given, by name.

    Raises:
        BadRequestError: if one is empty, too long, or has control characters.
    """
    return {
        name: check_text(text, field=name, length_max=TEXT_LENGTH_MAX)
        for name, text in given.items()
        if text is not None
    }


def table_key_of(name: str, *, field: str) -> str:
    """
    Return the key of a table that is given by name or key.

    Raises:
        BadRequestError: if it is neither.
    """
    try:
        return key_of_table(check_text(name, field=field, length_max=TEXT_LENGTH_MAX))
    except ProjectionError as error:
        raise BadRequestError(str(error), field=field) from error


def label_of(kind: type[E], text: str, *, field: str) -> E:
    """
    Return a label, or a direction.

    Raises:
        BadRequestError: if it is none.
    """
    try:
        return kind(text)
    except ValueError as error:
        known = ", ".join(each.value for each in kind)
        raise BadRequestError(f"expected one of {known}, found {text!r:.80}", field=field) from error


SCHEMA: Final = strawberry.Schema(
    query=Query,
    config=StrawberryConfig(
        auto_camel_case=False,
        scalar_map={
            Long: strawberry.scalar(
                name="Long",
                description="A whole number of at most 2^53 - 1; Int has 32 bits.",
                serialize=int,
                parse_value=int,
            )
        },
    ),
)
