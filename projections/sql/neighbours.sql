-- SPDX-License-Identifier: Apache-2.0
-- name: vertices_of_keys
-- Vertices of one label by their keys, each found by the index (OFFSET 0): in a join the planner would rather read all.
SELECT v.key, v.id, v.properties
FROM json_array_elements({keys}::json) AS k
CROSS JOIN LATERAL (
    SELECT (ag_catalog.agtype_access_operator(f.properties, '"key"'::ag_catalog.agtype))::text AS key,
           f.id::text AS id, f.properties::text AS properties
    FROM {label} AS f
    WHERE ag_catalog.agtype_access_operator(f.properties, '"key"'::ag_catalog.agtype)
          OPERATOR(ag_catalog.=) k::text::ag_catalog.agtype
    OFFSET 0
) AS v

-- name: vertices_of_label
-- Vertices of one label behind a key, in the order of the index of keys.
SELECT v.id::text, v.properties::text
FROM {label} AS v
WHERE ag_catalog.agtype_access_operator(v.properties, '"key"'::ag_catalog.agtype)
      OPERATOR(ag_catalog.>) %(after)s::ag_catalog.agtype
ORDER BY ag_catalog.agtype_access_operator(v.properties, '"key"'::ag_catalog.agtype)
LIMIT %(limit)s

-- name: counted_out
-- How many edges of one label begin at a vertex, up to a limit; counted by the index that has their order, whatever the
-- planner thinks of how many there are.
(SELECT {step}::integer AS step, count(*) AS count FROM (
     SELECT FROM {label} WHERE start_id OPERATOR(ag_catalog.=) k.id ORDER BY end_id LIMIT %(limit)s
 ) AS e)

-- name: counted_in
-- The same, that end there.
(SELECT {step}::integer AS step, count(*) AS count FROM (
     SELECT FROM {label} WHERE end_id OPERATOR(ag_catalog.=) k.id ORDER BY start_id LIMIT %(limit)s
 ) AS e)

-- name: edges_counted
-- How many edges some vertices have, by the places of vertex and step; none of those that have none.
SELECT k.place, c.step, c.count
FROM (
    SELECT a.id::ag_catalog.graphid AS id, a.place FROM unnest(%(ids)s::text[]) WITH ORDINALITY AS a (id, place)
) AS k
CROSS JOIN LATERAL ({counts}) AS c
WHERE c.count > 0

-- name: edges_out
-- Edges of one label from a vertex: the vertex at the other end, and where the edge stands in their order.
SELECT {step}::integer AS step, v.id, v.properties, ({prefix} || v.key) COLLATE "C" AS place
FROM (
    SELECT end_id AS there FROM {label} WHERE start_id OPERATOR(ag_catalog.=) k.id ORDER BY end_id OFFSET 0
) AS e
CROSS JOIN LATERAL (
    SELECT f.id, f.properties, f.properties OPERATOR(ag_catalog.->>) 'key'::text AS key FROM ({vertices}) AS f OFFSET 0
) AS v

-- name: edges_in
-- The same, to a vertex.
SELECT {step}::integer AS step, v.id, v.properties, ({prefix} || v.key) COLLATE "C" AS place
FROM (
    SELECT start_id AS there FROM {label} WHERE end_id OPERATOR(ag_catalog.=) k.id ORDER BY start_id OFFSET 0
) AS e
CROSS JOIN LATERAL (
    SELECT f.id, f.properties, f.properties OPERATOR(ag_catalog.->>) 'key'::text AS key FROM ({vertices}) AS f OFFSET 0
) AS v

-- name: vertex_of_end
-- The vertex at the other end, if it is of one label.
SELECT id, properties FROM {label} WHERE id OPERATOR(ag_catalog.=) e.there

-- name: neighbours
-- The edges of some vertices, behind a place for each, in the order of their places.
SELECT k.place, n.step, n.id::text, n.properties::text, n.place
FROM (
    SELECT a.id::ag_catalog.graphid AS id, a.after, a.place
    FROM unnest(%(ids)s::text[], %(afters)s::text[]) WITH ORDINALITY AS a (id, after, place)
) AS k
CROSS JOIN LATERAL (
    SELECT m.* FROM ({edges}) AS m WHERE m.place > k.after ORDER BY m.place LIMIT %(limit)s
) AS n
ORDER BY k.place, n.place
