# SPDX-License-Identifier: Apache-2.0
"""
What is a message of the protocol: one object of JSON-RPC 2.0. Of what is none, a sentence says so before the SDK reads
it, whose own words are those of its library. Pure.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

BODY_SIZE_BYTES_MAX: Final = 256 * 1024
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
"""JSON-RPC 2.0, section 5.1."""


def refusal_of(body: bytes) -> dict[str, Any] | None:
    """
    Return what is answered to a body that is no message; None if it is one.
    """
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return _refused(PARSE_ERROR, f"expected a message in JSON, found text that is none: {error}"[:200])
    match message:
        case dict():
            problem = _problem_of(message)
        case list():
            problem = "expected one message, found a list: send one at a time"
        case _:
            problem = "expected a message, which is an object"
    return None if problem is None else _refused(INVALID_REQUEST, problem)


def _problem_of(members: dict[str, Any]) -> str | None:
    """Return what is wrong with the members of a message."""
    if members.get("jsonrpc") != "2.0":
        return 'jsonrpc: expected "2.0"'
    if not isinstance(members.get("method"), str) and not members.keys() & {"result", "error"}:
        return "method: expected the name of one, such as tools/list"
    if "id" in members and (not isinstance(members["id"], str | int) or isinstance(members["id"], bool)):
        return "id: expected a text or a whole number, or none in a notification"
    if not isinstance(members.get("params", {}), dict):
        return "params: expected an object"
    return None


def _refused(code: int, words: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": words}}
