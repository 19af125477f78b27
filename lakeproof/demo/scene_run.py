# SPDX-License-Identifier: Apache-2.0
"""
What the acts of one run of the scene share: the gateway, the tenant of this run, and what acts leave for later ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from lakeproof.demo.api import Api
from lakeproof.demo.channel import Channel
from lakeproof.demo.cloud import Cloud
from lakeproof.demo.engine import Client
from lakeproof.demo.waiting import computed_s, until
from lakeproof.projecting import PROJECTIONS
from lakeproof.serving.in_process import Serving
from lakeproof.streaming import log_handler_names
from lakeproof.tenants import Founded
from ledger.format.entry import Entry, parse_entry
from ledger.store.read import Log, find_log, iterate_entries, read_head
from ledger.store.session import Connection
from projections.graph.read import Write, open_graph
from projections.processing.runner import ProjectionRunner
from streams.state.cursors import read_progress

WRITES_MAX: Final = 1_000
TIMEOUT_S: Final = 60.0
"""The limits of a commit in the scene: it does not show how fast a gateway is, and the machine may be busy."""
LONG_TIMEOUTS: Final = {
    f"LAKEPROOF_{name}": str(TIMEOUT_S) for name in ("POLICY_TIMEOUT_S", "POLICY_WAITING_S", "APPEND_DEADLINE_S")
}
"""The same as environment variables, for gateways in processes of their own."""
DETECTION_ENDS_MAX: Final = 8
"""How often detection may end within one wait; it is restarted after pauses that grow."""
DETECTION_WORK_S: Final = 10
"""So much processor time counts as progress: Spark's start and a first compilation use it, waiting does not."""

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class SceneRun:
    """One run of the scene."""

    serving: Serving
    say: Callable[[str], None]
    cloud: Cloud
    channel: Channel
    upstream: Mapping[str, str]
    """What the other catalog server printed: its url, its tenant (hex), and a key."""
    tenant: Founded | None = None
    webhook_secret: str | None = None
    refused_index: int | None = None
    earlier: list[Log] = field(default_factory=list)

    @property
    def founded(self) -> Founded:
        """Return the tenant of this run."""
        if self.tenant is None:
            raise AssertionError("the scene has no tenant yet")
        return self.tenant

    @property
    def api(self) -> Api:
        """Return the gateway's resources with the tenant's first key."""
        return Api(url=self.serving.url, key=self.founded.key.secret)

    def client(self, *, url: str | None = None) -> Client:
        """Return an engine with the tenant's first key, of this gateway or of the one at `url`."""
        return Client(url=url or self.serving.url, key=self.founded.key.secret, storage=self.cloud.engine_properties())

    def environment(self) -> dict[str, str]:
        """Return the variables under which another process is a part of this installation."""
        settings = self.serving.services.installation.settings
        environment = {
            "LAKEPROOF_HOME": str(settings.home),
            "LAKEPROOF_PORT": "0",
            "LAKEPROOF_UPSTREAMS_ALLOWED": settings.upstreams_allowed.text,
        }
        if settings.dsn is not None:
            environment["LAKEPROOF_DSN"] = settings.dsn
        environment |= {**LONG_TIMEOUTS, "LAKEPROOF_DETECT": "0", "LAKEPROOF_STREAMS": "0"}
        return {**environment, **self.cloud.environment()}

    @property
    def reader(self) -> str:
        """Return the tenant's reader role."""
        return self.serving.services.installation.roles.tenant(self.founded.tenant)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """Yield a connection that works as the tenant's reader."""
        async with self.serving.services.gateway.database.as_role(self.reader) as connection:
            yield connection

    async def log(self) -> Log:
        """Return the tenant's log."""
        services = self.serving.services
        async with services.gateway.database.as_role(services.installation.roles.auditor) as connection:
            return await find_log(connection, self.founded.origin)

    async def head(self) -> int:
        """Return how many entries the tenant's log has."""
        async with self.reading() as connection:
            return (await read_head(connection, self.founded.log_id)).size

    async def entries(self, first: int = 0) -> list[Entry]:
        """Return the entries of the tenant's log from index `first`."""
        async with self.reading() as connection:
            size = (await read_head(connection, self.founded.log_id)).size
            pages = iterate_entries(connection, self.founded.log_id, from_index=first, to_index=size)
            return [parse_entry(entry) for page in [page async for page in pages] for entry in page]

    async def streams_progress(self) -> str:
        """Return how far the streams are in every log, for the error of a wait that fails."""
        services = self.serving.services
        auditor = services.installation.roles.auditor
        async with services.gateway.database.as_role(auditor) as connection:
            progress = await read_progress(connection, log_handler_names(services.installation))
        return "; ".join(
            f"{each.handler} is at {each.next_index} of {each.size} in {each.log.origin}, after "
            f"{each.failures} failures in a row, with {each.dead_letters} dead letters"
            for each in progress
        )

    async def until(
        self, poll: Callable[[], Awaitable[T | None]], *, expected: Callable[[], Awaitable[str]], scanned: bool = False
    ) -> T:
        """
        Return what `poll` returns once that is not None; wait as long as the log, a stream or detection makes progress.

        Raises:
            AssertionError: if nothing makes progress any more; with `scanned`, the cause if detection cannot run.
        """
        ended_before = self.serving.detection.ended

        async def moved() -> object:
            detection = self.serving.detection
            if scanned and detection.absent is not None:
                raise AssertionError(f"{await expected()}; detection does not run: {detection.absent}")
            if scanned and detection.ended - ended_before >= DETECTION_ENDS_MAX:
                raise AssertionError(
                    f"{await expected()}; detection has ended {detection.ended - ended_before} times, "
                    f"the last time because: {detection.reason}"
                )
            worked = 0 if detection.process is None else computed_s(detection.process) // DETECTION_WORK_S
            return await self.head(), await self._cursors(), detection.lines, detection.ended, worked

        return await until(poll, moved, expected=expected)

    async def _cursors(self) -> tuple[int, ...]:
        """Return how far every stream is in every log."""
        services = self.serving.services
        async with services.gateway.database.as_role(services.installation.roles.auditor) as connection:
            return tuple(
                each.next_index for each in await read_progress(connection, log_handler_names(services.installation))
            )

    async def projected(self) -> None:
        """Wait until every projection holds what the log holds now."""
        services = self.serving.services
        projector = services.installation.as_role(services.installation.roles.projector)
        runner = ProjectionRunner(projector, PROJECTIONS, opener=services.opener)
        await runner.catch_up(self.founded.log_id, await self.head())

    async def writes(self) -> list[Write]:
        """Return what the graph knows of this tenant's commits, newest first."""
        async with self.reading() as connection:
            return await (await open_graph(connection)).writes(limit=WRITES_MAX)
