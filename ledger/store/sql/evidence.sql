-- SPDX-License-Identifier: Apache-2.0
-- name: group_index
-- The index of the first entry of a group.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND group_id = %(group_id)s

-- name: entries_containing
-- Entries that contain each of some texts, in order.
SELECT entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(first)s AND index < %(end)s
  AND NOT EXISTS (SELECT FROM unnest(%(texts)b::bytea[]) AS t (text) WHERE position(t.text IN entry) = 0)
ORDER BY index
LIMIT %(limit)s

-- name: entries_about
-- Entries about a key, in order.
SELECT entry FROM ledger.entries
WHERE log_id = %(log_id)s AND key = %(key)s AND index >= %(first)s AND index < %(end)s
ORDER BY index
LIMIT %(limit)s

-- name: newest_anchor
-- The newest anchor of a log in the first entries of the system log.
SELECT entry FROM ledger.entries
WHERE log_id = %(log_id)s AND key = %(key)s AND type = 'logs.anchored' AND index < %(size)s
ORDER BY index DESC
LIMIT 1

-- name: checkpoint_at
-- The signed checkpoint of one size.
SELECT note FROM ledger.checkpoints WHERE log_id = %(log_id)s AND size = %(size)s
