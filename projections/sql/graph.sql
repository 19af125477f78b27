-- SPDX-License-Identifier: Apache-2.0
-- name: settings
-- AGE finds its own operators by the path; its row estimates are so high that PostgreSQL would compile every query. Both
-- last as long as the transaction.
SELECT set_config('search_path', 'pg_catalog, ag_catalog', true), set_config('jit', 'off', true)

-- name: bound_time
-- How long a statement of this transaction may take.
SELECT set_config('statement_timeout', %(timeout)s, true)

-- name: create_graph
-- A schema of its own, with AGE's tables in it.
SELECT ag_catalog.create_graph({graph})

-- name: create_vertex_label
-- A table in the graph's schema.
SELECT ag_catalog.create_vlabel({graph}, {label})

-- name: create_edge_label
-- A table in the graph's schema.
SELECT ag_catalog.create_elabel({graph}, {label})

-- name: vertex_key_index
-- One vertex a natural key; openCypher's `WHERE v.key = …` uses it.
CREATE UNIQUE INDEX ON {label} (ag_catalog.agtype_access_operator(properties, '"key"'::ag_catalog.agtype))

-- name: edge_ends_index
-- One edge of a label between two vertices.
CREATE UNIQUE INDEX ON {label} (start_id, end_id)

-- name: edge_starts_index
-- The edges that end at a vertex, in the order in which their starts were made: a vertex may have very many.
CREATE INDEX ON {label} (end_id, start_id)

-- name: drop_own_indexes
-- AGE's own indexes of the ends of edges: those of both ends begin with them.
DROP INDEX {starts}, {ends}

-- name: write_event_index
-- WriteEvents in the order of the log.
CREATE INDEX ON {label} (ag_catalog.agtype_access_operator(properties, '"index"'::ag_catalog.agtype))

-- name: table_uuid_index
-- Snapshots and classifications of a table, which may be named long after they were found.
CREATE INDEX ON {label} (ag_catalog.agtype_access_operator(properties, '"table_uuid"'::ag_catalog.agtype))

-- name: no_samples
-- WriteEvents name people, and the planner's statistics would keep samples of that: none are taken.
ALTER TABLE {label} ALTER COLUMN properties SET STATISTICS 0

-- name: grant_schema
-- The tenant's reader may use the schema of its graph.
GRANT USAGE ON SCHEMA {graph} TO {reader}

-- name: grant_tables
-- The tenant's reader may read all tables of its graph, and do nothing else with them.
GRANT SELECT ON ALL TABLES IN SCHEMA {graph} TO {reader}

-- name: drop_graph
-- Drop the graph with all its labels.
SELECT ag_catalog.drop_graph(%(graph)s, true)

-- name: upsert_vertices
-- Insert vertices, or merge their properties into existing ones; a row that would not change is not written. Returns the
-- id of each vertex with its place in the array: of a written row as returned, of an unchanged row as read from the table,
-- each by the index. OFFSET 0 keeps the planner from reading the same JSON as agtype twice.
WITH given AS MATERIALIZED (
    SELECT k.place, k.properties, k.key, k.key::text AS name
    FROM (
        SELECT p.place, p.properties,
               ag_catalog.agtype_access_operator(p.properties, '"key"'::ag_catalog.agtype) AS key
        FROM (
            SELECT w.place, w.p::text::ag_catalog.agtype AS properties
            FROM json_array_elements(%(properties)s::json) WITH ORDINALITY AS w (p, place)
            OFFSET 0
        ) AS p
        OFFSET 0
    ) AS k
),
written AS (
    INSERT INTO {label} AS v (properties) SELECT properties FROM given ORDER BY place
    ON CONFLICT (ag_catalog.agtype_access_operator(properties, '"key"'::ag_catalog.agtype)) DO UPDATE
    SET properties = v.properties OPERATOR(ag_catalog.||) excluded.properties
    WHERE v.properties OPERATOR(ag_catalog.<>) (v.properties OPERATOR(ag_catalog.||) excluded.properties)
    RETURNING v.id, (ag_catalog.agtype_access_operator(v.properties, '"key"'::ag_catalog.agtype))::text AS name
)
SELECT w.place, coalesce(n.id, (
    SELECT f.id FROM {label} AS f
    WHERE ag_catalog.agtype_access_operator(f.properties, '"key"'::ag_catalog.agtype) OPERATOR(ag_catalog.=) w.key
))
FROM given AS w LEFT JOIN written AS n ON n.name = w.name

