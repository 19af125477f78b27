-- name: only_rows
-- Read tables from their first page to their last, for the rest of the transaction.
SELECT set_config('enable_seqscan', 'on', true), set_config('enable_indexscan', 'off', true),
       set_config('enable_indexonlyscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'on', true)

-- name: only_indexes
-- Read through indexes, in their order, for the rest of the transaction.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_indexscan', 'on', true),
       set_config('enable_indexonlyscan', 'on', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true)

-- name: totals
-- How many rows each index must lead to, and the sum of their entries' indices.
SELECT count(*), coalesce(sum(index), 0),
       count(group_id), coalesce(sum(index) FILTER (WHERE group_id IS NOT NULL), 0),
       count(*) FILTER (WHERE is_control), coalesce(sum(index) FILTER (WHERE is_control), 0),
       count(*) FILTER (WHERE type IN ('trigger.received', 'commit.settled', 'commit.observed', 'scan.requested')),
       coalesce(sum(index) FILTER (WHERE type IN ('trigger.received', 'commit.settled', 'commit.observed', 'scan.requested')), 0),
       count(*) FILTER (WHERE type = 'payload.erased'), coalesce(sum(index) FILTER (WHERE type = 'payload.erased'), 0),
       count(*) FILTER (WHERE type = 'logs.anchored'), coalesce(sum(index) FILTER (WHERE type = 'logs.anchored'), 0)
FROM ledger.entries WHERE log_id = %(log_id)s AND index < %(size)s

-- name: repeated
-- The first index that several rows carry.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND index < %(size)s
GROUP BY index HAVING count(*) > 1 ORDER BY index LIMIT 1

-- name: entries_pkey
-- All entries, by index.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND index < %(size)s ORDER BY log_id, index

-- name: entries_group
-- First entries of groups, by the group's id.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND index < %(size)s AND group_id IS NOT NULL
ORDER BY log_id, group_id

-- name: entries_control
-- Control entries, by index.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND index < %(size)s AND is_control ORDER BY log_id, index

-- name: entries_control_key
-- Control entries, by key.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND index < %(size)s AND is_control ORDER BY log_id, key, index

-- name: entries_trigger
-- What starts work, by index.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND index < %(size)s
  AND type IN ('trigger.received', 'commit.settled', 'commit.observed', 'scan.requested')
ORDER BY log_id, index

-- name: entries_erasure
-- Erasures, by index.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND index < %(size)s AND type = 'payload.erased'
ORDER BY log_id, index

-- name: entries_anchor
-- Anchors, by the log that they are of.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND index < %(size)s AND type = 'logs.anchored'
ORDER BY log_id, key, index
