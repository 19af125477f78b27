-- SPDX-License-Identifier: Apache-2.0
-- name: known_catalogs
-- The catalogs in force.
SELECT alias, uri, location FROM projections.lineage_catalogs
WHERE log_id = %(log_id)s AND generation = %(generation)s AND NOT is_retired

-- name: known_locations
-- The tables at these locations.
SELECT location, key FROM projections.lineage_locations
WHERE log_id = %(log_id)s AND generation = %(generation)s AND digest = ANY(%(digests)s)

-- name: known_snapshots
-- The tables of these snapshots.
SELECT snapshot, key FROM projections.lineage_snapshots
WHERE log_id = %(log_id)s AND generation = %(generation)s AND snapshot = ANY(%(snapshots)s)

-- name: known_names
-- The tables of these names that are there.
SELECT t.name, t.key, t.alias
FROM unnest(%(names)s::text[]) AS n (name)
JOIN projections.lineage_tables AS t
    ON t.log_id = %(log_id)s AND t.generation = %(generation)s
    AND hashtextextended(t.name, 0) = hashtextextended(n.name, 0) AND t.name = n.name
WHERE NOT t.is_dropped

-- name: upsert_catalogs
-- Catalogs as their last entry has them.
INSERT INTO projections.lineage_catalogs (log_id, generation, alias, uri, location, is_retired)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (alias text, uri text, location text, is_retired boolean)
ON CONFLICT (log_id, generation, alias) DO UPDATE
SET uri = excluded.uri, location = excluded.location, is_retired = excluded.is_retired

-- name: upsert_tables
-- What is new about tables; null is nothing new. A row that would not change is not written.
INSERT INTO projections.lineage_tables AS t (log_id, generation, key, alias, name, location, table_uuid, is_dropped)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    key text, alias text, name text, location text, table_uuid text, is_dropped boolean
)
ON CONFLICT (log_id, generation, key) DO UPDATE
SET location = coalesce(excluded.location, t.location), table_uuid = coalesce(excluded.table_uuid, t.table_uuid),
    is_dropped = excluded.is_dropped
WHERE (coalesce(excluded.location, t.location), coalesce(excluded.table_uuid, t.table_uuid), excluded.is_dropped)
    IS DISTINCT FROM (t.location, t.table_uuid, t.is_dropped)

-- name: upsert_locations
-- The last table at each location. A row that would not change is not written.
INSERT INTO projections.lineage_locations AS t (log_id, generation, digest, location, key)
SELECT %(log_id)s, %(generation)s, decode(x.digest, 'hex'), x.location, x.key
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (digest text, location text, key text)
ON CONFLICT (log_id, generation, digest) DO UPDATE SET key = excluded.key WHERE t.key <> excluded.key

-- name: insert_snapshots
-- Snapshots of tables; one may be reported again.
INSERT INTO projections.lineage_snapshots (log_id, generation, snapshot, key)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (snapshot text, key text)
ON CONFLICT DO NOTHING

-- name: insert_events
-- What the data sets of events resolved to.
INSERT INTO projections.lineage_events (log_id, generation, index, group_id, keys, refused, omitted)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    index bigint, group_id uuid, keys text[], refused jsonb, omitted jsonb
)

-- name: drawn
-- Which of these edges are drawn already.
SELECT e.source, e.target
FROM unnest(%(sources)s::text[], %(targets)s::text[]) AS x (source, target)
JOIN projections.lineage_edges AS e
    ON e.log_id = %(log_id)s AND e.generation = %(generation)s AND e.source = x.source AND e.target = x.target

-- name: refused
-- Which of these edges were refused.
SELECT c.source, c.target
FROM unnest(%(sources)s::text[], %(targets)s::text[]) AS x (source, target)
JOIN projections.lineage_cycles AS c
    ON c.log_id = %(log_id)s AND c.generation = %(generation)s AND c.source = x.source AND c.target = x.target

-- name: known_runs
-- These runs, as far as events have reported them.
SELECT run_id, job, engine, state, event_time, is_complete, inputs, outputs, derived, columns, judged, first_index,
       last_index
