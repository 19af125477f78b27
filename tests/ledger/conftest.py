# SPDX-License-Identifier: Apache-2.0
"""What several tests of the log stand on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from lakeproof.postgres.files import SOCKET_NAME
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.provision import Provisioned
from testkit.ledger.cutting_proxy import CuttingProxy


@pytest.fixture
async def proxy(
    postgres_server: EmbeddedServer, short_directory: Callable[[], AbstractContextManager[Path]]
) -> AsyncIterator[CuttingProxy]:
    """A way to the session's server that can be cut."""
    with short_directory() as directory:
        async with CuttingProxy(directory, postgres_server.files.run / SOCKET_NAME) as proxy:
            yield proxy


@pytest.fixture(scope="module")
def module_installation(
    _admin: psycopg.Connection, module_database: str, template_installation: Provisioned
) -> Provisioned:
    """The installation in `module_database`, with the grants on a database, which a clone does not take along."""
    name, roles = str(conninfo_to_dict(module_database)["dbname"]), template_installation.roles
    granted = map(Identifier, (name, roles.owner, roles.projector))
    _admin.execute(SQL("GRANT CREATE ON DATABASE {} TO {}, {}").format(*granted))
    return replace(template_installation, dsn=make_conninfo(template_installation.dsn, dbname=name))
