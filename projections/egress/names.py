# SPDX-License-Identifier: Apache-2.0
"""
Resolves names on an event loop, in threads of their own, and answers with addresses that may be connected to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from projections.egress.connecting import Resolve, checked_addresses, resolve_host
from projections.egress.rules import EgressRules

RESOLVING_MAX: Final = 64
"""
Names that are being resolved at a time. In threads of their own: a name server that never answers holds up nothing
else that runs in threads.
"""


class CheckedNames:
    """
    Resolves names and checks all their addresses against `rules`.

    `_resolving` belongs to one event loop: only coroutines and callbacks on that loop touch it. The threads of
    `_threads` run `checked_addresses`, which reads `_rules` and `_resolve`; both are set once.
    """

    def __init__(self, rules: EgressRules, resolve: Resolve = resolve_host) -> None:
        self._rules = rules
        self._resolve = resolve
        self._threads = ThreadPoolExecutor(RESOLVING_MAX, thread_name_prefix="resolving")
        self._resolving: dict[tuple[str, int], asyncio.Future[Sequence[str]]] = {}

    @property
    def rules(self) -> EgressRules:
        """Return the rules by which addresses are checked."""
        return self._rules

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """
        Return the addresses of `host`, all of which may be connected to now. Nothing is remembered.

        Who asks for a name that is being resolved waits for the same answer.

        Raises:
            NameUnresolvedError: if it has none now.
            AddressRefusedError: if one of them is not allowed.
        """
        key = (host, port)
        if key not in self._resolving:
            resolving = asyncio.get_running_loop().run_in_executor(
                self._threads, lambda: checked_addresses(self._rules, host, port, resolve=self._resolve)
            )
            self._resolving[key] = resolving
            resolving.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(self._resolving[key])

    def close(self) -> None:
        """Resolve nothing more, and wait for no name server."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _forget(self, key: tuple[str, int], done: asyncio.Future[Sequence[str]]) -> None:
        del self._resolving[key]
        if not done.cancelled():
            done.exception()  # the caller may be gone: mark the exception as retrieved
