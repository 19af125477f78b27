-- SPDX-License-Identifier: Apache-2.0
-- name: names
-- Of some tables what they are called, by uuid; and who has some names now.
SELECT table_uuid, key, index, is_certain, is_current
FROM projections.table_names
WHERE log_id = %(log_id)s AND projection = %(projection)s AND generation = %(generation)s
  AND table_uuid = ANY(%(uuids)s::text[])
UNION
SELECT n.table_uuid, n.key, n.index, n.is_certain, n.is_current
FROM unnest(%(keys)s::text[]) AS k (key)
JOIN projections.table_names AS n ON hashtextextended(n.key, 0) = hashtextextended(k.key, 0) AND n.key = k.key
WHERE n.log_id = %(log_id)s AND n.projection = %(projection)s AND n.generation = %(generation)s AND n.is_current

-- name: upsert_names
-- What tables are called now.
INSERT INTO projections.table_names AS n (
    log_id, projection, generation, table_uuid, key, index, is_certain, is_current
)
SELECT %(log_id)s, %(projection)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    table_uuid text, key text, index bigint, is_certain boolean, is_current boolean
)
ON CONFLICT (log_id, projection, generation, table_uuid) DO UPDATE
SET key = excluded.key, index = excluded.index, is_certain = excluded.is_certain, is_current = excluded.is_current

-- name: digest_names
-- Every row by uuid, bytewise: databases sort text differently.
SELECT 'name', table_uuid, key, index, is_certain, is_current
FROM projections.table_names
WHERE log_id = %(log_id)s AND projection = %(projection)s AND generation = %(generation)s
ORDER BY table_uuid COLLATE "C"

-- name: drop_names
-- The rows of one generation.
DELETE FROM projections.table_names
WHERE log_id = %(log_id)s AND projection = %(projection)s AND generation = %(generation)s

-- name: live_names
-- The same as the first, of the live generation of the findings. A key is found by the index of current names: row-level
-- security keeps a tenant's reader from that on a hash.
SELECT n.table_uuid, n.key, n.index, n.is_certain, n.is_current
FROM projections.live AS l JOIN projections.table_names AS n USING (log_id, projection, generation)
WHERE l.projection = 'findings' AND l.log_id = %(log_id)s AND n.table_uuid = ANY(%(uuids)s::text[])
UNION
SELECT n.table_uuid, n.key, n.index, n.is_certain, n.is_current
FROM unnest(%(keys)s::text[]) AS k (key)
CROSS JOIN LATERAL (
    SELECT c.* FROM projections.table_names AS c
    WHERE c.log_id = %(log_id)s AND c.projection = 'findings' AND c.generation = (
        SELECT l.generation FROM projections.live AS l WHERE l.projection = 'findings' AND l.log_id = %(log_id)s
      )
      AND c.is_current AND c.key COLLATE "C" = k.key
    OFFSET 0
) AS n

-- name: nameless
-- How many tables of the live generation of a projection nobody has named.
SELECT count(*)
FROM projections.live AS l JOIN projections.table_names AS n USING (log_id, projection, generation)
WHERE l.projection = %(projection)s AND n.key IS NULL

-- name: called
-- What the table of a uuid is called, of the live generation of a projection.
SELECT n.key, n.is_current
FROM projections.live AS l JOIN projections.table_names AS n USING (log_id, projection, generation)
WHERE l.projection = %(projection)s AND n.table_uuid = %(table_uuid)s

-- name: tables
-- The tables that have a name now, by name, bytewise; of some name, with findings of some kind, with a tag, or of some
-- owner. Log and generation are constants: joined, they would keep the planner from reading the index in its order.
SELECT n.key, n.table_uuid, n.index
FROM projections.table_names AS n
WHERE n.log_id = %(log_id)s AND n.projection = 'findings' AND n.generation = (
    SELECT l.generation FROM projections.live AS l WHERE l.projection = 'findings' AND l.log_id = %(log_id)s
  )
  AND n.is_current AND n.key COLLATE "C" > %(after)s AND n.key COLLATE "C" <= %(upto)s
  AND (%(texts)s::text[] IS NULL OR EXISTS (SELECT FROM unnest(%(texts)s::text[]) AS t (text)
                                            WHERE strpos(lower(n.key), t.text) > 0))
  AND (%(kind)s::text IS NULL OR EXISTS (
      SELECT FROM projections.findings AS f
      WHERE f.log_id = %(log_id)s AND f.generation = (
          SELECT l.generation FROM projections.live AS l WHERE l.projection = 'findings' AND l.log_id = %(log_id)s
        )
        AND f.table_uuid = n.table_uuid AND f.kind = %(kind)s
  ))
  AND (%(tag)s::text IS NULL OR EXISTS (
      SELECT FROM projections.findings AS f
      WHERE f.log_id = n.log_id AND f.generation = n.generation AND f.table_uuid = n.table_uuid
        AND f.confidence_percent >= %(tagged_percent)s AND %(tag)s IN ('pii', f.kind)
        AND NOT EXISTS (
            SELECT FROM (
                SELECT r.verdict, r.confidence_percent FROM projections.finding_reviews AS r
                WHERE r.log_id = f.log_id AND r.generation = f.generation AND r.table_uuid = f.table_uuid
                  AND r.field_id = f.field_id AND r.kind = f.kind
                ORDER BY r.version DESC
                LIMIT 1
            ) AS r
            WHERE r.verdict = 'dismissed' AND r.confidence_percent >= f.confidence_percent
        )
  ))
  AND (%(owner)s::text IS NULL OR EXISTS (
      SELECT FROM projections.live AS k JOIN projections.commits AS c USING (log_id, generation)
      WHERE k.projection = 'commits' AND k.log_id = n.log_id AND c.table_uuid = n.table_uuid
        AND c.operation IN ('table.create', 'table.register') AND c.outcome = 'accepted'
        AND (c.actor = %(owner)s OR %(by_principal)s AND c.principal = %(owner)s)
  ))
ORDER BY n.key COLLATE "C"
LIMIT %(limit)s

-- name: table_ceiling
-- The name so many behind a name, up to another one: what is looked through for one page ends there.
SELECT n.key
FROM projections.table_names AS n
WHERE n.log_id = %(log_id)s AND n.projection = 'findings' AND n.generation = (
    SELECT l.generation FROM projections.live AS l WHERE l.projection = 'findings' AND l.log_id = %(log_id)s
  )
  AND n.is_current AND n.key COLLATE "C" > %(after)s AND n.key COLLATE "C" <= %(upto)s
ORDER BY n.key COLLATE "C"
OFFSET %(skipped)s LIMIT 1

-- name: owners
-- Who made some tables, or registered them: the last one that did, found by the index of such commits.
SELECT t.table_uuid, m.actor, m.principal
FROM unnest(%(uuids)s::text[]) AS t (table_uuid)
CROSS JOIN LATERAL (
    SELECT c.actor, c.principal FROM projections.commits AS c
    WHERE c.log_id = %(log_id)s AND c.generation = (
        SELECT l.generation FROM projections.live AS l WHERE l.projection = 'commits' AND l.log_id = %(log_id)s
      )
      AND c.table_uuid = t.table_uuid AND c.operation IN ('table.create', 'table.register') AND c.outcome = 'accepted'
    ORDER BY c.index DESC
    LIMIT 1
) AS m
