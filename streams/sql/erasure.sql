-- SPDX-License-Identifier: Apache-2.0
-- name: dead
-- Some dead letters of a log, behind one.
SELECT source, id, index, key, payload, reason FROM streams.dead_letters
WHERE log_id = %(log_id)s AND (source, id) > (%(source)s, %(id)s)
ORDER BY source, id
LIMIT %(limit)s

-- name: delete_dead
-- A message of others that mentions a person who is erased.
DELETE FROM streams.dead_letters
WHERE log_id = %(log_id)s AND source = %(source)s AND id = %(id)s AND index IS NULL

-- name: rewrite_dead
-- The reason of a letter that is of an entry, without the login.
UPDATE streams.dead_letters SET reason = %(reason)s
WHERE log_id = %(log_id)s AND source = %(source)s AND id = %(id)s

-- name: waiting
-- Some messages of a log that are to leave, behind one.
SELECT position, payload FROM streams.outbox
WHERE log_id = %(log_id)s AND position > %(position)s
ORDER BY position
LIMIT %(limit)s

-- name: rewrite_waiting
-- A message that is to leave, without the login.
UPDATE streams.outbox SET payload = %(payload)s WHERE log_id = %(log_id)s AND position = %(position)s

-- name: answers
-- How hosts have failed to answer; all of them, since a log has few.
SELECT handler, host, reason FROM streams.hosts
WHERE log_id = %(log_id)s AND reason IS NOT NULL AND %(limit)s > 0

-- name: rewrite_answer
-- The same without the login.
UPDATE streams.hosts SET reason = %(reason)s
WHERE log_id = %(log_id)s AND handler = %(handler)s AND host = %(host)s
