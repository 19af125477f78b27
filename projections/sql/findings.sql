-- SPDX-License-Identifier: Apache-2.0
-- name: upsert_scans
-- The last scan of a snapshot under a ruleset; what it replaces is kept as past, until the first one that did.
WITH x AS (
    SELECT *
    FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
        table_uuid text, snapshot text, ruleset text, index bigint, recorded_at timestamptz, key text, status text,
        fault text, file text, metadata_location text, findings bigint, rows bigint, rows_sampled bigint,
        columns bigint, files bigint, cells bigint, bytes_read bigint, gaps text[], columns_unread bigint, unread jsonb,
        until bigint
    )
),
past AS (
    INSERT INTO projections.scans_past (
        log_id, generation, table_uuid, snapshot, ruleset, index, until, recorded_at, said, status, fault, file,
        metadata_location, findings, rows, rows_sampled, columns, files, cells, bytes_read, gaps, columns_unread, unread
    )
    SELECT s.log_id, s.generation, s.table_uuid, s.snapshot, s.ruleset, s.index, x.until, s.recorded_at, s.said, s.status,
           s.fault, s.file, s.metadata_location, s.findings, s.rows, s.rows_sampled, s.columns, s.files, s.cells,
           s.bytes_read, s.gaps, s.columns_unread, s.unread
    FROM x JOIN projections.scans AS s
        ON s.log_id = %(log_id)s AND s.generation = %(generation)s AND s.table_uuid = x.table_uuid
        AND s.snapshot = x.snapshot AND s.ruleset = x.ruleset
)
INSERT INTO projections.scans AS s (
    log_id, generation, table_uuid, snapshot, ruleset, index, recorded_at, key, status, fault, file, metadata_location,
    findings, rows, rows_sampled, columns, files, cells, bytes_read, gaps, columns_unread, unread, said
)
SELECT %(log_id)s, %(generation)s, x.table_uuid, x.snapshot, x.ruleset, x.index, x.recorded_at, x.key, x.status, x.fault,
       x.file, x.metadata_location, x.findings, x.rows, x.rows_sampled, x.columns, x.files, x.cells, x.bytes_read, x.gaps,
       x.columns_unread, x.unread, x.key
FROM x
ON CONFLICT (log_id, generation, table_uuid, snapshot, ruleset) DO UPDATE
SET index = excluded.index, recorded_at = excluded.recorded_at, key = excluded.key, status = excluded.status,
    fault = excluded.fault, file = excluded.file, metadata_location = excluded.metadata_location,
    findings = excluded.findings, rows = excluded.rows, rows_sampled = excluded.rows_sampled,
    columns = excluded.columns, files = excluded.files, cells = excluded.cells, bytes_read = excluded.bytes_read,
    gaps = excluded.gaps, columns_unread = excluded.columns_unread, unread = excluded.unread, said = excluded.said

-- name: supersede_findings
-- What an earlier scan of the same snapshot under the same ruleset found, another group, and a finding that is reported
-- again, are past: until the first entry that replaces them.
WITH x AS (
    SELECT *
    FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
        table_uuid text, snapshot text, ruleset text, group_id uuid, field_id bigint, kind text, until bigint
    )
),
replaced AS (
    SELECT f.table_uuid, f.snapshot, f.ruleset, f.field_id, f.kind, min(x.until) AS until
    FROM x JOIN projections.findings AS f
        ON f.log_id = %(log_id)s AND f.generation = %(generation)s AND f.table_uuid = x.table_uuid
        AND f.snapshot = x.snapshot AND f.ruleset = x.ruleset
    WHERE CASE WHEN x.field_id IS NULL THEN f.group_id <> x.group_id ELSE f.field_id = x.field_id AND f.kind = x.kind END
    GROUP BY f.table_uuid, f.snapshot, f.ruleset, f.field_id, f.kind
),
gone AS (
    DELETE FROM projections.findings AS f
    USING replaced AS r
    WHERE f.log_id = %(log_id)s AND f.generation = %(generation)s AND f.table_uuid = r.table_uuid
      AND f.snapshot = r.snapshot AND f.ruleset = r.ruleset AND f.field_id = r.field_id AND f.kind = r.kind
    RETURNING f.*, r.until
)
INSERT INTO projections.findings_past (
    log_id, generation, table_uuid, snapshot, ruleset, field_id, kind, index, until, group_id, recorded_at, said,
    column_path, confidence_percent, matches, not_null
)
SELECT g.log_id, g.generation, g.table_uuid, g.snapshot, g.ruleset, g.field_id, g.kind, g.index, g.until, g.group_id,
       g.recorded_at, g.said, g.column_path, g.confidence_percent, g.matches, g.not_null
