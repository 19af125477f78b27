# SPDX-License-Identifier: Apache-2.0
"""
Commits to several tables at once: all of them are made, or none, in one group. Through the real routes, with the real
catalog.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.commit.events import INPUTS_SIZE_BYTES_MAX
from gateway.mutations import TRANSACTION_TABLES_MAX
from ledger.errors import LogUnavailableError
from testkit.gateway.log_contents import check_agreement, check_deeply, live_rows, path_of, read_stored, words
from testkit.gateway.sales import (
    CREATE,
    ORDERS,
    TABLES,
    another_key,
    before_each_append,
    error_of,
    location_of_orders,
    properties,
)
from testkit.gateway.table_requests import commit_of_staged, commit_to, transaction
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

COMMIT = "/v1/iceberg/lake/transactions/commit"
MORE = f"{TABLES}/more"
FAILS = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7}


@pytest_asyncio.fixture(loop_scope="module")
async def two(sales: Gateway) -> Gateway:
    """A gateway with the tables `sales.orders` and `sales.more`."""
    assert (await sales.http.post(TABLES, json={**CREATE, "name": "more"})).status_code == 200
    return sales


def change(name: str, *requirements: Any, namespace: str = "sales", **texts: str) -> dict[str, Any]:
    """One commit of a transaction."""
    return commit_to(name, properties(requirements, **texts), namespace=namespace)


BOTH = transaction(change("orders", a="1"), change("more", a="1"))


async def set_properties(http: httpx.AsyncClient, path: str) -> dict[str, str]:
    found: dict[str, str] = (await http.get(path)).json()["metadata"]["properties"]
    return found


async def is_unchanged(gateway: Gateway, act: Callable[[], Any]) -> Any:
    """Return what `act` does, which must leave no table changed and no file behind."""
    before = await live_rows(gateway.services, gateway.acme.log_id)
    folders = [path_of(location).parent for _, location, _ in before.tables.values()]
    files = [sorted(folder.iterdir()) for folder in folders]
    result = await act()
    assert await live_rows(gateway.services, gateway.acme.log_id) == before
    assert [sorted(folder.iterdir()) for folder in folders] == files
    await check_agreement(gateway.services, gateway.acme.log_id)
    return result


async def test_commits_to_several_tables_are_one_group(two: Gateway) -> None:
    told, base = len(await read_stored(two.services, two.acme.log_id)), await location_of_orders(two)
    answer = await two.http.post(COMMIT, json=BOTH)
    assert (answer.status_code, answer.content) == (204, b"")
    for path in (ORDERS, MORE):
        assert (await set_properties(two.http, path))["a"] == "1"
    entries = await read_stored(two.services, two.acme.log_id, after=told)
    assert [one.words for one in entries] == ["approved", "approved", "accepted", "accepted"]
    assert len({one.entry.group_id for one in entries}) == 1
    by_name = {one.decided.identifier.name: one for one in entries[:2]}
    assert by_name["orders"].decided.base == base
    assert {one.decided.operation for one in entries[:2]} == {"table.commit"}
    inputs = json.loads(by_name["orders"].parts["inputs"])
    assert json.loads(inputs["body"]) == BOTH["table-changes"][0]
    await check_deeply(two.services, two.acme.log_id)
    await check_agreement(two.services, two.acme.log_id)


async def test_a_transaction_creates_and_changes_tables(two: Gateway) -> None:
    staged = await two.http.post(TABLES, json={**CREATE, "name": "fresh", "stage-create": True})
    creation = {
        "identifier": {"namespace": ["sales"], "name": "fresh"},
        **commit_of_staged(staged.json()["metadata"]),
    }
    assert (await two.http.post(COMMIT, json=transaction(change("orders", made="fresh"), creation))).status_code == 204
    assert (await two.http.head(f"{TABLES}/fresh")).status_code == 204
    again = await is_unchanged(two, lambda: two.http.post(COMMIT, json=transaction(change("orders", b="2"), creation)))
    assert again.status_code == 409
    await check_agreement(two.services, two.acme.log_id)


@pytest.mark.parametrize(
    ("second", "status", "kind"),
    [
        (change("more", FAILS, a="1"), 409, "CommitFailedException"),
        (change("nothing", a="1"), 404, "NoSuchTableException"),
        (change("nothing", namespace="nowhere", a="1"), 404, "NoSuchTableException"),
        ({**change("more"), "updates": [{"action": "set-location", "location": "s3://x"}]}, 400, "BadRequestException"),
        ({**change("more"), "updates": [{"action": "unknown"}]}, 400, "BadRequestException"),
    ],
)
async def test_if_one_commit_cannot_be_made_none_is(two: Gateway, second: Any, status: int, kind: str) -> None:
    for body in (transaction(change("orders", a="1"), second), transaction(second, change("orders", a="1"))):
        answer = await is_unchanged(two, lambda body=body: two.http.post(COMMIT, json=body))  # type: ignore[misc]
        assert (answer.status_code, error_of(answer)["type"]) == (status, kind), answer.text


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "table-changes"),
        ({"table-changes": []}, "table-changes"),
        ({"table-changes": {}}, "table-changes"),
        (transaction(1), "table-changes[0]"),
        (transaction({"requirements": [], "updates": []}), "table-changes[0].identifier"),
        (transaction(change("orders"), {**change("more"), "updates": [1]}), "table-changes[1].updates[0]"),
        (transaction(change("orders"), change("orders")), "table-changes[1].identifier"),
        (transaction(*(change(f"t{number}") for number in range(TRANSACTION_TABLES_MAX + 1))), "table-changes"),
        ([], "body"),
    ],
)
async def test_a_body_of_another_shape_is_refused_by_its_field(two: Gateway, body: object, field: str) -> None:
    answer = await two.http.post(COMMIT, json=body)
    assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException")
    assert error_of(answer)["message"].startswith(f"{field}: "), answer.text


@pytest.mark.parametrize("refused", ["orders", "more"])
async def test_a_policy_on_one_table_refuses_all(two: Gateway, refused: str) -> None:
    admin, log_id = two.services.gateway.admin, two.acme.log_id
    expression = f"commit.name != '{refused}' || !('a' in result.properties)"
    await admin.create_policy(
        log_id, OPERATOR, policy_id="no-a", text=PolicyText(expression=expression, message="no a here")
    )
    answer = await is_unchanged(two, lambda: two.http.post(COMMIT, json=BOTH))
    assert answer.status_code == 403
    assert error_of(answer)["message"].startswith("no a here")
    (*_, last) = await read_stored(two.services, log_id)
    assert (last.words, last.decided.identifier.name) == ("rejected", refused)


async def test_who_may_not_change_one_of_the_tables_changes_none(two: Gateway) -> None:
    await two.services.gateway.admin.create_access_rule(
        two.acme.log_id,
        OPERATOR,
        rule_id="guests",
        effect="permit",
        expression="'guest' in roles && path == 'sales.orders'",
    )
    async with two.client(await another_key(two, "eve@acme.example", "guest")) as eve:
        for second in (change("more", a="1"), change("nothing", a="1")):
            answer = await is_unchanged(
                two,
                lambda second=second: eve.post(COMMIT, json=transaction(change("orders", a="1"), second)),  # type: ignore[misc]
            )
            assert answer.status_code == 403


async def test_a_transaction_that_changes_nothing_is_not_recorded(two: Gateway) -> None:
    told = len(await read_stored(two.services, two.acme.log_id))
    assert (await two.http.post(COMMIT, json=transaction(change("orders"), change("more")))).status_code == 204
    assert len(await read_stored(two.services, two.acme.log_id)) == told
    assert (await two.http.post(COMMIT, json=transaction(change("orders"), change("more", a="1")))).status_code == 204
    assert len(await read_stored(two.services, two.acme.log_id)) == told + 2


async def test_a_commit_that_came_first_is_kept_and_the_transaction_is_judged_again(two: Gateway) -> None:
    async def first(count: int) -> None:
        if count == 0:
            assert (await two.http.post(MORE, json=properties(first="yes"))).status_code == 200

    async with two.through(append=before_each_append(two, first)) as http:
        assert (await http.post(COMMIT, json=BOTH)).status_code == 204
    assert await set_properties(two.http, MORE) | {"first": "yes", "a": "1"} == await set_properties(two.http, MORE)
    await check_agreement(two.services, two.acme.log_id)


async def test_a_transaction_that_always_comes_second_conflicts_in_the_end(two: Gateway) -> None:
    async def first(count: int) -> None:
        assert (await two.http.post(MORE, json=properties(count=str(count)))).status_code == 200

    async with two.through(append=before_each_append(two, first)) as http:
        answer = await http.post(COMMIT, json=BOTH)
    assert (answer.status_code, error_of(answer)["type"]) == (409, "CommitFailedException")
    assert (await words(two.services, two.acme.log_id))[-4:] == ["approved", "approved", "conflicted", "conflicted"]
    assert "a" not in await set_properties(two.http, ORDERS)
    await check_agreement(two.services, two.acme.log_id)


async def test_if_the_log_is_away_nothing_is_changed_and_no_file_stays(two: Gateway) -> None:
    async def away(_: int) -> None:
        raise LogUnavailableError("no log")

    async with two.through(append=before_each_append(two, away)) as http:
        answer = await is_unchanged(two, lambda: http.post(COMMIT, json=BOTH))
    assert answer.status_code == 503


async def test_if_one_file_cannot_be_written_the_others_are_deleted(
    two: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, real = path_of(await location_of_orders(two)).parent, os.open

    def fail(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT and folder.samefile(f"/proc/self/fd/{named.get('dir_fd')}"):
            raise OSError(28, "No space left on device")
        return real(path, flags, *more, **named)

    async def act() -> httpx.Response:
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", fail)
            return await two.http.post(COMMIT, json=BOTH)

    answer = await is_unchanged(two, act)
    assert answer.status_code == 503, answer.text


async def test_transactions_and_commits_at_once_are_made_one_after_the_other(two: Gateway) -> None:
    turned = transaction(change("more", b="1"), change("orders", b="1"))
    asked = [two.http.post(COMMIT, json=body) for body in (BOTH, turned) for _ in range(4)]
    asked += [two.http.post(path, json=properties(**{f"c{n}": "1"})) for n in range(4) for path in (ORDERS, MORE)]
    answers = await asyncio.gather(*asked)
    assert {answer.status_code for answer in answers} <= {200, 204}, [answer.text for answer in answers]
    for path in (ORDERS, MORE):
        assert {"a", "b", "c0", "c1", "c2", "c3"} <= (await set_properties(two.http, path)).keys()
    await check_agreement(two.services, two.acme.log_id)


async def test_of_large_commits_the_record_keeps_digests(two: Gateway) -> None:
    half = "x" * (INPUTS_SIZE_BYTES_MAX // 2)
    texts = {f"p{number}": half[: 32 * 1024] for number in range(24)}
    body = transaction(change("orders", **texts), change("more", **texts))
    assert (await two.http.post(COMMIT, json=body)).status_code == 204
    entries = await read_stored(two.services, two.acme.log_id)
    for one in entries[-4:-2]:
        assert json.loads(one.parts["inputs"])["body"] is None
    await check_agreement(two.services, two.acme.log_id)


async def test_as_many_tables_as_a_transaction_may_have_are_changed_at_once(two: Gateway) -> None:
    names = [f"t{number}" for number in range(TRANSACTION_TABLES_MAX)]
    made = await asyncio.gather(*(two.http.post(TABLES, json={**CREATE, "name": name}) for name in names))
    assert {answer.status_code for answer in made} == {200}
    answer = await two.http.post(COMMIT, json=transaction(*(change(name, a="1") for name in names)))
    assert answer.status_code == 204, answer.text
    await check_agreement(two.services, two.acme.log_id)
