# SPDX-License-Identifier: Apache-2.0
"""What tests of the Appender share."""

from __future__ import annotations

import pytest

from lakeproof.provision import Provisioned
from testkit.ledger.appending import new_log


@pytest.fixture
def log_id(database: str, installation: Provisioned) -> int:
    """The log of a new tenant, in the database of the test or of its module."""
    return new_log(database, installation)
