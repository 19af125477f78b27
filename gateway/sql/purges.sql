-- SPDX-License-Identifier: Apache-2.0
-- name: claim_due
-- Hold purges that are due and that no other process holds.
INSERT INTO gateway.purge_attempts AS a (log_id, purge, holder, held_until)
SELECT p.log_id, p.purge, %(holder)s, %(held_until)s
FROM gateway.purges AS p LEFT JOIN gateway.purge_attempts AS k USING (log_id, purge)
WHERE (k.held_until IS NULL OR k.held_until <= %(now)s)
  AND (k.next_attempt_at IS NULL OR k.next_attempt_at <= %(now)s) AND NOT p.log_id = ANY(%(busy)s::integer[])
ORDER BY k.next_attempt_at NULLS FIRST, p.log_id, p.purge
LIMIT %(limit)s
ON CONFLICT (log_id, purge) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
    WHERE a.held_until IS NULL OR a.held_until <= %(now)s
RETURNING log_id, purge, attempts, deleted, bytes_deleted, swept

-- name: keep
-- Hold a purge on, and note what was done; no row if another process holds it now.
UPDATE gateway.purge_attempts
SET held_until = %(held_until)s, deleted = %(deleted)s, bytes_deleted = %(bytes_deleted)s, swept = %(swept)s
WHERE log_id = %(log_id)s AND purge = %(purge)s AND holder = %(holder)s
RETURNING purge

-- name: postpone
-- Attempt it again later.
UPDATE gateway.purge_attempts
SET attempts = attempts + 1, next_attempt_at = %(next_attempt_at)s, held_until = NULL, problem = %(problem)s
WHERE log_id = %(log_id)s AND purge = %(purge)s AND holder = %(holder)s

-- name: let_go
-- Whoever held the purge has to stop.
UPDATE gateway.purge_attempts SET held_until = NULL
WHERE log_id = %(log_id)s AND purge = %(purge)s AND holder = %(holder)s

-- name: forget_completed
-- Attempts of purges that are completed, by whichever process.
DELETE FROM gateway.purge_attempts AS a
WHERE (a.held_until IS NULL OR a.held_until <= %(now)s) AND NOT EXISTS (
    SELECT FROM gateway.purges AS p WHERE p.log_id = a.log_id AND p.purge = a.purge
)

-- name: completed
-- Nothing is left to do.
DELETE FROM gateway.purge_attempts WHERE log_id = %(log_id)s AND purge = %(purge)s

-- name: group_entries
-- The entries of a small group, in order, and some behind it: only the first entry of a group has its id in a column.
SELECT e.entry FROM ledger.entries AS f
JOIN ledger.entries AS e ON e.log_id = f.log_id AND e.index >= f.index AND e.index < f.index + 8
WHERE f.log_id = %(log_id)s AND f.group_id = %(purge)s
ORDER BY e.index

-- name: history
-- A page of what was decided on a key and what became of it, from an index on.
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND key = %(key)s
  AND type IN ('commit.decided', 'commit.settled')
ORDER BY index
LIMIT %(limit)s

-- name: entry_at
-- One entry.
SELECT entry FROM ledger.entries WHERE log_id = %(log_id)s AND index = %(index)s

-- name: catalogs
-- The entries that made a tenant's catalogs, those that were retired included.
SELECT entry FROM ledger.entries
WHERE log_id = %(log_id)s AND is_control AND type = 'catalog.created'
ORDER BY index

-- name: held_places
-- The catalogs whose location the tenant holds still: the operator may have given the place to another one.
SELECT alias FROM gateway.catalog_places WHERE log_id = %(log_id)s AND held AND alias <> ''

-- name: pointers
-- A page of all tables and views of a tenant's built-in catalogs, behind a name.
SELECT alias, namespace, name, is_view, metadata_location, metadata_sha256 FROM gateway.tables
WHERE log_id = %(log_id)s AND (alias, namespace, name) > (%(alias)s, %(namespace)s::text[], %(name)s)
ORDER BY alias, namespace, name
LIMIT %(limit)s

-- name: open_by_log
-- How many purges are open in each log, and how many of them could not be finished at the last attempt.
SELECT l.origin, count(*), count(a.problem)
FROM gateway.purges AS p
JOIN ledger.logs AS l USING (log_id)
LEFT JOIN gateway.purge_attempts AS a USING (log_id, purge)
GROUP BY l.origin
ORDER BY l.origin

-- name: problems
-- What the last attempts at a tenant's open purges met.
SELECT a.purge, a.next_attempt_at, a.deleted, a.problem
FROM gateway.purge_attempts AS a WHERE a.log_id = %(log_id)s

-- name: purge_entries
-- What the log has of purges: the newest of these entries, or with a null all.
SELECT entry FROM (
    SELECT index, entry FROM ledger.entries
    WHERE log_id = %(log_id)s AND type IN ('purge.requested', 'purge.completed')
    ORDER BY index DESC
    LIMIT %(limit)s
) AS newest
ORDER BY index

-- name: drops
-- Decisions between two indexes that name one of some operations, newest first, each with its outcome, which is the next
-- entry, and whether a purge was asked for in their group; a forwarded one has no outcome there.
SELECT d.entry, s.entry, EXISTS (
    SELECT FROM ledger.entries AS p
    WHERE p.log_id = d.log_id AND p.index = d.index + 2 AND p.type = 'purge.requested' AND p.key = d.key
)
FROM ledger.entries AS d
JOIN ledger.entries AS s
    ON s.log_id = d.log_id AND s.index = d.index + 1 AND s.type = 'commit.settled' AND s.key = d.key
WHERE d.log_id = %(log_id)s AND d.index >= %(from_index)s AND d.index < %(to_index)s AND d.type = 'commit.decided'
  AND EXISTS (SELECT FROM unnest(%(members)s::bytea[]) AS m (member) WHERE position(m.member IN d.entry) > 0)
ORDER BY d.index DESC
LIMIT %(limit)s

-- name: placed
-- A page of decisions between two indexes on some keys with places, newest first, each with the next outcome on its key.
SELECT d.index, d.entry, s.entry, p.subject, p.key_id, p.sealed
FROM ledger.entries AS d
JOIN ledger.parts AS p ON p.log_id = d.log_id AND p.index = d.index AND p.name = 'places'
CROSS JOIN LATERAL (
    SELECT entry FROM ledger.entries
    WHERE log_id = d.log_id AND index > d.index AND index < d.index + %(group_events)s
      AND type = 'commit.settled' AND key = d.key
    ORDER BY index
    LIMIT 1
) AS s
WHERE d.log_id = %(log_id)s AND d.index >= %(from_index)s AND d.index < %(to_index)s AND d.type = 'commit.decided'
  AND d.key = ANY(%(keys)s)
ORDER BY d.index DESC
LIMIT %(limit)s

-- name: pointers_of
-- The metadata files of a tenant's tables and views that have one of some uuids.
SELECT table_uuid, metadata_location FROM gateway.tables
WHERE log_id = %(log_id)s AND table_uuid = ANY(%(uuids)s)
