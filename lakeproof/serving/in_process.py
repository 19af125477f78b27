# SPDX-License-Identifier: Apache-2.0
"""
All duties of `lakeproof up` in one process and on one event loop: for the scene, and for tests.

What serves users is `lakeproof up` (`up.py`), which gives the same duties a process each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial

from gateway.commit.metrics import Measures
from lakeproof.errors import first_of_group
from lakeproof.messages import Say
from lakeproof.services import Services
from lakeproof.serving.duties.detection import detect
from lakeproof.serving.duties.duty import Duty, run_duties, watched
from lakeproof.serving.duties.gateway import answer_requests
from lakeproof.serving.duties.projections import project
from lakeproof.serving.duties.purges import purge
from lakeproof.serving.duties.reconciler import reconcile
from lakeproof.serving.duties.signer import sign
from lakeproof.serving.duties.streams import stream
from lakeproof.serving.listening import listen, url_of, warn_without_tls
from lakeproof.tls_settings import make_own_client, tls_files
from spark_detect.driver.supervise import DetectionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A process that serves: the URL of its gateway, and the event that stops it."""

    url: str
    stop: asyncio.Event
    services: Services
    detection: DetectionState = field(default_factory=DetectionState)
    """The state of detection in this process."""


@asynccontextmanager
async def serving(
    services: Services, say: Say = lambda _: None, *, measures: Measures | None = None
) -> AsyncIterator[Serving]:
    """
    Serve everything while the context is open; `measures` replaces the gateway's own.

    Raises:
        ServerError: if the gateway's port is in use.
        SettingsError: if the witness policy, the roots of the time-stamping authority, a place to publish to or the
            gateway's certificate cannot be used.
        LedgerError, ProjectionError: if a duty met corruption, or the appender has ended.
    """
    settings, stop, detection = services.installation.settings, asyncio.Event(), DetectionState()
    with closing(listen(settings.host, settings.port)) as listener:
        if (files := tls_files(settings)) is None:
            warn_without_tls(listener, settings.host, say)
        else:
            make_own_client(files)
        url = url_of(listener, scheme=settings.scheme)
        answer = partial(answer_requests, listener=listener, measures=measures)
        others: list[Duty] = [answer, project, reconcile, purge]
        if settings.streams:
            others.append(partial(stream, gateway=url))
        if settings.detect:
            others.append(partial(detect, state=detection))
        try:
            async with watched(services), asyncio.TaskGroup() as tasks:
                running = []
                try:
                    for duties in ([sign], others):  # the logs accept nothing before the signer has confirmed them
                        ready = asyncio.Event()
                        running.append(tasks.create_task(run_duties(duties, services, stop, say, ready.set)))
                        await ready.wait()
                    yield Serving(url=url, stop=stop, services=services, detection=detection)
                finally:
                    stop.set()
                    await asyncio.wait(running)
        except ExceptionGroup as group:
            # One duty failed; the others were cancelled because of it.
            raise first_of_group(group) from group
