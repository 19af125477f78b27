# SPDX-License-Identifier: Apache-2.0
"""
What a request for events asks for: from where on, how many, and which (`QueryEventsRequest` of the proposal).

A member that is not known is refused, and so is every member of `custom-filters`: a filter that is not applied would
show what was not asked for. Earlier forms of the proposal had other names (`after-timestamp-ms`,
`catalog-objects-by-id`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Self, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field

from gateway.errors import BadRequestError
from gateway.http.request import parse_model
from gateway.identifiers import NAMESPACE_LEVELS_MAX, parse_name

BODY_SIZE_BYTES_MAX: Final = 128 * 1024
"""Enough for the largest filters and the largest token."""
FILTERS_SIZE_BYTES_MAX: Final = 32 * 1024
"""As JSON: a token holds them."""
TOKEN_LENGTH_MAX: Final = 48 * 1024
"""The largest filters in base64, and what else a token has."""
PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MAX: Final = 500
FILTERED_MAX: Final = 100
"""Elements of one filter."""
OPERATION_TYPE_LENGTH_MAX: Final = 100

V = TypeVar("V")
P = TypeVar("P")


class ObjectType(StrEnum):
    """What an event can be about, as keys of the log begin, too."""

    NAMESPACE = "namespace"
    TABLE = "table"
    VIEW = "view"


_OperationType = Annotated[str, Field(min_length=1, max_length=OPERATION_TYPE_LENGTH_MAX)]
_Levels = Annotated[list[str], Field(min_length=1, max_length=NAMESPACE_LEVELS_MAX + 1)]
_Uuid = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")]
_Filter = Field(min_length=1, max_length=FILTERED_MAX)


def _alias(name: str) -> str:
    return name.replace("_", "-")


class _Members(BaseModel):
    """Members of a request, null or left out if they are not given; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=_alias)


class FilterMembers(_Members):
    """The members that say which events are asked for."""

    operation_types: Annotated[list[_OperationType], _Filter] | None = None
    catalog_objects_by_name: Annotated[list[_Levels], _Filter] | None = None
    catalog_objects_by_uuid: Annotated[list[_Uuid], _Filter] | None = None
    object_types: Annotated[list[ObjectType], _Filter] | None = None


class QueryEventsBody(FilterMembers):
    """The body of a request."""

    continuation_token: Annotated[str, Field(max_length=TOKEN_LENGTH_MAX)] | None = None
    page_size: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    since_timestamp_ms: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    custom_filters: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilters:
    """Which events are asked for: those that match every filter; one that is None matches all."""

    types: frozenset[str] | None = None
    names: frozenset[tuple[str, ...]] | None = None
    uuids: frozenset[str] | None = None
    objects: frozenset[ObjectType] | None = None

    @classmethod
    def of(cls, members: FilterMembers) -> Self:
        """
        Return the filters that the members of a request are.

        Raises:
            BadRequestError: if a name is none, or they are too large together.
        """
        filters = cls(
            types=_each(members.operation_types, str),
            names=_each(members.catalog_objects_by_name, _path),
            uuids=_each(members.catalog_objects_by_uuid, str.lower),
            objects=_each(members.object_types, ObjectType),
        )
        if (size_bytes := len(orjson.dumps(filters.members()))) > FILTERS_SIZE_BYTES_MAX:
            raise BadRequestError(
                f"expected filters of at most {FILTERS_SIZE_BYTES_MAX} bytes, found {size_bytes}", field="body"
            )
        return filters

    def members(self) -> dict[str, Any]:
        """Return the filters as members of a request; `of` makes the same filters of them."""
        named = {
            "operation-types": self.types,
            "catalog-objects-by-name": self.names,
            "catalog-objects-by-uuid": self.uuids,
            "object-types": self.objects,
        }
        return {name: sorted(values) for name, values in named.items() if values is not None}

    def admits(
        self, *, operation_type: str, paths: Iterable[tuple[str, ...]], uuid: str | None, kind: ObjectType
    ) -> bool:
        """
        Return whether an event is asked for; its object has one of `paths`, of a rename the old one and the new one.

        A name matches an object of that path, and of every path below it.
        """
        return (
            (self.types is None or operation_type in self.types)
            and (self.objects is None or kind in self.objects)
            and (self.uuids is None or (uuid is not None and uuid.lower() in self.uuids))
            and (self.names is None or any(not self.names.isdisjoint(_prefixes(path)) for path in paths))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsQuery:
    """One request: `filters` are None if it names none; `since_ms` counts only without a token."""

    token: str | None
    page_size: int
    since_ms: int | None
    filters: EventFilters | None


def parse_query(body: bytes) -> EventsQuery:
    """
    Return what the body of a request asks for.

    Raises:
        BadRequestError: if it is not of the proposal's shape, or over a limit; names the field.
    """
    members = parse_model(QueryEventsBody, body)
    if members.custom_filters:
        raise BadRequestError("expected none: this catalog has no filters of its own", field="custom-filters")
    filters = EventFilters.of(members)
    return EventsQuery(
        token=members.continuation_token,
        page_size=min(members.page_size or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX),
        since_ms=members.since_timestamp_ms,
        filters=None if filters == EventFilters() else filters,
    )


def parse_filters(members: object) -> EventFilters:
    """
    Return the filters that `EventFilters.members` has returned the members of.
    """
    return EventFilters.of(FilterMembers.model_validate_json(orjson.dumps(members)))


def _each(values: Sequence[V] | None, parse: Callable[[V], P]) -> frozenset[P] | None:
    return None if values is None else frozenset(map(parse, values))


def _path(levels: Sequence[str]) -> tuple[str, ...]:
    return tuple(parse_name(level, field="catalog-objects-by-name") for level in levels)


def _prefixes(path: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    return (path[:end] for end in range(1, len(path) + 1))