FROM projections.lineage_runs
WHERE log_id = %(log_id)s AND generation = %(generation)s AND run_id = ANY(%(runs)s)

-- name: keeps_cycles
-- A row if the tenant has set that cycles are kept.
SELECT true FROM projections.lineage_settings
WHERE log_id = %(log_id)s AND generation = %(generation)s AND keeps_cycles

-- name: upsert_settings
-- The tenant's settings of lineage.
INSERT INTO projections.lineage_settings (log_id, generation, keeps_cycles)
SELECT %(log_id)s, %(generation)s, x.keeps_cycles
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (keeps_cycles boolean)
ON CONFLICT (log_id, generation) DO UPDATE SET keeps_cycles = excluded.keeps_cycles

-- name: sources_among
-- Which of these something was made from.
SELECT DISTINCT k.key FROM unnest(%(keys)s::text[]) AS k (key)
WHERE EXISTS (
    SELECT FROM projections.lineage_edges AS e
    WHERE e.log_id = %(log_id)s AND e.generation = %(generation)s AND e.source = k.key
)

-- name: targets_among
-- Which of these were made from something.
SELECT DISTINCT k.key FROM unnest(%(keys)s::text[]) AS k (key)
WHERE EXISTS (
    SELECT FROM projections.lineage_edges AS e
    WHERE e.log_id = %(log_id)s AND e.generation = %(generation)s AND e.target = k.key
)

-- name: reached_among
-- Which of these keys one key reaches over any number of edges, itself included.
WITH RECURSIVE reached (key) AS (
    SELECT %(start)s::text COLLATE "C"
    UNION
    SELECT e.target
    FROM reached AS r JOIN projections.lineage_edges AS e
        ON e.log_id = %(log_id)s AND e.generation = %(generation)s AND e.source = r.key
)
SELECT key FROM reached WHERE key = ANY(%(keys)s)

-- name: edges_between
-- The edges of all paths from one key to another, bytewise in order: databases sort text differently.
WITH RECURSIVE ahead (key) AS (
    SELECT %(start)s::text COLLATE "C"
    UNION
    SELECT e.target
    FROM ahead AS a JOIN projections.lineage_edges AS e
        ON e.log_id = %(log_id)s AND e.generation = %(generation)s AND e.source = a.key
),
behind (key) AS (
    SELECT %(end)s::text COLLATE "C"
    UNION
    SELECT e.source
    FROM behind AS b JOIN projections.lineage_edges AS e
        ON e.log_id = %(log_id)s AND e.generation = %(generation)s AND e.target = b.key
)
SELECT e.source, e.target
FROM ahead AS a
JOIN projections.lineage_edges AS e
    ON e.log_id = %(log_id)s AND e.generation = %(generation)s AND e.source = a.key
JOIN behind AS b ON b.key = e.target
ORDER BY e.source COLLATE "C", e.target COLLATE "C"

-- name: insert_edges
-- Edges that are drawn, before it is counted how often they were reported.
INSERT INTO projections.lineage_edges (log_id, generation, source, target, first_index, last_index, count, is_kept)
SELECT %(log_id)s, %(generation)s, x.source, x.target, x.index, x.index, 0, x.is_kept
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (source text, target text, index bigint, is_kept boolean)

-- name: count_edges
-- Count the complete runs and static events that reported edges that are drawn.
UPDATE projections.lineage_edges AS e
SET last_index = x.last_index, job = x.job, run_id = x.run_id, source_version = x.source_version,
    target_version = x.target_version, count = e.count + x.count
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    source text, target text, last_index bigint, job text, run_id text, source_version text, target_version text,
    count bigint
)
WHERE e.log_id = %(log_id)s AND e.generation = %(generation)s AND e.source = x.source AND e.target = x.target

-- name: count_columns
-- Count the events that reported column edges.
INSERT INTO projections.lineage_columns AS c (
    log_id, generation, digest, source, source_column, target, target_column, first_index, last_index, count
)
SELECT %(log_id)s, %(generation)s, decode(x.digest, 'hex'), x.source, x.source_column, x.target, x.target_column,
       x.first_index, x.last_index, x.count
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    digest text, source text, source_column text, target text, target_column text, first_index bigint,
    last_index bigint, count bigint
)
ON CONFLICT (log_id, generation, digest) DO UPDATE
SET last_index = excluded.last_index, count = c.count + excluded.count

