# SPDX-License-Identifier: Apache-2.0
"""
Findings that decisions were judged on are made again from the log, whatever was found since; where the log does not say
which they were, they are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.replaying import application, findings
from gateway.replaying.comparing import Change
from gateway.replaying.explaining import explain
from gateway.replaying.replay import Proposed
from gateway.replaying.variables import ERASED, NO_METADATA, NOT_LOOKED_UP, TOO_MANY, Known, Unknown
from lakeproof.signing import open_signer
from ledger.errors import BrokenError, Fault
from ledger.format.events import DetectionFound
from testkit.gateway.log_contents import read_stored
from testkit.gateway.recorded_scans import EMAIL, PHONE, Detection, uuid_of_orders
from testkit.gateway.replays import WatchedEngine, erase_ada, rebuilt, replay
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, TABLES, properties
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

READS = (
    "size(findings.columns) < 2 && findings.scanned_at != 'x' && findings.scanned_snapshot != 'x' "
    "&& findings.as_of >= 0"
)
RENAME = {
    "source": {"namespace": ["sales"], "name": "orders"},
    "destination": {"namespace": ["sales"], "name": "sold"},
}


async def in_force(gateway: Gateway, expression: str = READS) -> None:
    await gateway.services.gateway.admin.create_policy(
        gateway.acme.log_id, OPERATOR, policy_id="found", text=PolicyText(expression=expression, message="no")
    )


async def post(gateway: Gateway, status: int, path: str = ORDERS, body: Mapping[str, Any] | None = None) -> None:
    answer = await gateway.http.post(path, json=properties(a="b") if body is None else body)
    assert answer.status_code == status, answer.text


@pytest_asyncio.fixture(loop_scope="module")
async def found(sales: Gateway) -> Gateway:
    """A table with commits between scans that were recorded, one of them twice; each commit but the first is judged."""
    await post(sales, 200)
    await in_force(sales)
    detection, uuid = Detection(sales), await uuid_of_orders(sales)
    await post(sales, 200)
    await detection.scanned("11", EMAIL, table_uuid=uuid)
    await post(sales, 200)
    await detection.projected()
    await detection.scanned("12", EMAIL, PHONE, table_uuid=uuid)
    await post(sales, 403)
    await detection.scanned("12", table_uuid=uuid)
    await post(sales, 200)
    await detection.projected()
    await post(sales, 200)
    return sales


async def of_decisions(gateway: Gateway) -> list[Known | Unknown]:
    return [variables["findings"] for decision, variables in await rebuilt(gateway) if decision.kind == "table"]


async def test_they_are_what_policies_saw(sales: Gateway) -> None:
    await in_force(sales)
    judge = sales.services.gateway.judge
    engine = WatchedEngine(judge.engine, ["findings"])
    detection, uuid = Detection(sales), await uuid_of_orders(sales)
    async with sales.through(judge=replace(judge, engine=engine)) as http:
        for number, scan in enumerate([(), (EMAIL,), (EMAIL, PHONE), (PHONE,), ()]):
            await detection.scanned(str(11 + number % 2), *scan, table_uuid=uuid)
            if number % 2:
                await detection.projected()
            await http.post(ORDERS, json=properties(a=str(number)))
        assert (await http.post(TABLES, json={**CREATE, "name": "more"})).status_code == 200
        assert (await http.post(f"{TABLES.partition('/namespaces')[0]}/tables/rename", json=RENAME)).status_code == 204
        assert (await http.post(NAMESPACES, json={"namespace": ["more"]})).status_code == 200
        assert (await http.delete(f"{TABLES}/sold")).status_code == 204
    seen = [one["findings"] for one in engine.seen]
    assert len({one["as_of"] for one in seen}) > 5
    # Both ends of a rename are the same to this policy, so it is asked once.
    decided = [one for one in await rebuilt(sales) if one[0].operation != "table.rename_to"]
    again = [variables["findings"] for _, variables in decided[-len(seen) :]]
    assert [one.members if isinstance(one, Known) else one for one in again] == seen


async def test_a_decision_before_any_policy_read_them_has_none_that_are_known(found: Gateway) -> None:
    created, first, *others = await of_decisions(found)
    assert created is first is NOT_LOOKED_UP
    sizes = [len(cast_columns(one)) for one in others]
    assert sizes == [0, 1, 2, 1, 1]


def cast_columns(variable: Known | Unknown) -> list[Any]:
    assert isinstance(variable, Known)
    columns: Any = variable.members["columns"]
    return list(columns)


async def test_they_do_not_depend_on_the_read_model(found: Gateway) -> None:
    before = [one.members if isinstance(one, Known) else one for one in await of_decisions(found)]
    with psycopg.connect(found.services.installation.admin_dsn, autocommit=True) as owner:
        for table in ("findings", "scans"):
            owner.execute(f"DELETE FROM projections.{table} WHERE log_id = %s", (found.acme.log_id,))  # noqa: S608 - ours
    assert [one.members if isinstance(one, Known) else one for one in await of_decisions(found)] == before


async def test_a_replay_judges_each_decision_on_what_was_known_then(found: Gateway) -> None:
    same = await replay(found, Proposed(id="found", expression=READS))
    assert same.counts[Change.SAME] == same.decisions - same.counts[Change.UNKNOWN]
    stricter = await replay(found, Proposed(id="found", expression="size(findings.columns) == 0"))
    assert stricter.counts[Change.NARROWED] == 3
    weaker = await replay(found, Proposed(id="found", expression="size(findings.columns) < 3"))
    assert (weaker.counts[Change.WIDENED], weaker.counts[Change.NARROWED]) == (1, 0)
    assert weaker.unknown == {NOT_LOOKED_UP.why: 2}


async def test_equal_findings_are_judged_once(found: Gateway) -> None:
    once = await replay(found, Proposed(id="found", expression="size(findings.columns) < 9"))
    each = await replay(found, Proposed(id="found", expression="size(findings.columns) < 9 && findings.as_of > 0"))
    assert once.evaluated < each.evaluated


@pytest.mark.parametrize("entries", [1, 3, 1_000])
async def test_pages_of_any_size_give_the_same(found: Gateway, monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    proposal = Proposed(id="found", expression="size(findings.columns) == 0")
    whole = await replay(found, proposal)
    monkeypatch.setattr(application, "PAGE_ENTRIES", entries)
    monkeypatch.setattr(findings, "SEARCH_ENTRIES", entries)
    monkeypatch.setattr(findings, "VALUES_KEPT", 1)
    again = await replay(found, proposal)
    assert (again.inputs, again.verdicts) == (whole.inputs, whole.verdicts)


async def test_places_may_be_asked_for_in_any_order(found: Gateway) -> None:
    parts, uuid = found.services.gateway, await uuid_of_orders(found)
    size = await Detection(found).size()

    def lend() -> Any:
        return parts.database.as_role(parts.roles.tenant(found.acme.tenant))

    known = findings.RecordedFindings(lend, found.acme.log_id)
    await known.read(size)
    forward = [known.at(uuid, as_of) for as_of in range(size + 1)]
    assert [known.at(uuid, as_of) for as_of in reversed(range(size + 1))] == forward[::-1]
    assert len({known.count(uuid, as_of) for as_of in range(size + 1)}) == 6 + 1


async def test_of_one_table_alone_the_entries_of_others_are_not_kept(
    found: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, uuid = found.services.gateway, await uuid_of_orders(found)
    assert (await found.http.post(TABLES, json={**CREATE, "name": "more"})).status_code == 200
    other = await uuid_of_orders(found, f"{TABLES}/more")
    await Detection(found).scanned("21", EMAIL, EMAIL, table_uuid=other, key="table:lake/sales/more")
    size = await Detection(found).size()

    def lend() -> Any:
        return parts.database.as_role(parts.roles.tenant(found.acme.tenant))

    every = findings.RecordedFindings(lend, found.acme.log_id)
    await every.read(size)
    monkeypatch.setattr(findings, "ENTRIES_MAX", 6)
    one, some = (findings.RecordedFindings(lend, found.acme.log_id, table_uuid=each) for each in (uuid, None))
    await one.read(size)
    await some.read(size)
    assert one.at(uuid, size) == every.at(uuid, size) is not None
    assert some.at(uuid, size) is None, "there is more in the log than is kept"


async def test_what_was_erased_is_unknown(found: Gateway) -> None:
    await erase_ada(found)
    assert set(await of_decisions(found)) == {ERASED}
    result = await replay(found, Proposed(id="found", expression="size(findings.columns) == 0"))
    assert result.counts[Change.NARROWED] == result.counts[Change.WIDENED] == 0


async def test_a_refused_registration_does_not_say_which_table_it_was_of(sales: Gateway) -> None:
    loaded = (await sales.http.get(ORDERS)).json()
    await Detection(sales).scanned("11", EMAIL, PHONE, table_uuid=loaded["metadata"]["table-uuid"])
    assert (await sales.http.delete(ORDERS)).status_code == 204
    await in_force(sales)
    body = {"name": "again", "metadata-location": loaded["metadata-location"]}
    await post(sales, 403, f"{NAMESPACES}/sales/register", body)
    assert (await of_decisions(sales))[-1] is NO_METADATA


async def test_more_entries_than_are_kept_are_unknown_from_there_on(
    found: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "ENTRIES_MAX", 2)
    assert [one if isinstance(one, Unknown) else len(cast_columns(one)) for one in await of_decisions(found)] == [
        *(NOT_LOOKED_UP, NOT_LOOKED_UP, 0, 1),
        *(TOO_MANY, TOO_MANY, TOO_MANY),
    ]


async def test_a_corrupt_finding_stops_the_replay_with_the_error_of_the_log(found: Gateway) -> None:
    with psycopg.connect(found.services.installation.admin_dsn, autocommit=True) as owner:
        changed = owner.execute(
            "UPDATE ledger.entries SET entry = replace(encode(entry, 'escape'), '\"email\"', '\"phone\"')::bytea "
            "WHERE log_id = %s AND type = %s",
            (found.acme.log_id, DetectionFound.TYPE),
        )
        assert changed.rowcount == 3
    with pytest.raises(BrokenError) as caught:
        await replay(found, Proposed(id="found", expression=READS))
    assert caught.value.fault is Fault.ENTRY


async def test_an_explanation_shows_what_was_known_then(found: Gateway) -> None:
    await (await open_signer(found.services.installation)).sign_once()
    stored = await read_stored(found.services, found.acme.log_id)
    (rejected,) = [one for one in stored if one.words == "rejected"]
    parts, acme = found.services.gateway, found.acme
    explained = await explain(parts, acme.tenant, acme.log_id, rejected.entry.index)
    assert explained.unknown == {}
    (rule,) = [one for one in explained.rules if one.program.id == "found"]
    assert rule.agrees
    assert rule.traced is not None
    shown = {step.text: step.value for step in rule.traced.steps}
    assert shown["size(findings.columns)"] == "2"


async def test_an_explanation_of_another_decision_says_nothing_of_findings(sales: Gateway) -> None:
    await in_force(sales, "result.exists")
    await post(sales, 200)
    await (await open_signer(sales.services.installation)).sign_once()
    stored = await read_stored(sales.services, sales.acme.log_id)
    decision = [one for one in stored if one.words == "approved"][-1]
    explained = await explain(sales.services.gateway, sales.acme.tenant, sales.acme.log_id, decision.entry.index)
    assert explained.unknown == {}
