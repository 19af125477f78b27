-- SPDX-License-Identifier: Apache-2.0
-- name: subject_erase
-- Holds if the subject was not erased before.
INSERT INTO ledger.erased_subjects (log_id, subject) VALUES (%(log_id)s, %(subject)s) ON CONFLICT DO NOTHING

-- name: is_known
-- Whether anything about a subject is stored (its identity, or a part), and whether it is marked as erased.
SELECT EXISTS (SELECT FROM ledger.subjects WHERE log_id = %(log_id)s AND actor = %(subject)s)
    OR EXISTS (SELECT FROM ledger.parts WHERE log_id = %(log_id)s AND subject = %(subject)s),
       EXISTS (SELECT FROM ledger.erased_subjects WHERE log_id = %(log_id)s AND subject = %(subject)s)

-- name: other_actors
-- The other actors of the identity behind a subject, which are those of keys that others have issued to it.
SELECT array_agg(actor ORDER BY actor) FROM ledger.actors_beside(%(log_id)s, %(subject)s) AS actor

-- name: erasures_to_do
-- The erasures in the logs that are not executed yet, in order.
SELECT e.log_id, e.index, e.entry FROM ledger.entries AS e
WHERE e.type = 'payload.erased'
  AND NOT EXISTS (SELECT FROM ledger.erasures_done AS d WHERE d.log_id = e.log_id AND d.index = e.index)
ORDER BY e.log_id, e.index

-- name: erased_unrecorded
-- Subjects that are erased here although no log records it yet: neither their own nor, once that is closed, a successor,
-- whose entry names the closed log after the subject.
SELECT s.log_id, s.subject FROM ledger.erased_subjects AS s
WHERE NOT EXISTS (
    SELECT FROM ledger.entries AS e
    WHERE e.type = 'payload.erased' AND split_part(e.key, '/', 1) = 'subject:' || s.subject
      AND (e.log_id = s.log_id OR strpos(e.key, '/') > 0)
)
ORDER BY s.log_id, s.subject

-- name: confirmed_log_ids
-- The logs that accept entries.
SELECT log_id FROM ledger.confirmed_logs

-- name: try_erasure_lock
-- True if no other session executes this erasure; held until `release_erasure_lock` or the end of the session.
SELECT pg_try_advisory_lock(hashtextextended(format('lakeproof erasure %%s %%s', %(log_id)s::int, %(index)s::bigint), 0))

-- name: await_erasure_lock
-- The same, after waiting for it.
SELECT pg_advisory_lock(hashtextextended(format('lakeproof erasure %%s %%s', %(log_id)s::int, %(index)s::bigint), 0))

-- name: release_erasure_lock
-- Let others execute this erasure.
SELECT pg_advisory_unlock(hashtextextended(format('lakeproof erasure %%s %%s', %(log_id)s::int, %(index)s::bigint), 0))

-- name: erased_subjects
-- Every subject that was erased.
SELECT log_id, subject FROM ledger.erased_subjects

-- name: erased_with_remains
-- Erased subjects about whom something is stored again: after a backup was restored, or by a slow process.
SELECT e.log_id, e.subject FROM ledger.erased_subjects AS e
WHERE EXISTS (SELECT FROM ledger.parts AS p WHERE p.log_id = e.log_id AND p.subject = e.subject)
   OR EXISTS (SELECT FROM ledger.subjects AS s WHERE s.log_id = e.log_id AND s.actor = e.subject)

-- name: unrecorded
-- Subjects whose keys were destroyed although this database still holds something about them: it is older than the erasure.
SELECT k.log_id, k.subject
FROM (
    SELECT log_id, actor AS subject FROM ledger.subjects WHERE actor = ANY(%(subjects)s)
    UNION
    SELECT log_id, subject FROM ledger.parts WHERE subject = ANY(%(subjects)s)
) AS k
WHERE NOT EXISTS (SELECT FROM ledger.erased_subjects AS e WHERE e.log_id = k.log_id AND e.subject = k.subject)
ORDER BY k.log_id, k.subject

-- name: delete_identity
-- The identity of a subject.
DELETE FROM ledger.subjects WHERE log_id = %(log_id)s AND actor = %(subject)s

-- name: delete_of_subject
-- Some parts of one subject.
DELETE FROM ledger.parts AS p
USING (
    SELECT log_id, index, name FROM ledger.parts
    WHERE log_id = %(log_id)s AND subject = %(subject)s
    LIMIT %(limit)s
) AS d
WHERE p.log_id = d.log_id AND p.index = d.index AND p.name = d.name

-- name: delete_single
-- One part.
DELETE FROM ledger.parts WHERE log_id = %(log_id)s AND index = %(index)s AND name = %(name)s

-- name: delete_between
-- The parts of one page of entries, of one name or of all, of entries of one type or of all.
DELETE FROM ledger.parts AS p
WHERE p.log_id = %(log_id)s AND p.index >= %(from_index)s AND p.index < %(to_index)s
  AND (%(name)s::text IS NULL OR p.name = %(name)s)
  AND (%(type)s::text IS NULL OR EXISTS (
      SELECT FROM ledger.entries AS e WHERE e.log_id = p.log_id AND e.index = p.index AND e.type = %(type)s
  ))

-- name: next_part
-- The first entry with a part, from an index on.
SELECT min(index) FROM ledger.parts WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s

-- name: done
-- Record that an erasure was executed.
INSERT INTO ledger.erasures_done (log_id, index) VALUES (%(log_id)s, %(index)s) ON CONFLICT DO NOTHING

-- name: entry_at
-- One entry.
SELECT entry FROM ledger.entries WHERE log_id = %(log_id)s AND index = %(index)s

-- name: key_folder
-- Remember the key folder, unless one is known; returns the known one.
WITH made AS (INSERT INTO ledger.key_folder (id) VALUES (%(id)s) ON CONFLICT DO NOTHING RETURNING id)
SELECT id FROM made UNION ALL SELECT id FROM ledger.key_folder LIMIT 1

-- name: vacuum_parts
-- Make the space of deleted rows available.
VACUUM ledger.parts

-- name: rewrite_subjects
-- Rewrite a table without deleted rows: plain VACUUM leaves bytes in the gaps of its pages.
VACUUM FULL ledger.subjects

-- name: erasure_of_key
-- The first erasure of one person, part or age in a log.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND type = 'payload.erased' AND key = %(key)s
ORDER BY index LIMIT 1

-- name: erasure_in_successors
-- The first erasure of one person, part or age of a closed log, in its successors.
SELECT log_id, index FROM ledger.entries
WHERE log_id = ANY(%(log_ids)s) AND type = 'payload.erased' AND key = %(key)s
ORDER BY log_id, index LIMIT 1