-- name: count_cycles
-- Edges that were not drawn: the first time with the path, then counted.
INSERT INTO projections.lineage_cycles AS c (
    log_id, generation, index, group_id, source, target, path, last_index, count
)
SELECT %(log_id)s, %(generation)s, x.index, x.group_id, x.source, x.target, x.path, x.last_index, x.count
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    index bigint, group_id uuid, source text, target text, path text[], last_index bigint, count bigint
)
ON CONFLICT (log_id, generation, source, target) DO UPDATE
SET last_index = excluded.last_index, count = c.count + excluded.count

-- name: lift_cycles
-- Edges that were refused, and are drawn since the tenant keeps cycles.
DELETE FROM projections.lineage_cycles AS c
USING jsonb_to_recordset(%(rows)s::jsonb) AS x (source text, target text)
WHERE c.log_id = %(log_id)s AND c.generation = %(generation)s AND c.source = x.source AND c.target = x.target

-- name: mark_reported
-- Note the entries that report refused edges; the first one behind the refusal counts.
WITH reported AS (
    SELECT c.source, c.target, min(x.told_index) AS told_index
    FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (source text, target text, told_index bigint)
    JOIN projections.lineage_cycles AS c
        ON c.log_id = %(log_id)s AND c.generation = %(generation)s AND c.source = x.source AND c.target = x.target
        AND c.told_index IS NULL AND c.index < x.told_index
    GROUP BY c.source, c.target
)
UPDATE projections.lineage_cycles AS c SET told_index = t.told_index
FROM reported AS t
WHERE c.log_id = %(log_id)s AND c.generation = %(generation)s AND c.source = t.source AND c.target = t.target

-- name: count_omitted
-- Count what was reported and is not drawn, by data set.
INSERT INTO projections.lineage_omitted AS o (
    log_id, generation, key, columns, datasets, names, edges, ambiguous, refused
)
SELECT %(log_id)s, %(generation)s, x.key, x.columns, x.datasets, x.names, x.edges, x.ambiguous, x.refused
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    key text, columns bigint, datasets bigint, names bigint, edges bigint, ambiguous bigint, refused bigint
)
ON CONFLICT (log_id, generation, key) DO UPDATE
SET columns = o.columns + excluded.columns, datasets = o.datasets + excluded.datasets,
    names = o.names + excluded.names, edges = o.edges + excluded.edges,
    ambiguous = o.ambiguous + excluded.ambiguous, refused = o.refused + excluded.refused

-- name: upsert_jobs
-- Jobs that events reported.
INSERT INTO projections.lineage_jobs (log_id, generation, job, namespace, name, first_index, last_index)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    job text, namespace text, name text, first_index bigint, last_index bigint
)
ON CONFLICT (log_id, generation, job) DO UPDATE SET last_index = excluded.last_index

-- name: upsert_runs
-- Runs that events reported.
INSERT INTO projections.lineage_runs AS r (
    log_id, generation, run_id, job, engine, state, event_time, is_complete, inputs, outputs, derived, columns, judged,
    first_index, last_index
)
SELECT %(log_id)s, %(generation)s, x.*
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
    run_id text, job text, engine text, state text, event_time text, is_complete boolean, inputs jsonb, outputs jsonb,
    derived jsonb, columns jsonb, judged integer, first_index bigint, last_index bigint
)
ON CONFLICT (log_id, generation, run_id) DO UPDATE
SET job = excluded.job, engine = excluded.engine, state = excluded.state, event_time = excluded.event_time,
    is_complete = excluded.is_complete, inputs = excluded.inputs, outputs = excluded.outputs,
    derived = excluded.derived, columns = excluded.columns, judged = excluded.judged, last_index = excluded.last_index

-- name: digest_catalogs
-- Bytewise by natural key, like all that follow.
SELECT 'catalog', alias, uri, location, is_retired FROM projections.lineage_catalogs
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY alias COLLATE "C"

