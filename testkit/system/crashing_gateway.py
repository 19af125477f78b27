# SPDX-License-Identifier: Apache-2.0
"""
A gateway process that kills itself: the real services, composed so that a commit to a table dies at one point.

A point is the number of a stage of the commit flow, or `append`: right before the log is asked. Until a namespace's
properties have been changed, which lights the fuse, the process serves as any other.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socket
from typing import Any, Final

from gateway.commit.gateway import Gateway
from gateway.commit.metrics import Done, Measures, MutationStage
from gateway.mutations import Operation
from lakeproof.provision import Provisioned
from ledger.format.sequence import Appended, Group, Stale
from testkit.servers.forked_workers import use_origin
from testkit.servers.gateways import app_of, start_services
from testkit.servers.loopback import serve_gateway

APPEND: Final = "append"
IN_ONE_GROUP: Final = frozenset({MutationStage.CHANGE, MutationStage.SETTLE})
"""With a built-in catalog they happen in the transaction that records the decision, and have no end of their own."""
POINTS: Final = (*(stage.value for stage in MutationStage if stage not in IN_ONE_GROUP), APPEND)


class Fuse:
    """Whether the next commit to a table is the last thing this process does."""

    def __init__(self) -> None:
        self.is_lit = False

    def burn(self) -> None:
        """End the process without any notice, as the kernel ends one that takes too much memory; if it is lit."""
        if self.is_lit:
            os.kill(os.getpid(), signal.SIGKILL)


class DyingMeasures(Measures):
    """Measures whose hook burns the fuse when a commit to a table has done stage `last` (None: at no stage)."""

    def __init__(self, fuse: Fuse, last: MutationStage | None) -> None:
        super().__init__()
        self._fuse = fuse
        self._last = last

    @contextmanager
    def commit(self, operation: Operation) -> Iterator[Done]:
        with super().commit(operation) as done:

            def done_and_burn(stage: MutationStage) -> None:
                done(stage)
                if operation is Operation.TABLE_COMMIT and stage is self._last:
                    self._fuse.burn()

            yield done_and_burn
        self._fuse.is_lit = self._fuse.is_lit or operation is Operation.NAMESPACE_UPDATE


def dying_at_append(gateway: Gateway, fuse: Fuse) -> Gateway:
    """Return `gateway` with a log that burns the fuse when it is asked for anything."""

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        fuse.burn()
        return await gateway.append(log_id, group, **after)

    return replace(gateway, append=append)


def serve_until_death(
    database: str, installation: Provisioned, directory: Path, point: str | None, ready: Connection, origin: socket
) -> None:
    """
    Serve until the process dies at `point` (None: not by itself); `ready` receives the URL. Run in a process.

    Policy workers are forked where `origin` leads (`forked_workers.py`), and end with the pipes to this process.
    """
    use_origin(origin)
    asyncio.run(_serve(database, installation, directory, point, ready))


async def _serve(
    database: str, installation: Provisioned, directory: Path, point: str | None, ready: Connection
) -> None:
    fuse = Fuse()
    async with start_services(database, installation, directory) as services:
        if point == APPEND:
            app = app_of(dying_at_append(services.gateway, fuse), DyingMeasures(fuse, None))
        else:
            app = app_of(services.gateway, DyingMeasures(fuse, None if point is None else MutationStage(point)))
        async with serve_gateway(app) as url:
            ready.send(url)
            await asyncio.Event().wait()
