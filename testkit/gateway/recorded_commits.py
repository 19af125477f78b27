# SPDX-License-Identifier: Apache-2.0
"""The variables of one commit, and expressions about it: true, false and failing ones, of every kind of node."""

from __future__ import annotations

from typing import Any, Final

_TABLE: Final[dict[str, Any]] = {
    "exists": True,
    "columns": [{"id": 1, "name": "id", "type": "long"}, {"id": 2, "name": "tenant_id", "type": "string"}],
    "properties": {"owner": "ada", "n": "5"},
    "location": "s3://lake/sales/orders",
    "format_version": 2,
}
VARIABLES: Final[dict[str, Any]] = {
    "table": _TABLE,
    "result": {**_TABLE, "properties": {}},
    "commit": {"kind": "table", "operation": "table.commit", "name": "orders", "actions": ["add-snapshot"]},
    "principal": {"roles": ["data-eng"], "sub": "ada"},
}
EXPRESSIONS: Final = (
    "true",
    "false",
    "table.exists",
    "commit.kind == 'table' && table.format_version >= 2",
    "commit.kind == 'view' || principal.sub == 'ada'",
    "table.properties.owner == 'ada' ? commit.name == 'orders' : false",
    "has(table.properties.owner) && !has(result.properties.owner)",
    "'data-eng' in principal.roles",
    "table.columns.all(c, result.columns.exists(r, r.id == c.id))",
    "table.columns.filter(c, c.type == 'long').size() == 1",
    "table.columns.map(c, c.name).exists(n, n.startsWith('tenant'))",
    "table.columns.exists_one(c, c.name == 'id')",
    "table.location.matches('^s3://lake/')",
    "int(table.properties.n) + 1 == 6 && -table.format_version < 0",
    "{'a': [1, 2]}['a'][1] == 2",
    "table.properties.nobody == 'x'",
    "table.properties.nobody == 'x' || table.exists",
    "table.columns[7].name == 'x'",
    "table.format_version / 0 == 1",
    "dyn(table.format_version)",
)
