# SPDX-License-Identifier: Apache-2.0
"""
Warns the operator at the start of access rules in the former vocabulary that may have to be written again.

Whether one must shows when it is evaluated (`gateway.policy.former`): until then it counts as failed for the requests
where its meaning would differ. With this warning the operator knows before a request is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.errors import UnavailableError
from gateway.policy.former import how_to_mend, is_in_doubt
from lakeproof.services import Services
from ledger.errors import LedgerError


async def warn_of_doubtful_rules(services: Services, say: Callable[[str], None]) -> None:
    """
    Say which access rules of all tenants are in doubt, and how to correct them.
    """
    try:
        logs = await services.logs()
    except UnavailableError as error:
        say(f"no tenant's access rules were looked through: {error}")
        return
    for log in logs:
        if log.tenant is None:
            continue
        try:
            state = await services.gateway.control.current(log.log_id)
        except (UnavailableError, LedgerError) as error:
            # Requests that need this tenant's rules get the same error, and the other tenants are served.
            say(f"the access rules of tenant {log.tenant.hex} were not looked through: {error}")
            continue
        for rule in state.access_rules.values():
            if is_in_doubt(rule.judged()):
                say(f"tenant {log.tenant.hex}, access rule {rule.id} may be in doubt: {how_to_mend(rule.id)}")
