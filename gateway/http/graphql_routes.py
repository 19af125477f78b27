# SPDX-License-Identifier: Apache-2.0
"""
`POST /v1/graphql`: the read API in one request, with credentials as every other route takes them.

A body is JSON and says so, and a page of another site may not send it: a browser that holds credentials cannot be made
to ask. There is no page to write queries in, and no other method.
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from gateway.errors import BadRequestError, ForbiddenError
from gateway.http.admin_routes import Body
from gateway.http.answer_models import Answered
from gateway.http.looking.reading import look
from gateway.http.request import body_of, has_own_origin, parse_model

router = APIRouter(prefix="/v1")

BODY_SIZE_BYTES_MAX: Final = 64 * 1024
JSON: Final = "application/json"


class GraphQLBody(Body):
    """A query with the values of its variables; `operationName` may name its one operation."""

    query: str = Field(min_length=1)
    variables: dict[str, Any] | None = None
    operationName: str | None = Field(default=None, max_length=200)  # noqa: N815 - as GraphQL over HTTP has it
    extensions: dict[str, Any] | None = None


class LocationShown(Answered):
    """A place in the text of a query, each counted from 1."""

    line: int
    column: int


class GraphQLErrorShown(Answered):
    """Something that is wrong with a query, or with the field that `path` leads to."""

    message: str
    extensions: dict[str, str]
    locations: list[LocationShown] | None = None
    path: list[str | int] | None = None


class GraphQLAnswer(Answered):
    """What a query was answered; without `data`, it was not run."""

    data: dict[str, Any] | None = None
    errors: list[GraphQLErrorShown] | None = None


@router.post("/graphql")
async def ask_graphql(request: Request) -> Response:
    """
    Answer a GraphQL query about tables, decisions, findings, policies and the graph, as far as the caller may see them.

    The answer is 200 for every query, also for one that is refused: `errors` says why, and where in its text.
    """
    if has_own_origin(request) is False:
        raise ForbiddenError("expected a request of no page, or of a page of this site")
    looking = await look(request)
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != JSON:
        raise BadRequestError(f"expected {JSON}, found {sent or 'none'!r:.80}", field="Content-Type")
    body = parse_model(GraphQLBody, await body_of(request, size_bytes_max=BODY_SIZE_BYTES_MAX))
    # It takes a part of a second to import, and memory: a gateway that nobody asks has neither.
    from gateway.http.graphql.answering import answer

    return JSONResponse(await answer(looking, body.query, body.variables or {}, body.operationName))
