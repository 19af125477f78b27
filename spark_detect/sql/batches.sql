-- SPDX-License-Identifier: Apache-2.0
-- name: moved_logs
-- Tenants' logs with entries behind their position.
SELECT l.log_id, l.origin, l.tenant, h.size, coalesce(p.next_index, 0)
FROM ledger.heads AS h
JOIN ledger.logs AS l USING (log_id)
LEFT JOIN detection.positions AS p USING (log_id)
WHERE h.size > coalesce(p.next_index, 0) AND l.tenant IS NOT NULL
ORDER BY l.log_id

-- name: entries_of_interest
-- What may lead to a scan, from the partial index: no other entry is read.
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
  AND type IN ('trigger.received', 'commit.settled', 'commit.observed', 'scan.requested')
ORDER BY index
LIMIT %(limit)s

-- name: newest_of_table
-- The newest entries about one table, newest first.
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND key = %(key)s
  AND type IN ('trigger.received', 'commit.settled', 'commit.observed', 'scan.requested')
ORDER BY index DESC
LIMIT %(limit)s

-- name: newest_scanned
-- The metadata file that the last scan of a table has read: of a table that was reported before it had a name.
SELECT s.metadata_location
FROM projections.live AS l JOIN projections.scans AS s USING (log_id, generation)
WHERE l.projection = 'findings' AND l.log_id = %(log_id)s AND s.table_uuid = %(table_uuid)s
ORDER BY s.index DESC
LIMIT 1

-- name: catalog_entries
-- The control entries about catalogs.
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND is_control AND type IN ('catalog.created', 'catalog.retired')
ORDER BY index

-- name: last_batch
-- The highest number of a batch; 0 if there is none.
SELECT coalesce(max(batch), 0) FROM detection.batches

-- name: finished_batch
-- The number up to which every batch is done with.
SELECT coalesce((SELECT min(batch) - 1 FROM detection.batches WHERE state = 'pinned'),
                (SELECT max(batch) FROM detection.batches), 0)

-- name: is_open
-- Whether a range is pinned and not done with, or is due again.
SELECT EXISTS (SELECT FROM detection.batches WHERE state = 'pinned' OR state = 'postponed' AND due_at <= now())

-- name: pin
-- A new range, in a batch.
INSERT INTO detection.batches (log_id, from_index, to_index, batch)
VALUES (%(log_id)s, %(from_index)s, %(to_index)s, %(batch)s)

-- name: move_position
-- Where the next range of the log begins; never backwards.
INSERT INTO detection.positions AS p (log_id, next_index) VALUES (%(log_id)s, %(to_index)s)
ON CONFLICT (log_id) DO UPDATE SET next_index = excluded.next_index WHERE p.next_index < excluded.next_index

-- name: pin_again
-- Ranges that are due again, or were left behind by a batch that came to nothing, in a new batch.
UPDATE detection.batches SET batch = %(batch)s, state = 'pinned'
WHERE state = 'pinned' OR state = 'postponed' AND due_at <= now()

-- name: open_ranges
-- What a batch, and any before it, has still to do. Counts the attempt.
UPDATE detection.batches AS b SET attempts = attempts + 1
FROM ledger.logs AS l
WHERE l.log_id = b.log_id AND b.state = 'pinned' AND b.batch <= %(batch)s
RETURNING b.batch, l.log_id, l.origin, l.tenant, b.from_index, b.to_index, b.attempts

-- name: finish
-- A range is done with.
UPDATE detection.batches SET state = 'finished', finished_at = now()
WHERE log_id = %(log_id)s AND from_index = %(from_index)s AND state = 'pinned'

-- name: postpone
-- The storage of a range did not answer: again after twice as long as the last time, at most ten minutes.
UPDATE detection.batches
SET state = 'postponed', attempts = 0, postponements = postponements + 1,
    due_at = now() + least(interval '10 minutes', interval '1 second' * 2 ^ least(postponements, 20))
WHERE log_id = %(log_id)s AND from_index = %(from_index)s AND state = 'pinned'

-- name: prune
-- What was finished long ago says nothing any more: the positions hold how far each log is.
DELETE FROM detection.batches WHERE state = 'finished' AND batch < %(before)s

-- name: marks
-- Which of some snapshots of a table were scanned, under which rulesets.
SELECT snapshot, ruleset FROM detection.marks
WHERE log_id = %(log_id)s AND table_uuid = %(table_uuid)s AND snapshot = ANY(%(snapshots)s)

-- name: recorded
-- Whether a group is in the log.
SELECT EXISTS (SELECT FROM ledger.entries WHERE log_id = %(log_id)s AND group_id = %(group_id)s)

-- name: take_turn
-- One process at a time pins batches; the lock goes with its session.
SELECT pg_try_advisory_lock(%(lock)s)
