-- name: open_decisions_due
-- Decisions whose owner has had its time, over all logs, the longest overdue first.
SELECT
    log_id, decision, key, operation, alias, namespace, name, base, table_uuid, snapshots, owner, deadline,
    requirements, result, is_unknown
FROM gateway.open_decisions
WHERE deadline < %(due_before)s
ORDER BY deadline, log_id, decision
LIMIT %(limit)s
