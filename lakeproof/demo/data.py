# SPDX-License-Identifier: Apache-2.0
"""
The rows of the scene: orders and customers, computed, so that every figure it prints can be checked.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import pyarrow as pa

ORDERS: Final = pa.schema(
    [
        pa.field("order_id", pa.int64(), nullable=False),
        pa.field("tenant_id", pa.string(), nullable=False),
        pa.field("customer_id", pa.int64()),
        pa.field("amount", pa.decimal128(12, 2)),
        pa.field("placed_at", pa.timestamp("us", tz="UTC")),
    ]
)
CUSTOMERS: Final = pa.schema(
    [
        pa.field("customer_id", pa.int64(), nullable=False),
        pa.field("tenant_id", pa.string(), nullable=False),
        pa.field("country", pa.string()),
        pa.field("since", pa.date32()),
    ]
)
BUDGETS: Final = pa.schema([pa.field("quarter", pa.string()), pa.field("amount", pa.decimal128(12, 2))])

_FIRST: Final = datetime(2026, 1, 1, tzinfo=UTC)
_COUNTRIES: Final = ("DE", "FR", "IT", "PT", "SE")


def orders(first: int, count: int) -> pa.Table:
    """
    Return orders `first` … `first + count - 1`.
    """
    numbers = range(first, first + count)
    return pa.table(
        {
            "order_id": list(numbers),
            "tenant_id": [f"shop-{number % 7}" for number in numbers],
            "customer_id": [number % 1_000 for number in numbers],
            "amount": [Decimal(number * 37 % 100_000) / 100 for number in numbers],
            "placed_at": [_FIRST + timedelta(minutes=number) for number in numbers],
        },
        schema=ORDERS,
    )


def customers(count: int) -> pa.Table:
    """
    Return customers 0 … `count - 1`.
    """
    return pa.table(
        {
            "customer_id": list(range(count)),
            "tenant_id": [f"shop-{number % 7}" for number in range(count)],
            "country": [_COUNTRIES[number % len(_COUNTRIES)] for number in range(count)],
            "since": [(_FIRST - timedelta(days=number)).date() for number in range(count)],
        },
        schema=CUSTOMERS,
    )


def budgets() -> pa.Table:
    """
    Return four quarters.
    """
    return pa.table(
        {"quarter": ["Q1", "Q2", "Q3", "Q4"], "amount": [Decimal(quarter * 1_000) for quarter in range(1, 5)]},
        schema=BUDGETS,
    )
