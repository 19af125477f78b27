-- name: tiles_and_what_is_below
-- Complete tiles of several places; and for incomplete ones what lies below them, stretch by stretch: leaf hashes, or the
-- roots of complete tiles, and where no root is kept their hashes. In one statement, since asking costs more than reading.
-- OFFSET 0 keeps the planner from joining the other way round, which reads all tiles of the log for a few.
SELECT 'tile', w.level, w.tile, t.hashes
FROM unnest(%(tile_levels)b::smallint[], %(tiles)b::bigint[]) AS w (level, tile)
CROSS JOIN LATERAL (
    SELECT hashes FROM ledger.tiles WHERE log_id = %(log_id)s AND level = w.level AND tile = w.tile OFFSET 0
) AS t
UNION ALL
SELECT 'leaf', 0, e.index, e.leaf
FROM unnest(%(leaf_firsts)b::bigint[], %(leaf_ends)b::bigint[]) AS w (first, ends)
CROSS JOIN LATERAL (
    SELECT index, leaf FROM ledger.entries
    WHERE log_id = %(log_id)s AND index >= w.first AND index < w.ends
    ORDER BY index OFFSET 0
) AS e
UNION ALL
SELECT 'root', w.level + 1, t.tile, coalesce(t.root, t.hashes)
FROM unnest(%(root_levels)b::smallint[], %(root_firsts)b::bigint[], %(root_ends)b::bigint[]) AS w (level, first, ends)
CROSS JOIN LATERAL (
    SELECT tile, root, hashes FROM ledger.tiles
    WHERE log_id = %(log_id)s AND level = w.level AND tile >= w.first AND tile < w.ends
    ORDER BY tile OFFSET 0
) AS t

-- name: tile_roots_between
-- What stands one level up for the complete tiles of one stretch: their roots, or their hashes where no root is kept.
SELECT coalesce(root, hashes) FROM ledger.tiles
WHERE log_id = %(log_id)s AND level = %(level)s AND tile >= %(from_tile)s AND tile < %(to_tile)s
ORDER BY tile
