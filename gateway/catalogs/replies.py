# SPDX-License-Identifier: Apache-2.0
"""
What an upstream's reply to a forwarded mutation means: one pure function, three kinds of reply, five outcomes.

Guarantee: `accepted` only on a well-formed success, `failed` only if the request was certainly never sent, `conflicted`
and `refused` only on a 4xx in which the upstream itself says that it did nothing. Everything else is `unknown`: a
client that takes a landed commit for a failed one deletes files that are in use.

A 503 is unknown too, with or without Retry-After: it may come from a proxy that had already passed the request on.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any, Final, TypeAlias, TypeGuard

from gateway.mutations import Operation
from ledger.errors import FormatError
from ledger.format.events import CommitOutcome, OutcomeEvidence
from ledger.format.json_object import parse_object
from ledger.values import value_class

AMBIGUOUS_4XX: Final = frozenset({408})
"""Request Timeout: an intermediary may answer it after passing the request on."""

LOCATION_LENGTH_MAX: Final = 4_096
UUID_LENGTH_MAX: Final = 64
"""Texts of an upstream that go into entries are bounded."""

_WRITES: Final = frozenset(
    {Operation.TABLE_CREATE, Operation.TABLE_COMMIT, Operation.TABLE_REGISTER, Operation.TABLE_UNREGISTER}
    | {Operation.VIEW_CREATE, Operation.VIEW_REPLACE, Operation.VIEW_REGISTER}
)
"""Their answer has the new state of the table or view, or the last one."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CAUSE_LENGTH_MAX: Final = 300


@value_class
class Answered:
    """The upstream answered, and its answer was read to the end."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    retry_after: str | None = None
    _parsed: dict[str, Any] | None = field(default=None, init=False, compare=False, repr=False)

    def parsed(self) -> dict[str, Any]:
        """Return the JSON object that the body is, parsed once. Raises FormatError if it is none."""
        known = self._parsed
        if known is None:
            known = parse_object(self.body, what="answer")
            object.__setattr__(self, "_parsed", known)
        return known


@value_class
class NeverSent:
    """No byte of the request was sent: no connection, no name, no TLS session; `cause` is a text for operators."""

    cause: str


@value_class
class Refused(NeverSent):
    """Nothing was sent, because the gateway may not connect to the upstream's address."""


@value_class
class Unanswered:
    """The request, or part of it, was sent, and no complete answer came in time."""

    cause: str


Reply: TypeAlias = Answered | NeverSent | Unanswered


@value_class
class ForwardOutcome:
    """
    The outcome of a mutation according to its reply: `settled` is what the log records.

    `metadata_location` and `table_uuid` are those in the answer to an accepted create or commit; `cause` says why it is
    not accepted. `evidence` says whether the answer told all this.
    """

    settled: CommitOutcome
    reply: Reply
    cause: str = ""
    metadata_location: str | None = None
    table_uuid: str | None = None
    evidence: OutcomeEvidence = OutcomeEvidence.ANSWER


def outcome_of(operation: Operation | None, reply: Reply) -> ForwardOutcome:
    """
    Return the outcome of a forwarded mutation according to `reply`; without an operation, that of a transaction, whose
    success has no content.
    """
    match reply:
        case NeverSent(cause=cause):
            return ForwardOutcome(settled=CommitOutcome.FAILED, reply=reply, cause=cause)
        case Unanswered(cause=cause):
            return ForwardOutcome(settled=CommitOutcome.UNKNOWN, reply=reply, cause=cause)
        case Answered(status=status) if 200 <= status <= 299:
            return _of_success(operation, reply)
        case Answered(status=409):
            return ForwardOutcome(settled=CommitOutcome.CONFLICTED, reply=reply, cause=message_of(reply))
        case Answered(status=status) if 400 <= status <= 499 and status not in AMBIGUOUS_4XX:
            return ForwardOutcome(settled=CommitOutcome.REFUSED, reply=reply, cause=message_of(reply))
        case Answered():
            return ForwardOutcome(settled=CommitOutcome.UNKNOWN, reply=reply, cause=message_of(reply))


def _of_success(operation: Operation | None, reply: Answered) -> ForwardOutcome:
    """A success must say what the new state is; otherwise nothing in it can be trusted."""
    if operation is None or operation not in _WRITES:
        return ForwardOutcome(settled=CommitOutcome.ACCEPTED, reply=reply)
    table = parse_table(reply, is_view=operation.is_of_view)
    if table is None:
        cause = f"the upstream answered {reply.status}, but with no {'view' if operation.is_of_view else 'table'}"
        return ForwardOutcome(settled=CommitOutcome.UNKNOWN, reply=reply, cause=cause)
    location, metadata = table
    return ForwardOutcome(
        settled=CommitOutcome.ACCEPTED,
        reply=reply,
        metadata_location=None if operation is Operation.TABLE_UNREGISTER else location,
        table_uuid=metadata[_uuid_name(is_view=operation.is_of_view)],
    )


def parse_table(answered: Answered, *, is_view: bool = False) -> tuple[str, dict[str, Any]] | None:
    """
    Return (metadata location, metadata) of a LoadTableResult or CommitTableResponse, of a view of a LoadViewResult;
    None if it is not one.
    """
    try:
        parsed = answered.parsed()
    except FormatError:
        return None
    location, metadata = parsed.get("metadata-location"), parsed.get("metadata")
    if not isinstance(metadata, dict) or not _is_name(
        metadata.get(_uuid_name(is_view=is_view)), length_max=UUID_LENGTH_MAX
    ):
        return None
    return (location, metadata) if _is_name(location, length_max=LOCATION_LENGTH_MAX) else None


def is_function(answered: Answered) -> bool:
    """
    Return whether an answer is a LoadFunctionResult: what it requires is there and bounded. Its location may be absent.
    """
    try:
        parsed = answered.parsed()
    except FormatError:
        return False
    location, metadata = parsed.get("metadata-location"), parsed.get("metadata")
    return (
        (location is None or _is_name(location, length_max=LOCATION_LENGTH_MAX))
        and isinstance(metadata, dict)
        and _is_name(metadata.get("function-uuid"), length_max=UUID_LENGTH_MAX)
        and type(metadata.get("format-version")) is int
        and all(isinstance(metadata.get(name), list) for name in ("definitions", "definition-log"))
    )


def _uuid_name(*, is_view: bool) -> str:
    return "view-uuid" if is_view else "table-uuid"


def _is_name(text: Any, *, length_max: int) -> TypeGuard[str]:
    """Return whether it is a text that the log and its tables can hold: not empty, bounded, no control characters."""
    return isinstance(text, str) and 1 <= len(text) <= length_max and not _CONTROL.search(text)


def error_of(reply: Answered) -> dict[str, Any] | None:
    """
    Return the error model of an answer (`error` of IcebergErrorResponse), if it has one.
    """
    try:
        error = parse_object(reply.body, what="error").get("error")
    except FormatError:
        return None
    return error if isinstance(error, dict) else None


def message_of(reply: Answered) -> str:
    """
    Return a short text for an answer that is not a success.
    """
    error = error_of(reply) or {}
    message, kind = error.get("message"), error.get("type")
    text = ": ".join(part for part in (kind, message) if isinstance(part, str) and part)
    return f"the upstream answered {reply.status}{f' ({text})' if text else ''}"[:_CAUSE_LENGTH_MAX]