FROM gone AS g

-- name: insert_findings
-- One row a column and kind: what was there before is past.
INSERT INTO projections.findings (
    log_id, generation, table_uuid, snapshot, ruleset, field_id, kind, index, group_id, recorded_at, key, column_path,
    confidence_percent, matches, not_null, said
)
SELECT %(log_id)s, %(generation)s, x.*, x.key
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    table_uuid text, snapshot text, ruleset text, field_id bigint, kind text, index bigint, group_id uuid,
    recorded_at timestamptz, key text, column_path text, confidence_percent integer, matches bigint, not_null bigint
)

-- name: insert_alerts
-- A row for every alert.
INSERT INTO projections.alerts (
    log_id, generation, index, group_id, recorded_at, key, finding, table_uuid, snapshot, field_id, column_path, kind,
    confidence_percent
)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    index bigint, group_id uuid, recorded_at timestamptz, key text, finding text, table_uuid text, snapshot text,
    field_id bigint, column_path text, kind text, confidence_percent integer
)

-- name: insert_deliveries
-- The first one counts.
INSERT INTO projections.alert_deliveries (log_id, generation, alert, sink, index, recorded_at, attempt)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    alert text, sink text, index bigint, recorded_at timestamptz, attempt bigint
)
ORDER BY x.index
ON CONFLICT (log_id, generation, alert, sink) DO NOTHING

-- name: add_triggers
-- More of each source.
INSERT INTO projections.trigger_counts AS t (log_id, generation, source, triggers, files, last_index, last_at)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    source text, triggers bigint, files bigint, last_index bigint, last_at timestamptz
)
ON CONFLICT (log_id, generation, source) DO UPDATE
SET triggers = t.triggers + excluded.triggers, files = t.files + excluded.files, last_index = excluded.last_index,
    last_at = excluded.last_at

-- name: insert_ungoverned
-- As it was first observed.
INSERT INTO projections.ungoverned (
    log_id, generation, table_uuid, snapshot, index, recorded_at, key, metadata_location, operation, parent, trigger
)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    table_uuid text, snapshot text, index bigint, recorded_at timestamptz, key text, metadata_location text,
    operation text, parent text, trigger text
)
ORDER BY x.index
ON CONFLICT (log_id, generation, table_uuid, snapshot) DO NOTHING

-- name: name_rows
-- The rows of some tables bear the key of what each is called now; those of a table that nobody has named keep theirs.
UPDATE {table} AS t SET key = n.key
FROM projections.table_names AS n
WHERE n.log_id = %(log_id)s AND n.projection = 'findings' AND n.generation = %(generation)s
  AND n.table_uuid = ANY(%(uuids)s::text[]) AND n.key IS NOT NULL
  AND t.log_id = n.log_id AND t.generation = n.generation AND t.table_uuid = n.table_uuid
  AND t.key IS DISTINCT FROM n.key

-- name: digest_scans
-- Every row by its natural key, bytewise: databases sort text differently.
SELECT 'scan', table_uuid, snapshot, ruleset, index, recorded_at, key, said, status, fault, file, metadata_location, findings,
       rows, rows_sampled, columns, files, cells, bytes_read, gaps, columns_unread, unread::text
FROM projections.scans WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY table_uuid COLLATE "C", snapshot COLLATE "C", ruleset COLLATE "C"

-- name: digest_findings
-- The same.
SELECT 'finding', table_uuid, snapshot, ruleset, field_id, kind, index, group_id::text, recorded_at, key, said,
       column_path, confidence_percent, matches, not_null
FROM projections.findings WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY table_uuid COLLATE "C", snapshot COLLATE "C", ruleset COLLATE "C", field_id, kind COLLATE "C"

