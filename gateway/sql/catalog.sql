-- SPDX-License-Identifier: Apache-2.0
-- name: namespace_row
-- Whether a namespace is there.
SELECT 1 FROM gateway.namespaces WHERE alias = %(alias)s AND namespace = %(namespace)s::text[]

-- name: namespace_state
-- A namespace's properties (null: it is not there), whether the one above it is, and whether it holds nothing.
SELECT
    (SELECT properties FROM gateway.namespaces WHERE alias = %(alias)s AND namespace = %(namespace)s::text[]),
    cardinality(%(namespace)s::text[]) = 1 OR EXISTS (
        SELECT FROM gateway.namespaces
        WHERE alias = %(alias)s
          AND namespace = (%(namespace)s::text[])[: cardinality(%(namespace)s::text[]) - 1]
    ),
    NOT EXISTS (SELECT FROM gateway.tables WHERE alias = %(alias)s AND namespace = %(namespace)s::text[])
    AND NOT EXISTS (
        SELECT FROM gateway.namespaces
        WHERE alias = %(alias)s AND cardinality(namespace) > cardinality(%(namespace)s::text[])
          AND namespace[: cardinality(%(namespace)s::text[])] = %(namespace)s::text[]
    )

-- name: name_taken
-- Whether a table, view or namespace could be taken for a new name, by their skeletons.
SELECT EXISTS (SELECT FROM gateway.tables WHERE alias = %(alias)s AND looks && %(looks)s::bytea[])
    OR EXISTS (SELECT FROM gateway.namespaces WHERE alias = %(alias)s AND looks && %(looks)s::bytea[])

-- name: place_taken
-- Whether another table is in these places, holds one of them, or lies in one; or a table whose files are being deleted.
SELECT EXISTS (
    SELECT FROM gateway.tables
    WHERE (places && %(folders)s::bytea[] OR folders && %(places)s::bytea[])
      AND (alias, namespace, name) <> (%(alias)s, %(namespace)s::text[], %(name)s)
), EXISTS (
    SELECT FROM gateway.purges
    WHERE places && %(folders)s::bytea[] OR folders && %(places)s::bytea[]
)

-- name: files_of_tables
-- The metadata files of tables by their names, with the uuids that the tables have now.
SELECT t.alias, t.namespace, t.name, t.table_uuid::text, t.metadata_location, t.metadata_sha256
FROM jsonb_to_recordset(%(names)s::jsonb) AS n (alias text, namespace text[], name text)
JOIN gateway.tables AS t
    ON t.log_id = %(log_id)s AND t.alias = n.alias AND t.name = n.name AND t.namespace = n.namespace
WHERE NOT t.is_view

-- name: list_tables
-- A page of the tables, or of the views, of one namespace, with their uuids if they are asked for.
SELECT name, CASE WHEN %(uuids)s THEN table_uuid::text END FROM gateway.tables
WHERE alias = %(alias)s AND namespace = %(namespace)s::text[] AND name > %(after)s AND is_view = %(views)s
ORDER BY name
LIMIT %(limit)s

-- name: list_namespaces
-- A page of the namespaces directly below a parent (empty: the top level).
SELECT namespace FROM gateway.namespaces
WHERE alias = %(alias)s AND cardinality(namespace) = cardinality(%(parent)s::text[]) + 1
  AND namespace[: cardinality(%(parent)s::text[])] = %(parent)s::text[] AND namespace > %(after)s::text[]
ORDER BY namespace
LIMIT %(limit)s

-- name: request_key
-- The tenant's key for request hashes, if it has been minted.
SELECT key FROM gateway.request_keys WHERE log_id = %(log_id)s

-- name: mint_request_key
-- Mint the tenant's key; the first one stays.
INSERT INTO gateway.request_keys (log_id, key) VALUES (%(log_id)s, %(key)s) ON CONFLICT DO NOTHING
