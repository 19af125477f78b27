-- SPDX-License-Identifier: Apache-2.0
-- name: put_hosts
-- Hosts that messages lead to, where they are new.
INSERT INTO streams.hosts (log_id, handler, host)
SELECT DISTINCT %(log_id)s::integer, %(handler)s::text, h.host FROM unnest(%(hosts)s::text[]) AS h (host)
ON CONFLICT DO NOTHING

-- name: put
-- Messages that lead to hosts; one that is deferred already is not deferred twice.
INSERT INTO streams.deferred (log_id, handler, index, host)
SELECT %(log_id)s, %(handler)s, m.index, m.host
FROM unnest(%(indices)s::bigint[], %(hosts)s::text[]) AS m (index, host)
ON CONFLICT DO NOTHING

-- name: claim
-- Lease a host for which something is due: of the log that was served least recently the host that has waited longest,
-- unless that log has as many in hand as one may have. Two processes that check at once may exceed that by one.
UPDATE streams.hosts AS h
SET lease = gen_random_uuid(), free_at = clock_timestamp() + %(lease_s)s * interval '1 second',
    served_at = clock_timestamp()
FROM (
    SELECT f.log_id, f.handler, f.host
    FROM streams.hosts AS f
    CROSS JOIN LATERAL (
        SELECT max(o.served_at) AS served_at,
            count(*) FILTER (WHERE o.lease IS NOT NULL AND o.free_at > clock_timestamp()) AS leased
        FROM streams.hosts AS o
        WHERE o.log_id = f.log_id AND o.is_quick = %(is_quick)s
    ) AS of_log
    WHERE f.handler = ANY(%(handlers)s) AND (%(log_id)s::integer IS NULL OR f.log_id = %(log_id)s)
        AND f.is_quick = %(is_quick)s AND f.free_at <= clock_timestamp()
        AND EXISTS (
            SELECT FROM streams.deferred AS d
            WHERE d.log_id = f.log_id AND d.handler = f.handler AND d.host = f.host AND d.due_at <= clock_timestamp()
        )
        AND of_log.leased < %(of_log_max)s
    ORDER BY of_log.served_at, f.free_at
    LIMIT 1
    FOR UPDATE OF f SKIP LOCKED
) AS free
WHERE h.log_id = free.log_id AND h.handler = free.handler AND h.host = free.host
RETURNING h.log_id, h.handler, h.host, h.lease

-- name: renew
-- The host takes longer; nothing if somebody else has taken over.
UPDATE streams.hosts SET free_at = clock_timestamp() + %(lease_s)s * interval '1 second'
WHERE log_id = %(log_id)s AND handler = %(handler)s AND host = %(host)s AND lease = %(lease)s

-- name: next
-- The next message that is due for a host.
SELECT d.index, g.origin, g.tenant, g.reader
FROM streams.deferred AS d JOIN ledger.logs AS g USING (log_id)
WHERE d.log_id = %(log_id)s AND d.handler = %(handler)s AND d.host = %(host)s AND d.due_at <= clock_timestamp()
ORDER BY d.due_at, d.index
LIMIT 1

-- name: answered
-- The host has answered: part of the transaction that stores what that led to, which a lease that was taken over must
-- not commit. With hold_s null the lease is given back.
UPDATE streams.hosts
SET is_quick = %(is_quick)s, failures = 0, failing_since = NULL, reason = NULL,
    lease = CASE WHEN %(hold_s)s::float8 IS NULL THEN NULL ELSE lease END,
    free_at = clock_timestamp() + coalesce(%(hold_s)s::float8, 0) * interval '1 second'
WHERE log_id = %(log_id)s AND handler = %(handler)s AND host = %(host)s AND lease = %(lease)s
RETURNING host

-- name: remove
-- It was handled, or is a dead letter.
DELETE FROM streams.deferred WHERE log_id = %(log_id)s AND handler = %(handler)s AND index = %(index)s
RETURNING index

-- name: missed
-- The host has not answered: it is left alone for a while, and longer each time.
UPDATE streams.hosts
SET lease = NULL, is_quick = false, failures = failures + 1, reason = %(reason)s,
    failing_since = coalesce(failing_since, clock_timestamp()),
    free_at = clock_timestamp() + interval '1 second'
        * least(%(pause_s_max)s, %(pause_s)s * %(pause_growth)s ^ least(failures, 30))
WHERE log_id = %(log_id)s AND handler = %(handler)s AND host = %(host)s AND lease = %(lease)s
RETURNING failures

-- name: postpone
-- The message that was tried in vain waits for its own next turn, behind the others of its host.
UPDATE streams.deferred
SET attempts = attempts + 1, due_at = clock_timestamp() + interval '1 second'
    * least(%(pause_s_max)s, %(pause_s)s * %(pause_growth)s ^ least(attempts, 30))
WHERE log_id = %(log_id)s AND handler = %(handler)s AND index = %(index)s
RETURNING attempts

-- name: bury
-- What has waited for a host since before it began to fail becomes dead letters.
WITH gone AS (
    DELETE FROM streams.deferred AS d
    USING streams.hosts AS h
    WHERE h.log_id = %(log_id)s AND h.handler = %(handler)s AND h.host = %(host)s
        AND d.log_id = h.log_id AND d.handler = h.handler AND d.host = h.host AND d.deferred_at <= h.failing_since
    RETURNING d.log_id, d.handler, d.index
)
INSERT INTO streams.dead_letters AS d (log_id, source, id, index, reason, attempts)
SELECT g.log_id, 'handler:' || g.handler, l.origin || '/' || g.index, g.index, %(reason)s, %(attempts)s
FROM gone AS g JOIN ledger.logs AS l USING (log_id)
ON CONFLICT (log_id, source, id) DO UPDATE
SET reason = excluded.reason, died_at = clock_timestamp(), attempts = d.attempts + excluded.attempts

-- name: begin_anew
-- What comes from now on is tried as often as what came before, with the longest pause at first.
UPDATE streams.hosts SET failures = 0, failing_since = NULL
WHERE log_id = %(log_id)s AND handler = %(handler)s AND host = %(host)s

-- name: drop
-- The host was not queried, or did not answer: after a while any process may query it.
UPDATE streams.hosts SET lease = NULL, free_at = clock_timestamp() + %(pause_s)s * interval '1 second'
WHERE log_id = %(log_id)s AND handler = %(handler)s AND host = %(host)s AND lease = %(lease)s

-- name: hosts
-- The hosts that something waits for, or that do not answer.
SELECT h.handler, g.log_id, g.origin, g.tenant, g.reader, h.host, count(d.index), h.failures, h.reason
FROM streams.hosts AS h
JOIN ledger.logs AS g USING (log_id)
LEFT JOIN streams.deferred AS d USING (log_id, handler, host)
GROUP BY 1, 2, 3, 4, 5, 6, 8, 9
HAVING count(d.index) > 0 OR h.failures > 0
ORDER BY g.log_id, h.handler, h.host

-- name: counts
-- How many messages wait for a host, by handler and log, and how often the worst host has not answered in a row.
SELECT h.handler, g.log_id, g.origin, g.tenant, g.reader,
    (SELECT count(*) FROM streams.deferred AS d WHERE d.log_id = g.log_id AND d.handler = h.handler),
    max(h.failures)
FROM streams.hosts AS h JOIN ledger.logs AS g USING (log_id)
GROUP BY 1, 2, 3, 4, 5
ORDER BY g.log_id, h.handler
