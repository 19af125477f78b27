# SPDX-License-Identifier: Apache-2.0
"""
Made-up histories for the projections' tests, and a log of the test's own database to append them to.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakeproof.provision import Provisioned
from testkit.projections.story import Story, World


@pytest.fixture
def world(database: str, installation: Provisioned) -> World:
    """The test's database with the projections' tables."""
    return World(database, installation)


@pytest.fixture
def new_story() -> Callable[[], Story]:
    """Makes stories that have not begun."""
    return Story


@pytest.fixture
def story() -> Story:
    """One story that has not begun."""
    return Story()
