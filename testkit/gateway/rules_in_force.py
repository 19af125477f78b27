# SPDX-License-Identifier: Apache-2.0
"""
The access rules in force of a tenant, as tests compare them.
"""

from __future__ import annotations

from typing import Any, Final

from testkit.servers.gateways import Gateway

OF_THE_LOG: Final = frozenset({"author", "recorded_at", "index"})
"""What a list says of each rule beside its content: who put it in force, and when."""


async def rules_of(gateway: Gateway) -> list[dict[str, Any]]:
    """Return what the rules in force say, in their order."""
    rules = (await gateway.http.get("/v1/access-rules")).json()["access-rules"]
    assert all(rule.keys() >= OF_THE_LOG for rule in rules)
    return [{name: value for name, value in rule.items() if name not in OF_THE_LOG} for rule in rules]