-- name: digest_tables
-- The same.
SELECT 'table', key, alias, name, location, table_uuid, is_dropped FROM projections.lineage_tables
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY key COLLATE "C"

-- name: digest_locations
-- The same.
SELECT 'location', location, key FROM projections.lineage_locations
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY location COLLATE "C"

-- name: digest_snapshots
-- The same.
SELECT 'snapshot', snapshot, key FROM projections.lineage_snapshots
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY snapshot COLLATE "C", key COLLATE "C"

-- name: digest_events
-- In the order of the log.
SELECT 'event', index, group_id::text, keys, refused, omitted FROM projections.lineage_events
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY index

-- name: digest_edges
-- By both ends.
SELECT 'edge', source, target, first_index, last_index, job, run_id, source_version, target_version, count, is_kept
FROM projections.lineage_edges
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY source COLLATE "C", target COLLATE "C"

-- name: digest_columns
-- By the digest of their names, which is their natural key.
SELECT 'column', source, source_column, target, target_column, first_index, last_index, count
FROM projections.lineage_columns
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY digest

-- name: digest_cycles
-- By both ends.
SELECT 'cycle', index, group_id::text, source, target, path, last_index, count, told_index
FROM projections.lineage_cycles
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY source COLLATE "C", target COLLATE "C"

-- name: digest_jobs
-- By natural key.
SELECT 'job', job, namespace, name, first_index, last_index FROM projections.lineage_jobs
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY job COLLATE "C"

-- name: digest_runs
-- The same.
SELECT 'run', run_id, job, engine, state, event_time, is_complete, inputs, outputs, derived, columns, judged, first_index,
       last_index
FROM projections.lineage_runs
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY run_id COLLATE "C"

-- name: digest_omitted
-- The same.
SELECT 'omitted', key, columns, datasets, names, edges, ambiguous, refused FROM projections.lineage_omitted
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY key COLLATE "C"

-- name: digest_settings
-- One row at most.
SELECT 'settings', keeps_cycles FROM projections.lineage_settings
WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: drop_generation
-- The rows of one generation in one table.
DELETE FROM {table} WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: unreported
-- Refused edges that no entry of their log reports yet, of the requested logs.
SELECT c.log_id, c.group_id, c.source, c.target, c.path
FROM projections.live AS l JOIN projections.lineage_cycles AS c USING (log_id, generation)
WHERE l.projection = 'lineage' AND c.told_index IS NULL
  AND (%(log_id)s::integer IS NULL OR l.log_id = %(log_id)s)
ORDER BY c.log_id, c.index, c.source COLLATE "C", c.target COLLATE "C"
LIMIT %(limit)s

-- name: next_index
-- How far the live generation is; nothing before a runner has seen the log.
SELECT c.next_index FROM projections.live AS l JOIN projections.cursors AS c USING (projection, log_id, generation)
WHERE l.projection = 'lineage' AND l.log_id = %(log_id)s

-- name: index_of_group
-- Where a group begins in the log.
SELECT index FROM ledger.entries WHERE log_id = %(log_id)s AND group_id = %(group_id)s

-- name: outcomes_of_events
-- What of these events is not drawn, in order: how much was omitted, and the refused edges that still are not there.
SELECT e.index, e.omitted, c.source, c.target, c.path, c.group_id, c.index, c.last_index, c.count, c.told_index
FROM projections.live AS l
JOIN projections.lineage_events AS e USING (log_id, generation)
LEFT JOIN LATERAL jsonb_array_elements(e.refused) AS pair ON true
LEFT JOIN projections.lineage_cycles AS c
    ON c.log_id = e.log_id AND c.generation = e.generation AND c.source = pair ->> 0 AND c.target = pair ->> 1
WHERE l.projection = 'lineage' AND l.log_id = %(log_id)s AND e.index = ANY(%(indices)s)
ORDER BY e.index, c.source COLLATE "C", c.target COLLATE "C"

