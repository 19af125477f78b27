-- SPDX-License-Identifier: Apache-2.0
-- name: forward
-- What was recorded before a decision was forwarded: its part `forward`.
SELECT subject, key_id, sealed FROM ledger.parts
WHERE log_id = %(log_id)s AND index = %(index)s AND name = 'forward'

-- name: open_decisions_of_key
-- The decisions that are open on a key, those whose process is at work included.
SELECT
    log_id, decision, key, operation, alias, namespace, name, base, table_uuid, snapshots, owner, deadline,
    requirements, result, is_unknown
FROM gateway.open_decisions
WHERE log_id = %(log_id)s AND key = %(key)s
ORDER BY deadline, decision

-- name: listed
-- The decisions of a log that are open, the oldest first, and what is known of each.
SELECT
    o.decision, o.key, o.operation,
    CASE WHEN o.is_unknown THEN 'unknown' WHEN o.deadline > %(now)s THEN 'at work' ELSE 'due' END,
    o.deadline, e.entry
FROM gateway.open_decisions AS o
JOIN ledger.entries AS e ON e.log_id = o.log_id AND e.group_id = o.decision
WHERE o.log_id = %(log_id)s
ORDER BY o.deadline, o.decision
LIMIT %(limit)s
