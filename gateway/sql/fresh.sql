-- SPDX-License-Identifier: Apache-2.0
-- name: take_role
-- SET LOCAL ROLE: what follows works as this role, until the next one or the end of the transaction.
SELECT pg_catalog.set_config('role', %(role)s, true)

-- name: heads
-- The index of each log's newest control entry, unlocked, and an actor's identity (null: none asked for, or erased).
SELECT asked.n, h.control_index, s.identity
FROM unnest(%(log_ids)s::integer[], %(actors)s::text[]) WITH ORDINALITY AS asked (log_id, actor, n)
CROSS JOIN LATERAL (SELECT control_index FROM ledger.heads WHERE log_id = asked.log_id LIMIT 1) AS h
LEFT JOIN LATERAL (
    SELECT identity FROM ledger.subjects WHERE log_id = asked.log_id AND actor = asked.actor LIMIT 1
) AS s ON true

-- name: tables
-- Whether each table's or view's namespace is there, where its metadata is (null: neither has that name), its places if
-- the log told, which of the two it is, and its uuid.
-- LATERAL … LIMIT looks each up by the index on its name: row-level security lets no index compare a namespace.
SELECT
    asked.n,
    t.metadata_location IS NOT NULL OR EXISTS (
        SELECT FROM gateway.namespaces AS n WHERE n.alias = asked.alias AND n.namespace = asked.levels
    ),
    t.metadata_location, t.metadata_sha256, CASE WHEN t.places_told THEN t.places END, t.is_view, t.table_uuid
FROM (
    SELECT n, alias, string_to_array(namespace, chr(31)) AS levels, name
    FROM unnest(%(aliases)s::text[], %(namespaces)s::text[], %(names)s::text[])
        WITH ORDINALITY AS asked (alias, namespace, name, n)
) AS asked
LEFT JOIN LATERAL (
    SELECT metadata_location, metadata_sha256, places_told, places, is_view, table_uuid FROM gateway.tables
    WHERE alias = asked.alias AND namespace = asked.levels AND name = asked.name
    LIMIT 1
) AS t ON true
