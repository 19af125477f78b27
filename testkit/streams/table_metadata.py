# SPDX-License-Identifier: Apache-2.0
"""Metadata files of Iceberg tables, with their snapshots."""

from __future__ import annotations

import json

TABLE_UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


def metadata(*snapshots: int, uuid: str = TABLE_UUID) -> bytes:
    """A table's metadata file with snapshots that follow one another."""
    parents = (None, *snapshots)
    return json.dumps(
        {
            "format-version": 2,
            "table-uuid": uuid,
            "snapshots": [
                {"snapshot-id": id_, "parent-snapshot-id": parent, "summary": {"operation": "append"}}
                for id_, parent in zip(snapshots, parents, strict=False)
            ],
        }
    ).encode()