-- name: omitted_at
-- What was reported of these tables and data sets and is not drawn, by the live generation of lineage or of the graph.
-- The lineage of generation n of a graph is stored as generation -n (projections/lineage/edges.py, lineage_of_graph).
SELECT o.key, o.columns, o.datasets, o.names, o.edges, o.ambiguous, o.refused
FROM projections.live AS l
JOIN projections.lineage_omitted AS o
    ON o.log_id = l.log_id AND o.generation = CASE WHEN l.projection = 'graph' THEN -l.generation ELSE l.generation END
WHERE l.projection = %(projection)s AND (%(log_id)s::integer IS NULL OR l.log_id = %(log_id)s)
  AND o.key = ANY(%(keys)s)
  AND (o.columns, o.datasets, o.names, o.edges, o.ambiguous, o.refused) <> (0, 0, 0, 0, 0, 0)
ORDER BY o.key COLLATE "C"

-- name: upstream
-- The edges that lead to some tables and data sets, in order.
SELECT e.source, e.target, e.job, e.run_id, r.engine, r.state, r.event_time, e.count, e.source_version, e.target_version,
       e.is_kept
FROM (
    SELECT l.* FROM projections.lineage_edges AS l
    WHERE l.log_id = %(log_id)s AND l.generation = (
        SELECT v.generation FROM projections.live AS v WHERE v.projection = 'lineage' AND v.log_id = %(log_id)s
      )
      AND l.target = ANY(%(keys)s::text[])
    ORDER BY l.target COLLATE "C", l.source COLLATE "C"
    LIMIT %(limit)s
) AS e
LEFT JOIN projections.lineage_runs AS r
    ON r.log_id = e.log_id AND r.generation = e.generation AND r.run_id = e.run_id
ORDER BY e.target COLLATE "C", e.source COLLATE "C"

-- name: downstream
-- The edges that lead from them.
SELECT e.source, e.target, e.job, e.run_id, r.engine, r.state, r.event_time, e.count, e.source_version, e.target_version,
       e.is_kept
FROM (
    SELECT l.* FROM projections.lineage_edges AS l
    WHERE l.log_id = %(log_id)s AND l.generation = (
        SELECT v.generation FROM projections.live AS v WHERE v.projection = 'lineage' AND v.log_id = %(log_id)s
      )
      AND l.source = ANY(%(keys)s::text[])
    ORDER BY l.source COLLATE "C", l.target COLLATE "C"
    LIMIT %(limit)s
) AS e
LEFT JOIN projections.lineage_runs AS r
    ON r.log_id = e.log_id AND r.generation = e.generation AND r.run_id = e.run_id
ORDER BY e.source COLLATE "C", e.target COLLATE "C"

-- name: columns_of
-- The column edges into and out of one table or data set: of both the first ones by the other end, read in the order of an
-- index.
SELECT c.source, c.source_column, c.target, c.target_column, c.count
FROM (
    (
        SELECT i.* FROM projections.lineage_columns AS i
        WHERE i.log_id = %(log_id)s AND i.generation = (
            SELECT v.generation FROM projections.live AS v WHERE v.projection = 'lineage' AND v.log_id = %(log_id)s
          )
          AND i.target = %(key)s
        ORDER BY i.source, i.target_column COLLATE "C", i.source_column COLLATE "C"
        LIMIT %(limit)s
    )
    UNION ALL
    (
        SELECT o.* FROM projections.lineage_columns AS o
        WHERE o.log_id = %(log_id)s AND o.generation = (
            SELECT v.generation FROM projections.live AS v WHERE v.projection = 'lineage' AND v.log_id = %(log_id)s
          )
          AND o.source = %(key)s AND o.target <> %(key)s
        ORDER BY o.target, o.target_column COLLATE "C", o.source_column COLLATE "C"
        LIMIT %(limit)s
    )
) AS c
ORDER BY c.target, c.target_column COLLATE "C", c.source, c.source_column COLLATE "C"
LIMIT %(limit)s

