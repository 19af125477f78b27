-- SPDX-License-Identifier: Apache-2.0
-- name: insert_reviews
-- A row for every review.
INSERT INTO projections.finding_reviews (
    log_id, generation, table_uuid, field_id, kind, version, index, finding, recorded_at, actor, verdict,
    confidence_percent, reason
)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    table_uuid text, field_id bigint, kind text, version bigint, index bigint, finding bigint, recorded_at timestamptz,
    actor text, verdict text, confidence_percent integer, reason text
)

-- name: digest_reviews
-- Every row by its natural key, bytewise: databases sort text differently.
SELECT 'review', table_uuid, field_id, kind, version, index, finding, recorded_at, actor, verdict, confidence_percent,
       reason
FROM projections.finding_reviews WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY table_uuid COLLATE "C", field_id, kind COLLATE "C", version

-- name: drop_reviews
-- The rows of one generation.
DELETE FROM projections.finding_reviews WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: last_reviews
-- The last review of some columns and kinds, one step of the index each.
SELECT a.table_uuid, a.field_id, a.kind, r.version, r.index, r.finding, r.recorded_at, r.actor, r.verdict,
       r.confidence_percent, r.reason
FROM unnest(%(uuids)s::text[], %(field_ids)s::bigint[], %(kinds)s::text[]) AS a (table_uuid, field_id, kind)
CROSS JOIN projections.live AS l
CROSS JOIN LATERAL (
    SELECT * FROM projections.finding_reviews AS r
    WHERE r.log_id = l.log_id AND r.generation = l.generation AND r.table_uuid = a.table_uuid
      AND r.field_id = a.field_id AND r.kind = a.kind
    ORDER BY r.version DESC
    LIMIT 1
) AS r
WHERE l.projection = 'findings'

-- name: reviews
-- The reviews of one column and kind in entries below an index, newest first.
SELECT r.version, r.index, r.finding, r.recorded_at, r.actor, r.verdict, r.confidence_percent, r.reason
FROM projections.live AS l JOIN projections.finding_reviews AS r USING (log_id, generation)
WHERE l.projection = 'findings' AND r.table_uuid = %(table_uuid)s AND r.field_id = %(field_id)s AND r.kind = %(kind)s
  AND r.index < %(before)s
ORDER BY r.version DESC
LIMIT %(limit)s

-- name: reviews_of_table
-- The last review of each column and kind of one table, of one generation.
SELECT DISTINCT ON (r.field_id, r.kind) r.field_id, r.kind, r.verdict, r.confidence_percent
FROM projections.finding_reviews AS r
WHERE r.log_id = %(log_id)s AND r.generation = %(generation)s AND r.table_uuid = %(table_uuid)s
ORDER BY r.field_id, r.kind, r.version DESC
