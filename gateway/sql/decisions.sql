-- SPDX-License-Identifier: Apache-2.0
-- name: entries_of_types
-- Entries of some types in a range of a log, in order, with the leaf hash that was stored for each.
SELECT index, entry, leaf FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s AND type = ANY(%(types)s)
ORDER BY index

-- name: entries_of_types_that_hold
-- The same, of those alone that hold some bytes.
SELECT index, entry, leaf FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s AND type = ANY(%(types)s)
  AND position(%(named)s::bytea IN entry) > 0
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

-- name: first_of_group
-- The index of the first entry of a group.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND group_id = %(group_id)s