-- name: cycles_of
-- The last edges from or to one table or data set that were not drawn.
SELECT c.source, c.target, c.path, c.group_id, c.index, c.last_index, c.count, c.told_index
FROM projections.live AS l JOIN projections.lineage_cycles AS c USING (log_id, generation)
WHERE l.projection = 'lineage' AND l.log_id = %(log_id)s AND (c.source = %(key)s OR c.target = %(key)s)
ORDER BY c.last_index DESC, c.source COLLATE "C", c.target COLLATE "C"
LIMIT %(limit)s

-- name: is_table
-- Whether any entry is about the table or view itself.
SELECT EXISTS (
    SELECT FROM projections.lineage_tables AS t
    WHERE t.log_id = l.log_id AND t.generation = l.generation AND t.key = %(whole_key)s
)
FROM projections.live AS l WHERE l.projection = 'lineage' AND l.log_id = %(log_id)s

-- name: is_known
-- Whether any entry has named a table or data set: entries about the table itself, or about lineage of either.
SELECT EXISTS (
    SELECT FROM projections.lineage_tables AS t
    WHERE t.log_id = l.log_id AND t.generation = l.generation AND t.key = %(whole_key)s
) OR EXISTS (
    SELECT FROM projections.lineage_events AS e
    WHERE e.log_id = l.log_id AND e.generation = l.generation AND %(whole_key)s = ANY(e.keys)
)
FROM projections.live AS l WHERE l.projection = 'lineage' AND l.log_id = %(log_id)s

-- name: first_since
-- The first entry of a type since an index, and the time now.
SELECT entry, now() FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(next_index)s AND type = %(type)s
ORDER BY index
LIMIT 1

-- name: names_of_table
-- The names that a table has, or had and no other one has had since.
SELECT key FROM projections.lineage_tables
WHERE log_id = %(log_id)s AND generation = %(generation)s
  AND hashtextextended(table_uuid, 0) = hashtextextended(%(table_uuid)s::text, 0) AND table_uuid = %(table_uuid)s

-- name: sources_of
-- What some tables and data sets were made from.
SELECT DISTINCT source FROM projections.lineage_edges
WHERE log_id = %(log_id)s AND generation = %(generation)s AND target = ANY(%(keys)s::text[])
LIMIT %(limit)s

-- name: tables_at
-- Which tables have these names, or had them last, and the name that each has now, if it has one.
SELECT k.key, t.table_uuid, n.key
FROM unnest(%(keys)s::text[]) AS k (key)
LEFT JOIN projections.lineage_tables AS t
    ON t.log_id = %(log_id)s AND t.generation = %(generation)s AND t.key = k.key
LEFT JOIN LATERAL (
    SELECT o.key FROM projections.lineage_tables AS o
    WHERE o.log_id = %(log_id)s AND o.generation = %(generation)s AND NOT o.is_dropped
      AND hashtextextended(o.table_uuid, 0) = hashtextextended(t.table_uuid, 0) AND o.table_uuid = t.table_uuid
    ORDER BY o.key COLLATE "C"
    LIMIT 1
) AS n ON true

-- name: runs
-- Runs that events reported, by id from the highest one down: ids that hold a time (UUIDv7) are newest first.
SELECT r.run_id, r.job, r.engine, r.state, r.event_time, r.is_complete, r.inputs, r.outputs, r.first_index, r.last_index
FROM projections.lineage_runs AS r
WHERE r.log_id = %(log_id)s AND r.generation = (
    SELECT l.generation FROM projections.live AS l WHERE l.projection = 'lineage' AND l.log_id = %(log_id)s
  )
  AND (%(before)s::text IS NULL OR r.run_id < %(before)s)
ORDER BY r.run_id DESC
LIMIT %(limit)s

-- name: upstream_of_each
-- The edges that lead to what several walks have reached, each given by its place: of each walk the first.
SELECT w.place, e.source, e.target, e.job, e.run_id, r.engine, r.state, r.event_time, e.count, e.source_version,
       e.target_version, e.is_kept
