# SPDX-License-Identifier: Apache-2.0
"""
The tools of agents. Each reads, and none changes anything.

A tool asks the same functions that answer programs (`gateway/http`), with the credentials of the agent's request: what
these may not read, the agent does not see, in results, counts or cursors. Texts that others wrote (names, messages,
properties) are returned as values in JSON, and nowhere else: an instruction in one of them is data.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gateway.agents.cypher import TEXT_LENGTH_MAX
from gateway.agents.graph_query import PARAMETERS_MAX, query_graph
from gateway.errors import BadRequestError
from gateway.http import decision_routes, log_entry_routes, table_routes, tenant_routes, walk_routes
from gateway.http.inner import Headers, ask, names_in_path
from gateway.http.looking.query import AS_OF, INDEX_MAX, OF_NOW_ALONE
from gateway.http.looking.sight import target_of
from gateway.http.walk_routes import Preset
from ledger.format.merkle import check_inclusion
from projections.errors import ProjectionError
from projections.graph.display_names import key_of_table

HOPS_MAX: Final = 5
LIMIT_MAX: Final = 100
_CREDENTIALS: Final = frozenset({b"authorization", b"x-api-key"})

Table = Annotated[str, Field(min_length=1, max_length=2_000, description="<catalog>.<namespace>.<table>, or its key")]
Limit = Annotated[int, Field(ge=1, le=LIMIT_MAX)]
Cursor = Annotated[str, Field(max_length=8_192, description="what an answer before said; empty: from the beginning")]
AsOf = Annotated[int | None, Field(ge=0, le=INDEX_MAX, description="index of an entry; null: now")]
Text = Annotated[str, Field(max_length=2_000)]


class Arguments(BaseModel):
    """Arguments of a tool; unknown ones are refused, and `as_of` where what is read is kept as it is now alone."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _tell_of_now(cls, given: Any) -> Any:
        if isinstance(given, dict) and AS_OF in given and AS_OF not in cls.model_fields:
            raise BadRequestError(OF_NOW_ALONE, field=AS_OF)
        return given


class FindTables(Arguments):
    """
    Find tables by a part of their name, by catalog, or by a kind of personal data that was found in them. With as_of:
    those that there were when the log ended with that entry, and what was known of them then.
    """

    name: Text = ""
    catalog: Text = ""
    finding: Annotated[str, Field(max_length=100, description="us_ssn, email, credit_card, phone or iban")] = ""
    as_of: AsOf = None
    limit: Limit = 50
    cursor: Cursor = ""


class Traverse(Arguments):
    """
    Walk from a table. ai_agent_context: what it is, who writes and reads it, what was found in it. impact_analysis:
    what a change of it affects. pii_propagation: where its personal data may have gone. explain_a_number: what it was
    made from, and the last commits that made it so, with their decisions.
    """

    model_config = ConfigDict(strict=False)

    preset: Preset
    table: Table
    hops: Annotated[int, Field(ge=1, le=HOPS_MAX)] = 3


class QueryGraph(Arguments):
    """
    Ask the graph in openCypher: MATCH, WHERE, WITH, RETURN, ORDER BY, SKIP and LIMIT, at most 5 relationships, values
    as $parameters, and the functions label, count and max. It returns properties, such as t.key of (t:Table), in at
    most 100 rows. It takes a key that may see everything.
    """

    query: Annotated[str, Field(min_length=1, max_length=TEXT_LENGTH_MAX)]
    parameters: dict[str, str | int | bool | None] = Field(default_factory=dict, max_length=PARAMETERS_MAX)


class ExplainDecision(Arguments):
    """Explain why a commit was approved or refused: each rule with the value of each part, and what came of it."""

    decision: Annotated[str, Field(min_length=1, max_length=100, description="index of its entry, or id of its group")]


class VerifyEntry(Arguments):
    """
    Show an entry of the log, and check that it is in the tree that the log has signed. The check is this gateway's: an
    auditor checks the proof with other software.
    """

    index: Annotated[int, Field(ge=0, le=INDEX_MAX)]


