-- SPDX-License-Identifier: Apache-2.0
-- name: namespace_create
-- Holds if the namespace does not exist and its parent does.
INSERT INTO gateway.namespaces (log_id, alias, namespace, properties, looks, looks_version)
SELECT %(log_id)s, %(alias)s, %(namespace)s::text[], %(properties)s::jsonb, %(looks)s::bytea[], %(looks_version)s
WHERE cardinality(%(namespace)s::text[]) = 1 OR EXISTS (
    SELECT FROM gateway.namespaces
    WHERE log_id = %(log_id)s AND alias = %(alias)s
      AND namespace = (%(namespace)s::text[])[: cardinality(%(namespace)s::text[]) - 1]
)
ON CONFLICT DO NOTHING

-- name: namespace_update
-- Holds if the properties are still those the change was made from.
UPDATE gateway.namespaces SET properties = %(properties)s::jsonb
WHERE log_id = %(log_id)s AND alias = %(alias)s AND namespace = %(namespace)s::text[]
  AND properties = %(before)s::jsonb

-- name: namespace_drop
-- Holds if the namespace exists and holds no tables, views or namespaces.
DELETE FROM gateway.namespaces AS n
WHERE log_id = %(log_id)s AND alias = %(alias)s AND namespace = %(namespace)s::text[]
  AND NOT EXISTS (
    SELECT FROM gateway.tables AS t
    WHERE t.log_id = n.log_id AND t.alias = n.alias AND t.namespace = n.namespace
  )
  AND NOT EXISTS (
    SELECT FROM gateway.namespaces AS c
    WHERE c.log_id = n.log_id AND c.alias = n.alias AND cardinality(c.namespace) > cardinality(n.namespace)
      AND c.namespace[: cardinality(n.namespace)] = n.namespace
  )

-- name: table_create
-- Holds if the namespace exists and neither a table nor a view has the name in it.
INSERT INTO gateway.tables (
    log_id, alias, namespace, name, is_view, table_uuid, metadata_location, metadata_sha256, looks, looks_version
)
SELECT
    log_id, alias, namespace, %(name)s, %(is_view)s, %(table_uuid)s::uuid, %(metadata_location)s, %(metadata_sha256)s,
    %(looks)s::bytea[], %(looks_version)s
FROM gateway.namespaces
WHERE log_id = %(log_id)s AND alias = %(alias)s AND namespace = %(namespace)s::text[]
ON CONFLICT DO NOTHING

-- name: table_swap
-- Holds if the pointer is still where the commit was judged: the swap that makes a commit happen.
UPDATE gateway.tables
SET metadata_location = %(metadata_location)s, metadata_sha256 = %(metadata_sha256)s
WHERE log_id = %(log_id)s AND alias = %(alias)s AND namespace = %(namespace)s::text[] AND name = %(name)s
  AND metadata_location = %(base)s

-- name: table_drop
-- Holds if the pointer is still where the drop was judged.
DELETE FROM gateway.tables
WHERE log_id = %(log_id)s AND alias = %(alias)s AND namespace = %(namespace)s::text[] AND name = %(name)s
  AND metadata_location = %(base)s

-- name: name_free
-- Holds if no table, view or namespace of the same parent has a confusable name. Used before one is created.
SELECT WHERE NOT EXISTS (
    SELECT FROM gateway.tables
    WHERE log_id = %(log_id)s AND alias = %(alias)s AND looks && %(looks)s::bytea[]
) AND NOT EXISTS (
    SELECT FROM gateway.namespaces
    WHERE log_id = %(log_id)s AND alias = %(alias)s AND looks && %(looks)s::bytea[]
)

