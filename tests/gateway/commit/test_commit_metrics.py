# SPDX-License-Identifier: Apache-2.0
"""
The metrics of one gateway process: why commits were rejected, how long each step took, and that no label is unbounded.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from gateway import errors
from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.commit.metrics import BUCKETS_S, LoadStage, Measures, Rejection, rejection_of
from gateway.errors import CommitStateUnknownError, GatewayError, PartlyMadeError
from gateway.mutations import Operation
from testkit.gateway.sales import ORDERS, TABLES, another_key, properties
from testkit.servers.gateways import Gateway, app_of, open_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAILS = "commit.requirements[7].type == 'x'"
STALE: dict[str, Any] = {"type": "assert-table-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}


def made(kind: type[GatewayError]) -> GatewayError:
    """Return an error of a kind, whatever its constructor asks for."""
    texts = {"kind": "X", "status": 400, "body": b"", "content_type": "application/json", "retry_after": None}
    names = inspect.signature(kind.__init__).parameters
    return kind("no", **{name: value for name, value in texts.items() if name in names})


async def test_every_refusal_has_a_reason_and_what_may_have_happened_has_none() -> None:
    for kind in vars(errors).values():
        if inspect.isclass(kind) and issubclass(kind, GatewayError):
            reason = rejection_of(made(kind))
            assert (reason is None) == (kind in {GatewayError, CommitStateUnknownError, PartlyMadeError}), kind


def counts(text: str, name: str, label: str) -> dict[str, float]:
    """Return the samples of one metric that are not 0, by one label."""
    found = re.findall(rf'^{name}\{{[^}}]*{label}="([^"]*)"[^}}]*\}} (\S+)$', text, re.MULTILINE)
    return {value: float(count) for value, count in found if float(count)}


async def test_each_rejection_is_counted_once_by_its_reason(sales: Gateway) -> None:
    measures = Measures()
    app = app_of(sales.services.gateway, measures=measures)
    async with open_gateway(sales.services, sales.acme, app) as counted:
        assert (await counted.http.post(ORDERS, json=properties(a="b"))).status_code == 200
        answers = [
            await counted.http.post(ORDERS, content=b"{"),
            await counted.http.post(ORDERS, json=properties([STALE], a="b")),
            await counted.http.post(f"{TABLES}/nothing", json=properties(a="b")),
            await counted.client("lp_wrong").post(ORDERS, json=properties(a="b")),
            await counted.client(await another_key(sales)).post(ORDERS, json=properties(a="b")),
        ]
    assert [answer.status_code for answer in answers] == [400, 409, 404, 401, 403]
    rejected = counts(measures.text(), "lakeproof_commit_rejected_total", "reason")
    assert rejected == dict.fromkeys(("invalid", "conflict", "not_found", "unauthenticated", "access_denied"), 1.0)
    endings = counts(measures.text(), "lakeproof_commit_seconds_count", "ending")
    assert endings == {"made": 1.0, "refused": 5.0}


async def test_a_policy_that_says_no_and_one_that_cannot_be_judged_are_told_apart(sales: Gateway) -> None:
    measures = Measures()
    admin, log_id = sales.services.gateway.admin, sales.acme.log_id
    async with open_gateway(sales.services, sales.acme, app_of(sales.services.gateway, measures=measures)) as counted:
        await admin.create_policy(
            log_id, OPERATOR, policy_id="p1", text=PolicyText(expression="commit.name == 'x'", message="never")
        )
        assert (await counted.http.post(ORDERS, json=properties(a="b"))).status_code == 403
        await admin.create_policy(log_id, OPERATOR, policy_id="p2", text=PolicyText(expression=FAILS, message="x"))
        await admin.retire_policy(log_id, OPERATOR, policy_id="p1")
        assert (await counted.http.post(ORDERS, json=properties(a="b"))).status_code == 503
    rejected = counts(measures.text(), "lakeproof_commit_rejected_total", "reason")
    assert rejected == {"policy_denied": 1.0, "policy_engine_unavailable": 1.0}


async def test_loads_are_measured_by_step_and_those_that_are_refused_are_not(sales: Gateway) -> None:
    measures = Measures()
    async with open_gateway(sales.services, sales.acme, app_of(sales.services.gateway, measures=measures)) as counted:
        tag = (await counted.http.get(ORDERS)).headers["etag"]
        assert (await counted.http.get(ORDERS, headers={"If-None-Match": tag})).status_code == 304
        assert (await counted.http.get(f"{TABLES}/nothing")).status_code == 404
        assert (await counted.client("lp_wrong").get(ORDERS)).status_code == 401
    steps = counts(measures.text(), "lakeproof_load_step_seconds_count", "step")
    assert steps == {stage.value: 2.0 for stage in LoadStage}


async def test_every_reason_is_there_before_the_first_rejection_and_the_number_of_samples_is_fixed() -> None:
    measures = Measures()
    text = measures.text()
    for reason in Rejection:
        assert f'lakeproof_commit_rejected_total{{reason="{reason}"}} 0.0' in text
    before = len(re.findall(r"^lakeproof_commit_(?:rejected|seconds|step)", text, re.MULTILINE))
    with pytest.raises(CommitStateUnknownError), measures.commit(Operation.TABLE_COMMIT):
        raise CommitStateUnknownError("perhaps")
    measures.loaded(permit_s=0.001, show_s=max(BUCKETS_S) + 1)
    after = measures.text()
    assert len(re.findall(r"^lakeproof_commit_(?:rejected|seconds|step)", after, re.MULTILINE)) == before
    assert counts(after, "lakeproof_commit_rejected_total", "reason") == {}
