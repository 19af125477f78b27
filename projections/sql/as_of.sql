-- SPDX-License-Identifier: Apache-2.0
-- name: findings
-- What stands for the findings in a query that is asked as of an entry; key is what the entry itself said. The conditions
-- are outside of the UNION ALL here and below: within, they would keep the planner from reading the indexes in order.
SELECT y.*
FROM (
    SELECT a.log_id, a.generation, a.table_uuid, a.snapshot, a.ruleset, a.field_id, a.kind, a.index, a.group_id,
           a.recorded_at, a.said AS key, a.column_path, a.confidence_percent, a.matches, a.not_null,
           9223372036854775807 AS until
    FROM projections.findings AS a
    UNION ALL
    SELECT b.log_id, b.generation, b.table_uuid, b.snapshot, b.ruleset, b.field_id, b.kind, b.index, b.group_id,
           b.recorded_at, b.said, b.column_path, b.confidence_percent, b.matches, b.not_null, b.until
    FROM projections.findings_past AS b
) AS y
WHERE y.index <= %(as_of)s AND y.until > %(as_of)s

-- name: scans
-- The same for the scans.
SELECT y.*
FROM (
    SELECT a.log_id, a.generation, a.table_uuid, a.snapshot, a.ruleset, a.index, a.recorded_at, a.said AS key, a.status,
           a.fault, a.file, a.metadata_location, a.findings, a.rows, a.rows_sampled, a.columns, a.files, a.cells,
           a.bytes_read, a.gaps, a.columns_unread, a.unread, 9223372036854775807 AS until
    FROM projections.scans AS a
    UNION ALL
    SELECT b.log_id, b.generation, b.table_uuid, b.snapshot, b.ruleset, b.index, b.recorded_at, b.said, b.status,
           b.fault, b.file, b.metadata_location, b.findings, b.rows, b.rows_sampled, b.columns, b.files, b.cells,
           b.bytes_read, b.gaps, b.columns_unread, b.unread, b.until
    FROM projections.scans_past AS b
) AS y
WHERE y.index <= %(as_of)s AND y.until > %(as_of)s

-- name: finding_reviews
-- The same for reviews: each is kept.
SELECT a.* FROM projections.finding_reviews AS a WHERE a.index <= %(as_of)s

-- name: table_names
-- The same for the names that tables have: the entry at index gave it to a table that has it.
SELECT y.*
FROM (
    SELECT a.log_id, a.projection, a.generation, a.table_uuid, a.key, a.index, a.is_current,
           9223372036854775807 AS until
    FROM projections.table_names AS a
    UNION ALL
    SELECT b.log_id, 'findings'::text, b.generation, b.table_uuid, b.key, b.index, b.is_current, b.until
    FROM projections.table_names_past AS b
) AS y
WHERE y.is_current AND y.index <= %(as_of)s AND y.until > %(as_of)s

-- name: commits
-- The same for commits that were settled.
SELECT a.log_id, a.generation, a.index, a.table_uuid, a.operation, a.outcome, a.actor, a.principal
FROM projections.commits AS a
WHERE a.settled_index <= %(as_of)s

-- name: is_called
-- The condition {is_called} on a finding f: that its table had a name, if one is asked for.
(%(key)s::text IS NULL OR %(key)s = coalesce({called}, f.key))

-- name: called
-- The expression {called}: the last name that the table of f had then. The first row of its past that held longer has it,
-- or else the present one.
(
    SELECT y.key
    FROM (
        SELECT b.log_id, 'findings'::text AS projection, b.generation, b.table_uuid, b.key, b.until
        FROM projections.table_names_past AS b
        UNION ALL
        SELECT a.log_id, a.projection, a.generation, a.table_uuid, a.key, 9223372036854775807
        FROM projections.table_names AS a
    ) AS y
    WHERE y.log_id = %(log_id)s AND y.projection = 'findings' AND y.generation = (
        SELECT v.generation FROM projections.live AS v WHERE v.projection = 'findings' AND v.log_id = %(log_id)s
      )
      AND y.table_uuid = f.table_uuid AND y.until > %(as_of)s
    ORDER BY y.until
    LIMIT 1
)

-- name: names_then
-- What some tables were called then, and are called now.
SELECT f.table_uuid, {called}, n.key
FROM unnest(%(uuids)s::text[]) AS f (table_uuid)
LEFT JOIN projections.table_names AS n
    ON n.log_id = %(log_id)s AND n.projection = 'findings' AND n.generation = (
        SELECT v.generation FROM projections.live AS v WHERE v.projection = 'findings' AND v.log_id = %(log_id)s
    )
    AND n.table_uuid = f.table_uuid

-- name: tables_named
-- The tables that had some names then, and since which entry.
SELECT n.key, n.table_uuid, n.index
FROM projections.table_names AS n
WHERE n.log_id = %(log_id)s AND n.projection = 'findings' AND n.generation = (
    SELECT l.generation FROM projections.live AS l WHERE l.projection = 'findings' AND l.log_id = %(log_id)s
  )
  AND n.is_current AND n.key COLLATE "C" = ANY(%(keys)s)

-- name: insert_findings_past
-- Findings that were replaced within a batch.
INSERT INTO projections.findings_past (
    log_id, generation, table_uuid, snapshot, ruleset, field_id, kind, index, until, group_id, recorded_at, said,
    column_path, confidence_percent, matches, not_null
)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    table_uuid text, snapshot text, ruleset text, field_id bigint, kind text, index bigint, until bigint, group_id uuid,
    recorded_at timestamptz, key text, column_path text, confidence_percent integer, matches bigint, not_null bigint
)

-- name: insert_scans_past
-- The same of scans.
INSERT INTO projections.scans_past (
    log_id, generation, table_uuid, snapshot, ruleset, index, until, recorded_at, said, status, fault, file,
    metadata_location, findings, rows, rows_sampled, columns, files, cells, bytes_read, gaps, columns_unread, unread
)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    table_uuid text, snapshot text, ruleset text, index bigint, until bigint, recorded_at timestamptz, key text,
    status text, fault text, file text, metadata_location text, findings bigint, rows bigint, rows_sampled bigint,
    columns bigint, files bigint, cells bigint, bytes_read bigint, gaps text[], columns_unread bigint, unread jsonb
)

-- name: insert_table_names_past
-- Names that tables have no more.
INSERT INTO projections.table_names_past (log_id, generation, table_uuid, until, key, index, is_current)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    table_uuid text, until bigint, key text, index bigint, is_current boolean
)

-- name: digest_findings_past
-- Every row by its index.
SELECT 'finding_past', index, until, table_uuid, snapshot, ruleset, field_id, kind, group_id::text, recorded_at, said,
       column_path, confidence_percent, matches, not_null
FROM projections.findings_past WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY index

-- name: digest_scans_past
-- The same.
SELECT 'scan_past', index, until, table_uuid, snapshot, ruleset, recorded_at, said, status, fault, file,
       metadata_location, findings, rows, rows_sampled, columns, files, cells, bytes_read, gaps, columns_unread,
       unread::text
FROM projections.scans_past WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY index

-- name: digest_names_past
-- By uuid and index, bytewise: databases sort text differently.
SELECT 'name_past', table_uuid, until, key, index, is_current
FROM projections.table_names_past WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY table_uuid COLLATE "C", until

-- name: drop_findings_past
-- The rows of one generation.
DELETE FROM projections.findings_past WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: drop_scans_past
-- The same.
DELETE FROM projections.scans_past WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: drop_names_past
-- The same.
DELETE FROM projections.table_names_past WHERE log_id = %(log_id)s AND generation = %(generation)s
