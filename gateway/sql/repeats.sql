-- SPDX-License-Identifier: Apache-2.0
-- name: decisions
-- The first entries of those of some groups that are in the log.
SELECT group_id, entry FROM ledger.entries WHERE log_id = %(log_id)s AND group_id = ANY(%(group_ids)s)

-- name: entries_behind
-- The entries right behind an index: the others of its group, and what follows.
SELECT entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index > %(index)s
ORDER BY index
LIMIT %(limit)s

-- name: outcomes
-- The outcomes on a key behind an index, the nearest first: that of a decision comes soon after it.
SELECT entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index > %(index)s AND type = 'commit.settled' AND key = %(key)s
ORDER BY index
LIMIT %(limit)s

-- name: message
-- What the caller was told: the part `message` of a decision.
SELECT subject, key_id, sealed FROM ledger.parts AS p
WHERE log_id = %(log_id)s AND index = %(index)s AND name = 'message'
  AND NOT EXISTS (SELECT FROM ledger.erased_subjects AS e WHERE e.log_id = p.log_id AND e.subject = p.subject)
