# SPDX-License-Identifier: Apache-2.0
"""
What commands work on: the installation of the home, or its services, opened for one command and closed with it.

What opens it is an argument of the commands, so that a test hands in its own. Nothing is imported before it is opened.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from lakeproof.console import say_aside
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings, load_settings

if TYPE_CHECKING:  # at run time these would load the database driver, or the whole system
    from lakeproof.installation import Installation
    from lakeproof.services import Services
    from ledger.store.session import Connection

ENGINE_WAITING_S: Final = 60.0
"""How long a command waits for its own policy engine, whose processes start with it: long on a busy machine."""

OpenInstallation: TypeAlias = "Callable[[], AbstractAsyncContextManager[Installation]]"
OpenServices: TypeAlias = "Callable[[], AbstractAsyncContextManager[Services]]"

R = TypeVar("R")


def home_settings() -> Settings:
    """Return the settings of this process."""
    return load_settings(os.environ, directory=Path.cwd())


@asynccontextmanager
async def open_home() -> AsyncIterator[Installation]:
    """
    Yield the installation of the home, which must be there.

    Raises:
        LakeproofError: as `open_existing_installation`.
    """
    from lakeproof.installation import open_existing_installation

    # Opening blocks the loop, on which nothing else runs yet.
    with open_existing_installation(home_settings(), say_aside) as installation:
        yield installation


@asynccontextmanager
async def open_home_logs() -> AsyncIterator[Installation]:
    """
    Yield the same to commands that read logs: what keeps it from being opened must never look like a broken log.

    Raises:
        LogUnavailableError: if the settings, the server or the database cannot be used; says what to do.
    """
    import psycopg

    from ledger.errors import LogUnavailableError

    try:
        async with open_home() as installation:
            yield installation
    except (LakeproofError, OSError) as error:
        raise LogUnavailableError(str(error)) from error
    except psycopg.OperationalError as error:
        raise LogUnavailableError(f"the database cannot be reached ({error}): check that it runs") from error


@asynccontextmanager
async def open_home_services() -> AsyncIterator[Services]:
    """Yield the services of the home's installation, which must be there; raises as `open_existing_installation`."""
    from lakeproof.installation import open_existing_installation

    async with _open_services(open_existing_installation) as services:
        yield services


@asynccontextmanager
async def open_new_home_services() -> AsyncIterator[Services]:
    """Yield the services of the home's installation, which is made if there is none; raises as `open_installation`."""
    from lakeproof.installation import open_installation

    async with _open_services(open_installation) as services:
        yield services


def run_with_auditor(
    open_installation: OpenInstallation, work: Callable[[Installation, Connection], Awaitable[R]]
) -> R:
    """Open an installation and a connection of its auditor, do one piece of work with both, and close them again."""

    async def opened() -> R:
        async with open_installation() as installation, installation.connect(installation.roles.auditor) as auditor:
            return await work(installation, auditor)

    return asyncio.run(opened())


def run_with_services(open_services: OpenServices, work: Callable[[Services], Awaitable[R]]) -> R:
    """Open services, do one piece of work with them, and close them again."""

    async def opened() -> R:
        async with open_services() as services:
            return await work(services)

    return asyncio.run(opened())


@asynccontextmanager
async def _open_services(
    open_: Callable[[Settings, Callable[[str], None]], AbstractContextManager[Installation]],
) -> AsyncIterator[Services]:
    from lakeproof.services import open_services, policy_engine
    from lakeproof.signing import confirm_logs

    with open_(home_settings(), say_aside) as installation:
        # LAKEPROOF_POLICY_WAITING_S is for those who share a gateway's engine: nobody else waits for a command's.
        waiting_s = max(ENGINE_WAITING_S, installation.settings.policy_waiting_s)
        engine = policy_engine(installation.settings, waiting_s=waiting_s)
        async with open_services(installation, engine=engine) as services:
            await confirm_logs(installation, say_aside)
            yield services
