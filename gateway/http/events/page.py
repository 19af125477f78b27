# SPDX-License-Identifier: Apache-2.0
"""
One page of a catalog's events, for one caller.

An event is there if the operation was made, is asked for, and is about an object that the caller may see by the rules
in force now: `table.load`, `view.load`, or `namespace.list`; of a rename, under both names. What may not be seen is not
counted either: `request-event-count` counts the events of a request that the caller may see. It is not recorded as
refused, since the caller did not ask for that object. Whatever was passed over is behind the token, and does not come
again if rules change later.

A page may be short, or empty, with more behind its token: a request reads a bounded part of the log.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from gateway.commit.gateway import Gateway
from gateway.errors import GatewayError
from gateway.http.events.made import EPOCH, EXAMINED_MAX, EXAMINED_MIN, Made, read_made
from gateway.http.events.query import EventFilters, EventsQuery, ObjectType
from gateway.http.events.tokens import Position, format_token, parse_token
from gateway.http.looking.sight import SEEN_BY, Sight
from gateway.identifiers import Target
from gateway.identity import Arrived
from gateway.policy.variables import RequestView
from ledger.store.read import first_index_since, read_head
from ledger.store.session import Connection

_LAST: Final = datetime.max.replace(tzinfo=UTC)


class GoneError(GatewayError):
    """The log is shorter than it was: a token is from a time that was lost. Readers begin again."""

    status = 410
    kind = "GoneException"


async def check_catalog(gateway: Gateway, arrived: Arrived, alias: str, request: RequestView) -> None:
    """
    Check that there is a catalog `alias`, and that rules may permit the caller something in it.

    Raises:
        ForbiddenError: if they permit nothing in it, whether or not it exists: as all routes but `/v1/config` say.
        NotFoundError: if the tenant has no such catalog.
        UnavailableError: if access could not be judged.
    """
    principal, state = arrived.principal, gateway.rules_at_arrival(arrived)
    if not await gateway.judge.permits_anything(state, principal, alias=alias):
        target, operation = Target(alias=alias, namespace=()), SEEN_BY["namespace"]
        judgement = await gateway.judge.read(state, principal, target, operation=operation, request=lambda: request)
        await gateway.check_permitted(principal, judgement, operation=operation, target=target)
    gateway.catalog(principal.tenant, state, alias)


async def query_events(
    gateway: Gateway, arrived: Arrived, alias: str, query: EventsQuery, request: RequestView
) -> dict[str, Any]:
    """
    Return a page of the events of a catalog (`QueryEventsResponse` of the proposal).

    Raises:
        BadRequestError: if the token is not one of this catalog's.
        GoneError: if the log has no such entry any more.
        UnavailableError: if access could not be judged, or the database cannot be reached.
        LedgerError: if what is stored is corrupt.
    """
    principal = arrived.principal
    key = await gateway.intake.request_keys.key(principal.log_id)
    asked = None if query.token is None else parse_token(key, query.token, alias=alias)
    filters = query.filters or (EventFilters() if asked is None else asked.filters)
    async with gateway.database.as_role(gateway.roles.tenant(principal.tenant)) as connection:
        # Before the entries: those below its size are all there, and will never be others.
        head = await read_head(connection, principal.log_id)
        if asked is None:
            from_index = await _first_index(connection, principal.log_id, query.since_ms, size=head.size)
        else:
            from_index = asked.index
        if from_index > head.size:
            raise GoneError("the log was restored, and does not have the entry that the token names: begin without it")
        made, end = await read_made(
            connection,
            principal.log_id,
            alias=alias,
            kinds=filters.objects or frozenset(ObjectType),
            from_index=from_index,
            size=head.size,
            limit=_outcomes_for(query.page_size, filters),
        )
    # By rules that are not older than what is shown.
    is_current = head.control_index <= arrived.state.as_of
    state = gateway.rules_at_arrival(arrived) if is_current else await gateway.rules_in_force(principal)
    sight = Sight(gateway=gateway, state=state, caller=principal, request=request)
    events: list[dict[str, Any]] = []
    for each in made:
        if each.is_asked_for(filters) and await sight.has(each.targets, each.uuid):
            events.append(each.event(request_event_count=await _count(sight, each)))
            if len(events) == query.page_size:
                end = each.outcome.index + 1
                break
    return {
        "continuation-token": format_token(key, Position(index=end, filters=filters), alias=alias),
        "events": events,
    }


def _outcomes_for(page_size: int, filters: EventFilters) -> int:
    """Return how many outcomes to read for a page: without filters, a rename has two, and few are no events."""
    if filters != EventFilters():
        return EXAMINED_MAX
    return min(EXAMINED_MAX, max(EXAMINED_MIN, 2 * page_size))


async def _first_index(connection: Connection, log_id: int, since_ms: int | None, *, size: int) -> int:
    """Return the index of the first entry that is not older; of a time to come, that of the next entry."""
    if since_ms is None or since_ms <= 0:
        return 0
    try:
        since = EPOCH + timedelta(milliseconds=since_ms)
    except OverflowError:
        since = _LAST
    return await first_index_since(connection, log_id, since, size=size)


async def _count(sight: Sight, made: Made) -> int:
    """Return how many operations of the same request the caller may see; `made` is one of them."""
    if len(made.of_request) == 1:
        return 1
    of_request = [(targets, made.uuid if targets == made.targets else None) for targets in made.of_request]
    return sum([await sight.has(targets, uuid) for targets, uuid in of_request])
