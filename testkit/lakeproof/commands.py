# SPDX-License-Identifier: Apache-2.0
"""
Services for commands that a test runs in its own process, opened as an operator's are, with the engine that tests
share.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lakeproof.commands.opening import OpenServices
from lakeproof.installation import Installation
from lakeproof.services import Services, open_services
from testkit.servers.gateways import QUICK_HASHES
from testkit.servers.policy_engine import shared_engine


def services_of(installation: Installation) -> OpenServices:
    """Return what opens services of a command's own."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Services]:
        async with open_services(installation, engine=shared_engine(), hasher=QUICK_HASHES) as services:
            yield services

    return opened
