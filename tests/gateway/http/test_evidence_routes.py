# SPDX-License-Identifier: Apache-2.0
"""
Evidence over HTTP: who is given it, at once or as a job, and that what is given proves what the commands prove.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
import pytest_asyncio
from typer.testing import CliRunner, Result

from gateway.jobs import DIED, EVIDENCE_MAX, JobKind
from lakeproof import evidence
from lakeproof.commands.ledger import ledger_app
from lakeproof.erased_copies import InstalledCopies
from lakeproof.services import Services
from lakeproof.working import jobs_of
from ledger.format.events import ErasureReason, PayloadErased
from ledger.proving.evidence.bundle import parse_bundle
from testkit.gateway.jobs import doing, ended, files_of
from testkit.gateway.sales import ORDERS, another_key, error_of, properties
from testkit.gateway.two_views import SECRET, TwoViews, append, open_two_views
from testkit.ledger.standalone import standalone
from testkit.servers.gateways import app_of, keep_signing

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVIDENCE: Final = "/v1/evidence"
LONG_AGO, LATER = "2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
PERIOD: Final = {"from": LONG_AGO, "to": LATER}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def views(module_services: Services) -> AsyncIterator[TwoViews]:
    app = app_of(module_services.gateway, installation=module_services.installation)
    async with open_two_views(module_services, app) as views, keep_signing(views.gateway):
        yield views


@pytest.fixture
def everything_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have evidence of one entry be too long for a request."""
    monkeypatch.setattr(evidence, "SHORT_ENTRIES_MAX", 0)


def verifier_keys(views: TwoViews) -> list[str]:
    installation = views.gateway.services.installation
    origins = (views.gateway.acme.origin, installation.system_origin)
    return [installation.verifier_key(origin).format() for origin in origins]


def check(file: Path, keys: list[str]) -> Result:
    """Run the real `lakeproof ledger check`."""
    arguments = ["check", str(file), *(word for key in keys for word in ("--key", key))]
    return CliRunner().invoke(ledger_app(lambda: pytest.fail("it needs no installation")), arguments)


async def last_decision(http: httpx.AsyncClient) -> int:
    (await http.post(ORDERS, json=properties(note=uuid4().hex))).raise_for_status()
    found = (await http.get("/v1/log/entries?type=commit.decided&limit=1")).json()["entries"]
    return int(found[0]["index"])


