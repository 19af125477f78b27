# SPDX-License-Identifier: Apache-2.0
"""
Requests a stamp on a note from a time-stamping authority, over HTTP (RFC 3161, sections 2.4 and 3.4).

Guarantee: `request_stamp` returns a token only if it answers this very request (a nonce of 128 random bits), names a
time close to ours, and `check_stamp` accepts it. Size and duration of an answer are limited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

import httpx
from cryptography import x509
from cryptography.hazmat import asn1

from ledger.anchoring.cms import (
    SHA256,
    TOKEN_SIZE_BYTES_MAX,
    Algorithm,
    MessageImprint,
    TimeStampReq,
    TimeStampResp,
    check_number,
    decode,
    parse_oid,
    parse_value,
    sort_certificates,
)
from ledger.anchoring.timestamp import Stamp, check_stamp
from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.files.bounded_http import NoResponseError, post

NONCE_SIZE_BYTES: Final = 16
CLOCK_TOLERANCE: Final = timedelta(minutes=5)
"""
How far an authority's time, its accuracy included, may differ from ours: a stamp from next year would prove nothing
for a year.
"""

_STATUS: Final = ("granted", "granted with modifications", "rejected", "waiting", "revocation warning", "revoked")
_RESPONSE_SIZE_BYTES_MAX: Final = TOKEN_SIZE_BYTES_MAX + 4096
_QUERY: Final = "application/timestamp-query"
_REPLY: Final = "application/timestamp-reply"


class NoStampError(LedgerError):
    """The authority cannot be reached in time, or gave no stamp; says why. Another attempt may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """
    A time-stamping authority: its URL, the roots of its certificates, and the policy to request.

    Raises (when it is made):
        FormatError: if `policy` is given, but is no object identifier.
    """

    url: str = field(repr=False)  # may hold credentials
    roots: Sequence[x509.Certificate]
    policy: str | None = None

    def __post_init__(self) -> None:
        if self.policy is not None:
            parse_oid(self.policy)


def format_request(note: bytes, *, nonce: int, policy: str | None) -> bytes:
    """
    Return the request to stamp SHA-256 of `note`, the authority's certificate included (certReq).

    Raises:
        FormatError: if `policy` is no object identifier.
    """
    algorithm = Algorithm(identifier=SHA256, parameters=asn1.Null())
    request = TimeStampReq(
        version=1,
        imprint=MessageImprint(algorithm=algorithm, digest=sha256(note).digest()),
        policy=None if policy is None else parse_oid(policy),
        nonce=nonce,
        wants_certificates=True,
    )
    return asn1.encode_der(request)


def open_response(
    response: bytes, note: bytes, authority: Authority, *, nonce: int, now: datetime
) -> tuple[bytes, Stamp]:
    """
    Return the token in an authority's response, and what it says, if it answers the request for `note` with `nonce`.

    The token's certificates are sorted as DER requires; many authorities do not sort them.

    Raises:
        NoStampError: if the authority did not grant it.
        FormatError, LimitExceededError: if it is no response, or its token has not the allowed shape.
        BrokenError: (`Fault.STAMP`) if the token is for another request, of another time, or does not verify.
    """
    answer = decode(TimeStampResp, response, "time-stamp response")
    if not answer.status:
        raise FormatError("time-stamp response", expected="a status", found=response)
    status = check_number(parse_value(int, answer.status[0], "PKIStatus"), "PKIStatus")
    if status != 0 or answer.token is None:
        # Also if granted with modifications: that is not what was requested.
        named = _STATUS[status] if 0 <= status < len(_STATUS) else f"status {status}"
        tokens = "no token" if answer.token is None else "a token"
        raise NoStampError(f"the time-stamping authority answered '{named}', with {tokens}")
    token = sort_certificates(answer.token)
    stamp = check_stamp(token, note, roots=authority.roots, policy=authority.policy)
    if stamp.nonce != nonce:
        found = "none" if stamp.nonce is None else f"{stamp.nonce:#x}"
        raise BrokenError(Fault.STAMP, where="time stamp", expected=f"the nonce {nonce:#x}", found=found)
    if abs(stamp.gen_time - now) > CLOCK_TOLERANCE or stamp.not_later_than - now > CLOCK_TOLERANCE:
        expected = f"a time within {CLOCK_TOLERANCE} of {now.isoformat()}: set the clock, or name another authority"
        raise BrokenError(Fault.STAMP, where="time stamp", expected=expected, found=stamp.not_later_than.isoformat())
    return token, stamp


async def request_stamp(
    client: httpx.AsyncClient, authority: Authority, note: bytes, *, random: bytes, now: datetime, timeout_s: float
) -> tuple[bytes, Stamp]:
    """
    Return a token over `note` and what it says; `random` is 16 fresh random bytes, `now` is aware.

    Raises:
        NoStampError: if no stamp was given within `timeout_s`.
        FormatError, LimitExceededError, BrokenError: if the response is malformed, or does not verify.
    """
    if len(random) != NONCE_SIZE_BYTES:
        raise FormatError("nonce", expected=f"{NONCE_SIZE_BYTES} random bytes", found=f"{len(random)} bytes")
    nonce = int.from_bytes(random, "big")
    request = format_request(note, nonce=nonce, policy=authority.policy)
    headers = {"Content-Type": _QUERY, "Accept": _REPLY}
    try:
        async with asyncio.timeout(timeout_s):
            answer = await post(
                client, authority.url, request, headers=headers, size_bytes_max=_RESPONSE_SIZE_BYTES_MAX
            )
    except TimeoutError as error:
        raise NoStampError(f"no answer of the time-stamping authority within {timeout_s} s") from error
    except NoResponseError as error:
        raise NoStampError(f"no answer of the time-stamping authority: {error}") from error
    if answer.status != httpx.codes.OK or answer.content_type != _REPLY:
        raise NoStampError(f"the time-stamping authority answered {answer.status} with {answer.content_type!r:.100}")
    return open_response(answer.body, note, authority, nonce=nonce, now=now)
