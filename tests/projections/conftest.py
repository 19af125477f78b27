# SPDX-License-Identifier: Apache-2.0
"""
Made-up histories for the projections' tests, and a log of the test's own database to append them to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from lakeproof.provision import Provisioned
from testkit.databases import CLONE, confirm_logs_of_clones
from testkit.projections.story import Story, World

READY: Final = 1
"""So many logs have their first generations before a test begins: to make a graph is to make a hundred relations."""


@pytest.fixture(scope="session")
def template_database(
    _admin: psycopg.Connection, admin_dsn: str, template_database: str, template_installation: Provisioned
) -> str:
    """The name of a clone of the template, with empty logs and all projections of them."""
    name, roles = f"{template_database}_projected", template_installation.roles
    _admin.execute(CLONE.format(sql.Identifier(name), sql.Identifier(template_database)))
    granted = map(sql.Identifier, (name, roles.owner, roles.projector))
    _admin.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}, {}").format(*granted))
    installation = replace(template_installation, dsn=make_conninfo(template_installation.dsn, dbname=name))
    database = make_conninfo(admin_dsn, dbname=name)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(World(database, installation).make_ready(READY))
    confirm_logs_of_clones(database)
    return name


@pytest.fixture
def world(database: str, installation: Provisioned) -> World:
    """The test's database with the projections' tables."""
    return World(database, installation, ready=READY)


@pytest.fixture
def new_story() -> Callable[[], Story]:
    """Makes stories that have not begun."""
    return Story


@pytest.fixture
def story() -> Story:
    """One story that has not begun."""
    return Story()
