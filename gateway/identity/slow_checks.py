"""
Checks API keys that have no keyed hash yet by their argon2id hash: a few at a time, and fair between keys.

A key comes here once: issued before there were keyed hashes, or known under another secret. Each check takes 19 MiB and
a core for some 20 milliseconds, so nobody may have many: of each prefix one is checked at a time, those of different
prefixes take turns, and after a few wrong secrets a prefix has to wait. Its right key may be told to try again for that
time, never that it is unknown; once it was checked, it is spared all this for ever.
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
"""Prefixes whose failures are remembered; each is of a key that exists."""


@dataclass(slots=True, eq=False)
class _Prefix:
    """The checks of one prefix: one has the turn; `failures` of them failed since `since_s`."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    failures: int = 0
    since_s: float = 0.0


class SlowChecks:
    """Checks keys by their argon2id hashes. One per process; owned by the event loop."""

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
            FormatError: if it is no argon2id hash; that is corruption.
        """
        task = self._checks.get(key)
        if task is None:
            prefix = self._prefix(key.prefix)
            if prefix.waiting >= WAITING_MAX or self._is_exhausted(prefix):
                raise UnavailableError("credentials cannot be checked now: try again")
            prefix.waiting += 1
            task = self._checks[key] = asyncio.create_task(self._check(key, stored_hash, prefix), name="check of a key")
            task.add_done_callback(lambda done: self._checked(key, done))
        await asyncio.shield(task)  # others wait for it, too

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
            task.exception()  # seen, for when everybody who waited for it has gone

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
