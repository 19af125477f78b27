-- name: complete_tiles
-- Complete tiles of several places.
SELECT t.level, t.tile, t.hashes
FROM unnest(%(levels)b::smallint[], %(tiles)b::bigint[]) AS w (level, tile)
JOIN ledger.tiles AS t ON t.log_id = %(log_id)s AND t.level = w.level AND t.tile = w.tile

-- name: tile_roots
-- What stands one level up for the complete tiles of several stretches: their roots, or their hashes where no root is kept.
SELECT t.level, t.tile, coalesce(t.root, t.hashes)
FROM unnest(%(levels)b::smallint[], %(firsts)b::bigint[], %(ends)b::bigint[]) AS w (level, first, ends)
JOIN ledger.tiles AS t ON t.log_id = %(log_id)s AND t.level = w.level AND t.tile >= w.first AND t.tile < w.ends
ORDER BY t.level, t.tile

-- name: leaves_of_stretches
-- Leaf hashes of several stretches.
SELECT e.index, e.leaf
FROM unnest(%(firsts)b::bigint[], %(ends)b::bigint[]) AS w (first, ends)
JOIN ledger.entries AS e ON e.log_id = %(log_id)s AND e.index >= w.first AND e.index < w.ends
ORDER BY e.index

-- name: tile_roots_between
-- The same for one stretch of one level.
SELECT coalesce(root, hashes) FROM ledger.tiles
WHERE log_id = %(log_id)s AND level = %(level)s AND tile >= %(from_tile)s AND tile < %(to_tile)s
ORDER BY tile
