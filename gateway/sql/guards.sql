-- name: namespace_create
-- Holds if the namespace does not exist and its parent does.
INSERT INTO gateway.namespaces (log_id, alias, namespace, properties)
SELECT %(log_id)s, %(alias)s, %(namespace)s::text[], %(properties)s::jsonb
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
-- Holds if the namespace exists and holds neither tables nor namespaces.
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
-- Holds if the namespace exists and the name in it is free.
INSERT INTO gateway.tables (log_id, alias, namespace, name, table_uuid, metadata_location, metadata_sha256)
SELECT log_id, alias, namespace, %(name)s, %(table_uuid)s::uuid, %(metadata_location)s, %(metadata_sha256)s
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
-- Holds if the decision is still open: it stays so, and is marked as one whose outcome was asked for in vain.
UPDATE gateway.open_decisions SET is_unknown = true
WHERE log_id = %(log_id)s AND decision = %(decision)s AND key = %(key)s