async def asked(http: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await http.post(EVIDENCE, json=body)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"{EVIDENCE}/{job['id']}"
    return job


async def remove_jobs(views: TwoViews) -> None:
    for each in (await views.whole.get(EVIDENCE)).json()["evidence"]:
        for _ in range(2):
            await views.whole.delete(f"{EVIDENCE}/{each['id']}")


async def test_a_decision_made_just_now_is_answered_at_once_and_the_verifier_command_proves_it(
    views: TwoViews, tmp_path: Path
) -> None:
    index = await last_decision(views.whole)
    body = {"decision": str(index), "all_parts": True, "policies": True}
    answer = await views.whole.post(EVIDENCE, json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/octet-stream")
    assert answer.headers["content-disposition"].startswith("attachment")
    file = tmp_path / "evidence"
    file.write_bytes(answer.content)
    said = check(file, verifier_keys(views))
    assert (said.exit_code, said.stdout.splitlines()[-1]) == (0, "OK"), said.stdout
    assert "COMPLETE: the rules in force" in said.stdout
    key = views.gateway.services.installation.verifier_key(views.gateway.acme.origin)
    assert standalone(answer.content, [key]).code == 0


@pytest.mark.parametrize("at", [0.2, 0.5, 0.9])
async def test_a_file_with_a_changed_byte_is_refused(views: TwoViews, tmp_path: Path, at: float) -> None:
    answer = await views.whole.post(EVIDENCE, json={"table": "lake.sales.orders"})
    data = bytearray(answer.content)
    data[int(len(data) * at)] ^= 1
    file = tmp_path / "evidence"
    file.write_bytes(data)
    assert check(file, verifier_keys(views)).exit_code == 1


async def test_what_is_long_is_a_job_whose_file_is_fetched_later_and_proven(
    views: TwoViews, tmp_path: Path, everything_is_long: None
) -> None:
    job = await asked(views.whole, **PERIOD)
    assert (job["state"], job["file"], job["asked"]["from"]) == ("waiting", None, LONG_AGO)
    early = await views.whole.get(f"{EVIDENCE}/{job['id']}/file")
    assert (early.status_code, error_of(early)["type"]) == (409, "NotDoneException")
    assert (await asked(views.whole, **PERIOD))["id"] == job["id"], "asked twice it is one"
    async with doing(views.gateway.services):
        done = await ended(views.whole, f"{EVIDENCE}/{job['id']}")
    assert (done["state"], done["problem"]) == ("done", None)
    answer = await views.whole.get(done["file"]["path"])
    assert (answer.status_code, len(answer.content)) == (200, done["file"]["bytes"])
    file = tmp_path / "evidence"
    file.write_bytes(answer.content)
    said = check(file, verifier_keys(views))
    assert said.exit_code == 0, said.stdout
    assert "COMPLETE: the period: all " in said.stdout
    stored = files_of(views.gateway.services).path(UUID(job["id"]))
    assert (stored.stat().st_mode & 0o777, stored.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    stored.write_bytes(answer.content[:-3] + b"?" + answer.content[-2:])
    file.write_bytes((await views.whole.get(done["file"]["path"])).content)
    assert check(file, verifier_keys(views)).exit_code == 1
    assert (await views.whole.delete(f"{EVIDENCE}/{job['id']}")).status_code == 204
    assert not stored.exists()
    assert (await views.whole.get(f"{EVIDENCE}/{job['id']}")).status_code == 404


async def test_evidence_is_for_whoever_may_see_every_entry_in_it(views: TwoViews) -> None:
    orders = await views.part.post(EVIDENCE, json={"table": "lake.sales.orders"})
    assert orders.status_code == 200, orders.text
    assert {json.loads(each.entry)["event"]["key"] for each in parse_bundle(orders.content).section.entries} == {
        "table:lake/sales/orders"
    }
    for body, status in (
        ({"table": f"lake.hr.{SECRET}"}, 403),
        ({"table": "lake.hr.nothing"}, 403),
        ({"table": "policy:p"}, 403),
        (PERIOD, 403),
        ({"table": "lake.sales.orders", "all_parts": True}, 403),
        ({"table": "lake.sales.orders", "parts": ["principal"]}, 403),
    ):
        answer = await views.part.post(EVIDENCE, json=body)
        assert answer.status_code == status, (body, answer.text)
    listed = (await views.whole.get("/v1/log/entries?type=commit.decided&limit=100")).json()["entries"]
    secret = next(each for each in listed if SECRET in each["key"])
    for named in (str(secret["index"]), secret["group"]["id"], str(uuid4()), "999999999"):
        answer = await views.part.post(EVIDENCE, json={"decision": named})
        assert answer.status_code == 404, answer.text
        assert SECRET not in answer.text
    own = next(each for each in listed if "orders" in each["key"])
    assert (await views.part.post(EVIDENCE, json={"decision": own["group"]["id"]})).status_code == 200
    with_rules = await views.part.post(EVIDENCE, json={"decision": str(own["index"]), "policies": True})
    assert with_rules.status_code == 403, "rules are entries of the log, which this caller may not read"


async def test_who_may_read_the_log_but_not_every_table_is_given_no_period(views: TwoViews) -> None:
    rule = {
        "id": "log-readers",
        "effect": "permit",
        "expression": "'log-reader' in roles && op == 'READ_ENTITY_VALUE' && contentType == 'LOG'",
    }
    assert (await views.whole.post("/v1/access-rules", json=rule)).status_code == 201
    async with views.gateway.client(await another_key(views.gateway, "lee@acme.example", "log-reader")) as reader:
        assert (await reader.get("/v1/status")).status_code == 200
        answer = await reader.post(EVIDENCE, json=PERIOD)
    assert (answer.status_code, "every entry" in answer.text) == (403, True)


async def test_a_job_is_its_callers_alone(views: TwoViews, everything_is_long: None) -> None:
    job = await asked(views.whole, table="lake.sales.orders")
    for http in (views.part, views.other.http):
        for method, path in (("GET", ""), ("GET", "/file"), ("DELETE", "")):
            assert (await http.request(method, f"{EVIDENCE}/{job['id']}{path}")).status_code == 404
        assert (await http.get(EVIDENCE)).json() == {"evidence": []}
    assert [each["id"] for each in (await views.whole.get(EVIDENCE)).json()["evidence"]] == [job["id"]]
    await remove_jobs(views)


async def test_a_right_that_was_lost_meanwhile_is_asked_for_again_at_the_download(
    views: TwoViews, everything_is_long: None
) -> None:
    job = await asked(views.part, table="lake.sales.orders")
    async with doing(views.gateway.services):
        done = await ended(views.part, f"{EVIDENCE}/{job['id']}")
    assert (await views.part.get(done["file"]["path"])).status_code == 200
    rule = {"id": "closed", "effect": "forbid", "expression": "'seller' in roles && path == 'sales.orders'"}
    assert (await views.whole.post("/v1/access-rules", json=rule)).status_code == 201
    assert (await views.part.get(done["file"]["path"])).status_code == 403
    assert (await views.whole.delete("/v1/access-rules/closed")).status_code == 204
    assert (await views.part.get(done["file"]["path"])).status_code == 200
    assert (await views.part.delete(f"{EVIDENCE}/{job['id']}")).status_code == 204


async def test_a_tenant_has_so_many_jobs_at_a_time_and_no_more(views: TwoViews, everything_is_long: None) -> None:
    for number in range(EVIDENCE_MAX):
        await asked(views.whole, **{**PERIOD, "from": f"20{10 + number}-01-01T00:00:00Z"})
    one_more = await views.whole.post(EVIDENCE, json=PERIOD)
    assert (one_more.status_code, one_more.headers["retry-after"]) == (429, "1")
    (await views.other.http.get(EVIDENCE)).raise_for_status()
    await remove_jobs(views)
    await asked(views.whole, **PERIOD)
    await remove_jobs(views)


async def test_a_job_whose_process_has_died_says_that_it_must_be_asked_for_again(
    views: TwoViews, everything_is_long: None
) -> None:
    job = await asked(views.whole, **PERIOD)
    jobs = jobs_of(views.gateway.services)
    taken = await jobs.take(JobKind.EVIDENCE)
    assert taken is not None
    assert (await views.whole.get(f"{EVIDENCE}/{job['id']}")).json()["state"] == "running"
    await jobs.end_lost()
    assert (await views.whole.get(f"{EVIDENCE}/{job['id']}")).json()["state"] == "running", "it is not silent yet"
    await jobs.end_lost(silent=timedelta(0))
    lost = (await views.whole.get(f"{EVIDENCE}/{job['id']}")).json()
    assert (lost["state"], lost["problem"]) == ("failed", DIED)
    late = await views.whole.get(f"{EVIDENCE}/{job['id']}/file")
    assert (late.status_code, "ask for it again" in late.text) == (409, True)
    assert not await jobs.end(taken, taken.state), "what was taken for dead does not end it any more"
    assert (await asked(views.whole, **PERIOD))["id"] != job["id"]
    await remove_jobs(views)


async def test_evidence_that_was_made_before_an_erasure_is_given_to_nobody(
    views: TwoViews, everything_is_long: None
) -> None:
    services = views.gateway.services
    job, plain = await asked(views.whole, table="lake.sales.orders", all_parts=True), await asked(views.whole, **PERIOD)
    async with doing(services):
        done, other = [await ended(views.whole, f"{EVIDENCE}/{each['id']}") for each in (job, plain)]
    assert b"\npart " in (await views.whole.get(done["file"]["path"])).content
    erased = PayloadErased(
        before=None, index=0, name="principal", reason=ErasureReason.REQUEST, subject=None, type=None
    )
    await append(views.gateway, "table:lake/sales/orders", [erased])
    gone = await views.whole.get(done["file"]["path"])
    assert (gone.status_code, "erased since" in gone.text) == (410, True)
    assert files_of(services).path(UUID(job["id"])).exists() is False
    assert (await views.whole.get(other["file"]["path"])).status_code == 200, "it discloses no parts"
    await remove_jobs(views)


async def test_the_files_and_what_was_asked_are_gone_once_a_person_is_erased(
    views: TwoViews, everything_is_long: None
) -> None:
    services, founded = views.gateway.services, views.gateway.acme
    job = await asked(views.whole, table="lake.sales.orders", all_parts=True)
    async with doing(services):
        await ended(views.whole, f"{EVIDENCE}/{job['id']}")
    file = files_of(services).path(UUID(job["id"]))
    assert file.exists()
    copies = InstalledCopies(installation=services.installation)
    assert await copies.forget_person(founded.log_id, founded.key.actor) >= 1
    assert not file.exists()
    assert (await views.whole.get(f"{EVIDENCE}/{job['id']}")).status_code == 404


async def test_what_has_expired_is_removed_and_what_nobody_knows_too(
    views: TwoViews, everything_is_long: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    services, files = views.gateway.services, files_of(views.gateway.services)
    job, orphan = await asked(views.whole, **PERIOD), uuid4()
    async with doing(services):
        await ended(views.whole, f"{EVIDENCE}/{job['id']}")
    files.write(orphan, b"left by a crash")
    files.remove_others({UUID(job["id"])})
    assert files.path(orphan).exists(), "it may still be written"
    monkeypatch.setattr(evidence, "ORPHANED_S", -1.0)
    files.remove_others({UUID(job["id"])})
    assert (files.path(orphan).exists(), files.path(UUID(job["id"])).exists()) == (False, True)
    jobs = jobs_of(services)
    assert await jobs.forget_expired() == []
    async with await psycopg.AsyncConnection.connect(services.installation.admin_dsn, autocommit=True) as owner:
        await owner.execute("UPDATE gateway.jobs SET kept = interval '1 us' WHERE job = %s", (job["id"],))
    assert await jobs.forget_expired() == [UUID(job["id"])]
    assert (await views.whole.get(f"{EVIDENCE}/{job['id']}")).status_code == 404
    files.remove(UUID(job["id"]))


async def test_a_job_is_cancelled_before_it_begins(views: TwoViews, everything_is_long: None) -> None:
    job = await asked(views.whole, **PERIOD)
    assert (await views.whole.delete(f"{EVIDENCE}/{job['id']}")).status_code == 204
    assert (await views.whole.get(f"{EVIDENCE}/{job['id']}")).json()["state"] == "cancelled"
    assert (await views.whole.get(f"{EVIDENCE}/{job['id']}/file")).status_code == 409
    await remove_jobs(views)


async def test_a_period_with_nothing_signed_in_it_fails_with_its_reason(views: TwoViews) -> None:
    answer = await views.whole.post(EVIDENCE, json={"table": "lake.sales.none"})
    assert (answer.status_code, "no signed entry is about" in answer.text) == (422, True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "name a decision"),
        ({"decision": "1", "table": "lake.sales.orders"}, "name a decision"),
        ({"decision": "one"}, "expected an index or the id of a group"),
        ({"decision": ""}, "decision"),
        ({"from": LONG_AGO}, "two ends"),
        ({"from": LATER, "to": LONG_AGO}, "a beginning before its end"),
        ({"from": "yesterday", "to": LATER}, "from"),
        ({"table": "lake.sales.orders", "policies": True}, "policies go with a decision"),
        ({"table": "x:y:z:" + "a" * 3000}, "table"),
        ({"table": "lake.sales.orders", "parts": ["p"] * 21}, "parts"),
        ({"table": "lake.sales.orders", "unknown": 1}, "unknown"),
    ],
)
async def test_what_is_no_evidence_is_refused_with_its_place(views: TwoViews, body: dict[str, Any], words: str) -> None:
    answer = await views.whole.post(EVIDENCE, json=body)
    assert answer.status_code == 400, answer.text
    assert words in error_of(answer)["message"]


async def test_what_is_no_job_is_refused(views: TwoViews) -> None:
    assert (await views.whole.get(f"{EVIDENCE}/none")).status_code == 400
    assert (await views.whole.get(f"{EVIDENCE}/{uuid4()}")).status_code == 404
