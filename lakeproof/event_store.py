# SPDX-License-Identifier: Apache-2.0
"""
The persistence module for applications of the eventsourcing library: `PERSISTENCE_MODULE=lakeproof.event_store`.

An application finds its log by two variables: `EVENT_STORE_LOG`, the tenant whose log it is (its name or id, or the
log's origin), and `LAKEPROOF_HOME` with the other settings of the installation, as every command reads them. As with
all variables of the library, `<NAME OF THE APPLICATION>_EVENT_STORE_LOG` comes first. The log is made by `lakeproof
tenants create`; it should be the application's alone.

Each application has a thread with an event loop, an appender and connections, which `close` ends. It appends as the
appender does and reads as the tenant does. What it appends is signed by `lakeproof up`, when that runs.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from threading import Thread, current_thread
from typing import Final

import psycopg
from eventsourcing.utils import Environment, EnvType

from gateway.database import connection_pool
from lakeproof.console import say_aside
from lakeproof.errors import ServerError, SettingsError
from lakeproof.installation import Installation, open_existing_installation
from lakeproof.log_names import find_named_log
from lakeproof.schema_record import check_before_serving
from lakeproof.services import new_group_id
from lakeproof.setting_kinds import PREFIX
from lakeproof.settings import load_settings
from lakeproof.signing import confirm_logs_with_existing_key
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.errors import NoSuchLogError
from ledger.format.guards import GuardRegistry
from ledger.store import event_store  # the module: the library takes the one factory among this module's own names
from ledger.store.log_store import LogStore
from ledger.store.notifications import LogNotifier
from ledger.store.read import Log

LOG_VARIABLE: Final = "EVENT_STORE_LOG"
CONNECTIONS_MAX: Final = 4


class Factory(event_store.LogFactory):
    """
    Makes the recorders of an application over the log that its environment names.

    Raises:
        SettingsError: if no log is named, or a setting is wrong.
        LakeproofError: if the installation, its server or its database cannot be used.
        NoSuchLogError: if there is no such log, or it is no tenant's.
    """

    def __init__(self, env: Environment | EnvType | None = None) -> None:
        environment = env if isinstance(env, Environment) else Environment(env=env)
        name = environment.get(LOG_VARIABLE)
        if not name:
            raise SettingsError(
                f"{LOG_VARIABLE} is not set: let it name the tenant whose log the application's is, as "
                "`lakeproof tenants create` has made it"
            )
        # Without the application's name as a prefix: these are the installation's.
        self._running = _RunningStore({key: text for key, text in environment.items() if key.startswith(PREFIX)}, name)
        try:
            store, log = self._running.start()
            super().__init__(environment, store, log.log_id)
        except BaseException:
            self._running.stop()
            raise

    def close(self) -> None:
        """End the thread and its connections, and the embedded server if nobody else uses it; safe to repeat."""
        self._running.stop()


class _RunningStore:
    """A store in a thread of its own, and the server below it. One thread at a time calls `start` and `stop`."""

    def __init__(self, variables: Mapping[str, str], name: str) -> None:
        self._variables = variables
        self._name = name
        self._stack = ExitStack()
        self._thread: Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None

    def start(self) -> tuple[LogStore, Log]:
        """Open the installation, then the store; raises as `Factory`."""
        settings = load_settings(self._variables, directory=Path.cwd())
        installation = self._stack.enter_context(open_existing_installation(settings, say_aside))
        started: Future[tuple[LogStore, Log]] = Future()
        # A daemon: an application that is never closed must not keep its process from ending.
        self._thread = Thread(
            target=self._run, args=(installation, started), name=f"event store {self._name:.80}", daemon=True
        )
        self._thread.start()
        atexit.register(self.stop)
        try:
            return started.result()
        except psycopg.Error as error:
            reason = str(error).partition("\n")[0]
            raise ServerError(f"the database cannot be used ({reason}): check that it runs") from error

    def stop(self) -> None:
        """End what `start` has begun, in order; safe to repeat."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        atexit.unregister(self.stop)
        if thread is current_thread():
            # Collected as garbage while the loop ran: the thread cannot wait for its own end.
            Thread(target=self._end, args=(thread,), name=f"end of {thread.name}").start()
        else:
            self._end(thread)

    def _end(self, thread: Thread) -> None:
        if self._loop is not None and self._ended is not None:
            with suppress(RuntimeError):  # the loop is closed: it has failed to start
                self._loop.call_soon_threadsafe(self._ended.set)
        thread.join()
        self._stack.close()

    def _run(self, installation: Installation, started: Future[tuple[LogStore, Log]]) -> None:
        try:
            asyncio.run(self._serve(installation, started))
        except BaseException as error:  # any error: `start` waits for it
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, installation: Installation, started: Future[tuple[LogStore, Log]]) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        log, reader = await _find_log(installation, self._name)
        await confirm_logs_with_existing_key(installation, say_aside)
        async with _open_store(installation, reader) as store:
            started.set_result((store, log))
            await self._ended.wait()


async def _find_log(installation: Installation, name: str) -> tuple[Log, str]:
    """Return the tenant's log of that name and its reader, once the database is known to be as recorded."""
    accepted = installation.settings.schema_accepted
    roles = installation.roles
    async with installation.connect(roles.auditor) as auditor:
        await check_before_serving(auditor, roles, installation.system_origin, accepted=accepted)
        log = await find_named_log(installation, auditor, name)
    if log.tenant is None:
        raise NoSuchLogError(f"log {name!r:.100}: expected a tenant's, found the installation's own")
    return log, roles.tenant(log.tenant)


@asynccontextmanager
async def _open_store(installation: Installation, reader: str) -> AsyncIterator[LogStore]:
    settings = installation.settings
    roles = installation.roles
    notifier = LogNotifier(installation.dsn)
    # Recorded events have no payload parts, so there is nothing to seal.
    appender = Appender(
        installation.as_role(roles.appender),
        GuardRegistry(CORE_GUARDS),
        queue_max=settings.append_queue_max,
        queue_size_bytes_max=settings.append_queue_mib * 2**20,
        batch_max=settings.append_batch_max,
        on_append=notifier.notify,
    )
    pool = connection_pool(installation.as_role(reader), connections_max=CONNECTIONS_MAX, name="lakeproof event store")
    async with appender, pool:
        ringing = asyncio.create_task(notifier.run(), name="notifications")
        try:
            yield LogStore(appender, pool.connection, new_group_id=new_group_id, timeout_s=settings.append_deadline_s)
        finally:
            ringing.cancel()
            with suppress(asyncio.CancelledError):
                await ringing
