-- SPDX-License-Identifier: Apache-2.0
-- name: entries_of_types
-- Entries of some types in a range of a log, in order, with the leaf hash that was stored for each.
SELECT index, entry, leaf FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s AND type = ANY(%(types)s)
ORDER BY index

-- name: entries_at
-- Some entries of a log, of whatever type, with the leaf hash that was stored for each.
SELECT index, entry, leaf FROM ledger.entries WHERE log_id = %(log_id)s AND index = ANY(%(indices)s)

-- name: wide_row
-- Nothing, but so wide that a client gets memory to read much of the next answer at once.
SELECT repeat(' ', %(wide_bytes)s)

-- name: entries_of_detection
-- Entries that say what detection knows (`projections.relational.current_findings.TYPES`), in a range of a log, in order;
-- of those alone that hold some bytes, if any are given. The types are written out as the partial indexes have them.
SELECT index, entry, leaf FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
  AND type IN ('scan.completed', 'scan.failed', 'detection.found')
  AND (%(named)s::bytea IS NULL OR position(%(named)s::bytea IN entry) > 0)
UNION ALL
SELECT index, entry, leaf FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s AND type = 'finding.reviewed'
  AND (%(named)s::bytea IS NULL OR position(%(named)s::bytea IN entry) > 0)
ORDER BY index

-- name: parts_of_names
-- Some payload parts that still exist, of entries in a range; none about an erased person, even if appended later.
SELECT index, name, subject, key_id, sealed FROM ledger.parts AS p
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s AND name = ANY(%(names)s)
  AND NOT EXISTS (
      SELECT FROM ledger.erased_subjects AS e WHERE e.log_id = p.log_id AND e.subject = p.subject
  )
ORDER BY index, name

-- name: parts_of_entries
-- The same of some entries.
SELECT index, name, subject, key_id, sealed FROM ledger.parts AS p
WHERE log_id = %(log_id)s AND index = ANY(%(indices)s) AND name = ANY(%(names)s)
  AND NOT EXISTS (
      SELECT FROM ledger.erased_subjects AS e WHERE e.log_id = p.log_id AND e.subject = p.subject
  )
ORDER BY index, name

-- name: outcomes_before
-- Outcomes of some targets in a range of a log, newest first.
SELECT index, entry, leaf FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
  AND type = 'commit.settled' AND key = ANY(%(keys)s)
ORDER BY index DESC

-- name: last_outcomes_of_keys
-- How far the read model of commits is (null: there is none), and the last outcomes of some targets before an index, newest
-- first, as it knows where they are. Its generation is a constant: joined, it would keep the planner from reading the
-- index of the commits of a key in its order.
SELECT l.next_index, e.index, e.entry, e.leaf
FROM (SELECT) AS one
LEFT JOIN (
    SELECT l.generation, c.next_index
    FROM projections.live AS l JOIN projections.cursors AS c USING (projection, log_id, generation)
    WHERE l.projection = 'commits' AND l.log_id = %(log_id)s
) AS l ON true
LEFT JOIN (
    SELECT s.settled_index
    FROM unnest(%(keys)s::text[]) AS k (key)
    CROSS JOIN LATERAL (
        SELECT c.settled_index FROM projections.commits AS c
        WHERE c.log_id = %(log_id)s AND c.generation = (
            SELECT l.generation FROM projections.live AS l WHERE l.projection = 'commits' AND l.log_id = %(log_id)s
          )
          AND c.key = k.key AND c.index < %(to_index)s AND c.outcome = 'accepted' AND c.metadata_location IS NOT NULL
        ORDER BY c.index DESC
        LIMIT %(each_max)s
    ) AS s
    WHERE s.settled_index < %(to_index)s
) AS s ON true
LEFT JOIN ledger.entries AS e ON e.log_id = %(log_id)s AND e.index = s.settled_index
ORDER BY e.index DESC

-- name: log_and_entry
-- A log, its size, and its entry at an index.
SELECT h.size, e.entry, l.origin, l.tenant, l.reader
FROM ledger.heads AS h JOIN ledger.logs AS l USING (log_id)
LEFT JOIN ledger.entries AS e ON e.log_id = h.log_id AND e.index = %(index)s
WHERE h.log_id = %(log_id)s

-- name: first_of_group
-- The index of the first entry of a group.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND group_id = %(group_id)s
