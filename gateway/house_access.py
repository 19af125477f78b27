"""
Access to what the house has for a tenant beside its catalogs: its log, its lineage, its configuration.

Access rules judge it like a request for a table, with the view that the route gives of it; policies are not asked.
"""

from __future__ import annotations

from fastapi import Request

from gateway.commit_flow import rules_in_force
from gateway.house import House
from gateway.identity import Principal
from gateway.judgement import Asked, judge_access
from gateway.policy.access import NOTHING, Grant
from gateway.policy.variables import CommitView, RequestView


async def check_access(
    house: House,
    caller: Principal,
    request: Request,
    view: CommitView,
    *,
    grant: Grant = NOTHING,
    retired: str | None = None,
) -> int:
    """
    Check that access rules permit what `view` shows, and return the control index that it was judged by.

    `grant` is the key that the request would issue, `retired` the access rule that it would take out of force.

    Raises:
        ForbiddenError: if no rule permits it, or one forbids it.
        UnavailableError: if access could not be judged.
    """
    state = await rules_in_force(house, caller)
    asked = Asked(
        commit=view,
        principal=caller,
        request=RequestView(method=request.method, path=request.url.path),
        grant=grant,
        retired=retired,
    )
    judgement = await judge_access(house.engine, state, asked, timeout_s=house.policy_timeout_s)
    await house.check_permitted(caller, judgement, operation=view.operation, target=None)
    return state.as_of
