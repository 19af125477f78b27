-- SPDX-License-Identifier: Apache-2.0
-- name: namespace_replay
-- Holds if the namespace exists: its properties, changed again as the request of the log says.
UPDATE gateway.namespaces SET properties = (properties - %(removals)s::text[]) || %(updates)s::jsonb
WHERE log_id = %(log_id)s AND alias = %(alias)s AND namespace = %(namespace)s::text[]

-- name: table_replay
-- Holds if the table exists: it is where the log tells.
UPDATE gateway.tables SET places = %(places)s::bytea[], folders = %(folders)s::bytea[], places_told = true
WHERE log_id = %(log_id)s AND alias = %(alias)s AND namespace = %(namespace)s::text[] AND name = %(name)s

-- name: table_expect
-- Always holds: a table is where its metadata's location suggests, unless the log says where it is.
WITH expected AS (
    UPDATE gateway.tables SET places = %(places)s::bytea[], folders = %(folders)s::bytea[]
    WHERE log_id = %(log_id)s AND alias = %(alias)s AND namespace = %(namespace)s::text[] AND name = %(name)s
      AND NOT places_told
)
SELECT

-- name: place_replay
-- Holds always: a place was registered or granted; whether it is held depends on who else holds it now.
INSERT INTO gateway.catalog_places (log_id, alias, place, digest, folders, held)
SELECT %(log_id)s, %(alias)s, %(place)s, %(digest)s, %(folders)s::bytea[], NOT EXISTS (
    SELECT FROM gateway.catalog_places
    WHERE held AND log_id <> %(log_id)s
      AND (digest = ANY(%(folders)s::bytea[]) OR folders @> ARRAY[%(digest)s::bytea])
)
ON CONFLICT (log_id, alias, place) DO UPDATE SET held = excluded.held

-- name: place_forget
-- Holds if the tenant has registered a place here, or places below it: it holds them no longer.
WITH released AS (
    UPDATE gateway.catalog_places SET held = false
    WHERE log_id = %(log_id)s AND folders @> ARRAY[%(digest)s::bytea]
    RETURNING 1
)
SELECT FROM released LIMIT 1
