-- SPDX-License-Identifier: Apache-2.0
-- name: logs
-- How far detection is in each tenant's log, and what it has said there; partial indexes find the entries.
SELECT l.log_id, l.origin, l.tenant,
       (SELECT count(*) FROM ledger.entries AS e
        WHERE e.log_id = l.log_id AND e.index >= coalesce(p.next_index, 0)
          AND e.type IN ('trigger.received', 'commit.settled', 'commit.observed', 'scan.requested')),
       (SELECT count(*) FROM detection.batches AS b WHERE b.log_id = l.log_id AND b.state = 'pinned'),
       (SELECT count(*) FROM detection.batches AS b WHERE b.log_id = l.log_id AND b.state = 'postponed'),
       (SELECT coalesce(max(b.batch), 0) FROM detection.batches AS b WHERE b.log_id = l.log_id),
       (SELECT count(*) FROM ledger.entries AS e WHERE e.log_id = l.log_id AND e.type IN ('scan.completed', 'scan.failed')),
       (SELECT count(*) FROM ledger.entries AS e WHERE e.log_id = l.log_id AND e.type = 'scan.failed'),
       (SELECT count(*) FROM ledger.entries AS e WHERE e.log_id = l.log_id AND e.type = 'detection.found')
FROM ledger.logs AS l LEFT JOIN detection.positions AS p USING (log_id)
WHERE l.tenant IS NOT NULL
ORDER BY l.log_id

-- name: waiting
-- How many entries of one log wait for detection, counted up to a limit, and how many of its ranges are put off.
SELECT
    (SELECT count(*) FROM (
        SELECT FROM ledger.entries AS e
        WHERE e.log_id = %(log_id)s
          AND e.index >= coalesce((SELECT p.next_index FROM detection.positions AS p WHERE p.log_id = %(log_id)s), 0)
          AND e.type IN ('trigger.received', 'commit.settled', 'commit.observed', 'scan.requested')
        LIMIT %(limit)s
    ) AS w),
    (SELECT count(*) FROM detection.batches AS b WHERE b.log_id = %(log_id)s AND b.state = 'postponed')
