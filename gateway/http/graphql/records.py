# SPDX-License-Identifier: Apache-2.0
"""
Types without questions of their own: their fields are what a route shows, and nothing is asked for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NewType, TypeVar

import strawberry
from graphql import GraphQLError
from strawberry.scalars import JSON

Long = NewType("Long", int)
"""A whole number that Int, of 32 bits, may not hold."""


def parse_long(given: object) -> int:
    """
    Return the number that an argument gives.

    Raises:
        GraphQLError: if it is no whole number.
    """
    if not isinstance(given, int) or isinstance(given, bool):
        raise GraphQLError(f"expected a whole number, found {given!r:.40}")
    return given


T = TypeVar("T")


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


@strawberry.type(
    description="Who made a table or registered it: an actor, and who that is; null if you may not read inputs."
)
class Owner:
    actor: str
    principal: str | None


@strawberry.type(
    description="target was made from source, hops away. Its job and run are the last of count that reported it; null "
    "if you may not read lineage."
)
class LineageEdge:
    hops: int
    source: str
    target: str
    job: str | None
    run_id: str | None
    engine: str | None
    state: str | None
    event_time: str | None
    count: Long
    source_version: str | None
    target_version: str | None
    is_kept: bool


@strawberry.type(description="A column made from another one; a null target_column is every column of the target.")
class LineageColumn:
    source: str
    source_column: str
    target: str
    target_column: str | None
    count: Long


@strawberry.type(
    description="An edge that was reported and not drawn, since path leads from its target to its source already."
)
class Cycle:
    source: str
    target: str
    path: list[str]
    index: Long
    last_index: Long
    count: Long
    told_index: Long | None


@strawberry.type(description="How much lineage was reported of a table and is not drawn.")
class Omitted:
    columns: Long
    datasets: Long
    names: Long
    edges: Long
    ambiguous: Long
    refused: Long


@strawberry.type(description="The nearest edges; has_more: there may be others.")
class LineageEdges:
    items: list[LineageEdge]
    has_more: bool


@strawberry.type(description="Edges of columns; has_more: there may be others.")
class LineageColumns:
    items: list[LineageColumn]
    has_more: bool


@strawberry.type(description="The last edges that were not drawn; has_more: there may be others.")
class Cycles:
    items: list[Cycle]
    has_more: bool


@strawberry.type(description="A run: its job, engine and state, and what it reads and writes, by key.")
class Run:
    run_id: str
    job: str | None
    engine: str | None
    state: str | None
    event_time: str | None
    is_complete: bool
    inputs: list[str]
    outputs: list[str]
    first_index: Long
    last_index: Long


@strawberry.type(description="Runs by their ids, from the highest down: those that hold a time are newest first.")
class Runs:
    items: list[Run]
    cursor: str | None


@strawberry.type(description="Policies by id.")
class Policies:
    items: list[Policy]
    cursor: str | None


def policy_of(shown: Mapping[str, Any]) -> Policy:
    """Return a policy that the caller may read."""
    return made_of(Policy, {**shown, "coming": [made_of(PolicyComing, each) for each in shown["coming"]]})


def made_of(kind: type[T], shown: Mapping[str, Any]) -> T:
    """Return a type of this schema with the members of what a route shows that it has, too."""
    names = [each.name for each in fields(kind) if each.init]  # type: ignore[arg-type]  # strawberry makes dataclasses
    return kind(**{name: shown[name] for name in names})
