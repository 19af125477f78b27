# SPDX-License-Identifier: Apache-2.0
"""
Runs the openCypher of an agent on the live graph of its tenant, as that tenant's reader, for keys that may see all.

A condition on what a key may not see would tell what it is, and a count would count it. What may be seen is judged key
by key, by rules of which the database knows nothing, so no condition of the query can say it. Hence a key that may not
see everything does not ask at all, and is told which right is missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import psycopg
from fastapi import Request

from gateway.agents.cypher import ROWS_MAX, Written, write_query
from gateway.errors import BadRequestError, ForbiddenError, UnavailableError
from gateway.http.looking.graphs import asking_graph
from gateway.http.looking.reading import look
from gateway.http.looking.sight import SEEN_BY, Sight
from ledger.format.canonical import Json

TIMEOUT_S: Final = 2
PARAMETERS_MAX: Final = 20
VALUE_LENGTH_MAX: Final = 2_000
NUMBER_MAX: Final = 2**53 - 1
_NOT_STORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_COLUMN: Final = "column_{}"
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


async def query_graph(request: Request, query: str, parameters: Mapping[str, object]) -> dict[str, Any]:
    """
    Return the rows of a query, at most `ROWS_MAX`; `is_cut` says that there are more.

    Raises:
        BadRequestError: if the query is none that may be asked, or asks a property of what has none.
        ForbiddenError: if the caller may not see all that the graph has.
        UnavailableError: if it takes longer than `TIMEOUT_S`, or there is no graph yet.
    """
    looking = await look(request)
    await check_sees_everything(looking.sight)
    written = write_query(query)
    values = _values(written, parameters)
    names = [_COLUMN.format(_LETTERS[place]) for place in range(len(written.columns))]
    async with asking_graph(looking) as (graph, lag_entries):
        # The role of the connection is the tenant's reader: it may read its own graph, and call few functions.
        await graph.bound_time(TIMEOUT_S)
        try:
            rows = await graph.query(written.text, names, values)
        except psycopg.errors.QueryCanceled as error:
            raise UnavailableError(f"the query took longer than {TIMEOUT_S} s: match less, or by a key") from error
        except (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError, psycopg.InternalError) as error:
            raise BadRequestError(
                "expected a query that the graph can answer, found one that it refuses: it may ask a property of what "
                "has none, or compare what cannot be compared",
                field="query",
            ) from error
    return {
        "columns": list(written.columns),
        "rows": [list(row) for row in rows[:ROWS_MAX]],
        "is_cut": len(rows) > ROWS_MAX,
        "lag_entries": lag_entries,
    }


async def check_sees_everything(sight: Sight) -> None:
    """
    Check that a caller may see all that a graph has.

    Raises:
        ForbiddenError: if not; names a right that is missing.
    """
    rights = [
        ("all that the log has (log.load)", sight.reads_log),
        ("lineage (lineage.load)", sight.reads_lineage),
        ("contents of payload parts (inputs.load)", sight.reads_inputs),
    ]
    for what, has in rights:
        if not await has():
            raise _forbidden(what)
    for kind, operation in SEEN_BY.items():
        if not await sight.sees_every(kind):
            raise _forbidden(f"every {kind} ({operation})")


def _forbidden(what: str) -> ForbiddenError:
    return ForbiddenError(
        f"expected a key that may see all that the graph has, found one that may not see {what}: "
        "graph.traverse shows what it may see"
    )


def _values(written: Written, given: Mapping[str, object]) -> dict[str, Json]:
    """Return the values of parameters by the names that they have in the query that is run."""
    if len(given) > PARAMETERS_MAX:
        raise BadRequestError(f"expected at most {PARAMETERS_MAX}, found {len(given)}", field="parameters")
    if given.keys() != written.parameters:
        known = ", ".join(sorted(written.parameters)) or "none"
        raise BadRequestError(f"expected exactly those of the query: {known}", field="parameters")
    return {f"p_{name}": _value(name, value, most=written.counts.get(name)) for name, value in given.items()}


def _value(name: str, value: object, *, most: int | None) -> Json:
    field = f"parameters.{name}"
    if most is not None and (type(value) is not int or not 0 <= value <= most):
        raise BadRequestError(f"expected a whole number from 0 to {most}", field=field)
    match value:
        case None | bool():
            return value
        case int() if -NUMBER_MAX <= value <= NUMBER_MAX:
            return value
        case str() if len(value) <= VALUE_LENGTH_MAX and not _NOT_STORABLE.search(value):
            return value
        case _:
            raise BadRequestError(
                f"expected a text of at most {VALUE_LENGTH_MAX} characters without NUL, a whole number up to 2^53 - 1, "
                "a truth value or null",
                field=field,
            )
