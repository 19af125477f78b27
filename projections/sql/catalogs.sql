-- SPDX-License-Identifier: Apache-2.0
-- name: insert_created
-- A row for every alias; an alias is never used twice.
INSERT INTO projections.catalogs (log_id, generation, alias, kind, options, is_retired)
SELECT %(log_id)s, %(generation)s, x.alias, x.kind, x.options, false
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (alias text, kind text, options jsonb)

-- name: retire
-- The aliases that are no longer there.
UPDATE projections.catalogs SET is_retired = true
WHERE log_id = %(log_id)s AND generation = %(generation)s AND alias = ANY(%(aliases)s)

-- name: digest_catalogs
-- Every row by alias.
SELECT alias, kind, options, is_retired
FROM projections.catalogs
WHERE log_id = %(log_id)s AND generation = %(generation)s
ORDER BY alias COLLATE "C"

-- name: drop_catalogs
-- The rows of one generation.
DELETE FROM projections.catalogs WHERE log_id = %(log_id)s AND generation = %(generation)s

-- name: catalogs
-- The catalogs in force of one log, or of all that the role may see.
SELECT g.log_id, g.origin, g.tenant, g.reader, c.alias, c.kind, c.options
FROM projections.live AS l
JOIN projections.catalogs AS c USING (log_id, generation)
JOIN ledger.logs AS g USING (log_id)
WHERE l.projection = 'catalogs' AND NOT c.is_retired AND (%(log_id)s::integer IS NULL OR c.log_id = %(log_id)s)
ORDER BY c.log_id, c.alias COLLATE "C"
