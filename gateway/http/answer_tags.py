# SPDX-License-Identifier: Apache-2.0
"""
Entity tags of answers from read models: who asks again for what has not changed is told so (304), for one look at how
far the read models are.

An answer follows from the rows that it is made of, the rules by which its caller sees them, and what was asked. Its tag
is a keyed hash of where each of these stands. It is weak: the cursor in a list is another text each time. Where rules
depend on the uuids of tables, which other servers may know alone, there is none.
"""

from __future__ import annotations

import hmac
from typing import Any, Final

import orjson
from fastapi import Request
from fastapi.responses import JSONResponse, Response

from gateway.catalogs.catalog import ANY
from gateway.http.catalog_requests import held_tags
from gateway.http.log_routes import CHANGING, VARY
from gateway.http.looking.reading import Looking
from ledger.store.session import Connection
from projections.processing.cursors import read_live

LABEL: Final = b"lakeproof/entity-tag/v1\n"


async def entity_tag(looking: Looking, connection: Connection, request: Request, *projections: str) -> str | None:
    """
    Return the tag of the answer that is made from `projections` as they are now; None if it can have none.

    It is read before the rows: an answer is never older than its tag says.
    """
    state, caller = looking.sight.state, looking.caller
    if state.reads_uuid:
        return None
    stands = []
    for projection in projections:
        live = await read_live(connection, projection, caller.log_id)
        stands.append(None if live is None else [live.generation, live.version, live.next_index])
    content = {
        "actor": caller.actor,
        "asked": sorted([name, value] for name, value in request.query_params.multi_items()),
        "path": request.url.path,
        "roles": list(caller.roles),
        "rules": state.as_of,
        "stands": stands,
    }
    return f'"{hmac.digest(await looking.key(), LABEL + orjson.dumps(content), "sha256").hex()[:32]}"'


def unchanged(request: Request, tag: str | None) -> Response | None:
    """
    Return the answer to a client that has the answer with this tag already; None if it has not.
    """
    held = held_tags(request.headers.get("if-none-match", ""))
    if tag is None or not (tag in held or ANY in held):
        return None
    return Response(status_code=304, headers=_headers(tag))


def tagged(body: Any, tag: str | None) -> Response:
    """
    Return an answer with its tag.
    """
    return JSONResponse(body) if tag is None else JSONResponse(body, headers=_headers(tag))


def _headers(tag: str) -> dict[str, str]:
    return {"ETag": f"W/{tag}", "Cache-Control": CHANGING, "Vary": VARY}
