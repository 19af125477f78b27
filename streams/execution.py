# SPDX-License-Identifier: Apache-2.0
"""
Handles one batch, whatever its source: groups go to the log first, and poison messages are set apart. No tables here.

Every runner (PostgreSQL, Kafka, SQS) calls `handle_batch` and then stores what it returns together with its position.
Guarantee: when it returns, every group that the batch leads to is durable, and each message either had its effects, or
is a dead letter, or is deferred until a host has answered (`state/deferred.py`). When it raises `TransientError`, all
messages have to be delivered again; groups that are in the log by then are not appended twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import psycopg

from ledger.errors import (
    BrokenError,
    FormatError,
    LedgerError,
    LimitExceededError,
    LogUnavailableError,
    NotCanonicalError,
    OutcomeUnknownError,
    QueueFullError,
)
from ledger.format.sequence import Group, Stale
from ledger.store.session import Connection
from streams.errors import PoisonError, TransientError, UnansweredError
from streams.handler import Append, DeadLetter, Deferred, Effects, Handler, Message, OutboxMessage

HANDLE_TIMEOUT_S: Final = 300.0
"""A handler that takes longer is considered stuck: its batch is tried again."""

APPENDED_AT_ONCE: Final = 1_024
"""Groups in the appender at a time: enough to share its transactions, far from filling its queue."""

UNSTORABLE: Final = (FormatError, NotCanonicalError, LimitExceededError)
"""Raised when an event is made of a message with content that no event can hold."""
HANDLER_FAULTS: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Raised by code for input that its author did not expect: the message waits as a dead letter for a fix."""
UNAVAILABLE: Final = (LogUnavailableError, OutcomeUnknownError, QueueFullError)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandledBatch:
    """Counts of one batch, once it is stored; `groups` are those in the log."""

    handler: str
    messages: int
    groups: int
    outbox: int
    dead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """The effects of a batch that are to be stored with the source's position. `groups` counts those in the log."""

    groups: int
    outbox: tuple[OutboxMessage, ...]
    dead: tuple[DeadLetter, ...]
    deferred: tuple[Deferred, ...] = ()


async def handle_batch(
    handler: Handler,
    batch: Sequence[Message],
    reading: Connection,
    append: Append,
    *,
    timeout_s: float = HANDLE_TIMEOUT_S,
) -> BatchOutcome:
    """
    Handle `batch`, messages of one log in order, and append its groups; return what is left to be stored.

    A batch that cannot be handled is halved until each poison message is alone; the rest is handled, in order.

    Raises:
        TransientError: if the log, or something the handler reads, is unavailable: deliver the same messages again.
        UnansweredError: if that is a third-party host, or the handler took longer than `timeout_s`.
        psycopg.OperationalError: if `reading` is lost.
        BrokenError: if the log is corrupt where it had to be read.
    """
    done = _Done()
    waiting = [list(batch)] if batch else []
    while waiting:
        part = waiting.pop()
        try:
            effects = await _handle(handler, part, reading, timeout_s)
            await _append(part[0].log.log_id, effects.groups, append)
        except PoisonError as error:
            if len(part) == 1:
                done.dead.append(DeadLetter(message=part[0], reason=str(error)))
            else:
                middle = len(part) // 2
                waiting += [part[middle:], part[:middle]]  # taken from the end: the first half first
            continue
        done.groups += len(effects.groups)
        done.outbox += effects.outbox
        done.dead += effects.dead
        done.deferred += effects.deferred
    return BatchOutcome(
        groups=done.groups, outbox=tuple(done.outbox), dead=tuple(done.dead), deferred=tuple(done.deferred)
    )


@dataclass(slots=True)
class _Done:
    groups: int = 0
    outbox: list[OutboxMessage] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    deferred: list[Deferred] = field(default_factory=list)


async def _handle(handler: Handler, part: Sequence[Message], reading: Connection, timeout_s: float) -> Effects:
    try:
        async with asyncio.timeout(timeout_s):
            return await handler.handle(part, reading)
    except TimeoutError as error:
        raise UnansweredError(f"handler {handler.name}: expected effects within {timeout_s:g} s, found none") from error
    except OSError as error:
        raise TransientError(f"handler {handler.name}: {type(error).__name__}: {error}") from error
    except UNSTORABLE as error:
        raise PoisonError(str(error)) from error
    except (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable) as error:
        raise TransientError(f"handler {handler.name}: the database was too slow to read") from error
    except psycopg.DataError as error:
        # What a message holds was a parameter of a query, and is nothing that the database has: U+0000, say.
        raise PoisonError(f"the database cannot look it up ({error.diag.message_primary or error})") from error
    except HANDLER_FAULTS as error:
        if len(part) == 1:
            _log.exception("handler %s broke on message %s", handler.name, part[0].id)
        # Its text may quote the message; the log of this process has it.
        raise PoisonError(f"handler {handler.name} broke on it ({type(error).__name__}): the log says where") from error


async def _append(log_id: int, groups: Sequence[Group], append: Append) -> None:
    """Append `groups` in their order, if none of them fails; those after one that fails may be in the log as well."""
    for at in range(0, len(groups), APPENDED_AT_ONCE):
        some = groups[at : at + APPENDED_AT_ONCE]
        answers = await asyncio.gather(*(append(log_id, group) for group in some), return_exceptions=True)
        for answer in answers:
            _check(answer)


def _check(answer: object) -> None:
    match answer:
        case Stale(control_index=control_index):
            raise TransientError(f"control entry {control_index} is newer than what the handler judged by")
        case LedgerError() if isinstance(answer, UNAVAILABLE):
            raise TransientError(str(answer)) from answer
        case BrokenError():
            raise answer
        case LedgerError():
            raise PoisonError(str(answer)) from answer
        case BaseException():
            raise answer
