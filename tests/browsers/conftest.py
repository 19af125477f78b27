# SPDX-License-Identifier: Apache-2.0
"""
Gateways for the tests of this folder; see `testkit/gateway/fixtures.py`.
"""

from __future__ import annotations

from testkit.gateway.fixtures import (
    module_app,
    module_gateway,
    module_sales,
    module_url,
    sales,
    shared_gateway,
)

__all__ = [
    "module_app",
    "module_gateway",
    "module_sales",
    "module_url",
    "sales",
    "shared_gateway",
]
