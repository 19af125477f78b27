"""
What an upstream's reply to a forwarded mutation means: one pure function, three kinds of reply, five outcomes.

Guarantee: `accepted` only on a well-formed success, `failed` only if the request certainly never left, `conflicted` and
`refused` only on a 4xx by which the upstream says itself that it did nothing. All else is `unknown`, because a client
that believes a landed commit has failed deletes files that are in use.

A 503 is unknown too, with or without Retry-After: whoever wrote it may be a proxy that had passed the request on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeGuard

from gateway.mutations import Operation
from ledger.errors import FormatError
from ledger.format.events import CommitOutcome
from ledger.format.json_object import parse_object

AMBIGUOUS_4XX: Final = frozenset({408})
"""Request Timeout: an intermediary may say it of a request that it has passed on."""

LOCATION_LENGTH_MAX: Final = 4_096
UUID_LENGTH_MAX: Final = 64
"""What stands in entries of the log is bounded, whoever says it."""

_TABLE_WRITES: Final = frozenset({Operation.TABLE_CREATE, Operation.TABLE_COMMIT})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CAUSE_LENGTH_MAX: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The upstream answered, and its answer was read to the end."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    retry_after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverSent:
    """No byte of the request left: no connection, no name, no TLS session; `cause` is for people."""

    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(NeverSent):
    """Nothing was sent, because the upstream is, or says that it is, where the gateway does not go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """The request left, or part of it, and no whole answer came back in time."""

    cause: str


Reply: TypeAlias = Answered | NeverSent | Unanswered


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """
    What became of a mutation, as far as its reply tells: `settled` is what the log is told.

    `metadata_location` and `table_uuid` are those of the table that an accepted create or commit answered with; `cause`
    says in words why it is not accepted.
    """

    settled: CommitOutcome
    reply: Reply
    cause: str = ""
    metadata_location: str | None = None
    table_uuid: str | None = None


def outcome_of(operation: Operation, reply: Reply) -> Outcome:
    """
    Return what `reply` says about a mutation that was forwarded.
    """
    match reply:
        case NeverSent(cause=cause):
            return Outcome(settled=CommitOutcome.FAILED, reply=reply, cause=cause)
        case Unanswered(cause=cause):
            return Outcome(settled=CommitOutcome.UNKNOWN, reply=reply, cause=cause)
        case Answered(status=status) if 200 <= status <= 299:
            return _of_success(operation, reply)
        case Answered(status=409):
            return Outcome(settled=CommitOutcome.CONFLICTED, reply=reply, cause=message_of(reply))
        case Answered(status=status) if 400 <= status <= 499 and status not in AMBIGUOUS_4XX:
            return Outcome(settled=CommitOutcome.REFUSED, reply=reply, cause=message_of(reply))
        case Answered():
            return Outcome(settled=CommitOutcome.UNKNOWN, reply=reply, cause=message_of(reply))


def _of_success(operation: Operation, reply: Answered) -> Outcome:
    """A success says what is there now, or says nothing that can be trusted."""
    if operation not in _TABLE_WRITES:
        return Outcome(settled=CommitOutcome.ACCEPTED, reply=reply)
    table = parse_table(reply.body)
    if table is None:
        cause = f"the upstream answered {reply.status}, but with no table"
        return Outcome(settled=CommitOutcome.UNKNOWN, reply=reply, cause=cause)
    location, metadata = table
    return Outcome(
        settled=CommitOutcome.ACCEPTED, reply=reply, metadata_location=location, table_uuid=metadata.get("table-uuid")
    )


def parse_table(body: bytes) -> tuple[str, dict[str, Any]] | None:
    """
    Return (metadata location, metadata) of a LoadTableResult or CommitTableResponse; None if it is not one.
    """
    try:
        parsed = parse_object(body, what="table")
    except FormatError:
        return None
    location, metadata = parsed.get("metadata-location"), parsed.get("metadata")
    if not isinstance(metadata, dict) or not _is_name(metadata.get("table-uuid"), length_max=UUID_LENGTH_MAX):
        return None
    return (location, metadata) if _is_name(location, length_max=LOCATION_LENGTH_MAX) else None


def _is_name(text: Any, *, length_max: int) -> TypeGuard[str]:
    """Tell whether it is a text that the log and its tables can hold: not empty, not endless, no control characters."""
    return isinstance(text, str) and 1 <= len(text) <= length_max and not _CONTROL.search(text)


def error_of(reply: Answered) -> dict[str, Any] | None:
    """
    Return the error model of an answer (`error` of IcebergErrorResponse); None if there is none in it.
    """
    try:
        error = parse_object(reply.body, what="error").get("error")
    except FormatError:
        return None
    return error if isinstance(error, dict) else None


def message_of(reply: Answered) -> str:
    """
    Return what an answer that is no success says, in a few words.
    """
    error = error_of(reply) or {}
    message, kind = error.get("message"), error.get("type")
    told = ": ".join(part for part in (kind, message) if isinstance(part, str) and part)
    return f"the upstream answered {reply.status}{f' ({told})' if told else ''}"[:_CAUSE_LENGTH_MAX]
