# SPDX-License-Identifier: Apache-2.0
"""
Callbacks of foreign catalogs: `POST /v1/webhooks/polaris` announces a new snapshot. See `webhooks.py`.

The signature over the body authenticates it, not a tenant's API key. The answer is 200 once the trigger is in the log;
a sender without an answer sends again, to no effect. A malformed callback is answered 400 before anything is looked up;
a wrong signature, a tenant without a secret and an unknown tenant get the same 401.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gateway.commit.gateway import Gateway
from gateway.errors import BadRequestError
from gateway.http.request import body_of
from gateway.http.webhooks import SwitchedOffError, Verifier, parse_callback, trigger
from gateway.log_errors import append_errors
from ledger.errors import GroupMismatchError

router = APIRouter(prefix="/v1/webhooks")

BODY_SIZE_BYTES_MAX: Final = 256 * 1024
SIGNATURE: Final = "x-polaris-signature"
TENANT: Final = "x-polaris-tenant"


@router.post("/polaris")
async def polaris(request: Request) -> Response:
    """Take a callback of Polaris; 200 without a body once it is in the log."""
    gateway: Gateway = request.app.state.gateway
    if gateway.webhook_secrets is None:
        raise SwitchedOffError("callbacks are switched off here: LAKEPROOF_POLARIS_WEBHOOK is 0")
    body = await body_of(request, size_bytes_max=BODY_SIZE_BYTES_MAX)
    signature = _header(request, SIGNATURE)
    if not signature:
        raise BadRequestError("expected the header with a signature of the body, found none", field=SIGNATURE)
    callback = parse_callback(body, tenant_header=_header(request, TENANT))
    verifier = Verifier(
        database=gateway.database,
        role=gateway.roles.gateway,
        control=gateway.control,
        secrets=gateway.webhook_secrets,
        random=gateway.random,
    )
    verified = await verifier.verify(callback, body=body, signature=signature)
    try:
        # Also where the outcome is unknown: the sender is to send it again, which adds nothing if it was appended.
        with append_errors(not_appended="the log does not answer: send the callback again, it is kept once"):
            await gateway.append(verified.log_id, trigger(verified, at=gateway.clock()))
    except GroupMismatchError:
        # The same metadata file was announced before, with another table name: only the file counts.
        pass
    return Response()


def _header(request: Request, name: str) -> str | None:
    values = request.headers.getlist(name)
    if len(values) > 1:
        raise BadRequestError(f"expected the header once, found {len(values)}", field=name)
    return values[0].strip() if values else None
