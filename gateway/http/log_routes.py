"""
`GET /log/{origin}/checkpoint`, `/log/{origin}/tile/…`: a tenant's log as C2SP tlog-tiles, for its auditors and tools.

Whoever holds a checkpoint can follow the log from here and verify it without us. A tenant sees its own log; of every
other, `system` included, the answer is that there is none. To access rules this is reading the log
(`op == "READ_ENTITY_VALUE" && contentType == "LOG"`).

`GET /log/{origin}/receipt/{index}` answers with an entry's proof (C2SP tlog-proof) once a signed checkpoint covers it.
The signer is asked for one, so that takes tens of milliseconds. What takes longer is 503; it can be asked for again.

Caches: tiles and bundles never change, so they may be kept for a year, but by the caller's own cache alone
(`private`): an answer to one tenant is none to another. A checkpoint is outdated in a second.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gateway.commit.gateway import Gateway
from gateway.errors import NotFoundError, UnavailableError
from gateway.http.request import check_access, credential
from gateway.identity import Principal
from gateway.policy.variables import CommitView
from ledger.errors import KeyDirectoryError, NoSuchLogError
from ledger.proving.export import TEXT, NotPublishedError, Resource, read_resource
from ledger.proving.receipts import NoReceiptError
from ledger.store.read import find_log, read_head

router = APIRouter()

OPERATION: Final = "log.load"
VIEW: Final = CommitView(catalog="", namespace=(), name="", kind="log", operation=OPERATION)
"""What access rules see of a request for the log."""
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
    """Answer with one resource of the caller's log; 404 for whatever else."""
    gateway: Gateway = request.app.state.gateway
    caller = await gateway.authenticator.authenticate(credential(request))
    await check_access(gateway, caller, request, VIEW)
    origin, path = split_place(place)
    if receipt := _RECEIPT.fullmatch(path):
        return await _receipt(gateway, caller, origin, int(receipt[1]))
    async with gateway.database.as_role(gateway.roles.tenant(caller.tenant)) as connection:
        try:
            resource = await read_resource(connection, await find_log(connection, origin), path)
        except (NoSuchLogError, NotPublishedError) as error:
            raise NotFoundError(str(error), kind="NotFoundException") from error
    return await _answer(resource, accepts=",".join(request.headers.getlist("accept-encoding")))


async def _receipt(gateway: Gateway, caller: Principal, origin: str, index: int) -> Response:
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
    Return origin and resource. An origin has slashes of its own; the last of what could be a resource is the one.
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
            # In a thread: a full bundle of large entries takes a fifth of a second, in which nobody else was answered.
            content = await asyncio.to_thread(gzip.compress, content, GZIP_LEVEL, mtime=0)
            headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=resource.content_type, headers=headers)


def _takes_gzip(accepts: str) -> bool:
    """Tell whether whoever sent this header takes gzip (RFC 9110, section 12.5.3); who writes it wrongly does not."""
    codings = (found for coding in accepts.split(",") if (found := _CODING.fullmatch(coding)))
    weights = {found[1].lower(): float(found[2] or 1) for found in codings}
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0))) > 0
