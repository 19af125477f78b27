-- SPDX-License-Identifier: Apache-2.0
-- name: lock_heads
-- Lock the heads of a batch in the same order everywhere; skip a head that another process holds. The clock is read after
-- each lock. Each batch reads whether the log is confirmed and the server durable: both change under open connections.
SELECT log_id, size, last, frontier, control_index, recorded_at, clock_timestamp(),
       (SELECT true FROM ledger.confirmed_logs AS c WHERE c.log_id = locked.log_id), current_setting('fsync')
FROM (
    SELECT log_id, size, last, frontier, control_index, recorded_at
    FROM ledger.heads
    WHERE log_id = ANY(%(log_ids)s)
    ORDER BY log_id
    FOR UPDATE SKIP LOCKED
) AS locked

-- name: lock_head
-- Lock one head, waiting for it (lock_timeout bounds the wait).
SELECT log_id, size, last, frontier, control_index, recorded_at, clock_timestamp(),
       (SELECT true FROM ledger.confirmed_logs AS c WHERE c.log_id = locked.log_id), current_setting('fsync')
FROM (
    SELECT log_id, size, last, frontier, control_index, recorded_at
    FROM ledger.heads
    WHERE log_id = %(log_id)s
    FOR UPDATE
) AS locked

-- name: hold_heads
-- Fail unless this transaction holds these heads already, or can lock them at once.
SELECT FROM ledger.heads WHERE log_id = ANY(%(log_ids)s) ORDER BY log_id FOR UPDATE NOWAIT

-- name: expect_head
-- Lock one head, and fail unless it is free and still as expected, the log confirmed, the server durable, and its clock not
-- before the time that the entries were given, and at most a second behind it. The text is what the server logs.
SELECT CASE count(*) FILTER (
    WHERE size = %(size)s AND last = %(last)b AND frontier = %(frontier)b AND control_index = %(control)s
      AND recorded_at = %(recorded)s
      AND EXISTS (SELECT FROM ledger.confirmed_logs AS c WHERE c.log_id = locked.log_id)
      AND current_setting('fsync') = 'on'
      AND clock_timestamp() BETWEEN %(clock)s AND %(clock)s + interval '1 second'
) WHEN 1 THEN '1' ELSE 'the head of a log is not as expected' END::integer, max(clock_timestamp())
FROM (
    SELECT log_id, size, last, frontier, control_index, recorded_at
    FROM ledger.heads
    WHERE log_id = %(log_id)s
    FOR UPDATE NOWAIT
) AS locked

-- name: expect_heads
-- The same for several logs, in the same order as everywhere.
SELECT CASE count(*) FILTER (
    WHERE (locked.size, locked.last, locked.frontier, locked.control_index, locked.recorded_at)
        = (e.size, e.last, e.frontier, e.control_index, e.recorded_at)
      AND EXISTS (SELECT FROM ledger.confirmed_logs AS c WHERE c.log_id = locked.log_id)
      AND current_setting('fsync') = 'on'
      AND clock_timestamp() BETWEEN %(clock)s AND %(clock)s + interval '1 second'
) WHEN cardinality(%(log_ids)b::integer[]) THEN '1' ELSE 'the head of a log is not as expected' END::integer,
       max(clock_timestamp())
FROM (
    SELECT log_id, size, last, frontier, control_index, recorded_at
    FROM ledger.heads
    WHERE log_id = ANY(%(log_ids)b::integer[])
    ORDER BY log_id
    FOR UPDATE NOWAIT
) AS locked
JOIN unnest(%(log_ids)b::integer[], %(sizes)b::bigint[], %(lasts)b::bytea[], %(frontiers)b::bytea[],
            %(controls)b::bigint[], %(recorded)b::timestamptz[])
    AS e (log_id, size, last, frontier, control_index, recorded_at) ON e.log_id = locked.log_id

-- name: find_groups
-- First entries of groups that one log already holds. A statement of its own: it must see what was committed before the
-- lock. Its order is that of the index of group ids, so that no other index is used: see `store/session.py`.
SELECT log_id, index, entry FROM ledger.entries WHERE log_id = %(log_id)s AND group_id = ANY(%(group_ids)b)
ORDER BY group_id

-- name: find_groups_of_logs
-- The same for several logs, each with its slice of the ids.
SELECT e.log_id, e.index, e.entry
FROM unnest(%(log_ids)b::integer[], %(firsts)b::integer[], %(lasts)b::integer[]) AS w (log_id, first, last)
CROSS JOIN LATERAL (
    SELECT log_id, index, entry FROM ledger.entries
    WHERE log_id = w.log_id AND group_id = ANY((%(group_ids)b::uuid[])[w.first:w.last])
    ORDER BY group_id
) AS e