FROM jsonb_to_recordset(%(walks)s::jsonb) AS w (place integer, keys jsonb)
CROSS JOIN LATERAL (
    SELECT l.* FROM projections.lineage_edges AS l
    WHERE l.log_id = %(log_id)s AND l.generation = (
        SELECT v.generation FROM projections.live AS v WHERE v.projection = 'lineage' AND v.log_id = %(log_id)s
      )
      AND l.target = ANY(ARRAY(SELECT jsonb_array_elements_text(w.keys)))
    ORDER BY l.target COLLATE "C", l.source COLLATE "C"
    LIMIT %(limit)s
) AS e
LEFT JOIN projections.lineage_runs AS r
    ON r.log_id = e.log_id AND r.generation = e.generation AND r.run_id = e.run_id
ORDER BY w.place, e.target COLLATE "C", e.source COLLATE "C"

-- name: downstream_of_each
-- The edges that lead from them.
SELECT w.place, e.source, e.target, e.job, e.run_id, r.engine, r.state, r.event_time, e.count, e.source_version,
       e.target_version, e.is_kept
FROM jsonb_to_recordset(%(walks)s::jsonb) AS w (place integer, keys jsonb)
CROSS JOIN LATERAL (
    SELECT l.* FROM projections.lineage_edges AS l
    WHERE l.log_id = %(log_id)s AND l.generation = (
        SELECT v.generation FROM projections.live AS v WHERE v.projection = 'lineage' AND v.log_id = %(log_id)s
      )
      AND l.source = ANY(ARRAY(SELECT jsonb_array_elements_text(w.keys)))
    ORDER BY l.source COLLATE "C", l.target COLLATE "C"
    LIMIT %(limit)s
) AS e
LEFT JOIN projections.lineage_runs AS r
    ON r.log_id = e.log_id AND r.generation = e.generation AND r.run_id = e.run_id
ORDER BY w.place, e.source COLLATE "C", e.target COLLATE "C"

-- name: columns_of_each
-- The same as `columns_of`, of each of some tables and data sets, by their place.
SELECT k.place, e.*
FROM unnest(%(keys)s::text[]) WITH ORDINALITY AS k (key, place)
CROSS JOIN LATERAL (
    SELECT c.source, c.source_column, c.target, c.target_column, c.count
    FROM (
        (
            SELECT i.* FROM projections.lineage_columns AS i
            WHERE i.log_id = %(log_id)s AND i.generation = (
                SELECT v.generation FROM projections.live AS v WHERE v.projection = 'lineage' AND v.log_id = %(log_id)s
              )
              AND i.target = k.key
            ORDER BY i.source, i.target_column COLLATE "C", i.source_column COLLATE "C"
            LIMIT %(limit)s
        )
        UNION ALL
        (
            SELECT o.* FROM projections.lineage_columns AS o
            WHERE o.log_id = %(log_id)s AND o.generation = (
                SELECT v.generation FROM projections.live AS v WHERE v.projection = 'lineage' AND v.log_id = %(log_id)s
              )
              AND o.source = k.key AND o.target <> k.key
            ORDER BY o.target, o.target_column COLLATE "C", o.source_column COLLATE "C"
            LIMIT %(limit)s
        )
    ) AS c
    ORDER BY c.target, c.target_column COLLATE "C", c.source, c.source_column COLLATE "C"
    LIMIT %(limit)s
) AS e
ORDER BY k.place, e.target, e.target_column COLLATE "C", e.source, e.source_column COLLATE "C"

-- name: cycles_of_each
-- The same as `cycles_of`, of each of some tables and data sets, by their place.
SELECT k.place, e.*
FROM unnest(%(keys)s::text[]) WITH ORDINALITY AS k (key, place)
CROSS JOIN LATERAL (
    SELECT c.source, c.target, c.path, c.group_id, c.index, c.last_index, c.count, c.told_index
    FROM projections.live AS l JOIN projections.lineage_cycles AS c USING (log_id, generation)
    WHERE l.projection = 'lineage' AND l.log_id = %(log_id)s AND (c.source = k.key OR c.target = k.key)
    ORDER BY c.last_index DESC, c.source COLLATE "C", c.target COLLATE "C"
    LIMIT %(limit)s
) AS e
ORDER BY k.place, e.last_index DESC, e.source COLLATE "C", e.target COLLATE "C"
