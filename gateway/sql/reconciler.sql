-- SPDX-License-Identifier: Apache-2.0
-- name: claim_due
-- Hold keys with open decisions past their deadline that are due and that no other process holds.
INSERT INTO gateway.reconcile_looks AS l (log_id, key, held_until)
SELECT o.log_id, o.key, %(held_until)s
FROM gateway.open_decisions AS o LEFT JOIN gateway.reconcile_looks AS k USING (log_id, key)
WHERE o.deadline < %(now)s
GROUP BY o.log_id, o.key, k.held_until, k.next_look_at, k.looked_at
HAVING (k.held_until IS NULL OR k.held_until <= %(now)s)
   AND (k.next_look_at IS NULL OR k.next_look_at <= %(due_before)s OR max(o.deadline) >= k.looked_at)
ORDER BY min(o.deadline), o.log_id, o.key
LIMIT %(limit)s
ON CONFLICT (log_id, key) DO UPDATE SET held_until = excluded.held_until
    WHERE l.held_until IS NULL OR l.held_until <= %(now)s
RETURNING log_id, key, looks, looked_at, read_to, explained

-- name: release_unknown
-- Check again later: a decision on the key is still open.
UPDATE gateway.reconcile_looks
SET looks = %(looks)s, looked_at = %(checked_at)s, next_look_at = %(next_look_at)s, held_until = NULL,
    read_to = %(read_to)s, explained = %(explained)s
WHERE log_id = %(log_id)s AND key = %(key)s

-- name: release_settled
-- Nothing is left to check.
DELETE FROM gateway.reconcile_looks WHERE log_id = %(log_id)s AND key = %(key)s

-- name: let_go
-- Whoever held the key could not check it.
UPDATE gateway.reconcile_looks SET held_until = NULL WHERE log_id = %(log_id)s AND key = %(key)s

-- name: look_again
-- There is news of these keys or their catalog: they are due now.
UPDATE gateway.reconcile_looks SET next_look_at = NULL WHERE log_id = %(log_id)s AND key = ANY(%(keys)s)

-- name: waiting_keys
-- The keys that were looked at in vain, and where their logs end.
SELECT l.log_id, h.size, array_agg(l.key)
FROM gateway.reconcile_looks AS l JOIN ledger.heads AS h USING (log_id)
GROUP BY l.log_id, h.size

-- name: keys_in_the_news
-- Which of some keys a log says something new about, from an index on.
SELECT DISTINCT key FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
  AND type = ANY(%(types)s) AND key = ANY(%(keys)s)

-- name: first_entries
-- The first entries of groups.
SELECT group_id, entry FROM ledger.entries WHERE log_id = %(log_id)s AND group_id = ANY(%(group_ids)s)

-- name: decided_on_key
-- Where the decision on a key is in its group, which begins at an index.
SELECT index FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(index)s AND type = 'commit.decided' AND key = %(key)s
ORDER BY index
LIMIT 1

-- name: outcomes_of_key
-- The outcomes on a key from an index on.
SELECT entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND type = 'commit.settled' AND key = %(key)s
ORDER BY index

-- name: inputs
-- The request: the part `inputs` of a decision.
SELECT subject, key_id, sealed FROM ledger.parts AS p
WHERE log_id = %(log_id)s AND index = %(index)s AND name = 'inputs'
  AND NOT EXISTS (SELECT FROM ledger.erased_subjects AS e WHERE e.log_id = p.log_id AND e.subject = p.subject)

-- name: open_by_log
-- How many decisions are open in each log, and when the first of them should have been settled.
SELECT l.origin, count(*), min(o.deadline)
FROM gateway.open_decisions AS o JOIN ledger.logs AS l USING (log_id)
GROUP BY l.origin
ORDER BY l.origin
