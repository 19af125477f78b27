# SPDX-License-Identifier: Apache-2.0
"""
What may be asked for first, and the schema.

Names are those of the JSON of the routes, and cursors are theirs, too: a list goes on in either. What a caller may not
see is null or left out, as it is there. Every list takes `limit` and, where it may go on, `cursor`, and answers `items`
and `cursor`.
"""

from __future__ import annotations

from typing import Final

import strawberry
from strawberry.schema.config import StrawberryConfig

from gateway.admin.limits import check_text
from gateway.admin.policy_edits import lasting
from gateway.admin.shown import policy_shown
from gateway.errors import NotFoundError
from gateway.http.decision_routes import find_decision, page_of_findings
from gateway.http.graphql.arguments import (
    LIMIT_DEFAULT,
    checked_as_of,
    checked_limit,
    checked_percent,
    checked_texts,
    cursor_to,
    index_below,
    key_behind,
    one_of,
    table_key_of,
)
from gateway.http.graphql.objects import (
    Decision,
    Findings,
    Info,
    Table,
    Tables,
    Vertex,
    Vertices,
    as_of_given,
    decision_shown,
    field,
    findings_shown,
    table_of,
    table_shown,
    vertex_of,
    vertex_shown,
)
from gateway.http.graphql.records import Long, Policies, Policy, Run, Runs, made_of, parse_long, policy_of
from gateway.http.looking.cursors import format_cursor
from gateway.http.looking.lineage import runs_shown
from gateway.http.looking.query import TEXT_LENGTH_MAX, check_known, context_of
from gateway.http.table_routes import NAME_LENGTH_MAX, page_of_tables
from gateway.identifiers import parse_alias
from ledger.format.events import DetectionKind
from projections.graph.labels import VertexLabel
from projections.lineage.read import read_runs
from projections.relational.finding_reviews import FindingState
from projections.relational.table_names import TAGS, Owner