-- name: versions
-- Versions of policies and rules that exist, with the indices between which they are in force.
SELECT k.place, v.id,
       (ag_catalog.agtype_access_operator(v.properties, '"from_index"'::ag_catalog.agtype))::bigint,
       (ag_catalog.agtype_access_operator(v.properties, '"to_index"'::ag_catalog.agtype))::bigint
FROM json_array_elements(%(keys)s::json) WITH ORDINALITY AS k (key, place)
JOIN {label} AS v
    ON ag_catalog.agtype_access_operator(v.properties, '"key"'::ag_catalog.agtype)
       OPERATOR(ag_catalog.=) k.key::text::ag_catalog.agtype

-- name: policies_in_force
-- The versions of policies that were in force at each index, what they govern, and in which scope. There are few
-- policies: no index.
SELECT a.as_of, p.id,
       (ag_catalog.agtype_access_operator(p.properties, '"key"'::ag_catalog.agtype))::text,
       (ag_catalog.agtype_access_operator(p.properties, '"governs"'::ag_catalog.agtype))::text,
       (ag_catalog.agtype_access_operator(p.properties, '"scope"'::ag_catalog.agtype))::text
FROM unnest(%(as_of)s::bigint[]) AS a (as_of)
JOIN {label} AS p
    ON (ag_catalog.agtype_access_operator(p.properties, '"from_index"'::ag_catalog.agtype))::bigint <= a.as_of
   AND coalesce(
           (ag_catalog.agtype_access_operator(p.properties, '"to_index"'::ag_catalog.agtype))::bigint > a.as_of, true
       )

-- name: table_uuids
-- The uuids of tables, by the place of their key in the array.
SELECT k.place, (ag_catalog.agtype_access_operator(v.properties, '"table_uuid"'::ag_catalog.agtype))::text
FROM json_array_elements(%(keys)s::json) WITH ORDINALITY AS k (key, place)
JOIN {label} AS v
    ON ag_catalog.agtype_access_operator(v.properties, '"key"'::ag_catalog.agtype)
       OPERATOR(ag_catalog.=) k.key::text::ag_catalog.agtype

-- name: lineage_omitted
-- How much lineage events reported of these data sets and is not drawn, in the lineage of one generation.
SELECT key, columns + datasets + names + edges + ambiguous + refused FROM projections.lineage_omitted
WHERE log_id = %(log_id)s AND generation = %(generation)s AND key = ANY(%(keys)s)

-- name: things_of_tables
-- What hangs in some tables, by the place of the table's uuid in the array.
SELECT k.place, v.properties::text
FROM json_array_elements(%(table_uuids)s::json) WITH ORDINALITY AS k (table_uuid, place)
JOIN {label} AS v
    ON ag_catalog.agtype_access_operator(v.properties, '"table_uuid"'::ag_catalog.agtype)
       OPERATOR(ag_catalog.=) k.table_uuid::text::ag_catalog.agtype

-- name: lineage_keys
-- What the data sets of lineage events resolved to, of a graph's own lineage.
SELECT index, keys FROM projections.lineage_events
WHERE log_id = %(log_id)s AND generation = %(generation)s AND index = ANY(%(indices)s)

-- name: lineage_drawn
-- Which of these pairs are edges of a graph's own lineage.
SELECT e.source, e.target
FROM unnest(%(sources)s::text[], %(targets)s::text[]) AS p (source, target)
JOIN projections.lineage_edges AS e USING (source, target)
WHERE e.log_id = %(log_id)s AND e.generation = %(generation)s

-- name: upsert_edges
-- Insert edges between the vertices with these ids, or merge their properties into existing ones.
INSERT INTO {label} AS e (start_id, end_id, properties)
SELECT (x ->> 0)::ag_catalog.graphid, (x ->> 1)::ag_catalog.graphid, (x -> 2)::text::ag_catalog.agtype
FROM json_array_elements(%(edges)s::json) AS x
ON CONFLICT (start_id, end_id) DO UPDATE
SET properties = e.properties OPERATOR(ag_catalog.||) excluded.properties
WHERE e.properties OPERATOR(ag_catalog.<>) (e.properties OPERATOR(ag_catalog.||) excluded.properties)

