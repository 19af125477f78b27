"""
The statements of one batch with their parameters: a column each, for `unnest`. Pure.

Batches for one log have forms of their own: they are by far the most frequent under load, and a statement costs by its
parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from ledger.read import QUERIES
from ledger.sequence import Group, Head, Row
from ledger.tiles import TILE_WIDTH, Tile

Statement: TypeAlias = tuple[str, dict[str, object]]
"""A query and its parameters by name."""

ROW_SIZE_BYTES: Final = 256
"""About what a row weighs besides its payload: hash, ids, type."""
TILE_SIZE_BYTES: Final = 32 * TILE_WIDTH


def find_groups(groups: Mapping[int, Sequence[Group]]) -> Statement:
    """
    Return the look-up of which groups the logs hold already; rows are (log_id, index, entry) of their first entries.
    """
    if len(groups) == 1:
        ((log_id, wanted),) = groups.items()
        return QUERIES["find_groups"], {"log_id": log_id, "group_ids": [group.id for group in wanted]}
    return QUERIES["find_groups_of_logs"], {
        "log_ids": [log_id for log_id, wanted in groups.items() for _ in wanted],
        "group_ids": [group.id for wanted in groups.values() for group in wanted],
    }


def insert_entries(rows: Mapping[int, Sequence[Row]]) -> Statement:
    """
    Return the INSERT of all entries, by log_id; a log's are in order and without a gap.
    """
    every = [row for of_log in rows.values() for row in of_log]
    columns: dict[str, object] = {
        "entries": [row.entry for row in every],
        "leaves": [row.leaf for row in every],
        "types": [row.type for row in every],
        "keys": [row.key for row in every],
        "controls": [row.is_control for row in every],
        "group_ids": [row.group_id for row in every],
    }
    if len(rows) == 1:
        (log_id,) = rows
        return QUERIES["insert_entries"], {"log_id": log_id, "first": every[0].index, **columns}
    return QUERIES["insert_entries_of_logs"], {
        "log_ids": [log_id for log_id, of_log in rows.items() for _ in of_log],
        "indices": [row.index for row in every],
        **columns,
    }


def insert_parts(rows: Mapping[int, Sequence[Row]]) -> Statement | None:
    """
    Return the INSERT of all payload parts of these rows, or None if there are none.
    """
    parts = [(log_id, row.index, part) for log_id, of_log in rows.items() for row in of_log for part in row.parts]
    if not parts:
        return None
    return QUERIES["insert_parts"], {
        "log_ids": [log_id for log_id, *_ in parts],
        "indices": [index for _, index, _ in parts],
        "names": [part.name for *_, part in parts],
        "subjects": [part.subject for *_, part in parts],
        "sealed": [part.salt + part.payload for *_, part in parts],
    }


def insert_tiles(tiles: Mapping[int, Sequence[Tile]]) -> Statement | None:
    """
    Return the INSERT of complete tiles, or None if there are none.
    """
    every = [(log_id, tile) for log_id, of_log in tiles.items() for tile in of_log]
    if not every:
        return None
    return QUERIES["insert_tiles"], {
        "log_ids": [log_id for log_id, _ in every],
        "levels": [tile.level for _, tile in every],
        "tiles": [tile.index for _, tile in every],
        "hashes": [tile.pack() for _, tile in every],
    }


def update_heads(heads: Mapping[int, Head]) -> Statement:
    """
    Return the UPDATE that moves the heads.
    """
    if len(heads) == 1:
        ((log_id, head),) = heads.items()
        return QUERIES["update_head"], {
            "log_id": log_id,
            "size": head.size,
            "last": head.last,
            "frontier": head.frontier.pack(),
            "control": head.control_index,
            "recorded": head.recorded_at,
        }
    return QUERIES["update_heads"], {
        "log_ids": list(heads),
        "sizes": [head.size for head in heads.values()],
        "lasts": [head.last for head in heads.values()],
        "frontiers": [head.frontier.pack() for head in heads.values()],
        "controls": [head.control_index for head in heads.values()],
        "recorded": [head.recorded_at for head in heads.values()],
    }


def weight_bytes(rows: Mapping[int, Sequence[Row]], tiles: Mapping[int, Sequence[Tile]]) -> int:
    """
    Return about what the parameters of all of these weigh.
    """
    size = 0
    for of_log in rows.values():
        for row in of_log:
            size += len(row.entry) + len(row.key) + ROW_SIZE_BYTES
            for part in row.parts:
                size += len(part.payload) + ROW_SIZE_BYTES
    return size + TILE_SIZE_BYTES * sum(map(len, tiles.values()))
