-- name: tiles_and_what_is_below
-- Complete tiles of several places; and for incomplete ones what lies below them, stretch by stretch: leaf hashes, or the
-- roots of complete tiles, and where no root is kept their hashes. In one statement, since asking costs more than reading.
SELECT 'tile', t.level, t.tile, t.hashes
FROM unnest(%(tile_levels)b::smallint[], %(tiles)b::bigint[]) AS w (level, tile)
JOIN ledger.tiles AS t ON t.log_id = %(log_id)s AND t.level = w.level AND t.tile = w.tile
UNION ALL
SELECT 'leaf', 0, e.index, e.leaf
FROM unnest(%(leaf_firsts)b::bigint[], %(leaf_ends)b::bigint[]) AS w (first, ends)
JOIN ledger.entries AS e ON e.log_id = %(log_id)s AND e.index >= w.first AND e.index < w.ends
UNION ALL
SELECT 'root', t.level + 1, t.tile, coalesce(t.root, t.hashes)
FROM unnest(%(root_levels)b::smallint[], %(root_firsts)b::bigint[], %(root_ends)b::bigint[]) AS w (level, first, ends)
JOIN ledger.tiles AS t ON t.log_id = %(log_id)s AND t.level = w.level AND t.tile >= w.first AND t.tile < w.ends

-- name: tile_roots_between
-- What stands one level up for the complete tiles of one stretch: their roots, or their hashes where no root is kept.
SELECT coalesce(root, hashes) FROM ledger.tiles
WHERE log_id = %(log_id)s AND level = %(level)s AND tile >= %(from_tile)s AND tile < %(to_tile)s
ORDER BY tile
