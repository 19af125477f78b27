# SPDX-License-Identifier: Apache-2.0
"""A small table of orders in shops: its schema, for the catalog and for Arrow, and its rows."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "shop", StringType()))
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("shop", pa.string())])


def rows(first: int, count: int) -> pa.Table:
    numbers = list(range(first, first + count))
    return pa.table({"id": numbers, "shop": [f"shop-{number % 7}" for number in numbers]}, schema=ARROW)
