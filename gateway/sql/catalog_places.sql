-- SPDX-License-Identifier: Apache-2.0
-- name: taken
-- Whether another tenant holds a place that overlaps this one.
SELECT EXISTS (
    SELECT FROM gateway.catalog_places
    WHERE held AND log_id <> %(log_id)s
      AND (digest = ANY(%(folders)s::bytea[]) OR folders @> ARRAY[%(digest)s::bytea])
)

-- name: holds
-- Whether a tenant holds this very place or one below it, and whether it holds one above it.
SELECT
    EXISTS (SELECT FROM gateway.catalog_places
            WHERE held AND log_id = %(log_id)s AND folders @> ARRAY[%(digest)s::bytea]),
    EXISTS (SELECT FROM gateway.catalog_places
            WHERE held AND log_id = %(log_id)s AND digest = ANY(%(folders)s::bytea[]) AND digest <> %(digest)s)

-- name: tenant_of_log
-- The tenant whose log it is.
SELECT tenant FROM ledger.logs WHERE log_id = %(log_id)s

-- name: contested
-- Catalogs in force whose place another tenant holds, all of it or a part, and whose that is.
SELECT mine.tenant, p.alias, p.place, theirs.tenant
FROM gateway.catalog_places AS p
JOIN ledger.logs AS mine ON mine.log_id = p.log_id
JOIN gateway.catalog_places AS h
    ON h.held AND h.log_id <> p.log_id AND (h.digest = ANY(p.folders) OR h.folders @> ARRAY[p.digest])
JOIN ledger.logs AS theirs ON theirs.log_id = h.log_id
WHERE p.alias <> '' AND NOT EXISTS (
    SELECT FROM ledger.entries AS e
    WHERE e.log_id = p.log_id AND e.is_control AND e.key = 'catalog:' || p.alias AND e.type = 'catalog.retired'
)
ORDER BY mine.tenant, p.alias, theirs.tenant

-- name: held
-- Every place that is held.
SELECT l.tenant, p.alias, p.place
FROM gateway.catalog_places AS p JOIN ledger.logs AS l USING (log_id)
WHERE p.held
ORDER BY l.tenant, p.alias, p.place
