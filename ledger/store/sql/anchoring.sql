-- SPDX-License-Identifier: Apache-2.0
-- name: anchoring_states
-- The newest signed checkpoint of every log but the system's own, with its newest anchor in the system log.
SELECT l.log_id, l.origin, c.size, c.note, a.entry
FROM ledger.logs AS l
JOIN unnest(%(origins)s::text[], %(keys)s::text[]) AS k (origin, key) USING (origin)
LEFT JOIN LATERAL (
    SELECT size, note FROM ledger.checkpoints WHERE checkpoints.log_id = l.log_id ORDER BY size DESC LIMIT 1
) AS c ON true
LEFT JOIN LATERAL (
    SELECT entry FROM ledger.entries
    WHERE entries.log_id = %(system)s AND entries.type = 'logs.anchored' AND entries.key = k.key
    ORDER BY index DESC
    LIMIT 1
) AS a ON true
ORDER BY l.log_id

-- name: anchoring_version
-- How many groups of anchors the system log has: the version of the guarded row that orders those who anchor.
SELECT version FROM ledger.aggregates WHERE log_id = %(log_id)s AND key = %(key)s

-- name: insert_stamp
-- A time stamp on a checkpoint; the first one stays.
INSERT INTO ledger.stamps (log_id, size, gen_time, token)
VALUES (%(log_id)s, %(size)s, %(gen_time)s, %(token)b)
ON CONFLICT DO NOTHING

-- name: insert_cosignatures
-- Cosignatures under a checkpoint; of one key the first one stays.
INSERT INTO ledger.cosignatures (log_id, size, name, key_id, signature)
SELECT %(log_id)s, %(size)s, name, key_id, signature
FROM unnest(%(names)b::text[], %(key_ids)b::bytea[], %(signatures)b::bytea[]) AS s (name, key_id, signature)
ON CONFLICT DO NOTHING

-- name: cosigners_newest_first
-- Whose cosignatures each checkpoint up to a size carries, newest first; with a time of zero they count for nothing.
SELECT size, array_agg(coalesce(name, '')), array_agg(coalesce(key_id, '')) FROM ledger.cosignatures
WHERE log_id = %(log_id)s AND size <= %(to_size)s AND substr(signature, 1, 8) IS DISTINCT FROM '\x0000000000000000'
GROUP BY size
ORDER BY size DESC
LIMIT %(limit)s

-- name: cosigned_checkpoint
-- The newest signed checkpoint up to a size, and the cosignatures under it, in an order that does not change. (NULL, which
-- no schema of ours allows, is given out as nothing, which is no line of a note.)
SELECT c.size, c.note, ARRAY(
    SELECT ROW(coalesce(name, ''), coalesce(key_id, ''), coalesce(signature, ''))
    FROM ledger.cosignatures AS s
    WHERE s.log_id = c.log_id AND s.size = c.size
    ORDER BY s.name, s.key_id
)
FROM ledger.checkpoints AS c
WHERE c.log_id = %(log_id)s AND c.size <= %(to_size)s
ORDER BY c.size DESC
LIMIT 1

-- name: checkpoint_alone
-- The same of a log that nobody cosigns: a tenant's, whose anchors the system log carries.
SELECT size, note, NULL FROM ledger.checkpoints
WHERE log_id = %(log_id)s AND size <= %(to_size)s
ORDER BY size DESC
LIMIT 1

-- name: newest_stamp
-- The newest time stamp on a checkpoint that is not larger than a size. (Its time is what the token says, which nobody
-- believes before the token is verified: a date that no token can have is the nearest that can be read.)
SELECT s.size, c.note, coalesce(s.token, ''), least(greatest(s.gen_time, '0001-01-02 00:00+00'), '9999-12-30 00:00+00')
FROM ledger.stamps AS s JOIN ledger.checkpoints AS c USING (log_id, size)
WHERE log_id = %(log_id)s AND size <= %(to_size)s
ORDER BY size DESC
LIMIT 1

-- name: anchoring_measures
-- For metrics: how far the system log is signed and stamped, and when it was stamped last.
SELECT
    (SELECT max(size) FROM ledger.checkpoints WHERE log_id = %(system)s),
    (SELECT max(size) FROM ledger.stamps WHERE log_id = %(system)s),
    (SELECT max(gen_time) FROM ledger.stamps WHERE log_id = %(system)s)

-- name: put_witness_answers
-- What witnesses have answered last.
INSERT INTO ledger.witness_answers AS a (log_id, witness, size, state, asked_at, message)
SELECT %(log_id)s, witness, %(size)s, state, %(asked_at)s, message
FROM unnest(%(witnesses)s::text[], %(states)s::text[], %(messages)s::text[]) AS s (witness, state, message)
ON CONFLICT (log_id, witness) DO UPDATE
SET size = excluded.size, state = excluded.state, asked_at = excluded.asked_at, message = excluded.message
WHERE a.asked_at <= excluded.asked_at

-- name: witness_answers
-- What each witness has answered last.
SELECT witness, state, asked_at, message FROM ledger.witness_answers WHERE log_id = %(log_id)s

-- name: last_cosignatures
-- The largest checkpoint under which each key has a cosignature, among the last ones, and the octets of its time.
SELECT DISTINCT ON (name, key_id) name, key_id, size, time
FROM (
    SELECT name, key_id, size, substr(signature, 1, 8) AS time FROM ledger.cosignatures
    WHERE log_id = %(log_id)s AND substr(signature, 1, 8) IS DISTINCT FROM '\x0000000000000000'
    ORDER BY size DESC
    LIMIT %(limit)s
) AS s
ORDER BY name, key_id, size DESC

-- name: anchors_around
-- The newest anchor of a log below an index of the system log, and the first one from it on.
SELECT
    (
        SELECT entry FROM ledger.entries
        WHERE log_id = %(system)s AND type = 'logs.anchored' AND key = %(key)s AND index < %(index)s
        ORDER BY index DESC
        LIMIT 1
    ),
    (
        SELECT entry FROM ledger.entries
        WHERE log_id = %(system)s AND type = 'logs.anchored' AND key = %(key)s AND index >= %(index)s
        ORDER BY index
        LIMIT 1
    )
