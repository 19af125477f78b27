-- SPDX-License-Identifier: Apache-2.0
-- name: put
-- Messages that are to leave, in their order; one that waits already is not put twice.
INSERT INTO streams.outbox (log_id, sink, id, key, payload)
SELECT %(log_id)s, m.sink, m.id, m.key, m.payload
FROM unnest(%(sinks)b::text[], %(ids)b::text[], %(keys)b::text[], %(payloads)b::bytea[])
    WITH ORDINALITY AS m (sink, id, key, payload, n)
ORDER BY m.n
ON CONFLICT DO NOTHING

-- name: ensure_leases
-- Every sink has a lease for every log that something leaves from.
INSERT INTO streams.leases (duty, log_id)
SELECT 'sink:' || s.sink, %(log_id)s FROM unnest(%(sinks)s::text[]) AS s (sink)
ON CONFLICT DO NOTHING

-- name: claim
-- Lease a sink and the log that has waited longest, of those from which a message is due.
UPDATE streams.leases AS l
SET lease = gen_random_uuid(), free_at = clock_timestamp() + %(lease_s)s * interval '1 second'
FROM (
    SELECT f.duty, f.log_id
    FROM streams.leases AS f
    WHERE f.duty = 'sink:' || %(sink)s AND f.free_at <= clock_timestamp()
        AND EXISTS (
            SELECT FROM streams.outbox AS o
            WHERE o.sink = %(sink)s AND o.log_id = f.log_id AND o.due_at <= clock_timestamp()
                AND NOT EXISTS (
                    SELECT FROM streams.outbox AS p
                    WHERE p.sink = o.sink AND p.log_id = o.log_id
                        AND hashtextextended(p.key, 0) = hashtextextended(o.key, 0) AND p.attempts > 0
                        AND p.due_at > clock_timestamp()
                )
        )
    ORDER BY f.free_at
    LIMIT 1
    FOR UPDATE OF f SKIP LOCKED
) AS free
WHERE l.duty = free.duty AND l.log_id = free.log_id
RETURNING l.duty, l.log_id, l.lease, l.failures

-- name: due
-- The next messages, in order; those behind one of the same key that was put off wait with it.
SELECT o.id, o.key, o.payload, o.attempts, g.origin, g.tenant, g.reader
FROM streams.outbox AS o JOIN ledger.logs AS g USING (log_id)
WHERE o.sink = %(sink)s AND o.log_id = %(log_id)s
    AND NOT EXISTS (
        SELECT FROM streams.outbox AS p
        WHERE p.sink = o.sink AND p.log_id = o.log_id
            AND hashtextextended(p.key, 0) = hashtextextended(o.key, 0) AND p.attempts > 0
            AND p.due_at > clock_timestamp()
    )
ORDER BY o.position
LIMIT %(limit)s

-- name: remove
-- Taken, or dead.
DELETE FROM streams.outbox WHERE sink = %(sink)s AND log_id = %(log_id)s AND id = ANY(%(ids)s)

-- name: postpone
-- To be tried again, later each time unless the sink said when.
UPDATE streams.outbox AS o
SET attempts = o.attempts + 1, due_at = clock_timestamp() + interval '1 second'
    * coalesce(p.after_s, least(%(pause_s_max)s, %(pause_s)s * 2 ^ least(o.attempts, 30)))
FROM unnest(%(ids)s::text[], %(afters)s::float8[]) AS p (id, after_s)
WHERE o.sink = %(sink)s AND o.log_id = %(log_id)s AND o.id = p.id

-- name: waiting
-- What waits for each sink in each log, since when, and how often it was tried in vain.
SELECT o.sink, g.log_id, g.origin, g.tenant, g.reader, count(*), min(o.created_at),
    extract(epoch FROM clock_timestamp() - min(o.created_at))::float8, max(o.attempts)
FROM streams.outbox AS o JOIN ledger.logs AS g USING (log_id)
GROUP BY 1, 2, 3, 4, 5
ORDER BY g.log_id, o.sink
