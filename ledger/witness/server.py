"""
A witness on HTTP (C2SP tlog-witness, "HTTP Interface"): submission and monitoring under one prefix.

    POST /add-checkpoint                   200 signature lines, 400, 403, 404, 409 with the size, 422
    GET /<hash of origin>/checkpoint       200 the checkpoint cosigned last, 404

Anyone may ask: what counts is the log's signature. So every request is bounded in size and time, every connection in
what it may take from others (`connections.py`), and what is unknown gets a short answer. 503 says that the disk failed,
and that nothing was cosigned. `sign-subtree` is optional, and not here.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from ledger.errors import LedgerError
from ledger.witness.connections import KEEP_ALIVE_S, BoundedConnection
from ledger.witness.request import REQUEST_SIZE_BYTES_MAX, SIZE_CONTENT_TYPE
from ledger.witness.rules import Refusal, RefusedError
from ledger.witness.witness import Witness

BODY_TIMEOUT_S: Final = 10.0
ANSWERS_MAX: Final = 512
"""Answers under way, those included whose asker has gone: beyond it the next ones are 503. Over all connections."""

TEXT: Final = "text/plain; charset=utf-8"
_HASH: Final = re.compile("[0-9a-f]{64}")

_log = logging.getLogger(__name__)


def witness_app(witness: Witness) -> Starlette:
    """Return the application that serves `witness`."""

    async def add_checkpoint(request: Request) -> Response:
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await _read_body(request)
        except TimeoutError:
            return _hang_up(408, f"the request took more than {BODY_TIMEOUT_S:.0f} s to arrive\n")
        except ClientDisconnect:
            return _hang_up(400, "the request was cut\n")
        if body is None:
            return _hang_up(413, f"expected at most {REQUEST_SIZE_BYTES_MAX} bytes\n")
        return await asyncio.to_thread(_cosign, witness, body)

    async def checkpoint(request: Request) -> Response:
        origin_hash = request.path_params["origin_hash"]
        if not _HASH.fullmatch(origin_hash):
            return _answer(404, "expected SHA-256 of an origin in lower-case hex\n")
        try:
            note = await asyncio.to_thread(witness.cosigned_note, origin_hash)
        except LedgerError as error:
            return _unavailable(error)
        return _answer(404, "no checkpoint of that log was cosigned\n") if note is None else _answer(200, note)

    return Starlette(
        routes=[
            Route("/add-checkpoint", add_checkpoint, methods=["POST"]),
            Route("/{origin_hash}/checkpoint", checkpoint, methods=["GET"]),
        ]
    )


def serve(witness: Witness, *, host: str, port: int) -> None:
    """
    Serve `witness` until the process is told to end; requests under way are finished.

    Raises:
        OSError: if the address cannot be listened on.
    """
    config = server_config(witness_app(witness))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=128) as listener:
        uvicorn.Server(config).run([listener])


def server_config(app: Starlette, connection: type[BoundedConnection] = BoundedConnection) -> uvicorn.Config:
    """Return how an application is served to anyone, over connections that are bounded as `connection` says."""
    return uvicorn.Config(
        app,
        http=connection,
        ws="none",  # a connection that changed to another protocol would be out of bounds
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        limit_concurrency=ANSWERS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=30,
    )


def _cosign(witness: Witness, body: bytes) -> Response:
    try:
        return _answer(200, witness.add_checkpoint(body))
    except RefusedError as error:
        if error.refusal is Refusal.CONFLICT:
            return _answer(error.refusal, f"{error.size}\n", content_type=SIZE_CONTENT_TYPE)
        if error.refusal is Refusal.INCONSISTENT:
            _log.warning("refused, and perhaps proof that a log forks: %s", error)
        return _answer(error.refusal, f"{' '.join(str(error).split())}\n")
    except LedgerError as error:  # whatever else it is, it is no cosignature
        return _unavailable(error)


async def _read_body(request: Request) -> bytes | None:
    """Return the body, None as soon as it is too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > REQUEST_SIZE_BYTES_MAX:
            return None
    return bytes(body)


def _unavailable(error: LedgerError) -> Response:
    _log.error("%s", error)
    return _answer(503, "the witness cannot cosign now\n")


def _hang_up(status: int, text: str) -> Response:
    """Answer and close the connection: the rest of the body would be read otherwise, however long it is."""
    answer = _answer(status, text)
    answer.headers["connection"] = "close"
    return answer


def _answer(status: int, content: str | bytes, *, content_type: str = TEXT) -> Response:
    # As a header, not a media type: to that of a text Starlette would add a charset, which the size must not have.
    return Response(content, status_code=status, headers={"content-type": content_type})
