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

-- name: edges_from
-- Edges of one label from a vertex: the other end, and in which direction that is.
SELECT {text}::text AS label, 'out'::text AS direction, e.end_id AS there
FROM {label} AS e WHERE e.start_id OPERATOR(ag_catalog.=) k.id

-- name: edges_to
-- The same, to a vertex.
SELECT {text}::text AS label, 'in'::text AS direction, e.start_id AS there
FROM {label} AS e WHERE e.end_id OPERATOR(ag_catalog.=) k.id

-- name: neighbours
-- The edges of some vertices, by their place, each with the vertex at its other end; in the order of label, direction and
-- that vertex's key, behind one of these for each.
SELECT k.place, n.label, n.direction, n.id::text, n.properties::text, n.place
FROM (
    SELECT a.id::ag_catalog.graphid AS id, a.after, a.place
    FROM unnest(%(ids)s::text[], %(afters)s::text[]) WITH ORDINALITY AS a (id, after, place)
) AS k
CROSS JOIN LATERAL (
    SELECT m.*
    FROM (
        SELECT e.label, e.direction, v.id, v.properties,
               (e.label || ' ' || e.direction || ' '
                || (ag_catalog.agtype_access_operator(v.properties, '"key"'::ag_catalog.agtype))::text) COLLATE "C"
                   AS place
        FROM ({edges}) AS e JOIN {vertices} AS v ON v.id OPERATOR(ag_catalog.=) e.there
    ) AS m
    WHERE m.place > k.after
    ORDER BY m.place
    LIMIT %(limit)s
) AS n
ORDER BY k.place, n.place