-- name: digest_alerts
-- In the order of the log.
SELECT 'alert', index, group_id::text, recorded_at, key, finding, table_uuid, snapshot, field_id, column_path, kind,
       confidence_percent
FROM projections.alerts WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY index

-- name: digest_deliveries
-- By natural key.
SELECT 'delivery', alert, sink, index, recorded_at, attempt
FROM projections.alert_deliveries WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY alert COLLATE "C", sink COLLATE "C"

-- name: digest_triggers
-- The same.
SELECT 'trigger', source, triggers, files, last_index, last_at
FROM projections.trigger_counts WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY source COLLATE "C"

-- name: digest_ungoverned
-- The same.
SELECT 'ungoverned', table_uuid, snapshot, index, recorded_at, key, metadata_location, operation, parent, trigger
FROM projections.ungoverned WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY table_uuid COLLATE "C", snapshot COLLATE "C"

-- name: drop_scans
-- The rows of one generation.
DELETE FROM projections.scans WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: drop_findings
-- The same.
DELETE FROM projections.findings WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: drop_alerts
-- The same.
DELETE FROM projections.alerts WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: drop_deliveries
-- The same.
DELETE FROM projections.alert_deliveries WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: drop_triggers
-- The same.
DELETE FROM projections.trigger_counts WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: drop_ungoverned
-- The same.
DELETE FROM projections.ungoverned WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: scans
-- The last scans below an index, of the live generation.
SELECT s.table_uuid, s.snapshot, s.ruleset, s.index, s.recorded_at, s.key, s.status, s.fault, s.file,
       s.metadata_location, s.findings, s.rows, s.rows_sampled, s.columns, s.files, s.cells, s.bytes_read, s.gaps,
       s.columns_unread, s.unread
FROM projections.live AS l JOIN projections.scans AS s USING (log_id, generation)
WHERE l.projection = 'findings' AND s.index < %(before)s AND (%(key)s::text IS NULL OR s.key = %(key)s)
ORDER BY s.index DESC
LIMIT %(limit)s

-- name: findings
-- What was found last in each column, of each kind: newest first.
SELECT n.index, n.group_id, n.recorded_at, n.key, n.table_uuid, n.snapshot, n.ruleset, n.field_id, n.column_path,
       n.kind, n.confidence_percent, n.matches, n.not_null
FROM (
    SELECT DISTINCT ON (f.table_uuid, f.field_id, f.kind) f.*
    FROM projections.live AS l JOIN projections.findings AS f USING (log_id, generation)
    WHERE l.projection = 'findings' AND f.index < %(before)s AND f.confidence_percent >= %(confidence_percent_min)s
      AND (%(key)s::text IS NULL
           OR hashtextextended(f.key, 0) = hashtextextended(%(key)s, 0) AND f.key = %(key)s)
    ORDER BY f.table_uuid, f.field_id, f.kind, f.index DESC
) AS n
ORDER BY n.index DESC
LIMIT %(limit)s

-- name: findings_of_snapshots
-- What was found in some snapshots of one table.
SELECT f.index, f.group_id, f.recorded_at, f.key, f.table_uuid, f.snapshot, f.ruleset, f.field_id, f.column_path,
       f.kind, f.confidence_percent, f.matches, f.not_null
FROM projections.live AS l JOIN projections.findings AS f USING (log_id, generation)
WHERE l.projection = 'findings' AND f.table_uuid = %(table_uuid)s AND f.snapshot = ANY(%(snapshots)s::text[])
ORDER BY f.snapshot, f.ruleset, f.field_id, f.kind
LIMIT %(limit)s

-- name: alerts
-- The last alerts below an index, with the first delivery of each to anyone.
SELECT a.index, a.group_id, a.recorded_at, a.key, a.finding, a.table_uuid, a.snapshot, a.field_id, a.column_path,
       a.kind, a.confidence_percent,
       array(
           SELECT d.sink FROM projections.alert_deliveries AS d
           WHERE d.log_id = a.log_id AND d.generation = a.generation AND d.alert = a.group_id::text
           ORDER BY d.index
       )
FROM projections.live AS l JOIN projections.alerts AS a USING (log_id, generation)
WHERE l.projection = 'findings' AND a.index < %(before)s
ORDER BY a.index DESC
LIMIT %(limit)s