-- name: entries_of_groups
-- The entries after the first ones of groups that were found. OFFSET 0 keeps the planner from reversing the join, which
-- reads the whole log once for the groups: 100 s instead of 1 ms in a log of a million entries.
SELECT e.log_id, e.index, e.entry
FROM unnest(%(log_ids)b::integer[], %(firsts)b::bigint[], %(ends)b::bigint[]) AS g (log_id, first, ends)
CROSS JOIN LATERAL (
    SELECT log_id, index, entry FROM ledger.entries
    WHERE log_id = g.log_id AND index > g.first AND index < g.ends
    ORDER BY index OFFSET 0
) AS e

-- name: salts_of_groups
-- Their payload parts that still exist: sealed ones whole, because only that can be opened, of the others the salts.
SELECT p.log_id, p.index, p.name, p.subject, p.key_id,
       CASE WHEN p.key_id IS NULL THEN substring(p.sealed FROM 1 FOR 32) ELSE p.sealed END
FROM unnest(%(log_ids)b::integer[], %(firsts)b::bigint[], %(ends)b::bigint[]) AS g (log_id, first, ends)
CROSS JOIN LATERAL (
    SELECT log_id, index, name, subject, key_id, sealed FROM ledger.parts
    WHERE log_id = g.log_id AND index >= g.first AND index < g.ends
    ORDER BY index OFFSET 0
) AS p

-- name: entries_between
-- Entries from_index up to, not including, to_index.
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
ORDER BY index

-- name: parts_between
-- The payload parts that still exist, sealed = salt || bytes; none about an erased person, even if appended later.
SELECT index, name, subject, key_id, sealed FROM ledger.parts AS p
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
  AND NOT EXISTS (
      SELECT FROM ledger.erased_subjects AS e WHERE e.log_id = p.log_id AND e.subject = p.subject
  )
ORDER BY index, name

-- name: parts_named_between
-- The same of one name, which the primary key tells: the others are not read.
SELECT index, name, subject, key_id, sealed FROM ledger.parts AS p
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s AND name = %(name)s
  AND NOT EXISTS (
      SELECT FROM ledger.erased_subjects AS e WHERE e.log_id = p.log_id AND e.subject = p.subject
  )
ORDER BY index

-- name: parts_of
-- The same of some entries, of some names.
SELECT index, name, subject, key_id, sealed FROM ledger.parts AS p
WHERE log_id = %(log_id)s AND index = ANY(%(indices)s::bigint[]) AND name = ANY(%(names)s::text[])
  AND NOT EXISTS (
      SELECT FROM ledger.erased_subjects AS e WHERE e.log_id = p.log_id AND e.subject = p.subject
  )
ORDER BY index, name

-- name: leaves_between
-- Leaf hashes, for the pending tile of level 0.
SELECT leaf FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
ORDER BY index

-- name: tiles_between
-- Complete tiles of one level.
SELECT tile, hashes FROM ledger.tiles
WHERE log_id = %(log_id)s AND level = %(level)s AND tile >= %(from_tile)s AND tile < %(to_tile)s
ORDER BY tile

-- name: insert_entries
-- The entries of a batch for one log, set-based (COPY and row-level security exclude each other).
INSERT INTO ledger.entries (log_id, index, entry, leaf, type, key, is_control, group_id)
SELECT %(log_id)b::integer, %(first)b::bigint + n - 1, entry, leaf, type, key, is_control, group_id
FROM unnest(%(entries)b::bytea[], %(leaves)b::bytea[], %(types)b::text[], %(keys)b::text[], %(controls)b::boolean[],
            %(group_ids)b::uuid[]) WITH ORDINALITY AS e (entry, leaf, type, key, is_control, group_id, n)

-- name: insert_entries_of_logs
-- The same for several logs.
INSERT INTO ledger.entries (log_id, index, entry, leaf, type, key, is_control, group_id)
SELECT * FROM unnest(%(log_ids)b::integer[], %(indices)b::bigint[], %(entries)b::bytea[], %(leaves)b::bytea[],
                     %(types)b::text[], %(keys)b::text[], %(controls)b::boolean[], %(group_ids)b::uuid[])

-- name: insert_parts
-- The payload parts of a batch.
INSERT INTO ledger.parts (log_id, index, name, subject, key_id, sealed)
SELECT * FROM unnest(%(log_ids)b::integer[], %(indices)b::bigint[], %(names)b::text[], %(subjects)b::text[],
                     %(key_ids)b::uuid[], %(sealed)b::bytea[])

-- name: insert_tiles
-- Tiles that this batch completes, each with its root.
INSERT INTO ledger.tiles (log_id, level, tile, hashes, root)
SELECT * FROM unnest(%(log_ids)b::integer[], %(levels)b::smallint[], %(tiles)b::bigint[], %(hashes)b::bytea[],
                     %(roots)b::bytea[])

