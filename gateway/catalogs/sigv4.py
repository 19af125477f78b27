# SPDX-License-Identifier: Apache-2.0
"""
Signs requests to an upstream as AWS demands it (Signature Version 4). The only module of this package that imports
botocore, and only when a request is signed.

The signature covers the body and every header that means something: a proxy may change how an answer is encoded, and
nothing else. A server refuses what was signed more than five minutes from its own time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Final

from gateway.catalogs.connections import Call, split_url
from gateway.catalogs.login_options import MISSING_BOTOCORE, S3
from gateway.errors import UnavailableError

ALGORITHM: Final = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """What requests are signed with; `session_token` belongs to temporary keys."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(repr=False)
    region: str
    service: str


def signed(call: Call, signer: Signer, *, now: datetime) -> Call:
    """
    Return `call` with the headers of its signature, which is of the time `now` (aware, UTC).

    Raises:
        UnavailableError: if botocore is not installed.
    """
    try:
        from botocore.auth import SIGV4_TIMESTAMP, S3SigV4Auth, SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials
    except ImportError as error:
        raise UnavailableError(f"{MISSING_BOTOCORE}: pip install 'lakeproof[streams]'") from error
    try:
        origin, target = split_url(call.url)
    except ValueError:
        return call  # it has no form on the wire, signed or not: whoever sends it says so
    timestamp = now.strftime(SIGV4_TIMESTAMP)
    added = {"X-Amz-Date": timestamp, "X-Amz-Content-SHA256": sha256(call.body or b"").hexdigest()}
    if signer.session_token is not None:
        added["X-Amz-Security-Token"] = signer.session_token
    headers: Mapping[str, str] = {**call.headers, **added, "Host": origin.authority}
    if call.body is not None:
        headers = {**headers, "Content-Type": call.content_type}
    # Path and query as they are sent, not as the call spells them.
    url = f"{'https' if origin.is_tls else 'http'}://{origin.authority}{target}"
    request = AWSRequest(method=call.method, url=url, headers=headers, data=call.body)
    request.context["timestamp"] = timestamp
    keys = Credentials(signer.access_key_id, signer.secret_access_key, signer.session_token)
    # Amazon S3 alone takes the path as it is sent; to others it is encoded once more.
    auth = (S3SigV4Auth if signer.service == S3 else SigV4Auth)(keys, signer.service, signer.region)
    # Step by step, since `add_auth` takes the time from the system's clock.
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    names = auth.signed_headers(auth.headers_to_sign(request))
    authorization = f"{ALGORITHM} Credential={auth.scope(request)}, SignedHeaders={names}, Signature={signature}"
    return replace(call, headers={**call.headers, **added, "Authorization": authorization})
