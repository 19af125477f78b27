# SPDX-License-Identifier: Apache-2.0
"""What happens to a tenant before its database is backed up, and afterwards."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.purging.purger import Purger
from ledger.format.events import CommitOutcome, FindingVerdict
from ledger.format.sequence import Group
from spark_detect.marks import scan_guard
from spark_detect.recording.groups import record_scan
from spark_detect.tasks import Scan
from testkit.gateway.application_events import save_note
from testkit.gateway.decisions import decide, settle
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, ORDERS_KEY, SALES, TABLES, properties
from testkit.gateway.two_views import append, finding
from testkit.servers.gateways import Gateway
from testkit.spark_detect.scans import result, scan

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


async def record(gateway: Gateway, what: Scan) -> None:
    group = record_scan(what, [result(what)], now=NOON)
    assert isinstance(group, Group)
    assert group.guard == (scan_guard(what),)
    await gateway.services.gateway.append(gateway.acme.log_id, group)


async def live_before(gateway: Gateway) -> str:
    """Do what is in the backup; return the id of a key that is revoked later."""
    http, admin, log_id = gateway.http, gateway.services.gateway.admin, gateway.acme.log_id
    (await http.post(NAMESPACES, json={"namespace": ["sales"], "properties": {"a": "1", "b": "1"}})).raise_for_status()
    (await http.post(TABLES, json=CREATE)).raise_for_status()
    (await http.post(TABLES, json={**CREATE, "name": "dropped"})).raise_for_status()
    await admin.create_policy(log_id, OPERATOR, policy_id="p", text=PolicyText(expression="true", message="never"))
    await record(gateway, scan())
    await save_note(gateway.services, gateway.acme.log_id, 1)
    return (await admin.create_key(log_id, OPERATOR, identity="bob@acme.example", roles=[])).id


async def live_on(gateway: Gateway, key_id: str) -> tuple[str, str]:
    """Do what the backup lacks; return the id and the secret of a key that was made then."""
    http, admin, log_id = gateway.http, gateway.services.gateway.admin, gateway.acme.log_id
    change = {"updates": {"a": "2", "c": "ü"}, "removals": ["b"]}
    (await http.post(f"{SALES}/properties", json=change)).raise_for_status()
    (await http.post(NAMESPACES, json={"namespace": ["sales", "eu"]})).raise_for_status()
    (await http.post(NAMESPACES, json={"namespace": ["gone"]})).raise_for_status()
    (await http.delete(f"{NAMESPACES}/gone")).raise_for_status()
    (await http.post(TABLES, json={**CREATE, "name": "new"})).raise_for_status()
    for number in range(3):
        (await http.post(ORDERS, json=properties(n=str(number)))).raise_for_status()
    requirement = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7}
    assert (await http.post(ORDERS, json=properties([requirement], n="9"))).status_code == 409
    (await http.delete(f"{TABLES}/dropped")).raise_for_status()
    for name in ("purged", "purging"):
        (await http.post(TABLES, json={**CREATE, "name": name})).raise_for_status()
        (await http.delete(f"{TABLES}/{name}?purgeRequested=true")).raise_for_status()
        if name == "purged":
            assert len(await Purger(gateway.services.gateway, storage={}).purge_due()) == 1
    await admin.change_policy(log_id, OPERATOR, policy_id="p", text=PolicyText(expression="1 == 1", message="never"))
    await admin.create_catalog(log_id, OPERATOR, alias="second", kind="builtin", options={})
    await hold_places(gateway)
    turned = await admin.rotate_key(log_id, OPERATOR, key_id=key_id)
    await admin.rotate_key(log_id, OPERATOR, key_id=turned.key.id, overlap=timedelta(0))
    await admin.revoke_key(log_id, OPERATOR, key_id=key_id)
    made = await admin.create_key(log_id, OPERATOR, identity="eve@acme.example", roles=[])
    done, doubted, _ = [await decide(gateway.services, log_id) for _ in range(3)]
    assert await settle(gateway.services, log_id, done, CommitOutcome.ACCEPTED)
    assert not await settle(gateway.services, log_id, done, CommitOutcome.FAILED), "it is settled already"
    assert await settle(gateway.services, log_id, doubted, CommitOutcome.UNKNOWN)
    await save_note(gateway.services, log_id, 2, 3)
    await record(gateway, replace(scan(), snapshot="1"))
    await record(gateway, replace(scan(), request="somebody asked"))
    for verdict in FindingVerdict:
        await review(gateway, verdict)
    return made.id, made.secret


async def review(gateway: Gateway, verdict: FindingVerdict) -> None:
    """Record that something was found, and say what it is."""
    await append(gateway, ORDERS_KEY, [finding(str((await gateway.http.get(ORDERS)).json()["metadata"]["table-uuid"]))])
    entries = await read_stored(gateway.services, gateway.acme.log_id, key=ORDERS_KEY)
    await gateway.services.gateway.admin.review_finding(
        gateway.acme.log_id,
        OPERATOR,
        finding=entries[-1].entry.index,
        key=ORDERS_KEY,
        verdict=verdict,
        reason="somebody has looked",
    )


async def hold_places(gateway: Gateway) -> None:
    """Register for two places, lose one of them, be granted a third, and tell a table where its data goes."""
    admin, acme = gateway.services.gateway.admin, gateway.acme
    for alias in ("kept", "lost"):
        options = {"uri": "https://far.example", "location": f"s3://{acme.tenant.hex}/{alias}"}
        await admin.create_catalog(acme.log_id, OPERATOR, alias=alias, kind="rest", options=options)
    await admin.retire_catalog(acme.log_id, OPERATOR, alias="lost")
    assert await admin.release_place(acme.log_id, OPERATOR, place=f"s3a://{acme.tenant.hex}/lost/")
    await admin.grant_place(acme.log_id, OPERATOR, place=f"s3://{acme.tenant.hex}/granted")
    folder = f"{gateway.services.gateway.catalogs.warehouse}/{acme.tenant.hex}/lake/data of orders"
    (await gateway.http.post(ORDERS, json=properties(**{"write.data.path": folder}))).raise_for_status()
