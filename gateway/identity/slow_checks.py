# SPDX-License-Identifier: Apache-2.0
"""
Checks API keys that have no keyed hash yet by their argon2id hash: a few at a time, and fair between keys.

Each key is checked here once: it is older than keyed hashes, or was hashed under another secret. A check takes 19 MiB
and some 20 milliseconds of a core, so they are limited: one at a time per prefix, in turns between prefixes, and after
a few wrong secrets a prefix has to wait. During that time the right key is answered 503, never 401; once it was checked
it does not come here again.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gateway.errors import UnavailableError
from gateway.identity.api_keys import ApiKeyText, KeyHasher
from gateway.identity.principal import NotInForceError

CHECKS_MAX: Final = 2
"""Hashes computed at once."""
WAITING_MAX: Final = 8
"""Different secrets with one prefix that may wait to be checked."""
FAILURES_MAX: Final = 5
"""Wrong secrets with one prefix within `INTERVAL_S`."""
INTERVAL_S: Final = 60.0
PREFIXES_MAX: Final = 10_000
"""Prefixes with stored failures; each belongs to an existing key."""


@dataclass(slots=True, eq=False)
class _Prefix:
    """The checks of one prefix: the holder of `turn` runs; `failures` of them failed since `since_s`."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    failures: int = 0
    since_s: float = 0.0


class SlowChecks:
    """
    Checks keys by their argon2id hashes. One per process.

    `_prefixes` and `_checks` belong to the event loop; threads compute hashes only, at most `CHECKS_MAX` (`_turns`).
    """

    def __init__(self, hasher: KeyHasher, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._hasher = hasher
        self._monotonic_s = monotonic_s
        self._turns = asyncio.Semaphore(CHECKS_MAX)
        self._prefixes: OrderedDict[str, _Prefix] = OrderedDict()
        self._checks: dict[ApiKeyText, asyncio.Task[None]] = {}

    async def check(self, key: ApiKeyText, *, stored_hash: str) -> None:
        """
        Check that `stored_hash` is of this key; requests with the same key share one check.

        Raises:
            NotInForceError: if it is another key's.
            UnavailableError: if this prefix has had too many wrong secrets, or too many wait.
            FormatError: if it is not an argon2id hash; that is corruption.
        """
        task = self._checks.get(key)
        if task is None:
            prefix = self._prefix(key.prefix)
            if prefix.waiting >= WAITING_MAX or self._is_exhausted(prefix):
                raise UnavailableError("credentials cannot be checked now: try again")
            prefix.waiting += 1
            task = self._checks[key] = asyncio.create_task(self._check(key, stored_hash, prefix), name="check of a key")
            task.add_done_callback(lambda done: self._checked(key, done))
        await asyncio.shield(task)  # other requests wait for it, too

    async def _check(self, key: ApiKeyText, stored_hash: str, prefix: _Prefix) -> None:
        try:
            async with prefix.turn:
                if self._is_exhausted(prefix):
                    raise UnavailableError("credentials cannot be checked now: try again")
                async with self._turns:
                    await asyncio.to_thread(self._hasher.check, key, stored_hash=stored_hash)
        except NotInForceError:
            if prefix.failures == 0:
                prefix.since_s = self._monotonic_s()
            prefix.failures += 1
            raise
        finally:
            prefix.waiting -= 1

    def _checked(self, key: ApiKeyText, task: asyncio.Task[None]) -> None:
        del self._checks[key]
        if not task.cancelled():
            task.exception()  # retrieved, in case all requests that waited for it were cancelled

    def _is_exhausted(self, prefix: _Prefix) -> bool:
        if self._monotonic_s() - prefix.since_s >= INTERVAL_S:
            prefix.failures = 0
        return prefix.failures >= FAILURES_MAX

    def _prefix(self, prefix: str) -> _Prefix:
        found = self._prefixes.setdefault(prefix, _Prefix())
        self._prefixes.move_to_end(prefix)
        if len(self._prefixes) > PREFIXES_MAX:
            self._prefixes.popitem(last=False)
        return found