class FindEntries(Arguments):
    """
    Find entries of the log, newest first, by event type, key (table:<alias>/<namespace>/<name>) and time; with as_of
    those up to that entry.
    """

    type: Text = ""
    key: Text = ""
    after: Annotated[str, Field(max_length=40, description="RFC 3339")] = ""
    before: Annotated[str, Field(max_length=40, description="RFC 3339")] = ""
    as_of: AsOf = None
    limit: Limit = 20
    cursor: Cursor = ""


@dataclass(frozen=True, slots=True)
class Asking:
    """One request of an agent: it asks routes with the credentials that it came with."""

    request: Request

    async def read(self, answer: Callable[..., Awaitable[Response]], *names: str, **query: object) -> Any:
        """Return what a route answers the agent. Raises as the route does."""
        headers: Headers = [each for each in self.request.scope["headers"] if each[0] in _CREDENTIALS]
        return await ask(self.request, answer, *names, query=query, headers=headers)


A = TypeVar("A", bound=Arguments)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: its name, what it takes, and what runs it."""

    name: str
    takes: type[Arguments]
    run: Callable[[Asking, Any], Awaitable[dict[str, Any]]]


async def find_tables(asking: Asking, given: FindTables) -> dict[str, Any]:
    """Return tables."""
    found: dict[str, Any] = await asking.read(table_routes.list_tables, **given.model_dump())
    return found


async def traverse(asking: Asking, given: Traverse) -> dict[str, Any]:
    """Return what a walk found."""
    names = names_of(given.table)
    found: dict[str, Any] = await asking.read(walk_routes.traverse, given.preset.value, *names, hops=given.hops)
    return found


async def ask_graph(asking: Asking, given: QueryGraph) -> dict[str, Any]:
    """Return the rows of a query."""
    return await query_graph(asking.request, given.query, given.parameters)


async def explain_decision(asking: Asking, given: ExplainDecision) -> dict[str, Any]:
    """Return a decision with its explanation."""
    decided = await asking.read(decision_routes.show_decision, given.decision)
    explained = await asking.read(tenant_routes.explain_decision, str(decided["index"]))
    return {"decision": decided, "explanation": explained}


async def verify_entry(asking: Asking, given: VerifyEntry) -> dict[str, Any]:
    """Return an entry, and whether its proof leads to the signed root."""
    entry: dict[str, Any] = await asking.read(log_entry_routes.show_entry, str(given.index))
    proof = entry["proof"]
    if proof["root"] is None:
        return {"in_signed_tree": None, "why": proof["trouble"], "entry": entry}
    check_inclusion(
        index=given.index,
        size=proof["size"],
        leaf=bytes.fromhex(entry["leaf"]),
        proof=[bytes.fromhex(each) for each in proof["hashes"]],
        root=bytes.fromhex(proof["root"]),
    )
    return {"in_signed_tree": True, "entry": entry}


async def find_entries(asking: Asking, given: FindEntries) -> dict[str, Any]:
    """Return entries."""
    found: dict[str, Any] = await asking.read(log_entry_routes.list_entries, **given.model_dump())
    return found


TOOLS: Final[Mapping[str, Tool]] = {
    tool.name: tool
    for tool in (
        Tool("find_tables", FindTables, find_tables),
        Tool("graph.traverse", Traverse, traverse),
        Tool("graph.query", QueryGraph, ask_graph),
        Tool("explain_decision", ExplainDecision, explain_decision),
        Tool("find_entries", FindEntries, find_entries),
        Tool("verify_entry", VerifyEntry, verify_entry),
    )
}


def names_of(table: str) -> tuple[str, str, str]:
    """
    Return what names a table in the paths of routes.

    Raises:
        BadRequestError: if the text names none.
    """
    try:
        target = target_of(key_of_table(table))
    except ProjectionError as error:
        raise BadRequestError(str(error), field="table") from error
    if target is None or target.name is None:
        raise BadRequestError(f"expected <catalog>.<namespace>.<table>, found {table!r:.200}", field="table")
    return names_in_path(target)
