# SPDX-License-Identifier: Apache-2.0
"""
What was dropped or unregistered and has files still, as the log has it. Through the real routes, with the real catalog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.errors import NotFoundError
from gateway.purging import dropped as dropping
from gateway.purging.dropped import DroppedTables, is_there, read_dropped
from gateway.purging.purger import Purger
from ledger.format import canonical
from projections.errors import StorageUnavailableError
from projections.lake.storage import Storage
from testkit.gateway.log_contents import path_of, read_stored, words
from testkit.gateway.sales import (
    CREATE,
    NAMESPACES,
    ORDERS,
    SALES,
    SCHEMA,
    TABLES,
    another_key,
    before_each_append,
    properties,
)
from testkit.gateway.view_requests import REPORT, VIEWS, view_created
from testkit.servers.chained import register
from testkit.servers.cloud import fresh_cloud, put
from testkit.servers.gateways import Gateway, open_gateway
from testkit.servers.loopback import serve
from testkit.servers.upstream import Upstream, app_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

RENAME = "/v1/iceberg/lake/tables/rename"


async def whole(gateway: Gateway, **options: Any) -> DroppedTables:
    return await read_dropped(gateway.services.gateway, gateway.acme.log_id, storage={}, **options)


async def rows_of(gateway: Gateway, **options: Any) -> list[dict[str, Any]]:
    """What is shown of each, newest first."""
    found = await whole(gateway, **options)
    assert found.is_whole
    return [table.row() for table in found.tables]


async def loaded(http: httpx.AsyncClient, path: str = ORDERS) -> dict[str, Any]:
    """A table or view as it is now."""
    answer: dict[str, Any] = (await http.get(path)).raise_for_status().json()
    return answer


async def drop(http: httpx.AsyncClient, path: str = ORDERS) -> dict[str, Any]:
    """Drop a table or view; return it as it was."""
    last = await loaded(http, path)
    assert (await http.delete(path)).status_code == 204
    return last


async def register_again(http: httpx.AsyncClient, location: str, name: str = "again") -> httpx.Response:
    return await http.post(f"{SALES}/register", json={"name": name, "metadata-location": location})


def names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["table"] for row in rows]


async def test_nothing_dropped_is_an_empty_list(sales: Gateway) -> None:
    assert await whole(sales) == DroppedTables(tables=[], is_whole=True)


async def test_a_table_that_was_dropped_is_shown_with_where_its_files_are(sales: Gateway) -> None:
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    last = await drop(sales.http)
    (told,) = [
        each
        for each in await read_stored(sales.services, sales.acme.log_id)
        if each.words == "approved" and each.decided.operation == "table.drop"
    ]
    assert await rows_of(sales) == [
        {
            "dropped_at": canonical.format_time(told.entry.recorded_at),
            "actor": sales.acme.key.actor,
            "operation": "table.drop",
            "catalog": "lake",
            "namespace": ["sales"],
            "name": "orders",
            "table": "lake.sales.orders",
            "table_uuid": last["metadata"]["table-uuid"],
            "metadata_location": last["metadata-location"],
            "metadata_exists": True,
            "places": [last["metadata"]["location"]],
        }
    ]


async def test_a_table_is_shown_with_every_folder_that_it_had(sales: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropping, "RANGE_ENTRIES", 2)
    home = (await loaded(sales.http))["metadata"]["location"]
    beside = f"{home}-beside"
    assert (await sales.http.post(ORDERS, json=properties(**{"write.data.path": beside}))).status_code == 200
    for number in range(3):
        assert (await sales.http.post(ORDERS, json=properties(n=str(number)))).status_code == 200
    await drop(sales.http)
    (row,) = await rows_of(sales)
    assert row["places"] == [home, beside]


async def test_a_drop_that_did_not_happen_is_not_shown(sales: Gateway) -> None:
    eve = sales.client(await another_key(sales))
    assert (await eve.delete(ORDERS)).status_code == 403
    assert (await sales.http.delete(f"{TABLES}/nothing")).status_code == 404
    await sales.services.gateway.admin.create_policy(
        sales.acme.log_id,
        OPERATOR,
        policy_id="kept",
        text=PolicyText(expression="commit.operation != 'table.drop'", message="tables are kept"),
    )
    assert (await sales.http.delete(ORDERS)).status_code == 403
    assert await rows_of(sales) == []


async def test_a_drop_that_lost_against_commits_is_not_shown(sales: Gateway) -> None:
    async def commit_first(number: int) -> None:
        assert (await sales.http.post(ORDERS, json=properties(n=str(number)))).status_code == 200

    async with sales.through(append=before_each_append(sales, commit_first)) as late:
        assert (await late.delete(ORDERS)).status_code == 409
    assert (await words(sales.services, sales.acme.log_id))[-2:] == ["approved", "conflicted"]
    assert await rows_of(sales) == []


async def test_a_name_that_looks_like_a_drop_is_none(sales: Gateway) -> None:
    name = '"operation":"table.drop"'
    assert (await sales.http.post(TABLES, json={**CREATE, "name": name})).status_code == 200
    assert await rows_of(sales) == []


async def test_a_table_that_was_unregistered_is_shown(sales: Gateway) -> None:
    last = await loaded(sales.http)
    assert (await sales.http.post(f"{ORDERS}/unregister")).status_code == 200
    (row,) = await rows_of(sales)
    assert (row["operation"], row["metadata_location"]) == ("table.unregister", last["metadata-location"])


async def test_a_view_that_was_dropped_is_shown(sales: Gateway) -> None:
    assert (await sales.http.post(VIEWS, json=view_created())).status_code == 200
    last = await drop(sales.http, REPORT)
    (row,) = await rows_of(sales)
    assert (row["operation"], row["table"]) == ("view.drop", "lake.sales.report")
    assert (row["table_uuid"], row["places"]) == (last["metadata"]["view-uuid"], [last["metadata"]["location"]])
    assert row["metadata_exists"] is True


async def test_a_table_that_is_purged_is_not_shown_before_nor_after_its_files_are_gone(sales: Gateway) -> None:
    assert (await sales.http.delete(f"{ORDERS}?purgeRequested=true")).status_code == 204
    assert await rows_of(sales) == []
    (completed,) = await Purger(sales.services.gateway, storage={}).purge_due()
    assert completed.fault is None
    assert await rows_of(sales) == []


async def test_a_table_that_is_registered_again_is_in_use_and_shown_once_it_is_dropped_again(sales: Gateway) -> None:
    first = await drop(sales.http)
    assert (await register_again(sales.http, first["metadata-location"])).status_code == 200
    assert await rows_of(sales) == []
    renaming = {
        "source": {"namespace": ["sales"], "name": "again"},
        "destination": {"namespace": ["sales"], "name": "once more"},
    }
    assert (await sales.http.post(RENAME, json=renaming)).status_code == 204
    path = f"{TABLES}/once%20more"
    assert (await sales.http.post(path, json=properties(a="b"))).status_code == 200
    assert await rows_of(sales) == [], "under whatever name"
    last = await drop(sales.http, path)
    (row,) = await rows_of(sales)
    assert (row["table"], row["metadata_location"]) == ("lake.sales.once more", last["metadata-location"])
    assert row["table_uuid"] == first["metadata"]["table-uuid"]


async def test_a_table_that_is_registered_with_an_older_file_of_its_own_is_in_use(sales: Gateway) -> None:
    older = (await loaded(sales.http))["metadata-location"]
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    await drop(sales.http)
    assert (await register_again(sales.http, older)).status_code == 200
    assert await rows_of(sales) == []


async def test_a_table_that_is_registered_again_and_purged_is_not_shown(sales: Gateway) -> None:
    first = await drop(sales.http)
    assert (await register_again(sales.http, first["metadata-location"])).status_code == 200
    assert (await sales.http.delete(f"{TABLES}/again?purgeRequested=true")).status_code == 204
    assert await rows_of(sales) == []
    await Purger(sales.services.gateway, storage={}).purge_due()
    assert not path_of(first["metadata-location"]).exists()
    assert await rows_of(sales) == []


async def test_a_copy_elsewhere_does_not_hide_the_table_that_it_was_made_of(sales: Gateway) -> None:
    first = await drop(sales.http)
    home = first["metadata"]["location"]
    source = path_of(first["metadata-location"])
    copy = path_of(f"{home}-copy") / "metadata" / source.name
    copy.parent.mkdir(parents=True)
    copy.write_text(source.read_text().replace(home, f"{home}-copy"))
    location = first["metadata-location"].replace(home, f"{home}-copy")
    answer = await register_again(sales.http, location)
    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata"]["table-uuid"] == first["metadata"]["table-uuid"]
    (row,) = await rows_of(sales)
    assert (row["metadata_location"], row["places"]) == (first["metadata-location"], [home])


async def test_a_table_that_was_renamed_is_shown_under_its_last_name(sales: Gateway) -> None:
    home = (await loaded(sales.http))["metadata"]["location"]
    beside = f"{home}-beside"
    assert (await sales.http.post(ORDERS, json=properties(**{"write.data.path": beside}))).status_code == 200
    renaming = {
        "source": {"namespace": ["sales"], "name": "orders"},
        "destination": {"namespace": ["sales"], "name": "invoices"},
    }
    assert (await sales.http.post(RENAME, json=renaming)).status_code == 204
    assert await rows_of(sales) == [], "a rename is no drop"
    await drop(sales.http, f"{TABLES}/invoices")
    (row,) = await rows_of(sales)
    assert (row["table"], row["places"]) == ("lake.sales.invoices", [home, beside])


async def test_of_a_table_whose_places_the_log_does_not_have_the_place_of_its_metadata_is_shown(sales: Gateway) -> None:
    """As of entries that are older than the part."""
    home = (await loaded(sales.http))["metadata"]["location"]
    async with await psycopg.AsyncConnection.connect(sales.services.installation.admin_dsn) as admin:
        where = (sales.acme.log_id,)
        deleted = await admin.execute("DELETE FROM ledger.parts WHERE log_id = %s AND name = 'places'", where)
        assert deleted.rowcount == 1
    await drop(sales.http)
    (row,) = await rows_of(sales)
    assert row["places"] == [home]


async def test_tables_of_one_name_are_shown_each(sales: Gateway) -> None:
    dropped = [await drop(sales.http)]
    for _ in range(2):
        assert (await sales.http.post(TABLES, json=CREATE)).status_code == 200
        dropped.append(await drop(sales.http))
    rows = await rows_of(sales)
    assert names(rows) == ["lake.sales.orders"] * 3
    assert [row["table_uuid"] for row in rows] == [each["metadata"]["table-uuid"] for each in dropped[::-1]]
    assert [row["places"] for row in rows] == [[each["metadata"]["location"]] for each in dropped[::-1]]
    assert len({row["table_uuid"] for row in rows}) == 3


async def test_a_table_of_the_same_folder_does_not_hide_the_one_before(sales: Gateway) -> None:
    first = await drop(sales.http)
    again = {**CREATE, "location": first["metadata"]["location"]}
    assert (await sales.http.post(TABLES, json=again)).status_code == 200
    (row,) = await rows_of(sales)
    assert row["table_uuid"] == first["metadata"]["table-uuid"]
    assert (await sales.http.delete(f"{ORDERS}?purgeRequested=true")).status_code == 204
    assert len(await rows_of(sales)) == 1, "a purge deletes the files of the one alone"


async def test_a_metadata_file_that_is_gone_is_said_to_be(sales: Gateway) -> None:
    last = await drop(sales.http)
    path_of(last["metadata-location"]).unlink()
    (row,) = await rows_of(sales)
    assert row["metadata_exists"] is False
    path_of(last["metadata-location"]).mkdir()
    assert (await rows_of(sales))[0]["metadata_exists"] is False, "a folder is no file"


async def test_of_a_file_that_leads_elsewhere_nothing_is_said(sales: Gateway, tmp_path: Path) -> None:
    last = await drop(sales.http)
    path = path_of(last["metadata-location"])
    (tmp_path / "secret").write_bytes(b"")
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    (row,) = await rows_of(sales)
    assert row["metadata_exists"] is None


async def test_a_storage_that_does_not_answer_is_not_asked_again(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await drop(sales.http)
    asked = []

    class Broken:
        def get_file_info(self, path: str) -> None:
            asked.append(path)
            raise OSError("connection refused")

    monkeypatch.setattr(Storage, "filesystem", lambda _, location: (Broken(), location))
    monkeypatch.setattr(dropping, "FILES_AT_ONCE", 1)
    assert (await sales.http.post(TABLES, json=CREATE)).status_code == 200
    await drop(sales.http)
    rows = await rows_of(sales)
    assert [row["metadata_exists"] for row in rows] == [None, None]
    assert asked == [rows[0]["metadata_location"]]


async def test_an_object_store_is_asked_for_one_object(moto: str) -> None:
    cloud = fresh_cloud(moto)
    known = {"s3.region": "us-east-1", "s3.access-key-id": "x", "s3.secret-access-key": "y"}
    location = put(cloud, "w/t/metadata/1.metadata.json", b"{}")
    storage = Storage(properties={**known, "s3.endpoint": cloud.endpoint}, within=(f"s3://{cloud.bucket}/w",))
    for asked, found in (
        (location, True),
        (location.replace("/1.", "/2."), False),
        (location.replace("/w/", "/elsewhere/"), None),
        ("abfss://b@account/1.metadata.json", None),
    ):
        assert await asyncio.to_thread(is_there, storage, asked) is found, asked
    away = Storage(properties={**known, "s3.endpoint": "http://127.0.0.1:9"})
    with pytest.raises(StorageUnavailableError):
        await asyncio.to_thread(is_there, away, location)


async def test_tables_of_a_retired_catalog_are_shown(sales: Gateway) -> None:
    admin = sales.services.gateway.admin
    await admin.create_catalog(sales.acme.log_id, OPERATOR, alias="pond", kind="builtin", options={})
    pond = "/v1/iceberg/pond/namespaces"
    assert (await sales.http.post(pond, json={"namespace": ["sales"]})).status_code == 200
    for name in ("orders", "kept"):
        answer = await sales.http.post(f"{pond}/sales/tables", json={"name": name, "schema": SCHEMA})
        assert answer.status_code == 200
    await drop(sales.http, f"{pond}/sales/tables/orders")
    await admin.retire_catalog(sales.acme.log_id, OPERATOR, alias="pond")
    await drop(sales.http)
    assert names(await rows_of(sales)) == ["lake.sales.orders", "pond.sales.orders"]
    assert names(await rows_of(sales, alias="pond")) == ["pond.sales.orders"]
    assert names(await rows_of(sales, alias="lake")) == ["lake.sales.orders"]
    assert [row["metadata_exists"] for row in await rows_of(sales)] == [True, True]


async def test_a_catalog_that_there_never_was_is_refused(sales: Gateway) -> None:
    with pytest.raises(NotFoundError, match="expected the alias of a built-in catalog"):
        await whole(sales, alias="sea")


async def test_another_tenants_drops_are_not_shown(sales: Gateway) -> None:
    async with open_gateway(sales.services) as other:
        assert (await other.http.post(NAMESPACES, json={"namespace": ["sales"]})).status_code == 200
        assert (await other.http.post(TABLES, json=CREATE)).status_code == 200
        theirs = await drop(other.http)
        assert await rows_of(sales) == []
        ours = await drop(sales.http)
        for gateway, last in ((sales, ours), (other, theirs)):
            assert [row["table_uuid"] for row in await rows_of(gateway)] == [last["metadata"]["table-uuid"]]


async def test_tables_of_a_foreign_catalog_are_not_shown(sales: Gateway) -> None:
    async with serve(app_of(Upstream())) as url:
        await register(sales, "far", url)
        far = "/v1/iceberg/far/namespaces"
        assert (await sales.http.post(far, json={"namespace": ["sales"]})).status_code == 200
        assert (await sales.http.post(f"{far}/sales/tables", json=CREATE)).status_code == 200
        await drop(sales.http, f"{far}/sales/tables/orders")
    assert await rows_of(sales) == []
    with pytest.raises(NotFoundError):
        await whole(sales, alias="far")


@pytest.mark.parametrize(("entries", "decisions"), [(1, 1), (2, 1), (3, 2), (5, 100), (10_000, 1), (10_000, 2)])
async def test_it_does_not_matter_in_how_many_ranges_the_log_is_read(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch, entries: int, decisions: int
) -> None:
    dropped = [await drop(sales.http)]
    assert (await sales.http.post(TABLES, json=CREATE)).status_code == 200
    assert (await sales.http.post(f"{ORDERS}", json=properties(a="b"))).status_code == 200
    dropped.append(await drop(sales.http))
    monkeypatch.setattr(dropping, "RANGE_ENTRIES", entries)
    monkeypatch.setattr(dropping, "PLACED_AT_ONCE", decisions)
    rows = await rows_of(sales)
    assert [row["metadata_location"] for row in rows] == [each["metadata-location"] for each in dropped[::-1]]
    assert [row["places"] for row in rows] == [[each["metadata"]["location"]] for each in dropped[::-1]]


@pytest.mark.parametrize("entries", [1, 10_000])
async def test_so_many_drops_are_looked_at_and_it_is_said_that_there_are_more(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    monkeypatch.setattr(dropping, "RANGE_ENTRIES", entries)
    dropped = [await drop(sales.http)]
    for _ in range(2):
        assert (await sales.http.post(TABLES, json=CREATE)).status_code == 200
        dropped.append(await drop(sales.http))
    for drops_max, is_whole in ((1, False), (2, False), (3, True)):
        found = await whole(sales, drops_max=drops_max)
        assert found.is_whole is is_whole
        expected = [each["metadata-location"] for each in dropped[::-1][:drops_max]]
        assert [table.metadata_location for table in found.tables] == expected
        assert all(table.places for table in found.tables)
