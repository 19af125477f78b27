-- name: rows_between
-- Entries with their derived columns, from_index up to, not including, to_index.
SELECT index, entry, leaf, type, key, is_control, group_id FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
ORDER BY index

-- name: last_row
-- The entry with the highest index.
SELECT index, leaf FROM ledger.entries WHERE log_id = %(log_id)s ORDER BY index DESC LIMIT 1

-- name: surplus_tile
-- A tile that the tree of this size does not have. (A shift by 64 would be one by 0.)
SELECT level, tile FROM ledger.tiles
WHERE log_id = %(log_id)s AND tile >= %(size)s::bigint >> least(8 * (level + 1), 63)
ORDER BY level, tile
LIMIT 1

-- name: checkpoints_between
-- Signed checkpoints of sizes above from_size, up to and including to_size.
SELECT size, note FROM ledger.checkpoints
WHERE log_id = %(log_id)s AND size > %(from_size)s AND size <= %(to_size)s
ORDER BY size

-- name: latest_checkpoint_within
-- The newest signed checkpoint that is not larger than a size.
SELECT size, note FROM ledger.checkpoints WHERE log_id = %(log_id)s AND size <= %(size)s ORDER BY size DESC LIMIT 1

-- name: parts_with_entries
-- Payload parts that still exist, each with its entry.
SELECT index, p.name, p.sealed, p.key_id IS NOT NULL, e.entry
FROM ledger.parts AS p JOIN ledger.entries AS e USING (log_id, index)
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
ORDER BY index, p.name
