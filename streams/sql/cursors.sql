-- SPDX-License-Identifier: Apache-2.0
-- name: ensure_leases
-- Every handler has a lease for every tenant's log; the system log is of no tenant. What is missing is looked for here and
-- below apart: a log that is made between the two statements has a cursor at first, and its lease the next time.
INSERT INTO streams.leases (duty, log_id)
SELECT 'handler:' || h.handler, g.log_id
FROM unnest(%(handlers)s::text[]) AS h (handler) CROSS JOIN ledger.logs AS g
WHERE g.tenant IS NOT NULL
    AND NOT EXISTS (SELECT FROM streams.leases AS l WHERE l.duty = 'handler:' || h.handler AND l.log_id = g.log_id)
ON CONFLICT DO NOTHING

-- name: ensure_cursors
-- And a cursor, at the first entry.
INSERT INTO streams.cursors (handler, log_id)
SELECT h.handler, g.log_id
FROM unnest(%(handlers)s::text[]) AS h (handler) CROSS JOIN ledger.logs AS g
WHERE g.tenant IS NOT NULL
    AND NOT EXISTS (SELECT FROM streams.cursors AS c WHERE c.handler = h.handler AND c.log_id = g.log_id)
ON CONFLICT DO NOTHING

-- name: claim
-- Lease the handler and log that has waited longest, of those that have something to handle among their next entries, or so
-- many that they must be looked through. The cursor is read afterwards, in a statement of its own: here it may be outdated.
UPDATE streams.leases AS l
SET lease = gen_random_uuid(), free_at = clock_timestamp() + %(lease_s)s * interval '1 second'
FROM (
    SELECT f.duty, f.log_id
    FROM streams.leases AS f
    JOIN streams.cursors AS c ON f.duty = 'handler:' || c.handler AND f.log_id = c.log_id
    JOIN ledger.heads AS h ON h.log_id = c.log_id
    WHERE c.handler = ANY(%(handlers)s) AND (%(log_id)s::integer IS NULL OR c.log_id = %(log_id)s)
        AND c.next_index < h.size AND f.free_at <= clock_timestamp()
        AND (
            h.size - c.next_index >= %(look_entries)s
            OR EXISTS (
                SELECT FROM ledger.entries AS e
                WHERE e.log_id = c.log_id AND e.index >= c.next_index AND e.index < h.size
                    AND (
                        (%(types)s::jsonb -> c.handler) ? '*'
                        OR (%(types)s::jsonb -> c.handler) ? e.type
                    )
            )
        )
    ORDER BY f.free_at
    LIMIT 1
    FOR UPDATE OF f SKIP LOCKED
) AS free
WHERE l.duty = free.duty AND l.log_id = free.log_id
RETURNING l.duty, l.log_id, l.lease, l.failures

-- name: place
-- Where a handler continues, and where the log ends.
SELECT c.next_index, h.size, g.origin, g.tenant, g.reader
FROM streams.cursors AS c JOIN ledger.heads AS h USING (log_id) JOIN ledger.logs AS g USING (log_id)
WHERE c.handler = %(handler)s AND c.log_id = %(log_id)s

-- name: entries_of_types
-- The next entries of some types.
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s AND type = ANY(%(types)s)
ORDER BY index
LIMIT %(limit)s

-- name: move
-- The cursor moves with what the entries before it led to, and only from where they began.
UPDATE streams.cursors SET next_index = %(to_index)s, handled = handled + %(handled)s
WHERE handler = %(handler)s AND log_id = %(log_id)s AND next_index = %(from_index)s
RETURNING handler

-- name: pass_over
-- Cursors before which there is nothing to handle go to the end of their logs; nobody may be at work there.
UPDATE streams.cursors AS c SET next_index = w.size
FROM (
    SELECT p.handler, p.log_id, p.next_index, h.size
    FROM streams.cursors AS p
    JOIN ledger.heads AS h USING (log_id)
    JOIN streams.leases AS l ON l.duty = 'handler:' || p.handler AND l.log_id = p.log_id
    WHERE p.handler = ANY(%(handlers)s) AND (%(log_id)s::integer IS NULL OR p.log_id = %(log_id)s)
        AND p.next_index < h.size AND h.size - p.next_index < %(look_entries)s AND l.free_at <= clock_timestamp()
        AND NOT EXISTS (
            SELECT FROM ledger.entries AS e
            WHERE e.log_id = p.log_id AND e.index >= p.next_index AND e.index < h.size
                AND (
                    (%(types)s::jsonb -> p.handler) ? '*'
                    OR (%(types)s::jsonb -> p.handler) ? e.type
                )
        )
    FOR UPDATE OF p SKIP LOCKED
) AS w
WHERE c.handler = w.handler AND c.log_id = w.log_id AND c.next_index = w.next_index

-- name: progress
-- How far each handler is in each tenant's log, or in one, whether it is put off, and what it could not handle.
SELECT d.handler, g.log_id, g.origin, g.tenant, g.reader, h.size, coalesce(c.next_index, 0), coalesce(c.handled, 0),
    coalesce(l.failures, 0),
    (SELECT count(*) FROM streams.dead_letters AS x WHERE x.log_id = g.log_id AND x.source = 'handler:' || d.handler)
FROM ledger.logs AS g
JOIN ledger.heads AS h USING (log_id)
CROSS JOIN unnest(%(handlers)s::text[]) AS d (handler)
LEFT JOIN streams.cursors AS c ON c.handler = d.handler AND c.log_id = g.log_id
LEFT JOIN streams.leases AS l ON l.duty = 'handler:' || d.handler AND l.log_id = g.log_id
WHERE g.tenant IS NOT NULL AND (%(log_id)s::integer IS NULL OR g.log_id = %(log_id)s)
ORDER BY g.log_id, d.handler
