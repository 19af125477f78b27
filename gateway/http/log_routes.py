# SPDX-License-Identifier: Apache-2.0
"""
`GET /log/{origin}/checkpoint`, `/log/{origin}/tile/…`: a tenant's log as C2SP tlog-tiles, for its auditors and tools.

A client with a checkpoint can follow the log from here and verify it independently. A tenant sees its own log; any
other log, `system` included, is answered as not found. To access rules this is a read of the log
(`op == "READ_ENTITY_VALUE" && contentType == "LOG"`).

`GET /log/{origin}/receipt/{index}` answers with an entry's proof (C2SP tlog-proof) once a signed checkpoint covers it.
A checkpoint is requested from the signer, which takes tens of milliseconds. If it takes too long, the answer is 503,
and the client can repeat the request.

Caching: tiles and bundles never change, so they may be cached for a year, but only by the caller's own cache
(`private`): the answer is for one tenant. A checkpoint is outdated within a second.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from dataclasses import replace
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gateway.commit.gateway import Gateway
from gateway.errors import NotFoundError, UnavailableError
from gateway.http.request import check_access, credentials
from gateway.identity import Principal
from gateway.policy.variables import CommitView
from ledger.errors import KeyDirectoryError, NoSuchLogError
from ledger.proving.export import TEXT, NotPublishedError, Resource, read_resource
from ledger.proving.receipts import NoReceiptError
from ledger.store.read import find_log, read_head

router = APIRouter()

OPERATION: Final = "log.load"
VIEW: Final = CommitView(catalog="", namespace=(), name="", kind="log", operation=OPERATION)
"""A request for the log as access rules see it."""
INPUTS: Final = replace(VIEW, kind="inputs", operation="inputs.load")
"""A request for what decisions were judged on."""
FINAL: Final = "private, max-age=31536000, immutable"
CHANGING: Final = "private, no-cache"
VARY: Final = "Authorization, X-Api-Key"
GZIP_LEVEL: Final = 1
RECEIPT_TIMEOUT_S: Final = 5.0

_PLACE = re.compile(r"(.+)/(checkpoint|(?:tile|receipt)/.*)", re.DOTALL)
_RECEIPT = re.compile(r"receipt/(0|[1-9][0-9]{0,18})")
_CODING = re.compile(r"\s*([^\s;]+)\s*(?:;\s*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\s*)?", re.IGNORECASE)


@router.get("/log/{place:path}")
async def read_log(request: Request, place: str) -> Response:
    """Answer with one resource of the caller's log; 404 for anything else."""
    gateway: Gateway = request.app.state.gateway
    caller = await gateway.authenticator.authenticate(credentials(request))
    await check_access(gateway, caller, request, VIEW)
    origin, path = split_place(place)
    if receipt := _RECEIPT.fullmatch(path):
        return await receipt_answer(gateway, caller, origin, int(receipt[1]))
    async with gateway.database.as_role(gateway.roles.tenant(caller.tenant)) as connection:
        try:
            resource = await read_resource(connection, await find_log(connection, origin), path)
        except (NoSuchLogError, NotPublishedError) as error:
            raise NotFoundError(str(error), kind="NotFoundException") from error
    return await _answer(resource, accepts=",".join(request.headers.getlist("accept-encoding")))


async def receipt_answer(gateway: Gateway, caller: Principal, origin: str, index: int) -> Response:
    """
    Answer with the proof of an entry (C2SP tlog-proof) of a log that the caller may read.

    Raises:
        NotFoundError: if there is no such log or entry.
        UnavailableError: if no signed checkpoint covers it in time.
    """
    async with gateway.database.as_role(gateway.roles.tenant(caller.tenant)) as connection:
        try:
            log = await find_log(connection, origin)
            size = (await read_head(connection, log.log_id)).size
        except NoSuchLogError as error:
            raise NotFoundError(str(error), kind="NotFoundException") from error
    if index >= size:
        raise NotFoundError(f"log {origin}: expected an index below its size {size}", kind="NotFoundException")
    try:
        proof = await gateway.receipts.receipt(log, index, timeout_s=RECEIPT_TIMEOUT_S)
    except (NoReceiptError, KeyDirectoryError) as error:
        raise UnavailableError(str(error)) from error
    return Response(proof, media_type=TEXT, headers={"Cache-Control": CHANGING, "Vary": VARY})


def split_place(place: str) -> tuple[str, str]:
    """
    Return origin and resource. An origin contains slashes; the last part that can be a resource is the resource.
    """
    if found := _PLACE.fullmatch(place):
        return found[1], found[2]
    origin, _, path = place.rpartition("/")
    return origin, path


async def _answer(resource: Resource, *, accepts: str) -> Response:
    headers = {"Cache-Control": FINAL if resource.is_final else CHANGING, "Vary": VARY}
    content = resource.content
    if resource.is_entries:
        headers["Vary"] += ", Accept-Encoding"
        if _takes_gzip(accepts):
            # In a thread: a full bundle of large entries takes a fifth of a second.
            content = await asyncio.to_thread(gzip.compress, content, GZIP_LEVEL, mtime=0)
            headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=resource.content_type, headers=headers)


def _takes_gzip(accepts: str) -> bool:
    """Return whether an Accept-Encoding header accepts gzip (RFC 9110, section 12.5.3); a malformed one does not."""
    codings = (found for coding in accepts.split(",") if (found := _CODING.fullmatch(coding)))
    weights = {found[1].lower(): float(found[2] or 1) for found in codings}
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0))) > 0
