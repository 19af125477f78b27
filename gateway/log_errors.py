# SPDX-License-Identifier: Apache-2.0
"""
Maps the log's errors to the gateway's, in one place. Apart from `errors.py`, which policy workers load without the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import CommitStateUnknownError, GatewayError, UnavailableError
from ledger.errors import LedgerError, LogUnavailableError, OutcomeUnknownError, QueueFullError


@contextmanager
def append_errors(*, not_appended: str, unknown: str | None = None) -> Iterator[None]:
    """
    Raise the log's errors in answer to an append as the gateway's. The one place that maps them.

    A log that cannot be reached, or whose queue is full, has certainly not appended: `UnavailableError(not_appended)`.
    If the outcome is unknown: `CommitStateUnknownError(unknown)`. Leave `unknown` out for a group that changes nothing,
    or whose id makes it safe to append again: then this is `UnavailableError`, too. Other errors pass through.
    """
    try:
        yield
    except OutcomeUnknownError as error:
        if unknown is None:
            raise UnavailableError(not_appended) from error
        raise CommitStateUnknownError(unknown) from error
    except (LogUnavailableError, QueueFullError) as error:
        raise UnavailableError(not_appended) from error


def answer_to(error: LedgerError) -> GatewayError | None:
    """
    Return what a client is answered for an error of the log that no handler has mapped; None if it is an internal one.
    """
    try:
        with append_errors(not_appended=str(error), unknown=str(error)):
            raise error
    except GatewayError as answer:
        return answer
    except LedgerError:
        return None


@contextmanager
def unmapped_errors() -> Iterator[None]:
    """
    Raise errors of the log that no handler has mapped as what a client is answered; internal ones pass through.
    """
    try:
        yield
    except LedgerError as error:
        if (answer := answer_to(error)) is None:
            raise
        raise answer from error
