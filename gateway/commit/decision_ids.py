# SPDX-License-Identifier: Apache-2.0
"""
The ids of the groups that hold decisions: drawn at random, or those of a request that may be repeated.

A group is appended once, however often its id is submitted. So the ids of a request with an Idempotency-Key follow from
its caller and its key: whichever process is sent it again, and whenever, meets what the log has of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from gateway.errors import BadRequestError, UnavailableError
from ledger.format.canonical import Json
from ledger.format.event import derived_group_id

ATTEMPTS_MAX: Final = 64
"""Decisions under one key: each attempt at a foreign catalog whose answer lets the request be tried again is one."""
KEY_LENGTH: Final = 36
KEY_VERSION: Final = 7


def parse_idempotency_key(text: str) -> UUID:
    """
    Return the key in a header Idempotency-Key: a UUIDv7 (RFC 9562, section 5.7) as the specification has it.

    Raises:
        BadRequestError: if it is none.
    """
    try:
        key = UUID(text) if len(text) == KEY_LENGTH else None
    except ValueError:
        key = None
    if key is None or key.version != KEY_VERSION:
        raise BadRequestError(f"expected a UUID of version 7, found {text!r:.80}", field="Idempotency-Key")
    return key


class DecisionIds:
    """
    The ids of one request's decisions; `key` is None if it will not be repeated. `taken` counts those that are in use,
    the first `lost` of them by attempts that were not the request's last.
    """

    def __init__(self, new: Callable[[], UUID], *, actor: str = "", key: UUID | None = None) -> None:
        self._new = new
        self._actor = actor
        self._key = key
        self.taken = 0
        self.lost = 0

    @property
    def is_repeatable(self) -> bool:
        """Return whether the request has a key."""
        return self._key is not None

    def next(self) -> UUID:
        """
        Return the id of the group with the next decision.

        Raises:
            UnavailableError: if there were too many under this key.
        """
        if self._key is None:
            return self._new()
        if self.taken >= ATTEMPTS_MAX:
            raise UnavailableError(f"the request was tried {self.taken} times under one Idempotency-Key: use another")
        return self._derived(self.taken)

    def all(self) -> list[UUID]:
        """Return the ids that decisions under the key may have, in their order."""
        return [self._derived(attempt) for attempt in range(ATTEMPTS_MAX)]

    def _derived(self, attempt: int) -> UUID:
        content: dict[str, Json] = {"actor": self._actor, "attempt": attempt, "key": str(self._key)}
        return derived_group_id("commit.repeatable", content)
