-- SPDX-License-Identifier: Apache-2.0
-- name: put
-- Messages that cannot be handled; one that is dead already died once more.
INSERT INTO streams.dead_letters AS d (log_id, source, id, index, key, payload, reason, attempts)
SELECT * FROM unnest(%(log_ids)b::integer[], %(sources)b::text[], %(ids)b::text[], %(indices)b::bigint[],
                     %(keys)b::text[], %(payloads)b::bytea[], %(reasons)b::text[], %(attempts)b::integer[])
ON CONFLICT (log_id, source, id) DO UPDATE
SET reason = excluded.reason, died_at = clock_timestamp(), attempts = d.attempts + 1

-- name: read
-- Dead letters, oldest first; a null asks for any.
SELECT g.log_id, g.origin, g.tenant, g.reader, d.source, d.id, d.index, d.key, d.payload, d.reason, d.died_at, d.attempts
FROM streams.dead_letters AS d JOIN ledger.logs AS g USING (log_id)
WHERE (%(log_id)s::integer IS NULL OR d.log_id = %(log_id)s) AND (%(source)s::text IS NULL OR d.source = %(source)s)
    AND (%(id)s::text IS NULL OR d.id = %(id)s)
    AND (%(after)s::timestamptz IS NULL OR (d.died_at, d.log_id, d.source, d.id)
        > (%(after)s, %(after_log_id)s::integer, %(after_source)s::text, %(after_id)s::text))
ORDER BY d.died_at, d.log_id, d.source, d.id
LIMIT %(limit)s

-- name: remove
-- It was handled: part of the transaction that stores what it led to.
DELETE FROM streams.dead_letters WHERE log_id = %(log_id)s AND source = %(source)s AND id = %(id)s
RETURNING id

-- name: delete_older
-- Some messages of a log that were kept for long, the bytes that came with them; of entries nothing is kept here.
DELETE FROM streams.dead_letters AS d
USING (
    SELECT log_id, source, id FROM streams.dead_letters
    WHERE log_id = %(log_id)s AND died_at < %(before)s AND payload IS NOT NULL
    LIMIT %(limit)s
) AS old
WHERE d.log_id = old.log_id AND d.source = old.source AND d.id = old.id

-- name: died_again
-- It was tried once more, in vain.
UPDATE streams.dead_letters SET reason = %(reason)s, attempts = attempts + 1
WHERE log_id = %(log_id)s AND source = %(source)s AND id = %(id)s

-- name: counts
-- How many there are, by source and log.
SELECT d.source, g.log_id, g.origin, g.tenant, g.reader, count(*)
FROM streams.dead_letters AS d JOIN ledger.logs AS g USING (log_id)
GROUP BY 1, 2, 3, 4, 5
ORDER BY g.log_id, d.source