-- name: erase_principals
-- Set the principal to null in WriteEvents whose part with the principal was erased, as if there had been no part.
UPDATE {write_events} AS v
SET properties = v.properties OPERATOR(ag_catalog.||) '{{"principal": null}}'::ag_catalog.agtype
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (at bigint, person text, index bigint, before bigint), (
    SELECT id, (ag_catalog.agtype_access_operator(properties, '"index"'::ag_catalog.agtype))::bigint AS index
    FROM {write_events}
    WHERE (ag_catalog.agtype_access_operator(properties, '"principal"'::ag_catalog.agtype))::text IS NOT NULL
) AS w
WHERE v.id OPERATOR(ag_catalog.=) w.id
  AND w.index < x.at AND (x.index IS NULL OR w.index = x.index) AND (x.before IS NULL OR w.index < x.before)
  AND (x.person IS NULL OR EXISTS (
      SELECT FROM {wrote} AS e JOIN {people} AS p ON p.id OPERATOR(ag_catalog.=) e.start_id
      WHERE e.end_id OPERATOR(ag_catalog.=) w.id
        AND (ag_catalog.agtype_access_operator(p.properties, '"key"'::ag_catalog.agtype))::text = x.person
  ))

-- name: digest_vertices
-- Every vertex of a label in the order of its natural key, bytewise: databases sort text differently.
SELECT properties::text FROM {label}
ORDER BY (ag_catalog.agtype_access_operator(properties, '"key"'::ag_catalog.agtype))::text COLLATE "C", properties::text COLLATE "C"

-- name: digest_edges
-- Every edge of a label by the natural keys of its ends; an end that is not there is null.
SELECT (ag_catalog.agtype_access_operator(s.properties, '"key"'::ag_catalog.agtype))::text COLLATE "C",
       (ag_catalog.agtype_access_operator(t.properties, '"key"'::ag_catalog.agtype))::text COLLATE "C",
       e.properties::text COLLATE "C"
FROM {label} AS e
LEFT JOIN {vertices} AS s ON s.id OPERATOR(ag_catalog.=) e.start_id
LEFT JOIN {vertices} AS t ON t.id OPERATOR(ag_catalog.=) e.end_id
ORDER BY 1, 2, 3

-- name: live_graph
-- The tenant of the role that asks, and the generation it reads.
SELECT g.tenant, l.generation
FROM ledger.logs AS g LEFT JOIN projections.live AS l ON l.log_id = g.log_id AND l.projection = %(projection)s
WHERE g.reader = current_user

-- name: cypher
-- One openCypher query of ours; values travel in one bind parameter, an object.
SELECT * FROM ag_catalog.cypher({graph}, {cypher}, %(parameters)s) AS ({columns})

-- name: edges_out
-- The part of a step that follows one edge label forwards, from vertices whose ids begin with some numbers: of each its
-- last edges, by the index of both ends.
SELECT g.place, e.there, {step} AS step
FROM given AS g CROSS JOIN LATERAL (
    SELECT end_id AS there FROM {label} WHERE start_id OPERATOR(ag_catalog.=) g.id ORDER BY end_id DESC LIMIT %(fan)s
) AS e
WHERE g.number = ANY({near}::integer[])

-- name: edges_in
-- The same, backwards.
SELECT g.place, e.there, {step} AS step
FROM given AS g CROSS JOIN LATERAL (
    SELECT start_id AS there FROM {label} WHERE end_id OPERATOR(ag_catalog.=) g.id ORDER BY start_id DESC LIMIT %(fan)s
) AS e
WHERE g.number = ANY({near}::integer[])

-- name: step
-- What is one step away from some vertices. openCypher's variable-length patterns would load the whole graph first, and
-- AGE's function for them asks no privilege; a recursive query would not stop where enough was found.
WITH given AS MATERIALIZED (
    SELECT g.id::ag_catalog.graphid AS id, (g.id::bigint >> 48)::integer AS number, g.place
    FROM unnest(%(ids)s::text[]) WITH ORDINALITY AS g (id, place)
)
SELECT place, there::text, step FROM ({edges}) AS e

-- name: table
-- A table by its key, with its uuid: one row, or none.
SELECT id::text, properties OPERATOR(ag_catalog.->>) 'table_uuid'::text FROM {label}
WHERE ag_catalog.agtype_access_operator(properties, '"key"'::ag_catalog.agtype)
      OPERATOR(ag_catalog.=) %(key)s::ag_catalog.agtype

