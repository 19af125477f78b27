# SPDX-License-Identifier: Apache-2.0
"""
The gateway is killed at each step of a commit: afterwards record and table agree, and an engine simply goes on.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakeproof.provision import Provisioned
from testkit.gateway.log_contents import check_agreement, check_log, path_of, read_stored
from testkit.servers.forked_workers import origin_socket
from testkit.servers.gateways import Gateway
from testkit.system.crashing_gateway import APPEND, POINTS, serve_until_death

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True))
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False)])
FIRST_RECORDED = 11
"""At the end of this step and of those behind it, record and change are durable."""
DEATH_TIMEOUT_S = 60


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=ARROW)


def table_of(point: str) -> tuple[str, str]:
    """Each point has a table of its own."""
    return "sales", f"orders-{point}"


def is_recorded(point: str) -> bool:
    return point != APPEND and int(point) >= FIRST_RECORDED


def rows_after(point: str) -> list[int]:
    return [1, 2, 3, 4, 5] if is_recorded(point) else [1, 2, 3]


def ids(catalog: Catalog, point: str) -> list[int]:
    found: list[int] = catalog.load_table(table_of(point)).scan().to_arrow()["id"].to_pylist()
    return sorted(found)


@contextmanager
def crashing_gateway(
    database: str, installation: Provisioned, directory: Path, point: str
) -> Iterator[tuple[str, BaseProcess]]:
    """Start a gateway that dies at `point`; yields its URL and its process."""
    context = multiprocessing.get_context("forkserver")
    # PyIceberg imports the second one, and pandas with it, when a table is read for the first time.
    context.set_forkserver_preload(["testkit.system.crashing_gateway", "pyiceberg.io.pyarrow"])
    reader, writer = context.Pipe(duplex=False)
    arguments = (database, installation, directory, point, writer, origin_socket())
    process = context.Process(target=serve_until_death, args=arguments, daemon=True)
    process.start()
    writer.close()
    try:
        yield str(reader.recv()), process
    finally:
        process.kill()
        process.join(DEATH_TIMEOUT_S)
        reader.close()


def go_on(catalog: Catalog, crashed_at: str) -> None:
    """Read and write again what a crash was about."""
    assert ids(catalog, crashed_at) == rows_after(crashed_at)
    catalog.load_table(table_of(crashed_at)).append(rows(6))
    assert ids(catalog, crashed_at) == [*rows_after(crashed_at), 6]


def commit_and_crash(catalog: Catalog, process: BaseProcess, point: str) -> None:
    """Append to the table of a gateway that dies of it."""
    orders = catalog.load_table(table_of(point))
    catalog.update_namespace_properties("sales", updates={"next": point})
    with pytest.raises(requests.ConnectionError):
        orders.append(rows(4, 5))
    process.join(DEATH_TIMEOUT_S)
    assert process.exitcode == -signal.SIGKILL


async def check_after(gateway: Gateway, point: str) -> None:
    """Check what the crash at `point` has left."""
    services, log_id = gateway.services, gateway.acme.log_id
    live = await check_agreement(services, log_id)
    await check_log(services, log_id)
    told = await read_stored(services, log_id, key=f"table:lake/sales/orders-{point}")
    assert [one.words for one in told] == ["approved", "accepted"] * (3 if is_recorded(point) else 2)
    _, location, _ = live.tables["lake", ("sales",), f"orders-{point}"]
    named = {one.settled.metadata_location for one in told if one.words == "accepted"}
    on_disk = {f"file://{path}" for path in path_of(location).parent.glob("*.metadata.json")}
    assert named <= on_disk
    assert len(on_disk - named) <= (1 if point == APPEND else 0), "at most what was written while the log was asked"


async def test_record_and_table_agree_after_a_kill_at_any_step(
    gateway: Gateway, database: str, installation: Provisioned, tmp_path: Path
) -> None:
    key = gateway.acme.key.secret

    def connect(url: str) -> Catalog:
        return RestCatalog("test", uri=url, warehouse="lake", token=key)

    crashed_at: str | None = None
    for point in (*POINTS, None):
        # Each process is the restart after the crash of the one before.
        with crashing_gateway(database, installation, tmp_path, point or POINTS[0]) as (url, process):
            catalog = await asyncio.to_thread(connect, url)
            if crashed_at is None:
                await asyncio.to_thread(catalog.create_namespace, "sales")
            else:
                await asyncio.to_thread(go_on, catalog, crashed_at)
            if point is None:
                break
            orders = await asyncio.to_thread(catalog.create_table, table_of(point), SCHEMA)
            await asyncio.to_thread(orders.append, rows(1, 2, 3))
            await asyncio.to_thread(commit_and_crash, catalog, process, point)
        await check_after(gateway, point)
        crashed_at = point
    await check_agreement(gateway.services, gateway.acme.log_id)
    await check_log(gateway.services, gateway.acme.log_id)
