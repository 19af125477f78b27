-- SPDX-License-Identifier: Apache-2.0
-- name: logs
-- Every log, or one: its size, that of its newest checkpoint, and whether it takes entries.
SELECT logs.log_id, logs.origin, logs.tenant, heads.size,
       coalesce((SELECT max(size) FROM ledger.checkpoints WHERE checkpoints.log_id = logs.log_id), 0),
       EXISTS (SELECT FROM ledger.confirmed_logs WHERE confirmed_logs.log_id = logs.log_id)
FROM ledger.logs JOIN ledger.heads USING (log_id)
WHERE %(log_id)s::integer IS NULL OR logs.log_id = %(log_id)s
ORDER BY logs.log_id

-- name: clock
-- The server's time.
SELECT clock_timestamp()

-- name: newest_entry
-- The time of the newest entry of all logs, NULL if there is none.
SELECT max(recorded_at) FROM ledger.heads

-- name: left_open
-- How many decisions of a log wait for their outcome, counted up to a limit, and how many messages were given up.
SELECT
    (SELECT count(*) FROM (
        SELECT FROM gateway.open_decisions AS o WHERE o.log_id = %(log_id)s LIMIT %(limit)s
    ) AS waiting),
    (SELECT count(*) FROM (
        SELECT FROM streams.dead_letters AS d WHERE d.log_id = %(log_id)s LIMIT %(limit)s
    ) AS given_up)
