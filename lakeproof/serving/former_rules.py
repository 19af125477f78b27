"""
What an operator is told when serving begins: access rules of the former vocabulary that may have to be said anew.

Which of them do shows when they are judged (`gateway.policy.former`): until then such a rule counts as failed, for the
requests where it would mean something else. Here the operator learns of it before anybody is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.errors import UnavailableError
from gateway.policy.former import how_to_mend, is_in_doubt
from lakeproof.services import Services
from ledger.errors import LedgerError


async def tell_doubtful_rules(services: Services, say: Callable[[str], None]) -> None:
    """
    Say which access rules of all tenants may be in doubt, and how they are mended.
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
            # Whoever needs this tenant's rules is told the same, and the other tenants are served.
            say(f"the access rules of tenant {log.tenant.hex} were not looked through: {error}")
            continue
        for rule in state.access_rules.values():
            if is_in_doubt(rule.judged()):
                say(f"tenant {log.tenant.hex}, access rule {rule.id} may be in doubt: {how_to_mend(rule.id)}")