-- name: scans_of_table
-- The last scans of the table of a uuid, newest first.
SELECT s.table_uuid, s.snapshot, s.ruleset, s.index, s.recorded_at, s.key, s.status, s.fault, s.file,
       s.metadata_location, s.findings, s.rows, s.rows_sampled, s.columns, s.files, s.cells, s.bytes_read, s.gaps,
       s.columns_unread, s.unread
FROM projections.scans AS s
WHERE s.log_id = %(log_id)s AND s.generation = (
    SELECT l.generation FROM projections.live AS l WHERE l.projection = 'findings' AND l.log_id = %(log_id)s
  )
  AND s.table_uuid = %(table_uuid)s
ORDER BY s.index DESC
LIMIT %(limit)s

-- name: alerts_of_snapshots
-- The alerts about some snapshots of one table.
SELECT a.index, a.group_id, a.recorded_at, a.key, a.finding, a.table_uuid, a.snapshot, a.field_id, a.column_path,
       a.kind, a.confidence_percent,
       array(
           SELECT d.sink FROM projections.alert_deliveries AS d
           WHERE d.log_id = a.log_id AND d.generation = a.generation AND d.alert = a.group_id::text
           ORDER BY d.index
       )
FROM projections.live AS l JOIN projections.alerts AS a USING (log_id, generation)
WHERE l.projection = 'findings' AND a.table_uuid = %(table_uuid)s AND a.snapshot = ANY(%(snapshots)s::text[])
ORDER BY a.index
LIMIT %(limit)s

-- name: scans_of_snapshots
-- The last scan of each of some snapshots of one table, under each ruleset.
SELECT s.table_uuid, s.snapshot, s.ruleset, s.index, s.recorded_at, s.key, s.status, s.fault, s.file,
       s.metadata_location, s.findings, s.rows, s.rows_sampled, s.columns, s.files, s.cells, s.bytes_read, s.gaps,
       s.columns_unread, s.unread
FROM projections.live AS l JOIN projections.scans AS s USING (log_id, generation)
WHERE l.projection = 'findings' AND s.table_uuid = %(table_uuid)s AND s.snapshot = ANY(%(snapshots)s::text[])
ORDER BY s.index
LIMIT %(limit)s

-- name: ungoverned
-- The last snapshots that came behind the gateway's back.
SELECT u.index, u.recorded_at, u.key, u.table_uuid, u.snapshot, u.parent, u.operation, u.metadata_location, u.trigger
FROM projections.live AS l JOIN projections.ungoverned AS u USING (log_id, generation)
WHERE l.projection = 'findings' AND u.index < %(before)s
ORDER BY u.index DESC
LIMIT %(limit)s

-- name: triggers
-- What has come from each source.
SELECT t.source, t.triggers, t.files, t.last_index, t.last_at
FROM projections.live AS l JOIN projections.trigger_counts AS t USING (log_id, generation)
WHERE l.projection = 'findings'
ORDER BY t.source

-- name: end
-- How long a log is, and how far its live generation is.
SELECT h.size, coalesce(c.next_index, 0), l.generation
FROM ledger.heads AS h
LEFT JOIN projections.live AS l ON l.projection = %(projection)s AND l.log_id = h.log_id
LEFT JOIN projections.cursors AS c
    ON c.projection = l.projection AND c.log_id = l.log_id AND c.generation = l.generation
WHERE h.log_id = %(log_id)s

-- name: told_since
-- What detection has told since an index, in order; of what holds some bytes alone.
SELECT entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(next_index)s AND type = ANY(%(types)s::text[])
  AND position(%(named)s::bytea IN entry) > 0
ORDER BY index

