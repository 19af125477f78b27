-- SPDX-License-Identifier: Apache-2.0
-- name: entries_that_make_rows
-- The entries that rows outside the log are made from, or that say what those rows must be.
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index < %(size)s AND (is_control OR type = ANY(%(types)s))
ORDER BY index

-- name: parts_of
-- Payload parts that are left of some entries, of some names; of nobody who was erased.
SELECT p.index, p.name, p.subject, p.key_id, p.sealed
FROM ledger.parts AS p
JOIN unnest(%(indices)s::bigint[], %(names)s::text[]) AS w (index, name) USING (index, name)
WHERE p.log_id = %(log_id)s AND NOT EXISTS (
    SELECT FROM ledger.erased_subjects AS e WHERE e.log_id = p.log_id AND e.subject = p.subject
)

-- name: aggregates
-- The versions of everything people edit, and how many groups of anchors there are.
SELECT key, version FROM ledger.aggregates WHERE log_id = %(log_id)s

-- name: recorded_events
-- What applications have recorded of their aggregates, and where it stands in the log.
SELECT kind, originator, version, group_id, position FROM ledger.recorded_events WHERE log_id = %(log_id)s

-- name: erased_subjects
-- Whose parts are shown to nobody.
SELECT subject FROM ledger.erased_subjects WHERE log_id = %(log_id)s

-- name: api_keys
-- The keys in force. Their hashes are not in the log.
SELECT key_id, prefix, actor FROM gateway.api_keys WHERE log_id = %(log_id)s

-- name: namespaces
-- The namespaces of the built-in catalogs.
SELECT alias, namespace, properties, looks, looks_version FROM gateway.namespaces WHERE log_id = %(log_id)s

-- name: tables
-- The pointers of the built-in catalogs.
SELECT alias, namespace, name, is_view, metadata_location, metadata_sha256, table_uuid, places, folders, places_told,
       looks, looks_version
FROM gateway.tables WHERE log_id = %(log_id)s

-- name: catalog_places
-- The places that were registered, and whether another tenant holds one that overlaps.
SELECT p.alias, p.place, p.digest, p.folders, p.held, EXISTS (
    SELECT FROM gateway.catalog_places AS h
    WHERE h.held AND h.log_id <> p.log_id AND (h.digest = ANY(p.folders) OR h.folders @> ARRAY[p.digest])
)
FROM gateway.catalog_places AS p WHERE p.log_id = %(log_id)s

-- name: open_decisions
-- Requests to catalogs elsewhere whose outcome is not known.
SELECT decision, key, operation, alias, namespace, name, base, table_uuid, snapshots, owner, deadline, requirements,
       result, is_unknown
FROM gateway.open_decisions WHERE log_id = %(log_id)s

-- name: purges
-- Tables of the built-in catalogs that were dropped, and whose files are being deleted.
SELECT purge, key, alias, namespace, name, metadata_location, metadata_sha256, places, folders
FROM gateway.purges WHERE log_id = %(log_id)s

-- name: marks
-- Which snapshots were scanned, and how often.
SELECT table_uuid, snapshot, ruleset, scans FROM detection.marks WHERE log_id = %(log_id)s

-- name: request_keys
-- The key under which requests are hashed.
SELECT key FROM gateway.request_keys WHERE log_id = %(log_id)s

-- name: cursors
-- How far each handler of the streams is, and how much it has handled.
SELECT handler, next_index, handled FROM streams.cursors WHERE log_id = %(log_id)s

-- name: ahead
-- What stands behind the end of the log.
SELECT 'projections.cursors ' || projection, next_index FROM projections.cursors
WHERE log_id = %(log_id)s AND next_index > %(size)s
UNION ALL
SELECT 'detection.positions', next_index FROM detection.positions
WHERE log_id = %(log_id)s AND next_index > %(size)s
ORDER BY 1
LIMIT 1

-- name: requests
-- The newest decisions, whose requests were hashed.
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index < %(size)s AND type = 'commit.decided'
ORDER BY index DESC
LIMIT %(limit)s

-- name: anchors
-- What the system log has recorded of one log.
SELECT entry FROM ledger.entries
WHERE log_id = %(system)s AND type = 'logs.anchored' AND key = %(key)s
ORDER BY index DESC
LIMIT 1

-- name: newest_checkpoint
-- The size that was signed last.
SELECT max(size) FROM ledger.checkpoints WHERE log_id = %(log_id)s

-- name: logs
-- The logs, and how far each has got.
SELECT l.log_id, l.origin, l.tenant, l.reader, coalesce(h.size, 0)
FROM ledger.logs AS l LEFT JOIN ledger.heads AS h USING (log_id) ORDER BY l.log_id

-- name: first_type
-- What the first entry of a log is.
SELECT type FROM ledger.entries WHERE log_id = %(log_id)s AND index = 0

-- name: erased_behind
-- Whether parts were erased by an entry at this index or behind it.
SELECT EXISTS (
    SELECT FROM ledger.entries WHERE log_id = %(log_id)s AND type = 'payload.erased' AND index >= %(from_index)s
)
