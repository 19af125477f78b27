-- SPDX-License-Identifier: Apache-2.0
-- name: bound_waits
-- A recovery waits for a head no longer than an append may take.
SELECT set_config('lock_timeout', '5s', true)

-- name: lock_head
-- Lock the head of the log that is recovered: nothing is appended meanwhile.
SELECT log_id, size, last, frontier, control_index, recorded_at FROM ledger.heads WHERE log_id = %(log_id)s FOR UPDATE

-- name: replay_entries
-- Entries as they were, with their derived columns.
INSERT INTO ledger.entries (log_id, index, entry, leaf, type, key, is_control, group_id)
SELECT %(log_id)s, index, entry, leaf, type, key, is_control, group_id
FROM unnest(%(indices)s::bigint[], %(entries)s::bytea[], %(leaves)s::bytea[], %(types)s::text[], %(keys)s::text[],
            %(controls)s::boolean[], %(group_ids)s::uuid[])
    AS e (index, entry, leaf, type, key, is_control, group_id)

-- name: replay_parts
-- Their payload parts, sealed again.
INSERT INTO ledger.parts (log_id, index, name, subject, key_id, sealed)
SELECT %(log_id)s, index, name, subject, key_id, sealed
FROM unnest(%(indices)s::bigint[], %(names)s::text[], %(subjects)s::text[], %(key_ids)s::uuid[], %(sealed)s::bytea[])
    AS p (index, name, subject, key_id, sealed)

-- name: replay_tiles
-- The tiles that they complete.
INSERT INTO ledger.tiles (log_id, level, tile, hashes, root)
SELECT %(log_id)s, level, tile, hashes, root
FROM unnest(%(levels)s::smallint[], %(tiles)s::bigint[], %(hashes)s::bytea[], %(roots)s::bytea[])
    AS t (level, tile, hashes, root)

-- name: replay_head
-- The new head of the log.
UPDATE ledger.heads
SET size = %(size)s, last = %(last)s, frontier = %(frontier)s, control_index = %(control)s, recorded_at = %(recorded)s
WHERE log_id = %(log_id)s
