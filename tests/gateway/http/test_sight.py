# SPDX-License-Identifier: Apache-2.0
"""
What a caller may see of a list: judged together, it is what it is judged one by one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio
from fastapi import FastAPI

from gateway.admin.application import OPERATOR
from gateway.commit.judgement import Judge
from gateway.errors import UnavailableError
from gateway.http.looking.sight import Sight
from gateway.policy.variables import RequestView
from lakeproof.services import Services
from testkit.gateway.two_views import TwoViews, open_two_views

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS: Final = [
    *(
        f"{kind}:lake/{namespace}/t{n}"
        for n in range(30)
        for namespace in ("sales", "hr")
        for kind in ("table", "view")
    ),
    "namespace:lake/sales",
    "namespace:lake/hr",
    "column:table%3Alake%2Fsales%2Forders/email",
    "column:table%3Alake%2Fhr%2Fpay/email",
    "dataset:kafka/clicks",
    "policy:p1",
    "table:lake",
]
UNDECIDABLE: Final = [f"table:lake/odd/t{number}" for number in range(3)]
"""Nobody can say whether the second caller may see them: the rule asks for a sixth role."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def views(module_services: Services, module_app: FastAPI) -> AsyncIterator[TwoViews]:
    """Two callers of one tenant, one of whom may see a namespace."""
    async with open_two_views(module_services, module_app) as views:
        await views.gateway.services.gateway.admin.create_access_rule(
            views.gateway.acme.log_id,
            OPERATOR,
            rule_id="odd",
            effect="permit",
            expression="'seller' in roles && path.startsWith('odd') && roles[5] == 'x'",
        )
        yield views


async def sight_of_part(views: TwoViews) -> Sight:
    """What the second caller may see, of which nothing is judged yet."""
    gateway = views.gateway.services.gateway
    caller = await gateway.authenticator.authenticate(views.part.headers["authorization"])
    state = await gateway.rules_in_force(caller)
    return Sight(gateway=gateway, state=state, caller=caller, request=RequestView(method="GET", path="/"))


async def test_what_is_judged_together_is_what_is_judged_one_by_one(views: TwoViews) -> None:
    together, apart = await sight_of_part(views), await sight_of_part(views)
    await together.prepare(KEYS)
    seen = [await apart.sees(key) for key in KEYS]
    assert [await together.sees(key) for key in KEYS] == seen
    assert [key for key, is_seen in zip(KEYS, seen, strict=True) if is_seen] == [key for key in KEYS if "sales" in key]


async def test_what_was_prepared_is_not_judged_again(views: TwoViews, monkeypatch: pytest.MonkeyPatch) -> None:
    sight = await sight_of_part(views)
    tables = [key for key in KEYS if key.startswith("table:lake/")]
    await sight.prepare(tables)

    async def judged(*_: Any, **__: Any) -> None:
        raise AssertionError("judged by itself")

    monkeypatch.setattr(Judge, "read", judged)
    assert [await sight.sees(key) for key in tables] == [key.startswith("table:lake/sales/") for key in tables]
    with pytest.raises(AssertionError, match="by itself"):
        await sight.sees("table:lake/sales/another")


async def test_what_cannot_be_judged_is_not_hidden(views: TwoViews) -> None:
    sight = await sight_of_part(views)
    await sight.prepare([*UNDECIDABLE, *KEYS])
    assert await sight.sees("table:lake/sales/t1")
    for key in UNDECIDABLE:
        with pytest.raises(UnavailableError):
            await sight.sees(key)