-- name: columns
-- The columns, that anything is known of, of tables by their keys: their keys, bytewise.
SELECT c.key
FROM json_array_elements(%(keys)s::json) AS k
CROSS JOIN LATERAL (
    SELECT id FROM {tables}
    WHERE ag_catalog.agtype_access_operator(properties, '"key"'::ag_catalog.agtype)
          OPERATOR(ag_catalog.=) k::text::ag_catalog.agtype
    OFFSET 0
) AS t
CROSS JOIN LATERAL (SELECT end_id AS id FROM {has_column} WHERE start_id OPERATOR(ag_catalog.=) t.id OFFSET 0) AS h
CROSS JOIN LATERAL (
    SELECT (properties OPERATOR(ag_catalog.->>) 'key'::text) COLLATE "C" AS key FROM {columns}
    WHERE id OPERATOR(ag_catalog.=) h.id OFFSET 0
) AS c
ORDER BY c.key
LIMIT %(limit)s

-- name: vertices_of_keys
-- Vertices of a label, by their keys.
SELECT v.id::text, k #>> '{{}}'
FROM json_array_elements(%(keys)s::json) AS k
CROSS JOIN LATERAL (
    SELECT id FROM {label}
    WHERE ag_catalog.agtype_access_operator(properties, '"key"'::ag_catalog.agtype)
          OPERATOR(ag_catalog.=) k::text::ag_catalog.agtype
    OFFSET 0
) AS v

-- name: keys_of_label
-- The keys of vertices of one label, by their ids.
SELECT g.id, (ag_catalog.agtype_access_operator(v.properties, '"key"'::ag_catalog.agtype))::text
FROM unnest({ids}::text[]) AS g (id)
CROSS JOIN LATERAL (SELECT properties FROM {label} WHERE id OPERATOR(ag_catalog.=) g.id::ag_catalog.graphid OFFSET 0) AS v

