# SPDX-License-Identifier: Apache-2.0
"""
Publishes checkpoints of the system log to files, git repositories and buckets outside, as a task of `lakeproof up`.

With a witness policy, only checkpoints that its quorum has cosigned are published. Before a process first adds to a
place, it compares what is there. If the place holds a checkpoint that this log is not consistent with, nothing is
added, and an error is logged. So a database and a home that were set back together are noticed at the start.

A place that cannot be reached, or refuses, does not hold up the log: the failure is logged, and publishing is tried
again after pauses that grow up to an hour.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from gateway.errors import UnavailableError
from lakeproof.anchor_settings import load_places, load_policy
from lakeproof.services import Services
from lakeproof.serving.problems import ProblemLog
from ledger.anchoring.archive import CheckpointArchive
from ledger.anchoring.published import Published, read_published_checkpoint
from ledger.errors import BrokenError, Fault, LedgerError
from ledger.format.verification import held_checkpoints
from ledger.format.witness_policy import WitnessPolicy
from ledger.store.notifications import wait_for_any
from ledger.store.read import read_head
from ledger.store.session import Connection
from ledger.store.stored_tree import read_frontier

COMPARED_MAX: Final = 64
"""The newest checkpoints of a place that are compared before it is added to; `verify` compares all of them."""
PAUSE_FIRST_S: Final = 5.0
PAUSE_MAX_S: Final = 3600.0
NOT_OURS: Final = (
    "nothing is published there, because the system log is not consistent with what is kept there ({error}): check "
    "whether database and home were set back, or whether the place belongs to another installation"
)

_log = logging.getLogger(__name__)


class Publisher:
    """
    Publishes to several places, each in a task of its own; several processes may do so at the same time.
    """

    def __init__(
        self, services: Services, places: Sequence[CheckpointArchive], *, policy: WitnessPolicy | None
    ) -> None:
        self._services = services
        self._places = places
        self._policy = policy
        self._interval_s = services.installation.settings.publish_interval_s
        # By place, each owned by its task: the size that this process published last.
        self._sizes: dict[str, int] = {}
        self._problems = ProblemLog(_log)

    @property
    def sizes(self) -> Mapping[str, int]:
        """What this process has published last, by place."""
        return self._sizes

    async def run(self, stop: asyncio.Event) -> None:
        """Publish to every place at its interval, until `stop` is set."""
        async with asyncio.TaskGroup() as tasks:
            for place in self._places:
                tasks.create_task(self._keep(place, stop), name=f"publishing to {place.where}")

    async def publish_due(self, place: CheckpointArchive) -> bool:
        """
        Publish the newest checkpoint that may be published; False if there is none yet, or that failed, which is
        logged.
        """
        try:
            published = await self._published()
            if published is None:
                return False  # nothing is signed, or cosigned, yet
            if published.checkpoint.size > self._sizes.get(place.where, 0):
                if place.where not in self._sizes:
                    await self._compare(place)
                size, note = published.checkpoint.size, published.note
                await asyncio.to_thread(place.add, self._services.system.origin, size=size, note=note)
                self._sizes[place.where] = size
        except BrokenError as error:
            self._problems.report(place.where, NOT_OURS.format(error=error))
            return False
        except (LedgerError, UnavailableError) as error:
            self._problems.report(place.where, str(error))
            return False
        self._problems.report(place.where, "")
        return True

    async def _keep(self, place: CheckpointArchive, stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            failures = 0 if await self.publish_due(place) else failures + 1
            await wait_for_any(stop, None, timeout_s=pause_s(failures, interval_s=self._interval_s))

    async def _published(self) -> Published | None:
        system = self._services.system
        keys = self._services.installation.open_keys().verifier_keys(system.origin)
        async with self._auditor() as connection:
            return await read_published_checkpoint(connection, system, keys=keys, policy=self._policy)

    async def _compare(self, place: CheckpointArchive) -> None:
        """
        Check that the system log is consistent with the newest checkpoints of a place.

        Raises:
            BrokenError: if it is smaller than one, has another root, or one was not signed by its keys.
            ArchiveError: if the place cannot be read.
        """
        system = self._services.system
        kept = await asyncio.to_thread(place.read, system.origin, notes_max=COMPARED_MAX)
        history = self._services.installation.open_keys().keys.history
        async with self._auditor() as connection:
            size = (await read_head(connection, system.log_id)).size
            for held in held_checkpoints(kept.notes, history, origin=system.origin, size=size):
                root = (await read_frontier(connection, system.log_id, held.size)).root()
                if root != held.root:
                    expected = f"the root {held.root.hex()} at size {held.size}, as was published"
                    raise BrokenError(Fault.ROOT, where=system.origin, expected=expected, found=root.hex())

    @asynccontextmanager
    async def _auditor(self) -> AsyncIterator[Connection]:
        roles = self._services.installation.roles
        async with self._services.gateway.database.as_role(roles.auditor) as connection:
            yield connection


def pause_s(failures: int, *, interval_s: float) -> float:
    """
    Return how long to wait after so many failures in a row; after none, the interval.
    """
    if failures == 0:
        return interval_s
    return min(PAUSE_FIRST_S * 2.0 ** min(failures - 1, 20), PAUSE_MAX_S)


def open_publisher(services: Services) -> Publisher:
    """
    Return what publishes to the places that the settings name, perhaps none.

    Raises:
        SettingsError: if one of them is no place, or the witness policy cannot be used.
    """
    settings = services.installation.settings
    return Publisher(services, load_places(settings), policy=load_policy(settings))
