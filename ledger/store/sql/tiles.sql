-- SPDX-License-Identifier: Apache-2.0
-- name: complete_tiles
-- Complete tiles of one level. One statement for each level: joining with the addresses costs more to plan.
SELECT tile, hashes FROM ledger.tiles
WHERE log_id = %(log_id)s AND level = %(level)s AND tile = ANY(%(tiles)b)

-- name: leaves_of_tile
-- The leaf hashes of an incomplete tile of level 0.
SELECT index, leaf FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
ORDER BY index

-- name: tile_roots_between
-- The hashes one level above a range of complete tiles: their roots, or their hashes if no root is stored.
SELECT tile, coalesce(root, hashes) FROM ledger.tiles
WHERE log_id = %(log_id)s AND level = %(level)s AND tile >= %(from_tile)s AND tile < %(to_tile)s
ORDER BY tile