-- name: update_heads
-- The new heads of the logs of a batch.
UPDATE ledger.heads AS h
SET size = n.size, last = n.last, frontier = n.frontier, control_index = n.control_index, recorded_at = n.recorded_at
FROM unnest(%(log_ids)b::integer[], %(sizes)b::bigint[], %(lasts)b::bytea[], %(frontiers)b::bytea[],
            %(controls)b::bigint[], %(recorded)b::timestamptz[])
    AS n (log_id, size, last, frontier, control_index, recorded_at)
WHERE h.log_id = n.log_id

-- name: update_head
-- The new head of one log.
UPDATE ledger.heads
SET size = %(size)s, last = %(last)b, frontier = %(frontier)b, control_index = %(control)s, recorded_at = %(recorded)s
WHERE log_id = %(log_id)s

-- name: logs
-- Every log that this role may see.
SELECT log_id, origin, tenant, reader FROM ledger.logs ORDER BY log_id

-- name: log_by_origin
-- One log.
SELECT log_id, origin, tenant, reader FROM ledger.logs WHERE origin = %(origin)s

-- name: logs_to_append_to
-- The origins of these logs, and whether the signer has confirmed them in this database, since the server started.
SELECT l.log_id, l.origin, EXISTS (SELECT FROM ledger.confirmed_logs AS c WHERE c.log_id = l.log_id)
FROM ledger.logs AS l
WHERE l.log_id = ANY(%(log_ids)s)

-- name: head
-- The head of one log, without a lock.
SELECT log_id, size, last, frontier, control_index, recorded_at FROM ledger.heads WHERE log_id = %(log_id)s

-- name: control_entries
-- Control entries after one index, from the partial index.
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND is_control AND index > %(after)s
ORDER BY index
LIMIT %(limit)s

-- name: control_leaves
-- The same, with the leaf hash that was stored with each.
SELECT index, entry, leaf FROM ledger.entries
WHERE log_id = %(log_id)s AND is_control AND index > %(after)s
ORDER BY index
LIMIT %(limit)s

-- name: aggregate_entries
-- The events of one aggregate, in order.
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND is_control AND key = %(key)s
ORDER BY index

-- name: entries_of_aggregates
-- The events of some aggregates, in order, from the partial index.
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND is_control AND key = ANY(%(keys)s::text[])
ORDER BY index

-- name: recorded_events
-- Events or snapshots of one aggregate by version, each with its entry (NULL: there is none). Each entry is looked up
-- separately, for the reason given at `entries_of_groups`.
SELECT r.version, e.index, e.entry
FROM (
    SELECT version, group_id, position FROM ledger.recorded_events
    WHERE log_id = %(log_id)s AND kind = %(kind)s AND originator = %(originator)s
      AND version >= %(least)s AND version <= %(most)s
    ORDER BY version
    LIMIT %(limit)s
) AS r
LEFT JOIN LATERAL (
    SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND group_id = r.group_id ORDER BY group_id LIMIT 1
) AS f ON true
LEFT JOIN LATERAL (
    SELECT index, entry FROM ledger.entries WHERE log_id = %(log_id)s AND index = f.index + r.position LIMIT 1
) AS e ON true
ORDER BY r.version

-- name: recorded_events_newest_first
-- The same from the highest version down.
SELECT r.version, e.index, e.entry
FROM (
    SELECT version, group_id, position FROM ledger.recorded_events
    WHERE log_id = %(log_id)s AND kind = %(kind)s AND originator = %(originator)s
      AND version >= %(least)s AND version <= %(most)s
    ORDER BY version DESC
    LIMIT %(limit)s
) AS r
LEFT JOIN LATERAL (
    SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND group_id = r.group_id ORDER BY group_id LIMIT 1
) AS f ON true
LEFT JOIN LATERAL (
    SELECT index, entry FROM ledger.entries WHERE log_id = %(log_id)s AND index = f.index + r.position LIMIT 1
) AS e ON true
ORDER BY r.version DESC

-- name: entries_of_type
-- Entries of one type from from_index up to, not including, to_index, by the primary key; other entries are skipped.
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s AND type = %(type)s
ORDER BY index
LIMIT %(limit)s

-- name: entries_at
-- The entries at some indices of one log.
SELECT index, entry FROM ledger.entries WHERE log_id = %(log_id)s AND index = ANY(%(indices)b::bigint[])

-- name: newest_of_type
-- The last entry of one type.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND type = %(type)s ORDER BY index DESC LIMIT 1

-- name: latest_checkpoint
-- The newest signed checkpoint of a log.
SELECT size, note FROM ledger.checkpoints WHERE log_id = %(log_id)s ORDER BY size DESC LIMIT 1
