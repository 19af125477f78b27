-- SPDX-License-Identifier: Apache-2.0
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

-- name: heads_rows
-- How many head rows the log has, and where it ends.
SELECT count(*), coalesce(max(size), 0) FROM ledger.heads WHERE log_id = %(log_id)s

-- name: tiles_rows
-- How many tiles the log has.
SELECT count(*) FROM ledger.tiles WHERE log_id = %(log_id)s

-- name: entries_rows
-- How many rows each index must lead to, and the sum of their entries' indices.
SELECT count(*), coalesce(sum(index), 0),
       count(group_id), coalesce(sum(index) FILTER (WHERE group_id IS NOT NULL), 0),
       count(*) FILTER (WHERE is_control), coalesce(sum(index) FILTER (WHERE is_control), 0),
       count(*) FILTER (WHERE type IN ('trigger.received', 'commit.settled', 'commit.observed', 'scan.requested')),
       coalesce(sum(index) FILTER (WHERE type IN ('trigger.received', 'commit.settled', 'commit.observed', 'scan.requested')), 0),
       count(*) FILTER (WHERE type = 'payload.erased'), coalesce(sum(index) FILTER (WHERE type = 'payload.erased'), 0),
       count(*) FILTER (WHERE type = 'logs.anchored'), coalesce(sum(index) FILTER (WHERE type = 'logs.anchored'), 0),
       count(*) FILTER (WHERE type = 'schema.recorded'), coalesce(sum(index) FILTER (WHERE type = 'schema.recorded'), 0)
FROM ledger.entries WHERE log_id = %(log_id)s

-- name: checkpoints_rows
-- The same of checkpoints, and the sum of their sizes.
SELECT count(*), coalesce(sum(size), 0) FROM ledger.checkpoints WHERE log_id = %(log_id)s

-- name: parts_rows
-- The same of payload parts, of which an entry has several.
SELECT count(*), coalesce(sum(index), 0),
       count(subject), coalesce(sum(index) FILTER (WHERE subject IS NOT NULL), 0)
FROM ledger.parts WHERE log_id = %(log_id)s

-- name: misplaced
-- The first index that several rows carry, or that no entry of a log of this size has.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s
GROUP BY index HAVING count(*) > 1 OR index < 0 OR index >= %(size)s ORDER BY index LIMIT 1

-- name: entries_pkey
-- All entries, by index.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s ORDER BY log_id, index

-- name: entries_group
-- First entries of groups, by the group's id.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND group_id IS NOT NULL
ORDER BY log_id, group_id

-- name: entries_control
-- Control entries, by index.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND is_control ORDER BY log_id, index

-- name: entries_control_key
-- Control entries, by key.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND is_control ORDER BY log_id, key, index

-- name: entries_trigger
-- What starts work, by index.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s
  AND type IN ('trigger.received', 'commit.settled', 'commit.observed', 'scan.requested')
ORDER BY log_id, index

-- name: entries_erasure
-- Erasures, by index.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND type = 'payload.erased'
ORDER BY log_id, index

-- name: entries_anchor
-- Anchors, by the log that they are of.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND type = 'logs.anchored'
ORDER BY log_id, key, index

-- name: entries_schema
-- Records of the schema, by index.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND type = 'schema.recorded'
ORDER BY log_id, index

-- name: checkpoints_pkey
-- Checkpoints, by size.
SELECT size AS index FROM ledger.checkpoints WHERE log_id = %(log_id)s ORDER BY log_id, size

-- name: parts_pkey
-- Payload parts, by index and name.
SELECT index FROM ledger.parts WHERE log_id = %(log_id)s ORDER BY log_id, index, name

-- name: parts_subject
-- Payload parts of people, by whose they are.
SELECT index FROM ledger.parts WHERE log_id = %(log_id)s AND subject IS NOT NULL ORDER BY log_id, subject
