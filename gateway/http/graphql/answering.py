# SPDX-License-Identifier: Apache-2.0
"""
Runs a query: parsed and bounded first, then validated, then executed within a time.

Errors tell what was expected and where in the text. Suggestions of names are never made, and only who may read the
tenant's settings may ask for the schema: names are not to be had by guessing. What goes wrong within is logged, and the
client is told that it did.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from graphql import DocumentNode, ExecutionResult, GraphQLError, execute, validate

from gateway.errors import GatewayError, UnavailableError
from gateway.http.graphql.limits import SPLIT, check_cost, introspection_in, operation_of, parse_query
from gateway.http.graphql.loading import Asking
from gateway.http.graphql.schema import SCHEMA
from gateway.http.looking.reading import Looking
from gateway.log_errors import answer_to
from ledger.errors import LedgerError

TIMEOUT_S: Final = 10.0
"""For one query; each statement of it has its own (`gateway/http/looking/reading.py`)."""
ERRORS_MAX: Final = 10
FATAL: Final = frozenset({401, 429, 503})
"""Statuses of errors that are not about one field."""
_GRAPHQL: Final = SCHEMA._schema  # noqa: SLF001 - as graphql-core takes it; strawberry's own `execute` makes suggestions
NAMES: Final = "schema.graphql of the documents has all types, fields and arguments"
_FAILED: Final = "the gateway failed; its log says why"

_log = logging.getLogger(__name__)


async def answer(looking: Looking, query: str, variables: dict[str, Any], operation: str | None) -> dict[str, Any]:
    """
    Return what GraphQL answers to a query (its specification, section 7).

    Raises:
        UnavailableError: if it cannot be answered now, or takes too long.
        UnauthorizedError: if the caller's credentials are not in force any more.
    """
    try:
        document = parse_query(query)
        if (errors := await _invalid(looking, document, operation)) == []:
            check_cost(document, _GRAPHQL, variables)
    except GraphQLError as error:
        errors = [error]
    except RecursionError:
        errors = [GraphQLError(f"expected a query that is nested less deeply{SPLIT}")]
    if errors:
        return {"errors": [_shown(each) for each in errors]}
    try:
        async with asyncio.timeout(TIMEOUT_S):
            result = await _run(looking, document, variables)
    except TimeoutError as error:
        raise UnavailableError(f"the query took longer than {TIMEOUT_S:.0f} s: ask for less") from error
    shown: dict[str, Any] = {"data": result.data}
    if result.errors:
        shown["errors"] = [_shown(each) for each in result.errors[:ERRORS_MAX]]
    return shown


async def _invalid(looking: Looking, document: DocumentNode, operation: str | None) -> Sequence[GraphQLError]:
    """Return why a document cannot be run, if so."""
    asks = introspection_in(document)
    if asks is not None and not await looking.sight.reads_configuration("setting"):
        return [GraphQLError("expected no question about the schema: it takes the right to read settings", asks)]
    name = operation_of(document).name
    if operation is not None and (name is None or name.value != operation):
        return [GraphQLError(f"operationName: expected the name of the operation, found {operation!r:.80}")]
    return [_advised(each) for each in validate(_GRAPHQL, document, max_errors=ERRORS_MAX, hide_suggestions=True)]


def _advised(error: GraphQLError) -> GraphQLError:
    """Return what is wrong with a query by the schema, and where the schema is."""
    return GraphQLError(f"{error.message.rstrip('.')}: {NAMES}", error.nodes)


async def _run(looking: Looking, document: DocumentNode, variables: dict[str, Any]) -> ExecutionResult:
    key = await looking.key()
    async with looking.reading() as connection:
        asking = Asking(looking, key, connection)
        try:
            started = execute(
                _GRAPHQL, document, context_value=asking, variable_values=variables, hide_suggestions=True
            )
            result = started if isinstance(started, ExecutionResult) else await started
        finally:
            await asking.close()
        _raise_if_fatal([each.original_error for each in result.errors or ()])
        return result


def _raise_if_fatal(causes: Sequence[Exception | None]) -> None:
    """Raise an error that is not about one field: after it, other fields may lack what is there."""
    # Behind a statement that failed, all others of the transaction fail, too, and their errors may stand first.
    for cause in sorted(causes, key=lambda each: isinstance(each, psycopg.errors.InFailedSqlTransaction)):
        if isinstance(cause, psycopg.Error) or (isinstance(cause, GatewayError) and cause.status in FATAL):
            raise cause
        if isinstance(cause, LedgerError) and (told := answer_to(cause)) is not None:
            raise told from cause


def _shown(error: GraphQLError) -> dict[str, Any]:
    """Return an error as the specification has it, with its type as the routes have it."""
    cause = error.original_error
    if cause is None or isinstance(cause, GraphQLError):
        kind, message = "BadRequestException", error.message
    elif isinstance(cause, GatewayError):
        kind, message = cause.kind, str(cause)
    else:
        _log.error("graphql: %s failed", ".".join(map(str, error.path or ())), exc_info=cause)
        kind, message = "InternalServerError", _FAILED
    shown: dict[str, Any] = {"message": message, "extensions": {"type": kind}}
    if error.locations:
        shown["locations"] = [{"line": each.line, "column": each.column} for each in error.locations]
    if error.path:
        shown["path"] = list(error.path)
    return shown
