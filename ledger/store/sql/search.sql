-- SPDX-License-Identifier: Apache-2.0
-- name: entries_found
-- Matching entries in a range of a log, newest first. An entry begins with its actor (docs/formats.md, "Entry").
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

-- name: entries_found_oldest_first
-- The same, oldest first.
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
  AND (%(type)s::text IS NULL OR type = %(type)s)
  AND (%(family)s::text IS NULL OR starts_with(type, %(family)s))
  AND (%(key)s::text IS NULL OR key = %(key)s)
  AND (%(key_prefix)s::text IS NULL OR starts_with(key, %(key_prefix)s))
  AND (%(begins)b::bytea[] IS NULL
       OR substring(entry FROM 1 FOR length((%(begins)b::bytea[])[1])) = ANY (%(begins)b::bytea[]))
ORDER BY index
LIMIT %(limit)s

-- name: actors_of_identity
-- The actors of an identity, by its name: its own first, then those of keys that others issued to it; run as the log's
-- tenant.
SELECT actor FROM ledger.subjects WHERE log_id = %(log_id)s AND identity = %(identity)s
ORDER BY issuer NULLS FIRST

-- name: entries_by_type
-- The number of entries of each type in a log, of groups that they begin, and of their bytes, from an index on.
SELECT type, count(*), count(group_id), sum(length(entry))::bigint, min(index), max(index) FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(size)s
GROUP BY type
ORDER BY count(*) DESC, type

-- name: parts_held
-- The number of payload parts that still exist, and of their bytes; run as the log's tenant.
SELECT count(*), coalesce(sum(length(sealed)), 0)::bigint FROM ledger.parts
WHERE log_id = %(log_id)s AND index < %(size)s

-- name: parts_at
-- The names of the payload parts of one entry that still exist; run as the log's tenant.
SELECT name FROM ledger.parts WHERE log_id = %(log_id)s AND index = %(index)s ORDER BY name

-- name: checkpoints_signed
-- The number of signed checkpoints of a log, the size of the newest, and the current time.
SELECT count(*), coalesce(max(size), 0), clock_timestamp() FROM ledger.checkpoints WHERE log_id = %(log_id)s
