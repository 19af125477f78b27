# SPDX-License-Identifier: Apache-2.0
"""
Loads the target of a commit from its foreign catalog while the rights of the caller are still being read.

Both are round trips that a commit waits for, and neither needs the other's answer. Whose request it is follows from the
last request with the same key. Guarantee: what was loaded early is used only for a request whose credentials, catalog
and turn were found to be right afterwards, and only if it is no older than the request. Else it is dropped: the foreign
catalog was asked to show a table once too often, and nothing was answered or changed.

Few loads are early at a time, one for each target, and none for a target that somebody is changing: it would be loaded
again.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final, Self

from gateway.catalogs.catalog import ChangedBy, Forwards, Loaded
from gateway.catalogs.registry import BUILTIN
from gateway.commit.gateway import Gateway
from gateway.commit.requests import Request
from gateway.errors import GatewayError
from gateway.identifiers import Target
from gateway.identity import Principal
from ledger.futures import retrieve

EARLY_MAX: Final = 16
"""Early loads of a process at a time, until their requests are answered: each holds an answer."""
AGE_S_MAX: Final = 1.0
"""How old such an answer may be when its request needs it: a client may take long to send a body."""


class EarlyLoad:
    """The early load of one request, if there is one; it ends with the context. `begin` is called once at most."""

    def __init__(self, gateway: Gateway, request: Request) -> None:
        self._gateway = gateway
        self._request = request
        self._key: tuple[int, Target] | None = None
        self._loading: asyncio.Task[Loaded] | None = None
        self._ended_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._loading is not None:
            self._loading.cancel()
        if self._key is not None:
            self._gateway.early_loads.discard(self._key)

    def begin(self, caller: Principal, target: Target) -> None:
        """Begin to load `target` for `caller`, if that is worthwhile and, as far as is known, right."""
        gateway, key = self._gateway, (caller.log_id, target)
        early, state = gateway.early_loads, gateway.control.known(caller.log_id)
        if state is None or (known := state.catalogs.get(target.alias)) is None or known.kind == BUILTIN:
            return
        if len(early) >= EARLY_MAX or key in early or not gateway.queues.is_idle(*key):
            return
        try:
            caller.check_in_force(state, now=gateway.clock())
            catalog = gateway.catalog(caller.tenant, state, target.alias, self._request.onward)
        except GatewayError:
            return  # if it is still so, the request is told
        if catalog.changed_by is ChangedBy.REQUEST:
            early.add(key)
            self._key = key
            self._loading = asyncio.create_task(self._load(catalog, target), name="early load")
            self._loading.add_done_callback(retrieve)

    async def _load(self, catalog: Forwards, target: Target) -> Loaded:
        try:
            return await catalog.load(target)
        finally:
            self._ended_s = monotonic()

    async def loaded(self) -> Loaded | None:
        """Return the target as it was loaded; None if it was not, or too long ago. Raises as `Catalog.load`."""
        if self._loading is None:
            return None
        await asyncio.wait([self._loading])
        return self._loading.result() if monotonic() - self._ended_s <= AGE_S_MAX else None
