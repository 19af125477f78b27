# SPDX-License-Identifier: Apache-2.0
"""A home on a test's own database, as it is while nothing runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.provision import Provisioned
from testkit.lakeproof.examined_home import make_home


@pytest.fixture
def variables(database: str, installation: Provisioned, tmp_path: Path) -> dict[str, str]:
    """The environment of a home on this test's database."""
    assert installation.id  # with the grants that a cloned database lacks
    return make_home(tmp_path, database)
