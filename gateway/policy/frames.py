"""
The pipe between the two halves of the engine: frames of a 4-byte big-endian length and that many bytes of JSON.

Guarantee: neither half reads a frame longer than `FRAME_BYTES_MAX`, and both see the same values, since JSON's are all
that crosses.

A conversation: the child sends `{"ready": true}` once. Then, for each request of the parent, `{"check": …}` or
`{"judge": …}`, the child sends its results, one frame each as soon as it is known (so that the parent can tell which
program was running when the time was over), and `{"end": "ready"}`, or `{"end": "leaving"}` if it will not serve again.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import orjson

FRAME_BYTES_MAX: Final = 64 * 2**20
"""Four times the largest body the gateway takes: a commit's updates, and the two sides of its table, fit."""

LENGTH: Final = struct.Struct(">I")


class FrameError(Exception):
    """A frame cannot be written, or what was read is none; says why."""


def format_frame(value: Any) -> bytes:
    """
    Return the frame of a JSON value.

    Raises:
        FrameError: if `value` is not JSON (a lone surrogate, an integer beyond 64 bits, too deep) or too large.
    """
    try:
        payload = orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise FrameError(f"the variables cannot be written as JSON: {error}") from error
    if len(payload) > FRAME_BYTES_MAX:
        raise FrameError(f"the variables are {len(payload)} bytes of JSON; at most {FRAME_BYTES_MAX} are judged")
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
