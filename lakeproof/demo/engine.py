# SPDX-License-Identifier: Apache-2.0
"""
What an engine does in the scene: PyIceberg, as any user would use it, over HTTP with an API key.

Blocking, like PyIceberg itself; the scene runs it in threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Barrier
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError
from pyiceberg.types import StringType

from lakeproof.demo import data

ALIAS: Final = "lake"
ORDERS: Final = ("sales", "orders")
CUSTOMERS: Final = ("sales", "eu", "customers")
BUDGETS: Final = ("finance", "budgets")
ORDERS_COUNT: Final = 5_000
CUSTOMERS_COUNT: Final = 1_000
RACE_COMMITS: Final = 4
RACE_ROWS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Where a client connects, with which key, and what it needs for files that are not local."""

    url: str
    key: str = field(repr=False)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def catalog(self, alias: str = ALIAS) -> Catalog:
        """Return a fresh PyIceberg client."""
        return RestCatalog("lakeproof", uri=self.url, warehouse=alias, token=self.key, **self.storage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What an engine wrote and read back."""

    snapshots: int
    orders: int
    customers: int


def write_and_read(client: Client) -> Written:
    """
    Create namespaces and tables (one of them staged), append, change a schema, overwrite, delete, and read back.

    Raises:
        AssertionError: if what was read is not what was written.
    """
    catalog = client.catalog()
    for namespace in (("sales",), ("sales", "eu"), ("finance",)):
        catalog.create_namespace(namespace, {"owner": "scene"} if len(namespace) == 1 else {})
    orders = catalog.create_table(ORDERS, schema=data.ORDERS)
    half = ORDERS_COUNT // 2
    orders.append(data.orders(0, half))
    orders.append(data.orders(half, ORDERS_COUNT - half))
    with catalog.create_table_transaction(CUSTOMERS, schema=data.CUSTOMERS) as staged:
        staged.append(data.customers(CUSTOMERS_COUNT))
    catalog.create_table(BUDGETS, schema=data.BUDGETS).append(data.budgets())
    with orders.update_schema() as schema:
        schema.add_column("channel", StringType())
    orders.overwrite(data.orders(0, 100), overwrite_filter="order_id < 100")
    orders.delete("tenant_id = 'shop-6'")
    return _read_back(catalog)


def _read_back(catalog: Catalog) -> Written:
    orders = catalog.load_table(ORDERS)
    found = orders.scan().to_arrow()
    expected = [number for number in range(ORDERS_COUNT) if number % 7 != 6]
    if sorted(found["order_id"].to_pylist()) != expected or "channel" not in found.column_names:
        raise AssertionError(f"expected orders {len(expected)} with a channel, read {found.num_rows}")
    customers = catalog.load_table(CUSTOMERS).scan().to_arrow().num_rows
    if customers != CUSTOMERS_COUNT:
        raise AssertionError(f"expected {CUSTOMERS_COUNT} customers, read {customers}")
    snapshots = sum(len(catalog.load_table(name).snapshots()) for name in (ORDERS, CUSTOMERS, BUDGETS))
    return Written(snapshots=snapshots, orders=found.num_rows, customers=customers)


def drop_tenant_id(client: Client) -> str:
    """
    Try to drop `tenant_id` from `sales.orders`; return what the gateway said.

    Raises:
        AssertionError: if it was not refused, or the table changed.
    """
    table = client.catalog().load_table(ORDERS)
    before = table.metadata_location
    try:
        with table.update_schema(allow_incompatible_changes=True) as schema:
            schema.delete_column("tenant_id")
    except ForbiddenError as error:
        _check_unchanged(client, ORDERS, before)
        return str(error)
    raise AssertionError("the commit that drops tenant_id was not refused")


def write_budgets(client: Client) -> str:
    """
    Try to append to `finance.budgets`; return what the gateway said.

    Raises:
        AssertionError: if it was not refused, or the table changed.
    """
    table = client.catalog().load_table(BUDGETS)
    before = table.metadata_location
    try:
        table.append(data.budgets())
    except ForbiddenError as error:
        _check_unchanged(client, BUDGETS, before)
        return str(error)
    raise AssertionError("the write to finance was not refused")


def _check_unchanged(client: Client, name: tuple[str, ...], before: str) -> None:
    after = client.catalog().load_table(name).metadata_location
    if after != before:
        raise AssertionError(f"expected {'.'.join(name)} unchanged at {before}, found {after}")


@dataclass(slots=True, kw_only=True)
class Racer:
    """One of two clients that append to one table at the same time."""

    landed: int = 0
    conflicts: int = 0

    def race(self, client: Client, first: int, start: Barrier) -> None:
        """Append `RACE_COMMITS` times, loading the table again after each conflict."""
        catalog = client.catalog()
        start.wait()
        while self.landed < RACE_COMMITS:
            try:
                batch = data.orders(first + self.landed * RACE_ROWS, RACE_ROWS)
                catalog.load_table(ORDERS).append(batch)
                self.landed += 1
            except CommitFailedException:
                self.conflicts += 1


def count_orders(client: Client) -> int:
    """
    Return how many orders the table holds.
    """
    return int(client.catalog().load_table(ORDERS).scan().to_arrow().num_rows)
