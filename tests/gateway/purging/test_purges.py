# SPDX-License-Identifier: Apache-2.0
"""
A table that is dropped with a purge loses its files in the background: all of them, no others, whatever happens
meanwhile. Through the real routes, with the files that a real engine has written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.purging.listing import read_purges
from gateway.purging.metrics import read_purge_metrics
from gateway.purging.schedule import HOLD
from ledger.errors import BrokenError, LogUnavailableError
from ledger.format.sequence import Appended, Group, Stale
from projections.errors import StorageUnavailableError
from projections.exposition import format_metrics
from testkit.gateway.log_contents import check_agreement, check_deeply, path_of
from testkit.gateway.purges import LATER, Shop, WatchedDeleter, append_file, make_table, write
from testkit.gateway.sales import NAMESPACES, SCHEMA, TABLES, error_of, properties
from testkit.gateway.shop_rows import SCHEMA as SHOP
from testkit.gateway.shop_rows import rows
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


class KilledError(Exception):
    """The process ends here."""


@pytest_asyncio.fixture(loop_scope="module")
async def shop(shared_gateway: Gateway, module_url: str) -> Shop:
    return Shop(gateway=shared_gateway, url=module_url)


def make_everything(catalog: Catalog) -> Table:
    """A table with old snapshots, a branch, rewritten and deleted files, a delete file and statistics."""
    table = make_table(catalog, properties={"format-version": "2"})
    with table.manage_snapshots() as snapshots:
        snapshots.create_branch(table.snapshots()[0].snapshot_id, "audit")
    table.append(rows(100, 5), branch="audit")
    table.overwrite(rows(0, 3), overwrite_filter="id < 5")
    append_file(table, write(table, "data/deletes.parquet"), DataFileContent.POSITION_DELETES)
    append_file(table, write(table, "data/place=a%2Fb%20c/1.parquet"))
    add_statistics(table)
    return table


def make_some_of_each(catalog: Catalog) -> Table:
    """A table with few files: one of each kind at least."""
    table = catalog.create_table(("sales", "orders"), SHOP)
    table.append(rows(0, 10))
    table.overwrite(rows(0, 3), overwrite_filter="id < 5")
    add_statistics(table)
    return table


def add_statistics(table: Table) -> None:
    members = {
        "snapshot-id": table.snapshots()[0].snapshot_id,
        "statistics-path": write(table, "metadata/1.stats"),
        "file-size-in-bytes": 4,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    with table.update_statistics() as update:
        update.set_statistics(StatisticsFile.model_validate(members))


async def add_partition_statistics(shop: Shop) -> None:
    """PyIceberg cannot; the last metadata file is that of this commit."""
    loaded = (await shop.gateway.http.get(f"{TABLES}/orders")).json()["metadata"]
    location = f"{loaded['location']}/metadata/partitions.parquet"
    path_of(location).write_bytes(b"data")
    file = {"snapshot-id": loaded["current-snapshot-id"], "statistics-path": location, "file-size-in-bytes": 4}
    update = {"action": "set-partition-statistics", "partition-statistics": file}
    answer = await shop.gateway.http.post(f"{TABLES}/orders", json={"requirements": [], "updates": [update]})
    assert answer.status_code == 200, answer.text


async def check(shop: Shop) -> None:
    """Check that log, rows and files agree."""
    await check_agreement(shop.gateway.services, shop.gateway.acme.log_id)
    await check_deeply(shop.gateway.services, shop.gateway.acme.log_id)


async def test_exactly_the_files_of_the_table_are_gone(shop: Shop) -> None:
    await shop.play(lambda catalog: make_table(catalog, "lines"))
    lines = shop.files()
    await shop.play(make_everything)
    await add_partition_statistics(shop)
    orders = shop.files().keys() - lines.keys()
    last = (await shop.gateway.http.get(f"{TABLES}/orders")).json()["metadata-location"]
    size_bytes = sum(len(data) for name, data in shop.files().items() if name in orders)
    assert (await shop.purge("orders")).status_code == 204
    assert (await shop.gateway.http.head(f"{TABLES}/orders")).status_code == 404
    assert shop.files().keys() == lines.keys() | orders, "nothing is deleted while the engine waits"
    (requested,) = await shop.requested()
    await check(shop)
    deleter = WatchedDeleter()
    (completed,) = await shop.purger(deleter).purge_due()
    assert shop.files() == lines
    assert requested.metadata_location == last == deleter.locations[-1]
    assert (completed.deleted, completed.kept, completed.missing) == (len(orders), 0, 0)
    assert (completed.fault, completed.bytes_deleted) == (None, size_bytes)
    assert completed.table_uuid == requested.table_uuid
    assert await shop.completed() == [completed]
    assert await shop.purger(late=LATER).purge_due() == []
    await check(shop)


async def test_metadata_files_that_only_the_log_names_are_gone_too(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.purging.history.PAGE_ENTRIES", 3)
    http, rename = shop.gateway.http, "/v1/iceberg/lake/tables/rename"
    assert (await http.post(NAMESPACES, json={"namespace": ["sales"]})).status_code == 200
    create = {"schema": SCHEMA, "properties": {"write.metadata.previous-versions-max": "1"}}
    for name in ("first", "lines"):
        assert (await http.post(TABLES, json={**create, "name": name})).status_code == 200
    lines, name = shop.files(), "first"
    for new in ("second", "third"):
        for number in range(3):
            assert (await http.post(f"{TABLES}/{name}", json=properties(n=f"{new} {number}"))).status_code == 200
        source, destination = ({"namespace": ["sales"], "name": one} for one in (name, new))
        answer = await http.post(rename, json={"source": source, "destination": destination})
        assert answer.status_code == 204
        name = new
    assert len(shop.files()) == 8
    assert (await shop.purge("third")).status_code == 204
    completed = await shop.purged()
    assert (completed.deleted, completed.missing, completed.kept) == (7, 0, 0)
    assert shop.files() == {name: data for name, data in lines.items() if "lines" in name}


async def test_a_purge_that_is_killed_before_any_deletion_ends_alike(shop: Shop) -> None:
    await shop.play(lambda catalog: make_table(catalog, "lines"))
    lines = shop.files()
    await shop.play(make_some_of_each)
    files = shop.files()
    assert (await shop.purge("orders")).status_code == 204

    async def refuse(_log_id: int, _group: Group) -> Appended | Stale:
        raise LogUnavailableError("the log does not answer")

    def killed_at(number: int) -> Callable[[int], None]:
        def before(count: int) -> None:
            if count == number:
                raise KilledError

        return before

    orders = len(files) - len(lines)
    for number in range(orders):
        deleter = WatchedDeleter(before=killed_at(number))
        with pytest.raises(KilledError):
            await shop.purger(deleter, late=LATER).purge_due()
        assert len(shop.files()) == len(files) - number
        # What it has done is not recorded: everything is deleted, and the log does not answer then.
        assert await shop.purger(late=LATER, append=refuse).purge_due() == []
        assert shop.files() == lines
        assert await shop.completed() == []
        shop.put_back(files)
        async with shop.gateway.services.gateway.database.as_role(shop.gateway.services.gateway.roles.gateway) as row:
            await row.execute("DELETE FROM gateway.purge_attempts")
    assert await shop.purger(late=LATER, append=refuse).purge_due() == []
    (completed,) = await shop.purger(late=2 * LATER).purge_due()
    assert (completed.deleted, completed.kept, completed.missing, completed.fault) == (orders, 0, 0, None)
    assert shop.files() == lines
    await check(shop)


async def test_files_that_another_table_has_taken_in_are_kept(shop: Shop) -> None:
    def play(catalog: Catalog) -> None:
        orders = make_table(catalog)
        taken = str(orders.inspect.files()["file_path"][0])
        catalog.create_table(("sales", "taker"), orders.schema()).add_files([taken])

    await shop.play(play)
    assert (await shop.purge("orders")).status_code == 204
    completed = await shop.purged()
    assert (completed.kept, completed.missing, completed.fault) == (1, 0, None)
    await shop.play(lambda catalog: read(catalog, "taker", count=10))
    assert (await shop.purge("taker")).status_code == 204
    assert (await shop.purged()).kept == 1, "it is outside that table's places"
    assert len(shop.files()) == 1


def read(catalog: Catalog, name: str, *, count: int) -> None:
    assert catalog.load_table(("sales", name)).scan().to_arrow().num_rows == count


async def test_what_is_not_in_the_tables_places_is_kept(shop: Shop, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for folder in (outside, shop.folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "1.parquet").write_bytes(b"data")

    def play(catalog: Catalog) -> None:
        orders = make_table(catalog)
        lines = make_table(catalog, "lines")
        for link, target in (("out", outside), ("in", path_of(lines.location()))):
            path_of(f"{orders.location()}/data/{link}").symlink_to(target)
        path_of(f"{orders.location()}/data/file").symlink_to(outside / "1.parquet")
        lines_file = str(lines.inspect.files()["file_path"][0])
        for location in (
            lines_file,
            f"file://{outside}/1.parquet",
            f"{orders.location()}/../1.parquet",
            f"{orders.location()}/data/%2E%2E/%2E%2E/1.parquet",
            f"{orders.location()}/data/out/1.parquet",
            f"{orders.location()}/data/in/{lines_file.removeprefix(lines.location() + '/')}",
            f"{orders.location()}/data",
            f"{orders.location()}/data/file",
            "s3://elsewhere/1.parquet",
        ):
            append_file(orders, location)

    await shop.play(play)
    before = shop.files()
    assert (await shop.purge("orders")).status_code == 204
    completed = await shop.purged()
    assert (completed.kept, completed.missing, completed.fault) == (8, 0, None)
    gone = before.keys() - shop.files().keys()
    assert {name for name in before if "orders" in name} - gone == {
        name for name in before if name.endswith(("/data/out", "/data/in"))
    }
    assert all("orders" in name for name in gone)
    assert (outside / "1.parquet").read_bytes() == b"data"
    await shop.play(lambda catalog: read(catalog, "lines", count=20))


async def test_nothing_new_is_in_its_places_until_its_files_are_deleted(shop: Shop) -> None:
    await shop.play(make_table)
    loaded = (await shop.gateway.http.get(f"{TABLES}/orders")).json()
    location = loaded["metadata"]["location"]
    assert (await shop.purge("orders")).status_code == 204
    create = {"schema": SCHEMA, "name": "new"}
    for place in (location, f"{location}/below"):
        answer = await shop.gateway.http.post(TABLES, json={**create, "location": place})
        assert (answer.status_code, error_of(answer)["type"]) == (400, "PlaceTakenException"), answer.text
        assert "files of a dropped table are being deleted" in error_of(answer)["message"]
    body = {"name": "again", "metadata-location": loaded["metadata-location"]}
    assert (await shop.gateway.http.post(f"{NAMESPACES}/sales/register", json=body)).status_code == 400
    assert (await shop.gateway.http.post(TABLES, json={**create, "name": "orders"})).status_code == 200, "elsewhere"
    await shop.purged()
    assert (await shop.gateway.http.post(TABLES, json={**create, "location": location})).status_code == 200
    await check(shop)


async def test_a_place_that_a_purge_takes_while_a_create_is_judged_is_refused(shop: Shop) -> None:
    """The guard looks again, in the transaction of the create."""
    await shop.play(make_table)
    location = (await shop.gateway.http.get(f"{TABLES}/orders")).json()["metadata"]["location"]
    admin = await psycopg.AsyncConnection.connect(shop.gateway.services.installation.admin_dsn, autocommit=True)
    assert (await shop.purge("orders")).status_code == 204
    log_id = shop.gateway.acme.log_id

    async def append(to: int, group: Group, **after: Any) -> Appended | Stale:
        await admin.execute("INSERT INTO gateway.purges SELECT * FROM held_purges ON CONFLICT DO NOTHING")
        return await shop.gateway.services.gateway.append(to, group, **after)

    async with admin:
        await admin.execute("CREATE TEMPORARY TABLE held_purges AS SELECT * FROM gateway.purges")
        await admin.execute("DELETE FROM gateway.purges WHERE log_id = %s", (log_id,))
        async with shop.gateway.through(append=append) as http:
            answer = await http.post(TABLES, json={"schema": SCHEMA, "name": "new", "location": location})
        assert (answer.status_code, error_of(answer)["type"]) == (400, "PlaceTakenException"), answer.text
    await shop.purged()
    await check(shop)


async def test_one_process_at_a_time_works_on_a_purge_and_it_is_completed_once(shop: Shop) -> None:
    await shop.play(make_table)
    assert (await shop.purge("orders")).status_code == 204
    reached, go_on = Event(), Event()

    def wait(count: int) -> None:
        if count == 2:
            reached.set()
            assert go_on.wait(30)

    slow = asyncio.create_task(shop.purger(WatchedDeleter(before=wait)).purge_due())
    assert await asyncio.to_thread(reached.wait, 30)
    assert await shop.purger().purge_due() == [], "it is held"
    (completed,) = await shop.purger(late=HOLD + timedelta(seconds=1)).purge_due()
    go_on.set()
    assert await slow == [], "another process was faster"
    assert await shop.completed() == [completed]
    assert completed.fault is None
    assert shop.files() == {}
    await check(shop)


async def test_a_storage_that_does_not_answer_is_asked_again_after_a_pause(shop: Shop) -> None:
    await shop.play(make_table)
    assert (await shop.purge("orders")).status_code == 204

    def fail(_count: int) -> None:
        raise StorageUnavailableError("the store does not answer")

    for attempt in range(2):
        assert await shop.purger(WatchedDeleter(before=fail), late=attempt * LATER).purge_due() == []
    assert await shop.purger().purge_due() == [], "it is not due yet"
    services = shop.gateway.services
    (purge,) = (await read_purges(services.gateway, shop.gateway.acme.log_id)).purges
    assert (purge.problem, purge.completed) == ("the store does not answer", None)
    async with services.gateway.database.as_role(services.gateway.roles.gateway) as connection:
        metrics = format_metrics(await read_purge_metrics(connection))
    for name in ("lakeproof_open_purges", "lakeproof_purges_with_problems"):
        assert f'{name}{{log="{shop.gateway.acme.origin}"}} 1\n' in metrics
    assert (await shop.purger(late=3 * LATER).purge_due())[0].fault is None
    assert shop.files() == {}


async def test_nothing_is_deleted_while_the_files_of_another_table_cannot_be_read(shop: Shop) -> None:
    await shop.play(lambda catalog: [make_table(catalog), make_table(catalog, "lines")])
    lines = (await shop.gateway.http.get(f"{TABLES}/lines")).json()["metadata-location"]
    data = path_of(lines).read_bytes()
    path_of(lines).write_bytes(b"{}")
    assert (await shop.purge("orders")).status_code == 204
    before = shop.files()
    assert await shop.purger().purge_due() == []
    (purge,) = (await read_purges(shop.gateway.services.gateway, shop.gateway.acme.log_id)).purges
    assert "table lake.sales.lines: which files it references cannot be read" in str(purge.problem)
    assert shop.files() == before
    path_of(lines).write_bytes(data)
    assert (await shop.purged()).fault is None


@pytest.mark.parametrize("state", ["gone", "damaged"])
async def test_without_its_metadata_a_purge_is_completed_and_says_so(shop: Shop, state: str) -> None:
    await shop.play(make_table)
    last = path_of((await shop.gateway.http.get(f"{TABLES}/orders")).json()["metadata-location"])
    assert (await shop.purge("orders")).status_code == 204
    if state == "gone":
        last.unlink()
    else:
        last.write_bytes(b"{}")
    before = shop.files()
    completed = await shop.purged()
    counts = {"gone": (0, 0, 1), "damaged": (0, 1, 0)}[state]
    assert (completed.deleted, completed.kept, completed.missing) == counts
    assert "what the table's files were cannot be read" in str(completed.fault)
    assert shop.files() == before
    await check(shop)


async def test_manifests_that_cannot_be_read_are_kept_and_the_rest_is_deleted(shop: Shop) -> None:
    def play(catalog: Catalog) -> None:
        orders = make_table(catalog)
        manifests = orders.inspect.all_manifests()["path"].to_pylist()
        path_of(manifests[0]).write_bytes(b"no manifest")
        path_of(orders.snapshots()[0].manifest_list).write_bytes(b"no manifest list")

    await shop.play(play)
    assert (await shop.purge("orders")).status_code == 204
    completed = await shop.purged()
    assert (completed.kept, completed.missing) == (2, 0)
    assert "expected a manifest" in str(completed.fault)
    assert str(completed.fault).endswith("(and 1 files more)")
    left = shop.files()
    assert sorted(data for data in left.values() if data.startswith(b"no")) == [b"no manifest", b"no manifest list"]
    assert len(left) == 3, "and the data file that only the damaged manifest named"


async def test_policies_see_that_files_are_to_be_deleted(shop: Shop) -> None:
    await shop.play(make_table)
    log_id = shop.gateway.acme.log_id
    await shop.gateway.services.gateway.admin.create_policy(
        log_id, OPERATOR, policy_id="kept", text=PolicyText(expression="!commit.purge", message="files are kept")
    )
    assert (await shop.purge("orders")).status_code == 403
    assert (await shop.gateway.http.delete(f"{TABLES}/orders")).status_code == 204
    assert await shop.requested() == []


@pytest.mark.parametrize("is_held", [True, False])
async def test_a_purge_of_a_retired_catalog_deletes_files_while_the_tenant_holds_the_place(
    shop: Shop, tmp_path: Path, *, is_held: bool
) -> None:
    services, acme = shop.gateway.services, shop.gateway.acme
    admin = services.gateway.admin
    await admin.create_catalog(
        acme.log_id, OPERATOR, alias="other", kind="builtin", options={"location": f"file://{tmp_path}/other"}
    )
    http, namespaces = shop.gateway.http, "/v1/iceberg/other/namespaces"
    assert (await http.post(namespaces, json={"namespace": ["n"]})).status_code == 200
    body = {"schema": SCHEMA, "name": "t", "location": f"file://{tmp_path}/other/t"}
    assert (await http.post(f"{namespaces}/n/tables", json=body)).status_code == 200
    assert (await http.delete(f"{namespaces}/n/tables/t?purgeRequested=true")).status_code == 204
    await admin.retire_catalog(acme.log_id, OPERATOR, alias="other")
    if not is_held:  # another tenant may have it by now
        assert await admin.release_place(acme.log_id, OPERATOR, place=f"file://{tmp_path}/other")
    completed = await shop.purged()
    assert (completed.deleted, completed.kept) == ((1, 0) if is_held else (0, 1))
    assert len(files_below(tmp_path)) == completed.kept


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "tampering",
    [
        "DELETE FROM gateway.purges",
        "UPDATE gateway.purges SET places = '{}', folders = '{}'",
        "UPDATE gateway.purges SET metadata_sha256 = repeat('0', 64)",
    ],
)
async def test_a_row_of_a_purge_that_the_log_does_not_explain_is_found(shop: Shop, tampering: str) -> None:
    http = shop.gateway.http
    assert (await http.post(NAMESPACES, json={"namespace": ["sales"]})).status_code == 200
    assert (await http.post(TABLES, json={"schema": SCHEMA, "name": "orders"})).status_code == 200
    assert (await shop.purge("orders")).status_code == 204
    admin_dsn = shop.gateway.services.installation.admin_dsn
    log_id = shop.gateway.acme.log_id
    async with await psycopg.AsyncConnection.connect(admin_dsn, autocommit=True) as owner:
        await owner.execute(f"{tampering} WHERE log_id = {log_id}".encode())
        with pytest.raises(BrokenError) as caught:
            await check_deeply(shop.gateway.services, log_id)
        await owner.execute("DELETE FROM gateway.purges WHERE log_id = %s", (log_id,))  # nobody attempts it
    assert caught.value.where.startswith("gateway.purges ")


async def test_the_process_completes_purges_as_they_come_and_stops_when_told(shop: Shop) -> None:
    await shop.play(make_table)
    stop, recorded, append = asyncio.Event(), asyncio.Event(), shop.gateway.services.gateway.append

    async def record(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        appended = await append(log_id, group, **after)
        recorded.set()
        return appended

    running = asyncio.create_task(shop.purger(append=record).run(stop, shop.gateway.services.notifier.subscribe()))
    assert (await shop.purge("orders")).status_code == 204
    await asyncio.wait_for(recorded.wait(), 30)
    stop.set()
    await running
    assert len(await shop.completed()) == 1
    assert shop.files() == {}


async def test_an_operator_sees_open_and_completed_purges(shop: Shop) -> None:
    async def listed() -> list[dict[str, Any]]:
        purges = (await read_purges(shop.gateway.services.gateway, shop.gateway.acme.log_id)).purges
        return [purge.row() for purge in purges]

    assert await listed() == []
    await shop.play(lambda catalog: [make_table(catalog), make_table(catalog, "lines")])
    await shop.purge("orders")
    completed = await shop.purged()
    await shop.purge("lines")
    first, second = await listed()
    assert (first["table"], first["state"], first["deleted"]) == ("lake.sales.orders", "completed", completed.deleted)
    assert (second["table"], second["state"], second["kept"]) == ("lake.sales.lines", "open", None)
    await shop.purged()
    assert [each["state"] for each in await listed()] == ["completed", "completed"]