-- name: current_findings
-- The newest finding of each column and kind of one table, but what others found in the same scans: one step of the
-- index each, however often the table was scanned.
WITH RECURSIVE replaced (snapshot, ruleset, group_id) AS (
    SELECT * FROM unnest(%(snapshots)s::text[], %(rulesets)s::text[], %(groups)s::uuid[])
),
newest AS (
    (
        SELECT f.* FROM projections.findings AS f
        WHERE f.log_id = %(log_id)s AND f.generation = %(generation)s AND f.table_uuid = %(table_uuid)s
          AND NOT EXISTS (
              SELECT FROM replaced AS r
              WHERE r.snapshot = f.snapshot AND r.ruleset = f.ruleset AND r.group_id <> f.group_id
          )
        ORDER BY f.field_id, f.kind, f.index DESC
        LIMIT 1
    )
    UNION ALL
    SELECT n.*
    FROM newest AS p
    CROSS JOIN LATERAL (
        SELECT f.* FROM projections.findings AS f
        WHERE f.log_id = %(log_id)s AND f.generation = %(generation)s AND f.table_uuid = %(table_uuid)s
          AND (f.field_id, f.kind) > (p.field_id, p.kind)
          AND NOT EXISTS (
              SELECT FROM replaced AS r
              WHERE r.snapshot = f.snapshot AND r.ruleset = f.ruleset AND r.group_id <> f.group_id
          )
        ORDER BY f.field_id, f.kind, f.index DESC
        LIMIT 1
    ) AS n
)
SELECT index, group_id, column_path, field_id, kind, confidence_percent, matches, not_null, snapshot, recorded_at
FROM newest
LIMIT %(limit)s

-- name: last_complete_scan
-- The newest complete scan of one table, but of what was scanned again since.
SELECT s.recorded_at, s.snapshot
FROM projections.scans AS s
WHERE s.log_id = %(log_id)s AND s.generation = %(generation)s AND s.table_uuid = %(table_uuid)s
  AND s.status = 'completed'
  AND NOT EXISTS (
      SELECT FROM unnest(%(snapshots)s::text[], %(rulesets)s::text[]) AS r (snapshot, ruleset)
      WHERE r.snapshot = s.snapshot AND r.ruleset = s.ruleset
  )
ORDER BY s.index DESC
LIMIT 1

-- name: finding_at
-- The finding of one entry.
SELECT f.index, f.group_id, f.recorded_at, f.key, f.table_uuid, f.snapshot, f.ruleset, f.field_id, f.column_path,
       f.kind, f.confidence_percent, f.matches, f.not_null
FROM projections.live AS l JOIN projections.findings AS f USING (log_id, generation)
WHERE l.projection = 'findings' AND l.log_id = %(log_id)s AND f.index = %(index)s

-- name: finding_floor
-- The index of the finding so many below an index: what is looked through for one page ends there. Log and generation are
-- constants here and below: joined, they would keep the planner from reading the index in its order.
SELECT f.index
FROM projections.findings AS f
WHERE f.log_id = %(log_id)s AND f.generation = (
    SELECT l.generation FROM projections.live AS l WHERE l.projection = 'findings' AND l.log_id = %(log_id)s
  )
  AND f.index < %(before)s
ORDER BY f.index DESC
OFFSET %(skipped)s LIMIT 1

-- name: is_of_state
-- The condition {is_of_state} on a finding f: that it has the state asked for, if any is, as `state_of` has it. A review
-- holds for a column and kind; what was dismissed is open where a scan is surer than the finding that was dismissed.
(%(state)s::text IS NULL OR %(state)s = coalesce((
      SELECT CASE WHEN r.verdict = 'dismissed' AND r.confidence_percent < f.confidence_percent THEN 'open'
                  ELSE r.verdict END
      FROM projections.finding_reviews AS r
      WHERE r.log_id = f.log_id AND r.generation = f.generation AND r.table_uuid = f.table_uuid
        AND r.field_id = f.field_id AND r.kind = f.kind
      ORDER BY r.version DESC
      LIMIT 1
  ), 'open'))

-- name: findings_below
-- Every finding below an index, of the last scan of each snapshot, newest first; of one state.
SELECT f.index, f.group_id, f.recorded_at, f.key, f.table_uuid, f.snapshot, f.ruleset, f.field_id, f.column_path,
       f.kind, f.confidence_percent, f.matches, f.not_null
FROM projections.findings AS f
WHERE f.log_id = %(log_id)s AND f.generation = (
    SELECT l.generation FROM projections.live AS l WHERE l.projection = 'findings' AND l.log_id = %(log_id)s
  )
  AND f.index < %(before)s AND f.index >= %(floor)s AND {is_called}
  AND (%(kind)s::text IS NULL OR f.kind = %(kind)s) AND f.confidence_percent >= %(confidence_percent_min)s
  AND {is_of_state}
