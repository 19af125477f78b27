# SPDX-License-Identifier: Apache-2.0
"""
The protocol on the pipe between parent and worker: frames of a 4-byte big-endian length and that many bytes of JSON.

Guarantee: neither side reads a frame longer than `FRAME_BYTES_MAX`, and both see the same values: only JSON is sent.

The child sends `{"ready": true}` once. Then, for each request of the parent (`{"judge": …}`, `{"check": …}`,
`{"read": …}`, `{"formula": …}`, `{"inspect": …}`, `{"cover": …}`, `{"cases": …}`, `{"rows": …}` or `{"trace": …}`,
with a number in `call`), the child sends the results, those of cases many a frame. Last comes
`{"end": …, "used_s": …}`: how it ended (`End`), and its processor time. To judge, that frame has all verdicts
(`judge_requests.py`); how far a child was that did not get to it is in shared memory (`progress.py`). In between the
parent may send `{"stop": <call>}`.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import Any, Final

import orjson

FRAME_BYTES_MAX: Final = 32 * 2**20
"""Twice the largest body the gateway takes by default. A child that reads it needs ten times that of its memory."""

LENGTH: Final = struct.Struct(">I")


class End(StrEnum):
    """How a request ended."""

    READY = "ready"
    """Answered; the child serves on."""
    STOPPED = "stopped"
    """Stopped by the parent, so some results are missing; the child serves on."""
    UNKNOWN = "unknown"
    """Not judged: the request names a value that the child does not keep; the child serves on."""
    LEAVING = "leaving"
    """Answered; the child ends, since its memory was exhausted once."""


class FrameError(Exception):
    """A frame cannot be written, or the bytes read are not one; says why."""


class FrameTooLargeError(FrameError):
    """A frame would be longer than `FRAME_BYTES_MAX`."""


def format_frame(value: Any) -> bytes:
    """
    Return the frame of a JSON value.

    Raises:
        FrameTooLargeError: if it would be longer than `FRAME_BYTES_MAX`.
        FrameError: if `value` is not JSON (a lone surrogate, an integer beyond 64 bits, too deep).
    """
    try:
        payload = orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise FrameError(f"the variables cannot be written as JSON: {error}") from error
    if len(payload) > FRAME_BYTES_MAX:
        found = f"found {len(payload)}: commit in smaller steps"
        raise FrameTooLargeError(f"expected at most {FRAME_BYTES_MAX} bytes of variables for policies, {found}")
    return LENGTH.pack(len(payload)) + payload


def parse_length(header: bytes) -> int:
    """
    Return the length of the payload that follows `header` (4 bytes).

    Raises:
        FrameError: if it is more than `FRAME_BYTES_MAX`.
    """
    (size,) = LENGTH.unpack(header)
    if size > FRAME_BYTES_MAX:
        raise FrameError(f"a frame of {size} bytes was announced; at most {FRAME_BYTES_MAX} are read")
    return int(size)


def parse_payload(payload: bytes) -> dict[str, Any]:
    """
    Return the JSON object of a frame.

    Raises:
        FrameError: if it is not one.
    """
    try:
        value = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise FrameError(f"a frame is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise FrameError(f"a frame is not an object, but {type(value).__name__}")
    return value