-- name: last_writes
-- The last writes of a table, who asked for them, and which versions decided: a row for each of these, or one without.
-- WriteEvents are made in the order of the log, so the order of their ids is that of the log.
SELECT ag_catalog.agtype_access_operator(w.properties, '"index"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(w.properties, '"recorded_at"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(p.properties, '"actor"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(w.properties, '"principal"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(w.properties, '"operation"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(w.properties, '"decision"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(w.properties, '"outcome"'::ag_catalog.agtype),
       d.label,
       ag_catalog.agtype_access_operator(d.properties, '"id"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(d.properties, '"version"'::ag_catalog.agtype)
FROM (
    SELECT start_id AS id FROM {intended} WHERE end_id OPERATOR(ag_catalog.=) %(id)s::ag_catalog.graphid
    ORDER BY start_id DESC LIMIT %(writes)s
) AS n
CROSS JOIN LATERAL (SELECT properties FROM {write_events} WHERE id OPERATOR(ag_catalog.=) n.id OFFSET 0) AS w
LEFT JOIN LATERAL (
    SELECT q.properties FROM {wrote} AS e JOIN {people} AS q ON q.id OPERATOR(ag_catalog.=) e.start_id
    WHERE e.end_id OPERATOR(ag_catalog.=) n.id OFFSET 0
) AS p ON true
LEFT JOIN LATERAL (
    SELECT '"Policy"' AS label, q.properties FROM {decided_by} AS e JOIN {policies} AS q ON q.id OPERATOR(ag_catalog.=) e.end_id
    WHERE e.start_id OPERATOR(ag_catalog.=) n.id
    UNION ALL
    SELECT '"AccessRule"', q.properties FROM {decided_by} AS e JOIN {rules} AS q ON q.id OPERATOR(ag_catalog.=) e.end_id
    WHERE e.start_id OPERATOR(ag_catalog.=) n.id
) AS d ON true

-- name: last_snapshots
-- The last snapshots of a table: the first ones, and those that no decision names.
SELECT ag_catalog.agtype_access_operator(s.properties, '"index"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(s.properties, '"snapshot_id"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(s.properties, '"governed"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(s.properties, '"operation"'::ag_catalog.agtype)
FROM (
    SELECT end_id AS id, row_number() OVER (ORDER BY end_id DESC) AS place FROM {has_snapshot}
    WHERE start_id OPERATOR(ag_catalog.=) %(id)s::ag_catalog.graphid
    ORDER BY end_id DESC LIMIT %(snapshots)s
) AS n
CROSS JOIN LATERAL (SELECT properties FROM {snapshots} WHERE id OPERATOR(ag_catalog.=) n.id OFFSET 0) AS s
WHERE n.place <= %(limit)s OR s.properties OPERATOR(ag_catalog.->>) 'governed'::text = 'false'

-- name: last_sources
-- The last tables, views and data sets from which a table was made.
SELECT d.label, ag_catalog.agtype_access_operator(d.properties, '"key"'::ag_catalog.agtype)
FROM (
    SELECT start_id AS id FROM {lineage_of} WHERE end_id OPERATOR(ag_catalog.=) %(id)s::ag_catalog.graphid
    ORDER BY start_id DESC LIMIT %(limit)s
) AS n
CROSS JOIN LATERAL ({data} OFFSET 0) AS d

-- name: last_targets
-- The last ones that were made from it.
SELECT d.label, ag_catalog.agtype_access_operator(d.properties, '"key"'::ag_catalog.agtype)
FROM (
    SELECT end_id AS id FROM {lineage_of} WHERE start_id OPERATOR(ag_catalog.=) %(id)s::ag_catalog.graphid
    ORDER BY end_id DESC LIMIT %(limit)s
) AS n
CROSS JOIN LATERAL ({data} OFFSET 0) AS d

-- name: data_of_id
-- The part of both that is of one label.
SELECT {kind} AS label, properties FROM {label} WHERE id OPERATOR(ag_catalog.=) n.id

-- name: last_runs
-- Whose the last runs are that read a table, or made it. The ids of runs are above those of queries.
SELECT DISTINCT true, ag_catalog.agtype_access_operator(j.properties, '"namespace"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(j.properties, '"name"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(e.properties, '"name"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(b.properties, '"actor"'::ag_catalog.agtype)
FROM (
    SELECT start_id AS id FROM {of_runs} WHERE end_id OPERATOR(ag_catalog.=) %(id)s::ag_catalog.graphid
    ORDER BY start_id DESC LIMIT %(limit)s
) AS n
CROSS JOIN LATERAL (SELECT FROM {runs} WHERE id OPERATOR(ag_catalog.=) n.id OFFSET 0) AS r
LEFT JOIN LATERAL (
    SELECT q.properties FROM {run_of} AS x JOIN {pipelines} AS q ON q.id OPERATOR(ag_catalog.=) x.end_id
    WHERE x.start_id OPERATOR(ag_catalog.=) n.id OFFSET 0
) AS j ON true
LEFT JOIN LATERAL (
    SELECT q.properties FROM {ran_on} AS x JOIN {engines} AS q ON q.id OPERATOR(ag_catalog.=) x.end_id
    WHERE x.start_id OPERATOR(ag_catalog.=) n.id OFFSET 0
) AS e ON true
LEFT JOIN LATERAL (
    SELECT q.properties FROM {submitted} AS x JOIN {people} AS q ON q.id OPERATOR(ag_catalog.=) x.start_id
    WHERE x.end_id OPERATOR(ag_catalog.=) n.id OFFSET 0
) AS b ON true

-- name: last_policies
-- The last versions of policies that govern a table.
SELECT ag_catalog.agtype_access_operator(v.properties, '"id"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(v.properties, '"version"'::ag_catalog.agtype),
       ag_catalog.agtype_access_operator(v.properties, '"to_index"'::ag_catalog.agtype)
FROM (
    SELECT start_id AS id FROM {governs} WHERE end_id OPERATOR(ag_catalog.=) %(id)s::ag_catalog.graphid
    ORDER BY start_id DESC LIMIT %(limit)s
) AS n
CROSS JOIN LATERAL (SELECT properties FROM {policies} WHERE id OPERATOR(ag_catalog.=) n.id OFFSET 0) AS v

-- name: found_in_columns
-- What was found in the columns of a table: of each kind the highest confidence, in how many snapshots, and reviews of it,
-- each with the confidence of what was reviewed; of each column by its last findings.
SELECT f.key, f.path, f.kind, max(f.percent), count(DISTINCT f.snapshot),
       coalesce(
           jsonb_agg(jsonb_build_array(f.review_index, f.review, f.percent)) FILTER (WHERE f.review_index IS NOT NULL), '[]'
       )
FROM (
    SELECT c.key, c.path,
           x.properties OPERATOR(ag_catalog.->>) 'kind'::text AS kind,
           (x.properties OPERATOR(ag_catalog.->>) 'confidence_percent'::text)::bigint AS percent,
           x.properties OPERATOR(ag_catalog.->>) 'review'::text AS review,
           (x.properties OPERATOR(ag_catalog.->>) 'review_index'::text)::bigint AS review_index,
           x.properties OPERATOR(ag_catalog.->>) 'snapshot_id'::text AS snapshot,
           x.properties OPERATOR(ag_catalog.->>) 'table_uuid'::text AS table_uuid
    FROM {has_column} AS h
    CROSS JOIN LATERAL (
        SELECT y.id, y.properties OPERATOR(ag_catalog.->>) 'key'::text AS key,
               y.properties OPERATOR(ag_catalog.->>) 'path'::text AS path
        FROM {columns} AS y WHERE y.id OPERATOR(ag_catalog.=) h.end_id OFFSET 0
    ) AS c
    CROSS JOIN LATERAL (
        SELECT end_id FROM {classified_as} WHERE start_id OPERATOR(ag_catalog.=) c.id
        ORDER BY end_id DESC LIMIT %(each)s
    ) AS e
    CROSS JOIN LATERAL (SELECT properties FROM {classifications} WHERE id OPERATOR(ag_catalog.=) e.end_id OFFSET 0) AS x
    WHERE h.start_id OPERATOR(ag_catalog.=) %(id)s::ag_catalog.graphid
    LIMIT %(all)s
) AS f
WHERE %(table_uuid)s::text IS NULL OR f.table_uuid = %(table_uuid)s
GROUP BY f.key, f.path, f.kind
ORDER BY 4 DESC, f.path COLLATE "C", f.kind COLLATE "C"
LIMIT %(limit)s

-- name: scanned
-- The last snapshots of a table that the log knows, by what came of scanning them: null where no scan is recorded. One
-- that was scanned under several rulesets counts once: as completed if one of them was. Further rows have what the newest
-- of these scans did not look at, and one says whether the table has more snapshots.
WITH last AS MATERIALIZED (
    SELECT end_id AS id FROM {has_snapshot} WHERE start_id OPERATOR(ag_catalog.=) %(id)s::ag_catalog.graphid
    ORDER BY end_id DESC LIMIT %(snapshots)s + 1
),
looked AS MATERIALIZED (
    SELECT s.id, s.properties OPERATOR(ag_catalog.->>) 'governed'::text IS NOT NULL AS is_told, r.*
    FROM (SELECT id FROM last ORDER BY id DESC LIMIT %(snapshots)s) AS h
    CROSS JOIN LATERAL (SELECT id, properties FROM {snapshots} WHERE id OPERATOR(ag_catalog.=) h.id OFFSET 0) AS s
    LEFT JOIN LATERAL (
        SELECT d.properties OPERATOR(ag_catalog.->>) 'status'::text AS status,
               (d.properties OPERATOR(ag_catalog.->>) 'index'::text)::bigint AS index,
               d.properties OPERATOR(ag_catalog.->>) 'rows_sampled'::text AS rows_sampled,
               (d.properties OPERATOR(ag_catalog.->>) 'columns_unread'::text)::bigint AS columns_unread,
               CASE WHEN (d.properties OPERATOR(ag_catalog.->>) 'columns_unread'::text)::bigint > 0
                    THEN ag_catalog.agtype_access_operator(d.properties, '"unread"'::ag_catalog.agtype) END AS unread
        FROM {scanned} AS e JOIN {runs} AS d ON d.id OPERATOR(ag_catalog.=) e.start_id
        WHERE e.end_id OPERATOR(ag_catalog.=) h.id OFFSET 0
    ) AS r ON true
    WHERE %(table_uuid)s::text IS NULL OR coalesce(
              s.properties OPERATOR(ag_catalog.->>) 'table_uuid'::text, %(table_uuid)s
          ) = %(table_uuid)s
)
SELECT 'snapshots', n.status, count(*), count(*) FILTER (WHERE n.is_sampled), count(*) FILTER (WHERE n.is_silent),
       NULL::ag_catalog.agtype
FROM (
    SELECT min(k.status) AS status, coalesce(bool_or(k.rows_sampled IS NOT NULL), false) AS is_sampled,
           coalesce(bool_or(k.status = 'completed' AND k.columns_unread IS NULL), false) AS is_silent
    FROM looked AS k
    GROUP BY k.id
    -- A snapshot that only lineage has named may be none of this table's.
    HAVING bool_or(k.is_told) OR min(k.status) IS NOT NULL
) AS n
GROUP BY n.status
UNION ALL
SELECT 'unread', NULL, u.columns_unread, NULL, NULL, u.unread
FROM (SELECT * FROM looked WHERE columns_unread > 0 ORDER BY index DESC LIMIT %(scans)s) AS u
UNION ALL
SELECT 'more', NULL, count(*) - %(snapshots)s, NULL, NULL, NULL FROM last HAVING count(*) > %(snapshots)s
