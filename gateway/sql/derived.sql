-- SPDX-License-Identifier: Apache-2.0
-- name: namespaces_without_looks
-- Namespaces whose skeletons are missing, or were made by other rules.
SELECT log_id, alias, namespace FROM gateway.namespaces
WHERE looks_version IS DISTINCT FROM %(version)s
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: fill_namespace_looks
-- The skeletons of one namespace.
UPDATE gateway.namespaces SET looks = %(looks)s::bytea[], looks_version = %(looks_version)s
WHERE log_id = %(log_id)s AND alias = %(alias)s AND namespace = %(namespace)s::text[]

-- name: tables_without_looks
-- Tables whose skeletons are missing, or were made by other rules.
SELECT log_id, alias, namespace, name FROM gateway.tables
WHERE looks_version IS DISTINCT FROM %(version)s
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: fill_table_looks
-- The skeletons of one table.
UPDATE gateway.tables SET looks = %(looks)s::bytea[], looks_version = %(looks_version)s
WHERE log_id = %(log_id)s AND alias = %(alias)s AND namespace = %(namespace)s::text[] AND name = %(name)s

-- name: tables_without_places
-- Tables of which it is not known where they are.
SELECT log_id, alias, namespace, name, metadata_location FROM gateway.tables
WHERE places IS NULL
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: fill_table_places
-- Where one table is expected.
UPDATE gateway.tables SET places = %(places)s::bytea[], folders = %(folders)s::bytea[]
WHERE log_id = %(log_id)s AND alias = %(alias)s AND namespace = %(namespace)s::text[] AND name = %(name)s

-- name: lock_places
-- The lock of `place_lock` (guards.sql), until this transaction ends.
SELECT pg_advisory_xact_lock(%(lock)s)

-- name: catalogs_without_places
-- Catalogs with a location that have no row of their place. Canonical JSON spells a member in one way.
SELECT e.log_id, e.entry FROM ledger.entries AS e
WHERE e.is_control AND e.type = 'catalog.created'
  AND position('"location":'::bytea IN e.entry) > 0
  AND NOT EXISTS (
    SELECT FROM gateway.catalog_places AS p
    WHERE p.log_id = e.log_id AND p.alias = split_part(e.key, ':', 2)
  )

-- name: fill_catalog_place
-- The place of one catalog, held unless somebody else came first.
INSERT INTO gateway.catalog_places (log_id, alias, place, digest, folders, held)
SELECT %(log_id)s, %(alias)s, %(place)s, %(digest)s, %(folders)s::bytea[], NOT EXISTS (
    SELECT FROM gateway.catalog_places
    WHERE held AND log_id <> %(log_id)s
      AND (digest = ANY(%(folders)s::bytea[]) OR folders @> ARRAY[%(digest)s::bytea])
)
