-- SPDX-License-Identifier: Apache-2.0
-- name: rows_between
-- Entries with their derived columns, from_index up to, not including, to_index.
SELECT index, entry, leaf, type, key, is_control, group_id::text FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
ORDER BY index

-- name: stored_head
-- The end of a log as its head row has it; its time as entries spell it, or if they cannot, as PostgreSQL does.
SELECT size, last, frontier, control_index,
    CASE WHEN recorded_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
        THEN to_char(recorded_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        ELSE recorded_at::text
    END
FROM ledger.heads WHERE log_id = %(log_id)s

-- name: last_row
-- The entry with the highest index. (NULL would be higher.)
SELECT index, leaf FROM ledger.entries WHERE log_id = %(log_id)s AND index IS NOT NULL ORDER BY index DESC LIMIT 1

-- name: pages
-- Tiles' widths of entries with their derived columns, as PostgreSQL sends records, each with its stored tile and root; for COPY.
SELECT e.rows, t.hashes, t.root
FROM generate_series(%(from_page)s::bigint, %(to_page)s::bigint - 1) AS page
CROSS JOIN LATERAL (
    SELECT string_agg(record_send(row(index, entry, leaf, type, key, is_control, group_id)), ''::bytea ORDER BY index) AS rows
    FROM ledger.entries
    WHERE log_id = %(log_id)s AND index >= 256 * page AND index < least(256 * (page + 1), %(size)s)
) AS e
LEFT JOIN LATERAL (
    SELECT hashes, root FROM ledger.tiles WHERE log_id = %(log_id)s AND level = 0 AND tile = page OFFSET 0
) AS t ON true
ORDER BY page

-- name: export_snapshot
-- What this transaction sees, so that others can see the same.
SELECT pg_export_snapshot()

-- name: stored_tile
-- A tile as it is stored, with its root if that is stored, too.
SELECT hashes, root FROM ledger.tiles WHERE log_id = %(log_id)s AND level = %(level)s AND tile = %(tile)s

-- name: log_of_id
-- Whether there is a log of this number, or of none, that this role may see.
SELECT origin FROM ledger.logs WHERE log_id IS NOT DISTINCT FROM %(log_id)s

-- name: stray_row
-- A row at a place that no log has, or of no log; the constraints against it may have been dropped. Each in the order of
-- its index, so that none is looked for by reading a whole table, whatever the planner knows of it.
(SELECT 'ledger.entries', index FROM ledger.entries WHERE log_id = %(log_id)s AND index < 0 ORDER BY index LIMIT 1)
UNION ALL
(SELECT 'ledger.entries', index FROM ledger.entries WHERE log_id = %(log_id)s AND index IS NULL ORDER BY index LIMIT 1)
UNION ALL
(SELECT 'ledger.entries', NULL FROM ledger.entries WHERE log_id IS NULL ORDER BY log_id LIMIT 1)
UNION ALL
(SELECT 'ledger.checkpoints', size FROM ledger.checkpoints WHERE log_id = %(log_id)s AND size < 0 ORDER BY size LIMIT 1)
UNION ALL
(SELECT 'ledger.checkpoints', size FROM ledger.checkpoints WHERE log_id = %(log_id)s AND size IS NULL ORDER BY size LIMIT 1)
UNION ALL
(SELECT 'ledger.checkpoints', NULL FROM ledger.checkpoints WHERE log_id IS NULL ORDER BY log_id LIMIT 1)
UNION ALL
(SELECT 'ledger.tiles', tile FROM ledger.tiles
WHERE log_id = %(log_id)s AND (tile < 0 OR level < 0 OR level > 7 OR tile IS NULL OR level IS NULL) LIMIT 1)
UNION ALL
(SELECT 'ledger.tiles', NULL FROM ledger.tiles WHERE log_id IS NULL LIMIT 1)
LIMIT 1

-- name: stray_part
-- The first payload part of an entry that the log does not have. (The log may have grown beyond the size meanwhile.)
SELECT p.index, p.name FROM ledger.parts AS p
WHERE p.log_id = %(log_id)s AND (p.index < 0 OR p.index >= %(size)s OR p.index IS NULL)
  AND NOT EXISTS (SELECT FROM ledger.entries AS e WHERE e.log_id = p.log_id AND e.index = p.index)
ORDER BY p.index, p.name LIMIT 1

-- name: surplus_tile
-- A tile that the tree of this size does not have. (A shift by 64 would be one by 0.)
SELECT l.level, t.tile
FROM generate_series(0, 7) AS l (level)
CROSS JOIN LATERAL (
    SELECT tile FROM ledger.tiles
    WHERE log_id = %(log_id)s AND level = l.level AND tile >= %(size)s::bigint >> least(8 * (l.level + 1), 63)
    ORDER BY tile
    LIMIT 1
) AS t
ORDER BY l.level
LIMIT 1

-- name: checkpoints_between
-- Signed checkpoints of sizes above from_size, up to and including to_size.
SELECT size, note FROM ledger.checkpoints
WHERE log_id = %(log_id)s AND size > %(from_size)s AND size <= %(to_size)s
ORDER BY size

-- name: latest_checkpoint_within
-- The newest signed checkpoint that is not larger than a size.
SELECT size, note FROM ledger.checkpoints WHERE log_id = %(log_id)s AND size <= %(size)s ORDER BY size DESC LIMIT 1

-- name: checkpoint_behind
-- The newest signed checkpoint that is larger than a size.
SELECT size, note FROM ledger.checkpoints WHERE log_id = %(log_id)s AND size > %(size)s ORDER BY size DESC LIMIT 1

-- name: parts_with_entries
-- Payload parts that still exist, each with its entry; of nobody who was erased.
SELECT index, p.name, p.subject, p.key_id, p.sealed, e.entry
FROM ledger.parts AS p JOIN ledger.entries AS e USING (log_id, index)
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
  AND NOT EXISTS (
      SELECT FROM ledger.erased_subjects AS x WHERE x.log_id = p.log_id AND x.subject = p.subject
  )
ORDER BY index, p.name
