-- SPDX-License-Identifier: Apache-2.0
-- name: histories
-- The last commits of each of some tables, views or namespaces of a log, below an index for each, by their place. The
-- generation is a constant, as in the query `history`.
SELECT k.place, c.*
FROM unnest(%(keys)s::text[], %(befores)s::bigint[]) WITH ORDINALITY AS k (key, before, place)
CROSS JOIN LATERAL (
    SELECT d.index, d.group_id, d.key, d.recorded_at, d.actor, d.principal, d.principal_source, d.operation, d.actions,
           d.alias, d.namespace, d.name, d.decision, d.reason_id, d.reason_version, d.as_of, d.policy_set, d.request,
           d.base, d.table_uuid, d.snapshots, d.settled_index, d.settled_at, d.outcome, d.evidence,
           d.metadata_location, d.metadata_sha256
    FROM projections.commits AS d
    WHERE d.log_id = %(log_id)s AND d.generation = (
        SELECT l.generation FROM projections.live AS l WHERE l.projection = 'commits' AND l.log_id = %(log_id)s
      )
      AND d.key = k.key AND d.index < k.before
    ORDER BY d.index DESC
    LIMIT %(limit)s
) AS c
ORDER BY k.place, c.index DESC

-- name: last_findings_of_tables
-- What was found last in each column of each of some tables, of each kind, by their place.
SELECT k.place, n.index, n.group_id, n.recorded_at, n.key, n.table_uuid, n.snapshot, n.ruleset, n.field_id,
       n.column_path, n.kind, n.confidence_percent, n.matches, n.not_null
FROM unnest(%(uuids)s::text[]) WITH ORDINALITY AS k (table_uuid, place)
CROSS JOIN LATERAL (
    SELECT e.*
    FROM (
        SELECT DISTINCT ON (f.field_id, f.kind) f.*
        FROM projections.live AS l JOIN projections.findings AS f USING (log_id, generation)
        WHERE l.projection = 'findings' AND l.log_id = %(log_id)s AND f.table_uuid = k.table_uuid
          AND f.confidence_percent >= %(confidence_percent_min)s
        ORDER BY f.field_id, f.kind, f.index DESC
    ) AS e
    ORDER BY e.index DESC
    LIMIT %(limit)s
) AS n
ORDER BY k.place, n.index DESC

-- name: findings_of_each
-- What was found in some snapshots, each given by a place, the uuid of its table and its id.
SELECT k.place, f.index, f.group_id, f.recorded_at, f.key, f.table_uuid, f.snapshot, f.ruleset, f.field_id,
       f.column_path, f.kind, f.confidence_percent, f.matches, f.not_null
FROM unnest(%(places)s::bigint[], %(uuids)s::text[], %(snapshots)s::text[]) AS k (place, table_uuid, snapshot)
CROSS JOIN LATERAL (
    SELECT f.*
    FROM projections.live AS l JOIN projections.findings AS f USING (log_id, generation)
    WHERE l.projection = 'findings' AND l.log_id = %(log_id)s AND f.table_uuid = k.table_uuid
      AND f.snapshot = k.snapshot
    ORDER BY f.snapshot, f.ruleset, f.field_id, f.kind
    LIMIT %(limit)s
) AS f
ORDER BY k.place, f.snapshot, f.ruleset, f.field_id, f.kind
