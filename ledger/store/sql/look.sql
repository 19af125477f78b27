-- name: entries_found
-- Entries of one stretch of a log that match, the newest first. An entry begins with its actor (docs/formats.md, "Entry").
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
  AND (%(type)s::text IS NULL OR type = %(type)s)
  AND (%(family)s::text IS NULL OR starts_with(type, %(family)s))
  AND (%(key)s::text IS NULL OR key = %(key)s)
  AND (%(key_prefix)s::text IS NULL OR starts_with(key, %(key_prefix)s))
  AND (%(begins)b::bytea[] IS NULL
       OR substring(entry FROM 1 FOR length((%(begins)b::bytea[])[1])) = ANY (%(begins)b::bytea[]))
ORDER BY index DESC
LIMIT %(limit)s

-- name: actors_of_identity
-- Who is meant by the name of an identity: its own actor first, then those of keys that others issued to it; asked as
-- the log's tenant.
SELECT actor FROM ledger.subjects WHERE log_id = %(log_id)s AND identity = %(identity)s
ORDER BY issuer NULLS FIRST

-- name: entries_by_type
-- How many entries of each type one log holds, how many groups they begin, and how long they are.
SELECT type, count(*), count(group_id), sum(length(entry))::bigint, min(index), max(index) FROM ledger.entries
WHERE log_id = %(log_id)s AND index < %(size)s
GROUP BY type
ORDER BY count(*) DESC, type

-- name: parts_held
-- How many payload parts still exist, and how many bytes they take; asked as the log's tenant.
SELECT count(*), coalesce(sum(length(sealed)), 0)::bigint FROM ledger.parts
WHERE log_id = %(log_id)s AND index < %(size)s

-- name: parts_at
-- The names of the payload parts of one entry that still exist; asked as the log's tenant.
SELECT name FROM ledger.parts WHERE log_id = %(log_id)s AND index = %(index)s ORDER BY name

-- name: checkpoints_signed
-- How many checkpoints of a log were signed, the size of the newest, and the time now.
SELECT count(*), coalesce(max(size), 0), clock_timestamp() FROM ledger.checkpoints WHERE log_id = %(log_id)s
