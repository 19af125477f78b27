# SPDX-License-Identifier: Apache-2.0
"""
All pages of the console, as a gateway takes them.
"""

from __future__ import annotations

from typing import Final

from gateway.console import access_rule_pages, logins, operate, pages, policy_pages, restriction_pages, table_pages

ROUTERS: Final = (
    pages.router,
    logins.router,
    table_pages.router,
    policy_pages.router,
    restriction_pages.router,
    access_rule_pages.router,
    operate.router,
)