-- name: table_place
-- Holds if no other table of the tenant is in the places that are added, holds one of them, or lies in one; nor a
-- table that was dropped and whose files are being deleted, whatever its name was.
UPDATE gateway.tables
SET places = %(places)s::bytea[], folders = %(folders)s::bytea[], places_told = true
WHERE log_id = %(log_id)s AND alias = %(alias)s AND namespace = %(namespace)s::text[] AND name = %(name)s
  AND NOT EXISTS (
    SELECT FROM gateway.tables AS t
    WHERE t.log_id = %(log_id)s
      AND (t.places && %(added_folders)s::bytea[] OR t.folders && %(added_places)s::bytea[])
      AND (t.alias, t.namespace, t.name) <> (%(alias)s, %(namespace)s::text[], %(name)s)
  )
  AND NOT EXISTS (
    SELECT FROM gateway.purges AS p
    WHERE p.log_id = %(log_id)s
      AND (p.places && %(added_folders)s::bytea[] OR p.folders && %(added_places)s::bytea[])
  )

-- name: place_lock
-- Holds when it is this transaction's turn: one transaction at a time, of any log, checks whether a place is free.
SELECT pg_advisory_xact_lock(%(lock)s) WHERE %(log_id)s::integer IS NOT NULL

-- name: place_claim
-- Holds if no other tenant holds a place that overlaps this one, and this one was not granted already.
-- It reads rows of other logs, so it needs place_lock before it.
INSERT INTO gateway.catalog_places (log_id, alias, place, digest, folders, held)
SELECT %(log_id)s, %(alias)s, %(place)s, %(digest)s, %(folders)s::bytea[], true
WHERE NOT EXISTS (
    SELECT FROM gateway.catalog_places
    WHERE held AND log_id <> %(log_id)s
      AND (digest = ANY(%(folders)s::bytea[]) OR folders @> ARRAY[%(digest)s::bytea])
)
ON CONFLICT (log_id, alias, place) DO UPDATE SET held = true WHERE NOT catalog_places.held

-- name: place_release
-- Holds if the tenant holds a place here, or places below it: it holds them no longer.
WITH released AS (
    UPDATE gateway.catalog_places SET held = false
    WHERE log_id = %(log_id)s AND held AND folders @> ARRAY[%(digest)s::bytea]
    RETURNING 1
)
SELECT FROM released LIMIT 1

-- name: decision_open
-- Holds always: a decision's group has one event and is appended once.
INSERT INTO gateway.open_decisions (
    log_id, decision, key, operation, alias, namespace, name, base, table_uuid, snapshots, owner, deadline,
    requirements, result
)
VALUES (
    %(log_id)s, %(decision)s, %(key)s, %(operation)s, %(alias)s, %(namespace)s::text[], %(name)s, %(base)s,
    %(table_uuid)s, %(snapshots)s::text[], %(owner)s, %(deadline)s::timestamptz, %(requirements)s, %(result)s
)
ON CONFLICT DO NOTHING

-- name: decision_close
-- Holds if the decision is still open: it is settled for good once, by whoever knows first.
DELETE FROM gateway.open_decisions WHERE log_id = %(log_id)s AND decision = %(decision)s AND key = %(key)s

-- name: decision_doubt
-- Holds if the decision is still open: it stays so, and is marked as one whose outcome could not be found out.
UPDATE gateway.open_decisions SET is_unknown = true
WHERE log_id = %(log_id)s AND decision = %(decision)s AND key = %(key)s

-- name: decision_is_open
-- Holds if the decision is still open; changes nothing.
SELECT FROM gateway.open_decisions WHERE log_id = %(log_id)s AND decision = %(decision)s AND key = %(key)s

-- name: purge_open
-- Holds always: the group of a drop is appended once. Used after table_drop, so the places were the table's until then.
INSERT INTO gateway.purges (
    log_id, purge, key, alias, namespace, name, metadata_location, metadata_sha256, places, folders
)
VALUES (
    %(log_id)s, %(purge)s, %(key)s, %(alias)s, %(namespace)s::text[], %(name)s, %(metadata_location)s,
    %(metadata_sha256)s, %(places)s::bytea[], %(folders)s::bytea[]
)
ON CONFLICT DO NOTHING

-- name: purge_close
-- Holds if the purge is still open: it is completed once.
DELETE FROM gateway.purges WHERE log_id = %(log_id)s AND purge = %(purge)s AND key = %(key)s