ORDER BY f.index DESC
LIMIT %(limit)s

-- name: findings_of_key_below
-- The same of one table.
SELECT f.index, f.group_id, f.recorded_at, f.key, f.table_uuid, f.snapshot, f.ruleset, f.field_id, f.column_path,
       f.kind, f.confidence_percent, f.matches, f.not_null
FROM projections.findings AS f
WHERE f.log_id = %(log_id)s AND f.generation = (
    SELECT l.generation FROM projections.live AS l WHERE l.projection = 'findings' AND l.log_id = %(log_id)s
  )
  AND f.key = %(key)s AND f.index < %(before)s
  AND (%(kind)s::text IS NULL OR f.kind = %(kind)s) AND f.confidence_percent >= %(confidence_percent_min)s
  AND {is_of_state}
ORDER BY f.index DESC
LIMIT %(limit)s

-- name: last_findings_of_table
-- What was found last in each column of the table of a uuid, of each kind, newest first: one step of the index each,
-- however often the table was scanned.
WITH RECURSIVE live AS (
    SELECT generation FROM projections.live WHERE projection = 'findings' AND log_id = %(log_id)s
),
newest AS (
    (
        SELECT f.* FROM projections.findings AS f
        WHERE f.log_id = %(log_id)s AND f.generation = (SELECT generation FROM live) AND f.table_uuid = %(table_uuid)s
          AND f.confidence_percent >= %(confidence_percent_min)s
        ORDER BY f.field_id, f.kind, f.index DESC
        LIMIT 1
    )
    UNION ALL
    SELECT n.*
    FROM newest AS p
    CROSS JOIN LATERAL (
        SELECT f.* FROM projections.findings AS f
        WHERE f.log_id = %(log_id)s AND f.generation = (SELECT generation FROM live) AND f.table_uuid = %(table_uuid)s
          AND f.confidence_percent >= %(confidence_percent_min)s
          AND (f.field_id, f.kind) > (p.field_id, p.kind)
        ORDER BY f.field_id, f.kind, f.index DESC
        LIMIT 1
    ) AS n
)
SELECT f.index, f.group_id, f.recorded_at, f.key, f.table_uuid, f.snapshot, f.ruleset, f.field_id, f.column_path,
       f.kind, f.confidence_percent, f.matches, f.not_null
FROM newest AS f
WHERE {is_of_state}
ORDER BY f.index DESC
LIMIT %(limit)s

-- name: found_in_tables
-- What kinds of personal data were found in some tables: the highest confidence of each, and in how many columns. One
-- step of the index for each column and kind, however often the tables were scanned.
SELECT t.table_uuid, s.kind, max(s.confidence_percent), count(*)
FROM unnest(%(uuids)s::text[]) AS t (table_uuid)
CROSS JOIN LATERAL (
    WITH RECURSIVE live AS (
        SELECT generation FROM projections.live WHERE projection = 'findings' AND log_id = %(log_id)s
    ),
    highest AS (
        (
            SELECT f.kind, f.field_id, f.confidence_percent FROM projections.findings AS f
            WHERE f.log_id = %(log_id)s AND f.generation = (SELECT generation FROM live)
              AND f.table_uuid = t.table_uuid
            ORDER BY f.kind DESC, f.field_id DESC, f.confidence_percent DESC
            LIMIT 1
        )
        UNION ALL
        SELECT n.*
        FROM highest AS p
        CROSS JOIN LATERAL (
            SELECT f.kind, f.field_id, f.confidence_percent FROM projections.findings AS f
            WHERE f.log_id = %(log_id)s AND f.generation = (SELECT generation FROM live)
              AND f.table_uuid = t.table_uuid AND (f.kind, f.field_id) < (p.kind, p.field_id)
            ORDER BY f.kind DESC, f.field_id DESC, f.confidence_percent DESC
            LIMIT 1
        ) AS n
    )
    SELECT * FROM highest
) AS s
GROUP BY t.table_uuid, s.kind
ORDER BY t.table_uuid, s.kind