@strawberry.type(description="What may be asked for.")
class Query:
    @field(
        description="A table by its name (catalog.namespace.table) or key; with as_of, the index of an entry, the one "
        "that had this name when the log ended with it, and all below it as it was then."
    )
    async def table(self, info: Info, name: str, as_of: Long | None = None) -> Table | None:
        key, then = table_key_of(name, field="name"), checked_as_of(as_of)
        await info.context.check_as_of(then)
        return await table_of(info.context, key, as_of=then)

    @field(
        description="Tables by name: of a catalog, with a text in their name, with a kind of finding, with a tag, of "
        "an owner (an actor, or who that is if you may read inputs). With as_of, as all of that was at that entry."
    )
    async def tables(
        self,
        info: Info,
        catalog: str | None = None,
        name: str | None = None,
        finding: str | None = None,
        tag: str | None = None,
        owner: str | None = None,
        as_of: Long | None = None,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> Tables:
        asking, limit, then = info.context, checked_limit(limit), checked_as_of(as_of)
        for argument, text in (("name", name), ("owner", owner)):
            if text is not None:
                check_text(text, field=argument, length_max=NAME_LENGTH_MAX)
        given = checked_texts(catalog=catalog, name=name, finding=finding, tag=tag, owner=owner)
        for argument, known in (("finding", DetectionKind), ("tag", TAGS)):
            if argument in given:
                check_known(given[argument], known, field=argument)
        context = context_of("/v1/tables", given | as_of_given(then))
        after = key_behind(asking, cursor, context=context)
        alias = None if catalog is None else parse_alias(catalog, field="catalog")
        knows_people = await asking.reads_inputs()
        await asking.check_as_of(then)
        async with asking.reading() as connection:
            found, going_on = await page_of_tables(
                asking.looking.sight,
                connection,
                after=after,
                alias=alias,
                text=given.get("name"),
                kind=given.get("finding"),
                tag=given.get("tag"),
                owner=None if owner is None else Owner(name=owner, may_be_principal=knows_people),
                limit=limit,
                as_of=then,
            )
        items = [table_shown(each.key, table_uuid=each.table_uuid, index=each.index, as_of=then) for each in found]
        return Tables(items=items, cursor=cursor_to(asking, going_on, context=context))

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

    @field(
        description="Findings, the newest first: of a table, of a kind, of some confidence or more, and those that are "
        "open, confirmed or dismissed. With as_of, as all of that was at that entry."
    )
    async def findings(
        self,
        info: Info,
        table: str | None = None,
        kind: str | None = None,
        confidence: int | None = None,
        state: str | None = None,
        as_of: Long | None = None,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> Findings:
        asking, limit, then = info.context, checked_limit(limit), checked_as_of(as_of)
        given = checked_texts(table=table, kind=kind, state=state)
        if confidence is not None:
            given["confidence"] = str(checked_percent(confidence))
        if kind is not None:
            check_known(kind, DetectionKind, field="kind")
        context = context_of("/v1/findings", given | as_of_given(then))
        before = index_below(asking, cursor, context=context)
        key = None if table is None else table_key_of(table, field="table")
        chosen = None if state is None else one_of(FindingState, state, field="state")
        await asking.check_as_of(then)
        async with asking.reading() as connection:
            found, going_on = await page_of_findings(
                asking.looking,
                connection,
                before=before,
                key=key,
                kind=given.get("kind"),
                state=chosen,
                confidence=confidence or 0,
                limit=limit,
                as_of=then,
            )
        return Findings(
            items=findings_shown(found, as_of=then),
            cursor=cursor_to(asking, going_on, context=context),
        )

    @field(description="Runs that lineage tells of, the newest first; null if you may not read lineage.")
    async def runs(self, info: Info, limit: int = LIMIT_DEFAULT, cursor: str | None = None) -> Runs | None:
        asking, limit, context = info.context, checked_limit(limit), context_of("/v1/runs", {})
        before = None if cursor is None else key_behind(asking, cursor, context=context)
        if not await asking.reads_lineage():
            return None
        async with asking.reading() as connection:
            runs = await read_runs(connection, asking.looking.caller.log_id, before=before, limit=limit)
        shown = await runs_shown(runs, asking.looking.sight)
        going_on = None if len(runs) < limit else runs[-1].run_id
        return Runs(items=[made_of(Run, each) for each in shown], cursor=cursor_to(asking, going_on, context=context))

    @field(description="A policy that is in force, or will be; null if you may not read it.")
    async def policy(self, info: Info, id: str) -> Policy | None:  # noqa: A002 - as it is called everywhere
        looking = info.context.looking
        named = check_text(id, field="id", length_max=TEXT_LENGTH_MAX)
        policy = looking.sight.state.newest_policies.get(named)
        if policy is None or not await looking.sight.reads_configuration("policy", named):
            return None
        return policy_of(policy_shown(policy, now=looking.gateway.clock()))

    @field(
        description="The policies that are in force, or will be; with as_of, those that were when that entry was "
        "recorded; null if you may not read policies."
    )
    async def policies(
        self, info: Info, as_of: Long | None = None, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> Policies | None:
        asking, limit, then = info.context, checked_limit(limit), checked_as_of(as_of)
        if not await asking.reads_policies():
            return None
        context = context_of("graphql/policies", as_of_given(then))
        after = key_behind(asking, cursor, context=context)
        state, now = await asking.in_force(then)
        everything = sorted(lasting(state, now).values(), key=lambda each: each.id)
        rest = [each for each in everything if each.id > after]
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
        asking, chosen, limit = info.context, one_of(VertexLabel, label, field="label"), checked_limit(limit)
        context = context_of("graphql/vertices", {"label": chosen.value})
        after = key_behind(asking, cursor, context=context)
        found, going_on = await asking.vertices(chosen, after=after, limit=limit)
        return Vertices(
            items=[vertex_shown(each) for each in found],
            cursor=cursor_to(asking, going_on, context=context),
        )


SCHEMA: Final = strawberry.Schema(
    query=Query,
    config=StrawberryConfig(
        auto_camel_case=False,
        scalar_map={
            Long: strawberry.scalar(
                name="Long",
                description="A whole number of at most 2^53 - 1; Int has 32 bits.",
                serialize=int,
                parse_value=parse_long,
            )
        },
    ),
)
