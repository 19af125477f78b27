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
-- What was found last in each column of each of some tables, of each kind, by their place; of one state, as `state_of`
-- has it. One step of the index for each column and kind, however often the tables were scanned.
SELECT k.place, n.index, n.group_id, n.recorded_at, n.key, n.table_uuid, n.snapshot, n.ruleset, n.field_id,
       n.column_path, n.kind, n.confidence_percent, n.matches, n.not_null
FROM unnest(%(uuids)s::text[]) WITH ORDINALITY AS k (table_uuid, place)
CROSS JOIN LATERAL (
    WITH RECURSIVE live AS (
        SELECT generation FROM projections.live WHERE projection = 'findings' AND log_id = %(log_id)s
    ),
    newest AS (
        (
            SELECT f.* FROM projections.findings AS f
            WHERE f.log_id = %(log_id)s AND f.generation = (SELECT generation FROM live)
              AND f.table_uuid = k.table_uuid AND f.confidence_percent >= %(confidence_percent_min)s
            ORDER BY f.field_id, f.kind, f.index DESC
            LIMIT 1
        )
        UNION ALL
        SELECT n.*
        FROM newest AS p
        CROSS JOIN LATERAL (
            SELECT f.* FROM projections.findings AS f
            WHERE f.log_id = %(log_id)s AND f.generation = (SELECT generation FROM live)
              AND f.table_uuid = k.table_uuid AND f.confidence_percent >= %(confidence_percent_min)s
              AND (f.field_id, f.kind) > (p.field_id, p.kind)
            ORDER BY f.field_id, f.kind, f.index DESC
            LIMIT 1
        ) AS n
    )
    SELECT e.* FROM newest AS e
    WHERE (%(state)s::text IS NULL OR %(state)s = coalesce((
          SELECT CASE WHEN r.verdict = 'dismissed' AND r.confidence_percent < e.confidence_percent THEN 'open'
                      ELSE r.verdict END
          FROM projections.finding_reviews AS r
          WHERE r.log_id = e.log_id AND r.generation = e.generation AND r.table_uuid = e.table_uuid
            AND r.field_id = e.field_id AND r.kind = e.kind
          ORDER BY r.version DESC
          LIMIT 1
      ), 'open'))
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

-- name: tags_of_tables
-- The kinds that some tables are tagged with: found for certain, and dismissed by nobody who knew it was so certain. The
-- surest finding of each column and kind tells: one step of the index each, however often the tables were scanned.
SELECT DISTINCT t.table_uuid, s.kind
FROM unnest(%(uuids)s::text[]) AS t (table_uuid)
CROSS JOIN LATERAL (
    WITH RECURSIVE live AS (
        SELECT generation FROM projections.live WHERE projection = 'findings' AND log_id = %(log_id)s
    ),
    surest AS (
        (
            SELECT f.generation, f.kind, f.field_id, f.confidence_percent FROM projections.findings AS f
            WHERE f.log_id = %(log_id)s AND f.generation = (SELECT generation FROM live)
              AND f.table_uuid = t.table_uuid
            ORDER BY f.kind DESC, f.field_id DESC, f.confidence_percent DESC
            LIMIT 1
        )
        UNION ALL
        SELECT n.*
        FROM surest AS p
        CROSS JOIN LATERAL (
            SELECT f.generation, f.kind, f.field_id, f.confidence_percent FROM projections.findings AS f
            WHERE f.log_id = %(log_id)s AND f.generation = (SELECT generation FROM live)
              AND f.table_uuid = t.table_uuid AND (f.kind, f.field_id) < (p.kind, p.field_id)
            ORDER BY f.kind DESC, f.field_id DESC, f.confidence_percent DESC
            LIMIT 1
        ) AS n
    )
    SELECT * FROM surest
) AS s
WHERE s.confidence_percent >= %(tagged_percent)s
  AND NOT EXISTS (
      SELECT FROM (
          SELECT r.verdict, r.confidence_percent FROM projections.finding_reviews AS r
          WHERE r.log_id = %(log_id)s AND r.generation = s.generation AND r.table_uuid = t.table_uuid
            AND r.field_id = s.field_id AND r.kind = s.kind
          ORDER BY r.version DESC
          LIMIT 1
      ) AS r
      WHERE r.verdict = 'dismissed' AND r.confidence_percent >= s.confidence_percent
  )
ORDER BY t.table_uuid, s.kind
