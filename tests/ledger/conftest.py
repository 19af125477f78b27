# SPDX-License-Identifier: Apache-2.0
"""What several tests of the log stand on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lakeproof.postgres.files import SOCKET_NAME
from lakeproof.postgres.server import EmbeddedServer
from testkit.ledger.cutting_proxy import CuttingProxy


@pytest.fixture
async def proxy(
    postgres_server: EmbeddedServer, short_directory: Callable[[], AbstractContextManager[Path]]
) -> AsyncIterator[CuttingProxy]:
    """A way to the session's server that can be cut."""
    with short_directory() as directory:
        async with CuttingProxy(directory, postgres_server.files.run / SOCKET_NAME) as proxy:
            yield proxy
